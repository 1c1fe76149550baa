//! Completeness: finishes publications that a killed server began, and checks that a
//! commit has everything that it refers to before a ref may point at it.

use snap_core::{
    base::id::CommitId,
    ops::inbox::{StagedError, accept::AcceptError},
};

use super::Repository;
use crate::problem::{Code, HttpProblem};

impl Repository {
    /// Checks that the store has a commit and everything that it refers to.
    pub(super) fn check_commit_complete(&self, id: &CommitId) -> Result<(), HttpProblem> {
        self.staged.check_commit_complete(&self.repo, id).map_err(|error| match error {
            StagedError::Accept(AcceptError::Incomplete(source))
                if self.repo.store().has_partial() =>
            {
                let why = format!(
                    "the repository is a partial clone and lacks objects of commit {id}: {source}; \
                     push to its origin, or run `snap fetch` in it first"
                );
                HttpProblem::new(Code::Rejected, why)
            }
            error => error.into(),
        })
    }

    /// Returns the bytes that the quota counts: refs with their logs, published packs, and staged
    /// packs.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn bytes(&self) -> Result<u64, HttpProblem> {
        self.refresh()?;
        let store = self.repo.store();
        let packs = store.packs().into_iter().filter(|id| self.has(id));
        let lengths = packs.filter_map(|id| fs_err::metadata(store.pack_path(&id)).ok());
        Ok(lengths.map(|meta| meta.len()).sum::<u64>()
            + self.staged.bytes()
            + self.repo.refs().bytes()?)
    }
}
