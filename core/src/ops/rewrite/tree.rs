//! Removes entries from trees.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::{
    base::{
        id::{CommitId, ObjectId, TreeId},
        observe::Observer,
    },
    format::tree::{
        Entry, EntryKind, Totals,
        split::{EncodedFolder, FolderEncoder},
    },
    local::ignore::{IgnoreRules, IgnoreScope},
    ops::removal_error::RemovalError,
    repo::past::PastError,
    store::{ObjectWriter, Prefetch, StoreError, TreeCursor, check_depth},
};

/// Makes trees without the entries that patterns match.
pub(super) struct TreeFilter<'a> {
    writer: &'a ObjectWriter<'a>,
    rules: IgnoreRules,
    observer: &'a dyn Observer,
    /// The folders so far, by path and tree. Most folders of a commit are those of its parent.
    known: HashMap<(Vec<u8>, TreeId), EncodedFolder>,
    removed: Removed,
}

/// What a filter has removed.
#[derive(Debug, Default)]
pub(super) struct Removed {
    /// The paths. A folder stands for everything below it.
    pub(super) paths: BTreeSet<Vec<u8>>,
    /// The folders at these paths.
    pub(super) folders: HashSet<TreeId>,
    /// The contents of files at these paths.
    pub(super) contents: HashSet<ObjectId>,
}

impl Removed {
    fn add(&mut self, path: &[u8], kind: &EntryKind) {
        self.paths.insert(path.to_owned());
        match kind {
            EntryKind::Folder { id } => drop(self.folders.insert(*id)),
            EntryKind::File { id, .. } => drop(self.contents.insert(id.object())),
            _ => {}
        }
    }
}

/// A folder of which some entries are read.
struct OpenFolder {
    tree: TreeId,
    cursor: TreeCursor,
    encoder: FolderEncoder,
    /// The entry of the folder in its parent; `None` for the root.
    entry: Option<Entry>,
    /// Length of the parent's path in bytes.
    parent_bytes: usize,
    is_changed: bool,
}

impl OpenFolder {
    fn new(tree: TreeId, entry: Option<Entry>, parent_bytes: usize) -> Self {
        let (cursor, encoder) = (TreeCursor::new(tree, Prefetch::Nodes), FolderEncoder::new());
        Self { tree, cursor, encoder, entry, parent_bytes, is_changed: false }
    }
}

impl<'a> TreeFilter<'a> {
    /// Makes a filter that removes what `rules` exclude.
    pub(super) fn new(
        writer: &'a ObjectWriter<'a>,
        rules: IgnoreRules,
        observer: &'a dyn Observer,
    ) -> Self {
        Self { writer, rules, observer, known: HashMap::new(), removed: Removed::default() }
    }

    /// Returns what was removed from any tree.
    pub(super) fn into_removed(self) -> Removed {
        self.removed
    }

    /// Returns the tree `root` of `commit` without the excluded entries, and stores it.
    ///
    /// # Errors
    /// [`RemovalError::Past`] names the folder that cannot be read; [`RemovalError::Blocked`].
    pub(super) fn filter(
        &mut self,
        root: TreeId,
        commit: CommitId,
    ) -> Result<EncodedFolder, RemovalError> {
        let store = self.writer.store();
        let mut path: Vec<u8> = Vec::new();
        if let Some(known) = self.known.get(&(path.clone(), root)) {
            return Ok(*known);
        }
        let mut open = vec![OpenFolder::new(root, None, 0)];
        let mut put = |id, bytes: Vec<u8>| self.writer.add_tree(id, &bytes);
        while let Some(folder) = open.last_mut() {
            self.observer.check()?;
            let next = folder.cursor.next_entry(store).map_err(PastError::at(&path, commit))?;
            let Some(mut entry) = next else {
                let Some(done) = open.pop() else { break };
                let encoded = done.encoder.finish::<StoreError>(&mut put)?;
                let id = if done.is_changed { encoded.id } else { done.tree };
                let encoded = EncodedFolder { id, ..encoded };
                self.known.insert((path.clone(), done.tree), encoded);
                path.truncate(done.parent_bytes);
                let (Some(mut entry), Some(parent)) = (done.entry, open.last_mut()) else {
                    return Ok(encoded);
                };
                parent.is_changed |= done.is_changed;
                entry.kind = EntryKind::Folder { id };
                parent.encoder.push::<StoreError>(entry, &encoded.totals, &mut put)?;
                continue;
            };
            let parent_bytes = path.len();
            if parent_bytes > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(entry.name.as_bytes());
            let EntryKind::Folder { id } = entry.kind else {
                match self.rules.excludes_path(&IgnoreScope::default(), &path, false) {
                    true => {
                        self.removed.add(&path, &entry.kind);
                        folder.is_changed = true;
                    }
                    false => {
                        folder.encoder.push::<StoreError>(entry, &Totals::default(), &mut put)?
                    }
                }
                path.truncate(parent_bytes);
                continue;
            };
            if self.rules.excludes_path(&IgnoreScope::default(), &path, true) {
                self.removed.add(&path, &entry.kind);
                folder.is_changed = true;
                path.truncate(parent_bytes);
            } else if let Some(known) = self.known.get(&(path.clone(), id)) {
                folder.is_changed |= known.id != id;
                entry.kind = EntryKind::Folder { id: known.id };
                folder.encoder.push::<StoreError>(entry, &known.totals, &mut put)?;
                path.truncate(parent_bytes);
            } else {
                check_depth(open.len(), id).map_err(PastError::at(&path, commit))?;
                open.push(OpenFolder::new(id, Some(entry), parent_bytes));
            }
        }
        unreachable!("the root folder ends the loop")
    }
}
