//! `find`: searches the whole history for paths, and lists the commits that contain each
//! version.
//!
//! The history is divided into lines. A line follows first parents from its newest commit until a
//! commit that was visited before, so neighbouring commits differ little. For each commit, the
//! search reads only folders that differ from the commit before and that may contain a match
//! (`present.rs`). Each tree is therefore read about once, however many commits contain it.
//!
//! The search holds at most [`FindOptions::limit_bytes`] of matches. If there are more, it passes
//! through the history again for each further window of paths. Memory therefore does not grow with
//! commits × files, nor with a tree that contains the same folder many times.

mod pattern;
mod present;

use crate::{
    base::{
        blocked::Blocked,
        id::CommitId,
        limits,
        observe::{Observer, Phase},
        time::Time,
    },
    format::{commit::Commit, tree::EntryKind},
    ops::find::{pattern::NamePattern, present::LiveMatches},
    repo::past::PastError,
    store::{Ancestor, Marks, Store},
};

/// Selects whether the search distinguishes upper and lower case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Case {
    /// `a` and `A` are different.
    #[default]
    Exact,
    /// ASCII letters match in either case.
    Ignored,
}

/// The kind of entry to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindFilter {
    /// Regular files.
    File,
    /// Folders.
    Folder,
    /// Symbolic links.
    Symlink,
}

impl KindFilter {
    fn has(self, kind: &EntryKind) -> bool {
        match self {
            Self::File => matches!(kind, EntryKind::File { .. }),
            Self::Folder => matches!(kind, EntryKind::Folder { .. }),
            Self::Symlink => matches!(kind, EntryKind::Symlink { .. }),
        }
    }
}

/// The parameters of a search.
#[derive(Clone, Copy, Debug)]
pub struct FindOptions<'a> {
    /// A name, or a path from the root if it contains a slash. The wildcards are `*`,
    /// `?`, `[…]`, `{…,…}`, and `**` for any number of folders. A pattern that ends in a
    /// slash matches only folders. A name without wildcards need not be UTF-8.
    pub pattern: &'a [u8],
    /// Selects whether the search distinguishes upper and lower case.
    pub case: Case,
    /// Only entries of this kind match.
    pub wanted: Option<KindFilter>,
    /// Approximate number of bytes of matches that are held at once. A lower limit needs more
    /// passes through the history.
    pub limit_bytes: usize,
}

impl<'a> FindOptions<'a> {
    /// Creates options that find everything that matches `pattern`.
    pub fn new(pattern: &'a [u8]) -> Self {
        let limit_bytes = limits::FIND_BYTES;
        Self { pattern, case: Case::default(), wanted: None, limit_bytes }
    }
}

/// A commit and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitStamp {
    pub id: CommitId,
    pub time: Time,
}

/// Consecutive commits along first parents that all contain a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The oldest commit.
    pub first: CommitStamp,
    /// The newest commit.
    pub last: CommitStamp,
    /// Number of commits.
    pub commits: u64,
}

/// A version of the entry at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathVersion {
    /// Kind and content. All folders at a path count as one version, which has the newest
    /// folder's tree.
    pub kind: EntryKind,
    /// File mode of the entry.
    pub mode: u16,
    /// Modification time of the entry, if it is recorded.
    pub mtime: Option<Time>,
    /// The ranges of commits that contain the version, newest first. There are several if
    /// the version was removed and restored, or if it is on several branches.
    pub ranges: Vec<Range>,
}

impl PathVersion {
    /// Returns the number of commits that contain the version.
    pub fn commits(&self) -> u64 {
        self.ranges.iter().map(|range| range.commits).sum()
    }
}

/// A path that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPath {
    /// The path from the root of the snapshot.
    pub path: Vec<u8>,
    /// The versions of the path, newest first.
    pub versions: Vec<PathVersion>,
}

