//! A file of a snapshot as a content: its parts lie in frames of packs.
//!
//! What is fetched at once is a unit: a frame, or a single part of a frame that
//! is not compressed. A unit is fetched once for all who want it at the same
//! time, and kept for a while.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::{Bytes, BytesMut};
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use snap_core::{
    base::id::{BlobId, ObjectId},
    format::pack::{self, Codec, Frame, ObjectKind},
    store::{Content, PackFile, Place, Store, StoreError, actual_id},
};
use tokio::sync::{Semaphore, oneshot};

use crate::{
    ranges::{Blocks, Fetch, Link, Options, Planner, ReadError, Wanted},
    store::{OBJECTS, place_of},
};

/// KiB of units that are on their way, expanded: with the caches of units and
/// of blocks below the memory that a process may take.
const ROOM_KIB: u32 = 96 << 10;

/// Bytes of units that are kept.
const KEPT_BYTES: u64 = 24 << 20;

/// A file of a snapshot.
#[derive(Debug)]
pub(super) struct FileBlocks {
    shared: Arc<Units>,
    bytes: u64,
    /// In order.
    parts: Vec<Part>,
}

/// A chunk, or all of a content that was not cut.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Where it starts in the content.
    start: u64,
    bytes: u32,
    unit: usize,
    /// Where it starts in the unit, expanded.
    offset: u32,
}

/// What is fetched at once.
#[derive(Debug)]
struct Unit {
    key: Arc<str>,
    range: Range<u64>,
    pack: Arc<PackFile>,
    /// To be expanded; `None` for a part by itself.
    frame: Option<Frame>,
    /// What of it belongs to the file: where, how long, and its id.
    objects: Vec<(u32, u32, ObjectId)>,
}

type Loading = Shared<BoxFuture<'static, Result<Bytes, ReadError>>>;

#[derive(Debug)]
struct Units {
    units: Vec<Unit>,
    fetch: Arc<dyn Fetch>,
    link: Arc<Link>,
    /// For messages.
    location: String,
    room: Arc<Semaphore>,
    kept: Mutex<Kept>,
}

/// Units that are on their way or were used last.
#[derive(Debug, Default)]
struct Kept {
    loading: HashMap<usize, Loading>,
    /// Oldest first.
    order: VecDeque<usize>,
    bytes: u64,
}

impl FileBlocks {
    /// Finds out where the parts of a content lie.
    pub(super) fn find(
        store: &Store,
        id: &BlobId,
        location: &str,
        (fetch, link): (Arc<dyn Fetch>, Arc<Link>),
    ) -> Result<Self, StoreError> {
        let mut places = Vec::new();
        match store.content(id)? {
            Content::Whole(place) => places.push((id.object(), place)),
            Content::Chunks(chunks) => {
                for chunk in chunks {
                    let (id, wanted) = (chunk.id.object(), ObjectKind::Blob);
                    let place = store.locate(&id)?.ok_or(StoreError::Missing { id, wanted })?;
                    if place.kind != wanted || place.bytes != chunk.bytes {
                        return Err(StoreError::WrongKind { id, wanted, found: place.kind });
                    }
                    places.push((id, place));
                }
            }
        }
        let mut units: Vec<Unit> = Vec::new();
        let mut numbers = HashMap::new();
        let (mut parts, mut start) = (Vec::with_capacity(places.len()), 0);
        for (id, place) in places {
            let (unit, offset) = Unit::of(store, &place)?;
            let number = *numbers.entry((place.pack, unit.range.start)).or_insert_with(|| {
                units.push(unit);
                units.len() - 1
            });
            units[number].objects.push((offset, place.bytes, id));
            parts.push(Part { start, bytes: place.bytes, unit: number, offset });
            start += u64::from(place.bytes);
        }
        let room = Arc::new(Semaphore::new(ROOM_KIB as usize));
        let (location, kept) = (location.to_owned(), Mutex::default());
        let shared = Units { units, fetch, link, location, room, kept };
        Ok(Self { shared: Arc::new(shared), bytes: start, parts })
    }

    /// The parts that have bytes of a range.
    fn parts_of(&self, range: &Range<u64>) -> &[Part] {
        let end = |part: &Part| part.start + u64::from(part.bytes);
        let from = self.parts.partition_point(|part| end(part) <= range.start);
        let to = self.parts.partition_point(|part| part.start < range.end);
        self.parts.get(from..to.max(from)).unwrap_or_default()
    }
}

