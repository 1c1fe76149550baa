//! Stores that are made from folders, for the tests of restore. The import is simple
//! and serial, so that these tests do not depend on commit.

#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::{
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use snap_core::{
    base::{
        id::{BlobId, ContentId, TreeId},
        limits,
        name::EntryName,
        observe::Silent,
        time::Time,
    },
    disk::Disk,
    format::tree::{Device, Entry, EntryKind, Metadata, Totals, split::FolderEncoder},
    local::{
        attributes::{XattrTarget, read_xattrs},
        owners::Owners,
    },
    ops::restore::{
        self, Existing, Extras, RestoreError, RestoreOptions, RestoreOutcome, RestoreSource,
    },
    store::{ObjectWriter, Store, StoreError},
};
use snap_testkit::compare::{self, compare};

use crate::crafted::{listed, piece};

/// A store with one tree, in a temporary folder.
pub(crate) struct Snapshot {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) store: Store,
    pub(crate) tree: TreeId,
    pub(crate) root: Option<Metadata>,
}

impl Snapshot {
    /// Makes a store with the content of `source`.
    pub(crate) fn of(source: &Path) -> Self {
        let root = Some(metadata(source, &Owners::default()));
        Self::made(root, |writer| import(writer, &Owners::default(), source).0)
    }

    /// Makes a store with these entries.
    pub(crate) fn of_entries(entries: Vec<Entry>) -> Self {
        Self::made(None, |writer| add_folder(writer, entries).0)
    }

