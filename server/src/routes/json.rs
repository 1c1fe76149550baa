//! What is told of commits and entries in JSON; the fields are those of the
//! command line's.

use serde::Serialize;
use snap_core::{
    base::{id::CommitId, time::Time},
    format::{
        commit::Commit,
        tree::{Device, Kind, Metadata},
    },
    ops::diff::{Change, Item, Status, What},
};

/// Bytes as text; what is not UTF-8 there is replaced.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The exact bytes in hexadecimal, where they are not UTF-8.
pub(super) fn exact(bytes: &[u8]) -> Option<String> {
    let digits = || bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    std::str::from_utf8(bytes).is_err().then(digits)
}

/// A commit.
#[derive(Debug, Serialize)]
pub(super) struct CommitJson {
    id: String,
    tree: String,
    parents: Vec<String>,
    time: String,
    author: String,
    host: String,
    message: String,
    labels: std::collections::BTreeMap<String, String>,
    files: u64,
    folders: u64,
    others: u64,
    bytes: u64,
}

impl CommitJson {
    pub(super) fn new(id: CommitId, commit: &Commit) -> Self {
        let totals = commit.totals;
        Self {
            id: id.to_string(),
            tree: commit.tree.to_string(),
            parents: commit.parents.iter().map(ToString::to_string).collect(),
            time: commit.time.rfc3339(),
            author: commit.author.clone(),
            host: commit.host.clone(),
            message: commit.message.clone(),
            labels: commit.labels.clone(),
            files: totals.files,
            folders: totals.folders,
            others: totals.others,
            bytes: totals.bytes,
        }
    }
}

/// What an entry is and what is kept about it, but for its path.
#[derive(Debug, Default, Serialize)]
pub(super) struct ItemJson {
    kind: &'static str,
    mode: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<[u32; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    xattrs: Vec<String>,
}

impl ItemJson {
    /// Of an entry in a tree.
    pub(super) fn of_entry(kind: &Kind, metadata: &Metadata) -> Self {
        let item = Self { kind: kind.noun(), ..Self::of_metadata(metadata) };
        match kind {
            Kind::File { size, id } => Self { size: Some(*size), id: Some(id.to_string()), ..item },
            Kind::Folder { id } => Self { id: Some(id.to_string()), ..item },
            Kind::Symlink { target } => {
                Self { target: Some(text(target)), target_hex: exact(target), ..item }
            }
            Kind::CharDevice { device } | Kind::BlockDevice { device } => item.device(*device),
            Kind::Fifo | Kind::Socket => item,
        }
    }

    /// Of one side of a change.
    fn of_item(Item { what, metadata }: &Item) -> Self {
        let item = Self { kind: what.noun(), ..Self::of_metadata(metadata) };
        match what {
            What::File { size, id } => {
                Self { size: Some(*size), id: id.map(|id| id.to_string()), ..item }
            }
            What::Folder { id } => Self { id: id.map(|id| id.to_string()), ..item },
            What::Symlink { target } => {
                Self { target: Some(text(target)), target_hex: exact(target), ..item }
            }
            What::CharDevice { device } | What::BlockDevice { device } => item.device(*device),
            What::Fifo | What::Socket => item,
        }
    }

    fn of_metadata(metadata: &Metadata) -> Self {
        Self {
            mode: format!("{:04o}", metadata.mode),
            mtime: metadata.mtime.map(Time::rfc3339),
            uid: metadata.owner.as_ref().map(|owner| owner.uid),
            gid: metadata.owner.as_ref().map(|owner| owner.gid),
            // More digits than JSON's numbers have in most programs.
            link: metadata.link.map(|link| format!("{link:016x}")),
            xattrs: metadata.xattrs.iter().map(|xattr| text(&xattr.name)).collect(),
            ..Self::default()
        }
    }

    fn device(self, Device { major, minor }: Device) -> Self {
        Self { device: Some([major, minor]), ..self }
    }
}

/// An entry and its path from the top.
#[derive(Debug, Serialize)]
pub(super) struct EntryJson {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(flatten)]
    item: ItemJson,
}

impl EntryJson {
    pub(super) fn new(path: &[u8], kind: &Kind, metadata: &Metadata) -> Self {
        let item = ItemJson::of_entry(kind, metadata);
        Self { path: text(path), path_hex: exact(path), item }
    }
}

/// A path that differs.
#[derive(Debug, Serialize)]
pub(super) struct ChangeJson {
    status: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    old_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    old_path_hex: Option<String>,
    differences: Vec<&'static str>,
    old: Option<ItemJson>,
    new: Option<ItemJson>,
}

impl ChangeJson {
    pub(super) fn new(change: &Change) -> Self {
        let status = match change.status() {
            Status::Added => "added",
            Status::Removed => "removed",
            Status::Modified => "modified",
            Status::Metadata => "metadata",
            Status::Kind => "kind",
            Status::Renamed => "renamed",
        };
        let old_path = change.old_path.as_deref();
        Self {
            status,
            path: text(&change.path),
            path_hex: exact(&change.path),
            old_path: old_path.map(text),
            old_path_hex: old_path.and_then(exact),
            differences: change.differences().names(),
            old: change.old.as_ref().map(ItemJson::of_item),
            new: change.new.as_ref().map(ItemJson::of_item),
        }
    }
}
