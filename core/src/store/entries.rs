//! All entries of one directory, however it is split.

use crate::{
    base::{
        id::{ObjectId, TreeId},
        limits,
    },
    format::{
        pack::ObjectKind,
        tree::{Entry, Node},
        wire::FormatError,
    },
    store::{Store, StoreError},
};

/// Iterates over the entries of a directory in order, one leaf in memory.
#[derive(Debug)]
pub struct Entries<'s> {
    store: &'s Store,
    /// Nodes still to be read, the next one last, each with the level it must
    /// have: one below its parent's, so that no chain of nodes is endless.
    nodes: Vec<(TreeId, Option<u8>)>,
    leaf: std::vec::IntoIter<Entry>,
}

impl<'s> Entries<'s> {
    /// The entries of `tree`.
    pub fn of(store: &'s Store, tree: TreeId) -> Self {
        Self { store, nodes: vec![(tree, None)], leaf: Vec::new().into_iter() }
    }

    fn next_leaf(&mut self, id: TreeId, level: Option<u8>) -> Result<(), StoreError> {
        match self.store.tree(&id)? {
            Node::Leaf { entries, .. } if level.is_none_or(|level| level == 0) => {
                self.leaf = entries.into_iter();
                Ok(())
            }
            Node::Inner { level: own, children, .. } if level.is_none_or(|level| level == own) => {
                let below = children.iter().rev().map(|child| (child.id, Some(own - 1)));
                self.nodes.extend(below);
                Ok(())
            }
            _ => Err(wrong_level(id.object())),
        }
    }
}

fn wrong_level(id: ObjectId) -> StoreError {
    let source = FormatError::Invalid { what: "tree level", at: 1 };
    StoreError::Object { id, kind: ObjectKind::Tree, source }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.leaf.next() {
                return Some(Ok(entry));
            }
            let (id, level) = self.nodes.pop()?;
            debug_assert!(self.nodes.len() <= limits::TREE_NODE_ENTRIES * usize::from(limits::TREE_NODE_LEVELS));
            if let Err(error) = self.next_leaf(id, level) {
                self.nodes.clear();
                return Some(Err(error));
            }
        }
    }
}
