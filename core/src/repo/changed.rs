//! A walk over the entries of one snapshot that differ from some other snapshots.
//!
//! The walk does not read a folder or leaf that one of the others has at the same path. It holds
//! one leaf of each side for each level of folders. It keeps its own stack, so a deep tree cannot
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
    /// Nodes of a folder that the same folder of the others does not have.
    Nodes(Vec<TreeId>),
    /// An entry whose kind or content differs from that of all others at this path. If it is a
    /// folder, its entries follow.
    Entry(Entry, OthersHave),
}

/// How the others differ from an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OthersHave {
    /// The others have no entry of this name: it is new.
    Nothing,
    /// The others have a different entry of this name.
    Different,
}

/// Iterates over the entries that differ; a folder comes before its entries.
pub struct Changed<'a> {
    store: &'a Store,
    observer: &'a dyn Observer,
    commit: CommitId,
    path: Vec<u8>,
    stack: Vec<ChangedFolder>,
    /// The folder to enter next, with the folders of the others at the same path.
    next: Option<(TreeId, Vec<TreeId>)>,
}

/// A folder that the walk is inside of.
struct ChangedFolder {
    own: EntryReader,
    others: Vec<EntryReader>,
    path_bytes: usize,
}

impl<'a> Changed<'a> {
    /// Starts a walk over what the root `tree` of `commit` has and none of `others` has.
    pub fn new(
        store: &'a Store,
        (commit, tree): (CommitId, TreeId),
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

    /// Returns the folder that the walk enters next, with the folders of the others at the same
    /// path.
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

/// How the others differ from an entry that none of them has, and their folders of that name.
struct Comparison {
    others: OthersHave,
    folders: Vec<TreeId>,
}

impl ChangedFolder {
    /// Compares `entry` with the entries of that name. Returns `None` if one of them is equal.
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

/// Reads the entries of a folder, without the leaves that the other side has too.
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
