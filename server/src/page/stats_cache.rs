//! Statistics about the growth of a store. A background thread computes them for the commits that
//! branches and tags point at, and caches them. If refs move all the time, the server computes them
//! again at intervals.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use snap_core::{
    base::{
        blocked::Blocked,
        id::CommitId,
        observe::Silent,
        single_flight::{Flight, LeaderGuard, SingleFlight},
    },
    ops::stats::{self, AddedData, CommitStats, LargeFile, StatsOptions, StatsOutcome},
    repo::past::PastError,
};

use super::{
    chart::{self, Point},
    deadline::Deadline,
};
use crate::{causes::causes, clock::Clock, repository::Repository};

/// Number of commits whose size is kept for each repository.
const COMMITS: usize = 10_000;

/// Number of newest commits that the page lists.
const NEWEST: usize = 20;

/// Number of largest files that the page lists.
const FILES: usize = 10;

/// Time limit for computing the statistics of a repository.
const LONGEST: Duration = Duration::from_secs(600);

/// Interval before a failed computation is repeated, unless [`REST_FACTOR`] requires a longer one.
const RETRY_AFTER: Duration = Duration::from_secs(300);

/// Pause after a computation for a repository, as a multiple of the time that the computation took.
/// So repositories whose refs move all the time leave room for others.
const REST_FACTOR: u32 = 10;

/// Maximum number of computations at the same time. While that many run, no other one starts.
const AT_ONCE: usize = 2;

/// Maximum number of repositories whose statistics are cached.
const KEPT: usize = 64;

/// The statistics of a repository that pages show.
#[derive(Debug)]
pub(super) struct GrowthStats {
    pub(super) commit_count: u64,
    /// The sum of the sizes of all files in all commits, in bytes.
    pub(super) snapshot_bytes: u64,
    /// Data that all commits together added.
    pub(super) added: AddedData,
    pub(super) packs: u64,
    /// The newest commits, newest first.
    pub(super) newest: Vec<CommitStats>,
    /// The largest files, largest first.
    pub(super) files: Vec<LargeFile>,
    /// The cumulated sums for the chart, over the commits in `stored`.
    pub(super) points: Vec<Point>,
    /// The bytes that each of the newest commits added to the store.
    stored: HashMap<CommitId, u64>,
}

impl GrowthStats {
    fn new(mut outcome: StatsOutcome) -> Self {
        let points = chart::points(&outcome);
        let stored = outcome.commits.iter().map(|commit| (commit.id, stored_bytes(&commit.added)));
        let stored = stored.collect();
        outcome.commits.truncate(NEWEST);
        outcome.commits.shrink_to_fit();
        let StatsOutcome { commit_count, snapshot_bytes, added, .. } = outcome;
        Self {
            commit_count,
            snapshot_bytes,
            added,
            packs: outcome.store.packs,
            newest: outcome.commits,
            files: outcome.files,
            points,
            stored,
        }
    }

    /// Returns the bytes that a commit added to the store, after deduplication and
    /// compression.
    pub(super) fn stored(&self, id: &CommitId) -> Option<u64> {
        self.stored.get(id).copied()
    }

    /// Returns the number of commits whose stored bytes are known.
    pub(super) fn known(&self) -> u64 {
        self.stored.len() as u64
    }
}

/// Returns the compressed size of what a commit added.
pub(super) fn stored_bytes(added: &AddedData) -> u64 {
    added.data.stored_bytes() + added.meta.stored_bytes()
}

/// Why there are no statistics. The log has the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatsFailure {
    /// Some object cannot be read.
    Unreadable,
    /// The computation took longer than [`LONGEST`].
    TooLarge,
}

/// The outcome of a computation.
type Counted = Result<Arc<GrowthStats>, StatsFailure>;

/// The state of one repository.
#[derive(Debug, Default)]
struct CachedStats {
    last: Option<LastComputation>,
    grown: Option<Counted>,
}

/// The last computation that ended.
#[derive(Debug)]
struct LastComputation {
    /// The commits that refs pointed at.
    tips: Vec<CommitId>,
    ended: Instant,
    took: Duration,
}

