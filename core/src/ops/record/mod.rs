//! Records: the results of operations, in a form for programs. The fields have the names in
//! `docs/schema/`. `snap --json` prints records, and the server returns them. Both add the framing
//! themselves: one record a line, or pages of a list.
//!
//! Fields may be added, but no field is removed or changes its meaning. If a path or a
//! target is not UTF-8, `path` has replacement characters and `path_hex` has the exact
//! bytes in hexadecimal.

mod change;
mod commit;
mod entry;
mod stats;
mod version;

use serde::Serialize;

pub use self::{
    change::ChangeRecord,
    commit::CommitRecord,
    entry::{EntryRecord, ItemRecord},
    stats::{AddedRecord, LargeFileRecord, StoreRecord},
    version::VersionRecord,
};

/// A path or a name.
#[derive(Clone, Debug, Serialize)]
struct PathRecord {
    path: String,
    /// Set only if the path is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

impl PathRecord {
    fn new(path: &[u8]) -> Self {
        Self { path: text(path), path_hex: exact(path) }
    }
}

/// Returns bytes as text; invalid UTF-8 is replaced.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the exact bytes in hexadecimal if they are not UTF-8.
pub fn exact(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes).is_err().then(|| hex::encode(bytes))
}
