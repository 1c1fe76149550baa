//! The HTTP transport of OpenDAL: counts traffic, applies limits, and notes the headers of replies in
//! the `CallContext`.

use std::{num::NonZeroU32, ops::Range, path::PathBuf, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream, stream::BoxStream};
use http::{Method, Request, Response, StatusCode};
use opendal::{Buffer, Error, ErrorKind, HttpBody, HttpTransport, HttpTransporter, raw::Timestamp};
use opendal_http_transport_reqwest::ReqwestTransport;
use parking_lot::Mutex;
use snap_core::base::{limits, time::Time};

use tokio::time::{Instant, timeout, timeout_at};

use super::{
    call::{CallContext, HttpReply},
    opendal_error::is_garbled,
    rate_limit::BandwidthLimits,
    traffic::{RequestKind, Traffic},
    upload::read_part,
};

/// Timeout for establishing a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Timeout for each piece of a reply. The timeout for the start of a reply is this plus the time
/// that the request needs.
const SILENCE: Duration = Duration::from_secs(30);

/// Minimum upload rate of a request, in bytes a second.
const LEAST_RATE: u64 = 64 << 10;

/// Extra time for the last bytes of a body: 4 MiB in the buffers of a socket, at the minimum rate.
const DRAIN: Duration = Duration::from_secs(64);

/// Number of bytes of a file to read at a time while sending it.
const PIECE_BYTES: u64 = 1 << 20;

/// Maximum `Retry-After` that the client honours.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Minimum length of a body to hold back: to wait would take longer than to send a shorter one.
const HELD_BYTES: u64 = 64 << 10;

/// Time for which a body is held back while the service may refuse the request.
const HOLD: Duration = Duration::from_millis(500);

/// The transport that all HTTP services use.
#[derive(Clone, Debug)]
pub struct Transport {
    inner: ReqwestTransport,
    client: reqwest::Client,
    traffic: Arc<Traffic>,
    silence: Duration,
}

/// A body as a stream of OpenDAL.
type PieceStream = Box<dyn Stream<Item = opendal::Result<Buffer>> + Send + Sync + Unpin>;

/// Limits the rate of a body, and counts its pieces.
struct BodyMeter {
    pace: Option<Arc<BandwidthLimits>>,
    traffic: Arc<Traffic>,
}

/// A body to send piece by piece.
struct OutgoingBody {
    pieces: BoxStream<'static, std::io::Result<Bytes>>,
    length: u64,
    /// True if the transport holds the body back, so that the service can refuse it first.
    is_held: bool,
    progress: BodyProgress,
}

/// The time of the last progress of a body, or of its next piece under a rate limit, and the number
/// of bytes that were sent.
#[derive(Clone, Debug)]
struct BodyProgress(Arc<Mutex<(Instant, u64)>>);

impl Transport {
    /// Creates a transport with its own connections that counts in `traffic`.
    ///
    /// # Errors
    /// A message if TLS cannot be set up.
    pub fn new(traffic: Arc<Traffic>) -> Result<Self, String> {
        // A failure is harmless: a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            // Do not follow redirects. A service could redirect a rename to a login page, and a
            // missing login page would look like a missing branch.
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .build()
            .map_err(|error| error.to_string())?;
        let inner = ReqwestTransport::new(client.clone());
        Ok(Self { inner, client, traffic, silence: SILENCE })
    }

    /// Sets the timeout for silence.
    #[must_use]
    pub fn with_silence_timeout(self, silence: Duration) -> Self {
        Self { silence, ..self }
    }
}

/// Turns a `400` that reports a body damaged in transit into a `500`, which OpenDAL treats as
/// temporary. With a `400`, OpenDAL would give up the whole multipart upload. Keeps other replies.
async fn as_temporary_if_damaged(
    response: Response<HttpBody>,
) -> opendal::Result<Response<HttpBody>> {
    let (mut head, mut body) = response.into_parts();
    let bytes = body.to_buffer().await?;
    if is_garbled(&String::from_utf8_lossy(&bytes.to_bytes())) {
        head.status = StatusCode::INTERNAL_SERVER_ERROR;
    }
    let length = bytes.len() as u64;
    let body = HttpBody::new(stream::iter([Ok(bytes)]), Some(length));
    Ok(Response::from_parts(head, body))
}

impl From<Transport> for HttpTransporter {
    fn from(transport: Transport) -> Self {
        Self::new(transport)
    }
}

