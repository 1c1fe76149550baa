//! What the server is, and which repositories it has.

use axum::{
    Extension, Json,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use snap_core::base::limits;

use super::{PROTOCOL, Server, path::Path};
use crate::{
    access::{
        need::{Need, need},
        who::{Right, Who},
    },
    body::{blocking, whole},
    problem::{Code, Problem},
    upstream::contact::Away,
};

#[derive(Serialize)]
pub(super) struct ServerJson {
    server: &'static str,
    version: &'static str,
    protocol: u32,
    authentication: &'static str,
    capabilities: Vec<&'static str>,
    limits: LimitsJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    upstream: Option<UpstreamJson>,
}

#[derive(Serialize)]
struct UpstreamJson {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    age_secs: Option<u64>,
}

impl UpstreamJson {
    fn new(away: Option<Away>) -> Self {
        match away {
            None => Self { state: "there", age_secs: None },
            Some(Away { age_secs }) => Self { state: "away", age_secs },
        }
    }
}

#[derive(Serialize)]
struct LimitsJson {
    pack_bytes: u64,
    bundle_bytes: u64,
    unfinished_bytes: u64,
    missing_ids: usize,
}

/// `GET /v1`: needs no token.
pub(super) async fn server(State(server): State<Server>) -> Json<ServerJson> {
    let chosen = &server.settings().limits;
    let limits = LimitsJson {
        pack_bytes: chosen.upload_bytes,
        bundle_bytes: chosen.bundle_bytes,
        unfinished_bytes: chosen.unfinished_bytes,
        missing_ids: chosen.missing_ids,
    };
    let authentication = if server.access().is_guarded() { "bearer" } else { "none" };
    // Packs may come in parts.
    let capabilities = (chosen.unfinished_uploads > 0).then_some("uploads").into_iter().collect();
    let version = env!("CARGO_PKG_VERSION");
    let upstream = server.hub().upstream().map(|there| UpstreamJson::new(there.contact().away()));
    Json(ServerJson {
        server: "snap",
        version,
        protocol: PROTOCOL,
        authentication,
        capabilities,
        limits,
        upstream,
    })
}

#[derive(Serialize)]
pub(super) struct RepositoriesJson {
    repositories: Vec<RepositoryJson>,
}

#[derive(Serialize)]
struct RepositoryJson {
    name: String,
}

/// `GET /v1/openapi.json`: needs no token.
pub(super) async fn openapi() -> impl IntoResponse {
    let text = include_str!("../../../docs/openapi.json");
    ([(header::CONTENT_TYPE, "application/json")], text)
}

/// `GET /v1/repos`: those that whoever asks may read.
pub(super) async fn repositories(
    State(server): State<Server>,
    Extension(who): Extension<Who>,
) -> Result<Json<RepositoriesJson>, Problem> {
    let names = blocking(move || Ok(server.hub().names())).await?;
    let theirs = names.into_iter().filter(|name| who.may(Right::Read, name));
    let repositories = theirs.map(|name| RepositoryJson { name }).collect();
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

/// Tells with each answer when it may not be as it is upstream, and how long ago
/// that was last known.
pub async fn tell_away<A: Future<Output = Response>>(
    server: &Server,
    request: Request,
    next: impl FnOnce(Request) -> A,
) -> Response {
    if server.hub().upstream().is_none() {
        return next(request).await;
    }
    let repository = match need(request.method(), request.uri().path()) {
        Need::In(_, name) => Some(name.into_owned()),
        _ => None,
    };
    let mut response = next(request).await;
    if let Some(away) = server.hub().away(repository.as_deref()) {
        let Away { age_secs } = away;
        // Somebody with a browser is told so in a page.
        response.extensions_mut().insert(away);
        let age = age_secs.map(|age| format!("; age={age}")).unwrap_or_default();
        if let Ok(value) = HeaderValue::from_str(&format!("away{age}")) {
            response.headers_mut().insert("snap-upstream", value);
        }
    }
    response
}
