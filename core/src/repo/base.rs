//! The base of a project folder: the commits that its files come from.
//!
//! `pull`, `unpack` and other commands move a branch without touching the project's files. The
//! files then lack the changes of the new commits, and a commit of these files would revert those
//! changes. The store therefore records the base: the commit that the files were last committed to,
//! or, when a whole revision was last restored in place, the tip of the branch together with that
//! revision. The file is not in `cache/`, because it cannot be derived.
//!
//! | file   | content                                                         |
//! |--------|-----------------------------------------------------------------|
//! | `base` | a commit's 64 hex digits and `\n`, for each commit; `-\n` for none; then, after a first restore, `restored TIME` with the commits of that time, ` ` before each, and `\n` |
//!
//! `TIME` is the time of the newest line in all ref logs when a whole revision was last restored. A
//! commit that was made here later contains everything before it, because it was made from the
//! files that the restore left. A commit that was made here earlier is contained in the files only
//! if it is in the history of the base: the restore took its changes out of the files, and `pull`
//! or `undo --redo` may bring the branch back to it.
//!
//! The file is replaced atomically, after the ref has moved. A crash between the two steps does no
//! harm: the log of the branch records that the commit was made here. If the file is missing or
//! damaged, the base is unknown, and callers use the tip of the branch instead.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
};

use crate::{
    base::{id::CommitId, time::Time},
    format::commit::Commit,
    repo::{
        Repo,
        ref_log::RefValue,
        refs::{RefError, read_small, temporary},
    },
};

pub(super) const FILE: &str = "base";

/// Content of the file before the first commit or restore.
pub(super) const NONE: &str = "-\n";

/// Start of the line about the last restore.
const RESTORED: &str = "restored ";

/// The parsed content of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Base {
    commits: Vec<CommitId>,
    restored: Option<Restored>,
}

/// The last restore of a whole revision.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Restored {
    /// Time of the newest log line when the restore ended.
    time: Time,
    /// The commits that the files came from at that time. Every commit made from these files since
    /// then contains them, on any branch.
    commits: Vec<CommitId>,
}

impl Restored {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let time = Time::parse_decimal(words.next()?)?;
        let commits = words.map(|id| id.parse().ok()).collect::<Option<_>>()?;
        Some(Self { time, commits })
    }
}

impl Base {
    fn parse(text: &str) -> Option<Self> {
        let mut lines: Vec<&str> = text.strip_suffix('\n')?.split('\n').collect();
        let restored = match lines.last()?.strip_prefix(RESTORED) {
            Some(restored) => {
                lines.pop();
                Some(Restored::parse(restored)?)
            }
            None => None,
        };
        let commits = match lines.as_slice() {
            [] => return None,
            ["-"] => Vec::new(),
            lines => lines.iter().map(|line| line.parse().ok()).collect::<Option<_>>()?,
        };
        Some(Self { commits, restored })
    }

    fn encode(&self) -> String {
        let mut text = String::new();
        for (at, id) in self.commits.iter().enumerate() {
            if !self.commits[..at].contains(id) {
                text.push_str(&format!("{id}\n"));
            }
        }
        if text.is_empty() {
            text.push_str(NONE);
        }
        if let Some(Restored { time, commits }) = &self.restored {
            text.push_str(&format!("{RESTORED}{}", time.decimal()));
            commits.iter().for_each(|id| text.push_str(&format!(" {id}")));
            text.push('\n');
        }
        text
    }
}

/// Prefix of the reason in a log line for a commit of the project's files. The files contain the
/// whole commit.
pub const COMMIT: &str = "commit";

/// Prefix of the reason for a commit of a stream, which says nothing about the files.
pub const STREAM: &str = "stream";

/// Prefix of the reason for a commit that the project's files do not contain: a commit of named
/// paths that keeps other changes of the branch, or a commit of files from elsewhere.
pub const UPDATE: &str = "update";

impl Repo {
    /// Returns the commits that the project's files come from; the tip of the branch is first.
    /// Returns `None` if the base is unknown or the store has no project.
    ///
    /// # Errors
    /// [`RefError::Io`] if the file exists but cannot be read.
    pub fn base(&self) -> Result<Option<Vec<CommitId>>, RefError> {
        Ok(self.read_base()?.map(|base| base.commits))
    }

