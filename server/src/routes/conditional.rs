//! ETags and the conditions of requests, as RFC 9110 has them; and how long an
//! answer may be kept.

use axum::{body::Body, response::Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use snap_core::base::id::CommitId;

use super::range::Wanted;
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

/// What `If-Match` or `If-None-Match` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tags<'h> {
    /// `*`: whatever there is.
    Any,
    /// Any of these, each with its quotes, and `W/` where it is weak.
    These(Vec<&'h [u8]>),
}

impl<'h> Tags<'h> {
    /// What all lines of a header name together; `None` if there is none.
    ///
    /// # Errors
    /// [`Code::Invalid`] when that is neither `*` nor ETags.
    pub(super) fn of(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<Self>, Problem> {
        let wrong = || Problem::new(Code::Invalid, format!("{name} is neither * nor ETags"));
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

/// ETags with commas between them; `None` when they are none.
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

/// Whether `If-None-Match` says that the client has it.
pub(super) fn is_known(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let is_same = |tag: &&[u8]| tag.strip_prefix(b"W/").unwrap_or(tag) == etag.as_bytes();
    match Tags::of(headers, &header::IF_NONE_MATCH) {
        Ok(Some(Tags::Any)) => true,
        Ok(Some(Tags::These(tags))) => tags.iter().any(is_same),
        // What makes no sense says nothing.
        Ok(None) | Err(_) => false,
    }
}

/// Whether a `Range` holds: there is no `If-Range`, or it names this ETag. We
/// tell no dates, so none is ours.
fn range_holds(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    headers.get_all(header::IF_RANGE).iter().all(|tag| tag == etag)
}

/// Which bytes of something with this ETag and length a request wants; `None` if
/// the client has it. `HEAD` has no `Range`.
///
/// # Errors
/// [`Code::Range`].
pub(super) fn wanted(
    (method, headers): (&Method, &HeaderMap),
    (etag, length): (&HeaderValue, u64),
) -> Result<Option<Wanted>, Problem> {
    if is_known(headers, etag) {
        return Ok(None);
    }
    match *method == Method::GET && range_holds(headers, etag) {
        true => Wanted::of(headers, length).map(Some),
        false => Ok(Some(Wanted::All)),
    }
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
            assert_eq!(is_known(&headers, &tag), known, "{text}");
        }
        let mut lines = HeaderMap::new();
        lines.append(header::IF_NONE_MATCH, HeaderValue::from_static("\"b\""));
        lines.append(header::IF_NONE_MATCH, HeaderValue::from_static("\"a\""));
        assert!(is_known(&lines, &tag), "on any line");
    }

    #[test]
    fn a_range_holds_for_what_it_was_asked_of() {
        let tag = HeaderValue::from_static("\"a\"");
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, HeaderValue::from_static("bytes=2-5"));
        let of = |method: Method, headers: &HeaderMap| wanted((&method, headers), (&tag, 10));
        assert_eq!(of(Method::GET, &headers).unwrap(), Some(Wanted::Part(2..6)));
        assert_eq!(of(Method::HEAD, &headers).unwrap(), Some(Wanted::All));
        for (condition, range) in
            [("\"a\"", Wanted::Part(2..6)), ("\"b\"", Wanted::All), ("W/\"a\"", Wanted::All)]
        {
            headers.insert(header::IF_RANGE, HeaderValue::from_static(condition));
            assert_eq!(of(Method::GET, &headers).unwrap(), Some(range), "{condition}");
        }
        headers.insert(header::IF_NONE_MATCH, tag.clone());
        assert_eq!(of(Method::GET, &headers).unwrap(), None);
    }
}
