//! Refs elsewhere: read, compared and swapped.
//!
//! A ref is two lines: the id of the commit, and a nonce that says who wrote
//! it. A third one is for later versions: each push reads the ref, so a store
//! that older programs must not write to any more can tell them so here, however
//! well they think they know it. A write whose reply was lost may have happened, and then looks like a
//! conflict when it is made again: so a conflict is believed only after reading
//! the ref and finding somebody else's nonce.
//!
//! A ref that is deleted is not removed but says so, with 64 zeros for a
//! commit: few services remove on a condition, and a ref that somebody made
//! anew in the meantime must not go with the old one.

use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use snap_core::{
    base::{
        id::CommitId,
        limits,
        observe::{Observer, Silent},
    },
    repo::ref_name::RefName,
};

use super::{REFS, RemoteError, RemoteStore};
use crate::service::{Object, ServiceError, Version, What, When};

/// Where a ref stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// At which commit.
    pub commit: CommitId,
}

/// What lies under the key of a ref, if anything does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Where the ref stands; `None` when it is not there or was deleted.
    pub commit: Option<CommitId>,
    /// Who wrote that; `None` when nothing is there.
    pub(super) nonce: Option<String>,
    version: Option<Version>,
}

impl Slot {
    /// Whether anything lies there.
    pub fn is_there(&self) -> bool {
        self.nonce.is_some()
    }
}

/// Stands for a ref that was deleted.
const DELETED: [u8; 32] = [0; 32];

pub(super) fn key(name: &RefName) -> String {
    format!("{REFS}{}/{}", name.kind().folder(), name.short())
}

/// Something that nobody else ever says.
pub(super) fn nonce() -> String {
    let random = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", random(), random())
}

pub(super) fn text(new: Option<CommitId>, nonce: &str) -> Bytes {
    let id = new.unwrap_or(CommitId::from_bytes(DELETED));
    format!("{id}\n{nonce}\n").into()
}

impl RemoteStore {
    /// Where a ref stands.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] when it is no ref.
    pub async fn standing(&self, name: &RefName) -> Result<Option<Standing>, RemoteError> {
        Ok(self.slot(name).await?.commit.map(|commit| Standing { commit }))
    }

    /// What lies under the key of a ref.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] when it is no ref, [`RemoteError::Newer`].
    pub async fn slot(&self, name: &RefName) -> Result<Slot, RemoteError> {
        let key = key(name);
        match self.client.find(&key, limits::REF_BYTES as u64).await? {
            Some(object) => self.parse(&key, &object),
            None => Ok(Slot::default()),
        }
    }

    fn parse(&self, key: &str, object: &Object) -> Result<Slot, RemoteError> {
        let text = std::str::from_utf8(&object.bytes).unwrap_or("");
        let mut lines = text.lines();
        let commit: Option<CommitId> = lines.next().and_then(|line| line.parse().ok());
        let commit = commit.ok_or_else(|| RemoteError::Damaged {
            key: key.to_owned(),
            location: self.location.clone(),
            why: "it is not a commit id".to_owned(),
        })?;
        let nonce = lines.next().unwrap_or_default().to_owned();
        if lines.next().is_some() {
            let (key, location) = (key.to_owned(), self.location.clone());
            return Err(RemoteError::Newer { key, location });
        }
        let commit = (*commit.as_bytes() != DELETED).then_some(commit);
        Ok(Slot { commit, nonce: Some(nonce), version: object.version.clone() })
    }

    /// Moves a ref to `new` if it is as `expected` says; `None` deletes it.
    ///
    /// # Errors
    /// [`RemoteError::Raced`] when it is not; [`RemoteError::Held`].
    pub async fn swap(
        &self,
        name: &RefName,
        expected: &Slot,
        new: Option<CommitId>,
    ) -> Result<(), RemoteError> {
        self.swap_observed(name, expected, (new, &Silent)).await
    }

    /// The same, which tells when somebody else's claim is waited for.
    ///
    /// # Errors
    /// As [`RemoteStore::swap`].
    pub async fn swap_observed(
        &self,
        name: &RefName,
        expected: &Slot,
        (new, observer): (Option<CommitId>, &dyn Observer),
    ) -> Result<(), RemoteError> {
        let can = self.conditions(observer).await?;
        let when = match &expected.version {
            None if can.absent && expected.nonce.is_none() => When::Absent,
            Some(version) if can.unchanged => When::Unchanged(version.clone()),
            _ => return self.swap_claimed(name, expected, (new, observer)).await,
        };
        let (key, nonce) = (key(name), nonce());
        let is_told = match self.client.write(&key, text(new, &nonce), when).await {
            Ok(Some(version)) if version.etag.is_some() || version.generation.is_some() => {
                return Ok(());
            }
            // Anything between here and there can answer with 200. Only a version is
            // the service's own sign.
            Ok(_) => true,
            Err(error) if error.what == What::Conflict => false,
            Err(error) => return Err(error.into()),
        };
        let now = self.slot(name).await?;
        // A snap server keeps no nonces: there, what stands where it should is as
        // good as ours.
        let has_none = now.nonce.as_ref().is_none_or(String::is_empty);
        if now.nonce == Some(nonce) || (has_none && now.commit == new) {
            return Ok(());
        }
        let stands = (&now.commit, &now.nonce) == (&expected.commit, &expected.nonce);
        match is_told && stands {
            true => Err(self.unwritten(&key)),
            false => Err(self.raced(name, &now)),
        }
    }

    /// The error that a write was answered as done, and is not.
    fn unwritten(&self, key: &str) -> RemoteError {
        let message = "the answer says that it is written, and it is not: something between here \
                       and there answers in place of the service"
            .to_owned();
        let error = ServiceError::new("write", key, What::Other, message);
        ServiceError { location: self.location.clone(), ..error }.into()
    }

    pub(super) fn raced(&self, name: &RefName, now: &Slot) -> RemoteError {
        let (name, location) = (Box::new(name.clone()), self.location.clone());
        RemoteError::Raced { name, location, theirs: now.commit }
    }
}
