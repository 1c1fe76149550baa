//! The open store: finds objects, reads them and checks them.

use std::{
    collections::HashSet,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};

use crate::{
    base::{
        byte_cache::{ByteCache, CacheLimits},
        id::{BlobId, ChunkListId, CommitId, ListPartId, ObjectId, PackId, TreeId},
        kind::ErrorKind,
        limits,
        observe::{Note, Observer, Silent},
    },
    disk::Disk,
    format::{
        commit::Commit,
        pack::{Frame, ObjectKind, PackedObject},
        shadow::{Reason, ShadowedPart},
        tree::Node,
    },
    store::{
        StoreError,
        catalog::{Catalog, IndexRepair, StorePaths},
        epoch::Epoch,
        fetch::Fetcher,
        pack_reader::{Completeness, PackFile},
        pack_writer::FinishedPack,
        proof::HashedObjects,
        remote_frames::RemoteCopies,
        tree_cursor::decode_tree,
    },
};

/// Limits of the cache of frames. The frame that was read last stays, however large it is.
const FRAME_CACHE_LIMITS: CacheLimits =
    CacheLimits { total_bytes: limits::FRAME_CACHE_BYTES, entry_bytes: usize::MAX };

/// The location of an object. Locations sort by pack, frame and offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectLocation {
    /// Number of the pack in this open store.
    pub pack: u32,
    /// Number of the frame in the pack.
    pub frame: u32,
    /// Offset of the object in the frame's raw bytes.
    pub offset: u32,
    /// Length of the object in bytes.
    pub bytes: u32,
    pub kind: ObjectKind,
}

impl ObjectLocation {
    /// Returns the object's bytes within its frame. Returns `None` if the frame is too short: the
    /// index does not match the pack.
    pub fn slice<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        frame.get(self.range())
    }

    /// Returns this location if its object, `id`, has the wanted kind.
    ///
    /// # Errors
    /// [`StoreError::WrongKind`] otherwise.
    pub fn of_kind(self, id: &ObjectId, wanted: ObjectKind) -> Result<Self, StoreError> {
        match self.kind {
            kind if kind == wanted => Ok(self),
            found => Err(StoreError::WrongKind { id: *id, wanted, found }),
        }
    }

    /// Returns the range of the object in its frame's raw bytes.
    pub fn range(&self) -> Range<usize> {
        let start = self.offset as usize;
        start..start + self.bytes as usize
    }
}

/// An open store.
#[derive(Debug)]
pub struct Store {
    layout: StorePaths,
    disk: Disk,
    catalog: RwLock<Arc<Catalog>>,
    /// Decompressed frames, keyed by pack number and frame number.
    cache: ByteCache<(u32, u32), Arc<Vec<u8>>>,
    open_packs: AtomicUsize,
    pub(super) repaired: Mutex<IndexRepair>,
    /// True if the packs are in a bundle, which never changes, and not in `objects/` and `partial/`.
    pub(super) is_bundle: bool,
    pub(super) fetcher: Option<Arc<Fetcher>>,
    pub(super) hashed: HashedObjects,
}

impl Store {
    /// Creates the folders and the epoch of a store in `dir`, durably.
    ///
    /// # Errors
    /// [`StoreError::Io`] when a folder or the epoch cannot be created.
    pub fn create(dir: &Path, disk: &Disk) -> Result<(), StoreError> {
        let StorePaths { objects, index, tmp, .. } = StorePaths::of(dir);
        for folder in [objects, index, tmp, dir.join("cache")] {
            disk.create_folders(&folder)?;
        }
        Ok(Epoch::create(dir, disk)?)
    }

    /// Opens the store in `dir`. Indexes packs that have no index yet, and notes a repair of the
    /// index to `observer`.
    ///
    /// # Errors
    /// [`StoreError`] when `objects/` cannot be listed.
    pub fn open(dir: &Path, disk: Disk, observer: &dyn Observer) -> Result<Self, StoreError> {
        Self::open_in(StorePaths::of(dir), disk, observer)
    }

    /// Opens the store in `dir`. Never repairs, writes or removes a file, even if the index is
    /// damaged. Objects that the index lacks count as missing.
    ///
    /// # Errors
    /// [`StoreError`] when `objects/` or `index/` cannot be listed.
    pub fn open_read_only(dir: &Path, disk: Disk) -> Result<Self, StoreError> {
        let layout = StorePaths { is_read_only: true, ..StorePaths::of(dir) };
        Self::open_in(layout, disk, &Silent)
    }

