//! Adds objects to a store, from many threads at once.
//!
//! A writer has a lane (a frame that is being filled) for each worker thread, a lane for metadata,
//! and one open pack. An object is new if it is neither in the store nor claimed by another thread.
//!
//! Order of durability: frames → pack file → sync of the file → rename → index segment.
//! [`ObjectWriter::finish`] syncs the folder last; no ref may point at added objects before
//! `finish` returns. Metadata waits in memory for the last pack. So the trees of a snapshot are
//! stored together, and never become durable before the contents.

use std::{
    collections::HashSet,
    hash::{BuildHasherDefault, Hasher},
    ops::AddAssign,
    path::Path,
};

use parking_lot::Mutex;

use crate::{
    base::{
        id::{BlobId, CommitId, ObjectId, PackId, TreeId},
        limits,
    },
    codec::Encoder,
    format::{
        chunk_list::{BlobRef, ListObject},
        pack::{Codec, ObjectClass, ObjectKind, PackedObject},
    },
    store::{
        Store, StoreError,
        epoch::{Epoch, Reliance},
        lane::FrameBuilder,
        pack_reader::Completeness,
        pack_writer::{EncodedFrame, PackWriter},
        sweep,
    },
};

/// Number of shards of the set of claimed ids. Each shard has its own lock.
const SHARDS: usize = 16;

/// Totals of the added objects and packs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteStats {
    /// Number of new objects.
    pub objects: u64,
    /// Total length of these objects before compression, in bytes.
    pub raw_bytes: u64,
    /// Total length of the new packs, in bytes.
    pub stored_bytes: u64,
    /// Number of new packs.
    pub packs: u64,
}

impl AddAssign for WriteStats {
    fn add_assign(&mut self, other: Self) {
        self.objects += other.objects;
        self.raw_bytes += other.raw_bytes;
        self.stored_bytes += other.stored_bytes;
        self.packs += other.packs;
    }
}

/// A hasher for ids. An id is a hash already, so eight of its bytes are enough.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Ignore the length of the array, which `Hash` writes before the bytes.
        if let (32, Some(word)) = (bytes.len(), bytes.first_chunk::<8>()) {
            self.0 = u64::from_le_bytes(*word);
        }
    }
}

type IdSet = HashSet<ObjectId, BuildHasherDefault<IdHasher>>;

/// Number of ids that a counting writer remembers in each of its [`SHARDS`]. The writer clears a
/// full shard, and may then count an object again.
const COUNTED: usize = (1 << 20) / SHARDS;

/// Adds objects to a store. The drop of an unfinished writer discards its open pack. Its sealed
/// packs stay, as unreferenced objects.
pub struct ObjectWriter<'s> {
    pub(super) store: &'s Store,
    level: i32,
    lanes: Vec<Mutex<FrameBuilder>>,
    metadata: Mutex<MetadataWriter>,
    encoders: Mutex<Vec<Encoder>>,
    pack: Mutex<Option<PackWriter>>,
    claimed: Vec<Mutex<IdSet>>,
    sealed: Mutex<Vec<PackId>>,
    added: Mutex<WriteStats>,
    /// True if the writer counts new objects and writes nothing.
    pub(super) is_counting: bool,
    /// The epoch in which everything that this writer relies on is alive.
    epoch: Mutex<Epoch>,
    pub(super) relied: Reliance,
    /// True if the writer copies objects.
    copies: bool,
    /// Varies the names of the packs.
    variation: u64,
    /// Length from which on a pack is full.
    pack_bytes: u64,
}

impl std::fmt::Debug for ObjectWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Writer({} lanes, {:?})", self.lanes.len(), self.added())
    }
}

struct MetadataWriter {
    lane: FrameBuilder,
    frames: Vec<EncodedFrame>,
    bytes: usize,
    /// Size of the frames that fill a pack of their own.
    most_bytes: usize,
    objects: usize,
}

