//! Adding objects to a store, from many threads at once.
//!
//! A writer keeps a lane (a frame being filled) for each worker thread, one
//! for metadata, and one pack being written. It decides for each id whether it
//! is new: not in the store, and not claimed by another thread.
//!
//! Order of durability: frames → pack file → its sync → its name → its index
//! segment; [`Writer::finish`] syncs the folder last. Until that has returned,
//! nothing that was added may be referred to. Metadata waits in memory for the
//! last pack, so that the structure of a snapshot lies together and is never
//! durable before the contents are.

use std::{
    collections::HashSet,
    hash::{BuildHasherDefault, Hasher},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    base::{
        id::{BlobId, CommitId, ObjectId, PackId, TreeId},
        limits,
    },
    codec::Encoder,
    format::pack::{Class, Object, ObjectKind},
    store::{
        Store, StoreError,
        lane::Lane,
        objects::lock,
        pack_reader::Home,
        pack_writer::{Encoded, PackWriter},
        sweep,
    },
};

/// Claimed ids are spread over so many locks.
const SHARDS: usize = 16;

/// What a writer added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Added {
    /// New objects.
    pub objects: u64,
    /// Their bytes before compression.
    pub raw_bytes: u64,
    /// Bytes of the packs they are in.
    pub stored_bytes: u64,
    /// How many packs that is.
    pub packs: u64,
}

/// Ids are hashes already: eight of their bytes will do.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // An array is written as its length, then its bytes.
        if let (32, Some(word)) = (bytes.len(), bytes.first_chunk::<8>()) {
            self.0 = u64::from_le_bytes(*word);
        }
    }
}

type IdSet = HashSet<ObjectId, BuildHasherDefault<IdHasher>>;

/// Objects that a writer which only counts remembers in each of [`SHARDS`];
/// one that was forgotten counts again when it comes again.
const COUNTED: usize = (1 << 20) / SHARDS;

/// What becomes of new objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// They are added.
    Write,
    /// They are counted, and nothing is written.
    Count,
}

/// Adds objects to a store. Dropped before it is finished, the pack that is
/// being written goes; those already sealed stay, as objects that nothing refers
/// to yet.
pub struct Writer<'s> {
    pub(super) store: &'s Store,
    level: i32,
    lanes: Vec<Mutex<Lane>>,
    metadata: Mutex<Metadata>,
    encoders: Mutex<Vec<Encoder>>,
    pack: Mutex<Option<PackWriter>>,
    claimed: Vec<Mutex<IdSet>>,
    sealed: Mutex<Vec<PackId>>,
    counts: [AtomicU64; 4],
    purpose: Purpose,
}

impl std::fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Writer({} lanes, {:?})", self.lanes.len(), self.added())
    }
}

struct Metadata {
    lane: Lane,
    frames: Vec<Encoded>,
    bytes: usize,
    objects: usize,
}

impl Metadata {
    /// Keeps a frame. Returns all of them once they are enough for a pack of
    /// their own: neither memory nor what one pack may hold is without end.
    fn keep(&mut self, frame: Encoded) -> Option<Vec<Encoded>> {
        self.bytes += frame.stored.len();
        self.objects += frame.objects.len();
        self.frames.push(frame);
        let full =
            self.bytes >= limits::PENDING_META_BYTES || self.objects >= limits::PENDING_OBJECTS;
        full.then(|| self.take())
    }

    fn take(&mut self) -> Vec<Encoded> {
        (self.bytes, self.objects) = (0, 0);
        std::mem::take(&mut self.frames)
    }
}

const OBJECTS: usize = 0;
const RAW_BYTES: usize = 1;
const STORED_BYTES: usize = 2;
const PACKS: usize = 3;

impl<'s> Writer<'s> {
    /// Starts adding to `store` with so many lanes, compressing at `level`.
    ///
    /// # Errors
    /// [`StoreError::Compress`] for want of memory.
    pub fn new(store: &'s Store, level: i32, lanes: usize) -> Result<Self, StoreError> {
        // Empty folders get lost when a store is copied by other means.
        store.disk().create_folders(&store.layout().tmp)?;
        sweep::run(&store.layout().tmp);
        Self::for_purpose(store, level, lanes, Purpose::Write)
    }

