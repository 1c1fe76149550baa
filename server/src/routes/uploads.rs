//! Uploads of packs and bundles in several requests. The headers are those of the IETF
//! draft «Resumable Uploads for HTTP».

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use snap_remote::wire::headers::{
    COMPLETE, INCOMPLETE, UPLOAD_COMPLETE, UPLOAD_LENGTH, UPLOAD_OFFSET,
};

use super::{
    Server, bundles, declared_length,
    packs::{pack_id, status},
    path::Path,
};
use crate::{
    body::BodyPieces,
    problem::{Code, HttpProblem},
    quota::Quotas,
    repository::{Repository, UploadLimits, UploadOutcome, UploadPosition, UploadState},
};

/// The largest number in a header: 2⁵³ − 1, the largest integer that all JSON parsers
/// read exactly (RFC 8259, section 6). The OpenAPI document states this limit.
const LARGEST_NUMBER: u64 = (1 << 53) - 1;

/// Longest time that `HEAD` waits while bytes still arrive. After a connection broke, buffers may
/// still hold some of its bytes.
const PATIENCE: Duration = Duration::from_secs(1);

/// Interval at which `HEAD` looks again. It also looks when a request that writes ends.
const STEP: Duration = Duration::from_millis(10);

/// Builds the response headers that describe the state of an upload.
fn upload_headers(offset: u64, length: u64, is_whole: bool) -> [(HeaderName, HeaderValue); 4] {
    let is_whole = HeaderValue::from_static(if is_whole { COMPLETE } else { INCOMPLETE });
    [
        (UPLOAD_OFFSET, offset.into()),
        (UPLOAD_LENGTH, length.into()),
        (UPLOAD_COMPLETE, is_whole),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ]
}

/// Parses the hash of an upload in a path.
fn hash(text: &str) -> Result<blake3::Hash, HttpProblem> {
    Ok(blake3::Hash::from_bytes(*pack_id(text)?.as_bytes()))
}

/// `HEAD /v1/repos/{repo}/uploads/{id}` and `…/bundles/{hash}`: the state of an upload.
pub(super) async fn upload_status(
    State(server): State<Server>,
    Path((repo, id)): Path<(String, String)>,
) -> Result<Response, HttpProblem> {
    let hash = hash(&id)?;
    let began = server.clock().now();
    loop {
        let look = move |repository: &Arc<Repository>| {
            // Subscribe before the look, so that no end of a writer is missed.
            let writers = repository.upload_writers();
            Ok((writers, repository.upload(&hash)?))
        };
        let (mut writers, upload) = server.with(repo.clone(), look).await?;
        match upload {
            UploadState::Part { is_moving: true, .. }
                if server.clock().elapsed(began) < PATIENCE => {}
            UploadState::Part { offset, length, .. } => {
                let far = upload_headers(offset, length, false);
                return Ok((StatusCode::NO_CONTENT, far).into_response());
            }
            UploadState::Whole(length) => {
                return Ok((StatusCode::OK, upload_headers(length, length, true)).into_response());
            }
        }
        let _ = server.clock().timeout(STEP, writers.changed()).await;
    }
}

