//! Walks the entries of one snapshot that differ from those of all given other snapshots.
//!
//! The walk does not read a folder that another snapshot has at the same path. It holds one
//! [`TreePair`] for each other snapshot and each level of folders. It keeps its own stack, so a deep
//! tree cannot overflow the thread's stack.

use std::cmp::Ordering;

use crate::{
    base::{
        id::{CommitId, TreeId},
        observe::Observer,
    },
    format::tree::{Entry, EntryKind},
    repo::{past::PastError, path::push_name},
    store::{PairedEntries, Store, StoreError, TreePair, check_depth},
};

/// One step of the walk.
#[derive(Debug)]
pub enum ChangedItem {
    /// The nodes of a folder that the walk has read, after the last entry of the folder. Some of them
    /// may be in other snapshots, too.
    Nodes(Vec<TreeId>),
    /// An entry whose kind or content no other snapshot has at this path. `is_new_name` is true if
    /// no other snapshot has an entry of this name. The entries of a folder follow it.
    Entry { entry: Entry, is_new_name: bool },
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
    /// The folder beside the folder of each other snapshot, or beside an empty folder.
    pairs: Vec<FolderPair>,
    path_bytes: usize,
}

struct FolderPair {
    pair: TreePair,
    /// The entries that were read last, if they come after the present name.
    ahead: Option<PairedEntries>,
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
        self.observer.check()?;
        if let Some((tree, others)) = self.next.take() {
            let sides =
                if others.is_empty() { vec![None] } else { others.into_iter().map(Some).collect() };
            let pairs = sides
                .into_iter()
                .map(|other| FolderPair { pair: TreePair::new(other, Some(tree)), ahead: None });
            let path_bytes = self.path.len();
            self.stack.push(ChangedFolder { pairs: pairs.collect(), path_bytes });
        }
        let Some(folder) = self.stack.last_mut() else { return Ok(None) };
        self.path.truncate(folder.path_bytes);
        let found = folder.next(self.store).map_err(PastError::at(&self.path, self.commit))?;
        let Some(Difference { entry, is_new_name, folders }) = found else {
            let nodes = folder.pairs[0].pair.new_nodes().to_vec();
            self.stack.pop();
            return Ok(Some(ChangedItem::Nodes(nodes)));
        };
        push_name(&mut self.path, entry.name.as_bytes());
        if let EntryKind::Folder { id } = entry.kind {
            check_depth(self.stack.len(), id).map_err(PastError::at(&self.path, self.commit))?;
            self.next = Some((id, folders));
        }
        Ok(Some(ChangedItem::Entry { entry, is_new_name }))
    }
}

/// An entry that no other snapshot has, and the folders of its name in the others.
struct Difference {
    entry: Entry,
    is_new_name: bool,
    folders: Vec<TreeId>,
}

impl ChangedFolder {
    /// Returns the next entry that differs from the entries of its name in all other snapshots.
    fn next(&mut self, store: &Store) -> Result<Option<Difference>, StoreError> {
        let Some((first, rest)) = self.pairs.split_first_mut() else { return Ok(None) };
        'entries: while let Some(PairedEntries { old, new }) = first.next(store)? {
            let Some(entry) = new else { continue };
            let mut others: Vec<EntryKind> = old.into_iter().map(|old| old.kind).collect();
            for pair in &mut *rest {
                match pair.named(store, entry.name.as_bytes())? {
                    Some(entries) => others.extend(entries.old.map(|old| old.kind)),
                    None => continue 'entries,
                }
            }
            if others.contains(&entry.kind) {
                continue;
            }
            let folder = |kind: &EntryKind| match kind {
                EntryKind::Folder { id } => Some(*id),
                _ => None,
            };
            let folders = others.iter().filter_map(folder).collect();
            return Ok(Some(Difference { entry, is_new_name: others.is_empty(), folders }));
        }
        Ok(None)
    }
}

impl FolderPair {
    fn next(&mut self, store: &Store) -> Result<Option<PairedEntries>, StoreError> {
        match self.ahead.take() {
            Some(entries) => Ok(Some(entries)),
            None => self.pair.next(store, &mut |_| true),
        }
    }

    /// Returns the entries of a name if they differ. The names must increase from call to call.
    fn named(&mut self, store: &Store, name: &[u8]) -> Result<Option<PairedEntries>, StoreError> {
        while let Some(entries) = self.next(store)? {
            match entries.name().cmp(name) {
                Ordering::Less => {}
                Ordering::Equal => return Ok(Some(entries)),
                Ordering::Greater => {
                    self.ahead = Some(entries);
                    break;
                }
            }
        }
        Ok(None)
    }
}
