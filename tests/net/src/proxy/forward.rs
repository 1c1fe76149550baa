//! One connection of a client: forwards its requests, and applies faults.

use std::{
    convert::Infallible,
    fmt,
    future::{Future, pending, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, header, uri};
use http_body_util::BodyExt as _;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo},
};
use parking_lot::Mutex;
use tokio::{net::TcpStream, sync::Notify, time};

use super::{
    AnyBody, Arrival, Fault, Inner, Seen,
    body::{BodyError, Half, InFlight, Limited, Metered, Way, incoming, whole},
};

/// The services behind the proxy, used in turn, and connections to them.
pub(super) struct Upstream {
    client: Client<HttpConnector, AnyBody>,
    authorities: Mutex<Vec<uri::Authority>>,
    sent: AtomicUsize,
}

/// Parses the targets of a proxy.
fn authorities(targets: &[&str]) -> Vec<uri::Authority> {
    let authority = |target: &&str| {
        let target = target.parse().ok();
        let authority = target.and_then(|target: Uri| target.authority().cloned());
        authority.expect("a target is `http://HOST:PORT`")
    };
    targets.iter().map(authority).collect()
}

impl Upstream {
    pub(super) fn new(targets: &[&str]) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let authorities = Mutex::new(authorities(targets));
        Self { client, authorities, sent: AtomicUsize::new(0) }
    }

    /// Replaces the targets.
    pub(super) fn set_targets(&self, targets: &[&str]) {
        *self.authorities.lock() = authorities(targets);
    }

    /// Returns the next target; `None` if there is none at present.
    fn next(&self) -> Option<uri::Authority> {
        let authorities = self.authorities.lock();
        let turn = self.sent.fetch_add(1, Ordering::Relaxed).checked_rem(authorities.len())?;
        authorities.get(turn).cloned()
    }

    /// Forwards a request to the next target.
    async fn send(&self, mut request: Request<AnyBody>) -> Result<Response<Incoming>, BodyError> {
        let mut parts = uri::Parts::default();
        parts.scheme = Some(uri::Scheme::HTTP);
        parts.authority = Some(self.next().ok_or(NoTarget)?);
        parts.path_and_query = request.uri().path_and_query().cloned();
        *request.uri_mut() = Uri::from_parts(parts)?;
        leave_hop(request.headers_mut());
        Ok(self.client.request(request).await?)
    }
}

/// The proxy has no target at present.
#[derive(Debug)]
struct NoTarget;

impl fmt::Display for NoTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no service")
    }
}

impl std::error::Error for NoTarget {}

/// How a connection ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// Reset, as if the other side had crashed.
    Reset,
    /// Closed in the middle of a reply.
    Close,
}

/// A connection of a client.
#[derive(Clone)]
pub(super) struct Connection {
    inner: Arc<Inner>,
    end: Arc<(Mutex<Option<End>>, Notify)>,
}

type Reply = Response<AnyBody>;
type Answering = Pin<Box<dyn Future<Output = Result<Reply, Infallible>> + Send>>;

