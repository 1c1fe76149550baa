//! The server itself, the list of its repositories, and their settings.

use axum::{
    Extension, Json,
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use snap_core::base::limits;
use snap_remote::wire::{
    headers::{SNAP_EPOCH, SNAP_UPSTREAM},
    routes::PROTOCOL,
    types::{
        Authentication, Limits, Repositories, RepositoryName, ServerInfo, UpstreamInfo,
        UpstreamState,
    },
};

use super::{Server, path::Path};
use crate::{
    access::principal::{Principal, Right},
    body::{blocking, read_whole},
    problem::{Code, HttpProblem},
    upstream::health::UpstreamOutage,
};

/// `GET /v1`. Needs no token.
pub(super) async fn server(State(server): State<Server>) -> Json<ServerInfo> {
    let chosen = &server.settings().limits;
    let is_guarded = server.access().is_guarded();
    let upstream = server.hub().upstream().map(|there| match there.contact().outage() {
        None => UpstreamInfo { state: UpstreamState::There, age_secs: None },
        Some(UpstreamOutage { age_secs }) => UpstreamInfo { state: UpstreamState::Away, age_secs },
    });
    Json(ServerInfo {
        server: "snap".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: PROTOCOL,
        authentication: if is_guarded { Authentication::Bearer } else { Authentication::None },
        limits: Limits {
            pack_bytes: chosen.upload_bytes,
            bundle_bytes: chosen.bundle_bytes,
            missing_ids: chosen.missing_ids,
        },
        upstream,
    })
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
) -> Result<Json<Repositories>, HttpProblem> {
    let names = blocking(move || Ok(server.hub().names())).await?;
    let theirs = names.into_iter().filter(|name| who.can(Right::Read, name));
    let repositories = theirs.map(|name| RepositoryName { name }).collect();
    Ok(Json(Repositories { repositories }))
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

/// Middleware that adds `snap-epoch`, and `snap-upstream: away` to each response that may be out of
/// date, for a request that concerns `repository`. `age` is the number of seconds since the state
/// was last known to match the upstream.
pub async fn mark_state<A: Future<Output = Response>>(
    server: &Server,
    repository: Option<&str>,
    request: Request,
    next: impl FnOnce(Request) -> A,
) -> Response {
    let hub = server.hub();
    // Read before the response is built: it may rely on a later epoch than it names, but never on an
    // earlier one.
    let epoch = repository.and_then(|name| Some(hub.get_open_for_scan(name)?.epoch()));
    let mut response = next(request).await;
    let opened = || Some(hub.get_open_for_scan(repository?)?.opened_epoch());
    if let Some(tag) = epoch.or_else(opened).flatten()
        && let Ok(value) = HeaderValue::from_str(&tag.to_string())
    {
        response.headers_mut().insert(SNAP_EPOCH, value);
    }
    if let Some(away) = hub.outage(repository) {
        let UpstreamOutage { age_secs } = away;
        // The pages show the outage to people, too.
        response.extensions_mut().insert(away);
        let age = age_secs.map(|age| format!("; age={age}")).unwrap_or_default();
        if let Ok(value) = HeaderValue::from_str(&format!("away{age}")) {
            response.headers_mut().insert(SNAP_UPSTREAM, value);
        }
    }
    response
}
