//! Packs and bundles that come in several requests, with the names of the draft «Resumable
//! Uploads for HTTP».

use std::time::{Duration, Instant};

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::{
    Server, bundles,
    packs::{pack_id, status},
    path::Path,
    said_length,
};
use crate::{
    body::Pieces,
    problem::{Code, Problem, UPLOAD_OFFSET},
    quota::Quotas,
    repository::{Bounds, Coming, Repository, Resumed, Upload},
};

const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
const UPLOAD_COMPLETE: HeaderName = HeaderName::from_static("upload-complete");

/// Largest number in a header: the largest that every reader of the document knows
/// (RFC 8259, section 6).
const LARGEST_NUMBER: u64 = (1 << 53) - 1;

/// How long whoever asks waits for what is still coming: of a request that broke
/// off, that which lies in buffers.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often it is looked.
const STEP: Duration = Duration::from_millis(10);

/// How far an upload has come, in the head of an answer.
fn told((offset, length): (u64, u64), is_whole: bool) -> [(HeaderName, HeaderValue); 4] {
    let is_whole = HeaderValue::from_static(if is_whole { "?1" } else { "?0" });
    [
        (UPLOAD_OFFSET, offset.into()),
        (UPLOAD_LENGTH, length.into()),
        (UPLOAD_COMPLETE, is_whole),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ]
}

/// The hash of what is sent, in a path.
fn hash(text: &str) -> Result<blake3::Hash, Problem> {
    Ok(blake3::Hash::from_bytes(*pack_id(text)?.as_bytes()))
}

/// `HEAD /v1/repos/{repo}/uploads/{id}` and `…/bundles/{hash}`: how far it has come.
pub(super) async fn standing(
    State(server): State<Server>,
    Path((repo, id)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let hash = hash(&id)?;
    let began = Instant::now();
    loop {
        let upload = server.with(repo.clone(), move |repository| repository.upload(&hash)).await?;
        match upload {
            Upload::Part { is_moving: true, .. } if began.elapsed() < PATIENCE => {}
            Upload::Part { offset, length, .. } => {
                let far = told((offset, length), false);
                return Ok((StatusCode::NO_CONTENT, far).into_response());
            }
            Upload::Whole(length) => {
                return Ok((StatusCode::OK, told((length, length), true)).into_response());
            }
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
    let most = server.settings().limits.upload_bytes;
    let taken = server.resume((repo, id), (&headers, body), most, Repository::resume);
    taken.await.map(|(far, taken)| match taken {
        Some(sent) => (status(sent), far).into_response(),
        None => (StatusCode::NO_CONTENT, far).into_response(),
    })
}

/// `PATCH /v1/repos/{repo}/bundles/{hash}`: goes on with a bundle, or begins with it.
pub(super) async fn resume_bundle(
    State(server): State<Server>,
    Path((repo, id)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let most = server.settings().limits.bundle_bytes;
    let taken = server.resume((repo, id), (&headers, body), most, Repository::resume_bundle);
    taken.await.map(|(far, taken)| match taken {
        Some(outcome) => (far, bundles::told(&outcome)).into_response(),
        None => (StatusCode::NO_CONTENT, far).into_response(),
    })
}

impl Server {
    /// Has `resume` take what comes of `id`, which is to be no longer than `most`.
    /// Says how far it has come, and what was taken once it is whole.
    ///
    /// # Errors
    /// [`Code::Invalid`] for headers, [`Code::TooLarge`], [`Code::Range`], those of
    /// room, and those of `resume`.
    async fn resume<T: Send + 'static>(
        &self,
        (repo, id): (String, String),
        (headers, body): (&HeaderMap, Body),
        most: u64,
        resume: impl FnOnce(&Repository, &Coming, Bounds, Pieces) -> Result<Resumed<T>, Problem>
        + Send
        + 'static,
    ) -> Result<([(HeaderName, HeaderValue); 4], Option<T>), Problem> {
        let coming = Coming {
            hash: hash(&id)?,
            offset: number(headers, &UPLOAD_OFFSET)?,
            length: number(headers, &UPLOAD_LENGTH)?,
        };
        let (chosen, said) = (&self.settings().limits, said_length(headers));
        let (parts, bytes) = (chosen.unfinished_uploads, chosen.unfinished_bytes);
        let bounds = Bounds { parts, bytes, content_bytes: chosen.content_bytes };
        let prepare = move |quotas: &Quotas, repository: &Repository| {
            let left = check(&coming, said, most)?;
            // All of it: what is here of it is not counted besides.
            Ok((left, quotas.room_for_rest(repository, &coming.hash, coming.length)?))
        };
        let taken = self.take_after(repo, (headers, body), prepare, move |repository, pieces| {
            resume(repository, &coming, bounds, pieces)
        });
        Ok(match taken.await? {
            Resumed::Whole(taken) => (told((coming.length, coming.length), true), Some(taken)),
            Resumed::Part(offset) => (told((offset, coming.length), false), None),
        })
    }
}

/// `DELETE /v1/repos/{repo}/uploads/{id}` and `…/bundles/{hash}`: what came goes.
pub(super) async fn forget(
    State(server): State<Server>,
    Path((repo, id)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let hash = hash(&id)?;
    server.with(repo, move |repository| repository.forget_upload(&hash)).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Result<u64, Problem> {
    let invalid = |why: &str| Problem::new(Code::Invalid, format!("{name} {why}"));
    let mut all = headers.get_all(name).into_iter();
    let (Some(value), None) = (all.next(), all.next()) else {
        return Err(invalid("is to be said once"));
    };
    let text = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = text.and_then(|text| text.parse().ok()).filter(|number| *number <= LARGEST_NUMBER);
    number.ok_or_else(|| invalid("is no number of bytes"))
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
