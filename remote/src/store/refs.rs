//! Reads refs of a remote store and moves them by compare-and-swap.
//!
//! A remote ref has the same [text](snap_core::format::ref_text) as a local one: the commit, the
//! nonce of the write, and the epoch. Each push reads the ref, so the text can stop older programs
//! from writing, whatever they have cached. A write whose reply was lost may have happened, and its
//! retry then looks like a conflict. So the client reports a conflict only after it has read the
//! nonce of another client in the ref.
//!
//! To delete a ref, the client replaces it by a tombstone with 64 zeros as its commit. Few services
//! can remove on a condition, and an unconditional removal could hit a ref that another client has
//! created again.

use bytes::Bytes;
use snap_core::{
    base::{
        id::CommitId,
        limits,
        observe::{Observer, Silent},
    },
    format::ref_text::{FIRST_EPOCH, Nonce, RefText},
    repo::{
        ref_name::RefName,
        refs::{Damage, MisnamedFile},
    },
};

use super::{REFS, RemoteError, RemoteStore};
use crate::service::{
    ConditionalWrites, FailureReason, ObjectVersion, ServiceError, StoredObject, WriteCondition,
};

/// The state of an existing ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteRef {
    /// The commit.
    pub commit: CommitId,
}

/// The content under the key of a ref, if there is any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefSlot {
    /// The commit; `None` if the ref does not exist or was deleted.
    pub commit: Option<CommitId>,
    /// The whole text; `None` without valid content.
    text: Option<RefText>,
    version: Option<ObjectVersion>,
    /// The content, if it is not a valid ref.
    unreadable: Option<UnreadableRef>,
}

/// The content under the key of a ref that is not a valid ref.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UnreadableRef {
    /// The bytes; `None` if they are longer than a ref can be, or cannot be read.
    bytes: Option<Bytes>,
    why: String,
}

impl RefSlot {
    /// Returns true if there is any content under the key.
    pub fn exists(&self) -> bool {
        self.text.is_some() || self.unreadable.is_some()
    }

    /// Returns true if the content is not a valid ref.
    pub fn is_damaged(&self) -> bool {
        self.unreadable.is_some()
    }

    /// Returns the damage, if the content is not a valid ref.
    pub fn damage(&self) -> Option<Damage> {
        let unreadable = self.unreadable.as_ref()?;
        Some(Damage::of(unreadable.bytes.as_deref().unwrap_or_default()))
    }

    /// Returns true if another read found the same content.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let bytes = |slot: &Self| slot.unreadable.as_ref().map(|found| found.bytes.clone());
        (self.commit, self.nonce()) == (other.commit, other.nonce()) && bytes(self) == bytes(other)
    }

    /// Returns the nonce of the last write; `None` without valid content.
    pub(super) fn nonce(&self) -> Option<Nonce> {
        self.text.as_ref().map(|text| text.nonce)
    }

    /// Returns the condition that the content has not changed since the read, if the service takes
    /// it.
    pub(super) fn condition(&self, takes: ConditionalWrites) -> Option<WriteCondition> {
        match &self.version {
            None if takes.absent && !self.exists() => Some(WriteCondition::Absent),
            Some(version) if takes.unchanged => Some(WriteCondition::Unchanged(version.clone())),
            _ => None,
        }
    }

    /// Returns true if this version of snap may write the ref: it has no lines that only a newer
    /// version understands.
    pub fn is_writable(&self) -> bool {
        self.text.as_ref().is_none_or(|text| !text.has_more)
    }

    /// Returns the epoch of the last write; 0 without valid content.
    pub fn epoch(&self) -> u64 {
        self.text.as_ref().map_or(FIRST_EPOCH, |text| text.epoch)
    }
}

pub(crate) fn key(name: &RefName) -> String {
    format!("{REFS}{}/{}", name.kind().folder(), name.short())
}

/// The content of a ref to write.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewRef {
    /// The commit; `None` deletes the ref.
    pub(super) commit: Option<CommitId>,
    pub(super) epoch: u64,
}

impl NewRef {
    pub(super) fn text(self, nonce: Nonce) -> Bytes {
        RefText { nonce, epoch: self.epoch, ..RefText::new(self.commit) }.encode().into()
    }
}

/// Returns true if an error may come from reading a folder, or a path below a file.
fn may_be_folder(error: &ServiceError) -> bool {
    use FailureReason::{Denied, Other, Refused, TooLong, Unsupported};
    matches!(error.reason, Refused | Other | Unsupported | Denied | TooLong)
}

