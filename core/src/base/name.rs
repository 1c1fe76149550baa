//! Names of directory entries, as bytes, that cannot climb.
//!
//! An [`EntryName`] is one component of a path: 1 to 255 bytes, no `/`, no
//! NUL, not `.` and not `..`. Whatever comes from storage becomes one of these
//! before anything else is done with it. It need not be UTF-8.

use std::{ffi::OsStr, fmt, os::unix::ffi::OsStrExt};

use crate::base::limits;

/// One checked path component.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryName(Box<[u8]>);

impl EntryName {
    /// Checks `bytes`.
    ///
    /// # Errors
    /// [`NameError`] says which rule they break.
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        check(bytes)?;
        Ok(Self(bytes.into()))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name as the system takes it.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }
}

/// Checks one path component without keeping it.
///
/// # Errors
/// [`NameError`] says which rule it breaks.
pub fn check(bytes: &[u8]) -> Result<(), NameError> {
    match bytes {
        b"" => Err(NameError::Empty),
        b"." | b".." => Err(NameError::Dots),
        _ if bytes.len() > limits::NAME_BYTES => Err(NameError::TooLong { bytes: bytes.len() }),
        _ if bytes.contains(&b'/') => Err(NameError::Slash),
        _ if bytes.contains(&0) => Err(NameError::Nul),
        _ => Ok(()),
    }
}

/// Why bytes are not the name of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No bytes at all.
    #[error("an entry name is empty")]
    Empty,
    /// `.` or `..`.
    #[error("an entry name is `.` or `..`")]
    Dots,
    /// Contains `/`.
    #[error("an entry name contains a slash")]
    Slash,
    /// Contains NUL.
    #[error("an entry name contains a NUL byte")]
    Nul,
    /// Longer than [`limits::NAME_BYTES`].
    #[error("an entry name has {bytes} bytes, more than 255")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

impl fmt::Debug for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_os_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_climb_are_refused() {
        for (bytes, error) in [
            (&b""[..], NameError::Empty),
            (b".", NameError::Dots),
            (b"..", NameError::Dots),
            (b"a/b", NameError::Slash),
            (b"/etc", NameError::Slash),
            (b"a\0b", NameError::Nul),
            (&[b'x'; 256], NameError::TooLong { bytes: 256 }),
        ] {
            assert_eq!(EntryName::new(bytes), Err(error));
        }
    }

    #[test]
    fn any_other_bytes_are_a_name() {
        for bytes in [&b"..."[..], b"\xff\xfe", b"new\nline", b" ", &[b'x'; 255]] {
            assert_eq!(EntryName::new(bytes).unwrap().as_bytes(), bytes);
        }
    }
}
