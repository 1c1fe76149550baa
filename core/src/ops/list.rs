//! `list`: entries of a folder in a snapshot, or of all below it.
//!
//! Entries are handed out as they are met, folder before content, each folder
//! in the order of its name bytes. What is held is one node for each level of
//! folders and of nodes in split ones, never a whole listing, and the walk
//! keeps its own stack, so a deep tree cannot overflow that of the thread.

use std::io;

use crate::{
    base::{id::TreeId, kind::ErrorKind, limits, name::EntryName, observe::Observer},
    format::tree::{Child, Entry, Kind, Node},
    store::{Store, StoreError},
};

/// How far to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// The entries of the folder itself.
    #[default]
    Folder,
    /// Everything below it.
    All,
}

/// How much was listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Entries handed out.
    pub entries: u64,
}

/// Why a listing ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// Folders are nested deeper than [`limits::DEPTH`].
    #[error("`{path}` is nested deeper than {} folders", limits::DEPTH)]
    TooDeep {
        /// The folder that is too deep.
        path: String,
    },
    /// A tree cannot be read.
    #[error("cannot list `{path}`")]
    Tree {
        /// The folder.
        path: String,
        /// Why.
        source: Box<StoreError>,
    },
    /// A node of a split directory is not where a writer puts one.
    #[error("the tree of `{path}` is damaged: its nodes are not in their places")]
    Levels {
        /// The folder.
        path: String,
    },
    /// The receiver of the entries failed.
    #[error("cannot write the listing")]
    Output(#[from] io::Error),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl ListError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::TooDeep { .. } | Self::Levels { .. } => ErrorKind::Damaged,
            Self::Tree { source, .. } => source.kind(),
            Self::Output(source) => ErrorKind::of_io(source),
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }
}

/// Receives each entry with its path; an error of it ends the walk.
pub type Each<'a> = &'a mut dyn FnMut(&[u8], &Entry) -> io::Result<()>;

/// Lists what is in the folder `tree`, whose own path is `prefix` (empty for
/// the root).
///
/// # Errors
/// [`ListError`]; what was handed out before stands.
pub fn run(
    store: &Store,
    (tree, prefix): (TreeId, &[u8]),
    depth: Depth,
    observer: &dyn Observer,
    each: Each<'_>,
) -> Result<Outcome, ListError> {
    let mut walk = Walk { store, depth, path: prefix.to_vec(), stack: Vec::new(), folders: 0 };
    let mut outcome = Outcome::default();
    walk.enter(tree, None, prefix.len())?;
    while let Some((entry, path_bytes)) = walk.next()? {
        if observer.cancelled() {
            return Err(ListError::Interrupted);
        }
        each(&walk.path, &entry)?;
        outcome.entries += 1;
        match entry.kind {
            Kind::Folder { id } if depth == Depth::All => {
                walk.folders += 1;
                if walk.folders > limits::DEPTH {
                    return Err(ListError::TooDeep { path: walk.shown() });
                }
                walk.enter(id, None, walk.path.len())?;
            }
            _ => walk.path.truncate(path_bytes),
        }
    }
    store.tell_repairs(observer);
    Ok(outcome)
}

/// What a node above says of one: its level and its first name.
type Place = (u8, EntryName);

/// The rest of a node on the way down.
enum Rest {
    Entries(std::vec::IntoIter<Entry>),
    Children(std::vec::IntoIter<Child>, u8),
}

struct Frame {
    rest: Rest,
    /// Length of the folder's own path.
    path_bytes: usize,
    /// Whether the folder ends with this frame.
    is_top: bool,
    /// The name that came last, in a folder's topmost frame.
    last: Option<EntryName>,
}

struct Walk<'a> {
    store: &'a Store,
    depth: Depth,
    path: Vec<u8>,
    stack: Vec<Frame>,
    folders: usize,
}

impl Walk<'_> {
    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.path).into_owned()
    }

    fn enter(
        &mut self,
        id: TreeId,
        place: Option<Place>,
        path_bytes: usize,
    ) -> Result<(), ListError> {
        let node = self.store.tree(&id);
        let node =
            node.map_err(|error| ListError::Tree { path: self.shown(), source: Box::new(error) })?;
        let is_top = place.is_none();
        let fits = place
            .is_none_or(|(level, first)| node.level() == level && node.first() == Some(&first));
        if !fits || !(is_top || self.is_in_order(&node)) {
            return Err(ListError::Levels { path: self.shown() });
        }
        let rest = match node {
            Node::Leaf { entries, .. } => {
                if self.depth == Depth::All {
                    self.store.will_need_objects(&mut entries.iter().filter_map(Entry::folder));
                }
                Rest::Entries(entries.into_iter())
            }
            Node::Inner { level, children, .. } => {
                self.store.will_need_objects(&mut children.iter().map(|child| child.id.object()));
                Rest::Children(children.into_iter(), level)
            }
        };
        self.stack.push(Frame { rest, path_bytes, is_top, last: None });
        Ok(())
    }

    /// Whether a leaf of the present folder comes after the one before it.
    fn is_in_order(&mut self, node: &Node) -> bool {
        let Node::Leaf { entries, .. } = node else { return true };
        let top = self.stack.iter_mut().rev().find(|frame| frame.is_top);
        let (Some(top), Some(first), Some(last)) = (top, entries.first(), entries.last()) else {
            return true;
        };
        let before = top.last.replace(last.name.clone());
        before.is_none_or(|before| before < first.name)
    }

    /// The next entry, with [`Walk::path`] set to its own; and how long the
    /// path of its folder is.
    fn next(&mut self) -> Result<Option<(Entry, usize)>, ListError> {
        while let Some(frame) = self.stack.last_mut() {
            let path_bytes = frame.path_bytes;
            self.path.truncate(path_bytes);
            let step = match &mut frame.rest {
                Rest::Entries(entries) => entries.next().map(Ok),
                Rest::Children(children, level) => {
                    children.next().map(|child| Err((child.id, (*level - 1, child.first))))
                }
            };
            match step {
                Some(Ok(entry)) => {
                    if !self.path.is_empty() {
                        self.path.push(b'/');
                    }
                    self.path.extend_from_slice(entry.name.as_bytes());
                    return Ok(Some((entry, path_bytes)));
                }
                Some(Err((id, place))) => self.enter(id, Some(place), path_bytes)?,
                None => {
                    let ended = self.stack.pop();
                    let left_folder = ended.is_some_and(|frame| frame.is_top);
                    self.folders = self.folders.saturating_sub(usize::from(left_folder));
                }
            }
        }
        Ok(None)
    }
}
