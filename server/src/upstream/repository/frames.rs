//! Frames of packs upstream, for the local store.
//!
//! Fetched frames take room in the cache. A read waits as long as any data arrives from the
//! upstream. If no data arrives for too long, the read fails. From then on only a few reads may
//! wait, until data arrives again.

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use snap_core::{
    base::{
        id::{ObjectId, PackId},
        kind::ErrorKind,
    },
    store::{RemoteCopies, RemoteFrameError, RemoteFrames},
};
use snap_remote::{
    bucket::traffic::Traffic,
    peer::RemoteError,
    remote_packs::{RemotePacks, StopCheck},
};

use crate::{
    clock::Clock,
    upstream::{
        cache::CacheFolder,
        health::{UpstreamHealth, unavailable},
    },
};

/// Time after a failed read during which no other read waits.
const PAUSE: Duration = Duration::from_secs(1);

/// Maximum number of waiting reads after a failed one, until data arrives.
const PROBES: usize = 16;

/// The source of the frames that stubs lack.
#[derive(Debug)]
pub(super) struct UpstreamFrames {
    pub(super) packs: RemotePacks,
    pub(super) watch: Arc<ProgressWatch>,
    pub(super) cache: Arc<CacheFolder>,
    pub(super) contact: Arc<UpstreamHealth>,
    pub(super) damaged: Arc<DamagedPacks>,
}

/// Packs whose copy in the cache was found damaged since the last repair.
pub(super) type DamagedPacks = Mutex<BTreeSet<PackId>>;

impl RemoteFrames for UpstreamFrames {
    fn read(&self, pack: PackId, range: Range<u64>) -> Result<Vec<u8>, RemoteFrameError> {
        let turn = self.watch.begin(self.contact.is_backing_off()).ok_or_else(gone)?;
        self.cache.frames().count(false);
        match self.packs.read(pack, range) {
            Ok(bytes) => {
                drop(turn);
                self.cache.grew(bytes.len() as u64);
                Ok(bytes)
            }
            Err(error) if error.kind == ErrorKind::Interrupted => {
                self.contact.record_stall(turn.began);
                turn.give_up();
                Err(gone())
            }
            Err(error) => {
                if let Some(error) = error.source.downcast_ref::<RemoteError>() {
                    self.contact.record_failure(error);
                }
                Err(error)
            }
        }
    }

    fn discard(&self, pack: PackId, range: Range<u64>) {
        self.packs.discard(pack, range);
    }

    fn prefetch(&self, ranges: &[(PackId, Range<u64>)]) {
        self.packs.prefetch(ranges);
    }

    fn record_hit(&self) {
        self.cache.frames().count(true);
    }

    fn record_damage(&self, pack: PackId) -> bool {
        self.damaged.lock().insert(pack);
        true
    }

    fn other_copies(&self, pack: PackId, objects: &[ObjectId]) -> RemoteCopies {
        self.packs.other_copies(pack, objects)
    }

    fn location(&self, pack: PackId) -> Option<String> {
        self.packs.location(pack)
    }

    fn keeps_contents(&self) -> bool {
        self.packs.keeps_contents()
    }
}

fn gone() -> RemoteFrameError {
    RemoteFrameError { kind: ErrorKind::Unavailable, source: Box::new(unavailable()) }
}

/// Detects whether any data arrives while reads wait.
#[derive(Debug)]
pub(super) struct ProgressWatch {
    /// The counter that grows when data arrives.
    traffic: Arc<Traffic>,
    patience: Duration,
    state: Mutex<ProgressState>,
    clock: Clock,
}

#[derive(Debug)]
struct ProgressState {
    /// Number of waiting reads.
    waiting: usize,
    /// Value of the counter at the last look.
    progress: u64,
    /// When a look last found that the counter had grown.
    last_progress: Option<Instant>,
    /// Start of the present stall: when data last arrived, or when the first read began to wait.
    stalled_since: Instant,
    /// When a read last failed; `None` if data has arrived since.
    gave_up_at: Option<Instant>,
}

