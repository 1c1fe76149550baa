//! Records of the versions of a path in history: `docs/schema/version.json`.

use serde::Serialize;

use super::{ItemRecord, PathRecord};
use crate::{
    format::tree::{EntryKind, Metadata},
    ops::{
        diff::ComparedKind,
        find::{CommitStamp, PathVersion, Range},
    },
};

/// One version of a path, and the ranges of commits that contain it.
#[derive(Clone, Debug, Serialize)]
pub struct VersionRecord {
    #[serde(flatten)]
    path: PathRecord,
    #[serde(flatten)]
    item: ItemRecord,
    commits: u64,
    ranges: Vec<RangeRecord>,
}

#[derive(Clone, Debug, Serialize)]
struct RangeRecord {
    first: StampRecord,
    last: StampRecord,
    commits: u64,
}

#[derive(Clone, Debug, Serialize)]
struct StampRecord {
    id: String,
    time: String,
}

impl VersionRecord {
    /// Creates the record of a version of `path`.
    pub fn new(path: &[u8], version: &PathVersion) -> Self {
        let what = match &version.kind {
            // All folders at one path count as one version, so the record has no tree id.
            EntryKind::Folder { .. } => ComparedKind::Folder { id: None },
            kind => kind.clone().into(),
        };
        let (mode, mtime) = (version.mode, version.mtime);
        Self {
            path: PathRecord::new(path),
            item: ItemRecord::new(&what, &Metadata { mode, mtime, ..Metadata::default() }),
            commits: version.commits(),
            ranges: version.ranges.iter().map(RangeRecord::from).collect(),
        }
    }
}

impl From<&Range> for RangeRecord {
    fn from(range: &Range) -> Self {
        let (first, last) = ((&range.first).into(), (&range.last).into());
        Self { first, last, commits: range.commits }
    }
}

impl From<&CommitStamp> for StampRecord {
    fn from(stamp: &CommitStamp) -> Self {
        Self { id: stamp.id.to_string(), time: stamp.time.rfc3339() }
    }
}
