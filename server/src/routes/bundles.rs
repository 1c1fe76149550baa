//! Bundles: a commit in one file, whole or without what somebody has; and one
//! that is taken in.

use std::{io, ops::Range};

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::{Deserialize, Serialize};
use snap_core::{
    base::{
        id::{CommitId, ObjectId},
        limits,
    },
    ops::bundle::unpack,
};
use tokio::sync::oneshot;

use super::{
    Server,
    conditional::{about, etag, not_modified, wanted},
    disposition::{Manner, disposition},
    ids::Ids,
    path::Path,
    range::Wanted,
    target::Target,
};
use crate::{
    body::{Memory, Waiting, whole},
    problem::{Code, Problem},
    repository::{CopyPack, Have},
};

/// Length of an id in JSON, with its quotes and a comma.
const ID_BYTES: u64 = 80;

/// A set of them takes about so much more memory than they do, while it grows.
const SET: usize = 2;

/// A bundle that is laid out, and the thread that waits to write it.
struct Ready {
    commit: CommitId,
    is_id: bool,
    bytes: u64,
    tag: HeaderValue,
    body: Body,
    /// Takes the bytes that are wanted; dropped, nothing is written.
    begin: oneshot::Sender<Range<u64>>,
}

/// Has a thread lay out a bundle, which goes on to write what is wanted of it.
/// What is said of what somebody has is in `memory`, until that is done.
async fn lay_out(
    server: Server,
    target: Target,
    have: Have,
    memory: Memory,
) -> Result<Ready, Problem> {
    let (to, told) = oneshot::channel();
    let (begin, wanted) = oneshot::channel::<Range<u64>>();
    let Target { repo, rev, .. } = target;
    // Who does not wait for it any more has no use for it.
    let waiting = Waiting::default();
    let watch = waiting.watch();
    let shared = server.clone();
    let body = shared.send(move |out| {
        let laid = server.hub().get(&repo).and_then(|repository| {
            let revision = repository.revision(&rev)?;
            Ok((repository, revision))
        });
        let (repository, revision) = match laid {
            Ok(laid) => laid,
            Err(problem) => {
                let _ = to.send(Err(problem));
                return Ok(());
            }
        };
        let (mut to, _held) = (Some(to), memory);
        let done = repository.with_bundle(revision.id, &have, &*watch, |layout| {
            let tag =
                etag(layout.tag()).map(|tag| (revision.id, revision.is_id, layout.bytes(), tag));
            if let Some(to) = to.take() {
                let _ = to.send(tag);
            }
            match wanted.blocking_recv() {
                Ok(range) => {
                    let copy: &CopyPack<'_> =
                        &|path, range, out| repository.copy_laid(path, range, out);
                    layout.write(&range, copy, out)
                }
                Err(_) => Ok(()),
            }
        });
        match (done, to) {
            (Ok(written), _) => written,
            (Err(problem), Some(to)) => {
                let _ = to.send(Err(problem));
                Ok(())
            }
            (Err(problem), None) => Err(io::Error::other(problem)),
        }
    });
    let body = body.await?;
    let laid = told.await.map_err(|_| Problem::new(Code::Unavailable, ""))?;
    let (commit, is_id, bytes, tag) = laid?;
    Ok(Ready { commit, is_id, bytes, tag, body, begin })
}

impl Ready {
    /// Answers with what is wanted of it.
    fn answer(self, wanted: &Wanted, is_head: bool) -> Result<Response, Problem> {
        let mut response = Response::new(Body::empty());
        let headers = response.headers_mut();
        about(headers, self.commit, self.is_id, &self.tag);
        let name = format!("{:.12}.snap", self.commit);
        let name = disposition(Manner::Attachment, name.as_bytes());
        headers.insert(header::CONTENT_DISPOSITION, name);
        let kind = HeaderValue::from_static("application/vnd.snap.bundle");
        headers.insert(header::CONTENT_TYPE, kind);
        wanted.tell(&mut response, self.bytes)?;
        if !is_head {
            // Nobody waits any more if this fails.
            let _ = self.begin.send(wanted.range(self.bytes));
            *response.body_mut() = self.body;
        }
        Ok(response)
    }
}

/// `GET` and `HEAD …/commits/{commit}/bundle`, with `Range`. Packs may be merged
/// meanwhile; then the ETag is another one and `If-Range` has all of it sent.
pub(super) async fn read(
    State(server): State<Server>,
    target: Target,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let mut ready = lay_out(server, target, Have::default(), Memory::default()).await?;
    // What is kept is that of an id for good, but not the bytes of a bundle.
    ready.is_id = false;
    match wanted((&method, &headers), (&ready.tag, ready.bytes))? {
        None => Ok(not_modified(ready.commit, false, &ready.tag)),
        Some(wanted) => ready.answer(&wanted, method == Method::HEAD),
    }
}

/// What somebody has.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HaveJson {
    have: Ids<CommitId>,
    have_objects: Ids<ObjectId>,
}

/// `POST …/commits/{commit}/bundle`: without what the client has.
pub(super) async fn without(
    State(server): State<Server>,
    target: Target,
    body: Body,
) -> Result<Response, Problem> {
    let most = server.settings().limits.missing_ids;
    let body = whole(body, server.accept(most as u64 * ID_BYTES + 1024)).await?;
    let invalid = |why: String| Problem::new(Code::Invalid, why);
    let sent: HaveJson =
        serde_json::from_slice(&body).map_err(|error| invalid(error.to_string()))?;
    let mut memory = body.into_memory();
    let (commits, objects) = (sent.have.0, sent.have_objects.0);
    memory.shrink((commits.len() + objects.len()) * size_of::<ObjectId>() * SET);
    if commits.len() > limits::PREREQUISITES || objects.len() > most {
        return Err(Problem::new(Code::TooLarge, format!("at most {most} ids")));
    }
    let objects = objects.into_iter().collect();
    let ready = lay_out(server, target, Have { commits, objects }, memory).await?;
    let mut response = ready.answer(&Wanted::All, false)?;
    // It is the answer to what was in the body.
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.remove(header::ACCEPT_RANGES);
    Ok(response)
}

#[derive(Debug, Serialize)]
struct TakenJson {
    commit: String,
    prerequisites: Vec<String>,
    objects: u64,
    bytes: u64,
    new_commits: u64,
    new_objects: u64,
}

/// `POST /v1/repos/{repo}/bundles`: taken in if it is complete; no ref moves.
pub(super) async fn take(
    State(server): State<Server>,
    Path(repo): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let limits = &server.settings().limits;
    let (most, content_bytes) = (limits.bundle_bytes, limits.content_bytes);
    let taken = server.take(repo, (&headers, body), most, move |repository, pieces| {
        repository.take_bundle(pieces, content_bytes)
    });
    taken.await.map(|taken| told(&taken).into_response())
}

/// What became of a bundle.
pub(super) fn told(taken: &unpack::Outcome) -> impl IntoResponse + use<> {
    let status = if taken.added.objects > 0 { StatusCode::CREATED } else { StatusCode::OK };
    let json = TakenJson {
        commit: taken.commit.to_string(),
        prerequisites: taken.prerequisites.iter().map(ToString::to_string).collect(),
        objects: taken.objects,
        bytes: taken.raw_bytes,
        new_commits: taken.commits,
        new_objects: taken.added.objects,
    };
    (status, Json(json))
}
