//! Refs elsewhere: read, compared and swapped.
//!
//! A ref has the [text](snap_core::format::ref_text) of all refs: the commit, a
//! nonce that says which write it was, and the epoch. Each push reads the ref, so
//! a store that older programs must not write to any more tells them so here,
//! however well they think they know it. A write whose reply was lost may have
//! happened, and then looks like a conflict when it is made again: so a conflict
//! is believed only after reading the ref and finding somebody else's nonce.
//!
//! A ref that is deleted is not removed but says so, with 64 zeros for a
//! commit: few services remove on a condition, and a ref that somebody made
//! anew in the meantime must not go with the old one.

use bytes::Bytes;
use snap_core::{
    base::{
        id::CommitId,
        limits,
        observe::{Observer, Silent},
    },
    format::ref_text::{Nonce, RefText},
    repo::ref_name::RefName,
};

use super::{REFS, RemoteError, RemoteStore};
use crate::service::{Conditions, Object, ServiceError, Version, What, When};

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
    /// Which write said so; `None` when nothing is there, or a snap server keeps
    /// that to itself.
    pub(super) nonce: Option<Nonce>,
    /// All that it says; `None` when nothing is there.
    text: Option<RefText>,
    version: Option<Version>,
    /// What lies there and is no ref.
    unreadable: Option<Unreadable>,
}

/// What lies under the key of a ref and is none.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Unreadable {
    /// None when it is longer than a ref.
    bytes: Option<Bytes>,
    why: String,
}

impl Slot {
    /// Whether anything lies there.
    pub fn is_there(&self) -> bool {
        self.text.is_some() || self.unreadable.is_some()
    }

    /// Whether what lies there is no ref.
    pub fn is_damaged(&self) -> bool {
        self.unreadable.is_some()
    }

    /// Whether another look found the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let bytes = |slot: &Self| slot.unreadable.as_ref().map(|found| found.bytes.clone());
        (&self.commit, &self.nonce) == (&other.commit, &other.nonce) && bytes(self) == bytes(other)
    }

    /// The condition that what lies there is as it was read, if the service takes such a one.
    pub(super) fn condition(&self, takes: Conditions) -> Option<When> {
        match &self.version {
            None if takes.absent && !self.is_there() => Some(When::Absent),
            Some(version) if takes.unchanged => Some(When::Unchanged(version.clone())),
            _ => None,
        }
    }

    /// Whether this version may write there.
    pub fn is_writable(&self) -> bool {
        self.text.as_ref().is_none_or(RefText::is_writable)
    }
}

pub(crate) fn key(name: &RefName) -> String {
    format!("{REFS}{}/{}", name.kind().folder(), name.short())
}

pub(super) fn text(new: Option<CommitId>, nonce: Nonce) -> Bytes {
    RefText { nonce: Some(nonce), ..RefText::without_nonce(new) }.encode().into()
}

/// Whether an error may come from reading a folder, or below a file.
fn may_be_folder(error: &ServiceError) -> bool {
    use What::{Denied, Other, Refused, TooLong, Unsupported};
    matches!(error.what, Refused | Other | Unsupported | Denied | TooLong)
}

fn parse(Object { bytes, version }: Object) -> Slot {
    match RefText::decode(&bytes) {
        Ok(text) => {
            let (commit, nonce) = (text.commit, text.nonce);
            Slot { commit, nonce, text: Some(text), version, unreadable: None }
        }
        Err(error) => {
            let unreadable = Some(Unreadable { bytes: Some(bytes), why: error.to_string() });
            Slot { version, unreadable, ..Slot::default() }
        }
    }
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
    /// [`RemoteError::Damaged`] when it is no ref.
    pub async fn slot(&self, name: &RefName) -> Result<Slot, RemoteError> {
        let slot = self.read_slot(name).await?;
        self.damage(name, &slot).map_or(Ok(slot), Err)
    }

    /// The same, where what is no ref is to be replaced.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub async fn any_slot(&self, name: &RefName) -> Result<Slot, RemoteError> {
        match self.read_slot(name).await {
            Err(RemoteError::Service(error)) if error.what == What::TooLong => {
                let why = format!("it has more than {} B", limits::REF_BYTES);
                Ok(Slot { unreadable: Some(Unreadable { bytes: None, why }), ..Slot::default() })
            }
            slot => slot,
        }
    }

    async fn read_slot(&self, name: &RefName) -> Result<Slot, RemoteError> {
        let slot = match self.client.find(&key(name), limits::REF_BYTES as u64).await {
            Ok(Some(object)) => parse(object),
            Ok(None) => return Ok(Slot::default()),
            // Where folders are like files, some say so with a page or an error.
            Err(error) if may_be_folder(&error) && self.is_no_ref(name).await => {
                return Ok(Slot::default());
            }
            Err(error) => return Err(error.into()),
        };
        match slot.unreadable.is_some() && self.is_no_ref(name).await {
            true => Ok(Slot::default()),
            false => Ok(slot),
        }
    }

    /// The error that a slot holds no ref, if that is so.
    pub(crate) fn damage(&self, name: &RefName, slot: &Slot) -> Option<RemoteError> {
        let Unreadable { why, .. } = slot.unreadable.as_ref()?;
        Some(RemoteError::Damaged {
            key: key(name),
            location: self.location.clone(),
            why: format!("it is not a ref: {why}"),
        })
    }

    /// The error that a later version wrote a ref.
    pub(crate) fn newer(&self, name: &RefName) -> RemoteError {
        RemoteError::Newer { key: key(name), location: self.location.clone() }
    }

    /// Moves a ref to `new` if it is as `expected` says; `None` deletes it.
    ///
    /// # Errors
    /// [`RemoteError::Raced`] when it is not; [`RemoteError::Newer`],
    /// [`RemoteError::Held`].
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
        if !expected.is_writable() {
            return Err(self.newer(name));
        }
        let can = self.conditions(observer).await?;
        self.upgrade(can).await?;
        let Some(when) = expected.condition(can) else {
            return self.swap_claimed(name, expected, (new, observer)).await;
        };
        let (key, nonce) = (key(name), Nonce::random());
        let is_told = match self.client.write(&key, text(new, nonce), when).await {
            Ok(Some(version)) if version.etag.is_some() || version.generation.is_some() => {
                return Ok(());
            }
            // Anything between here and there can answer with 200. Only a version is
            // the service's own sign.
            Ok(_) => true,
            Err(error) if error.what == What::Conflict => false,
            Err(error) => return Err(error.into()),
        };
        let now = self.any_slot(name).await?;
        // A snap server writes nonces of its own: there, what stands where it should
        // is as good as ours.
        if now.nonce == Some(nonce) || (now.nonce.is_none() && now.commit == new) {
            return Ok(());
        }
        let stands = now.is_same(expected);
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
