//! Remote-tracking branches: refs `refs/remotes/NAME/BRANCH` with the last known commits of the
//! branches of a remote. Revisions may name them.

use snap_core::{
    base::id::CommitId,
    repo::{RefError, RefName, Repo, collected::COLLECTED_THERE, ref_name::RefKind},
};

use super::RemoteSpec;
use crate::{context::Context, report::CliError};

/// The reason in the logs of remote-tracking branches.
pub(crate) const REASON: &str = "seen";

/// Records the commit of a branch of a named remote; `None` if the branch was deleted. Tags do not
/// move, so they are not recorded.
pub(crate) fn record_tracking_branch(
    (place, repo): (&RemoteSpec, &Repo),
    name: &RefName,
    at: Option<CommitId>,
    cx: &Context,
) -> Result<(), CliError> {
    let Some(remote) = place.name.as_deref().filter(|_| name.kind() == RefKind::Branch) else {
        return Ok(());
    };
    let own = RefName::remote(remote, name.short())?;
    let old = repo.refs().read(&own)?;
    let record = || {
        cx.with_change(repo.config(), REASON, |change| repo.refs().update(&own, old, at, change))
    };
    match record() {
        Err(RefError::NameConflict { .. }) => {
            forget_replaced((repo, remote), name.short(), cx)?;
            Ok(record()?)
        }
        recorded => Ok(recorded?),
    }
}

/// Removes the remote-tracking branches whose names exclude `branch`. A remote has `x` or `x/y`, so
/// such a branch no longer exists there. In a bucket that has both by mistake, a pull of one forgets
/// where the other was seen last; the next pull of that one records it again.
fn forget_replaced(
    (repo, remote): (&Repo, &str),
    branch: &str,
    cx: &Context,
) -> Result<(), CliError> {
    let is_within = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
    };
    for (other, id) in branches(repo, remote)? {
        if is_within(branch, &other) || is_within(&other, branch) {
            let name = RefName::remote(remote, &other)?;
            forget_one(repo, (&name, id), "replaced", cx)?;
        }
    }
    Ok(())
}

/// Removes a remote-tracking branch that is at `id`.
fn forget_one(
    repo: &Repo,
    (name, id): (&RefName, CommitId),
    reason: &str,
    cx: &Context,
) -> Result<(), CliError> {
    Ok(cx.with_change(repo.config(), reason, |change| {
        repo.refs().update(name, Some(id), None, change)
    })?)
}

/// Lists the last known branches of a remote, by their names there.
pub(crate) fn branches(repo: &Repo, remote: &str) -> Result<Vec<(String, CommitId)>, CliError> {
    Ok(of_remote(remote, repo.refs().list(RefKind::Remote)?))
}

/// Selects the remote-tracking branches of a remote.
fn of_remote(remote: &str, all: Vec<(RefName, CommitId)>) -> Vec<(String, CommitId)> {
    let own = all.into_iter().filter_map(|(name, id)| {
        let branch = name.short().strip_prefix(remote)?.strip_prefix('/')?;
        Some((branch.to_owned(), id))
    });
    own.collect()
}

/// Removes the remote-tracking branch of a branch that others deleted, and whose commit a collection
/// deleted at the remote. Nothing can read that commit here.
pub(crate) fn forget_deleted(
    (repo, remote): (&Repo, &str),
    (branch, id): (&str, CommitId),
    cx: &Context,
) -> Result<(), CliError> {
    forget_one(repo, (&RefName::remote(remote, branch)?, id), COLLECTED_THERE, cx)
}

/// Lists the branches for which [`forget_deleted`] was called and that were not seen since, each with
/// its last known commit.
pub(crate) fn deleted(repo: &Repo, remote: &str) -> Result<Vec<(String, CommitId)>, CliError> {
    Ok(of_remote(remote, repo.collected_there()?))
}

/// Removes all remote-tracking branches of a remote.
pub(crate) fn forget(repo: &Repo, remote: &str, cx: &Context) -> Result<(), CliError> {
    for (branch, id) in branches(repo, remote)? {
        forget_one(repo, (&RefName::remote(remote, &branch)?, id), "remote removed", cx)?;
    }
    Ok(())
}
