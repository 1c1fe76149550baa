//! Packs, and the index of the packs: uploads and downloads.

use std::{io::Write, sync::Arc};

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use snap_core::base::{id::PackId, limits};
use snap_remote::wire::{
    headers::{OUTLINES_TYPE, PACK_TYPE},
    types::{Index, Packs},
};

use super::{
    Server,
    conditional::{FOREVER, etag, requested_range},
    path::Path,
};
use crate::{
    problem::{Code, HttpProblem},
    repository::Received,
};

fn pack_id(text: &str) -> Result<PackId, HttpProblem> {
    text.parse().map_err(|_| HttpProblem::new(Code::Invalid, "not a pack id"))
}

/// `GET /v1/repos/{repo}/packs`: lists published and staged packs.
pub(super) async fn list(
    State(server): State<Server>,
    Path(repo): Path<String>,
) -> Result<Json<Packs>, HttpProblem> {
    let packs = server.with(repo, |repository| repository.packs().list()).await?;
    Ok(Json(Packs { packs }))
}

/// `GET` and `HEAD /v1/repos/{repo}/packs/{id}`: the pack, or the requested `Range` of it.
pub(super) async fn read(
    State(server): State<Server>,
    Path((repo, id)): Path<(String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, HttpProblem> {
    let id = pack_id(&id)?;
    let found = server.with(repo, move |repository| {
        let (source, length) = repository.packs().open(&id)?;
        Ok((Arc::clone(repository), source, length))
    });
    let (repository, source, length) = found.await?;
    let tag = etag(id)?;
    let wanted = requested_range(&method, &headers, &tag, length)?;
    let mut response = Response::new(Body::empty());
    match wanted {
        None => *response.status_mut() = StatusCode::NOT_MODIFIED,
        Some(wanted) => {
            let kind = HeaderValue::from_static(PACK_TYPE);
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            wanted.set_headers(&mut response, length)?;
            if method != Method::HEAD {
                let range = wanted.range(length);
                let copy =
                    move |out: &mut dyn Write| repository.packs().copy(&id, &source, range, out);
                *response.body_mut() = server.send(copy).await?;
            }
        }
    }
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(FOREVER));
    headers.insert(header::ETAG, tag);
    Ok(response)
}

/// `PUT /v1/repos/{repo}/packs/{id}`: stages a pack, and checks it as it arrives. A later upload of
/// an index file that lists the pack publishes it.
pub(super) async fn write(
    State(server): State<Server>,
    Path((repo, id)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, HttpProblem> {
    let id = pack_id(&id)?;
    let most = server.settings().limits.upload_bytes;
    let taken = server.take(repo, &headers, body, most, move |repository, pieces| {
        repository.packs().receive(id, pieces)
    });
    taken.await.map(status)
}

/// `GET /v1/repos/{repo}/index`.
pub(super) async fn index(
    State(server): State<Server>,
    Path(repo): Path<String>,
) -> Result<Json<Index>, HttpProblem> {
    let (files, collected) = server
        .with(repo, |repository| Ok((repository.packs().index()?, repository.was_collected()?)))
        .await?;
    Ok(Json(Index { files, collected }))
}

/// `GET /v1/repos/{repo}/index/{name}`.
pub(super) async fn index_file(
    State(server): State<Server>,
    Path((repo, name)): Path<(String, String)>,
) -> Result<Response, HttpProblem> {
    let bytes = server.with(repo, move |repository| repository.packs().index_file(&name)).await?;
    let headers = [(header::CONTENT_TYPE, OUTLINES_TYPE), (header::CACHE_CONTROL, FOREVER)];
    Ok((headers, bytes).into_response())
}

/// `PUT /v1/repos/{repo}/index/{name}`: publishes the packs that the file lists, if they and
/// everything that they refer to are complete.
pub(super) async fn publish(
    State(server): State<Server>,
    Path((repo, name)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, HttpProblem> {
    let plain = name.split('.').next().unwrap_or_default();
    pack_id(plain).map_err(|_| HttpProblem::new(Code::Invalid, "not the name of an index file"))?;
    let most = limits::REMOTE_INDEX_BYTES;
    let taken = server.take(repo, &headers, body, most, move |repository, pieces| {
        let client = pieces.observer();
        repository.packs().publish(&name, &pieces.gather()?, &client)
    });
    taken.await.map(status)
}

pub(super) fn status(sent: Received) -> StatusCode {
    match sent {
        Received::Added => StatusCode::CREATED,
        Received::AlreadyPresent => StatusCode::OK,
    }
}
