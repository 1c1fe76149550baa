//! Compares a folder in two trees, entry by entry.

use std::cmp::Ordering;

use crate::{
    base::id::TreeId,
    format::tree::Entry,
    store::{NextItem, Prefetch, StoreError, TreeCursor, TreeItem, TreeSource, UnreadNode},
};

/// The entries of one name that differ. At least one side has an entry.
#[derive(Debug)]
pub struct PairedEntries {
    pub old: Option<Entry>,
    pub new: Option<Entry>,
}

impl PairedEntries {
    pub fn name(&self) -> &[u8] {
        self.new.as_ref().or(self.old.as_ref()).map_or(b"", |entry| entry.name.as_bytes())
    }
}

/// The next step for the heads of both sides. The order is that of the old head and the new one: the
/// step concerns the smaller head, or both if they are equal.
enum PairStep {
    Skip,
    Open(Ordering),
    Take(Ordering),
    End,
}

/// A position in a folder of two trees. Does not read nodes that both sides have. Holds on each side
/// the unread rest of one node for each level of nodes.
#[derive(Debug)]
pub struct TreePair {
    old: TreeCursor,
    new: TreeCursor,
    new_nodes: Vec<TreeId>,
}

impl TreePair {
    /// Starts before the first entry of a folder in both trees; `None` is an empty folder.
    pub fn new(old: Option<TreeId>, new: Option<TreeId>) -> Self {
        let cursor = |tree| match tree {
            Some(tree) => TreeCursor::new(tree, Prefetch::Nothing),
            None => TreeCursor::of_entries(Vec::new()),
        };
        Self { old: cursor(old), new: cursor(new), new_nodes: Vec::new() }
    }

    /// Returns the nodes of the new side that were read.
    pub fn new_nodes(&self) -> &[TreeId] {
        &self.new_nodes
    }

    /// Returns the entries of the next name whose entries differ, or `None` at the end of the folder.
    /// Skips the nodes for which `is_read` returns false.
    ///
    /// # Errors
    /// [`StoreError`] if a node is missing, damaged or out of place.
    pub fn next<S: TreeSource + ?Sized>(
        &mut self,
        source: &S,
        is_read: &mut dyn FnMut(&UnreadNode) -> bool,
    ) -> Result<Option<PairedEntries>, StoreError> {
        let entry = |cursor: &mut TreeCursor, takes: bool| match takes.then(|| cursor.next()) {
            Some(Some(TreeItem::Entry(entry))) => Some(entry),
            _ => None,
        };
        loop {
            match self.step() {
                PairStep::End => return Ok(None),
                PairStep::Skip => drop((self.old.next(), self.new.next())),
                PairStep::Open(order) => {
                    for (cursor, opens, is_new) in [
                        (&mut self.old, order.is_le(), false),
                        (&mut self.new, order.is_ge(), true),
                    ] {
                        if opens
                            && let Some(TreeItem::Node(node)) = cursor.next()
                            && is_read(&node)
                        {
                            self.new_nodes.extend(is_new.then_some(node.id()));
                            cursor.open(source, node)?;
                        }
                    }
                }
                PairStep::Take(order) => {
                    let old = entry(&mut self.old, order.is_le());
                    let new = entry(&mut self.new, order.is_ge());
                    if old != new {
                        return Ok(Some(PairedEntries { old, new }));
                    }
                }
            }
        }
    }

    fn step(&mut self) -> PairStep {
        use NextItem::{Entry, Node};
        const OLD: Ordering = Ordering::Less;
        const NEW: Ordering = Ordering::Greater;
        match (self.old.peek(), self.new.peek()) {
            (None, None) => PairStep::End,
            (Some(Node { id: a, .. }), Some(Node { id: b, .. })) if a == b => PairStep::Skip,
            // Open the node that starts first; a topmost node comes before all others. If both
            // start with the same name, open the node of the higher level: the other node may
            // be its first child.
            (Some(Node { first: a, level, .. }), Some(Node { first: b, level: other, .. })) => {
                PairStep::Open(a.cmp(&b).then(other.cmp(&level)))
            }
            // No entry in a node has a name before the node's first name.
            (Some(Node { first, .. }), Some(Entry(entry))) => match Some(&entry.name) < first {
                true => PairStep::Take(NEW),
                false => PairStep::Open(OLD),
            },
            (Some(Entry(entry)), Some(Node { first, .. })) => match Some(&entry.name) < first {
                true => PairStep::Take(OLD),
                false => PairStep::Open(NEW),
            },
            (Some(Node { .. }), None) => PairStep::Open(OLD),
            (None, Some(Node { .. })) => PairStep::Open(NEW),
            (Some(Entry(_)), None) => PairStep::Take(OLD),
            (None, Some(Entry(_))) => PairStep::Take(NEW),
            (Some(Entry(a)), Some(Entry(b))) => PairStep::Take(a.name.cmp(&b.name)),
        }
    }
}
