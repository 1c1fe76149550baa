//! A file by commit and path: what most requests of a busy server are for, so
//! what was read lately is answered without a thread.
//!
//! Two caches: what a commit has at a path, and expanded frames. A file whose
//! frame is there costs two look-ups. Frames that are being read are read once,
//! whoever asks.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{body::Body, extract::State, response::Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use serde::Deserialize;
use snap_core::base::id::{BlobId, CommitId, PackId};

use super::{
    Server,
    conditional::{about, etag, not_modified, wanted},
    disposition::{Manner, content_type, disposition},
    target::{Asked, Target},
};
use crate::{
    body::{self, Memory},
    cache::Cache,
    observe::metrics::Lookup,
    problem::Problem,
    repository::{FoundFile, InFrame, Repository, write_content},
};

/// Of the bytes of the cache this part is for paths, the rest for frames.
const PATHS_PART: usize = 8;

/// What one of them takes beside its path.
const FILE_BYTES: usize = 512;

/// So many frames are expanded at a time.
const LANES: usize = 8;

/// What browsers may do with what came from a snapshot: nothing but show it.
const POLICY: &str = "sandbox; default-src 'none'";

/// Which frame: of the repository with this number, in a pack.
type FrameKey = (u64, PackId, u32);

/// Which file: of the repository with this number, of a commit, at a path.
type FileKey = (u64, CommitId, Box<[u8]>);

/// What was read lately.
#[derive(Debug)]
pub(super) struct Files {
    paths: Cache<FileKey, Arc<File>>,
    frames: Cache<FrameKey, Bytes>,
    lanes: [Mutex<()>; LANES],
}

/// What there is to be told about a file.
#[derive(Debug)]
struct File {
    id: BlobId,
    size: u64,
    place: Option<InFrame>,
    etag: HeaderValue,
    kind: HeaderValue,
    shown: HeaderValue,
    saved: HeaderValue,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskedFile {
    download: Option<Download>,
}

/// Whether browsers save a file, whatever it is, or show what they can.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
enum Download {
    #[serde(rename = "0")]
    Show,
    #[serde(rename = "1")]
    Save,
}

impl Files {
    pub(super) fn new(most_bytes: usize) -> Self {
        let paths_bytes = most_bytes / PATHS_PART;
        Self {
            paths: Cache::new(paths_bytes),
            frames: Cache::new(most_bytes - paths_bytes),
            lanes: Default::default(),
        }
    }

    /// A file of a commit and its bytes, if both are at hand.
    fn lately(
        &self,
        number: u64,
        commit: CommitId,
        path: &[u8],
    ) -> Option<(Arc<File>, Option<Bytes>)> {
        let file = self.paths.get(&(number, commit, path), |key| {
            (key.0, key.1, &*key.2) == (number, commit, path)
        })?;
        let bytes = file.place.and_then(|place| {
            let (pack, frame) = place.frame;
            place.slice(&self.frame_lately((number, pack, frame))?)
        });
        Some((file, bytes))
    }

    fn frame_lately(&self, key: FrameKey) -> Option<Bytes> {
        self.frames.get(&key, |other| *other == key)
    }

    /// A frame, read unless it is at hand. May block.
    fn frame(&self, repository: &Repository, place: &InFrame) -> Result<Bytes, Problem> {
        let (pack, frame) = place.frame;
        let key = (repository.number(), pack, frame);
        if let Some(frame) = self.frame_lately(key) {
            return Ok(frame);
        }
        let _lane =
            self.lanes[frame as usize % LANES].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(frame) = self.frame_lately(key) {
            return Ok(frame);
        }
        let frame = repository.frame(place.frame)?;
        self.frames.put(&key, key, frame.clone(), frame.len());
        Ok(frame)
    }

