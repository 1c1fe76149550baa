//! JSON records of changes.

use serde::Serialize;
use snap_core::ops::{
    diff::{Change, DiffOutcome, Differences},
    record::ChangeRecord,
};

use crate::ui::{VERSION, Versioned};

/// A change.
#[derive(Debug, Serialize)]
pub(crate) struct DiffChangeJson {
    #[serde(flatten)]
    change: Versioned<ChangeRecord>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    lines: Option<LinesJson>,
}

/// The numbers of added and removed lines; `None` for content that is not text.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct LinesJson {
    pub(crate) binary: bool,
    pub(crate) lines_added: Option<u64>,
    pub(crate) lines_deleted: Option<u64>,
}

impl DiffChangeJson {
    /// Converts a change.
    pub(crate) fn new(change: &Change, differences: Differences, lines: Option<LinesJson>) -> Self {
        let record = ChangeRecord::new(change, differences);
        Self { change: Versioned::of_type("change", record), lines }
    }
}

/// The totals of a comparison; the last record.
#[derive(Debug, Serialize)]
pub(crate) struct SummaryJson {
    version: u32,
    r#type: &'static str,
    added: u64,
    deleted: u64,
    ignored: u64,
    modified: u64,
    metadata: u64,
    typechange: u64,
    renamed: u64,
    folders_added: u64,
    folders_deleted: u64,
    folders_ignored: u64,
    bytes_added: u64,
    bytes_deleted: u64,
    skipped: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lines_added: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lines_deleted: Option<u64>,
}

impl SummaryJson {
    /// Converts the outcome of a comparison and the line counts.
    pub(crate) fn new(outcome: &DiffOutcome, lines: Option<(u64, u64)>) -> Self {
        Self {
            version: VERSION,
            r#type: "summary",
            added: outcome.added,
            deleted: outcome.deleted,
            ignored: outcome.ignored,
            modified: outcome.modified,
            metadata: outcome.metadata,
            typechange: outcome.kind,
            renamed: outcome.renamed,
            folders_added: outcome.folders_added,
            folders_deleted: outcome.folders_deleted,
            folders_ignored: outcome.folders_ignored,
            bytes_added: outcome.bytes_added,
            bytes_deleted: outcome.bytes_deleted,
            skipped: outcome.skipped,
            lines_added: lines.map(|(added, _)| added),
            lines_deleted: lines.map(|(_, deleted)| deleted),
        }
    }
}
