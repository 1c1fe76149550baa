//! Commits and entries in JSON: a contract, version [`VERSION`].
//!
//! Keys may be added within a version, but none is removed or changes its
//! meaning. A path that is not UTF-8 is shown with replacement characters in
//! `path` and exactly, in hex, in `path_hex`.

use std::collections::BTreeMap;

use serde::Serialize;
use snap_core::{
    base::id::CommitId,
    format::{
        commit::Commit,
        tree::{Entry, Kind},
    },
};

use crate::ui::time;

/// Version of all that is printed under `--json`.
pub(crate) const VERSION: u32 = 1;

/// A commit.
#[derive(Debug, Serialize)]
pub(crate) struct CommitJson<'a> {
    version: u32,
    id: String,
    tree: String,
    parents: Vec<String>,
    time: String,
    author: &'a str,
    host: &'a str,
    message: &'a str,
    labels: &'a BTreeMap<String, String>,
    files: u64,
    folders: u64,
    others: u64,
    bytes: u64,
}

impl<'a> CommitJson<'a> {
    /// Takes what a commit says.
    pub(crate) fn new(id: &CommitId, commit: &'a Commit) -> Self {
        Self {
            version: VERSION,
            id: id.to_string(),
            tree: commit.tree.to_string(),
            parents: commit.parents.iter().map(ToString::to_string).collect(),
            time: time::rfc3339(commit.time),
            author: &commit.author,
            host: &commit.host,
            message: &commit.message,
            labels: &commit.labels,
            files: commit.totals.files,
            folders: commit.totals.folders,
            others: commit.totals.others,
            bytes: commit.totals.bytes,
        }
    }
}

/// An entry of a snapshot.
#[derive(Debug, Serialize)]
pub(crate) struct EntryJson {
    version: u32,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
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
    device: Option<[u32; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    sparse: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    xattrs: Vec<String>,
}

impl EntryJson {
    /// Takes what an entry says; `path` is its whole path in the snapshot.
    pub(crate) fn new(path: &[u8], entry: &Entry) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let metadata = &entry.metadata;
        let owner = metadata.owner.as_deref();
        let named = |name: &[u8]| (!name.is_empty()).then(|| text(name));
        let (size, id, target, device) = match &entry.kind {
            Kind::File { size, id } => (Some(*size), Some(id.to_string()), None, None),
            Kind::Folder { id } => (None, Some(id.to_string()), None, None),
            Kind::Symlink { target } => (None, None, Some(text(target)), None),
            Kind::CharDevice { device } | Kind::BlockDevice { device } => {
                (None, None, None, Some([device.major, device.minor]))
            }
            Kind::Fifo | Kind::Socket => (None, None, None, None),
        };
        Self {
            version: VERSION,
            path: text(path),
            path_hex: std::str::from_utf8(path).is_err().then(|| hex(path)),
            kind: entry.kind.noun(),
            mode: format!("{:04o}", metadata.mode),
            size,
            id,
            mtime: metadata.mtime.map(time::rfc3339),
            uid: owner.map(|owner| owner.uid),
            gid: owner.map(|owner| owner.gid),
            user: owner.and_then(|owner| named(&owner.user)),
            group: owner.and_then(|owner| named(&owner.group)),
            target,
            device,
            link: metadata.link,
            sparse: metadata.sparse,
            xattrs: metadata.xattrs.iter().map(|xattr| text(&xattr.name)).collect(),
        }
    }
}

/// Bytes in hex, for names that are not UTF-8.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
