//! An in-memory cache with a limit in bytes.
//!
//! Eviction is Corbató's clock algorithm. A hit marks its entry. To make room, the hand
//! goes round the entries, clears marks, and evicts entries that have none. A hit writes
//! only an atomic mark, under a read lock, so readers do not wait for each other.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::{BuildHasher, Hash},
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::RwLock;

/// Approximate overhead of an entry, in bytes, beside the value itself.
const SLOT_BYTES: usize = 64;

/// Values by key, limited to a number of bytes in total.
#[derive(Debug)]
pub struct ClockCache<K, V> {
    most_bytes: usize,
    hasher: RandomState,
    slots: RwLock<Slots<K, V>>,
}

#[derive(Debug)]
struct Slots<K, V> {
    /// Index of the slot, by the hash of its key, so that a key can be looked up by its
    /// parts.
    slot_by_hash: HashMap<u64, usize>,
    slots: Vec<Option<CacheSlot<K, V>>>,
    /// Indices of empty slots, which are used again.
    free: Vec<usize>,
    /// Index of the slot that the clock hand is at.
    hand: usize,
    /// Bytes of all entries, with their overhead.
    bytes: usize,
}

#[derive(Debug)]
struct CacheSlot<K, V> {
    hash: u64,
    key: K,
    value: V,
    bytes: usize,
    /// Set by a hit, cleared by the clock hand.
    marked: AtomicBool,
}

impl<K, V: Clone> ClockCache<K, V> {
    /// Creates a cache of at most `most_bytes`.
    pub fn new(most_bytes: usize) -> Self {
        let (numbers, slots, free) = (HashMap::new(), Vec::new(), Vec::new());
        let slots = RwLock::new(Slots { slot_by_hash: numbers, slots, free, hand: 0, bytes: 0 });
        Self { most_bytes, hasher: RandomState::new(), slots }
    }

    /// Returns the value of a key. `query` must hash as the key does. `is_key` returns true for the
    /// right key, since two keys may have the same hash.
    pub fn get(&self, query: &impl Hash, is_key: impl Fn(&K) -> bool) -> Option<V> {
        let hash = self.hasher.hash_one(query);
        let slots = self.slots.read();
        let slot = slots.slots.get(*slots.slot_by_hash.get(&hash)?)?.as_ref()?;
        if !is_key(&slot.key) {
            return None;
        }
        slot.marked.store(true, Ordering::Relaxed);
        Some(slot.value.clone())
    }

    /// Returns true if a value of this size is cached at all: it must leave room for
    /// others.
    pub fn fits(&self, bytes: usize) -> bool {
        bytes <= self.most_bytes / 8
    }

    /// Stores a value that takes `bytes` together with its key, and replaces an older one.
    /// `query` must hash as the argument of [`get`](Self::get). A value that is [too
    /// large](Self::fits) is not stored.
    pub fn put(&self, query: &impl Hash, key: K, value: V, bytes: usize) {
        let bytes = bytes + SLOT_BYTES;
        if !self.fits(bytes) {
            return;
        }
        let hash = self.hasher.hash_one(query);
        let mut slots = self.slots.write();
        if let Some(number) = slots.slot_by_hash.get(&hash).copied() {
            slots.remove(number);
        }
        slots.make_room(self.most_bytes - bytes);
        let slot = Some(CacheSlot { hash, key, value, bytes, marked: AtomicBool::new(false) });
        let number = match slots.free.pop() {
            Some(number) => {
                slots.slots[number] = slot;
                number
            }
            None => {
                slots.slots.push(slot);
                slots.slots.len() - 1
            }
        };
        slots.slot_by_hash.insert(hash, number);
        slots.bytes += bytes;
    }

    /// Returns the bytes in use.
    pub fn bytes(&self) -> usize {
        self.slots.read().bytes
    }
}

impl<K, V> Slots<K, V> {
    fn remove(&mut self, number: usize) {
        if let Some(slot) = self.slots[number].take() {
            self.bytes -= slot.bytes;
            self.slot_by_hash.remove(&slot.hash);
            self.free.push(number);
        }
    }

    /// Evicts entries until at most `most_bytes` are in use. The write lock is held, so no
    /// hit sets a mark meanwhile, and the hand evicts something within two rounds.
    fn make_room(&mut self, most_bytes: usize) {
        while self.bytes > most_bytes {
            self.hand = if self.hand + 1 < self.slots.len() { self.hand + 1 } else { 0 };
            let spared = self.slots[self.hand]
                .as_ref()
                .is_none_or(|slot| slot.marked.swap(false, Ordering::Relaxed));
            if !spared {
                self.remove(self.hand);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_and_the_ceiling_holds() {
        let cache = ClockCache::new(16 * (100 + SLOT_BYTES));
        for number in 0..1000_u32 {
            cache.put(&number, number, number * 2, 100);
            cache.get(&0_u32, |key| *key == 0);
            assert!(cache.bytes() <= 16 * (100 + SLOT_BYTES));
        }
        let get = |number: u32| cache.get(&number, |key| *key == number);
        assert_eq!((get(0), get(999), get(1)), (Some(0), Some(1998), None));
        cache.put(&0_u32, 0, 7, 100);
        assert_eq!(get(0), Some(7), "the new value replaces the old one");
        assert_eq!(cache.get(&0_u32, |_| false), None, "another key with the same hash");
        cache.put(&5000_u32, 5000, 1, 10_000);
        assert_eq!(get(5000), None, "it is too large to be cached");
    }
}
