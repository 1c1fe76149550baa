//! The refs of a remote store, and the branch that a clone starts with.

use bytes::Bytes;
use futures::future::join_all;
use snap_core::{
    base::{id::CommitId, kind::ErrorKind, limits},
    repo::{
        open::FIRST_BRANCH,
        ref_name::{RefKind, RefName},
    },
};

use super::{HEAD, REFS, RemoteError, RemoteStore};
use crate::service::{FailureReason, WriteCondition};

/// Returns the default branch of a store whose `HEAD` is missing.
pub fn first_branch() -> RefName {
    RefName::branch(FIRST_BRANCH).expect("the first branch has a name that can be one")
}

/// Returns the content of [`HEAD`] for a default branch.
pub(super) fn text(head: &RefName) -> Bytes {
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

impl RemoteStore {
    /// Makes `first` the branch that clones start with.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub async fn begin_head(&self, first: &RefName) -> Result<(), RemoteError> {
        self.client().write(HEAD, text(first), WriteCondition::Always).await?;
        Ok(())
    }

    /// Returns the branch that a clone starts with. **Not** checked: that the branch exists.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] if `HEAD` does not name a branch.
    pub async fn default_branch(&self) -> Result<RefName, RemoteError> {
        Ok(self.find_head().await?.unwrap_or_else(first_branch))
    }

    /// Returns the branch that `HEAD` names, or `None` if there is no `HEAD`.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] if `HEAD` does not name a branch.
    pub(crate) async fn find_head(&self) -> Result<Option<RefName>, RemoteError> {
        match self.client().find(HEAD, limits::REF_BYTES as u64).await {
            Err(error) if error.reason == FailureReason::DamagedThere => {
                Err(self.damaged_head("it is missing, or does not name a branch"))
            }
            Ok(Some(object)) => match branch_of(&object.bytes) {
                Some(branch) => Ok(Some(branch)),
                None => Err(self.damaged_head("it does not name a branch")),
            },
            Ok(None) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates the error for a `HEAD` that is lost or damaged.
    fn damaged_head(&self, why: &str) -> RemoteError {
        RemoteError::Damaged {
            key: HEAD.to_owned(),
            location: self.location().to_owned(),
            why: why.to_owned(),
        }
    }

    /// Creates the error for a store with branches and without `HEAD`. The push that creates a
    /// store writes `HEAD` before the first branch.
    pub(crate) fn lost_head(&self) -> RemoteError {
        self.damaged_head("it is missing")
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
        let head = match self.find_head().await {
            Err(error) if error.kind() == ErrorKind::Damaged => return Ok(Some(error)),
            head => head?,
        };
        if refs.iter().all(|(name, _)| name.kind() != RefKind::Branch) {
            return Ok(None);
        }
        let Some(head) = head else { return Ok(Some(self.lost_head())) };
        if self.client().maintains_index() || self.any_slot(&head).await?.exists() {
            return Ok(None);
        }
        let why = format!("it names the branch `{}`, which does not exist", head.short());
        Ok(Some(self.damaged_head(&why)))
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
        if let Some(all) = self.client().list_refs().await? {
            let named = |(name, at): (String, _)| Some((RefName::parse_full(&name)?, at));
            let mut refs: Vec<_> = all.refs.into_iter().filter_map(named).collect();
            refs.sort_unstable();
            let damaged = all.damaged.iter().filter_map(|name| RefName::parse_full(name));
            let to_error = |name| {
                let error = self.damaged_ref(&name, "the server reports damage");
                (name, error)
            };
            return Ok((refs, damaged.map(to_error).collect()));
        }
        let listed = self.client().list(REFS).await?;
        let names = listed.iter().filter_map(|object| RefName::parse_full(&object.key));
        let names: Vec<RefName> = names.collect();
        let standings = join_all(names.iter().map(|name| self.read_ref(name))).await;
        let (mut refs, mut damaged) = (Vec::with_capacity(names.len()), Vec::new());
        for (name, standing) in names.into_iter().zip(standings) {
            match standing {
                // `None` means that the ref was removed after the listing.
                Ok(standing) => refs.extend(standing.map(|standing| (name, standing.commit))),
                Err(error) if error.kind() == ErrorKind::Damaged => damaged.push((name, error)),
                Err(error) => return Err(error),
            }
        }
        refs.sort_unstable();
        Ok((refs, damaged))
    }
}
