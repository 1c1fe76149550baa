//! A cache of blocks of a content, or of other units of requests, that also knows the blocks in
//! flight.

use std::{collections::HashMap, ops::Range};

use bytes::Bytes;
use futures::future::{BoxFuture, Shared};
use snap_core::base::byte_cache::{ByteCache, CacheLimits};

use super::ReadError;

/// A request in flight that several readers can await.
pub(crate) type SharedRequest = Shared<BoxFuture<'static, Result<Bytes, ReadError>>>;

/// A block that is cached or in flight.
#[derive(Clone, Debug)]
pub(crate) enum CachedBlock {
    Ready(Bytes),
    InFlight(RequestedBlock),
}

/// A block in flight: the request, and the position of the block in its response.
#[derive(Clone, Debug)]
pub(crate) struct RequestedBlock {
    pub(crate) request: SharedRequest,
    pub(crate) place: Range<usize>,
}

impl CachedBlock {
    pub(crate) async fn bytes(self) -> Result<Bytes, ReadError> {
        match self {
            Self::Ready(bytes) => Ok(bytes),
            Self::InFlight(block) => Ok(block.request.await?.slice(block.place)),
        }
    }
}

impl RequestedBlock {
    fn has_failed(&self) -> bool {
        matches!(self.request.peek(), Some(Err(_)))
    }
}

/// Blocks by number. The limit in bytes holds for finished blocks. Blocks in flight neither count
/// nor leave the cache.
#[derive(Debug)]
pub(crate) struct BlockCache {
    finished: ByteCache<u64, Bytes>,
    in_flight: HashMap<u64, RequestedBlock>,
}

impl BlockCache {
    pub(crate) fn new(most_bytes: u64) -> Self {
        let total_bytes = usize::try_from(most_bytes).unwrap_or(usize::MAX);
        let limits = CacheLimits { total_bytes, entry_bytes: total_bytes };
        Self { finished: ByteCache::new(limits), in_flight: HashMap::new() }
    }

    /// Returns true if the block is cached or in flight.
    pub(crate) fn contains(&self, number: u64) -> bool {
        let is_coming = self.in_flight.get(&number).is_some_and(|block| !block.has_failed());
        is_coming || self.finished.contains(&number)
    }

    pub(crate) fn get(&self, number: u64) -> Option<CachedBlock> {
        let requested = || self.in_flight.get(&number).cloned().map(CachedBlock::InFlight);
        self.finished.get(&number).map(CachedBlock::Ready).or_else(requested)
    }

    /// Records the request for a block.
    pub(crate) fn begin(&mut self, number: u64, block: RequestedBlock) {
        self.in_flight.insert(number, block);
    }

    /// Stores a block that has arrived, and evicts other blocks if there is no room.
    pub(crate) fn finish(&mut self, number: u64, bytes: Bytes) {
        self.in_flight.remove(&number);
        let length = bytes.len();
        self.finished.insert(number, bytes, length);
    }

    /// Forgets a block whose request failed.
    pub(crate) fn fail(&mut self, number: u64) {
        self.in_flight.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_block_in_flight_is_kept_until_it_arrives() {
        let mut cache = BlockCache::new(1000);
        let request: SharedRequest = std::future::pending().boxed().shared();
        cache.begin(0, RequestedBlock { request, place: 0..400 });
        for number in 1..10 {
            cache.finish(number, Bytes::from(vec![0; 400]));
        }
        assert!(matches!(cache.get(0), Some(CachedBlock::InFlight(_))));
        cache.finish(0, Bytes::from(vec![0; 400]));
        assert!(matches!(cache.get(0), Some(CachedBlock::Ready(_))));
        assert!(cache.contains(9) && !cache.contains(8), "there is room for two blocks");
    }

    #[test]
    fn a_block_whose_request_failed_is_not_cached() {
        let mut cache = BlockCache::new(1000);
        let request: SharedRequest = std::future::ready(Err(ReadError::Stopped)).boxed().shared();
        cache.begin(0, RequestedBlock { request: request.clone(), place: 0..1 });
        assert!(cache.contains(0), "the request has not been polled");
        assert!(request.now_or_never().is_some_and(|result| result.is_err()));
        assert!(!cache.contains(0));
        cache.fail(0);
        assert!(cache.get(0).is_none());
    }
}
