//! The middleware around each request.
//!
//! From the outside in: logs and metrics, error pages for browsers, access control, and headers that
//! name the epoch of the store and report an outage of the upstream. One future per request runs them all, so a short
//! response costs little more than its own work.

use std::{
    convert::Infallible,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    Router,
    body::{Body, Bytes, HttpBody},
    extract::Request,
    response::{IntoResponse, Response},
};
use futures::FutureExt;
use tower_service::Service;

use crate::{
    access::guard::guard,
    observe::observe,
    page::{self, Pages, security_headers::guard as page_guard},
    problem::{Code, HttpProblem},
    route_table::RouteTable,
    routes::{self, Server, info::mark_state},
};

/// A service that answers requests: the protocol, the pages, and the middleware around
/// them.
#[derive(Clone, Debug)]
pub struct AppService {
    server: Server,
    router: Router,
    table: Arc<RouteTable>,
}

impl AppService {
    /// Creates the service of a server.
    pub fn new(server: Server) -> Self {
        let (protocol, mut declared) = routes::routes().with_state(server.clone());
        let (pages, of_pages) = page::routes().with_state(Pages::new(server.clone()));
        declared.extend(of_pages);
        let table = Arc::new(RouteTable::new(declared));
        Self { server, router: protocol.merge(pages), table }
    }

    async fn answer(mut self, mut request: Request) -> Response {
        let server = &self.server;
        // `hold_answer` reads it from the request, since that middleware has no state of its own.
        request.extensions_mut().insert(Arc::clone(server.bodies()));
        let router = &mut self.router;
        let route = self.table.find(request.method(), request.uri().path());
        let needs = &route.access;
        // From the innermost layer to the outermost.
        let routed = |request: Request| {
            caught(router.call(request).map(|response| response.unwrap_or_else(never)))
        };
        let marked = |request| mark_state(server, needs.repository(), request, routed);
        let allowed = |request| guard(server.access(), needs, request, marked);
        let guarded = |request| caught(page_guard(server.access(), request, allowed));
        observe(server.observe(), &route, request, guarded).await
    }
}

fn never(never: Infallible) -> Response {
    match never {}
}

/// Turns a panic into a response, so that the connection does not end without one.
async fn caught(answer: impl Future<Output = Response>) -> Response {
    AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|_| panicked())
}

fn panicked() -> Response {
    tracing::error!("a request panicked");
    HttpProblem::new(Code::Unavailable, "").into_response()
}

impl<B> Service<http::Request<B>> for AppService
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let answer = self.clone().answer(request.map(Body::new));
        Box::pin(answer.map(Ok))
    }
}
