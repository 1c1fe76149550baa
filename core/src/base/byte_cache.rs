//! An in-memory cache with a limit in bytes.
//!
//! Eviction is Corbató's clock algorithm. A hit marks its entry. To make room, the clock hand goes
//! round the entries, clears marks, and evicts entries without a mark. A hit writes only an atomic
//! mark, under a read lock, so readers do not wait for each other.
//!
//! The crate `quick_cache` rejects an entry above its limit, and once it is full it evicts new
//! entries first, so it would drop a large frame that was just read.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::{BuildHasher, Hash},
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::RwLock;

/// Approximate memory of an entry in addition to its key and value, in bytes.
const OVERHEAD_BYTES: usize = 64;

/// The limits of a cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheLimits {
    /// Memory of all entries. The newest entry stays even if it alone exceeds this limit.
    pub total_bytes: usize,
    /// Memory of one entry. A larger one is not stored.
    pub entry_bytes: usize,
}

impl CacheLimits {
    /// Limits each entry to an eighth of the total, to leave room for other entries.
    pub const fn of_small_entries(total_bytes: usize) -> Self {
        Self { total_bytes, entry_bytes: total_bytes / 8 }
    }
}

/// Values by key, limited to a number of bytes in total.
#[derive(Debug)]
pub struct ByteCache<K, V> {
    limits: CacheLimits,
    hasher: RandomState,
    slots: RwLock<Slots<K, V>>,
}

#[derive(Debug)]
struct Slots<K, V> {
    /// Index of the slot, by the hash of its key. The key itself is stored only in the slot.
    slot_by_hash: HashMap<u64, usize>,
    slots: Vec<Option<CacheSlot<K, V>>>,
    /// Indices of empty slots, for reuse.
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

impl<K: Eq + Hash, V: Clone> ByteCache<K, V> {
    /// Creates an empty cache.
    pub fn new(limits: CacheLimits) -> Self {
        Self { limits, hasher: RandomState::new(), slots: RwLock::new(Slots::new()) }
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &K) -> Option<V> {
        let slots = self.slots.read();
        let slot = slots.find(self.hasher.hash_one(key), key)?;
        slot.marked.store(true, Ordering::Relaxed);
        Some(slot.value.clone())
    }

    /// Returns true if the key has a value. Does not count as a hit.
    pub fn contains(&self, key: &K) -> bool {
        self.slots.read().find(self.hasher.hash_one(key), key).is_some()
    }

    /// Stores a value, which takes `bytes` together with its key, and replaces the key's older
    /// value.
    pub fn insert(&self, key: K, value: V, bytes: usize) {
        let bytes = bytes.saturating_add(OVERHEAD_BYTES);
        let hash = self.hasher.hash_one(&key);
        let mut slots = self.slots.write();
        // This also evicts another key with the same hash, which costs only a cache miss.
        slots.remove_hash(hash);
        if bytes <= self.limits.entry_bytes {
            slots.make_room(self.limits.total_bytes.saturating_sub(bytes));
            slots.add(CacheSlot { hash, key, value, bytes, marked: AtomicBool::new(false) });
        }
    }

    /// Removes all entries.
    pub fn clear(&self) {
        *self.slots.write() = Slots::new();
    }
}

impl<K, V> Slots<K, V> {
    fn new() -> Self {
        let (slot_by_hash, slots, free) = (HashMap::new(), Vec::new(), Vec::new());
        Self { slot_by_hash, slots, free, hand: 0, bytes: 0 }
    }

    fn find(&self, hash: u64, key: &K) -> Option<&CacheSlot<K, V>>
    where
        K: Eq,
    {
        let slot = self.slots[*self.slot_by_hash.get(&hash)?].as_ref()?;
        (slot.key == *key).then_some(slot)
    }

    fn add(&mut self, slot: CacheSlot<K, V>) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slot_by_hash.insert(slot.hash, number);
        self.bytes += slot.bytes;
        self.slots[number] = Some(slot);
    }

