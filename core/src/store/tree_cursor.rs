//! A position in one directory, for split and unsplit directories.
//!
//! Every walk over trees uses a [`TreeCursor`], or a [`TreeWalk`](super::TreeWalk), which has one
//! cursor for each level of folders. The cursor returns nodes without reading them, and the caller
//! decides which nodes to open: a search skips nodes without the name, a comparison skips nodes
//! that both sides have.
//!
//! Before a cursor returns an item of a node, it compares the node with its record in the parent
//! node:
//!
//! 1. The level is one below that of the parent, so a chain of nodes must end.
//! 2. The first name is the recorded one. Otherwise one leaf could occur in many places, and a few
//!    nodes could claim more entries than a reader can process.
//! 3. All names come before the first name of the next node.
//!
//! The decoder has checked the order within a node. So all names of a directory strictly increase,
//! even for a reader that skips nodes. A node that breaks a rule fails with [`StoreError::Object`];
//! the caller may go on with the next node.

use std::vec::IntoIter;

use crate::{
    base::{
        id::{ObjectId, TreeId},
        name::EntryName,
    },
    format::{
        pack::ObjectKind,
        tree::{Child, Entry, Node},
        wire::FormatError,
    },
    store::{ObjectIds, Store, StoreError},
};

/// A source of tree nodes.
pub trait TreeSource {
    /// Reads a node, verified against its id.
    ///
    /// # Errors
    /// [`StoreError`] if the node is missing or damaged.
    fn tree(&self, id: &TreeId) -> Result<Node, StoreError>;

    /// Announces objects that the caller will read, so that an implementation can prefetch them.
    fn will_need(&self, ids: &mut ObjectIds<'_>);
}

impl TreeSource for Store {
    fn tree(&self, id: &TreeId) -> Result<Node, StoreError> {
        Store::tree(self, id)
    }

    fn will_need(&self, ids: &mut ObjectIds<'_>) {
        self.prefetch_objects(ids);
    }
}

/// Decodes a node. The caller has verified the bytes.
///
/// # Errors
/// [`StoreError::Object`] when the bytes break a rule of the format.
pub fn decode_tree(id: &TreeId, bytes: &[u8]) -> Result<Node, StoreError> {
    let (id, kind) = (id.object(), ObjectKind::Tree);
    Node::decode(bytes).map_err(|source| StoreError::Object { id, kind, source })
}

/// Selects the objects that a cursor announces when it opens a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// None.
    Nothing,
    /// The nodes below the node.
    Nodes,
    /// The nodes below the node, and the trees of the folders in a leaf.
    NodesAndFolders,
}

/// A node of a directory that has not been read yet.
#[derive(Debug)]
pub struct UnreadNode {
    id: TreeId,
    /// Level and first name according to the parent node; `None` for the topmost node.
    place: Option<(u8, EntryName)>,
    /// First name of the next node of the directory; `None` for the last node.
    end: Option<EntryName>,
}

impl UnreadNode {
    pub fn id(&self) -> TreeId {
        self.id
    }

    /// Returns the first name of the node and the first name of the next node, if the inner nodes
    /// state them.
    pub fn bounds(&self) -> (Option<&EntryName>, Option<&EntryName>) {
        (self.place.as_ref().map(|(_, first)| first), self.end.as_ref())
    }

    /// Reads the node and compares it with its record in the parent node.
    ///
    /// # Errors
    /// [`StoreError`] if the node is missing, damaged or out of place.
    pub fn read<S: TreeSource + ?Sized>(&self, source: &S) -> Result<Node, StoreError> {
        let node = source.tree(&self.id)?;
        let what = match &self.place {
            Some((level, _)) if node.level() != *level => "tree level",
            Some((_, first)) if node.first() != Some(first) => {
                "name of the first entry of a tree \
                                                                node"
            }
            _ if self.end.is_some() && node.last() >= self.end.as_ref() => {
                "name of the last entry of a tree node"
            }
            _ => return Ok(node),
        };
        let (id, kind) = (self.id.object(), ObjectKind::Tree);
        let source = FormatError::Invalid { what, at: 1 };
        Err(StoreError::Object { id, kind, source })
    }
}

