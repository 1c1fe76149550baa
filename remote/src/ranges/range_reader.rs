//! Random access to a content through a cache of blocks, with read-ahead.
//!
//! Concurrent readers of a block share one request.

use std::{
    future::Future,
    ops::Range,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use parking_lot::Mutex;
use tokio::{sync::oneshot, task::JoinSet, time::Instant};

use super::{
    JobOptions, LinkEstimate, NeededRange, RandomAccess, RangePlanner, ReadError,
    cache::{BlockCache, CachedBlock, RequestedBlock, SharedRequest},
    pattern::AccessPattern,
    plan::length,
    random_access::RequestTarget,
};

/// Options for reading a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeReaderOptions {
    /// Block size: the unit of requests and of the cache.
    pub block_bytes: u64,
    /// Capacity of the cache, in bytes.
    pub cache_bytes: u64,
    /// Maximum length of the read-ahead.
    pub ahead_bytes: u64,
    /// The first read of a content up to this length fetches the whole content.
    pub whole_bytes: u64,
    /// Options for ranges known in advance, and for reads too long for the cache.
    pub requests: JobOptions,
}

impl Default for RangeReaderOptions {
    /// Blocks of 256 KiB, whose transfer takes about as long as a round trip, and a cache
    /// of 32 MiB.
    fn default() -> Self {
        Self {
            block_bytes: 256 << 10,
            cache_bytes: 32 << 20,
            ahead_bytes: 8 << 20,
            whole_bytes: 1 << 20,
            requests: JobOptions::default(),
        }
    }
}

/// A cached reader of a content, for any number of tasks. Clones share the cache. Dropping the last
/// clone cancels the requests in flight.
#[derive(Clone, Debug)]
pub struct RangeReader {
    shared: Arc<RangeReaderInner>,
}

#[derive(Debug)]
struct RangeReaderInner {
    blocks: Arc<dyn RandomAccess>,
    link: Arc<LinkEstimate>,
    options: RangeReaderOptions,
    bytes: u64,
    state: Mutex<RangeReaderState>,
}

#[derive(Debug)]
struct RangeReaderState {
    cache: BlockCache,
    pattern: AccessPattern,
    tasks: JoinSet<()>,
}

/// The reads of several ranges.
struct StartedReads {
    /// For each range, its read if the range is cached or in flight.
    readings: Vec<Option<RangeRead>>,
    /// The job for the other ranges.
    job: super::RangeJob,
    /// The position in `readings` of each piece of the job.
    places: Vec<usize>,
}

/// A range whose bytes are in flight or cached.
enum RangeRead {
    /// A job fetches the range, which does not pass through the cache.
    Planned(super::RangeJob),
    /// Blocks, and the position of the range in their concatenation.
    Blocks(Vec<CachedBlock>, Range<usize>),
}

impl RangeReader {
    /// Creates a reader with an empty cache.
    pub fn new(
        blocks: Arc<dyn RandomAccess>,
        link: Arc<LinkEstimate>,
        options: RangeReaderOptions,
    ) -> Self {
        let bytes = blocks.len();
        let options = RangeReaderOptions { block_bytes: options.block_bytes.max(1), ..options };
        let cache = BlockCache::new(options.cache_bytes);
        let state =
            RangeReaderState { cache, pattern: AccessPattern::default(), tasks: JoinSet::new() };
        Self {
            shared: Arc::new(RangeReaderInner {
                blocks,
                link,
                options,
                bytes,
                state: Mutex::new(state),
            }),
        }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.shared.bytes
    }

