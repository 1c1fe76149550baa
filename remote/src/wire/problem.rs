//! Error responses: the server writes them, the client reads them.

use http::StatusCode;
use serde::{Deserialize, Deserializer, Serialize};

/// Code of an error. Its name in JSON is part of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The request is malformed.
    Invalid,
    /// The request needs a valid token.
    Unauthorized,
    /// The client may not do this.
    Forbidden,
    /// Like `Forbidden`: the token may only add branches, tags and commits.
    AppendOnly,
    /// The client exceeded a rate limit.
    SlowDown,
    /// The protocol has no such path.
    NoRoute,
    /// The path does not support the method.
    NoMethod,
    /// Repository not found, or the client may not read it.
    NoRepository,
    /// There is no such object, ref, pack or file.
    NotFound,
    /// The data in the request is invalid, or refers to missing data.
    Rejected,
    /// The name of a ref would be a folder of an existing ref, or the reverse.
    NameConflict,
    /// Like `NameConflict`, but the other ref was deleted, and the upstream keeps its name.
    NameReserved,
    /// The precondition of the request does not hold.
    Conflict,
    /// The request lacks a precondition, which every move of a ref needs.
    NoCondition,
    /// The request exceeds a size limit.
    TooLarge,
    /// The requested range lies outside the content.
    Range,
    /// A disk or a quota has no room left.
    Full,
    /// The store is damaged.
    Damaged,
    /// The request failed for a reason that may pass: a retry may succeed.
    Unavailable,
}

impl Code {
    /// Returns all codes.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Self> {
        let schema = schemars::schema_for!(Self).to_value();
        let names = schema["oneOf"].as_array().expect("each code has a description").iter();
        names.map(|name| serde_json::from_value(name["const"].clone()).unwrap()).collect()
    }

    /// Returns the HTTP status of a response with this code.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Invalid => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden | Self::AppendOnly => StatusCode::FORBIDDEN,
            Self::SlowDown => StatusCode::TOO_MANY_REQUESTS,
            Self::NoRoute | Self::NoRepository | Self::NotFound => StatusCode::NOT_FOUND,
            Self::NoMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::Rejected | Self::NameConflict | Self::NameReserved => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            Self::Conflict => StatusCode::PRECONDITION_FAILED,
            Self::NoCondition => StatusCode::PRECONDITION_REQUIRED,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Range => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::Full => StatusCode::INSUFFICIENT_STORAGE,
            Self::Damaged => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the title of the code.
    pub fn title(self) -> &'static str {
        match self {
            Self::Invalid => "bad request",
            Self::Unauthorized => "authentication required",
            Self::Forbidden => "permission denied",
            Self::AppendOnly => "the token may only append",
            Self::SlowDown => "rate limit exceeded",
            Self::NoRoute => "the protocol has no such path",
            Self::NoMethod => "method not allowed for this path",
            Self::NoRepository => "repository not found",
            Self::NotFound => "not found",
            Self::Rejected => "the data sent is invalid or incomplete",
            Self::NameConflict => "the name conflicts with another ref",
            Self::NameReserved => "the name conflicts with a deleted ref",
            Self::Conflict => "precondition failed",
            Self::NoCondition => "precondition required",
            Self::TooLarge => "the request exceeds a limit",
            Self::Range => "range not satisfiable",
            Self::Full => "insufficient storage",
            Self::Damaged => "the store is damaged",
            Self::Unavailable => "temporarily unavailable",
        }
    }
}

/// The body of an error response: `application/problem+json` (RFC 9457).
///
/// The client accepts any JSON object, because a proxy may answer instead of a server, and a newer
/// server may send unknown codes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(
    test,
    schemars(rename = "Problem", description = "RFC 9457; docs/protocol.md lists the codes")
)]
#[serde(default)]
pub struct ProblemBody {
    pub r#type: String,
    /// The code; `None` if it is missing or unknown.
    #[serde(deserialize_with = "code_if_known")]
    #[cfg_attr(test, schemars(with = "Code", description = "The code of the error"))]
    pub code: Option<Code>,
    /// A short text for the code.
    pub title: String,
    /// The HTTP status.
    #[cfg_attr(test, schemars(range(min = 400)))]
    pub status: u16,
    /// Details for people; may be empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

impl ProblemBody {
    /// Creates the body for a code.
    pub fn new(code: Code, detail: String) -> Self {
        Self {
            r#type: "about:blank".to_owned(),
            code: Some(code),
            title: code.title().to_owned(),
            status: code.status().as_u16(),
            detail,
        }
    }
}

fn code_if_known<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Code>, D::Error> {
    let code = serde_json::Value::deserialize(source)?;
    Ok(serde_json::from_value(code).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<ProblemBody> {
        serde_json::from_str(text).ok()
    }

    #[test]
    fn problem_bodies_round_trip() {
        for code in Code::all() {
            let body = ProblemBody::new(code, "why".to_owned());
            assert_eq!(read(&serde_json::to_string(&body).unwrap()), Some(body));
        }
    }

    #[test]
    fn an_unknown_problem_code_keeps_the_texts() {
        let body = read(r#"{"code": "later", "title": "t", "detail": "d", "more": 1}"#).unwrap();
        assert_eq!((body.code, &*body.title, &*body.detail), (None, "t", "d"));
        assert_eq!(read(r#"{"code": 7}"#), Some(ProblemBody::default()));
        assert_eq!(read("<html>"), None);
    }
}
