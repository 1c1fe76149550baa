//! The open store: find an object, read it, check it.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{
    base::{
        id::{BlobId, CommitId, ObjectId, PackId, TreeId},
        kind::ErrorKind,
        limits,
        observe::{Note, Observer, Silent},
    },
    disk::Disk,
    format::{commit::Commit, pack::ObjectKind, tree::Node, wire::FormatError},
    store::{
        StoreError,
        catalog::{Catalog, Layout, PackSlot, Repair, Upkeep},
        content::{Content, content_at},
        fetch::Fetcher,
        frame_cache::FrameCache,
        pack_reader::{Home, PackFile},
        pack_writer::Sealed,
    },
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

impl Place {
    /// The object's bytes in its frame.
    ///
    /// # Errors
    /// [`FormatError`] when they are not all in it: the index is not of this pack.
    pub fn slice<'a>(&self, frame: &'a [u8]) -> Result<&'a [u8], FormatError> {
        let start = self.offset as usize;
        let end = start + self.bytes as usize;
        frame.get(start..end).ok_or(FormatError::Invalid { what: "object place", at: start })
    }
}

/// Objects by id.
#[derive(Debug)]
pub struct Store {
    layout: Layout,
    disk: Disk,
    catalog: RwLock<Arc<Catalog>>,
    cache: Mutex<FrameCache>,
    open_packs: AtomicUsize,
    pub(super) repaired: Mutex<Repair>,
    pub(super) origin: Origin,
    pub(super) fetcher: Option<Arc<Fetcher>>,
    /// Shared by those who add several packs that belong together.
    pub(super) coming: RwLock<()>,
}

/// Where the packs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// In `objects/` and `partial/`, where they come and go.
    Folder,
    /// In a bundle, for good.
    Bundle,
}

