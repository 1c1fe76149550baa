//! Error kinds, shared by all layers: what a caller can do about an error.
//!
//! Retries, exit codes and HTTP statuses depend on the kind alone.

use std::io;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The object does not exist.
    NotFound,
    /// An object with this name already exists, or another process changed the object meanwhile.
    Exists,
    /// Stored bytes break their format, or do not match their id or checksum.
    Damaged,
    /// Another process holds a lock.
    Locked,
    /// A permission is missing, or the file system is read-only.
    Denied,
    /// The storage failed; a retry may help.
    Unavailable,
    /// A newer version wrote the data, or this build lacks the feature.
    Unsupported,
    /// The user asked to stop.
    Interrupted,
    /// The request is valid, but a rule of the store or of the server forbids it. Nothing was done.
    Refused,
    /// The request is not valid.
    Invalid,
}

impl ErrorKind {
    /// Returns the kind of an I/O error. Never returns [`ErrorKind::Invalid`]: a system call can
    /// fail although the user's request is valid.
    pub fn of_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound,
            io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => Self::Exists,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::Denied,
            io::ErrorKind::Interrupted => Self::Interrupted,
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Self::Damaged,
            io::ErrorKind::Unsupported => Self::Unsupported,
            _ => Self::Unavailable,
        }
    }
}
