//! Reads the content of a folder by plain system calls, without snap's own readers, so that a fault
//! in those cannot hide itself.

use std::{
    collections::BTreeMap,
    fs::FileTimes,
    io::{self, Read as _, Write as _},
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::Path,
    time::{Duration, SystemTime},
};

use fs_err as fs;
use parking_lot::Mutex;
use rustix::fs::{IFlags, Mode, OFlags, ioctl_getflags, ioctl_setflags};
use snap_core::{
    base::id::{BlobId, ContentId},
    local::cut::identify_source,
};
use snap_testkit::{bytes::Corpus, rng::mix};

/// Entries by their path below a folder, with `/` as the separator.
pub(crate) type Tree = BTreeMap<String, Node>;

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// The kind and content.
    pub(crate) kind: Kind,
    /// Permission bits; 0 for a symlink, whose mode has no meaning.
    pub(crate) mode: u32,
    /// Seconds and nanoseconds; 0 for a folder, because each change of an entry sets it.
    pub(crate) mtime: (i64, i64),
    /// The value of the attribute `user.model`.
    pub(crate) attribute: Option<Vec<u8>>,
}

/// The kind and content of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file with the length and the plain hash of its content.
    File(u64, BlobId),
    /// A folder.
    Folder,
    /// A symlink with this target.
    Symlink(String),
}

/// The hashes of all large contents so far, by the ids that snap gives them.
static LARGE: Mutex<BTreeMap<ContentId, BlobId>> = Mutex::new(BTreeMap::new());

/// Hashes a content, and remembers the id that snap gives it.
pub(crate) fn hash(content: &[u8]) -> BlobId {
    let hash = BlobId::of(content);
    let (id, _) = identify_source(&mut content.take(u64::MAX), &|| false).unwrap();
    if id.is_chunked() {
        LARGE.lock().insert(id, hash);
    }
    hash
}

/// Returns the hash of the content with an id, also if the content is lost.
pub(crate) fn hash_of(id: ContentId) -> BlobId {
    match id {
        ContentId::Blob(hash) => hash,
        ContentId::Chunked(_) => LARGE.lock()[&id],
    }
}

/// The extended attribute that the test sets.
const ATTRIBUTE: &str = "user.model";

/// Length of a small file. All have the same length, so that a rewrite in place does not change the
/// size.
const SMALL_BYTES: usize = 600;

/// Length of a large file: more than the size from which snap cuts files into chunks.
const LARGE_BYTES: usize = (1 << 20) + 200_000;

/// The content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filling {
    /// The number of the content.
    pub(crate) number: u64,
    /// True if the file is large enough to be cut into chunks.
    pub(crate) large: bool,
}

impl Filling {
    /// Returns the bytes.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let len = if self.large { LARGE_BYTES } else { SMALL_BYTES };
        Corpus::Random.make_seeded(len, mix(2026, self.number))
    }
}

/// Reads everything below `dir`, except the `.snap` directly in it. A missing folder is empty.
pub(crate) fn observe(dir: &Path) -> io::Result<Tree> {
    let mut tree = Tree::new();
    if dir.is_dir() {
        walk(dir, "", &mut tree)?;
    }
    Ok(tree)
}

