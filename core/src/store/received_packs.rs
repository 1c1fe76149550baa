//! Received packs, kept outside the store until all of them are verified.
//!
//! A receiver writes packs to a new folder under `tmp/` and checks every object against its id. The
//! receiving operation then checks that the packs are complete. Only then does the target store
//! adopt the packs. A pack moves into `objects/` unchanged. If the store already has some of its
//! objects, the other objects are copied into a new pack instead. A refused, interrupted or killed
//! reception leaves the store unchanged. A later writer sweeps a leftover folder.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs::File,
    path::{Path, PathBuf},
};

use rayon::prelude::*;

use crate::{
    base::{
        id::{ChunkListId, ListPartId, ObjectId, PackId},
        io::PathError,
        limits,
        observe::Observer,
    },
    disk::{
        Disk, NewFile,
        scratch::{NewLock, lock_new, unique_name},
    },
    format::{
        chunk_list::named_chunks,
        pack::{ObjectKind, PackedObject},
        wire::FormatError,
    },
    store::{
        ChunkVisit, Descend, ObjectLocation, ObjectWriter, Store, StoreError,
        bundle::BundleError,
        catalog::Catalog,
        copy::{FrameMode, copy_pack},
        epoch::Epoch,
        pack_reader::{Completeness, FrameObjects, PackFile},
        pack_writer::{FinishedPack, WRITEBACK_BYTES},
        sweep, walk_chunks,
        writer::WriteStats,
    },
};

/// Size of a batch, in raw bytes for each thread. A pack is checked in batches, so that rayon can
/// check other packs in between. Decompressing 32 MiB takes about a tenth of a second, so threads
/// wait only briefly for the last frame of a batch.
const BATCH_BYTES_PER_THREAD: u64 = 32 << 20;

/// Received packs that are not yet part of a store.
#[derive(Debug)]
pub struct ReceivedPacks<'s> {
    target: &'s Store,
    own: Store,
    dir: PathBuf,
    packs: Vec<PackId>,
    objects: u64,
    raw_bytes: u64,
    /// Number of chunks that the received chunk lists and their parts name.
    named_chunks: u64,
    /// Packs that the target had once listed and that no longer existed when the reception began.
    gone: HashSet<PackId>,
    /// The epoch of the target when the reception began.
    epoch: Epoch,
    /// The lock on a file in the folder, which keeps other processes from sweeping the folder.
    _lock: File,
}

/// Returns the packs that an open store had once listed and that no longer exist.
fn gone(store: &Store) -> HashSet<PackId> {
    let catalog = store.catalog();
    let ids = catalog.packs.iter().map(|slot| slot.id);
    ids.filter(|id| !catalog.numbers.contains_key(id)).collect()
}

impl Drop for ReceivedPacks<'_> {
    fn drop(&mut self) {
        let _ = fs_err::remove_dir_all(&self.dir);
    }
}

impl<'s> ReceivedPacks<'s> {
    /// Creates a folder for packs to add to `target`.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the store cannot be written.
    pub fn new(target: &'s Store, observer: &dyn Observer) -> Result<Self, StoreError> {
        let tmp = &target.layout().tmp;
        target.disk().create_folders(tmp)?;
        sweep::run(tmp);
        let (dir, lock) = loop {
            let dir = tmp.join(unique_name(sweep::INCOMING_PREFIX));
            // The folders may be lost in a crash. The files must be durable once adopted, so
            // `target`'s disk writes them.
            Store::create(&dir, &Disk::scratch())?;
            let path = dir.join(sweep::LOCK_FILE);
            let lock = match Disk::scratch().lock_file(&path) {
                // Another process has swept the folder before it was locked.
                Err(error) if error.is_not_found() => continue,
                lock => lock?,
            };
            if lock_new(&lock, &path)? != NewLock::Lost {
                break (dir, lock);
            }
        };
        let own = Store::open(&dir, target.disk().clone(), observer)?;
        let (packs, gone) = (Vec::new(), gone(target));
        Ok(Self {
            target,
            own,
            dir,
            packs,
            objects: 0,
            raw_bytes: 0,
            named_chunks: 0,
            gone,
            epoch: target.catalog().epoch,
            _lock: lock,
        })
    }

