//! HTTP as OpenDAL asks for it: counted, with what a refusal says on the side.

use std::{
    future::Future,
    ops::Range,
    path::PathBuf,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream, stream::BoxStream};
use http::{Method, Request, Response, StatusCode};
use opendal::{
    Buffer, Error, ErrorKind, Execute, HttpBody, HttpTransport, HttpTransporter,
    raw::{BoxedStaticFuture, Timestamp},
};
use opendal_http_transport_reqwest::ReqwestTransport;
use snap_core::base::{limits, time::Time};

use tokio::time::{Instant, timeout, timeout_at};

use super::{
    refusal::is_garbled,
    throttle::Pace,
    traffic::{Kind, Traffic},
    upload::read_part,
};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);

/// How long a reply may take to begin, besides the time that the request needs,
/// and each piece of its body to come.
const SILENCE: Duration = Duration::from_secs(30);

/// The least rate that a request is expected to go out at, in bytes a second.
const LEAST_RATE: u64 = 64 << 10;

/// How long it may take besides until the line has taken what was handed over
/// last: 4 MiB in the buffers of a socket, at the least rate.
const DRAIN: Duration = Duration::from_secs(64);

/// Bytes of a file that are read at a time while it goes out.
const PIECE_BYTES: u64 = 1 << 20;

/// Longest wait that a service is granted its wish for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Bodies of fewer bytes go at once: to hold one back would take longer.
const HELD_BYTES: u64 = 64 << 10;

/// So long a body is held back that may be refused again.
const HOLD: Duration = Duration::from_millis(500);

/// Any body may be that long: what is asked for beside an object, such as a
/// token, and what a refusal says.
const LEAST_CEILING: u64 = 1 << 20;

tokio::task_local! {
    static REPLY: Arc<Mutex<Reply>>;
    static FILE: (PathBuf, Range<u64>, Arc<Mutex<blake3::Hasher>>);
    static MOST: u64;
    static ASKS_FIRST: bool;
}

/// What the last reply within an attempt said besides its body.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reply {
    /// Whether anything was asked over HTTP at all.
    pub(super) asked: bool,
    /// Its status; none when there was no reply.
    pub(super) status: Option<u16>,
    /// How long the service wants to be left alone.
    pub(super) retry_after: Option<Duration>,
    /// What its body was longer than, and may not be.
    pub(super) longer_than: Option<u64>,
}

impl Reply {
    /// Does `attempt`, and says what was replied last.
    pub(super) async fn of<T>(attempt: impl Future<Output = T>) -> (T, Self) {
        let reply = Arc::default();
        let result = REPLY.scope(Arc::clone(&reply), attempt).await;
        (result, read(&reply))
    }

    fn note(self) {
        let _ =
            REPLY.try_with(|reply| *reply.lock().unwrap_or_else(PoisonError::into_inner) = self);
    }

    /// Notes that the body is longer than it may be, and says so.
    fn too_long(most: u64) -> Error {
        let note = |reply: &Arc<Mutex<Self>>| {
            reply.lock().unwrap_or_else(PoisonError::into_inner).longer_than = Some(most);
        };
        let _ = REPLY.try_with(note);
        Error::new(ErrorKind::Unexpected, format!("more than {most} B came"))
    }

    fn is_bad(self) -> bool {
        self.asked && self.status.is_none_or(|status| status >= 400)
    }
}

