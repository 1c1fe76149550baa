//! Which ranges are announced, under way, here. Nothing here does I/O.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use snap_core::base::id::PackId;

use super::budget::{Budget, Count};
use crate::{ranges::ReadError, store::OBJECTS};

/// More is asked for once so many bytes may be: requests are not to be as short
/// as what was taken last.
const LEAST_BATCH_BYTES: u64 = 8 << 20;

/// Bytes that were taken and stay for others.
const SPENT_BYTES: u64 = 8 << 20;

/// When so many in a row had to be asked for out of turn, what is held is not
/// what is needed.
const OUT_OF_TURN: u32 = 8;

/// Where nobody has read for so long, nobody comes for what is there when others
/// need the room.
const IDLE: Duration = Duration::from_secs(10);

/// A range of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) pack: PackId,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Key {
    /// None that anybody asks for.
    pub(super) const NONE: Self = Self { pack: PackId::from_bytes([0; 32]), start: 1, end: 0 };

    pub(super) fn bytes(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    pub(super) fn object(self) -> String {
        format!("{OBJECTS}{}", self.pack)
    }
}

/// How far a range is.
#[derive(Debug)]
enum Phase {
    /// Announced.
    Queued,
    UnderWay,
    /// Came, and waits to be taken.
    Here(Arc<Vec<u8>>),
    /// Was taken.
    Spent(Arc<Vec<u8>>),
    /// Of interest to those who waited.
    Failed(ReadError),
}

#[derive(Debug)]
struct Slot {
    phase: Phase,
    /// Threads that wait for it.
    waiting: usize,
}

/// What whoever reads a range shall do.
pub(super) enum Look {
    Here(Arc<Vec<u8>>),
    Failed(ReadError),
    /// Send a request for it, and wait.
    Start,
    /// Wait.
    UnderWay,
}

/// Ranges, and how far each is.
#[derive(Debug)]
pub(super) struct Held {
    slots: HashMap<Key, Slot>,
    /// In order of need; some may not be queued any more.
    queue: VecDeque<Key>,
    queued_bytes: u64,
    spent: VecDeque<Key>,
    spent_bytes: Count,
    /// Of ranges that are under way or here.
    held_bytes: Count,
    most_bytes: u64,
    out_of_turn: u32,
    /// When somebody last announced or read something.
    used: Instant,
}

