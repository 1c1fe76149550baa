//! Walks the entries of one snapshot that differ from those of all given other snapshots.
//!
//! The walk does not read a folder or leaf that another snapshot has at the same path. It holds one
//! leaf of each snapshot for each level of folders. It keeps its own stack, so a deep tree cannot
//! overflow the thread's stack.

use std::collections::HashSet;

use crate::{
    base::{
        id::{CommitId, TreeId},
        observe::Observer,
    },
    format::tree::{Entry, EntryKind},
    repo::{past::PastError, path::push_name},
    store::{Leaf, Store, StoreError, TreeListing, check_depth},
};

/// One step of the walk.
#[derive(Debug)]
pub enum ChangedItem {
    /// Nodes of a folder that no other snapshot has in the same folder.
    Nodes(Vec<TreeId>),
    /// An entry whose kind or content no other snapshot has at this path. The entries of a folder
    /// follow it.
    Entry(Entry, OthersHave),
}

/// How the other snapshots differ from an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OthersHave {
    /// No other snapshot has an entry of this name.
    Nothing,
    /// Other snapshots have different entries of this name.
    Different,
}

/// Iterates over the entries that differ; a folder comes before its entries.
pub struct Changed<'a> {
    store: &'a Store,
    observer: &'a dyn Observer,
    commit: CommitId,
    path: Vec<u8>,
    stack: Vec<ChangedFolder>,
    /// The folder to enter next, with the folders of the other snapshots at the same path.
    next: Option<(TreeId, Vec<TreeId>)>,
}

/// A folder on the stack of the walk.
struct ChangedFolder {
    own: EntryReader,
    others: Vec<EntryReader>,
    path_bytes: usize,
}

impl<'a> Changed<'a> {
    /// Starts a walk over what the root `tree` of `commit` has and none of `others` has.
    pub fn new(
        store: &'a Store,
        commit: CommitId,
        tree: TreeId,
        others: &[TreeId],
        observer: &'a dyn Observer,
    ) -> Self {
        let next = (!others.contains(&tree)).then(|| (tree, others.to_vec()));
        Self { store, observer, commit, path: Vec::new(), stack: Vec::new(), next }
    }

    /// Returns the path of the last entry.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns the folder that the walk enters next, with the folders of the other snapshots at the
    /// same path.
    pub fn ahead(&self) -> Option<&(TreeId, Vec<TreeId>)> {
        self.next.as_ref()
    }

    /// Returns the number of folders above the last entry.
    pub fn depth(&self) -> usize {
        self.stack.len()
    }

    /// Skips the entries of the last folder.
    pub fn skip(&mut self) {
        self.next = None;
    }

    /// Returns the next difference; `None` at the end.
    ///
    /// # Errors
    /// [`PastError`] names the folder that cannot be read.
    pub fn step(&mut self) -> Result<Option<ChangedItem>, PastError> {
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
            push_name(&mut self.path, entry.name.as_bytes());
            if let EntryKind::Folder { id } = entry.kind {
                check_depth(self.stack.len(), id)
                    .map_err(PastError::at(&self.path, self.commit))?;
                self.next = Some((id, others.folders));
            }
            return Ok(Some(ChangedItem::Entry(entry, others.others)));
        }
        Ok(None)
    }

    fn enter(&mut self, tree: TreeId, others: &[TreeId]) -> Result<ChangedItem, StoreError> {
        let own = TreeListing::of(self.store, tree)?;
        let mut listings = Vec::with_capacity(others.len());
        for other in others {
            listings.push(TreeListing::of(self.store, *other)?);
        }
        let in_others: HashSet<TreeId> = listings.iter().flat_map(ids).collect();
        let in_own: HashSet<TreeId> = ids(&own).collect();
        let nodes = ids(&own).filter(|id| !in_others.contains(id)).collect();
        self.stack.push(ChangedFolder {
            own: EntryReader::new(own, &in_others),
            others: listings
                .into_iter()
                .map(|listing| EntryReader::new(listing, &in_own))
                .collect(),
            path_bytes: self.path.len(),
        });
        Ok(ChangedItem::Nodes(nodes))
    }
}

fn ids(listing: &TreeListing) -> impl Iterator<Item = TreeId> {
    listing.nodes().iter().copied().chain(listing.leaves().iter().map(Leaf::id))
}

/// How the other snapshots differ from an entry that none of them has, and their folders of its
/// name.
struct Comparison {
    others: OthersHave,
    folders: Vec<TreeId>,
}

impl ChangedFolder {
    /// Compares `entry` with the entries of its name in the other snapshots. Returns `None` if one
    /// is equal.
    fn compare(&mut self, store: &Store, entry: &Entry) -> Result<Option<Comparison>, StoreError> {
        let mut comparison = Comparison { others: OthersHave::Nothing, folders: Vec::new() };
        let mut is_same = false;
        for other in &mut self.others {
            let Some(other) = other.named(store, entry)? else { continue };
            comparison.others = OthersHave::Different;
            is_same |= other.kind == entry.kind;
            if let EntryKind::Folder { id } = other.kind {
                comparison.folders.push(id);
            }
        }
        Ok((!is_same).then_some(comparison))
    }
}

/// Reads the entries of a folder, except leaves that the other side also has.
struct EntryReader {
    leaves: std::vec::IntoIter<Leaf>,
    entries: std::vec::IntoIter<Entry>,
    ahead: Option<Entry>,
}

impl EntryReader {
    fn new(listing: TreeListing, without: &HashSet<TreeId>) -> Self {
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

    /// Returns the entry with the name of `wanted`, and skips all entries before it.
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