/// Totals of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FindOutcome {
    /// Commits in the searched history, without forgotten ones.
    pub commits: u64,
    /// Forgotten commits in the history, which the search skips.
    pub forgotten_commits: u64,
    /// Tree nodes of the searched commits that were read. The nodes of the tree with which a commit
    /// is compared do not count.
    pub trees: u64,
    /// Paths that match.
    pub paths: u64,
    /// Versions of the matching paths.
    pub versions: u64,
}

/// Searches `starts` and all their ancestors, and passes matches to `each`, sorted by
/// path.
///
/// # Errors
/// [`PastError`], or the error that `each` returns. Some paths may have been passed to
/// `each` before the error.
pub fn run<E: From<PastError>>(
    store: &Store,
    starts: &[CommitId],
    options: &FindOptions<'_>,
    observer: &dyn Observer,
    each: &mut dyn FnMut(&FoundPath) -> Result<(), E>,
) -> Result<FindOutcome, E> {
    let pattern = NamePattern::new(options.pattern, options.case).map_err(PastError::from)?;
    let mut wanted = options.wanted;
    let mut outcome = FindOutcome::default();
    if pattern.folders_only() {
        if options.wanted.is_some_and(|wanted| wanted != KindFilter::Folder) {
            return Ok(outcome);
        }
        wanted = Some(KindFilter::Folder);
    }
    observer.phase(Phase::History, None);
    let mut present = LiveMatches::new(store, pattern, wanted, options.limit_bytes, observer);
    let mut is_first = true;
    loop {
        let mut lines = FirstParentLines::new(store, starts);
        while let Some(LineStep { id, commit, place }) = lines.next()? {
            outcome.trees += present.advance(id, &commit, place)?;
            if is_first {
                outcome.commits += 1;
                observer.advance(1, 0);
            }
        }
        outcome.forgotten_commits = lines.forgotten;
        store.report_repairs(observer);
        present.finish(&mut |found| {
            if observer.cancelled() {
                return Err(PastError::Blocked(Blocked::Interrupted).into());
            }
            outcome.paths += 1;
            outcome.versions += found.versions.len() as u64;
            each(found)
        })?;
        if !present.next_window() {
            return Ok(outcome);
        }
        is_first = false;
    }
}

/// The position of a commit in its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinePosition {
    /// The newest commit of the line.
    Start,
    /// The first parent of the commit before.
    Further,
}

/// Iterates over all commits, each once, line by line.
struct FirstParentLines<'a> {
    store: &'a Store,
    visited: Marks,
    next: Option<CommitId>,
    starts: Vec<CommitId>,
    /// Number of forgotten commits that were skipped.
    forgotten: u64,
}

/// A commit and its place in a line of history.
struct LineStep {
    id: CommitId,
    commit: Commit,
    place: LinePosition,
}

impl<'a> FirstParentLines<'a> {
    fn new(store: &'a Store, starts: &[CommitId]) -> Self {
        let starts = starts.iter().rev().copied().collect();
        Self { store, visited: Marks::new(store), next: None, starts, forgotten: 0 }
    }

    fn next(&mut self) -> Result<Option<LineStep>, PastError> {
        loop {
            let further = self.next.take().map(|id| (id, LinePosition::Further));
            let next = further.or_else(|| self.starts.pop().map(|id| (id, LinePosition::Start)));
            let Some((id, place)) = next else { return Ok(None) };
            if !self.visited.mark_ancestor(&id)? {
                continue;
            }
            let Ancestor { commit, is_forgotten } = self.store.ancestor(&id)?;
            let mut parents = commit.parents.iter().copied();
            self.next = parents.next();
            self.starts.extend(parents.rev());
            if is_forgotten {
                self.forgotten += 1;
                continue;
            }
            return Ok(Some(LineStep { id, commit, place }));
        }
    }
}

/// Returns true if two entries at one path are the same version.
fn is_same(a: &EntryKind, b: &EntryKind) -> bool {
    matches!((a, b), (EntryKind::Folder { .. }, EntryKind::Folder { .. })) || a == b
}
