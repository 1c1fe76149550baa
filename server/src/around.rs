//! What is around each request, one in the other: it is seen, refusals are shown
//! to people as pages, only those pass who may, and it is told when what lies
//! behind the server is away. All of that is one future for a request, so that a
//! short answer costs little more than itself.

use std::{
    convert::Infallible,
    panic::AssertUnwindSafe,
    pin::Pin,
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
    page::{guard::guard as page_guard, pages},
    problem::{Code, Problem},
    routes::{Server, info::tell_away, router},
};

/// Answers requests: the protocol and the pages, and all that is around them.
#[derive(Clone, Debug)]
pub struct Around {
    server: Server,
    router: Router,
}

impl Around {
    /// What answers for a server.
    pub fn new(server: Server) -> Self {
        let router = router(server.clone()).merge(pages(server.clone()));
        Self { server, router }
    }

    async fn answer(mut self, request: Request) -> Response {
        let server = &self.server;
        let router = &mut self.router;
        let routed = |request: Request| {
            caught(router.call(request).map(|response| response.unwrap_or_else(never)))
        };
        let told = |request| tell_away(server, request, routed);
        let allowed = |request| guard(server.access(), request, told);
        let shown = |request| caught(page_guard(server.access(), request, allowed));
        observe(server.observe(), request, shown).await
    }
}

fn never(never: Infallible) -> Response {
    match never {}
}

/// An answer in any case.
async fn caught(answer: impl Future<Output = Response>) -> Response {
    AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|_| panicked())
}

fn panicked() -> Response {
    tracing::error!("a request panicked");
    Problem::new(Code::Unavailable, "").into_response()
}

impl<B> Service<http::Request<B>> for Around
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
