//! `list`: lists the entries of a folder in a snapshot, or everything below it.
//!
//! Entries are passed on as they are read: a folder before its contents, and the entries
//! of each folder sorted by name bytes. Memory holds one node for each level of folders
//! and of nodes in split directories, never a whole listing.

use std::io;

use crate::{
    base::{blocked::Blocked, id::TreeId, kind::Kind, limits, observe::Observer},
    format::tree::{Entry, EntryKind},
    repo::path::push_name,
    store::{Prefetch, Store, StoreError, TreeCursor, TreeWalk, WalkStep},
};

/// Selects how deep to list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListDepth {
    /// The entries of the folder itself.
    #[default]
    Folder,
    /// Everything below the folder.
    All,
}

/// The reason why a listing ended early.
#[derive(Debug, thiserror::Error, Kind)]
#[non_exhaustive]
pub enum ListError {
    /// Folders are nested deeper than [`limits::DEPTH`].
    #[error("`{path}` is nested deeper than {} folders", limits::DEPTH)]
    #[kind(Damaged)]
    TooDeep { path: String },
    /// A tree cannot be read.
    #[error("cannot list `{path}`")]
    Tree { path: String, source: Box<StoreError> },
    /// The receiver of the entries returned an error.
    #[error("cannot write the listing")]
    Output(#[from] io::Error),
    /// The operation stopped early.
    #[error(transparent)]
    Blocked(#[from] Blocked),
}

impl ListError {
    fn at(path: &[u8], error: StoreError) -> Self {
        let path = String::from_utf8_lossy(path).into_owned();
        match error {
            StoreError::TooDeep { .. } => Self::TooDeep { path },
            source => Self::Tree { path, source: Box::new(source) },
        }
    }
}

/// Receives each entry with its path. An error that it returns ends the walk.
pub type OnEntry<'a> = &'a mut dyn FnMut(&[u8], &Entry) -> io::Result<()>;

/// Lists the contents of the folder `tree`, whose path is `prefix` (empty for the root).
///
/// # Errors
/// [`ListError`]. Entries that were passed on before the error are valid.
pub fn run(
    store: &Store,
    tree: TreeId,
    prefix: &[u8],
    depth: ListDepth,
    observer: &dyn Observer,
    each: OnEntry<'_>,
) -> Result<(), ListError> {
    let prefetch = match depth {
        ListDepth::Folder => Prefetch::Nodes,
        ListDepth::All => Prefetch::NodesAndFolders,
    };
    // The tag of a folder is the length of its path in bytes.
    let mut walk = TreeWalk::new(TreeCursor::new(tree, prefetch), prefix.len());
    let mut path = prefix.to_vec();
    while let Some(step) = walk.next() {
        let path_bytes = walk.tag().map_or(0, |bytes| *bytes);
        path.truncate(path_bytes);
        match step {
            WalkStep::Node(node) => {
                walk.open(store, node).map_err(|error| ListError::at(&path, error))?;
            }
            WalkStep::Entry(entry) => {
                observer.check()?;
                push_name(&mut path, entry.name.as_bytes());
                each(&path, &entry)?;
                if let (EntryKind::Folder { id }, ListDepth::All) = (entry.kind, depth) {
                    walk.enter(id, path.len()).map_err(|error| ListError::at(&path, error))?;
                }
            }
            WalkStep::Enter | WalkStep::Leave(_) => {}
        }
    }
    store.report_repairs(observer);
    Ok(())
}
