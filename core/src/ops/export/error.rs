//! Errors of an export.

use std::{io, sync::Arc};

use crate::{base::kind::ErrorKind, ops::list::ListError, store::StoreError};

/// The reason why an export ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// A content cannot be read, or does not match its id.
    #[error("cannot export `{path}`")]
    Content { path: String, source: Arc<StoreError> },
    /// A folder cannot be read.
    #[error(transparent)]
    List(ListError),
    /// A path is longer than zip allows.
    #[error("path `{path}` is too long for a zip archive")]
    PathTooLong { path: String },
    /// The receiver of the archive returned an error.
    #[error("cannot write the archive")]
    Output(#[from] io::Error),
    /// The user asked to stop.
    #[error("interrupted before the archive was complete")]
    Interrupted,
}

impl ExportError {
    /// Classifies the error for the caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Content { source, .. } => of_store(source.kind()),
            Self::List(ListError::Tree { source, .. }) => of_store(source.kind()),
            Self::List(error) => error.kind(),
            Self::PathTooLong { .. } => ErrorKind::Unsupported,
            // A failing receiver does not mean that the store is damaged or the request
            // invalid.
            Self::Output(error) => match ErrorKind::of_io(error) {
                ErrorKind::Damaged | ErrorKind::Invalid | ErrorKind::Interrupted => {
                    ErrorKind::Unavailable
                }
                kind => kind,
            },
            Self::Interrupted => ErrorKind::Interrupted,
        }
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
