//! The split of a large directory into leaves and nodes.
//!
//! Entries are added in order. A leaf is closed after an entry when
//!
//! 1. the leaf has [`limits::TREE_NODE_ENTRIES`] entries, or
//! 2. its names, symlink targets and xattrs have a total length of at least
//!    [`limits::TREE_NODE_TARGET_BYTES`], or
//! 3. it has at least 1,024 entries, and the first four bytes of the BLAKE3 of the
//!    entry's name, as a little-endian number, are a multiple of 4,096.
//!
//! The encoder groups the children into inner nodes in the same way, level by level, until one node
//! is left. It closes an inner node at [`limits::TREE_NODE_ENTRIES`] − 1 children. From 64 children
//! on, it also closes the node if the first four bytes of the last child's id are a multiple of
//! 256. A last child that would be alone in a node joins the previous node. The split depends only
//! on the entries, so it is canonical. An insertion changes only the split points near it.

use std::mem;

use crate::{
    base::{id::TreeId, limits, name::EntryName},
    format::{
        tree::{Child, Entry, EntryKind, Node, Totals},
        wire::FormatError,
    },
};

const LEAF_MIN_ENTRIES: usize = 1024;
const LEAF_MASK: u32 = 4096 - 1;
const NODE_MIN_CHILDREN: usize = 64;
const NODE_MASK: u32 = 256 - 1;

/// Encodes one directory, entry by entry. Holds the entries of one leaf in memory.
#[derive(Debug, Default)]
pub struct FolderEncoder {
    entries: Vec<Entry>,
    variable_bytes: usize,
    totals: Totals,
    below: Totals,
    children: Vec<(Child, Totals)>,
}

/// An encoded directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodedFolder {
    /// Id of the topmost node.
    pub id: TreeId,
    /// Totals of everything below the directory.
    pub totals: Totals,
}

impl FolderEncoder {
    /// Starts an empty directory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next entry. Names must strictly increase. `below` is the totals of everything below
    /// the entry.
    ///
    /// # Errors
    /// [`FormatError`] if readers would refuse the entry, and the errors of `put`, which receives
    /// each finished node.
    pub fn push<E: From<FormatError>>(
        &mut self,
        entry: Entry,
        below: &Totals,
        put: &mut impl FnMut(TreeId, Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        entry.check()?;
        self.totals.count(&entry.kind);
        self.totals.add(below);
        self.variable_bytes += variable_bytes(&entry);
        let full = self.entries.len() + 1 >= limits::TREE_NODE_ENTRIES
            || self.variable_bytes >= limits::TREE_NODE_TARGET_BYTES;
        let cut = full
            || (self.entries.len() + 1 >= LEAF_MIN_ENTRIES
                && low32(blake3::hash(entry.name.as_bytes()).as_bytes()) & LEAF_MASK == 0);
        self.entries.push(entry);
        if cut { self.close_leaf(put) } else { Ok(()) }
    }

    /// Ends the directory and returns it.
    ///
    /// # Errors
    /// [`FormatError`] if there are more levels of nodes than readers accept, and the errors of
    /// `put`, which receives each finished node.
    pub fn finish<E: From<FormatError>>(
        mut self,
        put: &mut impl FnMut(TreeId, Vec<u8>) -> Result<(), E>,
    ) -> Result<EncodedFolder, E> {
        if !self.entries.is_empty() || self.children.is_empty() {
            self.close_leaf(put)?;
        }
        let mut row = self.children;
        let mut level = 1;
        while row.len() > 1 {
            FormatError::check_limit("tree level", level.into(), limits::TREE_NODE_LEVELS.into())?;
            row = close_row(row, level, put)?;
            level += 1;
        }
        let id = row.first().map(|(child, _)| child.id).expect("a row is never empty");
        Ok(EncodedFolder { id, totals: self.below })
    }

    fn close_leaf<E>(
        &mut self,
        put: &mut impl FnMut(TreeId, Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let entries = mem::take(&mut self.entries);
        let totals = mem::take(&mut self.totals);
        self.variable_bytes = 0;
        self.below.add(&totals);
        let first = entries.first().map(|entry| entry.name.clone());
        let bytes = Node::Leaf { totals, entries }.encode();
        let id = TreeId::of(&bytes);
        put(id, bytes)?;
        // Only the leaf of an empty directory has no first name. No node lists this leaf, so the
        // name `-` is never stored.
        let first = first.unwrap_or_else(|| EntryName::new(b"-").expect("a dash is a name"));
        self.children.push((Child { first, id }, totals));
        Ok(())
    }
}

fn variable_bytes(entry: &Entry) -> usize {
    let target = if let EntryKind::Symlink { target } = &entry.kind { target.len() } else { 0 };
    let xattrs = entry.metadata.xattrs.iter().map(|x| x.name.len() + x.value.len());
    entry.name.as_bytes().len() + target + xattrs.sum::<usize>()
}

fn low32(digest: &[u8; 32]) -> u32 {
    u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]])
}