impl MetadataWriter {
    /// Keeps a frame in memory. Returns all kept frames once they fill a pack of their own, which
    /// limits the memory and the number of objects in one pack.
    fn keep(&mut self, frame: EncodedFrame) -> Option<Vec<EncodedFrame>> {
        self.bytes += frame.stored.len();
        self.objects += frame.objects.len();
        self.frames.push(frame);
        let full = self.bytes >= self.most_bytes || self.objects >= limits::PENDING_OBJECTS;
        full.then(|| self.take())
    }

    fn take(&mut self) -> Vec<EncodedFrame> {
        (self.bytes, self.objects) = (0, 0);
        std::mem::take(&mut self.frames)
    }
}

impl<'s> ObjectWriter<'s> {
    /// Creates a writer for `store` with `lanes` lanes and the compression level `level`.
    ///
    /// # Errors
    /// [`StoreError::Compress`] when there is not enough memory.
    pub fn new(store: &'s Store, level: i32, lanes: usize) -> Result<Self, StoreError> {
        // Create `tmp/` again: other tools may lose empty folders when they copy a store.
        store.disk().create_folders(&store.layout().tmp)?;
        sweep::run(&store.layout().tmp);
        Self::for_purpose(store, level, lanes, false)
    }

    /// Creates a writer that counts new objects and writes nothing. [`WriteStats::stored_bytes`]
    /// stays 0. Above a million new objects, the writer may count some objects twice.
    ///
    /// # Errors
    /// [`StoreError::Compress`] when there is not enough memory.
    pub fn counting(store: &'s Store, level: i32) -> Result<Self, StoreError> {
        Self::for_purpose(store, level, 1, true)
    }

    /// Lets this writer fail if a garbage collection begins meanwhile, for a writer that copies
    /// objects which the collection may find dead.
    #[must_use]
    pub fn of_copies(self) -> Self {
        Self { copies: true, ..self }
    }

    /// Gives the packs of this writer other names, because a remote never uses some names again.
    #[must_use]
    pub fn with_variation(self, variation: u64) -> Self {
        Self { variation, ..self }
    }

    /// Sets the length from which on a pack is full, in place of [`limits::PACK_TARGET_BYTES`]. A
    /// pack can be longer by one frame, by a quarter for metadata, and by its footer.
    #[must_use]
    pub fn with_pack_bytes(mut self, pack_bytes: u64) -> Self {
        self.metadata.get_mut().most_bytes =
            limits::PENDING_META_BYTES.min(pack_bytes as usize / 4);
        Self { pack_bytes, ..self }
    }

    fn new_pack(&self) -> Result<PackWriter, StoreError> {
        let (disk, tmp) = (self.store.disk(), &self.store.layout().tmp);
        Ok(PackWriter::create(disk, tmp, self.variation, self.pack_bytes)?)
    }

    fn for_purpose(
        store: &'s Store,
        level: i32,
        lanes: usize,
        is_counting: bool,
    ) -> Result<Self, StoreError> {
        let lane = |target| FrameBuilder::new(level, target).map_err(StoreError::Compress);
        let lanes = (0..lanes.max(1))
            .map(|_| lane(limits::SMALL_FRAME_BYTES).map(Mutex::new))
            .collect::<Result<_, _>>()?;
        let metadata = MetadataWriter {
            lane: lane(limits::META_FRAME_BYTES)?,
            frames: Vec::new(),
            bytes: 0,
            most_bytes: limits::PENDING_META_BYTES,
            objects: 0,
        };
        let epoch = store.enter_epoch()?;
        Ok(Self {
            store,
            level,
            epoch: Mutex::new(epoch),
            relied: Reliance::new(store),
            copies: false,
            variation: 0,
            pack_bytes: limits::PACK_TARGET_BYTES,
            lanes,
            metadata: Mutex::new(metadata),
            encoders: Mutex::default(),
            pack: Mutex::default(),
            claimed: (0..SHARDS).map(|_| Mutex::default()).collect(),
            sealed: Mutex::default(),
            added: Mutex::default(),
            is_counting,
        })
    }