fn parse(StoredObject { bytes, version }: StoredObject) -> RefSlot {
    match RefText::decode(&bytes) {
        Ok(text) => RefSlot { commit: text.commit, text: Some(text), version, unreadable: None },
        Err(error) => {
            let unreadable = Some(UnreadableRef { bytes: Some(bytes), why: error.to_string() });
            RefSlot { version, unreadable, ..RefSlot::default() }
        }
    }
}

impl RemoteStore {
    /// Returns the commit of a ref.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] if the content is not a valid ref.
    pub async fn read_ref(&self, name: &RefName) -> Result<Option<RemoteRef>, RemoteError> {
        Ok(self.slot(name).await?.commit.map(|commit| RemoteRef { commit }))
    }

    /// Returns the content under the key of a ref.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] if the content is not a valid ref.
    pub async fn slot(&self, name: &RefName) -> Result<RefSlot, RemoteError> {
        let slot = self.read_slot(name).await?;
        self.damage(name, &slot).map_or(Ok(slot), Err)
    }

    /// Returns content like [`Self::slot`], including invalid content, so that a caller can replace
    /// it.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub async fn any_slot(&self, name: &RefName) -> Result<RefSlot, RemoteError> {
        match self.read_slot(name).await {
            Err(RemoteError::Service(error)) if error.reason == FailureReason::TooLong => {
                let why = format!("it has more than {} B", limits::REF_BYTES);
                Ok(RefSlot {
                    unreadable: Some(UnreadableRef { bytes: None, why }),
                    ..RefSlot::default()
                })
            }
            Err(RemoteError::Service(error)) if error.reason == FailureReason::NotAFile => {
                let why = "it is not a regular file".to_owned();
                Ok(RefSlot {
                    unreadable: Some(UnreadableRef { bytes: None, why }),
                    ..RefSlot::default()
                })
            }
            slot => slot,
        }
    }

    async fn read_slot(&self, name: &RefName) -> Result<RefSlot, RemoteError> {
        let slot = match self.client.find(&key(name), limits::REF_BYTES as u64).await {
            Ok(Some(object)) => parse(object),
            Ok(None) => return Ok(RefSlot::default()),
            // Some services with folders answer the read of a folder with a page or an error.
            Err(error) if may_be_folder(&error) && self.is_no_ref(name).await => {
                return Ok(RefSlot::default());
            }
            Err(error) => return Err(error.into()),
        };
        match slot.unreadable.is_some() && self.is_no_ref(name).await {
            true => Ok(RefSlot::default()),
            false => Ok(slot),
        }
    }

    /// Returns the error for invalid content of a ref, or `None` for a valid one.
    pub(crate) fn damage(&self, name: &RefName, slot: &RefSlot) -> Option<RemoteError> {
        let UnreadableRef { why, .. } = slot.unreadable.as_ref()?;
        Some(self.damaged_ref(name, why))
    }

    /// Creates the error for a key whose content is not a valid ref.
    pub(super) fn damaged_ref(&self, name: &RefName, why: &str) -> RemoteError {
        RemoteError::Damaged {
            key: key(name),
            location: self.location.clone(),
            why: format!("it is not a ref: {why}"),
        }
    }

    /// Returns why the object under the key of a ref is not a ref; `None` for a ref, a folder, and
    /// an object that is gone. Unlike [`Self::slot`], does not ignore an object that another ref
    /// blocks.
    pub(super) async fn why_no_ref(&self, name: &RefName) -> Result<Option<String>, RemoteError> {
        let why = match self.client.find(&key(name), limits::REF_BYTES as u64).await {
            Ok(object) => object.map(parse).and_then(|slot| slot.unreadable).map(|found| found.why),
            Err(error) if error.reason == FailureReason::TooLong => {
                Some(format!("it has more than {} B", limits::REF_BYTES))
            }
            Err(error) if may_be_folder(&error) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(why.map(|why| format!("it is not a ref: {why}")))
    }

    /// Reads a file below `refs/` whose name no ref can have.
    pub(super) async fn read_misnamed(&self, key: &str) -> Result<MisnamedFile, RemoteError> {
        let slot = match self.client.find(key, limits::REF_BYTES as u64).await {
            Ok(object) => object.map(parse).unwrap_or_default(),
            Err(ServiceError {
                reason: FailureReason::TooLong | FailureReason::NotAFile, ..
            }) => RefSlot::default(),
            Err(error) => return Err(error.into()),
        };
        Ok(MisnamedFile { path: key.escape_debug().to_string(), commit: slot.commit })
    }

    /// Creates the error for a ref that a newer version of snap wrote.
    pub(crate) fn newer(&self, name: &RefName) -> RemoteError {
        RemoteError::Newer { key: key(name), location: self.location.clone() }
    }

    /// Moves a ref from `expected` to `new` by compare-and-swap; `None` deletes it.
    ///
    /// # Errors
    /// [`RemoteError::Raced`] if the ref is not as expected; [`RemoteError::Collected`] if a
    /// collection has begun a new epoch; [`RemoteError::Newer`], [`RemoteError::Held`].
    pub async fn swap(
        &self,
        name: &RefName,
        expected: &RefSlot,
        new: Option<CommitId>,
    ) -> Result<(), RemoteError> {
        self.swap_observed(name, expected, new, &Silent).await
    }

    /// Moves a ref like [`Self::swap`], and informs `observer` about a wait for the claim of
    /// another client.
    ///
    /// # Errors
    /// As [`RemoteStore::swap`].
    pub async fn swap_observed(
        &self,
        name: &RefName,
        expected: &RefSlot,
        new: Option<CommitId>,
        observer: &dyn Observer,
    ) -> Result<(), RemoteError> {
        if !expected.is_writable() {
            return Err(self.newer(name));
        }
        let can = self.conditions(observer).await?;
        match new {
            Some(_) => {
                let expected = self.fence_ref(name, expected, can, observer).await?;
                self.write_ref(name, &expected, new, can, observer).await
            }
            None => self.write_ref(name, expected, None, can, observer).await,
        }
    }

    /// Replaces the content of a ref by compare-and-swap. A deleted ref keeps its epoch.
    pub(super) async fn write_ref(
        &self,
        name: &RefName,
        expected: &RefSlot,
        new: Option<CommitId>,
        can: ConditionalWrites,
        observer: &dyn Observer,
    ) -> Result<(), RemoteError> {
        let epoch = match (new, self.client.maintains_index()) {
            (_, true) => FIRST_EPOCH,
            (Some(_), _) => self.mirror.epoch(),
            (None, _) if expected.exists() => expected.epoch(),
            (None, _) => self.mirror.epoch(),
        };
        self.write_ref_at(name, expected, NewRef { commit: new, epoch }, can, observer).await
    }

    /// Replaces the content of a ref by compare-and-swap.
    pub(super) async fn write_ref_at(
        &self,
        name: &RefName,
        expected: &RefSlot,
        new: NewRef,
        can: ConditionalWrites,
        observer: &dyn Observer,
    ) -> Result<(), RemoteError> {
        let Some(when) = expected.condition(can) else {
            return self.swap_claimed(name, expected, new, observer).await;
        };
        let (key, nonce) = (key(name), Nonce::random());
        // A snap server writes nonces of its own, so the new commit is enough there.
        let is_result = |now: &RefSlot| match now.nonce() {
            Some(found) if !self.client.maintains_index() => found == nonce,
            _ => now.commit == new.commit && !now.is_damaged(),
        };
        let is_told = match self.client.write(&key, new.text(nonce), when).await {
            Ok(Some(version)) if version.etag.is_some() || version.generation.is_some() => {
                return Ok(());
            }
            // A proxy may answer with 200 in place of the service. Only a version proves that the
            // service has written the ref.
            Ok(_) => true,
            Err(error) if error.reason == FailureReason::Conflict => false,
            // All responses were lost, late, or from a relay that does not know the outcome. Only
            // the ref itself shows whether it has moved.
            Err(error) if error.reason.is_temporary() || error.reason == FailureReason::Other => {
                return match self.any_slot(name).await {
                    Ok(now) if is_result(&now) && !now.is_same(expected) => Ok(()),
                    _ => Err(error.into()),
                };
            }
            Err(error) => return Err(error.into()),
        };
        let now = self.any_slot(name).await?;
        if is_result(&now) {
            return Ok(());
        }
        let stands = now.is_same(expected);
        match is_told && stands {
            true => Err(self.unconfirmed_write(&key)),
            false => Err(self.race_error(name, &now)),
        }
    }

    /// Creates the error for a confirmed write that did not happen.
    fn unconfirmed_write(&self, key: &str) -> RemoteError {
        let message = "the service confirmed the write, but the ref did not change; a proxy may \
                       answer in place of the service"
            .to_owned();
        let error = ServiceError::new("write", key, FailureReason::Other, message);
        ServiceError { location: self.location.clone(), ..error }.into()
    }

    pub(super) fn race_error(&self, name: &RefName, now: &RefSlot) -> RemoteError {
        let (name, location) = (Box::new(name.clone()), self.location.clone());
        RemoteError::Raced { name, location, theirs: now.commit }
    }
}
