//! The base of a project folder: the commits that its files come from.
//!
//! `pull`, `unpack` and other commands move a branch without touching the project's files. The
//! files then lack the changes of the new commits, and a commit of these files would revert those
//! changes. The store therefore records the base. Its states and events are in
//! [`base_state`](crate::repo::base_state); this module reads and writes the record. The file is
//! not in `cache/`, because it cannot be derived.
//!
//! | file   | content, in this order                                                             |
//! |--------|------------------------------------------------------------------------------------|
//! | `base` | a commit's 64 hex digits and `\n`, for each commit; `-\n` for none                 |
//! |        | `replaced BRANCH` with commits, ` ` before each, and `\n`, if a restore replaced them |
//! |        | `restored TIME` with commits, ` ` before each, and `\n`, after a first restore      |
//!
//! `BRANCH` is a full name, or `HEAD` if it is detached.
//!
//! Snap replaces the file atomically, after it has moved the ref. A crash between the two steps
//! does no harm: the log of the branch records that this store made the commit. If the file is
//! missing or damaged, the base is unknown, and callers use the tip of the branch instead.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    convert::Infallible,
    path::PathBuf,
};

use crate::{
    base::id::CommitId,
    format::commit::Commit,
    repo::{
        Repo,
        base_state::{Base, BaseEvent, BranchTip, RefFacts},
        history::ancestors,
        ref_log::RefLogEntry,
        ref_name::RefName,
        refs::{HeldRefs, RefError, read_small},
        roots::{RootChoice, Roots},
    },
    store::StoreError,
};

pub(super) const FILE: &str = "base";

/// The commits of a branch that the project's files lack.
#[derive(Clone, Debug, Default)]
pub struct UnseenCommits {
    /// The commits that a commit of the files would silently take back, newest first.
    pub commits: Vec<(CommitId, Commit)>,
    /// True if the files lack further commits, which a restore took out of them on this branch.
    pub has_replaced: bool,
}

