//! An I/O error that knows what was done to which path.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::base::kind::ErrorKind;

/// A system call on a path that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
pub struct PathError {
    /// Verb for the message, such as "read".
    pub action: &'static str,
    /// What it was done to.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl PathError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::of_io(&self.source)
    }

    /// A closure for `map_err` that adds `action` and `path`.
    pub fn when<E: Into<io::Error>>(
        action: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self { action, path: path.as_ref().to_owned(), source: source.into() }
    }

    /// Whether the disk, or what this user may have of it, is full.
    pub fn is_full(&self) -> bool {
        matches!(self.source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Whether the path did not exist.
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}