    /// What is to be told about a file that was found, and its bytes, if it is
    /// one object. May block.
    fn keep(
        &self,
        repository: &Repository,
        found: &FoundFile,
        path: &[u8],
    ) -> Result<(Arc<File>, Option<Bytes>), Problem> {
        let frame = found.place.map(|place| self.frame(repository, &place)).transpose();
        // Merged into another pack just now: then it is streamed.
        let frame = frame.ok().flatten();
        let bytes = found.place.zip(frame).and_then(|(place, frame)| place.slice(&frame));
        // The index and the frame were not checked against the id.
        let bytes = bytes.filter(|bytes| BlobId::of(bytes) == found.id);
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let (kind, manner) = content_type(name, bytes.as_deref());
        let file = Arc::new(File {
            id: found.id,
            size: found.size,
            place: found.place.filter(|_| bytes.is_some()),
            etag: etag(found.id)?,
            kind,
            shown: disposition(manner, name),
            saved: disposition(Manner::Attachment, name),
        });
        let key = (repository.number(), found.revision.id, path.into());
        let asked = (key.0, key.1, path);
        self.paths.put(&asked, key.clone(), Arc::clone(&file), FILE_BYTES + path.len());
        Ok((file, bytes))
    }
}

/// `GET` and `HEAD …/commits/{commit}/files/{*path}`.
pub(super) async fn read(
    State(server): State<Server>,
    target: Target,
    Asked(asked): Asked<AskedFile>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let stall = server.settings().limits.stall();
    let answer = Answer { headers, method, asked, stall };
    let repository = server.hub().get_open(&target.repo);
    let id: Option<CommitId> = target.rev.parse().ok();
    if let (Some(repository), Some(id)) = (&repository, id)
        && let Some((file, bytes)) = server.files().lately(repository.number(), id, &target.path)
        && (bytes.is_some() || file.place.is_none())
    {
        server.metrics().looked_up("files", Lookup::Hit);
        return answer.respond((id, true), &file, bytes, repository).await;
    }
    server.metrics().looked_up("files", Lookup::Miss);
    let shared = server.clone();
    let read = server.with(target.repo, move |repository| {
        let found = repository.file(&target.rev, &target.path)?;
        let (file, bytes) = shared.files().keep(repository, &found, &target.path)?;
        Ok((found.revision, file, bytes, Arc::clone(repository)))
    });
    let (revision, file, bytes, repository) = read.await?;
    answer.respond((revision.id, revision.is_id), &file, bytes, &repository).await
}

/// What an answer depends on beside the file.
struct Answer {
    headers: HeaderMap,
    method: Method,
    asked: AskedFile,
    /// How long it may stand still.
    stall: Duration,
}

impl Answer {
    async fn respond(
        &self,
        (commit, is_id): (CommitId, bool),
        file: &File,
        bytes: Option<Bytes>,
        repository: &Arc<Repository>,
    ) -> Result<Response, Problem> {
        let wanted = wanted((&self.method, &self.headers), (&file.etag, file.size))?;
        let Some(wanted) = wanted else {
            return Ok(not_modified(commit, is_id, &file.etag));
        };
        let range = wanted.range(file.size);
        let mut response = Response::new(Body::empty());
        let saved = self.asked.download == Some(Download::Save);
        let headers = response.headers_mut();
        about(headers, commit, is_id, &file.etag);
        let disposition = if saved { &file.saved } else { &file.shown };
        headers.insert(header::CONTENT_TYPE, file.kind.clone());
        headers.insert(header::CONTENT_DISPOSITION, disposition.clone());
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        wanted.tell(&mut response, file.size)?;
        if self.method != Method::HEAD {
            *response.body_mut() = match bytes {
                Some(bytes) => {
                    let part = bytes.slice(range.start as usize..range.end as usize);
                    body::keep(part, Memory::default()).await?
                }
                None => {
                    let (repository, id, size) = (Arc::clone(repository), file.id, file.size);
                    body::send_begun(self.stall, move |out| {
                        write_content(repository.repo().store(), (&id, size), range, out)
                    })
                    .await?
                }
            };
        }
        Ok(response)
    }
}
