//! Trees: the encoding of directories.
//!
//! A tree's id is the BLAKE3 of its top node's bytes in derive-key mode. A small directory is a
//! single *leaf*. A large directory is split into leaves. An *inner node* lists leaves, each with
//! its first entry name; further inner nodes may list these nodes. The split depends only on the
//! entries (see [`split`]). So a directory has only one id, and a change rewrites about one leaf
//! and the nodes above it.
//!
//! | field   | form                    | meaning                                  |
//! |---------|-------------------------|------------------------------------------|
//! | version | u8                      | 2                                        |
//! | level   | u8                      | 0 leaf, else node above level − 1        |
//! | totals  | 4 × varint              | everything below, see [`Totals`]         |
//! | owners  | varint count, each      | of a leaf: table of the owners in use    |
//! | count   | varint                  | entries, or children                     |
//! | entries | back to back            | strictly increasing by name bytes        |
//!
//! An owner is varint uid, varint gid, user name and group name (bytes with length, empty if
//! unknown). The table is in strictly increasing order, and an entry refers to each of its owners.
//! A child of an inner node is a name (bytes with length; the first entry name below the child) and
//! a tree id. An entry of a leaf is
//!
//! | field    | form             | meaning                                        |
//! |----------|------------------|------------------------------------------------|
//! | name     | bytes            | an [`EntryName`]                               |
//! | kind     | u8               | see [`EntryKind`]                                   |
//! | metadata | see below        |                                                |
//! | body     | by kind          | file: varint size, 32 id of the blob or the chunk list · folder: 32 tree id · symlink: bytes · devices: varint major, varint minor |
//!
//! Metadata is
//!
//! | field  | form                        | when                               |
//! |--------|-----------------------------|------------------------------------|
//! | flags  | u8                          | which of the following exist       |
//! | mode   | varint                      | always; 12 bits                    |
//! | owner  | varint index into the table | bit 0 (a commit's root: the owner) |
//! | mtime  | zigzag secs, varint ns      | bit 1                              |
//! | xattrs | varint count, bytes × 2 each| bit 2; names strictly increasing   |
//! | link   | u64                         | bit 3: same in each name of a file |
//! | sparse | nothing                     | bit 4: the file has holes          |

pub mod check;
mod codec;
pub mod split;

use std::fmt;

use crate::base::{
    id::{ContentId, ObjectId, TreeId},
    name::EntryName,
    time::Time,
};

pub use codec::VERSION;

/// The kind of an entry, with the data of that kind. `B` identifies a content, and `T` a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind<B = ContentId, T = TreeId> {
    /// Regular file: code 0 if the content is a blob, code 7 if it is chunked. The size is in bytes.
    File { size: u64, id: B },
    /// Directory: code 1.
    Folder { id: T },
    /// Symbolic link: code 2. The target is any bytes except NUL.
    Symlink { target: Box<[u8]> },
    /// Named pipe: code 3.
    Fifo,
    /// Unix socket: code 4.
    Socket,
    /// Character device: code 5.
    CharDevice { device: Device },
    /// Block device: code 6.
    BlockDevice { device: Device },
}

impl EntryKind {
    /// Returns the tree of a folder, or `None` for other kinds.
    pub fn tree(&self) -> Option<TreeId> {
        if let Self::Folder { id } = self { Some(*id) } else { None }
    }
}

impl<B, T> EntryKind<B, T> {
    /// Returns the noun for messages and JSON.
    pub fn noun(&self) -> &'static str {
        match self {
            Self::File { .. } => "file",
            Self::Folder { .. } => "folder",
            Self::Symlink { .. } => "symlink",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::CharDevice { .. } => "character device",
            Self::BlockDevice { .. } => "block device",
        }
    }
}

/// The number of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Number of the driver.
    pub major: u32,
    /// Number of the unit.
    pub minor: u32,
}

/// The owner and group of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// Numeric user id.
    pub uid: u32,
    /// Numeric group id.
    pub gid: u32,
    /// User name; empty if the system knew none.
    pub user: Box<[u8]>,
    /// Group name; empty if the system knew none.
    pub group: Box<[u8]>,
}

impl Owner {
    /// Returns false if no file can have this owner: for `chown`, the id 2^32-1 means "keep the
    /// owner".
    pub fn is_possible(&self) -> bool {
        self.uid != u32::MAX && self.gid != u32::MAX
    }
}

/// Name of the extended attribute with the capabilities of a program.
pub const CAPABILITY: &[u8] = b"security.capability";

/// The mode bits that let a program run with the rights of its owner or group.
const SETUID_SETGID: u16 = 0o6000;

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// The name, such as `user.comment` or `system.posix_acl_access`.
    pub name: Box<[u8]>,
    /// The value: any bytes.
    pub value: Box<[u8]>,
}

/// The hash of the attributes in a [`Metadata`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttributesHash([u8; 32]);

/// The metadata of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The 12 mode bits: permissions, setuid, setgid, sticky.
    pub mode: u16,
    /// Owner and group; absent in a reproducible tree.
    pub owner: Option<std::sync::Arc<Owner>>,
    /// Modification time; absent in a reproducible tree.
    pub mtime: Option<Time>,
    /// Extended attributes, sorted by name.
    pub xattrs: Vec<Xattr>,
    /// Hard link group: all names of one file have the same number. Absent if the file
    /// has one name.
    pub link: Option<u64>,
    /// True if the file has holes: a restore writes its zeros as holes.
    pub sparse: bool,
}

impl Metadata {
    /// Returns the mode for a file whose owner differs from the recorded one: without setuid and
    /// setgid, which would grant the rights of the actual owner.
    pub fn mode_for_other_owner(&self) -> u16 {
        self.mode & !SETUID_SETGID
    }

