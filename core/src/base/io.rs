//! An I/O error with the action that failed and its path.

use std::{
    io,
    path::{Path, PathBuf},
};

use rustix::io::Errno;

use crate::base::kind::ErrorKind;

/// Returns true if an I/O error concerns one path, so that work on other paths can go on. Examples
/// are a missing permission, an immutable file, a mount point, a dead file server behind a mount,
/// and a name that the file system does not support.
///
/// Returns false if other paths would fail as well, or if going on would do harm. Examples are a
/// full disk or quota, a failing, removed or read-only disk, and a process without memory or file
/// descriptors. If no system call returned the error, only `AlreadyExists` concerns one path.
///
/// A read-only mount below a writable target also fails with `EROFS`. A caller that can inspect the
/// target must handle that case itself.
pub fn is_of_one_path(error: &io::Error) -> bool {
    let of_all = [
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::IO,
        Errno::ROFS,
        Errno::NODEV,
        Errno::NXIO,
        Errno::NOMEM,
        Errno::MFILE,
        Errno::NFILE,
        Errno::INTR,
    ];
    match Errno::from_io_error(error) {
        Some(errno) => !of_all.contains(&errno),
        None => error.kind() == io::ErrorKind::AlreadyExists,
    }
}

/// Turns the error of a path that does not exist into `None`.
///
/// # Errors
/// All other errors of `read`.
pub fn if_exists<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// A failed system call on a path.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
pub struct PathError {
    /// Verb for the message, such as "read".
    pub action: &'static str,
    pub path: PathBuf,
    pub source: io::Error,
}

impl PathError {
    /// Returns what the caller can do about the error.
    pub fn kind(&self) -> ErrorKind {
        self.source.kind().into()
    }

    /// Returns a closure for `map_err` that adds `action` and `path` to an error.
    pub fn when<E: Into<io::Error>>(
        action: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self { action, path: path.as_ref().to_owned(), source: source.into() }
    }

    /// Returns true if the disk or the user's quota is full.
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Returns true if other paths of the target may work although this one failed.
    pub fn is_of_one_path(&self) -> bool {
        is_of_one_path(&self.source)
    }

    /// Returns true if the path did not exist.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_one_path_differ_from_errors_of_the_disk() {
        let of_one = [
            Errno::PERM,
            Errno::ACCESS,
            Errno::BUSY,
            Errno::NOTCONN,
            Errno::STALE,
            Errno::NAMETOOLONG,
            Errno::INVAL,
            Errno::NOENT,
            Errno::NOTDIR,
            Errno::LOOP,
            Errno::TXTBSY,
            Errno::FBIG,
        ];
        let of_all = [
            Errno::NOSPC,
            Errno::DQUOT,
            Errno::IO,
            Errno::ROFS,
            Errno::NOMEM,
            Errno::MFILE,
            Errno::NFILE,
        ];
        of_one.iter().for_each(|errno| assert!(is_of_one_path(&(*errno).into()), "{errno}"));
        of_all.iter().for_each(|errno| assert!(!is_of_one_path(&(*errno).into()), "{errno}"));
    }
}
