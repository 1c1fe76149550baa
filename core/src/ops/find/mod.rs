//! `find`: paths over the whole history, and in which commits each version of
//! them lived.
//!
//! Commits are taken line by line, each line from its newest commit along the
//! first parents to one that was met before, so that neighbours differ little.
//! Of each commit only those folders are read that differ from the one before
//! and are not known to be without a match (`present.rs`). So each tree is
//! read about once, however many commits have it. What was found is held up to
//! [`Options::limit_bytes`]: with more, the history is gone through again for
//! each further window of paths. So nothing grows with commits × files, nor
//! with a tree that names one folder many times.

mod pattern;
mod present;

use crate::{
    base::{
        id::CommitId,
        limits,
        observe::{Observer, Phase},
        time::Time,
    },
    format::{commit::Commit, tree::Kind},
    ops::find::{pattern::Pattern, present::Present},
    repo::past::PastError,
    store::{Marks, Store},
};

/// Whether `a` and `A` are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Case {
    /// They are not.
    #[default]
    Exact,
    /// They are, of ASCII letters.
    Ignored,
}

/// A kind of entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Regular files.
    File,
    /// Folders.
    Folder,
    /// Symbolic links.
    Symlink,
}

impl Wanted {
    fn has(self, kind: &Kind) -> bool {
        match self {
            Self::File => matches!(kind, Kind::File { .. }),
            Self::Folder => matches!(kind, Kind::Folder { .. }),
            Self::Symlink => matches!(kind, Kind::Symlink { .. }),
        }
    }
}

/// What to look for.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// A name, or a path from the top when it has a slash; with the wildcards
    /// `*`, `?`, `[…]`, `{…,…}`, and `**` for any number of folders. One that
    /// ends in a slash is that of a folder. A name without wildcards need not be UTF-8.
    pub pattern: &'a [u8],
    /// Whether case matters.
    pub case: Case,
    /// Entries of this kind only.
    pub wanted: Option<Wanted>,
    /// About how many bytes of matches are held at a time. Fewer take more
    /// passes through the history.
    pub limit_bytes: usize,
}

impl<'a> Options<'a> {
    /// Everything that matches `pattern`.
    pub fn new(pattern: &'a [u8]) -> Self {
        let limit_bytes = limits::FIND_BYTES;
        Self { pattern, case: Case::default(), wanted: None, limit_bytes }
    }
}

/// A commit and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Which.
    pub id: CommitId,
    /// When it was made.
    pub time: Time,
}

/// Neighbours along first parents that all have a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The oldest.
    pub first: Stamp,
    /// The newest.
    pub last: Stamp,
    /// How many.
    pub commits: u64,
}

/// One content at one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// What it is. All folders at one path are one version, with the tree of
    /// the newest.
    pub kind: Kind,
    /// Its mode there.
    pub mode: u16,
    /// Its mtime there, if one is kept.
    pub mtime: Option<Time>,
    /// Where it lived, newest first; more than one when it came back, or lived
    /// on several branches.
    pub ranges: Vec<Range>,
}

impl Version {
    /// In how many commits it lived.
    pub fn commits(&self) -> u64 {
        self.ranges.iter().map(|range| range.commits).sum()
    }
}

/// A path that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// From the top of the snapshot.
    pub path: Vec<u8>,
    /// Its versions, newest first.
    pub versions: Vec<Version>,
}

/// How much was looked through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Commits of the history.
    pub commits: u64,
    /// Nodes of trees that were read.
    pub trees: u64,
    /// Paths that match.
    pub paths: u64,
    /// Versions of them.
    pub versions: u64,
}

/// Looks through `starts` and everything before them, and hands out what is
/// found, sorted by path.
///
/// # Errors
/// [`PastError`], and what `each` returns. A search that fails may have handed
/// out some paths before.
pub fn run<E: From<PastError>>(
    store: &Store,
    starts: &[CommitId],
    options: &Options<'_>,
    observer: &dyn Observer,
    each: &mut dyn FnMut(&Found) -> Result<(), E>,
) -> Result<Outcome, E> {
    let pattern = Pattern::new(options.pattern, options.case)?;
    let mut wanted = options.wanted;
    let mut outcome = Outcome::default();
    if pattern.folders_only() {
        if options.wanted.is_some_and(|wanted| wanted != Wanted::Folder) {
            return Ok(outcome);
        }
        wanted = Some(Wanted::Folder);
    }
    observer.phase(Phase::History, None);
    let mut present = Present::new(store, pattern, wanted, options.limit_bytes, observer);
    let mut is_first = true;
    loop {
        let mut lines = Lines::new(store, starts);
        while let Some((id, commit, place)) = lines.next()? {
            outcome.trees += present.advance((id, &commit), place)?;
            if is_first {
                outcome.commits += 1;
                observer.advance(1, 0);
            }
        }
        store.tell_repairs(observer);
        present.finish(&mut |found| {
            if observer.cancelled() {
                return Err(PastError::Interrupted.into());
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

/// Where a commit stands in its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It is the newest.
    Start,
    /// It is the first parent of the one before.
    Further,
}

/// All commits, each once, line by line.
struct Lines<'a> {
    store: &'a Store,
    met: Marks,
    next: Option<CommitId>,
    starts: Vec<CommitId>,
}

impl<'a> Lines<'a> {
    fn new(store: &'a Store, starts: &[CommitId]) -> Self {
        let starts = starts.iter().rev().copied().collect();
        Self { store, met: Marks::new(store), next: None, starts }
    }

    fn next(&mut self) -> Result<Option<(CommitId, Commit, Place)>, PastError> {
        loop {
            let further = self.next.take().map(|id| (id, Place::Further));
            let next = further.or_else(|| self.starts.pop().map(|id| (id, Place::Start)));
            let Some((id, place)) = next else { return Ok(None) };
            if !self.met.mark(&id.object())? {
                continue;
            }
            let commit = self.store.commit(&id)?;
            let mut parents = commit.parents.iter().copied();
            self.next = parents.next();
            self.starts.extend(parents.rev());
            return Ok(Some((id, commit, place)));
        }
    }
}

/// Whether two entries are one version.
fn is_same(a: &Kind, b: &Kind) -> bool {
    matches!((a, b), (Kind::Folder { .. }, Kind::Folder { .. })) || a == b
}
