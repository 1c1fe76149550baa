//! Random access to a file of a remote snapshot, whose parts are in frames of packs.
//!
//! The unit of a request is a frame, or one part of a frame that is not compressed. Concurrent
//! readers share one fetch of a unit, and a cache keeps the unit.

use std::{collections::HashMap, ops::Range, sync::Arc};

use bytes::{Bytes, BytesMut};
use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use snap_core::{
    base::id::{ContentId, ObjectId},
    format::pack::{Codec, Frame, ObjectKind},
    store::{
        ChunkVisit, Descend, ObjectLocation, PackFile, Store, StoreError, actual_id, walk_chunks,
    },
};
use tokio::sync::{Semaphore, oneshot};

use crate::{
    peer::{OBJECTS, place_of},
    ranges::{
        BlockCache, CachedBlock, FetchRange, JobOptions, LinkEstimate, NeededRange, RandomAccess,
        RangePlanner, ReadError, RequestedBlock,
    },
};

/// Limit for the expanded units in flight of one file, in KiB. Together with the caches of units
/// and of blocks, it bounds the memory of an open file.
const ROOM_KIB: u32 = 96 << 10;

/// Capacity of the cache of units, in bytes.
const KEPT_BYTES: u64 = 24 << 20;

#[derive(Debug)]
pub(super) struct SnapshotFile {
    shared: Arc<FileUnits>,
    bytes: u64,
    /// The parts in the order of the content.
    parts: Vec<FilePart>,
}

/// A chunk, or the whole of an uncut content.
#[derive(Clone, Copy, Debug)]
struct FilePart {
    /// Offset in the content.
    start: u64,
    bytes: u32,
    unit: usize,
    /// Offset in the expanded unit.
    offset: u32,
}

/// The bytes that one request fetches.
#[derive(Debug)]
struct FetchUnit {
    key: Arc<str>,
    range: Range<u64>,
    pack: Arc<PackFile>,
    /// The frame to expand; `None` for a part of a frame that is not compressed.
    frame: Option<Frame>,
    /// The objects of the file in this unit: offset, length and id.
    objects: Vec<(u32, u32, ObjectId)>,
}

#[derive(Debug)]
struct FileUnits {
    units: Vec<FetchUnit>,
    fetch: Arc<dyn FetchRange>,
    link: Arc<LinkEstimate>,
    /// For error messages.
    location: String,
    /// One permit is one KiB of [`ROOM_KIB`].
    room: Arc<Semaphore>,
    cache: Mutex<BlockCache>,
}

impl SnapshotFile {
    /// Locates the parts of a content.
    pub(super) fn find(
        store: &Store,
        id: &ContentId,
        location: &str,
        fetch: Arc<dyn FetchRange>,
        link: Arc<LinkEstimate>,
    ) -> Result<Self, StoreError> {
        let mut places = Vec::new();
        match id {
            ContentId::Blob(_) => places.push((id.object(), store.locate_content(id)?)),
            ContentId::Chunked(list) => {
                let read = |id: &ObjectId, kind| store.object(id, kind);
                walk_chunks::<StoreError>(list, &read, &mut |visit| {
                    if let ChunkVisit::Chunks(chunks) = visit {
                        for chunk in chunks? {
                            places.push((chunk.id.object(), store.locate_chunk(chunk)?));
                        }
                    }
                    Ok(Descend::Enter)
                })?;
            }
        }
        let mut units: Vec<FetchUnit> = Vec::new();
        let mut numbers = HashMap::new();
        let (mut parts, mut start) = (Vec::with_capacity(places.len()), 0);
        for (id, place) in places {
            let (unit, offset) = FetchUnit::of(store, &place)?;
            let number = *numbers.entry((place.pack, unit.range.start)).or_insert_with(|| {
                units.push(unit);
                units.len() - 1
            });
            units[number].objects.push((offset, place.bytes, id));
            parts.push(FilePart { start, bytes: place.bytes, unit: number, offset });
            start += u64::from(place.bytes);
        }
        let room = Arc::new(Semaphore::new(ROOM_KIB as usize));
        let (location, cache) = (location.to_owned(), Mutex::new(BlockCache::new(KEPT_BYTES)));
        let shared = FileUnits { units, fetch, link, location, room, cache };
        Ok(Self { shared: Arc::new(shared), bytes: start, parts })
    }

    /// Returns the parts that overlap a range.
    fn parts_of(&self, range: &Range<u64>) -> &[FilePart] {
        let end = |part: &FilePart| part.start + u64::from(part.bytes);
        let from = self.parts.partition_point(|part| end(part) <= range.start);
        let to = self.parts.partition_point(|part| part.start < range.end);
        self.parts.get(from..to.max(from)).unwrap_or_default()
    }
}

