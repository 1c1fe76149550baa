//! Tells what garbage collection has deleted from what is lost.

use crate::{
    base::id::CommitId,
    format::rewrites::{Rewrite, RewriteState},
    repo::{
        Repo,
        history::ancestors,
        refs::RefError,
        roots::{RootChoice, Roots},
    },
    store::{Epoch, StoreError},
};

impl Repo {
    /// Returns true if a collection may have deleted a commit, or what only that commit refers to.
    /// Reads the state of the store again.
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
        if epoch == Epoch::default() || store.is_alive(&id.object())? {
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
