//! One directory leaf by leaf, for those who compare it with another: a leaf
//! that both have need not be read.

use crate::{
    base::{id::TreeId, name::EntryName},
    format::tree::{Entry, Node},
    store::{Store, StoreError, entries::broken},
};

/// The leaves of a directory, in order, and the nodes above them.
#[derive(Debug, Default)]
pub struct Listing {
    leaves: Vec<Leaf>,
    nodes: Vec<TreeId>,
}

/// A leaf of a directory; a small directory is one.
#[derive(Debug)]
pub struct Leaf {
    id: TreeId,
    /// What the node above says of it.
    first: Option<EntryName>,
    /// First name of the leaf behind it.
    end: Option<EntryName>,
    /// What is in it, when it was read on the way.
    entries: Option<Vec<Entry>>,
}

impl Listing {
    /// Finds the leaves of `tree`, reading the nodes above them only.
    ///
    /// Checked: that each node is where a writer puts it.
    ///
    /// # Errors
    /// [`StoreError`] when a node is missing, damaged or out of place.
    pub fn of(store: &Store, tree: TreeId) -> Result<Self, StoreError> {
        let mut listing = Self::default();
        let mut waiting = vec![(tree, None::<(u8, EntryName)>)];
        while let Some((id, place)) = waiting.pop() {
            if let Some((0, first)) = place {
                listing.add(id, first)?;
                continue;
            }
            let node = store.tree(&id)?;
            if place
                .is_some_and(|(level, first)| node.level() != level || node.first() != Some(&first))
            {
                return Err(broken(id, "place of a tree node"));
            }
            match node {
                Node::Leaf { entries, .. } => {
                    let entries = Some(entries);
                    listing.leaves.push(Leaf { id, first: None, end: None, entries });
                }
                Node::Inner { level, children, .. } => {
                    listing.nodes.push(id);
                    let children = children.into_iter().rev();
                    waiting
                        .extend(children.map(|child| (child.id, Some((level - 1, child.first)))));
                }
            }
        }
        Ok(listing)
    }

    fn add(&mut self, id: TreeId, first: EntryName) -> Result<(), StoreError> {
        if let Some(last) = self.leaves.last_mut() {
            if last.first.as_ref() >= Some(&first) {
                return Err(broken(id, "order of leaves"));
            }
            last.end = Some(first.clone());
        }
        self.leaves.push(Leaf { id, first: Some(first), end: None, entries: None });
        Ok(())
    }

    /// The nodes above the leaves; none of a small directory.
    pub fn nodes(&self) -> &[TreeId] {
        &self.nodes
    }

    /// The leaves, in order.
    pub fn leaves(&self) -> &[Leaf] {
        &self.leaves
    }

    /// The leaves, in order, to be read.
    pub fn into_leaves(self) -> Vec<Leaf> {
        self.leaves
    }
}

impl Leaf {
    /// Its id.
    pub fn id(&self) -> TreeId {
        self.id
    }

    /// Its first name and that of the leaf behind it, where the node above says so.
    pub fn bounds(&self) -> (Option<&EntryName>, Option<&EntryName>) {
        (self.first.as_ref(), self.end.as_ref())
    }

    /// Reads what is in it.
    ///
    /// # Errors
    /// [`StoreError`] when it is missing, damaged or out of place.
    pub fn into_entries(self, store: &Store) -> Result<Vec<Entry>, StoreError> {
        if let Some(entries) = self.entries {
            return Ok(entries);
        }
        let Node::Leaf { entries, .. } = store.tree(&self.id)? else {
            return Err(broken(self.id, "tree level"));
        };
        let ends = self.end.is_none() || entries.last().map(|last| &last.name) < self.end.as_ref();
        if entries.first().map(|first| &first.name) != self.first.as_ref() || !ends {
            return Err(broken(self.id, "place of a leaf"));
        }
        Ok(entries)
    }
}