    /// Returns the store that gets the objects.
    pub fn store(&self) -> &'s Store {
        self.store
    }

    /// Returns the totals so far.
    pub fn added(&self) -> WriteStats {
        *self.added.lock()
    }

    fn shard(&self, id: &ObjectId) -> &Mutex<IdSet> {
        &self.claimed[usize::from(id.as_bytes()[31]) % SHARDS]
    }

    /// Returns true if this writer is about to store the object.
    pub(super) fn is_claimed(&self, id: &ObjectId) -> bool {
        self.shard(id).lock().contains(id)
    }

    /// Returns true if the object is [stored](Store::is_stored), or if this writer is about to
    /// store it.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn contains(&self, id: &ObjectId) -> Result<bool, StoreError> {
        Ok(self.is_claimed(id) || self.is_stored(id)?)
    }

    /// Claims an object. Returns true if the object is new; the caller must then add the object. A
    /// counting writer counts a new object and returns false.
    pub(crate) fn claim(&self, object: &PackedObject) -> Result<bool, StoreError> {
        if self.is_stored(&object.id)? {
            return Ok(false);
        }
        let mut claimed = self.shard(&object.id).lock();
        if self.is_counting && claimed.len() >= COUNTED {
            claimed.clear();
        }
        let new = claimed.insert(object.id);
        drop(claimed);
        if new {
            let mut added = self.added.lock();
            added.objects += 1;
            added.raw_bytes += u64::from(object.bytes);
        }
        Ok(new && !self.is_counting)
    }

    /// Adds a content of at most [`limits::SMALL_FRAME_BYTES`] to a lane, if the content is new.
    /// Returns true if the content was added.
    ///
    /// # Errors
    /// [`StoreError`]. After an error, the caller must drop the writer.
    pub fn add_blob(&self, lane: usize, id: BlobId, bytes: &[u8]) -> Result<bool, StoreError> {
        let object =
            PackedObject { id: id.object(), kind: ObjectKind::Blob, bytes: bytes.len() as u32 };
        if !self.claim(&object)? {
            return Ok(false);
        }
        let mut lane = self.lanes[lane % self.lanes.len()].lock();
        let frame = lane.push(object, bytes).map_err(StoreError::Compress)?;
        drop(lane);
        frame.map_or(Ok(()), |frame| self.append(&frame))?;
        Ok(true)
    }

    /// Hashes the chunks of `raw` that end at `cuts`, and adds the new ones as one frame. Returns the
    /// chunks in order.
    ///
    /// # Errors
    /// [`StoreError`]. After an error, the caller must drop the writer.
    pub fn add_chunks(&self, raw: &[u8], cuts: &[usize]) -> Result<Vec<BlobRef>, StoreError> {
        let mut chunks = Vec::with_capacity(cuts.len());
        let mut objects = Vec::new();
        let mut fresh = Vec::new();
        let mut start = 0;
        for &end in cuts {
            let chunk = &raw[start..end];
            let (id, bytes) = (BlobId::of(chunk), chunk.len() as u32);
            chunks.push(BlobRef { id, bytes });
            let object = PackedObject { id: id.object(), kind: ObjectKind::Blob, bytes };
            if self.claim(&object)? {
                objects.push(object);
                fresh.push(start..end);
            }
            start = end;
        }
        // If all chunks are new, compress the input without a copy.
        match fresh.as_slice() {
            [] => {}
            _ if fresh.len() == chunks.len() => self.encode_and_append(&raw[..start], objects)?,
            parts => {
                let joined: Vec<u8> =
                    parts.iter().flat_map(|part| &raw[part.clone()]).copied().collect();
                self.encode_and_append(&joined, objects)?;
            }
        }
        Ok(chunks)
    }

    fn encode_and_append(&self, raw: &[u8], objects: Vec<PackedObject>) -> Result<(), StoreError> {
        let encoder = self.encoders.lock().pop();
        let mut encoder = match encoder {
            Some(encoder) => encoder,
            None => Encoder::new(self.level).map_err(StoreError::Compress)?,
        };
        let (codec, stored) = encoder.encode(raw).map_err(StoreError::Compress)?;
        self.append_parts(codec, stored, raw.len() as u32, &objects)?;
        self.encoders.lock().push(encoder);
        Ok(())
    }

    /// Adds an encoded tree, if it is new.
    ///
    /// # Errors
    /// [`StoreError`]. After an error, the caller must drop the writer.
    pub fn add_tree(&self, id: TreeId, bytes: &[u8]) -> Result<(), StoreError> {
        self.add_metadata(ObjectKind::Tree, id.object(), bytes)
    }

    /// Adds an encoded commit, if it is new.
    ///
    /// # Errors
    /// [`StoreError`]. After an error, the caller must drop the writer.
    pub fn add_commit(&self, id: CommitId, bytes: &[u8]) -> Result<(), StoreError> {
        self.add_metadata(ObjectKind::Commit, id.object(), bytes)
    }

    /// Adds the link of a commit, if it is new. `bytes` are those of the commit.
    ///
    /// # Errors
    /// [`StoreError`]. After an error, the caller must drop the writer.
    pub fn add_link(&self, id: CommitId, bytes: &[u8]) -> Result<(), StoreError> {
        self.add_metadata(ObjectKind::Link, id.link(), bytes)
    }

    /// Adds a chunk list or a part of one, if it is new.
    ///
    /// # Errors
    /// [`StoreError`]. After an error, the caller must drop the writer.
    pub fn add_list_object(&self, object: &ListObject) -> Result<(), StoreError> {
        self.add_metadata(object.kind, object.id, &object.bytes)
    }

    /// Adds an object to the metadata frames, if it is new.
    ///
    /// # Errors
    /// [`StoreError`]. After an error, the caller must drop the writer.
    pub fn add_metadata(
        &self,
        kind: ObjectKind,
        id: ObjectId,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        let object = PackedObject { id, kind, bytes: bytes.len() as u32 };
        if !self.claim(&object)? {
            return Ok(());
        }
        self.push_metadata(object, bytes)
    }

    fn push_metadata(&self, object: PackedObject, bytes: &[u8]) -> Result<(), StoreError> {
        let mut metadata = self.metadata.lock();
        let frame = metadata.lane.push(object, bytes).map_err(StoreError::Compress)?;
        let full = frame.and_then(|frame| metadata.keep(frame));
        drop(metadata);
        full.map_or(Ok(()), |frames| self.seal_metadata(&frames))
    }

    fn seal_metadata(&self, frames: &[EncodedFrame]) -> Result<(), StoreError> {
        let pack = self.new_pack()?;
        self.seal(pack, frames)
    }

    /// Adds a compressed data frame unchanged. All its objects must be claimed.
    pub(super) fn append(&self, frame: &EncodedFrame) -> Result<(), StoreError> {
        let EncodedFrame { codec, stored, raw_bytes, objects } = frame;
        self.append_parts(*codec, stored, *raw_bytes, objects)
    }

    /// Adds a compressed metadata frame unchanged. All its objects must be claimed.
    pub(super) fn append_metadata(&self, frame: EncodedFrame) -> Result<(), StoreError> {
        let full = self.metadata.lock().keep(frame);
        full.map_or(Ok(()), |frames| self.seal_metadata(&frames))
    }

    /// Claims an object that the store has, for a copy out of a pack that is about to be removed.
    /// Returns false if the object is already claimed.
    pub fn claim_anew(&self, object: &PackedObject) -> bool {
        self.shard(&object.id).lock().insert(object.id)
    }

    /// Adds a claimed object to a lane or to the metadata, according to `class`.
    pub(super) fn add_claimed(
        &self,
        class: ObjectClass,
        object: PackedObject,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        match class {
            ObjectClass::Data => {
                let frame =
                    self.lanes[0].lock().push(object, bytes).map_err(StoreError::Compress)?;
                frame.map_or(Ok(()), |frame| self.append(&frame))
            }
            ObjectClass::Metadata => self.push_metadata(object, bytes),
        }
    }

    fn append_parts(
        &self,
        codec: Codec,
        stored: &[u8],
        raw_bytes: u32,
        objects: &[PackedObject],
    ) -> Result<(), StoreError> {
        let mut slot = self.pack.lock();
        let pack = match &mut *slot {
            Some(pack) => pack,
            none => none.insert(self.new_pack()?),
        };
        let shared = pack.shared();
        let offset = pack.reserve(ObjectClass::Data, codec, stored, raw_bytes, objects);
        let full = pack.is_full();
        // Take the lock of the file before releasing the lock of the pack, so that no other thread
        // can seal the pack before this frame is written.
        let file = shared.enter();
        let full = if full { slot.take() } else { None };
        drop(slot);
        shared.write(&file, offset, stored)?;
        drop(file);
        full.map_or(Ok(()), |pack| self.seal(pack, &[]))
    }

    fn seal(&self, pack: PackWriter, metadata: &[EncodedFrame]) -> Result<(), StoreError> {
        let sealed = pack.seal(metadata, &|from, id| self.name_pack(from, id))?;
        self.store.add_sealed(&sealed, Completeness::Whole);
        self.store.record_proven(&[sealed.id]);
        // Drop the claims after the index has the objects. `contains` checks the claims before the
        // index, so it always finds an object in one of them.
        for object in &sealed.objects {
            self.shard(&object.id).lock().remove(&object.id);
        }
        self.sealed.lock().push(sealed.id);
        *self.added.lock() +=
            WriteStats { stored_bytes: sealed.file_bytes, packs: 1, ..WriteStats::default() };
        Ok(())
    }

    /// Renames a complete pack into `objects/`. If a garbage collection has begun another epoch,
    /// first looks up again what this writer relied on.
    fn name_pack(&self, from: &Path, id: &PackId) -> Result<(), StoreError> {
        loop {
            let epoch = *self.epoch.lock();
            let Some(now) = self.store.name_pack(from, id, epoch)? else { return Ok(()) };
            self.store.refresh()?;
            let sealed = self.sealed.lock().clone();
            if self.copies
                || sealed.iter().any(|pack| self.store.shadows().has_dead(pack))
                || !self.relied.holds(self.store)?
            {
                return Err(StoreError::Collected);
            }
            *self.epoch.lock() = now;
        }
    }

    /// Writes pending frames, makes all packs durable and merges small index segments.
    ///
    /// # Errors
    /// [`StoreError`]. Then no ref may point at the added objects.
    pub fn finish(self) -> Result<WriteStats, StoreError> {
        self.finish_with_packs().map(|(added, _)| added)
    }

    /// Like [`ObjectWriter::finish`], but also returns the new packs.
    ///
    /// # Errors
    /// As [`ObjectWriter::finish`].
    pub fn finish_with_packs(self) -> Result<(WriteStats, Vec<PackId>), StoreError> {
        self.flush()?;
        // Sync even if nothing was added: the snapshot may refer to objects of a pack that another
        // process has renamed into place, but not synced yet.
        self.store.make_names_durable()?;
        let packs = std::mem::take(&mut *self.sealed.lock());
        Ok((self.added(), packs))
    }

    fn flush(&self) -> Result<(), StoreError> {
        for lane in &self.lanes {
            let frame = lane.lock().flush().map_err(StoreError::Compress)?;
            frame.map_or(Ok(()), |frame| self.append(&frame))?;
        }
        let mut metadata = self.metadata.lock();
        let last = metadata.lane.flush().map_err(StoreError::Compress)?;
        metadata.frames.extend(last);
        let frames = metadata.take();
        drop(metadata);
        let objects = frames.iter().map(|frame| frame.objects.len()).sum::<usize>();
        // Put the metadata into the open pack, unless the pack would have too many objects.
        let pack = self.pack.lock().take();
        match pack {
            Some(pack) if pack.object_count() + objects <= limits::PACK_OBJECTS => {
                self.seal(pack, &frames)
            }
            Some(pack) => {
                self.seal(pack, &[])?;
                self.seal_metadata(&frames)
            }
            None if frames.is_empty() => Ok(()),
            None => self.seal_metadata(&frames),
        }
    }
}
