//! What counts is whole: nothing is left in part by a server that was killed, and
//! refs are set to nothing of which a part is missing.

use snap_core::base::id::CommitId;

use super::Repository;
use crate::{causes::causes, problem::Problem};

impl Repository {
    /// Goes on with what a server was at when it was killed: packs of which some
    /// count, and some do not yet.
    pub(super) fn go_on(&self) {
        if self.behind.is_some() {
            return;
        }
        if let Err(error) = self.staged.go_on(&self.repo) {
            tracing::error!(error = %causes(&error), "packs that were sent do not count");
        }
    }

    /// Checks that a commit is here with all that it refers to.
    pub(super) fn check_whole(&self, id: &CommitId) -> Result<(), Problem> {
        Ok(self.staged.check_whole(&self.repo, id)?)
    }

    /// Bytes of all refs with their logs, of all packs that count, of all that waits to, and of what has come in
    /// part once it is whole, but for what is being sent just now and what `besides`
    /// is the hash of.
    ///
    /// # Errors
    /// [`Code::Unavailable`](crate::problem::Code::Unavailable).
    pub fn bytes(&self, besides: Option<&blake3::Hash>) -> Result<u64, Problem> {
        self.refresh()?;
        let store = self.repo.store();
        let packs = store.packs().into_iter().filter(|id| self.has(id));
        let lengths = packs.filter_map(|id| fs_err::metadata(store.pack_path(&id)).ok());
        let there = lengths.map(|meta| meta.len()).sum::<u64>()
            + self.staged.bytes()
            + self.repo.refs().bytes()?;
        Ok(there.saturating_add(self.uploads.unfinished(&self.staged, besides)))
    }

    /// Removes what has come in part and nobody goes on with, but for what `besides`
    /// is the hash of; says whether there was any.
    pub fn forget_idle(&self, besides: Option<&blake3::Hash>) -> bool {
        self.uploads.forget_idle(&self.staged, besides)
    }
}
