//! Objects by id, and which of many are missing.

use std::io::Write;

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use snap_core::{base::id::ObjectId, format::pack::ObjectKind};

use super::{
    Server,
    conditional::{etag, is_known, range_holds},
    ids::Ids,
    packs::status,
    path::Path,
    range::Wanted,
};
use crate::{
    body::{receive, whole},
    problem::{Code, Problem},
    repository::{OBJECT_BYTES, Repository},
};

/// Bytes of an id.
const ID_BYTES: usize = 32;

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
    let is_known = is_known(&headers, &tag);
    let wanted = match !is_known && range_holds(&headers, &tag) {
        true => Wanted::of(&headers, length)?,
        false => Wanted::All,
    };
    let range = wanted.range(length);
    let part = bytes.slice(range.start as usize..range.end as usize);
    let mut response = if is_known { ().into_response() } else { part.into_response() };
    match is_known {
        true => *response.status_mut() = StatusCode::NOT_MODIFIED,
        false => wanted.tell(&mut response, length)?,
    }
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
    let is_missing = || Ok(repository.repo().store().locate(id)?.is_none());
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

#[derive(Serialize)]
struct AnswerJson {
    missing: Vec<String>,
}

/// `POST /v1/repos/{repo}/missing`: ids, 32 bytes each, or JSON; the answer has
/// the same form, in the same order.
pub(super) async fn missing(
    State(server): State<Server>,
    Path(repo): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let most = server.settings().limits.missing_ids;
    let too_many = || Problem::new(Code::TooLarge, format!("at most {most} ids"));
    let is_json = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if is_json {
        // An id is 64 digits, its quotes and a comma.
        let accept = server.accept(most as u64 * 80 + 1024);
        let body = whole(body, accept).await?;
        let question: QuestionJson = serde_json::from_slice(&body)
            .map_err(|error| Problem::new(Code::Invalid, error.to_string()))?;
        let ids = question.ids.0;
        if ids.len() > most {
            return Err(too_many());
        }
        let missing = server.with(repo, move |repository| {
            let (mut missing, mut has_looked) = (Vec::new(), false);
            for id in ids {
                if is_missing(repository, &id, &mut has_looked)? {
                    missing.push(id.to_string());
                }
            }
            Ok(missing)
        });
        return Ok(Json(AnswerJson { missing: missing.await? }).into_response());
    }
    let accept = server.accept((most * ID_BYTES) as u64);
    let shared = server.clone();
    let answer = receive(body, accept, move |pieces| {
        let repository = shared.hub().get(&repo)?;
        let (mut rest, mut missing, mut has_looked) = (Vec::new(), Vec::new(), false);
        for piece in pieces {
            rest.extend_from_slice(&piece?);
            let (ids, left) = rest.as_chunks::<ID_BYTES>();
            for id in ids {
                if is_missing(&repository, &ObjectId::from_bytes(*id), &mut has_looked)? {
                    missing.write_all(id).expect("memory takes everything");
                }
            }
            rest = left.to_vec();
        }
        match rest.is_empty() {
            true => Ok(missing),
            false => Err(Problem::new(Code::Invalid, "the last id is not whole")),
        }
    });
    Ok(([(header::CONTENT_TYPE, IDS)], answer.await?).into_response())
}
