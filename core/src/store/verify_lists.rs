//! Verification of chunk lists: the chunks must have the stated lengths, and their bytes must hash
//! to the id of the list.
//!
//! The id of a list is the hash of the content, so only a hash of all chunks proves the list. But a
//! list of a few hundred bytes can name 16 TiB of the same chunk. So the amount of work is
//! [known](ReceivedPacks::listed_bytes) before the first chunk is read. A check holds at most one
//! part of a list in memory. A semaphore with a FIFO queue limits the checking threads; stores can
//! share the semaphore ([`Store::with_list_checks`](crate::store::Store::with_list_checks)).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread::{self, Builder},
};

use parking_lot::Mutex;

use crate::{
    base::{
        id::{BlobId, ObjectId, PackId},
        limits,
        observe::Observer,
    },
    format::{
        chunk_list::{BlobRef, ChunkList, ChunkListEntries},
        pack::{Frame, ObjectKind, PackedObject},
    },
    store::{
        ChunkVisit, PackFile, ReadObject, ReceivedPacks, StoreError,
        content::{decode_list, walk_list},
        content_reader::read_chunks,
        fifo_semaphore::{FifoPermit, FifoSemaphore},
    },
};

/// Number of bytes that a thread reads before it gives its permit to a waiting thread.
const PERMIT_BYTES: u64 = 256 << 20;

/// Number of lists of a frame that one thread takes at a time.
const LISTS: usize = 16;

/// Why the walk through a list ended early.
enum ListWorkerStop {
    Store(StoreError),
    Cancelled,
}

impl From<StoreError> for ListWorkerStop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Some lists of a frame.
struct Lists<'p> {
    frame: &'p Frame,
    lists: Vec<FramedList>,
}

/// A chunk list in a frame.
#[derive(Clone)]
struct FramedList {
    id: ObjectId,
    /// The position of the list in the frame's raw bytes.
    range: std::ops::Range<usize>,
}

/// A worker that reads chunks while it has a permit.
struct ListWorker<'o> {
    observer: &'o dyn Observer,
    /// True if any worker has found an error.
    failed: &'o AtomicBool,
    permits: &'o FifoSemaphore,
    permit: Option<FifoPermit<'o>>,
    bytes: u64,
}

impl<'o> ListWorker<'o> {
    fn new(observer: &'o dyn Observer, failed: &'o AtomicBool, permits: &'o FifoSemaphore) -> Self {
        Self { observer, failed, permits, permit: None, bytes: 0 }
    }

    /// Counts `bytes` more bytes as read. Waits for a permit if the worker has none. After
    /// [`PERMIT_BYTES`] with one permit, gives the permit back if other threads wait, and waits for
    /// a new one.
    fn advance(&mut self, bytes: u64) -> Result<(), ListWorkerStop> {
        if self.failed.load(Ordering::Relaxed) || self.observer.cancelled() {
            return Err(ListWorkerStop::Cancelled);
        }
        self.bytes += bytes;
        if self.permit.is_none() || self.bytes >= PERMIT_BYTES && self.permits.is_wanted() {
            // Return the old permit first, so that no worker ever holds two permits.
            self.permit = None;
            self.bytes = 0;
            self.permit = self.permits.take(rayon::current_num_threads(), self.observer);
        }
        if self.permit.is_some() { Ok(()) } else { Err(ListWorkerStop::Cancelled) }
    }
}

/// Returns the work of a check of the list, in bytes.
fn work(list: &ChunkList) -> u64 {
    let chunks = match &list.pieces {
        ChunkListEntries::Chunks(chunks) => chunks.len() as u64,
        // An entry of a part is at least 33 bytes long.
        ChunkListEntries::Parts(parts) => parts.iter().map(|part| u64::from(part.bytes) / 33).sum(),
    };
    list.total_bytes.max(chunks.saturating_mul(limits::CHUNK_WORK_BYTES))
}

fn lists_of<'p>(pack: &'p PackFile, objects: &'p [PackedObject]) -> Vec<Lists<'p>> {
    let mut all = Vec::new();
    for contents in pack.by_frame(objects) {
        let lists = contents.ranges().filter(|(object, _)| object.kind == ObjectKind::ChunkList);
        let lists: Vec<_> =
            lists.map(|(object, range)| FramedList { id: object.id, range }).collect();
        let frame = contents.frame;
        all.extend(lists.chunks(LISTS).map(|some| Lists { frame, lists: some.to_vec() }));
    }
    all
}

