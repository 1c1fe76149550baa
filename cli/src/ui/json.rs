//! Records on lines of their own: a contract, version [`VERSION`].
//!
//! Keys may be added within a version, but none is removed or changes its
//! meaning. What commits, entries and changes say is in core's
//! [`record`](snap_core::ops::record), which the server tells them with, too.

use serde::Serialize;

/// Version of all that is printed under `--json`.
pub(crate) const VERSION: u32 = 1;

/// A record with its version, and its type where a command prints several kinds.
#[derive(Debug, Serialize)]
pub(crate) struct Versioned<T> {
    version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'static str>,
    #[serde(flatten)]
    record: T,
}

impl<T> Versioned<T> {
    /// The only kind of record there.
    pub(crate) fn new(record: T) -> Self {
        Self { version: VERSION, r#type: None, record }
    }

    /// One of several kinds.
    pub(crate) fn of_type(r#type: &'static str, record: T) -> Self {
        Self { version: VERSION, r#type: Some(r#type), record }
    }
}
