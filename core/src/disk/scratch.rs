//! Temporary files and folders. Their owner holds a lock on each, so other processes can remove the
//! leftovers of a killed owner at once. A process that removes a file locks it first. An owner
//! whose new file was locked or removed by another process makes a new one.

use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    base::{io::PathError, time::Time},
    disk::{CreateMode, Disk, NewFile, lock_wait::is_file_at},
    format::pack::checksum,
};

static SERIAL: AtomicU64 = AtomicU64::new(0);

/// Prefix of the names of scratch files and folders.
pub const PREFIX: &str = ".snap-scratch";

/// Prefix of the names of incomplete output files.
pub const PART_PREFIX: &str = ".snap-part";

/// Returns a name that no other process or thread uses. The name ends with a checksum of the rest,
/// by which [`is_unique_name`] recognises it.
pub fn unique_name(what: &str) -> String {
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let Time { secs, nanos } = Time::now();
    let name = format!("{what}-{}-{secs:x}{nanos:08x}-{serial}", std::process::id());
    let sum = name_sum(name.as_bytes());
    format!("{name}-{sum:08x}")
}

/// Returns true if [`unique_name`] made this name for `what`. The checksum excludes files of the
/// user with similar names.
pub fn is_unique_name(name: &[u8], what: &str) -> bool {
    let starts = name.strip_prefix(what.as_bytes()).is_some_and(|rest| rest.starts_with(b"-"));
    let Some((rest, sum)) = name.split_at_checked(name.len().saturating_sub(9)) else {
        return false;
    };
    starts && sum == format!("-{:08x}", name_sum(rest)).as_bytes()
}

/// Returns the checksum in the name of a temporary file.
pub fn name_sum(rest: &[u8]) -> u32 {
    checksum(rest) as u32
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
    /// Another process took the file for abandoned. The caller makes another one.
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
    /// Lock that shows other processes that the folder has an owner. `None` if the file system has
    /// no locks; then no process removes the folder.
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

    /// Returns the path of the folder.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_with_their_checksum_are_recognised() {
        for what in [PREFIX, PART_PREFIX, "pack"] {
            let name = unique_name(what);
            assert!(is_unique_name(name.as_bytes(), what), "{name}");
            assert!(!is_unique_name(format!("{name}0").as_bytes(), what));
            assert!(!is_unique_name(format!("{name}.bak").as_bytes(), what));
            let other = name.replacen(char::is_numeric, "x", 1);
            assert!(!is_unique_name(other.as_bytes(), what), "{other}");
        }
        let part = unique_name(PART_PREFIX);
        assert!(!is_unique_name(part.as_bytes(), PREFIX));
        for name in ["", "-", ".snap-part", ".snap-part-notes", ".snap-part-12345678", "äöü"] {
            assert!(!is_unique_name(name.as_bytes(), PART_PREFIX), "{name}");
        }
    }
}
