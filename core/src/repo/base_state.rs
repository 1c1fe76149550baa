//! The base of a project's files as a state machine.
//!
//! The state is the content of the file `base` ([`Base`]) and the logs of the refs ([`RefFacts`]).
//! All functions here are pure functions of this state, so that tests can enumerate sequences of
//! events in memory. [`base`](crate::repo::base) reads and writes the file.
//!
//! The rule: *a commit takes back only what its files contained.* A commit takes back a change if
//! the branch has it and the files lack it. The files contain
//!
//! 1. the history of the commits in [`Base::commits`],
//! 2. the commits that the last restore left in them ([`Restored::commits`]), whatever commits
//!    followed,
//! 3. every commit of the files since the last restore, with its history, on any branch: the logs
//!    list these commits, so a crash before the write of the base does no harm,
//! 4. on one branch, until the next commit of the files: the commits that a restore took out of the
//!    files there ([`Replaced`]). Users restore and commit an older revision to go back. On other
//!    branches, the files count as those of the restored revision.
//!
//! Events, and the state after them (all other commands leave the state alone):
//!
//! | event                  | `commits`                        | `replaced`                       | `restored`         |
//! |------------------------|----------------------------------|----------------------------------|--------------------|
//! | [`BaseEvent::Restoring`] | what the files and the revision share | what the files contain of the tip, on that branch | now, with `commits` |
//! | [`BaseEvent::Restored`]  | the revision                     | unchanged                        | now, with `commits` |
//! | [`BaseEvent::Committed`] | the commit                       | none                             | unchanged          |
//!
//! A rewrite of commits, or its undo, replaces them in all three parts.
//!
//! A restore that fails, skips an entry or is killed stays in the state after `Restoring`. The
//! files then contain only what both states of the files contain for certain.

use std::{
    collections::{HashSet, VecDeque},
    convert::Infallible,
    mem,
};

use crate::{
    base::{id::CommitId, time::Time},
    repo::{
        history::ancestors,
        ref_log::{RefLogEntry, RefValue},
        ref_name::RefName,
    },
};

/// Content of the file before the first commit or restore.
pub(super) const NONE: &str = "-\n";

/// Start of the line about a revision that replaced a tip in the files.
const REPLACED: &str = "replaced ";

/// Start of the line about the last restore.
const RESTORED: &str = "restored ";

/// The name of a detached `HEAD` in the file.
const DETACHED: &str = "HEAD";

/// Prefix of the reason in a log line for a commit of the project's files. The files contain the
/// whole commit.
pub const COMMIT: &str = "commit";

/// Prefix of the reason for the first refs of a clone. The files of the clone are restored afterwards.
pub const CLONE: &str = "clone";

/// Prefix of the reason for a commit of a stream, which says nothing about the files.
pub const STREAM: &str = "stream";

/// Prefix of the reason for a commit that the project's files do not contain: a commit of named
/// paths that keeps other changes of the branch, or a commit of files from elsewhere.
pub const UPDATE: &str = "update";

/// The recorded part of the state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Base {
    /// The commits that the files were last restored from or committed to. Several commits, or
    /// none, after a restore that did not end.
    pub commits: Vec<CommitId>,
    /// The commits that the last restore took out of the files; `None` after the next commit.
    pub replaced: Option<Replaced>,
    /// The last restore of a whole revision.
    pub restored: Option<Restored>,
}

/// The commits of a branch that a restore took out of the files while that branch was the current
/// one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replaced {
    /// The branch; `None` for a detached `HEAD`.
    pub branch: Option<RefName>,
    /// The newest of these commits.
    pub commits: Vec<CommitId>,
}

/// The last restore of a whole revision.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Restored {
    /// Time of the newest line in all ref logs at the restore. Commits in later lines come from the
    /// restored files.
    pub time: Time,
    /// The commits that the files came from at this time.
    pub commits: Vec<CommitId>,
}

/// A branch and its last commit.
#[derive(Clone, Copy, Debug)]
pub struct BranchTip<'a> {
    /// The branch; `None` for a detached `HEAD`.
    pub branch: Option<&'a RefName>,
    /// Its last commit, if any.
    pub tip: Option<CommitId>,
}

/// An event that changes the base.
#[derive(Clone, Copy)]
pub enum BaseEvent<'a> {
    /// A restore of a whole revision will now change the files.
    Restoring {
        /// The revision.
        revision: CommitId,
        /// The current branch.
        over: BranchTip<'a>,
        /// Time of the newest line in all ref logs.
        newest: Option<Time>,
        /// The refs and commits of the store.
        facts: &'a dyn RefFacts,
    },
    /// The restore left the files as the revision has them. `newest` is the time of the newest
    /// line in all ref logs.
    Restored { revision: CommitId, newest: Option<Time> },
    /// Snap made a commit that the files contain with its whole history, or found that the files
    /// equal the last commit of a branch.
    Committed(CommitId),
}

/// The facts about refs and commits of the store that the state machine needs.
pub trait RefFacts {
    /// Returns the parents of a commit, or `None` if it is missing locally.
    fn parents(&self, id: &CommitId) -> Option<Vec<CommitId>>;

