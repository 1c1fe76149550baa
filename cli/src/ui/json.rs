//! JSON records, one on each line: a contract, version [`VERSION`].
//!
//! Keys may be added within a version, but no key is removed or changes its meaning. The records of
//! commits, entries and changes are in core's [`record`](snap_core::ops::record); the server uses
//! them too.

use serde::Serialize;

/// The version of all records that `--json` prints.
pub(crate) const VERSION: u32 = 1;

/// A record with its version and type.
#[derive(Debug, Serialize)]
pub(crate) struct Versioned<T> {
    version: u32,
    r#type: &'static str,
    #[serde(flatten)]
    record: T,
}

impl<T> Versioned<T> {
    /// Wraps a record with its type.
    pub(crate) fn of_type(r#type: &'static str, record: T) -> Self {
        Self { version: VERSION, r#type, record }
    }
}
