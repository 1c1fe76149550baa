//! A snap server as a service: what other services have as objects under keys
//! it has as resources of its protocol (`docs/protocol.md`).
//!
//! | key | resource |
//! |---|---|
//! | `config.toml` | `config`; written, the repository itself |
//! | `HEAD` | `head` |
//! | `refs/…` | `refs/…`, whose ETag names commit, epoch and nonce |
//! | `objects/ID` | `packs/ID`: checked there before it is kept; written, `uploads/ID` for a long one |
//! | `index/NAME` | `index/NAME`: written, its packs count from then on |
//!
//! The server sees to its index itself, so removing files of it does nothing.

mod resumed;

use std::{fmt, ops::Range, path::Path, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, Method, Request, StatusCode, header, request::Builder};
use opendal::{Buffer, HttpTransport};
use serde::Deserialize;
use snap_core::{
    base::{id::CommitId, limits},
    format::ref_text::RefText,
};

use tokio::sync::OnceCell;

use super::{
    Conditions, Listed, Object, Resume, Service, ServiceError, Standings, Version, What, When,
    keys::{CONFIG, HEAD, INDEX, OBJECTS, REFS},
    refusal::told,
    traffic::Traffic,
    transport::{Reply, Transport, at_most, with_file},
};

/// What a repository is called that a server has as its only one.
pub const ONLY: &str = "default";

/// What stands before the name of a repository.
const REPOSITORIES: &str = "/repos/";

/// Packs that are shorter go in one request: to begin anew costs little.
const RESUMED_BYTES: u64 = 4 << 20;

/// How a repository elsewhere is asked.
pub struct SnapServer {
    transport: Transport,
    /// `http://host/v1/repos/NAME`
    base: String,
    token: Option<String>,
    /// Whether packs go on where they broke off, once that was asked.
    resumes: OnceCell<bool>,
}

impl fmt::Debug for SnapServer {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapServer").field("base", &self.base).finish_non_exhaustive()
    }
}

/// What was answered.
struct Answer {
    headers: HeaderMap,
    bytes: Bytes,
}

impl Answer {
    /// Its ETag, if that is one of a ref that stands at this commit: the sign that
    /// a snap server speaks, and nothing between here and there.
    fn etag_of(&self, commit: CommitId) -> Option<String> {
        let etag = self.headers.get(header::ETAG)?.to_str().ok()?;
        let tag = etag.strip_prefix('"')?.strip_suffix('"')?;
        let is_it = RefText::from_tag(tag).is_ok_and(|text| text.commit == Some(commit));
        is_it.then(|| etag.to_owned())
    }
}

/// What is asked, for errors: the operation and the key.
type Asked<'a> = (&'static str, &'a str);

#[derive(Deserialize)]
struct HeadJson {
    head: String,
}

#[derive(Deserialize)]
struct RefJson {
    commit: String,
}

#[derive(Deserialize)]
struct RefsJson {
    refs: Vec<NamedJson>,
}

#[derive(Deserialize)]
struct NamedJson {
    name: String,
    commit: String,
}

#[derive(Deserialize)]
struct StoresJson {
    repositories: Vec<StoreJson>,
}

#[derive(Deserialize)]
struct StoreJson {
    name: String,
}

#[derive(Deserialize)]
struct FilesJson {
    #[serde(alias = "packs")]
    files: Vec<FileJson>,
}

#[derive(Deserialize)]
struct FileJson {
    name: String,
    bytes: u64,
}

/// What a refusal says.
#[derive(Default, Deserialize)]
struct ProblemJson {
    #[serde(default)]
    title: String,
    #[serde(default)]
    detail: String,
}

impl SnapServer {
    /// The repository called `repository` of the server at `origin`, such as
    /// `http://host:7627`; the only one there if the name is empty.
    ///
    /// # Errors
    /// When TLS cannot be set up, in words.
    pub fn new(
        origin: &str,
        repository: &str,
        token: Option<String>,
        traffic: Arc<Traffic>,
    ) -> Result<Self, String> {
        let name = if repository.is_empty() { ONLY } else { repository };
        let base = format!("{origin}/v1{REPOSITORIES}{}", name.replace('/', "%2F"));
        Ok(Self { transport: Transport::new(traffic)?, base, token, resumes: OnceCell::new() })
    }

