//! Error kinds, shared by all layers: what a caller can do about an error.
//!
//! Retries, exit codes and HTTP statuses depend on the kind alone. An error enum derives [`Kind`] and
//! names the kind at each variant.

use std::io;

pub use snap_derive::Kind;

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

/// The kind of an I/O error. It is never [`ErrorKind::Invalid`]: a system call can fail although the
/// user's request is valid.
impl From<io::ErrorKind> for ErrorKind {
    fn from(kind: io::ErrorKind) -> Self {
        match kind {
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
