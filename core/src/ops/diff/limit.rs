//! Limits a comparison to some paths.

use crate::repo::path::is_within;

/// The paths that are compared. An empty list means all paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    paths: Vec<Vec<u8>>,
    /// True if every path that exists in the folder is compared as well.
    pub(super) has_present: bool,
    /// True if the folders above the paths are compared as well, but not their other
    /// entries.
    has_above: bool,
}

impl Limit {
    /// Limits a comparison to these paths and everything below them. Each path is one or
    /// more names separated by single slashes; the empty path is the root.
    pub fn to(paths: Vec<Vec<u8>>) -> Self {
        let paths = if paths.iter().any(Vec::is_empty) { Vec::new() } else { paths };
        Self { paths, has_present: false, has_above: false }
    }

    /// As [`Limit::to`], but also compares every path that exists in the folder. A partial clone
    /// needs this: the user may add files outside its scope. A path that is missing there was never
    /// fetched, so it does not count as removed.
    pub fn to_scope(paths: Vec<Vec<u8>>) -> Self {
        Self { has_present: true, ..Self::to(paths) }
    }

    /// As [`Limit::to`], but also compares the entries that are above the paths on either
    /// side.
    pub fn to_paths_and_above(paths: Vec<Vec<u8>>) -> Self {
        Self { has_above: true, ..Self::to(paths) }
    }

    /// Returns true if the path is compared.
    pub(super) fn includes(&self, path: &[u8]) -> bool {
        self.is_at_or_below(path) || self.has_above && self.is_above(path)
    }

    /// Returns true if the path or anything below it is compared.
    pub(super) fn reaches(&self, path: &[u8]) -> bool {
        self.is_at_or_below(path) || self.is_above(path)
    }

    fn is_at_or_below(&self, path: &[u8]) -> bool {
        self.paths.is_empty() || self.paths.iter().any(|wanted| is_within(path, wanted))
    }

    fn is_above(&self, path: &[u8]) -> bool {
        self.paths.iter().any(|wanted| is_within(wanted, path))
    }

    /// Returns true if a path that exists in the folder, or anything below it, is
    /// compared.
    pub(super) fn reaches_present(&self, path: &[u8]) -> bool {
        self.has_present || self.reaches(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_covers_a_path_and_everything_below_it() {
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
            let limit = Limit::to_paths_and_above(limit.paths.clone());
            assert_eq!(limit.includes(path.as_bytes()), reached, "{path}");
        }
        assert!(Limit::to(vec![Vec::new()]).includes(b"anything"));
    }
}
