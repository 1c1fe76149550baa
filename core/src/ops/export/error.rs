//! Why an export ended early.

use std::io;

use crate::{base::kind::ErrorKind, ops::list::ListError, store::StoreError};

/// Why an export ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// A content cannot be read, or is not what its id says.
    #[error("cannot export `{path}`")]
    Content {
        /// Its path in what is exported.
        path: String,
        /// Why.
        source: Box<StoreError>,
    },
    /// A folder cannot be read.
    #[error(transparent)]
    List(ListError),
    /// A path that zip has no room for.
    #[error("the path `{path}` is longer than a zip archive can say")]
    PathTooLong {
        /// Which, from its start.
        path: String,
    },
    /// Whoever receives the archive failed.
    #[error("cannot write the archive")]
    Output(#[from] io::Error),
    /// The user asked to stop.
    #[error("interrupted before the archive was complete")]
    Interrupted,
}

impl ExportError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Content { source, .. } => of_store(source.kind()),
            Self::List(ListError::Tree { source, .. }) => of_store(source.kind()),
            Self::List(error) => error.kind(),
            Self::PathTooLong { .. } => ErrorKind::Unsupported,
            // Nothing about the receiver is the store's, nor wrong with the request.
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

/// Every id comes from the store itself, so what is not there or is something
/// else is damage.
fn of_store(kind: ErrorKind) -> ErrorKind {
    match kind {
        ErrorKind::NotFound | ErrorKind::Invalid => ErrorKind::Damaged,
        kind => kind,
    }
}
