//! A content read in any place: blocks that were read are kept, each is asked
//! for once however many want it, and what follows is read ahead.

use std::{
    future::Future,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use tokio::{sync::oneshot, task::JoinSet, time::Instant};

use super::{
    Blocks, Link, Options, Planner, ReadError, Wanted,
    blocks::Source,
    cache::{Arriving, Block, Cache},
    pattern::Pattern,
    plan::length,
};

/// What reading a content keeps to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentOptions {
    /// Unit of what is read and kept.
    pub block_bytes: u64,
    /// Bytes of blocks that are kept.
    pub cache_bytes: u64,
    /// Most that is read ahead.
    pub ahead_bytes: u64,
    /// A content up to this length is read whole by its first read.
    pub whole_bytes: u64,
    /// For ranges that the caller knows, and reads too long to be kept.
    pub requests: Options,
}

impl Default for ContentOptions {
    /// Blocks that take about as long as a round trip does, 32 MiB of them.
    fn default() -> Self {
        Self {
            block_bytes: 256 << 10,
            cache_bytes: 32 << 20,
            ahead_bytes: 8 << 20,
            whole_bytes: 1 << 20,
            requests: Options::default(),
        }
    }
}

/// A content that is read in any place, by any number of readers; clones share
/// what was read. Dropping the last one stops what is under way.
#[derive(Clone, Debug)]
pub struct Content {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    blocks: Arc<dyn Blocks>,
    link: Arc<Link>,
    options: ContentOptions,
    bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    cache: Cache,
    pattern: Pattern,
    tasks: JoinSet<()>,
}

/// A range that is on its way.
enum Reading {
    Planned(super::Job),
    /// Blocks, and where in them the range begins and ends.
    Blocks(Vec<Block>, Range<usize>),
}

