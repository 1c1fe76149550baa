//! Names of directory entries that cannot lead out of their folder.
//!
//! An [`EntryName`] is one component of a path: 1 to 255 bytes, no `/`, no NUL, not `.` and not
//! `..`. It need not be UTF-8. Code that reads a name from storage converts it to an `EntryName`
//! before any use.

use std::{borrow::Borrow, ffi::OsStr, fmt, os::unix::ffi::OsStrExt};

use crate::base::limits;

/// A checked path component.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryName(Box<[u8]>);

impl EntryName {
    /// Checks `bytes` and converts them to a name.
    ///
    /// # Errors
    /// Fails with the rule that the bytes break.
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        check(bytes)?;
        Ok(Self(bytes.into()))
    }

    /// Returns the bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the name as an `OsStr`.
    pub fn as_os_str(&self) -> &OsStr {
        OsStr::from_bytes(&self.0)
    }
}

/// Allows a lookup by bytes in a map whose keys are names.
impl Borrow<[u8]> for EntryName {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Checks one path component.
///
/// # Errors
/// Fails with the rule that the component breaks.
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

/// Why bytes are not a valid entry name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is empty.
    #[error("an entry name is empty")]
    Empty,
    /// The name is `.` or `..`.
    #[error("an entry name is `.` or `..`")]
    Dots,
    /// The name contains `/`.
    #[error("an entry name contains a slash")]
    Slash,
    /// The name contains NUL.
    #[error("an entry name contains a NUL byte")]
    Nul,
    /// The name is longer than [`limits::NAME_BYTES`].
    #[error("an entry name has {bytes} bytes; the limit is 255")]
    TooLong { bytes: usize },
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
    fn names_that_lead_out_of_the_folder_are_refused() {
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
    fn all_other_bytes_are_names() {
        for bytes in [&b"..."[..], b"\xff\xfe", b"new\nline", b" ", &[b'x'; 255]] {
            assert_eq!(EntryName::new(bytes).unwrap().as_bytes(), bytes);
        }
    }
}
