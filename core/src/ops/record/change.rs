//! Records of changed paths: `docs/schema/change.json`.

use serde::Serialize;

use super::{ItemRecord, PathRecord, exact, text};
use crate::ops::diff::{Change, ChangeSide, Differences};

/// A path that differs.
#[derive(Clone, Debug, Serialize)]
pub struct ChangeRecord {
    status: &'static str,
    #[serde(flatten)]
    path: PathRecord,
    #[serde(skip_serializing_if = "Option::is_none")]
    old_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    old_path_hex: Option<String>,
    differences: Vec<&'static str>,
    old: Option<ItemRecord>,
    new: Option<ItemRecord>,
}

impl ChangeRecord {
    /// Creates the record of a change. `differences` are those to report.
    pub fn new(change: &Change, differences: Differences) -> Self {
        let old_path = change.old_path.as_deref();
        let side = |item: &Option<ChangeSide>| {
            item.as_ref().map(|item| ItemRecord::new(&item.what, &item.metadata))
        };
        Self {
            status: change.status().word(),
            path: PathRecord::new(&change.path),
            old_path: old_path.map(text),
            old_path_hex: old_path.and_then(exact),
            differences: differences.names(),
            old: side(&change.old),
            new: side(&change.new),
        }
    }
}