    /// Returns true if the content has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn block_bytes(&self) -> u64 {
        self.shared.options.block_bytes
    }

    /// Reads `bytes` bytes from `offset` on, or fewer at the end of the content. Starts the
    /// requests before it returns, not when the future is awaited.
    ///
    /// # Errors
    /// [`ReadError`].
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn read_at(
        &self,
        offset: u64,
        bytes: u64,
    ) -> impl Future<Output = Result<Bytes, ReadError>> + Send + use<> {
        let end = offset.saturating_add(bytes).min(self.len());
        let range = offset.min(end)..end;
        let reading = {
            let mut state = self.shared.state.lock();
            let reading = if length(&range) > self.shared.options.cache_bytes / 2 {
                RangeRead::Planned(self.shared.plan(vec![range.clone()]))
            } else {
                self.shared.open(&mut state, &range)
            };
            self.shared.follow(&mut state, &range);
            reading
        };
        // Keep the requests alive: dropping the last clone would cancel them.
        let content = self.clone();
        async move {
            let bytes = reading.finish().await;
            drop(content);
            bytes
        }
    }

    /// Reads ranges that the caller knows in advance, and merges those that are close.
    ///
    /// Starts the requests before it returns, not when the future is awaited. Does not request
    /// cached ranges again. Does not cache requested ranges, unless the content is small enough for
    /// one fetch.
    ///
    /// # Errors
    /// [`ReadError::Outside`] if a range ends after the content, before any request. Otherwise the
    /// first error of a request.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn fetch(
        &self,
        ranges: &[Range<u64>],
    ) -> impl Future<Output = Result<Vec<Bytes>, ReadError>> + Send + use<> {
        let started = self.start(ranges);
        let content = self.clone();
        async move {
            let StartedReads { readings, job, places } = started?;
            let mut all = vec![Bytes::new(); readings.len()];
            for (bytes, at) in job.all().await?.into_iter().zip(places) {
                all[at] = bytes;
            }
            for (at, reading) in readings.into_iter().enumerate() {
                if let Some(reading) = reading {
                    all[at] = reading.finish().await?;
                }
            }
            drop(content);
            Ok(all)
        }
    }

    /// Starts to read `ranges`.
    fn start(&self, ranges: &[Range<u64>]) -> Result<StartedReads, ReadError> {
        let shared = &self.shared;
        if let Some(range) = ranges.iter().find(|range| range.end.max(range.start) > shared.bytes) {
            return Err(ReadError::Outside { range: range.clone(), content_bytes: shared.bytes });
        }
        let mut state = shared.state.lock();
        let (mut readings, mut places, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
        for (at, range) in ranges.iter().enumerate() {
            let range = range.start..range.end.max(range.start);
            let mut numbers = shared.numbers(&range);
            if shared.is_small() || numbers.all(|number| state.cache.contains(number)) {
                readings.push(Some(shared.open(&mut state, &range)));
            } else {
                readings.push(None);
                places.push(at);
                wanted.push(range);
            }
        }
        let job = shared.plan(wanted);
        let start = ranges.iter().map(|range| range.start).min().unwrap_or_default();
        let end = ranges.iter().map(|range| range.end).max().unwrap_or_default();
        shared.follow(&mut state, &(start..end));
        Ok(StartedReads { readings, job, places })
    }
}

impl RangeRead {
    async fn finish(self) -> Result<Bytes, ReadError> {
        let (blocks, place) = match self {
            Self::Planned(job) => return Ok(job.all().await?.pop().unwrap_or_default()),
            Self::Blocks(blocks, place) => (blocks, place),
        };
        if let [block] = blocks.as_slice() {
            return Ok(block.clone().bytes().await?.slice(place));
        }
        let mut bytes = BytesMut::with_capacity(place.len());
        // Bytes to skip before the range, and bytes of the range still to copy.
        let (mut before, mut left) = (place.start, place.len());
        for block in blocks {
            let block = block.bytes().await?;
            let from = before.min(block.len());
            let to = block.len().min(from + left);
            bytes.extend_from_slice(&block[from..to]);
            before -= from;
            left -= to - from;
        }
        Ok(bytes.freeze())
    }
}

impl RangeReaderInner {
    /// Returns true if the first read fetches the whole content.
    fn is_small(&self) -> bool {
        self.bytes <= self.options.whole_bytes.min(self.options.cache_bytes)
    }

    /// Returns the numbers of the blocks that overlap a range.
    fn numbers(&self, range: &Range<u64>) -> Range<u64> {
        if range.is_empty() {
            return 0..0;
        }
        range.start / self.options.block_bytes..range.end.div_ceil(self.options.block_bytes)
    }

    fn plan(&self, ranges: Vec<Range<u64>>) -> super::RangeJob {
        let (blocks, link) = (Arc::clone(&self.blocks), Arc::clone(&self.link));
        let key: Arc<str> = "".into();
        let wanted = ranges.into_iter().map(|range| NeededRange { key: Arc::clone(&key), range });
        RangePlanner::for_content(blocks, link, self.options.requests.clone())
            .start(wanted.collect())
    }

