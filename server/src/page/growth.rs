//! How a store grew: counted once for where its branches and tags stand, beside
//! whoever waits for it, and kept.

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
use crate::{problem::Problem, repository::Repository};

/// So many commits are kept of a repository.
const COMMITS: usize = 10_000;

/// So many of them are told more of.
const NEWEST: usize = 20;

/// So many of the largest files.
const FILES: usize = 10;

/// Nobody counts for longer.
const LONGEST: Duration = Duration::from_secs(600);

/// What failed is tried again after so long, if the refs do not move before.
const AGAIN: Duration = Duration::from_secs(300);

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

/// It could not be counted; the log says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failed;

/// How a count ended.
type Counted = Result<Arc<Grown>, Failed>;

/// What is known of one repository.
#[derive(Debug, Default)]
struct Known {
    /// Where its refs stood when it was counted, and when that was.
    counted: Option<(Vec<CommitId>, Instant)>,
    is_counting: bool,
    grown: Option<Counted>,
}

impl Known {
    /// Whether it has to be counted again.
    fn is_old(&self, tips: &[CommitId]) -> bool {
        let Some((counted, when)) = &self.counted else { return true };
        let is_failed = matches!(self.grown, Some(Err(Failed)));
        counted != tips || (is_failed && when.elapsed() > AGAIN)
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
    counted: Counted,
}

impl Drop for Counting {
    fn drop(&mut self) {
        let mut all = self.growth.known();
        let known = all.entry(std::mem::take(&mut self.name)).or_default();
        known.is_counting = false;
        known.grown = Some(self.counted.clone());
        known.counted = Some((std::mem::take(&mut self.tips), Instant::now()));
    }
}

impl Growth {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How a repository grew, if that is known within `patience`; else what was
    /// known before its refs moved, if anything was. `None` while it is counted,
    /// or waits for that.
    ///
    /// # Errors
    /// Those of its refs.
    pub(super) fn of(
        &self,
        repository: &Arc<Repository>,
        patience: Duration,
    ) -> Result<Option<Counted>, Problem> {
        let mut tips: Vec<CommitId> = repository.refs()?.into_iter().map(|(_, id)| id).collect();
        tips.sort_unstable();
        tips.dedup();
        if let Some(mut counting) = self.begins(repository.name(), &tips) {
            let (done, wait) = mpsc::channel();
            let counted = Arc::clone(repository);
            let work = move || {
                match count(&counted, &tips) {
                    Ok(outcome) => counting.counted = Ok(Arc::new(Grown::new(outcome))),
                    Err(error) => {
                        let (name, error) = (counted.name(), &error as &dyn std::error::Error);
                        tracing::warn!(name, error, "not counted");
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
        Ok(self.known().get(repository.name()).and_then(|known| known.grown.clone()))
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
        Some(Counting { growth: self.clone(), name, tips, counted: Err(Failed) })
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
        let failed = || matches!(growth.known()["a"].grown, Some(Err(Failed)));
        assert!(failed() && !growth.known()["a"].is_counting);
        assert!(growth.begins("a", &[]).is_none(), "it would fail again");
        let moved = [CommitId::of(b"another")];
        let counting = growth.begins("a", &moved).unwrap();
        assert!(!failed(), "it is being counted");
        drop(counting);
        let before = Instant::now().checked_sub(AGAIN + Duration::from_secs(1)).unwrap();
        growth.known().get_mut("a").unwrap().counted = Some((moved.to_vec(), before));
        assert!(growth.begins("a", &moved).is_some(), "what failed may pass");
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
