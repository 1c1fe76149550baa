//! All entries of one directory, however it is split.

use crate::{
    base::{id::TreeId, limits, name::EntryName},
    format::{
        pack::ObjectKind,
        tree::{Child, Entry, Node},
        wire::FormatError,
    },
    store::{Store, StoreError},
};

/// Iterates over the entries of a directory in order, one leaf in memory.
#[derive(Debug)]
pub struct Entries<'s> {
    store: &'s Store,
    /// The topmost node, until it is read.
    top: Option<TreeId>,
    /// Nodes still to be read, the next one last, each with the level it must
    /// have: one below its parent's, so that no chain of nodes is endless.
    nodes: Vec<(Child, u8)>,
    leaf: std::vec::IntoIter<Entry>,
    last: Option<EntryName>,
    /// Names before this one are passed over, and their nodes not read.
    from: Vec<u8>,
}

impl<'s> Entries<'s> {
    /// The entries of `tree`.
    pub fn of(store: &'s Store, tree: TreeId) -> Self {
        Self::from(store, tree, Vec::new())
    }

    /// Those entries of `tree` whose names do not sort before `from`.
    pub fn from(store: &'s Store, tree: TreeId, from: Vec<u8>) -> Self {
        let leaf = Vec::new().into_iter();
        Self { store, top: Some(tree), nodes: Vec::new(), leaf, last: None, from }
    }

    /// Reads the next node; `None` when there is none.
    fn step(&mut self) -> Result<Option<()>, StoreError> {
        let (id, node) = if let Some(id) = self.top.take() {
            (id, self.store.tree(&id)?)
        } else if let Some((Child { first, id }, level)) = self.nodes.pop() {
            let node = self.store.tree(&id)?;
            if node.level() != level {
                return Err(broken(id, "tree level"));
            }
            if node.first() != Some(&first) {
                return Err(broken(id, "first name of a tree node"));
            }
            (id, node)
        } else {
            return Ok(None);
        };
        match node {
            Node::Leaf { mut entries, .. } => {
                let first = entries.first().map(|entry| &entry.name);
                if first.is_some() && first <= self.last.as_ref() {
                    return Err(broken(id, "order of leaves"));
                }
                self.last = entries.last().map(|entry| entry.name.clone());
                entries.drain(..entries.partition_point(|e| e.name.as_bytes() < &*self.from));
                self.leaf = entries.into_iter();
            }
            Node::Inner { level, mut children, .. } => {
                let after = children.partition_point(|c| c.first.as_bytes() <= &*self.from);
                children.drain(..after.saturating_sub(1));
                self.store.will_need_objects(&mut children.iter().map(|child| child.id.object()));
                self.nodes.extend(children.into_iter().rev().map(|child| (child, level - 1)));
            }
        }
        Ok(Some(()))
    }
}

pub(super) fn broken(id: TreeId, what: &'static str) -> StoreError {
    let source = FormatError::Invalid { what, at: 1 };
    StoreError::Object { id: id.object(), kind: ObjectKind::Tree, source }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.leaf.next() {
                return Some(Ok(entry));
            }
            debug_assert!(
                self.nodes.len()
                    <= limits::TREE_NODE_ENTRIES * usize::from(limits::TREE_NODE_LEVELS)
            );
            match self.step() {
                Ok(step) => step?,
                Err(error) => {
                    self.nodes.clear();
                    return Some(Err(error));
                }
            }
        }
    }
}