impl Connection {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, end: Arc::default() }
    }

    /// Serves requests until the client closes the connection or a fault ends it.
    pub(super) async fn serve(self, stream: TcpStream) {
        let each = self.clone();
        let service = service_fn(move |request| -> Answering {
            let connection = each.clone();
            Box::pin(async move { Ok(connection.answer(request).await) })
        });
        let mut broken = self.inner.broken.subscribe();
        let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        let end = {
            let mut cut = pin!(self.end.1.notified());
            let mut serving = poll_fn(|cx| connection.poll_without_shutdown(cx));
            tokio::select! {
                // `biased`, so that written bytes are flushed before the cut is noticed.
                biased;
                _gone = &mut serving => None,
                () = &mut cut => *self.end.0.lock(),
                _ = broken.changed() => Some(End::Reset),
            }
        };
        let stream = connection.into_parts().io.into_inner();
        if matches!(end, Some(End::Reset)) {
            // With zero linger, closing sends a reset. If that cannot be set, the connection is
            // closed normally, which is as bad for a client.
            let _closed_instead = stream.set_zero_linger();
        }
    }

    fn cut(&self, end: End) {
        *self.end.0.lock() = Some(end);
        self.end.1.notify_one();
    }

    /// Ends the connection instead of replying.
    async fn cut_now<T>(&self, end: End) -> T {
        self.cut(end);
        pending().await
    }

    /// Counts a request and returns its reply.
    async fn answer(self, request: Request<Incoming>) -> Reply {
        let seen = Arc::new(Seen::new(&request, self.inner.start));
        let under_way = InFlight::new(&self.inner);
        let Arrival { delay, fault, is_kept } = self.inner.arrive(&seen);
        if !delay.is_zero() {
            time::sleep(delay).await;
        }
        let request = request
            .map(|body| Metered::body(incoming(body), Arc::clone(&self.inner), Way::Up, None));
        let reply = match fault {
            Some(Fault::Stale) => self.reply_stale(request, &seen).await,
            None if is_kept => self.reply_kept(request, &seen).await,
            fault => self.reply(request, fault).await,
        };
        let _first = seen.reply.set((reply.status().as_u16(), self.inner.start.elapsed()));
        reply.map(|body| Metered::body(body, Arc::clone(&self.inner), Way::Down, Some(under_way)))
    }

    async fn reply(&self, request: Request<AnyBody>, fault: Option<Fault>) -> Reply {
        match fault {
            None | Some(Fault::Delay(_) | Fault::Stale) => {
                match self.inner.upstream.send(request).await {
                    // As if the client were connected to the service, and the service had ended.
                    Err(error) if !is_unreachable(&error) => self.cut_now(End::Reset).await,
                    sent => passed_on(sent),
                }
            }
            Some(Fault::Hold(gate)) => {
                self.inner.tally(|tally| tally.counts.stalled += 1);
                gate.pass().await;
                self.forward(request).await
            }
            Some(Fault::Stall) => {
                self.inner.tally(|tally| tally.counts.stalled += 1);
                pending().await
            }
            Some(Fault::StallReply) => {
                let _served = self.forward_whole(request).await;
                self.inner.tally(|tally| tally.counts.stalled += 1);
                pending().await
            }
            Some(Fault::Reset) => self.cut_now(End::Reset).await,
            Some(Fault::Refuse { status, code, retry_after_secs }) => {
                // Reads the whole body, so that the connection can be reused.
                let _client_gone = request.into_body().collect().await;
                refusal(status, code, retry_after_secs)
            }
            Some(Fault::FlipRequest) => match gather_request(request).await {
                Some((head, bytes)) => {
                    self.forward(Request::from_parts(head, whole(flipped(bytes)))).await
                }
                None => self.cut_now(End::Close).await,
            },
            Some(Fault::CutRequest) => {
                if let Some((head, bytes)) = gather_request(request).await {
                    self.forward(Request::from_parts(head, Half::cut(&bytes))).await;
                    // The service must process the partial request before the client notices the
                    // cut. Otherwise it could carry out a write after the next request of the
                    // client.
                    time::sleep(std::time::Duration::from_millis(100)).await;
                }
                self.cut_now(End::Reset).await
            }
            Some(Fault::CutAt(bytes)) => {
                let cut = Arc::new(AtomicBool::new(false));
                let told = Arc::clone(&cut);
                let request = request.map(|body| Limited::body(body, bytes, told));
                let reply = self.forward(request).await;
                match cut.load(Ordering::SeqCst) {
                    true => self.cut_now(End::Reset).await,
                    false => reply,
                }
            }
            Some(Fault::RefuseAfter(status)) => {
                let _served = self.forward(request).await.into_body().collect().await;
                match Fault::status(status) {
                    Fault::Refuse { status, code, .. } => refusal(status, code, None),
                    _ => unreachable!("a status is refused"),
                }
            }
            Some(Fault::Duplicate) => match gather_request(request).await {
                Some((head, bytes)) => {
                    let first = Request::from_parts(head.clone(), whole(bytes.clone()));
                    let _served = self.forward(first).await.into_body().collect().await;
                    self.forward(Request::from_parts(head, whole(bytes))).await
                }
                None => self.cut_now(End::Close).await,
            },
            Some(Fault::Late(delay)) => {
                if let Some((head, bytes)) = gather_request(request).await {
                    let late = self.clone();
                    tokio::spawn(async move {
                        time::sleep(delay).await;
                        let request = Request::from_parts(head, whole(bytes));
                        let _served = late.forward(request).await.into_body().collect().await;
                    });
                }
                self.cut_now(End::Reset).await
            }
            Some(Fault::IgnoreRange) => {
                let mut request = request;
                request.headers_mut().remove(header::RANGE);
                self.forward(request).await
            }
            Some(Fault::Redirect) => {
                let _client_gone = request.into_body().collect().await;
                let mut reply = Response::new(whole(Bytes::new()));
                *reply.status_mut() = StatusCode::MOVED_PERMANENTLY;
                let elsewhere = HeaderValue::from_static("/login");
                reply.headers_mut().insert(header::LOCATION, elsewhere);
                reply
            }
            Some(Fault::Pretend) => {
                let _client_gone = request.into_body().collect().await;
                let page = "<!doctype html><title>Welcome</title><p>Please log in.";
                let mut reply = Response::new(whole(page.into()));
                let html = HeaderValue::from_static("text/html");
                reply.headers_mut().insert(header::CONTENT_TYPE, html);
                reply
            }
            Some(
                fault @ (Fault::LoseReply
                | Fault::Truncate
                | Fault::StallBody
                | Fault::FlipReply
                | Fault::LengthenReply),
            ) => self.harm_reply(request, &fault).await,
        }
    }

    /// Forwards a request and streams the reply.
    async fn forward(&self, request: Request<AnyBody>) -> Reply {
        passed_on(self.inner.upstream.send(request).await)
    }

    /// Forwards a request and waits for the whole reply.
    async fn forward_whole(&self, request: Request<AnyBody>) -> Option<Response<Bytes>> {
        let (mut head, body) = self.forward(request).await.into_parts();
        let bytes = body.collect().await.ok()?.to_bytes();
        if !bytes.is_empty() {
            // Replaces the chunked encoding of the reply.
            head.headers.insert(header::CONTENT_LENGTH, bytes.len().into());
        }
        Some(Response::from_parts(head, bytes))
    }

    /// Forwards a request, and keeps its reply for stale reads.
    async fn reply_kept(&self, request: Request<AnyBody>, seen: &Seen) -> Reply {
        let Some(reply) = self.forward_whole(request).await else {
            return self.cut_now(End::Close).await;
        };
        self.inner.keep(seen, &reply);
        reply.map(whole)
    }

    /// Forwards a request, and returns an earlier reply if one was kept.
    async fn reply_stale(&self, request: Request<AnyBody>, seen: &Seen) -> Reply {
        let Some(fresh) = self.forward_whole(request).await else {
            return self.cut_now(End::Close).await;
        };
        let outdated = self.inner.outdated(seen, &fresh);
        outdated.unwrap_or(fresh).map(whole)
    }

    /// Forwards a request, waits for the whole reply, and corrupts it.
    async fn harm_reply(&self, request: Request<AnyBody>, fault: &Fault) -> Reply {
        let Some(reply) = self.forward_whole(request).await else {
            return self.cut_now(End::Close).await;
        };
        let (mut head, mut bytes) = reply.into_parts();
        if matches!(fault, Fault::LengthenReply) {
            bytes = [&bytes[..], b"+"].concat().into();
            head.headers.insert(header::CONTENT_LENGTH, bytes.len().into());
        }
        let body = match fault {
            Fault::LoseReply => return self.cut_now(End::Reset).await,
            Fault::Truncate if bytes.is_empty() => return self.cut_now(End::Close).await,
            Fault::Truncate => {
                let connection = self.clone();
                Half::body(&bytes, move || connection.cut(End::Close))
            }
            Fault::StallBody => Half::body(&bytes, || {}),
            Fault::LengthenReply => whole(bytes),
            _ => whole(flipped(bytes)),
        };
        Response::from_parts(head, body)
    }
}

