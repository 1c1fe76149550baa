//! The scratch store in which a repair assembles packs.
//!
//! A damaged pack begins as a stub. Each of its frames is copied from the damaged file or from a
//! source, whichever has bytes that match the frame's checksum. A pack is whole if all frames were
//! found and it hashes to its name. In an incomplete pack, only objects in the frames that were
//! found can be read.

use std::{os::unix::fs::FileExt, path::Path};

use crate::{
    base::{
        id::{ObjectId, PackId},
        observe::{Observer, Silent},
    },
    disk::{Disk, regular::open_regular, scratch::Scratch},
    format::{
        outline::PackOutline,
        pack::{Frame, ObjectKind},
    },
    ops::repair::RepairSource,
    store::{PackFile, Store, StoreError},
};

/// A temporary store that holds the packs and objects of a repair.
#[derive(Debug)]
pub struct ScratchStore {
    store: Store,
    // Fields drop in this order: first the store, then the folder that contains it.
    _scratch: Scratch,
}

/// The result of assembling a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Assembled {
    /// The pack is whole. Contains the indices of the sources that supplied frames.
    Whole(Vec<usize>),
    /// Some frames were not found, or neither the pack nor a source has a readable footer.
    Incomplete,
    /// The pack in the store is sound after all: its own bytes hash to its name.
    Sound,
}

impl ScratchStore {
    /// Creates a scratch store in the folder `parent`, which must exist. Its packs must not be
    /// moved into a store later.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the folder cannot be written.
    pub fn create(parent: &Path) -> Result<Self, StoreError> {
        Self::create_on(parent, Disk::scratch())
    }

    /// Creates a scratch store in a store. Its packs get the owner and the permission bits of
    /// the store's packs.
    ///
    /// # Errors
    /// As [`ScratchStore::create`].
    pub(super) fn create_in(store: &Store) -> Result<Self, StoreError> {
        Self::create_on(&store.scratch_dir()?, store.disk().clone())
    }

    fn create_on(parent: &Path, disk: Disk) -> Result<Self, StoreError> {
        let scratch = Scratch::create(parent)?;
        Store::create(scratch.path(), &disk)?;
        let store = Store::open(scratch.path(), disk, &Silent)?;
        Ok(Self { store, _scratch: scratch })
    }

    /// Returns the store with the assembled packs.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns true if the scratch store has the object, in a whole pack or in a frame that was
    /// found.
    pub(super) fn has(&self, id: &ObjectId) -> Result<bool, StoreError> {
        self.store.locate(id)?.map_or(Ok(false), |place| self.store.is_here(&place))
    }

    /// Returns an object that hashes to its id.
    pub(super) fn object(&self, id: &ObjectId, kind: ObjectKind) -> Option<Vec<u8>> {
        self.store.object(id, kind).ok()
    }

    /// Assembles the pack `id` of `target`.
    pub(super) fn assemble(
        &self,
        target: &Store,
        id: &PackId,
        sources: &[RepairSource<'_>],
        observer: &dyn Observer,
    ) -> Result<Assembled, StoreError> {
        let from_sources = sources.iter().find_map(|source| source.outline(id));
        let own = target.outline(id).ok().filter(|outline| outline.tables().is_ok());
        // A stub of a remote store takes its outline from the index, which says nothing about
        // the pack's own bytes.
        let is_readable = own.is_some() && !target.is_partial(id);
        let Some(outline) = own.or(from_sources) else { return Ok(Assembled::Incomplete) };
        match self.fill(target, &outline, sources, observer)? {
            Assembled::Whole(used) if used.is_empty() && is_readable => {
                self.discard(id)?;
                Ok(Assembled::Sound)
            }
            assembled => Ok(assembled),
        }
    }

    fn fill(
        &self,
        target: &Store,
        outline: &PackOutline,
        sources: &[RepairSource<'_>],
        observer: &dyn Observer,
    ) -> Result<Assembled, StoreError> {
        let id = outline.id;
        if self.store.packs().contains(&id) {
            return Ok(Assembled::Incomplete);
        }
        self.store.add_stubs([outline])?;
        let (frames, _) =
            outline.tables().map_err(|source| StoreError::Format { pack: id, source })?;
        // The file under the name of a lost pack need not be a regular file.
        let file = open_regular(&target.pack_path(&id)).ok();
        let mut packs: Vec<(Option<usize>, PackFile)> = sources
            .iter()
            .enumerate()
            .filter_map(|(number, source)| Some((Some(number), source.pack(&id)?)))
            .collect();
        // For a remote store, this reads its sound frames.
        packs.extend(target.open_pack(&id).ok().map(|pack| (None, pack)));
        let mut missing = Vec::new();
        for frame in &frames {
            match file.as_ref().and_then(|file| read_frame(file.file(), frame)) {
                Some(bytes) => self.store.fill_frames(&id, &[*frame], &bytes)?,
                None => missing.push(*frame),
            }
        }
        if let Some((Some(first), _)) = packs.first() {
            sources[*first].prefetch_frames(&id, &missing);
        }
        let (mut used, mut is_whole) = (Vec::new(), true);
        for frame in &missing {
            if observer.cancelled() {
                return Ok(Assembled::Incomplete);
            }
            let found = packs.iter().find_map(|(number, pack)| {
                let bytes = match number {
                    Some(number) => sources[*number].frame(pack, frame),
                    None => pack.stored(frame).ok(),
                }?;
                frame.matches(&bytes).then_some((*number, bytes))
            });
            match found {
                Some((number, bytes)) => {
                    used.extend(number);
                    self.store.fill_frames(&id, &[*frame], &bytes)?;
                }
                None => is_whole = false,
            }
            observer.advance(u64::from(frame.stored_bytes), 0);
        }
        if !is_whole {
            return Ok(Assembled::Incomplete);
        }
        used.sort_unstable();
        used.dedup();
        match self.store.complete(&id, observer) {
            Ok(true) => Ok(Assembled::Whole(used)),
            // The user asked to stop.
            Ok(false) => Ok(Assembled::Incomplete),
            Err(error) if error.damaged_pack().is_some() || error.is_remote() => {
                Ok(Assembled::Incomplete)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes an assembled pack.
    pub(super) fn discard(&self, id: &PackId) -> Result<(), StoreError> {
        self.store.disk().remove(&self.store.pack_path(id))?;
        self.store.refresh()
    }
}

/// Returns the stored bytes of a frame if they match its checksum.
fn read_frame(file: &std::fs::File, frame: &Frame) -> Option<Vec<u8>> {
    let mut bytes = vec![0; frame.stored_bytes as usize];
    file.read_exact_at(&mut bytes, frame.offset).ok()?;
    frame.matches(&bytes).then_some(bytes)
}
