//! What differs between two trees, entry by entry.

use crate::{
    base::id::{BlobId, TreeId},
    format::tree::{Device, Entry, Kind, Metadata},
};

/// What an entry is. Of a file in a folder of the user's the content is known
/// only where that was needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Regular file.
    File {
        /// Its length in bytes.
        size: u64,
        /// Its content, if it is known.
        id: Option<BlobId>,
    },
    /// Directory.
    Folder {
        /// Its tree, if it is in the store.
        id: Option<TreeId>,
    },
    /// Symbolic link.
    Symlink {
        /// Where it points.
        target: Box<[u8]>,
    },
    /// Named pipe.
    Fifo,
    /// Unix socket.
    Socket,
    /// Character device.
    CharDevice {
        /// Which.
        device: Device,
    },
    /// Block device.
    BlockDevice {
        /// Which.
        device: Device,
    },
}

impl From<Kind> for What {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::File { size, id } => Self::File { size, id: Some(id) },
            Kind::Folder { id } => Self::Folder { id: Some(id) },
            Kind::Symlink { target } => Self::Symlink { target },
            Kind::Fifo => Self::Fifo,
            Kind::Socket => Self::Socket,
            Kind::CharDevice { device } => Self::CharDevice { device },
            Kind::BlockDevice { device } => Self::BlockDevice { device },
        }
    }
}

impl What {
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

    /// Whether it is a folder.
    pub fn is_folder(&self) -> bool {
        matches!(self, Self::Folder { .. })
    }

    /// Bytes of a file; of anything else none.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::File { size, .. } => *size,
            _ => 0,
        }
    }

    /// Whether it is the same kind of thing.
    pub fn same_kind(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Whether the content is the same, but for that of folders, whose entries
    /// are compared one by one. Files of unknown content and of one length
    /// count as different.
    fn same_content(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Folder { .. }, Self::Folder { .. }) => true,
            (Self::File { id: Some(id), .. }, Self::File { id: Some(other), .. }) => id == other,
            (Self::File { .. }, Self::File { .. }) => false,
            _ => self == other,
        }
    }
}

/// One side of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// What it is.
    pub what: What,
    /// What is kept about it beside its content.
    pub metadata: Metadata,
}

impl From<Entry> for Item {
    fn from(entry: Entry) -> Self {
        Self { what: entry.kind.into(), metadata: entry.metadata }
    }
}

/// In what two entries of one name differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// One is a file, the other a symlink, and so on.
    pub kind: bool,
    /// What a file contains, where a symlink points, which device it is.
    pub content: bool,
    /// Permissions.
    pub mode: bool,
    /// User or group.
    pub owner: bool,
    /// Extended attributes, access control lists among them.
    pub xattrs: bool,
    /// The time of modification.
    pub mtime: bool,
    /// Which other names are names of the same file.
    pub link: bool,
    /// Whether the file has holes.
    pub holes: bool,
}

impl Differences {
    /// Compares two entries of one name. What one of them does not record, as
    /// in a reproducible snapshot, does not differ.
    pub fn between(old: &Item, new: &Item) -> Self {
        let (a, b) = (&old.metadata, &new.metadata);
        let kind = !old.what.same_kind(&new.what);
        let both = a.mtime.is_some() && b.mtime.is_some();
        Self {
            kind,
            content: kind || !old.what.same_content(&new.what),
            mode: a.mode != b.mode,
            owner: a.owner.is_some() && b.owner.is_some() && a.owner != b.owner,
            xattrs: a.xattrs != b.xattrs,
            mtime: both && a.mtime != b.mtime,
            link: both && a.link != b.link,
            holes: both && a.sparse != b.sparse,
        }
    }

    /// Without what is of interest only to those who ask for it.
    #[must_use]
    pub fn usual(self) -> Self {
        Self { mtime: false, link: false, holes: false, ..self }
    }

    /// Whether there are any.
    pub fn any(self) -> bool {
        self != Self::default()
    }

    /// Their names, for JSON and messages.
    pub fn names(self) -> Vec<&'static str> {
        let all = [
            (self.kind, "kind"),
            (self.content && !self.kind, "content"),
            (self.mode, "mode"),
            (self.owner, "owner"),
            (self.xattrs, "xattrs"),
            (self.mtime, "mtime"),
            (self.link, "link"),
            (self.holes, "holes"),
        ];
        all.into_iter().filter(|(is, _)| *is).map(|(_, name)| name).collect()
    }
}

/// What happened to one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// It has another content.
    Modified,
    /// It has the same content, and other metadata.
    Metadata,
    /// It has become something else, such as a symlink in place of a file.
    Kind,
    /// It had another path before, and has the same content.
    Renamed,
}

impl Status {
    /// The word for it in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Modified => "modified",
            Self::Metadata => "metadata",
            Self::Kind => "kind",
            Self::Renamed => "renamed",
        }
    }
}

/// A path that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where it is, or was if it is gone.
    pub path: Vec<u8>,
    /// Where it was, if that is somewhere else.
    pub old_path: Option<Vec<u8>>,
    /// What it was; `None` when it is new.
    pub old: Option<Item>,
    /// What it is; `None` when it is gone.
    pub new: Option<Item>,
}

impl Change {
    pub(super) fn added(path: Vec<u8>, item: impl Into<Item>) -> Self {
        Self { path, old_path: None, old: None, new: Some(item.into()) }
    }

    pub(super) fn removed(path: Vec<u8>, item: impl Into<Item>) -> Self {
        Self { path, old_path: None, old: Some(item.into()), new: None }
    }

    pub(super) fn changed(path: Vec<u8>, old: Item, new: Item) -> Self {
        Self { path, old_path: None, old: Some(old), new: Some(new) }
    }

    /// In what the two sides differ; nothing where there is only one.
    pub fn differences(&self) -> Differences {
        match (&self.old, &self.new) {
            (Some(old), Some(new)) => Differences::between(old, new),
            _ => Differences::default(),
        }
    }

    /// What happened.
    pub fn status(&self) -> Status {
        match (&self.old, &self.new) {
            (None, _) => Status::Added,
            (_, None) => Status::Removed,
            _ if self.old_path.is_some() => Status::Renamed,
            _ => match self.differences() {
                Differences { kind: true, .. } => Status::Kind,
                Differences { content: true, .. } => Status::Modified,
                _ => Status::Metadata,
            },
        }
    }

    /// What is there, or what was there.
    pub fn item(&self) -> &Item {
        self.new.as_ref().or(self.old.as_ref()).expect("a change has a side")
    }

    /// About how much memory it takes.
    pub(super) fn weight(&self) -> usize {
        let sides = [&self.old, &self.new].into_iter().flatten();
        let more = |item: &Item| {
            let target = match &item.what {
                What::Symlink { target } => target.len(),
                _ => 0,
            };
            let xattrs = item.metadata.xattrs.iter().map(|x| 64 + x.name.len() + x.value.len());
            target + xattrs.sum::<usize>()
        };
        size_of::<Self>() + self.path.len() + 32 + sides.map(more).sum::<usize>()
    }
}