impl Transport {
    /// Returns the body to send piece by piece: a file, or a body that is rate limited or held
    /// back. Returns `None` to send the body as it is.
    fn outgoing(&self, request: &Request<Buffer>, context: &CallContext) -> Option<OutgoingBody> {
        let is_put = request_kind(request) == RequestKind::Put;
        let file = context.file.clone().filter(|_| is_put);
        let pace = context.limits.clone();
        let piece = pace.as_ref().and_then(|pace| pace.up.piece());
        let length = file.as_ref().map_or(request.body().len() as u64, |file| {
            file.range.end.saturating_sub(file.range.start)
        });
        let is_held = context.is_refused && is_put && length >= HELD_BYTES;
        let piece = piece.or_else(|| is_held.then_some(PIECE_BYTES));
        let pieces = match (file, piece) {
            (Some(file), piece) => {
                // Forget the bytes of an earlier attempt.
                file.hasher.lock().reset();
                let piece = piece.unwrap_or(PIECE_BYTES);
                let pieces = pieces(file.path.clone(), file.range.clone(), piece);
                let hash = move |bytes: &Bytes| {
                    file.hasher.lock().update(bytes);
                };
                pieces.inspect_ok(hash).boxed()
            }
            (None, Some(piece)) if !request.body().is_empty() => {
                cut(request.body().to_bytes(), piece as usize).boxed()
            }
            _ => return None,
        };
        let progress = BodyProgress::begin();
        let (told, traffic) = (progress.clone(), Arc::clone(&self.traffic));
        let pieces = pieces.and_then(move |bytes| {
            let (pace, progress) = (pace.clone(), told.clone());
            // Count here, because a piece that is never polled is never sent.
            traffic.sent(bytes.len() as u64);
            async move {
                let start = pace.map(|pace| pace.up.reserve(bytes.len() as u64));
                progress.tell(start.unwrap_or_else(Instant::now), bytes.len());
                if let Some(start) = start {
                    tokio::time::sleep_until(start).await;
                }
                Ok(bytes)
            }
        });
        let pieces = match is_held {
            true => stream::once(tokio::time::sleep(HOLD))
                .flat_map(|()| stream::empty())
                .chain(pieces)
                .boxed(),
            false => pieces.boxed(),
        };
        Some(OutgoingBody { pieces, length, is_held, progress })
    }

    /// Sends a request with `outgoing` as its body.
    async fn fetch_outgoing(
        &self,
        request: Request<Buffer>,
        outgoing: OutgoingBody,
    ) -> opendal::Result<Response<HttpBody>> {
        let OutgoingBody { pieces, length, is_held, progress } = outgoing;
        let mut request = request;
        if is_held {
            let first = http::HeaderValue::from_static("100-continue");
            request.headers_mut().insert(http::header::EXPECT, first);
        }
        let mut fetch = pin!(self.fetch_pieces(request, pieces, length));
        loop {
            let until = || progress.last() + self.silence + DRAIN;
            match timeout_at(until(), &mut fetch).await {
                Ok(done) => return done,
                // The body has made progress, so there is a new deadline.
                Err(_) if until() > Instant::now() => {}
                Err(_) => return Err(silence(self.silence + DRAIN)),
            }
        }
    }

    async fn fetch_pieces(
        &self,
        request: Request<Buffer>,
        pieces: BoxStream<'static, std::io::Result<Bytes>>,
        length: u64,
    ) -> opendal::Result<Response<HttpBody>> {
        let unsent = |error: reqwest::Error| {
            Error::new(ErrorKind::Unexpected, "send http request")
                .set_temporary()
                .set_source(error.without_url())
        };
        let (mut head, _) = request.into_parts();
        head.headers.insert(http::header::CONTENT_LENGTH, length.into());
        let body = reqwest::Body::wrap_stream(pieces);
        let request = self.client.request(head.method, head.uri.to_string());
        let mut reply = request.headers(head.headers).body(body).send().await.map_err(unsent)?;
        let mut response = Response::builder().status(reply.status());
        if let Some(headers) = response.headers_mut() {
            std::mem::swap(headers, reply.headers_mut());
        }
        let length = reply.content_length();
        let body = reply.bytes_stream().map_ok(Buffer::from).map_err(unsent);
        response
            .body(HttpBody::new(body, length))
            .map_err(|error| Error::new(ErrorKind::Unexpected, error.to_string()))
    }
}

impl BodyProgress {
    fn begin() -> Self {
        Self(Arc::new(Mutex::new((Instant::now(), 0))))
    }

    fn tell(&self, at: Instant, bytes: usize) {
        let mut progress = self.0.lock();
        *progress = (at, progress.1 + bytes as u64);
    }

    fn last(&self) -> Instant {
        self.0.lock().0
    }

    /// Returns the number of bytes that were sent, if any.
    fn sent(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(u32::try_from(self.0.lock().1).unwrap_or(u32::MAX))
    }
}

