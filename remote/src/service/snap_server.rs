//! A snap server as a service. Each key stands for a resource of the protocol (`docs/protocol.md`).
//!
//! | key | resource |
//! |---|---|
//! | `config.toml` | `config`; a write creates the repository or repairs its settings |
//! | `HEAD` | `head`; a write repairs a lost or damaged `HEAD` |
//! | `refs/…` | `refs/…`; the ETag contains commit, epoch and nonce |
//! | `objects/ID` | `packs/ID`, verified by the server; a write of a long pack uses `uploads/ID` |
//! | `index/NAME` | `index/NAME`; a write publishes the packs that it lists |
//!
//! The server maintains its index itself, so removing an index file does nothing.

mod resumed;

use std::{
    fmt,
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request, StatusCode, header, request::Builder};
use opendal::{Buffer, HttpTransport};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use snap_core::{
    base::{id::CommitId, limits},
    format::ref_text::{Nonce, RefText},
};

use tokio::sync::OnceCell;

use super::{
    ConditionalWrites, FailureDetail, FailureReason, ListedObject, ListedRefs, ObjectVersion,
    ResumableUpload, Service, ServiceError, StoredObject, WriteCondition,
    keys::{CONFIG, HEAD, INDEX, OBJECTS, REFS},
    opendal_error::service_error,
    traffic::Traffic,
    transport::{HttpReply, Transport, at_most, with_file},
};
use crate::protocol::{Code, ProblemBody};

/// Name of the only repository of a server without names.
pub const ONLY: &str = "default";

/// Path before the name of a repository.
const REPOSITORIES: &str = "/repos/";

/// Bytes to percent-encode: all but the unreserved ones of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Bytes to percent-encode in a path below a repository.
const PATH_ESCAPES: &AsciiSet = &RESERVED.remove(b'/');

/// Bytes to percent-encode in the name of a repository. A location may contain bytes that are
/// encoded already.
const NAME_ESCAPES: &AsciiSet = &RESERVED.remove(b'%');

/// Resource of the settings.
const CONFIG_PATH: &str = "config";

/// Resource of `HEAD`.
const HEAD_PATH: &str = "head";

/// Minimum length of a pack for a resumable upload. To restart a shorter upload costs little.
const RESUMED_BYTES: u64 = 4 << 20;

/// A client of one repository of a snap server.
pub struct SnapServer {
    transport: Transport,
    /// `http://host/v1/repos/NAME`
    base: String,
    token: Option<String>,
    /// True if the server supports resumable uploads; set by the first request for its
    /// capabilities.
    resumes: OnceCell<bool>,
    /// True if the last listing of the index said that garbage was collected.
    collected: AtomicBool,
}

impl fmt::Debug for SnapServer {
    /// Omits the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapServer").field("base", &self.base).finish_non_exhaustive()
    }
}

/// A successful response.
struct ServerReply {
    headers: HeaderMap,
    bytes: Bytes,
}

impl ServerReply {
    /// Returns the ETag and the text of the ref if it is at `commit`, which proves that a snap server
    /// answered and not a proxy. The ETag of a relay is the commit alone.
    fn ref_at(&self, commit: CommitId) -> Option<(ObjectVersion, RefText)> {
        let etag = self.headers.get(header::ETAG)?.to_str().ok()?;
        let tag = etag.strip_prefix('"')?.strip_suffix('"')?;
        let text = match tag == commit.to_string() {
            true => RefText { nonce: Nonce::UNKNOWN, ..RefText::new(Some(commit)) },
            false => RefText::from_tag(tag).ok()?,
        };
        let version = ObjectVersion { etag: Some(etag.to_owned()), generation: None };
        (text.commit == Some(commit)).then_some((version, text))
    }
}

/// An error response.
struct ErrorReply {
    error: ServiceError,
    /// The ETag of the current object, if the server sent one.
    etag: Option<String>,
}

impl From<ServiceError> for ErrorReply {
    fn from(error: ServiceError) -> Self {
        Self { error, etag: None }
    }
}

#[derive(Deserialize)]
struct HeadBody {
    head: String,
}

#[derive(Deserialize)]
struct RefBody {
    commit: String,
}

#[derive(Deserialize)]
struct RefsBody {
    refs: Vec<NamedRefBody>,
    #[serde(default)]
    damaged: Vec<String>,
}

#[derive(Deserialize)]
struct NamedRefBody {
    name: String,
    commit: String,
}

#[derive(Deserialize)]
struct RepositoriesBody {
    repositories: Vec<RepositoryBody>,
}