impl CachedStats {
    /// Returns true if the statistics must be computed again.
    fn is_old(&self, tips: &[CommitId], clock: &Clock) -> bool {
        let Some(last) = &self.last else { return true };
        match self.grown {
            Some(Err(_)) => clock.elapsed(last.ended) > RETRY_AFTER.max(last.took * REST_FACTOR),
            _ => last.tips != tips && clock.elapsed(last.ended) >= last.took * REST_FACTOR,
        }
    }
}

/// The cache of the statistics, by the name of the repository.
#[derive(Clone, Debug)]
pub(super) struct StatsCache {
    shared: Arc<StatsCacheInner>,
}

#[derive(Debug)]
struct StatsCacheInner {
    known: Mutex<HashMap<String, CachedStats>>,
    computations: SingleFlight<String, ()>,
    clock: Clock,
}

/// A running computation. Dropping it records the outcome, even after a panic.
struct Counting {
    growth: StatsCache,
    /// Fields drop after `Drop::drop`, so the computation ends after the outcome is recorded.
    computation: LeaderGuard<String, ()>,
    name: String,
    tips: Vec<CommitId>,
    began: Instant,
    counted: Counted,
}

impl Drop for Counting {
    fn drop(&mut self) {
        let mut all = self.growth.shared.known.lock();
        let known = all.entry(std::mem::take(&mut self.name)).or_default();
        known.grown = Some(self.counted.clone());
        let tips = std::mem::take(&mut self.tips);
        let clock = &self.growth.shared.clock;
        let (ended, took) = (clock.now(), clock.elapsed(self.began));
        known.last = Some(LastComputation { tips, ended, took });
    }
}

impl StatsCache {
    pub(super) fn new(clock: Clock) -> Self {
        let (known, computations) = (Mutex::default(), SingleFlight::default());
        Self { shared: Arc::new(StatsCacheInner { known, computations, clock }) }
    }

    /// Returns the statistics of a repository whose refs point at `tips`. Starts a computation if
    /// it is due, and waits for it up to `patience`. If the computation takes longer, returns the
    /// previous statistics, or `None` without any. With `patience: None` starts no computation.
    pub(super) fn of(
        &self,
        repository: &Arc<Repository>,
        tips: Vec<CommitId>,
        patience: Option<Duration>,
    ) -> Option<Counted> {
        if let Some(patience) = patience
            && let Some(mut counting) = self.begins(repository.name(), &tips)
        {
            let computation = counting.computation.follow();
            let deadline = self.shared.clock.thread_deadline(patience);
            let (counted, clock) = (Arc::clone(repository), self.shared.clock.clone());
            let work = move || {
                match count(&counted, &tips, &clock) {
                    Ok(outcome) => counting.counted = Ok(Arc::new(GrowthStats::new(outcome))),
                    Err(error) => {
                        if matches!(error, PastError::Blocked(Blocked::Interrupted)) {
                            counting.counted = Err(StatsFailure::TooLarge);
                        }
                        let (name, error) = (counted.name(), causes(&error));
                        tracing::warn!(name, %error, "cannot compute the statistics of a repository");
                    }
                }
                drop(counting);
            };
            // If no thread can be started, the computation counts as failed.
            let _ = std::thread::Builder::new().spawn(work);
            // After a timeout the computation goes on in the background.
            computation.wait(|| deadline.next_wait());
        }
        self.shared.known.lock().get(repository.name()).and_then(|known| known.grown.clone())
    }

    /// Starts a computation if it is due, none runs for this repository, and fewer than
    /// [`AT_ONCE`] run in all.
    fn begins(&self, name: &str, tips: &[CommitId]) -> Option<Counting> {
        let StatsCacheInner { known, computations, clock } = &*self.shared;
        let mut all = known.lock();
        if all.len() >= KEPT && !all.contains_key(name) {
            all.retain(|name, _| computations.is_in_progress(name));
        }
        let known = all.entry(name.to_owned()).or_default();
        if computations.in_progress_count() >= AT_ONCE || !known.is_old(tips, clock) {
            return None;
        }
        let Flight::Leader(computation) = computations.join(name.to_owned()) else { return None };
        // Forget an earlier failure, so that pages show a computation in progress.
        known.grown.take_if(|grown| grown.is_err());
        let (name, tips) = (name.to_owned(), tips.to_vec());
        let (began, counted) = (clock.now(), Err(StatsFailure::Unreadable));
        Some(Counting { growth: self.clone(), computation, name, tips, began, counted })
    }
}

