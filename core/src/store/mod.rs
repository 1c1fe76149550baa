//! Layer 4: objects by id, over packs and an index.

use std::{path::{Path, PathBuf}, sync::Arc};

use crate::{
    base::{id::{BlobId, CommitId, ObjectId, PackId, TreeId}, io::PathError, kind::ErrorKind, observe::Observer},
    disk::Disk,
    format::{chunk_list::Piece, commit::Commit, pack::ObjectKind, tree::Node, wire::FormatError},
};

/// Where an object lies; sorts by pack, frame and offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Number of the pack in this open store.
    pub pack: u32,
    /// Number of the frame in the pack.
    pub frame: u32,
    /// Where the object starts in the frame's raw bytes.
    pub offset: u32,
    /// How long it is.
    pub bytes: u32,
    /// What it is.
    pub kind: ObjectKind,
}

/// What a content is stored as.
#[derive(Clone, Debug)]
pub enum Content {
    /// One object.
    Whole(Place),
    /// Chunks, in order.
    Chunks(Vec<Piece>),
}

/// Why an object could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// placeholder
    #[error("object {id} is not in the store")]
    Missing {
        /// Which.
        id: ObjectId,
    },
}

impl StoreError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::NotFound
    }
}

/// Objects by id.
#[derive(Debug)]
pub struct Store {}

#[expect(unused_variables, clippy::todo, missing_docs, reason = "signatures first")]
impl Store {
    /// Creates the folders of a store in `dir`.
    pub fn create(dir: &Path, disk: &Disk) -> Result<(), StoreError> { todo!() }
    /// Opens; rebuilds the index when needed (told to the observer).
    pub fn open(dir: &Path, disk: Disk, observer: &dyn Observer) -> Result<Self, StoreError> { todo!() }
    /// Where an object is.
    pub fn locate(&self, id: &ObjectId) -> Result<Option<Place>, StoreError> { todo!() }
    /// The raw bytes of a whole frame: its checksum is verified, the objects' ids are not.
    pub fn frame(&self, place: &Place) -> Result<Arc<Vec<u8>>, StoreError> { todo!() }
    /// An object's bytes, checked against its id (chunk lists: only the frame's checksum).
    /// Finds the object again when its pack was merged away.
    pub fn object(&self, id: &ObjectId, kind: ObjectKind) -> Result<Vec<u8>, StoreError> { todo!() }
    pub fn tree(&self, id: &TreeId) -> Result<Node, StoreError> { todo!() }
    pub fn commit(&self, id: &CommitId) -> Result<Commit, StoreError> { todo!() }
    /// What a content is stored as.
    pub fn content(&self, id: &BlobId) -> Result<Content, StoreError> { todo!() }
    /// Objects of a kind whose id lies between (inclusive), at most `limit`.
    pub fn ids_between(&self, low: &[u8; 32], high: &[u8; 32], limit: usize) -> Result<Vec<(ObjectId, ObjectKind)>, StoreError> { todo!() }
    /// The folder.
    pub fn dir(&self) -> &Path { todo!() }
    pub fn disk(&self) -> &Disk { todo!() }
    pub fn packs(&self) -> Vec<PackId> { todo!() }
    pub fn pack_path(&self, id: &PackId) -> PathBuf { todo!() }
}