impl Repo {
    /// Returns the base of the project's files. Returns `None` if it is unknown or the store has no
    /// project.
    ///
    /// # Errors
    /// [`RefError::Io`] if the file exists but cannot be read.
    pub fn base(&self) -> Result<Option<Base>, RefError> {
        if self.project().is_none() {
            return Ok(None);
        }
        match read_small(&self.base_file(), "commit id") {
            Ok(text) => Ok(text.and_then(|text| Base::parse(&text))),
            Err(RefError::Damaged { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Records that a restore of a whole revision is about to change the project's files. An
    /// unknown base stays unknown. Does nothing in a store without a project.
    ///
    /// # Errors
    /// [`RefError`] when refs or logs cannot be read, or the file cannot be written.
    pub fn start_restored_base(&self, revision: CommitId) -> Result<(), RefError> {
        self.change_base(|base| {
            let Some(base) = base else { return Ok(None) };
            let head = self.refs().head()?;
            let over = BranchTip { branch: head.branch(), tip: self.refs().head_commit()? };
            let (newest, facts) = (self.refs().newest()?, StoredFacts::read(self)?);
            let event = BaseEvent::Restoring { revision, over, newest, facts: &facts };
            Ok(Some(base.after(event)))
        })
    }

    /// Records that a restore of a whole revision has changed the project's files. Syncs the files
    /// first: after a power cut, the base must not name commits whose files are missing. Does
    /// nothing in a store without a project.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn set_restored_base(&self, revision: CommitId) -> Result<(), RefError> {
        let Some(project) = self.project() else { return Ok(()) };
        self.disk().sync_file_system(project)?;
        // Even if the commits are unchanged, a ref may have moved since the last restore and taken
        // a commit out of the files. The base must then record the time of this restore.
        self.change_base(|base| {
            let event = BaseEvent::Restored { revision, newest: self.refs().newest()? };
            Ok(Some(base.unwrap_or_default().after(event)))
        })
    }

    /// Returns true if the histories of two commits share a commit. Ignores commits that are
    /// missing locally.
    pub fn shares_history(&self, one: CommitId, other: CommitId) -> bool {
        let parents =
            |id| self.store().ancestor(&id).map(|found| found.commit.parents).unwrap_or_default();
        let Ok(found) = ancestors([one], |id| Ok::<_, Infallible>(Some(parents(id))));
        let found: HashSet<CommitId> = found.into_iter().collect();
        let is_shared = |id| if found.contains(&id) { Err(()) } else { Ok(Some(parents(id))) };
        ancestors([other], is_shared).is_err()
    }

    /// Records that the project's files contain a commit and its history, durably. Does nothing in
    /// a store without a project.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn set_committed_base(&self, commit: CommitId) -> Result<(), RefError> {
        self.change_base(|base| {
            Ok(Some(base.unwrap_or_default().after(BaseEvent::Committed(commit))))
        })
    }

    /// Replaces commits in the base, durably, because `rewrite` has replaced them or because that
    /// was undone. The caller holds the refs, so that no other command changes the base meanwhile.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn replace_in_base(
        &self,
        _refs: &HeldRefs<'_>,
        replaced: &BTreeMap<CommitId, CommitId>,
    ) -> Result<(), RefError> {
        let Some(base) = self.base()? else { return Ok(()) };
        let Ok(next) = base.clone().with_commits(|ids| {
            let new = ids.iter().map(|id| *replaced.get(id).unwrap_or(id));
            Ok::<_, Infallible>(new.collect())
        });
        if next == base { Ok(()) } else { self.write_base(&next) }
    }

    /// Replaces commits in the base that a collection does not keep by their nearest ancestors that it
    /// keeps, durably: a content of theirs may have been removed by `rewrite`. The caller holds the
    /// refs, and has not deleted the commits yet.
    ///
    /// # Errors
    /// [`RefError::Io`], and the errors of `is_kept`.
    pub fn keep_in_base(
        &self,
        _refs: &HeldRefs<'_>,
        is_kept: impl Fn(&CommitId) -> Result<bool, StoreError>,
    ) -> Result<(), RefError> {
        let Some(base) = self.base()? else { return Ok(()) };
        let next = base.clone().with_commits(|ids| {
            let mut kept = Vec::new();
            ancestors(ids.into_iter().rev(), |id| {
                if is_kept(&id)? {
                    kept.push(id);
                    return Ok(None);
                }
                let found = self.store().ancestor(&id).ok();
                let parents = found.map(|found| found.commit.parents.into_iter().rev().collect());
                Ok::<_, RefError>(parents)
            })?;
            Ok::<_, RefError>(kept)
        })?;
        if next == base { Ok(()) } else { self.write_base(&next) }
    }

    /// Replaces the base by `next` of the present one, durably; with `None`, leaves it alone. Does
    /// nothing in a store without a project.
    ///
    /// `rewrite` and `gc` change the base and delete commits under the same lock. So the new base
    /// names no commit that they have replaced or deleted since the caller looked.
    fn change_base(
        &self,
        next: impl FnOnce(Option<Base>) -> Result<Option<Base>, RefError>,
    ) -> Result<(), RefError> {
        if self.project().is_none() {
            return Ok(());
        }
        let _refs = self.refs().hold()?;
        let base = self.base()?;
        let Some(next) = next(base.clone())? else { return Ok(()) };
        let next = next.with_commits(|ids| self.standing(ids))?;
        if base.as_ref() == Some(&next) { Ok(()) } else { self.write_base(&next) }
    }

    /// Returns the commits that stand for `ids` now: the new commit for one that `rewrite` has
    /// replaced, and the nearest ancestors that stand for one that `gc` has deleted.
    fn standing(&self, ids: Vec<CommitId>) -> Result<Vec<CommitId>, RefError> {
        let (store, table) = (self.store(), self.store().rewrites()?);
        if table.is_empty() && store.epoch()?.is_first() {
            return Ok(ids);
        }
        store.enter_epoch()?;
        let tips = Roots::read(self, RootChoice::Movable)?.commits();
        if ids.iter().all(|id| tips.contains(id)) {
            return Ok(ids);
        }
        let parents = |id| store.ancestor(&id).ok().map(|found| found.commit.parents);
        let Ok(reached) = ancestors(tips, |id| Ok::<_, Infallible>(parents(id)));
        let reached: HashSet<CommitId> = reached.into_iter().collect();
        let mut standing = Vec::new();
        ancestors(ids.into_iter().rev(), |id| {
            // A branch that was not rewritten may still have a replaced commit.
            if reached.contains(&id) {
                standing.push(id);
                return Ok(None);
            }
            if let Some(new) = table.replacement(&id) {
                return Ok(Some(vec![new]));
            }
            let has_replaced = |id| if table.has_replaced(&id) { Err(()) } else { Ok(parents(id)) };
            if store.is_alive(&id.object())? && ancestors([id], has_replaced).is_ok() {
                standing.push(id);
                return Ok(None);
            }
            Ok::<_, RefError>(parents(id).map(|ids| ids.into_iter().rev().collect()))
        })?;
        Ok(standing)
    }

    fn write_base(&self, base: &Base) -> Result<(), RefError> {
        let (tmp, text) = (self.dir().join("tmp"), base.encode());
        Ok(self.disk().write_whole(&tmp, &self.base_file(), text.as_bytes())?)
    }

    /// Lists the commits of a branch that came from elsewhere and that the project's files lack.
    /// `tip` is the last commit of the branch; `branch` is `None` for a detached `HEAD`.
    ///
    /// # Errors
    /// [`RefError`] when a log cannot be read.
    pub fn unseen(
        &self,
        base: &Base,
        branch: Option<&RefName>,
        tip: CommitId,
    ) -> Result<UnseenCommits, RefError> {
        if base.commits.contains(&tip) {
            return Ok(UnseenCommits::default());
        }
        let unseen = base.unseen(branch, tip, &StoredFacts::read(self)?);
        let commit = |id| Some((id, self.store().commit(&id).ok()?));
        let mut commits: Vec<_> = unseen.commits.into_iter().filter_map(commit).collect();
        commits.sort_by_key(|(_, commit)| std::cmp::Reverse(commit.time));
        Ok(UnseenCommits { commits, has_replaced: unseen.has_replaced })
    }

    /// Returns the parents for the first commit of a new branch of the project's files: the commits
    /// of `base`. Replaces an undone commit by its parents, so that later commits do not bring it
    /// back into a history.
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
        let mut starts = Vec::new();
        ancestors(base.iter().rev().copied(), |id| {
            if is_taken_back(id) {
                let found = self.store().ancestor(&id).ok();
                return Ok(found.map(|found| found.commit.parents.into_iter().rev().collect()));
            }
            starts.push(id);
            Ok::<_, RefError>(None)
        })?;
        Ok(starts)
    }

    fn base_file(&self) -> PathBuf {
        self.dir().join(FILE)
    }
}

/// [`RefFacts`] from the store and the logs of its refs.
struct StoredFacts<'r> {
    repo: &'r Repo,
    log: Vec<RefLogEntry>,
}

impl<'r> StoredFacts<'r> {
    fn read(repo: &'r Repo) -> Result<Self, RefError> {
        let mut log = Vec::new();
        for pointer in repo.refs().logged()? {
            log.extend(repo.refs().log_of(&pointer)?);
        }
        Ok(Self { repo, log })
    }
}

impl RefFacts for StoredFacts<'_> {
    fn parents(&self, id: &CommitId) -> Option<Vec<CommitId>> {
        Some(self.repo.store().ancestor(id).ok()?.commit.parents)
    }

    fn log(&self) -> &[RefLogEntry] {
        &self.log
    }
}
