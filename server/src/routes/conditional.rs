//! ETags, conditional requests (RFC 9110) and cache lifetimes.

use axum::{body::Body, response::Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use snap_core::base::id::CommitId;
use snap_remote::wire::headers::SNAP_COMMIT;

use super::range::RequestedRange;
use crate::problem::{Code, HttpProblem};

/// Cache lifetime of responses that never change: one year.
pub(super) const FOREVER: &str = "private, max-age=31536000, immutable";

/// Cache lifetime of responses under a name that may move: revalidate each time.
const REVALIDATE: &str = "private, no-cache";

/// Returns a strong ETag with this text.
pub(super) fn etag(text: impl std::fmt::Display) -> Result<HeaderValue, HttpProblem> {
    let tag = HeaderValue::from_str(&format!("\"{text}\""));
    tag.map_err(|_| HttpProblem::new(Code::Damaged, ""))
}

/// The value of `If-Match` or `If-None-Match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tags<'h> {
    /// `*`: any existing resource.
    Any,
    /// A list of ETags, each with its quotes and, if it is weak, its `W/`.
    These(Vec<&'h [u8]>),
}

impl<'h> Tags<'h> {
    /// Parses all lines of a header as one list. Returns `None` if the header is
    /// absent.
    ///
    /// # Errors
    /// [`Code::Invalid`] when the value is neither `*` nor a list of ETags.
    pub(super) fn of(
        headers: &'h HeaderMap,
        name: &HeaderName,
    ) -> Result<Option<Self>, HttpProblem> {
        let wrong =
            || HttpProblem::new(Code::Invalid, format!("{name} must be * or a list of ETags"));
        let mut lines = headers.get_all(name).iter().map(HeaderValue::as_bytes).peekable();
        if lines.peek().is_none() {
            return Ok(None);
        }
        let (mut tags, mut has_any) = (Vec::new(), false);
        for line in lines {
            match line.trim_ascii() {
                b"*" => has_any = true,
                line => tags.append(&mut listed(line).ok_or_else(wrong)?),
            }
        }
        match (has_any, tags.is_empty()) {
            (true, true) => Ok(Some(Self::Any)),
            (false, false) => Ok(Some(Self::These(tags))),
            _ => Err(wrong()),
        }
    }
}

/// Parses a comma-separated list of ETags. Returns `None` if it is malformed.
fn listed(mut rest: &[u8]) -> Option<Vec<&[u8]>> {
    let mut tags = Vec::new();
    loop {
        let opaque = rest.strip_prefix(b"W/").unwrap_or(rest).strip_prefix(b"\"")?;
        let end = opaque.iter().position(|byte| *byte == b'"')?;
        let (tag, after) = rest.split_at(rest.len() - opaque.len() + end + 1);
        tags.push(tag);
        rest = match after.trim_ascii_start() {
            [] => return Some(tags),
            [b',', more @ ..] => more.trim_ascii_start(),
            _ => return None,
        };
    }
}

/// Returns true if `If-None-Match` names this ETag, so the client has the current
/// version.
pub(super) fn is_not_modified(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let is_same = |tag: &&[u8]| tag.strip_prefix(b"W/").unwrap_or(tag) == etag.as_bytes();
    match Tags::of(headers, &header::IF_NONE_MATCH) {
        Ok(Some(Tags::Any)) => true,
        Ok(Some(Tags::These(tags))) => tags.iter().any(is_same),
        // Ignore a malformed header.
        Ok(None) | Err(_) => false,
    }
}

/// Returns true if the `Range` applies: there is no `If-Range`, or it names this ETag.
/// The server sends no `Last-Modified`, so a date in `If-Range` never matches.
fn range_holds(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    headers.get_all(header::IF_RANGE).iter().all(|tag| tag == etag)
}

/// Returns the range that a request wants, or `None` if the client has the current
/// version. `Range` is ignored for `HEAD`.
///
/// # Errors
/// [`Code::Range`] when no byte of the range exists.
pub(super) fn requested_range(
    method: &Method,
    headers: &HeaderMap,
    etag: &HeaderValue,
    length: u64,
) -> Result<Option<RequestedRange>, HttpProblem> {
    if is_not_modified(headers, etag) {
        return Ok(None);
    }
    match *method == Method::GET && range_holds(headers, etag) {
        true => RequestedRange::of(headers, length).map(Some),
        false => Ok(Some(RequestedRange::All)),
    }
}

/// Sets the cache lifetime, the ETag and the commit of a response.
pub(super) fn set_commit_headers(
    headers: &mut HeaderMap,
    commit: CommitId,
    is_id: bool,
    etag: &HeaderValue,
) {
    let keep = if is_id { FOREVER } else { REVALIDATE };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(keep));
    headers.insert(header::ETAG, etag.clone());
    if let Ok(id) = HeaderValue::from_str(&commit.to_string()) {
        headers.insert(SNAP_COMMIT, id);
    }
}

/// Builds a `304` response: the client has the current version.
pub(super) fn not_modified(commit: CommitId, is_id: bool, etag: &HeaderValue) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    set_commit_headers(response.headers_mut(), commit, is_id, etag);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_is_found_in_an_if_none_match_list() {
        let tag = HeaderValue::from_static("\"a\"");
        for (text, known) in [
            ("\"a\"", true),
            ("W/\"a\"", true),
            ("\"b\", \"a\"", true),
            ("\"b\" ,W/\"a\"", true),
            ("*", true),
            ("\"b\"", false),
            ("\"b,\"a\"", false),
            ("\"a\" x", false),
            ("*, \"a\"", false),
            ("a", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, HeaderValue::from_static(text));
            assert_eq!(is_not_modified(&headers, &tag), known, "{text}");
        }
        let mut lines = HeaderMap::new();
        lines.append(header::IF_NONE_MATCH, HeaderValue::from_static("\"b\""));
        lines.append(header::IF_NONE_MATCH, HeaderValue::from_static("\"a\""));
        assert!(is_not_modified(&lines, &tag), "on any line");
    }

    #[test]
    fn a_range_applies_only_if_the_etag_matches() {
        let tag = HeaderValue::from_static("\"a\"");
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, HeaderValue::from_static("bytes=2-5"));
        let of = |method: Method, headers: &HeaderMap| requested_range(&method, headers, &tag, 10);
        assert_eq!(of(Method::GET, &headers).unwrap(), Some(RequestedRange::Part(2..6)));
        assert_eq!(of(Method::HEAD, &headers).unwrap(), Some(RequestedRange::All));
        for (condition, range) in [
            ("\"a\"", RequestedRange::Part(2..6)),
            ("\"b\"", RequestedRange::All),
            ("W/\"a\"", RequestedRange::All),
        ] {
            headers.insert(header::IF_RANGE, HeaderValue::from_static(condition));
            assert_eq!(of(Method::GET, &headers).unwrap(), Some(range), "{condition}");
        }
        headers.insert(header::IF_NONE_MATCH, tag.clone());
        assert_eq!(of(Method::GET, &headers).unwrap(), None);
    }
}
