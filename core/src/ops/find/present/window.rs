//! The range of paths that is searched in one pass through the history.
//!
//! Paths are compared by keys: their names joined by NUL bytes. In this order a folder
//! comes first, then everything in it, then its next sibling. The keys of everything in a
//! folder start with the folder's key and a NUL.

use crate::base::name::EntryName;

/// A half-open range of keys.
#[derive(Debug, Default)]
pub(super) struct KeyWindow {
    /// The first key in the window.
    from: Vec<u8>,
    /// The first key after the window; `None` if the window has no end.
    end: Option<Vec<u8>>,
}

impl KeyWindow {
    /// Moves to the range after this window. Returns false if there is none.
    pub(super) fn next(&mut self) -> bool {
        let Some(end) = self.end.take() else { return false };
        self.from = end;
        true
    }

    /// Shortens the window to end before `key`.
    pub(super) fn end_before(&mut self, key: Vec<u8>) {
        self.end = Some(key);
    }

    fn is_all(&self) -> bool {
        self.from.is_empty() && self.end.is_none()
    }

    /// Returns true if the key comes before the window.
    pub(super) fn is_before(&self, key: &[u8]) -> bool {
        *key < *self.from
    }

    fn is_behind(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_some_and(|end| **end <= *key)
    }

    /// Returns true if the window may contain anything in the folder. `key` is the
    /// folder's key with a trailing NUL, or empty for the root.
    pub(super) fn has_inside(&self, key: &[u8]) -> bool {
        !self.is_behind(key) && (!self.is_before(key) || self.from.starts_with(key))
    }

    /// Returns true if the window contains everything in the folder.
    pub(super) fn has_all_inside(&self, key: &[u8]) -> bool {
        let ends_inside = self.end.as_ref().is_some_and(|end| end.starts_with(key));
        self.is_all() || !self.is_before(key) && !self.is_behind(key) && !ends_inside
    }

    /// Returns two flags: true if the window contains the path of a name in a folder, and true if
    /// it may contain anything below that path.
    pub(super) fn has(&self, folder: &[u8], name: &[u8]) -> (bool, bool) {
        if self.is_all() {
            return (true, true);
        }
        let mut key = [folder, name].concat();
        let has_path = !self.is_before(&key) && !self.is_behind(&key);
        key.push(0);
        (has_path, self.has_inside(&key))
    }

    /// Returns true if the window may contain an entry in a leaf of a folder. `first` is
    /// the leaf's first name and `end` is the first name of the next leaf.
    pub(super) fn has_leaf(
        &self,
        folder: &[u8],
        first: Option<&EntryName>,
        end: Option<&EntryName>,
    ) -> bool {
        let key = |name: &EntryName| [folder, name.as_bytes()].concat();
        self.is_all()
            || !first.is_some_and(|first| self.is_behind(&key(first)))
                && end.is_none_or(|end| key(end) > self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_window_limits_the_entries_to_search() {
        let name = |name: &str| EntryName::new(name.as_bytes()).unwrap();
        let mut window = KeyWindow::default();
        assert!(window.has_inside(b"") && window.has_all_inside(b"a\0"));
        window.end_before(b"b\0m".to_vec());
        assert_eq!(window.has(b"", b"a"), (true, true));
        assert_eq!(window.has(b"", b"b"), (true, true));
        assert_eq!(window.has(b"", b"b.c"), (false, false));
        assert_eq!(window.has(b"b\0", b"l"), (true, true));
        assert_eq!(window.has(b"b\0", b"m"), (false, false));
        assert!(window.has_all_inside(b"a\0") && !window.has_all_inside(b"b\0"));
        assert!(window.next());
        assert_eq!(window.has(b"", b"a"), (false, false));
        assert_eq!(window.has(b"", b"b"), (false, true));
        assert_eq!(window.has(b"b\0", b"m"), (true, true));
        assert!(window.has_inside(b"b\0") && !window.has_all_inside(b"b\0"));
        assert!(window.has_all_inside(b"c\0"));
        assert!(!window.has_leaf(b"b\0", None, Some(&name("m"))));
        assert!(window.has_leaf(b"b\0", Some(&name("l")), Some(&name("n"))));
        assert!(!window.next());
    }
}
