//! Why a request was refused: `application/problem+json` (RFC 9457) with a code
//! that stays the same.

use std::{error::Error, fmt, io, iter};

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use snap_core::{
    base::{io::PathError, kind::ErrorKind},
    ops::{
        accept::AcceptError, bundle, cat::CatError, diff::DiffError, list::ListError,
        staged::StagedError,
    },
    repo::{
        RepoError, past::PastError, path::PathInTreeError, ref_name::RefName, refs::RefError,
        spec::SpecError,
    },
    store::StoreError,
};

use crate::causes::causes;

/// Words for a full disk that is nobody else's.
const OWN_DISK: &str = "no room is left on the disk of this server";

/// How much of an upload is here.
pub const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");

/// What is wrong. Its name in JSON is part of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The request makes no sense.
    Invalid,
    /// Whoever asks must say who they are.
    Unauthorized,
    /// They may not do that.
    Forbidden,
    /// They ask too much at a time.
    SlowDown,
    /// There is no such path in the protocol.
    NoRoute,
    /// The path takes no such method.
    NoMethod,
    /// There is no such repository.
    NoRepository,
    /// There is no such object, ref, pack or file.
    NotFound,
    /// What was sent is not what it says it is, or lacks something.
    Rejected,
    /// The condition of the request does not hold.
    Conflict,
    /// What was sent does not go on where what is here ends.
    Offset,
    /// Somebody else does it just now.
    Locked,
    /// There is a condition missing: a ref is never moved blindly.
    NoCondition,
    /// More than the server takes.
    TooLarge,
    /// No bytes of what there is.
    Range,
    /// The server has no room left.
    Full,
    /// The store here is damaged.
    Damaged,
    /// Something failed that may go well another time.
    Unavailable,
}

impl Code {
    /// The status that it is sent with.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Invalid => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::SlowDown => StatusCode::TOO_MANY_REQUESTS,
            Self::NoRoute | Self::NoRepository | Self::NotFound => StatusCode::NOT_FOUND,
            Self::NoMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::Rejected => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Conflict => StatusCode::PRECONDITION_FAILED,
            Self::Offset => StatusCode::CONFLICT,
            Self::Locked => StatusCode::LOCKED,
            Self::NoCondition => StatusCode::PRECONDITION_REQUIRED,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Range => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::Full => StatusCode::INSUFFICIENT_STORAGE,
            Self::Damaged => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Invalid => "the request makes no sense",
            Self::Unauthorized => "a token is needed",
            Self::Forbidden => "this token may not do that",
            Self::SlowDown => "that was too much at a time",
            Self::NoRoute => "there is no such path",
            Self::NoMethod => "this cannot be done there",
            Self::NoRepository => "there is no such repository",
            Self::NotFound => "there is no such thing",
            Self::Rejected => "what was sent is not what it should be",
            Self::Conflict => "it is not as it was",
            Self::Offset => "it does not go on there",
            Self::Locked => "somebody else does that just now",
            Self::NoCondition => "a condition is needed",
            Self::TooLarge => "too much was sent",
            Self::Range => "there are no such bytes",
            Self::Full => "no room is left",
            Self::Damaged => "the store is damaged",
            Self::Unavailable => "the server cannot do that now",
        }
    }
}

/// A refusal.
#[derive(Clone, Debug, thiserror::Error)]
pub struct Problem {
    /// What is wrong.
    pub code: Code,
    /// With what, in words for people; no paths of the server, no secrets.
    pub detail: String,
    /// In how many seconds another try may go better.
    pub retry_after_secs: Option<u64>,
    /// How much of an upload is here.
    pub offset: Option<u64>,
    /// How long that is of which there are no such bytes.
    pub length: Option<u64>,
}

/// As it is sent.
#[derive(Serialize)]
struct Body<'a> {
    r#type: &'static str,
    code: Code,
    title: &'static str,
    status: u16,
    #[serde(skip_serializing_if = "str::is_empty")]
    detail: &'a str,
}

