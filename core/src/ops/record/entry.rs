//! Records of snapshot entries: `docs/schema/entry.json`.

use serde::Serialize;

use super::{PathRecord, exact, text};
use crate::{
    base::{id::ContentId, time::Time},
    format::tree::{Entry, Metadata},
    ops::diff::ComparedKind,
};

/// The kind, content and metadata of an entry, without its path.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ItemRecord {
    kind: &'static str,
    mode: String,
    size: Option<u64>,
    id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_hex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<[u32; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<u64>,
    /// True if the id is that of a chunk list, and not the hash of the content.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    chunked: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    sparse: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    xattrs: Vec<String>,
}

impl ItemRecord {
    /// Creates a record from kind, content and metadata.
    pub fn new(what: &ComparedKind, metadata: &Metadata) -> Self {
        let item = Self { kind: what.noun(), ..Self::of_metadata(metadata) };
        match what {
            ComparedKind::File { size, id } => {
                let chunked = id.is_some_and(ContentId::is_chunked);
                Self { size: Some(*size), id: id.map(|id| id.to_string()), chunked, ..item }
            }
            ComparedKind::Folder { id } => Self { id: id.map(|id| id.to_string()), ..item },
            ComparedKind::Symlink { target } => {
                Self { target: Some(text(target)), target_hex: exact(target), ..item }
            }
            ComparedKind::CharDevice { device } | ComparedKind::BlockDevice { device } => {
                Self { device: Some([device.major, device.minor]), ..item }
            }
            ComparedKind::Fifo | ComparedKind::Socket => item,
        }
    }

    fn of_metadata(metadata: &Metadata) -> Self {
        let owner = metadata.owner.as_deref();
        let named = |name: &[u8]| (!name.is_empty()).then(|| text(name));
        Self {
            mode: format!("{:04o}", metadata.mode),
            mtime: metadata.mtime.map(Time::rfc3339),
            uid: owner.map(|owner| owner.uid),
            gid: owner.map(|owner| owner.gid),
            user: owner.and_then(|owner| named(&owner.user)),
            group: owner.and_then(|owner| named(&owner.group)),
            link: metadata.link,
            sparse: metadata.sparse,
            xattrs: metadata.xattrs.iter().map(|xattr| text(&xattr.name)).collect(),
            ..Self::default()
        }
    }
}

/// An entry of a snapshot.
#[derive(Clone, Debug, Serialize)]
pub struct EntryRecord {
    #[serde(flatten)]
    path: PathRecord,
    #[serde(flatten)]
    item: ItemRecord,
}

impl EntryRecord {
    /// Creates a record of an entry; `path` is its full path in the snapshot.
    pub fn new(path: &[u8], entry: &Entry) -> Self {
        let item = ItemRecord::new(&entry.kind.clone().into(), &entry.metadata);
        Self { path: PathRecord::new(path), item }
    }
}
