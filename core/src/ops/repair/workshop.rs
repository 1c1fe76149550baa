//! A scratch store in which packs are put together before they are part of
//! anything.
//!
//! A damaged pack begins as a stub. Each of its frames comes from the damaged file
//! or from a source, whichever has the bytes that its checksum names. A pack of
//! which all frames were found and that hashes to its name is whole; of others,
//! the objects in the frames that were found can be read.

use std::{os::unix::fs::FileExt, path::Path};

use crate::{
    base::{
        id::{ObjectId, PackId},
        observe::{Observer, Silent},
    },
    disk::{Disk, scratch::Scratch},
    format::{
        outline::Outline,
        pack::{Frame, ObjectKind, checksum},
    },
    ops::repair::Source,
    store::{PackFile, Store, StoreError},
};

/// The scratch store.
#[derive(Debug)]
pub struct Workshop {
    store: Store,
    // Dropped after the store that is in it.
    _scratch: Scratch,
}

/// What became of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Assembled {
    /// It is whole. With it, the numbers of the sources that gave frames.
    Whole(Vec<usize>),
    /// Some frames are nowhere.
    Partly,
    /// It is the very file that is there already.
    Same,
    /// Nobody knows what is in it.
    Unknown,
}

impl Workshop {
    /// Makes a workshop in the folder `parent`, which must exist. Its packs are part of
    /// no store later.
    ///
    /// # Errors
    /// [`StoreError::Io`] when nothing can be written there.
    pub fn create(parent: &Path) -> Result<Self, StoreError> {
        Self::create_on(parent, Disk::scratch())
    }

    /// Makes a workshop in a store, whose packs have the owner and the permission bits
    /// of those of the store.
    ///
    /// # Errors
    /// As [`Workshop::create`].
    pub(super) fn create_in(store: &Store) -> Result<Self, StoreError> {
        Self::create_on(&store.scratch_dir()?, store.disk().clone())
    }

    fn create_on(parent: &Path, disk: Disk) -> Result<Self, StoreError> {
        let scratch = Scratch::create(parent)?;
        Store::create(scratch.path(), &disk)?;
        let store = Store::open(scratch.path(), disk, &Silent)?;
        Ok(Self { store, _scratch: scratch })
    }

    /// What was put together.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Whether all of an object is here, in a whole pack or in a frame that was found.
    pub(super) fn has(&self, id: &ObjectId) -> Result<bool, StoreError> {
        self.store.locate(id)?.map_or(Ok(false), |place| self.store.is_here(&place))
    }

    /// An object that hashes to its id, unless it is a list of chunks.
    pub(super) fn object(&self, id: &ObjectId, kind: ObjectKind) -> Option<Vec<u8>> {
        self.store.object(id, kind).ok()
    }

    /// Puts the pack `id` of `target` together.
    pub(super) fn assemble(
        &self,
        (target, id): (&Store, &PackId),
        sources: &[Source<'_>],
        observer: &dyn Observer,
    ) -> Result<Assembled, StoreError> {
        let told = sources.iter().find_map(|source| source.outline(id));
        let own = target.outline(id).ok().filter(|outline| outline.tables().is_ok());
        // Of a store elsewhere its index says what is in the pack, and not the pack.
        let is_readable = own.is_some() && !target.is_partial(id);
        let Some(outline) = own.or(told) else { return Ok(Assembled::Unknown) };
        match self.fill(target, &outline, sources, observer)? {
            Assembled::Whole(used) if used.is_empty() && is_readable => {
                self.discard(id)?;
                Ok(Assembled::Same)
            }
            assembled => Ok(assembled),
        }
    }

    fn fill(
        &self,
        target: &Store,
        outline: &Outline,
        sources: &[Source<'_>],
        observer: &dyn Observer,
    ) -> Result<Assembled, StoreError> {
        let id = outline.id;
        if self.store.packs().contains(&id) {
            return Ok(Assembled::Partly);
        }
        self.store.add_stub(outline)?;
        let (frames, _) =
            outline.tables().map_err(|s| StoreError::Format { pack: id, source: s })?;
        let file = fs_err::File::open(target.pack_path(&id)).ok();
        let mut packs: Vec<(Option<usize>, PackFile)> = sources
            .iter()
            .enumerate()
            .filter_map(|(number, source)| Some((Some(number), source.pack(&id)?)))
            .collect();
        // Of a store elsewhere what is sound there.
        packs.extend(target.open_pack(&id).ok().map(|pack| (None, pack)));
        let mut missing = Vec::new();
        for frame in &frames {
            match file.as_ref().and_then(|file| read_frame(file.file(), frame)) {
                Some(bytes) => self.store.fill_frames(&id, &[*frame], &bytes)?,
                None => missing.push(*frame),
            }
        }
        if let Some((Some(first), _)) = packs.first() {
            sources[*first].will_need_frames(&id, &missing);
        }
        let (mut used, mut is_whole) = (Vec::new(), true);
        for frame in &missing {
            if observer.cancelled() {
                return Ok(Assembled::Partly);
            }
            let found = packs.iter().find_map(|(number, pack)| {
                let bytes = match number {
                    Some(number) => sources[*number].frame(pack, frame),
                    None => pack.stored(frame).ok(),
                }?;
                is_right(&bytes, frame).then_some((*number, bytes))
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
            return Ok(Assembled::Partly);
        }
        used.sort_unstable();
        used.dedup();
        match self.store.complete(&id, observer) {
            Ok(true) => Ok(Assembled::Whole(used)),
            // It has all frames, and yet is not what it should be; or the user asks to
            // stop.
            Ok(false) => Ok(Assembled::Partly),
            Err(error) if error.damaged_pack().is_some() || error.is_elsewhere() => {
                Ok(Assembled::Partly)
            }
            Err(error) => Err(error),
        }
    }

    /// Gives up a pack that was put together.
    pub(super) fn discard(&self, id: &PackId) -> Result<(), StoreError> {
        self.store.disk().remove(&self.store.pack_path(id))?;
        self.store.refresh()
    }
}

/// The stored bytes of a frame if they are what its checksum says.
fn read_frame(file: &std::fs::File, frame: &Frame) -> Option<Vec<u8>> {
    let mut bytes = vec![0; frame.stored_bytes as usize];
    file.read_exact_at(&mut bytes, frame.offset).ok()?;
    is_right(&bytes, frame).then_some(bytes)
}

fn is_right(bytes: &[u8], frame: &Frame) -> bool {
    bytes.len() == frame.stored_bytes as usize && checksum(bytes) == frame.checksum
}