fn walk(dir: &Path, prefix: &str, tree: &mut Tree) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().into_string().expect("the test uses plain names only");
        if prefix.is_empty() && name == ".snap" {
            continue;
        }
        let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        let node = read(&entry.path())?;
        let is_folder = node.kind == Kind::Folder;
        tree.insert(path.clone(), node);
        if is_folder {
            walk(&entry.path(), &path, tree)?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> io::Result<Node> {
    let stat = fs::symlink_metadata(path)?;
    let mut mtime = (stat.mtime(), stat.mtime_nsec());
    let mut mode = stat.mode() & 0o7777;
    let kind = if stat.is_dir() {
        mtime = (0, 0);
        Kind::Folder
    } else if stat.is_symlink() {
        mode = 0;
        let target = fs::read_link(path)?;
        Kind::Symlink(target.into_os_string().into_string().expect("a plain target"))
    } else {
        let content = fs::read(path)?;
        Kind::File(content.len() as u64, hash(&content))
    };
    Ok(Node { kind, mode, mtime, attribute: attribute(path) })
}

/// Returns the value of the attribute, if it is set.
fn attribute(path: &Path) -> Option<Vec<u8>> {
    let mut value = vec![0; 64];
    let len = rustix::fs::lgetxattr(path, ATTRIBUTE, value.as_mut_slice()).ok()?;
    value.truncate(len);
    Some(value)
}

/// Returns the value of the attribute in the metadata of a store.
pub(crate) fn stored_attribute(metadata: &snap_core::format::tree::Metadata) -> Option<Vec<u8>> {
    let found = metadata.xattrs.iter().find(|xattr| *xattr.name == *ATTRIBUTE.as_bytes());
    found.map(|xattr| xattr.value.to_vec())
}

/// Sets the attribute; does nothing on a file system without extended attributes.
pub(crate) fn set_attribute(path: &Path, value: u8) {
    let flags = rustix::fs::XattrFlags::empty();
    let _ = rustix::fs::lsetxattr(path, ATTRIBUTE, &[value], flags);
}

/// Writes a new file and its parent folders. An existing folder at the path is left alone.
pub(crate) fn write(path: &Path, filling: Filling) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent()
        && fs::create_dir_all(parent).is_err()
    {
        return Ok(());
    }
    fs::write(path, filling.bytes())
}

/// Overwrites the bytes of an existing file in place; with `keep_mtime`, restores its modification
/// time.
pub(crate) fn rewrite(path: &Path, filling: Filling, keep_mtime: bool) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    let modified = file.metadata()?.modified()?;
    file.write_all(&filling.bytes())?;
    if keep_mtime {
        file.file().set_times(FileTimes::new().set_modified(modified))?;
    }
    Ok(())
}

/// Sets the modification time of a file to `secs` seconds after the start of 2020.
pub(crate) fn touch(path: &Path, secs: u64) -> io::Result<()> {
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_836_800 + secs);
    let file = fs::OpenOptions::new().write(true).open(path)?;
    file.file().set_times(FileTimes::new().set_modified(time))
}

/// Sets the permission bits of a file or folder.
pub(crate) fn chmod(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

/// Makes a file or folder immutable, or ends that. Fails where the user or the file system does not
/// allow it.
pub(crate) fn set_immutable(path: &Path, is_immutable: bool) -> io::Result<()> {
    let file = open_plain(path)?;
    let mut flags = ioctl_getflags(&file)?;
    flags.set(IFlags::IMMUTABLE, is_immutable);
    Ok(ioctl_setflags(&file, flags)?)
}

/// Returns true if a file or folder is immutable.
pub(crate) fn is_immutable(path: &Path) -> bool {
    let flags = open_plain(path).and_then(|file| Ok(ioctl_getflags(&file)?));
    flags.is_ok_and(|flags| flags.contains(IFlags::IMMUTABLE))
}

fn open_plain(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Removes a file, or a folder with everything below it.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

/// Returns true if `path` is `folder` or lies below it. Everything lies below "".
pub(crate) fn is_within(path: &str, folder: &str) -> bool {
    folder.is_empty()
        || path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Lists the first few differences between two trees, for messages.
pub(crate) fn differences(expected: &Tree, found: &Tree) -> Vec<String> {
    let mut lines = Vec::new();
    for (path, node) in expected {
        match found.get(path) {
            None => lines.push(format!("{path}: missing")),
            Some(other) if other != node => {
                lines.push(format!("{path}: {}", unequal(node, other)));
            }
            Some(_) => {}
        }
    }
    let extra = found.keys().filter(|path| !expected.contains_key(*path));
    lines.extend(extra.map(|path| format!("{path}: should not exist")));
    lines.truncate(8);
    lines
}

fn unequal(expected: &Node, found: &Node) -> String {
    match () {
        () if expected.kind != found.kind => {
            format!("expected {:?}, found {:?}", expected.kind, found.kind)
        }
        () if expected.mode != found.mode => {
            format!("expected mode {:o}, found {:o}", expected.mode, found.mode)
        }
        () if expected.mtime != found.mtime => {
            format!("expected time {:?}, found {:?}", expected.mtime, found.mtime)
        }
        () => format!("expected attribute {:?}, found {:?}", expected.attribute, found.attribute),
    }
}
