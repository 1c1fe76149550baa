//! HTTP as OpenDAL asks for it: counted, with what a refusal says on the side.

use std::{cell::Cell, future::Future, sync::Arc, time::Duration};

use http::{Method, Request, Response};
use opendal::{Buffer, HttpBody, HttpTransport, HttpTransporter};
use opendal_http_transport_reqwest::ReqwestTransport;

use super::traffic::{Kind, Traffic};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);

/// How long nothing may arrive while something is awaited.
const SILENCE: Duration = Duration::from_secs(30);

/// Longest wait that a service is granted its wish for.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

tokio::task_local! {
    static REPLY: Cell<Reply>;
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
}

impl Reply {
    /// Does `attempt`, and says what was replied last.
    pub(super) async fn of<T>(attempt: impl Future<Output = T>) -> (T, Self) {
        REPLY
            .scope(Cell::default(), async move {
                let result = attempt.await;
                (result, REPLY.with(Cell::get))
            })
            .await
    }
}

/// A transport that counts.
#[derive(Clone, Debug)]
pub struct Transport {
    inner: ReqwestTransport,
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
            .read_timeout(SILENCE)
            .tcp_nodelay(true)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { inner: ReqwestTransport::new(client), traffic })
    }
}

impl From<Transport> for HttpTransporter {
    fn from(transport: Transport) -> Self {
        Self::new(transport)
    }
}

impl HttpTransport for Transport {
    async fn fetch(&self, request: Request<Buffer>) -> opendal::Result<Response<HttpBody>> {
        self.traffic.request(kind(&request));
        self.traffic.sent(request.body().len() as u64);
        let _ = REPLY.try_with(|reply| reply.set(Reply { asked: true, ..Reply::default() }));
        let response = self.inner.fetch(request).await?;
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let seconds = header(http::header::RETRY_AFTER).and_then(|text| text.parse().ok());
        let retry_after = seconds.map(|seconds| Duration::from_secs(seconds).min(LONGEST_WAIT));
        let status = Some(response.status().as_u16());
        let _ = REPLY.try_with(|reply| reply.set(Reply { asked: true, status, retry_after }));
        let length = header(http::header::CONTENT_LENGTH).and_then(|text| text.parse().ok());
        self.traffic.received(length.unwrap_or(0));
        Ok(response)
    }
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
