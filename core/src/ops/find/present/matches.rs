//! The versions that were found, and the commits that contain them.
//!
//! Commits are numbered in the order of the search. While a version stays, it needs no work. When
//! it disappears, the range of commit numbers that contain it is recorded.

use crate::{
    format::tree::{Entry, EntryKind},
    ops::find::{CommitStamp, FoundPath, LinePosition, PathVersion, Range, is_same},
};

/// A commit with its position in the search.
#[derive(Clone, Copy, Debug)]
struct NumberedCommit {
    /// The number of the commit, counted from 1 at the newest.
    number: u64,
    stamp: CommitStamp,
}

/// Consecutive commits.
#[derive(Clone, Copy, Debug)]
struct CommitSpan {
    /// The newest commit.
    start: NumberedCommit,
    /// The oldest commit.
    end: NumberedCommit,
}

#[derive(Debug)]
struct FoundVersion {
    version: PathVersion,
    /// The commits that contain the version. A run may span several lines of history.
    runs: Vec<CommitSpan>,
}

/// A path and its versions.
#[derive(Debug, Default)]
struct PathFound {
    versions: Vec<FoundVersion>,
    /// The version in the present commit, and the commit in which it appeared first.
    live: Option<(usize, NumberedCommit)>,
    /// Number of the last commit that contains the path.
    seen: u64,
}

/// Approximate size in bytes of a path, a version and a run, without names and link targets.
const PATH_BYTES: usize = 256;
const VERSION_BYTES: usize = 192;
const RUN_BYTES: usize = 112;

impl FoundVersion {
    fn bytes(&self) -> usize {
        let target = match &self.version.kind {
            EntryKind::Symlink { target } => target.len(),
            _ => 0,
        };
        VERSION_BYTES + target + self.runs.len() * RUN_BYTES
    }
}

impl PathFound {
    fn bytes(&self) -> usize {
        PATH_BYTES + self.versions.iter().map(FoundVersion::bytes).sum::<usize>()
    }
}

/// All paths that were found.
#[derive(Debug, Default)]
pub(super) struct Matches {
    paths: Vec<PathFound>,
    /// Indices of removed paths, which can be reused.
    free: Vec<usize>,
    /// Approximate size of all entries in bytes.
    bytes: usize,
    /// Lines of history, each along first parents.
    lines: Vec<CommitSpan>,
    /// The present commit.
    now: Option<NumberedCommit>,
    /// The previous commit.
    before: Option<NumberedCommit>,
}

impl Matches {
    /// Returns the number of the present commit, counted from 1.
    pub(super) fn now(&self) -> u64 {
        self.now.map_or(0, |commit| commit.number)
    }

    /// Moves to the next commit.
    pub(super) fn go_to(&mut self, stamp: CommitStamp, place: LinePosition) {
        self.before = self.now;
        let now = NumberedCommit { number: self.now() + 1, stamp };
        self.now = Some(now);
        match self.lines.last_mut() {
            Some(line) if place == LinePosition::Further => line.end = now,
            _ => self.lines.push(CommitSpan { start: now, end: now }),
        }
    }

    /// Adds a new path and returns its index.
    pub(super) fn add(&mut self) -> usize {
        self.bytes += PATH_BYTES;
        self.free.pop().unwrap_or_else(|| {
            self.paths.push(PathFound::default());
            self.paths.len() - 1
        })
    }

    /// Removes a path. Its index can be reused.
    pub(super) fn remove(&mut self, found: usize) {
        self.bytes -= self.bytes_of(found);
        self.paths[found] = PathFound::default();
        self.free.push(found);
    }

    /// Returns the approximate size of all paths in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the approximate size of one path in bytes.
    pub(super) fn bytes_of(&self, found: usize) -> usize {
        self.paths[found].bytes()
    }

    /// Records that the path is in the present commit, unchanged.
    pub(super) fn see(&mut self, found: usize) {
        self.paths[found].seen = self.now();
    }

    /// Records that the path is in the present commit with this entry. Returns true if
    /// this is the first call for the path in this commit.
    pub(super) fn meet(&mut self, found: usize, entry: &Entry) -> bool {
        let Some(now) = self.now else { return false };
        if std::mem::replace(&mut self.paths[found].seen, now.number) == now.number {
            return false;
        }
        let live = self.paths[found].live.map(|(at, _)| at);
        let same = |one: &FoundVersion| is_same(&one.version.kind, &entry.kind);
        if live.is_some_and(|at| same(&self.paths[found].versions[at])) {
            return true;
        }
        self.close(found);
        let path = &mut self.paths[found];
        let known = path.versions.iter().position(same);
        let at = known.unwrap_or_else(|| {
            let (kind, metadata) = (entry.kind.clone(), &entry.metadata);
            let (mode, mtime) = (metadata.mode, metadata.mtime);
            let version = PathVersion { kind, mode, mtime, ranges: Vec::new() };
            let one = FoundVersion { version, runs: Vec::new() };
            self.bytes += one.bytes();
            path.versions.push(one);
            path.versions.len() - 1
        });
        path.live = Some((at, now));
        true
    }

    /// Ends the current version if the path is not in the present commit.
    pub(super) fn close_unless_seen(&mut self, found: usize) {
        if self.paths[found].seen != self.now() {
            self.close(found);
        }
    }

    /// Ends the current version: the commit before is the last one that contains it.
    pub(super) fn close(&mut self, found: usize) {
        let path = &mut self.paths[found];
        if let (Some((at, start)), Some(end)) = (path.live.take(), self.before)
            && start.number <= end.number
        {
            path.versions[at].runs.push(CommitSpan { start, end });
            self.bytes += RUN_BYTES;
        }
    }

    /// Ends all current versions after the last commit.
    pub(super) fn finish(&mut self) {
        self.before = self.now;
        (0..self.paths.len()).for_each(|found| self.close(found));
    }

    /// Returns the versions of a path, newest first.
    pub(super) fn found(&self, found: usize, path: &[u8]) -> FoundPath {
        let versions = self.paths[found].versions.iter().map(|one| {
            let mut ranges: Vec<Range> = one.runs.iter().flat_map(|run| self.ranges(run)).collect();
            ranges.sort_by_key(|range| std::cmp::Reverse((range.last.time, range.first.time)));
            PathVersion { ranges, ..one.version.clone() }
        });
        let mut versions: Vec<PathVersion> = versions.collect();
        let newest = |version: &PathVersion| version.ranges.first().map(|range| range.last.time);
        versions.sort_by_key(|version| std::cmp::Reverse(newest(version)));
        FoundPath { path: path.to_vec(), versions }
    }

    /// Splits a run at the ends of lines: returns one range for each line.
    fn ranges<'s>(&'s self, run: &'s CommitSpan) -> impl Iterator<Item = Range> + 's {
        let from = self.lines.partition_point(|line| line.end.number < run.start.number);
        let lines = self.lines[from..].iter();
        let lines = lines.take_while(|line| line.start.number <= run.end.number);
        lines.map(|line| {
            let last = if run.start.number > line.start.number { run.start } else { line.start };
            let first = if run.end.number < line.end.number { run.end } else { line.end };
            let commits = first.number - last.number + 1;
            Range { first: first.stamp, last: last.stamp, commits }
        })
    }
}
