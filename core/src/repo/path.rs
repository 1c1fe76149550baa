//! A path in a snapshot → the entry it names, through split directories.

use crate::{
    base::{id::TreeId, kind::ErrorKind, limits},
    format::tree::{Entry, Kind, Node},
    store::{Store, StoreError},
};

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The root folder itself.
    Root(TreeId),
    /// Something in it.
    Entry(Entry),
}

impl Found {
    /// The folder's tree, if it is a folder.
    pub fn tree(&self) -> Option<TreeId> {
        match self {
            Self::Root(id) => Some(*id),
            Self::Entry(Entry { kind: Kind::Folder { id }, .. }) => Some(*id),
            Self::Entry(_) => None,
        }
    }
}

/// Why a path names nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathInTreeError {
    /// There is no such entry.
    #[error("there is no `{path}` in the snapshot")]
    NotFound {
        /// As far as it was looked for.
        path: String,
    },
    /// The path goes on below something that is not a folder.
    #[error("`{path}` is a {noun}, not a folder")]
    NotAFolder {
        /// Which.
        path: String,
        /// What it is.
        noun: &'static str,
    },
    /// The path climbs.
    #[error("`{path}` contains `..`")]
    Climbs {
        /// The whole path.
        path: String,
    },
    /// A tree cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl PathInTreeError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound { .. } | Self::NotAFolder { .. } => ErrorKind::NotFound,
            Self::Climbs { .. } => ErrorKind::Invalid,
            Self::Store(error) => error.kind(),
        }
    }
}

/// The components of a path, without empty ones and `.`.
pub fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".")
}

/// Returns whether `path` is `folder` or lies below it. The empty folder is the root.
pub fn is_within(path: &[u8], folder: &[u8]) -> bool {
    let rest = path.strip_prefix(folder);
    folder.is_empty() || rest.is_some_and(|rest| rest.first().is_none_or(|first| *first == b'/'))
}

/// Follows `path` from the tree `root`. Symlinks are not followed.
///
/// # Errors
/// [`PathInTreeError`] names the part that is not there.
pub fn resolve_path(store: &Store, root: TreeId, path: &[u8]) -> Result<Found, PathInTreeError> {
    let mut found = Found::Root(root);
    let mut walked = Vec::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for part in components(path) {
        if part == b".." {
            return Err(PathInTreeError::Climbs { path: text(path) });
        }
        let tree = match &found {
            Found::Root(id) => *id,
            Found::Entry(Entry { kind: Kind::Folder { id }, .. }) => *id,
            Found::Entry(entry) => {
                let noun = entry.kind.noun();
                return Err(PathInTreeError::NotAFolder { path: text(&walked), noun });
            }
        };
        if !walked.is_empty() {
            walked.push(b'/');
        }
        walked.extend_from_slice(part);
        let entry = entry_named(store, tree, part)?;
        let entry = entry.ok_or_else(|| PathInTreeError::NotFound { path: text(&walked) })?;
        found = Found::Entry(entry);
    }
    Ok(found)
}

/// The entry of a directory with this name.
///
/// # Errors
/// [`StoreError`] when a tree cannot be read.
pub fn entry_named(store: &Store, tree: TreeId, name: &[u8]) -> Result<Option<Entry>, StoreError> {
    let mut id = tree;
    for _ in 0..=limits::TREE_NODE_LEVELS {
        match store.tree(&id)? {
            Node::Leaf { mut entries, .. } => {
                let at = entries.binary_search_by(|entry| entry.name.as_bytes().cmp(name));
                return Ok(at.ok().map(|at| entries.swap_remove(at)));
            }
            Node::Inner { children, .. } => {
                let after = children.partition_point(|child| child.first.as_bytes() <= name);
                let Some(child) = after.checked_sub(1).and_then(|at| children.get(at)) else {
                    return Ok(None);
                };
                id = child.id;
            }
        }
    }
    // A chain of nodes longer than any writer makes: nothing can be below it.
    Ok(None)
}
