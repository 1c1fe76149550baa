//! Reads contents: the only way from the id of a content to its bytes.
//!
//! - [`ContentReader::read`] reads one content or a range of it, chunk by chunk.
//! - [`ContentReader::stream`] reads one large content in order, some frames at a time.
//! - [`ContentReader::read_in_any_order`] reads one large content on all threads.
//! - [`ContentReader::read_batch`] reads many small contents and decompresses each frame
//!   once.
//! - [`read_chunks`] reads the chunks of a list from any source of objects.
//!
//! This module returns only verified bytes. The [`Store`] finds the frames in whole packs, stubs,
//! bundles and scratch stores.

use std::{
    collections::{HashMap, hash_map::Entry},
    ops::Range,
    sync::Arc,
};

use parking_lot::Mutex;
use rayon::prelude::*;

use crate::{
    base::{
        id::{BlobId, ChunkListId, ContentId, ObjectId},
        limits,
    },
    format::{
        chunk_list::{BlobRef, ChunkList, ZERO_CHUNK},
        pack::ObjectKind,
    },
    store::{
        ChunkVisit, Descend, EnteredParts, ObjectLocation, ReadObject, Store, StoreError,
        content::{read_list, walk_chunks, walk_list},
    },
};

/// Number of frames that a stream decompresses at a time: each takes up to 4 MiB of memory.
const RUNS_AHEAD: usize = 4;

/// Number of runs of chunks for each thread that are read before the next ones are located.
const RUNS_PER_THREAD: usize = 32;

/// Number of contents in a run: one thread visits all contents of a run, which are in one frame.
const CONTENTS_AT_ONCE: usize = 64;

/// A content, and its length in bytes according to the entry of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileContent {
    pub id: ContentId,
    pub bytes: u64,
}

/// Takes bytes of a content and their offset. Several threads may call it at once.
pub type EachPiece<'a, E> = dyn Fn(u64, &[u8]) -> Result<(), E> + Sync + 'a;

/// Why a content was not read to its end.
#[derive(Debug)]
pub enum ContentError<E> {
    /// The content cannot be read, or is damaged.
    Store(StoreError),
    /// The callback returned an error.
    Callback(E),
}

impl<E> From<StoreError> for ContentError<E> {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Reads the chunks of a list in order through `read`, and passes the bytes of `range` to `each`,
/// one chunk at a time. Holds one chunk and one part of a long list in memory. Ignores the part of
/// `range` beyond the end of the content.
///
/// # Errors
/// [`StoreError::Length`] if the length of a chunk differs from the list, [`StoreError::Object`] if a
/// part of the list is damaged, and the errors of `read` and `each`.
pub fn read_chunks<E: From<StoreError>>(
    list: &ChunkList,
    range: Range<u64>,
    read: &ReadObject<'_>,
    each: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut start = 0;
    // Keep the last chunk: a hole in a file is a sequence of equal chunks.
    let mut last: Option<(BlobId, Vec<u8>)> = None;
    let mut take = |start: u64, chunk: &BlobRef| -> Result<(), E> {
        let place = start..start + u64::from(chunk.bytes);
        if place.end <= range.start || place.start >= range.end {
            return Ok(());
        }
        let bytes = match last.take().filter(|(id, _)| *id == chunk.id) {
            Some((_, bytes)) => bytes,
            None => read(&chunk.id.object(), ObjectKind::Blob)?,
        };
        check_bytes(chunk.id.object(), Some(chunk.bytes.into()), bytes.len() as u64)?;
        let from = range.start.saturating_sub(place.start) as usize;
        let to = (range.end.min(place.end) - place.start) as usize;
        each(&bytes[from..to])?;
        last = Some((chunk.id, bytes));
        Ok(())
    };
    walk_list(list, read, &mut |visit| match visit {
        ChunkVisit::Part(part, _) => {
            let is_wanted = start + part.bytes > range.start && start < range.end;
            if !is_wanted {
                start += part.bytes;
            }
            Ok(if is_wanted { Descend::Enter } else { Descend::Skip })
        }
        ChunkVisit::Chunks(chunks) => {
            for chunk in chunks? {
                take(start, chunk)?;
                start += u64::from(chunk.bytes);
            }
            Ok(Descend::Enter)
        }
    })
}

/// Compares the length of a content with the length that an entry states.
fn check_bytes(id: ObjectId, stated: Option<u64>, found: u64) -> Result<(), StoreError> {
    match stated {
        Some(stated) if stated != found => Err(StoreError::Length { id, stated, found }),
        _ => Ok(()),
    }
}

/// Reads the contents of a store.
#[derive(Clone, Copy, Debug)]
pub struct ContentReader<'s> {
    store: &'s Store,
}

