//! Names the paths that still have contents which `snap rewrite` removed, or have them again.

use serde::Serialize;
use snap_core::{
    base::{id::CommitId, observe::Silent},
    ops::{
        affected::{Affected, AffectedPath},
        remaining,
    },
    repo::{
        PastError, RefName, Repo,
        roots::{RootChoice, Roots},
    },
};

use crate::{
    context::Context,
    report::CliError,
    ui::{size::count, text},
};

/// Number of paths that are listed, unless the user asks for all of them.
const SHOWN_PATHS: usize = 10;

/// A path with a removed content.
#[derive(Debug, Serialize)]
pub(super) struct RemainingPathJson {
    path: String,
    commit: String,
    commits: u64,
}

impl RemainingPathJson {
    /// Makes the records of all listed paths.
    pub(super) fn of(affected: &Affected) -> Vec<Self> {
        let record = |AffectedPath { path, commit, commits, .. }: &AffectedPath| Self {
            path: String::from_utf8_lossy(path).into_owned(),
            commit: commit.to_string(),
            commits: *commits,
        };
        affected.paths.iter().map(record).collect()
    }
}

/// Warns of paths with removed contents, at a remote or here.
pub(super) fn warn_of_paths(affected: &Affected, remote: Option<&str>, cx: &Context) {
    let (ui, place) = (cx.ui(), remote.map(|name| format!(" at {name}")).unwrap_or_default());
    let shown = if ui.is_verbose() { affected.paths.len() } else { SHOWN_PATHS };
    for AffectedPath { path, commit, .. } in affected.paths.iter().take(shown) {
        let path = text::line(path);
        ui.warning(format_args!("{path} in commit {commit:.12}{place} has a removed content"));
    }
    let more = affected.more_paths + affected.paths.len().saturating_sub(shown) as u64;
    if more > 0 {
        ui.warning(format_args!("{} have one, too", count(more, "other path")));
    }
    match (affected.is_empty(), remote) {
        (true, _) => {}
        (false, None) => ui.hint(
            "`snap rewrite --exclude PATH` removes a path from all branches and tags\n\
             `snap commit --allow PATH` keeps its content",
        ),
        (false, Some(remote)) => ui.hint(&format!(
            "`snap push --force {remote} BRANCH` replaces a branch there\n\
             `snap push {remote} --delete NAME` deletes a branch or a tag there"
        )),
    }
}

/// Warns of the paths that bring back what `snap rewrite` removed in `repo`: those of the commits with
/// which a ref has moved from `old` to `new`. Without a ref, those that no ref reaches.
///
/// # Errors
/// [`CliError`] if the store cannot be read.
pub(super) fn warn_of_returned(
    repo: &Repo,
    (name, old, new): (Option<&RefName>, Option<CommitId>, CommitId),
    cx: &Context,
) -> Result<(), CliError> {
    if repo.store().rewrites()?.is_empty() {
        return Ok(());
    }
    let roots = Roots::read(repo, RootChoice::Shared)?;
    let others = roots.pointers().filter(|(pointer, _)| pointer.name() != name);
    let known: Vec<CommitId> = others.map(|(_, id)| id).chain(old).collect();
    let returned = remaining::returned::<PastError>(repo.store(), new, &known, &Silent)?;
    warn_of_paths(&returned, None, cx);
    Ok(())
}
