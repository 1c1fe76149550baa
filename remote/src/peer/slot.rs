//! The content of a ref in a remote store.

use snap_core::{
    base::{id::CommitId, limits},
    format::ref_text::{FIRST_EPOCH, Nonce, RefText},
    repo::{ref_name::RefName, refs::Damage},
};

use super::{REFS, RemoteError};
use crate::bucket::{ObjectVersion, StoredObject};

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
    /// True if the store keeps no tombstones, so that an absent ref may be a deleted one.
    may_be_deleted: bool,
}

/// The content under the key of a ref that is not a valid ref.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UnreadableRef {
    /// The identity of the content.
    damage: Damage,
    why: String,
}

impl RefSlot {
    /// Decodes the object under the key of a ref.
    pub(super) fn of(StoredObject { bytes, version }: StoredObject) -> Self {
        match RefText::decode(&bytes) {
            Ok(text) => Self { commit: text.commit, text: Some(text), version, ..Self::default() },
            Err(error) => {
                let (damage, why) = (Damage::of(&bytes), error.to_string());
                let unreadable = Some(UnreadableRef { damage, why });
                Self { version, unreadable, ..Self::default() }
            }
        }
    }

    /// Creates a ref of a listing without versions.
    pub(super) fn without_version(commit: CommitId) -> Self {
        Self { commit: Some(commit), ..Self::default() }
    }

    /// Creates the content of a ref of a store that keeps no tombstones, with its text as version.
    pub(super) fn of_text(text: RefText) -> Self {
        let etag = Some(format!("\"{}\"", text.tag()));
        let version = Some(ObjectVersion { etag, generation: None });
        Self {
            commit: text.commit,
            text: Some(text),
            version,
            may_be_deleted: true,
            ..Self::default()
        }
    }

    /// Creates the content of a ref on a snap server.
    pub(super) fn on_server(text: RefText, version: ObjectVersion) -> Self {
        Self { version: Some(version), ..Self::of_text(text) }
    }

    /// Creates damaged content of a ref on a snap server, which the ETag identifies.
    pub(super) fn damaged_on_server(etag: String) -> Self {
        let damaged = Self::damaged(Damage::of(etag.as_bytes()), "the server reports damage");
        let version = Some(ObjectVersion { etag: Some(etag), generation: None });
        Self { version, ..damaged }
    }

    /// Creates damaged content, of which only an identity is known.
    pub(super) fn damaged(damage: Damage, why: &str) -> Self {
        let unreadable = Some(UnreadableRef { damage, why: why.to_owned() });
        Self { unreadable, ..Self::default() }
    }

    /// Returns the text, if the content is valid.
    pub(super) fn text(&self) -> Option<&RefText> {
        self.text.as_ref()
    }

    /// Creates content that cannot be read.
    pub(super) fn unreadable(why: String) -> Self {
        Self::damaged(Damage::of(b""), &why)
    }

    /// Creates content that is longer than a ref can be.
    pub(super) fn too_long() -> Self {
        Self::unreadable(format!("it has more than {} B", limits::REF_BYTES))
    }

    /// Creates an absent ref of a store that keeps no tombstones.
    pub(super) fn absent_or_deleted() -> Self {
        Self { may_be_deleted: true, ..Self::default() }
    }

    /// Returns the version for a condition, if the service has one.
    pub(super) fn version(&self) -> Option<&ObjectVersion> {
        self.version.as_ref()
    }

    /// Returns why the content is not a valid ref; `None` for a valid one.
    pub(super) fn why_unreadable(&self) -> Option<&str> {
        self.unreadable.as_ref().map(|found| &*found.why)
    }

    /// Returns the error for invalid content; `None` for valid content.
    pub(crate) fn error(&self, name: &RefName, location: &str) -> Option<RemoteError> {
        let why = format!("it is not a ref: {}", self.why_unreadable()?);
        Some(RemoteError::Damaged { key: key(name), location: location.to_owned(), why })
    }

    /// Returns true if there is any content under the key.
    pub fn exists(&self) -> bool {
        self.text.is_some() || self.unreadable.is_some()
    }

    /// Returns true if the content is not a valid ref.
    pub fn is_damaged(&self) -> bool {
        self.unreadable.is_some()
    }

    /// Returns true if the ref was never written, or its content is lost. A deleted ref leaves a
    /// tombstone.
    pub(crate) fn is_lost(&self) -> bool {
        !self.exists() && !self.may_be_deleted
    }

    /// Returns the damage, if the content is not a valid ref.
    pub fn damage(&self) -> Option<Damage> {
        self.unreadable.as_ref().map(|found| found.damage)
    }

    /// Returns true if another read found the same content.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.commit, self.nonce(), self.damage()) == (other.commit, other.nonce(), other.damage())
    }

    /// Returns the nonce of the last write; `None` without valid content.
    pub(super) fn nonce(&self) -> Option<Nonce> {
        self.text.as_ref().map(|text| text.nonce)
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

/// Returns the key of a ref.
pub(crate) fn key(name: &RefName) -> String {
    format!("{REFS}{}/{}", name.kind().folder(), name.short())
}
