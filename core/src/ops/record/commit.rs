//! Records of commits: `docs/schema/commit.json`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{PathRecord, text};
use crate::{
    base::id::CommitId,
    format::{
        commit::Commit,
        selection::{FolderMarker, IgnoreOptions, Selection},
    },
};

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
    #[serde(skip_serializing_if = "Option::is_none")]
    selection: Option<SelectionRecord>,
}

/// The rules, sources and unreadable paths that determine what a commit could contain.
#[derive(Clone, Debug, Serialize)]
struct SelectionRecord {
    rules: Vec<RuleSetRecord>,
    sources: Vec<PathRecord>,
    unread: Vec<PathRecord>,
    more_unread: bool,
}

/// A set of exclude rules.
#[derive(Clone, Debug, Serialize)]
struct RuleSetRecord {
    patterns: Vec<String>,
    ignore_case_patterns: Vec<String>,
    markers: Vec<MarkerRecord>,
    gitignore: bool,
    cache_folders: bool,
    larger_than_bytes: Option<u64>,
    one_file_system: bool,
}

/// An entry that marks its folder.
#[derive(Clone, Debug, Serialize)]
struct MarkerRecord {
    name: PathRecord,
    header: String,
}

impl MarkerRecord {
    fn new(marker: &FolderMarker) -> Self {
        Self { name: PathRecord::new(marker.name.as_bytes()), header: text(&marker.header) }
    }
}

impl CommitRecord {
    /// Creates the record of a commit.
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
            selection: match commit.selection.is_empty() {
                true => None,
                false => Some(SelectionRecord::new(&commit.selection)),
            },
        }
    }
}

impl SelectionRecord {
    fn new(selection: &Selection) -> Self {
        Self {
            rules: selection.rules.iter().map(RuleSetRecord::new).collect(),
            sources: selection.sources.iter().map(|source| PathRecord::new(source)).collect(),
            unread: selection.unread.iter().map(PathRecord::new).collect(),
            more_unread: selection.unread.has_more(),
        }
    }
}

impl RuleSetRecord {
    fn new(rules: &IgnoreOptions) -> Self {
        Self {
            patterns: rules.patterns.clone(),
            ignore_case_patterns: rules.ignore_case_patterns.clone(),
            markers: rules.markers.iter().map(MarkerRecord::new).collect(),
            gitignore: rules.gitignore,
            cache_folders: rules.cache_folders,
            larger_than_bytes: rules.larger_than_bytes,
            one_file_system: rules.one_file_system,
        }
    }
}
