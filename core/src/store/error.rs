//! Why an object could not be read or written.

use std::path::PathBuf;

use crate::{
    base::{
        id::{ObjectId, PackId},
        io::PathError,
        kind::ErrorKind,
    },
    codec::CodecError,
    disk::table::TableError,
    format::{pack::ObjectKind, wire::FormatError},
    store::DistantError,
};

/// Why an object could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No pack has it.
    #[error("{} {id} is not in the store", wanted.noun())]
    Missing {
        /// Which.
        id: ObjectId,
        /// What it should be.
        wanted: ObjectKind,
    },

    /// It is there, but as something else.
    #[error("object {id} is a {}, not a {}", found.noun(), wanted.noun())]
    WrongKind {
        /// Which.
        id: ObjectId,
        /// What it should be.
        wanted: ObjectKind,
        /// What it is.
        found: ObjectKind,
    },

    /// The content is not what its id says: damaged in storage.
    #[error("object {wanted} in pack {pack} is damaged: its content hashes to {actual:.12}")]
    Damaged {
        /// The pack it lies in.
        pack: PackId,
        /// Its id.
        wanted: ObjectId,
        /// What it hashes to.
        actual: ObjectId,
    },

    /// An object's bytes break a rule of their format.
    #[error("{} {id} cannot be decoded", kind.noun())]
    Object {
        /// Which.
        id: ObjectId,
        /// What it should be.
        kind: ObjectKind,
        /// Which rule.
        source: FormatError,
    },

    /// Something is not stored, because no reader would accept it.
    #[error("this cannot be stored")]
    Unstorable(#[from] FormatError),

    /// A pack breaks a rule of its format, or a newer snap wrote it.
    #[error("pack {pack} cannot be read")]
    Format {
        /// Which.
        pack: PackId,
        /// Which rule.
        source: FormatError,
    },

    /// A pack is not the bytes that its name says.
    #[error("pack {pack} is damaged: its bytes hash to {actual:.12}")]
    PackHash {
        /// Which.
        pack: PackId,
        /// What it hashes to.
        actual: PackId,
    },

    /// The stored bytes of a frame have changed.
    #[error(
        "pack {pack} is damaged in the frame at byte {offset_bytes}: its checksum does not match"
    )]
    Frame {
        /// Which pack.
        pack: PackId,
        /// Where the frame starts.
        offset_bytes: u64,
    },

    /// A frame could not be compressed or expanded.
    #[error("pack {pack}, frame at byte {offset_bytes}")]
    Expand {
        /// Which pack.
        pack: PackId,
        /// Where the frame starts.
        offset_bytes: u64,
        /// What the codec says.
        source: CodecError,
    },

    /// Compression itself failed.
    #[error(transparent)]
    Compress(CodecError),

    /// The pack has been merged into another one meanwhile.
    #[error("pack {pack} is gone")]
    Gone {
        /// Which.
        pack: PackId,
    },

    /// What is wanted lies elsewhere, and there is nobody to fetch it.
    #[error("pack {pack} is not all here: the frame at byte {offset_bytes} lies elsewhere")]
    Absent {
        /// Which pack.
        pack: PackId,
        /// Where the frame starts.
        offset_bytes: u64,
    },

    /// What came from elsewhere is not what its checksum says. Nothing here is
    /// damaged.
    #[error(
        "{} came damaged in the frame at byte {offset_bytes}: its checksum does not match",
        place.clone().unwrap_or_else(|| format!("pack {pack}"))
    )]
    Garbled {
        /// Which pack.
        pack: PackId,
        /// Where the frame starts.
        offset_bytes: u64,
        /// Where the pack lies, in words, unless whoever tells of it says so.
        place: Option<String>,
    },

    /// A pack lies elsewhere, and could not be read from there.
    #[error("pack {pack} cannot be fetched")]
    Distant {
        /// Which.
        pack: PackId,
        /// Why.
        source: DistantError,
    },

    /// The table of shadowed objects cannot be read or written.
    #[error("the shadow table {} cannot be used", path.display())]
    Shadow {
        /// Where it is.
        path: PathBuf,
        /// Which rule it breaks.
        source: FormatError,
    },

    /// The index could not be read or written.
    #[error(transparent)]
    Index(#[from] TableError),

    /// The storage below failed.
    #[error(transparent)]
    Io(#[from] PathError),
}

impl StoreError {
    /// Whether the disk of the store is full.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Io(error) if error.is_full())
    }

    /// The pack that is damaged, if it is one.
    pub fn damaged_pack(&self) -> Option<PackId> {
        match self {
            Self::Damaged { pack, .. }
            | Self::Format { pack, .. }
            | Self::PackHash { pack, .. }
            | Self::Frame { pack, .. }
            | Self::Expand { pack, .. } => Some(*pack),
            _ => None,
        }
    }

    /// Whether the fault is that something lies elsewhere: what is here is
    /// not to blame.
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Absent { .. } | Self::Garbled { .. } | Self::Distant { .. })
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            // A store that refers to what it does not have is damaged, too,
            // but the caller knows whether the id came from the store.
            Self::Missing { .. } => ErrorKind::NotFound,
            Self::WrongKind { .. } | Self::Unstorable(_) => ErrorKind::Invalid,
            Self::Damaged { .. }
            | Self::PackHash { .. }
            | Self::Frame { .. }
            | Self::Garbled { .. }
            | Self::Expand { .. } => ErrorKind::Damaged,
            Self::Object { source, .. }
            | Self::Format { source, .. }
            | Self::Shadow { source, .. } => source.kind(),
            Self::Compress(_) | Self::Absent { .. } => ErrorKind::Unavailable,
            Self::Gone { .. } => ErrorKind::NotFound,
            Self::Distant { source, .. } => source.kind,
            Self::Index(error) => error.kind(),
            Self::Io(error) => error.kind(),
        }
    }
}
