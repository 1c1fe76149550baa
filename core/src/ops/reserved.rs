//! Entries of a snapshot that no command writes to a folder or an archive: they would be a
//! store, or lead to one.
//!
//! Commands find the store of a project as `.snap`, and on some file systems as `.SNAP`, too. A
//! snapshot may come from another user, so it must not decide which store that is.

use std::io;

use rustix::fs::FileType;

use crate::{
    base::id::TreeId,
    format::tree::{Entry, EntryKind},
    local::store_folder::{StoreSigns, is_store_name},
    ops::restore::file_type,
    store::{Entries, Store},
};

/// Why an entry called `.snap` is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reserved {
    /// A symbolic link, wherever it leads. It may lead to a store now or later, and commits in
    /// the folder would then change that store and run its hooks.
    Link,
    /// A folder that commands would treat as a store.
    Store,
}

impl Reserved {
    /// Returns the reason for an entry of a snapshot, or `None` if it may be written.
    pub(super) fn of(store: &Store, entry: &Entry) -> Option<Self> {
        if !is_store_name(entry.name.as_bytes()) {
            return None;
        }
        match entry.kind {
            EntryKind::Symlink { .. } => Some(Self::Link),
            EntryKind::Folder { id } => is_store_tree(store, id).then_some(Self::Store),
            _ => None,
        }
    }

    /// Returns the reason as an error, for a note.
    pub(super) fn to_error(self) -> io::Error {
        let why = match self {
            Self::Link => "a symbolic link of this name could lead commits into another store",
            Self::Store => "only `snap init` and `snap clone` create stores",
        };
        io::Error::new(io::ErrorKind::Unsupported, why)
    }
}

/// Returns true if commands would take a folder `.snap` with the entries of `tree` for a store,
/// even an unfinished or damaged one. A tree that cannot be read is reported when the folder is
/// written.
fn is_store_tree(store: &Store, tree: TreeId) -> bool {
    let mut signs = StoreSigns::default();
    for entry in Entries::of(store, tree).map_while(Result::ok) {
        let kind = match &entry.kind {
            // The link may lead to any kind of file.
            EntryKind::Symlink { .. } => FileType::Unknown,
            kind => file_type(kind),
        };
        signs.add(entry.name.as_bytes(), kind);
    }
    signs.may_be_store()
}
