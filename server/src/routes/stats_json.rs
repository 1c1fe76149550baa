//! What `stats` counts, as JSON; the fields are those of `snap --json stats`.

use serde::Serialize;
use snap_core::ops::stats::{CommitStats, FrameFacts, KindFacts, LargeFile, Outcome};

use super::json::{exact, text};

/// What each commit added, the largest files, and what the store holds.
#[derive(Debug, Serialize)]
pub(super) struct StatsJson {
    commits: Vec<AddedJson>,
    files: Vec<FileJson>,
    store: StoreJson,
}

#[derive(Debug, Serialize)]
struct AddedJson {
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

#[derive(Debug, Serialize)]
struct FileJson {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    size: u64,
    id: String,
    commit: String,
}

#[derive(Debug, Serialize)]
struct FramesJson {
    count: u64,
    raw_bytes: u64,
    stored_bytes: u64,
}

#[derive(Debug, Serialize)]
struct KindJson {
    count: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct StoreJson {
    commits: u64,
    snapshot_bytes: u64,
    changed_bytes: u64,
    new_bytes: u64,
    stored_bytes: u64,
    meta_bytes: u64,
    meta_stored_bytes: u64,
    /// Sizes of all snapshots to what is new in them.
    dedup_ratio: Option<f64>,
    /// What is new to what it takes.
    compression_ratio: Option<f64>,
    packs: u64,
    pack_bytes: u64,
    data_frames: FramesJson,
    meta_frames: FramesJson,
    blobs: KindJson,
    chunk_lists: KindJson,
    trees: KindJson,
    commit_objects: KindJson,
    repeated: KindJson,
}

impl From<&FrameFacts> for FramesJson {
    fn from(facts: &FrameFacts) -> Self {
        let FrameFacts { frames, raw_bytes, stored_bytes } = *facts;
        Self { count: frames, raw_bytes, stored_bytes }
    }
}

impl From<&KindFacts> for KindJson {
    fn from(facts: &KindFacts) -> Self {
        Self { count: facts.objects, bytes: facts.bytes }
    }
}

impl From<&CommitStats> for AddedJson {
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

impl From<&LargeFile> for FileJson {
    fn from(LargeFile { bytes, id, path, commit }: &LargeFile) -> Self {
        let (id, commit) = (id.to_string(), commit.to_string());
        Self { path: text(path), path_hex: exact(path), size: *bytes, id, commit }
    }
}

impl StatsJson {
    pub(super) fn new(outcome: &Outcome) -> Self {
        Self {
            commits: outcome.commits.iter().map(AddedJson::from).collect(),
            files: outcome.files.iter().map(FileJson::from).collect(),
            store: StoreJson::new(outcome),
        }
    }
}

impl StoreJson {
    fn new(outcome: &Outcome) -> Self {
        let (added, store) = (&outcome.added, &outcome.store);
        let ratio = |of: u64, to: u64| {
            let ratio = of as f64 / to as f64;
            (to > 0).then(|| (ratio * 100.0).round() / 100.0)
        };
        let (new_bytes, stored_bytes) = (added.data.raw_bytes, added.data.stored_bytes());
        Self {
            commits: outcome.commit_count,
            snapshot_bytes: outcome.snapshot_bytes,
            changed_bytes: added.changed_bytes,
            new_bytes,
            stored_bytes,
            meta_bytes: added.meta.raw_bytes,
            meta_stored_bytes: added.meta.stored_bytes(),
            dedup_ratio: ratio(outcome.snapshot_bytes, new_bytes),
            compression_ratio: ratio(new_bytes, stored_bytes),
            packs: store.packs,
            pack_bytes: store.pack_bytes,
            data_frames: (&store.data).into(),
            meta_frames: (&store.meta).into(),
            blobs: (&store.blobs).into(),
            chunk_lists: (&store.chunk_lists).into(),
            trees: (&store.trees).into(),
            commit_objects: (&store.commits).into(),
            repeated: (&store.repeated).into(),
        }
    }
}