#[derive(Deserialize)]
struct RepositoryBody {
    name: String,
}

#[derive(Deserialize)]
struct FilesBody {
    #[serde(alias = "packs")]
    files: Vec<FileBody>,
    /// True in a listing of the index if garbage was collected.
    #[serde(default)]
    collected: bool,
}

#[derive(Deserialize)]
struct FileBody {
    name: String,
    bytes: u64,
}

impl SnapServer {
    /// Creates a client of `repository` on the server at `origin`, such as `http://host:7627`. An
    /// empty name means the only repository of the server.
    ///
    /// # Errors
    /// A message if TLS cannot be set up.
    pub fn new(
        origin: &str,
        repository: &str,
        token: Option<String>,
        traffic: Arc<Traffic>,
    ) -> Result<Self, String> {
        let name = if repository.is_empty() { ONLY } else { repository };
        let name = utf8_percent_encode(name, NAME_ESCAPES);
        let base = format!("{origin}/v1{REPOSITORIES}{name}");
        let transport = Transport::new(traffic)?;
        let (resumes, collected) = (OnceCell::new(), AtomicBool::new(false));
        Ok(Self { transport, base, token, resumes, collected })
    }

    /// Starts a request for `path` below the repository. Encodes the whole path: in a raw name of a
    /// ref, `#` would begin a fragment, and `%41` would be another name.
    fn request(&self, method: Method, path: &str) -> Builder {
        let separator = if path.is_empty() { "" } else { "/" };
        let request = Request::builder().method(method);
        let path = utf8_percent_encode(path, PATH_ESCAPES);
        let request = request.uri(format!("{}{separator}{path}", self.base));
        self.with_token(request)
    }

