//! A folder as it was in the commit before, for counting what changed.

use std::collections::HashMap;

use crate::{
    base::id::{BlobId, TreeId},
    format::tree::Kind,
    store::{Entries, Store, StoreError, Writer},
};

/// Files and folders of a folder in the commit before.
#[derive(Debug, Default)]
pub(super) struct Previous {
    files: HashMap<Box<[u8]>, BlobId>,
    folders: HashMap<Box<[u8]>, TreeId>,
}

/// How a file compares with the commit before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    New,
    Changed,
    Unmodified,
}

impl Previous {
    /// Reads a folder's entries. A tree that turns out to be damaged is shadowed,
    /// so that this commit stores it again.
    pub(super) fn read(writer: &Writer<'_>, tree: TreeId) -> Option<Self> {
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
                Kind::File { id, .. } => {
                    previous.files.insert(entry.name.as_bytes().into(), id);
                }
                Kind::Folder { id } => {
                    previous.folders.insert(entry.name.as_bytes().into(), id);
                }
                _ => {}
            }
        }
        Ok(previous)
    }

    /// The folder of this name.
    pub(super) fn folder(&self, name: &[u8]) -> Option<TreeId> {
        self.folders.get(name).copied()
    }

    /// How a file compares.
    pub(super) fn compare(&self, name: &[u8], id: &BlobId) -> Change {
        match self.files.get(name) {
            Some(before) if before == id => Change::Unmodified,
            Some(_) => Change::Changed,
            None => Change::New,
        }
    }
}