impl ProgressWatch {
    /// Watches what `traffic` counts as received. A read fails if no data arrives for `patience`.
    pub(super) fn new(traffic: Arc<Traffic>, patience: Duration, clock: Clock) -> Self {
        let state = ProgressState::new(traffic.progress(), clock.now());
        Self { traffic, patience, state: Mutex::new(state), clock }
    }

    /// Returns a function that returns true once waiting reads must give up.
    pub(super) fn stop(self: &Arc<Self>) -> StopCheck {
        let watch = Arc::clone(self);
        Arc::new(move || watch.clock.elapsed(watch.look().stalled_since) >= watch.patience)
    }

    /// Locks the state, and updates it from the counter.
    fn look(&self) -> MutexGuard<'_, ProgressState> {
        let mut state = self.state.lock();
        state.observe(self.traffic.progress(), self.clock.now());
        state
    }

    /// Counts a read that is about to wait; `None` if it would wait in vain. If data arrived within
    /// `patience`, the read may wait even though other requests failed (`is_given_up`).
    fn begin(&self, is_given_up: bool) -> Option<ReadGuard<'_>> {
        let mut state = self.look();
        let now = self.clock.now();
        let is_recent = |moved| now.saturating_duration_since(moved) < self.patience;
        let moves = state.last_progress.is_some_and(is_recent);
        (state.admits(now) && (moves || !is_given_up)).then(|| {
            state.waiting += 1;
            ReadGuard { watch: self, began: now }
        })
    }
}

impl ProgressState {
    fn new(progress: u64, now: Instant) -> Self {
        let (stalled_since, last_progress, gave_up_at) = (now, None, None);
        Self { waiting: 0, progress, last_progress, stalled_since, gave_up_at }
    }

    /// Updates the state with a value of the counter.
    fn observe(&mut self, progress: u64, now: Instant) {
        if self.progress != progress {
            (self.progress, self.last_progress, self.stalled_since) = (progress, Some(now), now);
            self.gave_up_at = None;
        }
        if self.waiting == 0 {
            self.stalled_since = now;
        }
    }

    /// Returns true if another read may wait.
    fn admits(&self, now: Instant) -> bool {
        let is_over = |at| now.saturating_duration_since(at) >= PAUSE;
        self.gave_up_at.is_none_or(|at| is_over(at) && self.waiting < PROBES)
    }
}

/// A read that waits, counted until it is dropped.
struct ReadGuard<'w> {
    watch: &'w ProgressWatch,
    began: Instant,
}

impl ReadGuard<'_> {
    /// Records that the read failed because no data arrived in time.
    fn give_up(self) {
        self.watch.look().gave_up_at = Some(self.watch.clock.now());
    }
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.watch.look().waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_reads_wait_for_a_stalled_upstream() {
        let now = Instant::now();
        let mut state = ProgressState::new(0, now);
        state.waiting = 10 * PROBES;
        assert!(state.admits(now), "no read has failed yet");
        state.gave_up_at = Some(now);
        (state.waiting, state.progress) = (0, 7);
        state.observe(7, now);
        assert!(!state.admits(now), "a read has just failed");
        let later = now + PAUSE;
        assert!(state.admits(later));
        state.waiting = PROBES;
        assert!(!state.admits(later));
        state.observe(8, later);
        assert!(state.admits(later), "data has arrived");
    }

    #[test]
    fn the_stall_timer_of_a_single_read_starts_with_it() {
        let long_ago = Instant::now();
        let mut state = ProgressState::new(0, long_ago);
        let now = long_ago + Duration::from_secs(60);
        state.observe(0, now);
        assert_eq!(state.stalled_since, now);
        (state.stalled_since, state.waiting) = (long_ago, 1);
        state.observe(0, now);
        assert_eq!(state.stalled_since, long_ago);
        state.observe(1, now);
        assert_eq!(state.stalled_since, now);
    }
}