    /// Adds the token to a request.
    fn with_token(&self, request: Builder) -> Builder {
        match &self.token {
            Some(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    }

    /// Sends a request and reads at most `most` bytes of the response. Converts an error response
    /// to a [`ServiceError`].
    async fn send(
        &self,
        request: Builder,
        body: Bytes,
        most: u64,
        operation: &'static str,
        key: &str,
    ) -> Result<ServerReply, ServiceError> {
        let sent = self.send_keeping_etag(request, body, most, operation, key).await;
        sent.map_err(|refusal| refusal.error)
    }

    /// Sends a request like [`Self::send`], but keeps the ETag of an error response.
    async fn send_keeping_etag(
        &self,
        request: Builder,
        body: Bytes,
        most: u64,
        operation: &'static str,
        key: &str,
    ) -> Result<ServerReply, ErrorReply> {
        let request = request.body(Buffer::from(body)).map_err(|error| {
            ServiceError::new(operation, key, FailureReason::Other, error.to_string())
        })?;
        let attempt = async {
            let response = self.transport.fetch(request).await?;
            let (head, mut body) = response.into_parts();
            Ok((head, body.to_buffer().await?.to_bytes()))
        };
        let (answered, reply) = HttpReply::of(at_most(most, attempt)).await;
        let (head, bytes) =
            answered.map_err(|error| service_error(operation, key, &error, &reply))?;
        if head.status.is_success() {
            return Ok(ServerReply { headers: head.headers, bytes });
        }
        let problem: ProblemBody = serde_json::from_slice(&bytes).unwrap_or_default();
        // Only for these keys: the client fetches a damaged pack or index file again, or from
        // elsewhere.
        let is_one = key.starts_with(REFS) || key == HEAD || key == CONFIG;
        let is_damaged = problem.code == Some(Code::Damaged) && is_one;
        let what =
            if is_damaged { FailureReason::DamagedThere } else { reason_of_status(head.status) };
        let message = if problem.detail.is_empty() { problem.title } else { problem.detail };
        let error = ServiceError::new(operation, key, what, message);
        let detail = match problem.code {
            Some(Code::AppendOnly) => Some(FailureDetail::AppendOnly),
            Some(Code::NameConflict) => Some(FailureDetail::NameConflict),
            Some(Code::NameReserved) => Some(FailureDetail::NameReserved),
            _ => None,
        };
        let error = ServiceError { detail, retry_after: reply.retry_after, ..error };
        let etag = head.headers.get(header::ETAG).and_then(|etag| etag.to_str().ok());
        Err(ErrorReply { error, etag: etag.map(str::to_owned) })
    }

    async fn get(
        &self,
        path: &str,
        most: u64,
        operation: &'static str,
        key: &str,
    ) -> Result<Bytes, ServiceError> {
        let request = self.request(Method::GET, path);
        self.send(request, Bytes::new(), most, operation, key).await.map(|answer| answer.bytes)
    }

    async fn json<T: for<'de> Deserialize<'de>>(
        &self,
        path: &str,
        operation: &'static str,
        key: &str,
    ) -> Result<T, ServiceError> {
        let bytes = self.get(path, limits::REPLY_BYTES, operation, key).await?;
        serde_json::from_slice(&bytes).map_err(|error| {
            ServiceError::new(operation, key, FailureReason::Other, error.to_string())
        })
    }

    async fn read_range(&self, key: &str, range: Range<u64>) -> Result<StoredObject, ServiceError> {
        let Some(id) = key.strip_prefix(OBJECTS) else { return Err(unknown("read", key)) };
        let wanted = range.end.saturating_sub(range.start);
        let last = range.end.saturating_sub(1);
        let request = self.request(Method::GET, &format!("packs/{id}"));
        let request = request.header(header::RANGE, format!("bytes={}-{last}", range.start));
        let answer = self.send(request, Bytes::new(), wanted, "read", key).await?;
        if answer.bytes.len() as u64 != wanted {
            let why = format!("received {} of {wanted} B", answer.bytes.len());
            return Err(ServiceError::new("read", key, FailureReason::Short, why));
        }
        Ok(StoredObject { bytes: answer.bytes, version: None })
    }

    async fn read_key(&self, key: &str, most: u64) -> Result<StoredObject, ServiceError> {
        let plain = |bytes: Bytes| StoredObject { bytes, version: None };
        if key == CONFIG {
            return self.get(CONFIG_PATH, most, "read", key).await.map(plain);
        }
        if key == HEAD {
            let HeadBody { head } = self.json(HEAD_PATH, "read", key).await?;
            return Ok(plain(format!("ref: {head}\n").into()));
        }
        if key.starts_with(REFS) {
            let request = self.request(Method::GET, key);
            let asking =
                self.send_keeping_etag(request, Bytes::new(), limits::REPLY_BYTES, "read", key);
            let answer = match asking.await {
                // The server does not send the damaged bytes. The ETag identifies them, and does
                // not decode as a ref.
                Err(ErrorReply { error, etag: Some(etag) })
                    if error.reason == FailureReason::DamagedThere =>
                {
                    let version =
                        Some(ObjectVersion { etag: Some(etag.clone()), generation: None });
                    return Ok(StoredObject { bytes: etag.into(), version });
                }
                answer => answer.map_err(|refusal| refusal.error)?,
            };
            let RefBody { commit } = serde_json::from_slice(&answer.bytes).map_err(|error| {
                ServiceError::new("read", key, FailureReason::Other, error.to_string())
            })?;
            let id = commit.parse().map_err(|_| {
                ServiceError::new("read", key, FailureReason::Other, commit.clone())
            })?;
            let (version, text) = answer.ref_at(id).ok_or_else(|| {
                let why = "the response has no ETag of a ref; a proxy may have removed it";
                ServiceError::new("read", key, FailureReason::Other, why.to_owned())
            })?;
            return Ok(StoredObject { bytes: text.encode().into(), version: Some(version) });
        }
        match (key.strip_prefix(OBJECTS), key.starts_with(INDEX)) {
            (Some(id), _) => self.get(&format!("packs/{id}"), most, "read", key).await.map(plain),
            (None, true) => self.get(key, most, "read", key).await.map(plain),
            (None, false) => {
                Err(ServiceError::new("read", key, FailureReason::NotFound, String::new()))
            }
        }
    }

    async fn write_key(
        &self,
        key: &str,
        bytes: Bytes,
        when: WriteCondition,
    ) -> Result<Option<ObjectVersion>, ServiceError> {
        let put = |path: &str| self.request(Method::PUT, path);
        let is_ref = key.starts_with(REFS);
        let moved_to = is_ref.then(|| RefText::decode(&bytes).ok()?.commit).flatten();
        let (request, body) = if key == CONFIG && when == WriteCondition::Always {
            (self.request(Method::POST, CONFIG_PATH), bytes)
        } else if key == CONFIG {
            (put(""), bytes)
        } else if key == HEAD {
            // The server sets the first branch by itself, and knows the previous value of HEAD.
            if when == WriteCondition::Absent {
                return Ok(None);
            }
            let request = self.request(Method::POST, HEAD_PATH);
            self.send(request, Bytes::new(), limits::REPLY_BYTES, "write", key).await?;
            return Ok(None);
        } else if is_ref {
            self.move_ref(key, &bytes)?
        } else if let Some(id) = key.strip_prefix(OBJECTS) {
            (put(&format!("packs/{id}")), bytes)
        } else if key.starts_with(INDEX) {
            (put(key), bytes)
        } else {
            return Err(unknown("write", key));
        };
        let request = match when {
            WriteCondition::Always => request,
            WriteCondition::Absent => request.header(header::IF_NONE_MATCH, "*"),
            WriteCondition::Unchanged(ObjectVersion { etag, .. }) => {
                request.header(header::IF_MATCH, etag.unwrap_or_default())
            }
        };
        let answer = self.send(request, body, limits::REPLY_BYTES, "write", key).await?;
        Ok(moved_to.and_then(|id| answer.ref_at(id)).map(|(version, _)| version))
    }

    /// Builds the request that moves or deletes a ref. The server writes a nonce of its own, not
    /// the one in `text`.
    fn move_ref(&self, key: &str, text: &[u8]) -> Result<(Builder, Bytes), ServiceError> {
        let text = RefText::decode(text).map_err(|_| unknown("write", key))?;
        let Some(commit) = text.commit else {
            return Ok((self.request(Method::DELETE, key), Bytes::new()));
        };
        let body = serde_json::json!({ "commit": commit.to_string() }).to_string();
        let request = self.request(Method::PUT, key);
        Ok((request.header(header::CONTENT_TYPE, "application/json"), body.into()))
    }

    async fn list_all(&self, prefix: &str) -> Result<Vec<ListedObject>, ServiceError> {
        let of = |FilesBody { files, collected }: FilesBody| {
            if prefix == INDEX {
                self.collected.store(collected, Ordering::Relaxed);
            }
            let listed = |FileBody { name, bytes }| ListedObject {
                key: format!("{prefix}{name}"),
                bytes,
                modified_secs: None,
            };
            files.into_iter().map(listed).collect()
        };
        let listed = match prefix {
            INDEX => self.json("index", "list", prefix).await.map(of),
            OBJECTS => self.json("packs", "list", prefix).await.map(of),
            REFS => self.json("refs", "list", prefix).await.map(|RefsBody { refs, damaged }| {
                let names = refs.into_iter().map(|NamedRefBody { name, .. }| name).chain(damaged);
                names
                    .map(|name| ListedObject { key: name, bytes: 0, modified_secs: None })
                    .collect()
            }),
            _ => Ok(Vec::new()),
        };
        match listed {
            Err(error) if error.reason == FailureReason::NotFound => self.or_empty(prefix).await,
            listed => listed,
        }
    }

    /// Returns an empty listing if the repository does not exist. For an existing repository, a
    /// listing fails only for a moment, so the error is temporary.
    async fn or_empty(&self, prefix: &str) -> Result<Vec<ListedObject>, ServiceError> {
        match self.read_key(CONFIG, limits::CONFIG_BYTES).await {
            Err(error) if error.reason == FailureReason::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
            Ok(_) => {
                let why = "the repository exists, but its listing was not found".to_owned();
                Err(ServiceError::new("list", prefix, FailureReason::Temporary, why))
            }
        }
    }
}

impl Service for SnapServer {
    fn read<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<StoredObject, ServiceError>> {
        Box::pin(self.read_range(key, range))
    }

    fn read_whole<'a>(
        &'a self,
        key: &'a str,
        most: u64,
    ) -> BoxFuture<'a, Result<StoredObject, ServiceError>> {
        Box::pin(self.read_key(key, most))
    }

