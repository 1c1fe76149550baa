//! The state of each prefetched range: announced, in flight, fetched or read. No I/O.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use snap_core::base::id::PackId;

use super::budget::{HeldBytes, PrefetchBudget};
use crate::ranges::ReadError;

/// Minimum room for the next batch. With less, each request would be as short as the last read
/// range.
const LEAST_BATCH_BYTES: u64 = 8 << 20;

/// Capacity of the cache for ranges that one reader has already read.
const SPENT_BYTES: u64 = 8 << 20;

/// Number of reads in a row that bypass the queue, after which prefetched ranges count as unneeded
/// and are dropped.
const OUT_OF_TURN: u32 = 8;

/// Time without a read after which other members of the budget may evict prefetched ranges.
const IDLE: Duration = Duration::from_secs(10);

/// A range of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PackRange {
    pub(crate) pack: PackId,
    start: u64,
    end: u64,
}

impl PackRange {
    /// A placeholder for a range that has arrived. No request has this empty range.
    pub(super) const NONE: Self = Self { pack: PackId::from_bytes([0; 32]), start: 1, end: 0 };

    pub(super) fn new(pack: PackId, range: &Range<u64>) -> Self {
        Self { pack, start: range.start, end: range.end.max(range.start) }
    }

    pub(crate) fn range(self) -> Range<u64> {
        self.start..self.end
    }

