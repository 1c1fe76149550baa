//! A depth-first walk over a folder and everything below it.
//!
//! The walk has its own stack, so a deep tree cannot overflow the thread's stack. The caller
//! decides which nodes to open and which folders to enter, and attaches a tag to each folder, such
//! as its path.
//!
//! [`TreeWalk::read`] returns a whole leaf, and the walk then holds only the scheduled folders of
//! that leaf. After [`TreeWalk::open`], the walk holds the leaf and returns its entries one by one.
//! It walks through a scheduled folder before it returns the next entry.

use std::collections::VecDeque;

use crate::{
    base::{
        id::{ObjectId, TreeId},
        limits,
    },
    format::tree::Entry,
    store::{StoreError, TreeCursor, TreeItem, TreeSource, UnreadNode},
};

/// A step of a walk.
#[derive(Debug)]
pub enum WalkStep<T> {
    /// The walk has entered a folder; see [`TreeWalk::tag`].
    Enter,
    /// An unread node of the present folder. A caller that drops the node skips all of its entries.
    Node(UnreadNode),
    /// An entry of the present folder.
    Entry(Entry),
    /// The walk has left the folder with this tag. Its parent is now the present folder.
    Leave(T),
}

#[derive(Debug)]
struct WalkLevel<T> {
    cursor: TreeCursor,
    tag: T,
    /// True until the walk returns [`WalkStep::Enter`] for the folder.
    is_new: bool,
    /// Scheduled folders, which the walk enters before the cursor moves on.
    folders: VecDeque<(TreeId, T)>,
}

/// A depth-first walk. `T` is the caller's tag of a folder.
#[derive(Debug)]
pub struct TreeWalk<T> {
    /// The folders from the start to the present folder, which is last.
    levels: Vec<WalkLevel<T>>,
}

impl<T> TreeWalk<T> {
    /// Starts in the folder of `cursor`.
    pub fn new(cursor: TreeCursor, tag: T) -> Self {
        let mut walk = Self { levels: Vec::new() };
        walk.push(cursor, tag);
        walk
    }

    fn push(&mut self, cursor: TreeCursor, tag: T) {
        self.levels.push(WalkLevel { cursor, tag, is_new: true, folders: VecDeque::new() });
    }

    /// Returns the tag of the present folder; `None` at the end.
    pub fn tag(&mut self) -> Option<&mut T> {
        self.levels.last_mut().map(|level| &mut level.tag)
    }

    /// Returns the cursor in the present folder; `None` at the end.
    pub fn cursor(&mut self) -> Option<&mut TreeCursor> {
        self.levels.last_mut().map(|level| &mut level.cursor)
    }

    /// Reads the node that the last step returned. The next steps return its items.
    ///
    /// # Errors
    /// As [`TreeCursor::open`]. The walk can go on after the node.
    pub fn open<S: TreeSource + ?Sized>(
        &mut self,
        source: &S,
        node: UnreadNode,
    ) -> Result<(), StoreError> {
        self.cursor().map_or(Ok(()), |cursor| cursor.open(source, node))
    }

    /// Reads the node that the last step returned. Returns the entries of a leaf, and an empty list
    /// for an inner node.
    ///
    /// # Errors
    /// As [`TreeCursor::open`]. The walk can go on after the node.
    pub fn read<S: TreeSource + ?Sized>(
        &mut self,
        source: &S,
        node: UnreadNode,
    ) -> Result<Vec<Entry>, StoreError> {
        self.open(source, node)?;
        Ok(self.cursor().map(TreeCursor::take_leaf).unwrap_or_default())
    }

    /// Schedules a subfolder of the present folder. The next steps walk through all scheduled
    /// folders, in this order, before they go on in the present folder.
    ///
    /// # Errors
    /// [`StoreError::TooDeep`] if the folder is nested too deep. Then the walk does not enter the
    /// folder.
    pub fn enter(&mut self, tree: TreeId, tag: T) -> Result<(), StoreError> {
        check_depth(self.levels.len(), tree)?;
        if let Some(level) = self.levels.last_mut() {
            level.folders.push_back((tree, tag));
        }
        Ok(())
    }

