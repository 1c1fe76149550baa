//! The sources that a repair reads from: other stores and bundles.

use std::{cell::OnceCell, fmt};

use crate::{
    base::id::{ObjectId, PackId},
    format::{
        outline::PackOutline,
        pack::{Frame, ObjectKind},
    },
    store::{ObjectLocation, PackFile, Store, StoreError},
};

/// The kind of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// A store. Its packs are named by the hash of their bytes.
    Store,
    /// A bundle. It gives single objects but no packs, and is read after all stores.
    Bundle,
}

/// Another store, or a bundle. After a failure of its transport a source is not read again.
pub struct RepairSource<'a> {
    name: String,
    store: &'a Store,
    kind: SourceKind,
    failed: OnceCell<StoreError>,
}

impl fmt::Debug for RepairSource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RepairSource({}, {:?})", self.name, self.kind)
    }
}

impl<'a> RepairSource<'a> {
    /// Creates a source that messages call `name`.
    pub fn new(name: String, store: &'a Store, kind: SourceKind) -> Self {
        Self { name, store, kind, failed: OnceCell::new() }
    }

    /// Returns the name for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the failure after which this source is not read any more.
    pub fn failed(&self) -> Option<&StoreError> {
        self.failed.get()
    }

    pub(super) fn kind(&self) -> SourceKind {
        self.kind
    }

    /// Returns the value that was read, or `None` after an error. Remembers a transport failure,
    /// which disables the source.
    fn accept<T>(&self, read: Result<T, StoreError>) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(error) => {
                if error.is_transport() {
                    let _ = self.failed.set(error);
                }
                None
            }
        }
    }

    fn available_store(&self) -> Option<&'a Store> {
        self.failed.get().is_none().then_some(self.store)
    }

    /// Returns the position of an object, from the index of the source.
    pub(super) fn locate(&self, id: &ObjectId) -> Option<ObjectLocation> {
        self.accept(self.available_store()?.locate(id))?
    }

    /// Returns an object that hashes to its id. A chunk list is **not** verified.
    pub(super) fn object(&self, id: &ObjectId, kind: ObjectKind) -> Option<Vec<u8>> {
        self.accept(self.available_store()?.object(id, kind))
    }

    /// Returns the pack that a position refers to.
    pub(super) fn pack_of(&self, place: &ObjectLocation) -> Option<PackId> {
        self.available_store()?.pack_id(place.pack)
    }

    /// Returns the header and footer of a pack, if the source has the pack.
    pub(super) fn outline(&self, id: &PackId) -> Option<PackOutline> {
        let has = self.kind == SourceKind::Store;
        let outline = self.accept(self.available_store().filter(|_| has)?.outline(id))?;
        outline.tables().is_ok().then_some(outline)
    }

    /// Opens a pack, if the source has it.
    pub(super) fn pack(&self, id: &PackId) -> Option<PackFile> {
        let has = self.kind == SourceKind::Store;
        self.accept(self.available_store().filter(|_| has)?.open_pack(id))
    }

    /// Announces that frames of a pack will be read in this order, so that they can be prefetched.
    pub(super) fn prefetch_frames(&self, pack: &PackId, frames: &[Frame]) {
        if let Some(store) = self.available_store() {
            store.prefetch_frames(*pack, frames);
        }
    }

    /// Returns the stored bytes of a frame, if they match its checksum.
    pub(super) fn frame(&self, pack: &PackFile, frame: &Frame) -> Option<Vec<u8>> {
        self.available_store()?;
        self.accept(pack.stored(frame))
    }

    /// Announces that objects will be read in this order, so that they can be prefetched.
    pub(super) fn prefetch(&self, places: &[ObjectLocation]) {
        if let Some(store) = self.available_store() {
            store.prefetch(places);
        }
    }
}
