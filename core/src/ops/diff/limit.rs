//! Which paths a comparison is limited to.

use crate::repo::path::is_within;

/// Paths that are compared; all, when there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    paths: Vec<Vec<u8>>,
    /// Whether other paths are compared, too, if they are in the folder.
    has_present: bool,
}

impl Limit {
    /// These paths and what is below them. Each is one or more names with a
    /// single slash between them; the empty one is the root.
    pub fn to(paths: Vec<Vec<u8>>) -> Self {
        let paths = if paths.iter().any(Vec::is_empty) { Vec::new() } else { paths };
        Self { paths, has_present: false }
    }

    /// The same, and everything else that is in the folder: in a partial clone, a path
    /// outside the scope that is not there was not removed.
    pub fn to_scope(paths: Vec<Vec<u8>>) -> Self {
        Self { has_present: true, ..Self::to(paths) }
    }

    /// Whether a path is to be compared.
    pub(super) fn includes(&self, path: &[u8]) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|wanted| is_within(path, wanted))
    }

    /// Whether something at or below a path is to be compared.
    pub(super) fn reaches(&self, path: &[u8]) -> bool {
        self.includes(path) || self.paths.iter().any(|wanted| is_within(wanted, path))
    }

    /// Whether a path that is in the folder is to be compared.
    pub(super) fn includes_present(&self, path: &[u8]) -> bool {
        self.has_present || self.includes(path)
    }

    /// Whether something at or below a path that is in the folder is to be compared.
    pub(super) fn reaches_present(&self, path: &[u8]) -> bool {
        self.has_present || self.reaches(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_path_and_what_is_below() {
        let limit = Limit::to(vec![b"a/b".to_vec(), b"c".to_vec()]);
        for (path, included, reached) in [
            ("a", false, true),
            ("a/b", true, true),
            ("a/b/x", true, true),
            ("a/bb", false, false),
            ("c/d/e", true, true),
            ("", false, true),
            ("d", false, false),
        ] {
            assert_eq!(limit.includes(path.as_bytes()), included, "{path}");
            assert_eq!(limit.reaches(path.as_bytes()), reached, "{path}");
        }
        assert!(Limit::to(vec![Vec::new()]).includes(b"anything"));
    }
}