/// `PATCH /v1/repos/{repo}/uploads/{id}`: starts or continues the upload of a pack.
pub(super) async fn resume(
    State(server): State<Server>,
    Path((repo, id)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, HttpProblem> {
    let most = server.settings().limits.upload_bytes;
    let taken = server.resume(repo, id, &headers, body, most, Repository::resume);
    taken.await.map(|(far, taken)| match taken {
        Some(sent) => (status(sent), far).into_response(),
        None => (StatusCode::NO_CONTENT, far).into_response(),
    })
}

/// `PATCH /v1/repos/{repo}/bundles/{hash}`: starts or continues the upload of a bundle.
pub(super) async fn resume_bundle(
    State(server): State<Server>,
    Path((repo, id)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, HttpProblem> {
    let most = server.settings().limits.bundle_bytes;
    let taken = server.resume(repo, id, &headers, body, most, Repository::resume_bundle);
    taken.await.map(|(far, taken)| match taken {
        Some(outcome) => (far, bundles::unpacked_response(&outcome)).into_response(),
        None => (StatusCode::NO_CONTENT, far).into_response(),
    })
}

impl Server {
    /// Continues the upload `id` of at most `most` bytes with `resume`. Returns the
    /// headers with the new state, and the outcome once the upload is complete.
    ///
    /// # Errors
    /// [`Code::Invalid`] for malformed headers, [`Code::TooLarge`], [`Code::Range`],
    /// those of the quota, and those of `resume`.
    async fn resume<T: Send + 'static>(
        &self,
        repo: String,
        id: String,
        headers: &HeaderMap,
        body: Body,
        most: u64,
        resume: impl FnOnce(
            &Repository,
            &UploadPosition,
            UploadLimits,
            BodyPieces,
        ) -> Result<UploadOutcome<T>, HttpProblem>
        + Send
        + 'static,
    ) -> Result<([(HeaderName, HeaderValue); 4], Option<T>), HttpProblem> {
        let coming = UploadPosition {
            hash: hash(&id)?,
            offset: number(headers, &UPLOAD_OFFSET)?,
            length: number(headers, &UPLOAD_LENGTH)?,
        };
        let (chosen, body_bytes) = (&self.settings().limits, declared_length(headers));
        let (parts, bytes) = (chosen.unfinished_uploads, chosen.unfinished_bytes);
        let bounds = UploadLimits { parts, bytes, content_bytes: chosen.content_bytes };
        let prepare = move |quotas: &Quotas, repository: &Repository| {
            let left = check(&coming, body_bytes, most)?;
            // Reserve room for the whole upload: the quota leaves out the part that the server
            // already has.
            Ok((left, quotas.reserve_for_resume(repository, &coming.hash, coming.length)?))
        };
        let taken = self.take_after(repo, headers, body, prepare, move |repository, pieces| {
            resume(repository, &coming, bounds, pieces)
        });
        Ok(match taken.await? {
            UploadOutcome::Whole(taken) => {
                (upload_headers(coming.length, coming.length, true), Some(taken))
            }
            UploadOutcome::Part(offset) => (upload_headers(offset, coming.length, false), None),
        })
    }
}

/// `DELETE /v1/repos/{repo}/uploads/{id}` and `…/bundles/{hash}`: removes an upload.
pub(super) async fn delete(
    State(server): State<Server>,
    Path((repo, id)): Path<(String, String)>,
) -> Result<StatusCode, HttpProblem> {
    let hash = hash(&id)?;
    server.with(repo, move |repository| repository.forget_upload(&hash)).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Result<u64, HttpProblem> {
    let invalid = |why: &str| HttpProblem::new(Code::Invalid, format!("{name} {why}"));
    let mut all = headers.get_all(name).into_iter();
    let (Some(value), None) = (all.next(), all.next()) else {
        return Err(invalid("must appear exactly once"));
    };
    let text = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = text.and_then(|text| text.parse().ok()).filter(|number| *number <= LARGEST_NUMBER);
    number.ok_or_else(|| invalid("is not a valid number of bytes"))
}

/// Checks that offset and lengths fit together. Returns the number of bytes that may still arrive.
fn check(coming: &UploadPosition, body_bytes: Option<u64>, most: u64) -> Result<u64, HttpProblem> {
    if coming.length > most {
        return Err(HttpProblem::new(
            Code::TooLarge,
            format!("an upload has at most {most} bytes"),
        ));
    }
    let beyond = || HttpProblem::new(Code::Range, "upload-offset is beyond upload-length");
    let left = coming.length.checked_sub(coming.offset).ok_or_else(beyond)?;
    match body_bytes.is_some_and(|body_bytes| body_bytes > left) {
        true => Err(HttpProblem::new(
            Code::TooLarge,
            format!("the body is longer than the {left} bytes that are missing"),
        )),
        false => Ok(left),
    }
}
