//! What packs hold, whether a commit leads to it or not.

use crate::{
    base::observe::Observer,
    format::pack::{Class, ObjectKind},
    repo::past::PastError,
    store::{Marks, PackFile, Store, StoreError},
};

/// Objects of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindFacts {
    /// How many, each once.
    pub objects: u64,
    /// Their length in bytes.
    pub bytes: u64,
}

/// Frames of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameFacts {
    /// How many.
    pub frames: u64,
    /// Their length in bytes before compression.
    pub raw_bytes: u64,
    /// Their length in bytes as stored.
    pub stored_bytes: u64,
}

/// What packs hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFacts {
    /// How many packs.
    pub packs: u64,
    /// Their length in bytes.
    pub pack_bytes: u64,
    /// Frames of contents.
    pub data: FrameFacts,
    /// Frames of trees, chunk lists and commits.
    pub meta: FrameFacts,
    /// Contents, chunks, and parts of long chunk lists.
    pub blobs: KindFacts,
    /// Chunk lists.
    pub chunk_lists: KindFacts,
    /// Nodes of trees.
    pub trees: KindFacts,
    /// Commits.
    pub commits: KindFacts,
    /// Objects that are in a further pack as well, and what they take there.
    pub repeated: KindFacts,
}

impl StoreFacts {
    /// Reads what each pack says about itself, one at a time.
    pub(super) fn of(store: &Store, observer: &dyn Observer) -> Result<Self, PastError> {
        let mut facts = Self::default();
        let met = Marks::new(store);
        for id in store.packs() {
            if observer.cancelled() {
                return Err(PastError::Interrupted);
            }
            match store.open_pack(&id) {
                Ok(pack) => facts.add(&pack, &met)?,
                // Merged into another one meanwhile.
                Err(StoreError::Gone { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(facts)
    }

    fn add(&mut self, pack: &PackFile, met: &Marks) -> Result<(), StoreError> {
        self.packs += 1;
        self.pack_bytes += pack.file_bytes();
        for frame in pack.frames() {
            let class = match frame.class {
                Class::Data => &mut self.data,
                Class::Metadata => &mut self.meta,
            };
            class.frames += 1;
            class.raw_bytes += u64::from(frame.raw_bytes);
            class.stored_bytes += u64::from(frame.stored_bytes);
        }
        for object in pack.objects()? {
            let kind = match object.kind {
                _ if !met.mark(&object.id)? => &mut self.repeated,
                ObjectKind::Blob => &mut self.blobs,
                ObjectKind::ChunkList => &mut self.chunk_lists,
                ObjectKind::Tree => &mut self.trees,
                ObjectKind::Commit => &mut self.commits,
            };
            kind.objects += 1;
            kind.bytes += u64::from(object.bytes);
        }
        Ok(())
    }
}
