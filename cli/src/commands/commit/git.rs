//! The `.git` at the top of a project that is also a git work tree. Commits leave it out unless the
//! user includes it: git changes it without snap, and a restore would take back git's own commits.

use std::path::Path;

use snap_core::{
    format::commit::Commit,
    local::ignore::{self, GIT, Options},
    ops::commit::CommitOutcome,
    repo::{Repo, path::entry_named},
};

use crate::{context::Context, report::CliError};

/// Returns true if a folder has an entry `.git`, of any kind.
pub(crate) fn is_at(folder: &Path) -> bool {
    folder.join(GIT).symlink_metadata().is_ok()
}

/// Leaves out `.git` if `folder` is the project, and if the folder or the last commit has one.
pub(crate) fn leave_out(
    rules: &mut ignore::Options,
    repo: &Repo,
    (folder, includes_git): (&Path, bool),
) -> Result<(), CliError> {
    let real = |path: &Path| fs_err::canonicalize(path).ok();
    let is_project = repo.project().is_some_and(|top| top == folder || real(top) == real(folder));
    if includes_git || repo.config().commit.git || !is_project {
        return Ok(());
    }
    if is_at(folder) || (!repo.is_absent() && is_in_last_commit(repo)?) {
        rules.leave_out_git();
    }
    Ok(())
}

/// Returns true if the last commit has `.git` at the top.
fn is_in_last_commit(repo: &Repo) -> Result<bool, CliError> {
    let Some(id) = repo.refs().head_commit()? else { return Ok(false) };
    // A comparison reports a lost commit or tree.
    let Ok(commit) = repo.store().commit(&id) else { return Ok(false) };
    Ok(entry_named(repo.store(), commit.tree, GIT.as_bytes()).is_ok_and(|entry| entry.is_some()))
}

/// Says that a new commit leaves out `.git`, unless its parent did so, too.
pub(super) fn note_left_out(
    outcome: &CommitOutcome,
    repo: &Repo,
    cx: &Context,
) -> Result<(), CliError> {
    let Some(id) = outcome.id.filter(|_| outcome.created) else { return Ok(()) };
    repo.store().refresh()?;
    let commit = repo.store().commit(&id)?;
    let parents = commit.parents.iter().filter_map(|id| repo.store().commit(id).ok());
    if leaves_out_git(&commit) && !parents.into_iter().any(|parent| leaves_out_git(&parent)) {
        note(cx);
    }
    Ok(())
}

/// Says that the commit leaves out `.git`.
pub(super) fn note(cx: &Context) {
    cx.ui().status(format_args!("`.git` is left out: git keeps its own history"));
    cx.ui().hint(
        "`snap commit --include-git` saves it once\n\
         `snap config set commit.git true` saves it always",
    );
}

fn leaves_out_git(commit: &Commit) -> bool {
    commit.selection.rules.iter().any(Options::leaves_out_git)
}