fn silence(patience: Duration) -> Error {
    let silence = format!("no reply within {} s", patience.as_secs());
    Error::new(ErrorKind::Unexpected, silence).set_temporary()
}

/// Applies the rate limit and the timeout for silence to an incoming body.
fn incoming(body: HttpBody, meter: BodyMeter, patience: Duration) -> HttpBody {
    body.map_inner(|pieces| {
        let next = move |(mut pieces, meter): (PieceStream, BodyMeter)| async move {
            let piece: opendal::Result<Buffer> = match timeout(patience, pieces.next()).await {
                Ok(piece) => piece?,
                Err(_) => Err(silence(patience)),
            };
            if let Ok(bytes) = &piece {
                meter.traffic.moved(bytes.len() as u64);
                if let Some(pace) = &meter.pace {
                    pace.down.take(bytes.len() as u64).await;
                }
            }
            Some((piece, (pieces, meter)))
        };
        Box::new(Box::pin(stream::unfold((pieces, meter), next)))
    })
}

/// Splits bytes into pieces.
fn cut(bytes: Bytes, piece: usize) -> impl Stream<Item = std::io::Result<Bytes>> {
    stream::iter(std::iter::successors(Some(bytes), move |rest| {
        (rest.len() > piece).then(|| rest.slice(piece..))
    }))
    .map(move |rest| Ok(rest.slice(..piece.min(rest.len()))))
}

/// Reads a range of a file as a stream of pieces.
fn pieces(
    path: PathBuf,
    range: Range<u64>,
    piece: u64,
) -> impl Stream<Item = std::io::Result<Bytes>> {
    stream::try_unfold((path, range.start), move |(path, at)| async move {
        if at >= range.end {
            return Ok(None);
        }
        let end = range.end.min(at + piece);
        let bytes = read_part(&path, at..end).await?;
        Ok(Some((bytes.into(), (path, end))))
    })
}

/// Returns the host and the port of a URL.
fn host_of(uri: &http::Uri) -> Option<String> {
    let port = uri.port_u16().or_else(|| match uri.scheme_str()? {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    });
    Some(format!("{}:{}", uri.host()?, port?))
}

impl HttpTransport for Transport {
    async fn fetch(&self, request: Request<Buffer>) -> opendal::Result<Response<HttpBody>> {
        let kind = request_kind(&request);
        let context = CallContext::now();
        // A WebDAV server has no pages: one request lists each folder.
        if kind == RequestKind::List && *request.method() == Method::GET {
            context.count_page(request.uri())?;
        }
        let request = uncached(request);
        let outgoing = self.outgoing(&request, &context);
        let length = outgoing.as_ref().map_or(request.body().len() as u64, |body| body.length);
        self.traffic.request(kind);
        if outgoing.is_none() {
            self.traffic.sent(length);
        }
        let host = host_of(request.uri());
        let asked = HttpReply { host, asked: true, ..HttpReply::default() };
        context.note(asked.clone());
        let response = match outgoing {
            Some(outgoing) => {
                let progress = outgoing.progress.clone();
                let fetched = self.fetch_outgoing(request, outgoing).await;
                fetched.inspect_err(|_| {
                    let interrupted_at = progress.sent();
                    context.note(HttpReply { interrupted_at, ..asked.clone() });
                })?
            }
            None => {
                let patience = self.silence + Duration::from_secs(length / LEAST_RATE);
                let fetched = timeout(patience, self.inner.fetch(request)).await;
                fetched.unwrap_or_else(|_| Err(silence(patience)))?
            }
        };
        let response = match response.status() {
            StatusCode::BAD_REQUEST if kind == RequestKind::Put => {
                as_temporary_if_damaged(response).await?
            }
            _ => response,
        };
        if let Some(to) = redirection(&response) {
            let status = response.status().as_u16();
            context.note(HttpReply { status: Some(status), ..asked });
            let said = format!("status {status} redirects to {to}, which is not followed");
            return Err(Error::new(ErrorKind::Unexpected, said));
        }
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let retry_after = header(http::header::RETRY_AFTER)
            .and_then(|text| retry_after(text, header(http::header::DATE), Time::now().secs))
            .map(|wait| wait.min(LONGEST_WAIT));
        let status = Some(response.status().as_u16());
        context.note(HttpReply { status, retry_after, ..asked });
        let length = header(http::header::CONTENT_LENGTH).and_then(|text| text.parse().ok());
        self.traffic.received(length.unwrap_or(0));
        let most = context.most.unwrap_or(limits::REPLY_BYTES);
        // The length in a reply to `HEAD` is not the length of its body.
        if kind != RequestKind::Head && length.is_some_and(|length| length > most) {
            return Err(context.too_long(most));
        }
        let meter = BodyMeter { pace: context.limits.clone(), traffic: Arc::clone(&self.traffic) };
        let body = |body| incoming(limit_body(body, most, context), meter, self.silence);
        Ok(response.map(body))
    }
}

