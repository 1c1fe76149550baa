//! Error responses: `application/problem+json` (RFC 9457) with a stable code.

use std::{error::Error, fmt, io, iter};

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, header};
use snap_core::{
    base::{io::PathError, kind::ErrorKind},
    ops::{
        bundle,
        cat::CatError,
        diff::DiffError,
        inbox::{StagedError, accept::AcceptError},
        list::ListError,
    },
    repo::{
        RepoError, past::PastError, path::PathInTreeError, ref_name::RefName, refs::RefError,
        spec::SpecError,
    },
    store::StoreError,
};
use snap_remote::wire::problem::ProblemBody;

pub use snap_remote::wire::problem::Code;

use crate::causes::causes;

/// A refusal, sent as the response to a request.
#[derive(Clone, Debug, thiserror::Error)]
pub struct HttpProblem {
    pub code: Code,
    /// Details for people. They must not contain secrets or paths on the server.
    pub detail: String,
    /// Seconds after which a retry may succeed (`Retry-After`).
    pub retry_after_secs: Option<u64>,
    /// Length, in bytes, of the content outside of which the range lies (`Content-Range`).
    pub length: Option<u64>,
    /// True if the disk of this server is full, as opposed to the upstream or a quota.
    pub is_own_disk_full: bool,
}

impl HttpProblem {
    /// Creates a refusal with a message.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { code, detail, retry_after_secs: None, length: None, is_own_disk_full: false }
    }

    /// Refuses a push to a store in which garbage was collected. This server would rely on objects
    /// that a collection has deleted.
    pub(crate) fn collected() -> Self {
        let detail = "`snap gc` has run in this store, and this version of the server serves such a \
                      store read-only";
        Self::new(Code::Rejected, detail)
    }

    /// Creates the refusal of a range that lies outside a content of `length` bytes.
    pub fn no_such_bytes(length: u64) -> Self {
        Self {
            length: Some(length),
            ..Self::new(Code::Range, format!("the content has {length} bytes"))
        }
    }

    /// Creates the refusal of a client that exceeded a rate limit, and may retry after
    /// `secs`.
    pub fn slow_down(secs: u64, detail: impl Into<String>) -> Self {
        Self { retry_after_secs: Some(secs), ..Self::new(Code::SlowDown, detail) }
    }

    /// Creates the refusal of packs that would take too much reading to verify.
    pub fn verify_limit(error: &dyn Error) -> Self {
        Self::new(Code::TooLarge, format!("{error} (`limits.content_bytes`)"))
    }

    /// Creates the refusal of a ref whose name cannot exist beside the ref `other`. It is
    /// not a `Conflict`: no precondition could make the request succeed.
    pub fn name_clash(name: &RefName, other: &str) -> Self {
        let (folder, name) = (name.kind().folder(), name.short());
        let why = format!("`{folder}/{name}` conflicts with `{folder}/{other}`");
        Self::new(Code::NameConflict, why)
    }

    /// Creates the refusal that says that there is no `what`.
    pub fn not_found(what: impl fmt::Display) -> Self {
        Self::new(Code::NotFound, format!("{what} not found"))
    }

    /// Converts an error of `snap_core`. The message may name paths on the server, so only the log
    /// gets the message, and the client gets the kind.
    fn of_engine(kind: ErrorKind, error: &(dyn Error + 'static)) -> Self {
        let code = match kind {
            _ if is_full(error) => Code::Full,
            ErrorKind::NotFound => Code::NotFound,
            ErrorKind::Exists => Code::Conflict,
            ErrorKind::Damaged => Code::Damaged,
            ErrorKind::Invalid | ErrorKind::Refused => Code::Invalid,
            _ => Code::Unavailable,
        };
        match code {
            Code::NotFound | Code::Conflict | Code::Invalid => {
                tracing::debug!(error = %causes(error), "refused");
            }
            // Cancelled, because the client has disconnected.
            _ if kind == ErrorKind::Interrupted => tracing::debug!(error = %causes(error), "ended"),
            _ => tracing::error!(error = %causes(error), "failed"),
        }
        let is_own_disk_full = code == Code::Full;
        let detail = if is_own_disk_full { "the disk of this server is full" } else { "" };
        Self { is_own_disk_full, ..Self::new(code, detail) }
    }
}