/// How often a read starts again because packs were merged meanwhile.
pub(super) const RETRIES: usize = 16;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing below panics with a half-made change, so a poisoned lock still
    // guards a value that makes sense.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Creates the folders of a store in `dir`, durably.
    ///
    /// # Errors
    /// [`StoreError::Io`] when one cannot be created.
    pub fn create(dir: &Path, disk: &Disk) -> Result<(), StoreError> {
        let Layout { objects, index, tmp, .. } = Layout::of(dir);
        for folder in [objects, index, tmp, dir.join("cache")] {
            disk.create_folders(&folder)?;
        }
        Ok(())
    }

    /// Opens the store in `dir`. What is not indexed is indexed now, and
    /// `observer` told.
    ///
    /// # Errors
    /// [`StoreError`] when `objects/` cannot be listed.
    pub fn open(dir: &Path, disk: Disk, observer: &dyn Observer) -> Result<Self, StoreError> {
        Self::open_in(Layout::of(dir), disk, observer)
    }

    /// Opens the store in `dir` for a quick look: whatever is wrong with the
    /// index, nothing is repaired, written or removed. Objects that it does not
    /// know are missing.
    ///
    /// # Errors
    /// [`StoreError`] when `objects/` or `index/` cannot be listed.
    pub fn open_as_it_is(dir: &Path, disk: Disk) -> Result<Self, StoreError> {
        let layout = Layout { upkeep: Upkeep::Leave, ..Layout::of(dir) };
        Self::open_in(layout, disk, &Silent)
    }

    fn open_in(layout: Layout, disk: Disk, observer: &dyn Observer) -> Result<Self, StoreError> {
        let (catalog, repair) = Catalog::load(&layout, &disk, &Catalog::default(), observer)?;
        if repair.packs > 0 || repair.damaged {
            observer.note(Note::Reindexed { packs: repair.packs, damaged: repair.damaged });
        }
        for error in &catalog.unreadable {
            observer.note(Note::PackUnreadable { error: error.as_ref() });
        }
        Ok(Self::new(layout, disk, catalog, Origin::Folder))
    }

    pub(super) fn new(layout: Layout, disk: Disk, catalog: Catalog, origin: Origin) -> Self {
        Self {
            layout,
            disk,
            catalog: RwLock::new(Arc::new(catalog)),
            cache: Mutex::new(FrameCache::default()),
            open_packs: AtomicUsize::new(0),
            repaired: Mutex::new(Repair::default()),
            origin,
            fetcher: None,
            coming: RwLock::default(),
        }
    }

    /// A store without objects, whether or not there is anything in `dir`.
    pub fn absent(dir: &Path, disk: Disk) -> Self {
        Self::new(Layout::of(dir), disk, Catalog::default(), Origin::Folder)
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.layout.dir
    }

    /// The folder for what is being written, which is made if it is missing.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the store cannot be written.
    pub fn scratch_dir(&self) -> Result<PathBuf, StoreError> {
        self.disk.create_folders(&self.layout.tmp)?;
        Ok(self.layout.tmp.clone())
    }

    /// What changes files here.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes the names of all packs durable, and tidies the index.
    pub(super) fn settle(&self) -> Result<(), StoreError> {
        self.disk.sync_folder(&self.layout.objects)?;
        self.drop_superseded();
        self.withdraw_healed()?;
        self.merge_segments();
        Ok(())
    }

    /// Replaces the catalog by what `change` makes of it.
    pub(super) fn change_catalog<T>(&self, change: impl FnOnce(&Catalog) -> (Catalog, T)) -> T {
        let mut slot = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
        let (catalog, result) = change(&slot);
        *slot = Arc::new(catalog);
        result
    }

    pub(super) fn add_sealed(&self, sealed: &Sealed, home: Home) {
        self.change_catalog(|before| {
            let mut catalog = before.copy();
            let healed = catalog.healed.len();
            catalog.add_sealed(&self.layout, &self.disk, (sealed, home));
            if catalog.healed.len() > healed {
                // Frames of the damaged file.
                *lock(&self.cache) = FrameCache::default();
            }
            (catalog, ())
        });
    }

    /// Lists packs and segments again.
    ///
    /// # Errors
    /// [`StoreError`] when `objects/` cannot be listed.
    pub fn refresh(&self) -> Result<(), StoreError> {
        if self.origin == Origin::Bundle {
            return Ok(());
        }
        let repair = {
            // Locked from reading to replacing: a pack that a writer of this
            // store adds in between would be forgotten, and its number be
            // given to another one.
            let mut slot = self.catalog.write().unwrap_or_else(PoisonError::into_inner);
            let (catalog, repair) = Catalog::load(&self.layout, &self.disk, &slot, &Silent)?;
            *slot = Arc::new(catalog);
            repair
        };
        let mut repaired = lock(&self.repaired);
        repaired.packs += repair.packs;
        repaired.damaged |= repair.damaged;
        Ok(())
    }

    /// Throws the index away and makes it again from the packs, as when it
    /// turns out to lack what a pack has.
    ///
    /// # Errors
    /// [`StoreError`] when `objects/` cannot be listed or the index not removed.
    pub fn reindex(&self) -> Result<(), StoreError> {
        for segment in &self.catalog().segments {
            if let Some(path) = segment.path() {
                self.disk.remove(path)?;
            }
        }
        lock(&self.repaired).damaged = true;
        self.refresh()
    }

    /// What was found missing or damaged in the index since opening, and was
    /// made again, as far as nobody was told.
    pub fn repaired(&self) -> Repair {
        *lock(&self.repaired)
    }

    /// Tells what was found missing or damaged in the index since opening, or
    /// since this was last called, and was made again.
    pub fn tell_repairs(&self, observer: &dyn Observer) {
        let Repair { packs, damaged } = std::mem::take(&mut *lock(&self.repaired));
        if damaged {
            observer.note(Note::Reindexed { packs, damaged });
        }
    }

    /// Packs whose footer cannot be read.
    pub fn unreadable_packs(&self) -> Vec<Arc<StoreError>> {
        self.catalog().unreadable.clone()
    }

    /// The packs that are there.
    pub fn packs(&self) -> Vec<PackId> {
        let mut packs: Vec<PackId> = self.catalog().numbers.keys().copied().collect();
        packs.sort_unstable();
        packs
    }

    /// How many packs there are.
    pub fn pack_count(&self) -> usize {
        self.catalog().numbers.len()
    }

    /// Where a pack lies; one that is not there would lie among the whole ones.
    pub fn pack_path(&self, id: &PackId) -> PathBuf {
        let catalog = self.catalog();
        let home = catalog.slot(id).map(|slot| slot.home).unwrap_or_default();
        self.layout.path(home, id)
    }

    /// Name of the pack with this number.
    pub fn pack_id(&self, number: u32) -> Option<PackId> {
        self.catalog().packs.get(number as usize).map(|slot| slot.id)
    }

    /// Opens a pack, or takes the one that is open.
    ///
    /// # Errors
    /// [`StoreError::Gone`] when it was merged away.
    pub fn pack(&self, number: u32) -> Result<Arc<PackFile>, StoreError> {
        let catalog = self.catalog();
        let slot = catalog.packs.get(number as usize).expect("a place has a pack of this store");
        if self.fetcher.is_some() {
            slot.touch();
        }
        let mut open = lock(&slot.open);
        if let Some(pack) = &*open {
            return Ok(Arc::clone(pack));
        }
        let pack = match slot.open(self.fetcher.as_ref()) {
            // Completed by another process: it keeps its number.
            Err(StoreError::Gone { .. }) if slot.home == Home::Partial => {
                drop(open);
                self.refresh()?;
                return Ok(Arc::new(self.open_slot(&self.catalog().packs[number as usize])?));
            }
            pack => Arc::new(pack?),
        };
        *open = Some(Arc::clone(&pack));
        drop(open);
        if self.open_packs.fetch_add(1, Ordering::Relaxed) >= limits::OPEN_PACKS {
            for other in catalog.packs.iter().filter(|other| !Arc::ptr_eq(other, slot)) {
                *lock(&other.open) = None;
            }
            self.open_packs.store(1, Ordering::Relaxed);
        }
        Ok(pack)
    }

    fn open_slot(&self, slot: &PackSlot) -> Result<PackFile, StoreError> {
        slot.open(self.fetcher.as_ref())
    }

    /// Opens a pack by name.
    ///
    /// # Errors
    /// [`StoreError::Gone`] when it was merged away, else what is wrong with it.
    pub fn open_pack(&self, id: &PackId) -> Result<PackFile, StoreError> {
        let gone = StoreError::Gone { pack: *id };
        match self.open_slot(self.catalog().slot(id).ok_or(StoreError::Gone { pack: *id })?) {
            Err(StoreError::Gone { .. }) if self.is_partial(id) => {
                self.refresh()?;
                self.open_slot(self.catalog().slot(id).ok_or(gone)?)
            }
            pack => pack,
        }
    }

    /// The raw bytes of a whole frame. Its checksum is verified, the objects
    /// in it are **not** checked against their ids.
    ///
    /// # Errors
    /// [`StoreError::Gone`] when the pack was merged away: locate again after
    /// [`Store::refresh`].
    pub fn frame(&self, place: &Place) -> Result<Arc<Vec<u8>>, StoreError> {
        let pack = self.pack(place.pack)?;
        Ok(Arc::new(pack.raw(pack.frame(place.frame)?)?))
    }

    fn cached_frame(&self, place: &Place) -> Result<Arc<Vec<u8>>, StoreError> {
        let key = (place.pack, place.frame);
        if let Some(frame) = lock(&self.cache).get(key) {
            return Ok(frame);
        }
        let frame = self.frame(place)?;
        lock(&self.cache).put(key, Arc::clone(&frame));
        Ok(frame)
    }

    /// An object's bytes, checked against its id. Of a chunk list only the
    /// frame's checksum is checked, because its id is that of the content.
    /// Where one place of it cannot be read, its other places are tried.
    ///
    /// # Errors
    /// [`StoreError`] when it is missing, of another kind, or damaged in every
    /// place.
    pub fn object(&self, id: &ObjectId, kind: ObjectKind) -> Result<Vec<u8>, StoreError> {
        for _ in 0..RETRIES {
            let place =
                self.locate_anew(id)?.ok_or(StoreError::Missing { id: *id, wanted: kind })?;
            if place.kind != kind {
                return Err(StoreError::WrongKind { id: *id, wanted: kind, found: place.kind });
            }
            match self.object_at(id, &place) {
                Err(StoreError::Gone { .. }) => self.refresh()?,
                // Elsewhere it may be lost, or damaged.
                Err(error) if !error.is_elsewhere() || error.kind() == ErrorKind::Damaged => {
                    return self.object_beside(id, &place, error);
                }
                bytes => return bytes,
            }
        }
        Err(StoreError::Missing { id: *id, wanted: kind })
    }

    /// Reads the object from any other place than `unreadable`, whose error is
    /// `error`; returns that error if every other place fails, too.
    fn object_beside(
        &self,
        id: &ObjectId,
        unreadable: &Place,
        error: StoreError,
    ) -> Result<Vec<u8>, StoreError> {
        // Later lookups prefer other places right away.
        self.shadow_in_memory(&error);
        let other = |place: &Place| {
            if place == unreadable || place.kind != unreadable.kind {
                return None;
            }
            self.object_at(id, place).ok()
        };
        self.places(id)?.iter().find_map(other).ok_or(error)
    }

    /// Reads an object in one place and checks it.
    fn object_at(&self, id: &ObjectId, place: &Place) -> Result<Vec<u8>, StoreError> {
        let frame = self.cached_frame(place)?;
        let pack = self.pack_id(place.pack).expect("a place has a pack of this store");
        let bytes = place.slice(&frame).map_err(|source| StoreError::Format { pack, source })?;
        match actual_id(place.kind, bytes) {
            Some(actual) if actual != *id => Err(StoreError::Damaged { pack, wanted: *id, actual }),
            _ => Ok(bytes.to_vec()),
        }
    }

    /// A node of a tree.
    ///
    /// # Errors
    /// [`StoreError`] when it is missing or damaged.
    pub fn tree(&self, id: &TreeId) -> Result<Node, StoreError> {
        let (id, kind) = (id.object(), ObjectKind::Tree);
        let bytes = self.object(&id, kind)?;
        Node::decode(&bytes).map_err(|source| StoreError::Object { id, kind, source })
    }

    /// A commit.
    ///
    /// # Errors
    /// [`StoreError`] when it is missing or damaged.
    pub fn commit(&self, id: &CommitId) -> Result<Commit, StoreError> {
        let (id, kind) = (id.object(), ObjectKind::Commit);
        let bytes = self.object(&id, kind)?;
        Commit::decode(&bytes).map_err(|source| StoreError::Object { id, kind, source })
    }

    /// What a content is stored as.
    ///
    /// # Errors
    /// [`StoreError`] when it is missing, or its chunk list is damaged.
    pub fn content(&self, id: &BlobId) -> Result<Content, StoreError> {
        let object = id.object();
        let place = self.locate_anew(&object)?;
        content_at(object, place, &|id, kind| self.object(id, kind))
    }
}

/// What the bytes of an object hash to; `None` for a chunk list, which cannot
/// be checked by itself.
pub fn actual_id(kind: ObjectKind, bytes: &[u8]) -> Option<ObjectId> {
    match kind {
        ObjectKind::Blob => Some(BlobId::of(bytes).object()),
        ObjectKind::Tree => Some(TreeId::of(bytes).object()),
        ObjectKind::Commit => Some(CommitId::of(bytes).object()),
        ObjectKind::ChunkList => None,
    }
}