impl Held {
    /// Holds so many bytes at most, which count in a budget as well.
    pub(super) fn new(most_bytes: u64, budget: &Budget) -> Self {
        Self {
            slots: HashMap::new(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            spent: VecDeque::new(),
            spent_bytes: budget.count(),
            held_bytes: budget.count(),
            most_bytes,
            out_of_turn: 0,
            used: Instant::now(),
        }
    }

    /// When somebody last announced or read something.
    pub(super) fn used(&self) -> Instant {
        self.used
    }

    /// Takes note of a range that will be read.
    pub(super) fn announce(&mut self, key: Key) {
        self.used = Instant::now();
        if key.bytes() > 0 && !self.slots.contains_key(&key) {
            self.slots.insert(key, Slot { phase: Phase::Queued, waiting: 0 });
            self.queue.push_back(key);
            self.queued_bytes += key.bytes();
        }
    }

    /// Whether anything was announced that is not under way.
    pub(super) fn has_queued(&self) -> bool {
        self.queued_bytes > 0
    }

    /// Bytes that would be asked for now if others left room for them.
    pub(super) fn wanted_bytes(&self) -> u64 {
        match (self.queued_bytes, self.most_bytes.saturating_sub(self.held_bytes.bytes)) {
            // One that is too long goes alone.
            (queued, _) if self.held_bytes.bytes == 0 => queued.min(self.most_bytes.max(1)),
            (queued, room) => queued.min(room),
        }
    }

    /// Ranges to ask for now, as others leave so much room; they are under way
    /// from here on.
    pub(super) fn next_batch(&mut self, others_leave: u64) -> Vec<Key> {
        let held = self.held_bytes.bytes;
        let room = self.most_bytes.saturating_sub(held).min(others_leave);
        let worth_it = room >= LEAST_BATCH_BYTES.min(self.queued_bytes) || held == 0;
        let mut batch = Vec::new();
        let mut bytes = 0;
        while worth_it && let Some(key) = self.queue.front().copied() {
            if !self.is_queued(key) {
                self.queue.pop_front();
                continue;
            }
            // One that is longer than all the room there is goes alone.
            let alone = held == 0 && batch.is_empty() && key.bytes() <= others_leave;
            if bytes + key.bytes() > room && !alone {
                break;
            }
            self.queue.pop_front();
            bytes += key.bytes();
            batch.push(key);
        }
        batch.iter().for_each(|key| self.set_under_way(*key));
        batch
    }

    fn is_queued(&self, key: Key) -> bool {
        self.slots.get(&key).is_some_and(|slot| matches!(slot.phase, Phase::Queued))
    }

    fn set_under_way(&mut self, key: Key) {
        if self.is_queued(key) {
            self.queued_bytes -= key.bytes();
        }
        let slot = self.slots.entry(key).or_insert(Slot { phase: Phase::Queued, waiting: 0 });
        slot.phase = Phase::UnderWay;
        self.held_bytes.add(key.bytes());
    }

    /// What to do for a thread that reads a range, and did or did not wait for
    /// it before. It counts as waiting until it is told [`Look::Here`] or
    /// [`Look::Failed`].
    pub(super) fn look(&mut self, key: Key, waited: bool) -> Look {
        self.used = Instant::now();
        let Some(slot) = self.slots.get_mut(&key) else {
            // Of one that was waited for, nothing is left: somebody took it.
            self.set_under_way(key);
            self.wait(key);
            return Look::Start;
        };
        let waiting = slot.waiting - usize::from(waited);
        match &slot.phase {
            Phase::Queued => {
                self.step_aside();
                self.set_under_way(key);
                self.wait(key);
                Look::Start
            }
            Phase::UnderWay => {
                slot.waiting = waiting + 1;
                Look::UnderWay
            }
            Phase::Spent(bytes) => {
                slot.waiting = waiting;
                Look::Here(Arc::clone(bytes))
            }
            Phase::Failed(error) => {
                let error = error.clone();
                slot.waiting = waiting;
                if waiting == 0 {
                    self.slots.remove(&key);
                }
                Look::Failed(error)
            }
            Phase::Here(bytes) => {
                let bytes = Arc::clone(bytes);
                slot.waiting = waiting;
                slot.phase = Phase::Spent(Arc::clone(&bytes));
                self.out_of_turn = 0;
                self.held_bytes.remove(key.bytes());
                self.spent_bytes.add(key.bytes());
                self.spent.push_back(key);
                self.trim_spent();
                Look::Here(bytes)
            }
        }
    }

    fn wait(&mut self, key: Key) {
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.waiting += 1;
        }
    }

