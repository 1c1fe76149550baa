//! An LRU cache of blocks of a content, including blocks that are in flight.

use std::{collections::HashMap, ops::Range};

use bytes::Bytes;
use futures::future::{BoxFuture, Shared};

use super::ReadError;

/// A request in flight that several readers can await.
pub(super) type SharedRequest = Shared<BoxFuture<'static, Result<Bytes, ReadError>>>;

/// A block that is cached or in flight.
#[derive(Clone, Debug)]
pub(super) enum CachedBlock {
    Ready(Bytes),
    /// In flight: the request, and the position of the block in its response.
    InFlight(SharedRequest, Range<usize>),
}

impl CachedBlock {
    pub(super) async fn bytes(self) -> Result<Bytes, ReadError> {
        match self {
            Self::Ready(bytes) => Ok(bytes),
            Self::InFlight(request, place) => Ok(request.await?.slice(place)),
        }
    }

    fn has_failed(&self) -> bool {
        match self {
            Self::Ready(_) => false,
            Self::InFlight(request, _) => matches!(request.peek(), Some(Err(_))),
        }
    }
}

#[derive(Debug)]
struct CacheEntry {
    block: CachedBlock,
    /// Value of the clock when the block was last read or stored.
    used: u64,
}

/// Blocks by number, up to a limit of bytes.
#[derive(Debug)]
pub(super) struct BlockCache {
    slots: HashMap<u64, CacheEntry>,
    /// Bytes of cached blocks. Blocks in flight do not count.
    bytes: u64,
    most_bytes: u64,
    /// Logical time: counts reads and stores.
    clock: u64,
}

impl BlockCache {
    pub(super) fn new(most_bytes: u64) -> Self {
        Self { slots: HashMap::new(), bytes: 0, most_bytes, clock: 0 }
    }

    /// Returns true if the block is cached or in flight.
    pub(super) fn contains(&self, number: u64) -> bool {
        self.slots.get(&number).is_some_and(|slot| !slot.block.has_failed())
    }

    pub(super) fn get(&mut self, number: u64) -> Option<CachedBlock> {
        self.clock += 1;
        let slot = self.slots.get_mut(&number)?;
        slot.used = self.clock;
        Some(slot.block.clone())
    }

    /// Stores a block and evicts the least recently used ones.
    pub(super) fn put(&mut self, number: u64, block: CachedBlock) {
        self.clock += 1;
        self.forget(number);
        if let CachedBlock::Ready(bytes) = &block {
            self.bytes += bytes.len() as u64;
        }
        self.slots.insert(number, CacheEntry { block, used: self.clock });
        while self.bytes > self.most_bytes {
            let here =
                self.slots.iter().filter(|(_, slot)| matches!(slot.block, CachedBlock::Ready(_)));
            let Some(oldest) = here.min_by_key(|(_, slot)| slot.used).map(|(at, _)| *at) else {
                break;
            };
            self.forget(oldest);
        }
    }

    pub(super) fn forget(&mut self, number: u64) {
        if let Some(CacheEntry { block: CachedBlock::Ready(bytes), .. }) =
            self.slots.remove(&number)
        {
            self.bytes -= bytes.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(bytes: usize) -> CachedBlock {
        CachedBlock::Ready(Bytes::from(vec![0; bytes]))
    }

    #[test]
    fn the_block_unused_for_longest_goes_first() {
        let mut cache = BlockCache::new(30);
        for number in 0..3 {
            cache.put(number, block(10));
        }
        assert!(cache.get(0).is_some());
        cache.put(3, block(10));
        assert!(cache.contains(0) && !cache.contains(1) && cache.contains(2) && cache.contains(3));
        cache.put(3, block(5));
        assert_eq!(cache.bytes, 25);
        cache.put(4, block(31));
        assert_eq!((cache.bytes, cache.slots.len()), (0, 0));
    }
}
