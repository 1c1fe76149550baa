//! Commits: `docs/schema/commit.json`.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{base::id::CommitId, format::commit::Commit};

/// A commit.
#[derive(Clone, Debug, Serialize)]
pub struct CommitRecord {
    id: String,
    tree: String,
    parents: Vec<String>,
    time: String,
    author: String,
    host: String,
    message: String,
    labels: BTreeMap<String, String>,
    files: u64,
    folders: u64,
    others: u64,
    bytes: u64,
}

impl CommitRecord {
    /// Takes what a commit says.
    pub fn new(id: &CommitId, commit: &Commit) -> Self {
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
