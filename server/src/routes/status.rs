//! How the server does: for those who watch it.

use std::{
    path::Path,
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
    last: Mutex<Option<(Instant, Option<&'static str>)>>,
}

impl Ready {
    /// What is in the way of reading and writing what is served, if anything is.
    /// Blocks.
    fn look(&self, server: &Server) -> Option<&'static str> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, known)) = *last
            && at.elapsed() < READY_FOR
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
            None if !server.hub().is_there() => Some("what is served is not where it was"),
            None => {
                let is_ready = server.hub().home().is_none_or(can_be_written);
                (!is_ready).then_some("what is served cannot be written")
            }
        };
        *last = Some((Instant::now(), in_the_way));
        in_the_way
    }
}

fn can_be_written(folder: &Path) -> bool {
    // Gone again when it is dropped.
    let file = Disk::scratch().create(&folder.join(format!(".{}", unique_name("ready"))));
    fs_err::read_dir(folder).is_ok() && file.is_ok_and(|mut file| file.write(b"?").is_ok())
}

/// `GET /ready`: what is served can be read and written.
///
/// Damage in one repository keeps nobody from the others: it is told, without
/// names, since nobody needs a token for this.
pub(super) async fn ready(State(server): State<Server>) -> Result<String, Problem> {
    let damaged = server.metrics().damaged_count() as u64;
    match blocking(move || Ok(server.ready().look(&server))).await? {
        None if damaged == 0 => Ok("ready\n".to_owned()),
        None => {
            let is = if damaged == 1 { "repository is" } else { "repositories are" };
            Ok(format!("ready\n{damaged} {is} damaged\n"))
        }
        Some(why) => Err(Problem::new(Code::Unavailable, why)),
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
