//! All refs of a remote store, and the branch that a clone starts with.

use std::collections::HashSet;

use bytes::Bytes;
use snap_core::{
    base::{id::CommitId, kind::ErrorKind},
    repo::{
        open::FIRST_BRANCH,
        ref_name::{RefKind, RefName},
    },
};

use super::{HEAD, Place, RemoteError};

/// Returns the default branch of a store whose `HEAD` is missing.
pub fn first_branch() -> RefName {
    RefName::branch(FIRST_BRANCH).expect("the first branch has a name that can be one")
}

/// Returns the content of [`HEAD`] for a default branch.
pub(super) fn head_text(head: &RefName) -> Bytes {
    format!("ref: refs/{}/{}\n", head.kind().folder(), head.short()).into()
}

/// Returns the branch that the content of [`HEAD`] names.
pub fn branch_of(bytes: &[u8]) -> Option<RefName> {
    let text = std::str::from_utf8(bytes).ok()?;
    let name = text.trim_end_matches('\n').strip_prefix("ref: ")?;
    RefName::parse_full(name).filter(|name| name.kind() == RefKind::Branch)
}

/// Returns the branch that a clone starts with if `HEAD` is damaged or names a missing branch:
/// the [first branch](first_branch) of a new store, or else the first one by name.
pub(crate) fn likely_branch(refs: &[(RefName, CommitId)]) -> Option<RefName> {
    let first = first_branch();
    let branches = || refs.iter().map(|(name, _)| name).filter(|n| n.kind() == RefKind::Branch);
    branches().find(|name| **name == first).or_else(|| branches().next()).cloned()
}

/// Returns the names of refs that would be parent folders of a ref: `a` and `a/b` for `a/b/c`.
pub(super) fn outer_names(name: &RefName) -> impl Iterator<Item = RefName> + '_ {
    let ends = name.short().match_indices('/').map(|(at, _)| at);
    ends.filter_map(|at| RefName::new(name.kind(), &name.short()[..at]).ok())
}

/// Creates the error for a `HEAD` that is lost or damaged.
pub(super) fn damaged_head(location: &str, why: &str) -> RemoteError {
    let (key, location) = (HEAD.to_owned(), location.to_owned());
    RemoteError::Damaged { key, location, why: why.to_owned() }
}

impl Place {
    /// Makes `first` the branch that clones start with.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub async fn begin_head(&self, first: &RefName) -> Result<(), RemoteError> {
        self.peer.begin_head(first).await
    }

    /// Returns the branch that a clone starts with. **Not** checked: that the branch exists.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] if `HEAD` does not name a branch.
    pub async fn default_branch(&self) -> Result<RefName, RemoteError> {
        Ok(self.head().await?.unwrap_or_else(first_branch))
    }

    /// Creates the error for a store with branches and without `HEAD`. The push that creates a
    /// store writes `HEAD` before the first branch.
    pub(crate) fn lost_head(&self) -> RemoteError {
        damaged_head(self.location(), "it is missing")
    }

    /// Returns the problem with `HEAD`, if there is one; `refs` are all readable refs. A store
    /// without branches may be a new one. Deleted branches leave tombstones, except in a snap
    /// server and in the store of a project.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub(crate) async fn head_problem(
        &self,
        refs: &[(RefName, CommitId)],
    ) -> Result<Option<RemoteError>, RemoteError> {
        let head = match self.head().await {
            Err(error) if error.kind() == ErrorKind::Damaged => return Ok(Some(error)),
            head => head?,
        };
        if refs.iter().all(|(name, _)| name.kind() != RefKind::Branch) {
            return Ok(None);
        }
        let Some(head) = head else { return Ok(Some(self.lost_head())) };
        let is_there = refs.iter().any(|(name, _)| *name == head);
        if is_there || !self.any_slot(&head).await?.is_lost() {
            return Ok(None);
        }
        let why = format!("it names the branch `{}`, which does not exist", head.short());
        Ok(Some(damaged_head(self.location(), &why)))
    }

    /// Returns all branches and tags with their commits. Takes one request if the service has
    /// such a listing, otherwise a listing and one request for each ref.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] if a ref is damaged.
    pub async fn all_refs(&self) -> Result<Vec<(RefName, CommitId)>, RemoteError> {
        let (refs, damaged) = self.readable_refs().await?;
        damaged.into_iter().next().map_or(Ok(refs), |(_, error)| Err(error))
    }

    /// Returns refs like [`Self::all_refs`], with a separate error for each damaged ref, and for
    /// each ref whose name another ref blocks.
    ///
    /// # Errors
    /// [`RemoteError`] if the refs cannot be listed or read.
    pub async fn readable_refs(
        &self,
    ) -> Result<(Vec<(RefName, CommitId)>, Vec<(RefName, RemoteError)>), RemoteError> {
        let (mut refs, mut damaged) = self.stored_refs().await?;
        let blocked = self.blocked_refs(&refs);
        refs.retain(|(name, _)| blocked.iter().all(|(other, _)| other != name));
        damaged.extend(blocked);
        Ok((refs, damaged))
    }

    /// Returns refs like [`Self::readable_refs`], but counts a ref as readable even if another ref
    /// blocks its name.
    ///
    /// # Errors
    /// As [`Self::readable_refs`].
    pub(crate) async fn stored_refs(
        &self,
    ) -> Result<(Vec<(RefName, CommitId)>, Vec<(RefName, RemoteError)>), RemoteError> {
        let (mut refs, mut damaged) = (Vec::new(), Vec::new());
        for (name, slot) in self.peer.refs().await? {
            match (slot.error(&name, self.location()), slot.commit) {
                (Some(error), _) => damaged.push((name, error)),
                (None, Some(commit)) => refs.push((name, commit)),
                // A deleted ref.
                (None, None) => {}
            }
        }
        Ok((refs, damaged))
    }

    /// Returns an error for each ref that lies below another one.
    pub(crate) fn blocked_refs(&self, refs: &[(RefName, CommitId)]) -> Vec<(RefName, RemoteError)> {
        let names: HashSet<&RefName> = refs.iter().map(|(name, _)| name).collect();
        let to_error = |name: &RefName| {
            let other = outer_names(name).find(|outer| names.contains(outer))?;
            let (blocked, location) = (Box::new(name.clone()), self.location().to_owned());
            let other = Box::new(other);
            Some((name.clone(), RemoteError::RefBlocked { name: blocked, other, location }))
        };
        refs.iter().filter_map(|(name, _)| to_error(name)).collect()
    }
}
