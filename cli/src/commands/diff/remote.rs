//! Comparisons of snapshots in a remote.

use std::{ffi::OsString, path::PathBuf};

use crate::{context::Context, report::CliError};

/// Splits `REMOTE#REV` arguments into the remote and its revisions. Returns `None` if they are
/// local. All revisions must be in the same place.
pub(super) fn split(
    args: &[OsString],
    cx: &Context,
) -> Result<Option<(String, Vec<OsString>)>, CliError> {
    let mut remote: Option<String> = None;
    let mut revs = Vec::new();
    for arg in args {
        let Some(split) = cx.split_remote(arg)? else { continue };
        if remote.as_ref().is_some_and(|remote| *remote != split.remote) {
            return Err(CliError::Usage(
                "snapshots of two remotes cannot be compared; pull from one of them first",
            ));
        }
        remote = Some(split.remote);
        revs.push(split.rev);
    }
    match remote {
        None => Ok(None),
        Some(_) if revs.len() < args.len() => Err(CliError::Usage(
            "a snapshot of a remote can be compared only with files or with the same remote; pull \
             it first",
        )),
        Some(remote) => Ok(Some((remote, revs))),
    }
}

/// Returns the folder that is compared with one revision of a remote: the current project, if there
/// is one.
pub(super) fn folder(revs: &[OsString], cx: &Context) -> Result<Option<PathBuf>, CliError> {
    match (revs, cx.find_store(std::path::Path::new("."))?) {
        ([_], Some(store)) => {
            let repo = cx.open_found(&store)?;
            Ok(repo.project().map(PathBuf::from))
        }
        _ => Ok(None),
    }
}
