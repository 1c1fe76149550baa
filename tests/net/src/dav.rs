//! A WebDAV server over its own folder.

use std::{
    convert::Infallible,
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use dav_server::{DavHandler, body::Body, localfs::LocalFs, memls::MemLs};
use http::{Request, Response, StatusCode, header};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tempfile::TempDir;

use crate::serve::Serving;

/// Options of a server.
#[derive(Clone, Debug, Default)]
pub struct DavOptions {
    /// The name and password that clients must send (basic authentication).
    pub user: Option<(String, String)>,
    /// The parent of the served folder. The default is the folder for temporary files.
    pub inside: Option<PathBuf>,
}

/// A WebDAV server on its own port, stopped on drop, which also removes its folder.
#[derive(Debug)]
pub struct DavServer {
    serving: Serving,
    folder: TempDir,
}

impl DavServer {
    /// Starts a server over an empty folder.
    ///
    /// # Panics
    /// If a port, a thread or a folder is not available.
    pub fn start(options: DavOptions) -> Self {
        let folder = match &options.inside {
            Some(inside) => tempfile::tempdir_in(inside),
            None => tempfile::tempdir(),
        };
        let folder = folder.expect("a folder can be made");
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
                // An error here means that the client has gone.
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

    /// Returns the served folder.
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
    let mut refused = Response::new(Body::from("authentication required"));
    *refused.status_mut() = StatusCode::UNAUTHORIZED;
    let challenge = header::HeaderValue::from_static("Basic realm=\"snap\"");
    refused.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    refused
}
