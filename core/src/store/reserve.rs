//! The reserve: a file that takes the room which a garbage collection needs on a full disk.
//!
//! Before a collection deletes anything, it writes a few small files. On a disk without a free byte,
//! it deletes the reserve first, then what can be derived again, and puts the reserve back at its
//! end.

use crate::{
    base::{
        io::{PathError, if_exists},
        limits,
    },
    store::{Store, StoreError},
};

/// Name of the reserve in a store.
pub const FILE: &str = "gc.reserve";

impl Store {
    /// Takes the room of the reserve, if the store has none. A failure does no harm: the disk has no
    /// room for the reserve.
    pub fn keep_reserve(&self) {
        let (layout, path) = (self.layout(), self.dir().join(FILE));
        if !path.exists() {
            // A file system may compress the file, so its bytes are not compressible.
            let mut bytes = vec![0; limits::GC_RESERVE_BYTES];
            blake3::Hasher::new().finalize_xof().fill(&mut bytes);
            let _ = self.disk().write_unsynced(&layout.tmp, &path, &bytes);
        }
    }

    /// Frees room for a collection: deletes the reserve, or else the files in `cache/`. Returns false
    /// if there is nothing to delete.
    ///
    /// # Errors
    /// [`StoreError::Io`] when a file cannot be deleted.
    pub fn free_reserve(&self) -> Result<bool, StoreError> {
        let (path, cache) = (self.dir().join(FILE), self.dir().join("cache"));
        if path.exists() {
            self.disk().remove(&path)?;
            return Ok(true);
        }
        let list = || if_exists(fs_err::read_dir(&cache));
        let entries = list().map_err(PathError::when("list", &cache))?.into_iter().flatten();
        let mut has_freed = false;
        for entry in entries {
            let entry = entry.map_err(PathError::when("list", &cache))?.path();
            match entry.is_dir() && !entry.is_symlink() {
                true => {
                    fs_err::remove_dir_all(&entry).map_err(PathError::when("remove", &entry))?
                }
                false => self.disk().remove(&entry)?,
            }
            has_freed = true;
        }
        Ok(has_freed)
    }
}