/// An item of a directory.
#[derive(Debug)]
pub enum TreeItem {
    /// An entry of an opened leaf.
    Entry(Entry),
    /// An unread node. [`TreeCursor::open`] moves to its first item; a caller that drops the node
    /// skips all of its entries.
    Node(UnreadNode),
}

/// The item that a cursor returns next.
#[derive(Debug)]
pub enum NextItem<'c> {
    /// An entry of the directory.
    Entry(&'c Entry),
    /// A node, and its level and first name according to the parent node. The topmost node has
    /// neither.
    Node { id: TreeId, level: Option<u8>, first: Option<&'c EntryName> },
}

/// The unread rest of an opened node.
#[derive(Debug)]
enum OpenNode {
    Leaf(IntoIter<Entry>),
    /// The unread children, and their level.
    Inner(IntoIter<Child>, u8),
}

impl OpenNode {
    fn is_finished(&self) -> bool {
        match self {
            Self::Leaf(entries) => entries.as_slice().is_empty(),
            Self::Inner(children, _) => children.as_slice().is_empty(),
        }
    }
}

/// A position in one directory. Holds in memory the unread rest of one node for each level of
/// nodes.
///
/// Iterates over the items in the order of their names. The items of an opened node take the place
/// of the node.
#[derive(Debug)]
pub struct TreeCursor {
    /// The topmost node, until it is returned.
    top: Option<TreeId>,
    open: Vec<OpenNode>,
    prefetch: Prefetch,
}

impl TreeCursor {
    /// Starts before the topmost node of a directory.
    pub fn new(tree: TreeId, prefetch: Prefetch) -> Self {
        Self { top: Some(tree), open: Vec::new(), prefetch }
    }

    /// Starts in a directory that consists of these entries, which must be sorted by name.
    pub fn of_entries(entries: Vec<Entry>) -> Self {
        let open = vec![OpenNode::Leaf(entries.into_iter())];
        Self { top: None, open, prefetch: Prefetch::Nothing }
    }

    /// Returns the mode of prefetching.
    pub fn prefetch(&self) -> Prefetch {
        self.prefetch
    }

    /// Returns the number of opened nodes that contain the last returned item. An opened node
    /// counts until the cursor returns the first item after that node.
    pub fn open_nodes(&self) -> usize {
        self.open.len()
    }

    /// Returns the next item without moving past it.
    pub fn peek(&mut self) -> Option<NextItem<'_>> {
        if let Some(id) = self.top {
            return Some(NextItem::Node { id, level: None, first: None });
        }
        self.close_finished();
        match self.open.last()? {
            OpenNode::Leaf(entries) => entries.as_slice().first().map(NextItem::Entry),
            OpenNode::Inner(children, level) => children.as_slice().first().map(|child| {
                NextItem::Node { id: child.id, level: Some(*level), first: Some(&child.first) }
            }),
        }
    }

    /// Reads the last returned node, and moves to its first item.
    ///
    /// # Errors
    /// [`StoreError`] if the node is missing, damaged or out of place. The cursor stays behind the
    /// node.
    pub fn open<S: TreeSource + ?Sized>(
        &mut self,
        source: &S,
        node: UnreadNode,
    ) -> Result<(), StoreError> {
        let node = node.read(source)?;
        match &node {
            Node::Leaf { entries, .. } if self.prefetch == Prefetch::NodesAndFolders => {
                source.will_need(&mut entries.iter().filter_map(Entry::folder));
            }
            Node::Inner { children, .. } if self.prefetch != Prefetch::Nothing => {
                source.will_need(&mut children.iter().map(|child| child.id.object()));
            }
            _ => {}
        }
        self.push(node);
        Ok(())
    }

    /// Moves to the first item of the last returned node, which the caller has read.
    fn push(&mut self, node: Node) {
        self.open.push(match node {
            Node::Leaf { entries, .. } => OpenNode::Leaf(entries.into_iter()),
            Node::Inner { level, children, .. } => OpenNode::Inner(children.into_iter(), level - 1),
        });
    }

    /// Returns the next entry. Opens all nodes on the way.
    ///
    /// # Errors
    /// As [`TreeCursor::open`].
    pub fn next_entry<S: TreeSource + ?Sized>(
        &mut self,
        source: &S,
    ) -> Result<Option<Entry>, StoreError> {
        loop {
            match self.next() {
                Some(TreeItem::Entry(entry)) => return Ok(Some(entry)),
                Some(TreeItem::Node(node)) => self.open(source, node)?,
                None => return Ok(None),
            }
        }
    }

    /// Takes the unread entries of the last opened node. Returns an empty list if the node is not a
    /// leaf.
    pub fn take_leaf(&mut self) -> Vec<Entry> {
        match self.open.last_mut() {
            Some(OpenNode::Leaf(entries)) => std::mem::take(entries).collect(),
            _ => Vec::new(),
        }
    }

    /// Moves forward to the first item with a name that is not less than `name`. Reads only nodes
    /// that may contain `name`.
    ///
    /// # Errors
    /// As [`TreeCursor::open`].
    pub fn seek<S: TreeSource + ?Sized>(
        &mut self,
        source: &S,
        name: &[u8],
    ) -> Result<(), StoreError> {
        loop {
            self.close_finished();
            match self.open.last_mut() {
                Some(OpenNode::Leaf(entries)) => {
                    let before = entries.as_slice().partition_point(|e| e.name.as_bytes() < name);
                    skip(entries, before);
                    if entries.as_slice().is_empty() {
                        continue;
                    }
                    break;
                }
                Some(OpenNode::Inner(children, _)) => {
                    // Only the last child whose first name is at most `name` may contain `name`.
                    let not_after =
                        children.as_slice().partition_point(|c| c.first.as_bytes() <= name);
                    let Some(before) = not_after.checked_sub(1) else { break };
                    skip(children, before);
                }
                None => {}
            }
            match self.next() {
                Some(TreeItem::Node(node)) => self.push(node.read(source)?),
                _ => break,
            }
        }
        if self.prefetch != Prefetch::Nothing {
            source.will_need(&mut self.unread_children());
        }
        Ok(())
    }

    /// Skips all remaining items.
    pub fn clear(&mut self) {
        self.top = None;
        self.open.clear();
    }

    fn close_finished(&mut self) {
        while self.open.pop_if(|node| node.is_finished()).is_some() {}
    }

    /// Returns the ids of the unread children of the opened nodes, in order.
    fn unread_children(&self) -> impl Iterator<Item = ObjectId> {
        let children = |node| match node {
            &OpenNode::Leaf(_) => &[][..],
            OpenNode::Inner(children, _) => children.as_slice(),
        };
        self.open.iter().rev().flat_map(children).map(|child| child.id.object())
    }

    /// Returns the first name of the next unread node.
    fn end(&self) -> Option<&EntryName> {
        self.open.iter().rev().find_map(|node| match node {
            OpenNode::Leaf(_) => None,
            OpenNode::Inner(children, _) => children.as_slice().first().map(|child| &child.first),
        })
    }
}