fn count(
    repository: &Repository,
    tips: &[CommitId],
    clock: &Clock,
) -> Result<StatsOutcome, PastError> {
    let options = StatsOptions { commits: COMMITS, files: FILES };
    let deadline = Deadline::after(LONGEST, clock, &Silent);
    stats::run(repository.repo().store(), tips, &options, &deadline)
}

#[cfg(test)]
mod tests {
    use super::{super::two_commits::two_commits, *};

    #[test]
    fn statistics_are_computed_only_for_waiting_requests() {
        let (_folder, repository, [_, named]) = two_commits();
        let (growth, repository) = (StatsCache::new(Clock::manual()), Arc::new(repository));
        assert!(growth.of(&repository, vec![named.id], None).is_none());
        assert!(growth.shared.known.lock().is_empty());
        // A manual clock stands still, so this waits for as long as it takes.
        let counted = growth.of(&repository, vec![named.id], Some(Duration::from_secs(1)));
        assert_eq!(counted.unwrap().unwrap().commit_count, 2);
        let known = growth.of(&repository, vec![named.id], None);
        assert_eq!(known.unwrap().unwrap().commit_count, 2);
    }

    #[test]
    fn a_panicking_computation_is_recorded_as_failed() {
        let clock = Clock::manual();
        let growth = StatsCache::new(clock.clone());
        let counting = growth.begins("a", &[]).unwrap();
        assert!(growth.begins("a", &[]).is_none(), "a running computation is not started again");
        let broken = std::thread::spawn(move || {
            let _counting = counting;
            panic!("the computation fails");
        });
        assert!(broken.join().is_err());
        let failed =
            || matches!(growth.shared.known.lock()["a"].grown, Some(Err(StatsFailure::Unreadable)));
        assert!(failed() && !growth.shared.computations.is_in_progress(&"a".to_owned()));
        assert!(growth.begins("a", &[]).is_none(), "a failed computation is not retried at once");
        let moved = [CommitId::of(b"another")];
        assert!(growth.begins("a", &moved).is_none(), "not even if the refs have moved");
        clock.advance(RETRY_AFTER + Duration::from_secs(1));
        let _counting = growth.begins("a", &moved).unwrap();
        assert!(!failed(), "a retry replaces the failure");
    }

    impl StatsCache {
        /// Computes the statistics of the repository `a`, which takes the time `took`.
        fn compute(&self, counted: Counted, took: Duration) {
            let mut counting = self.begins("a", &[]).unwrap();
            self.shared.clock.advance(took);
            counting.counted = counted;
        }
    }

    #[test]
    fn statistics_of_moving_refs_are_recomputed_rarely() {
        let clock = Clock::manual();
        let growth = StatsCache::new(clock.clone());
        let took = Duration::from_secs(6);
        growth.compute(Ok(Arc::new(GrowthStats::new(StatsOutcome::default()))), took);
        let moved = [CommitId::of(b"another")];
        clock.advance(took * (REST_FACTOR - 1));
        assert!(growth.begins("a", &moved).is_none(), "it rests");
        clock.advance(took);
        assert!(growth.begins("a", &[]).is_none(), "nothing has changed");
        assert!(growth.begins("a", &moved).is_some());
    }

    #[test]
    fn a_slow_failed_computation_is_not_retried_early() {
        let clock = Clock::manual();
        let growth = StatsCache::new(clock.clone());
        growth.compute(Err(StatsFailure::TooLarge), LONGEST);
        clock.advance(RETRY_AFTER * 2);
        assert!(
            growth.begins("a", &[]).is_none(),
            "a slow repository waits longer than the retry interval"
        );
        clock.advance(LONGEST * REST_FACTOR);
        assert!(growth.begins("a", &[]).is_some());
    }

    #[test]
    fn concurrent_computations_are_limited() {
        let growth = StatsCache::new(Clock::manual());
        let first = growth.begins("a", &[]).unwrap();
        let _second = growth.begins("b", &[]).unwrap();
        assert!(growth.begins("c", &[]).is_none());
        drop(first);
        assert!(growth.begins("c", &[]).is_some());
    }
}
