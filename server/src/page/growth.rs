//! How a store grew: counted once for where its branches and tags stand, beside
//! whoever waits for it, and kept.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    time::Duration,
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

/// What is known of one repository.
#[derive(Debug, Default)]
struct Known {
    /// Where its refs stood when it was counted.
    tips: Option<Vec<CommitId>>,
    is_counting: bool,
    grown: Option<Arc<Grown>>,
}

/// How the stores grew.
#[derive(Clone, Debug, Default)]
pub(super) struct Growth {
    known: Arc<Mutex<HashMap<String, Known>>>,
}

impl Growth {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How a repository grew, if that is known within `patience`; else what was
    /// known before its refs moved, if anything was.
    ///
    /// # Errors
    /// Those of its refs.
    pub(super) fn of(
        &self,
        repository: &Arc<Repository>,
        patience: Duration,
    ) -> Result<Option<Arc<Grown>>, Problem> {
        let mut tips: Vec<CommitId> = repository.refs()?.into_iter().map(|(_, id)| id).collect();
        tips.sort_unstable();
        tips.dedup();
        if self.begins(repository.name(), &tips) {
            let (done, wait) = mpsc::channel();
            let (growth, counted) = (self.clone(), Arc::clone(repository));
            std::thread::spawn(move || {
                let outcome = count(&counted, &tips);
                growth.finish(counted.name(), tips, outcome);
                // Whoever waited may have gone.
                let _ = done.send(());
            });
            // An error says that it takes longer.
            let _ = wait.recv_timeout(patience);
        }
        Ok(self.known().get(repository.name()).and_then(|known| known.grown.clone()))
    }

    /// Whether it has to be counted, and nobody does yet.
    fn begins(&self, name: &str, tips: &[CommitId]) -> bool {
        let mut all = self.known();
        if all.len() >= KEPT && !all.contains_key(name) {
            all.retain(|_, known| known.is_counting);
        }
        let known = all.entry(name.to_owned()).or_default();
        let is_new = known.tips.as_deref() != Some(tips) && !known.is_counting;
        known.is_counting |= is_new;
        is_new
    }

    fn finish(&self, name: &str, tips: Vec<CommitId>, outcome: Result<Outcome, PastError>) {
        let mut all = self.known();
        let known = all.entry(name.to_owned()).or_default();
        known.is_counting = false;
        match outcome {
            Ok(outcome) => known.grown = Some(Arc::new(Grown::new(outcome))),
            Err(error) => {
                tracing::warn!(name, error = &error as &dyn std::error::Error, "not counted");
            }
        }
        // What failed will fail again until the refs move.
        known.tips = Some(tips);
    }
}

fn count(repository: &Repository, tips: &[CommitId]) -> Result<Outcome, PastError> {
    let options = Options { commits: COMMITS, files: FILES };
    stats::run(repository.repo().store(), tips, &options, &Deadline::after(LONGEST, &Silent))
}