    fn request(&self, method: Method, path: &str) -> Builder {
        let separator = if path.is_empty() { "" } else { "/" };
        let request = Request::builder().method(method);
        let request = request.uri(format!("{}{separator}{path}", self.base));
        self.named(request)
    }

    /// The same, with who asks.
    fn named(&self, request: Builder) -> Builder {
        match &self.token {
            Some(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    }

    /// Sends a request, of whose answer at most `most` bytes are read, and takes
    /// a refusal apart.
    async fn ask(
        &self,
        (request, body): (Builder, Bytes),
        most: u64,
        asked: Asked<'_>,
    ) -> Result<Answer, ServiceError> {
        let (operation, key) = asked;
        let request = request
            .body(Buffer::from(body))
            .map_err(|error| ServiceError::new(operation, key, What::Other, error.to_string()))?;
        let attempt = async {
            let response = self.transport.fetch(request).await?;
            let (head, mut body) = response.into_parts();
            Ok((head, body.to_buffer().await?.to_bytes()))
        };
        let (answered, reply) = Reply::of(at_most(most, attempt)).await;
        let (head, bytes) = answered.map_err(|error| told(operation, key, &error, reply))?;
        if head.status.is_success() {
            return Ok(Answer { headers: head.headers, bytes });
        }
        let said: ProblemJson = serde_json::from_slice(&bytes).unwrap_or_default();
        let message = if said.detail.is_empty() { said.title } else { said.detail };
        let error = ServiceError::new(operation, key, what(head.status), message);
        Err(ServiceError { retry_after: reply.retry_after, ..error })
    }

    async fn get(&self, path: &str, most: u64, asked: Asked<'_>) -> Result<Bytes, ServiceError> {
        let request = (self.request(Method::GET, path), Bytes::new());
        self.ask(request, most, asked).await.map(|answer| answer.bytes)
    }

    async fn json<T: for<'de> Deserialize<'de>>(
        &self,
        path: &str,
        asked: Asked<'_>,
    ) -> Result<T, ServiceError> {
        let bytes = self.get(path, limits::REPLY_BYTES, asked).await?;
        let (operation, key) = asked;
        serde_json::from_slice(&bytes)
            .map_err(|error| ServiceError::new(operation, key, What::Other, error.to_string()))
    }

    async fn read_range(&self, key: &str, range: Range<u64>) -> Result<Object, ServiceError> {
        let Some(id) = key.strip_prefix(OBJECTS) else { return Err(unknown("read", key)) };
        let wanted = range.end.saturating_sub(range.start);
        let last = range.end.saturating_sub(1);
        let request = self.request(Method::GET, &format!("packs/{id}"));
        let request = request.header(header::RANGE, format!("bytes={}-{last}", range.start));
        let answer = self.ask((request, Bytes::new()), wanted, ("read", key)).await?;
        if answer.bytes.len() as u64 != wanted {
            let why = format!("{} of {wanted} B came", answer.bytes.len());
            return Err(ServiceError::new("read", key, What::Short, why));
        }
        Ok(Object { bytes: answer.bytes, version: None })
    }

    async fn read_key(&self, key: &str, most: u64) -> Result<Object, ServiceError> {
        let asked = ("read", key);
        let plain = |bytes: Bytes| Object { bytes, version: None };
        if key == CONFIG {
            return self.get("config", most, asked).await.map(plain);
        }
        if key == HEAD {
            let HeadJson { head } = self.json("head", asked).await?;
            return Ok(plain(format!("ref: {head}\n").into()));
        }
        if key.starts_with(REFS) {
            let request = (self.request(Method::GET, key), Bytes::new());
            let answer = self.ask(request, limits::REPLY_BYTES, asked).await?;
            let RefJson { commit } = serde_json::from_slice(&answer.bytes)
                .map_err(|error| ServiceError::new("read", key, What::Other, error.to_string()))?;
            let id = commit
                .parse()
                .map_err(|_| ServiceError::new("read", key, What::Other, commit.clone()))?;
            let etag = answer.etag_of(id).unwrap_or_else(|| format!("\"{commit}\""));
            let version = Some(Version { etag: Some(etag), generation: None });
            return Ok(Object { bytes: format!("{commit}\n").into(), version });
        }
        match (key.strip_prefix(OBJECTS), key.starts_with(INDEX)) {
            (Some(id), _) => self.get(&format!("packs/{id}"), most, asked).await.map(plain),
            (None, true) => self.get(key, most, asked).await.map(plain),
            (None, false) => Err(ServiceError::new("read", key, What::NotFound, String::new())),
        }
    }

    async fn write_key(
        &self,
        key: &str,
        bytes: Bytes,
        when: When,
    ) -> Result<Option<Version>, ServiceError> {
        let put = |path: &str| self.request(Method::PUT, path);
        let is_ref = key.starts_with(REFS);
        let moved_to = is_ref.then(|| RefText::decode(&bytes).ok()?.commit).flatten();
        let (request, body) = if key == CONFIG {
            (put(""), bytes)
        } else if key == HEAD {
            // The server knows a first branch by itself.
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
            When::Always => request,
            When::Absent => request.header(header::IF_NONE_MATCH, "*"),
            When::Unchanged(Version { etag, .. }) => {
                request.header(header::IF_MATCH, etag.unwrap_or_default())
            }
        };
        let answer = self.ask((request, body), limits::REPLY_BYTES, ("write", key)).await?;
        let etag = moved_to.and_then(|id| answer.etag_of(id));
        Ok(etag.map(|etag| Version { etag: Some(etag), generation: None }))
    }

    /// A ref's text says where it is to stand, and who says so, which the server
    /// does not keep.
    fn move_ref(&self, key: &str, text: &[u8]) -> Result<(Builder, Bytes), ServiceError> {
        let text = RefText::decode(text).map_err(|_| unknown("write", key))?;
        let Some(commit) = text.commit else {
            return Ok((self.request(Method::DELETE, key), Bytes::new()));
        };
        let body = serde_json::json!({ "commit": commit.to_string() }).to_string();
        let request = self.request(Method::PUT, key);
        Ok((request.header(header::CONTENT_TYPE, "application/json"), body.into()))
    }

    async fn list_all(&self, prefix: &str) -> Result<Vec<Listed>, ServiceError> {
        let of = |FilesJson { files }: FilesJson| {
            let listed =
                |FileJson { name, bytes }| Listed { key: format!("{prefix}{name}"), bytes };
            files.into_iter().map(listed).collect()
        };
        let listed = match prefix {
            INDEX => self.json("index", ("list", prefix)).await.map(of),
            OBJECTS => self.json("packs", ("list", prefix)).await.map(of),
            REFS => self.json("refs", ("list", prefix)).await.map(|RefsJson { refs }| {
                let listed = |NamedJson { name, .. }| Listed { key: name, bytes: 0 };
                refs.into_iter().map(listed).collect()
            }),
            _ => Ok(Vec::new()),
        };
        match listed {
            Err(error) if error.what == What::NotFound => self.nothing(prefix).await,
            listed => listed,
        }
    }

    /// Nothing is listed of a repository that is not there. One that is there
    /// lists what it has: then it was not seen for a moment.
    async fn nothing(&self, prefix: &str) -> Result<Vec<Listed>, ServiceError> {
        match self.read_key(CONFIG, limits::CONFIG_BYTES).await {
            Err(error) if error.what == What::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
            Ok(_) => {
                let why = "it is there, and is not".to_owned();
                Err(ServiceError::new("list", prefix, What::Temporary, why))
            }
        }
    }
}

impl Service for SnapServer {
    fn read<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Object, ServiceError>> {
        Box::pin(self.read_range(key, range))
    }

    fn read_whole<'a>(
        &'a self,
        key: &'a str,
        most: u64,
    ) -> BoxFuture<'a, Result<Object, ServiceError>> {
        Box::pin(self.read_key(key, most))
    }

