//! Random access to a content through a cache of its units, with read-ahead; also as a seekable
//! file.
//!
//! Concurrent readers of a unit share one request.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    future::{Future, ready},
    io::{self, SeekFrom},
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use parking_lot::Mutex;
use snap_core::base::byte_cache::{ByteCache, CacheLimits};
use tokio::{
    io::{AsyncRead, AsyncSeek, ReadBuf},
    task::JoinSet,
};

use super::{
    Content, ContentPart, ContentUnit, FetchRange, JobOptions, LinkEstimate, NeededRange,
    ReadError, pattern::AccessPattern, plan::length,
};

/// Options for reading a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeReaderOptions {
    /// Block size: the unit of requests and of the cache for an object, and of reads as a file.
    pub block_bytes: u64,
    /// Capacity of the cache, in bytes. For a file of a snapshot, 24 MiB are added.
    pub cache_bytes: u64,
    /// Maximum length of the read-ahead.
    pub ahead_bytes: u64,
    /// The first read of a content up to this length fetches the whole content.
    pub whole_bytes: u64,
    /// The limits of the requests of one read.
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

/// A cached reader of a content: positioned reads for any number of tasks, and an [`AsyncRead`] and
/// [`AsyncSeek`]. A seek sends no request and drops no cached unit.
///
/// Clones share the cache, but each has a position of its own. Dropping the last clone cancels the
/// requests in flight.
#[derive(Clone)]
pub struct RangeReader {
    shared: Arc<ReaderInner>,
    position: u64,
    /// The last block that was read as a file, and its offset in the content.
    block: (u64, Bytes),
    /// The block that the reader waits for, and its offset in the content.
    awaited: Option<(u64, Shared<BytesFuture>)>,
}

type BytesFuture = BoxFuture<'static, Result<Bytes, ReadError>>;

/// Some units, which are requested together.
type UnitBatch = BoxFuture<'static, Arc<Vec<Result<Bytes, ReadError>>>>;

#[derive(Debug)]
struct ReaderInner {
    content: Arc<Content>,
    options: RangeReaderOptions,
    state: Mutex<ReaderState>,
    /// The tasks of the read-ahead. Lock order: before `state`.
    ahead: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct ReaderState {
    /// The units that have arrived.
    cache: ByteCache<usize, Bytes>,
    /// The units in flight: the batch, and the position in it. A batch is cancelled once no task
    /// and no read holds it.
    in_flight: HashMap<usize, (WeakShared<UnitBatch>, usize)>,
    pattern: AccessPattern,
}

/// Parts of a content, each with the number of the range that needs it.
type WantedParts = Vec<(usize, ContentPart)>;

/// The read of several ranges.
struct StartedRead {
    shared: Arc<ReaderInner>,
    ranges: Vec<Range<u64>>,
    /// The batches to request.
    waiting: VecDeque<WantedParts>,
    /// The requested batches, and their units by number.
    requested: VecDeque<(WantedParts, HashMap<usize, BytesFuture>)>,
    /// The tasks of its batches.
    tasks: JoinSet<()>,
}

impl RangeReader {
    /// Creates a reader of the object `key` of `bytes` bytes, with an empty cache. Takes about 100 B of
    /// memory for each block.
    pub fn of_object(
        fetch: Arc<dyn FetchRange>,
        key: &str,
        bytes: u64,
        link: Arc<LinkEstimate>,
        options: RangeReaderOptions,
    ) -> Self {
        let (key, block_bytes): (Arc<str>, _) = (key.into(), options.block_bytes.max(1));
        let (mut units, mut parts, mut start) = (Vec::new(), Vec::new(), 0);
        while start < bytes {
            let range = start..start.saturating_add(block_bytes).min(bytes);
            let bytes = length(&range);
            parts.push(ContentPart { start, bytes, unit: units.len(), offset: 0 });
            start = range.end;
            let request = NeededRange { key: Arc::clone(&key), range };
            units.push(ContentUnit { request, bytes });
        }
        Self::new(Content::new(fetch, link, None, units, parts), options)
    }

    /// Creates a reader with an empty cache.
    pub(crate) fn new(content: Content, options: RangeReaderOptions) -> Self {
        let options = RangeReaderOptions { block_bytes: options.block_bytes.max(1), ..options };
        let total_bytes = usize::try_from(options.cache_bytes).unwrap_or(usize::MAX);
        let state = ReaderState {
            cache: ByteCache::new(CacheLimits { total_bytes, entry_bytes: total_bytes }),
            in_flight: HashMap::new(),
            pattern: AccessPattern::default(),
        };
        let (content, state, ahead) = (Arc::new(content), Mutex::new(state), Mutex::default());
        let shared = Arc::new(ReaderInner { content, options, state, ahead });
        Self { shared, position: 0, block: (0, Bytes::new()), awaited: None }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.shared.content.bytes()
    }

