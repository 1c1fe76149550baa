//! Downloads of a file by commit and path. Most requests of a busy server are of this
//! kind, so cached files are served without a blocking thread.
//!
//! There are two caches: metadata of files by commit and path, and expanded frames. A
//! file whose frame is cached costs two look-ups. Requests that need the same frame at
//! the same time read it once.

use std::sync::Arc;

use axum::{body::Body, extract::State, response::Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use parking_lot::Mutex;
use serde::Deserialize;
use snap_core::base::{
    byte_cache::{ByteCache, CacheLimits},
    id::{BlobId, CommitId, ContentId, PackId},
};

use super::{
    Server,
    conditional::{etag, not_modified, requested_range, set_commit_headers},
    disposition::{DispositionKind, content_type, disposition},
    target::{CommitPath, QueryParams},
};
use crate::{
    body::{self, BodyResources, MemoryReservation},
    observe::metrics::Lookup,
    problem::HttpProblem,
    repository::{FoundFile, InFrame, Repository, write_content},
};

/// File metadata gets the cache size divided by this number; frames get the rest.
const PATHS_PART: usize = 8;

/// Approximate memory of a cached [`CachedFile`] without its path, in bytes.
const FILE_BYTES: usize = 512;

/// Number of locks for reading frames, and so the maximum number of frames that are expanded at
/// once.
const LANES: usize = 8;

/// The Content-Security-Policy of files from a snapshot: a browser may show them, but must not run
/// or load anything.
const POLICY: &str = "sandbox; default-src 'none'";

/// A key: the number of the repository, the pack, and the number of the frame in the pack.
type FrameKey = (u64, PackId, u32);

/// A key: the number of the repository, the commit, and the path.
type FileKey = (u64, CommitId, Box<[u8]>);

/// The caches of files that were read recently.
#[derive(Debug)]
pub(super) struct FileCache {
    paths: ByteCache<FileKey, Arc<CachedFile>>,
    frames: ByteCache<FrameKey, Bytes>,
    lanes: [Mutex<()>; LANES],
}

/// The metadata of a file, with its response headers.
#[derive(Debug)]
struct CachedFile {
    id: ContentId,
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

/// The choice between always saving a file and showing it if it is harmless.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
enum Download {
    #[serde(rename = "0")]
    Show,
    #[serde(rename = "1")]
    Save,
}

impl FileCache {
    pub(super) fn new(most_bytes: usize) -> Self {
        let paths_bytes = most_bytes / PATHS_PART;
        Self {
            paths: ByteCache::new(CacheLimits::of_small_entries(paths_bytes)),
            frames: ByteCache::new(CacheLimits::of_small_entries(most_bytes - paths_bytes)),
            lanes: Default::default(),
        }
    }

    /// Returns the cached metadata of a file, and its bytes if its frame is cached,
    /// too.
    fn cached(
        &self,
        number: u64,
        commit: CommitId,
        path: &[u8],
    ) -> Option<(Arc<CachedFile>, Option<Bytes>)> {
        let file = self.paths.get(&(number, commit, path.into()))?;
        let bytes = file.place.and_then(|place| {
            place.slice(&self.frames.get(&(number, place.pack, place.number))?)
        });
        Some((file, bytes))
    }

    /// Returns a frame from the cache, or reads it. May block.
    fn frame(&self, repository: &Repository, place: &InFrame) -> Result<Bytes, HttpProblem> {
        let key = (repository.number(), place.pack, place.number);
        if let Some(frame) = self.frames.get(&key) {
            return Ok(frame);
        }
        let _lane = self.lanes[place.number as usize % LANES].lock();
        // Another thread may have read the frame while this one waited for the lock.
        if let Some(frame) = self.frames.get(&key) {
            return Ok(frame);
        }
        let frame = repository.frame(place.pack, place.number)?;
        self.frames.insert(key, frame.clone(), frame.len());
        Ok(frame)
    }

    /// Caches the metadata of a file. Returns the metadata, with the bytes if the file is a single
    /// object. May block.
    fn load(
        &self,
        repository: &Repository,
        found: &FoundFile,
        path: &[u8],
    ) -> Result<(Arc<CachedFile>, Option<Bytes>), HttpProblem> {
        let frame = found.place.map(|place| self.frame(repository, &place)).transpose();
        // If the pack was merged into another one just now, the file is streamed
        // instead.
        let frame = frame.ok().flatten();
        let bytes = found.place.zip(frame).and_then(|(place, frame)| place.slice(&frame));
        // Check the bytes against the id: nothing else has checked the index and the frame.
        let bytes = bytes.filter(|bytes| ContentId::Blob(BlobId::of(bytes)) == found.id);
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let (kind, shown_as) = content_type(name, bytes.as_deref());
        let file = Arc::new(CachedFile {
            id: found.id,
            size: found.size,
            place: found.place.filter(|_| bytes.is_some()),
            etag: etag(found.id)?,
            kind,
            shown: disposition(shown_as, name),
            saved: disposition(DispositionKind::Attachment, name),
        });
        let key = (repository.number(), found.revision.id, path.into());
        self.paths.insert(key, Arc::clone(&file), FILE_BYTES + path.len());
        Ok((file, bytes))
    }
}

/// `GET` and `HEAD …/commits/{commit}/files/{*path}`.
pub(super) async fn read(
    State(server): State<Server>,
    target: CommitPath,
    QueryParams(asked): QueryParams<AskedFile>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, HttpProblem> {
    let answer = FileRequest { headers, method, asked, bodies: Arc::clone(server.bodies()) };
    let repository = server.hub().get_open(&target.repo);
    let id: Option<CommitId> = target.rev.parse().ok();
    if let (Some(repository), Some(id)) = (&repository, id)
        && let Some((file, bytes)) = server.files().cached(repository.number(), id, &target.path)
        // A file in chunks has no place and is streamed. Otherwise its frame must be
        // cached.
        && (bytes.is_some() || file.place.is_none())
    {
        server.metrics().count_lookup("files", Lookup::Hit);
        return answer.respond(id, true, &file, bytes, repository).await;
    }
    server.metrics().count_lookup("files", Lookup::Miss);
    let shared = server.clone();
    let read = server.with(target.repo, move |repository| {
        let found = repository.file(&target.rev, &target.path)?;
        let (file, bytes) = shared.files().load(repository, &found, &target.path)?;
        Ok((found.revision, file, bytes, Arc::clone(repository)))
    });
    let (revision, file, bytes, repository) = read.await?;
    answer.respond(revision.id, revision.is_id, &file, bytes, &repository).await
}

/// The properties of a request that decide the response.
struct FileRequest {
    headers: HeaderMap,
    method: Method,
    asked: AskedFile,
    bodies: Arc<BodyResources>,
}

impl FileRequest {
    async fn respond(
        &self,
        commit: CommitId,
        is_id: bool,
        file: &CachedFile,
        bytes: Option<Bytes>,
        repository: &Arc<Repository>,
    ) -> Result<Response, HttpProblem> {
        let wanted = requested_range(&self.method, &self.headers, &file.etag, file.size)?;
        let Some(wanted) = wanted else {
            return Ok(not_modified(commit, is_id, &file.etag));
        };
        let range = wanted.range(file.size);
        let mut response = Response::new(Body::empty());
        let saved = self.asked.download == Some(Download::Save);
        let headers = response.headers_mut();
        set_commit_headers(headers, commit, is_id, &file.etag);
        let disposition = if saved { &file.saved } else { &file.shown };
        headers.insert(header::CONTENT_TYPE, file.kind.clone());
        headers.insert(header::CONTENT_DISPOSITION, disposition.clone());
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        wanted.set_headers(&mut response, file.size)?;
        if self.method != Method::HEAD {
            *response.body_mut() = match bytes {
                Some(bytes) => {
                    let part = bytes.slice(range.start as usize..range.end as usize);
                    body::whole_body(part, MemoryReservation::new(&self.bodies)).await?
                }
                None => {
                    let (repository, id, size) = (Arc::clone(repository), file.id, file.size);
                    body::stream_after_first_piece(&self.bodies, move |out| {
                        write_content(repository.repo().store(), &id, size, range, out)
                    })
                    .await?
                }
            };
        }
        Ok(response)
    }
}
