//! Temporary files and folders that are locked while their owner lives. So other processes can
//! recognise and remove what a killed owner left, at once: they lock it first, and an owner whose
//! new file was locked or removed by another process makes a new one.

use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    base::{io::PathError, time::Time},
    disk::{CreateMode, Disk, NewFile, lock_wait::is_file_at},
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

/// Creates a file in `folder` that is locked until it is closed.
///
/// # Errors
/// [`PathError`] when the file cannot be created.
pub fn create_locked(disk: &Disk, folder: &Path, what: &str) -> Result<NewFile, PathError> {
    loop {
        let file = disk.create(&folder.join(unique_name(what)))?;
        if lock_new(file.file(), file.path())? != NewLock::Lost {
            return Ok(file);
        }
    }
}

/// The result of locking a new file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewLock {
    Locked,
    /// The file system has no locks, so other processes do not remove the file either.
    Unsupported,
    /// Another process took the file for abandoned. Make another one.
    Lost,
}

/// Locks a file or folder that this process has just created.
///
/// # Errors
/// [`PathError`] when the file cannot be examined.
pub fn lock_new(file: &File, path: &Path) -> Result<NewLock, PathError> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Ok(NewLock::Lost),
        Err(TryLockError::Error(_)) => Ok(NewLock::Unsupported),
        Ok(()) if is_file_at(file, path)? => Ok(NewLock::Locked),
        Ok(()) => Ok(NewLock::Lost),
    }
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
        loop {
            let path = parent.join(unique_name(PREFIX));
            let made = Disk::scratch().with_access(CreateMode::PRIVATE).create_folders(&path);
            match made {
                // Another process took the folder for abandoned before its mode was set.
                Err(error) if error.is_not_found() && parent.is_dir() => continue,
                made => made?,
            }
            let Ok(folder) = fs_err::File::open(&path) else { continue };
            let folder = folder.into_parts().0;
            match lock_new(&folder, &path)? {
                NewLock::Locked => return Ok(Self { path, _lock: Some(folder) }),
                NewLock::Unsupported => return Ok(Self { path, _lock: None }),
                NewLock::Lost => {}
            }
        }
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
