//! The base of a project folder: the commits that its files come from.
//!
//! `pull`, `unpack` and others move a branch and touch no file. The files then
//! lack what the new commits changed, and a commit of them would take it back.
//! So the store of a project remembers the base: the commit that the files
//! were last committed to, or the tip of the branch when a whole revision was
//! last restored in place, with that revision. It does not lie in `cache/`,
//! because nothing else says it.
//!
//! | file   | content                                                         |
//! |--------|-----------------------------------------------------------------|
//! | `base` | a commit's 64 hex digits and `\n`, for each commit; `-\n` for none; then, after a first restore, `restored TIME` with the commits of that time, ` ` before each, and `\n` |
//!
//! `TIME` is that of the newest line in the logs of refs when a whole revision was
//! last restored. A commit that was made here after it contains all that is before
//! it, since it was made of the files that the restore left. Commits that were made
//! here before count only as far as the base has them in its history: the restore
//! took their changes out of the files, and `pull` or `undo --redo` may bring the
//! branch back to them.
//!
//! The file is written whole, as a ref is, after the ref has moved. A crash in
//! between does no harm: the log of the branch tells that the commit was made
//! here. A file that is missing or damaged means that the base is not known;
//! the tip of the branch then stands for it.

use std::{collections::HashSet, path::PathBuf};

use crate::{
    base::{id::CommitId, time::Time},
    format::commit::Commit,
    repo::{
        Repo,
        ref_log::Target,
        refs::{RefError, read_small, temporary},
    },
};

/// Name of the file.
pub(super) const FILE: &str = "base";

/// What the file says when no commit was made or restored yet.
pub(super) const NONE: &str = "-\n";

/// Start of the line about the last restore.
const RESTORED: &str = "restored ";

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Base {
    commits: Vec<CommitId>,
    restored: Option<Restored>,
}

/// The last restore of a whole revision.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Restored {
    /// Of the newest line in the logs then.
    time: Time,
    /// What the files came from then. Commits that were made of them since contain it,
    /// on whatever branch.
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

/// Start of a log line's reason for a commit of the project's files, which
/// contain all of it.
pub const COMMIT: &str = "commit";

/// The same for a commit of a stream, which says nothing about the files.
pub const STREAM: &str = "stream";

/// The same for a commit of named paths that keeps changes which the project's
/// files lack, and for one of files from elsewhere.
pub const UPDATE: &str = "update";

impl Repo {
    /// The commits that the project's files come from, the tip of that time
    /// first; `None` when that is not known, and in a store without a project.
    ///
    /// # Errors
    /// [`RefError::Io`] when the file is there and cannot be read.
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

    /// Remembers the commits that the project's files were restored from. The
    /// files are made durable first: after a power cut no base may name commits
    /// whose files are not there. Does nothing in a store without a project.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn set_restored_base(&self, commits: &[CommitId]) -> Result<(), RefError> {
        let Some(project) = self.project() else { return Ok(()) };
        if self.base()?.as_deref() == Some(commits) {
            return Ok(());
        }
        let commits = commits.to_vec();
        let restored = |time| Restored { time, commits: commits.clone() };
        let restored = self.refs().newest()?.map(restored);
        self.disk().sync_file_system(project)?;
        self.write_base(&Base { commits, restored })
    }

    /// Whether two commits have a commit in common in their histories, as far as
    /// these are here.
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

    /// Remembers the commits that the project's files come from, durably; does
    /// nothing in a store without a project.
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

    /// Commits in the history of `tip` that came from outside this folder and
    /// that its files, which come from `base`, do not contain; newest first.
    ///
    /// A commit that was made of the files of this folder since the last restore
    /// contains all that is before it, whatever the base says. Commits that are not
    /// here count as the end of history.
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
        let made = Made::read(self, restored.as_ref().map(|restored| restored.time))?;
        if made.of_files.contains(&tip) {
            return Ok(Vec::new());
        }
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

    fn base_file(&self) -> PathBuf {
        self.dir().join(FILE)
    }
}

/// Commits that were made in this store, as the logs of its refs tell.
struct Made {
    /// The project's files contain all of them.
    of_files: HashSet<CommitId>,
    /// Commits of streams, and of named paths beside changes that the files lack.
    of_others: HashSet<CommitId>,
}

impl Made {
    /// Reads the logs. Files that were restored since contain no commit that was
    /// made before.
    fn read(repo: &Repo, restored: Option<Time>) -> Result<Self, RefError> {
        let mut made = Self { of_files: HashSet::new(), of_others: HashSet::new() };
        for pointer in repo.refs().logged()? {
            for line in repo.refs().log_of(&pointer)? {
                let Target::Commit(id) = line.new else { continue };
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
