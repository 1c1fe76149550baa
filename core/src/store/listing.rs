//! One directory leaf by leaf, for comparisons: a leaf that two directories share is not read.

use crate::{
    base::{id::TreeId, name::EntryName},
    format::tree::{Entry, Node},
    store::{Prefetch, Store, StoreError, TreeCursor, TreeItem, UnreadNode},
};

/// The leaves of a directory, in order, and the nodes above them.
#[derive(Debug, Default)]
pub struct TreeListing {
    leaves: Vec<Leaf>,
    nodes: Vec<TreeId>,
}

/// A leaf of a directory. A small directory is a single leaf.
#[derive(Debug)]
pub struct Leaf {
    node: UnreadNode,
    /// Entries of the leaf, if the listing has already read them.
    entries: Option<Vec<Entry>>,
}

impl TreeListing {
    /// Lists the leaves of `tree`. Reads the inner nodes, but no leaf of a split tree.
    ///
    /// # Errors
    /// [`StoreError`] when a node is missing, damaged or out of place.
    pub fn of(store: &Store, tree: TreeId) -> Result<Self, StoreError> {
        let mut listing = Self::default();
        let mut cursor = TreeCursor::new(tree, Prefetch::Nothing);
        while let Some(TreeItem::Node(node)) = cursor.next() {
            if node.is_leaf() {
                listing.leaves.push(Leaf { node, entries: None });
                continue;
            }
            match node.read(store)? {
                Node::Leaf { entries, .. } => {
                    listing.leaves.push(Leaf { node, entries: Some(entries) });
                }
                inner => {
                    listing.nodes.push(node.id());
                    cursor.push(inner);
                }
            }
        }
        Ok(listing)
    }

    /// Returns the inner nodes. A small directory has none.
    pub fn nodes(&self) -> &[TreeId] {
        &self.nodes
    }

    /// Returns the leaves, in order.
    pub fn leaves(&self) -> &[Leaf] {
        &self.leaves
    }

    /// Returns the leaves, in order, by value.
    pub fn into_leaves(self) -> Vec<Leaf> {
        self.leaves
    }
}

impl Leaf {
    pub fn id(&self) -> TreeId {
        self.node.id()
    }

    /// Returns the first name of the leaf and the first name of the next leaf, if the inner nodes
    /// state them.
    pub fn bounds(&self) -> (Option<&EntryName>, Option<&EntryName>) {
        self.node.bounds()
    }

    /// Returns the entries of the leaf, and reads the leaf if necessary.
    ///
    /// # Errors
    /// [`StoreError`] when the leaf is missing, damaged or out of place.
    pub fn into_entries(self, store: &Store) -> Result<Vec<Entry>, StoreError> {
        if let Some(entries) = self.entries {
            return Ok(entries);
        }
        match self.node.read(store)? {
            Node::Leaf { entries, .. } => Ok(entries),
            // Unreachable: `read` has refused a node of another level.
            Node::Inner { .. } => Ok(Vec::new()),
        }
    }
}