    fn write<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        when: When,
    ) -> BoxFuture<'a, Result<Option<Version>, ServiceError>> {
        Box::pin(self.write_key(key, bytes, when))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<Listed>, ServiceError>> {
        Box::pin(self.list_all(prefix))
    }

    fn length<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>, ServiceError>> {
        Box::pin(async move {
            let length = match key.strip_prefix(OBJECTS) {
                Some(id) => {
                    let request = self.request(Method::HEAD, &format!("packs/{id}"));
                    let answer = self.ask((request, Bytes::new()), 0, ("stat", key)).await;
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
                Err(error) if error.what == What::NotFound => Ok(None),
                length => length.map(Some),
            }
        })
    }

    fn remove<'a>(&'a self, _key: &'a str) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async { Ok(()) })
    }

    fn conditions(&self) -> Conditions {
        Conditions { absent: true, unchanged: true }
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
            let request = (self.request(Method::PUT, &format!("packs/{id}")), Bytes::new());
            let ask = self.ask(request, limits::REPLY_BYTES, ("write", key));
            with_file((path.to_owned(), 0..length), ask).await.map(drop)
        })
    }

    fn resuming(&self, key: &str, length: u64) -> Option<&dyn Resume> {
        let may = self.resumes.get() != Some(&false);
        (may && key.starts_with(OBJECTS) && length >= RESUMED_BYTES).then_some(self)
    }

    fn is_made_first(&self) -> bool {
        true
    }

    fn keeps_names_apart(&self) -> bool {
        true
    }

    fn keeps_index(&self) -> bool {
        true
    }

    fn standings(&self) -> BoxFuture<'_, Result<Option<Standings>, ServiceError>> {
        Box::pin(async {
            match self.json("refs", ("list", REFS)).await {
                Ok(RefsJson { refs }) => {
                    let standing = |NamedJson { name, commit }| match commit.parse() {
                        Ok(commit) => Ok((name, commit)),
                        Err(_) => Err(ServiceError::new("list", REFS, What::Other, name)),
                    };
                    refs.into_iter().map(standing).collect::<Result<_, _>>().map(Some)
                }
                Err(error) if error.what == What::NotFound => {
                    self.nothing(REFS).await.map(|_| Some(Vec::new()))
                }
                Err(error) => Err(error),
            }
        })
    }

    fn keeps_pace(&self) -> bool {
        true
    }

    fn peek<'a>(
        &'a self,
        _prefix: &'a str,
        _most: usize,
    ) -> BoxFuture<'a, Result<Vec<String>, ServiceError>> {
        // A server has nothing but repositories.
        Box::pin(async { Ok(Vec::new()) })
    }

    fn stores(&self, _levels: usize) -> BoxFuture<'_, Result<Vec<String>, ServiceError>> {
        Box::pin(async {
            let asked = ("list", "");
            let all = self.base.rfind('/').map_or(&*self.base, |end| &self.base[..end]);
            let request = Request::builder().method(Method::GET).uri(all);
            let answer = self.ask((self.named(request), Bytes::new()), limits::REPLY_BYTES, asked);
            let StoresJson { repositories } = serde_json::from_slice(&answer.await?.bytes)
                .map_err(|error| ServiceError::new("list", "", What::Other, error.to_string()))?;
            Ok(repositories.into_iter().map(|repository| repository.name).collect())
        })
    }

    fn removed_at_once(&self) -> usize {
        usize::MAX
    }
}

fn unknown(operation: &'static str, key: &str) -> ServiceError {
    ServiceError::new(operation, key, What::Unsupported, String::new())
}

/// What a status means.
fn what(status: StatusCode) -> What {
    match status {
        StatusCode::NOT_FOUND => What::NotFound,
        StatusCode::PRECONDITION_FAILED => What::Conflict,
        StatusCode::UNAUTHORIZED => What::Unauthenticated,
        StatusCode::FORBIDDEN => What::Denied,
        StatusCode::INSUFFICIENT_STORAGE | StatusCode::PAYLOAD_TOO_LARGE => What::Full,
        StatusCode::TOO_MANY_REQUESTS => What::Busy,
        StatusCode::RANGE_NOT_SATISFIABLE => What::Short,
        StatusCode::NOT_IMPLEMENTED | StatusCode::METHOD_NOT_ALLOWED => What::Unsupported,
        StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT | StatusCode::LOCKED => What::Temporary,
        status if status.is_server_error() => What::Temporary,
        status if status.is_client_error() => What::Refused,
        _ => What::Other,
    }
}
