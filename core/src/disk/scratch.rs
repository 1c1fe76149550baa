//! A folder for what need not survive, gone when it is dropped. It is locked, so
//! that others tell it from one whose owner was killed.

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    base::{io::PathError, time::Time},
    disk::{Access, Disk},
};

static SERIAL: AtomicU64 = AtomicU64::new(0);

/// What names of such folders start with.
pub const PREFIX: &str = ".snap-scratch";

/// A name that no other process or thread uses.
pub fn unique_name(what: &str) -> String {
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let Time { secs, nanos } = Time::now();
    format!("{what}-{}-{secs:x}{nanos:08x}-{serial}", std::process::id())
}

/// A folder of one's own.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// Says to others that the folder has an owner; `None` where nothing can be
    /// locked, and nobody takes it for free.
    _lock: Option<File>,
}

impl Scratch {
    /// Makes a folder in `parent`, which must exist. No other user may look
    /// into it.
    ///
    /// # Errors
    /// [`PathError`] when it cannot be made.
    pub fn create(parent: &Path) -> Result<Self, PathError> {
        let path = parent.join(unique_name(PREFIX));
        Disk::scratch().with_access(Access::PRIVATE).create_folders(&path)?;
        let folder = fs_err::File::open(&path).ok().map(|folder| folder.into_parts().0);
        let _lock = folder.filter(|folder| folder.try_lock().is_ok());
        Ok(Self { path, _lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is nobody's loss but the disk's.
        let _ = fs_err::remove_dir_all(&self.path);
    }
}
