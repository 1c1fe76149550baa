//! Walks two trees of a store side by side.
//!
//! Equal trees are not opened. Memory holds one [`TreePair`] for each level of folders.

use crate::{
    base::id::TreeId,
    format::tree::Entry,
    ops::diff::{Change, ChangeSide, DiffError, job::DiffJob},
    repo::path::push_name,
    store::{PairedEntries, TreePair, check_depth},
};

struct FolderPair {
    entries: TreePair,
    /// Length of the folder's path in bytes.
    path_bytes: usize,
}

/// Iterates over the changes from one tree to another. The entries of a folder come
/// sorted by name, and a folder comes before its contents.
pub(super) struct Trees<'a> {
    job: &'a DiffJob<'a>,
    path: Vec<u8>,
    stack: Vec<FolderPair>,
    /// True if the ignore rules exclude all entries that only the old side has.
    are_ignored: bool,
}

impl<'a> Trees<'a> {
    /// Compares two folders at the path `path`; `None` is an empty folder.
    pub(super) fn new(
        job: &'a DiffJob<'a>,
        path: Vec<u8>,
        old: Option<TreeId>,
        new: Option<TreeId>,
    ) -> Result<Self, DiffError> {
        let mut trees = Self { job, path, stack: Vec::new(), are_ignored: false };
        trees.enter(old, new)?;
        Ok(trees)
    }

    /// Lists everything in the removed folder at `path`. `are_ignored` is true if the folder still
    /// exists, but the ignore rules exclude it.
    pub(super) fn of_removed(
        job: &'a DiffJob<'a>,
        path: Vec<u8>,
        tree: TreeId,
        are_ignored: bool,
    ) -> Result<Self, DiffError> {
        Ok(Self { are_ignored, ..Self::new(job, path, Some(tree), None)? })
    }

    fn enter(&mut self, old: Option<TreeId>, new: Option<TreeId>) -> Result<(), DiffError> {
        if old == new {
            return Ok(());
        }
        for tree in [old, new].into_iter().flatten() {
            check_depth(self.stack.len(), tree)
                .map_err(|error| DiffError::tree(&self.path, error))?;
        }
        let entries = TreePair::new(old, new);
        self.stack.push(FolderPair { entries, path_bytes: self.path.len() });
        Ok(())
    }

    /// Returns the next change, or `None` after the last one.
    pub(super) fn next(&mut self) -> Result<Option<Change>, DiffError> {
        while let Some(FolderPair { entries, path_bytes }) = self.stack.last_mut() {
            self.job.observer.check()?;
            self.path.truncate(*path_bytes);
            let next = entries.next(self.job.store, &mut |_| true);
            match next.map_err(|error| DiffError::tree(&self.path, error))? {
                None => drop(self.stack.pop()),
                Some(entries) => {
                    if let Some(change) = self.entry(entries)? {
                        return Ok(Some(change));
                    }
                }
            }
        }
        Ok(None)
    }

    fn entry(&mut self, entries: PairedEntries) -> Result<Option<Change>, DiffError> {
        push_name(&mut self.path, entries.name());
        let PairedEntries { old, new } = entries;
        if !self.job.limit.reaches(&self.path) {
            return Ok(None);
        }
        let tree = |entry: &Option<Entry>| entry.as_ref()?.kind.tree();
        self.enter(tree(&old), tree(&new))?;
        let path = || self.path.clone();
        Ok(match (old, new) {
            _ if !self.job.limit.includes(&self.path) => None,
            (Some(old), Some(new)) => self.job.compared(path, old.into(), new.into()),
            (Some(old), None) => {
                Some(Change::deleted(path(), ChangeSide::from(old), self.are_ignored))
            }
            (None, Some(new)) => Some(Change::added(path(), ChangeSide::from(new))),
            (None, None) => None,
        })
    }
}
