//! How a store grew: counted for where its branches and tags stand, beside
//! whoever waits for it, and kept. Where they move all the time it is counted now
//! and then.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    time::{Duration, Instant},
};

use snap_core::{
    base::{id::CommitId, observe::Silent},
    ops::stats::{self, Added, CommitStats, LargeFile, Options, Outcome},
    repo::past::PastError,
};

use super::{
    chart::{self, Point},
    deadline::Deadline,
};
use crate::{causes::causes, repository::Repository};

/// So many commits are kept of a repository.
const COMMITS: usize = 10_000;

/// So many of them are told more of.
const NEWEST: usize = 20;

/// So many of the largest files.
const FILES: usize = 10;

/// Nobody counts for longer.
const LONGEST: Duration = Duration::from_secs(600);

/// What failed is tried again after so long, or after the usual rest if that is longer.
const AGAIN: Duration = Duration::from_secs(300);

/// A count rests for so many times as long as it took, so that repositories in
/// which refs move all the time leave room for others.
const RESTS: u32 = 10;

/// So many repositories are counted at a time; others wait.
const AT_ONCE: usize = 2;

/// Repositories of which it is kept.
const KEPT: usize = 64;

/// What was counted, as far as pages show it.
#[derive(Debug)]
pub(super) struct Grown {
    /// How many commits there are.
    pub(super) commit_count: u64,
    /// Sizes of the files of all of them together.
    pub(super) snapshot_bytes: u64,
    /// What all of them added.
    pub(super) added: Added,
    /// How many packs there are.
    pub(super) packs: u64,
    /// The newest commits, newest first.
    pub(super) newest: Vec<CommitStats>,
    /// The largest files, largest first.
    pub(super) files: Vec<LargeFile>,
    /// The sums after some of the commits in `stored`.
    pub(super) points: Vec<Point>,
    /// What each of the newest commits takes.
    stored: HashMap<CommitId, u64>,
}

impl Grown {
    fn new(mut outcome: Outcome) -> Self {
        let points = chart::points(&outcome);
        let stored = outcome.commits.iter().map(|commit| (commit.id, stored_bytes(&commit.added)));
        let stored = stored.collect();
        outcome.commits.truncate(NEWEST);
        outcome.commits.shrink_to_fit();
        let Outcome { commit_count, snapshot_bytes, added, .. } = outcome;
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

    /// What a commit takes in the store, after deduplication and compression.
    pub(super) fn stored(&self, id: &CommitId) -> Option<u64> {
        self.stored.get(id).copied()
    }

    /// Of how many commits that is known.
    pub(super) fn known(&self) -> u64 {
        self.stored.len() as u64
    }
}

/// What is new takes so much.
pub(super) fn stored_bytes(added: &Added) -> u64 {
    added.data.stored_bytes() + added.meta.stored_bytes()
}

/// Why a repository is not counted; the log says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// Something in it cannot be read.
    Unreadable,
    /// It takes longer than [`LONGEST`].
    TooLarge,
}

/// How a count ended.
type Counted = Result<Arc<Grown>, Failed>;

/// What is known of one repository.
#[derive(Debug, Default)]
struct Known {
    last: Option<Last>,
    is_counting: bool,
    grown: Option<Counted>,
}

/// The last count.
#[derive(Debug)]
struct Last {
    /// Where refs stood then.
    tips: Vec<CommitId>,
    ended: Instant,
    took: Duration,
}

impl Known {
    /// Whether it has to be counted again.
    fn is_old(&self, tips: &[CommitId]) -> bool {
        let Some(last) = &self.last else { return true };
        match self.grown {
            Some(Err(_)) => last.ended.elapsed() > AGAIN.max(last.took * RESTS),
            _ => last.tips != tips && last.ended.elapsed() >= last.took * RESTS,
        }
    }
}

/// How the stores grew.
#[derive(Clone, Debug, Default)]
pub(super) struct Growth {
    known: Arc<Mutex<HashMap<String, Known>>>,
}

/// A count under way. However it ends, that is known then.
struct Counting {
    growth: Growth,
    name: String,
    tips: Vec<CommitId>,
    began: Instant,
    counted: Counted,
}

impl Drop for Counting {
    fn drop(&mut self) {
        let mut all = self.growth.known();
        let known = all.entry(std::mem::take(&mut self.name)).or_default();
        known.is_counting = false;
        known.grown = Some(self.counted.clone());
        let tips = std::mem::take(&mut self.tips);
        known.last = Some(Last { tips, ended: Instant::now(), took: self.began.elapsed() });
    }
}

