//! Scratch folders: temporary folders that are removed when they are dropped. They are
//! locked, so that other processes can recognise a folder whose owner was killed.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    base::{io::PathError, time::Time},
    disk::{CreateMode, Disk},
};

static SERIAL: AtomicU64 = AtomicU64::new(0);

/// Prefix of the names of scratch folders.
pub const PREFIX: &str = ".snap-scratch";

/// Returns a name that no other process or thread uses.
pub fn unique_name(what: &str) -> String {
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let Time { secs, nanos } = Time::now();
    format!("{what}-{}-{secs:x}{nanos:08x}-{serial}", std::process::id())
}

/// A scratch folder.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// The lock that shows other processes that the folder has an owner. `None` if the
    /// file system has no locks; then other processes do not remove the folder either.
    _lock: Option<File>,
}

impl Scratch {
    /// Creates a folder in `parent`, which must exist. Other users cannot access it.
    ///
    /// # Errors
    /// [`PathError`] when the folder cannot be created.
    pub fn create(parent: &Path) -> Result<Self, PathError> {
        let path = parent.join(unique_name(PREFIX));
        Disk::scratch().with_access(CreateMode::PRIVATE).create_folders(&path)?;
        let folder = fs_err::File::open(&path).ok().map(|folder| folder.into_parts().0);
        let _lock = folder.filter(|folder| folder.try_lock().is_ok());
        Ok(Self { path, _lock })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A failure only leaves the folder on the disk.
        let _ = fs_err::remove_dir_all(&self.path);
    }
}
