//! Packs and the index: where bytes come in and go out.

use std::{io::Write, sync::Arc};

use axum::{
    Json,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::Serialize;
use snap_core::base::{id::PackId, limits};

use super::{
    Server,
    conditional::{FOREVER, etag, wanted},
    path::Path,
};
use crate::{
    problem::{Code, Problem},
    repository::{Asked, Listed, Sent},
};

#[derive(Serialize)]
pub(super) struct PacksJson {
    packs: Vec<ListedJson>,
}

#[derive(Serialize)]
pub(super) struct IndexJson {
    files: Vec<ListedJson>,
}

#[derive(Serialize)]
struct ListedJson {
    name: String,
    bytes: u64,
}

fn listed(all: Vec<Listed>) -> Vec<ListedJson> {
    all.into_iter().map(|(name, bytes)| ListedJson { name, bytes }).collect()
}

pub(super) fn pack_id(text: &str) -> Result<PackId, Problem> {
    text.parse().map_err(|_| Problem::new(Code::Invalid, "this is no name of a pack"))
}

/// `GET /v1/repos/{repo}/packs`: those that were sent and do not count yet, too.
pub(super) async fn list(
    State(server): State<Server>,
    Path(repo): Path<String>,
) -> Result<Json<PacksJson>, Problem> {
    let packs = server.with(repo, |repository| repository.packs()).await?;
    Ok(Json(PacksJson { packs: listed(packs) }))
}

/// `GET` and `HEAD /v1/repos/{repo}/packs/{id}`, or the `Range` of it.
pub(super) async fn read(
    State(server): State<Server>,
    Path((repo, id)): Path<(String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = pack_id(&id)?;
    let found = server.with(repo, move |repository| {
        let (source, length) = repository.pack(&id)?;
        Ok((Arc::clone(repository), source, length))
    });
    let (repository, source, length) = found.await?;
    let tag = etag(id)?;
    let wanted = wanted((&method, &headers), (&tag, length))?;
    let mut response = Response::new(Body::empty());
    match wanted {
        None => *response.status_mut() = StatusCode::NOT_MODIFIED,
        Some(wanted) => {
            let kind = HeaderValue::from_static("application/vnd.snap.pack");
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            wanted.tell(&mut response, length)?;
            if method != Method::HEAD {
                let range = wanted.range(length);
                let copy =
                    move |out: &mut dyn Write| repository.copy_pack((&id, &source), range, out);
                *response.body_mut() = server.send(copy).await?;
            }
        }
    }
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(FOREVER));
    headers.insert(header::ETAG, tag);
    Ok(response)
}

/// `PUT /v1/repos/{repo}/packs/{id}`: checked as it comes; counts once a file
/// of the index tells of it.
pub(super) async fn write(
    State(server): State<Server>,
    Path((repo, id)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Problem> {
    let id = pack_id(&id)?;
    let most = server.settings().limits.upload_bytes;
    let taken = server.take(repo, (&headers, body), most, move |repository, pieces| {
        repository.receive(id, pieces)
    });
    taken.await.map(status)
}

/// `GET /v1/repos/{repo}/index`.
pub(super) async fn index(
    State(server): State<Server>,
    Path(repo): Path<String>,
) -> Result<Json<IndexJson>, Problem> {
    let files = server.with(repo, |repository| repository.index()).await?;
    Ok(Json(IndexJson { files: listed(files) }))
}

/// `GET /v1/repos/{repo}/index/{name}`.
pub(super) async fn index_file(
    State(server): State<Server>,
    Path((repo, name)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let bytes = server.with(repo, move |repository| repository.index_file(&name)).await?;
    let kind = "application/vnd.snap.outlines";
    Ok(([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, FOREVER)], bytes).into_response())
}

/// `PUT /v1/repos/{repo}/index/{name}`: the packs count now, if they are
/// complete.
pub(super) async fn publish(
    State(server): State<Server>,
    Path((repo, name)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Problem> {
    let plain = name.split('.').next().unwrap_or_default();
    pack_id(plain).map_err(|_| Problem::new(Code::Invalid, "this is no name of a file of it"))?;
    let most = limits::REMOTE_INDEX_BYTES;
    let content_bytes = server.settings().limits.content_bytes;
    let taken = server.take(repo, (&headers, body), most, move |repository, pieces| {
        let asked = Asked { by: pieces.observer(), content_bytes };
        repository.publish(&name, &pieces.gather()?, &asked)
    });
    taken.await.map(status)
}

pub(super) fn status(sent: Sent) -> StatusCode {
    match sent {
        Sent::New => StatusCode::CREATED,
        Sent::Known => StatusCode::OK,
    }
}
