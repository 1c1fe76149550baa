//! Where the branches of a remote stood when it was last asked: refs of their
//! own, `refs/remotes/NAME/BRANCH`, which revisions may name.

use snap_core::{
    base::id::CommitId,
    repo::{RefName, Repo, ref_name::RefKind},
};

use super::Place;
use crate::{context::Context, report::CliError};

/// Notes where a ref of a remote with a name stands; `None` when it is gone.
/// Tags stay where they are, so nothing is noted of them.
pub(crate) fn saw(
    (place, repo): (&Place, &Repo),
    name: &RefName,
    at: Option<CommitId>,
    cx: &Context,
) -> Result<(), CliError> {
    let Some(remote) = place.name.as_deref().filter(|_| name.kind() == RefKind::Branch) else {
        return Ok(());
    };
    let own = RefName::remote(remote, name.short())?;
    let old = repo.refs().read(&own)?;
    cx.with_change(repo.config(), "seen", |change| repo.refs().update(&own, old, at, change))?;
    Ok(())
}

/// Where the branches of a remote stood, by their names there.
pub(crate) fn branches(repo: &Repo, remote: &str) -> Result<Vec<(String, CommitId)>, CliError> {
    let all = repo.refs().list(RefKind::Remote)?.into_iter();
    let own = all.filter_map(|(name, id)| {
        let branch = name.short().strip_prefix(remote)?.strip_prefix('/')?;
        Some((branch.to_owned(), id))
    });
    Ok(own.collect())
}

/// Forgets all that was known of a remote's branches.
pub(crate) fn forget(repo: &Repo, remote: &str, cx: &Context) -> Result<(), CliError> {
    for (branch, id) in branches(repo, remote)? {
        let name = RefName::remote(remote, &branch)?;
        cx.with_change(repo.config(), "remote removed", |change| {
            repo.refs().update(&name, Some(id), None, change)
        })?;
    }
    Ok(())
}
