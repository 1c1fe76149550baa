//! Where a repair looks for what a store has lost.

use std::{cell::OnceCell, fmt};

use crate::{
    base::{
        id::{ObjectId, PackId},
        kind::ErrorKind,
    },
    format::{
        outline::Outline,
        pack::{Frame, ObjectKind},
    },
    store::{PackFile, Place, Store, StoreError},
};

/// What a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// A store: its packs have the names of their bytes.
    Store,
    /// A bundle: its packs have other names. It is asked last.
    Bundle,
}

/// A store elsewhere, or a bundle. One that fails is not asked again.
pub struct Source<'a> {
    name: String,
    store: &'a Store,
    kind: SourceKind,
    failed: OnceCell<StoreError>,
}

impl fmt::Debug for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({}, {:?})", self.name, self.kind)
    }
}

impl<'a> Source<'a> {
    /// A source that messages call `name`.
    pub fn new(name: String, store: &'a Store, kind: SourceKind) -> Self {
        Self { name, store, kind, failed: OnceCell::new() }
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Why it is not asked any more.
    pub fn failed(&self) -> Option<&StoreError> {
        self.failed.get()
    }

    pub(super) fn kind(&self) -> SourceKind {
        self.kind
    }

    /// What was read, if the source has it and it is right.
    fn note<T>(&self, read: Result<T, StoreError>) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(error) => {
                let is_down = matches!(error, StoreError::Distant { .. })
                    && !matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NotFound);
                if is_down {
                    let _ = self.failed.set(error);
                }
                None
            }
        }
    }

    fn asked(&self) -> Option<&'a Store> {
        self.failed.get().is_none().then_some(self.store)
    }

    /// Where an object lies there, by the index of the source.
    pub(super) fn locate(&self, id: &ObjectId) -> Option<Place> {
        self.note(self.asked()?.locate(id))?
    }

    /// An object that hashes to its id. A list of chunks is **not** checked.
    pub(super) fn object(&self, id: &ObjectId, kind: ObjectKind) -> Option<Vec<u8>> {
        self.note(self.asked()?.object(id, kind))
    }

    /// The pack that a place is in.
    pub(super) fn pack_of(&self, place: &Place) -> Option<PackId> {
        self.asked()?.pack_id(place.pack)
    }

    /// What a pack says of itself, if the source has the pack.
    pub(super) fn outline(&self, id: &PackId) -> Option<Outline> {
        let has = self.kind == SourceKind::Store;
        let outline = self.note(self.asked().filter(|_| has)?.outline(id))?;
        outline.tables().is_ok().then_some(outline)
    }

    /// A pack, if the source has it.
    pub(super) fn pack(&self, id: &PackId) -> Option<PackFile> {
        let has = self.kind == SourceKind::Store;
        self.note(self.asked().filter(|_| has)?.open_pack(id))
    }

    /// Says that frames of a pack will be read, in that order.
    pub(super) fn will_need_frames(&self, pack: &PackId, frames: &[Frame]) {
        if let Some(store) = self.asked() {
            store.will_need_frames(*pack, frames);
        }
    }

    /// The stored bytes of a frame that match its checksum.
    pub(super) fn frame(&self, pack: &PackFile, frame: &Frame) -> Option<Vec<u8>> {
        self.asked()?;
        self.note(pack.stored(frame))
    }

    /// Says that objects will be read, in that order.
    pub(super) fn will_need(&self, places: &[Place]) {
        if let Some(store) = self.asked() {
            store.will_need(places);
        }
    }
}
