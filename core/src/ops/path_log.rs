//! `log -- PATH`: the commits in which a path changed, newest first.
//!
//! A path changed in a commit when it is not there as it is in a parent: kind,
//! content, mode, owner and extended attributes count, the mtime does not. Of
//! a folder everything below counts, times included, since its tree has them.
//!
//! History is simplified as git does it: a merge that has the path as one of
//! its parents has it is left out, and only that parent is followed, because the others
//! did not contribute. A merge that differs from all of them is listed, and
//! all are followed. With first parents only, only those are compared.
//!
//! A path is looked up part by part, and not at all where the trees above it
//! are the same; of each commit that waits one entry for each path is held.

use std::collections::HashMap;

use crate::{
    base::{
        id::{CommitId, TreeId},
        observe::Observer,
    },
    format::{
        commit::Commit,
        tree::{Kind, Metadata},
    },
    ops::log,
    repo::{
        changed::{Changed, Met, Others},
        history::History,
        past::{PastError, shown},
        path::{components, entry_named},
    },
    store::Store,
};

/// Whether a path is followed to the name it had before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Renames {
    /// The path is taken as it is.
    #[default]
    Ignore,
    /// Where the path appears while the same content goes from another path,
    /// that one is looked for from there on.
    Follow,
}

/// A path that had another name before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Its name before.
    pub from: Vec<u8>,
    /// Its name in this commit.
    pub to: Vec<u8>,
}

/// A commit in which a path changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its id.
    pub id: CommitId,
    /// What it says.
    pub commit: Commit,
    /// The renames in it that were followed.
    pub moved: Vec<Moved>,
}

/// Commits in which paths changed, read as they are asked for.
pub struct PathLog<'a> {
    store: &'a Store,
    observer: &'a dyn Observer,
    history: History<'a>,
    options: log::Options,
    renames: Renames,
    paths: Vec<Vec<u8>>,
    /// What is known of commits that wait.
    known: HashMap<CommitId, Seen>,
    left: u64,
    /// Whether any commit so far has one of the paths.
    exists: bool,
    ended: bool,
}

/// The paths looked for in a commit, and what is there.
#[derive(Clone)]
struct Seen {
    paths: Vec<Vec<u8>>,
    entries: Vec<Option<Look>>,
}

/// What counts of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Look {
    kind: Kind,
    metadata: Metadata,
}

