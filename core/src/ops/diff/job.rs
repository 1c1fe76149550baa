//! The state that all parts of one comparison share.

use parking_lot::Mutex;

use crate::{
    base::observe::Observer,
    ops::diff::{Change, ChangeSide, Detail, DiffOutcome, Differences, limit::Limit},
    store::Store,
};

/// The state that all parts of one comparison share.
pub(super) struct DiffJob<'a> {
    pub(super) store: &'a Store,
    pub(super) limit: &'a Limit,
    pub(super) detail: Detail,
    pub(super) observer: &'a dyn Observer,
    pub(super) outcome: Mutex<DiffOutcome>,
}

impl DiffJob<'_> {
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

    /// Counts a file that was read for the comparison.
    pub(super) fn count_read(&self, bytes: u64) {
        let mut outcome = self.outcome.lock();
        outcome.files_read += 1;
        outcome.bytes_read += bytes;
    }
}
