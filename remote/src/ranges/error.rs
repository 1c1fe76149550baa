//! Why bytes could not be read.

use std::{error::Error, io, ops::Range, sync::Arc};

use crate::service::{ServiceError, What};

/// Why bytes could not be read. One failed request may concern many readers,
/// so it can be cloned.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The request failed.
    #[error(transparent)]
    Service(Arc<ServiceError>),

    /// What came is not as long as what was asked for.
    #[error("cannot read bytes {}..{} of {key}: {actual_bytes} came", range.start, range.end)]
    Length {
        /// Of which object; empty for a content.
        key: Arc<str>,
        /// What was asked for.
        range: Range<u64>,
        /// How much came.
        actual_bytes: u64,
    },

    /// The content ends before the range does.
    #[error("cannot read bytes {}..{} of a content of {content_bytes}", range.start, range.end)]
    Outside {
        /// What was asked for.
        range: Range<u64>,
        /// Length of the content.
        content_bytes: u64,
    },

    /// The content could not be made of what came; its own error says why.
    #[error("cannot read the content")]
    Content(#[source] Arc<dyn Error + Send + Sync>),

    /// The runtime ended, or a reader below panicked.
    #[error("reading was stopped")]
    Stopped,
}

impl From<ServiceError> for ReadError {
    fn from(error: ServiceError) -> Self {
        Self::Service(Arc::new(error))
    }
}

impl From<ReadError> for io::Error {
    fn from(error: ReadError) -> Self {
        let kind = match &error {
            ReadError::Service(service) => match service.what {
                What::NotFound => io::ErrorKind::NotFound,
                What::Denied | What::Unauthenticated => io::ErrorKind::PermissionDenied,
                What::Short => io::ErrorKind::UnexpectedEof,
                What::Busy | What::Temporary => io::ErrorKind::TimedOut,
                What::Unreachable => io::ErrorKind::NotConnected,
                What::Unsupported => io::ErrorKind::Unsupported,
                _ => io::ErrorKind::Other,
            },
            ReadError::Length { .. } => io::ErrorKind::UnexpectedEof,
            ReadError::Outside { .. } => io::ErrorKind::InvalidInput,
            ReadError::Content(_) => io::ErrorKind::InvalidData,
            // Not `Interrupted`, which whoever reads would try again.
            ReadError::Stopped => io::ErrorKind::BrokenPipe,
        };
        Self::new(kind, error)
    }
}
