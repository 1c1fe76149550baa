//! Observability: a log line for each request, [metrics], and the audit log.
//!
//! Each request has an id: a well-formed `X-Request-Id` of the client, or else a new id. The
//! response and each log line about the request contain the id. Log lines contain no query strings,
//! which may hold secrets.

pub mod audit;
mod counted;
pub mod metrics;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    body::{Body, HttpBody},
    extract::{ConnectInfo, Request},
    response::Response,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use http_body_util::BodyExt;
use percent_encoding::percent_decode_str;
use tracing::Instrument;

use self::{
    audit::{Audit, AuditRecord, PreviousCommit},
    counted::counted,
    metrics::Metrics,
};
use crate::{
    access::{
        AccessControl,
        principal::{Principal, PrincipalSlot, Right},
    },
    body::{UNWATCHED_BYTES, connection_table::ConnectionTable, with_stall_timeout},
    clock::Clock,
    problem::{Code, HttpProblem},
    repository::RefCondition,
    route_table::{MatchedRoute, RequiredAccess},
    settings::ServerSettings,
};

/// Header with the id of a request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest id that is taken from a request, in bytes.
const ID_BYTES: usize = 64;

/// 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming 3, 6.4).
const GOLDEN_RATIO_64: u64 = 0x9e37_79b9_7f4a_7c15;

/// Longest part of a path that is logged, in bytes.
const PATH_BYTES: usize = 1024;

/// The state of the middleware for logs, metrics and the audit log.
#[derive(Debug)]
pub struct Observe {
    access: Arc<AccessControl>,
    metrics: Arc<Metrics>,
    audit: Option<Arc<Audit>>,
    lines: Arc<ConnectionTable>,
    stall: Duration,
    clock: Clock,
}

impl Observe {
    /// Creates the middleware for requests that `access` guards.
    pub fn new(access: Arc<AccessControl>, settings: &ServerSettings, clock: Clock) -> Self {
        let audit = settings.log.audit.as_deref().map(|path| Arc::new(Audit::later(path)));
        let lines = Arc::new(ConnectionTable::new(settings.proxies.clone()));
        let metrics = Arc::new(Metrics::new(clock.clone()));
        Self { access, metrics, audit, lines, stall: settings.limits.stall(), clock }
    }

    /// Returns the table of open connections.
    pub fn lines(&self) -> &Arc<ConnectionTable> {
        &self.lines
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }
}

/// Logs and counts a request, and its response up to the last byte.
pub async fn observe<A: Future<Output = Response>>(
    seen: &Observe,
    route: &MatchedRoute<'_>,
    mut request: Request,
    next: impl FnOnce(Request) -> A,
) -> Response {
    let id = id_of(request.headers());
    let mut entry = RequestRecord::new(seen, &id, route, &request);
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0);
    request.extensions_mut().insert(entry.principal.clone());
    if !request.body().is_end_stream() {
        let metrics = Arc::clone(&seen.metrics);
        let count = move |bytes| {
            metrics.received.inc_by(bytes);
        };
        request = request.map(|body| counted(body, count));
    }
    let span = entry.new_span();
    let mut response = next(request).instrument(span.clone()).await;
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    keep_length(&entry.method, &mut response);
    entry.status = response.status();
    if let Some(problem) = response.extensions().get::<HttpProblem>() {
        span.in_scope(|| tracing::debug!(code = ?problem.code, %problem, "refused"));
        if problem.code == Code::Damaged
            && let Some(repository) = &entry.repository
        {
            seen.metrics.damaged(repository);
        }
    }
    if let Some(PreviousCommit(at)) = response.extensions().get() {
        entry.old = at.map(|id| id.to_string());
    }
    if let Some((audit, line)) = entry.take_line(Some(response.headers())) {
        let of_request = span.clone();
        let write = move || of_request.in_scope(|| audit.write(&line));
        // The audit line is written before the response is sent.
        let _ = tokio::task::spawn_blocking(write).await;
    }
    entry.span = Some(span.clone());
    let (head, body) = response.into_parts();
    let body = match entry.repository.clone().filter(|_| body.size_hint().exact().is_none()) {
        Some(repository) => counting_damage(body, Arc::clone(&seen.metrics), repository),
        None => body,
    };
    let is_short = body.size_hint().upper().is_some_and(|most| most <= UNWATCHED_BYTES);
    let mut body = counted(body, move |bytes| entry.sent(bytes));
    if !is_short {
        let line = peer.and_then(|peer| seen.lines.of(peer));
        body = span.in_scope(|| with_stall_timeout(body, line, seen.stall, &seen.clock));
    }
    Response::from_parts(head, body)
}

