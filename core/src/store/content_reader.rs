//! Reads contents: the only way from the id of a content to its bytes.
//!
//! - [`ContentReader::read`] reads one content or a range of it, chunk by chunk.
//! - [`ContentReader::stream`] reads one large content and decompresses frames ahead.
//! - [`ContentReader::read_batch`] reads many small contents and decompresses each frame
//!   once.
//! - [`read_chunks`] reads the chunks of a list from any source of objects.
//!
//! This module returns only verified bytes, except [`ContentReader::stream`], whose caller must
//! discard all bytes after an error. The [`Store`] finds the frames in whole packs, stubs, bundles
//! and scratch stores.

use std::{
    ops::Range,
    sync::{
        Arc,
        mpsc::{SyncSender, sync_channel},
    },
    thread::{self, Builder},
};

use parking_lot::Mutex;
use rayon::prelude::*;

use crate::{
    base::{
        id::{BlobId, ObjectId},
        limits,
    },
    format::{
        chunk_list::{BlobRef, ChunkList, ChunkListEntries},
        pack::ObjectKind,
    },
    store::{
        ChunkVisit, ContentPlace, ObjectLocation, ReadObject, Store, StoreError,
        content::{decode_list, walk_chunks, walk_list},
    },
};

/// Length of the queue of decompressed frames in a stream. In addition, one frame is being
/// decompressed and one is being consumed.
const FRAMES_AHEAD: usize = 2;

/// Number of contents in a run: one thread visits all contents of a run, which are in one frame.
const CONTENTS_AT_ONCE: usize = 64;

/// A content, and its length in bytes according to the entry of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileContent {
    pub id: BlobId,
    pub bytes: u64,
}

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
/// one chunk at a time. Holds one chunk and one part of a long list in memory.
///
/// Ignores the part of `range` beyond the end of the content. If `range` is the whole content,
/// compares the hash of all chunks with `id` before `each` gets the last chunk. Otherwise `read`
/// verifies each chunk, but nothing verifies that the chunks belong to `id`.
///
/// # Errors
/// [`StoreError::Content`] if the chunks are not the content `id`, [`StoreError::Length`] if the
/// length of a chunk differs from the list, [`StoreError::Object`] if the list is damaged, and the
/// errors of `read` and `each`.
pub fn read_chunks<E: From<StoreError>>(
    id: &BlobId,
    list: &ChunkList,
    range: Range<u64>,
    read: &ReadObject<'_>,
    each: &mut dyn FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let total_bytes = list.total_bytes;
    let mut whole = (range.start == 0 && range.end >= total_bytes).then(blake3::Hasher::new);
    let mut start = 0;
    // Keep the last chunk: a hole in a file is a sequence of equal chunks.
    let mut last: Option<(BlobId, Vec<u8>)> = None;
    let mut take = |chunk: &BlobRef| -> Result<(), E> {
        let place = start..start + u64::from(chunk.bytes);
        start = place.end;
        if place.end <= range.start || place.start >= range.end {
            return Ok(());
        }
        let bytes = match last.take().filter(|(id, _)| *id == chunk.id) {
            Some((_, bytes)) => bytes,
            None => read(&chunk.id.object(), ObjectKind::Blob)?,
        };
        check_bytes(&chunk.id, Some(chunk.bytes.into()), bytes.len() as u64)?;
        if let Some(whole) = &mut whole {
            whole.update(&bytes);
            if place.end == total_bytes {
                compare(id, whole)?;
            }
        }
        let from = range.start.saturating_sub(place.start) as usize;
        let to = (range.end.min(place.end) - place.start) as usize;
        each(&bytes[from..to])?;
        last = Some((chunk.id, bytes));
        Ok(())
    };
    let mut take_all = |chunks: &[BlobRef]| chunks.iter().try_for_each(&mut take);
    walk_list(id.object(), list, read, &mut chunks_only(&mut take_all))?;
    match whole {
        Some(whole) if total_bytes == 0 => Ok(compare(id, &whole)?),
        _ => Ok(()),
    }
}

/// Returns a visitor that passes on the chunks of a list, but not its parts.
fn chunks_only<E>(
    each: &mut dyn FnMut(&[BlobRef]) -> Result<(), E>,
) -> impl FnMut(ChunkVisit<'_>) -> Result<(), E> {
    |visit| match visit {
        ChunkVisit::Chunks(chunks) => each(chunks),
        ChunkVisit::Part(_) => Ok(()),
    }
}

/// Compares the hash of all chunks with the id of the content.
fn compare(id: &BlobId, whole: &blake3::Hasher) -> Result<(), StoreError> {
    let actual = BlobId::from_bytes(*whole.finalize().as_bytes());
    match actual == *id {
        true => Ok(()),
        false => Err(StoreError::Content { id: *id, actual }),
    }
}