fn close_row<E>(
    row: Vec<(Child, Totals)>,
    level: u8,
    put: &mut impl FnMut(TreeId, Vec<u8>) -> Result<(), E>,
) -> Result<Vec<(Child, Totals)>, E> {
    let mut above = Vec::new();
    let mut children: Vec<Child> = Vec::new();
    let mut totals = Totals::default();
    let last = row.len() - 1;
    for (index, (child, below)) in row.into_iter().enumerate() {
        let id = child.id;
        totals.add(&below);
        children.push(child);
        let cut = children.len() + 1 >= limits::TREE_NODE_ENTRIES
            || (children.len() >= NODE_MIN_CHILDREN && low32(id.as_bytes()) & NODE_MASK == 0);
        // A node with a single child would be a second encoding of that child.
        let lonely_rest = last - index == 1;
        if index == last || (cut && !lonely_rest) {
            let (totals, children) = (mem::take(&mut totals), mem::take(&mut children));
            above.push(close_node(level, totals, children, put)?);
        }
    }
    Ok(above)
}

fn close_node<E>(
    level: u8,
    totals: Totals,
    children: Vec<Child>,
    put: &mut impl FnMut(TreeId, Vec<u8>) -> Result<(), E>,
) -> Result<(Child, Totals), E> {
    let first = children[0].first.clone();
    let bytes = Node::Inner { level, totals, children }.encode();
    let id = TreeId::of(&bytes);
    put(id, bytes)?;
    Ok((Child { first, id }, totals))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::{
        base::{id::BlobId, name::EntryName},
        format::tree::Metadata,
    };

    fn entry(name: &str) -> Entry {
        Entry {
            name: EntryName::new(name.as_bytes()).unwrap(),
            kind: EntryKind::File { size: 1, id: BlobId::of(b"x").into() },
            metadata: Metadata { mode: 0o644, ..Metadata::default() },
        }
    }

    fn encode(names: &[String]) -> (EncodedFolder, HashMap<TreeId, Vec<u8>>) {
        let mut nodes = HashMap::new();
        let mut put = |id, bytes| {
            nodes.insert(id, bytes);
            Ok::<_, FormatError>(())
        };
        let mut encoder = FolderEncoder::new();
        for name in names {
            encoder.push(entry(name), &Totals::default(), &mut put).unwrap();
        }
        let folder = encoder.finish(&mut put).unwrap();
        (folder, nodes)
    }

    fn names_below(id: TreeId, nodes: &HashMap<TreeId, Vec<u8>>, names: &mut Vec<String>) {
        match Node::decode(&nodes[&id]).unwrap() {
            Node::Leaf { entries, .. } => names.extend(
                entries.iter().map(|e| String::from_utf8(e.name.as_bytes().to_vec()).unwrap()),
            ),
            Node::Inner { children, .. } => {
                children.iter().for_each(|child| names_below(child.id, nodes, names));
            }
        }
    }

    #[test]
    fn an_empty_directory_is_one_empty_leaf() {
        let (folder, nodes) = encode(&[]);
        assert_eq!(nodes.len(), 1);
        assert_eq!(folder.totals, Totals::default());
        assert!(
            matches!(Node::decode(&nodes[&folder.id]), Ok(Node::Leaf { entries, .. }) if entries.is_empty())
        );
    }

    #[test]
    fn a_large_directory_is_split_and_a_change_rewrites_little() {
        let mut names: Vec<String> = (0..100_000).map(|i| format!("{i:06}")).collect();
        let (folder, nodes) = encode(&names);
        assert!(nodes.len() > 10, "{} nodes", nodes.len());
        assert!(nodes.values().all(|bytes| bytes.len() <= limits::TREE_NODE_BYTES));
        assert_eq!(folder.totals.files, 100_000);
        let mut back = Vec::new();
        names_below(folder.id, &nodes, &mut back);
        assert_eq!(back, names);

        names.insert(50_000, "049999x".to_owned());
        let (_, changed) = encode(&names);
        let fresh = changed.keys().filter(|id| !nodes.contains_key(id)).count();
        assert!(fresh <= 4, "{fresh} nodes rewritten for one insertion");
    }
}