/// Returns the numbers of the pack and the frame.
fn key(place: &ObjectLocation) -> (u32, u32) {
    (place.pack, place.frame)
}

impl<'s> ContentReader<'s> {
    pub fn new(store: &'s Store) -> Self {
        Self { store }
    }

    /// Reads a content and passes the bytes of `range` to `each`, one chunk at a time. Holds one
    /// chunk in memory. Returns the length of the content in bytes. Fails if the length differs
    /// from `stated`. Verifies every chunk before `each` gets it.
    ///
    /// # Errors
    /// [`StoreError`] when the content cannot be read or is damaged, and the errors of `each`.
    pub fn read<E: From<StoreError>>(
        &self,
        id: &ContentId,
        stated: Option<u64>,
        range: Range<u64>,
        each: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<u64, E> {
        let range = range.start..range.end.max(range.start);
        let read = |id: &ObjectId, kind| self.store.object(id, kind);
        match id {
            ContentId::Blob(_) => {
                let bytes = read(&id.object(), ObjectKind::Blob)?;
                let total = bytes.len() as u64;
                check_bytes(id.object(), stated, total)?;
                each(&bytes[range.start.min(total) as usize..range.end.min(total) as usize])?;
                Ok(total)
            }
            ContentId::Chunked(list) => {
                let list = read_list(list, &read)?;
                check_bytes(id.object(), stated, list.total_bytes())?;
                read_chunks(&list, range, &read, each)?;
                Ok(list.total_bytes())
            }
        }
    }

    /// Reads at most the first `most_bytes` of a content.
    ///
    /// # Errors
    /// [`StoreError`] if the content cannot be read, or if its length differs from `stated`.
    pub fn read_start(
        &self,
        id: &ContentId,
        stated: Option<u64>,
        most_bytes: u64,
    ) -> Result<Vec<u8>, StoreError> {
        let mut start = Vec::new();
        self.read::<StoreError>(id, stated, 0..most_bytes, &mut |bytes| {
            start.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(start)
    }

    /// Passes a content to `each`, in order and piece by piece. Several threads decompress and verify
    /// the next frames, each once.
    ///
    /// # Errors
    /// As [`ContentReader::read`].
    pub fn stream<E: From<StoreError>>(
        &self,
        id: &ContentId,
        stated: Option<u64>,
        each: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let ContentId::Chunked(id) = id else {
            return self.read(id, stated, 0..u64::MAX, each).map(drop);
        };
        let buffers = FrameBuffers::default();
        self.for_each_window(id, stated, RUNS_AHEAD, &|_| true, &mut |runs| {
            let read = |run: &PlacedRun| self.read_run(run, &buffers);
            let read: Vec<_> = runs.par_iter().with_max_len(1).map(read).collect();
            read.into_iter().try_for_each(|run| {
                let ChunkRun { frame, pieces } = run?;
                pieces.into_iter().try_for_each(|piece| each(&frame[piece]))?;
                buffers.give_back(frame);
                Ok(())
            })
        })
    }

    /// Passes the chunks of a content to `each` with their offsets, from several threads and in any
    /// order. Verifies every chunk before `each` gets it. Passes on no [`ZERO_CHUNK`] if
    /// `skips_zeros`: neither reads nor verifies it.
    ///
    /// # Errors
    /// As [`ContentReader::read`].
    pub fn read_in_any_order<E: From<StoreError> + Send>(
        &self,
        id: &ContentId,
        stated: Option<u64>,
        skips_zeros: bool,
        each: &EachPiece<'_, E>,
    ) -> Result<(), E> {
        let ContentId::Chunked(id) = id else {
            return self.read(id, stated, 0..u64::MAX, &mut |bytes| each(0, bytes)).map(drop);
        };
        let (runs, buffers) =
            (RUNS_PER_THREAD * rayon::current_num_threads(), FrameBuffers::default());
        let is_read = |chunk: &BlobRef| !skips_zeros || *chunk != ZERO_CHUNK;
        self.for_each_window(id, stated, runs, &is_read, &mut |runs| {
            // Threads take runs in order: disks read ahead.
            runs.iter().par_bridge().try_for_each(|run| {
                let ChunkRun { frame, pieces } = self.read_run(run, &buffers)?;
                let mut at = run.at;
                // Consecutive chunks of a frame are usually adjacent in it.
                pieces.chunk_by(|a, b| a.end == b.start).try_for_each(|adjacent| {
                    let bytes = &frame[adjacent[0].start..adjacent[adjacent.len() - 1].end];
                    let start = at;
                    at += bytes.len() as u64;
                    each(start, bytes)
                })?;
                buffers.give_back(frame);
                Ok(())
            })
        })
    }

    /// Locates the chunks for which `is_read` returns true, and passes them to `each` in order, in
    /// windows of `runs` frames.
    fn for_each_window<E: From<StoreError>>(
        &self,
        id: &ChunkListId,
        stated: Option<u64>,
        runs: usize,
        is_read: &dyn Fn(&BlobRef) -> bool,
        each: &mut dyn FnMut(&[PlacedRun]) -> Result<(), E>,
    ) -> Result<(), E> {
        let read = |id: &ObjectId, kind| self.store.object(id, kind);
        let list = read_list(id, &read)?;
        check_bytes(id.object(), stated, list.total_bytes())?;
        let mut at = 0;
        walk_list(&list, &read, &mut |visit| {
            let ChunkVisit::Chunks(chunks) = visit else { return Ok(Descend::Enter) };
            let mut window: Vec<PlacedRun> = Vec::new();
            for chunk in chunks? {
                let start = at;
                at += u64::from(chunk.bytes);
                if !is_read(chunk) {
                    continue;
                }
                let place = self.store.locate_chunk(chunk)?;
                match window.last_mut() {
                    Some(run) if run.end == start && key(&run.chunks[0].1) == key(&place) => {
                        run.chunks.push((*chunk, place));
                        run.end = at;
                    }
                    _ => {
                        if window.len() == runs {
                            each(&window)?;
                            window.clear();
                        }
                        let chunks = vec![(*chunk, place)];
                        window.push(PlacedRun { at: start, end: at, chunks });
                    }
                }
            }
            each(&window)?;
            Ok(Descend::Enter)
        })
    }

    /// Reads and verifies the chunks of a run.
    fn read_run(&self, run: &PlacedRun, buffers: &FrameBuffers) -> Result<ChunkRun, StoreError> {
        let (chunks, first) = (&run.chunks, &run.chunks[0].1);
        let mut raw = buffers.take();
        let frame = match self.store.read_frame_start(first, usize::MAX, &mut raw) {
            Ok(()) => Some(Arc::new(raw)),
            Err(error) if error.is_remote() && !self.store.route_around_damage(&error) => {
                return Err(error);
            }
            Err(_) => None,
        };
        if let Some(frame) = frame {
            let mut pieces = Vec::with_capacity(chunks.len());
            // Chunks may repeat. Hash them once.
            let mut verified = None;
            for (chunk, place) in chunks {
                let is_right =
                    |bytes| verified == Some((chunk, place)) || BlobId::of(bytes) == chunk.id;
                if place.slice(&frame).is_some_and(is_right) {
                    verified = Some((chunk, place));
                    pieces.push(place.range());
                }
            }
            if pieces.len() == chunks.len() {
                return Ok(ChunkRun { frame, pieces });
            }
        }
        // The frame is damaged, its pack was merged meanwhile, or the index does not match the
        // pack. `object` tries every copy of a chunk. A chunk that occurs often is in memory once.
        let (mut joined, mut pieces) = (Vec::new(), Vec::with_capacity(chunks.len()));
        let mut known = HashMap::new();
        for (chunk, _) in chunks {
            let piece = match known.entry(chunk.id) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let bytes = self.store.object(&chunk.id.object(), ObjectKind::Blob)?;
                    check_bytes(chunk.id.object(), Some(chunk.bytes.into()), bytes.len() as u64)?;
                    joined.extend_from_slice(&bytes);
                    new.insert(joined.len() - bytes.len()..joined.len())
                }
            };
            pieces.push(piece.clone());
        }
        Ok(ChunkRun { frame: Arc::new(joined), pieces })
    }
}

/// A decompressed frame, and the ranges of consecutive verified chunks in it.
struct ChunkRun {
    frame: Arc<Vec<u8>>,
    pieces: Vec<Range<usize>>,
}

/// Consecutive chunks of a content in one frame, with their locations.
struct PlacedRun {
    /// Offset of the first chunk in the content.
    at: u64,
    /// Offset of the end of the last chunk.
    end: u64,
    chunks: Vec<(BlobRef, ObjectLocation)>,
}

impl Store {
    /// Looks up the location of a content's blob or chunk list.
    ///
    /// # Errors
    /// [`StoreError`] if the content is missing, or if the object has another kind.
    pub fn locate_content(&self, id: &ContentId) -> Result<ObjectLocation, StoreError> {
        self.locate_kind(id.object(), ObjectKind::of_content(*id))
    }

