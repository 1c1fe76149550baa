//! Cuts contents into chunks, and computes their ids.
//!
//! One thread reads a content and cuts it. Idle threads process batches of chunks; if no thread is
//! idle, the reader processes the batch itself. So memory is bounded, and no thread waits for a
//! queue. A long hole is cut without a read: all its chunks are [`ZERO_CHUNK`].
//!
//! The id depends on the bytes alone: not on the lengths of the reads, on holes, or on whether the
//! length was known.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    os::fd::OwnedFd,
    sync::atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;

use crate::{
    base::{
        id::{BlobId, ContentId},
        limits,
    },
    chunk::{Cutter, Params, is_zeros},
    format::chunk_list::{BlobRef, ListBuilder, ListObject, ListRules, TooManyChunks, ZERO_CHUNK},
    local::{
        holes::SparseRead,
        read::{content, read_unsized},
        scan::FileStat,
    },
};

/// Minimum number of bytes that each [`fill`] reads before the source ends.
const MIN_READ_BYTES: usize = 1 << 20;

/// Size of a buffer: a frame, or an uncut rest of at most one chunk and the next read.
const BUFFER_BYTES: usize = limits::LARGE_FRAME_BYTES + limits::CHUNK_BYTES + MIN_READ_BYTES;

/// Takes the parts of a content that is cut. Several threads may call it at once.
pub trait ChunkSink: Sync {
    /// Why the sink refuses a part.
    type Error: Send;

    /// Takes a content of at most [`limits::WHOLE_FILE_BYTES`].
    ///
    /// # Errors
    /// Ends the cut.
    fn take_whole(&self, bytes: &[u8]) -> Result<BlobId, Self::Error> {
        Ok(self.take_chunks(bytes, &[bytes.len()])?[0].id)
    }

    /// Takes the chunks of `raw` that end at `cuts`, and returns them in order.
    ///
    /// # Errors
    /// Ends the cut.
    fn take_chunks(&self, raw: &[u8], cuts: &[usize]) -> Result<Vec<BlobRef>, Self::Error>;

    /// Takes a chunk list or a part of one. The chunks that it names come first.
    ///
    /// # Errors
    /// Ends the cut.
    fn take_list(&self, object: ListObject) -> Result<(), Self::Error> {
        let _ = object;
        Ok(())
    }

    /// Counts bytes that were read or skipped.
    fn advance(&self, bytes: u64) {
        let _ = bytes;
    }

    /// Returns true if the cut should end early.
    fn stopped(&self) -> bool;
}

/// Why a content was not cut to its end.
#[derive(Debug)]
pub enum CutError<E> {
    /// The source cannot be read, or has too many chunks.
    Read(io::Error),
    /// The sink returned an error.
    Sink(E),
    /// The sink asked to stop.
    Stopped,
}

impl<E> From<io::Error> for CutError<E> {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl<E> From<TooManyChunks> for CutError<E> {
    fn from(error: TooManyChunks) -> Self {
        Self::Read(io::Error::other(error))
    }
}

/// The memory for batches of chunks, which several cuts may share.
#[derive(Debug, Default)]
pub struct CutBuffers {
    free: Mutex<Vec<Vec<u8>>>,
    /// Number of batches that threads process.
    in_flight: AtomicUsize,
}

impl CutBuffers {
    fn take(&self) -> Vec<u8> {
        self.free.lock().pop().unwrap_or_else(|| vec![0; BUFFER_BYTES])
    }

    fn give_back(&self, buffer: Vec<u8>) {
        self.free.lock().push(buffer);
    }
}

/// The rules by which contents are cut. Only [`CutRules::FORMAT`] is used, except in tests.
#[derive(Clone, Copy, Debug)]
struct CutRules {
    params: Params,
    list: ListRules,
    /// The chunk of the maximum length that is all zeros.
    zeros: BlobRef,
}

impl CutRules {
    const FORMAT: Self =
        Self { params: Params::FORMAT, list: ListRules::FORMAT, zeros: ZERO_CHUNK };
}

/// Consecutive chunks of a content, and how often they repeat.
type Batch = (Vec<BlobRef>, u64);

/// Puts the chunks of batches, which end in any order, into the list of the content.
struct OrderedChunks {
    list: ListBuilder,
    /// The batches from the first unfinished one on; `None` for an unfinished one.
    waiting: VecDeque<Option<Batch>>,
    /// Number of the first batch in `waiting`.
    first: usize,
}

impl OrderedChunks {
    /// Reserves the place of the next batch.
    fn reserve(&mut self) -> usize {
        self.waiting.push_back(None);
        self.first + self.waiting.len() - 1
    }