/// Lists the commits of `starts` and before in which one of `paths` changed.
///
/// # Errors
/// [`PastError`] when a start cannot be read or a path is none; what comes up
/// later is told as the list goes, [`PastError::NoSuchPath`] at its end.
pub fn run<'a>(
    store: &'a Store,
    starts: &[CommitId],
    paths: &[&[u8]],
    (options, renames): (&log::Options, Renames),
    observer: &'a dyn Observer,
) -> Result<PathLog<'a>, PastError> {
    let paths = paths.iter().map(|path| normal(path)).collect::<Result<_, _>>()?;
    let left = options.limit.map_or(u64::MAX, std::num::NonZeroU64::get);
    Ok(PathLog {
        store,
        observer,
        history: History::new(store, starts, options.parents)?,
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
    fn step(&mut self) -> Result<Option<Step>, PastError> {
        while self.left > 0
            && let Some((id, commit)) = self.history.pop()
        {
            if self.observer.cancelled() {
                return Err(PastError::Interrupted);
            }
            let is_older = self.options.since.is_some_and(|since| commit.time < since);
            let is_newer = self.options.until.is_some_and(|until| commit.time > until);
            let step = self.look_at(id, commit)?;
            if let Some(step) = step.filter(|_| !is_older && !is_newer) {
                self.left -= 1;
                return Ok(Some(step));
            }
        }
        if self.exists {
            return Ok(None);
        }
        Err(PastError::NoSuchPath { paths: self.paths.iter().map(|path| shown(path)).collect() })
    }

    /// Compares a commit with its parents and chooses which to follow. Returns
    /// it if a path changed in it.
    fn look_at(&mut self, id: CommitId, commit: Commit) -> Result<Option<Step>, PastError> {
        let seen = match self.known.remove(&id) {
            Some(seen) => seen,
            None => self.seen(self.paths.clone(), (id, commit.tree))?,
        };
        self.exists |= seen.entries.iter().any(Option::is_some);
        let parents = self.options.parents.of(&commit);
        let mut before = Vec::with_capacity(parents.len());
        for parent in parents {
            let there = self.store.commit(parent)?;
            let is_same_tree = there.tree == commit.tree;
            let old = match is_same_tree {
                true => seen.clone(),
                false => self.seen(seen.paths.clone(), (*parent, there.tree))?,
            };
            if is_same_tree || old.entries == seen.entries {
                self.known.insert(*parent, old);
                self.history.follow(&[*parent])?;
                return Ok(None);
            }
            before.push((*parent, there.tree, old));
        }
        let mut moved = Vec::new();
        let is_changed = !before.is_empty() || seen.entries.iter().any(Option::is_some);
        for (parent, tree, old) in before {
            let old = match self.renames {
                Renames::Ignore => old,
                Renames::Follow => {
                    self.renamed((&seen, &mut moved), commit.tree, (parent, tree, old))?
                }
            };
            self.known.insert(parent, old);
        }
        self.history.follow(self.options.parents.of(&commit))?;
        Ok(is_changed.then_some(Step { id, commit, moved }))
    }

    fn seen(
        &self,
        paths: Vec<Vec<u8>>,
        (commit, tree): (CommitId, TreeId),
    ) -> Result<Seen, PastError> {
        let look = |path: &Vec<u8>| look(self.store, (commit, tree), path);
        let entries = paths.iter().map(look).collect::<Result<_, _>>()?;
        Ok(Seen { paths, entries })
    }

    /// For paths that a parent does not have: looks there for what has the
    /// same content and is gone.
    fn renamed(
        &self,
        (seen, moved): (&Seen, &mut Vec<Moved>),
        tree: TreeId,
        (parent, parent_tree, mut old): (CommitId, TreeId, Seen),
    ) -> Result<Seen, PastError> {
        for (at, path) in seen.paths.iter().enumerate() {
            let (Some(Some(look)), Some(None)) = (seen.entries.get(at), old.entries.get(at)) else {
                continue;
            };
            let from = self.moved_from((parent, parent_tree), tree, (path, &look.kind))?;
            let Some(from) = from else { continue };
            old.entries[at] = self::look(self.store, (parent, parent_tree), &from)?;
            old.paths[at].clone_from(&from);
            let step = Moved { from, to: path.clone() };
            if !moved.contains(&step) {
                moved.push(step);
            }
        }
        Ok(old)
    }

    /// A path of `parent` that `tree` does not have and whose content is
    /// `kind`; one of the same name if there is one.
    fn moved_from(
        &self,
        parent: (CommitId, TreeId),
        tree: TreeId,
        (path, kind): (&[u8], &Kind),
    ) -> Result<Option<Vec<u8>>, PastError> {
        // All empty files are the same, and none was another one before.
        if !matches!(kind, Kind::Folder { .. } | Kind::File { size: 1.., .. }) {
            return Ok(None);
        }
        let name = |path: &[u8]| components(path).last().map(<[u8]>::to_vec);
        let mut best = None;
        let mut gone = Changed::new(self.store, parent, &[tree], self.observer);
        while let Some(met) = gone.step()? {
            let Met::Entry(entry, Others::Nothing) = met else { continue };
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

/// What a commit has at a path; `None` when it has nothing there.
fn look(
    store: &Store,
    (commit, root): (CommitId, TreeId),
    path: &[u8],
) -> Result<Option<Look>, PastError> {
    let mut found = Look { kind: Kind::Folder { id: root }, metadata: Metadata::default() };
    let mut walked: Vec<u8> = Vec::new();
    for part in components(path) {
        let Kind::Folder { id } = found.kind else { return Ok(None) };
        let entry = entry_named(store, id, part).map_err(PastError::at(&walked, commit))?;
        let Some(entry) = entry else { return Ok(None) };
        let metadata = Metadata { mtime: None, ..entry.metadata };
        found = Look { kind: entry.kind, metadata };
        if !walked.is_empty() {
            walked.push(b'/');
        }
        walked.extend_from_slice(part);
    }
    Ok(Some(found))
}

impl Iterator for PathLog<'_> {
    type Item = Result<Step, PastError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let step = self.step();
        self.ended = !matches!(step, Ok(Some(_)));
        step.transpose()
    }
}
