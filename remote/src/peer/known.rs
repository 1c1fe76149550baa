//! What this process knows of a remote store: the mirror, and the last listing of the index.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use snap_core::{format::ref_text::FIRST_EPOCH, store::StoreError};

use super::{
    INDEX, IndexListing, Mirror, RemoteError,
    bucket::{
        epoch::GC_STATE,
        index::{DONE_BYTES, FILE_BYTES, GROUP},
    },
    gc_view::{IndexedFiles, index_name},
};

/// What this process knows of a remote store.
#[derive(Debug)]
pub struct Known {
    pub(crate) mirror: Mirror,
    /// Names and lengths of the index files in the last listing.
    pub(super) listed: BTreeMap<String, u64>,
    /// Names of the parts of groups in the last listing.
    pub(super) listed_parts: BTreeSet<String>,
    /// True if the last listing said that the store has collected garbage by itself.
    pub(super) was_collected: bool,
    /// Approximate length of a new index file.
    pub(super) index_file_bytes: u64,
}

impl Known {
    /// Creates the knowledge of a process that has listed nothing yet.
    pub(super) fn new(mirror: Mirror) -> Self {
        let (listed, listed_parts) = (BTreeMap::new(), BTreeSet::new());
        Self { mirror, listed, listed_parts, was_collected: false, index_file_bytes: FILE_BYTES }
    }

    /// Returns the listed index files that the mirror knows.
    pub(crate) fn listed_files(&self) -> IndexedFiles {
        let mut files = self.mirror.files();
        files.retain(|name, _| self.listed.contains_key(name));
        files
    }

    /// Returns true if pushes may merge a listed index file into a larger one.
    pub(crate) fn is_small_index_file(&self, name: &str) -> bool {
        !name.ends_with(GROUP) && self.listed.get(name).is_some_and(|bytes| *bytes < DONE_BYTES)
    }

    /// Returns true if the listed index files are all older than the epoch that this client knows. A
    /// collection leaves a file of its epoch, so the store was set back to an older copy.
    pub(super) fn lists_only_older_epochs(&self) -> bool {
        let (known, files) = (self.mirror.epoch(), self.mirror.files());
        let is_older = |name| files.get(name).is_none_or(|file| file.epoch < known);
        known > FIRST_EPOCH && !self.listed.is_empty() && self.listed.keys().all(is_older)
    }

    /// Returns true if a listed index file has an epoch that this client does not know.
    pub(crate) fn lists_newer_epoch(&self) -> bool {
        let known = self.mirror.epoch();
        let files = self.mirror.files();
        self.listed.keys().any(|name| files.get(name).is_some_and(|file| file.epoch > known))
    }

    /// Returns true if the mirror knows the index files that the garbage collection names and that
    /// exist. Others may have been written since the last listing.
    pub(crate) fn knows_named_files(&self) -> bool {
        let Some(gc) = self.mirror.gc() else { return true };
        let files = self.mirror.files();
        let known: BTreeSet<_> = files.keys().filter_map(|name| index_name(name)).collect();
        gc.table.named.is_subset(&known)
    }

    /// Returns true if a file of the last listing is gone from a new one.
    pub(super) fn has_unlisted(&self, listing: &IndexListing) -> bool {
        let now: HashSet<&str> =
            listing.files.iter().filter_map(|object| object.key.strip_prefix(INDEX)).collect();
        self.listed.keys().any(|name| !now.contains(name.as_str()))
    }

    /// Returns true if the last listing of the index was empty, or there was none.
    pub(crate) fn lists_nothing(&self) -> bool {
        self.listed.is_empty()
    }

    /// Returns true if garbage was ever collected in the store, as far as this client knows. Then
    /// missing objects that no ref reaches are not damage.
    pub(crate) fn was_collected(&self) -> bool {
        self.mirror.gc().is_some() || self.was_collected
    }

    /// Forgets the store, because it is gone.
    pub(super) fn forget(&mut self) -> Result<(), StoreError> {
        self.listed.clear();
        self.mirror.reset()
    }

    /// Checks that this version knows everything that a writer must know about the store.
    ///
    /// # Errors
    /// [`RemoteError::Newer`] if objects were purged.
    pub(crate) fn check_gc(&self, location: &str) -> Result<(), RemoteError> {
        let view = self.mirror.gc();
        match view.is_some_and(|view| !view.table.purged.is_empty()) {
            true => {
                let (key, location) = (GC_STATE.to_owned(), location.to_owned());
                Err(RemoteError::Newer { key, location })
            }
            false => Ok(()),
        }
    }
}
