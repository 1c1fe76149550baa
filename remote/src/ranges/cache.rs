//! Blocks of a content that were read last, and those that are on their way.

use std::{collections::HashMap, ops::Range};

use bytes::Bytes;
use futures::future::{BoxFuture, Shared};

use super::ReadError;

/// A request that several readers may wait for.
pub(super) type Arriving = Shared<BoxFuture<'static, Result<Bytes, ReadError>>>;

/// A block that is here or will be.
#[derive(Clone, Debug)]
pub(super) enum Block {
    Here(Bytes),
    /// It comes with a request, at this place of it.
    Arriving(Arriving, Range<usize>),
}

impl Block {
    pub(super) async fn bytes(self) -> Result<Bytes, ReadError> {
        match self {
            Self::Here(bytes) => Ok(bytes),
            Self::Arriving(request, place) => Ok(request.await?.slice(place)),
        }
    }

    fn has_failed(&self) -> bool {
        match self {
            Self::Here(_) => false,
            Self::Arriving(request, _) => matches!(request.peek(), Some(Err(_))),
        }
    }
}

#[derive(Debug)]
struct Slot {
    block: Block,
    /// When it was last asked for.
    used: u64,
}

/// Blocks by number, up to a number of bytes.
#[derive(Debug)]
pub(super) struct Cache {
    slots: HashMap<u64, Slot>,
    /// Of blocks that are here.
    bytes: u64,
    most_bytes: u64,
    clock: u64,
}

impl Cache {
    pub(super) fn new(most_bytes: u64) -> Self {
        Self { slots: HashMap::new(), bytes: 0, most_bytes, clock: 0 }
    }

    /// Whether the block is here, or on its way.
    pub(super) fn knows(&self, number: u64) -> bool {
        self.slots.get(&number).is_some_and(|slot| !slot.block.has_failed())
    }

    pub(super) fn get(&mut self, number: u64) -> Option<Block> {
        self.clock += 1;
        let slot = self.slots.get_mut(&number)?;
        slot.used = self.clock;
        Some(slot.block.clone())
    }

    /// Keeps a block and lets go of those unused for longest.
    pub(super) fn put(&mut self, number: u64, block: Block) {
        self.clock += 1;
        self.forget(number);
        if let Block::Here(bytes) = &block {
            self.bytes += bytes.len() as u64;
        }
        self.slots.insert(number, Slot { block, used: self.clock });
        while self.bytes > self.most_bytes {
            let here = self.slots.iter().filter(|(_, slot)| matches!(slot.block, Block::Here(_)));
            let Some(oldest) = here.min_by_key(|(_, slot)| slot.used).map(|(at, _)| *at) else {
                break;
            };
            self.forget(oldest);
        }
    }

    pub(super) fn forget(&mut self, number: u64) {
        if let Some(Slot { block: Block::Here(bytes), .. }) = self.slots.remove(&number) {
            self.bytes -= bytes.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(bytes: usize) -> Block {
        Block::Here(Bytes::from(vec![0; bytes]))
    }

    #[test]
    fn the_block_unused_for_longest_goes_first() {
        let mut cache = Cache::new(30);
        for number in 0..3 {
            cache.put(number, block(10));
        }
        assert!(cache.get(0).is_some());
        cache.put(3, block(10));
        assert!(cache.knows(0) && !cache.knows(1) && cache.knows(2) && cache.knows(3));
        cache.put(3, block(5));
        assert_eq!(cache.bytes, 25);
        cache.put(4, block(31));
        assert_eq!((cache.bytes, cache.slots.len()), (0, 0));
    }
}