    /// Returns true if the content has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the offset of the next read as a file.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Reads `bytes` bytes from `offset` on, or fewer at the end of the content.
    ///
    /// Starts the requests before it returns, not when the future is awaited. Dropping the future
    /// cancels the requests that no other read waits for.
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
        let started = self.shared.start(vec![range]);
        async move { Ok(started.finish().await?.pop().unwrap_or_default()) }
    }

    /// Reads ranges that the caller knows in advance, and merges the requests of those that are
    /// close.
    ///
    /// Starts the requests before it returns, not when the future is awaited. Dropping the future
    /// cancels the requests that no other read waits for.
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
        let content_bytes = self.len();
        let outside = ranges.iter().find(|range| range.end.max(range.start) > content_bytes);
        let started = match outside.cloned() {
            Some(range) => Err(ReadError::Outside { range, content_bytes }),
            None => Ok(self.shared.start(ranges.to_vec())),
        };
        async move { started?.finish().await }
    }

    /// Returns the bytes of the last block from the current position on.
    fn here(&self) -> &[u8] {
        let (start, bytes) = &self.block;
        let offset =
            self.position.checked_sub(*start).and_then(|offset| usize::try_from(offset).ok());
        offset.and_then(|offset| bytes.get(offset..)).unwrap_or_default()
    }
}

impl ReaderInner {
    /// Returns true if the first read fetches the whole content.
    fn is_small(&self) -> bool {
        self.content.bytes() <= self.options.whole_bytes.min(self.options.cache_bytes)
    }

    /// Returns the maximum length of the decoded units that are requested together. Twice that of a
    /// request, because compressed units have shorter requests.
    fn batch_bytes(&self) -> u64 {
        self.options.requests.request_bytes.saturating_mul(2).max(1)
    }

    /// Starts to read `ranges`.
    fn start(self: &Arc<Self>, ranges: Vec<Range<u64>>) -> StartedRead {
        let content = &self.content;
        let mut parts = WantedParts::new();
        for (at, range) in ranges.iter().enumerate() {
            parts.extend(content.parts_of(range).iter().map(|part| (at, *part)));
        }
        // The read then needs each unit once, unless the content repeats.
        parts.sort_by_key(|(_, part)| part.start);
        if self.is_small() && !parts.is_empty() {
            self.load(content.parts_of(&(0..content.bytes())), &mut self.ahead.lock());
        }
        let mut bytes = 0;
        let waiting = parts.chunk_by(|(_, part), (_, next)| {
            if part.unit == next.unit {
                return true;
            }
            bytes += content.units[part.unit].memory();
            let after = bytes + content.units[next.unit].memory();
            let fits = after <= self.batch_bytes();
            if !fits {
                bytes = 0;
            }
            fits
        });
        let waiting = waiting.map(<[_]>::to_vec).collect();
        let start = ranges.iter().map(|range| range.start).min().unwrap_or_default();
        let end = ranges.iter().map(|range| range.end).max().unwrap_or_default();
        let (shared, requested, tasks) = (Arc::clone(self), VecDeque::new(), JoinSet::new());
        let mut started = StartedRead { shared, ranges, waiting, requested, tasks };
        started.request_what_fits();
        self.read_ahead(&(start..end));
        started
    }

    /// Reads ahead after a read that continues earlier ones. Sends requests only when less than
    /// half of the read-ahead is cached, so that requests stay long.
    fn read_ahead(self: &Arc<Self>, read: &Range<u64>) {
        let RangeReaderOptions { block_bytes, cache_bytes, ahead_bytes, .. } = self.options;
        if read.is_empty() || self.is_small() {
            return;
        }
        let mut state = self.state.lock();
        let ahead = state.pattern.note(read, block_bytes, ahead_bytes.min(cache_bytes / 4));
        let parts = self.content.parts_of(&(read.end..read.end.saturating_add(ahead)));
        let missing = parts.iter().position(|part| state.get(part.unit).is_none());
        drop(state);
        let Some(missing) = missing else { return };
        if parts[missing].start <= read.end.saturating_add(ahead / 2) {
            self.load(&parts[missing..], &mut self.ahead.lock());
        }
    }

