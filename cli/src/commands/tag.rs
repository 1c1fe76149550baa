//! `snap tag`: lists, creates and deletes tags.

use snap_core::repo::{RefName, ref_name::RefKind};

use crate::{
    commands::refs,
    context::Context,
    report::{CliError, CommandOutcome},
};

const EXAMPLES: &str = "\
Examples:
  snap tag                    list tags
  snap tag v1.0               name the newest commit
  snap tag before-trip latest@2026-10-01
  snap tag -d v1.0            delete the tag; its commit stays";

/// List, create or delete tags
///
/// A tag is a name for a commit that does not move.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TagArgs {
    /// Tag to create
    name: Option<String>,

    /// Commit of the new tag
    #[arg(default_value = "HEAD")]
    rev: String,

    /// Move the tag if it exists
    #[arg(short, long, requires = "name")]
    force: bool,

    /// Tag to delete
    #[arg(short, long, value_name = "NAME", conflicts_with = "name")]
    delete: Option<String>,
}

pub(crate) fn run(args: &TagArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let repo = cx.open_repo()?;
    if let Some(name) = &args.delete {
        refs::delete(cx, &repo, &RefName::tag(name)?)?;
    } else if let Some(name) = &args.name {
        refs::make(cx, &repo, (&RefName::tag(name)?, &args.rev), args.force.into())?;
    } else {
        return refs::list(cx, &repo, RefKind::Tag);
    }
    Ok(CommandOutcome::Success)
}