impl fmt::Display for HttpProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.detail.as_str() {
            "" => f.write_str(self.code.title()),
            detail => f.write_str(detail),
        }
    }
}

impl IntoResponse for HttpProblem {
    fn into_response(self) -> Response {
        let status = self.code.status();
        let body = ProblemBody::new(self.code, self.detail.clone());
        let mut response = (status, Json(body)).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, kind);
        if let Some(secs) = self.retry_after_secs {
            headers.insert(header::RETRY_AFTER, secs.into());
        }
        let content_range =
            self.length.map(|length| HeaderValue::try_from(format!("bytes */{length}")));
        if let Some(Ok(content_range)) = content_range {
            headers.insert(header::CONTENT_RANGE, content_range);
        }
        if self.code == Code::Unauthorized {
            let scheme = HeaderValue::from_static("Bearer realm=\"snap\"");
            headers.insert(header::WWW_AUTHENTICATE, scheme);
        }
        // The middleware of the pages turns the problem into a page for browsers.
        response.extensions_mut().insert(self);
        response
    }
}

macro_rules! of_engine {
    ($($error:ty),*) => {
        $(impl From<$error> for HttpProblem {
            fn from(error: $error) -> Self {
                Self::of_engine(error.kind(), &error)
            }
        })*
    };
}

of_engine!(StoreError, RepoError, PathError);
of_engine!(CatError, DiffError, ListError, SpecError, bundle::Error);

impl From<RefError> for HttpProblem {
    fn from(error: RefError) -> Self {
        let file = error.damaged_file();
        let problem = Self::of_engine(error.kind(), &error);
        match file {
            Some(file) => Self { detail: format!("{file} is damaged"), ..problem },
            None => problem,
        }
    }
}

/// Returns true if any cause of an error is a full disk, or a disk quota that is used up.
fn is_full(error: &(dyn Error + 'static)) -> bool {
    let causes = iter::successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    let mut systems = causes.filter_map(|cause| cause.downcast_ref::<io::Error>());
    systems.any(|system| {
        matches!(system.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    })
}

impl From<PathInTreeError> for HttpProblem {
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

impl From<PastError> for HttpProblem {
    fn from(error: PastError) -> Self {
        match &error {
            // Their messages repeat only what the client sent.
            PastError::Pattern { .. } | PastError::Climbs { .. } => {
                Self::new(Code::Invalid, error.to_string())
            }
            PastError::NoSuchPath { .. } => Self::new(Code::NotFound, error.to_string()),
            _ => Self::of_engine(error.kind(), &error),
        }
    }
}

impl From<AcceptError> for HttpProblem {
    fn from(error: AcceptError) -> Self {
        match &error {
            AcceptError::Incomplete(source) => {
                Self::new(Code::Rejected, format!("the packs are incomplete: {source}"))
            }
            AcceptError::TooMuch { .. } => Self::new(Code::TooLarge, error.to_string()),
            _ => Self::of_engine(error.kind(), &error),
        }
    }
}

impl From<StagedError> for HttpProblem {
    fn from(error: StagedError) -> Self {
        match error {
            StagedError::Accept(error) => error.into(),
            error if error.is_client_error() => Self::new(Code::Rejected, error.to_string()),
            error => Self::of_engine(error.kind(), &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_failing_disk_have_distinct_codes() {
        let failed = |kind: io::ErrorKind| {
            let error = PathError { action: "write", path: "x".into(), source: kind.into() };
            HttpProblem::from(AcceptError::Store(StoreError::Io(error))).code
        };
        assert_eq!(failed(io::ErrorKind::StorageFull), Code::Full);
        assert_eq!(failed(io::ErrorKind::TimedOut), Code::Unavailable);
    }
}