    /// Adds a batch in its place. Passes completed parts of the list to `sink`.
    fn add<S: ChunkSink>(
        &mut self,
        place: usize,
        batch: Batch,
        sink: &S,
    ) -> Result<(), CutError<S::Error>> {
        self.waiting[place - self.first] = Some(batch);
        while let Some(Some((chunks, count))) = self.waiting.front_mut().map(Option::take) {
            self.waiting.pop_front();
            self.first += 1;
            for chunk in (0..count).flat_map(|_| &chunks) {
                if let Some(part) = self.list.push(*chunk)? {
                    sink.take_list(part).map_err(CutError::Sink)?;
                }
            }
        }
        Ok(())
    }
}

/// The state that the threads of a cut share.
struct Cut<'c, S: ChunkSink> {
    rules: CutRules,
    sink: &'c S,
    buffers: &'c CutBuffers,
    ordered: Mutex<OrderedChunks>,
    failure: Mutex<Option<CutError<S::Error>>>,
}

/// Reads, cuts and passes on a content of any length. Returns its id and its length in bytes.
///
/// # Errors
/// [`CutError`]. The sink may then have taken some of the chunks.
pub fn cut<S: ChunkSink>(
    source: &mut dyn SparseRead,
    sink: &S,
    buffers: &CutBuffers,
) -> Result<(ContentId, u64), CutError<S::Error>> {
    cut_by(CutRules::FORMAT, source, sink, buffers)
}

fn cut_by<S: ChunkSink>(
    rules: CutRules,
    source: &mut dyn SparseRead,
    sink: &S,
    buffers: &CutBuffers,
) -> Result<(ContentId, u64), CutError<S::Error>> {
    let list = ListBuilder::with_rules(rules.list);
    let cut = Cut {
        rules,
        sink,
        buffers,
        ordered: Mutex::new(OrderedChunks { list, waiting: VecDeque::new(), first: 0 }),
        failure: Mutex::default(),
    };
    let read = rayon::scope(|scope| cut.read(source, scope));
    // The failure of a batch comes first: it may have stopped the reader.
    if let Some(failure) = cut.failure.into_inner() {
        return Err(failure);
    }
    let (whole, size) = read?;
    if let Some(id) = whole {
        return Ok((id.into(), size));
    }
    let (id, objects) = cut.ordered.into_inner().list.finish()?;
    objects.into_iter().try_for_each(|object| sink.take_list(object).map_err(CutError::Sink))?;
    Ok((id, size))
}

