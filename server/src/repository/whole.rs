//! What counts is whole: nothing is left in part by a server that was killed, and
//! refs are set to nothing of which a part is missing.

use std::{
    collections::HashSet,
    sync::{Arc, MutexGuard, PoisonError},
};

use snap_core::{
    base::{
        id::{CommitId, PackId},
        observe::Silent,
    },
    ops::accept,
};

use super::{Asked, Repository};
use crate::problem::{Code, Problem};

impl Repository {
    /// Goes on with what a server was at when it was killed: packs of which some
    /// count, and some do not yet.
    pub(super) fn go_on(&self) {
        if self.behind.is_some() {
            return;
        }
        let begun = match self.staged.begun() {
            Ok(begun) if begun.is_empty() => return,
            Ok(begun) => begun,
            Err(problem) => return tracing::error!(%problem, "what was begun cannot be read"),
        };
        // It was found to be no more than is checked when it came.
        let asked = Asked { by: Arc::default(), content_bytes: u64::MAX };
        match self.take_in(&begun, &asked) {
            Ok(_) => {
                begun.iter().for_each(|id| self.staged.forget(id));
                self.staged.end(&begun);
            }
            Err(problem) => {
                tracing::error!(%problem, "packs that were sent do not count");
                // What is missing or wrong will not be right another time; what could not
                // be read may be.
                if problem.code == Code::Rejected {
                    self.staged.end(&begun);
                }
            }
        }
    }

    /// Checks that a commit is here with all that it refers to. It is, if it came
    /// in a pack that was taken in, or refs reach it; else all of it is walked,
    /// since it may be left from something that did not come to its end.
    pub(super) fn check_whole(&self, id: &CommitId) -> Result<(), Problem> {
        self.refresh()?;
        let store = self.repo.store();
        let missing = || Problem::new(Code::Rejected, format!("there is no commit {id} here"));
        let place = store.locate(&id.object())?.ok_or_else(missing)?;
        let pack = store.pack_id(place.pack);
        if pack.is_some_and(|pack| self.complete().contains(&pack)) {
            return Ok(());
        }
        store.commit(id).map_err(|_| missing())?;
        let tips: Vec<CommitId> = self.known_refs()?.into_iter().map(|(_, id)| id).collect();
        Ok(accept::check_commit(store, id, &tips, &Silent)?)
    }

    pub(super) fn complete(&self) -> MutexGuard<'_, HashSet<PackId>> {
        self.complete.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of all refs with their logs, of all packs that count, of all that waits to, and of what has come in
    /// part once it is whole, but for what is being sent just now and what `besides`
    /// is the hash of.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
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