    /// Receives a pack. Calls `read` with a function that takes the bytes of the pack, piece by
    /// piece.
    ///
    /// # Errors
    /// The errors of `read`, and [`BundleError::Io`] when the pack cannot be written.
    pub fn receive(
        &mut self,
        read: impl FnOnce(&mut Receive<'_>) -> Result<(), BundleError>,
    ) -> Result<PackId, BundleError> {
        let disk = self.target.disk();
        let mut file = disk.create(&self.dir.join("tmp").join(unique_name("pack")))?;
        let mut hasher = blake3::Hasher::new();
        let (mut end, mut written_back) = (0, 0);
        read(&mut |bytes| {
            hasher.update(bytes);
            file.write(bytes)?;
            end += bytes.len() as u64;
            if end - written_back >= WRITEBACK_BYTES {
                file.start_writeback(written_back, end - written_back);
                written_back = end;
            }
            Ok(())
        })?;
        let id = PackId::from_bytes(*hasher.finalize().as_bytes());
        self.place(&file, id)?;
        Ok(id)
    }

    /// Receives a pack from a file on this disk: hard-links or copies the file. The caller must
    /// know that its bytes hash to its name.
    ///
    /// # Errors
    /// [`StoreError::Io`] when the pack cannot be linked or copied.
    pub fn link(&mut self, from: &Path, id: PackId) -> Result<(), StoreError> {
        let to = self.own.pack_path(&id);
        match fs_err::hard_link(from, &to) {
            Ok(()) => Ok(()),
            // `to` may be a link to `from`, and a copy of a file onto itself would empty the file.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(PathError::when("link", from)(error).into())
            }
            Err(_) => {
                fs_err::copy(from, &to).map_err(PathError::when("copy", from))?;
                Ok(())
            }
        }
    }

    fn place(&self, file: &NewFile, id: PackId) -> Result<(), StoreError> {
        let path = self.own.pack_path(&id);
        self.target.disk().replace(file.path(), &path)?;
        file.keep();
        Ok(())
    }

    /// Checks every object of a received pack and adds the pack to [`ReceivedPacks::own`].
    ///
    /// Checked: the footer, every frame, every object against its id, and that no object is
    /// received twice.
    ///
    /// # Errors
    /// [`BundleError::Duplicate`], and [`BundleError::Store`] if the pack is damaged.
    pub fn check(&mut self, id: PackId, observer: &dyn Observer) -> Result<(), BundleError> {
        let pack = PackFile::open(&self.own.pack_path(&id), id)?;
        let objects = pack.objects()?;
        self.check_new(&objects)?;
        pack.check(&objects, observer)?;
        self.index_pack(&pack, objects);
        Ok(())
    }

    /// Adds a linked pack whose frames and objects the caller has verified, for example with
    /// [`Store::complete`]. Checks that no object is received twice.
    ///
    /// # Errors
    /// As [`ReceivedPacks::check`].
    pub fn add_verified(&mut self, id: PackId) -> Result<(), BundleError> {
        let pack = PackFile::open(&self.own.pack_path(&id), id)?;
        let objects = pack.objects()?;
        self.check_new(&objects)?;
        self.index_pack(&pack, objects);
        Ok(())
    }

