//! Packs that come in several requests, with the names of the draft «Resumable
//! Uploads for HTTP».

use std::time::{Duration, Instant};

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::{
    Server,
    packs::{pack_id, status},
    path::Path,
    said_length,
};
use crate::{
    problem::{Code, Problem, UPLOAD_OFFSET},
    quota::Quotas,
    repository::{Bounds, Coming, Repository, Resumed, Upload},
};

const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
const UPLOAD_COMPLETE: HeaderName = HeaderName::from_static("upload-complete");

/// How long whoever asks waits for what is still coming: of a request that broke
/// off, that which lies in buffers.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often it is looked.
const STEP: Duration = Duration::from_millis(10);

/// An answer that says how far an upload has come.
fn told(status: StatusCode, (offset, length): (u64, u64), is_whole: bool) -> Response {
    let is_whole = HeaderValue::from_static(if is_whole { "?1" } else { "?0" });
    let headers = [
        (UPLOAD_OFFSET, offset.into()),
        (UPLOAD_LENGTH, length.into()),
        (UPLOAD_COMPLETE, is_whole),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (status, headers).into_response()
}

/// `HEAD /v1/repos/{repo}/uploads/{id}`: how far a pack has come.
pub(super) async fn standing(
    State(server): State<Server>,
    Path((repo, id)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let id = pack_id(&id)?;
    let began = Instant::now();
    loop {
        let upload = server.with(repo.clone(), move |repository| repository.upload(&id)).await?;
        match upload {
            Upload::Part { is_moving: true, .. } if began.elapsed() < PATIENCE => {}
            Upload::Part { offset, length, .. } => {
                return Ok(told(StatusCode::NO_CONTENT, (offset, length), false));
            }
            Upload::Whole(length) => return Ok(told(StatusCode::OK, (length, length), true)),
        }
        tokio::time::sleep(STEP).await;
    }
}

/// `PATCH /v1/repos/{repo}/uploads/{id}`: goes on with a pack, or begins with it.
pub(super) async fn resume(
    State(server): State<Server>,
    Path((repo, id)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let id = pack_id(&id)?;
    let coming = Coming {
        id,
        offset: number(&headers, &UPLOAD_OFFSET)?,
        length: number(&headers, &UPLOAD_LENGTH)?,
    };
    let (chosen, said) = (&server.settings().limits, said_length(&headers));
    let bounds = Bounds { parts: chosen.unfinished_uploads, bytes: chosen.unfinished_bytes };
    let most = chosen.upload_bytes;
    let prepare = move |quotas: &Quotas, repository: &Repository| {
        let left = check(&coming, said, most)?;
        // All of it, however much is here: a part does not count yet.
        Ok((left, quotas.room(repository, Some(coming.length), coming.length)?))
    };
    let taken = server.take_after(repo, (&headers, body), prepare, move |repository, pieces| {
        repository.resume(&coming, bounds, pieces)
    });
    Ok(match taken.await? {
        Resumed::Whole(sent) => told(status(sent), (coming.length, coming.length), true),
        Resumed::Part(offset) => told(StatusCode::NO_CONTENT, (offset, coming.length), false),
    })
}

/// `DELETE /v1/repos/{repo}/uploads/{id}`: what came of a pack goes.
pub(super) async fn forget(
    State(server): State<Server>,
    Path((repo, id)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let id = pack_id(&id)?;
    server.with(repo, move |repository| repository.forget_upload(&id)).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Result<u64, Problem> {
    let invalid = |why: &str| Problem::new(Code::Invalid, format!("{name} {why}"));
    let mut all = headers.get_all(name).into_iter();
    let (Some(value), None) = (all.next(), all.next()) else {
        return Err(invalid("is to be said once"));
    };
    let text = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    text.and_then(|text| text.parse().ok()).ok_or_else(|| invalid("is no number of bytes"))
}

/// Whether what is said fits together; then how much may come.
fn check(coming: &Coming, said: Option<u64>, most: u64) -> Result<u64, Problem> {
    if coming.length > most {
        return Err(Problem::new(Code::TooLarge, format!("at most {most}")));
    }
    let beyond = || Problem::new(Code::Range, "it would begin beyond its end");
    let left = coming.length.checked_sub(coming.offset).ok_or_else(beyond)?;
    match said.is_some_and(|said| said > left) {
        true => Err(Problem::new(Code::TooLarge, format!("{left} bytes of it are left"))),
        false => Ok(left),
    }
}
