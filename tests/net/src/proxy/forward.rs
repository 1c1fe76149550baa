//! One connection of a client: its requests forwarded, or harmed.

use std::{
    convert::Infallible,
    future::{Future, pending, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
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
use tokio::{net::TcpStream, sync::Notify, time};

use super::{
    AnyBody, Fault, Inner, Seen,
    body::{BodyError, Half, InFlight, Limited, Metered, Way, incoming, whole},
};

/// The service behind the proxy, and connections to it.
pub(super) struct Upstream {
    client: Client<HttpConnector, AnyBody>,
    authority: uri::Authority,
}

impl Upstream {
    pub(super) fn new(target: &str) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let authority = target
            .parse()
            .ok()
            .and_then(|target: Uri| target.authority().cloned())
            .expect("the target is `http://HOST:PORT`");
        Self { client, authority }
    }

    /// Forwards a request to the target.
    async fn send(&self, mut request: Request<AnyBody>) -> Result<Response<Incoming>, BodyError> {
        let mut parts = uri::Parts::default();
        parts.scheme = Some(uri::Scheme::HTTP);
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = request.uri().path_and_query().cloned();
        *request.uri_mut() = Uri::from_parts(parts)?;
        leave_hop(request.headers_mut());
        Ok(self.client.request(request).await?)
    }
}

/// How a connection is to end.
#[derive(Clone, Copy, Debug)]
enum End {
    /// As if the other side had crashed.
    Reset,
    /// In the midst of a reply.
    Close,
}

/// A client's connection.
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

    /// Serves until the client has gone, or a fault ends it.
    pub(super) async fn serve(self, stream: TcpStream) {
        let each = self.clone();
        let service = service_fn(move |request| -> Answering {
            let connection = each.clone();
            Box::pin(async move { Ok(connection.answer(request).await) })
        });
        let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        let end = {
            let mut cut = pin!(self.end.1.notified());
            let mut serving = poll_fn(|cx| connection.poll_without_shutdown(cx));
            tokio::select! {
                // What is written is flushed before the end is looked at.
                biased;
                _gone = &mut serving => None,
                () = &mut cut => *self.end.0.lock().expect("no panic under the lock"),
            }
        };
        let stream = connection.into_parts().io.into_inner();
        if matches!(end, Some(End::Reset)) {
            // Closing it then sends a reset. If that cannot be set, it is
            // closed, which a client takes no better.
            let _closed_instead = stream.set_zero_linger();
        }
    }

    fn cut(&self, end: End) {
        *self.end.0.lock().expect("no panic under the lock") = Some(end);
        self.end.1.notify_one();
    }

    /// Ends the connection in place of a reply.
    async fn cut_now<T>(&self, end: End) -> T {
        self.cut(end);
        pending().await
    }

    /// Counts a request and sees to its reply.
    async fn answer(self, request: Request<Incoming>) -> Reply {
        let seen = Arc::new(Seen::new(&request, self.inner.start));
        let under_way = InFlight::new(&self.inner);
        let (delay, fault) = self.inner.arrive(&seen);
        if !delay.is_zero() {
            time::sleep(delay).await;
        }
        let request = request
            .map(|body| Metered::body(incoming(body), Arc::clone(&self.inner), Way::Up, None));
        let reply = self.reply(request, fault).await;
        let _first = seen.reply.set((reply.status().as_u16(), self.inner.start.elapsed()));
        reply.map(|body| Metered::body(body, Arc::clone(&self.inner), Way::Down, Some(under_way)))
    }

    async fn reply(&self, request: Request<AnyBody>, fault: Option<Fault>) -> Reply {
        match fault {
            None | Some(Fault::Delay(_)) => self.forward(request).await,
            Some(Fault::Stall) => pending().await,
            Some(Fault::Reset) => self.cut_now(End::Reset).await,
            Some(Fault::Refuse { status, code, retry_after_secs }) => {
                // Read whole, so that the connection can be used again.
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
                    // The service takes in what came of it before the client learns of the
                    // cut, or it would carry out a write after what the client does next.
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
                fault @ (Fault::LoseReply | Fault::Truncate | Fault::StallBody | Fault::FlipReply),
            ) => self.harm_reply(request, &fault).await,
        }
    }

    /// Forwards a request and passes the reply on as it comes.
    async fn forward(&self, request: Request<AnyBody>) -> Reply {
        match self.inner.upstream.send(request).await {
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

    /// Forwards a request, waits for the whole reply, and harms that.
    async fn harm_reply(&self, request: Request<AnyBody>, fault: &Fault) -> Reply {
        let (mut head, body) = self.forward(request).await.into_parts();
        let Ok(bytes) = body.collect().await else { return self.cut_now(End::Close).await };
        let bytes = bytes.to_bytes();
        if !bytes.is_empty() {
            // A reply that was sent in chunks is announced here.
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
            _ => whole(flipped(bytes)),
        };
        Response::from_parts(head, body)
    }
}

/// Everything of a request, or `None` when the client goes away before.
async fn gather_request(request: Request<AnyBody>) -> Option<(http::request::Parts, Bytes)> {
    let (head, body) = request.into_parts();
    let bytes = body.collect().await.ok()?.to_bytes();
    Some((head, bytes))
}

/// The same with one bit flipped, in the middle.
fn flipped(bytes: Bytes) -> Bytes {
    let mut bytes = bytes.to_vec();
    let middle = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 1;
    }
    bytes.into()
}

/// Removes what belongs to one hop, and not to the message.
fn leave_hop(headers: &mut HeaderMap) {
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::TE, header::UPGRADE] {
        headers.remove(name);
    }
}

/// A refusal as S3 words it.
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
