//! What all parts of one comparison share.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    base::{id::TreeId, observe::Observer},
    format::tree::Node,
    ops::diff::{Change, Detail, DiffError, Differences, Item, limit::Limit},
    store::Store,
};

/// What all parts of one comparison share.
pub(super) struct Job<'a> {
    pub(super) store: &'a Store,
    pub(super) limit: &'a Limit,
    pub(super) detail: Detail,
    pub(super) observer: &'a dyn Observer,
    /// Files and folders that could not be read.
    pub(super) skipped: AtomicU64,
    /// Files that were read to be compared, and their bytes.
    pub(super) files_read: AtomicU64,
    pub(super) bytes_read: AtomicU64,
}

impl<'a> Job<'a> {
    pub(super) fn new(
        store: &'a Store,
        (limit, detail): (&'a Limit, Detail),
        observer: &'a dyn Observer,
    ) -> Self {
        let zero = || AtomicU64::new(0);
        let (skipped, files_read, bytes_read) = (zero(), zero(), zero());
        Self { store, limit, detail, observer, skipped, files_read, bytes_read }
    }

    /// A node of the tree of the folder `path`.
    pub(super) fn tree(&self, id: &TreeId, path: &[u8]) -> Result<Node, DiffError> {
        if self.observer.cancelled() {
            return Err(DiffError::Interrupted);
        }
        self.store.tree(id).map_err(|error| DiffError::tree(path, error))
    }

    /// The change from one entry to another of the same name, if they differ
    /// in anything that is asked for.
    pub(super) fn compared(
        &self,
        path: impl Fn() -> Vec<u8>,
        old: Item,
        new: Item,
    ) -> Option<Change> {
        let differences = Differences::between(&old, &new);
        let differences = match self.detail {
            Detail::Usual => differences.usual(),
            Detail::All => differences,
        };
        differences.any().then(|| Change::changed(path(), old, new))
    }

    pub(super) fn count_read(&self, bytes: u64) {
        self.files_read.fetch_add(1, Ordering::Relaxed);
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }
}