impl Iterator for TreeCursor {
    type Item = TreeItem;

    fn next(&mut self) -> Option<TreeItem> {
        if let Some(id) = self.top.take() {
            return Some(TreeItem::Node(UnreadNode { id, place: None, end: None }));
        }
        self.close_finished();
        match self.open.last_mut()? {
            OpenNode::Leaf(entries) => entries.next().map(TreeItem::Entry),
            OpenNode::Inner(children, level) => {
                let (Child { id, first }, level) = (children.next()?, *level);
                let end = self.end().cloned();
                Some(TreeItem::Node(UnreadNode { id, place: Some((level, first)), end }))
            }
        }
    }
}

/// Skips `count` items.
fn skip<T>(items: &mut IntoIter<T>, count: usize) {
    if let Some(last) = count.checked_sub(1) {
        items.nth(last);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::{
        cell::{Cell, RefCell},
        collections::{BTreeSet, HashMap},
    };

    use proptest::{collection, prelude::*};

    use super::*;
    use crate::{
        base::id::BlobId,
        format::tree::{EntryKind, Metadata, Totals},
    };

    /// Trees in memory. Counts reads of nodes, and keeps the announced ids.
    #[derive(Debug, Default)]
    pub(in super::super) struct Trees {
        nodes: HashMap<TreeId, Vec<u8>>,
        pub(in super::super) read: Cell<usize>,
        pub(in super::super) announced: RefCell<Vec<ObjectId>>,
    }

    impl TreeSource for Trees {
        fn tree(&self, id: &TreeId) -> Result<Node, StoreError> {
            self.read.set(self.read.get() + 1);
            let missing = StoreError::Missing { id: id.object(), wanted: ObjectKind::Tree };
            decode_tree(id, self.nodes.get(id).ok_or(missing)?)
        }

        fn will_need(&self, ids: &mut ObjectIds<'_>) {
            self.announced.borrow_mut().extend(ids);
        }
    }

    impl Trees {
        fn add(&mut self, node: &Node) -> TreeId {
            let bytes = node.encode();
            let id = TreeId::of(&bytes);
            self.nodes.insert(id, bytes);
            id
        }

        /// Adds a leaf. A name that ends with `/` is a folder; the first such folder has the first
        /// tree of `folders`, and so on.
        pub(in super::super) fn leaf(&mut self, names: &[&str], folders: &[TreeId]) -> TreeId {
            let mut folders = folders.iter();
            let entry = |name: &&str| {
                let kind = match name.strip_suffix('/') {
                    Some(_) => EntryKind::Folder { id: *folders.next().unwrap() },
                    None => EntryKind::File { size: 1, id: BlobId::of(b"x").into() },
                };
                let name = entry_name(name.trim_end_matches('/').as_bytes());
                Entry { name, kind, metadata: Metadata::default() }
            };
            let entries = names.iter().map(entry).collect();
            self.add(&Node::Leaf { totals: Totals::default(), entries })
        }

        pub(in super::super) fn inner(&mut self, level: u8, children: &[(&str, TreeId)]) -> TreeId {
            let child = |(first, id): &(&str, TreeId)| Child {
                first: entry_name(first.as_bytes()),
                id: *id,
            };
            let children = children.iter().map(child).collect();
            self.add(&Node::Inner { level, totals: Totals::default(), children })
        }
    }

    pub(in super::super) fn entry_name(bytes: &[u8]) -> EntryName {
        EntryName::new(bytes).unwrap()
    }

    fn names(cursor: &mut TreeCursor, trees: &Trees) -> Result<Vec<String>, StoreError> {
        let mut names = Vec::new();
        while let Some(entry) = cursor.next_entry(trees)? {
            names.push(String::from_utf8_lossy(entry.name.as_bytes()).into_owned());
        }
        Ok(names)
    }

    fn all(trees: &Trees, tree: TreeId) -> Result<Vec<String>, StoreError> {
        names(&mut TreeCursor::new(tree, Prefetch::Nothing), trees)
    }

    /// A directory of two levels of nodes: a b | c d || e f | g h.
    fn split(trees: &mut Trees) -> TreeId {
        let leaves = [["a", "b"], ["c", "d"], ["e", "f"], ["g", "h"]]
            .map(|names| (names[0], trees.leaf(&names, &[])));
        let low = trees.inner(1, &leaves[..2]);
        let high = trees.inner(1, &leaves[2..]);
        trees.inner(2, &[("a", low), ("e", high)])
    }

    #[track_caller]
    fn refused(trees: &Trees, tree: TreeId, bad: TreeId, what: &str) {
        let error = all(trees, tree).unwrap_err();
        let StoreError::Object { id, source, .. } = &error else { panic!("{error}") };
        assert_eq!((*id, source.to_string()), (bad.object(), format!("invalid {what} at byte 1")));
    }

    #[test]
    fn a_split_directory_reads_as_one() {
        let mut trees = Trees::default();
        let tree = split(&mut trees);
        assert_eq!(all(&trees, tree).unwrap().concat(), "abcdefgh");
        let empty = trees.leaf(&[], &[]);
        assert!(all(&trees, empty).unwrap().is_empty());
        let mut given = TreeCursor::of_entries(Vec::new());
        assert!(given.peek().is_none() && given.next().is_none());
    }

    #[test]
    fn misplaced_tree_nodes_are_refused_and_named() {
        let mut trees = Trees::default();
        let (ab, cd, empty) =
            (trees.leaf(&["a", "b"], &[]), trees.leaf(&["c", "d"], &[]), trees.leaf(&[], &[]));
        let low = trees.inner(1, &[("a", ab), ("c", cd)]);
        for (children, bad, what) in [
            ([("a", ab), ("bb", cd)], cd, "name of the first entry of a tree node"),
            ([("a", ab), ("b", ab)], ab, "name of the last entry of a tree node"),
            ([("a", empty), ("c", cd)], empty, "name of the first entry of a tree node"),
            ([("a", low), ("c", cd)], low, "tree level"),
        ] {
            let tree = trees.inner(1, &children);
            refused(&trees, tree, bad, what);
        }
        // The first name of the next node may lie in another node.
        let next = trees.leaf(&["b", "e"], &[]);
        let other = trees.inner(1, &[("b", next), ("x", ab)]);
        let tree = trees.inner(2, &[("a", low), ("b", other)]);
        refused(&trees, tree, low, "name of the last entry of a tree node");
        let last = trees.leaf(&["c", "z"], &[]);
        let low = trees.inner(1, &[("a", ab), ("c", last)]);
        let high = trees.inner(1, &[("d", next), ("x", ab)]);
        let tree = trees.inner(2, &[("a", low), ("d", high)]);
        refused(&trees, tree, last, "name of the last entry of a tree node");
    }

    #[test]
    fn a_cursor_continues_after_a_damaged_node() {
        let mut trees = Trees::default();
        let tree = split(&mut trees);
        let lost = trees.leaf(&["c", "d"], &[]);
        trees.nodes.remove(&lost);
        let mut cursor = TreeCursor::new(tree, Prefetch::Nothing);
        let (mut found, mut bad) = (String::new(), Vec::new());
        while let Some(item) = cursor.next() {
            match item {
                TreeItem::Entry(entry) => {
                    found += std::str::from_utf8(entry.name.as_bytes()).unwrap()
                }
                TreeItem::Node(node) => {
                    let id = node.id();
                    bad.extend(cursor.open(&trees, node).is_err().then_some(id));
                }
            }
        }
        assert_eq!((&*found, bad), ("abefgh", vec![lost]));
    }

    #[test]
    fn nodes_that_are_not_opened_are_not_read() {
        let mut trees = Trees::default();
        let tree = split(&mut trees);
        let mut cursor = TreeCursor::new(tree, Prefetch::Nothing);
        assert!(matches!(cursor.peek(), Some(NextItem::Node { level: None, first: None, .. })));
        let Some(TreeItem::Node(top)) = cursor.next() else { panic!() };
        cursor.open(&trees, top).unwrap();
        let (a, e) = (entry_name(b"a"), entry_name(b"e"));
        let Some(TreeItem::Node(low)) = cursor.next() else { panic!() };
        assert_eq!(low.bounds(), (Some(&a), Some(&e)));
        assert!(matches!(
            cursor.peek(),
            Some(NextItem::Node { level: Some(1), first: Some(first), .. }) if *first == e
        ));
        assert_eq!(names(&mut cursor, &trees).unwrap().concat(), "efgh");
        assert_eq!(trees.read.get(), 4);
    }

    #[test]
    fn a_search_reads_one_node_of_each_level() {
        let mut trees = Trees::default();
        let tree = split(&mut trees);
        for (name, reads, rest) in [
            ("", 1, "abcdefgh"),
            ("a", 3, "abcdefgh"),
            ("d", 3, "defgh"),
            ("dd", 3, "efgh"),
            ("h", 3, "h"),
            ("i", 3, ""),
        ] {
            let mut cursor = TreeCursor::new(tree, Prefetch::Nothing);
            trees.read.set(0);
            cursor.seek(&trees, name.as_bytes()).unwrap();
            assert_eq!(trees.read.get(), reads, "{name}");
            assert_eq!(names(&mut cursor, &trees).unwrap().concat(), rest, "{name}");
        }
        assert!(trees.announced.borrow().is_empty());
    }

    #[test]
    fn a_cursor_prefetches_the_requested_objects() {
        let mut trees = Trees::default();
        let below = trees.leaf(&["x"], &[]);
        let leaves = [trees.leaf(&["a", "b/"], &[below]), trees.leaf(&["c"], &[])];
        let tree = trees.inner(1, &[("a", leaves[0]), ("c", leaves[1])]);
        let nodes = leaves.map(|id| id.object());
        for (prefetch, wanted) in [
            (Prefetch::Nothing, vec![]),
            (Prefetch::Nodes, nodes.to_vec()),
            (Prefetch::NodesAndFolders, [&nodes[..], &[below.object()]].concat()),
        ] {
            names(&mut TreeCursor::new(tree, prefetch), &trees).unwrap();
            assert_eq!(trees.announced.take(), wanted);
        }
        TreeCursor::new(tree, Prefetch::Nodes).seek(&trees, b"b").unwrap();
        assert_eq!(trees.announced.take(), [leaves[1].object()], "only what is not read yet");
    }

    /// A directory, its split into nodes, and a possible fault of the writer.
    #[derive(Clone, Debug)]
    struct Shape {
        names: BTreeSet<String>,
        /// For each level of nodes, the number of items in each node.
        widths: Vec<Vec<usize>>,
        fault: Option<(usize, Fault)>,
    }

    #[derive(Clone, Copy, Debug)]
    enum Fault {
        /// The first child of a node is replaced with another node of the row.
        Child(usize),
        /// A node records a wrong first name for its second child.
        First(char),
        Level(u8),
    }

    fn shapes() -> impl Strategy<Value = Shape> {
        let fault = prop_oneof![
            (0..8_usize).prop_map(Fault::Child),
            prop::char::range('a', 'h').prop_map(Fault::First),
            (1..5_u8).prop_map(Fault::Level),
        ];
        (
            collection::btree_set("[a-h]{1,2}", 1..40),
            collection::vec(collection::vec(2..6_usize, 1..8), 3),
            prop::option::of((0..12_usize, fault)),
        )
            .prop_map(|(names, widths, fault)| Shape { names, widths, fault })
    }

    /// Builds the tree of a shape. A fault hits one of the inner nodes, if there is one.
    fn build(trees: &mut Trees, shape: &Shape) -> TreeId {
        let names: Vec<&str> = shape.names.iter().map(String::as_str).collect();
        let mut row: Vec<(String, TreeId)> = Vec::new();
        for part in cut(&names, &shape.widths[0]) {
            row.push((part[0].to_owned(), trees.leaf(part, &[])));
        }
        let (mut level, mut number) = (1, 0);
        while row.len() > 1 {
            let widths = &shape.widths[usize::from(level).min(2)];
            // The top level takes the rest of the row, so a tree has at most 4 levels.
            let parts = if level == 3 { vec![&row[..]] } else { cut(&row, widths) };
            let mut above = Vec::new();
            for part in parts {
                let mut children: Vec<(&str, TreeId)> =
                    part.iter().map(|(first, id)| (first.as_str(), *id)).collect();
                let mut own_level = level;
                let fault = shape.fault.filter(|(at, _)| *at == number).map(|(_, fault)| fault);
                let other;
                match fault {
                    Some(Fault::Child(from)) => {
                        children[0].1 = row[from % row.len()].1;
                    }
                    Some(Fault::First(first)) => {
                        other = first.to_string();
                        children[1].0 = &other;
                    }
                    Some(Fault::Level(fault)) => own_level = fault,
                    None => {}
                }
                number += 1;
                above.push((part[0].0.clone(), trees.inner(own_level, &children)));
            }
            row = above;
            level += 1;
        }
        row[0].1
    }

    /// Cuts a row into parts of these widths, repeated. The last part never has a single item,
    /// unless the row has one.
    fn cut<'r, T>(row: &'r [T], widths: &[usize]) -> Vec<&'r [T]> {
        let (mut parts, mut rest) = (Vec::new(), row);
        for width in widths.iter().cycle() {
            if rest.len() <= width + 1 {
                break;
            }
            let (part, others) = rest.split_at(*width);
            parts.push(part);
            rest = others;
        }
        parts.push(rest);
        parts
    }

    /// Lists the names in a node in the order of its leaves. Returns `None` if a node has
    /// the wrong level or first name.
    fn flat(trees: &Trees, id: &TreeId, place: Option<(u8, &EntryName)>) -> Option<Vec<EntryName>> {
        let node = Node::decode(&trees.nodes[id]).ok()?;
        if place.is_some_and(|(level, first)| node.level() != level || node.first() != Some(first))
        {
            return None;
        }
        match &node {
            Node::Leaf { entries, .. } => Some(entries.iter().map(|e| e.name.clone()).collect()),
            Node::Inner { level, children, .. } => {
                let below = |child: &Child| flat(trees, &child.id, Some((level - 1, &child.first)));
                children.iter().map(below).collect::<Option<Vec<_>>>().map(|parts| parts.concat())
            }
        }
    }

    proptest! {
        #![proptest_config(snap_testkit::property::cases(256))]

        /// The checks of single nodes accept the same directories as a check of the whole list.
        #[test]
        fn a_directory_is_accepted_if_its_names_increase(shape in shapes(), from in "[a-i]{0,2}") {
            let mut trees = Trees::default();
            let tree = build(&mut trees, &shape);
            let flat = flat(&trees, &tree, None);
            let sorted = flat.filter(|names| names.is_sorted_by(|a, b| a < b));
            let mut cursor = TreeCursor::new(tree, Prefetch::Nothing);
            let found = std::iter::from_fn(|| cursor.next_entry(&trees).transpose());
            let found: Option<Vec<EntryName>> = found.map(|e| e.ok().map(|e| e.name)).collect();
            prop_assert_eq!(&found, &sorted);
            if shape.fault.is_none() {
                prop_assert_eq!(sorted.as_ref().map(Vec::len), Some(shape.names.len()));
            }
            // A search finds the same names, in the right order.
            let mut cursor = TreeCursor::new(tree, Prefetch::Nothing);
            let mut after = Vec::new();
            let mut read = cursor.seek(&trees, from.as_bytes());
            while read.is_ok() {
                match cursor.next_entry(&trees) {
                    Ok(Some(entry)) => after.push(entry.name),
                    Ok(None) => break,
                    Err(error) => read = Err(error),
                }
            }
            prop_assert!(after.is_sorted_by(|a, b| a < b));
            if let Some(mut sorted) = sorted {
                sorted.retain(|name| name.as_bytes() >= from.as_bytes());
                prop_assert_eq!(after, sorted);
                prop_assert!(read.is_ok());
            }
        }
    }
}