impl Blocks for FileBlocks {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read_range(&self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ReadError>> {
        let parts = self.parts_of(&range);
        let mut numbers: Vec<usize> = parts.iter().map(|part| part.unit).collect();
        numbers.dedup();
        let loading = self.shared.load(&numbers);
        async move {
            let mut bytes = BytesMut::with_capacity((range.end - range.start) as usize);
            for part in parts {
                let loading = loading.get(&part.unit).cloned().ok_or(ReadError::Stopped)?;
                let unit = loading.await?;
                let part_end = part.start + u64::from(part.bytes);
                let from = range.start.max(part.start) - part.start + u64::from(part.offset);
                let to = range.end.min(part_end) - part.start + u64::from(part.offset);
                bytes.extend_from_slice(&unit[from as usize..to as usize]);
            }
            Ok(bytes.freeze())
        }
        .boxed()
    }
}

impl Units {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Units that are here, on their way, or begin to be.
    fn load(self: &Arc<Self>, numbers: &[usize]) -> HashMap<usize, Loading> {
        let mut kept = self.lock();
        let (mut all, mut new) = (HashMap::new(), Vec::new());
        for number in numbers {
            let failed = |loading: &Loading| matches!(loading.peek(), Some(Err(_)));
            let known = kept.loading.get(number).filter(|loading| !failed(loading)).cloned();
            let loading = known.unwrap_or_else(|| {
                let (answer, answered) = oneshot::channel();
                let answered = answered.map(|result| result.unwrap_or(Err(ReadError::Stopped)));
                new.push((*number, answer));
                let loading: Loading = answered.boxed().shared();
                kept.keep(*number, loading.clone(), self.units[*number].memory());
                loading
            });
            all.insert(*number, loading);
        }
        kept.trim(self);
        drop(kept);
        if !new.is_empty() {
            tokio::spawn(Arc::clone(self).fetch(new));
        }
        all
    }

    async fn fetch(self: Arc<Self>, new: Vec<(usize, Answer)>) {
        let memory: u64 = new.iter().map(|(number, _)| self.units[*number].memory()).sum();
        let permits = u32::try_from(memory >> 10).unwrap_or(ROOM_KIB).clamp(1, ROOM_KIB);
        let Ok(_turn) = Arc::clone(&self.room).acquire_many_owned(permits).await else { return };
        let wanted = new.iter().map(|(number, _)| {
            let unit = &self.units[*number];
            Wanted { key: Arc::clone(&unit.key), range: unit.range.clone() }
        });
        let options = Options { budget_bytes: u64::MAX, ..Options::default() };
        let planner = Planner::new(Arc::clone(&self.fetch), Arc::clone(&self.link), options);
        let mut job = planner.start(wanted.collect());
        let mut new: Vec<_> = new.into_iter().map(Some).collect();
        while let Some(piece) = job.next().await {
            let Some((number, answer)) = new[piece.position].take() else { continue };
            let units = Arc::clone(&self);
            let expand = move || {
                let location = &units.location;
                piece.bytes.and_then(|bytes| units.units[number].expand(bytes, location))
            };
            let done = tokio::task::spawn_blocking(expand).await;
            // Nobody may wait any more.
            let _ = answer.send(done.unwrap_or(Err(ReadError::Stopped)));
        }
    }
}

type Answer = oneshot::Sender<Result<Bytes, ReadError>>;

impl Kept {
    fn keep(&mut self, number: usize, loading: Loading, bytes: u64) {
        if self.loading.insert(number, loading).is_none() {
            self.order.push_back(number);
            self.bytes += bytes;
        }
    }

    /// Lets go of the oldest; who waits for them has them.
    fn trim(&mut self, units: &Units) {
        for _ in 0..self.order.len() {
            if self.bytes <= KEPT_BYTES {
                return;
            }
            let Some(number) = self.order.pop_front() else { return };
            let is_here = self.loading.get(&number).is_some_and(|loading| loading.peek().is_some());
            if is_here {
                self.loading.remove(&number);
                self.bytes -= units.units[number].memory();
            } else {
                // Others may want it, too, and it is not to come twice.
                self.order.push_back(number);
            }
        }
    }
}

impl Unit {
    /// What is fetched for an object, and where in it that starts.
    fn of(store: &Store, place: &Place) -> Result<(Self, u32), StoreError> {
        let pack = store.pack(place.pack)?;
        let frame = *pack.frame(place.frame)?;
        let key = format!("{OBJECTS}{}", pack.id()).into();
        let unit = |range, frame| Self { key, range, pack, frame, objects: Vec::new() };
        if frame.codec == Codec::Zstd {
            return Ok((unit(frame.range(), Some(frame)), place.offset));
        }
        let start = frame.offset + u64::from(place.offset);
        Ok((unit(start..start + u64::from(place.bytes), None), 0))
    }

    /// Bytes that it takes while it is expanded.
    fn memory(&self) -> u64 {
        let stored = self.range.end - self.range.start;
        stored.max(self.frame.map_or(0, |frame| u64::from(frame.raw_bytes)))
    }

    /// Expands it and checks all of it that belongs to the file.
    fn expand(&self, bytes: Bytes, location: &str) -> Result<Bytes, ReadError> {
        let wrong = |error: StoreError| ReadError::Content(Arc::new(error));
        let pack = self.pack.id();
        let raw = match &self.frame {
            None => bytes,
            Some(frame) if pack::checksum(&bytes) != frame.checksum => {
                return Err(wrong(StoreError::Garbled {
                    pack,
                    offset_bytes: frame.offset,
                    place: Some(place_of(&self.key, location)),
                }));
            }
            Some(frame) => self.pack.expand(frame, bytes.into()).map_err(wrong)?.into(),
        };
        for (offset, length, wanted) in &self.objects {
            let (from, to) = (*offset as usize, *offset as usize + *length as usize);
            let object = raw.get(from..to).unwrap_or_default();
            match actual_id(ObjectKind::Blob, object) {
                Some(actual) if actual != *wanted => {
                    return Err(wrong(StoreError::Damaged { pack, wanted: *wanted, actual }));
                }
                _ => {}
            }
        }
        Ok(raw)
    }
}
