//! Refs: read, moved by compare-and-swap, deleted. The ETag of a ref names the
//! commit that it stands at, the epoch and the nonce of the write that said so.
//! Clients of older versions send the commit alone, which fits whichever write it
//! was.

use std::sync::Arc;

use axum::{
    Extension, Json,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::{Deserialize, Serialize};
use snap_core::{
    base::{id::CommitId, limits, observe::Observer},
    format::ref_text::RefText,
    repo::ref_name::{RefKind, RefName},
};

use super::{
    Server,
    conditional::{Tags, etag, is_known},
    path::Path,
};
use crate::{
    access::who::{Right, Who},
    body::{blocking, watched, whole},
    observe::audit::Stood,
    problem::{Code, Problem},
    repository::{Expected, Repository},
};

#[derive(Serialize)]
pub(super) struct RefsJson {
    head: Option<String>,
    refs: Vec<RefJson>,
}

#[derive(Serialize)]
struct RefJson {
    name: String,
    commit: String,
}

#[derive(Serialize)]
pub(super) struct HeadJson {
    head: String,
}

/// What is sent to move a ref.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MoveJson {
    commit: String,
}

impl RefJson {
    fn new(name: &RefName, commit: CommitId) -> Self {
        Self { name: name.to_string(), commit: commit.to_string() }
    }
}

/// A branch or a tag; refs of other kinds are nobody's but their owner's.
fn named(name: &str) -> Result<RefName, Problem> {
    let parsed = RefName::parse_full(&format!("refs/{name}"));
    let parsed = parsed.filter(|name| matches!(name.kind(), RefKind::Branch | RefKind::Tag));
    parsed.ok_or_else(|| Problem::new(Code::Invalid, "this is no name of a branch or a tag"))
}

/// An answer under an ETag, or that the client has it.
fn tagged(headers: &HeaderMap, tag: HeaderValue, told: impl Serialize) -> Response {
    let tagged = [(header::ETAG, tag.clone())];
    match is_known(headers, &tag) {
        true => (StatusCode::NOT_MODIFIED, tagged).into_response(),
        false => (tagged, Json(told)).into_response(),
    }
}

/// `GET /v1/repos/{repo}/head`.
pub(super) async fn head(
    State(server): State<Server>,
    Path(repo): Path<String>,
) -> Result<Json<HeadJson>, Problem> {
    let head = server.with(repo, |repository| repository.default_branch()).await?;
    Ok(Json(HeadJson { head: head.to_string() }))
}

/// `GET /v1/repos/{repo}/refs`. The ETag is of all that it tells.
pub(super) async fn list(
    State(server): State<Server>,
    Path(repo): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let listed = server.with(repo, |repository| {
        let refs = repository.refs()?;
        let refs = refs.iter().map(|(name, commit)| RefJson::new(name, *commit)).collect();
        // As it was at the same time.
        let head = repository.known_branch().ok().map(|name| name.to_string());
        Ok(RefsJson { head, refs })
    });
    let listed = listed.await?;
    let mut all = blake3::Hasher::new();
    serde_json::to_writer(&mut all, &listed).map_err(|_| Problem::new(Code::Unavailable, ""))?;
    Ok(tagged(&headers, etag(all.finalize().to_hex())?, listed))
}

