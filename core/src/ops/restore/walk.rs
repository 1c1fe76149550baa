//! The walk over a restored tree: adds paths, attributes and tags of folders to the steps of
//! a [`TreeWalk`].
//!
//! A step has all entries of a leaf. The walk remembers only folders that the caller wants to
//! enter.

use std::sync::Arc;

use crate::{
    base::id::TreeId,
    format::tree::{Entry, EntryKind, Metadata},
    local::contain::FolderPath,
    ops::restore::{RestoreError, RestoreSource},
    store::{Prefetch, Store, StoreError, TreeCursor, TreeWalk, WalkStep},
};

/// A walk over the restored tree. `T` is the caller's tag for a folder that it found.
pub(super) struct RestoreWalk<'s, T> {
    store: &'s Store,
    walk: TreeWalk<EnteredFolder<T>>,
}

/// A folder that the walk has scheduled or entered.
struct EnteredFolder<T> {
    path: Arc<FolderPath>,
    metadata: Option<Metadata>,
    /// The caller's tag, until the walk enters the folder.
    tag: Option<T>,
}

/// A step of a walk.
pub(super) enum RestoreStep<T> {
    /// Entered a folder, with the tag that was passed to [`RestoreWalk::descend`].
    Enter(Arc<FolderPath>, T),
    /// Some entries of the present folder, in order. The caller passes the folders to
    /// enter to [`RestoreWalk::descend`].
    Entries(Vec<Entry>),
    /// A node of the present folder cannot be read.
    Broken(TreeId, StoreError),
    /// Left the present folder, which has these attributes.
    Leave(Option<Metadata>),
}

impl<'s, T> RestoreWalk<'s, T> {
    /// Starts at the root, with the tag `tag`.
    pub(super) fn new(store: &'s Store, what: &RestoreSource, tag: T) -> Self {
        let (cursor, metadata) = match what {
            RestoreSource::Folder { tree, root } => {
                (TreeCursor::new(*tree, Prefetch::Nothing), root.clone())
            }
            RestoreSource::Entry(entry) => {
                (TreeCursor::of_entries(vec![Entry::clone(entry)]), None)
            }
        };
        let top = EnteredFolder { path: FolderPath::top(), metadata, tag: Some(tag) };
        Self { store, walk: TreeWalk::new(cursor, top) }
    }

    /// Schedules these subfolders of the present folder to be entered next, in this order.
    ///
    /// # Errors
    /// [`RestoreError::TooDeep`] when a folder is nested too deep.
    pub(super) fn descend(&mut self, folders: Vec<(Entry, T)>) -> Result<(), RestoreError> {
        let present = self.walk.tag().map(|folder| Arc::clone(&folder.path));
        let Some(present) = present else { return Ok(()) };
        for (entry, tag) in folders {
            let EntryKind::Folder { id } = entry.kind else { continue };
            let (path, metadata) = (present.child(entry.name), Some(entry.metadata));
            let folder = EnteredFolder { path: Arc::clone(&path), metadata, tag: Some(tag) };
            self.walk
                .enter(id, folder)
                .map_err(|_| RestoreError::TooDeep { path: path.to_path() })?;
        }
        Ok(())
    }

    /// Skips the rest of the present folder.
    pub(super) fn skip(&mut self) {
        self.walk.skip_rest();
    }

    /// Returns the next step; `None` at the end.
    pub(super) fn next(&mut self) -> Option<RestoreStep<T>> {
        Some(match self.walk.next()? {
            WalkStep::Enter => {
                let folder = self.walk.tag()?;
                RestoreStep::Enter(Arc::clone(&folder.path), folder.tag.take()?)
            }
            WalkStep::Node(node) => {
                let id = node.id();
                match self.walk.read(self.store, node) {
                    Ok(entries) => RestoreStep::Entries(entries),
                    Err(error) => {
                        // Bytes that match their id but cannot be decoded were crafted. Skip the
                        // rest of the folder: it may have any number of such nodes.
                        if matches!(error, StoreError::Object { .. }) {
                            self.walk.skip_rest();
                        }
                        RestoreStep::Broken(id, error)
                    }
                }
            }
            WalkStep::Entry(entry) => RestoreStep::Entries(vec![entry]),
            WalkStep::Leave(folder) => RestoreStep::Leave(folder.metadata),
        })
    }
}