    fn read_base(&self) -> Result<Option<Base>, RefError> {
        if self.project().is_none() {
            return Ok(None);
        }
        match read_small(&self.base_file(), "commit id") {
            Ok(text) => Ok(text.and_then(|text| Base::parse(&text))),
            Err(RefError::Damaged { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Records the commits that the project's files were restored from. Syncs the files first:
    /// after a power cut, the base must not name commits whose files are missing. Does nothing in a
    /// store without a project.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn set_restored_base(&self, commits: &[CommitId]) -> Result<(), RefError> {
        let Some(project) = self.project() else { return Ok(()) };
        let commits = commits.to_vec();
        let restored = |time| Restored { time, commits: commits.clone() };
        let restored = self.refs().newest()?.map(restored);
        let base = Base { commits, restored };
        // Even if the commits are unchanged, a ref may have moved since the last restore and taken
        // a commit out of the files. The base must then record the time of this restore.
        if self.read_base()?.as_ref() == Some(&base) {
            return Ok(());
        }
        self.disk().sync_file_system(project)?;
        self.write_base(&base)
    }

    /// Returns true if the histories of two commits share a commit. Commits that are missing
    /// locally are ignored.
    pub fn shares_history(&self, one: CommitId, other: CommitId) -> bool {
        let mut seen = HashSet::new();
        let mut waiting = vec![one];
        while let Some(id) = waiting.pop() {
            if seen.insert(id)
                && let Ok(commit) = self.store().commit(&id)
            {
                waiting.extend(commit.parents);
            }
        }
        let mut walked = HashSet::new();
        waiting.push(other);
        while let Some(id) = waiting.pop() {
            if seen.contains(&id) {
                return true;
            }
            if walked.insert(id)
                && let Ok(commit) = self.store().commit(&id)
            {
                waiting.extend(commit.parents);
            }
        }
        false
    }

    /// Records the commits that the project's files come from, durably. Keeps the recorded restore.
    /// Does nothing in a store without a project.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn set_base(&self, commits: &[CommitId]) -> Result<(), RefError> {
        if self.project().is_none() {
            return Ok(());
        }
        let restored = self.read_base()?.and_then(|base| base.restored);
        self.write_base(&Base { commits: commits.to_vec(), restored })
    }

    fn write_base(&self, base: &Base) -> Result<(), RefError> {
        let temporary = temporary(self.dir(), FILE);
        Ok(self.disk().write_whole(&temporary, &self.base_file(), base.encode().as_bytes())?)
    }

    /// Lists the commits in the history of `tip` that came from elsewhere and that the project's
    /// files, which come from `base`, do not contain. The newest commit is first.
    ///
    /// A commit that was made from these files since the last restore contains everything before
    /// it, whatever `base` says. History ends at commits that are missing locally.
    ///
    /// # Errors
    /// [`RefError`] when a log cannot be read.
    pub fn unseen(
        &self,
        base: &[CommitId],
        tip: CommitId,
    ) -> Result<Vec<(CommitId, Commit)>, RefError> {
        if base.contains(&tip) {
            return Ok(Vec::new());
        }
        let restored = self.read_base()?.and_then(|base| base.restored);
        let made = OwnCommits::read(self, restored.as_ref().map(|restored| restored.time))?;
        if made.of_files.contains(&tip) {
            return Ok(Vec::new());
        }
        // First collects everything that the files contain, then walks from the tip to it.
        let mut seen = HashSet::new();
        let restored = restored.iter().flat_map(|restored| &restored.commits);
        let contained = base.iter().chain(&made.of_files).chain(restored);
        let mut waiting: Vec<CommitId> = contained.copied().collect();
        while let Some(id) = waiting.pop() {
            if seen.insert(id)
                && let Ok(commit) = self.store().commit(&id)
            {
                waiting.extend(commit.parents);
            }
        }
        let mut unseen = Vec::new();
        waiting.push(tip);
        while let Some(id) = waiting.pop() {
            if seen.insert(id)
                && let Ok(commit) = self.store().commit(&id)
            {
                waiting.extend(&commit.parents);
                if !made.of_others.contains(&id) {
                    unseen.push((id, commit));
                }
            }
        }
        unseen.sort_by_key(|(_, commit)| std::cmp::Reverse(commit.time));
        Ok(unseen)
    }

    /// Returns the parents for the first commit of a new branch of the project's files: the commits
    /// of `base`. An undone commit is replaced by its parents, so that later commits do not bring
    /// it back into a history.
    ///
    /// # Errors
    /// [`RefError`] when a log cannot be read.
    pub fn starts(&self, base: &[CommitId]) -> Result<Vec<CommitId>, RefError> {
        let mut last = HashMap::new();
        for pointer in self.refs().logged()? {
            for line in self.refs().log_of(&pointer)? {
                let is_undo = line.is_undo();
                for (target, is_taken_back) in [(&line.old, is_undo), (&line.new, false)] {
                    let Some(id) = target.commit() else { continue };
                    let last = last.entry(id).or_insert((line.time, is_taken_back));
                    *last = (*last).max((line.time, is_taken_back));
                }
            }
        }
        let is_taken_back = |id| last.get(&id).is_some_and(|(_, taken)| *taken);
        let (mut starts, mut seen) = (Vec::new(), HashSet::new());
        let mut waiting: Vec<CommitId> = base.iter().rev().copied().collect();
        while let Some(id) = waiting.pop() {
            if !is_taken_back(id) {
                starts.push(id);
            } else if seen.insert(id)
                && let Ok(commit) = self.store().commit(&id)
            {
                waiting.extend(commit.parents.iter().rev());
            }
        }
        Ok(starts)
    }

    fn base_file(&self) -> PathBuf {
        self.dir().join(FILE)
    }
}

/// Commits that were made in this store, according to the logs of its refs.
struct OwnCommits {
    /// Commits of the project's files, which therefore contain them.
    of_files: HashSet<CommitId>,
    /// Commits of streams, and commits of named paths that the files do not contain.
    of_others: HashSet<CommitId>,
}

impl OwnCommits {
    /// Reads the logs. Ignores commits made up to the time `restored`: the files were replaced
    /// then, so they need not contain them.
    fn read(repo: &Repo, restored: Option<Time>) -> Result<Self, RefError> {
        let mut made = Self { of_files: HashSet::new(), of_others: HashSet::new() };
        for pointer in repo.refs().logged()? {
            for line in repo.refs().log_of(&pointer)? {
                let RefValue::Commit(id) = line.new else { continue };
                if restored.is_some_and(|restored| line.time <= restored) {
                    continue;
                }
                let kind = line.reason.split(':').next();
                if kind == Some(COMMIT) {
                    made.of_files.insert(id);
                } else if kind == Some(STREAM) || kind == Some(UPDATE) {
                    made.of_others.insert(id);
                }
            }
        }
        Ok(made)
    }
}
