//! Trees: one directory each.
//!
//! A tree's id is the BLAKE3 of its node's bytes in derive-key mode. A small
//! directory is one *leaf*. A large one is split: its leaves are named, with
//! the first entry name of each, by a *node*, and nodes may be named by nodes
//! above them. Where a directory is split depends on its entries alone (see
//! [`split`]), so one directory has one id, and a change rewrites one leaf and
//! the nodes above it.
//!
//! | field   | form                    | meaning                                  |
//! |---------|-------------------------|------------------------------------------|
//! | version | u8                      | 1                                        |
//! | level   | u8                      | 0 leaf, else node over level − 1         |
//! | totals  | 4 × varint              | all that is below, see [`Totals`]        |
//! | owners  | varint count, each      | of a leaf: table of the owners in use    |
//! | count   | varint                  | entries, or children                     |
//! | entries | back to back            | strictly increasing by name bytes        |
//!
//! An owner is varint uid, varint gid, user name and group name (bytes with
//! length, empty when unknown); the table strictly increases and each owner is
//! used. A child of a node is a name (bytes with length; the first entry name
//! below it) and a tree id. An entry of a leaf is
//!
//! | field    | form             | meaning                                        |
//! |----------|------------------|------------------------------------------------|
//! | name     | bytes            | an [`EntryName`]                               |
//! | kind     | u8               | see [`Kind`]                                   |
//! | metadata | see below        |                                                |
//! | body     | by kind          | file: varint size, 32 blob id · folder: 32 tree id · symlink: bytes · devices: varint major, varint minor |
//!
//! Metadata is
//!
//! | field  | form                        | when                               |
//! |--------|-----------------------------|------------------------------------|
//! | flags  | u8                          | which of the following are there   |
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
    id::{BlobId, ObjectId, TreeId},
    name::EntryName,
    time::Time,
};

pub use codec::VERSION;

/// What an entry is, with what each kind has of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Regular file: 0.
    File {
        /// Its length in bytes.
        size: u64,
        /// Its content.
        id: BlobId,
    },
    /// Directory: 1.
    Folder {
        /// What it holds.
        id: TreeId,
    },
    /// Symbolic link: 2.
    Symlink {
        /// Where it points: any bytes but NUL.
        target: Box<[u8]>,
    },
    /// Named pipe: 3.
    Fifo,
    /// Unix socket: 4.
    Socket,
    /// Character device: 5.
    CharDevice {
        /// Which.
        device: Device,
    },
    /// Block device: 6.
    BlockDevice {
        /// Which.
        device: Device,
    },
}

impl Kind {
    /// Noun for messages and JSON.
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

/// Number of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Driver.
    pub major: u32,
    /// Unit.
    pub minor: u32,
}

/// Who a file belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// User number.
    pub uid: u32,
    /// Group number.
    pub gid: u32,
    /// User name, empty when the system had none.
    pub user: Box<[u8]>,
    /// Group name, empty when the system had none.
    pub group: Box<[u8]>,
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// Such as `user.comment` or `system.posix_acl_access`.
    pub name: Box<[u8]>,
    /// Any bytes.
    pub value: Box<[u8]>,
}

/// What is kept about an entry beside its content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The 12 mode bits: permissions, setuid, setgid, sticky.
    pub mode: u16,
    /// Absent in a reproducible tree.
    pub owner: Option<std::sync::Arc<Owner>>,
    /// Absent in a reproducible tree.
    pub mtime: Option<Time>,
    /// Sorted by name.
    pub xattrs: Vec<Xattr>,
    /// Names of one file share this; absent when it has one name only.
    pub link: Option<u64>,
    /// Whether zeros are restored as holes.
    pub sparse: bool,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: EntryName,
    /// What it is.
    pub kind: Kind,
    /// What is kept about it.
    pub metadata: Metadata,
}

impl Entry {
    /// Its tree, if it is a folder.
    pub fn folder(&self) -> Option<ObjectId> {
        match &self.kind {
            Kind::Folder { id } => Some(id.object()),
            _ => None,
        }
    }

    /// The mode as `ls -l` shows it.
    pub fn mode_shown(&self) -> String {
        let kind = match self.kind {
            Kind::File { .. } => '-',
            Kind::Folder { .. } => 'd',
            Kind::Symlink { .. } => 'l',
            Kind::Fifo => 'p',
            Kind::Socket => 's',
            Kind::CharDevice { .. } => 'c',
            Kind::BlockDevice { .. } => 'b',
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

/// How much is below a tree.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub folders: u64,
    /// Symlinks, pipes, sockets, devices.
    pub others: u64,
    /// Bytes of the regular files.
    pub bytes: u64,
}

impl Totals {
    /// Adds what `other` counts.
    pub fn add(&mut self, other: &Self) {
        self.files = self.files.saturating_add(other.files);
        self.folders = self.folders.saturating_add(other.folders);
        self.others = self.others.saturating_add(other.others);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// Counts one entry, without what is below it.
    pub fn count(&mut self, kind: &Kind) {
        match kind {
            Kind::File { size, .. } => {
                self.files = self.files.saturating_add(1);
                self.bytes = self.bytes.saturating_add(*size);
            }
            Kind::Folder { .. } => self.folders = self.folders.saturating_add(1),
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

/// A child of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// The first entry name below it.
    pub first: EntryName,
    /// The leaf or node.
    pub id: TreeId,
}

/// One decoded object of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// Entries themselves.
    Leaf {
        /// What is below.
        totals: Totals,
        /// Sorted by name.
        entries: Vec<Entry>,
    },
    /// Leaves or nodes further down.
    Inner {
        /// 1 above leaves, 2 above those, …
        level: u8,
        /// What is below.
        totals: Totals,
        /// Sorted by first name.
        children: Vec<Child>,
    },
}

impl Node {
    /// What is below.
    pub fn totals(&self) -> &Totals {
        match self {
            Self::Leaf { totals, .. } | Self::Inner { totals, .. } => totals,
        }
    }

    /// 0 for a leaf, else how far above leaves it is.
    pub fn level(&self) -> u8 {
        match self {
            Self::Leaf { .. } => 0,
            Self::Inner { level, .. } => *level,
        }
    }

    /// The first entry name below, which the node above must have given.
    /// Readers check it: otherwise one leaf could stand in many places, and a
    /// few nodes amount to more entries than anybody can read.
    pub fn first(&self) -> Option<&EntryName> {
        match self {
            Self::Leaf { entries, .. } => entries.first().map(|entry| &entry.name),
            Self::Inner { children, .. } => children.first().map(|child| &child.first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{id::BlobId, name::EntryName};

    #[test]
    fn modes_read_as_those_of_ls() {
        for (bits, shown) in [
            (0o644, "-rw-r--r--"),
            (0o7777, "-rwsrwsrwt"),
            (0o7000, "---S--S--T"),
            (0o750, "-rwxr-x---"),
        ] {
            let entry = Entry {
                name: EntryName::new(b"x").unwrap(),
                kind: Kind::File { size: 0, id: BlobId::of(b"") },
                metadata: Metadata { mode: bits, ..Metadata::default() },
            };
            assert_eq!(entry.mode_shown(), shown);
        }
    }
}
