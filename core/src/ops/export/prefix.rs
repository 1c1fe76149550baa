//! The folder in an archive that contains all entries.

use crate::base::name::{self, NameError};

/// The relative path of a folder, without `..` and with a trailing slash. Empty for no folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathPrefix(Vec<u8>);

impl PathPrefix {
    /// Checks the path of a folder. Trailing slashes are optional.
    ///
    /// # Errors
    /// [`NameError`] when one of its names is invalid.
    pub fn new(path: &[u8]) -> Result<Self, NameError> {
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let mut checked = Vec::with_capacity(end + 1);
        for part in path[..end].split(|byte| *byte == b'/') {
            name::check(part)?;
            checked.extend_from_slice(part);
            checked.push(b'/');
        }
        Ok(Self(checked))
    }

    /// Returns the path with a trailing slash.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_relative_folder() {
        assert_eq!(PathPrefix::new(b"a").unwrap().as_bytes(), b"a/");
        assert_eq!(PathPrefix::new(b"a/b-1.0//").unwrap().as_bytes(), b"a/b-1.0/");
        for bad in [&b""[..], b"/", b"/a", b"a//b", b"..", b"a/../b", b"./a", b"a\0"] {
            assert!(PathPrefix::new(bad).is_err(), "{bad:?}");
        }
    }
}