fn read(reply: &Mutex<Reply>) -> Reply {
    *reply.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends that range of a file in place of the body of what `attempt` writes, which
/// must be of one request and not signed.
pub(super) async fn with_file<T>(
    file: (PathBuf, Range<u64>),
    attempt: impl Future<Output = T>,
) -> T {
    with_hashed_file(file, attempt).await.0
}

/// The same, with the hash of the bytes that were sent last.
pub(super) async fn with_hashed_file<T>(
    (path, range): (PathBuf, Range<u64>),
    attempt: impl Future<Output = T>,
) -> (T, blake3::Hash) {
    let sent = Arc::default();
    let done = FILE.scope((path, range, Arc::clone(&sent)), attempt).await;
    let hash = sent.lock().unwrap_or_else(PoisonError::into_inner).finalize();
    (done, hash)
}

/// Where `is_refused` says that the service takes no more just now, holds bodies of
/// `attempt` back for a moment, in which it may say so again: else a body that it does
/// not want goes whole each time.
pub(super) async fn asking_first<T>(is_refused: bool, attempt: impl Future<Output = T>) -> T {
    ASKS_FIRST.scope(is_refused, attempt).await
}

/// Gives up what `attempt` reads once more than `most` bytes come. What is short
/// may still be longer than that.
pub(super) async fn at_most<T>(most: u64, attempt: impl Future<Output = T>) -> T {
    MOST.scope(most.max(LEAST_CEILING), attempt).await
}

/// Runs parts of an upload in tasks of their own, and tells the attempt that
/// they belong to what bad reply they had.
#[derive(Debug)]
pub(super) struct Tasks;

impl Execute for Tasks {
    fn execute(&self, work: BoxedStaticFuture<()>) {
        let parent = REPLY.try_with(Arc::clone).unwrap_or_default();
        let pace = Pace::now();
        tokio::spawn(async move {
            let ((), reply) = Reply::of(Pace::during(pace, work)).await;
            if reply.is_bad() {
                *parent.lock().unwrap_or_else(PoisonError::into_inner) = reply;
            }
        });
    }
}

/// A transport that counts.
#[derive(Clone, Debug)]
pub struct Transport {
    inner: ReqwestTransport,
    client: reqwest::Client,
    traffic: Arc<Traffic>,
    silence: Duration,
}

/// A body as OpenDAL has it.
type Pieces = Box<dyn Stream<Item = opendal::Result<Buffer>> + Send + Sync + Unpin>;

/// The limit that a body keeps to, and where its pieces are counted.
type Limits = (Option<Arc<Pace>>, Arc<Traffic>);

/// A body that goes out piece by piece.
struct Outgoing {
    pieces: BoxStream<'static, std::io::Result<Bytes>>,
    length: u64,
    /// Whether the service may refuse it before it goes.
    is_held: bool,
    moved: Moved,
}

/// When a body that goes out last moved, or will.
#[derive(Clone, Debug)]
struct Moved(Arc<Mutex<Instant>>);

impl Transport {
    /// A transport with connections of its own, counting in `traffic`.
    ///
    /// # Errors
    /// When TLS cannot be set up, in words.
    pub fn new(traffic: Arc<Traffic>) -> Result<Self, String> {
        // Refused when there is one already, which is just as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .build()
            .map_err(|error| error.to_string())?;
        let inner = ReqwestTransport::new(client.clone());
        Ok(Self { inner, client, traffic, silence: SILENCE })
    }

    /// The same, which bears silence for so long.
    #[must_use]
    pub fn bearing(self, silence: Duration) -> Self {
        Self { silence, ..self }
    }
}

/// The same refusal; one of what arrived damaged as an error of the server's,
/// which OpenDAL takes for one that passes: else it gives up the whole upload of
/// which this was a part.
async fn doubted(response: Response<HttpBody>) -> opendal::Result<Response<HttpBody>> {
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
    /// What goes out in place of the body: the file, or the body itself under a
    /// limit.
    fn outgoing(&self, request: &Request<Buffer>, pace: Option<&Arc<Pace>>) -> Option<Outgoing> {
        let is_put = kind(request) == Kind::Put;
        let file = FILE.try_with(Clone::clone).ok().filter(|_| is_put);
        let piece = pace.and_then(|pace| pace.up.piece());
        let length = file.as_ref().map_or(request.body().len() as u64, |(_, range, _)| {
            range.end.saturating_sub(range.start)
        });
        let asks_first = ASKS_FIRST.try_with(|asks| *asks).unwrap_or(false);
        let is_held = asks_first && is_put && length >= HELD_BYTES;
        let piece = piece.or_else(|| is_held.then_some(PIECE_BYTES));
        let (pieces, length) = match (file, piece) {
            (Some((path, range, sent)), piece) => {
                let length = range.end.saturating_sub(range.start);
                // Of an attempt before this one.
                sent.lock().unwrap_or_else(PoisonError::into_inner).reset();
                let pieces = pieces(path, range, piece.unwrap_or(PIECE_BYTES));
                let hashed = pieces.inspect_ok(move |bytes| {
                    sent.lock().unwrap_or_else(PoisonError::into_inner).update(bytes);
                });
                (hashed.boxed(), length)
            }
            (None, Some(piece)) if !request.body().is_empty() => {
                let body = request.body().clone();
                (cut(body.to_bytes(), piece as usize).boxed(), body.len() as u64)
            }
            _ => return None,
        };
        let (pace, moved) = (pace.cloned(), Moved(Arc::new(Mutex::new(Instant::now()))));
        let (told, traffic) = (moved.clone(), Arc::clone(&self.traffic));
        let pieces = pieces.and_then(move |bytes| {
            let (pace, moved) = (pace.clone(), told.clone());
            // What is never asked for does not go out.
            traffic.sent(bytes.len() as u64);
            async move {
                let start = pace.map(|pace| pace.up.reserve(bytes.len() as u64));
                moved.tell(start.unwrap_or_else(Instant::now));
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
        Some(Outgoing { pieces, length, is_held, moved })
    }

    /// Sends that in place of the body.
    async fn fetch_outgoing(
        &self,
        request: Request<Buffer>,
        outgoing: Outgoing,
    ) -> opendal::Result<Response<HttpBody>> {
        let Outgoing { pieces, length, is_held, moved } = outgoing;
        let mut request = request;
        if is_held {
            let first = http::HeaderValue::from_static("100-continue");
            request.headers_mut().insert(http::header::EXPECT, first);
        }
        let mut fetch = pin!(self.fetch_pieces(request, (pieces, length)));
        loop {
            let until = || moved.last() + self.silence + DRAIN;
            match timeout_at(until(), &mut fetch).await {
                Ok(done) => return done,
                Err(_) if until() > Instant::now() => {}
                Err(_) => return Err(silence(self.silence + DRAIN)),
            }
        }
    }

    async fn fetch_pieces(
        &self,
        request: Request<Buffer>,
        (pieces, length): (BoxStream<'static, std::io::Result<Bytes>>, u64),
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

impl Moved {
    fn tell(&self, at: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    fn last(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn silence(patience: Duration) -> Error {
    let silence = format!("no answer in {} s", patience.as_secs());
    Error::new(ErrorKind::Unexpected, silence).set_temporary()
}

/// A body as it comes in: under the limit, and ended with an error when nothing
/// more comes.
fn incoming(body: HttpBody, (pace, traffic): Limits, patience: Duration) -> HttpBody {
    body.map_inner(|pieces| {
        let next = move |(mut pieces, (pace, traffic)): (Pieces, Limits)| async move {
            let piece: opendal::Result<Buffer> = match timeout(patience, pieces.next()).await {
                Ok(piece) => piece?,
                Err(_) => Err(silence(patience)),
            };
            if let Ok(bytes) = &piece {
                traffic.moved(bytes.len() as u64);
                if let Some(pace) = &pace {
                    pace.down.take(bytes.len() as u64).await;
                }
            }
            Some((piece, (pieces, (pace, traffic))))
        };
        Box::new(Box::pin(stream::unfold((pieces, (pace, traffic)), next)))
    })
}

/// Bytes that are at hand, piece by piece.
fn cut(bytes: Bytes, piece: usize) -> impl Stream<Item = std::io::Result<Bytes>> {
    stream::iter(std::iter::successors(Some(bytes), move |rest| {
        (rest.len() > piece).then(|| rest.slice(piece..))
    }))
    .map(move |rest| Ok(rest.slice(..piece.min(rest.len()))))
}

/// A range of a file, piece by piece.
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

impl HttpTransport for Transport {
    async fn fetch(&self, request: Request<Buffer>) -> opendal::Result<Response<HttpBody>> {
        let kind = kind(&request);
        let request = uncached(request);
        let pace = Pace::now();
        let outgoing = self.outgoing(&request, pace.as_ref());
        let length = outgoing.as_ref().map_or(request.body().len() as u64, |body| body.length);
        self.traffic.request(kind);
        if outgoing.is_none() {
            self.traffic.sent(length);
        }
        Reply { asked: true, ..Reply::default() }.note();
        let response = match outgoing {
            Some(outgoing) => self.fetch_outgoing(request, outgoing).await?,
            None => {
                let patience = self.silence + Duration::from_secs(length / LEAST_RATE);
                let fetched = timeout(patience, self.inner.fetch(request)).await;
                fetched.unwrap_or_else(|_| Err(silence(patience)))?
            }
        };
        let response = match response.status() {
            StatusCode::BAD_REQUEST if kind == Kind::Put => doubted(response).await?,
            _ => response,
        };
        if let Some(to) = redirection(&response) {
            let status = response.status().as_u16();
            Reply { asked: true, status: Some(status), ..Reply::default() }.note();
            let said = format!("status {status} redirects to {to}, which is not followed");
            return Err(Error::new(ErrorKind::Unexpected, said));
        }
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let retry_after = header(http::header::RETRY_AFTER)
            .and_then(|text| wait(text, header(http::header::DATE), Time::now().secs))
            .map(|wait| wait.min(LONGEST_WAIT));
        let status = Some(response.status().as_u16());
        Reply { asked: true, status, retry_after, longer_than: None }.note();
        let length = header(http::header::CONTENT_LENGTH).and_then(|text| text.parse().ok());
        self.traffic.received(length.unwrap_or(0));
        let most = MOST.try_with(|most| *most).unwrap_or(limits::REPLY_BYTES);
        // What HEAD tells of does not come.
        if kind != Kind::Head && length.is_some_and(|length| length > most) {
            return Err(Reply::too_long(most));
        }
        let traffic = Arc::clone(&self.traffic);
        Ok(response.map(|body| incoming(bounded(body, most), (pace, traffic), self.silence)))
    }
}

/// Where a reply redirects to, without what may be a secret: its scheme, host and path.
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

/// Has caches on the way ask the service: what may change is read to know how it is
/// now. Packs and files of the index are named by their hash.
fn uncached(mut request: Request<Buffer>) -> Request<Buffer> {
    let path = request.uri().path();
    let is_read = !matches!(*request.method(), Method::PUT | Method::POST | Method::DELETE);
    if is_read && !path.contains("/objects/") && !path.contains("/index/") {
        let no_cache = http::HeaderValue::from_static("no-cache");
        request.headers_mut().insert(http::header::CACHE_CONTROL, no_cache);
    }
    request
}

/// How long a service wants to be left alone: so many seconds, or until a date,
/// by its own clock where it says what that shows, else by the one here.
fn wait(until: &str, date: Option<&str>, now_secs: i64) -> Option<Duration> {
    if let Ok(seconds) = until.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let secs = |text| Timestamp::parse_rfc2822(text).ok().map(|at| at.into_inner().as_second());
    let now = date.and_then(secs).unwrap_or(now_secs);
    let seconds = secs(until)?.saturating_sub(now);
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// A body of which no more than so much is read.
fn bounded(body: HttpBody, most: u64) -> HttpBody {
    let mut left = most;
    let piece = move |piece: opendal::Result<Buffer>| {
        let piece = piece?;
        left = left.checked_sub(piece.len() as u64).ok_or_else(|| Reply::too_long(most))?;
        Ok(piece)
    };
    body.map_inner(|stream| Box::new(stream.map(piece)))
}

fn kind(request: &Request<Buffer>) -> Kind {
    let query = request.uri().query().unwrap_or("");
    let asks = |name: &str| query.split('&').any(|part| part.split('=').next() == Some(name));
    match *request.method() {
        Method::GET if asks("list-type") || asks("comp") || asks("prefix") => Kind::List,
        Method::GET => Kind::Get,
        Method::HEAD => Kind::Head,
        Method::PUT | Method::PATCH => Kind::Put,
        Method::DELETE => Kind::Delete,
        _ if request.method().as_str() == "PROPFIND" => Kind::List,
        _ => Kind::Post,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirection_is_told_without_what_may_be_a_secret() {
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
    fn a_service_says_in_seconds_or_by_a_date_how_long_it_wants_to_be_left_alone() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let later = "Sun, 06 Nov 1994 08:50:07 GMT";
        let secs = Duration::from_secs;
        assert_eq!(wait("7", None, 0), Some(secs(7)));
        assert_eq!(wait(later, Some(date), 0), Some(secs(30)), "by its clock, whatever ours shows");
        assert_eq!(wait(later, None, 784_111_777), Some(secs(30)));
        assert_eq!(wait(later, Some("soon"), 784_111_777), Some(secs(30)));
        assert_eq!(wait(date, Some(later), 0), Some(secs(0)), "it is over");
        for nonsense in ["", "-1", "1.5", "soon", "Sun, 31 Feb 1994 08:49:37 GMT"] {
            assert_eq!(wait(nonsense, Some(date), 0), None, "{nonsense}");
        }
    }
}
