//! Removes entries from trees.

use std::collections::BTreeSet;

use crate::{
    base::{
        byte_cache::{ByteCache, CacheLimits},
        id::{CommitId, TreeId},
        observe::Observer,
    },
    format::tree::{
        Entry, EntryKind, Totals,
        split::{EncodedFolder, FolderEncoder},
    },
    local::ignore::{IgnoreRules, IgnoreScope},
    ops::{gc::Live, removal_error::RemovalError},
    repo::{past::PastError, path::push_name},
    store::{ObjectWriter, Prefetch, StoreError, TreeCursor, check_depth},
};

/// Memory for the results of folders: about 400,000 of them. A folder of another result is read
/// again.
const KNOWN: CacheLimits = CacheLimits::of_small_entries(64 << 20);

/// A hash of a path and the tree at this path.
type FolderKey = [u8; 32];

/// Makes trees without the entries that patterns match.
pub(super) struct TreeFilter<'w, 's> {
    writer: &'w ObjectWriter<'s>,
    rules: IgnoreRules,
    observer: &'s dyn Observer,
    /// The results of the last folders. Most folders of a commit are those of its parent.
    known: ByteCache<FolderKey, EncodedFolder>,
    /// What was removed from any tree.
    pub(super) removed: Removed<'s>,
}

/// What a filter has removed.
pub(super) struct Removed<'s> {
    /// The paths. A folder stands for everything below it.
    pub(super) paths: BTreeSet<Vec<u8>>,
    /// The folders and the contents of files at these paths, without what is below the folders.
    pub(super) objects: Live<'s>,
    /// True if a folder was removed.
    pub(super) has_folders: bool,
}

impl Removed<'_> {
    fn add(&mut self, path: &[u8], kind: &EntryKind) -> Result<(), StoreError> {
        if !self.paths.contains(path) {
            self.paths.insert(path.to_owned());
        }
        let id = match kind {
            EntryKind::Folder { id } => id.object(),
            EntryKind::File { id, .. } => id.object(),
            _ => return Ok(()),
        };
        self.has_folders |= matches!(kind, EntryKind::Folder { .. });
        self.objects.mark(&id).map(drop)
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

impl<'w, 's> TreeFilter<'w, 's> {
    /// Makes a filter that removes what `rules` exclude.
    pub(super) fn new(
        writer: &'w ObjectWriter<'s>,
        rules: IgnoreRules,
        observer: &'s dyn Observer,
    ) -> Self {
        let objects = Live::new(writer.store(), observer);
        let removed = Removed { paths: BTreeSet::new(), objects, has_folders: false };
        Self { writer, rules, observer, known: ByteCache::new(KNOWN), removed }
    }

    fn key(path: &[u8], tree: TreeId) -> FolderKey {
        let mut hasher = blake3::Hasher::new();
        hasher.update(tree.as_bytes());
        hasher.update(path);
        *hasher.finalize().as_bytes()
    }

    fn keep(&self, path: &[u8], tree: TreeId, folder: EncodedFolder) {
        let bytes = size_of::<FolderKey>() + size_of::<EncodedFolder>();
        self.known.insert(Self::key(path, tree), folder, bytes);
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
        if let Some(known) = self.known.get(&Self::key(&path, root)) {
            return Ok(known);
        }
        let mut open = vec![OpenFolder::new(root, None, 0)];
        let writer = self.writer;
        let mut put = |id, bytes: Vec<u8>| writer.add_tree(id, &bytes);
        while let Some(folder) = open.last_mut() {
            self.observer.check()?;
            let next = folder.cursor.next_entry(store).map_err(PastError::at(&path, commit))?;
            let Some(mut entry) = next else {
                let Some(done) = open.pop() else { break };
                let encoded = done.encoder.finish::<StoreError>(&mut put)?;
                let id = if done.is_changed { encoded.id } else { done.tree };
                let encoded = EncodedFolder { id, ..encoded };
                self.keep(&path, done.tree, encoded);
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
            push_name(&mut path, entry.name.as_bytes());
            let EntryKind::Folder { id } = entry.kind else {
                match self.rules.excludes_path(&IgnoreScope::default(), &path, false) {
                    true => {
                        self.removed.add(&path, &entry.kind)?;
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
                self.removed.add(&path, &entry.kind)?;
                folder.is_changed = true;
                path.truncate(parent_bytes);
            } else if let Some(known) = self.known.get(&Self::key(&path, id)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::{id::BlobId, name::EntryName, observe::Silent},
        disk::Disk,
        format::tree::Metadata,
        local::ignore::Options,
        store::Store,
    };

    fn entry(name: &str, kind: EntryKind) -> Entry {
        let name = EntryName::new(name.as_bytes()).unwrap();
        Entry { name, kind, metadata: Metadata { mode: 0o644, ..Metadata::default() } }
    }

    fn folder(writer: &ObjectWriter<'_>, entries: Vec<(Entry, Totals)>) -> EncodedFolder {
        let mut encoder = FolderEncoder::new();
        let mut put = |id, bytes: Vec<u8>| writer.add_tree(id, &bytes);
        for (entry, below) in entries {
            encoder.push::<StoreError>(entry, &below, &mut put).unwrap();
        }
        encoder.finish::<StoreError>(&mut put).unwrap()
    }

    /// Stores a root folder with the folders `a`, `b` and `c` of these files.
    fn root(writer: &ObjectWriter<'_>, files: &[&str]) -> EncodedFolder {
        let file = |name: &&str| {
            let id = BlobId::of(name.as_bytes());
            writer.add_blob(0, id, name.as_bytes()).unwrap();
            (entry(name, EntryKind::File { size: 1, id: id.into() }), Totals::default())
        };
        let below = folder(writer, files.iter().map(file).collect());
        let folders = ["a", "b", "c"]
            .map(|name| (entry(name, EntryKind::Folder { id: below.id }), below.totals));
        folder(writer, folders.into())
    }

    /// Memory for results is limited, so any folder may be read again.
    #[test]
    fn folders_have_the_same_results_if_none_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        Store::create(dir.path(), &Disk::scratch()).unwrap();
        let store = Store::open(dir.path(), Disk::scratch(), &Silent).unwrap();
        let writer = ObjectWriter::new(&store, 3, 1).unwrap();
        let olds = [["public", "secret"], ["other", "secret"]].map(|files| root(&writer, &files));
        let without = ["public", "other"].map(|file| root(&writer, &[file]));
        writer.finish().unwrap();
        for total_bytes in [KNOWN.total_bytes, 0] {
            let writer = ObjectWriter::new(&store, 3, 1).unwrap();
            let options = Options { patterns: vec!["secret".to_owned()], ..Options::default() };
            let rules = IgnoreRules::new(options).unwrap();
            let known = ByteCache::new(CacheLimits { total_bytes, entry_bytes: total_bytes });
            let mut filter = TreeFilter { known, ..TreeFilter::new(&writer, rules, &Silent) };
            for (old, new) in olds.iter().zip(&without).chain(olds.iter().zip(&without)) {
                let commit = CommitId::from_bytes([1; 32]);
                assert_eq!(filter.filter(old.id, commit).unwrap(), *new);
            }
            let removed = filter.removed;
            let paths = ["a/secret", "b/secret", "c/secret"].map(|path| path.as_bytes().to_vec());
            assert_eq!((removed.paths, removed.has_folders), (paths.into(), false));
            assert!(removed.objects.contains(&BlobId::of(b"secret").object()).unwrap());
            assert!(!removed.objects.contains(&BlobId::of(b"other").object()).unwrap());
        }
    }
}