/// Returns true if no connection to the service could be made.
fn is_unreachable(error: &BodyError) -> bool {
    let error = error.downcast_ref::<hyper_util::client::legacy::Error>();
    error.is_some_and(hyper_util::client::legacy::Error::is_connect)
}

/// Returns the reply of the service, or one that says that there is none.
fn passed_on(sent: Result<Response<Incoming>, BodyError>) -> Reply {
    match sent {
        Ok(mut reply) => {
            leave_hop(reply.headers_mut());
            reply.map(incoming)
        }
        Err(error) => {
            let mut reply = Response::new(whole(format!("no reply: {error}").into()));
            *reply.status_mut() = StatusCode::BAD_GATEWAY;
            reply
        }
    }
}

/// Reads a whole request; returns `None` if the client closes the connection first.
async fn gather_request(request: Request<AnyBody>) -> Option<(http::request::Parts, Bytes)> {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await.ok()?.to_bytes();
    Some((head, bytes))
}

/// Flips one bit in the middle.
fn flipped(bytes: Bytes) -> Bytes {
    let mut bytes = bytes.to_vec();
    let middle = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 1;
    }
    bytes.into()
}

/// Removes hop-by-hop headers.
fn leave_hop(headers: &mut HeaderMap) {
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::TE, header::UPGRADE] {
        headers.remove(name);
    }
}

/// Returns an error reply in the format of S3.
fn refusal(status: u16, code: &str, retry_after_secs: Option<u64>) -> Reply {
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <Error><Code>{code}</Code><Message>refused by the test</Message></Error>"
    );
    let mut reply = Response::new(whole(text.into()));
    *reply.status_mut() = StatusCode::from_u16(status).expect("a rule names an HTTP status");
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    if let Some(secs) = retry_after_secs {
        headers.insert(header::RETRY_AFTER, secs.into());
    }
    reply
}
