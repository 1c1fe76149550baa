//! Walking a stored tree, in order, without recursion.
//!
//! Each level holds the nodes that are still to be read and the folders of the
//! leaf that was read last; a leaf's other entries are handed out and
//! forgotten.

use std::sync::Arc;

use crate::{
    base::{id::TreeId, limits, name::EntryName},
    format::{
        pack::ObjectKind,
        tree::{Entry, Kind, Metadata, Node},
        wire::FormatError,
    },
    local::contain::FolderPath,
    ops::restore::{RestoreError, What},
    store::{Store, StoreError},
};

/// A walk over what is restored. `T` is what the walker knows about a folder
/// when it comes upon it.
pub(super) struct Walk<'s, T> {
    store: &'s Store,
    levels: Vec<Level<T>>,
}

/// What a node above says of one: its level and its first name.
type Place = (u8, EntryName);

struct Level<T> {
    folder: Arc<FolderPath>,
    metadata: Option<Metadata>,
    /// Told when the folder is entered.
    tag: Option<T>,
    /// Of a single entry, instead of nodes.
    given: Option<Entry>,
    /// Nodes to be read, the next one last, with what the one above says of it.
    nodes: Vec<(TreeId, Option<Place>)>,
    /// Folders to be entered, the next one last.
    folders: Vec<(Entry, T)>,
    last: Option<EntryName>,
}

/// What a walk comes upon.
pub(super) enum Step<T> {
    /// A folder begins. Tagged with what [`Walk::descend`] was given.
    Enter(Arc<FolderPath>, T),
    /// Some entries of the present folder, in order. Those folders that are to
    /// be entered are to be given to [`Walk::descend`].
    Entries(Vec<Entry>),
    /// A part of the present folder cannot be read.
    Broken(TreeId, StoreError),
    /// The present folder ends. These are its attributes.
    Leave(Option<Metadata>),
}

impl<'s, T> Walk<'s, T> {
    /// Starts at the top, which is tagged with `tag`.
    pub(super) fn new(store: &'s Store, what: &What, tag: T) -> Self {
        let (nodes, given, metadata) = match what {
            What::Folder { tree, root } => (vec![(*tree, None)], None, root.clone()),
            What::Entry(entry) => (Vec::new(), Some(Entry::clone(entry)), None),
        };
        let folder = FolderPath::top();
        let tag = Some(tag);
        let top = Level { folder, metadata, tag, given, nodes, folders: Vec::new(), last: None };
        Self { store, levels: vec![top] }
    }

    /// Enters these folders of the present one next, one after the other.
    pub(super) fn descend(&mut self, mut folders: Vec<(Entry, T)>) {
        folders.reverse();
        if let Some(level) = self.levels.last_mut() {
            level.folders = folders;
        }
    }

    /// Does not read the rest of the present folder.
    pub(super) fn skip(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            level.nodes.clear();
            level.folders.clear();
            level.given = None;
        }
    }

    /// The next step; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Step<T>>, RestoreError> {
        loop {
            let Some(level) = self.levels.last_mut() else { return Ok(None) };
            if let Some(tag) = level.tag.take() {
                return Ok(Some(Step::Enter(Arc::clone(&level.folder), tag)));
            }
            if let Some((entry, tag)) = level.folders.pop() {
                self.enter(entry, tag)?;
            } else if let Some(entry) = level.given.take() {
                return Ok(Some(Step::Entries(vec![entry])));
            } else if let Some((id, place)) = level.nodes.pop() {
                match self.store.tree(&id).and_then(|node| level.take(id, place, node)) {
                    Ok(Some(entries)) => return Ok(Some(Step::Entries(entries))),
                    Ok(None) => {}
                    Err(error) => {
                        // Nodes that are what their ids say and make no sense
                        // were crafted: their likes may go on without end.
                        if matches!(error, StoreError::Object { .. }) {
                            level.nodes.clear();
                        }
                        return Ok(Some(Step::Broken(id, error)));
                    }
                }
            } else {
                let metadata = level.metadata.take();
                self.levels.pop();
                return Ok(Some(Step::Leave(metadata)));
            }
        }
    }

    fn enter(&mut self, entry: Entry, tag: T) -> Result<(), RestoreError> {
        let Some(level) = self.levels.last() else { return Ok(()) };
        let Kind::Folder { id } = entry.kind else { return Ok(()) };
        let folder = level.folder.child(entry.name);
        if folder.depth() > limits::DEPTH {
            return Err(RestoreError::TooDeep { path: folder.to_path() });
        }
        self.levels.push(Level {
            folder,
            metadata: Some(entry.metadata),
            tag: Some(tag),
            given: None,
            nodes: vec![(id, None)],
            folders: Vec::new(),
            last: None,
        });
        Ok(())
    }
}

impl<T> Level<T> {
    /// Takes in a node: the entries of a leaf, or nothing for one above leaves.
    fn take(
        &mut self,
        id: TreeId,
        place: Option<Place>,
        node: Node,
    ) -> Result<Option<Vec<Entry>>, StoreError> {
        let broken = |what| {
            let source = FormatError::Invalid { what, at: 0 };
            Err(StoreError::Object { id: id.object(), kind: ObjectKind::Tree, source })
        };
        if let Some((level, first)) = place {
            if level != node.level() {
                return broken("tree level");
            }
            if Some(&first) != node.first() {
                return broken("first name of a tree node");
            }
        }
        match node {
            Node::Inner { level, children, .. } => {
                let below = children.into_iter().rev();
                self.nodes.extend(below.map(|child| (child.id, Some((level - 1, child.first)))));
                Ok(None)
            }
            Node::Leaf { entries, .. } => {
                // Within a leaf the decoder has looked after the order.
                let first = entries.first().map(|entry| &entry.name);
                if first.is_some() && first <= self.last.as_ref() {
                    return broken("order of leaves");
                }
                if let Some(entry) = entries.last() {
                    self.last = Some(entry.name.clone());
                }
                Ok(Some(entries))
            }
        }
    }
}
