//! All refs elsewhere, and the one that a clone begins with.

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
use crate::service::When;

/// The default branch of a store that does not say so.
pub fn first_branch() -> RefName {
    RefName::branch(FIRST_BRANCH).expect("the first branch has a name that can be one")
}

/// What is under [`HEAD`] where a clone begins with that branch.
pub(super) fn text(head: &RefName) -> Bytes {
    format!("ref: refs/{}/{}\n", head.kind().folder(), head.short()).into()
}

/// The branch that the bytes under [`HEAD`] name.
pub(super) fn branch_of(bytes: &[u8]) -> Option<RefName> {
    let text = std::str::from_utf8(bytes).ok()?;
    let name = text.trim_end_matches('\n').strip_prefix("ref: ")?;
    RefName::parse_full(name).filter(|name| name.kind() == RefKind::Branch)
}

/// The branch that a clone begins with where `HEAD` is damaged: the only one, or the first one.
pub(crate) fn likely_branch(refs: &[(RefName, CommitId)]) -> Option<RefName> {
    let mut branches = refs.iter().map(|(name, _)| name).filter(|n| n.kind() == RefKind::Branch);
    match (branches.clone().count(), branches.next()) {
        (1, Some(only)) => Some(only.clone()),
        _ => Some(first_branch()).filter(|first| refs.iter().any(|(name, _)| name == first)),
    }
}

impl RemoteStore {
    /// Has clones begin with a branch that is the first one.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub async fn begin_head(&self, first: &RefName) -> Result<(), RemoteError> {
        self.client().write(HEAD, text(first), When::Always).await?;
        Ok(())
    }

    /// The branch that a clone begins with. Whether there is one of that name
    /// is **not** checked.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] when it is not the name of a branch.
    pub async fn default_branch(&self) -> Result<RefName, RemoteError> {
        let Some(object) = self.client().find(HEAD, limits::REF_BYTES as u64).await? else {
            return Ok(first_branch());
        };
        branch_of(&object.bytes).ok_or_else(|| RemoteError::Damaged {
            key: HEAD.to_owned(),
            location: self.location().to_owned(),
            why: "it is not the name of a branch".to_owned(),
        })
    }

    /// Branches and tags, and where they stand. One question where the service
    /// can answer it, else a list, and a request for each.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] when one is no ref.
    pub async fn all_refs(&self) -> Result<Vec<(RefName, CommitId)>, RemoteError> {
        let (refs, damaged) = self.readable_refs().await?;
        damaged.into_iter().next().map_or(Ok(refs), |(_, error)| Err(error))
    }

    /// The same, with those that are damaged and an error for each.
    ///
    /// # Errors
    /// [`RemoteError`] when they cannot be listed or read.
    pub(crate) async fn readable_refs(
        &self,
    ) -> Result<(Vec<(RefName, CommitId)>, Vec<(RefName, RemoteError)>), RemoteError> {
        if let Some(all) = self.client().standings().await? {
            let named = |(name, at): (String, _)| Some((RefName::parse_full(&name)?, at));
            let mut refs: Vec<(RefName, CommitId)> = all.into_iter().filter_map(named).collect();
            refs.sort_unstable();
            return Ok((refs, Vec::new()));
        }
        let listed = self.client().list(REFS).await?;
        let names = listed.iter().filter_map(|object| RefName::parse_full(&object.key));
        let names: Vec<RefName> = names.collect();
        let standings = join_all(names.iter().map(|name| self.standing(name))).await;
        let (mut refs, mut damaged) = (Vec::with_capacity(names.len()), Vec::new());
        for (name, standing) in names.into_iter().zip(standings) {
            match standing {
                // One that was removed since it was listed is no loss.
                Ok(standing) => refs.extend(standing.map(|standing| (name, standing.commit))),
                Err(error) if error.kind() == ErrorKind::Damaged => damaged.push((name, error)),
                Err(error) => return Err(error),
            }
        }
        refs.sort_unstable();
        Ok((refs, damaged))
    }
}