impl RandomAccess for SnapshotFile {
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
                let unit = loading.bytes().await?;
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

impl FileUnits {
    /// Returns the units, and starts to fetch those that are neither cached nor in flight.
    fn load(self: &Arc<Self>, numbers: &[usize]) -> HashMap<usize, CachedBlock> {
        let mut cache = self.cache.lock();
        let (mut all, mut new) = (HashMap::new(), Vec::new());
        for number in numbers {
            let key = *number as u64;
            if !cache.contains(key) {
                let (answer, answered) = oneshot::channel();
                let answered = answered.map(|result| result.unwrap_or(Err(ReadError::Stopped)));
                new.push((*number, answer));
                let place = 0..self.units[*number].expanded_bytes();
                let request = answered.boxed().shared();
                cache.begin(key, RequestedBlock { request, place });
            }
            all.extend(cache.get(key).map(|unit| (*number, unit)));
        }
        drop(cache);
        if !new.is_empty() {
            tokio::spawn(Arc::clone(self).fetch(new));
        }
        all
    }

    async fn fetch(self: Arc<Self>, new: Vec<(usize, FetchSender)>) {
        let memory: u64 = new.iter().map(|(number, _)| self.units[*number].memory()).sum();
        let permits = u32::try_from(memory >> 10).unwrap_or(ROOM_KIB).clamp(1, ROOM_KIB);
        let Ok(_turn) = Arc::clone(&self.room).acquire_many_owned(permits).await else { return };
        let wanted = new.iter().map(|(number, _)| {
            let unit = &self.units[*number];
            NeededRange { key: Arc::clone(&unit.key), range: unit.range.clone() }
        });
        let options = JobOptions { budget_bytes: u64::MAX, ..JobOptions::default() };
        let planner = RangePlanner::new(Arc::clone(&self.fetch), Arc::clone(&self.link), options);
        let mut job = planner.start(wanted.collect());
        let mut new: Vec<_> = new.into_iter().map(Some).collect();
        while let Some(piece) = job.next().await {
            let Some((number, answer)) = new[piece.position].take() else { continue };
            let done = match Arc::clone(&self).expand(number, piece.bytes).await {
                Err(ReadError::Content(_)) => {
                    // Retry once: a bit may have flipped in transit.
                    let unit = &self.units[number];
                    let again = self.fetch.fetch(&unit.key, unit.range.clone()).await;
                    Arc::clone(&self).expand(number, again.map_err(ReadError::from)).await
                }
                done => done,
            };
            match &done {
                Ok(bytes) => self.cache.lock().finish(number as u64, bytes.clone()),
                Err(_) => self.cache.lock().fail(number as u64),
            }
            // All readers may have gone.
            let _ = answer.send(done);
        }
    }

    /// Expands and checks a fetched unit, on a thread that may block.
    async fn expand(
        self: Arc<Self>,
        number: usize,
        bytes: Result<Bytes, ReadError>,
    ) -> Result<Bytes, ReadError> {
        let expand = move || self.units[number].expand(bytes?, &self.location);
        tokio::task::spawn_blocking(expand).await.unwrap_or(Err(ReadError::Stopped))
    }
}

type FetchSender = oneshot::Sender<Result<Bytes, ReadError>>;

impl FetchUnit {
    /// Returns the unit that contains an object, and the offset of the object in it.
    fn of(store: &Store, place: &ObjectLocation) -> Result<(Self, u32), StoreError> {
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

    /// Returns the length of the expanded unit.
    fn expanded_bytes(&self) -> usize {
        let stored_bytes = (self.range.end - self.range.start) as usize;
        self.frame.map_or(stored_bytes, |frame| frame.raw_bytes as usize)
    }

    /// Returns the number of bytes that the unit takes in memory during expansion.
    fn memory(&self) -> u64 {
        (self.range.end - self.range.start).max(self.expanded_bytes() as u64)
    }

    /// Expands the unit and checks the objects of the file in it.
    fn expand(&self, bytes: Bytes, location: &str) -> Result<Bytes, ReadError> {
        let wrong = |error: StoreError| ReadError::Content(Arc::new(error));
        let pack = self.pack.id();
        let raw = match &self.frame {
            None => bytes,
            Some(frame) if !frame.matches(&bytes) => {
                return Err(wrong(StoreError::CorruptedInTransit {
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
            let actual = actual_id(ObjectKind::Blob, object);
            if actual != *wanted {
                return Err(wrong(StoreError::Damaged { pack, wanted: *wanted, actual }));
            }
        }
        Ok(raw)
    }
}
