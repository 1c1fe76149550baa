//! Resolves a path in a snapshot to its entry, through split directories.

use crate::{
    base::{id::TreeId, kind::Kind},
    format::tree::{Entry, EntryKind},
    store::{Prefetch, Store, StoreError, TreeCursor, TreeItem},
};

/// The result of resolving a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolvedPath {
    /// The root folder itself.
    Root(TreeId),
    /// An entry below the root.
    Entry(Entry),
}

impl ResolvedPath {
    /// Returns the tree id if this is a folder.
    pub fn tree(&self) -> Option<TreeId> {
        match self {
            Self::Root(id) => Some(*id),
            Self::Entry(Entry { kind: EntryKind::Folder { id }, .. }) => Some(*id),
            Self::Entry(_) => None,
        }
    }
}

/// Why a path cannot be resolved.
#[derive(Debug, thiserror::Error, Kind)]
#[kind(NotFound)]
#[non_exhaustive]
pub enum PathInTreeError {
    /// There is no such entry. The path ends at the first missing component.
    #[error("`{path}` does not exist in the snapshot")]
    NotFound { path: String },
    /// The path continues below an entry that is not a folder.
    #[error("`{path}` is a {noun}, not a folder")]
    NotAFolder { path: String, noun: &'static str },
    /// The path contains `..`.
    #[error("`{path}` contains `..`")]
    #[kind(Invalid)]
    Climbs { path: String },
    /// A tree cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Splits a path into its components, without empty ones and `.`.
pub fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".")
}

/// Returns true if `path` is `folder` or lies below it. The empty folder is the root.
pub fn is_within(path: &[u8], folder: &[u8]) -> bool {
    let rest = path.strip_prefix(folder);
    folder.is_empty() || rest.is_some_and(|rest| rest.first().is_none_or(|first| *first == b'/'))
}

/// Resolves `path` from the tree `root`. Does not follow symlinks.
///
/// # Errors
/// [`PathInTreeError`] names the first component that does not exist.
pub fn resolve_path(
    store: &Store,
    root: TreeId,
    path: &[u8],
) -> Result<ResolvedPath, PathInTreeError> {
    let mut found = ResolvedPath::Root(root);
    let mut walked = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for part in components(path) {
        if part == b".." {
            return Err(PathInTreeError::Climbs { path: text(path) });
        }
        let tree = match &found {
            ResolvedPath::Root(id) => *id,
            ResolvedPath::Entry(Entry { kind: EntryKind::Folder { id }, .. }) => *id,
            ResolvedPath::Entry(entry) => {
                let noun = entry.kind.noun();
                return Err(PathInTreeError::NotAFolder { path: text(&walked), noun });
            }
        };
        push_name(&mut walked, part);
        let entry = entry_named(store, tree, part)?;
        let entry = entry.ok_or_else(|| PathInTreeError::NotFound { path: text(&walked) })?;
        found = ResolvedPath::Entry(entry);
    }
    Ok(found)
}

/// Returns the entry with this name in a directory.
///
/// # Errors
/// [`StoreError`] if a tree cannot be read.
pub fn entry_named(store: &Store, tree: TreeId, name: &[u8]) -> Result<Option<Entry>, StoreError> {
    let mut cursor = TreeCursor::new(tree, Prefetch::Nothing);
    cursor.seek(store, name)?;
    // `seek` has opened the only leaf that can contain the name.
    match cursor.next() {
        Some(TreeItem::Entry(entry)) if entry.name.as_bytes() == name => Ok(Some(entry)),
        _ => Ok(None),
    }
}

/// Adds a name to a path.
pub fn push_name(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}