    /// Starts counting what would be added to `store`; nothing is written, and
    /// [`Added::stored_bytes`] stays 0. Of more than a million new objects, some
    /// may be counted twice.
    ///
    /// # Errors
    /// [`StoreError::Compress`] for want of memory.
    pub fn counting(store: &'s Store, level: i32) -> Result<Self, StoreError> {
        Self::for_purpose(store, level, 1, Purpose::Count)
    }

    /// Whether nothing is written.
    pub(super) fn is_counting(&self) -> bool {
        self.purpose == Purpose::Count
    }

    fn for_purpose(
        store: &'s Store,
        level: i32,
        lanes: usize,
        purpose: Purpose,
    ) -> Result<Self, StoreError> {
        let lane = |target| Lane::new(level, target).map_err(StoreError::Compress);
        let lanes = (0..lanes.max(1))
            .map(|_| lane(limits::SMALL_FRAME_BYTES).map(Mutex::new))
            .collect::<Result<_, _>>()?;
        let metadata = Metadata {
            lane: lane(limits::META_FRAME_BYTES)?,
            frames: Vec::new(),
            bytes: 0,
            objects: 0,
        };
        Ok(Self {
            store,
            level,
            lanes,
            metadata: Mutex::new(metadata),
            encoders: Mutex::default(),
            pack: Mutex::default(),
            claimed: (0..SHARDS).map(|_| Mutex::default()).collect(),
            sealed: Mutex::default(),
            counts: Default::default(),
            purpose,
        })
    }

