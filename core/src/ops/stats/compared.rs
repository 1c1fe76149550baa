//! Remembers the changes below folders that were compared before.
//!
//! The changes in a folder, relative to the folders that it is compared with, depend only on the
//! ids of these folders. The sums of the changes are therefore stored under these ids, and a folder
//! that occurs at many places is walked once.

use std::collections::HashMap;

use crate::base::id::TreeId;

/// A folder, and the folders that it is compared with.
type ComparisonKey = (TreeId, Vec<TreeId>);

/// Number and total size in bytes of changed files. Sums saturate at `u64::MAX`.
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

/// A folder that is being walked.
#[derive(Debug)]
struct CountedFolder {
    key: ComparisonKey,
    /// Number of folders above this one.
    depth: usize,
    sums: Sums,
}

/// Sums of folders that were walked, and of those in progress.
#[derive(Debug)]
pub(super) struct FolderSums {
    known: HashMap<ComparisonKey, Sums>,
    most: usize,
    open: Vec<CountedFolder>,
    root: Sums,
}

impl FolderSums {
    /// Creates an empty cache for the sums of up to `most` folders. A full cache is cleared.
    pub(super) fn new(most: usize) -> Self {
        Self { known: HashMap::new(), most, open: Vec::new(), root: Sums::default() }
    }

    /// Adds to the folder that is being walked.
    pub(super) fn add(&mut self, sums: Sums) {
        self.open.last_mut().map_or(&mut self.root, |open| &mut open.sums).add(sums);
    }

    /// Starts a folder at this depth. If its sums are known, adds them and returns true: the caller
    /// can skip the folder.
    pub(super) fn enter(&mut self, depth: usize, key: &ComparisonKey) -> bool {
        if let Some(sums) = self.known.get(key).copied() {
            self.add(sums);
            return true;
        }
        self.open.push(CountedFolder { key: key.clone(), depth, sums: Sums::default() });
        false
    }

    /// Ends all folders that do not contain an entry at this depth.
    pub(super) fn leave(&mut self, depth: usize) {
        while let Some(open) = self.open.pop_if(|open| open.depth >= depth) {
            if self.known.len() >= self.most {
                self.known.clear();
            }
            self.known.insert(open.key, open.sums);
            self.add(open.sums);
        }
    }

    /// Ends all folders and returns the sums of the root.
    pub(super) fn finish(&mut self) -> Sums {
        self.leave(0);
        std::mem::take(&mut self.root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ComparisonKey {
        (TreeId::of(name.as_bytes()), Vec::new())
    }

    #[test]
    fn a_repeated_folder_adds_its_cached_sums() {
        let mut compared = FolderSums::new(10);
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
        assert!(compared.enter(1, &key("a")), "the sums are known for the next commit");
        assert_eq!(compared.finish(), Sums { files: 2, bytes: 10 });
    }

    #[test]
    fn folder_sums_are_bounded_and_saturate() {
        let mut compared = FolderSums::new(2);
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