    pub(super) fn bytes(self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

#[derive(Debug)]
enum RangeState {
    /// Announced, but not requested yet.
    Queued,
    InFlight,
    /// Fetched, but not read yet.
    Fetched(Arc<Vec<u8>>),
    /// Read at least once; kept in the cache for other readers.
    Read(Arc<Vec<u8>>),
    /// Failed. The error stays until every waiting thread has received it.
    Failed(ReadError),
}

#[derive(Debug)]
struct TrackedRange {
    phase: RangeState,
    /// Number of threads that wait for the range.
    waiting: usize,
}

/// The next step for a thread that reads a range.
pub(super) enum ReadStep {
    Fetched(Arc<Vec<u8>>),
    Failed(ReadError),
    /// The thread must send a request, then wait.
    Request,
    /// A request is in flight: the thread must only wait.
    InFlight,
}

/// All known ranges and their states.
#[derive(Debug)]
pub(super) struct PrefetchState {
    slots: HashMap<PackRange, TrackedRange>,
    /// Announced ranges in order of need. An entry is stale if its range is no longer
    /// queued.
    queue: VecDeque<PackRange>,
    queued_bytes: u64,
    /// Read ranges, oldest first: the order of eviction.
    spent: VecDeque<PackRange>,
    spent_bytes: HeldBytes,
    /// Bytes of ranges that are in flight or fetched but not read.
    held_bytes: HeldBytes,
    most_bytes: u64,
    /// Number of reads in a row that had to bypass the queue.
    out_of_turn: u32,
    /// Time of the last announcement or read.
    pub(super) used: Instant,
}

impl PrefetchState {
    /// Creates a state that holds at most `most_bytes` bytes, which also count in `budget`.
    pub(super) fn new(most_bytes: u64, budget: &PrefetchBudget) -> Self {
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

    /// Queues a range that will be read.
    pub(super) fn announce(&mut self, key: PackRange) {
        self.used = Instant::now();
        if key.bytes() > 0 && !self.slots.contains_key(&key) {
            self.slots.insert(key, TrackedRange { phase: RangeState::Queued, waiting: 0 });
            self.queue.push_back(key);
            self.queued_bytes += key.bytes();
        }
    }

    /// Returns true if an announced range has not been requested yet.
    pub(super) fn has_queued(&self) -> bool {
        self.queued_bytes > 0
    }

    /// Returns the number of bytes to request now if the budget has enough room.
    pub(super) fn wanted_bytes(&self) -> u64 {
        match (self.queued_bytes, self.most_bytes.saturating_sub(self.held_bytes.bytes)) {
            // If a range is longer than the limit, request only this range.
            (queued, _) if self.held_bytes.bytes == 0 => queued.min(self.most_bytes.max(1)),
            (queued, room) => queued.min(room),
        }
    }

    /// Returns the ranges to request now if the budget has `others_leave` free bytes, and
    /// marks them as in flight.
    pub(super) fn next_batch(&mut self, others_leave: u64) -> Vec<PackRange> {
        let held = self.held_bytes.bytes;
        let room = self.most_bytes.saturating_sub(held).min(others_leave);
        // Request nothing until there is room for a long batch. If no range is held, no read can
        // release room, so request what fits.
        let worth_it = room >= LEAST_BATCH_BYTES.min(self.queued_bytes) || held == 0;
        let mut batch = Vec::new();
        let mut bytes = 0;
        while worth_it && let Some(key) = self.queue.front().copied() {
            if !self.is_queued(key) {
                self.queue.pop_front();
                continue;
            }
            // If a range is longer than the whole limit, request only this range.
            let alone = held == 0 && batch.is_empty() && key.bytes() <= others_leave;
            if bytes + key.bytes() > room && !alone {
                break;
            }
            self.queue.pop_front();
            bytes += key.bytes();
            batch.push(key);
        }
        batch.iter().for_each(|key| self.set_in_flight(*key));
        batch
    }

    fn is_queued(&self, key: PackRange) -> bool {
        self.slots.get(&key).is_some_and(|slot| matches!(slot.phase, RangeState::Queued))
    }

    fn set_in_flight(&mut self, key: PackRange) {
        if self.is_queued(key) {
            self.queued_bytes -= key.bytes();
        }
        let slot =
            self.slots.entry(key).or_insert(TrackedRange { phase: RangeState::Queued, waiting: 0 });
        slot.phase = RangeState::InFlight;
        self.held_bytes.add(key.bytes());
    }

    /// Returns the next step for a thread that reads `key`. `waited` is true if the thread already
    /// counts as waiting.
    ///
    /// The thread counts as waiting until it receives [`ReadStep::Fetched`] or
    /// [`ReadStep::Failed`].
    pub(super) fn next_step(&mut self, key: PackRange, waited: bool) -> ReadStep {
        self.used = Instant::now();
        let Some(slot) = self.slots.get_mut(&key) else {
            // The range is unknown, or was evicted after another reader took it.
            self.set_in_flight(key);
            self.wait(key);
            return ReadStep::Request;
        };
        let waiting = slot.waiting - usize::from(waited);
        match &slot.phase {
            RangeState::Queued => {
                slot.waiting = waiting;
                self.cancel_unread();
                self.set_in_flight(key);
                self.wait(key);
                ReadStep::Request
            }
            RangeState::InFlight => {
                slot.waiting = waiting + 1;
                ReadStep::InFlight
            }
            RangeState::Read(bytes) => {
                slot.waiting = waiting;
                ReadStep::Fetched(Arc::clone(bytes))
            }
            RangeState::Failed(error) => {
                let error = error.clone();
                slot.waiting = waiting;
                if waiting == 0 {
                    self.slots.remove(&key);
                }
                ReadStep::Failed(error)
            }
            RangeState::Fetched(bytes) => {
                let bytes = Arc::clone(bytes);
                slot.waiting = waiting;
                slot.phase = RangeState::Read(Arc::clone(&bytes));
                self.out_of_turn = 0;
                self.held_bytes.remove(key.bytes());
                self.spent_bytes.add(key.bytes());
                self.spent.push_back(key);
                self.trim_spent();
                ReadStep::Fetched(bytes)
            }
        }
    }

    fn wait(&mut self, key: PackRange) {
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.waiting += 1;
        }
    }

    /// Removes a thread that has given up from the count of waiting threads.
    pub(super) fn end_wait(&mut self, key: PackRange) {
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.waiting -= 1;
            if slot.waiting == 0 && matches!(slot.phase, RangeState::Failed(_)) {
                self.slots.remove(&key);
            }
        }
    }

    /// Counts a read that had to bypass the queue. After [`OUT_OF_TURN`] of them in a row,
    /// drops the fetched ranges that no thread has read.
    fn cancel_unread(&mut self) {
        self.out_of_turn += 1;
        if self.out_of_turn >= OUT_OF_TURN {
            self.out_of_turn = 0;
            self.take_unread();
        }
    }

    /// Removes and returns the fetched ranges that no thread has read or waits for.
    pub(super) fn take_unread(&mut self) -> Vec<(PackRange, Arc<Vec<u8>>)> {
        let mut unread = Vec::new();
        self.slots.retain(|key, slot| match &slot.phase {
            RangeState::Fetched(bytes) if slot.waiting == 0 => {
                self.held_bytes.remove(key.bytes());
                unread.push((*key, Arc::clone(bytes)));
                false
            }
            _ => true,
        });
        unread
    }

    /// Removes a read range from the cache, unless a thread waits for it.
    pub(super) fn evict(&mut self, key: PackRange) {
        let is_over =
            |slot: &TrackedRange| slot.waiting == 0 && matches!(slot.phase, RangeState::Read(_));
        if self.slots.get(&key).is_some_and(is_over) {
            self.slots.remove(&key);
            self.spent.retain(|other| *other != key);
            self.spent_bytes.remove(key.bytes());
        }
    }

    /// Removes a range whose bytes a reader found damaged. Threads that still wait for the range do
    /// not get these bytes: the first such thread sends a new request.
    pub(super) fn discard(&mut self, key: PackRange) {
        let Some(slot) = self.slots.get_mut(&key) else { return };
        // After another fetch of the range, the new bytes are not known to be damaged.
        if !matches!(slot.phase, RangeState::Read(_)) {
            return;
        }
        if slot.waiting > 0 {
            slot.phase = RangeState::Queued;
            self.queue.push_front(key);
            self.queued_bytes += key.bytes();
        } else {
            self.slots.remove(&key);
        }
        self.spent.retain(|other| *other != key);
        self.spent_bytes.remove(key.bytes());
    }

    fn trim_spent(&mut self) {
        while self.spent_bytes.bytes > SPENT_BYTES && self.spent.len() > 1 {
            if !self.evict_oldest() {
                return;
            }
        }
    }

    /// Evicts the oldest read range. Returns false if a thread waits for it.
    fn evict_oldest(&mut self) -> bool {
        let Some(key) = self.spent.pop_front() else { return false };
        let is_wanted = self.slots.get(&key).is_some_and(|slot| slot.waiting > 0);
        if is_wanted {
            // The waiting threads will read it now.
            self.spent.push_back(key);
            return false;
        }
        self.slots.remove(&key);
        self.spent_bytes.remove(key.bytes());
        true
    }

    /// Evicts about `bytes` bytes of read ranges. If they are not enough and no thread has read for
    /// [`IDLE`], also drops every unread range and every announcement.
    pub(super) fn make_room(&mut self, bytes: u64) {
        let before = self.spent_bytes.bytes;
        for _ in 0..self.spent.len() {
            if before - self.spent_bytes.bytes >= bytes {
                return;
            }
            self.evict_oldest();
        }
        if before - self.spent_bytes.bytes < bytes && self.used.elapsed() >= IDLE {
            self.take_unread();
            self.slots.retain(|_, slot| !matches!(slot.phase, RangeState::Queued));
            self.queue.clear();
            self.queued_bytes = 0;
        }
    }

    /// Stores the result of a request and releases the bytes of a failed one.
    pub(super) fn arrive(&mut self, key: PackRange, result: Result<Arc<Vec<u8>>, ReadError>) {
        let Some(slot) = self.slots.get_mut(&key) else { return };
        match result {
            Ok(bytes) => slot.phase = RangeState::Fetched(bytes),
            Err(error) => {
                self.held_bytes.remove(key.bytes());
                match slot.waiting {
                    // The next reader of the range sends a new request.
                    0 => drop(self.slots.remove(&key)),
                    _ => slot.phase = RangeState::Failed(error),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn key(number: u64) -> PackRange {
        PackRange {
            pack: PackId::from_bytes([1; 32]),
            start: number * MIB,
            end: (number + 1) * MIB,
        }
    }

    fn held(announced: u64) -> PrefetchState {
        let mut held = PrefetchState::new(16 * MIB, &PrefetchBudget::new(u64::MAX));
        (0..announced).for_each(|number| held.announce(key(number)));
        held
    }

    fn come(held: &mut PrefetchState, keys: &[PackRange]) {
        keys.iter().for_each(|key| held.arrive(*key, Ok(Arc::new(vec![0; MIB as usize]))));
    }

    fn is_here(look: &ReadStep) -> bool {
        matches!(look, ReadStep::Fetched(_))
    }

    #[test]
    fn more_ranges_are_requested_once_a_long_request_fits() {
        let mut held = held(40);
        let first = held.next_batch(u64::MAX);
        assert_eq!(first.len(), 16);
        assert!(held.next_batch(u64::MAX).is_empty());
        come(&mut held, &first);
        for (at, key) in first.iter().enumerate() {
            let batch = held.next_batch(u64::MAX);
            assert_eq!(batch.is_empty(), at != 8, "{at}");
            assert!(is_here(&held.next_step(*key, false)));
        }
        assert!(held.has_queued());
    }

    #[test]
    fn a_range_longer_than_the_limit_is_requested_alone() {
        let mut held = PrefetchState::new(MIB, &PrefetchBudget::new(u64::MAX));
        let long = PackRange { pack: PackId::from_bytes([1; 32]), start: 0, end: 30 * MIB };
        held.announce(long);
        held.announce(key(50));
        assert_eq!(held.next_batch(u64::MAX), [long]);
        assert!(held.next_batch(u64::MAX).is_empty());
    }

    #[test]
    fn unread_ranges_are_dropped_for_reads_out_of_order() {
        let mut held = held(60);
        let first = held.next_batch(u64::MAX);
        come(&mut held, &first);
        assert!(held.next_batch(u64::MAX).is_empty());
        for number in 30..30 + u64::from(OUT_OF_TURN) {
            assert!(matches!(held.next_step(key(number), false), ReadStep::Request));
        }
        assert!(!held.next_batch(u64::MAX).is_empty());
        // The next read of a dropped range requests it again.
        assert!(matches!(held.next_step(key(0), false), ReadStep::Request));
    }

    #[test]
    fn all_waiting_reads_get_the_error_and_later_ones_retry() {
        let mut held = held(1);
        held.next_batch(u64::MAX);
        assert!(matches!(held.next_step(key(0), false), ReadStep::InFlight));
        assert!(matches!(held.next_step(key(0), false), ReadStep::InFlight));
        held.arrive(key(0), Err(ReadError::Stopped));
        assert!(matches!(held.next_step(key(0), true), ReadStep::Failed(_)));
        assert!(matches!(held.next_step(key(0), true), ReadStep::Failed(_)));
        assert!(matches!(held.next_step(key(0), false), ReadStep::Request));
        held.arrive(key(0), Err(ReadError::Stopped));
        held.end_wait(key(0));
        assert!(held.slots.is_empty());
        assert_eq!(held.held_bytes.bytes, 0);
    }

    #[test]
    fn a_read_range_is_evicted_once_no_thread_waits_for_it() {
        let mut held = held(1);
        let batch = held.next_batch(u64::MAX);
        assert!(matches!(held.next_step(key(0), false), ReadStep::InFlight));
        assert!(matches!(held.next_step(key(0), false), ReadStep::InFlight));
        held.evict(key(0));
        come(&mut held, &batch);
        held.evict(key(0));
        assert!(is_here(&held.next_step(key(0), true)));
        held.evict(key(0));
        assert!(is_here(&held.next_step(key(0), true)));
        held.evict(key(0));
        assert!(held.slots.is_empty() && held.spent.is_empty());
        assert_eq!((held.spent_bytes.bytes, held.held_bytes.bytes), (0, 0));
    }

    #[test]
    fn one_waiting_read_requests_a_damaged_range_again() {
        let mut held = held(1);
        let batch = held.next_batch(u64::MAX);
        assert!(matches!(held.next_step(key(0), false), ReadStep::InFlight));
        assert!(matches!(held.next_step(key(0), false), ReadStep::InFlight));
        come(&mut held, &batch);
        assert!(is_here(&held.next_step(key(0), true)));
        held.discard(key(0));
        assert!(matches!(held.next_step(key(0), true), ReadStep::Request));
        // The bytes are new, not the damaged ones.
        come(&mut held, &batch);
        held.discard(key(0));
        assert!(is_here(&held.next_step(key(0), true)));
        held.discard(key(0));
        assert!(held.slots.is_empty() && held.spent.is_empty() && !held.has_queued());
        assert_eq!((held.spent_bytes.bytes, held.held_bytes.bytes), (0, 0));
        assert!(matches!(held.next_step(key(0), false), ReadStep::Request));
    }

    #[test]
    fn read_ranges_stay_cached_within_a_limit() {
        let mut held = held(16);
        let batch = held.next_batch(u64::MAX);
        come(&mut held, &batch);
        for key in &batch {
            assert!(is_here(&held.next_step(*key, false)));
            assert!(is_here(&held.next_step(*key, false)));
        }
        assert!(matches!(held.next_step(batch[0], false), ReadStep::Request));
        assert!(held.spent_bytes.bytes <= SPENT_BYTES);
    }
    #[test]
    fn make_room_keeps_only_ranges_that_a_thread_waits_for() {
        let budget = PrefetchBudget::new(u64::MAX);
        let mut held = PrefetchState::new(4 * MIB, &budget);
        (0..6).for_each(|number| held.announce(key(number)));
        assert!(held.next_batch(MIB / 2).is_empty());
        let batch = held.next_batch(3 * MIB);
        assert_eq!((batch.len(), budget.held_bytes()), (3, 3 * MIB));
        come(&mut held, &batch);
        assert!(is_here(&held.next_step(key(0), false)) && is_here(&held.next_step(key(1), false)));
        held.make_room(MIB);
        assert_eq!((budget.held_bytes(), held.spent.len()), (2 * MIB, 1));
        held.make_room(4 * MIB);
        assert_eq!(budget.held_bytes(), MIB, "a range that a thread waits for stays");
        held.used = held.used.checked_sub(IDLE).unwrap();
        held.make_room(4 * MIB);
        assert!(held.slots.is_empty() && !held.has_queued());
        assert_eq!(budget.held_bytes(), 0);
        let _ = held.next_step(key(2), false);
        drop(held);
        assert_eq!(budget.held_bytes(), 0);
    }
}
