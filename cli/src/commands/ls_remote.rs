//! `snap ls-remote`: lists the branches and tags of a remote.

use std::io::Write;

use snap_remote::peer::{RemoteError, StoreLookup};

use crate::{
    commands::refs::RefJson,
    context::Context,
    remote::{CachePolicy, LimitArgs},
    report::{CliError, CommandOutcome},
    ui::text,
};

const EXAMPLES: &str = "\
Examples:
  snap ls-remote                      the default remote
  snap ls-remote s3://bucket/project  a URL, without a store
  snap --json ls-remote origin | jq 'select(.kind == \"tag\")'

`snap remote show` shows the last known branches, without a connection.
`snap log REMOTE#main` lists the commits of a branch.";

/// List the branches and tags of a remote
///
/// Each line has the id of a commit and the full name of a branch or tag. HEAD is the default
/// branch. Changes nothing, neither here nor in the remote.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LsRemoteArgs {
    /// Remote or URL to list; default: origin, or the only remote
    #[arg(value_name = "REMOTE|URL")]
    remote: Option<String>,
}

pub(crate) fn run(args: &LsRemoteArgs, cx: &Context) -> Result<CommandOutcome, CliError> {
    let place = cx.remote(args.remote.as_deref().into())?;
    let connection = cx.connect_with(place, CachePolicy::Forgotten, &LimitArgs::default())?;
    let (store, _scratch) = connection.into_parts();
    let asking = async {
        if store.find_store().await? == StoreLookup::Missing {
            return Err(RemoteError::NoStore { location: store.place().location().to_owned() });
        }
        Ok((store.place().default_branch().await, store.place().readable_refs().await?))
    };
    let found = cx.waiting()?.block_on(asking).map_err(|error| cx.remote_error(error))?;
    let (default, (refs, damaged)) = found;
    let current = default.as_ref().ok();
    let mut out = cx.ui().out();
    if !cx.ui().is_json()
        && let Some((_, id)) = refs.iter().find(|(name, _)| Some(name) == current)
    {
        writeln!(out, "{id}\tHEAD")?;
    }
    for (name, id) in &refs {
        if cx.ui().is_json() {
            out.json(&RefJson::new(name, id, Some(name) == current))?;
        } else {
            writeln!(out, "{id}\t{}", text::line(name.to_string().as_bytes()))?;
        }
    }
    out.finish()?;
    let errors: Vec<RemoteError> =
        default.err().into_iter().chain(damaged.into_iter().map(|(_, error)| error)).collect();
    errors.iter().for_each(|error| cx.ui().warning(format_args!("{}", text::chain(error))));
    if refs.is_empty() && errors.is_empty() {
        cx.ui().status(format_args!("The remote has no branch or tag"));
    }
    Ok(if errors.is_empty() { CommandOutcome::Success } else { CommandOutcome::Damaged })
}