    fn open_in(
        layout: StorePaths,
        disk: Disk,
        observer: &dyn Observer,
    ) -> Result<Self, StoreError> {
        let (catalog, repair) = Catalog::load(&layout, &disk, &Catalog::default(), observer)?;
        if repair.packs > 0 || repair.damaged {
            observer.note(Note::Reindexed { packs: repair.packs, damaged: repair.damaged });
        }
        for error in &catalog.unreadable {
            observer.note(Note::PackUnreadable { error: error.as_ref() });
        }
        Ok(Self::new(layout, disk, catalog, false))
    }

    pub(super) fn new(layout: StorePaths, disk: Disk, catalog: Catalog, is_bundle: bool) -> Self {
        Self {
            layout,
            disk,
            catalog: RwLock::new(Arc::new(catalog)),
            cache: ByteCache::new(FRAME_CACHE_LIMITS),
            open_packs: AtomicUsize::new(0),
            repaired: Mutex::new(IndexRepair::default()),
            is_bundle,
            fetcher: None,
            hashed: HashedObjects::default(),
        }
    }

    /// Returns a store without objects. Does not read `dir`.
    pub fn empty(dir: &Path, disk: Disk) -> Self {
        Self::new(StorePaths::of(dir), disk, Catalog::default(), false)
    }

    /// Returns the folder of the store.
    pub fn dir(&self) -> &Path {
        &self.layout.dir
    }

    /// Returns the folder for temporary files, and creates it if it is missing.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the store cannot be written.
    pub fn scratch_dir(&self) -> Result<PathBuf, StoreError> {
        self.disk.create_folders(&self.layout.tmp)?;
        Ok(self.layout.tmp.clone())
    }