impl Content {
    /// A content of which nothing was read yet.
    pub fn new(blocks: Arc<dyn Blocks>, link: Arc<Link>, options: ContentOptions) -> Self {
        let bytes = blocks.len();
        let options = ContentOptions { block_bytes: options.block_bytes.max(1), ..options };
        let cache = Cache::new(options.cache_bytes);
        let state = State { cache, pattern: Pattern::default(), tasks: JoinSet::new() };
        Self { shared: Arc::new(Shared { blocks, link, options, bytes, state: Mutex::new(state) }) }
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.shared.bytes
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Unit of what is read and kept.
    pub(super) fn block_bytes(&self) -> u64 {
        self.shared.options.block_bytes
    }

    /// Reads `bytes` from `offset` on, fewer where the content ends. What is
    /// not here is under way when this returns, before it is awaited.
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
            let mut state = self.shared.lock();
            let reading = if length(&range) > self.shared.options.cache_bytes / 2 {
                Reading::Planned(self.shared.plan(vec![range.clone()]))
            } else {
                self.shared.open(&mut state, &range)
            };
            self.shared.follow(&mut state, &range);
            reading
        };
        // Blocks on their way end with the last content.
        let content = self.clone();
        async move {
            let bytes = reading.finish().await;
            drop(content);
            bytes
        }
    }

    /// Reads ranges that the caller knows, merged where they are near each
    /// other. All are under way when this returns, before it is awaited; what
    /// is here already is not read again, what is not is not kept.
    ///
    /// # Errors
    /// [`ReadError::Outside`] when a range ends after the content, before
    /// anything is read; the first error otherwise.
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
            let (readings, job, places) = started?;
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

    /// Ranges that are here or on their way, a job for the others, and where
    /// its pieces belong.
    #[expect(clippy::type_complexity, reason = "taken apart where it is made")]
    fn start(
        &self,
        ranges: &[Range<u64>],
    ) -> Result<(Vec<Option<Reading>>, super::Job, Vec<usize>), ReadError> {
        let shared = &self.shared;
        if let Some(range) = ranges.iter().find(|range| range.end.max(range.start) > shared.bytes) {
            return Err(ReadError::Outside { range: range.clone(), content_bytes: shared.bytes });
        }
        let mut state = shared.lock();
        let (mut readings, mut places, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
        for (at, range) in ranges.iter().enumerate() {
            let range = range.start..range.end.max(range.start);
            let mut numbers = shared.numbers(&range);
            if shared.is_small() || numbers.all(|number| state.cache.knows(number)) {
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
        Ok((readings, job, places))
    }
}

impl Reading {
    async fn finish(self) -> Result<Bytes, ReadError> {
        let (blocks, place) = match self {
            Self::Planned(job) => return Ok(job.all().await?.pop().unwrap_or_default()),
            Self::Blocks(blocks, place) => (blocks, place),
        };
        if let [block] = blocks.as_slice() {
            return Ok(block.clone().bytes().await?.slice(place));
        }
        let mut bytes = BytesMut::with_capacity(place.len());
        // How many bytes come before the range, and how many of it are to come.
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

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the first read reads all of it.
    fn is_small(&self) -> bool {
        self.bytes <= self.options.whole_bytes.min(self.options.cache_bytes)
    }

    /// Numbers of the blocks that have bytes of a range.
    fn numbers(&self, range: &Range<u64>) -> Range<u64> {
        if range.is_empty() {
            return 0..0;
        }
        range.start / self.options.block_bytes..range.end.div_ceil(self.options.block_bytes)
    }

    fn plan(&self, ranges: Vec<Range<u64>>) -> super::Job {
        let (blocks, link) = (Arc::clone(&self.blocks), Arc::clone(&self.link));
        let key: Arc<str> = "".into();
        let wanted = ranges.into_iter().map(|range| Wanted { key: Arc::clone(&key), range });
        Planner::of_content(blocks, link, self.options.requests.clone()).start(wanted.collect())
    }

    /// Asks for the blocks of a range that are not here.
    fn open(self: &Arc<Self>, state: &mut State, range: &Range<u64>) -> Reading {
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
        // Nothing is let go of between `load` and this.
        let blocks = numbers.filter_map(|number| state.cache.get(number)).collect();
        Reading::Blocks(blocks, place)
    }

    /// Reads ahead after a read, when it followed others. More is asked for
    /// only when less than half of it is here, so that requests stay long.
    fn follow(self: &Arc<Self>, state: &mut State, read: &Range<u64>) {
        let ContentOptions { block_bytes, cache_bytes, ahead_bytes, .. } = self.options;
        if read.is_empty() || self.is_small() {
            return;
        }
        let ahead = state.pattern.note(read, block_bytes, ahead_bytes.min(cache_bytes / 4));
        let end = read.end.saturating_add(ahead).min(self.bytes);
        let mut numbers = self.numbers(&(read.end..end));
        let Some(missing) = numbers.find(|number| !state.cache.knows(*number)) else { return };
        if missing * block_bytes <= read.end.saturating_add(ahead / 2) {
            self.load(state, missing..numbers.end);
        }
    }

    /// Asks for those of the blocks that are neither here nor on their way, a
    /// request for each row of them.
    fn load(self: &Arc<Self>, state: &mut State, numbers: Range<u64>) {
        let most = (self.options.requests.request_bytes / self.options.block_bytes).max(1);
        let mut row: Option<Range<u64>> = None;
        for number in numbers {
            if state.cache.knows(number) {
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

    fn request(self: &Arc<Self>, state: &mut State, row: Range<u64>) {
        let (answer, answered) = oneshot::channel();
        let answered = answered.map(|result| result.unwrap_or(Err(ReadError::Stopped)));
        let arriving: Arriving = answered.boxed().shared();
        let range = self.place(row.start).start..self.place(row.end - 1).end;
        for number in row.clone() {
            let place = self.place(number);
            let place = (place.start - range.start) as usize..(place.end - range.start) as usize;
            state.cache.put(number, Block::Arriving(arriving.clone(), place));
        }
        let source = Source::Content(Arc::clone(&self.blocks));
        let shared: Weak<Self> = Arc::downgrade(self);
        while state.tasks.try_join_next().is_some() {}
        state.tasks.spawn(async move {
            let start = Instant::now();
            let result = source.read("".into(), range).await;
            if let Some(shared) = shared.upgrade() {
                shared.keep(row, &result, start.elapsed());
            }
            // Nobody may wait for what was read ahead.
            let _ = answer.send(result);
        });
    }

    /// Where a block lies.
    fn place(&self, number: u64) -> Range<u64> {
        let start = number * self.options.block_bytes;
        start..start.saturating_add(self.options.block_bytes).min(self.bytes)
    }

    fn keep(&self, row: Range<u64>, result: &Result<Bytes, ReadError>, took: Duration) {
        let mut state = self.lock();
        let Ok(bytes) = result else {
            row.for_each(|number| state.cache.forget(number));
            return;
        };
        self.link.record(bytes.len() as u64, took);
        if row.end - row.start == 1 {
            return state.cache.put(row.start, Block::Here(bytes.clone()));
        }
        let mut rest = bytes.clone();
        for number in row {
            let block = rest.split_to(length(&self.place(number)) as usize);
            // A copy, so that the others of the row can be let go of.
            state.cache.put(number, Block::Here(Bytes::copy_from_slice(&block)));
        }
    }
}