    fn remove_hash(&mut self, hash: u64) {
        if let Some(number) = self.slot_by_hash.get(&hash) {
            self.remove(*number);
        }
    }

    fn remove(&mut self, number: usize) {
        if let Some(slot) = self.slots[number].take() {
            self.bytes -= slot.bytes;
            self.slot_by_hash.remove(&slot.hash);
            self.free.push(number);
        }
    }

    /// Evicts entries until at most `most_bytes` are in use. The caller holds the write lock, so no
    /// hit sets a mark meanwhile, and the hand evicts an entry within two rounds.
    fn make_room(&mut self, most_bytes: usize) {
        while self.bytes > most_bytes {
            let spared = self.slots[self.hand]
                .as_ref()
                .is_none_or(|slot| slot.marked.swap(false, Ordering::Relaxed));
            if !spared {
                self.remove(self.hand);
            }
            self.hand = (self.hand + 1) % self.slots.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of an entry whose value takes 100 bytes.
    const ENTRY_BYTES: usize = 100 + OVERHEAD_BYTES;

    fn cache(total_bytes: usize, entry_bytes: usize) -> ByteCache<u32, u32> {
        ByteCache::new(CacheLimits { total_bytes, entry_bytes })
    }

    #[test]
    fn a_recently_read_entry_stays_and_the_limit_holds() {
        let cache = cache(16 * ENTRY_BYTES, 2 * ENTRY_BYTES);
        for number in 0..1000 {
            cache.insert(number, number * 2, 100);
            cache.get(&0);
            assert!(cache.slots.read().bytes <= 16 * ENTRY_BYTES);
        }
        assert_eq!((cache.get(&0), cache.get(&999), cache.get(&1)), (Some(0), Some(1998), None));
        cache.insert(0, 7, 100);
        assert_eq!(cache.get(&0), Some(7), "the new value replaces the old one");
        assert_eq!(cache.slots.read().bytes, 16 * ENTRY_BYTES);
        cache.clear();
        assert_eq!((cache.get(&0), cache.slots.read().bytes), (None, 0));
    }

    #[test]
    fn the_least_recently_used_entry_is_evicted_first() {
        let cache = cache(3 * ENTRY_BYTES, ENTRY_BYTES);
        (0..3).for_each(|number| cache.insert(number, number, 100));
        assert_eq!(cache.get(&0), Some(0));
        assert!(cache.contains(&1), "this is no hit");
        cache.insert(3, 3, 100);
        assert_eq!([0, 1, 2, 3].map(|number| cache.contains(&number)), [true, false, true, true]);
        cache.insert(4, 4, 100);
        assert!(cache.contains(&0) && !cache.contains(&2), "the oldest entry goes next");
    }

    #[test]
    fn an_entry_above_the_entry_limit_is_not_stored() {
        let cache = cache(4 * ENTRY_BYTES, ENTRY_BYTES);
        cache.insert(0, 0, 100);
        cache.insert(1, 1, 101);
        assert_eq!((cache.get(&0), cache.get(&1)), (Some(0), None));
        cache.insert(0, 2, 101);
        assert_eq!(cache.get(&0), None, "the old value is not returned for the key");
    }

    #[test]
    fn the_newest_entry_stays_even_above_the_total_limit() {
        let cache = cache(ENTRY_BYTES, usize::MAX);
        (0..3).for_each(|number| cache.insert(number, number, 1000));
        assert_eq!([0, 1, 2].map(|number| cache.contains(&number)), [false, false, true]);
    }

    #[test]
    fn keys_with_the_same_hash_are_distinguished() {
        let cache = cache(2 * ENTRY_BYTES, ENTRY_BYTES);
        cache.insert(0, 0, 100);
        let hash = cache.hasher.hash_one(0_u32);
        assert!(cache.slots.read().find(hash, &1).is_none());
    }
}
