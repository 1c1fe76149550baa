//! `log -- PATH`: lists the commits in which a path changed, newest first.
//!
//! A path changed in a commit if its entry differs from the one in a parent. Kind,
//! content, mode, owner and extended attributes count; the mtime does not. For a folder
//! everything below it counts, including times, since its tree contains them.
//!
//! History is simplified as in git. If a merge has the same entry as one of its parents, the merge
//! is omitted and only that parent is followed: the other parents did not contribute. A merge that
//! differs from all parents is listed, and all of them are followed. If only first parents are
//! followed, a merge is compared only with its first parent.
//!
//! A path is looked up name by name, and not at all if the root trees are equal. Memory holds one
//! entry for each path of each queued commit.

use std::collections::HashMap;

use crate::{
    base::{
        id::{CommitId, TreeId},
        observe::Observer,
    },
    format::{
        commit::Commit,
        tree::{EntryKind, Metadata},
    },
    ops::log,
    repo::{
        changed::{Changed, ChangedItem},
        history::{History, HistoryStep, nearest_kept},
        past::{PastError, shown},
        path::{components, entry_named, push_name},
    },
    store::{Store, StoreError},
};

/// Selects whether a renamed path is followed to its former name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FollowRenames {
    /// The path is not followed.
    #[default]
    Ignore,
    /// If the path appears in a commit that removes the same content from another path,
    /// the log continues with that other path.
    Follow,
}

/// A rename of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedRename {
    /// The name before the commit.
    pub from: Vec<u8>,
    /// The name in the commit.
    pub to: Vec<u8>,
}

/// A commit in which a path changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathChange {
    pub id: CommitId,
    /// The decoded commit.
    pub commit: Commit,
    /// True if the commit was forgotten. A log of paths skips such commits.
    pub is_forgotten: bool,
    /// The names of the paths in this commit.
    pub paths: Vec<Vec<u8>>,
    /// The renames in this commit that were followed.
    pub moved: Vec<FollowedRename>,
}

/// An iterator over commits in which paths changed, which are read on demand.
pub struct PathLog<'a> {
    store: &'a Store,
    observer: &'a dyn Observer,
    history: History<'a>,
    options: log::LogOptions,
    renames: FollowRenames,
    paths: Vec<Vec<u8>>,
    /// The entries of commits that are queued in `history`.
    known: HashMap<CommitId, Vec<PathState>>,
    left: u64,
    /// True if any commit so far has one of the paths.
    exists: bool,
    ended: bool,
}

/// A path in a commit, and its entry.
#[derive(Clone, PartialEq, Eq)]
struct PathState {
    path: Vec<u8>,
    entry: Option<ComparedEntry>,
}

/// The parts of an entry that count for a change. The mtime is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ComparedEntry {
    kind: EntryKind,
    metadata: Metadata,
}

/// Lists `starts` and their ancestors in which one of `paths` changed.
///
/// # Errors
/// [`PastError`] when a start cannot be read or a path is invalid. The iterator returns
/// later errors, and [`PastError::NoSuchPath`] at the end if no commit has any of the
/// paths.
pub fn run<'a>(
    store: &'a Store,
    starts: &[CommitId],
    paths: &[&[u8]],
    options: &log::LogOptions,
    renames: FollowRenames,
    observer: &'a dyn Observer,
) -> Result<PathLog<'a>, PastError> {
    let paths = paths.iter().map(|path| normal(path)).collect::<Result<_, _>>()?;
    let left = options.limit.map_or(u64::MAX, std::num::NonZeroU64::get);
    let kept = starts.iter().filter_map(|start| nearest_kept(store, *start).transpose());
    let kept = kept.map(|found| Ok(found?.0)).collect::<Result<Vec<_>, StoreError>>()?;
    Ok(PathLog {
        store,
        observer,
        history: History::without(store, &options.excluded, &kept, options.parents)?,
        options: options.clone(),
        renames,
        paths,
        known: HashMap::new(),
        left,
        exists: false,
        ended: false,
    })
}

fn normal(path: &[u8]) -> Result<Vec<u8>, PastError> {
    match components(path).any(|part| part == b"..") {
        true => Err(PastError::Climbs { path: shown(path) }),
        false => Ok(components(path).collect::<Vec<_>>().join(&b'/')),
    }
}

