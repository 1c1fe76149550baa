//! A WebDAV server over a folder of its own.

use std::{convert::Infallible, path::Path};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use dav_server::{DavHandler, body::Body, localfs::LocalFs, memls::MemLs};
use http::{Request, Response, StatusCode, header};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tempfile::TempDir;

use crate::serve::Serving;

/// How a server is set up.
#[derive(Clone, Debug, Default)]
pub struct DavOptions {
    /// Name and password that are asked for (basic authentication).
    pub user: Option<(String, String)>,
}

/// A WebDAV server on a port of its own, stopped when it is dropped, and its
/// folder removed.
#[derive(Debug)]
pub struct DavServer {
    serving: Serving,
    folder: TempDir,
}

impl DavServer {
    /// Starts a server over an empty folder.
    ///
    /// # Panics
    /// When there is no port, thread or folder to be had.
    pub fn start(options: DavOptions) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let handler = DavHandler::builder()
            .filesystem(LocalFs::new(folder.path(), false, false, false))
            .locksystem(MemLs::new())
            .build_handler();
        let wanted = options.user.map(|(name, password)| {
            format!("Basic {}", BASE64_STANDARD.encode(format!("{name}:{password}")))
        });
        let serving = Serving::start(move |stream| {
            let (handler, wanted) = (handler.clone(), wanted.clone());
            async move {
                let answer = service_fn(move |request| {
                    let (handler, wanted) = (handler.clone(), wanted.clone());
                    async move {
                        Ok::<_, Infallible>(answer(&handler, wanted.as_deref(), request).await)
                    }
                });
                // An error here is a client that went away.
                let _gone =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
            }
        });
        Self { serving, folder }
    }

    /// `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        self.serving.endpoint()
    }

    /// The folder that is served.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

async fn answer(
    handler: &DavHandler,
    wanted: Option<&str>,
    request: Request<Incoming>,
) -> Response<Body> {
    let given = request.headers().get(header::AUTHORIZATION);
    if wanted.is_none_or(|wanted| given.is_some_and(|given| given == wanted)) {
        return handler.handle(request).await;
    }
    let mut refused = Response::new(Body::from("who are you?"));
    *refused.status_mut() = StatusCode::UNAUTHORIZED;
    let challenge = header::HeaderValue::from_static("Basic realm=\"snap\"");
    refused.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    refused
}