    /// Returns the handle for changes to files of the store.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    pub(super) fn layout(&self) -> &StorePaths {
        &self.layout
    }

    pub(super) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read())
    }

    /// Makes the names of all packs durable. Then removes superseded stubs, clears the shadows of
    /// healed packs and merges small index segments.
    pub(crate) fn make_names_durable(&self) -> Result<(), StoreError> {
        self.disk.sync_folder(&self.layout.objects)?;
        self.drop_superseded();
        self.clear_healed()?;
        self.merge_segments();
        Ok(())
    }

    /// Changes the catalog. Readers that already hold the catalog keep the old version.
    pub(super) fn change_catalog<T>(&self, change: impl FnOnce(&mut Catalog) -> T) -> T {
        change(Arc::make_mut(&mut self.catalog.write()))
    }

    /// Adds a whole pack, which has its name, to the index.
    pub(crate) fn index_pack(&self, pack: &PackFile, objects: Vec<PackedObject>) {
        let (id, file_bytes) = (pack.id(), pack.file_bytes());
        let sealed = FinishedPack { id, frames: pack.frames().to_vec(), objects, file_bytes };
        self.add_sealed(&sealed, Completeness::Whole);
    }

    /// Moves a checked and synced pack into `objects/`. The caller then calls
    /// [`Store::make_names_durable`].
    ///
    /// # Errors
    /// [`StoreError::Collected`] if the epoch is no longer `epoch`.
    pub(crate) fn adopt_pack(
        &self,
        from: &Path,
        pack: &PackFile,
        objects: Vec<PackedObject>,
        epoch: Epoch,
    ) -> Result<(), StoreError> {
        if self.name_pack(from, &pack.id(), epoch)?.is_some() {
            return Err(StoreError::Collected);
        }
        self.index_pack(pack, objects);
        self.record_proven(&[pack.id()]);
        Ok(())
    }

    /// Returns the packs that this open store has once listed and that no longer exist.
    pub(crate) fn lost_packs(&self) -> HashSet<PackId> {
        let catalog = self.catalog();
        let ids = catalog.packs.iter().map(|slot| slot.id);
        ids.filter(|id| !catalog.numbers.contains_key(id)).collect()
    }

    /// Returns the epoch as of the last look at the store.
    pub fn known_epoch(&self) -> Epoch {
        self.catalog().epoch
    }

    /// Frees the index of a store that is no longer used.
    pub(crate) fn drop_index(&self) {
        self.change_catalog(|catalog| *catalog = Catalog::default());
    }

    pub(super) fn add_sealed(&self, sealed: &FinishedPack, completeness: Completeness) {
        self.change_catalog(|catalog| {
            let healed = catalog.healed.len();
            catalog.add_sealed(&self.layout, &self.disk, sealed, completeness);
            if catalog.healed.len() > healed {
                // The cache may hold frames of the damaged file.
                self.cache.clear();
            }
        });
    }

    /// Lists packs and segments again.
    ///
    /// # Errors
    /// [`StoreError`] when `objects/` cannot be listed.
    pub fn refresh(&self) -> Result<(), StoreError> {
        if self.is_bundle {
            return Ok(());
        }
        let repair = {
            // Hold the lock from the read to the replacement. Otherwise the new catalog would lack
            // a pack that a writer of this store adds meanwhile, and another pack would get its
            // number.
            let mut slot = self.catalog.write();
            let (catalog, repair) = Catalog::load(&self.layout, &self.disk, &slot, &Silent)?;
            if catalog.has_replaced {
                self.cache.clear();
            }
            *slot = Arc::new(catalog);
            repair
        };
        let mut repaired = self.repaired.lock();
        repaired.packs += repair.packs;
        repaired.damaged |= repair.damaged;
        Ok(())
    }

    /// Deletes the index and rebuilds it from the packs, for example because it lacks objects of a
    /// pack.
    ///
    /// # Errors
    /// [`StoreError`] when `objects/` cannot be listed or the index cannot be removed.
    pub fn reindex(&self) -> Result<(), StoreError> {
        for segment in &self.catalog().segments {
            if let Some(path) = segment.path() {
                self.disk.remove(path)?;
            }
        }
        self.repaired.lock().damaged = true;
        self.refresh()
    }

    /// Reports repaired damage of the index since the store was opened, or since the last call.
    pub fn report_repairs(&self, observer: &dyn Observer) {
        let IndexRepair { packs, damaged, .. } = std::mem::take(&mut *self.repaired.lock());
        if damaged {
            observer.note(Note::Reindexed { packs, damaged });
        }
    }

    /// Returns the errors of packs whose footer cannot be read.
    pub fn unreadable_packs(&self) -> Vec<Arc<StoreError>> {
        self.catalog().unreadable.clone()
    }

    /// Returns the ids of all packs, sorted.
    pub fn packs(&self) -> Vec<PackId> {
        let mut packs: Vec<PackId> = self.catalog().numbers.keys().copied().collect();
        packs.sort_unstable();
        packs
    }

    /// Returns the number of packs.
    pub fn pack_count(&self) -> usize {
        self.catalog().numbers.len()
    }

    /// Returns the path of a pack: for an unknown pack, its path in `objects/`.
    pub fn pack_path(&self, id: &PackId) -> PathBuf {
        self.layout.path(self.catalog().completeness(id).unwrap_or_default(), id)
    }

    /// Returns the id of the pack with this number.
    pub fn pack_id(&self, number: u32) -> Option<PackId> {
        self.catalog().packs.get(number as usize).map(|slot| slot.id)
    }

    /// Returns an open pack, and opens it if necessary.
    ///
    /// # Errors
    /// [`StoreError::Gone`] when the pack was merged into another pack.
    pub fn pack(&self, number: u32) -> Result<Arc<PackFile>, StoreError> {
        let catalog = self.catalog();
        let slot = catalog.packs.get(number as usize).expect("a place has a pack of this store");
        if self.fetcher.is_some() {
            slot.touch();
        }
        let mut open = slot.open.lock();
        if let Some(pack) = &*open {
            return Ok(Arc::clone(pack));
        }
        let pack = match slot.open(self.fetcher.as_ref()) {
            // Another process has completed the pack, which is now in `objects/` and keeps its
            // number.
            Err(StoreError::Gone { .. }) if slot.completeness == Completeness::Partial => {
                drop(open);
                self.refresh()?;
                let slot = Arc::clone(&self.catalog().packs[number as usize]);
                return Ok(Arc::new(slot.open(self.fetcher.as_ref())?));
            }
            pack => Arc::new(pack?),
        };
        *open = Some(Arc::clone(&pack));
        drop(open);
        if self.open_packs.fetch_add(1, Ordering::Relaxed) >= limits::OPEN_PACKS {
            for other in catalog.packs.iter().filter(|other| !Arc::ptr_eq(other, slot)) {
                *other.open.lock() = None;
            }
            self.open_packs.store(1, Ordering::Relaxed);
        }
        Ok(pack)
    }

    /// Opens a pack by id.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the pack does not exist any more, for example because it was merged;
    /// otherwise the reason why the pack cannot be opened.
    pub fn open_pack(&self, id: &PackId) -> Result<PackFile, StoreError> {
        let open = || {
            let catalog = self.catalog();
            let slot = catalog.slot(id).ok_or(StoreError::Gone { pack: *id })?;
            slot.open(self.fetcher.as_ref())
        };
        match open() {
            Err(StoreError::Gone { .. }) if self.is_partial(id) => {
                self.refresh()?;
                open()
            }
            pack => pack,
        }
    }

    /// Reads a frame and decompresses at least its first `bytes` bytes, or the whole of a shorter
    /// frame, into `raw`. Does **not** check the objects of the frame against their ids.
    ///
    /// # Errors
    /// [`StoreError::Gone`] when the pack was merged into another pack. The caller should
    /// [refresh](Store::refresh) and look up the object again.
    pub(super) fn read_frame_start(
        &self,
        place: &ObjectLocation,
        bytes: usize,
        raw: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        self.read_frame(place, &mut |pack, frame| pack.read_start(frame, bytes, raw))
    }

    fn read_frame<T>(
        &self,
        place: &ObjectLocation,
        read: &mut dyn FnMut(&PackFile, &Frame) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut read = || {
            let pack = self.pack(place.pack)?;
            read(&pack, pack.frame(place.frame)?)
        };
        let catalog = self.catalog();
        let slot = catalog.packs.get(place.pack as usize);
        match read() {
            // The open file is damaged, and another process has put a new file in its place.
            Err(_) if slot.is_some_and(|slot| slot.close_replaced()) => read(),
            frame => frame,
        }
    }

    /// Returns a frame from the cache, if the cache has it.
    pub(super) fn frame_in_cache(&self, place: &ObjectLocation) -> Option<Arc<Vec<u8>>> {
        self.cache.get(&(place.pack, place.frame))
    }

    /// Returns a frame from the cache. A missing frame is read like [`Store::frame`] and cached.
    ///
    /// # Errors
    /// As [`Store::frame`].
    pub(super) fn cached_frame(&self, place: &ObjectLocation) -> Result<Arc<Vec<u8>>, StoreError> {
        if let Some(frame) = self.frame_in_cache(place) {
            return Ok(frame);
        }
        let frame = self.read_frame(place, &mut |pack, frame| pack.raw(frame)).map(Arc::new)?;
        self.cache.insert((place.pack, place.frame), Arc::clone(&frame), frame.len());
        Ok(frame)
    }

    /// Reads an object and checks it against its id. If one copy cannot be read, tries the other
    /// copies.
    ///
    /// # Errors
    /// [`StoreError`] if the object is missing or has another kind, or if all copies are damaged.
    pub fn object(&self, id: &ObjectId, kind: ObjectKind) -> Result<Vec<u8>, StoreError> {
        for _ in 0..limits::MERGE_RETRIES {
            let missing = StoreError::Missing { id: *id, wanted: kind };
            let place = self.locate_or_refresh(id)?.ok_or(missing)?.of_kind(id, kind)?;
            match self.object_at(id, &place) {
                Err(StoreError::Gone { .. }) => self.refresh()?,
                // The remote may have lost the pack or have a damaged copy; both errors have the
                // kind `Damaged`.
                Err(error) if !error.is_remote() || error.kind() == ErrorKind::Damaged => {
                    return self.object_from_other_copies(id, &place, error);
                }
                bytes => return bytes,
            }
        }
        Err(StoreError::Missing { id: *id, wanted: kind })
    }

    /// Reads the object from any location except `unreadable`. If all other copies fail, too,
    /// returns `error`, the error of `unreadable`.
    fn object_from_other_copies(
        &self,
        id: &ObjectId,
        unreadable: &ObjectLocation,
        error: StoreError,
    ) -> Result<Vec<u8>, StoreError> {
        // Shadow the bad copy, so that later lookups prefer other copies.
        if !self.route_around_damage(&error) {
            self.shadow_in_memory(&error);
        }
        let other = |place: &ObjectLocation| {
            if place == unreadable || place.kind != unreadable.kind {
                return None;
            }
            self.object_at(id, place).ok()
        };
        let found = self.places(id)?.iter().find_map(other);
        found.ok_or_else(|| match error {
            StoreError::Fetch { .. } if self.is_found_dead(id) => {
                StoreError::Missing { id: *id, wanted: unreadable.kind }
            }
            error => error,
        })
    }

    /// Makes later lookups avoid bad frames of a remote: the frame that `error` reports as damaged,
    /// or all absent frames of a pack that `error` reports as lost. Shadows those objects of the
    /// frames that other packs hold as well, for this open store only. First adds missing stubs of
    /// these other packs. Returns true if any object has another copy.
    ///
    /// If other packs have only the links of commits in a lost pack, the remote has forgotten these
    /// commits. They are shadowed as dead, durably, so their links take their places. So is what a
    /// garbage collection at the remote has deleted.
    pub fn route_around_damage(&self, error: &StoreError) -> bool {
        let Some(fetcher) = &self.fetcher else { return false };
        match error {
            StoreError::CorruptedInTransit { pack, offset_bytes, .. } => {
                self.route_around_frames(fetcher, pack, &[*offset_bytes])
            }
            StoreError::Fetch { pack, source } if !source.is_transport() => {
                let absent = self.absent_frames(pack).unwrap_or_default();
                let offsets: Vec<u64> = absent.iter().map(|frame| frame.offset).collect();
                match fetcher.note_lost(*pack) {
                    true => self.route_around_frames(fetcher, pack, &offsets),
                    // A change of the shadow table drops the shadows of this open store.
                    false => self.shadow_copied_frames(pack, &offsets),
                }
            }
            _ => false,
        }
    }

    fn route_around_frames(&self, fetcher: &Fetcher, pack: &PackId, offsets: &[u64]) -> bool {
        let objects = self.objects_of_frames(pack, offsets).unwrap_or_default();
        self.learn_copies(fetcher, pack, &objects);
        self.shadow_copied_frames(pack, offsets)
    }

    /// Shadows those objects of frames that other packs hold as well, for this open store only.
    /// Returns true if there are any.
    fn shadow_copied_frames(&self, pack: &PackId, offsets: &[u64]) -> bool {
        match self.other_copies_of_frames(pack, offsets) {
            Ok(copies) if !copies.objects.is_empty() => {
                self.add_in_memory(*pack, ShadowedPart::Objects(copies.objects));
                true
            }
            _ => false,
        }
    }

    /// Learns which commits the remote has forgotten, after a read found a pack lost: those of the
    /// pack that only have a link in other packs. This store may have the commits themselves, but
    /// their contents are gone. Returns true if there are any.
    pub fn learn_forgotten(&self, error: &StoreError) -> bool {
        let (Some(fetcher), StoreError::Fetch { pack, .. }) = (&self.fetcher, error) else {
            return false;
        };
        if error.is_transport() {
            return false;
        }
        let objects = self.open_pack(pack).and_then(|pack| pack.objects()).unwrap_or_default();
        let commits = objects.into_iter().filter(|object| object.kind == ObjectKind::Commit);
        let commits: Vec<ObjectId> = commits.map(|commit| commit.id).collect();
        self.learn_copies(fetcher, pack, &commits)
    }

    /// Adds stubs of other packs with objects of a lost one. Shadows as dead what a garbage collection
    /// at the remote has deleted of the pack, and the commits that the remote has forgotten: those of
    /// the pack that only have a link in other packs, and those that the remote names. Returns true if
    /// there are any.
    fn learn_copies(&self, fetcher: &Fetcher, lost: &PackId, objects: &[ObjectId]) -> bool {
        let RemoteCopies { packs, forgotten } = fetcher.remote.other_copies(*lost, objects);
        // If the stubs cannot be added, use the copies in packs of this store.
        let _ = self.add_stubs(&packs);
        let has_link =
            |id: &ObjectId| self.is_alive(&CommitId::from_object(*id).link()).unwrap_or(false);
        let deleted = fetcher.remote.deleted(*lost, objects);
        let is_deleted = |id: &&ObjectId| {
            let has_copy = self.locate_in_other_pack(id, lost).is_ok_and(|place| place.is_some());
            !has_copy && (deleted.contains(*id) || has_link(id))
        };
        let mut dead: Vec<(PackId, ObjectId)> =
            objects.iter().filter(is_deleted).map(|id| (*lost, *id)).collect();
        let mut copies = Vec::new();
        for id in forgotten.iter().map(|id| id.object()).filter(has_link) {
            let places = self.alive_places(&id).unwrap_or_default().into_iter();
            copies.extend(places.filter_map(|place| Some((self.pack_id(place.pack)?, id))));
        }
        // Another whole pack may be one of this store.
        let (in_stubs, whole) = copies.into_iter().partition(|(pack, _)| self.is_partial(pack));
        dead.extend::<Vec<_>>(in_stubs);
        dead.extend(fetcher.remote.dead_copies(whole));
        if dead.is_empty() {
            return false;
        }
        // If the table cannot be written, the shadows still apply to this open store.
        let _ = self.change_shadows(&|table| {
            for (pack, id) in &dead {
                table.add(*pack, Reason::Dead, ShadowedPart::Objects([*id].into()));
            }
        });
        true
    }

    /// Returns true if a collection at the remote has deleted a partial pack: what is not here of it is
    /// dead, or other packs have it.
    pub fn is_deleted_elsewhere(&self, pack: &PackId) -> bool {
        let absent = self.absent_frames(pack).unwrap_or_default();
        let offsets: Vec<u64> = absent.iter().map(|frame| frame.offset).collect();
        let objects = self.objects_of_frames(pack, &offsets).unwrap_or_default();
        let is_deleted = |id: &ObjectId| {
            let other = self.locate_in_other_pack(id, pack);
            self.is_found_dead(id) || other.is_ok_and(|place| place.is_some())
        };
        self.is_partial(pack) && objects.iter().all(is_deleted)
    }

    /// Reads an object at one location and checks the bytes against the id.
    ///
    /// # Errors
    /// [`StoreError`] when the pack cannot be read or the object is damaged.
    pub fn object_at(&self, id: &ObjectId, place: &ObjectLocation) -> Result<Vec<u8>, StoreError> {
        let frame = self.cached_frame(place)?;
        let pack = self.pack_id(place.pack).expect("a place has a pack of this store");
        let bytes = place.slice(&frame).ok_or(StoreError::IndexMismatch { pack })?;
        let actual = actual_id(place.kind, bytes);
        match actual == *id {
            true => Ok(bytes.to_vec()),
            false => Err(StoreError::Damaged { pack, wanted: *id, actual }),
        }
    }

    /// Reads a node of a tree.
    ///
    /// # Errors
    /// [`StoreError`] if the node is missing or damaged.
    pub fn tree(&self, id: &TreeId) -> Result<Node, StoreError> {
        decode_tree(id, &self.object(&id.object(), ObjectKind::Tree)?)
    }

    /// Reads a commit.
    ///
    /// # Errors
    /// [`StoreError::Forgotten`] if the store has only the link of the commit and may have deleted it,
    /// and any other [`StoreError`] if the commit is missing or damaged.
    pub fn commit(&self, id: &CommitId) -> Result<Commit, StoreError> {
        match self.object(&id.object(), ObjectKind::Commit) {
            Ok(bytes) => decode_commit(id.object(), ObjectKind::Commit, &bytes),
            Err(StoreError::Missing { .. })
                if self.locate(&id.link())?.is_some() && !self.is_forgotten_and_kept(id) =>
            {
                Err(StoreError::Forgotten { id: *id })
            }
            // The read may have found out that the remote has forgotten the commit.
            Err(StoreError::Fetch { .. } | StoreError::Absent { .. })
                if self.is_forgotten(id)? =>
            {
                Err(StoreError::Forgotten { id: *id })
            }
            Err(error) => Err(error),
        }
    }
}

/// Decodes the bytes of a commit or of a link.
pub(super) fn decode_commit(
    id: ObjectId,
    kind: ObjectKind,
    bytes: &[u8],
) -> Result<Commit, StoreError> {
    Commit::decode(bytes).map_err(|source| StoreError::Object { id, kind, source })
}

/// Returns the id that an object's bytes hash to.
pub fn actual_id(kind: ObjectKind, bytes: &[u8]) -> ObjectId {
    match kind {
        ObjectKind::Blob => BlobId::of(bytes).object(),
        ObjectKind::Tree => TreeId::of(bytes).object(),
        ObjectKind::Commit => CommitId::of(bytes).object(),
        ObjectKind::Link => CommitId::of(bytes).link(),
        ObjectKind::ChunkList => ChunkListId::of(bytes).object(),
        ObjectKind::ListPart => ListPartId::of(bytes).object(),
    }
}
