//! The lock of a server on the folder of its stores.

use std::{
    fs::TryLockError,
    path::{Path, PathBuf},
};

/// Name of the lock file in the folder of a server.
pub(crate) const LOCK: &str = "serve.lock";

/// Number of folders above a store in which a server of the store may have its lock: a server finds
/// stores a few levels below its folder.
const LEVELS: usize = 8;

/// Returns true if a server holds the lock in a folder.
pub(crate) fn is_served(folder: &Path) -> bool {
    let file = fs_err::File::open(folder.join(LOCK));
    file.is_ok_and(|file| matches!(file.file().try_lock(), Err(TryLockError::WouldBlock)))
}

/// Returns the folder of a server that serves the store in `dir`; `None` if there is none.
pub(crate) fn served_around(dir: &Path) -> Option<PathBuf> {
    let real = fs_err::canonicalize(dir).ok()?;
    real.ancestors().take(LEVELS).find(|folder| is_served(folder)).map(Path::to_owned)
}
