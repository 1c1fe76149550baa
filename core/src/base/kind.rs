//! What a caller can do about an error, whatever layer it comes from.
//!
//! Retry, exit code and HTTP status are decided from the kind alone.

use std::io;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// It is not there.
    NotFound,
    /// Something else is already there, or has changed meanwhile.
    Exists,
    /// Stored bytes are not what they should be.
    Damaged,
    /// Somebody else holds a lock.
    Locked,
    /// Permission is missing, or the place is read-only.
    Denied,
    /// The storage below failed; a retry may help.
    Unavailable,
    /// A newer version, or something this build cannot do.
    Unsupported,
    /// The user asked to stop.
    Interrupted,
    /// The request itself makes no sense.
    Invalid,
}

impl ErrorKind {
    /// Sorts an I/O error into a kind.
    pub fn of_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound,
            io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => Self::Exists,
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::Denied,
            io::ErrorKind::Interrupted => Self::Interrupted,
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => Self::Damaged,
            io::ErrorKind::Unsupported => Self::Unsupported,
            io::ErrorKind::InvalidInput => Self::Invalid,
            _ => Self::Unavailable,
        }
    }
}
