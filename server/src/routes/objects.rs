//! Objects by id, and queries about which of many objects are missing.

use std::io::Write;

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use snap_core::{
    base::{id::ObjectId, observe::Observer},
    format::pack::ObjectKind,
};
use snap_remote::wire::{
    headers::{IDS_TYPE, SNAP_KIND},
    types::{Ids, Missing},
};

use super::{
    Server,
    conditional::{etag, requested_range},
    packs::status,
    path::Path,
};
use crate::{
    body::{self, MemoryReservation, read_whole, receive},
    problem::{Code, HttpProblem},
    repository::{OBJECT_BYTES, Repository},
};

/// Length of a binary id, in bytes.
const ID_BYTES: usize = 32;

/// Size of an id in JSON: 64 digits, quotes, a comma and white space, in bytes.
const JSON_ID_BYTES: u64 = 80;

/// Maximum number of missing ids for which the JSON response is built whole instead of streamed.
const FEW_IDS: usize = 512;

/// The kinds of objects that clients may store one by one.
const KINDS: [ObjectKind; 5] = [
    ObjectKind::Blob,
    ObjectKind::ListPart,
    ObjectKind::ChunkList,
    ObjectKind::Tree,
    ObjectKind::Commit,
];

fn object_id(text: &str) -> Result<ObjectId, HttpProblem> {
    text.parse().map_err(|_| HttpProblem::new(Code::Invalid, "not an object id"))
}

/// `GET` and `HEAD /v1/repos/{repo}/objects/{id}`: the object's bytes, checked against its id, or
/// the requested `Range` of them.
pub(super) async fn read(
    State(server): State<Server>,
    Path((repo, id)): Path<(String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, HttpProblem> {
    let id = object_id(&id)?;
    let read = server.with(repo, move |repository| {
        let store = repository.repo().store();
        let Some(place) = repository.locate(&id)? else {
            return Err(HttpProblem::not_found(format_args!("object {id}")));
        };
        Ok((Bytes::from(store.object(&id, place.kind)?), place.kind))
    });
    let (bytes, kind) = read.await?;
    let tag = etag(id)?;
    let length = bytes.len() as u64;
    let mut response = match requested_range(&method, &headers, &tag, length)? {
        None => StatusCode::NOT_MODIFIED.into_response(),
        Some(wanted) => {
            let range = wanted.range(length);
            let part = bytes.slice(range.start as usize..range.end as usize);
            let mut response = body::whole_body(part, MemoryReservation::new(server.bodies()))
                .await?
                .into_response();
            let kind = HeaderValue::from_static("application/octet-stream");
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            wanted.set_headers(&mut response, length)?;
            response
        }
    };
    let headers = response.headers_mut();
    headers.insert(SNAP_KIND, HeaderValue::from_static(kind.noun()));
    headers.insert(header::ETAG, tag);
    Ok(response)
}

/// `PUT /v1/repos/{repo}/objects/{id}`, with `snap-kind`. Everything that the object
/// refers to must be stored already.
pub(super) async fn write(
    State(server): State<Server>,
    Path((repo, id)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, HttpProblem> {
    let id = object_id(&id)?;
    let kind = headers.get(SNAP_KIND).and_then(|kind| kind.to_str().ok());
    let kind = KINDS.into_iter().find(|known| Some(known.noun()) == kind).ok_or_else(|| {
        let nouns = KINDS.map(ObjectKind::noun).join(", ");
        HttpProblem::new(Code::Invalid, format!("snap-kind must be one of: {nouns}"))
    })?;
    let taken = server.take(repo, &headers, body, OBJECT_BYTES, move |repository, pieces| {
        repository.packs().take_object(&id, kind, &pieces.gather()?)
    });
    taken.await.map(status)
}

/// Returns true if an object is missing.
fn is_missing(repository: &Repository, id: &ObjectId) -> Result<bool, HttpProblem> {
    Ok(repository.repo().store().locate_unshadowed(id)?.is_none())
}

/// `POST /v1/repos/{repo}/missing`: takes binary ids or JSON, and returns the missing ids in the
/// same form and order.
pub(super) async fn missing(
    State(server): State<Server>,
    Path(repo): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, HttpProblem> {
    let is_json = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    match is_json {
        true => missing_of_json(server, repo, body).await,
        false => missing_of_bytes(server, repo, body).await,
    }
}

/// Holds only the parsed ids in memory, and then only the missing ids. The texts of the request and
/// of the response are not held during the search.
async fn missing_of_json(
    server: Server,
    repo: String,
    body: Body,
) -> Result<Response, HttpProblem> {
    let most = server.settings().limits.missing_ids;
    let body = read_whole(body, server.accept(most as u64 * JSON_ID_BYTES + 1024)).await?;
    let missing = server.with(repo, move |repository| {
        let Ids { mut ids } = serde_json::from_slice(&body)
            .map_err(|error| HttpProblem::new(Code::Invalid, error.to_string()))?;
        let mut memory = body.into_memory();
        memory.shrink(ids.len() * ID_BYTES);
        if ids.len() > most {
            return Err(too_many(most));
        }
        // Move the missing ids to the front, in place.
        repository.refresh_for_writer()?;
        let mut kept = 0;
        for at in 0..ids.len() {
            if is_missing(repository, &ids[at])? {
                ids.swap(kept, at);
                kept += 1;
            }
        }
        ids.truncate(kept);
        Ok((Missing { missing: ids }, memory))
    });
    let (answer, memory) = missing.await?;
    let body = if answer.missing.len() <= FEW_IDS {
        let text = serde_json::to_vec(&answer);
        text.map_err(|_| HttpProblem::new(Code::Unavailable, ""))?.into()
    } else {
        let write = move |out: &mut dyn Write| {
            let _held = memory;
            Ok(serde_json::to_writer(out, &answer)?)
        };
        server.send(write).await?
    };
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

async fn missing_of_bytes(
    server: Server,
    repo: String,
    body: Body,
) -> Result<Response, HttpProblem> {
    let accept = server.accept((server.settings().limits.missing_ids * ID_BYTES) as u64);
    let answer = receive(body, accept, move |pieces| {
        server.run(&repo, |repository| {
            let (watch, mut memory) = (pieces.observer(), pieces.memory());
            let (mut rest, mut missing) = (Vec::new(), Vec::new());
            repository.refresh_for_writer()?;
            for piece in pieces {
                rest.extend_from_slice(&piece?);
                let (ids, left) = rest.as_chunks::<ID_BYTES>();
                for id in ids {
                    if is_missing(repository, &ObjectId::from_bytes(*id))? {
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
                false => Err(HttpProblem::new(Code::Invalid, "the last id is incomplete")),
            }
        })
    });
    let (missing, memory) = answer.await?;
    let body = body::whole_body(missing.into(), memory).await?;
    Ok(([(header::CONTENT_TYPE, IDS_TYPE)], body).into_response())
}

fn too_many(most: usize) -> HttpProblem {
    HttpProblem::new(Code::TooLarge, format!("a request may list at most {most} ids"))
}