    /// Prepares the metadata for an owner other than the recorded one: removes setuid, setgid and
    /// capabilities.
    pub fn drop_owner_rights(&mut self) {
        self.mode = self.mode_for_other_owner();
        self.xattrs.retain(|xattr| *xattr.name != *CAPABILITY);
    }

    /// Hashes all attributes except `sparse`: equal hashes mean equal attributes. A restore keeps
    /// in memory the hash for each file with several names, because extended attributes may be
    /// long. The hash is never stored.
    pub fn attributes_hash(&self) -> AttributesHash {
        let Self { mode, owner, mtime, xattrs, link, sparse: _ } = self;
        let mut hasher = blake3::Hasher::new();
        let mut field = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        };
        field(&mode.to_le_bytes());
        field(format!("{owner:?} {mtime:?} {link:?}").as_bytes());
        for Xattr { name, value } in xattrs {
            field(name);
            field(value);
        }
        AttributesHash(*hasher.finalize().as_bytes())
    }
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: EntryName,
    pub kind: EntryKind,
    pub metadata: Metadata,
}

impl Entry {
    /// Returns the tree id of a folder, or `None` for other kinds.
    pub fn folder(&self) -> Option<ObjectId> {
        self.kind.tree().map(|id| id.object())
    }

    /// Returns the mode in the form of `ls -l`.
    pub fn mode_shown(&self) -> String {
        let kind = match self.kind {
            EntryKind::File { .. } => '-',
            EntryKind::Folder { .. } => 'd',
            EntryKind::Symlink { .. } => 'l',
            EntryKind::Fifo => 'p',
            EntryKind::Socket => 's',
            EntryKind::CharDevice { .. } => 'c',
            EntryKind::BlockDevice { .. } => 'b',
        };
        let bits = self.metadata.mode;
        let mut shown = String::from(kind);
        for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
            let three = bits >> shift;
            shown.push(if three & 4 == 0 { '-' } else { 'r' });
            shown.push(if three & 2 == 0 { '-' } else { 'w' });
            shown.push(match (bits & special != 0, three & 1 != 0) {
                (false, false) => '-',
                (false, true) => 'x',
                (true, true) => letter,
                (true, false) => letter.to_ascii_uppercase(),
            });
        }
        shown
    }
}

/// Totals of everything below a tree.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of regular files.
    pub files: u64,
    /// Number of directories.
    pub folders: u64,
    /// Number of symlinks, pipes, sockets and devices.
    pub others: u64,
    /// Total length of the regular files in bytes.
    pub bytes: u64,
}

impl Totals {
    /// Adds the totals of `other`.
    pub fn add(&mut self, other: &Self) {
        self.files = self.files.saturating_add(other.files);
        self.folders = self.folders.saturating_add(other.folders);
        self.others = self.others.saturating_add(other.others);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// Counts one entry, without the entries below it.
    pub fn count(&mut self, kind: &EntryKind) {
        match kind {
            EntryKind::File { size, .. } => {
                self.files = self.files.saturating_add(1);
                self.bytes = self.bytes.saturating_add(*size);
            }
            EntryKind::Folder { .. } => self.folders = self.folders.saturating_add(1),
            _ => self.others = self.others.saturating_add(1),
        }
    }
}

impl fmt::Debug for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, folders, others, bytes } = self;
        write!(f, "{files} files, {folders} folders, {others} others, {bytes} bytes")
    }
}

/// A child of an inner node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// First entry name below the child.
    pub first: EntryName,
    /// Id of the child: a leaf or an inner node.
    pub id: TreeId,
}

/// One decoded tree object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A leaf: entries, sorted by name.
    Leaf { totals: Totals, entries: Vec<Entry> },
    /// An inner node above leaves (level 1) or above inner nodes of the next lower level. Children
    /// are sorted by first name.
    Inner { level: u8, totals: Totals, children: Vec<Child> },
}

impl Node {
    /// Returns the totals of everything below the node.
    pub fn totals(&self) -> &Totals {
        match self {
            Self::Leaf { totals, .. } | Self::Inner { totals, .. } => totals,
        }
    }

    /// Returns the level: 0 for a leaf.
    pub fn level(&self) -> u8 {
        match self {
            Self::Leaf { .. } => 0,
            Self::Inner { level, .. } => *level,
        }
    }

    /// Returns the first entry name below the node. The parent node states the same name.
    pub fn first(&self) -> Option<&EntryName> {
        match self {
            Self::Leaf { entries, .. } => entries.first().map(|entry| &entry.name),
            Self::Inner { children, .. } => children.first().map(|child| &child.first),
        }
    }

    /// Returns the last name in the node: the name of the last entry, or the first name of the last
    /// child.
    pub fn last(&self) -> Option<&EntryName> {
        match self {
            Self::Leaf { entries, .. } => entries.last().map(|entry| &entry.name),
            Self::Inner { children, .. } => children.last().map(|child| &child.first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{id::BlobId, name::EntryName};

    #[test]
    fn modes_are_shown_as_by_ls() {
        for (bits, shown) in [
            (0o644, "-rw-r--r--"),
            (0o7777, "-rwsrwsrwt"),
            (0o7000, "---S--S--T"),
            (0o750, "-rwxr-x---"),
        ] {
            let entry = Entry {
                name: EntryName::new(b"x").unwrap(),
                kind: EntryKind::File { size: 0, id: BlobId::of(b"").into() },
                metadata: Metadata { mode: bits, ..Metadata::default() },
            };
            assert_eq!(entry.mode_shown(), shown);
        }
    }
}
