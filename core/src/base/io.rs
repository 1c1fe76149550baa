//! An I/O error with the action that failed and its path.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::base::kind::ErrorKind;

/// A failed system call on a path.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
pub struct PathError {
    /// A verb for the message, such as "read".
    pub action: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// The error of the system call.
    pub source: io::Error,
}

impl PathError {
    /// Returns what the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::of_io(&self.source)
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

    /// Returns true if the path did not exist.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}
