//! Health, readiness and metrics, for monitoring.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use axum::{extract::State, response::IntoResponse};
use http::header;
use parking_lot::Mutex;
use snap_core::disk::{Disk, scratch::unique_name};

use super::Server;
use crate::{
    body::blocking,
    problem::{Code, HttpProblem},
};

/// How long the result of a readiness check is reused.
const READY_FOR: Duration = Duration::from_secs(1);

/// `GET /health`: the server answers.
pub(super) async fn health() -> &'static str {
    "ok\n"
}

/// The result of the last readiness check.
#[derive(Debug, Default)]
pub(super) struct ReadinessCheck {
    last: Mutex<Option<(Instant, Option<&'static str>)>>,
}

impl ReadinessCheck {
    /// Returns why the server cannot read or write what it serves, or `None` if it can.
    /// Blocks.
    fn look(&self, server: &Server) -> Option<&'static str> {
        let mut last = self.last.lock();
        if let Some((at, known)) = *last
            && server.clock().elapsed(at) < READY_FOR
        {
            return known;
        }
        let in_the_way = match server.hub().upstream() {
            Some(upstream)
                if upstream.cache().restore().is_err()
                    || !can_be_written(upstream.cache().root()) =>
            {
                Some("the cache cannot be written")
            }
            Some(upstream) => (!upstream.answers()).then_some("the upstream does not answer"),
            None if !server.hub().is_there() => {
                Some("the served folder was moved or is not mounted")
            }
            None => {
                let is_ready = server.hub().home().is_none_or(can_be_written);
                (!is_ready).then_some("the served folder cannot be written")
            }
        };
        *last = Some((server.clock().now(), in_the_way));
        in_the_way
    }
}

fn can_be_written(folder: &Path) -> bool {
    // Dropping the file removes it.
    let file = Disk::scratch().create(&folder.join(format!(".{}", unique_name("ready"))));
    fs_err::read_dir(folder).is_ok() && file.is_ok_and(|mut file| file.write(b"?").is_ok())
}

/// `GET /ready`: the server can read and write what it serves.
///
/// Damaged repositories do not make the server unready, since the others still work.
/// The response has their number but no names, because this request needs no token.
pub(super) async fn ready(State(server): State<Server>) -> Result<String, HttpProblem> {
    let damaged = server.metrics().damaged_count() as u64;
    match blocking(move || Ok(server.ready().look(&server))).await? {
        None if damaged == 0 => Ok("ready\n".to_owned()),
        None => {
            let is = if damaged == 1 { "repository is" } else { "repositories are" };
            Ok(format!("ready\n{damaged} {is} damaged\n"))
        }
        Some(why) => Err(HttpProblem::new(Code::Unavailable, why)),
    }
}

/// `GET /metrics`: metrics for Prometheus.
pub(super) async fn metrics(
    State(server): State<Server>,
) -> Result<impl IntoResponse, HttpProblem> {
    let text = blocking(move || {
        let text = server.metrics().text(server.hub());
        text.map_err(|_| HttpProblem::new(Code::Unavailable, ""))
    });
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], text.await?))
}