/// Returns the target of a redirect, reduced to scheme, host and path: the rest may be a secret.
fn redirection<T>(response: &Response<T>) -> Option<String> {
    let is_one = matches!(response.status().as_u16(), 301..=303 | 307 | 308);
    let to = response.headers().get(http::header::LOCATION).filter(|_| is_one)?;
    let to: http::Uri = to.to_str().ok()?.parse().ok()?;
    let host = to.authority().map(|host| match host.port_u16() {
        Some(port) => format!("{}:{port}", host.host()),
        None => host.host().to_owned(),
    });
    Some(match (to.scheme_str(), host) {
        (Some(scheme), Some(host)) => format!("{scheme}://{host}{}", to.path()),
        _ => to.path().to_owned(),
    })
}

/// Makes HTTP caches revalidate mutable objects. Packs and index files have their hash as name and
/// cannot change.
fn uncached(mut request: Request<Buffer>) -> Request<Buffer> {
    let path = request.uri().path();
    let is_read = !matches!(*request.method(), Method::PUT | Method::POST | Method::DELETE);
    if is_read && !path.contains("/objects/") && !path.contains("/index/") {
        let no_cache = http::HeaderValue::from_static("no-cache");
        request.headers_mut().insert(http::header::CACHE_CONTROL, no_cache);
    }
    request
}

/// Returns the pause of a `Retry-After` header: seconds, or a date. Compares a date with the `Date`
/// header of the service if there is one, else with the local clock.
fn retry_after(until: &str, date: Option<&str>, now_secs: i64) -> Option<Duration> {
    if let Ok(seconds) = until.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let secs = |text| Timestamp::parse_rfc2822(text).ok().map(|at| at.into_inner().as_second());
    let now = date.and_then(secs).unwrap_or(now_secs);
    let seconds = secs(until)?.saturating_sub(now);
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Limits the number of bytes of a body.
fn limit_body(body: HttpBody, most: u64, context: CallContext) -> HttpBody {
    let mut left = most;
    let piece = move |piece: opendal::Result<Buffer>| {
        let piece = piece?;
        left = left.checked_sub(piece.len() as u64).ok_or_else(|| context.too_long(most))?;
        Ok(piece)
    };
    body.map_inner(|stream| Box::new(stream.map(piece)))
}

fn request_kind(request: &Request<Buffer>) -> RequestKind {
    let query = request.uri().query().unwrap_or("");
    let asks = |name: &str| query.split('&').any(|part| part.split('=').next() == Some(name));
    match *request.method() {
        Method::GET if asks("list-type") || asks("comp") || asks("prefix") => RequestKind::List,
        Method::GET => RequestKind::Get,
        Method::HEAD => RequestKind::Head,
        Method::PUT | Method::PATCH => RequestKind::Put,
        Method::DELETE => RequestKind::Delete,
        _ if request.method().as_str() == "PROPFIND" => RequestKind::List,
        _ => RequestKind::Post,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_are_reported_without_secrets() {
        let to = |status: u16, location: &str| {
            let response = Response::builder().status(status).header("location", location);
            redirection(&response.body(()).unwrap())
        };
        let elsewhere = "https://ada:secret@else.example:8443/x/config.toml?token=1";
        assert_eq!(to(307, elsewhere).unwrap(), "https://else.example:8443/x/config.toml");
        assert_eq!(to(302, "/login?next=x").unwrap(), "/login");
        assert_eq!((to(304, elsewhere), to(200, elsewhere)), (None, None));
    }

    #[test]
    fn retry_after_is_parsed_as_seconds_or_as_a_date() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let later = "Sun, 06 Nov 1994 08:50:07 GMT";
        let secs = Duration::from_secs;
        assert_eq!(retry_after("7", None, 0), Some(secs(7)));
        assert_eq!(
            retry_after(later, Some(date), 0),
            Some(secs(30)),
            "the date is relative to the clock of the service"
        );
        assert_eq!(retry_after(later, None, 784_111_777), Some(secs(30)));
        assert_eq!(retry_after(later, Some("soon"), 784_111_777), Some(secs(30)));
        assert_eq!(retry_after(date, Some(later), 0), Some(secs(0)), "the pause is over");
        for nonsense in ["", "-1", "1.5", "soon", "Sun, 31 Feb 1994 08:49:37 GMT"] {
            assert_eq!(retry_after(nonsense, Some(date), 0), None, "{nonsense}");
        }
    }
}
