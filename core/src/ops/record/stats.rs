//! Records of statistics: `docs/schema/stats-commit.json`, `stats-file.json` and
//! `stats-store.json`.

use serde::Serialize;

use super::PathRecord;
use crate::ops::stats::{CommitStats, FrameFacts, KindFacts, LargeFile, StatsOutcome};

/// The data that one commit added.
#[derive(Clone, Debug, Serialize)]
pub struct AddedRecord {
    id: String,
    time: String,
    message: String,
    snapshot_bytes: u64,
    changed_files: u64,
    changed_bytes: u64,
    new_objects: u64,
    new_bytes: u64,
    stored_bytes: u64,
    meta_objects: u64,
    meta_bytes: u64,
    meta_stored_bytes: u64,
}

impl From<&CommitStats> for AddedRecord {
    fn from(commit: &CommitStats) -> Self {
        let added = &commit.added;
        Self {
            id: commit.id.to_string(),
            time: commit.time.rfc3339(),
            message: commit.message.clone(),
            snapshot_bytes: commit.bytes,
            changed_files: added.changed_files,
            changed_bytes: added.changed_bytes,
            new_objects: added.data.objects,
            new_bytes: added.data.raw_bytes,
            stored_bytes: added.data.stored_bytes(),
            meta_objects: added.meta.objects,
            meta_bytes: added.meta.raw_bytes,
            meta_stored_bytes: added.meta.stored_bytes(),
        }
    }
}

/// One of the largest files.
#[derive(Clone, Debug, Serialize)]
pub struct LargeFileRecord {
    #[serde(flatten)]
    path: PathRecord,
    size: u64,
    id: String,
    /// True if the id is that of a chunk list, and not the hash of the content.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    chunked: bool,
    commit: String,
}

impl From<&LargeFile> for LargeFileRecord {
    fn from(LargeFile { bytes, id, path, commit }: &LargeFile) -> Self {
        let chunked = id.is_chunked();
        let (id, commit) = (id.to_string(), commit.to_string());
        Self { path: PathRecord::new(path), size: *bytes, id, chunked, commit }
    }
}

/// Totals of all commits and of the store.
#[derive(Clone, Debug, Serialize)]
pub struct StoreRecord {
    commits: u64,
    forgotten_commits: u64,
    snapshot_bytes: u64,
    changed_bytes: u64,
    new_bytes: u64,
    stored_bytes: u64,
    meta_bytes: u64,
    meta_stored_bytes: u64,
    dedup_ratio: Option<f64>,
    compression_ratio: Option<f64>,
    packs: u64,
    pack_bytes: u64,
    data_frames: FrameFacts,
    meta_frames: FrameFacts,
    blobs: KindFacts,
    chunk_lists: KindFacts,
    trees: KindFacts,
    commit_objects: KindFacts,
    links: KindFacts,
    repeated: KindFacts,
}

impl From<&StatsOutcome> for StoreRecord {
    fn from(outcome: &StatsOutcome) -> Self {
        let (added, store) = (&outcome.added, &outcome.store);
        Self {
            commits: outcome.commit_count,
            forgotten_commits: outcome.forgotten_commits,
            snapshot_bytes: outcome.snapshot_bytes,
            changed_bytes: added.changed_bytes,
            new_bytes: added.data.raw_bytes,
            stored_bytes: added.data.stored_bytes(),
            meta_bytes: added.meta.raw_bytes,
            meta_stored_bytes: added.meta.stored_bytes(),
            dedup_ratio: outcome.dedup_ratio(),
            compression_ratio: outcome.compression_ratio(),
            packs: store.packs,
            pack_bytes: store.pack_bytes,
            data_frames: store.data,
            meta_frames: store.meta,
            blobs: store.blobs,
            chunk_lists: store.chunk_lists,
            trees: store.trees,
            commit_objects: store.commits,
            links: store.links,
            repeated: store.repeated,
        }
    }
}