    /// Looks up the location of an object of a kind.
    ///
    /// # Errors
    /// [`StoreError`] if the object is missing or has another kind.
    pub fn locate_kind(
        &self,
        id: ObjectId,
        wanted: ObjectKind,
    ) -> Result<ObjectLocation, StoreError> {
        let place = self.locate_or_refresh(&id)?.ok_or(StoreError::Missing { id, wanted })?;
        place.of_kind(&id, wanted)
    }

    /// Looks up the location of a file's content. Returns `None` for the empty content, which may
    /// be absent from the store. Checks the length of a blob.
    ///
    /// # Errors
    /// As [`Store::locate_content`], and [`StoreError::Length`].
    pub fn locate_file(&self, file: &FileContent) -> Result<Option<ObjectLocation>, StoreError> {
        if file.bytes == 0 && file.id == BlobId::of(b"").into() {
            return Ok(None);
        }
        let place = self.locate_content(&file.id)?;
        if !file.id.is_chunked() {
            check_bytes(file.id.object(), Some(file.bytes), place.bytes.into())?;
        }
        Ok(Some(place))
    }

    /// Passes the ids of the parts and the chunks that a list names to `each`. Visits the chunks of a
    /// part if `each` returns [`Descend::Enter`], and once if the part occurs several times. Holds
    /// one part of a long list in memory.
    ///
    /// # Errors
    /// [`StoreError`] when the list is missing or damaged, and the errors of `each`.
    pub fn for_each_named<E: From<StoreError>>(
        &self,
        list: &ChunkListId,
        each: &mut dyn FnMut(ObjectId, ObjectKind) -> Result<Descend, E>,
    ) -> Result<(), E> {
        let read = |id: &ObjectId, kind| self.object(id, kind);
        let mut entered = EnteredParts::default();
        let walked = walk_chunks::<E>(list, &read, &mut |visit| match visit {
            ChunkVisit::Part(part, end) => match each(part.id.object(), ObjectKind::ListPart)? {
                Descend::Enter => Ok(entered.enter(part, end)),
                Descend::Skip => Ok(Descend::Skip),
            },
            ChunkVisit::Chunks(chunks) => {
                for chunk in chunks? {
                    each(chunk.id.object(), ObjectKind::Blob)?;
                }
                Ok(Descend::Enter)
            }
        });
        walked.map(drop)
    }

