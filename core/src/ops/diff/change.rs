//! The differences between two trees, entry by entry.

use std::mem;

use crate::{
    base::id::{ContentId, TreeId},
    format::tree::{Entry, EntryKind, Metadata},
};

/// The kind and content of an entry. A file on the user's disk has an id only if the comparison
/// needed it. A folder has an id only if its tree is in the store.
pub type ComparedKind = EntryKind<Option<ContentId>, Option<TreeId>>;

impl From<EntryKind> for ComparedKind {
    fn from(kind: EntryKind) -> Self {
        match kind {
            EntryKind::File { size, id } => Self::File { size, id: Some(id) },
            EntryKind::Folder { id } => Self::Folder { id: Some(id) },
            EntryKind::Symlink { target } => Self::Symlink { target },
            EntryKind::Fifo => Self::Fifo,
            EntryKind::Socket => Self::Socket,
            EntryKind::CharDevice { device } => Self::CharDevice { device },
            EntryKind::BlockDevice { device } => Self::BlockDevice { device },
        }
    }
}

impl ComparedKind {
    pub fn is_folder(&self) -> bool {
        matches!(self, Self::Folder { .. })
    }

    /// Returns the length of a file in bytes, and 0 for other kinds.
    pub fn bytes(&self) -> u64 {
        if let Self::File { size, .. } = self { *size } else { 0 }
    }

    /// Returns true if both have the same content. Two folders always do, because their
    /// entries are compared one by one. Two files do not if the content of either is
    /// unknown.
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
pub struct ChangeSide {
    /// Kind and content.
    pub what: ComparedKind,
    /// All recorded attributes.
    pub metadata: Metadata,
}

impl From<Entry> for ChangeSide {
    fn from(entry: Entry) -> Self {
        Self { what: entry.kind.into(), metadata: entry.metadata }
    }
}

/// The aspects in which two entries of the same name differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// The kinds differ, such as a file and a symlink.
    pub kind: bool,
    /// The content of the file, the target of the symlink or the device number.
    pub content: bool,
    /// Permission bits.
    pub mode: bool,
    /// User or group.
    pub owner: bool,
    /// Extended attributes, access control lists among them.
    pub xattrs: bool,
    /// Modification time.
    pub mtime: bool,
    /// The set of other names of the same file (hard links).
    pub link: bool,
    /// The file has holes on one side only.
    pub holes: bool,
}

impl Differences {
    /// Compares two entries of the same name. An aspect that one side does not record
    /// does not differ: a reproducible snapshot records no owners and no times.
    pub fn between(old: &ChangeSide, new: &ChangeSide) -> Self {
        let (a, b) = (&old.metadata, &new.metadata);
        let kind = mem::discriminant(&old.what) != mem::discriminant(&new.what);
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

    /// Removes the differences that are reported only with
    /// [`Detail::All`](super::Detail::All).
    #[must_use]
    pub fn usual(self) -> Self {
        Self { mtime: false, link: false, holes: false, ..self }
    }

    /// Returns true if anything differs.
    pub fn any(self) -> bool {
        self != Self::default()
    }

    /// Returns the names of the differing aspects, for JSON and messages.
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

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// The path is new.
    Added,
    /// The path is gone.
    Deleted,
    /// The entry still exists in the folder, but the ignore rules exclude it now.
    Ignored,
    /// The content differs.
    Modified,
    /// Only the metadata differ.
    Metadata,
    /// The kind differs, such as a symlink in place of a file.
    Kind,
    /// The file had another path before and has the same content.
    Renamed,
}

impl Status {
    /// Returns the status as a word for JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Deleted => "deleted",
            Self::Ignored => "ignored",
            Self::Modified => "modified",
            Self::Metadata => "metadata",
            Self::Kind => "typechange",
            Self::Renamed => "renamed",
        }
    }
}

/// A path at which the two sides differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The path on the new side, or on the old side if the entry was removed.
    pub path: Vec<u8>,
    /// The path on the old side, if the file was renamed.
    pub old_path: Option<Vec<u8>>,
    /// The entry on the old side; `None` if it was added.
    pub old: Option<ChangeSide>,
    /// The entry on the new side; `None` if it was removed.
    pub new: Option<ChangeSide>,
    /// True if only the ignore rules make the entry absent on the new side.
    pub is_ignored: bool,
}

impl Change {
    pub(super) fn added(path: Vec<u8>, item: impl Into<ChangeSide>) -> Self {
        Self { path, old_path: None, old: None, new: Some(item.into()), is_ignored: false }
    }

    /// Creates the change of an entry that is gone, or that the ignore rules exclude now.
    pub(super) fn deleted(path: Vec<u8>, item: impl Into<ChangeSide>, is_ignored: bool) -> Self {
        Self { path, old_path: None, old: Some(item.into()), new: None, is_ignored }
    }

    pub(super) fn changed(path: Vec<u8>, old: ChangeSide, new: ChangeSide) -> Self {
        Self { path, old_path: None, old: Some(old), new: Some(new), is_ignored: false }
    }

    /// Returns the differences between the two sides; none if there is only one side.
    pub fn differences(&self) -> Differences {
        match (&self.old, &self.new) {
            (Some(old), Some(new)) => Differences::between(old, new),
            _ => Differences::default(),
        }
    }

    /// Returns the kind of the change.
    pub fn status(&self) -> Status {
        match (&self.old, &self.new) {
            (None, _) => Status::Added,
            (_, None) if self.is_ignored => Status::Ignored,
            (_, None) => Status::Deleted,
            _ if self.old_path.is_some() => Status::Renamed,
            _ => match self.differences() {
                Differences { kind: true, .. } => Status::Kind,
                Differences { content: true, .. } => Status::Modified,
                _ => Status::Metadata,
            },
        }
    }

    /// Returns the entry on the new side, or on the old side if it was removed.
    pub fn item(&self) -> &ChangeSide {
        self.new.as_ref().or(self.old.as_ref()).expect("a change has a side")
    }

    /// Returns the approximate memory that the change takes, in bytes.
    pub(super) fn weight(&self) -> usize {
        let sides = [&self.old, &self.new].into_iter().flatten();
        let more = |item: &ChangeSide| {
            let target = match &item.what {
                ComparedKind::Symlink { target } => target.len(),
                _ => 0,
            };
            let xattrs = item.metadata.xattrs.iter().map(|x| 64 + x.name.len() + x.value.len());
            target + xattrs.sum::<usize>()
        };
        size_of::<Self>() + self.path.len() + 32 + sides.map(more).sum::<usize>()
    }
}
