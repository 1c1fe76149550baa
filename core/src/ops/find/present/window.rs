//! Which paths are looked at in one go through the history.
//!
//! Paths are compared by their keys: the names, with a NUL between them. So a
//! folder's path comes first, then all that is in it, then the next name, and
//! the keys of what is in a folder begin with its own key and a NUL.

use crate::base::name::EntryName;

/// Paths from one key to another.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// The first key that is in it.
    from: Vec<u8>,
    /// The first key that is not.
    end: Option<Vec<u8>>,
}

impl Window {
    /// Goes on to the paths behind this window. Returns whether there are any.
    pub(super) fn next(&mut self) -> bool {
        match self.end.take() {
            Some(end) => self.from = end,
            None => return false,
        }
        true
    }

    /// Ends it earlier.
    pub(super) fn end_before(&mut self, key: Vec<u8>) {
        self.end = Some(key);
    }

    fn is_all(&self) -> bool {
        self.from.is_empty() && self.end.is_none()
    }

    /// Whether a key comes before it.
    pub(super) fn is_before(&self, key: &[u8]) -> bool {
        *key < *self.from
    }

    fn is_behind(&self, key: &[u8]) -> bool {
        self.end.as_ref().is_some_and(|end| **end <= *key)
    }

    /// Whether something in the folder may be in it. `key` ends in a NUL, but
    /// for the top.
    pub(super) fn has_inside(&self, key: &[u8]) -> bool {
        !self.is_behind(key) && (!self.is_before(key) || self.from.starts_with(key))
    }

    /// Whether all that is in the folder is in it.
    pub(super) fn has_all_inside(&self, key: &[u8]) -> bool {
        let ends_inside = self.end.as_ref().is_some_and(|end| end.starts_with(key));
        self.is_all() || !self.is_before(key) && !self.is_behind(key) && !ends_inside
    }

    /// Whether the path of a name in a folder is in it, and whether something
    /// below that path may be.
    pub(super) fn has(&self, folder: &[u8], name: &EntryName) -> (bool, bool) {
        if self.is_all() {
            return (true, true);
        }
        let mut key = [folder, name.as_bytes()].concat();
        let has_path = !self.is_before(&key) && !self.is_behind(&key);
        key.push(0);
        (has_path, self.has_inside(&key))
    }

    /// Whether something in a leaf of a folder may be in it. `first` is the
    /// first name of the leaf, `end` that of the next.
    pub(super) fn has_leaf(
        &self,
        folder: &[u8],
        (first, end): (Option<&EntryName>, Option<&EntryName>),
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
    fn a_window_knows_what_may_be_in_it() {
        let name = |name: &str| EntryName::new(name.as_bytes()).unwrap();
        let mut window = Window::default();
        assert!(window.has_inside(b"") && window.has_all_inside(b"a\0"));
        window.end_before(b"b\0m".to_vec());
        assert_eq!(window.has(b"", &name("a")), (true, true));
        assert_eq!(window.has(b"", &name("b")), (true, true));
        assert_eq!(window.has(b"", &name("b.c")), (false, false));
        assert_eq!(window.has(b"b\0", &name("l")), (true, true));
        assert_eq!(window.has(b"b\0", &name("m")), (false, false));
        assert!(window.has_all_inside(b"a\0") && !window.has_all_inside(b"b\0"));
        assert!(window.next());
        assert_eq!(window.has(b"", &name("a")), (false, false));
        assert_eq!(window.has(b"", &name("b")), (false, true));
        assert_eq!(window.has(b"b\0", &name("m")), (true, true));
        assert!(window.has_inside(b"b\0") && !window.has_all_inside(b"b\0"));
        assert!(window.has_all_inside(b"c\0"));
        assert!(!window.has_leaf(b"b\0", (None, Some(&name("m")))));
        assert!(window.has_leaf(b"b\0", (Some(&name("l")), Some(&name("n")))));
        assert!(!window.next());
    }
}