    /// Returns the lines of all ref logs.
    fn log(&self) -> &[RefLogEntry];
}

/// The commits of a branch that the files lack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// The commits that a commit of the files would silently take back.
    pub commits: Vec<CommitId>,
    /// True if the files lack further commits, which a restore took out of them on this branch. A
    /// commit of all files may take them back; a commit of some paths keeps them.
    pub has_replaced: bool,
}

impl Base {
    /// Returns the base of files that come from one commit.
    pub fn of(commit: CommitId) -> Self {
        Self { commits: vec![commit], ..Self::default() }
    }

    /// Lists all commits that the record names. The last commit of the branch comes first if the
    /// record has it.
    pub fn named(&self) -> impl Iterator<Item = CommitId> {
        let replaced = self.replaced.iter().flat_map(|replaced| &replaced.commits);
        replaced.chain(&self.commits).copied()
    }

    /// Returns the record with the result of `change` in place of each list of commits.
    ///
    /// # Errors
    /// The first error of `change`.
    pub(super) fn with_commits<E>(
        mut self,
        mut change: impl FnMut(Vec<CommitId>) -> Result<Vec<CommitId>, E>,
    ) -> Result<Self, E> {
        let lists = [Some(&mut self.commits)]
            .into_iter()
            .chain([self.replaced.as_mut().map(|found| &mut found.commits)])
            .chain([self.restored.as_mut().map(|found| &mut found.commits)]);
        for list in lists.flatten() {
            *list = change(mem::take(list))?;
        }
        Ok(self)
    }

    /// Returns the state after an event.
    #[must_use]
    pub fn after(&self, event: BaseEvent<'_>) -> Self {
        match event {
            BaseEvent::Restoring { revision, over, newest, facts } => {
                let made = self.made(facts);
                let mut contained = self.contained(&made);
                let commits = ContainedHistory::new(contained.clone(), facts).part_of(revision);
                if let Some(replaced) = self.replaced_on(over.branch, &made) {
                    contained.extend(&replaced.commits);
                }
                let mut contained = ContainedHistory::new(contained, facts);
                contained.add_children(&made);
                let replaced = over.tip.map(|tip| Replaced {
                    branch: over.branch.cloned(),
                    commits: contained.part_of(tip),
                });
                let restored = newest.map(|time| Restored { time, commits: commits.clone() });
                Self { commits, replaced, restored }.without_contained_replaced()
            }
            BaseEvent::Restored { revision, newest } => {
                let commits = vec![revision];
                let restored = newest.map(|time| Restored { time, commits: commits.clone() });
                let replaced = self.replaced.clone();
                Self { commits, replaced, restored }.without_contained_replaced()
            }
            BaseEvent::Committed(id) => {
                Self { commits: vec![id], replaced: None, restored: self.restored.clone() }
            }
        }
    }

    /// Drops a record of replaced commits that the files contain anyway.
    fn without_contained_replaced(mut self) -> Self {
        let commits = &self.commits;
        self.replaced.take_if(|replaced| replaced.commits.iter().all(|id| commits.contains(id)));
        self
    }

