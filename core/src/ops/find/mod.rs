//! `find`: paths over the whole history, and in which commits each version of
//! them lived.
//!
//! Commits are taken line by line, each line from its newest commit along the
//! first parents to one that was met before, so that neighbours differ little.
//! Of each commit only those folders are read that differ from the one before
//! and are not known to be without a match (`present.rs`). So each tree is
//! read about once, however many commits have it, and what is kept is what
//! was found: nothing grows with commits × files.

mod pattern;
mod present;

use crate::{
    base::{
        id::CommitId,
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
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// A name, or a path from the top when it has a slash; with the wildcards
    /// `*`, `?`, `[…]`, `{…,…}`, and `**` for any number of folders. One that
    /// ends in a slash is that of a folder. A name without wildcards need not be UTF-8.
    pub pattern: &'a [u8],
    /// Whether case matters.
    pub case: Case,
    /// Entries of this kind only.
    pub wanted: Option<Wanted>,
}

impl<'a> Options<'a> {
    /// Everything that matches `pattern`.
    pub fn new(pattern: &'a [u8]) -> Self {
        Self { pattern, ..Self::default() }
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
/// [`PastError`], and what `each` returns. Nothing is handed out before all
/// has been read.
pub fn run<E: From<PastError>>(
    store: &Store,
    starts: &[CommitId],
    options: &Options<'_>,
    observer: &dyn Observer,
    each: &mut dyn FnMut(&Found) -> Result<(), E>,
) -> Result<Outcome, E> {
    let (mut present, mut outcome) = search(store, starts, options, observer)?;
    store.tell_repairs(observer);
    present.finish(&mut |found| {
        outcome.paths += 1;
        outcome.versions += found.versions.len() as u64;
        each(found)
    })?;
    Ok(outcome)
}

fn search<'a>(
    store: &'a Store,
    starts: &[CommitId],
    options: &Options<'_>,
    observer: &'a dyn Observer,
) -> Result<(Present<'a>, Outcome), PastError> {
    let pattern = Pattern::new(options.pattern, options.case)?;
    let wanted = if pattern.folders_only() { Some(Wanted::Folder) } else { options.wanted };
    let mut outcome = Outcome::default();
    if pattern.folders_only() && options.wanted.is_some_and(|wanted| wanted != Wanted::Folder) {
        return Ok((Present::new(store, pattern, wanted, observer), outcome));
    }
    observer.phase(Phase::History, None);
    let mut present = Present::new(store, pattern, wanted, observer);
    let mut lines = Lines::new(store, starts);
    while let Some((id, commit, place)) = lines.next()? {
        outcome.trees += present.advance((id, &commit), place)?;
        outcome.commits += 1;
        observer.advance(1, 0);
    }
    Ok((present, outcome))
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