    /// Checks that no object was received before.
    fn check_new(&self, objects: &[PackedObject]) -> Result<(), BundleError> {
        for object in objects {
            if self.own.locate(&object.id)?.is_some() {
                return Err(BundleError::Duplicate { id: object.id });
            }
        }
        let mut sorted: Vec<ObjectId> = objects.iter().map(|object| object.id).collect();
        sorted.sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(BundleError::Duplicate { id: pair[0] }),
            None => Ok(()),
        }
    }

    fn index_pack(&mut self, pack: &PackFile, objects: Vec<PackedObject>) {
        self.objects += objects.len() as u64;
        self.raw_bytes += objects.iter().map(|object| u64::from(object.bytes)).sum::<u64>();
        self.named_chunks += objects.iter().map(named_chunks).sum::<u64>();
        let (id, file_bytes) = (pack.id(), pack.file_bytes());
        let sealed = FinishedPack { id, frames: pack.frames().to_vec(), objects, file_bytes };
        self.own.add_sealed(&sealed, Completeness::Whole);
        self.own.merge_segments();
        self.packs.push(id);
    }

    /// Links a pack and adds it. The caller must have checked its objects against their ids.
    ///
    /// # Errors
    /// [`StoreError`] when the pack cannot be read or linked.
    pub fn link_verified(&mut self, path: &Path, id: PackId) -> Result<(), StoreError> {
        self.link(path, id)?;
        let pack = PackFile::open(&self.own.pack_path(&id), id)?;
        let objects = pack.objects()?;
        self.index_pack(&pack, objects);
        Ok(())
    }

    /// Returns the received packs.
    pub fn packs(&self) -> &[PackId] {
        &self.packs
    }

    /// Returns the number of received objects and the sum of their raw bytes.
    pub fn totals(&self) -> (u64, u64) {
        (self.objects, self.raw_bytes)
    }

    /// Returns the number of chunks that the received chunk lists name. A walk looks up each of them.
    pub fn named_chunks(&self) -> u64 {
        self.named_chunks
    }

    /// Returns the store that holds the received packs.
    pub fn own(&self) -> &Store {
        &self.own
    }

    /// Returns the store that will adopt the packs.
    pub fn target(&self) -> &'s Store {
        self.target
    }

    /// Returns true if packs of the target have disappeared since the reception began. If not,
    /// every object that the caller has found in the target still exists.
    ///
    /// # Errors
    /// [`StoreError`] when `objects/` cannot be listed.
    pub fn target_lost_packs(&self) -> Result<bool, StoreError> {
        self.target.refresh()?;
        Ok(!gone(self.target).is_subset(&self.gone))
    }

    /// Looks up an object in the received packs, then in the target.
    ///
    /// # Errors
    /// [`StoreError`] when an index cannot be read.
    pub fn locate(&self, id: &ObjectId) -> Result<Option<ObjectLocation>, StoreError> {
        match self.own.locate(id)? {
            None => self.target.locate(id),
            place => Ok(place),
        }
    }

    /// Returns true if a [located](Self::locate) object can be read without a fetch.
    ///
    /// # Errors
    /// [`StoreError`] if the pack of the object cannot be read.
    pub fn is_here(&self, id: &ObjectId) -> Result<bool, StoreError> {
        match (self.own.locate(id)?, self.target.locate(id)?) {
            (None, Some(place)) => self.target.is_here(&place),
            _ => Ok(true),
        }
    }

    /// Returns true if the caller should visit the objects that an object of the target refers to.
    /// Returns false for an object that is not stored locally: the remote has all objects that it
    /// refers to, so no fetch is needed.
    ///
    /// # Errors
    /// [`StoreError`] if the pack of the object cannot be read.
    pub fn should_descend(&self, place: &ObjectLocation) -> Result<bool, StoreError> {
        Ok(place.kind != ObjectKind::Blob && self.target.is_here(place)?)
    }

    /// Reads an object from the received packs, or else from the target.
    ///
    /// # Errors
    /// [`StoreError`] if the object is damaged or in neither store.
    pub fn object(&self, id: &ObjectId, kind: ObjectKind) -> Result<Vec<u8>, StoreError> {
        match self.own.locate(id)? {
            Some(_) => self.own.object(id, kind),
            None => self.target.object(id, kind),
        }
    }

    /// Adds the received packs to the target, durably. The caller must have verified that the packs
    /// are complete. If the target already has some objects of a pack, copies only the other
    /// objects.
    ///
    /// # Errors
    /// [`StoreError`]. The target may then have some of the objects, but no commit refers to them.
    pub fn adopt(self, level: i32) -> Result<WriteStats, StoreError> {
        let _all_at_once = self.target.adoption_lock.read();
        let ordered = self.ordered()?;
        // Free the index of the received packs, which is no longer used.
        self.own.change_catalog(|catalog| *catalog = Catalog::default());
        let mut moved = WriteStats::default();
        let mut mixed = Vec::new();
        for id in &ordered {
            let pack = PackFile::open(&self.own.pack_path(id), *id)?;
            let objects = pack.objects()?;
            let mut known = 0;
            for object in &objects {
                known += usize::from(self.target.is_stored(&object.id)?);
            }
            // The moved pack replaces a partial or damaged copy.
            if known == 0 || self.target.is_partial(id) || self.target.is_damaged(id) {
                self.move_pack(&pack, objects, &mut moved)?;
            } else if known < objects.len() {
                mixed.push(pack);
            }
        }
        if mixed.is_empty() {
            self.target.make_names_durable()?;
            return Ok(moved);
        }
        let writer = ObjectWriter::new(self.target, level, 1)?;
        for pack in &mixed {
            copy_pack(&writer, pack, FrameMode::Refill, &mut |object| writer.claim(object))?;
        }
        // `finish` also makes the moved packs durable.
        let added = writer.finish()?;
        Ok(WriteStats {
            objects: added.objects + moved.objects,
            raw_bytes: added.raw_bytes + moved.raw_bytes,
            stored_bytes: added.stored_bytes + moved.stored_bytes,
            packs: added.packs + moved.packs,
        })
    }

    /// Adds the received packs to the target, durably. Keeps all packs unchanged, because other
    /// stores refer to their names. The caller must have verified that the packs are complete.
    ///
    /// # Errors
    /// As [`ReceivedPacks::adopt`].
    pub fn adopt_packs(self) -> Result<WriteStats, StoreError> {
        let _all_at_once = self.target.adoption_lock.read();
        let ordered = self.ordered()?;
        self.own.change_catalog(|catalog| *catalog = Catalog::default());
        let mut moved = WriteStats::default();
        // Skip packs that another process has added meanwhile.
        let present = self.target.packs();
        let is_here = |id: &PackId| {
            let is_there = present.binary_search(id).is_ok();
            is_there && !self.target.is_partial(id) && !self.target.is_shadowed(id)
        };
        // Sync all packs first, to shorten the time between the first rename and the last one.
        if self.packs.len() > 1 {
            for id in &self.packs {
                self.target.disk().sync_file(&self.own.pack_path(id))?;
            }
        }
        for id in ordered.iter().filter(|id| !is_here(id)) {
            let pack = PackFile::open(&self.own.pack_path(id), *id)?;
            let objects = pack.objects()?;
            self.move_pack(&pack, objects, &mut moved)?;
        }
        self.target.make_names_durable()?;
        Ok(moved)
    }

    fn move_pack(
        &self,
        pack: &PackFile,
        objects: Vec<PackedObject>,
        moved: &mut WriteStats,
    ) -> Result<(), StoreError> {
        let (id, file_bytes) = (pack.id(), pack.file_bytes());
        let from = self.own.pack_path(&id);
        self.target.disk().sync_file(&from)?;
        self.target.name_pack_now(&from, &id, self.epoch)?;
        moved.objects += objects.len() as u64;
        moved.raw_bytes += objects.iter().map(|object| u64::from(object.bytes)).sum::<u64>();
        moved.stored_bytes += file_bytes;
        moved.packs += 1;
        let sealed = FinishedPack { id, frames: pack.frames().to_vec(), objects, file_bytes };
        self.target.add_sealed(&sealed, Completeness::Whole);
        self.target.record_proven(&[id]);
        Ok(())
    }

    /// Returns the packs in the order of adoption: chunks before the lists that name them. A commit
    /// to the target relies on any list that it finds. Such a commit may run between two adoptions,
    /// and a killed process never adds the remaining packs. Packs that refer to each other come in
    /// any order.
    ///
    /// # Errors
    /// [`StoreError`] when a list cannot be read.
    fn ordered(&self) -> Result<Vec<PackId>, StoreError> {
        let packs = self.packs();
        if packs.len() < 2 {
            return Ok(packs.to_vec());
        }
        let mut after: BTreeMap<PackId, BTreeSet<PackId>> = BTreeMap::new();
        let mut parts = PacksOfParts::default();
        for id in packs {
            after.insert(*id, self.named_by_lists(id, &mut parts)?);
        }
        // Depth-first search in post-order. The stack gets each pack a second time, as ready, below
        // the packs that it needs. `seen` breaks cycles.
        let mut ordered = Vec::with_capacity(packs.len());
        let mut seen = BTreeSet::new();
        let mut waiting: Vec<(PackId, bool)> = packs.iter().rev().map(|id| (*id, false)).collect();
        while let Some((id, is_ready)) = waiting.pop() {
            if is_ready {
                ordered.push(id);
            } else if seen.insert(id) {
                waiting.push((id, true));
                waiting.extend(after.remove(&id).into_iter().flatten().map(|id| (id, false)));
            }
        }
        Ok(ordered)
    }

    /// Returns the other received packs that hold chunks or parts of the lists in a pack. Reads each
    /// part once for all packs.
    fn named_by_lists(
        &self,
        id: &PackId,
        parts: &mut PacksOfParts,
    ) -> Result<BTreeSet<PackId>, StoreError> {
        let mut named = BTreeSet::new();
        let pack_of = |id: ObjectId| -> Result<Option<PackId>, StoreError> {
            Ok(self.own().locate(&id)?.and_then(|place| self.own().pack_id(place.pack)))
        };
        let read = |id: &ObjectId, kind| self.object(id, kind);
        let objects = self.own().open_pack(id)?.objects()?;
        let lists = objects.iter().filter(|object| object.kind == ObjectKind::ChunkList);
        for list in lists {
            let mut entered = None;
            walk_chunks(&ChunkListId::from_object(list.id), &read, &mut |visit| match visit {
                ChunkVisit::Part(part, _) => {
                    named.extend(pack_of(part.id.object())?);
                    let known = parts.get(&part.id);
                    named.extend(known.into_iter().flatten());
                    entered = known.is_none().then_some(part.id);
                    Ok(if known.is_none() { Descend::Enter } else { Descend::Skip })
                }
                ChunkVisit::Chunks(chunks) => {
                    let mut of_chunks = BTreeSet::new();
                    for chunk in chunks? {
                        of_chunks.extend(pack_of(chunk.id.object())?);
                    }
                    named.extend(&of_chunks);
                    parts.extend(entered.map(|part| (part, of_chunks)));
                    Ok::<_, StoreError>(Descend::Enter)
                }
            })?;
        }
        named.remove(id);
        Ok(named)
    }
}