    /// Looks up the location of a chunk. Checks that the object is a blob with the length in the
    /// list.
    ///
    /// # Errors
    /// [`StoreError`] when the chunk is missing or does not match the list.
    pub fn locate_chunk(&self, chunk: &BlobRef) -> Result<ObjectLocation, StoreError> {
        let id = chunk.id.object();
        let place = self.locate_kind(id, ObjectKind::Blob)?;
        check_bytes(id, Some(chunk.bytes.into()), place.bytes.into())?;
        Ok(place)
    }
}

/// The outcome of a batch.
#[derive(Debug)]
pub struct BatchOutcome<R> {
    /// For each visited content, its position in the batch and the result of the visit.
    pub visited: Vec<(usize, R)>,
    /// For each chunked content, the location of its list and its position in the batch, sorted by
    /// location. These contents were not visited.
    pub chunked: Vec<(ObjectLocation, usize)>,
}

/// The location of a content (`None` for the empty content) and its position in the batch.
type BatchMember = (Option<ObjectLocation>, usize);

/// The contents of a batch in one frame, or the empty contents.
struct FrameGroup<'b> {
    members: &'b [BatchMember],
    /// True to put the whole frame into the cache of the store.
    goes_to_cache: bool,
}

/// Memory for decompressed frames, which the threads of a batch use for one frame after the other.
#[derive(Default)]
struct FrameBuffers(Mutex<Vec<Vec<u8>>>);