    /// Returns the commits of a branch that a commit of the files would silently take back: those
    /// that came from elsewhere and that the files do not contain. History ends at commits that are
    /// missing locally.
    pub fn unseen(&self, on: Option<&RefName>, tip: CommitId, facts: &dyn RefFacts) -> Unseen {
        if self.commits.contains(&tip) {
            return Unseen::default();
        }
        let made = self.made(facts);
        let contained = self.contained(&made);
        if made.of_files.contains(&tip) {
            return Unseen::default();
        }
        let of_others: HashSet<_> = made.of_others.iter().map(|(_, id)| *id).collect();
        let lacking = |mut contained: ContainedHistory<'_>| {
            let Ok(mut lacking) = ancestors([tip], |id| {
                let parents = if contained.has(id) { None } else { facts.parents(&id) };
                Ok::<_, Infallible>(parents)
            });
            lacking.retain(|id| !of_others.contains(id));
            lacking
        };
        let all = lacking(ContainedHistory::new(contained.clone(), facts));
        let Some(replaced) = self.replaced_on(on, &made).filter(|_| !all.is_empty()) else {
            return Unseen { commits: all, has_replaced: false };
        };
        let contained = [&contained[..], &replaced.commits].concat();
        let commits = lacking(ContainedHistory::new(contained, facts));
        Unseen { has_replaced: commits.len() < all.len(), commits }
    }

    /// Returns the commits that the files contain, without their histories.
    fn contained(&self, made: &MadeHere) -> Vec<CommitId> {
        let restored = self.restored.iter().flat_map(|restored| &restored.commits);
        self.commits.iter().chain(restored).chain(&made.of_files).copied().collect()
    }

    /// Returns the commits that a restore took out of the files on a branch. A commit of the files
    /// ends this record, even if the process was killed before it wrote the base.
    fn replaced_on(&self, branch: Option<&RefName>, made: &MadeHere) -> Option<&Replaced> {
        let replaced = self.replaced.as_ref().filter(|_| made.of_files.is_empty());
        replaced.filter(|replaced| replaced.branch.as_ref() == branch)
    }

    /// Returns the commits that were made in this store since the last restore. The restore
    /// replaced the files, so they may lack older commits.
    fn made(&self, facts: &dyn RefFacts) -> MadeHere {
        let restored = self.restored.as_ref().map(|restored| restored.time);
        let mut made = MadeHere::default();
        for line in facts.log().iter().filter(|line| restored.is_none_or(|time| line.time > time)) {
            let RefValue::Commit(id) = line.new else { continue };
            let kind = line.reason.split(':').next();
            if kind == Some(COMMIT) {
                made.of_files.insert(id);
            } else if kind == Some(STREAM) || kind == Some(UPDATE) {
                made.of_others.push((line.time, id));
            }
        }
        made.of_others.sort_unstable();
        made
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut base = Self::default();
        let mut lines = text.strip_suffix('\n')?.split('\n').peekable();
        if lines.next_if_eq(&"-").is_none() {
            base.commits.push(lines.next()?.parse().ok()?);
            while let Some(id) = lines.peek().and_then(|line| line.parse().ok()) {
                base.commits.push(id);
                lines.next();
            }
        }
        let mut lines = lines.peekable();
        if let Some(line) = lines.next_if(|line| line.starts_with(REPLACED)) {
            base.replaced = Some(Replaced::parse(line.strip_prefix(REPLACED)?)?);
        }
        if let Some(line) = lines.next_if(|line| line.starts_with(RESTORED)) {
            base.restored = Some(Restored::parse(line.strip_prefix(RESTORED)?)?);
        }
        lines.next().is_none().then_some(base)
    }

    pub(super) fn encode(&self) -> String {
        let mut text: String = self.commits.iter().map(|id| format!("{id}\n")).collect();
        if text.is_empty() {
            text.push_str(NONE);
        }
        let ids = |ids: &[CommitId]| ids.iter().map(|id| format!(" {id}")).collect::<String>();
        if let Some(Replaced { branch, commits }) = &self.replaced {
            let branch = branch.as_ref().map_or(DETACHED.to_owned(), RefName::to_string);
            text.push_str(&format!("{REPLACED}{branch}{}\n", ids(commits)));
        }
        if let Some(Restored { time, commits }) = &self.restored {
            text.push_str(&format!("{RESTORED}{}{}\n", time.decimal(), ids(commits)));
        }
        text
    }
}

impl Replaced {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let branch = match words.next()? {
            DETACHED => None,
            name => Some(RefName::parse_full(name)?),
        };
        Some(Self { branch, commits: ids(words)? })
    }
}

impl Restored {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let time = Time::parse_decimal(words.next()?)?;
        Some(Self { time, commits: ids(words)? })
    }
}

fn ids<'t>(words: impl Iterator<Item = &'t str>) -> Option<Vec<CommitId>> {
    words.map(|id| id.parse().ok()).collect()
}

/// Commits that were made in this store, according to the logs of its refs.
#[derive(Default)]
struct MadeHere {
    /// Commits of the project's files; the files contain these commits.
    of_files: HashSet<CommitId>,
    /// Commits of streams, and commits of named paths that the files do not contain, oldest first.
    of_others: Vec<(Time, CommitId)>,
}

/// Commits and their ancestors, read on demand.
struct ContainedHistory<'f> {
    facts: &'f dyn RefFacts,
    seen: HashSet<CommitId>,
    waiting: VecDeque<CommitId>,
}

impl<'f> ContainedHistory<'f> {
    fn new(commits: Vec<CommitId>, facts: &'f dyn RefFacts) -> Self {
        Self { facts, seen: commits.iter().copied().collect(), waiting: commits.into() }
    }

    fn has(&mut self, id: CommitId) -> bool {
        while !self.seen.contains(&id) {
            let Some(next) = self.waiting.pop_front() else { return false };
            for parent in self.facts.parents(&next).unwrap_or_default() {
                if self.seen.insert(parent) {
                    self.waiting.push_back(parent);
                }
            }
        }
        true
    }

    /// Adds commits of streams and of named paths on top of the contained commits. A commit of all
    /// files takes them back, too.
    fn add_children(&mut self, made: &MadeHere) {
        for (_, id) in &made.of_others {
            let parents = self.facts.parents(id).unwrap_or_default();
            if parents.iter().all(|parent| self.has(*parent)) && self.seen.insert(*id) {
                self.waiting.push_back(*id);
            }
        }
    }

    /// Returns the newest contained commits in the history of `tip`.
    fn part_of(&mut self, tip: CommitId) -> Vec<CommitId> {
        let mut part = Vec::new();
        let Ok(_) = ancestors([tip], |id| {
            if self.has(id) {
                part.push(id);
                return Ok(None);
            }
            let parents = self.facts.parents(&id).unwrap_or_default();
            Ok::<_, Infallible>(Some(parents.into_iter().rev().collect()))
        });
        part
    }
}
