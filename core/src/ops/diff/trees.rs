//! Walking two trees of a store side by side.
//!
//! Equal trees are not opened, and of a directory that is split into nodes
//! neither are equal nodes. What is held is the rest of one node for each
//! level of folders, and of nodes in split ones, on each side.

use std::cmp::Ordering;

use crate::{
    base::{id::TreeId, limits, name::EntryName},
    format::tree::{Child, Entry, Kind, Node},
    ops::diff::{Change, DiffError, Item, job::Job},
};

/// What comes next in a directory.
enum Head<'c> {
    Entry(&'c Entry),
    /// A node that has not been opened, and its level.
    Node(&'c Child, u8),
    End,
}

/// The rest of an opened node.
#[derive(Debug)]
enum Rest {
    Entries(std::iter::Peekable<std::vec::IntoIter<Entry>>),
    Nodes(std::iter::Peekable<std::vec::IntoIter<Child>>, u8),
}

/// A directory on the way through; `None` of it stands for an empty one.
#[derive(Debug, Default)]
struct Cursor {
    open: Vec<Rest>,
    last: Option<EntryName>,
}

impl Cursor {
    fn of(job: &Job<'_>, id: Option<TreeId>, path: &[u8]) -> Result<Self, DiffError> {
        let mut cursor = Self::default();
        if let Some(id) = id {
            let node = job.tree(&id, path)?;
            cursor.enter(node, path)?;
        }
        Ok(cursor)
    }

    fn enter(&mut self, node: Node, path: &[u8]) -> Result<(), DiffError> {
        self.open.push(match node {
            Node::Leaf { entries, .. } => {
                if let (Some(first), Some(last)) = (entries.first(), entries.last()) {
                    let before = self.last.replace(last.name.clone());
                    if before.is_some_and(|before| before >= first.name) {
                        return Err(DiffError::levels(path));
                    }
                }
                Rest::Entries(entries.into_iter().peekable())
            }
            Node::Inner { level, children, .. } => {
                Rest::Nodes(children.into_iter().peekable(), level - 1)
            }
        });
        Ok(())
    }

    fn head(&mut self) -> Head<'_> {
        while self.open.last_mut().is_some_and(Rest::is_done) {
            self.open.pop();
        }
        match self.open.last_mut() {
            None => Head::End,
            Some(Rest::Entries(entries)) => entries.peek().map_or(Head::End, Head::Entry),
            Some(Rest::Nodes(nodes, level)) => {
                nodes.peek().map_or(Head::End, |child| Head::Node(child, *level))
            }
        }
    }

    /// Takes the entry that [`Cursor::head`] has shown.
    fn take(&mut self) -> Option<Entry> {
        match self.open.last_mut() {
            Some(Rest::Entries(entries)) => entries.next(),
            _ => None,
        }
    }

    /// Passes over the node that [`Cursor::head`] has shown.
    fn skip(&mut self) -> Option<(Child, u8)> {
        match self.open.last_mut() {
            Some(Rest::Nodes(nodes, level)) => nodes.next().map(|child| (child, *level)),
            _ => None,
        }
    }

    /// Opens the node that [`Cursor::head`] has shown.
    fn open(&mut self, job: &Job<'_>, path: &[u8]) -> Result<(), DiffError> {
        let Some((child, level)) = self.skip() else { return Ok(()) };
        let node = job.tree(&child.id, path)?;
        if node.level() != level || node.first() != Some(&child.first) {
            return Err(DiffError::levels(path));
        }
        self.enter(node, path)
    }
}

impl Rest {
    fn is_done(&mut self) -> bool {
        match self {
            Self::Entries(entries) => entries.peek().is_none(),
            Self::Nodes(nodes, _) => nodes.peek().is_none(),
        }
    }
}

/// What to do about two heads.
enum Step {
    Skip,
    Open { old: bool, new: bool },
    Take { old: bool, new: bool },
    End,
}