    /// Makes a store with the tree that `fill` adds.
    pub(crate) fn made(
        root: Option<Metadata>,
        fill: impl FnOnce(&ObjectWriter<'_>) -> TreeId,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("store");
        Store::create(&own, &Disk::default()).unwrap();
        let store = Store::open(&own, Disk::default(), &Silent).unwrap();
        let writer = ObjectWriter::new(&store, 3, 1).unwrap();
        let tree = fill(&writer);
        writer.finish().unwrap();
        Self { dir, store, tree, root }
    }

    pub(crate) fn what(&self) -> RestoreSource {
        RestoreSource::Folder { tree: self.tree, root: self.root.clone() }
    }

    pub(crate) fn restore(&self, target: &Path) -> Result<RestoreOutcome, RestoreError> {
        self.restore_with(target, &RestoreOptions::default())
    }

    pub(crate) fn restore_with(
        &self,
        target: &Path,
        options: &RestoreOptions<'_>,
    ) -> Result<RestoreOutcome, RestoreError> {
        restore::run(&self.store, &self.what(), target, options, &Silent)
    }

    /// Returns the path of the only pack.
    pub(crate) fn pack_path(&self) -> PathBuf {
        let packs = self.store.packs();
        assert_eq!(packs.len(), 1);
        self.store.pack_path(&packs[0])
    }
}

pub(crate) fn name(bytes: impl AsRef<[u8]>) -> EntryName {
    EntryName::new(bytes.as_ref()).unwrap()
}

/// Makes the entry of a small file, and adds its content to the store.
pub(crate) fn file(writer: &ObjectWriter<'_>, called: impl AsRef<[u8]>, content: &[u8]) -> Entry {
    let id = BlobId::of(content);
    writer.add_blob(0, id, content).unwrap();
    plain(called, EntryKind::File { size: content.len() as u64, id: id.into() })
}

pub(crate) fn plain(called: impl AsRef<[u8]>, kind: EntryKind) -> Entry {
    Entry { name: name(called), kind, metadata: Metadata { mode: 0o755, ..Metadata::default() } }
}

pub(crate) fn add_folder(writer: &ObjectWriter<'_>, entries: Vec<Entry>) -> (TreeId, Totals) {
    let mut put = |id: TreeId, bytes: Vec<u8>| writer.add_tree(id, &bytes);
    let mut encoder = FolderEncoder::new();
    for entry in entries {
        encoder.push(entry, &Totals::default(), &mut put).unwrap();
    }
    let folder = encoder.finish::<StoreError>(&mut put).unwrap();
    (folder.id, folder.totals)
}

fn import(writer: &ObjectWriter<'_>, owners: &Owners, dir: &Path) -> (TreeId, Totals) {
    let mut paths: Vec<_> =
        fs_err::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort_by(|a, b| a.file_name().unwrap().as_bytes().cmp(b.file_name().unwrap().as_bytes()));
    let mut put = |id: TreeId, bytes: Vec<u8>| writer.add_tree(id, &bytes);
    let mut encoder = FolderEncoder::new();
    for path in paths {
        let mut below = Totals::default();
        let kind = kind(writer, owners, &path, &mut below);
        let called = name(path.file_name().unwrap().as_bytes());
        let entry = Entry { name: called, kind, metadata: metadata(&path, owners) };
        encoder.push(entry, &below, &mut put).unwrap();
    }
    let folder = encoder.finish::<StoreError>(&mut put).unwrap();
    (folder.id, folder.totals)
}

fn kind(writer: &ObjectWriter<'_>, owners: &Owners, path: &Path, below: &mut Totals) -> EntryKind {
    use std::os::unix::fs::FileTypeExt;
    let meta = fs_err::symlink_metadata(path).unwrap();
    let device =
        Device { major: rustix::fs::major(meta.rdev()), minor: rustix::fs::minor(meta.rdev()) };
    match meta.file_type() {
        t if t.is_dir() => {
            let (id, totals) = import(writer, owners, path);
            *below = totals;
            EntryKind::Folder { id }
        }
        t if t.is_symlink() => EntryKind::Symlink {
            target: fs_err::read_link(path).unwrap().as_os_str().as_bytes().into(),
        },
        t if t.is_fifo() => EntryKind::Fifo,
        t if t.is_socket() => EntryKind::Socket,
        t if t.is_char_device() => EntryKind::CharDevice { device },
        t if t.is_block_device() => EntryKind::BlockDevice { device },
        _ => content(writer, &fs_err::read(path).unwrap()),
    }
}

/// Adds a content of any length. Cuts a large one without a search for the right places.
pub(crate) fn content(writer: &ObjectWriter<'_>, bytes: &[u8]) -> EntryKind {
    let id = if bytes.len() as u64 <= limits::WHOLE_FILE_BYTES {
        let id = BlobId::of(bytes);
        writer.add_blob(0, id, bytes).unwrap();
        id.into()
    } else {
        add_chunked(writer, &bytes.chunks(1_000_003).collect::<Vec<_>>())
    };
    EntryKind::File { size: bytes.len() as u64, id }
}

/// Adds a content with these chunks.
pub(crate) fn add_chunked(writer: &ObjectWriter<'_>, chunks: &[&[u8]]) -> ContentId {
    for frame in chunks.chunks(4) {
        let ends = frame.iter().scan(0, |end, chunk| {
            *end += chunk.len();
            Some(*end)
        });
        writer.add_chunks(&frame.concat(), &ends.collect::<Vec<_>>()).unwrap();
    }
    let (id, list) = listed(chunks.iter().map(|chunk| piece(chunk)));
    list.iter().for_each(|(id, kind, bytes)| writer.add_metadata(*kind, *id, bytes).unwrap());
    ContentId::Chunked(id)
}

fn metadata(path: &Path, owners: &Owners) -> Metadata {
    let meta = fs_err::symlink_metadata(path).unwrap();
    let several = meta.nlink() > 1 && !meta.is_dir();
    Metadata {
        mode: (meta.mode() & 0o7777) as u16,
        owner: Some(owners.of(meta.uid(), meta.gid())),
        mtime: Some(Time { secs: meta.mtime(), nanos: meta.mtime_nsec() as u32 }),
        xattrs: read_xattrs(XattrTarget::Path(path)).unwrap(),
        link: several.then(|| meta.ino()),
        sparse: meta.is_file() && meta.blocks() * 512 < meta.len(),
    }
}

pub(crate) fn overwrite() -> RestoreOptions<'static> {
    RestoreOptions { existing: Existing::Overwrite, ..RestoreOptions::default() }
}

pub(crate) fn mirror() -> RestoreOptions<'static> {
    RestoreOptions { extras: Extras::Delete, ..overwrite() }
}

pub(crate) fn dirs() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    fs_err::create_dir(&source).unwrap();
    (dir, source, target)
}

#[track_caller]
pub(crate) fn assert_same(source: &Path, target: &Path) {
    let differences = compare(source, target, &compare::Options::default());
    assert_eq!(differences, Vec::<String>::new());
}

/// Compares everything below two folders: an existing target keeps its own attributes.
#[track_caller]
pub(crate) fn assert_same_below(source: &Path, target: &Path) {
    let options = compare::Options { root: false, ..compare::Options::default() };
    assert_eq!(compare(source, target, &options), Vec::<String>::new());
}

/// Asserts that no file below has a temporary name.
#[track_caller]
pub(crate) fn assert_no_drafts(target: &Path) {
    for entry in walkdir::WalkDir::new(target).into_iter().flatten() {
        assert!(!entry.file_name().to_string_lossy().starts_with(".snap-tmp-"), "{entry:?}");
    }
}

/// Makes the odd tree, with all files readable by the user who runs the tests.
pub(crate) fn odd(source: &Path) {
    snap_testkit::trees::odd(source).unwrap();
    let closed = source.join("modes/file-0000");
    if fs_err::File::open(&closed).is_err() {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o400);
        fs_err::set_permissions(&closed, mode).unwrap();
    }
}
