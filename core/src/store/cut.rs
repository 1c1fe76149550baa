//! Whether the chunks of contents that come from elsewhere amount to what their
//! lists say. A list is not named by its own bytes, so all that it stands for is
//! read and hashed: some hundred bytes may stand for 16 TiB of one chunk.
//!
//! That is bounded: before anything is read it is known [how much](Incoming::listed_bytes)
//! it will be; of a list one part is in memory at a time; and in a process as many
//! threads are at it as may work at a time, which give way to each other.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use crate::{
    base::{
        id::{BlobId, ObjectId, PackId},
        limits,
        observe::Observer,
    },
    format::{
        chunk_list::{ChunkList, Piece, Pieces},
        pack::{Frame, Object, ObjectKind},
        wire::FormatError,
    },
    store::{
        Incoming, Met, PackFile, StoreError,
        content::walk_list,
        objects::lock,
        turns::{Turn, Turns},
    },
};

/// Who reads what lists stand for, of all that is received by this process.
static TURNS: Turns = Turns::new();

/// Whoever has read so much gives way to those who wait.
const TURN_BYTES: u64 = 256 << 20;

/// Lists of a frame that one thread takes.
const LISTS: usize = 16;

/// Why the chunks of a list are not read to their end.
enum Halt {
    Store(StoreError),
    Cancelled,
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Some lists of a frame, each with where it lies.
struct Lists<'p> {
    frame: &'p Frame,
    lists: Vec<(ObjectId, std::ops::Range<usize>)>,
}

/// Has a turn, and gives way.
struct Reading<'o> {
    observer: &'o dyn Observer,
    /// Another one has found something wrong.
    failed: &'o AtomicBool,
    turn: Option<Turn<'static>>,
    bytes: u64,
}

impl<'o> Reading<'o> {
    fn new(observer: &'o dyn Observer, failed: &'o AtomicBool) -> Self {
        Self { observer, failed, turn: None, bytes: 0 }
    }

    /// Goes on by so many bytes.
    fn go_on(&mut self, bytes: u64) -> Result<(), Halt> {
        if self.failed.load(Ordering::Relaxed) || self.observer.cancelled() {
            return Err(Halt::Cancelled);
        }
        self.bytes += bytes;
        if self.turn.is_none() || self.bytes >= TURN_BYTES && TURNS.is_wanted() {
            // Given back first: nobody has two.
            self.turn = None;
            self.bytes = 0;
            self.turn = TURNS.take(rayon::current_num_threads(), self.observer);
        }
        if self.turn.is_some() { Ok(()) } else { Err(Halt::Cancelled) }
    }
}

/// What it takes to check a list, in bytes.
fn work(list: &ChunkList) -> u64 {
    let chunks = match &list.pieces {
        Pieces::Chunks(chunks) => chunks.len() as u64,
        // A chunk takes 33 bytes at least.
        Pieces::Parts(parts) => parts.iter().map(|part| u64::from(part.bytes) / 33).sum(),
    };
    list.total_bytes.max(chunks.saturating_mul(limits::CHUNK_WORK_BYTES))
}

fn lists_of<'p>(pack: &'p PackFile, objects: &[Object]) -> Vec<Lists<'p>> {
    let (mut rest, mut all) = (objects, Vec::new());
    for frame in pack.frames() {
        let (own, others) = rest.split_at(frame.objects as usize);
        rest = others;
        let (mut at, mut lists) = (0, Vec::new());
        for object in own {
            let range = at..at + object.bytes as usize;
            at = range.end;
            if object.kind == ObjectKind::ChunkList {
                lists.push((object.id, range));
            }
        }
        all.extend(lists.chunks(LISTS).map(|some| Lists { frame, lists: some.to_vec() }));
    }
    all
}

fn decode(
    (id, range): &(ObjectId, std::ops::Range<usize>),
    raw: &[u8],
) -> Result<ChunkList, StoreError> {
    let (id, kind) = (*id, ObjectKind::ChunkList);
    let bytes = raw.get(range.clone()).unwrap_or_default();
    ChunkList::decode(bytes).map_err(|source| StoreError::Object { id, kind, source })
}