fn decode(list: &FramedList, raw: &[u8]) -> Result<ChunkList, StoreError> {
    decode_list(list.id, raw.get(list.range.clone()).unwrap_or_default())
}

/// Passes every chunk that the chunk lists of a pack name to `visit`, and every part of a long list
/// before reading the part. Skips wrong lists. Fetches no list of this pack.
pub(super) fn visit_named(
    pack: &PackFile,
    read: &ReadObject<'_>,
    visit: &mut dyn FnMut(&BlobRef) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    for some in lists_of(pack, &pack.objects()?) {
        let raw = pack.local_raw(some.frame)?;
        for list in &some.lists {
            let decoded = decode(list, &raw);
            let visited = decoded.and_then(|decoded| {
                walk_list(list.id, &decoded, read, &mut |met| match met {
                    ChunkVisit::Chunks(chunks) => chunks.iter().try_for_each(&mut *visit),
                    ChunkVisit::Part(part) => visit(part),
                })
                .map(drop)
            });
            match visited {
                Err(error) if is_wrong_list(&list.id, &error) => {}
                visited => visited?,
            }
        }
    }
    Ok(())
}

impl ReceivedPacks<'_> {
    /// Returns the work of a [check](Self::check_lists) of all received lists, in bytes: for each
    /// list, the larger of its stated length and a minimum for each chunk. A list that cannot be
    /// decoded counts 0.
    ///
    /// # Errors
    /// [`StoreError`] when a pack cannot be read.
    pub fn listed_bytes(&self, observer: &dyn Observer) -> Result<u64, StoreError> {
        let mut bytes = 0u64;
        for id in self.packs() {
            let pack = self.own().open_pack(id)?;
            for some in lists_of(&pack, &pack.objects()?) {
                if observer.cancelled() {
                    return Ok(bytes);
                }
                let raw = pack.raw(some.frame)?;
                let works = some.lists.iter().filter_map(|list| decode(list, &raw).ok());
                bytes = works.map(|list| work(&list)).fold(bytes, u64::saturating_add);
            }
        }
        Ok(bytes)
    }

    /// Hashes the chunks of every received list. Nothing else proves a list, because its id is the
    /// hash of the content. Ends early without an error when the user asks to stop.
    ///
    /// # Errors
    /// [`StoreError`] if chunks are missing, or if they are not the content.
    pub fn check_lists(&mut self, observer: &dyn Observer) -> Result<(), StoreError> {
        let permits = self.target().list_checks();
        let (read, on_wrong) = (&|id: &_, kind| self.object(id, kind), &|_, error| Err(error));
        let checker = ListChecker { read, permits, observer, on_wrong };
        self.packs().iter().try_for_each(|id| checker.check_pack(&self.own().open_pack(id)?))?;
        if !observer.cancelled() {
            self.set_proven(HashMap::new());
        }
        Ok(())
    }

    /// Like [`ReceivedPacks::check_lists`], but does not fail on wrong chunk lists:
    /// [`ReceivedPacks::adopt`] leaves them out. The caller must then check that no commit needs
    /// them.
    ///
    /// # Errors
    /// [`StoreError`] if an object cannot be read.
    pub fn leave_out_wrong_lists(&mut self, observer: &dyn Observer) -> Result<(), StoreError> {
        let mut wrong = HashMap::new();
        for id in self.packs() {
            let (pack, read) = (self.own().open_pack(id)?, &|id: &_, kind| self.object(id, kind));
            wrong.extend(self.target().wrong_lists(&pack, read, observer)?);
        }
        if !observer.cancelled() {
            self.set_proven(wrong);
        }
        Ok(())
    }

    /// Returns the packs in the order of adoption: chunks before the lists that name them. A commit
    /// to the target relies on any list that it finds. Such a commit may run between two adoptions,
    /// and a killed process never adds the remaining packs. Packs that refer to each other come in
    /// any order.
    ///
    /// # Errors
    /// [`StoreError`] when a list cannot be read.
    pub(super) fn ordered(&self) -> Result<Vec<PackId>, StoreError> {
        let packs = self.packs();
        if packs.len() < 2 {
            return Ok(packs.to_vec());
        }
        let mut after: BTreeMap<PackId, BTreeSet<PackId>> = BTreeMap::new();
        for id in packs {
            after.insert(*id, self.named_by_lists(id)?);
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

    /// Returns the other received packs that hold chunks or parts of the lists in a pack.
    fn named_by_lists(&self, id: &PackId) -> Result<BTreeSet<PackId>, StoreError> {
        let mut named = BTreeSet::new();
        let pack = self.own().open_pack(id)?;
        visit_named(&pack, &|id, kind| self.object(id, kind), &mut |piece| {
            let place = self.own().locate(&piece.id.object())?;
            named.extend(place.and_then(|place| self.own().pack_id(place.pack)));
            Ok(())
        })?;
        named.remove(id);
        Ok(named)
    }
}

/// Reads an object of a given kind. Several threads may call the function at once.
pub(super) type SharedReadObject<'a> =
    dyn Fn(&ObjectId, ObjectKind) -> Result<Vec<u8>, StoreError> + Sync + 'a;

/// Receives the id and the error of a wrong chunk list. An error from this function ends the check.
type OnWrongList<'a> = dyn Fn(ObjectId, StoreError) -> Result<(), StoreError> + Sync + 'a;

/// Returns true if an error shows that a chunk list is wrong or has a newer format. A wrong list
/// cannot be decoded, or its chunks do not exist or are not the content. A damaged chunk does not
/// make its list wrong.
fn is_wrong_list(id: &ObjectId, error: &StoreError) -> bool {
    match error {
        StoreError::Content { id: content, .. } => content.object() == *id,
        StoreError::Object { .. }
        | StoreError::Missing { .. }
        | StoreError::Length { .. }
        | StoreError::WrongKind { .. } => true,
        _ => false,
    }
}

/// Hashes the contents behind the chunk lists of packs.
pub(super) struct ListChecker<'a> {
    /// Reads and verifies an object of the packs or of their target store.
    pub(super) read: &'a SharedReadObject<'a>,
    /// Limits the checking threads.
    pub(super) permits: &'a FifoSemaphore,
    pub(super) observer: &'a dyn Observer,
    pub(super) on_wrong: &'a OnWrongList<'a>,
}

