//! Bundles: downloads of a commit in one file, whole or without what the client has,
//! and uploads in one request.

use std::{io, ops::Range, sync::Arc};

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use snap_core::{
    base::{
        id::{CommitId, ObjectId},
        limits,
    },
    ops::bundle::unpack,
};
use snap_remote::wire::{
    headers::BUNDLE_TYPE,
    types::{Have, Unpacked},
};
use tokio::sync::oneshot;

use super::{
    Server,
    conditional::{etag, not_modified, requested_range, set_commit_headers},
    disposition::{DispositionKind, disposition},
    path::Path,
    range::RequestedRange,
    target::CommitPath,
};
use crate::{
    body::{ClientWaiting, MemoryReservation, read_whole},
    problem::{Code, HttpProblem},
    repository::{ClientObjects, CopyPack},
};

/// Size of an id in JSON with its quotes, a comma and some white space, in bytes.
const ID_BYTES: u64 = 80;

/// Memory of a growing hash set, as a multiple of the size of its elements.
const SET: usize = 2;

/// A bundle whose layout is known, and a thread that waits to write it.
struct PreparedBundle {
    commit: CommitId,
    is_id: bool,
    bytes: u64,
    tag: HeaderValue,
    body: Body,
    /// Starts writing this range. If the sender is dropped, nothing is written.
    begin: oneshot::Sender<Range<u64>>,
}

/// Starts a thread that lays out a bundle and then waits for the range to write.
/// `memory` accounts for `have` until the thread ends.
async fn lay_out(
    server: Server,
    target: CommitPath,
    have: ClientObjects,
    memory: MemoryReservation,
) -> Result<PreparedBundle, HttpProblem> {
    let (to, layout) = oneshot::channel();
    let (begin, wanted) = oneshot::channel::<Range<u64>>();
    let CommitPath { repo, rev, .. } = target;
    // The layout is cancelled when the client disconnects.
    let waiting = ClientWaiting::default();
    let watch = waiting.watch();
    let shared = server.clone();
    let body = shared.send(move |out| {
        let laid = server.run(&repo, |repository| {
            let revision = repository.revision(&rev)?;
            Ok((Arc::clone(repository), revision))
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
                        &|path, range, out| repository.copy_bundle_pack(path, range, out);
                    layout.write(&range, copy, out)
                }
                Err(_) => Ok(()),
            }
        });
        match (done, to) {
            (Ok(written), _) => written,
            (Err(problem), Some(to)) => {
                let problem = server.for_client(&repository, problem);
                let _ = to.send(Err(problem));
                Ok(())
            }
            (Err(problem), None) => Err(io::Error::other(problem)),
        }
    });
    let body = body.await?;
    let laid = layout.await.map_err(|_| HttpProblem::new(Code::Unavailable, ""))?;
    let (commit, is_id, bytes, tag) = laid?;
    Ok(PreparedBundle { commit, is_id, bytes, tag, body, begin })
}

impl PreparedBundle {
    /// Builds the response with the requested range.
    fn answer(self, wanted: &RequestedRange, is_head: bool) -> Result<Response, HttpProblem> {
        let mut response = Response::new(Body::empty());
        let headers = response.headers_mut();
        set_commit_headers(headers, self.commit, self.is_id, &self.tag);
        let name = format!("{:.12}.snap", self.commit);
        let name = disposition(DispositionKind::Attachment, name.as_bytes());
        headers.insert(header::CONTENT_DISPOSITION, name);
        let kind = HeaderValue::from_static(BUNDLE_TYPE);
        headers.insert(header::CONTENT_TYPE, kind);
        wanted.set_headers(&mut response, self.bytes)?;
        if !is_head {
            // This fails only if the thread has ended because the client is gone.
            let _ = self.begin.send(wanted.range(self.bytes));
            *response.body_mut() = self.body;
        }
        Ok(response)
    }
}

/// `GET` and `HEAD …/commits/{commit}/bundle`, with `Range`. When packs are merged, the ETag
/// changes, so a request with `If-Range` gets the whole new bundle.
pub(super) async fn read(
    State(server): State<Server>,
    target: CommitPath,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, HttpProblem> {
    let memory = MemoryReservation::new(server.bodies());
    let mut ready = lay_out(server, target, ClientObjects::default(), memory).await?;
    // Even for a full commit id the bytes may change when packs are merged, so the response must
    // not be `immutable`.
    ready.is_id = false;
    match requested_range(&method, &headers, &ready.tag, ready.bytes)? {
        None => Ok(not_modified(ready.commit, false, &ready.tag)),
        Some(wanted) => ready.answer(&wanted, method == Method::HEAD),
    }
}

/// `POST …/commits/{commit}/bundle`: a bundle without the objects that the client has.
pub(super) async fn without(
    State(server): State<Server>,
    target: CommitPath,
    body: Body,
) -> Result<Response, HttpProblem> {
    let most = server.settings().limits.missing_ids;
    let body = read_whole(body, server.accept(most as u64 * ID_BYTES + 1024)).await?;
    let invalid = |why: String| HttpProblem::new(Code::Invalid, why);
    let Have { have: commits, have_objects: objects } =
        serde_json::from_slice(&body).map_err(|error| invalid(error.to_string()))?;
    let mut memory = body.into_memory();
    memory.shrink((commits.len() + objects.len()) * size_of::<ObjectId>() * SET);
    for (count, most) in [(commits.len(), limits::PREREQUISITES), (objects.len(), most)] {
        if count > most {
            let why = format!("a request may list at most {most} ids");
            return Err(HttpProblem::new(Code::TooLarge, why));
        }
    }
    let objects = objects.into_iter().collect();
    let ready = lay_out(server, target, ClientObjects { commits, objects }, memory).await?;
    let mut response = ready.answer(&RequestedRange::All, false)?;
    // The response depends on the body of the request, so no cache may keep it, and
    // ranges of it cannot be requested.
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.remove(header::ACCEPT_RANGES);
    Ok(response)
}

/// `POST /v1/repos/{repo}/bundles`: unpacks the bundle if it is complete. Moves no ref.
pub(super) async fn take(
    State(server): State<Server>,
    Path(repo): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, HttpProblem> {
    let limits = &server.settings().limits;
    let (most, content_bytes) = (limits.bundle_bytes, limits.content_bytes);
    let taken = server.take(repo, &headers, body, most, move |repository, pieces| {
        repository.take_bundle(pieces, content_bytes)
    });
    taken.await.map(|taken| unpacked_response(&taken))
}

/// Builds the response for a bundle that was unpacked.
fn unpacked_response(taken: &unpack::UnpackOutcome) -> Response {
    let status = if taken.added.objects > 0 { StatusCode::CREATED } else { StatusCode::OK };
    let json = Unpacked {
        commit: taken.commit,
        prerequisites: taken.prerequisites.clone(),
        objects: taken.objects,
        bytes: taken.raw_bytes,
        new_commits: taken.commits,
        new_objects: taken.added.objects,
    };
    (status, Json(json)).into_response()
}