    /// Returns the units of these parts, and requests those that are neither cached nor in flight, in
    /// `tasks`.
    fn load<'p>(
        self: &Arc<Self>,
        parts: impl IntoIterator<Item = &'p ContentPart>,
        tasks: &mut JoinSet<()>,
    ) -> HashMap<usize, BytesFuture> {
        let mut state = self.state.lock();
        let (mut units, mut missing) = (HashMap::new(), Vec::new());
        for number in parts.into_iter().map(|part| part.unit) {
            match state.get(number) {
                Some(unit) => drop(units.insert(number, unit)),
                None => missing.push(number),
            }
        }
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            let batch = self.batch(missing.clone()).shared();
            while tasks.try_join_next().is_some() {}
            tasks.spawn(batch.clone().map(drop));
            for (at, number) in missing.into_iter().enumerate() {
                let weak = batch.downgrade().map(|batch| (number, (batch, at)));
                state.in_flight.extend(weak);
                units.insert(number, unit_of(batch.clone(), at));
            }
        }
        units
    }

    /// Fetches units, and stores them in the cache.
    fn batch(self: &Arc<Self>, numbers: Vec<usize>) -> UnitBatch {
        let (content, options) = (Arc::clone(&self.content), self.options.requests.clone());
        // A strong reference would keep the batch and the reader in memory for each other.
        let reader = Arc::downgrade(self);
        async move {
            let fetched = content.fetch(&numbers, options).await;
            if let Some(reader) = reader.upgrade() {
                let mut state = reader.state.lock();
                for (number, unit) in numbers.iter().zip(&fetched) {
                    state.in_flight.remove(number);
                    if let Ok(bytes) = unit {
                        state.cache.insert(*number, bytes.clone(), bytes.len());
                    }
                }
            }
            Arc::new(fetched)
        }
        .boxed()
    }
}

impl ReaderState {
    /// Returns a unit that is cached or in flight.
    fn get(&self, number: usize) -> Option<BytesFuture> {
        if let Some(bytes) = self.cache.get(&number) {
            return Some(ready(Ok(bytes)).boxed());
        }
        let (batch, at) = self.in_flight.get(&number)?;
        Some(unit_of(batch.upgrade()?, *at))
    }
}

fn unit_of(batch: Shared<UnitBatch>, at: usize) -> BytesFuture {
    batch.map(move |batch| batch[at].clone()).boxed()
}

impl StartedRead {
    /// Requests batches up to the limit of bytes in flight, but at least one.
    fn request_what_fits(&mut self) {
        let budget_bytes = self.shared.options.requests.budget_bytes;
        let most = (budget_bytes / self.shared.batch_bytes()).max(1);
        while (self.requested.len() as u64) < most
            && let Some(parts) = self.waiting.pop_front()
        {
            let wanted = parts.iter().map(|(_, part)| part);
            let units = self.shared.load(wanted, &mut self.tasks);
            self.requested.push_back((parts, units));
        }
    }

    async fn finish(mut self) -> Result<Vec<Bytes>, ReadError> {
        let capacity = |range| Vec::with_capacity(length(range) as usize);
        let mut all: Vec<Vec<u8>> = self.ranges.iter().map(capacity).collect();
        while let Some((parts, arriving)) = self.requested.pop_front() {
            let mut units = HashMap::new();
            for (number, unit) in arriving {
                units.insert(number, unit.await?);
            }
            for (at, part) in parts {
                all[at].extend_from_slice(&units[&part.unit][part.overlap(&self.ranges[at])]);
            }
            drop(units);
            self.request_what_fits();
        }
        Ok(all.into_iter().map(Bytes::from).collect())
    }
}

impl fmt::Debug for RangeReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shared, position, .. } = self;
        let mut shown = f.debug_struct("RangeReader");
        shown.field("shared", shared).field("position", position).finish_non_exhaustive()
    }
}

impl AsyncRead for RangeReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while buf.remaining() > 0 && self.position < self.len() {
            let here = self.here();
            if !here.is_empty() {
                let bytes = here.len().min(buf.remaining());
                buf.put_slice(&here[..bytes]);
                self.position += bytes as u64;
                break;
            }
            let block_bytes = self.shared.options.block_bytes;
            let start = self.position / block_bytes * block_bytes;
            if self.awaited.as_ref().is_none_or(|(awaited, _)| *awaited != start) {
                let read = self.read_at(start, block_bytes).boxed().shared();
                self.awaited = Some((start, read));
            }
            let Some((_, read)) = self.awaited.as_mut() else { break };
            let result = ready!(read.poll_unpin(cx));
            self.awaited = None;
            self.block = (start, result?);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncSeek for RangeReader {
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(offset) => self.len().checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        let before = || io::Error::new(io::ErrorKind::InvalidInput, "position before the start");
        self.position = position.ok_or_else(before)?;
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Poll::Ready(Ok(self.position))
    }
}
