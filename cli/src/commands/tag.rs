//! `snap tag`: list, make, delete tags.

use snap_core::repo::{RefName, ref_name::RefKind};

use crate::{
    commands::refs,
    context::Context,
    report::{CliError, Done},
};

const EXAMPLES: &str = "\
Examples:
  snap tag                    list them
  snap tag v1.0               name the newest commit
  snap tag before-trip latest@2026-10-01
  snap tag -d v1.0            forget the name; the commit stays";

/// List, make or delete tags
///
/// A tag is a name for one commit that stays where it is.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TagArgs {
    /// Tag to make
    name: Option<String>,

    /// Commit it names
    #[arg(default_value = "HEAD")]
    rev: String,

    /// Move it if it exists
    #[arg(short, long, requires = "name")]
    force: bool,

    /// Tag to delete
    #[arg(short, long, value_name = "NAME", conflicts_with = "name")]
    delete: Option<String>,
}

pub(crate) fn run(args: &TagArgs, cx: &Context) -> Result<Done, CliError> {
    let repo = cx.open_repo()?;
    if let Some(name) = &args.delete {
        refs::delete(cx, &repo, &RefName::tag(name)?)?;
    } else if let Some(name) = &args.name {
        refs::make(cx, &repo, (&RefName::tag(name)?, &args.rev), args.force.into())?;
    } else {
        refs::list(cx, &repo, RefKind::Tag)?;
    }
    Ok(Done::Well)
}
