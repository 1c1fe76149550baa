//! What can go wrong between here and there.

use std::time::Duration;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// There is no such object.
    NotFound,
    /// The condition of a write did not hold.
    Conflict,
    /// Whoever asks may not.
    Denied,
    /// Nobody knows who asks: wrong or missing keys.
    Unauthenticated,
    /// The keys were good for some time, which is over.
    Expired,
    /// The clock here and there differ too much for a signature.
    Clock,
    /// There is no such bucket or container.
    NoBucket,
    /// The object ends before the range does.
    Short,
    /// No room is left.
    Full,
    /// Too many requests; worth another try, later.
    Busy,
    /// No answer, half an answer, or one that says so: worth another try.
    Temporary,
    /// No connection: no such host, nobody listens there.
    Unreachable,
    /// The service cannot do this.
    Unsupported,
    /// Something else.
    Other,
}

impl What {
    /// Whether the same may go well when it is tried again.
    pub fn is_temporary(self) -> bool {
        matches!(self, Self::Busy | Self::Temporary | Self::Unreachable)
    }
}

/// What went wrong with a request, and with which.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation} {key}: {message}")]
pub struct ServiceError {
    /// What was to be done: `read`, `write`, `list`, …
    pub operation: &'static str,
    /// With which key or prefix, and where.
    pub key: String,
    /// What went wrong.
    pub what: What,
    /// In words, without secrets.
    pub message: String,
    /// When the service asked to be left alone until.
    pub retry_after: Option<Duration>,
}
