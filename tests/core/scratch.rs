//! A source folder and a store for tests of the whole core, in memory where the machine
//! has `/dev/shm`.

use std::{
    collections::HashSet,
    io::Read as _,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use snap_core::{
    base::{
        id::{CommitId, ContentId, ObjectId, TreeId},
        observe::Silent,
        time::Time,
    },
    disk::{Disk, FaultInjector},
    format::tree::{EntryKind, Node},
    local::cut::identify_source,
    ops::{
        cat,
        commit::{self, CommitOutcome, CommitSource},
        restore,
    },
    repo::{
        Config, Repo,
        history::{History, HistoryStep},
        ref_name::RefKind,
    },
    store::Store,
};
use snap_testkit::{
    compare::{self, compare},
    trees,
    wait::until,
};

/// Returns the id of a content of any length.
pub(crate) fn content_id(bytes: &[u8]) -> ContentId {
    identify_source(&mut bytes.take(u64::MAX), &|| false).unwrap().0
}

/// The time of the first commit.
pub(crate) const START: Time = Time { secs: 1_800_000_000, nanos: 0 };

/// A source folder and a store, both empty at first.
pub(crate) struct Scratch {
    dir: tempfile::TempDir,
}

/// Creates a temporary folder, in memory if possible.
pub(crate) fn temporary() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    }
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let scratch = Self { dir: temporary() };
        fs_err::create_dir(scratch.source()).unwrap();
        Repo::init(&scratch.store(), &Disk::default(), &Config::default()).unwrap();
        scratch
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.path("source")
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.path("store")
    }

    /// Writes a file of the source, and the folders above it.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.source().join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, content).unwrap();
    }

    pub(crate) fn repo(&self) -> Repo {
        open(&self.store())
    }

    /// Commits the source to the branch of `HEAD`.
    pub(crate) fn commit(&self) -> CommitOutcome {
        commit(&self.repo(), &self.source(), &options())
    }

    /// Commits until no file is read: the stat cache does not keep a file that has just changed.
    pub(crate) fn settle(&self) -> CommitOutcome {
        let mut last = self.commit();
        until("a commit reads no file", || {
            let is_known = last.bytes_read == 0;
            if !is_known {
                last = self.commit();
            }
            is_known
        });
        last
    }

    /// Restores a commit and compares it with the source.
    #[track_caller]
    pub(crate) fn assert_restores(&self, id: CommitId) {
        let target = self.dir.path().join(format!("restored-{id:.12}"));
        assert_restores(&self.repo(), id, &self.source(), &target);
        fs_err::remove_dir_all(target).unwrap();
    }
}

pub(crate) fn open(store: &Path) -> Repo {
    Repo::open(store, Disk::default(), &Silent).unwrap()
}

pub(crate) fn open_gated(store: &Path, gate: Arc<dyn FaultInjector>) -> Repo {
    Repo::open(store, Disk::with_fault_injector(gate), &Silent).unwrap()
}

/// Returns options with fixed author, host and time and a single thread, so that the
/// stored bytes are always the same.
pub(crate) fn options() -> commit::CommitOptions {
    commit::CommitOptions {
        author: "Ann".into(),
        host: "box".into(),
        now: Some(START),
        jobs: Some(1),
        ..commit::CommitOptions::default()
    }
}

pub(crate) fn on_branch(name: &str) -> commit::CommitOptions {
    let branch = Some(snap_core::repo::RefName::branch(name).unwrap());
    commit::CommitOptions { branch, ..options() }
}

#[track_caller]
pub(crate) fn commit(repo: &Repo, source: &Path, options: &commit::CommitOptions) -> CommitOutcome {
    commit::run(repo, CommitSource::Folder(source.to_owned()), options, &Silent).unwrap()
}

#[track_caller]
pub(crate) fn assert_restores(repo: &Repo, id: CommitId, source: &Path, target: &Path) {
    assert_restores_from(repo.store(), id, source, target);
}

#[track_caller]
pub(crate) fn assert_restores_from(store: &Store, id: CommitId, source: &Path, target: &Path) {
    let commit = store.commit(&id).unwrap();
    let what = restore::RestoreSource::Folder { tree: commit.tree, root: commit.root };
    restore::run(store, &what, target, &restore::RestoreOptions::default(), &Silent).unwrap();
    let differences = compare(source, target, &compare::Options::default());
    assert_eq!(differences, Vec::<String>::new());
}

/// Copies a folder.
pub(crate) fn copy(from: &Path, to: &Path) {
    trees::copy(from, to).unwrap();
}

/// Waits until another thread waits for a lock on a file or folder.
pub(crate) fn until_waited_for(path: &Path) {
    let inode = format!(":{} ", fs_err::metadata(path).unwrap().ino());
    until("a thread waits for the lock", || {
        let locks = fs_err::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|line| line.contains("-> ") && line.contains(&inode))
    });
}

/// Returns the commits of all branches and tags, by full name.
pub(crate) fn refs(repo: &Repo) -> Vec<(String, CommitId)> {
    let kinds = [RefKind::Branch, RefKind::Tag];
    let listed = kinds.into_iter().flat_map(|kind| repo.refs().list(kind).unwrap());
    listed.map(|(name, id)| (name.to_string(), id)).collect()
}

/// Reads everything that is reachable from the refs and checks it against its ids.
/// Returns the number of commits that are not forgotten, or the first error.
pub(crate) fn check(repo: &Repo) -> Result<usize, String> {
    let starts: Vec<CommitId> = refs(repo).into_iter().map(|(_, id)| id).collect();
    let history = History::new(repo.store(), &starts, Default::default());
    let mut seen = HashSet::new();
    let mut commits = 0;
    for item in history.map_err(|error| error.to_string())? {
        let HistoryStep { id, commit, is_forgotten } = item.map_err(|error| error.to_string())?;
        if is_forgotten && !starts.contains(&id) {
            continue;
        }
        commits += 1;
        check_tree(repo, commit.tree, &mut seen).map_err(|error| format!("{id:?}: {error}"))?;
    }
    Ok(commits)
}

fn check_tree(repo: &Repo, tree: TreeId, seen: &mut HashSet<ObjectId>) -> Result<(), String> {
    if !seen.insert(tree.object()) {
        return Ok(());
    }
    match repo.store().tree(&tree).map_err(|error| error.to_string())? {
        Node::Inner { children, .. } => {
            children.into_iter().try_for_each(|child| check_tree(repo, child.id, seen))
        }
        Node::Leaf { entries, .. } => entries.into_iter().try_for_each(|entry| {
            let name = String::from_utf8_lossy(entry.name.as_os_str().as_bytes()).into_owned();
            match entry.kind {
                EntryKind::Folder { id } => check_tree(repo, id, seen),
                EntryKind::File { id, size } if seen.insert(id.object()) => {
                    check_content(repo, id, size).map_err(|error| format!("{name}: {error}"))
                }
                _ => Ok(()),
            }
        }),
    }
}

fn check_content(repo: &Repo, id: ContentId, size: u64) -> Result<(), String> {
    let read = cat::run(repo.store(), &id, None, &mut std::io::sink(), &Silent);
    match read.map_err(|error| error.to_string())?.bytes {
        bytes if bytes == size => Ok(()),
        bytes => Err(format!("{bytes} bytes instead of {size}")),
    }
}
