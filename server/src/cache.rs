//! A cache in memory with a ceiling in bytes: what was asked for lately stays.
//!
//! The clock of Corbató: what is found is marked, the hand goes round, takes
//! marks away and lets go of what has none. So a hit changes nothing but a mark, and
//! readers do not wait for each other.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::{BuildHasher, Hash},
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

/// What a slot takes beside what is in it, roughly.
const SLOT_BYTES: usize = 64;

/// Values by key, up to a number of bytes.
#[derive(Debug)]
pub struct Cache<K, V> {
    most_bytes: usize,
    hasher: RandomState,
    slots: RwLock<Slots<K, V>>,
}

#[derive(Debug)]
struct Slots<K, V> {
    /// By the hash of the key, so that a key can be asked for by its parts.
    numbers: HashMap<u64, usize>,
    slots: Vec<Option<Slot<K, V>>>,
    free: Vec<usize>,
    hand: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Slot<K, V> {
    hash: u64,
    key: K,
    value: V,
    bytes: usize,
    marked: AtomicBool,
}

impl<K, V: Clone> Cache<K, V> {
    /// A cache of so many bytes.
    pub fn new(most_bytes: usize) -> Self {
        let (numbers, slots, free) = (HashMap::new(), Vec::new(), Vec::new());
        let slots = RwLock::new(Slots { numbers, slots, free, hand: 0, bytes: 0 });
        Self { most_bytes, hasher: RandomState::new(), slots }
    }

    /// The value of a key; `asked` hashes as the key does, `is` says whether a
    /// key is the one.
    pub fn get(&self, asked: &impl Hash, is: impl Fn(&K) -> bool) -> Option<V> {
        let hash = self.hasher.hash_one(asked);
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let slot = slots.slots.get(*slots.numbers.get(&hash)?)?.as_ref()?;
        if !is(&slot.key) {
            return None;
        }
        slot.marked.store(true, Ordering::Relaxed);
        Some(slot.value.clone())
    }

    /// Whether something so long is kept at all: it must leave room for others.
    pub fn takes(&self, bytes: usize) -> bool {
        bytes <= self.most_bytes / 8
    }

    /// Keeps a value that takes so many bytes with its key. `asked` hashes as
    /// those do who ask for it.
    pub fn put(&self, asked: &impl Hash, key: K, value: V, bytes: usize) {
        let bytes = bytes + SLOT_BYTES;
        if !self.takes(bytes) {
            return;
        }
        let hash = self.hasher.hash_one(asked);
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = slots.numbers.get(&hash).copied() {
            slots.remove(number);
        }
        slots.make_room(self.most_bytes - bytes);
        let slot = Some(Slot { hash, key, value, bytes, marked: AtomicBool::new(false) });
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
        slots.numbers.insert(hash, number);
        slots.bytes += bytes;
    }

    /// Bytes that are held.
    pub fn bytes(&self) -> usize {
        self.slots.read().unwrap_or_else(PoisonError::into_inner).bytes
    }
}

impl<K, V> Slots<K, V> {
    fn remove(&mut self, number: usize) {
        if let Some(slot) = self.slots[number].take() {
            self.bytes -= slot.bytes;
            self.numbers.remove(&slot.hash);
            self.free.push(number);
        }
    }

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
        let cache = Cache::new(16 * (100 + SLOT_BYTES));
        for number in 0..1000_u32 {
            cache.put(&number, number, number * 2, 100);
            cache.get(&0_u32, |key| *key == 0);
            assert!(cache.bytes() <= 16 * (100 + SLOT_BYTES));
        }
        let get = |number: u32| cache.get(&number, |key| *key == number);
        assert_eq!((get(0), get(999), get(1)), (Some(0), Some(1998), None));
        cache.put(&0_u32, 0, 7, 100);
        assert_eq!(get(0), Some(7), "the newer one");
        assert_eq!(cache.get(&0_u32, |_| false), None, "another key of that hash");
        cache.put(&5000_u32, 5000, 1, 10_000);
        assert_eq!(get(5000), None, "it would leave no room for others");
    }
}
