//! Forgotten commits: history without its trees.
//!
//! A forgotten commit stays in history as an ancestor of others, but garbage collection deletes what
//! only it refers to. Two records say so:
//!
//! - The table `forgotten` lists the commits that `forget` has chosen. As long as a collection has
//!   not deleted them, they can be read, and `undo` removes them from the table.
//! - A [link](ObjectKind::Link) of each of them is in a pack before the table lists the commit. It
//!   has the bytes of the commit, so the history below it stays known.
//!
//! The table may be lost or damaged: then no commit counts as forgotten that can still be read, and
//! a commit that was deleted has only its link.

use std::{io, path::Path, sync::Arc};

use crate::{
    base::{id::CommitId, io::PathError, limits},
    disk::regular::read_at_most,
    format::{commit::Commit, forgotten::ForgottenTable, pack::ObjectKind, wire::FormatError},
    store::{Store, StoreError, objects::decode_commit},
};

/// Name of the table in a store.
const TABLE: &str = "forgotten";

/// A commit, as its children refer to it.
#[derive(Clone, Debug)]
pub struct Ancestor {
    pub commit: Commit,
    /// True if the commit was forgotten. Its tree may be missing.
    pub is_forgotten: bool,
}

/// Reads the table of the store in `dir`. A damaged table is empty.
pub(super) fn read_table(dir: &Path) -> Result<ForgottenTable, StoreError> {
    let path = dir.join(TABLE);
    let bytes = match read_at_most(&path, limits::FORGOTTEN_BYTES) {
        Ok(bytes) => bytes,
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::FileTooLarge | io::ErrorKind::InvalidInput => {
                return Ok(ForgottenTable::default());
            }
            _ => return Err(PathError::when("read", &path)(error).into()),
        },
    };
    match ForgottenTable::decode(&bytes) {
        Err(source) if source.is_of_version() => Err(StoreError::Table { path, source }),
        table => Ok(table.unwrap_or_default()),
    }
}

impl Store {
    /// Returns the forgotten commits that this open store knows.
    pub fn forgotten(&self) -> Arc<ForgottenTable> {
        Arc::clone(&self.catalog().forgotten)
    }

    /// Returns true if a commit is forgotten, whether or not it was deleted. A commit that is shadowed
    /// as dead counts as deleted.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn is_forgotten(&self, id: &CommitId) -> Result<bool, StoreError> {
        Ok(self.catalog().forgotten.contains(id)
            || !self.is_alive(&id.object())? && self.is_alive(&id.link())?)
    }

    /// Returns true if no collection could delete a commit yet, because it was forgotten too late.
    pub fn is_forgotten_and_kept(&self, id: &CommitId) -> bool {
        let catalog = self.catalog();
        catalog.forgotten.since(id).is_some_and(|since| since > catalog.epoch.collected.forgotten)
    }

    /// Returns true if a parent is forgotten. In a partial clone, reads the commit of a pack that lies
    /// elsewhere: only then it turns out that the remote has forgotten the commit.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn is_forgotten_parent(&self, id: &CommitId) -> Result<bool, StoreError> {
        if self.is_forgotten(id)? {
            return Ok(true);
        }
        let place = self.locate(&id.object())?;
        match place.map_or(Ok(true), |place| self.is_here(&place))? {
            true => Ok(false),
            false => Ok(matches!(self.commit(id), Err(StoreError::Forgotten { .. }))),
        }
    }

    /// Returns true if the store has a commit or its link.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn knows(&self, id: &CommitId) -> Result<bool, StoreError> {
        Ok(self.locate(&id.object())?.is_some() || self.locate(&id.link())?.is_some())
    }

    /// Reads a commit or its link.
    ///
    /// # Errors
    /// [`StoreError`] if the store has neither of them, or if it is damaged.
    pub fn ancestor(&self, id: &CommitId) -> Result<Ancestor, StoreError> {
        match self.commit(id) {
            Ok(commit) => Ok(Ancestor { commit, is_forgotten: self.is_forgotten(id)? }),
            // Its link is enough also if the commit is lost before a collection deletes it.
            Err(StoreError::Forgotten { .. } | StoreError::Missing { .. })
                if self.locate(&id.link())?.is_some() =>
            {
                let bytes = self.object(&id.link(), ObjectKind::Link)?;
                let commit = decode_commit(id.link(), ObjectKind::Link, &bytes)?;
                Ok(Ancestor { commit, is_forgotten: true })
            }
            Err(error) => Err(error),
        }
    }

    /// Replaces the table of forgotten commits, durably. The caller holds the lock on the refs, and
    /// the store has a link of each added commit.
    ///
    /// # Errors
    /// [`StoreError`] when the table cannot be written.
    pub fn change_forgotten(&self, change: &dyn Fn(&mut ForgottenTable)) -> Result<(), StoreError> {
        let before = read_table(self.dir())?;
        let mut table = before.clone();
        change(&mut table);
        if table != before {
            self.write_table(&self.dir().join(TABLE), table.is_empty(), || {
                let (bytes, what) = (table.encode(), "table of forgotten commits");
                FormatError::check_limit(what, bytes.len() as u64, limits::FORGOTTEN_BYTES)?;
                Ok(bytes)
            })?;
        }
        if *self.forgotten() != table {
            self.change_catalog(|catalog| catalog.forgotten = table.into());
        }
        Ok(())
    }
}