impl FrameBuffers {
    fn take(&self) -> Vec<u8> {
        self.0.lock().pop().unwrap_or_default()
    }

    /// Keeps the memory of a frame for the next frame, unless the frame is shared or exceptionally
    /// large.
    fn give_back(&self, frame: Arc<Vec<u8>>) {
        if let Ok(raw) = Arc::try_unwrap(frame)
            && raw.capacity() <= limits::LARGE_FRAME_BYTES
        {
            self.0.lock().push(raw);
        }
    }
}

impl ContentReader<'_> {
    /// Reads the contents that are single objects and passes them to `visit`, in any order and from
    /// several threads. Decompresses each frame once, and only as far as necessary. Reads the
    /// contents of a damaged frame one by one, from any copy.
    ///
    /// `begin` returns the state for a run of contents, or `None` to end the batch early.
    /// `read_batch` also calls `begin` before it reads a frame. The number that `visit` gets is the
    /// position in the batch.
    ///
    /// Keeps the frames of the last contents of the batch, at most `carry_over` frames, in the
    /// cache of the store, because the next batch may begin in these frames.
    pub fn read_batch<S, R: Send>(
        &self,
        batch: &[FileContent],
        carry_over: usize,
        begin: &(impl Fn() -> Option<S> + Sync),
        visit: &(impl Fn(&mut S, usize, Result<&[u8], Arc<StoreError>>) -> R + Sync),
    ) -> BatchOutcome<R> {
        // An error in an `Arc` is small, and a batch may have many places.
        let locate = |content| self.store.locate_file(content).map_err(Arc::new);
        let places: Vec<_> = batch.par_iter().with_min_len(256).map(locate).collect();
        let (mut small, mut chunked) = (Vec::with_capacity(batch.len()), Vec::new());
        let (mut visited, mut state) = (Vec::new(), begin());
        for (index, place) in places.into_iter().enumerate() {
            match place {
                Ok(Some(place)) if batch[index].id.is_chunked() => chunked.push((place, index)),
                Ok(Some(place)) => small.push((Some(place), index)),
                Ok(None) => small.push((None, index)),
                Err(error) => {
                    let result = state.as_mut().map(|state| visit(state, index, Err(error)));
                    visited.extend(result.map(|result| (index, result)));
                }
            }
        }
        small.sort_unstable();
        chunked.sort_unstable();
        let buffers = FrameBuffers::default();
        let visit_group = |group: &FrameGroup<'_>| {
            if begin().is_none() {
                return Vec::new();
            }
            let frame = self.frame(group, &buffers);
            let visit_run = |members: &[BatchMember]| {
                let mut state = begin();
                let mut visited = Vec::with_capacity(members.len());
                self.read_in_frame(&frame, batch, members, &mut |index, content| {
                    visited
                        .extend(state.as_mut().map(|state| (index, visit(state, index, content))));
                });
                visited
            };
            let runs = group.members.par_chunks(CONTENTS_AT_ONCE);
            let visited = runs.flat_map_iter(visit_run).collect();
            if let Ok(Some(frame)) = frame {
                buffers.give_back(frame);
            }
            visited
        };
        visited.par_extend(group_by_frame(&small, carry_over).par_iter().flat_map(visit_group));
        BatchOutcome { visited, chunked }
    }

    /// Returns the frame of a group, decompressed at least as far as the group needs it. Returns
    /// `None` if each content must be read by itself: the frame is damaged, or its pack was merged
    /// meanwhile.
    ///
    /// # Errors
    /// The error of a frame that cannot be fetched, if no other copies are known.
    fn frame(&self, group: &FrameGroup<'_>, buffers: &FrameBuffers) -> GroupFrame {
        let Some((Some(first), _)) = group.members.first() else { return Ok(None) };
        if let Some(frame) = self.store.frame_in_cache(first) {
            return Ok(Some(frame));
        }
        let read = if group.goes_to_cache {
            self.store.cached_frame(first)
        } else {
            let end =
                group.members.iter().map(|(place, _)| place.map_or(0, |p| p.range().end)).max();
            let mut raw = buffers.take();
            let read = self.store.read_frame_start(first, end.unwrap_or_default(), &mut raw);
            read.map(|()| Arc::new(raw))
        };
        match read {
            Ok(frame) => Ok(Some(frame)),
            Err(error) if error.is_remote() && !self.store.route_around_damage(&error) => {
                Err(Arc::new(error))
            }
            Err(_) => Ok(None),
        }
    }

    /// Verifies contents of a frame and passes them to `visit`. If a content in the frame is wrong,
    /// reads another copy.
    fn read_in_frame(
        &self,
        frame: &GroupFrame,
        batch: &[FileContent],
        members: &[BatchMember],
        visit: &mut VisitContent<'_>,
    ) {
        // Equal contents are adjacent. Hash them once.
        let mut verified = None;
        for (place, index) in members {
            let FileContent { id, bytes } = batch[*index];
            let Some(place) = place else {
                visit(*index, Ok(&[]));
                continue;
            };
            let frame = match frame {
                Ok(frame) => frame.as_deref(),
                Err(error) => {
                    visit(*index, Err(Arc::clone(error)));
                    continue;
                }
            };
            let is_right = |content: &&[u8]| {
                verified == Some((*place, id)) || ContentId::from(BlobId::of(content)) == id
            };
            if let Some(content) = frame.and_then(|raw| place.slice(raw)).filter(is_right) {
                verified = Some((*place, id));
                visit(*index, Ok(content));
                continue;
            }
            let alone = self.store.object(&id.object(), ObjectKind::Blob);
            let checked = alone.and_then(|content| {
                check_bytes(id.object(), Some(bytes), content.len() as u64)?;
                Ok(content)
            });
            match checked {
                Ok(content) => visit(*index, Ok(&content)),
                Err(error) => visit(*index, Err(Arc::new(error))),
            }
        }
    }
}

/// Receives a content and its position in the batch.
type VisitContent<'v> = dyn FnMut(usize, Result<&[u8], Arc<StoreError>>) + 'v;

/// A frame in memory, or `None` to read each content by itself, or the error for all contents.
type GroupFrame = Result<Option<Arc<Vec<u8>>>, Arc<StoreError>>;

/// Groups contents, which are sorted by location, by their frames.
fn group_by_frame(small: &[BatchMember], carry_over: usize) -> Vec<FrameGroup<'_>> {
    let mut groups: Vec<FrameGroup<'_>> = small
        .chunk_by(|(a, _), (b, _)| a.as_ref().map(key) == b.as_ref().map(key))
        .map(|members| FrameGroup { members, goes_to_cache: false })
        .collect();
    if carry_over > 0 {
        let last = |group: &FrameGroup<'_>| group.members.iter().map(|(_, index)| *index).max();
        let mut order: Vec<usize> = (0..groups.len()).collect();
        order.sort_unstable_by_key(|at| std::cmp::Reverse(last(&groups[*at])));
        for at in order.into_iter().take(carry_over) {
            groups[at].goes_to_cache = true;
        }
    }
    groups
}
