//! Refs: read, move by compare-and-swap, delete.
//!
//! The ETag of a ref names its commit, the epoch, and the nonce of the last write.
//! The commit alone in `If-Match` matches any nonce.

use std::sync::Arc;

use axum::{
    Extension, Json,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;
use snap_core::{
    base::{id::CommitId, limits, observe::Observer},
    repo::ref_name::{RefKind, RefName},
};
use snap_remote::wire::types::{Head, Move, Ref, Refs};

use super::{
    Server,
    conditional::{Tags, etag, is_not_modified},
    path::Path,
};
use crate::{
    access::principal::{Principal, Right},
    body::read_whole,
    observe::audit::PreviousCommit,
    problem::{Code, HttpProblem},
    repository::{RefCondition, Repository},
};

fn named(name: &RefName, commit: CommitId) -> Ref {
    Ref { name: name.to_string(), commit }
}

/// Parses the name of a branch or tag. Other kinds of refs are private to a store.
fn parse_ref_name(name: &str) -> Result<RefName, HttpProblem> {
    let parsed = RefName::parse_full(&format!("refs/{name}"));
    let parsed = parsed.filter(|name| matches!(name.kind(), RefKind::Branch | RefKind::Tag));
    parsed.ok_or_else(|| HttpProblem::new(Code::Invalid, "not the name of a branch or tag"))
}

/// Builds a response with an ETag, or a `304` if the client has that version.
fn tagged(headers: &HeaderMap, tag: HeaderValue, body: impl Serialize) -> Response {
    let tagged = [(header::ETAG, tag.clone())];
    match is_not_modified(headers, &tag) {
        true => (StatusCode::NOT_MODIFIED, tagged).into_response(),
        false => (tagged, Json(body)).into_response(),
    }
}

/// `GET /v1/repos/{repo}/head`.
pub(super) async fn head(
    State(server): State<Server>,
    Path(repo): Path<String>,
) -> Result<Json<Head>, HttpProblem> {
    let head = server.with(repo, |repository| repository.refs().default_branch()).await?;
    Ok(Json(Head { head: head.to_string() }))
}

/// `POST /v1/repos/{repo}/head`: rewrites `HEAD` if it is lost or damaged.
pub(super) async fn mend_head(
    State(server): State<Server>,
    Path(repo): Path<String>,
) -> Result<Json<Head>, HttpProblem> {
    let head = server.with(repo, |repository| repository.refs().mend_head()).await?;
    Ok(Json(Head { head: head.to_string() }))
}

/// `GET /v1/repos/{repo}/refs`. The ETag covers the whole response.
pub(super) async fn list(
    State(server): State<Server>,
    Path(repo): Path<String>,
    headers: HeaderMap,
) -> Result<Response, HttpProblem> {
    let listed = server.with(repo, |repository| {
        let listing = repository.refs().listing()?;
        let refs = listing.refs.iter().map(|(name, commit)| named(name, *commit)).collect();
        let damaged = listing.damaged.iter().map(ToString::to_string).collect();
        // Send no second request to the upstream, so that `head` belongs to the same state as
        // `refs`.
        let head = repository.refs().cached_branch().ok().map(|name| name.to_string());
        Ok(Refs { head, refs, damaged })
    });
    let listed = listed.await?;
    let mut all = blake3::Hasher::new();
    serde_json::to_writer(&mut all, &listed)
        .map_err(|_| HttpProblem::new(Code::Unavailable, ""))?;
    Ok(tagged(&headers, etag(all.finalize().to_hex())?, listed))
}

/// `GET /v1/repos/{repo}/refs/{name}`. For a damaged ref the error response has an
/// ETag, with which a client can replace or delete the ref.
pub(super) async fn read(
    State(server): State<Server>,
    Path((repo, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, HttpProblem> {
    let name = parse_ref_name(&name)?;
    let wanted = name.clone();
    let read = server.with(repo, move |repository| match repository.refs().state(&wanted) {
        Err(problem) if problem.code == Code::Damaged => match repository.refs().damage(&wanted)? {
            Some(damage) => Ok(Err((problem, damage))),
            None => Err(problem),
        },
        state => state.map(Ok),
    });
    let state = match read.await? {
        Ok(state) => state,
        Err((problem, damage)) => {
            return Ok(([(header::ETAG, etag(damage.tag())?)], problem).into_response());
        }
    };
    let state = state.and_then(|state| Some((state, state.commit()?)));
    let (state, commit) = state.ok_or_else(|| HttpProblem::not_found(&name))?;
    Ok(tagged(&headers, etag(state.tag())?, named(&name, commit)))
}

/// `PUT /v1/repos/{repo}/refs/{name}`, with `If-Match` or `If-None-Match: *`.
pub(super) async fn write(
    State(server): State<Server>,
    Path((repo, name)): Path<(String, String)>,
    Extension(who): Extension<Principal>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, HttpProblem> {
    let name = parse_ref_name(&name)?;
    let condition = Condition::of(&headers)?;
    let body = read_whole(body, server.accept(limits::REF_BYTES as u64)).await?;
    let Move { commit } = serde_json::from_slice(&body)
        .map_err(|error| HttpProblem::new(Code::Invalid, error.to_string()))?;
    let forward_only = !who.can(Right::Write, &repo);
    let (moved_in, wanted) = (repo.clone(), name.clone());
    // The walk through a long history stops when the client disconnects. The move
    // itself does not.
    let expected = server.with_observer(repo, move |repository, observer| {
        let expected = condition.expected(repository, &wanted)?;
        if let (RefCondition::Damaged(_), true) = (&expected, forward_only) {
            let why = format!("`{wanted}` is damaged, and the token may not replace it");
            return Err(HttpProblem::new(Code::AppendOnly, why));
        }
        if let Some(old) = expected.commit()
            && forward_only
        {
            check_forward(repository, &wanted, old, commit, observer)?;
        }
        Ok(expected)
    });
    let (expected, at) = (expected.await?, server.clone());
    let moved = server.with(moved_in, move |repository| {
        if expected == RefCondition::Absent {
            check_count(repository, at.settings().limits.refs)?;
        }
        // The reservation is held until the ref and its log are on disk, where the
        // quota counts them.
        let bytes = move_bytes(&name, who.ref_log_name());
        let _room = at.quotas().reserve(repository, Some(bytes), bytes)?;
        let state = repository.refs().swap(&name, expected, Some(commit), who.ref_log_name())?;
        Ok((expected, state))
    });
    let (expected, state) = moved.await?;
    let status =
        if expected == RefCondition::Absent { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, audit_extension(expected), [(header::ETAG, etag(state.tag())?)]).into_response())
}

/// Returns the approximate size of a ref's move on disk, in bytes: the file, the log line with two
/// ids, and both names.
fn move_bytes(name: &RefName, who: &str) -> u64 {
    (2 * name.short().len() + who.len() + 320) as u64
}

/// Checks that the repository may have one more ref.
///
/// # Errors
/// [`Code::Full`] when there are `most` refs already.
fn check_count(repository: &Repository, most: usize) -> Result<(), HttpProblem> {
    let refs = repository.repo().refs();
    let count = refs.names(RefKind::Branch)?.len() + refs.names(RefKind::Tag)?.len();
    if count < most {
        return Ok(());
    }
    let why = format!(
        "the repository has {count} branches and tags; the limit is {most} (`limits.refs`)"
    );
    Err(HttpProblem::new(Code::Full, why))
}

/// Checks that a ref is a branch at `old`, and that `new` descends from `old`.
///
/// # Errors
/// [`Code::AppendOnly`] when the ref is a tag or `new` does not descend from `old`;
/// [`Code::Conflict`] when the ref is not at `old`; [`Code::Rejected`] when the store lacks `new`.
fn check_forward(
    repository: &Repository,
    name: &RefName,
    old: CommitId,
    new: CommitId,
    observer: &dyn Observer,
) -> Result<(), HttpProblem> {
    if name.kind() != RefKind::Branch {
        let why = format!("`{name}` already exists, and the token may not move tags");
        return Err(HttpProblem::new(Code::AppendOnly, why));
    }
    match repository.refs().target(name)? {
        Some(at) if at == old => {}
        Some(at) => return Err(HttpProblem::new(Code::Conflict, format!("{name} is at {at}"))),
        None => return Err(HttpProblem::new(Code::Conflict, format!("{name} does not exist"))),
    }
    if !repository.refs().is_after(&new, &old, observer)? {
        let why = format!(
            "`{name}` can only be fast-forwarded with this token: {new:.12} does not descend from \
             {old:.12}"
        );
        return Err(HttpProblem::new(Code::AppendOnly, why));
    }
    Ok(())
}

/// `DELETE /v1/repos/{repo}/refs/{name}`, with `If-Match`.
pub(super) async fn delete(
    State(server): State<Server>,
    Path((repo, name)): Path<(String, String)>,
    Extension(who): Extension<Principal>,
    headers: HeaderMap,
) -> Result<impl IntoResponse + use<>, HttpProblem> {
    let name = parse_ref_name(&name)?;
    let condition = Condition::of(&headers)?;
    if condition == Condition::New {
        return Err(HttpProblem::new(
            Code::NoCondition,
            "the request needs If-Match with the ETag of the ref",
        ));
    }
    let deleted = server.with(repo, move |repository| {
        let expected = condition.expected(repository, &name)?;
        repository.refs().swap(&name, expected, None, who.ref_log_name())?;
        Ok(expected)
    });
    Ok((StatusCode::NO_CONTENT, audit_extension(deleted.await?)))
}

/// Passes the previous commit of the ref to the audit log.
fn audit_extension(expected: RefCondition) -> Extension<PreviousCommit> {
    Extension(PreviousCommit(expected.commit()))
}

/// The condition of a request to move a ref.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    /// `If-None-Match: *`: the ref does not exist.
    New,
    /// `If-Match: *`: the ref exists.
    There,
    /// `If-Match` with ETags: the ref is in one of these states.
    At(Vec<RefCondition>),
}

impl Condition {
    fn of(headers: &HeaderMap) -> Result<Self, HttpProblem> {
        let matching = Tags::of(headers, &header::IF_MATCH)?;
        match (matching, Tags::of(headers, &header::IF_NONE_MATCH)?) {
            (Some(Tags::Any), None) => Ok(Self::There),
            // ETags that this server never sends match nothing.
            (Some(Tags::These(tags)), None) => {
                Ok(Self::At(tags.into_iter().filter_map(tagged_ref).collect()))
            }
            (None, Some(Tags::Any)) => Ok(Self::New),
            (None, None) => Err(HttpProblem::new(
                Code::NoCondition,
                "the request needs If-Match or If-None-Match: *",
            )),
            _ => Err(HttpProblem::new(
                Code::Invalid,
                "the request needs exactly one of If-Match and If-None-Match: *",
            )),
        }
    }

    /// Returns the state of the ref if it meets the condition. A single ETag is not
    /// compared here, but by the compare-and-swap itself.
    fn expected(
        &self,
        repository: &Arc<Repository>,
        name: &RefName,
    ) -> Result<RefCondition, HttpProblem> {
        let any_of = match self {
            Self::New => return Ok(RefCondition::Absent),
            Self::There => None,
            Self::At(tags) => Some(tags.as_slice()),
        };
        if let Some([only]) = any_of {
            return Ok(*only);
        }
        if let Some(damage) = repository.refs().damage(name)? {
            let damaged = RefCondition::Damaged(damage);
            return match any_of.is_none_or(|tags| tags.contains(&damaged)) {
                true => Ok(damaged),
                false => Err(HttpProblem::new(Code::Conflict, format!("{name} is damaged"))),
            };
        }
        let state = repository.refs().state(name)?.filter(|state| *state != RefCondition::Absent);
        let fits = |tag: &RefCondition| match tag {
            RefCondition::At(commit) => state.and_then(|state| state.commit()) == Some(*commit),
            tag => state.as_ref() == Some(tag),
        };
        let why = match state {
            Some(state) if any_of.is_none_or(|tags| tags.iter().any(fits)) => return Ok(state),
            Some(state) => format!(
                "{name} is at {}",
                state.commit().map(|id| id.to_string()).unwrap_or_default()
            ),
            None => format!("{name} does not exist"),
        };
        Err(HttpProblem::new(Code::Conflict, why))
    }
}

/// Parses a strong ETag of a ref. Returns `None` for other ETags.
fn tagged_ref(tag: &[u8]) -> Option<RefCondition> {
    let tag = tag.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    RefCondition::from_tag(std::str::from_utf8(tag).ok()?)
}
