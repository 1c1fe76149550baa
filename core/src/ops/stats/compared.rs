//! What changed below folders that were compared before.
//!
//! What is in a folder and not in the others that it is compared with depends on
//! the folders alone. So the sums of a folder are kept under its id and theirs, and
//! a folder that a tree has in many places is walked once.

use std::collections::HashMap;

use crate::base::id::TreeId;

/// A folder, and those that it is compared with.
type Key = (TreeId, Vec<TreeId>);

/// Files that changed and their sizes together; sums end at `u64::MAX`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

impl Sums {
    fn add(&mut self, other: Self) {
        self.files = self.files.saturating_add(other.files);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// A folder on the way down.
#[derive(Debug)]
struct Open {
    key: Key,
    /// How many folders it lies in.
    depth: usize,
    sums: Sums,
}

/// Sums of folders that were walked, and of those that are being walked.
#[derive(Debug)]
pub(super) struct Compared {
    known: HashMap<Key, Sums>,
    most: usize,
    open: Vec<Open>,
    root: Sums,
}

impl Compared {
    /// Keeps the sums of at most so many folders. When there are more, all are
    /// forgotten and the next ones kept.
    pub(super) fn new(most: usize) -> Self {
        Self { known: HashMap::new(), most, open: Vec::new(), root: Sums::default() }
    }

    /// Adds to the folder that is being walked.
    pub(super) fn add(&mut self, sums: Sums) {
        self.open.last_mut().map_or(&mut self.root, |open| &mut open.sums).add(sums);
    }

    /// Begins with a folder that lies in `depth` others. Returns true if its sums are
    /// known: then they are added and it need not be walked.
    pub(super) fn enter(&mut self, depth: usize, key: &Key) -> bool {
        if let Some(sums) = self.known.get(key).copied() {
            self.add(sums);
            return true;
        }
        self.open.push(Open { key: key.clone(), depth, sums: Sums::default() });
        false
    }

    /// Ends all folders that an entry in `depth` folders does not lie in.
    pub(super) fn leave(&mut self, depth: usize) {
        while let Some(open) = self.open.pop_if(|open| open.depth >= depth) {
            if self.known.len() >= self.most {
                self.known.clear();
            }
            self.known.insert(open.key, open.sums);
            self.add(open.sums);
        }
    }

    /// Ends all folders, and returns the sums of the root.
    pub(super) fn finish(&mut self) -> Sums {
        self.leave(0);
        std::mem::take(&mut self.root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        (TreeId::of(name.as_bytes()), Vec::new())
    }

    #[test]
    fn a_folder_that_comes_again_adds_what_it_added_the_first_time() {
        let mut compared = Compared::new(10);
        let file = Sums { files: 1, bytes: 5 };
        assert!(!compared.enter(1, &key("a")));
        assert!(!compared.enter(2, &key("b")));
        compared.add(file);
        compared.leave(2);
        assert!(compared.enter(2, &key("b")));
        compared.leave(1);
        compared.add(file);
        assert!(compared.enter(1, &key("a")));
        assert_eq!(compared.finish(), Sums { files: 5, bytes: 25 });
        assert!(compared.enter(1, &key("a")), "another commit may have it, too");
        assert_eq!(compared.finish(), Sums { files: 2, bytes: 10 });
    }

    #[test]
    fn no_more_are_kept_than_may_be() {
        let mut compared = Compared::new(2);
        for name in ["a", "b", "c"] {
            assert!(!compared.enter(1, &key(name)));
            compared.leave(1);
            assert!(compared.known.len() <= 2);
        }
        compared.add(Sums { files: u64::MAX, bytes: u64::MAX });
        compared.add(Sums { files: 1, bytes: 1 });
        assert_eq!(compared.finish(), Sums { files: u64::MAX, bytes: u64::MAX });
    }
}