impl PathLog<'_> {
    fn step(&mut self) -> Result<Option<PathChange>, PastError> {
        while self.left > 0
            && let Some(HistoryStep { id, commit, .. }) = self.history.pop()
        {
            self.observer.check()?;
            let step = self.compare_with_parents(id, commit)?;
            if let Some(step) = step.filter(|step| self.options.filter.selects(&step.commit)) {
                self.left -= 1;
                return Ok(Some(step));
            }
        }
        if self.exists {
            return Ok(None);
        }
        Err(PastError::NoSuchPath { paths: self.paths.iter().map(|path| shown(path)).collect() })
    }

    /// Compares a commit with its parents and selects the parents to follow. Returns the
    /// commit if a path changed in it.
    fn compare_with_parents(
        &mut self,
        id: CommitId,
        commit: Commit,
    ) -> Result<Option<PathChange>, PastError> {
        let seen = match self.known.remove(&id) {
            Some(seen) => seen,
            None => self.look_at(&self.paths, id, commit.tree)?,
        };
        let is_there = seen.iter().any(|state| state.entry.is_some());
        self.exists |= is_there;
        let paths: Vec<Vec<u8>> = seen.iter().map(|state| state.path.clone()).collect();
        // The nearest ancestors that were not forgotten.
        let parents = self.options.parents.of(&commit).iter();
        let parents = parents.filter_map(|parent| nearest_kept(self.store, *parent).transpose());
        let parents = parents.collect::<Result<Vec<_>, StoreError>>()?;
        let mut before = Vec::with_capacity(parents.len());
        for (parent, parent_commit) in &parents {
            let is_same_tree = parent_commit.tree == commit.tree;
            let old = match is_same_tree {
                true => seen.clone(),
                false => self.look_at(&paths, *parent, parent_commit.tree)?,
            };
            if is_same_tree || old == seen {
                self.remember(*parent, old);
                self.history.follow(&[*parent])?;
                return Ok(None);
            }
            before.push((*parent, parent_commit.tree, old));
        }
        let mut moved = Vec::new();
        let is_changed = !before.is_empty() || is_there;
        for (parent, tree, old) in before {
            let old = match self.renames {
                FollowRenames::Ignore => old,
                FollowRenames::Follow => {
                    self.follow_renames(&seen, &mut moved, commit.tree, parent, tree, old)?
                }
            };
            self.remember(parent, old);
        }
        let parents: Vec<CommitId> = parents.into_iter().map(|(id, _)| id).collect();
        self.history.follow(&parents)?;
        Ok(is_changed.then_some(PathChange { id, commit, is_forgotten: false, paths, moved }))
    }

    /// Stores the state of a queued commit. Adds to the state that another child has stored:
    /// children may know a path by different names.
    fn remember(&mut self, id: CommitId, states: Vec<PathState>) {
        let Some(known) = self.known.get_mut(&id) else {
            self.known.insert(id, states);
            return;
        };
        for state in states {
            if !known.iter().any(|known| known.path == state.path) {
                known.push(state);
            }
        }
    }

    fn look_at(
        &self,
        paths: &[Vec<u8>],
        commit: CommitId,
        tree: TreeId,
    ) -> Result<Vec<PathState>, PastError> {
        let look = |path: &Vec<u8>| -> Result<PathState, PastError> {
            let entry = look(self.store, commit, tree, path)?;
            Ok(PathState { path: path.clone(), entry })
        };
        paths.iter().map(look).collect()
    }

    /// For paths that a parent does not have, searches the parent for the same content at
    /// a path that is gone now.
    fn follow_renames(
        &self,
        seen: &[PathState],
        moved: &mut Vec<FollowedRename>,
        tree: TreeId,
        parent: CommitId,
        parent_tree: TreeId,
        mut old: Vec<PathState>,
    ) -> Result<Vec<PathState>, PastError> {
        for (PathState { path, entry }, old) in seen.iter().zip(&mut old) {
            let (Some(entry), None) = (entry, &old.entry) else { continue };
            let from = self.moved_from(parent, parent_tree, tree, path, &entry.kind)?;
            let Some(from) = from else { continue };
            old.entry = look(self.store, parent, parent_tree, &from)?;
            old.path.clone_from(&from);
            let step = FollowedRename { from, to: path.clone() };
            if !moved.contains(&step) {
                moved.push(step);
            }
        }
        Ok(old)
    }

    /// Returns a path of `parent` (its root is `parent_tree`) that `tree` does not have and whose
    /// content is `kind`.
    /// Prefers a path with the same name.
    fn moved_from(
        &self,
        parent: CommitId,
        parent_tree: TreeId,
        tree: TreeId,
        path: &[u8],
        kind: &EntryKind,
    ) -> Result<Option<Vec<u8>>, PastError> {
        // All empty files are equal, so an empty file cannot be traced to another one.
        if !matches!(kind, EntryKind::Folder { .. } | EntryKind::File { size: 1.., .. }) {
            return Ok(None);
        }
        let name = |path: &[u8]| components(path).last().map(<[u8]>::to_vec);
        let mut best = None;
        let mut gone = Changed::new(self.store, parent, parent_tree, &[tree], self.observer);
        while let Some(met) = gone.step()? {
            let ChangedItem::Entry { entry, is_new_name: true } = met else { continue };
            if entry.kind != *kind {
                continue;
            }
            if name(gone.path()) == name(path) {
                return Ok(Some(gone.path().to_vec()));
            }
            best.get_or_insert_with(|| gone.path().to_vec());
        }
        Ok(best)
    }
}

/// Returns the entry at a path of a commit, or `None` if there is none.
fn look(
    store: &Store,
    commit: CommitId,
    root: TreeId,
    path: &[u8],
) -> Result<Option<ComparedEntry>, PastError> {
    let mut found =
        ComparedEntry { kind: EntryKind::Folder { id: root }, metadata: Metadata::default() };
    let mut walked: Vec<u8> = Vec::new();
    for part in components(path) {
        let EntryKind::Folder { id } = found.kind else { return Ok(None) };
        let entry = entry_named(store, id, part).map_err(PastError::at(&walked, commit))?;
        let Some(entry) = entry else { return Ok(None) };
        let metadata = Metadata { mtime: None, ..entry.metadata };
        found = ComparedEntry { kind: entry.kind, metadata };
        push_name(&mut walked, part);
    }
    Ok(Some(found))
}

impl Iterator for PathLog<'_> {
    type Item = Result<PathChange, PastError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let step = self.step();
        self.ended = !matches!(step, Ok(Some(_)));
        step.transpose()
    }
}