fn step(old: &mut Cursor, new: &mut Cursor) -> Step {
    const OLD: (bool, bool) = (true, false);
    const NEW: (bool, bool) = (false, true);
    let of = |order: Ordering| match order {
        Ordering::Less => OLD,
        Ordering::Greater => NEW,
        Ordering::Equal => (true, true),
    };
    let (take, (old, new)) = match (old.head(), new.head()) {
        (Head::End, Head::End) => return Step::End,
        (Head::Node(a, _), Head::Node(b, _)) if a.id == b.id => return Step::Skip,
        // The one that starts first; of two that start alike the larger one,
        // since the smaller may be the first in it.
        (Head::Node(a, level), Head::Node(b, other)) => {
            (false, of(a.first.cmp(&b.first).then(other.cmp(&level))))
        }
        // Nothing in a node comes before its first name.
        (Head::Node(node, _), Head::Entry(entry)) => match entry.name < node.first {
            true => (true, NEW),
            false => (false, OLD),
        },
        (Head::Entry(entry), Head::Node(node, _)) => match entry.name < node.first {
            true => (true, OLD),
            false => (false, NEW),
        },
        (Head::Node(..), Head::End) => (false, OLD),
        (Head::End, Head::Node(..)) => (false, NEW),
        (Head::Entry(_), Head::End) => (true, OLD),
        (Head::End, Head::Entry(_)) => (true, NEW),
        (Head::Entry(a), Head::Entry(b)) => (true, of(a.name.cmp(&b.name))),
    };
    if take { Step::Take { old, new } } else { Step::Open { old, new } }
}

struct Frame {
    old: Cursor,
    new: Cursor,
    /// Length of the folder's own path.
    path_bytes: usize,
}

/// The changes from one tree to another, in order: each folder's by name, a
/// folder before what is in it.
pub(super) struct Trees<'a> {
    job: &'a Job<'a>,
    path: Vec<u8>,
    stack: Vec<Frame>,
}

impl<'a> Trees<'a> {
    /// Compares two folders whose own path is `path`; `None` is an empty one.
    pub(super) fn new(
        job: &'a Job<'a>,
        path: Vec<u8>,
        old: Option<TreeId>,
        new: Option<TreeId>,
    ) -> Result<Self, DiffError> {
        let mut trees = Self { job, path, stack: Vec::new() };
        trees.enter(old, new)?;
        Ok(trees)
    }

    fn enter(&mut self, old: Option<TreeId>, new: Option<TreeId>) -> Result<(), DiffError> {
        if old == new {
            return Ok(());
        }
        if self.stack.len() > limits::DEPTH {
            let path = String::from_utf8_lossy(&self.path).into_owned();
            return Err(DiffError::TooDeep { path });
        }
        let old = Cursor::of(self.job, old, &self.path)?;
        let new = Cursor::of(self.job, new, &self.path)?;
        self.stack.push(Frame { old, new, path_bytes: self.path.len() });
        Ok(())
    }

    /// The next change.
    pub(super) fn next(&mut self) -> Result<Option<Change>, DiffError> {
        while let Some(Frame { old, new, path_bytes }) = self.stack.last_mut() {
            self.path.truncate(*path_bytes);
            match step(old, new) {
                Step::End => drop(self.stack.pop()),
                Step::Skip => drop((old.skip(), new.skip())),
                Step::Open { old: open_old, new: open_new } => {
                    if open_old {
                        old.open(self.job, &self.path)?;
                    }
                    if open_new {
                        new.open(self.job, &self.path)?;
                    }
                }
                Step::Take { old: take_old, new: take_new } => {
                    let old = if take_old { old.take() } else { None };
                    let new = if take_new { new.take() } else { None };
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

    /// Compares what has one name on both sides.
    fn entry(
        &mut self,
        old: Option<Entry>,
        new: Option<Entry>,
    ) -> Result<Option<Change>, DiffError> {
        let name = old.as_ref().or(new.as_ref()).map(|entry| entry.name.as_bytes());
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name.unwrap_or_default());
        if !self.job.limit.reaches(&self.path) {
            return Ok(None);
        }
        let folder = |entry: &Option<Entry>| match entry {
            Some(Entry { kind: Kind::Folder { id }, .. }) => Some(*id),
            _ => None,
        };
        self.enter(folder(&old), folder(&new))?;
        let path = || self.path.clone();
        Ok(match (old, new) {
            _ if !self.job.limit.includes(&self.path) => None,
            (Some(old), Some(new)) => self.job.compared(path, old.into(), new.into()),
            (Some(old), None) => Some(Change::removed(path(), Item::from(old))),
            (None, Some(new)) => Some(Change::added(path(), Item::from(new))),
            (None, None) => None,
        })
    }
}