impl Incoming<'_> {
    /// What it takes to [check](Self::check_lists) all lists that were received, in
    /// bytes: what they say that they stand for, and something for each chunk. A list
    /// that cannot be decoded takes nothing.
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

    /// Hashes every content that was cut, because a chunk list is not named by
    /// its own bytes. Ends early, without an error, when the user asks to stop.
    ///
    /// # Errors
    /// [`StoreError`] when chunks are missing or amount to something else.
    pub fn check_lists(&self, observer: &dyn Observer) -> Result<(), StoreError> {
        for id in self.packs() {
            let pack = self.own().open_pack(id)?;
            let all = lists_of(&pack, &pack.objects()?);
            // Threads of their own: those that all work shares are for what is short.
            let threads = rayon::current_num_threads().min(all.len());
            let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
            let failure = Mutex::new(None);
            let work = || {
                let mut reading = Reading::new(observer, &failed);
                while let Some(some) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match self.check_some(&pack, some, &mut reading) {
                        Ok(()) => {}
                        Err(Halt::Cancelled) => return,
                        Err(Halt::Store(error)) => {
                            failed.store(true, Ordering::Relaxed);
                            lock(&failure).get_or_insert(error);
                        }
                    }
                }
            };
            thread::scope(|scope| {
                for _ in 1..threads {
                    scope.spawn(work);
                }
                work();
            });
            if let Some(error) = lock(&failure).take() {
                return Err(error);
            }
        }
        Ok(())
    }

    /// The packs in the order in which they become part of the store: a chunk list after
    /// the chunks that it names. A commit there believes a list that it finds, and may
    /// come when some packs are there and others not yet, or never: this process may be
    /// killed. Packs that name each other come in any order.
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

    /// Packs that were received, in which chunks lie that lists in a pack name.
    fn named_by_lists(&self, id: &PackId) -> Result<BTreeSet<PackId>, StoreError> {
        let mut named = BTreeSet::new();
        let pack = self.own().open_pack(id)?;
        let read = |id: &ObjectId, kind| self.object(id, kind);
        let mut note = |piece: &Piece| {
            let place = self.own().locate(&piece.id.object())?;
            named.extend(place.and_then(|place| self.own().pack_id(place.pack)));
            Ok::<_, StoreError>(())
        };
        for some in lists_of(&pack, &pack.objects()?) {
            let raw = pack.raw(some.frame)?;
            for list in &some.lists {
                walk_list(list.0, decode(list, &raw)?, &read, &mut |met| match met {
                    Met::Chunks(chunks) => chunks.iter().try_for_each(&mut note),
                    Met::Part(part) => note(part),
                })?;
            }
        }
        named.remove(id);
        Ok(named)
    }

    fn check_some(
        &self,
        pack: &PackFile,
        some: &Lists<'_>,
        reading: &mut Reading<'_>,
    ) -> Result<(), Halt> {
        reading.go_on(0)?;
        let raw = pack.raw(some.frame)?;
        for list in &some.lists {
            self.check_list(pack.id(), list.0, decode(list, &raw)?, reading)?;
        }
        Ok(())
    }

    fn check_list(
        &self,
        pack: PackId,
        id: ObjectId,
        list: ChunkList,
        reading: &mut Reading<'_>,
    ) -> Result<(), Halt> {
        let mut hasher = blake3::Hasher::new();
        // The same one again and again is what holes are.
        let mut last: Option<(BlobId, Vec<u8>)> = None;
        let read = |id: &ObjectId, kind| self.object(id, kind);
        let mut hash = |chunk: &Piece| {
            let bytes = match last.take().filter(|(id, _)| *id == chunk.id) {
                Some((_, bytes)) => bytes,
                None => self.object(&chunk.id.object(), ObjectKind::Blob)?,
            };
            // What it takes was told by what the list says.
            if bytes.len() as u64 != u64::from(chunk.bytes) {
                let source = FormatError::Invalid { what: "chunk length", at: 0 };
                let kind = ObjectKind::ChunkList;
                return Err(StoreError::Object { id, kind, source }.into());
            }
            hasher.update(&bytes);
            reading.observer.advance(bytes.len() as u64, 0);
            reading.go_on(bytes.len() as u64)?;
            last = Some((chunk.id, bytes));
            Ok::<_, Halt>(())
        };
        walk_list(id, list, &read, &mut |met| match met {
            Met::Chunks(chunks) => chunks.iter().try_for_each(&mut hash),
            Met::Part(_) => Ok(()),
        })?;
        let actual = BlobId::from_bytes(*hasher.finalize().as_bytes()).object();
        match actual == id {
            true => Ok(()),
            false => Err(StoreError::Damaged { pack, wanted: id, actual }.into()),
        }
    }
}