/// Counts damage that cuts off a body while it is being made.
fn counting_damage(body: Body, metrics: Arc<Metrics>, repository: String) -> Body {
    Body::new(body.map_err(move |error| {
        if is_damage(&error) {
            metrics.damaged(&repository);
        }
        error
    }))
}

/// Returns true if a body was cut off because the data behind it is damaged.
fn is_damage(error: &axum::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref().is_some_and(is_invalid_data) {
            return true;
        }
        cause = error.source();
    }
    false
}

fn is_invalid_data(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}

/// Sets `Content-Length` before the body is wrapped to count its bytes: the length of a wrapped
/// body is unknown.
fn keep_length(method: &Method, response: &mut Response) {
    let status = response.status();
    let has_none = method == Method::HEAD
        || status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if status == StatusCode::NOT_MODIFIED {
        // The header would state the length of a body that is not sent.
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    if let Some(length) = response.body().size_hint().exact().filter(|_| !has_none) {
        response.headers_mut().entry(header::CONTENT_LENGTH).or_insert(length.into());
    }
}

/// Returns the well-formed id in the headers of a request, or else a new id.
fn id_of(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let sane = |id: &&str| (1..=ID_BYTES).contains(&id.len()) && id.chars().all(plain);
    given.filter(sane).map_or_else(new_id, str::to_owned)
}

/// Creates an id that is unique in this process, and almost certainly among several.
fn new_id() -> String {
    static FIRST: LazyLock<u64> = LazyLock::new(|| {
        let mut bytes = [0; 8];
        // Without random bytes, processes may share ids, which only makes logs harder to read.
        let _ = getrandom::fill(&mut bytes);
        u64::from_le_bytes(bytes)
    });
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    // Multiply by an odd number, so that consecutive ids differ at first sight.
    format!("{:016x}", FIRST.wrapping_add(count.wrapping_mul(GOLDEN_RATIO_64)))
}

/// A request and its response, for logs and metrics. It is logged on drop, when the
/// response has ended.
struct RequestRecord {
    metrics: Arc<Metrics>,
    id: String,
    address: IpAddr,
    method: Method,
    version: Version,
    path: String,
    route: String,
    repository: Option<String>,
    old: Option<String>,
    is_upload: bool,
    began: Instant,
    status: StatusCode,
    bytes: u64,
    principal: PrincipalSlot,
    /// Present until the audit line is written.
    audit: Option<Arc<Audit>>,
    span: Option<tracing::Span>,
}

impl RequestRecord {
    fn new(seen: &Observe, id: &str, route: &MatchedRoute<'_>, request: &Request) -> Self {
        let (method, headers, path) = (request.method(), request.headers(), request.uri().path());
        let MatchedRoute { access: needs, label } = route;
        let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        let changes = !reads && !matches!(needs, RequiredAccess::Repository(Right::Read, _));
        let is_upload = changes && ["/packs", "/bundles"].iter().any(|part| label.contains(part));
        let metrics = Arc::clone(&seen.metrics);
        metrics.in_flight.inc();
        if is_upload {
            metrics.uploads.inc();
        }
        let old = headers.get(header::IF_MATCH).and_then(|tag| tag.to_str().ok());
        // `None` for `*`, for several tags and for an invalid tag: none of them names a single
        // commit.
        let old =
            old.and_then(|tag| RefCondition::from_tag(tag.trim().trim_matches('"'))?.commit());
        Self {
            metrics,
            id: id.to_owned(),
            address: seen.access.address(headers, request.extensions()),
            method: method.clone(),
            version: request.version(),
            path: path[..path.floor_char_boundary(PATH_BYTES)].to_owned(),
            route: (*label).to_owned(),
            repository: needs.repository().map(str::to_owned),
            old: old.map(|id| id.to_string()),
            is_upload,
            began: Instant::now(),
            // 499 means that the client disconnected before the response.
            status: StatusCode::from_u16(499).unwrap_or(StatusCode::REQUEST_TIMEOUT),
            bytes: 0,
            principal: PrincipalSlot::default(),
            audit: seen.audit.clone().filter(|_| changes),
            span: None,
        }
    }

    /// Creates the span that each log line of this request begins with.
    fn new_span(&self) -> tracing::Span {
        tracing::error_span!("request", id = self.id, repository = self.repository)
    }

    fn sent(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.metrics.sent.inc_by(bytes);
    }

    /// Returns the name of the client's token.
    fn who(&self) -> Option<&str> {
        self.principal.who().and_then(Principal::name)
    }

    /// Returns the audit line if the request needs one and it was not taken before.
    fn take_line(&mut self, answer: Option<&HeaderMap>) -> Option<(Arc<Audit>, AuditRecord)> {
        let audit = self.audit.take()?;
        let inside = self.path.strip_prefix("/v1/repos/").unwrap_or(&self.path);
        let rest = inside.split_once('/').map_or("", |(_, rest)| rest);
        let (what, name) = rest.split_once('/').unwrap_or((rest, ""));
        let what = match what {
            "" => "repository",
            "refs" => "ref",
            "packs" => "pack",
            "objects" => "object",
            "bundles" => "bundle",
            other => other,
        };
        let new = answer.and_then(|headers| headers.get(header::ETAG)?.to_str().ok());
        // The ETag of a ref begins with its commit.
        let commit = |tag: &str| tag.trim_matches('"').split('-').next().unwrap_or("").to_owned();
        let new = new.map(commit);
        let line = AuditRecord {
            time: audit::now(),
            request: self.id.clone(),
            who: self.who().map(str::to_owned),
            address: self.address,
            repository: self.repository.clone().unwrap_or_default(),
            what: what.to_owned(),
            name: percent_decode_str(name).decode_utf8_lossy().into_owned(),
            method: self.method.to_string(),
            old: self.old.clone(),
            new: new.filter(|_| self.status.is_success()),
            status: self.status.as_u16(),
        };
        Some((audit, line))
    }

    fn log(&self, took: Duration) {
        tracing::info!(
            method = self.method.as_str(),
            path = self.path,
            version = ?self.version,
            status = self.status.as_u16(),
            bytes = self.bytes,
            ms = took.as_secs_f64() * 1000.0,
            who = self.who(),
            address = %self.address,
            repository = self.repository.as_deref(),
            "answered"
        );
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        self.metrics.answered(&self.method, &self.route, self.status.as_u16(), took);
        let span = self.span.take();
        let span = span.unwrap_or_else(|| self.new_span());
        span.in_scope(|| self.log(took));
        // If the audit line is still there, the client disconnected before the response. The change
        // may have been made.
        if let Some((audit, line)) = self.take_line(None) {
            // In this thread, since a runtime that shuts down takes no more tasks.
            span.in_scope(|| audit.write(&line));
        }
        if self.is_upload {
            self.metrics.uploads.dec();
        }
        self.metrics.in_flight.dec();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_valid_request_id_is_kept() {
        let of = |text: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_bytes(text).unwrap());
            id_of(&headers)
        };
        assert_eq!(of(b"a-1_B.c"), "a-1_B.c");
        for odd in [&b""[..], b"a b", b"a\tb", b"\"", b"\xff", &[b'a'; 65]] {
            let id = of(odd);
            assert!(id.len() == 16 && id.chars().all(|c| c.is_ascii_hexdigit()), "{id}");
        }
        let ids: HashSet<String> = (0..1000).map(|_| id_of(&HeaderMap::new())).collect();
        assert_eq!(ids.len(), 1000);
    }
}
