//! Totals of all packs, regardless of whether a commit refers to their objects.

use serde::Serialize;

use crate::{
    base::observe::Observer,
    format::pack::{ObjectClass, ObjectKind},
    repo::past::PastError,
    store::{Marks, PackFile, Store, StoreError},
};

/// Totals of the objects of one kind. JSON records contain them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KindFacts {
    /// Number of distinct objects.
    #[serde(rename = "count")]
    pub objects: u64,
    /// Total size of the objects in bytes.
    pub bytes: u64,
}

/// Totals of the frames of one class. JSON records contain them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FrameFacts {
    /// Number of frames.
    #[serde(rename = "count")]
    pub frames: u64,
    /// Total size of the frames before compression, in bytes.
    pub raw_bytes: u64,
    /// Total size of the frames as stored, in bytes.
    pub stored_bytes: u64,
}

/// Totals of all packs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreFacts {
    /// Number of packs.
    pub packs: u64,
    /// Total length of the packs in bytes.
    pub pack_bytes: u64,
    /// Frames of contents.
    pub data: FrameFacts,
    /// Frames of trees, chunk lists, commits and links.
    pub meta: FrameFacts,
    /// Contents and chunks.
    pub blobs: KindFacts,
    /// Chunk lists and parts of long ones.
    pub chunk_lists: KindFacts,
    /// Tree nodes.
    pub trees: KindFacts,
    /// Commits.
    pub commits: KindFacts,
    /// Links of forgotten commits.
    pub links: KindFacts,
    /// Further copies of objects in other packs.
    pub repeated: KindFacts,
}

impl StoreFacts {
    /// Reads the footer of each pack, one at a time.
    pub(super) fn of(store: &Store, observer: &dyn Observer) -> Result<Self, PastError> {
        let mut facts = Self::default();
        let counted = Marks::new(store);
        for id in store.packs() {
            observer.check()?;
            match store.open_pack(&id) {
                Ok(pack) => facts.add(&pack, &counted)?,
                // The pack was merged into another one meanwhile.
                Err(StoreError::Gone { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(facts)
    }

    fn add(&mut self, pack: &PackFile, counted: &Marks) -> Result<(), StoreError> {
        self.packs += 1;
        self.pack_bytes += pack.file_bytes();
        for frame in pack.frames() {
            let class = match frame.class {
                ObjectClass::Data => &mut self.data,
                ObjectClass::Metadata => &mut self.meta,
            };
            class.frames += 1;
            class.raw_bytes += u64::from(frame.raw_bytes);
            class.stored_bytes += u64::from(frame.stored_bytes);
        }
        for object in pack.objects()? {
            let kind = match object.kind {
                _ if !counted.mark(&object.id)? => &mut self.repeated,
                ObjectKind::Blob => &mut self.blobs,
                ObjectKind::ChunkList | ObjectKind::ListPart => &mut self.chunk_lists,
                ObjectKind::Tree => &mut self.trees,
                ObjectKind::Commit => &mut self.commits,
                ObjectKind::Link => &mut self.links,
            };
            kind.objects += 1;
            kind.bytes += u64::from(object.bytes);
        }
        Ok(())
    }
}
