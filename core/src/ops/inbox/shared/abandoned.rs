//! Removes staged files that no process will publish.

use std::{collections::HashSet, os::unix::fs::MetadataExt, path::PathBuf, time::Duration};

use super::{JOURNAL, RECEIVING_PREFIX, SharedInbox};
use crate::{
    base::{id::PackId, io::PathError},
    store::sweep,
};

/// The time after which an unused staged file is removed.
const AGE: Duration = Duration::from_secs(24 * 3600);

impl SharedInbox {
    /// Creates the folder, and keeps [`SharedInbox::sweep_abandoned`] from removing its files while
    /// this value lives. Call this before a file is created in the folder.
    ///
    /// # Errors
    /// [`PathError`] when the folder or the lock file cannot be created.
    pub fn enter(&self) -> Result<(), PathError> {
        self.disk.create_folders(&self.dir)?;
        if self.users.get().is_none() {
            let users = self.disk.lock_file(&self.lock_path)?;
            // This waits only while another process removes files. On file systems without locks,
            // no process removes files.
            let _ = users.lock_shared();
            let _ = self.users.set(users);
        }
        Ok(())
    }

    /// Removes files that killed processes staged, unless a publication has begun or another
    /// process stages packs now. Writers of the store call this when they start. Failures are
    /// ignored.
    pub fn sweep_abandoned(&self) {
        let is_folder = fs_err::symlink_metadata(&self.dir).is_ok_and(|meta| meta.is_dir());
        if !is_folder || self.removable().is_none_or(|paths| paths.is_empty()) {
            return;
        }
        let Ok(users) = self.disk.lock_file(&self.lock_path) else { return };
        if users.try_lock().is_ok() {
            // Another process may have begun a publication before the lock was taken.
            for path in self.removable().unwrap_or_default() {
                let _ = self.disk.remove(&path);
            }
        }
    }

    /// Returns the files that no begun publication needs; `None` if the journal cannot be read.
    fn removable(&self) -> Option<Vec<PathBuf>> {
        let begun: HashSet<String> = self.journaled().ok()?.iter().map(PackId::to_string).collect();
        let is_needed = |name: &str| name == JOURNAL || begun.contains(name);
        let entries = fs_err::read_dir(&self.dir).ok()?.flatten();
        let removable = entries.filter(|entry| {
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            is_file && !entry.file_name().to_str().is_some_and(is_needed)
        });
        Some(removable.map(|entry| entry.path()).collect())
    }

    /// Removes staged files that are too old, hard links to packs that became part of the store,
    /// and partial files of killed processes. Failures are ignored: the next sweep tries again.
    pub fn sweep(&self) {
        for path in self.removable().unwrap_or_default() {
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            if name.starts_with(RECEIVING_PREFIX.as_bytes()) {
                sweep::remove_abandoned(&path);
                continue;
            }
            let Ok(meta) = fs_err::metadata(&path) else { continue };
            let stored = self.objects.join(path.file_name().unwrap_or_default());
            let is_stored = fs_err::metadata(stored)
                .is_ok_and(|stored| (stored.dev(), stored.ino()) == (meta.dev(), meta.ino()));
            let age = meta.modified().ok().and_then(|time| time.elapsed().ok());
            if is_stored || age.is_some_and(|age| age > AGE) {
                let _ = self.disk.remove(&path);
            }
        }
    }
}
