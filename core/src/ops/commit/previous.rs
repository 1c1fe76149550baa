//! A folder of the previous commit, for counting changes.

use std::collections::HashMap;

use crate::{
    base::id::{BlobId, TreeId},
    format::tree::EntryKind,
    store::{Entries, ObjectWriter, Store, StoreError},
};

/// Files and folders of a folder in the previous commit.
#[derive(Debug, Default)]
pub(super) struct Previous {
    files: HashMap<Box<[u8]>, BlobId>,
    folders: HashMap<Box<[u8]>, TreeId>,
}

/// How a file differs from the previous commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileChange {
    New,
    Changed,
    Unmodified,
}

impl Previous {
    /// Reads a folder's entries. A damaged tree is shadowed, so that this commit stores
    /// it again.
    pub(super) fn read(writer: &ObjectWriter<'_>, tree: TreeId) -> Option<Self> {
        match Self::entries(writer.store(), tree) {
            Ok(previous) => Some(previous),
            Err(error) => {
                let _ = writer.shadow_damage(&error);
                None
            }
        }
    }

    fn entries(store: &Store, tree: TreeId) -> Result<Self, StoreError> {
        let mut previous = Self::default();
        for entry in Entries::of(store, tree) {
            let entry = entry?;
            match entry.kind {
                EntryKind::File { id, .. } => {
                    previous.files.insert(entry.name.as_bytes().into(), id);
                }
                EntryKind::Folder { id } => {
                    previous.folders.insert(entry.name.as_bytes().into(), id);
                }
                _ => {}
            }
        }
        Ok(previous)
    }

    /// Returns the tree of the folder with this name.
    pub(super) fn folder(&self, name: &[u8]) -> Option<TreeId> {
        self.folders.get(name).copied()
    }

    /// Compares a file with the previous commit.
    pub(super) fn compare(&self, name: &[u8], id: &BlobId) -> FileChange {
        match self.files.get(name) {
            Some(before) if before == id => FileChange::Unmodified,
            Some(_) => FileChange::Changed,
            None => FileChange::New,
        }
    }
}
