//! Reads the content of a store without changing it.
//!
//! The store is opened as a copy that shares the packs of the original. Opening a store may repair
//! its index, and the next operation of a sequence must find the store as the program left it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    path::Path,
    rc::Rc,
};

use fs_err as fs;
use snap_core::{
    base::{
        id::{BlobId, CommitId, ContentId, TreeId},
        observe::Silent,
    },
    disk::Disk,
    format::tree::{Entry, EntryKind as StoredKind, Node as Stored},
    ops::cat,
    repo::{Head, Repo, ref_name::RefKind},
};

use crate::sequences::{
    files::{Kind, Node, Tree, hash_of, stored_attribute},
    model::Id,
};

/// Selects whether a copy has the index of the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Index {
    /// It has the index.
    Kept,
    /// The library rebuilds the index from the packs. Data that only the kept index can find counts
    /// as lost, because the index may be deleted at any time.
    MadeAgain,
}

/// A copy of a store for reading.
pub(crate) struct Reader {
    repo: Repo,
    folders: HashMap<TreeId, Rc<Part>>,
    contents: HashMap<ContentId, Option<BlobId>>,
    _copy: tempfile::TempDir,
}

/// A commit, or the readable part of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    /// The entries that could be read.
    pub(crate) tree: Tree,
    /// The paths that could not be read; "" for the root.
    pub(crate) unreadable: BTreeSet<String>,
}

/// Folders of packs, which are only read.
const PACKS: [&str; 2] = ["objects", "partial"];

/// Folders that a reader does not need.
const UNUSED: [&str; 2] = ["cache", "tmp"];

/// The list of packs that this machine has hashed. It holds for hard links, too.
const PROVEN: &str = "cache/proven";

impl Reader {
    /// Opens the store in `dir`; an error is a message.
    pub(crate) fn open(dir: &Path) -> Result<Self, String> {
        Self::open_with(dir, Index::Kept)
    }

    /// Opens the store in `dir`, with or without its index.
    pub(crate) fn open_with(dir: &Path, index: Index) -> Result<Self, String> {
        let copy = copy(dir, index).map_err(|error| error.to_string())?;
        let repo = Repo::open(copy.path(), Disk::default(), &Silent);
        let repo = repo.map_err(|error| format!("the store does not open: {error}"))?;
        Ok(Self { repo, folders: HashMap::new(), contents: HashMap::new(), _copy: copy })
    }

    /// Returns the tips of the branches.
    pub(crate) fn tips(&self) -> Result<BTreeMap<String, Id>, String> {
        let listed = self.repo.refs().list(RefKind::Branch);
        let listed = listed.map_err(|error| format!("branches cannot be listed: {error}"))?;
        Ok(listed.into_iter().map(|(name, id)| (name.short().to_owned(), id.to_string())).collect())
    }

    /// Returns the current branch.
    pub(crate) fn branch(&self) -> Option<String> {
        match self.repo.refs().head() {
            Ok(Head::Branch(name)) => Some(name.short().to_owned()),
            _ => None,
        }
    }

    /// Returns the parents and the time of a commit in seconds; `None` if the commit cannot be
    /// read.
    pub(crate) fn parents_and_time(&self, id: &Id) -> Option<(Vec<Id>, i64)> {
        let commit = self.repo.store().commit(&parse(id)).ok()?;
        Some((commit.parents.iter().map(ToString::to_string).collect(), commit.time.secs))
    }

    /// Returns the parents and the message of a commit; `None` if the commit cannot be read.
    pub(crate) fn parents_and_message(&self, id: &Id) -> Option<(Vec<Id>, String)> {
        let commit = self.repo.store().commit(&parse(id)).ok()?;
        let message = commit.message.clone();
        Some((commit.parents.iter().map(ToString::to_string).collect(), message))
    }

    /// Returns the paths of a commit that cannot be read; `None` means the commit itself.
    pub(crate) fn unreadable(&mut self, id: &Id) -> BTreeSet<Option<String>> {
        match self.commit(id) {
            None => [None].into(),
            Some(part) => part.unreadable.iter().cloned().map(Some).collect(),
        }
    }

