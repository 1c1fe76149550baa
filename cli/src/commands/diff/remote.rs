//! Comparing what lies in a store elsewhere.

use std::{ffi::OsString, path::PathBuf};

use crate::{context::Context, report::CliError};

/// The remote that the revisions name, and the revisions there; `None` when
/// they are here. All must be in one place.
pub(super) fn split(
    args: &[OsString],
    cx: &Context,
) -> Result<Option<(String, Vec<OsString>)>, CliError> {
    let mut remote: Option<String> = None;
    let mut revs = Vec::new();
    for arg in args {
        let Some(split) = cx.split_remote(arg)? else { continue };
        if remote.as_ref().is_some_and(|remote| *remote != split.remote) {
            return Err(CliError::Usage("two remotes cannot be compared: pull from one of them"));
        }
        remote = Some(split.remote);
        revs.push(split.rev);
    }
    match remote {
        None => Ok(None),
        Some(_) if revs.len() < args.len() => Err(CliError::Usage(
            "what is elsewhere is compared with files or with what is there, too: pull it, or name \
             paths behind `--`",
        )),
        Some(remote) => Ok(Some((remote, revs))),
    }
}

/// The folder that is compared with one revision elsewhere: the project, if one
/// stands in one.
pub(super) fn folder(revs: &[OsString], cx: &Context) -> Result<Option<PathBuf>, CliError> {
    match (revs, cx.find_store(std::path::Path::new("."))?) {
        ([_], Some(store)) => {
            let repo = cx.open_found(&store)?;
            Ok(repo.project().map(PathBuf::from))
        }
        _ => Ok(None),
    }
}
