//! The versions that were found, and the commits that contain them.
//!
//! Commits are numbered in the order of the search. While a version stays, it needs no work. When
//! it disappears, the range of commit numbers that contain it is recorded.

use std::{collections::BTreeMap, ops::Bound};

use crate::{
    format::tree::{Entry, EntryKind},
    ops::find::{
        CommitStamp, FoundPath, LinePosition, PathVersion, Range, is_same, present::path_of,
    },
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
    fn bytes(&self, key: &[u8]) -> usize {
        PATH_BYTES + key.len() + self.versions.iter().map(FoundVersion::bytes).sum::<usize>()
    }

    /// Ends the current version: `last` is the last commit that contains it. Returns by how many bytes
    /// the path has grown.
    fn close(&mut self, last: Option<NumberedCommit>) -> usize {
        match (self.live.take(), last) {
            (Some((at, start)), Some(end)) if start.number <= end.number => {
                self.versions[at].runs.push(CommitSpan { start, end });
                RUN_BYTES
            }
            _ => 0,
        }
    }
}

/// All paths that were found.
#[derive(Debug, Default)]
pub(super) struct Matches {
    /// The paths, by key.
    paths: BTreeMap<Vec<u8>, PathFound>,
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
    /// Moves to the next commit.
    pub(super) fn go_to(&mut self, stamp: CommitStamp, place: LinePosition) {
        self.before = self.now;
        let number = self.now.map_or(0, |commit| commit.number) + 1;
        let now = NumberedCommit { number, stamp };
        self.now = Some(now);
        match self.lines.last_mut() {
            Some(line) if place == LinePosition::Further => line.end = now,
            _ => self.lines.push(CommitSpan { start: now, end: now }),
        }
    }

    /// Records that the present commit has this entry at a path.
    pub(super) fn meet(&mut self, key: &[u8], entry: &Entry) {
        let Some(now) = self.now else { return };
        let same = |one: &FoundVersion| is_same(&one.version.kind, &entry.kind);
        if !self.paths.contains_key(key) {
            self.paths.insert(key.to_vec(), PathFound::default());
            self.bytes += PATH_BYTES + key.len();
        }
        let Some(path) = self.paths.get_mut(key) else { return };
        if path.live.is_some_and(|(at, _)| same(&path.versions[at])) {
            return;
        }
        self.bytes += path.close(self.before);
        let at = path.versions.iter().position(same).unwrap_or_else(|| {
            let (kind, metadata) = (entry.kind.clone(), &entry.metadata);
            let (mode, mtime) = (metadata.mode, metadata.mtime);
            let version = PathVersion { kind, mode, mtime, ranges: Vec::new() };
            let one = FoundVersion { version, runs: Vec::new() };
            self.bytes += one.bytes();
            path.versions.push(one);
            path.versions.len() - 1
        });
        path.live = Some((at, now));
    }

    /// Records that the present commit has no match at a path.
    pub(super) fn close(&mut self, key: &[u8]) {
        if let Some(path) = self.paths.get_mut(key) {
            self.bytes += path.close(self.before);
        }
    }

    /// Records that the present commit has no match whose key begins with `prefix`.
    pub(super) fn close_below(&mut self, prefix: &[u8]) {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        for (_, path) in
            self.paths.range_mut::<[u8], _>(from).take_while(|(key, _)| key.starts_with(prefix))
        {
            self.bytes += path.close(self.before);
        }
    }

    /// Drops the last paths if the paths take more than `most_bytes`. Returns the key of the first one
    /// that was dropped.
    pub(super) fn trim(&mut self, most_bytes: usize) -> Option<Vec<u8>> {
        if self.bytes <= most_bytes {
            return None;
        }
        // Keep only half of the limit, so that trimming is rare.
        let mut kept_bytes = 0;
        let end = self.paths.iter().enumerate().find_map(|(at, (key, path))| {
            kept_bytes += path.bytes(key);
            (at > 0 && kept_bytes > most_bytes / 2).then(|| key.clone())
        })?;
        let dropped = self.paths.split_off(&end);
        self.bytes -= dropped.iter().map(|(key, path)| path.bytes(key)).sum::<usize>();
        Some(end)
    }

    /// Ends all current versions after the last commit. Passes the paths to `each`, sorted by key.
    pub(super) fn finish<E>(
        &mut self,
        each: &mut dyn FnMut(&FoundPath) -> Result<(), E>,
    ) -> Result<(), E> {
        for (key, mut path) in std::mem::take(&mut self.paths) {
            path.close(self.now);
            each(&self.found(path, path_of(&key)))?;
        }
        Ok(())
    }

    /// Returns the versions of a path, newest first.
    fn found(&self, found: PathFound, path: Vec<u8>) -> FoundPath {
        let versions = found.versions.into_iter().map(|one| {
            let mut ranges: Vec<Range> = one.runs.iter().flat_map(|run| self.ranges(run)).collect();
            ranges.sort_by_key(|range| std::cmp::Reverse((range.last.time, range.first.time)));
            PathVersion { ranges, ..one.version }
        });
        let mut versions: Vec<PathVersion> = versions.collect();
        let newest = |version: &PathVersion| version.ranges.first().map(|range| range.last.time);
        versions.sort_by_key(|version| std::cmp::Reverse(newest(version)));
        FoundPath { path, versions }
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
