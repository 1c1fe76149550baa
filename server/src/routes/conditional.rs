//! ETags and the conditions of requests that read, as RFC 9110 has them; and how
//! long an answer may be kept.

use axum::{body::Body, response::Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use snap_core::base::id::CommitId;

use crate::problem::{Code, Problem};

/// What never changes may be kept for a year.
pub(super) const FOREVER: &str = "private, max-age=31536000, immutable";

/// What a name names may change: whoever keeps it asks each time.
const ASK: &str = "private, no-cache";

/// The commit that an answer is about.
pub(super) const COMMIT: HeaderName = HeaderName::from_static("snap-commit");

/// A strong ETag of these characters.
pub(super) fn etag(text: impl std::fmt::Display) -> Result<HeaderValue, Problem> {
    let tag = HeaderValue::from_str(&format!("\"{text}\""));
    tag.map_err(|_| Problem::new(Code::Damaged, ""))
}

/// Whether `If-None-Match` says that the client has it.
pub(super) fn is_known(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let mut named = headers.get_all(header::IF_NONE_MATCH).iter();
    named.any(|value| {
        let mut tags = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        tags.any(|tag| tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == etag.as_bytes())
    })
}

/// Whether a `Range` holds: there is no `If-Range`, or it names this ETag. We
/// tell no dates, so none is ours.
pub(super) fn range_holds(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    headers.get(header::IF_RANGE).is_none_or(|tag| tag == etag)
}

/// How long an answer about a commit may be kept, and what it is about.
pub(super) fn about(headers: &mut HeaderMap, commit: CommitId, is_id: bool, etag: &HeaderValue) {
    let keep = if is_id { FOREVER } else { ASK };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(keep));
    headers.insert(header::ETAG, etag.clone());
    if let Ok(id) = HeaderValue::from_str(&commit.to_string()) {
        headers.insert(COMMIT, id);
    }
}

/// `304`: the client has it.
pub(super) fn not_modified(commit: CommitId, is_id: bool, etag: &HeaderValue) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    about(response.headers_mut(), commit, is_id, etag);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_found_among_others() {
        let tag = HeaderValue::from_static("\"a\"");
        for (text, known) in [
            ("\"a\"", true),
            ("W/\"a\"", true),
            ("\"b\", \"a\"", true),
            ("*", true),
            ("\"b\"", false),
            ("a", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, HeaderValue::from_static(text));
            assert_eq!(is_known(&headers, &tag), known, "{text}");
        }
    }
}