impl Growth {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How a repository grew whose refs stand at `tips`, if that is known within
    /// `patience`; else what was known before they moved, if anything was. `None`
    /// while it is counted, or waits for that. Without any patience it is not
    /// counted.
    pub(super) fn of(
        &self,
        repository: &Arc<Repository>,
        tips: Vec<CommitId>,
        patience: Option<Duration>,
    ) -> Option<Counted> {
        if let Some(patience) = patience
            && let Some(mut counting) = self.begins(repository.name(), &tips)
        {
            let (done, wait) = mpsc::channel();
            let counted = Arc::clone(repository);
            let work = move || {
                match count(&counted, &tips) {
                    Ok(outcome) => counting.counted = Ok(Arc::new(Grown::new(outcome))),
                    Err(error) => {
                        if matches!(error, PastError::Interrupted) {
                            counting.counted = Err(Failed::TooLarge);
                        }
                        let (name, error) = (counted.name(), causes(&error));
                        tracing::warn!(name, %error, "not counted");
                    }
                }
                drop(counting);
                // Whoever waited may have gone.
                let _ = done.send(());
            };
            // Where there is no thread to be had it is not counted.
            let _ = std::thread::Builder::new().spawn(work);
            // An error says that it takes longer.
            let _ = wait.recv_timeout(patience);
        }
        self.known().get(repository.name()).and_then(|known| known.grown.clone())
    }

    /// Begins to count, if that has to be done, nobody does it yet, and not too
    /// many others are being counted.
    fn begins(&self, name: &str, tips: &[CommitId]) -> Option<Counting> {
        let mut all = self.known();
        let at_once = all.values().filter(|known| known.is_counting).count();
        if all.len() >= KEPT && !all.contains_key(name) {
            all.retain(|_, known| known.is_counting);
        }
        let known = all.entry(name.to_owned()).or_default();
        if known.is_counting || at_once >= AT_ONCE || !known.is_old(tips) {
            return None;
        }
        known.is_counting = true;
        // What failed is not known any better than what was never counted.
        known.grown.take_if(|grown| grown.is_err());
        let (name, tips) = (name.to_owned(), tips.to_vec());
        let began = Instant::now();
        let counted = Err(Failed::Unreadable);
        Some(Counting { growth: self.clone(), name, tips, began, counted })
    }
}

fn count(repository: &Repository, tips: &[CommitId]) -> Result<Outcome, PastError> {
    let options = Options { commits: COMMITS, files: FILES };
    stats::run(repository.repo().store(), tips, &options, &Deadline::after(LONGEST, &Silent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_breaks_off_is_known_to_have_failed() {
        let growth = Growth::default();
        let counting = growth.begins("a", &[]).unwrap();
        assert!(growth.begins("a", &[]).is_none(), "nobody counts what is being counted");
        let broken = std::thread::spawn(move || {
            let _counting = counting;
            panic!("in the midst of it");
        });
        assert!(broken.join().is_err());
        let failed = || matches!(growth.known()["a"].grown, Some(Err(Failed::Unreadable)));
        assert!(failed() && !growth.known()["a"].is_counting);
        assert!(growth.begins("a", &[]).is_none(), "it would fail again");
        let moved = [CommitId::of(b"another")];
        assert!(growth.begins("a", &moved).is_none(), "wherever the refs go");
        growth.ended("a", AGAIN + Duration::from_secs(1), Duration::ZERO);
        let _counting = growth.begins("a", &moved).unwrap();
        assert!(!failed(), "it is being counted, since what failed may pass");
    }

    impl Growth {
        /// Has the last count have ended so long ago, after it took so long.
        fn ended(&self, name: &str, ago: Duration, took: Duration) {
            let ended = Instant::now().checked_sub(ago).unwrap();
            let mut all = self.known();
            let last = all.get_mut(name).unwrap().last.as_mut().unwrap();
            (last.ended, last.took) = (ended, took);
        }
    }

    #[test]
    fn where_refs_move_all_the_time_it_is_counted_now_and_then() {
        let growth = Growth::default();
        let mut first = growth.begins("a", &[]).unwrap();
        let outcome = Outcome::default();
        first.counted = Ok(Arc::new(Grown::new(outcome)));
        drop(first);
        let moved = [CommitId::of(b"another")];
        let took = Duration::from_secs(6);
        growth.ended("a", took * (RESTS - 1), took);
        assert!(growth.begins("a", &moved).is_none(), "it rests");
        growth.ended("a", took * RESTS, took);
        assert!(growth.begins("a", &[]).is_none(), "nothing has changed");
        assert!(growth.begins("a", &moved).is_some());
    }

    #[test]
    fn one_that_takes_too_long_rests_as_long_as_others() {
        let growth = Growth::default();
        let mut first = growth.begins("a", &[]).unwrap();
        first.counted = Err(Failed::TooLarge);
        drop(first);
        growth.ended("a", AGAIN * 2, LONGEST);
        assert!(growth.begins("a", &[]).is_none(), "it would have a slot most of the time");
        growth.ended("a", LONGEST * RESTS + Duration::from_secs(1), LONGEST);
        assert!(growth.begins("a", &[]).is_some());
    }

    #[test]
    fn not_too_many_are_counted_at_a_time() {
        let growth = Growth::default();
        let first = growth.begins("a", &[]).unwrap();
        let _second = growth.begins("b", &[]).unwrap();
        assert!(growth.begins("c", &[]).is_none());
        drop(first);
        assert!(growth.begins("c", &[]).is_some());
    }
}
