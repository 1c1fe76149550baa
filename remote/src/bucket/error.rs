//! Errors of services.

use std::{fmt, num::NonZeroU32, time::Duration};

use snap_core::base::kind::ErrorKind;

/// The kind of a service error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureReason {
    /// The object does not exist.
    NotFound,
    /// The condition of a write does not hold.
    Conflict,
    /// The credentials are valid but do not permit the request.
    Denied,
    /// The credentials are missing or wrong.
    Unauthenticated,
    /// The credentials have expired.
    Expired,
    /// The clocks of client and service differ too much for a signature.
    Clock,
    /// The bucket or container does not exist.
    NoBucket,
    /// The object ends before the requested range.
    Short,
    /// The service ignores ranges, and sent the whole object.
    RangeIgnored,
    /// The response is longer than the limit.
    TooLong,
    /// The object is a folder, a pipe or a device.
    NotAFile,
    /// The service has no space left.
    Full,
    /// Too many requests: retry later.
    Busy,
    /// No answer, an incomplete answer, or an answer that reports a temporary error: retry.
    Temporary,
    /// No connection: the host is unknown or refuses connections.
    Unreachable,
    /// The service does not support the operation.
    Unsupported,
    /// The service rejects the request as invalid or not allowed.
    Refused,
    /// The local file to write does not hash to its name.
    Damaged,
    /// The server reports that its store is damaged.
    DamagedThere,
    /// `ssh` does not know the key of the host, or knows another one.
    HostKey,
    /// The caller cancelled the request.
    Stopped,
    /// Any other error.
    Other,
}

impl FailureReason {
    /// Returns true if a retry of the same request may succeed.
    pub fn is_temporary(self) -> bool {
        matches!(self, Self::Busy | Self::Temporary | Self::Unreachable)
    }

    /// Returns true if the service has finished the request, so that it will not carry it out
    /// later. False if the answer may be lost.
    pub fn is_settled(self) -> bool {
        !matches!(
            self,
            Self::Temporary | Self::Unreachable | Self::HostKey | Self::Stopped | Self::Other
        )
    }

    /// Returns the kind of the error, from which a caller decides what to do.
    pub fn kind(self) -> ErrorKind {
        match self {
            Self::NotFound | Self::NoBucket => ErrorKind::NotFound,
            Self::Conflict => ErrorKind::Exists,
            Self::Denied | Self::Unauthenticated | Self::Expired | Self::Clock => ErrorKind::Denied,
            Self::Short | Self::TooLong | Self::Damaged | Self::DamagedThere | Self::NotAFile => {
                ErrorKind::Damaged
            }
            Self::Unsupported | Self::RangeIgnored => ErrorKind::Unsupported,
            Self::Refused => ErrorKind::Refused,
            Self::Stopped => ErrorKind::Interrupted,
            Self::Full
            | Self::Busy
            | Self::Temporary
            | Self::Unreachable
            | Self::HostKey
            | Self::Other => ErrorKind::Unavailable,
        }
    }

    /// Returns a description, or nothing if only the message of the service describes the error.
    fn words(self) -> &'static str {
        match self {
            Self::NotFound => "the object does not exist",
            Self::Conflict => "another client changed it",
            Self::Denied => "permission denied",
            Self::Unauthenticated => "authentication failed",
            Self::Expired => "the credentials have expired",
            Self::Clock => "the local clock and the clock of the service differ too much",
            Self::NoBucket => "the bucket does not exist",
            Self::Short => "it is truncated",
            Self::RangeIgnored => "the service ignores range requests",
            Self::TooLong => "it exceeds the size limit",
            Self::NotAFile => "it is not a regular file",
            Self::Full => "the service has no space left",
            Self::Busy => "too many requests",
            Self::Damaged => "the local file is damaged",
            Self::Stopped => "it was cancelled",
            Self::Unsupported => "the service does not support this",
            // The message names the host.
            Self::Unreachable => "",
            Self::DamagedThere | Self::Refused | Self::Temporary | Self::HostKey | Self::Other => {
                ""
            }
        }
    }
}

/// Details about an error beyond its [`FailureReason`]. Hints depend on them, retries do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureDetail {
    /// The token may only add branches, tags and commits.
    AppendOnly,
    /// The certificate of the server is not trusted, has expired, or is for another name.
    Certificate,
    /// The server presented a CA certificate instead of a server certificate.
    CaCertificate,
    /// The ref is the current branch of a project.
    CurrentBranch,
    /// The name of the ref would be a folder of an existing ref, or the reverse.
    NameConflict,
    /// Like [`Self::NameConflict`], but the other ref was deleted, and the service keeps its name.
    NameReserved,
    /// The remote store is a partial clone, and lacks objects that the push refers to.
    PartialClone,
}

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub struct ServiceError {
    /// The operation: `read`, `write`, `list`, …
    pub operation: &'static str,
    /// The key or prefix.
    pub key: String,
    /// The location; empty until the client sets it.
    pub location: String,
    /// The kind of the error.
    pub reason: FailureReason,
    /// The exact cause, if the cause needs its own hint.
    pub detail: Option<FailureDetail>,
    /// The message of the service, without secrets; may be empty.
    pub message: String,
    /// The pause that the service requests.
    pub retry_after: Option<Duration>,
    /// Number of bytes of a pack that were sent before the connection broke. Small, since a large
    /// error makes each `Result` large.
    pub interrupted_at: Option<NonZeroU32>,
}

impl ServiceError {
    /// Creates an error without a location and without a detail.
    pub fn new(operation: &'static str, key: &str, what: FailureReason, message: String) -> Self {
        let (key, location) = (key.to_owned(), String::new());
        Self {
            operation,
            key,
            location,
            reason: what,
            detail: None,
            message,
            retry_after: None,
            interrupted_at: None,
        }
    }

    /// Returns the cause in words, without the operation and the object.
    pub fn why(&self) -> String {
        match (self.reason.words(), self.message.as_str()) {
            ("", message) => message.to_owned(),
            (words, "") if self.reason == FailureReason::Unauthenticated => {
                format!("{words}: the credentials are missing, invalid, revoked or expired")
            }
            (words, "") => words.to_owned(),
            (words, message) => format!("{words}: {message}"),
        }
    }

    /// Sets the detail.
    pub(crate) fn with_detail(self, detail: FailureDetail) -> Self {
        Self { detail: Some(detail), ..self }
    }
}

impl fmt::Display for ServiceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}", self.operation)?;
        if !self.key.is_empty() {
            write!(f, " {}", self.key)?;
        }
        if !self.location.is_empty() {
            write!(f, " at {}", self.location)?;
        }
        write!(f, ": {}", self.why())
    }
}
