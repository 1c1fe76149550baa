//! What can go wrong between here and there.

use std::{fmt, time::Duration};

use snap_core::base::kind::ErrorKind;

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
    /// What came is longer than it can be.
    TooLong,
    /// It is a folder, a pipe or a device.
    NotAFile,
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
    /// The service takes what was asked for something that makes no sense or is
    /// not allowed.
    Refused,
    /// A file here was to be written, and its bytes are not those that its name says.
    Damaged,
    /// Whoever asked wants it no more.
    Stopped,
    /// Something else.
    Other,
}

impl What {
    /// Whether the same may go well when it is tried again.
    pub fn is_temporary(self) -> bool {
        matches!(self, Self::Busy | Self::Temporary | Self::Unreachable)
    }

    /// Whether the service has dealt with the request, so that it cannot be carried
    /// out later. Of one whose answer was lost nobody knows that.
    pub fn is_settled(self) -> bool {
        !matches!(self, Self::Temporary | Self::Unreachable | Self::Stopped | Self::Other)
    }

    /// What a caller can do about it.
    pub fn kind(self) -> ErrorKind {
        match self {
            Self::NotFound | Self::NoBucket => ErrorKind::NotFound,
            Self::Conflict => ErrorKind::Exists,
            Self::Denied | Self::Unauthenticated | Self::Expired | Self::Clock => ErrorKind::Denied,
            Self::Short | Self::TooLong | Self::Damaged | Self::NotAFile => ErrorKind::Damaged,
            Self::Unsupported => ErrorKind::Unsupported,
            Self::Refused => ErrorKind::Invalid,
            Self::Stopped => ErrorKind::Interrupted,
            Self::Full | Self::Busy | Self::Temporary | Self::Unreachable | Self::Other => {
                ErrorKind::Unavailable
            }
        }
    }

    /// In words; empty where only the service's own say anything.
    fn words(self) -> &'static str {
        match self {
            Self::NotFound => "there is no such object",
            Self::Conflict => "it is not as it was",
            Self::Denied => "permission is denied",
            Self::Unauthenticated => "the keys are missing, or not known there",
            Self::Expired => "the keys have expired",
            Self::Clock => "the clocks here and there differ too much",
            Self::NoBucket => "there is no such bucket",
            Self::Short => "it is cut short",
            Self::TooLong => "what came is longer than it can be",
            Self::NotAFile => "it is no file",
            Self::Full => "no room is left there",
            Self::Busy => "too many requests",
            Self::Unreachable => "nobody answers there",
            Self::Damaged => "the file here is damaged",
            Self::Stopped => "it was given up",
            Self::Unsupported => "the service cannot do that",
            Self::Refused | Self::Temporary | Self::Other => "",
        }
    }
}

/// What went wrong with a request, and with which.
#[derive(Debug, thiserror::Error)]
pub struct ServiceError {
    /// What was to be done: `read`, `write`, `list`, …
    pub operation: &'static str,
    /// With which key or prefix.
    pub key: String,
    /// Where; empty while nobody has said it.
    pub location: String,
    /// What went wrong.
    pub what: What,
    /// In the service's words, without secrets; may be empty.
    pub message: String,
    /// When the service asked to be left alone until.
    pub retry_after: Option<Duration>,
}

impl ServiceError {
    /// An error at a place that is yet to be said.
    pub fn new(operation: &'static str, key: &str, what: What, message: String) -> Self {
        let (key, location) = (key.to_owned(), String::new());
        Self { operation, key, location, what, message, retry_after: None }
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
        match (self.what.words(), self.message.as_str()) {
            ("", message) => write!(f, ": {message}"),
            (words, "") => write!(f, ": {words}"),
            (words, message) => write!(f, ": {words}: {message}"),
        }
    }
}