    /// Requests the blocks of a range that are not cached or in flight.
    fn open(self: &Arc<Self>, state: &mut RangeReaderState, range: &Range<u64>) -> RangeRead {
        let numbers = self.numbers(range);
        let wanted = if self.is_small() && !numbers.is_empty() {
            self.numbers(&(0..self.bytes))
        } else {
            numbers.clone()
        };
        self.load(state, wanted);
        let first = numbers.start * self.options.block_bytes;
        let place = range.start.saturating_sub(first) as usize;
        let place = place..place + length(range) as usize;
        // The lock excludes an eviction between `load` and this line.
        let blocks = numbers.filter_map(|number| state.cache.get(number)).collect();
        RangeRead::Blocks(blocks, place)
    }

    /// Reads ahead after a read that continues earlier ones. Sends requests only when less than
    /// half of the read-ahead is cached, so that requests stay long.
    fn follow(self: &Arc<Self>, state: &mut RangeReaderState, read: &Range<u64>) {
        let RangeReaderOptions { block_bytes, cache_bytes, ahead_bytes, .. } = self.options;
        if read.is_empty() || self.is_small() {
            return;
        }
        let ahead = state.pattern.note(read, block_bytes, ahead_bytes.min(cache_bytes / 4));
        let end = read.end.saturating_add(ahead).min(self.bytes);
        let mut numbers = self.numbers(&(read.end..end));
        let Some(missing) = numbers.find(|number| !state.cache.contains(*number)) else { return };
        if missing * block_bytes <= read.end.saturating_add(ahead / 2) {
            self.load(state, missing..numbers.end);
        }
    }

    /// Requests those blocks that are neither cached nor in flight, with one request for
    /// each run of adjacent blocks.
    fn load(self: &Arc<Self>, state: &mut RangeReaderState, numbers: Range<u64>) {
        let most = (self.options.requests.request_bytes / self.options.block_bytes).max(1);
        let mut row: Option<Range<u64>> = None;
        for number in numbers {
            if state.cache.contains(number) {
                continue;
            }
            match row.as_mut() {
                Some(row) if row.end == number && number - row.start < most => row.end += 1,
                _ => {
                    if let Some(row) = row.replace(number..number + 1) {
                        self.request(state, row);
                    }
                }
            }
        }
        if let Some(row) = row {
            self.request(state, row);
        }
    }

    fn request(self: &Arc<Self>, state: &mut RangeReaderState, row: Range<u64>) {
        let (answer, answered) = oneshot::channel();
        let answered = answered.map(|result| result.unwrap_or(Err(ReadError::Stopped)));
        let arriving: SharedRequest = answered.boxed().shared();
        let range = self.place(row.start).start..self.place(row.end - 1).end;
        for number in row.clone() {
            let place = self.place(number);
            let place = (place.start - range.start) as usize..(place.end - range.start) as usize;
            state.cache.begin(number, RequestedBlock { request: arriving.clone(), place });
        }
        let source = RequestTarget::Content(Arc::clone(&self.blocks));
        let shared: Weak<Self> = Arc::downgrade(self);
        while state.tasks.try_join_next().is_some() {}
        state.tasks.spawn(async move {
            let start = Instant::now();
            let result = source.read("".into(), range).await;
            if let Some(shared) = shared.upgrade() {
                shared.keep(row, &result, start.elapsed());
            }
            // Sending fails if no reader waits for the blocks.
            let _ = answer.send(result);
        });
    }

    /// Returns the byte range of a block.
    fn place(&self, number: u64) -> Range<u64> {
        let start = number * self.options.block_bytes;
        start..start.saturating_add(self.options.block_bytes).min(self.bytes)
    }

    fn keep(&self, row: Range<u64>, result: &Result<Bytes, ReadError>, took: Duration) {
        let mut state = self.state.lock();
        let Ok(bytes) = result else {
            row.for_each(|number| state.cache.fail(number));
            return;
        };
        self.link.record(bytes.len() as u64, took);
        if row.end - row.start == 1 {
            return state.cache.finish(row.start, bytes.clone());
        }
        let mut rest = bytes.clone();
        for number in row {
            let block = rest.split_to(length(&self.place(number)) as usize);
            // Copy the block, so that evicting the other blocks of the run frees their memory.
            state.cache.finish(number, Bytes::copy_from_slice(&block));
        }
    }
}
