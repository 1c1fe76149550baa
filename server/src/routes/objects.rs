//! Objects by id, and which of many are missing.

use std::io::{self, Write};

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::Deserialize;
use snap_core::{
    base::{id::ObjectId, observe::Observer},
    format::pack::ObjectKind,
};

use super::{
    Server,
    conditional::{etag, wanted},
    ids::Ids,
    packs::status,
    path::Path,
};
use crate::{
    body::{self, Memory, receive, whole},
    problem::{Code, Problem},
    repository::{OBJECT_BYTES, Repository},
};

/// Bytes of an id.
const ID_BYTES: usize = 32;

/// Length of an id in JSON: 64 digits, its quotes, a comma, and some space.
const JSON_ID_BYTES: u64 = 80;

/// Of so many the answer is made at once.
const FEW_IDS: usize = 512;

/// Content type of ids one after the other, 32 bytes each.
const IDS: &str = "application/vnd.snap.ids";

/// Says what an object is.
const KIND: &str = "snap-kind";

fn object_id(text: &str) -> Result<ObjectId, Problem> {
    text.parse().map_err(|_| Problem::new(Code::Invalid, "this is no id of an object"))
}

/// `GET` and `HEAD /v1/repos/{repo}/objects/{id}`: its bytes, checked, or the
/// `Range` of them.
pub(super) async fn read(
    State(server): State<Server>,
    Path((repo, id)): Path<(String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = object_id(&id)?;
    let read = server.with(repo, move |repository| {
        let store = repository.repo().store();
        let Some(place) = repository.locate(&id)? else {
            return Err(Problem::not_found(format_args!("object {id}")));
        };
        Ok((Bytes::from(store.object(&id, place.kind)?), place.kind))
    });
    let (bytes, kind) = read.await?;
    // A content may be cut in more than one way: its list is not what its id names.
    let tag = match kind {
        ObjectKind::ChunkList => etag(blake3::hash(&bytes).to_hex())?,
        _ => etag(id)?,
    };
    let length = bytes.len() as u64;
    let mut response = match wanted((&method, &headers), (&tag, length))? {
        None => StatusCode::NOT_MODIFIED.into_response(),
        Some(wanted) => {
            let range = wanted.range(length);
            let part = bytes.slice(range.start as usize..range.end as usize);
            let mut response = body::keep(part, Memory::default()).await?.into_response();
            let kind = HeaderValue::from_static("application/octet-stream");
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            wanted.tell(&mut response, length)?;
            response
        }
    };
    let headers = response.headers_mut();
    headers.insert(KIND, HeaderValue::from_static(kind.noun()));
    headers.insert(header::ETAG, tag);
    Ok(response)
}

/// `PUT /v1/repos/{repo}/objects/{id}`, with `snap-kind`: it is there once all is
/// that it refers to.
pub(super) async fn write(
    State(server): State<Server>,
    Path((repo, id)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Problem> {
    let id = object_id(&id)?;
    let kind = headers.get(KIND).and_then(|kind| kind.to_str().ok());
    let kinds = [ObjectKind::Blob, ObjectKind::Tree, ObjectKind::Commit];
    let kind = kinds.into_iter().find(|known| Some(known.noun()) == kind);
    let kind =
        kind.ok_or_else(|| Problem::new(Code::Invalid, "snap-kind is blob, tree or commit"))?;
    let taken = server.take(repo, (&headers, body), OBJECT_BYTES, move |repository, pieces| {
        repository.take_object(&id, kind, &pieces.gather()?)
    });
    taken.await.map(status)
}

/// Whether an object is missing; what others brought is looked for once.
fn is_missing(
    repository: &Repository,
    id: &ObjectId,
    has_looked: &mut bool,
) -> Result<bool, Problem> {
    let is_missing = || Ok(repository.repo().store().locate_unshadowed(id)?.is_none());
    if is_missing()? && !std::mem::replace(has_looked, true) {
        repository.look_shared()?;
    }
    is_missing()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuestionJson {
    ids: Ids<ObjectId>,
}

/// `POST /v1/repos/{repo}/missing`: ids, 32 bytes each, or JSON; the answer has
/// the same form, in the same order.
pub(super) async fn missing(
    State(server): State<Server>,
    Path(repo): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let is_json = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    match is_json {
        true => missing_of_json(server, repo, body).await,
        false => missing_of_bytes(server, repo, body).await,
    }
}

/// Only the ids stay in memory, and of these those that are missing: neither the
/// question nor the answer as a whole is there while it is looked for them.
async fn missing_of_json(server: Server, repo: String, body: Body) -> Result<Response, Problem> {
    let most = server.settings().limits.missing_ids;
    let body = whole(body, server.accept(most as u64 * JSON_ID_BYTES + 1024)).await?;
    let missing = server.with(repo, move |repository| {
        let question: QuestionJson = serde_json::from_slice(&body)
            .map_err(|error| Problem::new(Code::Invalid, error.to_string()))?;
        let (mut ids, mut memory) = (question.ids.0, body.into_memory());
        memory.shrink(ids.len() * ID_BYTES);
        if ids.len() > most {
            return Err(too_many(most));
        }
        let (mut kept, mut has_looked) = (0, false);
        for at in 0..ids.len() {
            if is_missing(repository, &ids[at], &mut has_looked)? {
                ids.swap(kept, at);
                kept += 1;
            }
        }
        ids.truncate(kept);
        Ok((ids, memory))
    });
    let (ids, memory) = missing.await?;
    let body = if ids.len() <= FEW_IDS {
        let mut text = Vec::with_capacity(ids.len() * 67 + 16);
        write_json(&ids, &mut text).map_err(|_| Problem::new(Code::Unavailable, ""))?;
        text.into()
    } else {
        let write = move |out: &mut dyn Write| {
            let _held = memory;
            write_json(&ids, out)
        };
        server.send(write).await?
    };
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

fn write_json(ids: &[ObjectId], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"{\"missing\":[")?;
    for (number, id) in ids.iter().enumerate() {
        let comma = if number == 0 { "" } else { "," };
        write!(out, "{comma}\"{id}\"")?;
    }
    out.write_all(b"]}")
}

async fn missing_of_bytes(server: Server, repo: String, body: Body) -> Result<Response, Problem> {
    let accept = server.accept((server.settings().limits.missing_ids * ID_BYTES) as u64);
    let answer = receive(body, accept, move |pieces| {
        let repository = server.hub().get(&repo)?;
        let (watch, mut memory) = (pieces.observer(), Memory::default());
        let (mut rest, mut missing, mut has_looked) = (Vec::new(), Vec::new(), false);
        for piece in pieces {
            rest.extend_from_slice(&piece?);
            let (ids, left) = rest.as_chunks::<ID_BYTES>();
            for id in ids {
                if is_missing(&repository, &ObjectId::from_bytes(*id), &mut has_looked)? {
                    missing.extend_from_slice(id);
                }
            }
            memory.grow_in_thread(missing.len())?;
            rest = left.to_vec();
            if watch.cancelled() {
                break;
            }
        }
        match rest.is_empty() {
            true => Ok((missing, memory)),
            false => Err(Problem::new(Code::Invalid, "the last id is not whole")),
        }
    });
    let (missing, memory) = answer.await?;
    let body = body::keep(missing.into(), memory).await?;
    Ok(([(header::CONTENT_TYPE, IDS)], body).into_response())
}

fn too_many(most: usize) -> Problem {
    Problem::new(Code::TooLarge, format!("at most {most} ids"))
}