    /// Returns the content of a commit; `None` if the commit itself cannot be read.
    pub(crate) fn commit(&mut self, id: &Id) -> Option<Rc<Part>> {
        let commit = self.repo.store().commit(&parse(id)).ok()?;
        Some(self.folder(commit.tree))
    }

    fn folder(&mut self, id: TreeId) -> Rc<Part> {
        if let Some(part) = self.folders.get(&id) {
            return part.clone();
        }
        let mut part = Part::default();
        match self.repo.store().tree(&id) {
            Err(_) => {
                part.unreadable.insert(String::new());
            }
            Ok(Stored::Leaf { entries, .. }) => {
                entries.iter().for_each(|entry| self.entry(entry, &mut part));
            }
            Ok(Stored::Inner { children, .. }) => {
                for child in children {
                    let below = self.folder(child.id);
                    part.tree.extend(below.tree.clone());
                    part.unreadable.extend(below.unreadable.iter().cloned());
                }
            }
        }
        let part = Rc::new(part);
        self.folders.insert(id, part.clone());
        part
    }

    fn entry(&mut self, entry: &Entry, part: &mut Part) {
        let name = String::from_utf8_lossy(entry.name.as_bytes()).into_owned();
        let time = entry.metadata.mtime.map_or((0, 0), |time| (time.secs, i64::from(time.nanos)));
        let mut node = Node {
            kind: Kind::Folder,
            mode: u32::from(entry.metadata.mode),
            mtime: time,
            attribute: stored_attribute(&entry.metadata),
        };
        match &entry.kind {
            StoredKind::Folder { id } => {
                node.mtime = (0, 0);
                let below = self.folder(*id);
                let join = |path: &String| match path.as_str() {
                    "" => name.clone(),
                    path => format!("{name}/{path}"),
                };
                part.tree.extend(below.tree.iter().map(|(path, node)| (join(path), node.clone())));
                part.unreadable.extend(below.unreadable.iter().map(join));
            }
            StoredKind::File { size, id } => {
                let hash = self.read(*id);
                node.kind = Kind::File(*size, hash.unwrap_or_else(|| hash_of(*id)));
                if hash.is_none() {
                    part.unreadable.insert(name.clone());
                }
            }
            StoredKind::Symlink { target } => {
                node.mode = 0;
                node.kind = Kind::Symlink(String::from_utf8_lossy(target).into_owned());
            }
            other => panic!("the test makes no {}", other.noun()),
        }
        part.tree.insert(name, node);
    }

    /// Reads a content and returns its hash, or `None` if it cannot be read.
    fn read(&mut self, id: ContentId) -> Option<BlobId> {
        let store = self.repo.store();
        let read = || {
            let mut bytes = Vec::new();
            cat::run(store, &id, None, &mut bytes, &Silent).ok().map(|_| BlobId::of(&bytes))
        };
        *self.contents.entry(id).or_insert_with(read)
    }
}

fn parse(id: &Id) -> CommitId {
    id.parse().expect("an id that the program printed")
}

fn copy(dir: &Path, index: Index) -> io::Result<tempfile::TempDir> {
    let copy = match dir.parent() {
        Some(parent) if parent.starts_with("/dev/shm") => tempfile::tempdir_in("/dev/shm")?,
        _ => tempfile::tempdir()?,
    };
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let to = copy.path().join(&name);
        if PACKS.iter().any(|packs| name == *packs) {
            // The library refuses a link to the packs of another store.
            fs::create_dir(&to)?;
            for pack in fs::read_dir(entry.path())? {
                let pack = pack?;
                fs::hard_link(pack.path(), to.join(pack.file_name()))?;
            }
        } else if UNUSED.iter().any(|unused| name == *unused)
            || (index == Index::MadeAgain && name == "index")
        {
            fs::create_dir(to)?;
        } else {
            copy_all(&entry.path(), &to)?;
        }
    }
    if dir.join(PROVEN).exists() {
        fs::copy(dir.join(PROVEN), copy.path().join(PROVEN))?;
    }
    Ok(copy)
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(from)?.is_dir() {
        fs::copy(from, to)?;
        return Ok(());
    }
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy_all(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}
