//! The error of a range read.

use std::{error::Error, io, ops::Range, sync::Arc};

use crate::bucket::{FailureReason, ServiceError};

/// Why bytes could not be read. The error is `Clone`, because one failed request may concern many
/// readers.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The request failed.
    #[error(transparent)]
    Service(Arc<ServiceError>),

    /// The response does not have the length of the requested range.
    #[error("cannot read bytes {}..{} of {key}: received {actual_bytes} B", range.start, range.end)]
    Length {
        /// Key of the object.
        key: Arc<str>,
        /// The requested range.
        range: Range<u64>,
        /// Length of the response in bytes.
        actual_bytes: u64,
    },

    /// The range ends after the content.
    #[error("cannot read bytes {}..{} of a content of {content_bytes} B", range.start, range.end)]
    Outside {
        /// The requested range.
        range: Range<u64>,
        /// Length of the content.
        content_bytes: u64,
    },

    /// The bytes could not be decoded into the content; the source says why.
    #[error("cannot read the content")]
    Content(#[source] Arc<dyn Error + Send + Sync>),

    /// The runtime ended, or a task that reads panicked.
    #[error("reading was cancelled")]
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
            ReadError::Service(service) => match service.reason {
                FailureReason::NotFound => io::ErrorKind::NotFound,
                FailureReason::Denied | FailureReason::Unauthenticated => {
                    io::ErrorKind::PermissionDenied
                }
                FailureReason::Short => io::ErrorKind::UnexpectedEof,
                FailureReason::Busy | FailureReason::Temporary => io::ErrorKind::TimedOut,
                FailureReason::Unreachable => io::ErrorKind::NotConnected,
                FailureReason::Unsupported => io::ErrorKind::Unsupported,
                _ => io::ErrorKind::Other,
            },
            ReadError::Length { .. } => io::ErrorKind::UnexpectedEof,
            ReadError::Outside { .. } => io::ErrorKind::InvalidInput,
            ReadError::Content(_) => io::ErrorKind::InvalidData,
            // Not `Interrupted`, because callers of `read` retry that.
            ReadError::Stopped => io::ErrorKind::BrokenPipe,
        };
        Self::new(kind, error)
    }
}
