//! Walks commits and their ancestors: [`History`] newest first, [`ancestors`] and [`walk`] depth
//! first.
//!
//! In a [`History`], a commit comes after at least one of its children. Among parallel lines of
//! history the newest commit comes first. A wrong clock can therefore move a commit in the list,
//! even before another of its children, but never hide one.
//!
//! A [`History`] sorts pending commits by time, so reading the first twenty commits reads little
//! more than twenty. It keeps the set of visited commits only once there are several lines of
//! history: on a single line no commit can be reached twice.
//!
//! A history includes forgotten commits, from their links if they are deleted.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet},
};

use crate::{
    base::{id::CommitId, time::Time},
    format::commit::Commit,
    store::{Ancestor, Store, StoreError},
};

/// Which parents of a commit to follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parents {
    /// All parents.
    #[default]
    All,
    /// Only the first parent of each commit.
    First,
}

impl Parents {
    /// Returns the parents of `commit` to follow.
    pub fn of(self, commit: &Commit) -> &[CommitId] {
        match self {
            Self::All => &commit.parents,
            Self::First => commit.parents.get(..1).unwrap_or_default(),
        }
    }
}

/// A commit of a [`History`].
#[derive(Clone, Debug)]
pub struct HistoryStep {
    pub id: CommitId,
    pub commit: Commit,
    /// True if the commit was forgotten. Its tree may be missing.
    pub is_forgotten: bool,
}

/// An iterator over commits, newest first.
#[derive(Debug)]
pub struct History<'a> {
    store: &'a Store,
    parents: Parents,
    /// The pending commits, sorted by time and by the reverse order in which they were added. The
    /// last one is next.
    waiting: BTreeMap<(Time, Reverse<u64>), HistoryStep>,
    visited: Option<HashSet<CommitId>>,
    /// Number of commits added so far.
    count: u64,
    /// Error of reading a parent of the last commit. The iterator returns this error after that
    /// commit, and then ends.
    failure: Option<StoreError>,
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
    /// ancestors. Reads the excluded history first.
    ///
    /// # Errors
    /// [`StoreError`] if one of the excluded commits or of `starts` cannot be read.
    pub fn without(
        store: &'a Store,
        excluded: &[CommitId],
        starts: &[CommitId],
        parents: Parents,
    ) -> Result<Self, StoreError> {
        let (waiting, count, failure) = (BTreeMap::new(), 0, None);
        let visited = (starts.len() > 1).then(HashSet::new);
        let mut history = Self { store, parents, waiting, visited, count, failure };
        if !excluded.is_empty() {
            let ids = Self::new(store, excluded, Parents::All)?.map(|step| Ok(step?.id));
            history.visited = Some(ids.collect::<Result<_, StoreError>>()?);
        }
        starts.iter().try_for_each(|id| history.add(*id))?;
        Ok(history)
    }

    fn add(&mut self, id: CommitId) -> Result<(), StoreError> {
        if self.visited.as_mut().is_some_and(|visited| !visited.insert(id)) {
            return Ok(());
        }
        let Ancestor { commit, is_forgotten } = self.store.ancestor(&id)?;
        self.count += 1;
        let step = HistoryStep { id, commit, is_forgotten };
        self.waiting.insert((step.commit.time, Reverse(self.count)), step);
        Ok(())
    }

    /// Removes and returns the newest pending commit. The caller then chooses which of its parents
    /// to [follow](History::follow).
    pub fn pop(&mut self) -> Option<HistoryStep> {
        self.waiting.pop_last().map(|(_, step)| step)
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
    type Item = Result<HistoryStep, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.failure.take() {
            self.waiting.clear();
            return Some(Err(error));
        }
        let step = self.pop()?;
        let parents = self.parents;
        self.failure = self.follow(parents.of(&step.commit)).err();
        Some(Ok(step))
    }
}

/// Returns the nearest ancestor on the line of first parents that was not forgotten, beginning with
/// `id` itself. `None` if all of them were forgotten.
///
/// # Errors
/// [`StoreError`] if a commit cannot be read.
pub fn nearest_kept(store: &Store, id: CommitId) -> Result<Option<(CommitId, Commit)>, StoreError> {
    let mut next = Some(id);
    while let Some(id) = next {
        let Ancestor { commit, is_forgotten } = store.ancestor(&id)?;
        if !is_forgotten {
            return Ok(Some((id, commit)));
        }
        next = commit.parents.first().copied();
    }
    Ok(None)
}

/// Visits commits depth first, the last one of `starts` first. `visit` returns the parents to visit
/// after a commit, the last one first. The walk calls `visit` again for a commit that it reaches
/// twice.
///
/// # Errors
/// The first error of `visit`.
pub fn walk<E>(
    starts: impl IntoIterator<Item = CommitId>,
    mut visit: impl FnMut(CommitId) -> Result<Vec<CommitId>, E>,
) -> Result<(), E> {
    let mut waiting: Vec<CommitId> = starts.into_iter().collect();
    while let Some(id) = waiting.pop() {
        waiting.extend(visit(id)?);
    }
    Ok(())
}

/// Visits commits and their ancestors in the order of [`walk`], each once. If `parents` returns
/// `None`, the walk does not visit the parents of the commit. Returns the commits for which
/// `parents` returned a list, in the order of the visits.
///
/// # Errors
/// The first error of `parents`.
pub fn ancestors<E>(
    starts: impl IntoIterator<Item = CommitId>,
    mut parents: impl FnMut(CommitId) -> Result<Option<Vec<CommitId>>, E>,
) -> Result<Vec<CommitId>, E> {
    let (mut visited, mut found) = (HashSet::new(), Vec::new());
    walk(starts, |id| {
        if !visited.insert(id) {
            return Ok(Vec::new());
        }
        let parents = parents(id)?;
        if parents.is_some() {
            found.push(id);
        }
        Ok(parents.unwrap_or_default())
    })?;
    Ok(found)
}