impl Problem {
    /// A refusal, with words.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { code, detail, retry_after_secs: None, offset: None, length: None }
    }

    /// There are no such bytes of something of `length` bytes.
    pub fn no_such_bytes(length: u64) -> Self {
        Self { length: Some(length), ..Self::new(Code::Range, format!("it has {length} bytes")) }
    }

    /// Another try may go better in so many seconds.
    pub fn slow_down(secs: u64, detail: impl Into<String>) -> Self {
        Self { retry_after_secs: Some(secs), ..Self::new(Code::SlowDown, detail) }
    }

    /// Contents that were sent are more than is read to check them.
    pub fn too_much(error: &dyn Error) -> Self {
        Self::new(Code::TooLarge, format!("{error} (`limits.content_bytes`)"))
    }

    /// A ref cannot be beside the one that is called `other`: no condition that a
    /// client might send would let it go well.
    pub fn beside(name: &RefName, other: &str) -> Self {
        let (folder, name) = (name.kind().folder(), name.short());
        let why = format!("`{folder}/{name}` cannot be beside `{folder}/{other}`");
        Self::new(Code::Rejected, why)
    }

    /// Something that is not there.
    pub fn not_found(what: impl fmt::Display) -> Self {
        Self::new(Code::NotFound, format!("there is no {what}"))
    }

    /// An error of the engine. What it says may name paths here, which are
    /// nobody's business: only its kind is told, the rest is logged.
    fn of_engine(kind: ErrorKind, error: &(dyn Error + 'static)) -> Self {
        let code = match kind {
            _ if is_full(error) => Code::Full,
            ErrorKind::NotFound => Code::NotFound,
            ErrorKind::Exists => Code::Conflict,
            ErrorKind::Damaged => Code::Damaged,
            ErrorKind::Invalid => Code::Invalid,
            _ => Code::Unavailable,
        };
        match code {
            Code::NotFound | Code::Conflict | Code::Invalid => {
                tracing::debug!(error = %causes(error), "refused");
            }
            // Nobody waits for it any more.
            _ if kind == ErrorKind::Interrupted => tracing::debug!(error = %causes(error), "ended"),
            _ => tracing::error!(error = %causes(error), "failed"),
        }
        Self::new(code, if code == Code::Full { OWN_DISK } else { "" })
    }

    /// Whether it is the disk of this server that is full, not the place behind it or
    /// a quota.
    pub fn is_own_disk_full(&self) -> bool {
        self.code == Code::Full && self.detail == OWN_DISK
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.detail.as_str() {
            "" => f.write_str(self.code.title()),
            detail => f.write_str(detail),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.code.status();
        let body = Body {
            r#type: "about:blank",
            code: self.code,
            title: self.code.title(),
            status: status.as_u16(),
            detail: &self.detail,
        };
        let mut response = (status, Json(body)).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, kind);
        if let Some(secs) = self.retry_after_secs {
            headers.insert(header::RETRY_AFTER, secs.into());
        }
        if let Some(offset) = self.offset {
            headers.insert(UPLOAD_OFFSET, offset.into());
        }
        let told = self.length.map(|length| HeaderValue::try_from(format!("bytes */{length}")));
        if let Some(Ok(told)) = told {
            headers.insert(header::CONTENT_RANGE, told);
        }
        if self.code == Code::Unauthorized {
            let scheme = HeaderValue::from_static("Bearer realm=\"snap\"");
            headers.insert(header::WWW_AUTHENTICATE, scheme);
        }
        // Somebody with a browser is told so in a page.
        response.extensions_mut().insert(self);
        response
    }
}

macro_rules! of_engine {
    ($($error:ty),*) => {
        $(impl From<$error> for Problem {
            fn from(error: $error) -> Self {
                Self::of_engine(error.kind(), &error)
            }
        })*
    };
}

of_engine!(StoreError, RepoError, RefError, PathError);
of_engine!(CatError, DiffError, ListError, SpecError, bundle::Error);

/// Whether no room is left, wherever that was noticed.
fn is_full(error: &(dyn Error + 'static)) -> bool {
    let causes = iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    let mut systems = causes.filter_map(|cause| cause.downcast_ref::<io::Error>());
    systems.any(|system| {
        matches!(system.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    })
}

impl From<PathInTreeError> for Problem {
    fn from(error: PathInTreeError) -> Self {
        match error {
            PathInTreeError::Store(error) => error.into(),
            error if error.kind() == ErrorKind::Invalid => {
                Self::new(Code::Invalid, error.to_string())
            }
            error => Self::new(Code::NotFound, error.to_string()),
        }
    }
}

impl From<PastError> for Problem {
    fn from(error: PastError) -> Self {
        match &error {
            // They say what was asked for.
            PastError::Pattern { .. } | PastError::Climbs { .. } => {
                Self::new(Code::Invalid, error.to_string())
            }
            PastError::NoSuchPath { .. } => Self::new(Code::NotFound, error.to_string()),
            _ => Self::of_engine(error.kind(), &error),
        }
    }
}

impl From<AcceptError> for Problem {
    fn from(error: AcceptError) -> Self {
        match &error {
            AcceptError::Incomplete(source) => {
                Self::new(Code::Rejected, format!("the packs are not complete: {source}"))
            }
            AcceptError::Damaged(source) => {
                Self::new(Code::Rejected, format!("the packs are damaged: {source}"))
            }
            AcceptError::TooMuch { .. } => Self::too_much(&error),
            _ => Self::of_engine(error.kind(), &error),
        }
    }
}

impl From<StagedError> for Problem {
    fn from(error: StagedError) -> Self {
        match error {
            StagedError::Accept(error) => error.into(),
            error if error.is_theirs() => Self::new(Code::Rejected, error.to_string()),
            error => Self::of_engine(error.kind(), &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_one_that_fails() {
        let failed = |kind: io::ErrorKind| {
            let error = PathError { action: "write", path: "x".into(), source: kind.into() };
            Problem::from(AcceptError::Store(StoreError::Io(error))).code
        };
        assert_eq!(failed(io::ErrorKind::StorageFull), Code::Full);
        assert_eq!(failed(io::ErrorKind::TimedOut), Code::Unavailable);
    }
}