/// `GET /v1/repos/{repo}/refs/{name}`.
pub(super) async fn read(
    State(server): State<Server>,
    Path((repo, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let name = named(&name)?;
    let wanted = name.clone();
    let text = server.with(repo, move |repository| repository.text(&wanted)).await?;
    let text = text.ok_or_else(|| Problem::not_found(&name))?;
    let commit = text.commit.ok_or_else(|| Problem::not_found(&name))?;
    Ok(tagged(&headers, etag(text.tag())?, RefJson::new(&name, commit)))
}

/// `PUT /v1/repos/{repo}/refs/{name}`, with `If-Match` or `If-None-Match: *`.
pub(super) async fn write(
    State(server): State<Server>,
    Path((repo, name)): Path<(String, String)>,
    Extension(who): Extension<Who>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let name = named(&name)?;
    let condition = Condition::of(&headers)?;
    let body = whole(body, server.accept(limits::REF_BYTES as u64)).await?;
    let invalid = |why: String| Problem::new(Code::Invalid, why);
    let sent: MoveJson =
        serde_json::from_slice(&body).map_err(|error| invalid(error.to_string()))?;
    let commit: CommitId =
        sent.commit.parse().map_err(|_| invalid("`commit` is no id of a commit".to_owned()))?;
    let forward_only = !who.may(Right::Write, &repo);
    let (at, wanted) = (server.clone(), name.clone());
    // A long history is not walked for a client that left; a move that began ends.
    let expected = watched(move |observer| {
        let repository = at.hub().get(&repo)?;
        let expected = condition.expected(&repository, &wanted)?;
        if let Some(old) = expected.commit()
            && forward_only
        {
            check_forward(&repository, &wanted, (old, commit), observer)?;
        }
        Ok((repository, expected))
    });
    let (repository, expected) = expected.await?;
    let moved = blocking(move || {
        if expected == Expected::Absent {
            check_count(&repository, server.settings().limits.refs)?;
        }
        // It is there, in its log at least, when the room is free again.
        let bytes = move_bytes(&name, who.logged());
        let _room = server.quotas().room(&repository, Some(bytes), bytes)?;
        let text = repository.swap(&name, expected, Some(commit), who.logged())?;
        Ok((expected, text))
    });
    let (expected, text) = moved.await?;
    let status = if expected == Expected::Absent { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, stood(expected), [(header::ETAG, etag(text.tag())?)]).into_response())
}

/// About how many bytes a move of a ref takes on the disk: the file, the line in
/// its log with two ids, and both names.
fn move_bytes(name: &RefName, who: &str) -> u64 {
    (2 * name.short().len() + who.len() + 320) as u64
}

/// Checks that there is room for one more ref.
///
/// # Errors
/// [`Code::Full`] when there are `most` already.
fn check_count(repository: &Repository, most: usize) -> Result<(), Problem> {
    let refs = repository.repo().refs();
    let count = refs.names(RefKind::Branch)?.len() + refs.names(RefKind::Tag)?.len();
    if count < most {
        return Ok(());
    }
    let why = format!("there are {count} branches and tags, and {most} may be (`limits.refs`)");
    Err(Problem::new(Code::Full, why))
}

/// Checks that a ref is a branch, and that `new` comes after `old`.
///
/// # Errors
/// [`Code::Forbidden`] when not, [`Code::Conflict`] when the ref does not stand
/// at `old`, [`Code::Rejected`] when `new` is not there.
fn check_forward(
    repository: &Repository,
    name: &RefName,
    (old, new): (CommitId, CommitId),
    observer: &dyn Observer,
) -> Result<(), Problem> {
    if name.kind() != RefKind::Branch {
        let why = format!("`{name}` is there: to move a tag needs write");
        return Err(Problem::new(Code::Forbidden, why));
    }
    match repository.standing(name)? {
        Some(at) if at == old => {}
        Some(at) => return Err(Problem::new(Code::Conflict, format!("{name} stands at {at}"))),
        None => return Err(Problem::new(Code::Conflict, format!("{name} is not there"))),
    }
    if !repository.is_after(&new, &old, observer)? {
        let why = format!(
            "`{name}` stands at {old:.12}, and {new:.12} does not come after it: \
             only a token with write may move a branch elsewhere"
        );
        return Err(Problem::new(Code::Forbidden, why));
    }
    Ok(())
}

/// `DELETE /v1/repos/{repo}/refs/{name}`, with `If-Match`.
pub(super) async fn delete(
    State(server): State<Server>,
    Path((repo, name)): Path<(String, String)>,
    Extension(who): Extension<Who>,
    headers: HeaderMap,
) -> Result<impl IntoResponse + use<>, Problem> {
    let name = named(&name)?;
    let condition = Condition::of(&headers)?;
    if condition == Condition::New {
        return Err(Problem::new(Code::NoCondition, "If-Match says where it stands"));
    }
    let deleted = server.with(repo, move |repository| {
        let expected = condition.expected(repository, &name)?;
        repository.swap(&name, expected, None, who.logged())?;
        Ok(expected)
    });
    Ok((StatusCode::NO_CONTENT, stood(deleted.await?)))
}

/// For the log of writes.
fn stood(expected: Expected) -> Extension<Stood> {
    Extension(Stood(expected.commit()))
}

/// Where a ref must stand to be moved, as a request says it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    /// Nowhere: it is new.
    New,
    /// Anywhere.
    There,
    /// As one of these says.
    At(Vec<Expected>),
}

impl Condition {
    fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let matching = Tags::of(headers, &header::IF_MATCH)?;
        match (matching, Tags::of(headers, &header::IF_NONE_MATCH)?) {
            (Some(Tags::Any), None) => Ok(Self::There),
            // Tags that are none of ours match nothing.
            (Some(Tags::These(tags)), None) => {
                Ok(Self::At(tags.into_iter().filter_map(tagged_ref).collect()))
            }
            (None, Some(Tags::Any)) => Ok(Self::New),
            (None, None) => Err(Problem::new(Code::NoCondition, "If-Match or If-None-Match: *")),
            _ => Err(Problem::new(Code::Invalid, "one of If-Match and If-None-Match: *")),
        }
    }

    /// Where it stands if that is where it must. Of one tag that is found out when
    /// it is moved.
    fn expected(&self, repository: &Arc<Repository>, name: &RefName) -> Result<Expected, Problem> {
        let any_of = match self {
            Self::New => return Ok(Expected::Absent),
            Self::There => None,
            Self::At(tags) => Some(tags.as_slice()),
        };
        if let Some([only]) = any_of {
            return Ok(*only);
        }
        let text = repository.text(name)?;
        let stands = text.as_ref().and_then(expected);
        let fits = |tag: &Expected| match tag {
            Expected::At(commit) => stands.and_then(|stands| stands.commit()) == Some(*commit),
            tag => stands.as_ref() == Some(tag),
        };
        let why = match stands {
            Some(stands) if any_of.is_none_or(|tags| tags.iter().any(fits)) => return Ok(stands),
            Some(stands) => format!(
                "{name} stands at {}",
                stands.commit().map(|id| id.to_string()).unwrap_or_default()
            ),
            None => format!("{name} is not there"),
        };
        Err(Problem::new(Code::Conflict, why))
    }
}

/// What a ref must say that says this.
fn expected(text: &RefText) -> Option<Expected> {
    let commit = text.commit?;
    Some(text.nonce.map_or(Expected::At(commit), |nonce| Expected::Says(commit, nonce)))
}

/// What a ref must say for a strong ETag to be its own.
fn tagged_ref(tag: &[u8]) -> Option<Expected> {
    let tag = tag.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    expected(&RefText::from_tag(std::str::from_utf8(tag).ok()?).ok()?)
}
