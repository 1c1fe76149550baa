//! Which paths a comparison is limited to.

use crate::repo::path::is_within;

/// Paths that are compared; all, when there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limit(Vec<Vec<u8>>);

impl Limit {
    /// These paths and what is below them. Each is one or more names with a
    /// single slash between them; the empty one is the root.
    pub fn to(paths: Vec<Vec<u8>>) -> Self {
        if paths.iter().any(Vec::is_empty) { Self::default() } else { Self(paths) }
    }

    /// Whether a path is to be compared.
    pub(super) fn includes(&self, path: &[u8]) -> bool {
        self.0.is_empty() || self.0.iter().any(|wanted| is_within(path, wanted))
    }

    /// Whether something at or below a path is to be compared.
    pub(super) fn reaches(&self, path: &[u8]) -> bool {
        self.includes(path) || self.0.iter().any(|wanted| is_within(wanted, path))
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