impl<S: ChunkSink> Cut<'_, S> {
    /// Reads and cuts the content. Returns the id of a content that is not cut, and the length.
    fn read<'s>(
        &'s self,
        source: &mut dyn SparseRead,
        scope: &rayon::Scope<'s>,
    ) -> Result<(Option<BlobId>, u64), CutError<S::Error>> {
        let CutRules { params, list, zeros } = self.rules;
        let mut cutter = Cutter::new(params);
        let (mut buffer, mut filled) = (self.buffers.take(), 0);
        let mut size = 0;
        // The buffer contains only zeros from this offset on.
        let mut zeros_from = 0;
        let mut has_zero_chunk = false;
        loop {
            if self.failure.lock().is_some() || self.sink.stopped() {
                return Err(CutError::Stopped);
            }
            let (end, last) = fill(source, &mut buffer, filled)?;
            size += (end - filled) as u64;
            self.sink.advance((end - filled) as u64);
            if last && size <= list.whole_bytes {
                let id = self.sink.take_whole(&buffer[..end]).map_err(CutError::Sink)?;
                self.buffers.give_back(buffer);
                return Ok((Some(id), size));
            }
            if last || !is_zeros(&buffer[filled..end]) {
                zeros_from = end;
            }
            let cuts = all_cuts(&mut cutter, &buffer[..end], last);
            filled = end;
            if let Some(&cut) = cuts.last() {
                let mut next = self.buffers.take();
                next[..end - cut].copy_from_slice(&buffer[cut..end]);
                filled = end - cut;
                let full = std::mem::replace(&mut buffer, next);
                let is_zero_chunk = zeros_from == 0 && cuts[..] == [zeros.bytes as usize];
                if is_zero_chunk && has_zero_chunk {
                    self.buffers.give_back(full);
                    self.add_zeros(1)?;
                } else {
                    has_zero_chunk |= is_zero_chunk;
                    self.hand_over(scope, full, cuts);
                }
                zeros_from = zeros_from.saturating_sub(cut);
            }
            if has_zero_chunk && zeros_from == 0 && !last {
                // The uncut rest is zeros, so the hole is cut into zero chunks of the largest size,
                // and the rest stays the same.
                let chunk_bytes = u64::from(zeros.bytes);
                let skipped = source.skip_hole(chunk_bytes);
                if skipped > 0 {
                    size += skipped;
                    self.sink.advance(skipped);
                    self.add_zeros(skipped / chunk_bytes)?;
                }
            }
            if last {
                self.buffers.give_back(buffer);
                return Ok((None, size));
            }
        }
    }

    fn add_zeros(&self, count: u64) -> Result<(), CutError<S::Error>> {
        let mut ordered = self.ordered.lock();
        let place = ordered.reserve();
        ordered.add(place, (vec![self.rules.zeros], count), self.sink)
    }

    /// Gives a batch to an idle thread, or processes it here if there is none.
    fn hand_over<'s>(&'s self, scope: &rayon::Scope<'s>, buffer: Vec<u8>, cuts: Vec<usize>) {
        // Reserve the place now: batches end in any order.
        let place = self.ordered.lock().reserve();
        let in_flight = &self.buffers.in_flight;
        let take = move || {
            let taken = match self.sink.take_chunks(&buffer, &cuts) {
                Ok(chunks) => self.ordered.lock().add(place, (chunks, 1), self.sink),
                Err(error) => Err(CutError::Sink(error)),
            };
            if let Err(error) = taken {
                self.failure.lock().get_or_insert(error);
            }
            self.buffers.give_back(buffer);
            in_flight.fetch_sub(1, Ordering::Relaxed);
        };
        // At most one more batch than there are threads is in flight. Further batches are processed
        // here, which bounds the number of buffers.
        if in_flight.fetch_add(1, Ordering::Relaxed) <= rayon::current_num_threads() {
            scope.spawn(move |_| take());
        } else {
            take();
        }
    }
}

/// Reads until the buffer contains a frame. Returns the end of the new bytes, and true if the
/// source ended.
fn fill(
    source: &mut dyn SparseRead,
    buffer: &mut [u8],
    filled: usize,
) -> io::Result<(usize, bool)> {
    // The uncut rest may be nearly as large as a chunk, so always read some more.
    let target = limits::LARGE_FRAME_BYTES.max(filled + MIN_READ_BYTES);
    let mut end = filled;
    while end < target {
        match source.read(&mut buffer[end..target]) {
            Ok(0) => return Ok((end, true)),
            Ok(more) => end += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok((end, false))
}

/// Returns the ends of the chunks in the buffer.
fn all_cuts(cutter: &mut Cutter, buffer: &[u8], last: bool) -> Vec<usize> {
    let (mut cuts, mut start) = (Vec::new(), 0);
    while let Some(len) = cutter.next_cut(&buffer[start..], last) {
        start += len;
        cuts.push(start);
    }
    cuts
}

/// Splits the chunks of a batch: calls `each` with every chunk and its bytes.
///
/// # Errors
/// The first error of `each`.
pub fn for_each_chunk<E>(
    raw: &[u8],
    cuts: &[usize],
    each: &mut dyn FnMut(BlobRef, std::ops::Range<usize>) -> Result<(), E>,
) -> Result<Vec<BlobRef>, E> {
    let (mut chunks, mut start) = (Vec::with_capacity(cuts.len()), 0);
    for &end in cuts {
        let bytes = &raw[start..end];
        let chunk = BlobRef { id: BlobId::of(bytes), bytes: bytes.len() as u32 };
        each(chunk, start..end)?;
        chunks.push(chunk);
        start = end;
    }
    Ok(chunks)
}

/// Computes ids and keeps nothing.
struct Identify<'a> {
    stop: &'a (dyn Fn() -> bool + Sync),
}

impl ChunkSink for Identify<'_> {
    type Error = Infallible;

    fn take_chunks(&self, raw: &[u8], cuts: &[usize]) -> Result<Vec<BlobRef>, Infallible> {
        for_each_chunk(raw, cuts, &mut |_, _| Ok(()))
    }

    fn stopped(&self) -> bool {
        (self.stop)()
    }
}