    /// The store it adds to.
    pub fn store(&self) -> &'s Store {
        self.store
    }

    /// What was added so far.
    pub fn added(&self) -> Added {
        let count = |which: usize| self.counts[which].load(Ordering::Relaxed);
        Added {
            objects: count(OBJECTS),
            raw_bytes: count(RAW_BYTES),
            stored_bytes: count(STORED_BYTES),
            packs: count(PACKS),
        }
    }

    fn shard(&self, id: &ObjectId) -> &Mutex<IdSet> {
        &self.claimed[usize::from(id.as_bytes()[31]) % SHARDS]
    }

    /// Whether the object is about to be stored.
    pub(super) fn is_claimed(&self, id: &ObjectId) -> bool {
        lock(self.shard(id)).contains(id)
    }

    /// Whether the object is stored here, whole and unshadowed, or about to be.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn contains(&self, id: &ObjectId) -> Result<bool, StoreError> {
        Ok(self.is_claimed(id) || self.store.is_stored(id)?)
    }

    /// Whether the object is new and wanted; then it is the caller's to add.
    pub(super) fn claim(&self, object: &Object) -> Result<bool, StoreError> {
        if self.store.is_stored(&object.id)? {
            return Ok(false);
        }
        let mut claimed = lock(self.shard(&object.id));
        if self.is_counting() && claimed.len() >= COUNTED {
            claimed.clear();
        }
        let new = claimed.insert(object.id);
        drop(claimed);
        if new {
            self.counts[OBJECTS].fetch_add(1, Ordering::Relaxed);
            self.counts[RAW_BYTES].fetch_add(u64::from(object.bytes), Ordering::Relaxed);
        }
        Ok(new && !self.is_counting())
    }

    /// Adds a content of at most [`limits::SMALL_FRAME_BYTES`] through a lane,
    /// if it is new. Returns whether it was.
    ///
    /// # Errors
    /// [`StoreError`]; the writer is then of no further use.
    pub fn add_blob(&self, lane: usize, id: BlobId, bytes: &[u8]) -> Result<bool, StoreError> {
        let object = Object { id: id.object(), kind: ObjectKind::Blob, bytes: bytes.len() as u32 };
        if !self.claim(&object)? {
            return Ok(false);
        }
        let mut lane = lock(&self.lanes[lane % self.lanes.len()]);
        let frame = lane.push(object, bytes).map_err(StoreError::Compress)?;
        drop(lane);
        frame.map_or(Ok(()), |frame| self.append(&frame))?;
        Ok(true)
    }

    /// Hashes the chunks of `raw` that end at `cuts`, and adds those that are
    /// new as one frame. Returns the ids in order, and how many were new.
    ///
    /// # Errors
    /// [`StoreError`]; the writer is then of no further use.
    pub fn add_chunks(
        &self,
        raw: &[u8],
        cuts: &[usize],
    ) -> Result<(Vec<BlobId>, usize), StoreError> {
        let mut ids = Vec::with_capacity(cuts.len());
        let mut objects = Vec::new();
        let mut fresh = Vec::new();
        let mut start = 0;
        for &end in cuts {
            let chunk = &raw[start..end];
            let id = BlobId::of(chunk);
            ids.push(id);
            let object =
                Object { id: id.object(), kind: ObjectKind::Blob, bytes: chunk.len() as u32 };
            if self.claim(&object)? {
                objects.push(object);
                fresh.push(start..end);
            }
            start = end;
        }
        let new = objects.len();
        match fresh.as_slice() {
            [] => {}
            _ if new == cuts.len() => self.encode_and_append(&raw[..start], objects)?,
            parts => {
                let joined: Vec<u8> =
                    parts.iter().flat_map(|part| &raw[part.clone()]).copied().collect();
                self.encode_and_append(&joined, objects)?;
            }
        }
        Ok((ids, new))
    }

    fn encode_and_append(&self, raw: &[u8], objects: Vec<Object>) -> Result<(), StoreError> {
        let encoder = lock(&self.encoders).pop();
        let mut encoder = match encoder {
            Some(encoder) => encoder,
            None => Encoder::new(self.level).map_err(StoreError::Compress)?,
        };
        let (codec, stored) = encoder.encode(raw).map_err(StoreError::Compress)?;
        self.append_parts(Class::Data, codec, stored, raw.len() as u32, &objects)?;
        lock(&self.encoders).push(encoder);
        Ok(())
    }

    /// Adds an encoded tree, if it is new.
    ///
    /// # Errors
    /// [`StoreError`]; the writer is then of no further use.
    pub fn add_tree(&self, id: TreeId, bytes: &[u8]) -> Result<(), StoreError> {
        self.add_metadata(ObjectKind::Tree, id.object(), bytes)
    }

    /// Adds an encoded commit, if it is new.
    ///
    /// # Errors
    /// [`StoreError`]; the writer is then of no further use.
    pub fn add_commit(&self, id: CommitId, bytes: &[u8]) -> Result<(), StoreError> {
        self.add_metadata(ObjectKind::Commit, id.object(), bytes)
    }

    /// Adds the chunk list of a content, if it is new.
    ///
    /// # Errors
    /// [`StoreError`]; the writer is then of no further use.
    pub fn add_chunk_list(&self, id: BlobId, bytes: &[u8]) -> Result<(), StoreError> {
        self.add_metadata(ObjectKind::ChunkList, id.object(), bytes)
    }

    /// Adds a part of a long chunk list, if it is new.
    ///
    /// # Errors
    /// [`StoreError`]; the writer is then of no further use.
    pub fn add_chunk_list_part(&self, bytes: &[u8]) -> Result<BlobId, StoreError> {
        let id = BlobId::of(bytes);
        self.add_metadata(ObjectKind::Blob, id.object(), bytes)?;
        Ok(id)
    }

    /// Adds an object to the metadata frames.
    pub(super) fn add_metadata(
        &self,
        kind: ObjectKind,
        id: ObjectId,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        let object = Object { id, kind, bytes: bytes.len() as u32 };
        if !self.claim(&object)? {
            return Ok(());
        }
        self.push_metadata(object, bytes)
    }

    fn push_metadata(&self, object: Object, bytes: &[u8]) -> Result<(), StoreError> {
        let mut metadata = lock(&self.metadata);
        let frame = metadata.lane.push(object, bytes).map_err(StoreError::Compress)?;
        let full = frame.and_then(|frame| metadata.keep(frame));
        drop(metadata);
        full.map_or(Ok(()), |frames| self.seal_metadata(&frames))
    }

    fn seal_metadata(&self, frames: &[Encoded]) -> Result<(), StoreError> {
        let pack = PackWriter::create(self.store.disk(), &self.store.layout().tmp)?;
        self.seal(pack, frames)
    }

    /// Adds a frame as another pack has it. All its objects must be claimed.
    pub(super) fn append(&self, frame: &Encoded) -> Result<(), StoreError> {
        let Encoded { codec, stored, raw_bytes, objects } = frame;
        self.append_parts(Class::Data, *codec, stored, *raw_bytes, objects)
    }

    /// Adds an encoded metadata frame as another pack has it.
    pub(super) fn append_metadata(&self, frame: Encoded) -> Result<(), StoreError> {
        let full = lock(&self.metadata).keep(frame);
        full.map_or(Ok(()), |frames| self.seal_metadata(&frames))
    }

    /// Claims objects that are copied from packs about to go, where the store
    /// having them is no reason to leave them out.
    pub fn claim_anew(&self, object: &Object) -> bool {
        lock(self.shard(&object.id)).insert(object.id)
    }

    /// Adds a claimed object to a lane or to the metadata, wherever it belongs.
    pub(super) fn add_claimed(
        &self,
        class: Class,
        object: Object,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        match class {
            Class::Data => {
                let frame =
                    lock(&self.lanes[0]).push(object, bytes).map_err(StoreError::Compress)?;
                frame.map_or(Ok(()), |frame| self.append(&frame))
            }
            Class::Metadata => self.push_metadata(object, bytes),
        }
    }

    fn append_parts(
        &self,
        class: Class,
        codec: crate::format::pack::Codec,
        stored: &[u8],
        raw_bytes: u32,
        objects: &[Object],
    ) -> Result<(), StoreError> {
        let mut slot = lock(&self.pack);
        let pack = match &mut *slot {
            Some(pack) => pack,
            none => none.insert(PackWriter::create(self.store.disk(), &self.store.layout().tmp)?),
        };
        let shared = pack.shared();
        let offset = pack.reserve(class, codec, stored, raw_bytes, objects);
        let full = pack.is_full();
        // Entered before the lock goes, so that nobody seals without us.
        let file = shared.enter();
        let full = if full { slot.take() } else { None };
        drop(slot);
        shared.write(&file, offset, stored)?;
        drop(file);
        full.map_or(Ok(()), |pack| self.seal(pack, &[]))
    }

    fn seal(&self, pack: PackWriter, metadata: &[Encoded]) -> Result<(), StoreError> {
        let layout = self.store.layout();
        let sealed = pack.seal(self.store.disk(), &layout.objects, metadata)?;
        let bytes = sealed.file_bytes;
        self.store.add_sealed(&sealed, Home::Whole);
        for object in &sealed.objects {
            lock(self.shard(&object.id)).remove(&object.id);
        }
        lock(&self.sealed).push(sealed.id);
        self.counts[STORED_BYTES].fetch_add(bytes, Ordering::Relaxed);
        self.counts[PACKS].fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Writes what is pending, makes everything durable and tidies the index.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing that was added may be referred to.
    pub fn finish(self) -> Result<Added, StoreError> {
        self.finish_with_packs().map(|(added, _)| added)
    }

    /// [`Writer::finish`], with the packs that were made.
    pub(super) fn finish_with_packs(self) -> Result<(Added, Vec<PackId>), StoreError> {
        self.flush()?;
        // Also when nothing was added: what is referred to may have been
        // named by another process that has not synced the folder yet.
        self.store.settle()?;
        let packs = std::mem::take(&mut *lock(&self.sealed));
        Ok((self.added(), packs))
    }

    fn flush(&self) -> Result<(), StoreError> {
        for lane in &self.lanes {
            let frame = lock(lane).flush().map_err(StoreError::Compress)?;
            frame.map_or(Ok(()), |frame| self.append(&frame))?;
        }
        let mut metadata = lock(&self.metadata);
        let last = metadata.lane.flush().map_err(StoreError::Compress)?;
        metadata.frames.extend(last);
        let frames = metadata.take();
        drop(metadata);
        let objects = frames.iter().map(|frame| frame.objects.len()).sum::<usize>();
        let pack = lock(&self.pack).take();
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
