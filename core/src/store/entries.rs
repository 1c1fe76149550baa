//! Iteration over all entries of one directory.

use crate::{
    base::id::TreeId,
    format::tree::Entry,
    store::{Prefetch, Store, StoreError, TreeCursor},
};

/// Iterates over the entries of a directory in order. Holds one leaf in memory. Ends after the
/// first error.
#[derive(Debug)]
pub struct Entries<'s> {
    store: &'s Store,
    cursor: TreeCursor,
}

impl<'s> Entries<'s> {
    /// Iterates over the entries of `tree`.
    pub fn of(store: &'s Store, tree: TreeId) -> Self {
        Self { store, cursor: TreeCursor::new(tree, Prefetch::Nodes) }
    }

    /// Iterates over the entries of `tree` from the name `from` on.
    ///
    /// # Errors
    /// As [`TreeCursor::open`].
    pub fn from(store: &'s Store, tree: TreeId, from: &[u8]) -> Result<Self, StoreError> {
        let mut entries = Self::of(store, tree);
        entries.cursor.seek(store, from)?;
        Ok(entries)
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.cursor.next_entry(self.store);
        if step.is_err() {
            self.cursor.clear();
        }
        step.transpose()
    }
}
