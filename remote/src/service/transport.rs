//! HTTP as OpenDAL asks for it: counted, with what a refusal says on the side.

use std::{
    future::Future,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use http::{Method, Request, Response, StatusCode};
use opendal::{
    Buffer, Error, ErrorKind, Execute, HttpBody, HttpTransport, HttpTransporter,
    raw::{BoxedStaticFuture, Timestamp},
};
use opendal_http_transport_reqwest::ReqwestTransport;
use snap_core::base::{limits, time::Time};

use super::{
    refusal::is_garbled,
    traffic::{Kind, Traffic},
    upload::read_part,
};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);

/// How long a reply may take to begin, besides the time that the request needs.
const SILENCE: Duration = Duration::from_secs(30);

/// The least rate that a request is expected to go out at, in bytes a second.
const LEAST_RATE: u64 = 64 << 10;

/// Bytes of a file that are read at a time while it goes out.
const PIECE_BYTES: u64 = 1 << 20;

/// Longest wait that a service is granted its wish for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Any body may be that long: what is asked for beside an object, such as a
/// token, and what a refusal says.
const LEAST_CEILING: u64 = 1 << 20;

tokio::task_local! {
    static REPLY: Arc<Mutex<Reply>>;
    static FILE: (PathBuf, u64);
    static MOST: u64;
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

/// Sends the file in place of the body of what `attempt` writes, which must be
/// of one request and not signed.
pub(super) async fn with_file<T>(file: (PathBuf, u64), attempt: impl Future<Output = T>) -> T {
    FILE.scope(file, attempt).await
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
        tokio::spawn(async move {
            let ((), reply) = Reply::of(work).await;
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
}

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
        Ok(Self { inner: ReqwestTransport::new(client.clone()), client, traffic })
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
    /// Sends a file in place of the body.
    async fn fetch_file(
        &self,
        request: Request<Buffer>,
        (path, length): (PathBuf, u64),
    ) -> opendal::Result<Response<HttpBody>> {
        let unsent = |error: reqwest::Error| {
            Error::new(ErrorKind::Unexpected, "send http request")
                .set_temporary()
                .set_source(error.without_url())
        };
        let (mut head, _) = request.into_parts();
        head.headers.insert(http::header::CONTENT_LENGTH, length.into());
        let body = reqwest::Body::wrap_stream(pieces(path, length));
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

/// A file, piece by piece.
fn pieces(path: PathBuf, length: u64) -> impl Stream<Item = std::io::Result<Bytes>> {
    stream::try_unfold((path, 0), move |(path, at)| async move {
        if at >= length {
            return Ok(None);
        }
        let end = length.min(at + PIECE_BYTES);
        let bytes = read_part(&path, at..end).await?;
        Ok(Some((bytes.into(), (path, end))))
    })
}

impl HttpTransport for Transport {
    async fn fetch(&self, request: Request<Buffer>) -> opendal::Result<Response<HttpBody>> {
        let kind = kind(&request);
        let file = FILE.try_with(Clone::clone).ok().filter(|_| kind == Kind::Put);
        let length = file.as_ref().map_or(request.body().len() as u64, |(_, length)| *length);
        self.traffic.request(kind);
        self.traffic.sent(length);
        Reply { asked: true, ..Reply::default() }.note();
        let patience = SILENCE + Duration::from_secs(length / LEAST_RATE);
        let fetch = async {
            match file {
                Some(file) => self.fetch_file(request, file).await,
                None => self.inner.fetch(request).await,
            }
        };
        let response = tokio::time::timeout(patience, fetch).await.unwrap_or_else(|_| {
            let silence = format!("no answer in {} s", patience.as_secs());
            Err(Error::new(ErrorKind::Unexpected, silence).set_temporary())
        })?;
        let response = match response.status() {
            StatusCode::BAD_REQUEST if kind == Kind::Put => doubted(response).await?,
            _ => response,
        };
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
        Ok(response.map(|body| bounded(body, most)))
    }
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
        Method::PUT => Kind::Put,
        Method::DELETE => Kind::Delete,
        _ if request.method().as_str() == "PROPFIND" => Kind::List,
        _ => Kind::Post,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
