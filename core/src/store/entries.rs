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
    /// Name to start from. `None` once the cursor has moved there.
    from: Option<Vec<u8>>,
}

impl<'s> Entries<'s> {
    /// Iterates over the entries of `tree`.
    pub fn of(store: &'s Store, tree: TreeId) -> Self {
        Self { store, cursor: TreeCursor::new(tree, Prefetch::Nodes), from: None }
    }

    /// Iterates over the entries of `tree` from the name `from` on.
    pub fn from(store: &'s Store, tree: TreeId, from: Vec<u8>) -> Self {
        Self { from: Some(from), ..Self::of(store, tree) }
    }

    fn step(&mut self) -> Result<Option<Entry>, StoreError> {
        if let Some(from) = self.from.take() {
            self.cursor.seek(self.store, &from)?;
        }
        self.cursor.next_entry(self.store)
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            self.cursor.clear();
        }
        step.transpose()
    }
}