    fn write<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        when: WriteCondition,
    ) -> BoxFuture<'a, Result<Option<ObjectVersion>, ServiceError>> {
        Box::pin(self.write_key(key, bytes, when))
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
    ) -> BoxFuture<'a, Result<Vec<ListedObject>, ServiceError>> {
        Box::pin(self.list_all(prefix))
    }

    fn length<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>, ServiceError>> {
        Box::pin(async move {
            let length = match key.strip_prefix(OBJECTS) {
                Some(id) => {
                    let request = self.request(Method::HEAD, &format!("packs/{id}"));
                    let answer = self.send(request, Bytes::new(), 0, "stat", key).await;
                    answer.map(|answer| {
                        let length = answer.headers.get(header::CONTENT_LENGTH);
                        length.and_then(|text| text.to_str().ok()?.parse().ok()).unwrap_or(0)
                    })
                }
                None => {
                    let read = self.read_key(key, limits::REMOTE_INDEX_BYTES).await;
                    read.map(|object| object.bytes.len() as u64)
                }
            };
            match length {
                Err(error) if error.reason == FailureReason::NotFound => Ok(None),
                length => length.map(Some),
            }
        })
    }

    fn remove<'a>(&'a self, _key: &'a str) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async { Ok(()) })
    }

    fn conditions(&self) -> ConditionalWrites {
        ConditionalWrites { absent: true, unchanged: true }
    }

    fn must_prove_conditions(&self) -> bool {
        false
    }

    fn write_file<'a>(
        &'a self,
        key: &'a str,
        path: &'a Path,
        length: u64,
    ) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async move {
            let Some(id) = key.strip_prefix(OBJECTS) else { return Err(unknown("write", key)) };
            let request = self.request(Method::PUT, &format!("packs/{id}"));
            let ask = self.send(request, Bytes::new(), limits::REPLY_BYTES, "write", key);
            with_file(path.to_owned(), 0..length, ask).await.map(drop)
        })
    }

    fn resumable_upload(&self, key: &str, length: u64) -> Option<&dyn ResumableUpload> {
        let may = self.resumes.get() != Some(&false);
        (may && key.starts_with(OBJECTS) && length >= RESUMED_BYTES).then_some(self)
    }

    fn must_create_store_first(&self) -> bool {
        true
    }

    fn refuses_conflicting_refs(&self) -> bool {
        true
    }

    fn maintains_index(&self) -> bool {
        true
    }

    fn was_collected(&self) -> bool {
        self.collected.load(Ordering::Relaxed)
    }

    fn list_refs(&self) -> BoxFuture<'_, Result<Option<ListedRefs>, ServiceError>> {
        Box::pin(async {
            match self.json("refs", "list", REFS).await {
                Ok(RefsBody { refs, damaged }) => {
                    let standing = |NamedRefBody { name, commit }| match commit.parse() {
                        Ok(commit) => Ok((name, commit)),
                        Err(_) => Err(ServiceError::new("list", REFS, FailureReason::Other, name)),
                    };
                    let refs = refs.into_iter().map(standing).collect::<Result<_, _>>()?;
                    Ok(Some(ListedRefs { refs, damaged }))
                }
                Err(error) if error.reason == FailureReason::NotFound => {
                    self.or_empty(REFS).await.map(|_| Some(ListedRefs::default()))
                }
                Err(error) => Err(error),
            }
        })
    }

    fn applies_rate_limits(&self) -> bool {
        true
    }

    fn list_some<'a>(
        &'a self,
        _prefix: &'a str,
        _most: usize,
    ) -> BoxFuture<'a, Result<Vec<String>, ServiceError>> {
        // The only objects of a server are repositories.
        Box::pin(async { Ok(Vec::new()) })
    }

    fn stores(&self, _levels: usize) -> BoxFuture<'_, Result<Vec<String>, ServiceError>> {
        Box::pin(async {
            let all = self.base.rfind('/').map_or(&*self.base, |end| &self.base[..end]);
            let request = Request::builder().method(Method::GET).uri(all);
            let request = self.with_token(request);
            let answer = self.send(request, Bytes::new(), limits::REPLY_BYTES, "list", "");
            let RepositoriesBody { repositories } = serde_json::from_slice(&answer.await?.bytes)
                .map_err(|error| {
                    ServiceError::new("list", "", FailureReason::Other, error.to_string())
                })?;
            Ok(repositories.into_iter().map(|repository| repository.name).collect())
        })
    }

    fn max_removals_per_request(&self) -> usize {
        usize::MAX
    }
}

fn unknown(operation: &'static str, key: &str) -> ServiceError {
    ServiceError::new(operation, key, FailureReason::Unsupported, String::new())
}

/// Returns the meaning of a status.
fn reason_of_status(status: StatusCode) -> FailureReason {
    match status {
        StatusCode::NOT_FOUND => FailureReason::NotFound,
        StatusCode::PRECONDITION_FAILED => FailureReason::Conflict,
        StatusCode::UNAUTHORIZED => FailureReason::Unauthenticated,
        StatusCode::FORBIDDEN => FailureReason::Denied,
        StatusCode::INSUFFICIENT_STORAGE | StatusCode::PAYLOAD_TOO_LARGE => FailureReason::Full,
        StatusCode::TOO_MANY_REQUESTS => FailureReason::Busy,
        StatusCode::RANGE_NOT_SATISFIABLE => FailureReason::Short,
        StatusCode::NOT_IMPLEMENTED | StatusCode::METHOD_NOT_ALLOWED => FailureReason::Unsupported,
        StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT | StatusCode::LOCKED => {
            FailureReason::Temporary
        }
        status if status.is_server_error() => FailureReason::Temporary,
        status if status.is_client_error() => FailureReason::Refused,
        _ => FailureReason::Other,
    }
}
