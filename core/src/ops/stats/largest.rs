//! Finds the largest of many files with a heap of bounded size.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::base::id::{CommitId, ContentId};

/// A large file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargeFile {
    /// Length in bytes.
    pub bytes: u64,
    /// Id of the content.
    pub id: ContentId,
    /// A path with this content.
    pub path: Vec<u8>,
    /// The first commit with this content.
    pub commit: CommitId,
}

/// Reversed, so that the smallest file is on top of the heap and is dropped first.
type LargestEntry = Reverse<(u64, Reverse<Vec<u8>>, ContentId, CommitId)>;

/// Keeps the largest files.
#[derive(Debug)]
pub(super) struct Largest {
    heap: BinaryHeap<LargestEntry>,
    limit: usize,
}

impl Largest {
    pub(super) fn new(limit: usize) -> Self {
        Self { heap: BinaryHeap::new(), limit }
    }

    /// Adds a content, if there is one.
    pub(super) fn add(&mut self, content: Option<(u64, ContentId)>, path: &[u8], commit: CommitId) {
        let Some((bytes, id)) = content else { return };
        let is_full = self.heap.len() >= self.limit;
        if is_full && self.heap.peek().is_none_or(|Reverse((least, ..))| *least >= bytes) {
            return;
        }
        self.heap.push(Reverse((bytes, Reverse(path.to_vec()), id, commit)));
        if is_full {
            self.heap.pop();
        }
    }

    /// Returns the files, largest first.
    pub(super) fn into_sorted(self) -> Vec<LargeFile> {
        let sorted = self.heap.into_sorted_vec().into_iter();
        let file = |Reverse((bytes, Reverse(path), id, commit)): LargestEntry| LargeFile {
            bytes,
            id,
            path,
            commit,
        };
        sorted.map(file).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::BlobId;

    #[test]
    fn the_largest_files_are_kept_in_order() {
        let mut largest = Largest::new(2);
        let commit = CommitId::of(b"");
        for (bytes, path) in [(3, "c"), (1, "a"), (9, "z"), (3, "b"), (0, "x")] {
            largest.add(Some((bytes, BlobId::of(path.as_bytes()).into())), path.as_bytes(), commit);
        }
        largest.add(None, b"folder", commit);
        let sorted = largest.into_sorted();
        let sorted: Vec<_> = sorted.iter().map(|file| (file.bytes, &file.path[..])).collect();
        assert_eq!(sorted, [(9, &b"z"[..]), (3, b"c")]);
        let mut none = Largest::new(0);
        none.add(Some((1, BlobId::of(b"").into())), b"x", commit);
        assert!(none.into_sorted().is_empty());
    }
}
