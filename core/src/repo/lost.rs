//! Finds branches and tags that are missing although no log records their removal.

use std::collections::HashSet;

use crate::{
    base::id::CommitId,
    repo::{
        Pointer, Repo,
        base_state::{CLONE, COMMIT},
        ref_log::{RefLogEntry, RefValue},
        ref_name::{RefKind, RefName},
        refs::{Head, LockRecord, RefError},
    },
};

impl Repo {
    /// Lists the missing branches and tags, each with its last commit.
    ///
    /// # Errors
    /// [`RefError`] when a log cannot be read.
    pub fn lost_refs(&self) -> Result<Vec<(RefName, CommitId)>, RefError> {
        let mut lost = Vec::new();
        let mut existing: HashSet<RefName> = HashSet::new();
        for kind in [RefKind::Branch, RefKind::Tag] {
            existing.extend(self.refs().names(kind)?);
        }
        let last_change = self.refs().last_change()?;
        for pointer in self.refs().logged()? {
            let Pointer::Ref(name) = pointer else { continue };
            // Skip the logs of existing refs.
            if existing.contains(&name) {
                continue;
            }
            if let Some(id) = self.lost_since(&name, last_change.as_ref())? {
                lost.push((name, id));
            }
        }
        if let Ok(Head::Branch(name)) = self.refs().head()
            && let Some(id) = self.lost_with_log(&name)?
        {
            lost.push((name, id));
        }
        Ok(lost)
    }

    /// Returns the last commit of a missing branch or tag. Returns `None` if the ref exists, cannot
    /// be read, was removed, or never existed.
    ///
    /// The last line of a log may record a ref that was never written, because of a crash between
    /// the two steps. So one of three things must prove that the ref existed: an old value in that
    /// line, evidence that the change was completed, or a base with the commit of a line that a
    /// commit or a clone wrote: these write the base after the ref.
    ///
    /// # Errors
    /// [`RefError`] when its log cannot be read.
    pub fn lost_ref(&self, name: &RefName) -> Result<Option<CommitId>, RefError> {
        self.lost_since(name, self.refs().last_change()?.as_ref())
    }

    fn lost_since(
        &self,
        name: &RefName,
        last_change: Option<&LockRecord>,
    ) -> Result<Option<CommitId>, RefError> {
        if !matches!(self.refs().read(name), Ok(None)) {
            return Ok(None);
        }
        let last = self.refs().log(name)?.pop();
        let Some(line) = last else { return self.lost_with_log(name) };
        let RefValue::Commit(id) = line.new else { return Ok(None) };
        let base: Vec<CommitId> = self.base()?.unwrap_or_default().named().collect();
        let is_base = base.contains(&id) && precedes_base(&line);
        let was_done = last_change.is_some_and(|last| last.completes(&line));
        let was_there = line.old != RefValue::Nothing || was_done || is_base;
        // Another process may have created the ref since the first check.
        if !was_there || !matches!(self.refs().read(name), Ok(None)) {
            return Ok(None);
        }
        // A crash may have cut off the last line of the log. The base then names the commit after
        // the one in the log.
        let is_current = self.refs().head().is_ok_and(|head| head == Head::Branch(name.clone()));
        match base.first() {
            Some(next) if is_current && self.is_next(next, id, name)? => Ok(Some(*next)),
            _ => Ok(Some(id)),
        }
    }

    /// Returns true if `next` is a child of `id` on the branch `name`. With `commit -b`, a child of
    /// the current branch can be on another branch.
    fn is_next(&self, next: &CommitId, id: CommitId, name: &RefName) -> Result<bool, RefError> {
        if !self.store().commit(next).is_ok_and(|commit| commit.parents.contains(&id)) {
            return Ok(false);
        }
        for pointer in self.refs().logged()? {
            let Pointer::Ref(other) = pointer else { continue };
            let took_it = |line: &RefLogEntry| {
                line.new == RefValue::Commit(*next) && !line.names_existing_commit()
            };
            if other != *name && self.refs().log(&other)?.iter().any(took_it) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the last commit of the branch `name` if `HEAD` names that branch and the store has
    /// neither refs nor logs any more. The base names a commit that existed.
    fn lost_with_log(&self, name: &RefName) -> Result<Option<CommitId>, RefError> {
        let base: Vec<CommitId> = self.base()?.unwrap_or_default().named().collect();
        let is_alone = || -> Result<bool, RefError> {
            let mut is_alone = self.refs().logged()?.is_empty();
            for kind in [RefKind::Branch, RefKind::Tag] {
                is_alone &= self.refs().names(kind)?.is_empty();
            }
            Ok(is_alone && self.refs().head()? == Head::Branch(name.clone()))
        };
        match base.first() {
            Some(id) if is_alone()? => Ok(Some(*id)),
            _ => Ok(None),
        }
    }
}

/// Returns true if the command that made this change writes the new commit into the base only
/// afterwards. If the base names that commit, the change was made.
fn precedes_base(line: &RefLogEntry) -> bool {
    let kind = line.reason.split(':').next();
    kind == Some(COMMIT) || kind == Some(CLONE)
}