    /// Returns the scheduled subfolders of the present folder.
    pub fn scheduled(&self) -> impl Iterator<Item = ObjectId> {
        let folders = self.levels.last().into_iter().flat_map(|level| &level.folders);
        folders.map(|(tree, _)| tree.object())
    }

    /// Skips the rest of the present folder, but not its scheduled subfolders.
    pub fn skip_rest(&mut self) {
        if let Some(cursor) = self.cursor() {
            cursor.clear();
        }
    }
}

impl<T> Iterator for TreeWalk<T> {
    type Item = WalkStep<T>;

    fn next(&mut self) -> Option<WalkStep<T>> {
        let level = self.levels.last_mut()?;
        if let Some((tree, tag)) = level.folders.pop_front() {
            let cursor = TreeCursor::new(tree, level.cursor.prefetch());
            self.push(cursor, tag);
        }
        let level = self.levels.last_mut()?;
        if std::mem::take(&mut level.is_new) {
            return Some(WalkStep::Enter);
        }
        match level.cursor.next() {
            Some(TreeItem::Entry(entry)) => Some(WalkStep::Entry(entry)),
            Some(TreeItem::Node(node)) => Some(WalkStep::Node(node)),
            None => self.levels.pop().map(|level| WalkStep::Leave(level.tag)),
        }
    }
}

