//! How the server does: for those who watch it.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{extract::State, response::IntoResponse};
use http::header;
use snap_core::disk::{Disk, scratch::unique_name};

use super::Server;
use crate::{
    body::blocking,
    problem::{Code, Problem},
};

/// How long an answer to whether it is ready holds.
const READY_FOR: Duration = Duration::from_secs(1);

/// `GET /health`: it answers.
pub(super) async fn health() -> &'static str {
    "ok\n"
}

/// Whether it was ready when that was last looked at.
#[derive(Debug, Default)]
pub(super) struct Ready {
    last: Mutex<Option<(Instant, bool)>>,
}

impl Ready {
    /// Whether what is served can be read and written. Blocks.
    fn look(&self, server: &Server) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, is_ready)) = *last
            && at.elapsed() < READY_FOR
        {
            return is_ready;
        }
        let is_ready = server.hub().home().is_none_or(|home| {
            // Gone again when it is dropped.
            let file = Disk::scratch().create(&home.join(format!(".{}", unique_name("ready"))));
            fs_err::read_dir(home).is_ok() && file.is_ok_and(|mut file| file.write(b"?").is_ok())
        });
        *last = Some((Instant::now(), is_ready));
        is_ready
    }
}

/// `GET /ready`: what is served can be read and written.
pub(super) async fn ready(State(server): State<Server>) -> Result<&'static str, Problem> {
    match blocking(move || Ok(server.ready().look(&server))).await? {
        true => Ok("ready\n"),
        false => Err(Problem::new(Code::Unavailable, "what is served cannot be written")),
    }
}

/// `GET /metrics`: for Prometheus.
pub(super) async fn metrics(State(server): State<Server>) -> Result<impl IntoResponse, Problem> {
    let text = blocking(move || {
        let text = server.metrics().text(server.hub());
        text.map_err(|_| Problem::new(Code::Unavailable, ""))
    });
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text.await?))
}
