//! The server itself, the list of its repositories, and their settings.

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
    access::principal::{Principal, Right},
    body::{blocking, read_whole},
    problem::{Code, HttpProblem},
    upstream::health::UpstreamOutage,
};

#[derive(Serialize)]
pub(super) struct ServerInfoResponse {
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
    fn new(away: Option<UpstreamOutage>) -> Self {
        match away {
            None => Self { state: "there", age_secs: None },
            Some(UpstreamOutage { age_secs }) => Self { state: "away", age_secs },
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

/// `GET /v1`. Needs no token.
pub(super) async fn server(State(server): State<Server>) -> Json<ServerInfoResponse> {
    let chosen = &server.settings().limits;
    let limits = LimitsJson {
        pack_bytes: chosen.upload_bytes,
        bundle_bytes: chosen.bundle_bytes,
        unfinished_bytes: chosen.unfinished_bytes,
        missing_ids: chosen.missing_ids,
    };
    let authentication = if server.access().is_guarded() { "bearer" } else { "none" };
    // `uploads` means that a client may send a pack in several requests.
    let capabilities = (chosen.unfinished_uploads > 0).then_some("uploads").into_iter().collect();
    let version = env!("CARGO_PKG_VERSION");
    let upstream = server.hub().upstream().map(|there| UpstreamJson::new(there.contact().outage()));
    Json(ServerInfoResponse {
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

/// `GET /v1/openapi.json`. Needs no token.
pub(super) async fn openapi() -> impl IntoResponse {
    let text = include_str!("../../../docs/openapi.json");
    ([(header::CONTENT_TYPE, "application/json")], text)
}

/// `GET /v1/repos`: lists the repositories that the client may read.
pub(super) async fn repositories(
    State(server): State<Server>,
    Extension(who): Extension<Principal>,
) -> Result<Json<RepositoriesJson>, HttpProblem> {
    let names = blocking(move || Ok(server.hub().names())).await?;
    let theirs = names.into_iter().filter(|name| who.can(Right::Read, name));
    let repositories = theirs.map(|name| RepositoryJson { name }).collect();
    Ok(Json(RepositoriesJson { repositories }))
}

/// `GET /v1/repos/{repo}/config`: returns the settings of the store.
pub(super) async fn config(
    State(server): State<Server>,
    Path(repo): Path<String>,
) -> Result<impl IntoResponse, HttpProblem> {
    Ok(toml(server.with(repo, |repository| repository.settings()).await?))
}

/// `POST /v1/repos/{repo}/config`: rewrites the settings if they are lost or damaged.
pub(super) async fn mend_config(
    State(server): State<Server>,
    Path(repo): Path<String>,
    body: Body,
) -> Result<impl IntoResponse, HttpProblem> {
    let config = sent_config(&server, body).await?;
    Ok(toml(server.with(repo, move |repository| repository.mend_settings(&config)).await?))
}

fn toml(text: String) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/toml")], text)
}

async fn sent_config(server: &Server, body: Body) -> Result<String, HttpProblem> {
    let config = read_whole(body, server.accept(limits::CONFIG_BYTES)).await?;
    String::from_utf8(config.to_vec())
        .map_err(|_| HttpProblem::new(Code::Invalid, "the settings are not UTF-8"))
}

/// `PUT /v1/repos/{repo}`: creates a repository with the settings in the body.
pub(super) async fn create(
    State(server): State<Server>,
    Path(repo): Path<String>,
    body: Body,
) -> Result<StatusCode, HttpProblem> {
    let config = sent_config(&server, body).await?;
    blocking(move || server.hub().create(&repo, &config)).await?;
    Ok(StatusCode::CREATED)
}

/// Middleware that adds `snap-upstream: away` to each response that may be out of date, for a
/// request that concerns `repository`. `age` is the number of seconds since the state was last
/// known to match the upstream.
pub async fn mark_outage<A: Future<Output = Response>>(
    server: &Server,
    repository: Option<&str>,
    request: Request,
    next: impl FnOnce(Request) -> A,
) -> Response {
    if server.hub().upstream().is_none() {
        return next(request).await;
    }
    let mut response = next(request).await;
    if let Some(away) = server.hub().outage(repository) {
        let UpstreamOutage { age_secs } = away;
        // The pages show the outage to people, too.
        response.extensions_mut().insert(away);
        let age = age_secs.map(|age| format!("; age={age}")).unwrap_or_default();
        if let Ok(value) = HeaderValue::from_str(&format!("away{age}")) {
            response.headers_mut().insert("snap-upstream", value);
        }
    }
    response
}
