//! Distinguishes what garbage collection has deleted from what is lost.

use crate::{
    base::id::CommitId,
    format::rewrites::{Rewrite, RewriteState},
    repo::{
        Repo,
        history::ancestors,
        ref_name::{RefKind, RefName},
        refs::RefError,
        roots::{RootChoice, Roots},
    },
    store::StoreError,
};

/// The reason in the log of a remote-tracking branch that was removed because a collection at the remote
/// has deleted its commit.
pub const COLLECTED_THERE: &str = "deleted and collected there";

impl Repo {
    /// Returns the remote-tracking branches that were removed because a collection at the remote has
    /// deleted their commits, and that were not seen since. Each has its last known commit.
    ///
    /// # Errors
    /// [`RefError::Io`].
    pub fn collected_there(&self) -> Result<Vec<(RefName, CommitId)>, RefError> {
        let mut collected = Vec::new();
        for name in self.refs().logged_of(RefKind::Remote)? {
            let last = self.refs().log(&name)?.pop();
            let Some(last) = last.filter(|last| last.reason == COLLECTED_THERE) else { continue };
            if let Some(id) = last.old.commit()
                && self.refs().read(&name)?.is_none()
            {
                collected.push((name, id));
            }
        }
        Ok(collected)
    }

    /// Returns true if a collection, here or at a remote, has found a commit dead, and no other copy of it
    /// came since.
    ///
    /// # Errors
    /// [`RefError`] if the index or the logs cannot be read.
    pub fn is_found_dead(&self, id: &CommitId) -> Result<bool, RefError> {
        if self.store().is_alive(&id.object())? {
            return Ok(false);
        }
        Ok(self.store().is_found_dead(&id.object())
            || self.collected_there()?.iter().any(|(_, own)| own == id))
    }

    /// Returns true if a collection, here or at a remote, may have deleted a commit, or what only that
    /// commit refers to. Reads the state of the store again.
    ///
    /// A commit that is alive, or that each collection until now had to keep, is lost if it or a part
    /// of it is missing.
    ///
    /// # Errors
    /// [`RefError`] if the refs or the tables of the store cannot be read.
    pub fn may_be_collected(&self, id: &CommitId) -> Result<bool, RefError> {
        let store = self.store();
        store.refresh()?;
        let epoch = store.epoch()?;
        if store.is_alive(&id.object())? {
            return Ok(false);
        }
        if self.is_found_dead(id)? {
            return Ok(true);
        }
        if epoch.is_first() {
            return Ok(false);
        }
        if let Some(since) = store.forgotten().since(id) {
            return Ok(since <= epoch.collected.forgotten);
        }
        let table = store.rewrites()?;
        let is_removed = |id: &CommitId| table.has_replaced(id) || table.has_purged(&id.object());
        if is_removed(id) {
            return Ok(true);
        }
        // A collection after a rewrite also deletes what reached the purged objects before.
        let is_final = |rewrite: &&Rewrite| rewrite.state == RewriteState::Final;
        let rewritten = table.rewrites.iter().filter(is_final).map(|rewrite| rewrite.time).max();
        let since = epoch.collected.unnamed.max(rewritten.unwrap_or_default());
        let mut roots = Roots::read(self, RootChoice::Kept { since })?.complete()?.commits();
        roots.retain(|root| !is_removed(root));
        // If a kept commit cannot be read, the other one may be an ancestor of it.
        let walked = ancestors(roots, |at| match store.ancestor(&at) {
            Ok(found) if at != *id => Ok(Some(found.commit.parents)),
            Ok(_) => Err(None),
            Err(error) => Err(Some(error)),
        });
        match walked {
            Err(Some(error @ (StoreError::Io(_) | StoreError::Index(_)))) => Err(error.into()),
            walked => Ok(walked.is_ok()),
        }
    }
}