/// Checks the nesting depth of a folder.
///
/// # Errors
/// [`StoreError::TooDeep`] if the depth exceeds [`limits::DEPTH`].
pub fn check_depth(depth: usize, tree: TreeId) -> Result<(), StoreError> {
    if depth > limits::DEPTH { Err(StoreError::TooDeep { id: tree.object() }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        format::tree::EntryKind,
        store::{Prefetch, tree_cursor::tests::Trees},
    };

    /// Adds a directory of two leaves with a folder in each: a, b/ | c, d/.
    fn folders(trees: &mut Trees) -> (TreeId, [TreeId; 2]) {
        let inside = [trees.leaf(&["x", "y"], &[]), trees.leaf(&["z"], &[])];
        let leaves =
            [trees.leaf(&["a", "b/"], &inside[..1]), trees.leaf(&["c", "d/"], &inside[1..])];
        (trees.inner(1, &[("a", leaves[0]), ("c", leaves[1])]), inside)
    }

    fn name(entry: &Entry) -> &str {
        std::str::from_utf8(entry.name.as_bytes()).unwrap()
    }

    /// Walks through a tree and enters each folder. Returns a word for each step.
    fn walk(trees: &Trees, tree: TreeId, is_by_leaf: bool) -> String {
        let mut walk = TreeWalk::new(TreeCursor::new(tree, Prefetch::Nothing), String::from("top"));
        let mut steps = Vec::new();
        let enter = |walk: &mut TreeWalk<String>, entry: &Entry| {
            if let EntryKind::Folder { id } = entry.kind {
                walk.enter(id, name(entry).to_owned()).unwrap();
            }
        };
        while let Some(step) = walk.next() {
            match step {
                WalkStep::Enter => steps.push(format!("+{}", walk.tag().unwrap())),
                WalkStep::Leave(tag) => steps.push(format!("-{tag}")),
                WalkStep::Node(node) if is_by_leaf => match walk.read(trees, node) {
                    Ok(entries) => {
                        entries.iter().for_each(|entry| enter(&mut walk, entry));
                        steps.extend(entries.iter().map(|entry| name(entry).to_owned()));
                    }
                    Err(_) => steps.push("bad".to_owned()),
                },
                WalkStep::Node(node) => {
                    if walk.open(trees, node).is_err() {
                        steps.push("bad".to_owned());
                    }
                }
                WalkStep::Entry(entry) => {
                    steps.push(name(&entry).to_owned());
                    enter(&mut walk, &entry);
                }
            }
        }
        assert!(walk.tag().is_none() && walk.next().is_none());
        steps.join(" ")
    }

    #[test]
    fn folders_are_walked_entry_by_entry_or_leaf_by_leaf() {
        let mut trees = Trees::default();
        let (tree, _) = folders(&mut trees);
        assert_eq!(walk(&trees, tree, false), "+top a b +b x y -b c d +d z -d -top");
        let (tree, _) = folders(&mut trees);
        assert_eq!(walk(&trees, tree, true), "+top a b +b x y -b c d +d z -d -top");
        let three = trees.leaf(&["p/", "q", "r/"], &[tree, tree]);
        let inside = "a b +b x y -b c d +d z -d";
        let by_entry = format!("+top p +p {inside} -p q r +r {inside} -r -top");
        assert_eq!(walk(&trees, three, false), by_entry);
        let by_leaf = format!("+top p q r +p {inside} -p +r {inside} -r -top");
        assert_eq!(walk(&trees, three, true), by_leaf);
    }

    #[test]
    fn a_walk_continues_after_a_damaged_node() {
        let mut trees = Trees::default();
        let lost = TreeId::of(b"lost");
        let leaves = [trees.leaf(&["a/", "b"], &[lost]), trees.leaf(&["d"], &[])];
        let tree = trees.inner(1, &[("a", leaves[0]), ("c", leaves[1])]);
        for is_by_leaf in [false, true] {
            let steps = walk(&trees, tree, is_by_leaf);
            let expected = ["+top a +a bad -a b bad -top", "+top a b +a bad -a bad -top"];
            assert_eq!(steps, expected[usize::from(is_by_leaf)]);
        }
    }

    #[test]
    fn folders_nested_too_deep_are_not_entered() {
        let mut trees = Trees::default();
        let mut tree = trees.leaf(&["end"], &[]);
        let bottom = tree;
        for _ in 0..=limits::DEPTH {
            tree = trees.leaf(&["d/", "e"], &[tree]);
        }
        let mut walk = TreeWalk::new(TreeCursor::new(tree, Prefetch::Nothing), ());
        let (mut entered, mut files, mut refused) = (0, 0, Vec::new());
        while let Some(step) = walk.next() {
            match step {
                WalkStep::Enter => entered += 1,
                WalkStep::Node(node) => walk.open(&trees, node).unwrap(),
                WalkStep::Entry(entry) => match entry.kind {
                    EntryKind::Folder { id } => refused.extend(walk.enter(id, ()).err()),
                    _ => files += 1,
                },
                WalkStep::Leave(()) => {}
            }
        }
        assert_eq!((entered, files), (limits::DEPTH + 1, limits::DEPTH + 1));
        assert!(
            matches!(&refused[..], [StoreError::TooDeep { id }] if *id == bottom.object()),
            "{refused:?}"
        );
    }

    #[test]
    fn the_rest_of_a_folder_can_be_skipped() {
        let mut trees = Trees::default();
        let (tree, inside) = folders(&mut trees);
        let mut walk = TreeWalk::new(TreeCursor::new(tree, Prefetch::Nothing), ());
        assert!(matches!(walk.next(), Some(WalkStep::Enter)));
        for _ in 0..2 {
            let Some(WalkStep::Node(node)) = walk.next() else { panic!() };
            walk.open(&trees, node).unwrap();
        }
        walk.enter(inside[0], ()).unwrap();
        assert_eq!(walk.scheduled().collect::<Vec<_>>(), [inside[0].object()]);
        walk.skip_rest();
        assert!(matches!(walk.next(), Some(WalkStep::Enter)));
        assert!(matches!(walk.next(), Some(WalkStep::Node(node)) if node.id() == inside[0]));
        assert!(matches!(walk.next(), Some(WalkStep::Leave(()))));
        assert!(matches!(walk.next(), Some(WalkStep::Leave(()))));
        assert!(walk.next().is_none());
    }
}
