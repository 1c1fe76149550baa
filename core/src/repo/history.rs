//! Iterates over a commit and its ancestors, newest first.
//!
//! A commit always comes before its parents, whatever their times. Among parallel lines of history
//! the newest commit comes first. A wrong clock can therefore move a commit in the list, but never
//! hide one.
//!
//! Pending commits are kept in a heap ordered by time, so reading the first twenty commits reads
//! little more than twenty. The set of visited commits is kept only once there are several lines of
//! history: on a single line no commit can be reached twice.

use std::{
    cmp::Ordering,
    collections::{BinaryHeap, HashSet},
};

use crate::{
    base::id::CommitId,
    format::commit::Commit,
    store::{Store, StoreError},
};

/// Which parents of a commit to follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parents {
    /// All of them.
    #[default]
    All,
    /// Only the first parent of each commit.
    First,
}

impl Parents {
    /// Returns the parents of `commit` that are followed.
    pub fn of(self, commit: &Commit) -> &[CommitId] {
        match self {
            Self::All => &commit.parents,
            Self::First => commit.parents.get(..1).unwrap_or_default(),
        }
    }
}

/// An iterator over commits, newest first.
#[derive(Debug)]
pub struct History<'a> {
    store: &'a Store,
    parents: Parents,
    waiting: BinaryHeap<QueuedCommit>,
    visited: Option<HashSet<CommitId>>,
    count: u64,
    /// The error of reading a parent of the last commit. The iterator returns it after that commit,
    /// and then ends.
    failure: Option<StoreError>,
}

#[derive(Debug)]
struct QueuedCommit {
    commit: Commit,
    id: CommitId,
    /// Breaks ties of time: the commit that was added first comes first.
    number: u64,
}

impl<'a> History<'a> {
    /// Starts at the commits `starts`, and reads them immediately.
    ///
    /// # Errors
    /// [`StoreError`] if one of them cannot be read.
    pub fn new(
        store: &'a Store,
        starts: &[CommitId],
        parents: Parents,
    ) -> Result<Self, StoreError> {
        Self::without(store, &[], starts, parents)
    }

    /// Starts at the commits `starts`, and leaves out the commits `excluded` and all their
    /// ancestors. Reads these first.
    ///
    /// # Errors
    /// [`StoreError`] if one of the excluded commits or of `starts` cannot be read.
    pub fn without(
        store: &'a Store,
        excluded: &[CommitId],
        starts: &[CommitId],
        parents: Parents,
    ) -> Result<Self, StoreError> {
        let (waiting, count, failure) = (BinaryHeap::new(), 0, None);
        let visited = (starts.len() > 1).then(HashSet::new);
        let mut history = Self { store, parents, waiting, visited, count, failure };
        if !excluded.is_empty() {
            let ids = Self::new(store, excluded, Parents::All)?.map(|found| Ok(found?.0));
            history.visited = Some(ids.collect::<Result<_, StoreError>>()?);
        }
        starts.iter().try_for_each(|id| history.add(*id))?;
        Ok(history)
    }

    fn add(&mut self, id: CommitId) -> Result<(), StoreError> {
        if self.visited.as_mut().is_some_and(|visited| !visited.insert(id)) {
            return Ok(());
        }
        let commit = self.store.commit(&id)?;
        self.count += 1;
        self.waiting.push(QueuedCommit { commit, id, number: self.count });
        Ok(())
    }

    /// Removes and returns the newest pending commit. The caller then chooses which of its parents
    /// to [follow](History::follow).
    pub fn pop(&mut self) -> Option<(CommitId, Commit)> {
        self.waiting.pop().map(|QueuedCommit { commit, id, .. }| (id, commit))
    }

    /// Adds these parents of the last commit to the pending commits.
    ///
    /// # Errors
    /// [`StoreError`] if one of them cannot be read.
    pub fn follow(&mut self, parents: &[CommitId]) -> Result<(), StoreError> {
        if parents.len() > 1 && self.visited.is_none() {
            self.visited = Some(HashSet::new());
        }
        parents.iter().try_for_each(|parent| self.add(*parent))
    }
}

impl Iterator for History<'_> {
    type Item = Result<(CommitId, Commit), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.failure.take() {
            self.waiting.clear();
            return Some(Err(error));
        }
        let (id, commit) = self.pop()?;
        let parents = self.parents;
        self.failure = self.follow(parents.of(&commit)).err();
        Some(Ok((id, commit)))
    }
}

impl Ord for QueuedCommit {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_time = self.commit.time.cmp(&other.commit.time);
        by_time.then_with(|| other.number.cmp(&self.number))
    }
}

impl PartialOrd for QueuedCommit {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for QueuedCommit {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for QueuedCommit {}
