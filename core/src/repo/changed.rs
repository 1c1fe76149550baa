//! What one snapshot has that some others have not: a walk through the trees
//! that differ, and through nothing else.
//!
//! A folder or leaf that one of the others has in the same place is not read.
//! What is held is one leaf of each side for each level of folders, and the
//! walk keeps its own stack, so a deep tree cannot overflow that of the thread.

use std::collections::HashSet;

use crate::{
    base::{
        id::{CommitId, TreeId},
        limits,
        observe::Observer,
    },
    format::tree::{Entry, Kind},
    repo::past::{PastError, shown},
    store::{Leaf, Listing, Store, StoreError},
};

/// What a walk comes upon.
#[derive(Debug)]
pub enum Met {
    /// Nodes of a folder that are not in the same folder of any other.
    Nodes(Vec<TreeId>),
    /// An entry whose kind or content is that of none of the others here. Of
    /// a folder, what is in it follows.
    Entry(Entry, Others),
}

/// What the others have in the place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// Nothing: the name is new.
    Nothing,
    /// Something else.
    Different,
}

/// Walks through what is different, folder before content.
pub struct Changed<'a> {
    store: &'a Store,
    observer: &'a dyn Observer,
    commit: CommitId,
    path: Vec<u8>,
    stack: Vec<Frame>,
    /// A folder to be entered, with those of the others.
    next: Option<(TreeId, Vec<TreeId>)>,
}

/// A folder on the way down.
struct Frame {
    own: Reader,
    others: Vec<Reader>,
    path_bytes: usize,
}

impl<'a> Changed<'a> {
    /// What is in the root `tree` of `commit`, and in none of `others`.
    pub fn new(
        store: &'a Store,
        (commit, tree): (CommitId, TreeId),
        others: &[TreeId],
        observer: &'a dyn Observer,
    ) -> Self {
        let next = (!others.contains(&tree)).then(|| (tree, others.to_vec()));
        Self { store, observer, commit, path: Vec::new(), stack: Vec::new(), next }
    }

    /// Path of the entry that came last.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// The folder that came last and will be entered next, with those of the others.
    pub fn ahead(&self) -> Option<&(TreeId, Vec<TreeId>)> {
        self.next.as_ref()
    }

    /// How many folders the entry that came last lies in.
    pub fn depth(&self) -> usize {
        self.stack.len()
    }

    /// Does not look into the folder that came last.
    pub fn skip(&mut self) {
        self.next = None;
    }

    /// The next thing that is different; `None` at the end.
    ///
    /// # Errors
    /// [`PastError`] names the folder that cannot be read.
    pub fn step(&mut self) -> Result<Option<Met>, PastError> {
        if self.observer.cancelled() {
            return Err(PastError::Interrupted);
        }
        if let Some((tree, others)) = self.next.take() {
            let nodes = self.enter(tree, &others);
            return nodes.map(Some).map_err(PastError::at(&self.path, self.commit));
        }
        while let Some(frame) = self.stack.last_mut() {
            self.path.truncate(frame.path_bytes);
            let entry = frame.own.next(self.store);
            let Some(entry) = entry.map_err(PastError::at(&self.path, self.commit))? else {
                self.stack.pop();
                continue;
            };
            let found = frame.compare(self.store, &entry);
            let Some(others) = found.map_err(PastError::at(&self.path, self.commit))? else {
                continue;
            };
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(entry.name.as_bytes());
            if let Kind::Folder { id } = entry.kind {
                if self.stack.len() > limits::DEPTH {
                    let (path, commit) = (shown(&self.path), self.commit);
                    return Err(PastError::TooDeep { path, commit });
                }
                self.next = Some((id, others.folders));
            }
            return Ok(Some(Met::Entry(entry, others.what)));
        }
        Ok(None)
    }

    fn enter(&mut self, tree: TreeId, others: &[TreeId]) -> Result<Met, StoreError> {
        let own = Listing::of(self.store, tree)?;
        let mut listings = Vec::with_capacity(others.len());
        for other in others {
            listings.push(Listing::of(self.store, *other)?);
        }
        let in_others: HashSet<TreeId> = listings.iter().flat_map(ids).collect();
        let in_own: HashSet<TreeId> = ids(&own).collect();
        let nodes = ids(&own).filter(|id| !in_others.contains(id)).collect();
        self.stack.push(Frame {
            own: Reader::new(own, &in_others),
            others: listings.into_iter().map(|listing| Reader::new(listing, &in_own)).collect(),
            path_bytes: self.path.len(),
        });
        Ok(Met::Nodes(nodes))
    }
}

fn ids(listing: &Listing) -> impl Iterator<Item = TreeId> {
    listing.nodes().iter().copied().chain(listing.leaves().iter().map(Leaf::id))
}

/// What the others have of the name of an entry that is in none of them.
struct Here {
    what: Others,
    folders: Vec<TreeId>,
}

impl Frame {
    /// `None` when one of the others has the same entry.
    fn compare(&mut self, store: &Store, entry: &Entry) -> Result<Option<Here>, StoreError> {
        let mut here = Here { what: Others::Nothing, folders: Vec::new() };
        let mut is_same = false;
        for other in &mut self.others {
            let Some(other) = other.named(store, entry)? else { continue };
            here.what = Others::Different;
            is_same |= other.kind == entry.kind;
            if let Kind::Folder { id } = other.kind {
                here.folders.push(id);
            }
        }
        Ok((!is_same).then_some(here))
    }
}

/// The entries of a folder, but for those in leaves that the other side has.
struct Reader {
    leaves: std::vec::IntoIter<Leaf>,
    entries: std::vec::IntoIter<Entry>,
    ahead: Option<Entry>,
}

impl Reader {
    fn new(listing: Listing, without: &HashSet<TreeId>) -> Self {
        let mut leaves = listing.into_leaves();
        leaves.retain(|leaf| !without.contains(&leaf.id()));
        Self { leaves: leaves.into_iter(), entries: Vec::new().into_iter(), ahead: None }
    }

    fn next(&mut self, store: &Store) -> Result<Option<Entry>, StoreError> {
        if let Some(entry) = self.ahead.take() {
            return Ok(Some(entry));
        }
        loop {
            if let Some(entry) = self.entries.next() {
                return Ok(Some(entry));
            }
            let Some(leaf) = self.leaves.next() else { return Ok(None) };
            self.entries = leaf.into_entries(store)?.into_iter();
        }
    }

    /// The entry with the name of `wanted`; those before it are passed over.
    fn named(&mut self, store: &Store, wanted: &Entry) -> Result<Option<Entry>, StoreError> {
        while let Some(entry) = self.next(store)? {
            if entry.name > wanted.name {
                self.ahead = Some(entry);
                break;
            }
            if entry.name == wanted.name {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}
