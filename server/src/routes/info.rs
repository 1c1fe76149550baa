//! What the server is, and which repositories it has.

use axum::{
    Json,
    body::Body,
    extract::{Path, State},
    response::IntoResponse,
};
use http::{StatusCode, header};
use serde::Serialize;
use snap_core::base::limits;

use super::{PROTOCOL, Server};
use crate::{
    body::{blocking, whole},
    problem::{Code, Problem},
};

#[derive(Serialize)]
pub(super) struct ServerJson {
    server: &'static str,
    version: &'static str,
    protocol: u32,
    limits: LimitsJson,
}

#[derive(Serialize)]
struct LimitsJson {
    pack_bytes: u64,
    missing_ids: usize,
}

/// `GET /v1`: needs no token.
pub(super) async fn server(State(server): State<Server>) -> Json<ServerJson> {
    let chosen = &server.settings().limits;
    let limits = LimitsJson { pack_bytes: chosen.upload_bytes, missing_ids: chosen.missing_ids };
    let version = env!("CARGO_PKG_VERSION");
    Json(ServerJson { server: "snap", version, protocol: PROTOCOL, limits })
}

#[derive(Serialize)]
pub(super) struct RepositoriesJson {
    repositories: Vec<RepositoryJson>,
}

#[derive(Serialize)]
struct RepositoryJson {
    name: String,
}

/// `GET /v1/repos`.
pub(super) async fn repositories(
    State(server): State<Server>,
) -> Result<Json<RepositoriesJson>, Problem> {
    let names = blocking(move || Ok(server.hub().names())).await?;
    let repositories = names.into_iter().map(|name| RepositoryJson { name }).collect();
    Ok(Json(RepositoriesJson { repositories }))
}

/// `GET /v1/repos/{repo}/config`: the settings of its store.
pub(super) async fn config(
    State(server): State<Server>,
    Path(repo): Path<String>,
) -> Result<impl IntoResponse, Problem> {
    let text = server.with(repo, |repository| Ok(repository.repo().config().to_text())).await?;
    Ok(([(header::CONTENT_TYPE, "application/toml")], text))
}

/// `PUT /v1/repos/{repo}`: makes one, with the settings in the body.
pub(super) async fn create(
    State(server): State<Server>,
    Path(repo): Path<String>,
    body: Body,
) -> Result<StatusCode, Problem> {
    let config = whole(body, server.accept(limits::CONFIG_BYTES)).await?;
    let config = String::from_utf8(config.to_vec())
        .map_err(|_| Problem::new(Code::Invalid, "the settings are not UTF-8"))?;
    blocking(move || server.hub().create(&repo, &config)).await?;
    Ok(StatusCode::CREATED)
}

/// `GET /health`: it answers.
pub(super) async fn health() -> &'static str {
    "ok\n"
}
