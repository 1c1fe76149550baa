//! The state that all parts of one comparison share.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    base::observe::Observer,
    ops::diff::{Change, ChangeSide, Detail, DiffError, Differences, limit::Limit},
    store::Store,
};

/// The state that all parts of one comparison share.
pub(super) struct DiffJob<'a> {
    pub(super) store: &'a Store,
    pub(super) limit: &'a Limit,
    pub(super) detail: Detail,
    pub(super) observer: &'a dyn Observer,
    /// Files and folders that could not be read.
    pub(super) skipped: AtomicU64,
    /// Number of files that were read for the comparison. Their bytes are in
    /// `bytes_read`.
    pub(super) files_read: AtomicU64,
    pub(super) bytes_read: AtomicU64,
}

impl<'a> DiffJob<'a> {
    pub(super) fn new(
        store: &'a Store,
        (limit, detail): (&'a Limit, Detail),
        observer: &'a dyn Observer,
    ) -> Self {
        let zero = || AtomicU64::new(0);
        let (skipped, files_read, bytes_read) = (zero(), zero(), zero());
        Self { store, limit, detail, observer, skipped, files_read, bytes_read }
    }

    /// Returns an error if the user has asked to stop.
    pub(super) fn check(&self) -> Result<(), DiffError> {
        self.observer.check(DiffError::Interrupted)
    }

    /// Returns the change between two entries of the same name, or `None` if they do not
    /// differ in the requested detail.
    pub(super) fn compared(
        &self,
        path: impl Fn() -> Vec<u8>,
        old: ChangeSide,
        new: ChangeSide,
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