/// Compares the length of a content with the length that an entry states.
fn check_bytes(id: &BlobId, stated: Option<u64>, found: u64) -> Result<(), StoreError> {
    match stated {
        Some(stated) if stated != found => Err(StoreError::Length { id: *id, stated, found }),
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
    /// from `stated`.
    ///
    /// Verifies every chunk. If `range` is the whole content, verifies the hash of all chunks
    /// before `each` gets the last chunk.
    ///
    /// # Errors
    /// [`StoreError`] when the content cannot be read or is damaged, and the errors of `each`.
    pub fn read<E: From<StoreError>>(
        &self,
        id: &BlobId,
        stated: Option<u64>,
        range: Range<u64>,
        each: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<u64, E> {
        let object = id.object();
        let range = range.start..range.end.max(range.start);
        let read = |id: &ObjectId, kind| self.store.object(id, kind);
        match self.store.locate_content(id)? {
            ContentPlace::Whole(_) => {
                let bytes = read(&object, ObjectKind::Blob)?;
                let total = bytes.len() as u64;
                check_bytes(id, stated, total)?;
                each(&bytes[range.start.min(total) as usize..range.end.min(total) as usize])?;
                Ok(total)
            }
            ContentPlace::Cut(_) => {
                let list = decode_list(object, &read(&object, ObjectKind::ChunkList)?)?;
                check_bytes(id, stated, list.total_bytes)?;
                read_chunks(id, &list, range, &read, each)?;
                Ok(list.total_bytes)
            }
        }
    }

    /// Reads at most the first `most_bytes` of a content. Verifies the hash of a content that is
    /// not longer.
    ///
    /// # Errors
    /// [`StoreError`] if the content cannot be read, or if its length differs from `stated`.
    pub fn read_start(
        &self,
        id: &BlobId,
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

    /// Passes a content to `each`, in order and piece by piece. A second thread decompresses frames
    /// ahead of the caller's thread. Consecutive chunks in a frame take one decompression.
    ///
    /// Compares the hash of the whole content before `each` gets the last piece. The earlier pieces
    /// are **not** verified; only their frames match the checksums.
    ///
    /// # Errors
    /// As [`ContentReader::read`]. After [`StoreError::Content`], another read may succeed: a wrong
    /// copy of a chunk is shadowed by then.
    pub fn stream<E: From<StoreError>>(
        &self,
        id: &BlobId,
        stated: Option<u64>,
        each: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let list = match self.store.locate_content(id)? {
            ContentPlace::Whole(place) => ChunkList {
                total_bytes: place.bytes.into(),
                pieces: ChunkListEntries::Chunks(vec![BlobRef { id: *id, bytes: place.bytes }]),
            },
            ContentPlace::Cut(_) => {
                let list = self.store.object(&id.object(), ObjectKind::ChunkList)?;
                decode_list(id.object(), &list)?
            }
        };
        let total = list.total_bytes;
        check_bytes(id, stated, total)?;
        let (mut whole, mut start) = (blake3::Hasher::new(), 0);
        let mut pass_on = |run: ChunkRun| {
            run.pieces.into_iter().try_for_each(|piece| {
                let bytes = &run.frame[piece];
                whole.update(bytes);
                start += bytes.len() as u64;
                if start == total {
                    compare(id, &whole).map_err(|error| self.diagnose(id, &list, error))?;
                }
                each(bytes)
            })
        };
        let is_short = matches!(&list.pieces, ChunkListEntries::Chunks(chunks) if chunks.len() < 2);
        if is_short {
            self.for_each_run(id, &list, &mut pass_on)?;
        } else {
            thread::scope(|scope| {
                let (sender, ahead) = sync_channel(FRAMES_AHEAD);
                let list = &list;
                match Builder::new().spawn_scoped(scope, move || self.send_runs(id, list, &sender))
                {
                    Ok(_) => ahead.into_iter().try_for_each(|run| pass_on(run?)),
                    // No thread can be started, so read without a thread that reads ahead.
                    Err(_) => self.for_each_run(id, list, &mut pass_on),
                }
            })?;
        }
        if total == 0 { Ok(compare(id, &whole)?) } else { Ok(()) }
    }

    /// Sends the chunks of a content until the receiver is gone.
    fn send_runs(
        &self,
        id: &BlobId,
        list: &ChunkList,
        sender: &SyncSender<Result<ChunkRun, StoreError>>,
    ) {
        let sent = self.for_each_run(id, list, &mut |run| {
            sender.send(Ok(run)).map_err(|_| ContentError::Callback(()))
        });
        if let Err(ContentError::Store(error)) = sent {
            // The receiver may have stopped meanwhile.
            let _ = sender.send(Err(error));
        }
    }

    /// Reads the chunks of a content in order, by frames.
    fn for_each_run<E: From<StoreError>>(
        &self,
        id: &BlobId,
        list: &ChunkList,
        each: &mut dyn FnMut(ChunkRun) -> Result<(), E>,
    ) -> Result<(), E> {
        let read = |id: &ObjectId, kind| self.store.object(id, kind);
        let mut read_runs = |chunks: &[BlobRef]| {
            let mut rest = chunks;
            while let Some((first, others)) = rest.split_first() {
                let run = self.read_run(first, others)?;
                rest = &rest[run.pieces.len()..];
                each(run)?;
            }
            Ok(())
        };
        walk_list(id.object(), list, &read, &mut chunks_only(&mut read_runs)).map(drop)
    }

    /// Reads a chunk, together with the next chunks that are in the same frame.
    fn read_run(&self, first: &BlobRef, others: &[BlobRef]) -> Result<ChunkRun, StoreError> {
        let first_place = self.store.locate_chunk(first)?;
        let frame = match self.store.frame(&first_place) {
            Err(error) if error.is_remote() && !self.store.route_around_damage(&error) => {
                return Err(error);
            }
            frame => frame.ok().filter(|frame| first_place.slice(frame).is_some()),
        };
        let Some(frame) = frame else {
            // The frame is damaged, its pack was merged meanwhile, or the index does not match the
            // pack. `object` tries every copy of the chunk.
            let bytes = self.store.object(&first.id.object(), ObjectKind::Blob)?;
            let pieces = std::iter::once(0..bytes.len()).collect();
            return Ok(ChunkRun { frame: Arc::new(bytes), pieces });
        };
        let mut pieces = vec![first_place.range()];
        for next in others {
            let place = self.store.locate_chunk(next)?;
            if key(&place) != key(&first_place) || place.slice(&frame).is_none() {
                break;
            }
            pieces.push(place.range());
        }
        Ok(ChunkRun { frame, pieces })
    }

    /// Finds the reason for a wrong hash of a content: reads each chunk by itself and returns the
    /// first error. Returns `error` if all chunks can be read.
    fn diagnose(&self, id: &BlobId, list: &ChunkList, error: StoreError) -> StoreError {
        let read = |id: &ObjectId, kind| self.store.object(id, kind);
        let mut read_all = |chunks: &[BlobRef]| {
            chunks.iter().try_for_each(|chunk| read(&chunk.id.object(), ObjectKind::Blob).map(drop))
        };
        walk_list(id.object(), list, &read, &mut chunks_only(&mut read_all)).err().unwrap_or(error)
    }
}

/// A decompressed frame, and the ranges of the next chunks of a content in the frame.
struct ChunkRun {
    frame: Arc<Vec<u8>>,
    pieces: Vec<Range<usize>>,
}

impl Store {
    /// Looks up the location of a content.
    ///
    /// # Errors
    /// [`StoreError`] if the content is missing, or if the object has another kind.
    pub fn locate_content(&self, id: &BlobId) -> Result<ContentPlace, StoreError> {
        let object = id.object();
        ContentPlace::of(&object, self.locate_or_refresh(&object)?)
    }

    /// Looks up the location of a file's content. Returns `None` for the empty content, which may
    /// be absent from the store.
    ///
    /// # Errors
    /// As [`Store::locate_content`].
    pub fn locate_file(&self, file: &FileContent) -> Result<Option<ContentPlace>, StoreError> {
        let is_empty = file.bytes == 0 && file.id == BlobId::of(b"");
        if is_empty { Ok(None) } else { self.locate_content(&file.id).map(Some) }
    }

    /// Passes the chunks of a chunked content to `each`, in order. Holds one part of a long list in
    /// memory. Returns the length of the content in bytes.
    ///
    /// # Errors
    /// [`StoreError`] when the list is missing or damaged, and the errors of `each`.
    pub fn for_each_chunk<E: From<StoreError>>(
        &self,
        id: &BlobId,
        each: &mut dyn FnMut(&BlobRef) -> Result<(), E>,
    ) -> Result<u64, E> {
        let read = |id: &ObjectId, kind| self.object(id, kind);
        let mut each_of = |chunks: &[BlobRef]| chunks.iter().try_for_each(&mut *each);
        walk_chunks(id.object(), &read, &mut chunks_only(&mut each_of))
    }

    /// Looks up the location of a chunk. Checks that the object is a blob with the length in the
    /// list.
    ///
    /// # Errors
    /// [`StoreError`] when the chunk is missing or does not match the list.
    pub fn locate_chunk(&self, chunk: &BlobRef) -> Result<ObjectLocation, StoreError> {
        let (id, wanted) = (chunk.id.object(), ObjectKind::Blob);
        let place = self.locate_or_refresh(&id)?.ok_or(StoreError::Missing { id, wanted })?;
        let place = place.of_kind(&id, wanted)?;
        check_bytes(&chunk.id, Some(chunk.bytes.into()), place.bytes.into())?;
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
                Ok(Some(ContentPlace::Cut(place))) => chunked.push((place, index)),
                Ok(Some(ContentPlace::Whole(place))) => small.push((Some(place), index)),
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
            let checked = |content: &[u8]| check_bytes(&id, Some(bytes), content.len() as u64);
            let is_right =
                |content: &&[u8]| verified == Some((*place, id)) || BlobId::of(content) == id;
            if let Some(content) = frame.and_then(|raw| place.slice(raw)).filter(is_right) {
                verified = Some((*place, id));
                visit(*index, checked(content).map(|()| content).map_err(Arc::new));
                continue;
            }
            let alone = self.store.object(&id.object(), ObjectKind::Blob);
            match alone.and_then(|content| checked(&content).map(|()| content)) {
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
