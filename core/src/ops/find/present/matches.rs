//! Versions that were found, and when each was there.
//!
//! Commits are numbered as they come. A version that is there costs nothing
//! until it goes: only then is written down from which number to which it was.

use crate::{
    format::tree::{Entry, Kind},
    ops::find::{Found, Place, Range, Stamp, Version, is_same},
};

/// A line of commits: number and stamp of its newest one, and of its oldest.
#[derive(Clone, Copy, Debug)]
struct Line {
    start: (u64, Stamp),
    end: (u64, Stamp),
}

/// Commits one after the other, of one or several lines, that have a version.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: (u64, Stamp),
    end: (u64, Stamp),
}

#[derive(Debug)]
struct One {
    version: Version,
    runs: Vec<Run>,
}

/// A path with its versions.
#[derive(Debug, Default)]
struct PathFound {
    versions: Vec<One>,
    /// The version that is there, and since when.
    live: Option<(usize, (u64, Stamp))>,
    /// Number of the commit in which it was met last.
    seen: u64,
}

/// About how many bytes a path, a version and a run take, beside names and targets.
const PATH_BYTES: usize = 256;
const VERSION_BYTES: usize = 192;
const RUN_BYTES: usize = 112;

impl One {
    fn bytes(&self) -> usize {
        let target = match &self.version.kind {
            Kind::Symlink { target } => target.len(),
            _ => 0,
        };
        VERSION_BYTES + target + self.runs.len() * RUN_BYTES
    }
}

impl PathFound {
    fn bytes(&self) -> usize {
        PATH_BYTES + self.versions.iter().map(One::bytes).sum::<usize>()
    }
}

/// All paths that were found.
#[derive(Debug, Default)]
pub(super) struct Matches {
    paths: Vec<PathFound>,
    /// Numbers of paths that were removed.
    free: Vec<usize>,
    /// About how many bytes all this takes.
    bytes: usize,
    lines: Vec<Line>,
    /// The present commit.
    now: Option<(u64, Stamp)>,
    /// The one before.
    before: Option<(u64, Stamp)>,
}

impl Matches {
    /// Number of the present commit, from 1.
    pub(super) fn now(&self) -> u64 {
        self.now.map_or(0, |(number, _)| number)
    }

    /// Goes on to the next commit.
    pub(super) fn go_to(&mut self, stamp: Stamp, place: Place) {
        self.before = self.now;
        let now = (self.now() + 1, stamp);
        self.now = Some(now);
        match self.lines.last_mut() {
            Some(line) if place == Place::Further => line.end = now,
            _ => self.lines.push(Line { start: now, end: now }),
        }
    }

    /// A path that was not found before.
    pub(super) fn add(&mut self) -> usize {
        self.bytes += PATH_BYTES;
        self.free.pop().unwrap_or_else(|| {
            self.paths.push(PathFound::default());
            self.paths.len() - 1
        })
    }

    /// Forgets a path; its number is given to another one.
    pub(super) fn remove(&mut self, found: usize) {
        self.bytes -= self.bytes_of(found);
        self.paths[found] = PathFound::default();
        self.free.push(found);
    }

    /// About how many bytes all paths take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// About how many bytes one path takes.
    pub(super) fn bytes_of(&self, found: usize) -> usize {
        self.paths[found].bytes()
    }

    /// It is there as it was.
    pub(super) fn see(&mut self, found: usize) {
        self.paths[found].seen = self.now();
    }

    /// It is there as `entry` says. Returns whether it is met for the first
    /// time in this commit.
    pub(super) fn meet(&mut self, found: usize, entry: &Entry) -> bool {
        let Some(now) = self.now else { return false };
        if std::mem::replace(&mut self.paths[found].seen, now.0) == now.0 {
            return false;
        }
        let live = self.paths[found].live.map(|(at, _)| at);
        let same = |one: &One| is_same(&one.version.kind, &entry.kind);
        if live.is_some_and(|at| same(&self.paths[found].versions[at])) {
            return true;
        }
        self.close(found);
        let path = &mut self.paths[found];
        let known = path.versions.iter().position(same);
        let at = known.unwrap_or_else(|| {
            let (kind, metadata) = (entry.kind.clone(), &entry.metadata);
            let (mode, mtime) = (metadata.mode, metadata.mtime);
            let version = Version { kind, mode, mtime, ranges: Vec::new() };
            let one = One { version, runs: Vec::new() };
            self.bytes += one.bytes();
            path.versions.push(one);
            path.versions.len() - 1
        });
        path.live = Some((at, now));
        true
    }

    /// It went with the present commit, if it was not met there.
    pub(super) fn close_unless_seen(&mut self, found: usize) {
        if self.paths[found].seen != self.now() {
            self.close(found);
        }
    }

    /// The version that is there goes with the present commit.
    pub(super) fn close(&mut self, found: usize) {
        let path = &mut self.paths[found];
        if let (Some((at, start)), Some(end)) = (path.live.take(), self.before)
            && start.0 <= end.0
        {
            path.versions[at].runs.push(Run { start, end });
            self.bytes += RUN_BYTES;
        }
    }

    /// There is no further commit.
    pub(super) fn finish(&mut self) {
        self.before = self.now;
        (0..self.paths.len()).for_each(|found| self.close(found));
    }

    /// What was found at a path.
    pub(super) fn found(&self, found: usize, path: &[u8]) -> Found {
        let versions = self.paths[found].versions.iter().map(|one| {
            let mut ranges: Vec<Range> = one.runs.iter().flat_map(|run| self.ranges(run)).collect();
            ranges.sort_by_key(|range| std::cmp::Reverse((range.last.time, range.first.time)));
            Version { ranges, ..one.version.clone() }
        });
        let mut versions: Vec<Version> = versions.collect();
        let newest = |version: &Version| version.ranges.first().map(|range| range.last.time);
        versions.sort_by_key(|version| std::cmp::Reverse(newest(version)));
        Found { path: path.to_vec(), versions }
    }

    /// The parts of a run, one for each line.
    fn ranges<'s>(&'s self, run: &'s Run) -> impl Iterator<Item = Range> + 's {
        let from = self.lines.partition_point(|line| line.end.0 < run.start.0);
        let lines = self.lines[from..].iter().take_while(|line| line.start.0 <= run.end.0);
        lines.map(|line| {
            let last = if run.start.0 > line.start.0 { run.start } else { line.start };
            let first = if run.end.0 < line.end.0 { run.end } else { line.end };
            Range { first: first.1, last: last.1, commits: first.0 - last.0 + 1 }
        })
    }
}
