//! The error of the store layer.

use std::path::PathBuf;

use crate::{
    base::{
        id::{CommitId, ObjectId, PackId},
        io::PathError,
        kind::{ErrorKind, Kind},
        limits,
    },
    codec::CodecError,
    disk::table::TableError,
    format::{pack::ObjectKind, wire::FormatError},
    store::RemoteFrameError,
};

/// Why an object could not be read or written.
#[derive(Debug, thiserror::Error, Kind)]
#[kind(Damaged)]
#[non_exhaustive]
pub enum StoreError {
    /// No pack holds the object. If the id came from the store itself, the store is damaged. Only the
    /// caller knows the source of the id.
    #[error("{} {id} is not in the store", wanted.noun())]
    #[kind(NotFound)]
    Missing { id: ObjectId, wanted: ObjectKind },

    /// The commit was forgotten, and its tree may be deleted. The store has only its link.
    #[error("commit {id:.12} was forgotten, and garbage collection has deleted it")]
    #[kind(NotFound)]
    Forgotten { id: CommitId },

    /// The object is stored, but has another kind.
    #[error("object {id} is a {}, not a {}", found.noun(), wanted.noun())]
    #[kind(of_wanted(*wanted))]
    WrongKind { id: ObjectId, wanted: ObjectKind, found: ObjectKind },

    /// The bytes of `wanted` hash to `actual`: the stored object is damaged.
    #[error("object {wanted} in pack {pack:.12} is damaged: its content hashes to {actual:.12}")]
    Damaged { pack: PackId, wanted: ObjectId, actual: ObjectId },

    /// The length in the entry of a file differs from the length of its content.
    #[error("content {id} has {found} bytes instead of {stated}")]
    Length { id: ObjectId, stated: u64, found: u64 },

    /// Every copy of an object is [shadowed](crate::store::Store::has_shadows): snap has found all
    /// of them wrong or unreadable.
    #[error("object {id} in pack {pack:.12} is known to be damaged")]
    Shadowed { id: ObjectId, pack: PackId },

    /// An object's bytes break a rule of their format.
    #[error("{} {id} cannot be decoded", kind.noun())]
    Object { id: ObjectId, kind: ObjectKind, source: FormatError },

    /// Folders are nested deeper than [`limits::DEPTH`].
    #[error("tree {id} is nested deeper than {} folders", limits::DEPTH)]
    TooDeep { id: ObjectId },

    /// Readers would refuse the value, so it is not stored.
    #[error("an object cannot be stored: it exceeds a limit of the format")]
    #[kind(Invalid)]
    Unstorable(#[from] FormatError),

    /// A pack breaks a rule of its format, or a newer snap wrote it.
    #[error("pack {pack:.12} cannot be read")]
    Format { pack: PackId, source: FormatError },

    /// The index names a place that the pack does not have. Nothing in the pack is damaged.
    #[error("the index does not match pack {pack:.12}")]
    IndexMismatch { pack: PackId },

    /// The bytes of a pack do not hash to its name.
    #[error("pack {pack:.12} is damaged: its bytes hash to {actual:.12}")]
    PackHash { pack: PackId, actual: PackId },

    /// The stored bytes of a frame do not match its checksum.
    #[error(
        "pack {pack:.12} is damaged in the frame at byte {offset_bytes}: its checksum does not match"
    )]
    Frame { pack: PackId, offset_bytes: u64 },

    /// A frame cannot be decompressed.
    #[error("pack {pack:.12}: cannot decompress the frame at byte {offset_bytes}")]
    #[kind(Damaged)]
    Expand { pack: PackId, offset_bytes: u64, source: CodecError },

    /// Compression itself failed.
    #[error(transparent)]
    #[kind(Unavailable)]
    Compress(CodecError),

    /// The pack no longer exists. Usually, another process has merged it into a new pack since this
    /// process listed the packs.
    #[error("pack {pack:.12} no longer exists: it was merged or removed")]
    #[kind(NotFound)]
    Gone { pack: PackId },

    /// A garbage collection has found objects dead on which this process relied. A new attempt
    /// stores them again.
    #[error("a garbage collection has deleted objects that this command needs")]
    #[kind(Unavailable)]
    Collected,

    /// `rewrite` has purged the object, and only refs may keep it.
    #[error("object {id:.12} was removed by `snap rewrite`")]
    #[kind(Refused)]
    Purged { id: ObjectId },

    /// The frame is on a remote, and the store has no source to fetch it from.
    #[error("pack {pack:.12} is incomplete: the frame at byte {offset_bytes} is not in this store")]
    #[kind(Unavailable)]
    Absent { pack: PackId, offset_bytes: u64 },

    /// Fetched bytes do not match their checksum. Nothing in this store is damaged. `place` is the
    /// location of the pack for the message; without a place, the message names the pack.
    #[error(
        "{} arrived damaged: the checksum of the frame at byte {offset_bytes} does not match",
        place.clone().unwrap_or_else(|| format!("pack {pack}"))
    )]
    CorruptedInTransit { pack: PackId, offset_bytes: u64, place: Option<String> },

    /// A pack of a remote could not be fetched.
    #[error("pack {pack:.12} cannot be fetched")]
    Fetch { pack: PackId, source: RemoteFrameError },

    /// The table of shadowed objects, of forgotten commits or of rewrites cannot be read or written.
    #[error("cannot read or write the table {}", path.display())]
    Table { path: PathBuf, source: FormatError },

    /// The index could not be read or written.
    #[error(transparent)]
    Index(#[from] TableError),

    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] PathError),
}

/// A user may name a commit. Ids of other kinds come from stored objects.
fn of_wanted(wanted: ObjectKind) -> ErrorKind {
    if wanted == ObjectKind::Commit { ErrorKind::Invalid } else { ErrorKind::Damaged }
}

impl StoreError {
    /// Returns true if the disk of the store is full.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Io(error) if error.is_full())
    }

    /// Returns the damaged pack, if the error reports damage in a pack.
    pub fn damaged_pack(&self) -> Option<PackId> {
        match self {
            Self::Damaged { pack, .. }
            | Self::Shadowed { pack, .. }
            | Self::Format { pack, .. }
            | Self::PackHash { pack, .. }
            | Self::Frame { pack, .. }
            | Self::Expand { pack, .. } => Some(*pack),
            _ => None,
        }
    }

    /// Returns true if the failure concerns bytes on a remote. Then nothing in this store is
    /// damaged.
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Absent { .. } | Self::CorruptedInTransit { .. } | Self::Fetch { .. })
    }

    /// Returns true if a fetch failed for a reason that says nothing about the object or its pack:
    /// other fetches would fail as well.
    pub fn is_transport(&self) -> bool {
        matches!(self, Self::Fetch { source, .. } if source.is_transport())
    }
}