/// The received packs that hold chunks of each part of a chunk list.
type PacksOfParts = HashMap<ListPartId, BTreeSet<PackId>>;

/// Receives the next bytes of a pack.
pub type Receive<'a> = dyn FnMut(&[u8]) -> Result<(), BundleError> + 'a;

impl PackFile {
    /// Checks every frame, and every object against its id. Ends early without an error when the user
    /// asks to stop.
    ///
    /// # Errors
    /// [`StoreError`] if the pack is damaged. Refuses a pack of more than
    /// [`limits::PACK_RAW_BYTES`] raw bytes before decompressing any frame.
    pub fn check(
        &self,
        objects: &[PackedObject],
        observer: &dyn Observer,
    ) -> Result<(), StoreError> {
        let claimed = self.frames().iter().map(|frame| u64::from(frame.raw_bytes)).sum();
        FormatError::check_limit("expanded bytes", claimed, limits::PACK_RAW_BYTES)
            .map_err(|source| StoreError::Format { pack: self.id(), source })?;
        let frames: Vec<FrameObjects<'_>> = self.by_frame(objects).collect();
        // rayon's threads take jobs in the order of the queue, and each batch is a job of its own.
        // So threads check frames of other packs between two batches, and a short pack that expands
        // to many bytes does not delay other packs.
        let batch_bytes = rayon::current_num_threads() as u64 * BATCH_BYTES_PER_THREAD;
        let mut rest = frames.as_slice();
        while !rest.is_empty() && !observer.cancelled() {
            let mut bytes = 0;
            let before = rest.iter().take_while(|contents| {
                let begins_within = bytes < batch_bytes;
                bytes += u64::from(contents.frame.raw_bytes);
                begins_within
            });
            let batch;
            (batch, rest) = rest.split_at(before.count());
            batch.par_iter().try_for_each(|contents| match observer.cancelled() {
                true => Ok(()),
                false => self.check_frame(*contents),
            })?;
        }
        Ok(())
    }

    /// Verifies the checksum of a frame, and checks its objects against their ids.
    ///
    /// # Errors
    /// [`StoreError`] with what is wrong.
    pub fn check_frame(&self, contents: FrameObjects<'_>) -> Result<(), StoreError> {
        self.check_stored(contents, &self.stored(contents.frame)?)
    }

    /// Like [`PackFile::check_frame`], for stored bytes that the caller has read and verified.
    pub(super) fn check_stored(
        &self,
        contents: FrameObjects<'_>,
        stored: &[u8],
    ) -> Result<(), StoreError> {
        let raw = self.expanded(contents.frame, stored)?;
        contents.split_verified(self.id(), &raw).try_for_each(|object| object.map(drop))
    }
}