impl ListChecker<'_> {
    /// Checks all lists of a pack. Ends early without an error when the user asks to stop.
    ///
    /// # Errors
    /// [`StoreError`] if an object cannot be read, and the errors of `on_wrong`.
    pub(super) fn check_pack(&self, pack: &PackFile) -> Result<(), StoreError> {
        let objects = pack.objects()?;
        let all = lists_of(pack, &objects);
        // Use separate threads, because rayon's shared pool is for short jobs.
        let threads = rayon::current_num_threads().min(all.len());
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let failure = Mutex::new(None);
        let work = || {
            let mut reading = ListWorker::new(self.observer, &failed, self.permits);
            while let Some(some) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                match self.check_some(pack, some, &mut reading) {
                    Ok(()) => {}
                    Err(ListWorkerStop::Cancelled) => return,
                    Err(ListWorkerStop::Store(error)) => {
                        failed.store(true, Ordering::Relaxed);
                        failure.lock().get_or_insert(error);
                    }
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads {
                // If a thread cannot be started, this thread does its work.
                let _ = Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        failure.lock().take().map_or(Ok(()), Err)
    }

    fn check_some(
        &self,
        pack: &PackFile,
        some: &Lists<'_>,
        reading: &mut ListWorker<'_>,
    ) -> Result<(), ListWorkerStop> {
        reading.advance(0)?;
        let raw = pack.raw(some.frame)?;
        for list in &some.lists {
            let decoded = decode(list, &raw).map_err(ListWorkerStop::from);
            let checked = decoded.and_then(|decoded| self.check_list(list.id, &decoded, reading));
            match checked {
                Err(ListWorkerStop::Store(error)) if is_wrong_list(&list.id, &error) => {
                    (self.on_wrong)(list.id, error)?;
                }
                checked => checked?,
            }
        }
        Ok(())
    }

    fn check_list(
        &self,
        id: ObjectId,
        list: &ChunkList,
        reading: &mut ListWorker<'_>,
    ) -> Result<(), ListWorkerStop> {
        // The estimate of the work relies on the lengths in the list, and `read_chunks` checks
        // these lengths.
        read_chunks(&BlobId::from_object(id), list, 0..u64::MAX, self.read, &mut |chunk| {
            reading.observer.advance(chunk.len() as u64, 0);
            reading.advance(chunk.len() as u64)
        })
    }
}
