//! A commit and all before it, newest first.
//!
//! On one line of history a commit comes before its parents, whatever their
//! times. Of several lines the newest commit comes first, so a wrong time moves
//! a commit in the list; it never hides one.
//!
//! Commits wait in a heap ordered by time, so reading the first twenty reads
//! little more than twenty. Which ones were met is only kept once lines of
//! history have come together: on a single line none can be met twice.

use std::{
    cmp::Ordering,
    collections::{BinaryHeap, HashSet},
};

use crate::{
    base::id::CommitId,
    format::commit::Commit,
    store::{Store, StoreError},
};

/// Which parents to follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parents {
    /// All of them.
    #[default]
    All,
    /// The first of each commit only.
    First,
}

impl Parents {
    /// Those of a commit that are followed.
    pub fn of(self, commit: &Commit) -> &[CommitId] {
        match self {
            Self::All => &commit.parents,
            Self::First => commit.parents.get(..1).unwrap_or_default(),
        }
    }
}

/// Iterates over commits, newest first.
#[derive(Debug)]
pub struct History<'a> {
    store: &'a Store,
    parents: Parents,
    waiting: BinaryHeap<Waiting>,
    met: Option<HashSet<CommitId>>,
    count: u64,
}

#[derive(Debug)]
struct Waiting {
    commit: Commit,
    id: CommitId,
    /// Breaks ties of time: first come, first served.
    number: u64,
}

impl<'a> History<'a> {
    /// Starts at `starts`, whose commits are read at once.
    ///
    /// # Errors
    /// [`StoreError`] when one cannot be read.
    pub fn new(
        store: &'a Store,
        starts: &[CommitId],
        parents: Parents,
    ) -> Result<Self, StoreError> {
        let met = (starts.len() > 1).then(HashSet::new);
        let mut history = Self { store, parents, waiting: BinaryHeap::new(), met, count: 0 };
        starts.iter().try_for_each(|id| history.add(*id))?;
        Ok(history)
    }

    fn add(&mut self, id: CommitId) -> Result<(), StoreError> {
        if self.met.as_mut().is_some_and(|met| !met.insert(id)) {
            return Ok(());
        }
        let commit = self.store.commit(&id)?;
        self.count += 1;
        self.waiting.push(Waiting { commit, id, number: self.count });
        Ok(())
    }

    fn step(&mut self) -> Result<Option<(CommitId, Commit)>, StoreError> {
        let Some((id, commit)) = self.pop() else { return Ok(None) };
        let parents = self.parents;
        self.follow(parents.of(&commit))?;
        Ok(Some((id, commit)))
    }

    /// The newest commit that waits, for a caller who chooses which of its
    /// parents to [follow](History::follow).
    pub fn pop(&mut self) -> Option<(CommitId, Commit)> {
        self.waiting.pop().map(|Waiting { commit, id, .. }| (id, commit))
    }

    /// Goes on with these parents of the commit that came last.
    ///
    /// # Errors
    /// [`StoreError`] when one cannot be read.
    pub fn follow(&mut self, parents: &[CommitId]) -> Result<(), StoreError> {
        if parents.len() > 1 && self.met.is_none() {
            self.met = Some(HashSet::new());
        }
        parents.iter().try_for_each(|parent| self.add(*parent))
    }
}

impl Iterator for History<'_> {
    type Item = Result<(CommitId, Commit), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            self.waiting.clear();
        }
        step.transpose()
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_time = self.commit.time.cmp(&other.commit.time);
        by_time.then_with(|| other.number.cmp(&self.number))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}