/// Computes the id of the content of an open file, up to the size in `stat`. Reads a file that reports
/// no size whole. Also returns the number of bytes.
///
/// # Errors
/// Returns the error of the system call; [`io::ErrorKind::Interrupted`] if `stop` returns true.
pub fn identify(
    fd: &OwnedFd,
    stat: &FileStat,
    stop: &(dyn Fn() -> bool + Sync),
) -> io::Result<(ContentId, u64)> {
    match stat.size {
        0 => {
            let bytes = read_unsized(fd, limits::UNSIZED_FILE_TIME)?;
            Ok((BlobId::of(&bytes).into(), bytes.len() as u64))
        }
        _ => identify_source(&mut *content(fd, stat)?, stop),
    }
}

/// Computes the id of a content. Also returns the number of bytes.
///
/// # Errors
/// As [`identify`].
pub fn identify_source(
    source: &mut dyn SparseRead,
    stop: &(dyn Fn() -> bool + Sync),
) -> io::Result<(ContentId, u64)> {
    match cut(source, &Identify { stop }, &CutBuffers::default()) {
        Ok(found) => Ok(found),
        Err(CutError::Read(error)) => Err(error),
        Err(CutError::Stopped) => Err(io::ErrorKind::Interrupted.into()),
        Err(CutError::Sink(never)) => match never {},
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        io::{Read, Seek, SeekFrom, Write},
    };

    use proptest::prelude::*;

    use super::*;
    use crate::format::chunk_list::ChunkList;

    const LIST: ListRules = ListRules {
        whole_bytes: 128 << 10,
        min_chunk: 96 << 10,
        max_chunk: 512 << 10,
        entries: 3,
        parts: 1000,
    };

    /// An eighth of the sizes of the format.
    fn rules() -> CutRules {
        CutRules {
            params: Params { min: 96 << 10, average: 128 << 10, max: 512 << 10 },
            list: LIST,
            zeros: BlobRef { id: BlobId::of(&[0; 512 << 10]), bytes: 512 << 10 },
        }
    }

    /// Keeps everything that it takes.
    #[derive(Default)]
    struct Keep {
        blobs: Mutex<BTreeMap<BlobId, Vec<u8>>>,
        lists: Mutex<Vec<ListObject>>,
    }

    impl ChunkSink for Keep {
        type Error = Infallible;

        fn take_chunks(&self, raw: &[u8], cuts: &[usize]) -> Result<Vec<BlobRef>, Infallible> {
            for_each_chunk(raw, cuts, &mut |chunk, range| {
                self.blobs.lock().insert(chunk.id, raw[range].to_vec());
                Ok(())
            })
        }

        fn take_list(&self, object: ListObject) -> Result<(), Infallible> {
            self.lists.lock().push(object);
            Ok(())
        }

        fn stopped(&self) -> bool {
            false
        }
    }

    /// Returns at most `step` bytes at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = buffer.len().min(self.1);
            self.0.read(&mut buffer[..length])
        }
    }

    impl SparseRead for Slow<'_> {}

    fn cut_small(source: &mut dyn SparseRead) -> (ContentId, u64) {
        cut_by(rules(), source, &Keep::default(), &CutBuffers::default()).unwrap()
    }

    /// Cuts as the format describes it, without buffers and threads.
    fn plain_id(content: &[u8]) -> ContentId {
        if content.len() as u64 <= LIST.whole_bytes {
            return BlobId::of(content).into();
        }
        let (mut list, mut cutter, mut rest) =
            (ListBuilder::with_rules(LIST), Cutter::new(rules().params), content);
        while let Some(length) = cutter.next_cut(rest, true) {
            let chunk = BlobRef { id: BlobId::of(&rest[..length]), bytes: length as u32 };
            list.push(chunk).unwrap();
            rest = &rest[length..];
        }
        list.finish().unwrap().0
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        blake3::Hasher::new_derive_key("snap test noise").finalize_xof().fill(&mut bytes);
        bytes
    }

    /// Lengths around each limit.
    fn any_length() -> impl Strategy<Value = usize> {
        let limits = [0_usize, 96, 128, 512, 1024, 4096, 6000].map(|kib| kib << 10);
        (prop::sample::select(limits.to_vec()), -2_isize..=2)
            .prop_map(|(length, by): (usize, isize)| length.saturating_add_signed(by))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// The id of a content does not depend on the way in which it is read.
        #[test]
        fn the_id_depends_on_the_bytes_alone(
            data in any_length(), zeros in any_length(), end in any_length(), step in 1_usize..3 << 20,
        ) {
            let mut content = noise(data);
            content.resize(data + zeros, 0);
            content.extend_from_slice(&noise(end));
            let size = content.len() as u64;
            let expected = (plain_id(&content), size);

            prop_assert_eq!(cut_small(&mut (&content[..]).take(u64::MAX)), expected, "a stream");
            prop_assert_eq!(cut_small(&mut Slow(&content, step.max(4096))), expected, "partial reads");

            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&content[..data]).unwrap();
            file.seek(SeekFrom::Start((data + zeros) as u64)).unwrap();
            file.write_all(&content[data + zeros..]).unwrap();
            file.set_len(size).unwrap();
            let mut sparse = crate::local::holes::SparseReader::new(file, size);
            prop_assert_eq!(cut_small(&mut sparse), expected, "a file with a hole");
        }
    }

    #[test]
    fn the_lists_of_a_cut_name_its_chunks_in_order() {
        let content = noise(3 << 20);
        let keep = Keep::default();
        let (id, size) =
            cut_by(rules(), &mut (&content[..]).take(u64::MAX), &keep, &CutBuffers::default())
                .unwrap();
        assert_eq!(size, content.len() as u64);
        let (blobs, lists) = (keep.blobs.into_inner(), keep.lists.into_inner());
        let (list, parts) = lists.split_last().unwrap();
        assert!(id.is_chunked() && id.object() == list.id);
        let named: Vec<u8> = parts
            .iter()
            .flat_map(|part| part.bytes.chunks(36))
            .flat_map(|entry| {
                let id = BlobId::from_bytes(entry[..32].try_into().unwrap());
                blobs[&id].clone()
            })
            .collect();
        assert!(named == content);
    }

    #[test]
    fn a_long_hole_is_cut_without_a_read() {
        let size = 64 << 30;
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        let keep = Keep::default();
        let mut source = crate::local::holes::SparseReader::new(file, size);
        let (id, read) = cut(&mut source, &keep, &CutBuffers::default()).unwrap();
        let lists = keep.lists.into_inner();
        let [list] = &lists[..] else { panic!("{}", lists.len()) };
        assert_eq!((id.object(), read), (list.id, size));
        let expected = vec![ZERO_CHUNK; (size >> 22) as usize];
        assert!(ChunkList::decode(&list.bytes) == Ok(ChunkList::Chunks(expected)));
        let stored: BTreeSet<BlobId> = keep.blobs.into_inner().into_keys().collect();
        assert_eq!(stored, [ZERO_CHUNK.id].into());
    }

    #[test]
    fn an_error_of_the_sink_or_a_stop_ends_the_cut() {
        struct Full;

        impl ChunkSink for Full {
            type Error = &'static str;

            fn take_chunks(&self, _: &[u8], _: &[usize]) -> Result<Vec<BlobRef>, &'static str> {
                Err("full")
            }

            fn stopped(&self) -> bool {
                false
            }
        }

        for length in [10, 20 << 20] {
            let content = noise(length);
            let cut = cut(&mut (&content[..]).take(u64::MAX), &Full, &CutBuffers::default());
            assert!(matches!(cut, Err(CutError::Sink("full"))));
            let stopped = identify_source(&mut (&content[..]).take(u64::MAX), &|| true);
            assert_eq!(stopped.unwrap_err().kind(), io::ErrorKind::Interrupted);
        }
    }
}
