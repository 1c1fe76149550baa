//! The folder in an archive that everything is put into.

use crate::base::name::{self, NameError};

/// A relative path that does not climb, with a slash at its end; empty for
/// none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefix(Vec<u8>);

impl Prefix {
    /// Checks the path of a folder; slashes at its end may be there or not.
    ///
    /// # Errors
    /// [`NameError`] says what is wrong with one of its names.
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

    /// The path with its slash.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_relative_folder() {
        assert_eq!(Prefix::new(b"a").unwrap().as_bytes(), b"a/");
        assert_eq!(Prefix::new(b"a/b-1.0//").unwrap().as_bytes(), b"a/b-1.0/");
        for bad in [&b""[..], b"/", b"/a", b"a//b", b"..", b"a/../b", b"./a", b"a\0"] {
            assert!(Prefix::new(bad).is_err(), "{bad:?}");
        }
    }
}
