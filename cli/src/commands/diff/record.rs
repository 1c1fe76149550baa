//! Changes in JSON.

use serde::Serialize;
use snap_core::{
    format::tree::Metadata,
    ops::diff::{Change, Differences, Item, Outcome, Status, What},
};

use crate::ui::{VERSION, hex, time};

/// A change.
#[derive(Debug, Serialize)]
pub(crate) struct ChangeJson {
    version: u32,
    r#type: &'static str,
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
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    lines: Option<LinesJson>,
}

/// One side of a change.
#[derive(Debug, Serialize)]
struct ItemJson {
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
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<[u32; 2]>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    xattrs: Vec<String>,
}

/// How many lines came and went; neither is there for what is no text.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct LinesJson {
    pub(crate) binary: bool,
    pub(crate) lines_added: Option<u64>,
    pub(crate) lines_removed: Option<u64>,
}

/// The word for what happened.
pub(crate) fn word(status: Status) -> &'static str {
    match status {
        Status::Added => "added",
        Status::Removed => "removed",
        Status::Modified => "modified",
        Status::Metadata => "metadata",
        Status::Kind => "kind",
        Status::Renamed => "renamed",
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn exact(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).is_err().then(|| hex(bytes))
}

impl ChangeJson {
    /// Takes what a change says.
    pub(crate) fn new(change: &Change, differences: Differences, lines: Option<LinesJson>) -> Self {
        Self {
            version: VERSION,
            r#type: "change",
            status: word(change.status()),
            path: lossy(&change.path),
            path_hex: exact(&change.path),
            old_path: change.old_path.as_deref().map(lossy),
            old_path_hex: change.old_path.as_deref().and_then(exact),
            differences: differences.names(),
            old: change.old.as_ref().map(ItemJson::new),
            new: change.new.as_ref().map(ItemJson::new),
            lines,
        }
    }
}

impl ItemJson {
    fn new(item: &Item) -> Self {
        let Metadata { mode, owner, mtime, xattrs, .. } = &item.metadata;
        let (mut size, mut id, mut target, mut device) = (None, None, None, None);
        match &item.what {
            What::File { size: bytes, id: content } => {
                (size, id) = (Some(*bytes), content.map(|id| id.to_string()));
            }
            What::Folder { id: tree } => id = tree.map(|id| id.to_string()),
            What::Symlink { target: path } => target = Some(lossy(path)),
            What::CharDevice { device: of } | What::BlockDevice { device: of } => {
                device = Some([of.major, of.minor]);
            }
            What::Fifo | What::Socket => {}
        }
        Self {
            kind: item.what.noun(),
            mode: format!("{mode:04o}"),
            size,
            id,
            mtime: mtime.map(time::rfc3339),
            uid: owner.as_ref().map(|owner| owner.uid),
            gid: owner.as_ref().map(|owner| owner.gid),
            target,
            device,
            xattrs: xattrs.iter().map(|xattr| lossy(&xattr.name)).collect(),
        }
    }
}

/// How much differs; the last record.
#[derive(Debug, Serialize)]
pub(crate) struct SummaryJson {
    version: u32,
    r#type: &'static str,
    added: u64,
    removed: u64,
    modified: u64,
    metadata: u64,
    kind: u64,
    renamed: u64,
    folders_added: u64,
    folders_removed: u64,
    bytes_added: u64,
    bytes_removed: u64,
    skipped: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lines_added: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lines_removed: Option<u64>,
}

impl SummaryJson {
    /// Takes what a comparison came to, and how many lines came and went.
    pub(crate) fn new(outcome: &Outcome, lines: Option<(u64, u64)>) -> Self {
        Self {
            version: VERSION,
            r#type: "summary",
            added: outcome.added,
            removed: outcome.removed,
            modified: outcome.modified,
            metadata: outcome.metadata,
            kind: outcome.kind,
            renamed: outcome.renamed,
            folders_added: outcome.folders_added,
            folders_removed: outcome.folders_removed,
            bytes_added: outcome.bytes_added,
            bytes_removed: outcome.bytes_removed,
            skipped: outcome.skipped,
            lines_added: lines.map(|(added, _)| added),
            lines_removed: lines.map(|(_, removed)| removed),
        }
    }
}
