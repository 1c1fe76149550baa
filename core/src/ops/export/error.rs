//! Errors of an export.

use std::{io, sync::Arc};

use crate::{
    base::kind::{ErrorKind, Kind},
    ops::list::ListError,
    store::StoreError,
};

/// The reason why an export ended early.
#[derive(Debug, thiserror::Error, Kind)]
#[non_exhaustive]
pub enum ExportError {
    /// A content cannot be read, or does not match its id.
    #[error("cannot export `{path}`")]
    #[kind(of_store(source.kind()))]
    Content { path: String, source: Arc<StoreError> },
    /// A folder cannot be read.
    #[error(transparent)]
    #[kind(of_list(_0))]
    List(ListError),
    /// A path is longer than zip allows.
    #[error("path `{path}` is too long for a zip archive")]
    #[kind(Unsupported)]
    PathTooLong { path: String },
    /// The receiver of the archive returned an error.
    #[error("cannot write the archive")]
    #[kind(of_receiver(_0))]
    Output(#[from] io::Error),
    /// The user asked to stop.
    #[error("interrupted before the archive was complete")]
    #[kind(Interrupted)]
    Interrupted,
}

fn of_list(error: &ListError) -> ErrorKind {
    match error {
        ListError::Tree { source, .. } => of_store(source.kind()),
        error => error.kind(),
    }
}

/// A failing receiver does not mean that the store is damaged or the request invalid.
fn of_receiver(error: &io::Error) -> ErrorKind {
    match error.kind().into() {
        ErrorKind::Damaged | ErrorKind::Invalid | ErrorKind::Interrupted => ErrorKind::Unavailable,
        kind => kind,
    }
}

/// Treats missing and mismatching objects as damage, since every id comes from the store
/// itself.
fn of_store(kind: ErrorKind) -> ErrorKind {
    match kind {
        ErrorKind::NotFound | ErrorKind::Invalid => ErrorKind::Damaged,
        kind => kind,
    }
}