    /// A thread that waited has given up.
    pub(super) fn wait_no_more(&mut self, key: Key) {
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.waiting -= 1;
            if slot.waiting == 0 && matches!(slot.phase, Phase::Failed(_)) {
                self.slots.remove(&key);
            }
        }
    }

    /// Lets go of what nobody seems to need, when others had to be asked for
    /// out of turn again and again.
    fn step_aside(&mut self) {
        self.out_of_turn += 1;
        if self.out_of_turn >= OUT_OF_TURN {
            self.out_of_turn = 0;
            self.take_unread();
        }
    }

    /// Takes out what is here and was never read.
    pub(super) fn take_unread(&mut self) -> Vec<(PackId, Range<u64>, Arc<Vec<u8>>)> {
        let mut unread = Vec::new();
        self.slots.retain(|key, slot| match &slot.phase {
            Phase::Here(bytes) if slot.waiting == 0 => {
                self.held_bytes.remove(key.bytes());
                unread.push((key.pack, key.start..key.end, Arc::clone(bytes)));
                false
            }
            _ => true,
        });
        unread
    }

    /// Forgets what was taken, unless somebody waits for it.
    pub(super) fn let_go(&mut self, key: Key) {
        let is_over = |slot: &Slot| slot.waiting == 0 && matches!(slot.phase, Phase::Spent(_));
        if self.slots.get(&key).is_some_and(is_over) {
            self.slots.remove(&key);
            self.spent.retain(|other| *other != key);
            self.spent_bytes.remove(key.bytes());
        }
    }

    fn trim_spent(&mut self) {
        while self.spent_bytes.bytes > SPENT_BYTES && self.spent.len() > 1 {
            if !self.let_go_oldest() {
                return;
            }
        }
    }

    /// Forgets what was taken first, unless somebody waits for it.
    fn let_go_oldest(&mut self) -> bool {
        let Some(key) = self.spent.pop_front() else { return false };
        let is_wanted = self.slots.get(&key).is_some_and(|slot| slot.waiting > 0);
        if is_wanted {
            // Those who wait are about to take it.
            self.spent.push_back(key);
            return false;
        }
        self.slots.remove(&key);
        self.spent_bytes.remove(key.bytes());
        true
    }

    /// Lets go of so many bytes, if so much can go: what was taken, and where
    /// nobody reads any more what was announced.
    pub(super) fn make_room(&mut self, bytes: u64) {
        let before = self.spent_bytes.bytes;
        for _ in 0..self.spent.len() {
            if before - self.spent_bytes.bytes >= bytes {
                return;
            }
            self.let_go_oldest();
        }
        if before - self.spent_bytes.bytes < bytes && self.used.elapsed() >= IDLE {
            self.take_unread();
            self.slots.retain(|_, slot| !matches!(slot.phase, Phase::Queued));
            self.queue.clear();
            self.queued_bytes = 0;
        }
    }

    /// A request has come to its end.
    pub(super) fn arrive(&mut self, key: Key, result: Result<Arc<Vec<u8>>, ReadError>) {
        let Some(slot) = self.slots.get_mut(&key) else { return };
        match result {
            Ok(bytes) => slot.phase = Phase::Here(bytes),
            Err(error) => {
                self.held_bytes.remove(key.bytes());
                match slot.waiting {
                    // Whoever needs it tries again.
                    0 => drop(self.slots.remove(&key)),
                    _ => slot.phase = Phase::Failed(error),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn key(number: u64) -> Key {
        Key { pack: PackId::from_bytes([1; 32]), start: number * MIB, end: (number + 1) * MIB }
    }

    fn held(announced: u64) -> Held {
        let mut held = Held::new(16 * MIB, &Budget::new(u64::MAX));
        (0..announced).for_each(|number| held.announce(key(number)));
        held
    }

    fn come(held: &mut Held, keys: &[Key]) {
        keys.iter().for_each(|key| held.arrive(*key, Ok(Arc::new(vec![0; MIB as usize]))));
    }

    fn is_here(look: &Look) -> bool {
        matches!(look, Look::Here(_))
    }

    #[test]
    fn more_is_asked_for_when_there_is_room_for_a_long_request() {
        let mut held = held(40);
        let first = held.next_batch(u64::MAX);
        assert_eq!(first.len(), 16);
        assert!(held.next_batch(u64::MAX).is_empty());
        come(&mut held, &first);
        for (at, key) in first.iter().enumerate() {
            let batch = held.next_batch(u64::MAX);
            assert_eq!(batch.is_empty(), at != 8, "{at}");
            assert!(is_here(&held.look(*key, false)));
        }
        assert!(held.has_queued());
    }

    #[test]
    fn what_is_too_long_goes_alone() {
        let mut held = Held::new(MIB, &Budget::new(u64::MAX));
        let long = Key { pack: PackId::from_bytes([1; 32]), start: 0, end: 30 * MIB };
        held.announce(long);
        held.announce(key(50));
        assert_eq!(held.next_batch(u64::MAX), [long]);
        assert!(held.next_batch(u64::MAX).is_empty());
    }

    #[test]
    fn what_nobody_reads_makes_room_for_what_somebody_does() {
        let mut held = held(60);
        let first = held.next_batch(u64::MAX);
        come(&mut held, &first);
        assert!(held.next_batch(u64::MAX).is_empty());
        for number in 30..30 + u64::from(OUT_OF_TURN) {
            assert!(matches!(held.look(key(number), false), Look::Start));
        }
        assert!(!held.next_batch(u64::MAX).is_empty());
        // Should it be wanted after all, it is asked for again.
        assert!(matches!(held.look(key(0), false), Look::Start));
    }

    #[test]
    fn an_error_is_told_to_those_who_waited_and_then_forgotten() {
        let mut held = held(1);
        held.next_batch(u64::MAX);
        assert!(matches!(held.look(key(0), false), Look::UnderWay));
        assert!(matches!(held.look(key(0), false), Look::UnderWay));
        held.arrive(key(0), Err(ReadError::Stopped));
        assert!(matches!(held.look(key(0), true), Look::Failed(_)));
        assert!(matches!(held.look(key(0), true), Look::Failed(_)));
        assert!(matches!(held.look(key(0), false), Look::Start));
        held.arrive(key(0), Err(ReadError::Stopped));
        held.wait_no_more(key(0));
        assert!(held.slots.is_empty());
        assert_eq!(held.held_bytes.bytes, 0);
    }

    #[test]
    fn what_was_taken_is_let_go_unless_somebody_waits_for_it() {
        let mut held = held(1);
        let batch = held.next_batch(u64::MAX);
        assert!(matches!(held.look(key(0), false), Look::UnderWay));
        assert!(matches!(held.look(key(0), false), Look::UnderWay));
        held.let_go(key(0));
        come(&mut held, &batch);
        held.let_go(key(0));
        assert!(is_here(&held.look(key(0), true)));
        held.let_go(key(0));
        assert!(is_here(&held.look(key(0), true)));
        held.let_go(key(0));
        assert!(held.slots.is_empty() && held.spent.is_empty());
        assert_eq!((held.spent_bytes.bytes, held.held_bytes.bytes), (0, 0));
    }

    #[test]
    fn what_was_taken_stays_for_a_while() {
        let mut held = held(16);
        let batch = held.next_batch(u64::MAX);
        come(&mut held, &batch);
        for key in &batch {
            assert!(is_here(&held.look(*key, false)));
            assert!(is_here(&held.look(*key, false)));
        }
        assert!(matches!(held.look(batch[0], false), Look::Start));
        assert!(held.spent_bytes.bytes <= SPENT_BYTES);
    }
    #[test]
    fn what_others_need_is_let_go_but_for_what_somebody_comes_for() {
        let budget = Budget::new(u64::MAX);
        let mut held = Held::new(4 * MIB, &budget);
        (0..6).for_each(|number| held.announce(key(number)));
        assert!(held.next_batch(MIB / 2).is_empty());
        let batch = held.next_batch(3 * MIB);
        assert_eq!((batch.len(), budget.held_bytes()), (3, 3 * MIB));
        come(&mut held, &batch);
        assert!(is_here(&held.look(key(0), false)) && is_here(&held.look(key(1), false)));
        held.make_room(MIB);
        assert_eq!((budget.held_bytes(), held.spent.len()), (2 * MIB, 1));
        held.make_room(4 * MIB);
        assert_eq!(budget.held_bytes(), MIB, "somebody reads");
        held.used = held.used.checked_sub(IDLE).unwrap();
        held.make_room(4 * MIB);
        assert!(held.slots.is_empty() && !held.has_queued());
        assert_eq!(budget.held_bytes(), 0);
        let _ = held.look(key(2), false);
        drop(held);
        assert_eq!(budget.held_bytes(), 0);
    }
}
