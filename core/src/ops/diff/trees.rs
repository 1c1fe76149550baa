//! Walks two trees of a store side by side.
//!
//! Equal trees are not opened, nor are equal nodes of directories that are split into nodes. On
//! each side, memory holds the unread rest of one node for each level of folders, and for each
//! level of nodes in a split directory.

use std::cmp::Ordering;

use crate::{
    base::id::TreeId,
    format::tree::{Entry, EntryKind},
    ops::diff::{Change, ChangeSide, DiffError, job::DiffJob},
    repo::path::push_name,
    store::{NextItem, Prefetch, TreeCursor, TreeItem, check_depth},
};

/// The next step for the heads of both sides.
enum PairStep {
    Skip,
    Open { old: bool, new: bool },
    Take { old: bool, new: bool },
    End,
}

fn step(old: &mut TreeCursor, new: &mut TreeCursor) -> PairStep {
    use NextItem::{Entry, Node};

    const OLD: (bool, bool) = (true, false);
    const NEW: (bool, bool) = (false, true);
    let of = |order: Ordering| match order {
        Ordering::Less => OLD,
        Ordering::Greater => NEW,
        Ordering::Equal => (true, true),
    };
    let (take, (old, new)) = match (old.peek(), new.peek()) {
        (None, None) => return PairStep::End,
        (Some(Node { id: a, .. }), Some(Node { id: b, .. })) if a == b => return PairStep::Skip,
        // Open the node that starts first; a topmost node comes before all others. If both
        // start with the same name, open the node of the higher level: the other node may
        // be its first child.
        (Some(Node { first: a, level, .. }), Some(Node { first: b, level: other, .. })) => {
            (false, of(a.cmp(&b).then(other.cmp(&level))))
        }
        // No entry in a node has a name before the node's first name.
        (Some(Node { first, .. }), Some(Entry(entry))) => match Some(&entry.name) < first {
            true => (true, NEW),
            false => (false, OLD),
        },
        (Some(Entry(entry)), Some(Node { first, .. })) => match Some(&entry.name) < first {
            true => (true, OLD),
            false => (false, NEW),
        },
        (Some(Node { .. }), None) => (false, OLD),
        (None, Some(Node { .. })) => (false, NEW),
        (Some(Entry(_)), None) => (true, OLD),
        (None, Some(Entry(_))) => (true, NEW),
        (Some(Entry(a)), Some(Entry(b))) => (true, of(a.name.cmp(&b.name))),
    };
    if take { PairStep::Take { old, new } } else { PairStep::Open { old, new } }
}

/// Returns a cursor for a folder; `None` is an empty folder. The cursor prefetches nothing, since
/// the comparison reads only nodes that differ.
fn cursor_in(tree: Option<TreeId>) -> TreeCursor {
    match tree {
        Some(tree) => TreeCursor::new(tree, Prefetch::Nothing),
        None => TreeCursor::of_entries(Vec::new()),
    }
}

/// Moves past an entry and returns it.
fn entry_of(cursor: &mut TreeCursor) -> Option<Entry> {
    if let Some(TreeItem::Entry(entry)) = cursor.next() { Some(entry) } else { None }
}

struct FolderPair {
    old: TreeCursor,
    new: TreeCursor,
    /// Length of the folder's path in bytes.
    path_bytes: usize,
}

/// Iterates over the changes from one tree to another. The entries of a folder come
/// sorted by name, and a folder comes before its contents.
pub(super) struct Trees<'a> {
    job: &'a DiffJob<'a>,
    path: Vec<u8>,
    stack: Vec<FolderPair>,
    /// True if the ignore rules exclude all entries that only the old side has.
    are_ignored: bool,
}

impl<'a> Trees<'a> {
    /// Compares two folders at the path `path`; `None` is an empty folder.
    pub(super) fn new(
        job: &'a DiffJob<'a>,
        path: Vec<u8>,
        old: Option<TreeId>,
        new: Option<TreeId>,
    ) -> Result<Self, DiffError> {
        let mut trees = Self { job, path, stack: Vec::new(), are_ignored: false };
        trees.enter(old, new)?;
        Ok(trees)
    }

    /// Lists everything in the removed folder at `path`. `are_ignored` is true if the folder still
    /// exists, but the ignore rules exclude it.
    pub(super) fn of_removed(
        job: &'a DiffJob<'a>,
        path: Vec<u8>,
        tree: TreeId,
        are_ignored: bool,
    ) -> Result<Self, DiffError> {
        Ok(Self { are_ignored, ..Self::new(job, path, Some(tree), None)? })
    }

    fn enter(&mut self, old: Option<TreeId>, new: Option<TreeId>) -> Result<(), DiffError> {
        if old == new {
            return Ok(());
        }
        for tree in [old, new].into_iter().flatten() {
            check_depth(self.stack.len(), tree)
                .map_err(|error| DiffError::tree(&self.path, error))?;
        }
        let (old, new) = (cursor_in(old), cursor_in(new));
        self.stack.push(FolderPair { old, new, path_bytes: self.path.len() });
        Ok(())
    }

    /// Returns the next change, or `None` after the last one.
    pub(super) fn next(&mut self) -> Result<Option<Change>, DiffError> {
        while let Some(FolderPair { old, new, path_bytes }) = self.stack.last_mut() {
            self.path.truncate(*path_bytes);
            match step(old, new) {
                PairStep::End => drop(self.stack.pop()),
                PairStep::Skip => drop((old.next(), new.next())),
                PairStep::Open { old: open_old, new: open_new } => {
                    for (cursor, opens) in [(old, open_old), (new, open_new)] {
                        if opens && let Some(TreeItem::Node(node)) = cursor.next() {
                            self.job.check()?;
                            cursor
                                .open(self.job.store, node)
                                .map_err(|error| DiffError::tree(&self.path, error))?;
                        }
                    }
                }
                PairStep::Take { old: take_old, new: take_new } => {
                    let old = if take_old { entry_of(old) } else { None };
                    let new = if take_new { entry_of(new) } else { None };
                    if old == new {
                        continue;
                    }
                    if let Some(change) = self.entry(old, new)? {
                        return Ok(Some(change));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Compares the entries that have the same name on both sides.
    fn entry(
        &mut self,
        old: Option<Entry>,
        new: Option<Entry>,
    ) -> Result<Option<Change>, DiffError> {
        let name = old.as_ref().or(new.as_ref()).map(|entry| entry.name.as_bytes());
        push_name(&mut self.path, name.unwrap_or_default());
        if !self.job.limit.reaches(&self.path) {
            return Ok(None);
        }
        let folder = |entry: &Option<Entry>| match entry {
            Some(Entry { kind: EntryKind::Folder { id }, .. }) => Some(*id),
            _ => None,
        };
        self.enter(folder(&old), folder(&new))?;
        let path = || self.path.clone();
        Ok(match (old, new) {
            _ if !self.job.limit.includes(&self.path) => None,
            (Some(old), Some(new)) => self.job.compared(path, old.into(), new.into()),
            (Some(old), None) => {
                Some(Change::deleted(path(), ChangeSide::from(old), self.are_ignored))
            }
            (None, Some(new)) => Some(Change::added(path(), ChangeSide::from(new))),
            (None, None) => None,
        })
    }
}
