//! A store on a snap server, by the protocol in `docs/protocol.md`.
//!
//! The server verifies what it receives, maintains its index itself, and collects its garbage itself.

use std::{fmt, ops::Range, path::Path, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header, request::Builder};
use opendal::{Buffer, HttpTransport};
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use snap_core::{
    base::{
        id::{CommitId, PackId},
        kind::ErrorKind,
        limits,
        observe::Observer,
    },
    format::{
        outline,
        ref_text::{FIRST_EPOCH, Nonce, RefText},
    },
    repo::ref_name::RefName,
};
use tokio::sync::Semaphore;

use super::{
    CONFIG, HEAD, INDEX, IndexContent, IndexListing, ListedPack, ListedPacks, Mend, NewStore,
    OBJECTS, PackIn, PackToSend, Peer, REFS, RESENT_BYTES, RefMove, RemoteError, Reply, SentPack,
    all_refs::damaged_head,
    bucket::{
        BucketStore,
        index::{GROUP, PART, name_of, outlines, split},
    },
    known::Known,
    slot::{RefSlot, key},
};
use crate::{
    bucket::{
        FailureDetail, FailureReason, ListedObject, ObjectVersion, Requests, ServiceError,
        Transport, UploadProgress,
        call::{SentFile, call},
        service_error,
        traffic::{RequestKind, Traffic},
    },
    wire::{
        headers::SNAP_EPOCH,
        problem::{Code, ProblemBody},
        routes::{ONLY, Route},
        types::{Head, Index, Listed, Move, Packs, Ref, Refs, Repositories},
    },
};

/// Maximum number of packs that are sent at a time. Each takes a few MiB of memory.
const UPLOADS: usize = 24;

/// A pack counts as one of [`UPLOADS`] for each of these bytes. So four packs of 64 MiB are sent at
/// a time. A connection that breaks, or a stop of the push, loses what was sent of these.
const UPLOAD_BYTES: u64 = 12 << 20;

/// Number of extra attempts to read an index file that a server listed but does not have. Servers that
/// share a bucket have files of their own. Behind a load balancer, the next request may reach the
/// server that listed this file.
const OTHER_SERVERS: u32 = 4;

/// A store on a snap server.
#[derive(Debug)]
pub(crate) struct ServerStore {
    requests: Requests,
    http: ServerRequests,
    /// For error messages.
    location: String,
    /// Permits for packs that are being sent.
    uploads: Semaphore,
}

/// The requests of one repository of a snap server, each a single attempt.
struct ServerRequests {
    transport: Transport,
    /// `http://host:7627`
    origin: String,
    /// The name of the repository.
    name: Vec<u8>,
    token: Option<String>,
    /// The epoch of the index that the client has read, as the server wrote it. Before, that of the
    /// first response.
    epoch: Mutex<Option<HeaderValue>>,
}

impl fmt::Debug for ServerRequests {
    /// Omits the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerRequests").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// A successful response.
struct ServerReply {
    headers: HeaderMap,
    bytes: Bytes,
}

impl ServerReply {
    /// Returns the content of the ref if it is at `commit` by its ETag, which proves that a snap server
    /// answered and not a proxy. The ETag of a relay is the commit alone.
    fn ref_at(&self, commit: CommitId) -> Option<RefSlot> {
        let etag = self.headers.get(header::ETAG)?.to_str().ok()?;
        let tag = etag.strip_prefix('"')?.strip_suffix('"')?;
        let text = match tag == commit.to_string() {
            true => RefText { nonce: Nonce::UNKNOWN, ..RefText::new(Some(commit)) },
            false => RefText::from_tag(tag).ok()?,
        };
        let version = ObjectVersion { etag: Some(etag.to_owned()), generation: None };
        // The epoch of a server does not concern its clients.
        let text = RefText { epoch: FIRST_EPOCH, ..text };
        (text.commit == Some(commit)).then(|| RefSlot::on_server(text, version))
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

impl ServerRequests {
    /// Starts a request about the repository. `rest` is the value of the parameter after its name.
    fn request(&self, route: Route, rest: &str) -> Builder {
        self.start(route, &[&self.name, rest.as_bytes()])
    }

    /// Starts a request with these values of the parameters of its path.
    fn start(&self, route: Route, values: &[&[u8]]) -> Builder {
        let uri = format!("{}{}", self.origin, route.url(values));
        let request = Request::builder().method(route.spec().method).uri(uri);
        let epoch = self.epoch.lock().clone().filter(|_| route.spec().access.is_write());
        let request = epoch.into_iter().fold(request, |to, epoch| to.header(SNAP_EPOCH, epoch));
        match &self.token {
            Some(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    }

    /// Remembers the epoch in a response. That of a listing of the index replaces another one,
    /// because the client relies on that index from then on.
    fn learn_epoch(&self, headers: &HeaderMap, is_index: bool) {
        let mut known = self.epoch.lock();
        if let Some(epoch) = headers.get(SNAP_EPOCH)
            && (is_index || known.is_none())
        {
            *known = Some(epoch.clone());
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
        let is_index = request.method() == Method::GET && key == INDEX;
        // Boxed, because each async function around a future holds it twice.
        let attempt = Box::pin(async {
            let response = self.transport.fetch(request).await?;
            let (head, mut body) = response.into_parts();
            Ok((head, body.to_buffer().await?.to_bytes()))
        });
        let (answered, reply) = call(|context| context.at_most(most), attempt).await;
        let (head, bytes) = answered.map_err(|error| {
            let interrupted_at = reply.interrupted_at;
            ServiceError { interrupted_at, ..service_error(operation, key, &error, &reply) }
        })?;
        self.learn_epoch(&head.headers, is_index);
        if head.status.is_success() {
            return Ok(ServerReply { headers: head.headers, bytes });
        }
        let problem: ProblemBody = serde_json::from_slice(&bytes).unwrap_or_default();
        let (reason, detail) = match problem.code {
            // The client fetches a damaged pack or index file again, or from elsewhere.
            Some(Code::Damaged) if key.starts_with(OBJECTS) || key.starts_with(INDEX) => {
                (FailureReason::Temporary, None)
            }
            Some(code) => meaning(code),
            None => (reason_of_status(head.status), None),
        };
        let message = if problem.detail.is_empty() { problem.title } else { problem.detail };
        let error = ServiceError::new(operation, key, reason, message);
        let error = ServiceError { detail, retry_after: reply.retry_after, ..error };
        let etag = head.headers.get(header::ETAG).and_then(|etag| etag.to_str().ok());
        Err(ErrorReply { error, etag: etag.map(str::to_owned) })
    }

    /// Sends a range of a file.
    async fn send_file(
        &self,
        request: Builder,
        (path, range): (&Path, Range<u64>),
        key: &str,
    ) -> Result<ServerReply, ServiceError> {
        let send = self.send(request, Bytes::new(), limits::REPLY_BYTES, "write", key);
        call(|context| context.file = Some(SentFile::new(path, range)), send).await.0
    }

    async fn get(
        &self,
        request: Builder,
        most: u64,
        operation: &'static str,
        key: &str,
    ) -> Result<Bytes, ServiceError> {
        self.send(request, Bytes::new(), most, operation, key).await.map(|answer| answer.bytes)
    }

    async fn json<T: for<'de> Deserialize<'de>>(
        &self,
        request: Builder,
        operation: &'static str,
        key: &str,
    ) -> Result<T, ServiceError> {
        let bytes = self.get(request, limits::REPLY_BYTES, operation, key).await?;
        parsed(&bytes, operation, key)
    }

    async fn read_range(
        &self,
        key: &str,
        id: &str,
        range: Range<u64>,
    ) -> Result<Bytes, ServiceError> {
        let wanted = range.end.saturating_sub(range.start);
        let last = range.end.saturating_sub(1);
        let request = self.request(Route::Pack, id);
        let request = request.header(header::RANGE, format!("bytes={}-{last}", range.start));
        let bytes = self.get(request, wanted, "read", key).await?;
        match bytes.len() as u64 == wanted {
            true => Ok(bytes),
            false => {
                let why = format!("received {} of {wanted} B", bytes.len());
                Err(ServiceError::new("read", key, FailureReason::Short, why))
            }
        }
    }

    async fn read_ref(&self, key: &str, name: &str) -> Result<RefSlot, ServiceError> {
        let request = self.request(Route::Ref, name);
        let asking =
            self.send_keeping_etag(request, Bytes::new(), limits::REPLY_BYTES, "read", key);
        let answer = match asking.await {
            // The server does not send the damaged bytes. The ETag identifies them.
            Err(ErrorReply { error, etag: Some(etag) })
                if error.reason == FailureReason::DamagedThere =>
            {
                return Ok(RefSlot::damaged_on_server(etag));
            }
            answer => answer.map_err(|refusal| refusal.error)?,
        };
        let Ref { commit, .. } = parsed(&answer.bytes, "read", key)?;
        answer.ref_at(commit).ok_or_else(|| {
            let why = "the response has no ETag of a ref; a proxy may have removed it";
            ServiceError::new("read", key, FailureReason::Other, why.to_owned())
        })
    }
}

impl ServerStore {
    /// Creates a peer for `repository` on the server at `origin`, such as `http://host:7627`. An empty
    /// name means the only repository of the server.
    ///
    /// # Errors
    /// A message if TLS cannot be set up.
    pub(crate) fn new(
        (origin, repository): (&str, &str),
        token: Option<String>,
        location: String,
        requests: Requests,
    ) -> Result<Self, String> {
        let name = if repository.is_empty() { ONLY } else { repository };
        let http = ServerRequests {
            transport: Transport::new(Arc::clone(requests.traffic()))?,
            origin: origin.to_owned(),
            // A location may contain bytes that are encoded already.
            name: percent_decode_str(name).collect(),
            token,
            epoch: Mutex::default(),
        };
        Ok(Self { requests, http, location, uploads: Semaphore::new(UPLOADS) })
    }

    /// Reads a body of at most `most` bytes.
    async fn get(
        &self,
        (route, rest): (Route, &str),
        most: u64,
        key: &str,
    ) -> Result<Bytes, ServiceError> {
        let read = || self.http.get(self.http.request(route, rest), most, "read", key);
        self.requests.retry(RequestKind::Get, key, most, read).await
    }

    /// Sends a body that changes something.
    async fn put(
        &self,
        (route, rest): (Route, &str),
        (key, body): (&str, &Bytes),
        prepare: impl Fn(Builder) -> Builder,
    ) -> Result<ServerReply, ServiceError> {
        let write = || {
            let request = prepare(self.http.request(route, rest));
            self.http.send(request, body.clone(), limits::REPLY_BYTES, "write", key)
        };
        self.requests.retry(RequestKind::Put, key, body.len() as u64, write).await
    }

    async fn find_config(&self) -> Result<Option<Bytes>, RemoteError> {
        match self.get((Route::Config, ""), limits::CONFIG_BYTES, CONFIG).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.reason == FailureReason::NotFound => Ok(None),
            Err(error) if error.reason == FailureReason::DamagedThere => {
                let (key, location) = (CONFIG.to_owned(), self.location.clone());
                let why = "the server reports damage".to_owned();
                Err(RemoteError::Damaged { key, location, why })
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn find_head(&self) -> Result<Option<RefName>, RemoteError> {
        let read = || self.http.json(self.http.request(Route::Head, ""), "read", HEAD);
        let head: Head = match self.requests.retry(RequestKind::Get, HEAD, 0, read).await {
            Ok(head) => head,
            Err(error) if error.reason == FailureReason::NotFound => return Ok(None),
            Err(error) if error.reason == FailureReason::DamagedThere => {
                let why = "it is missing, or does not name a branch";
                return Err(damaged_head(&self.location, why));
            }
            Err(error) => return Err(error.into()),
        };
        match RefName::parse_full(&head.head) {
            Some(name) => Ok(Some(name)),
            None => Err(damaged_head(&self.location, "it does not name a branch")),
        }
    }

    async fn create_repository(&self, new: &NewStore) -> Result<Option<Bytes>, RemoteError> {
        let text = Bytes::from(new.config.clone());
        let absent = |request: Builder| request.header(header::IF_NONE_MATCH, "*");
        match self.put((Route::CreateRepository, ""), (CONFIG, &text), absent).await {
            Ok(_) => Ok(Some(text)),
            Err(error) if error.reason == FailureReason::Conflict => self.find_config().await,
            Err(error) => Err(error.into()),
        }
    }

    async fn read_slot(&self, name: &RefName) -> Result<RefSlot, RemoteError> {
        let key = key(name);
        let rest = key.strip_prefix(REFS).unwrap_or_default();
        let read = || self.http.read_ref(&key, rest);
        match self.requests.retry(RequestKind::Get, &key, limits::REPLY_BYTES, read).await {
            Ok(slot) => Ok(slot),
            Err(error) if error.reason == FailureReason::NotFound => {
                Ok(RefSlot::absent_or_deleted())
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn read_slots(&self, names: &[&RefName]) -> Result<Vec<RefSlot>, RemoteError> {
        let reads = names.iter().map(|name| self.read_slot(name));
        futures::future::try_join_all(reads).await
    }

    async fn all_refs(&self) -> Result<Vec<(RefName, RefSlot)>, RemoteError> {
        let listed: Option<Refs> = self.listing(Route::Refs, REFS).await?;
        let Some(Refs { refs, damaged, .. }) = listed else { return Ok(Vec::new()) };
        let standing = refs.into_iter().filter_map(|Ref { name, commit }| {
            Some((RefName::parse_full(&name)?, RefSlot::without_version(commit)))
        });
        let damaged = damaged.iter().filter_map(|name| RefName::parse_full(name));
        let damaged =
            damaged.map(|name| (name, RefSlot::unreadable("the server reports damage".to_owned())));
        let mut all: Vec<_> = standing.chain(damaged).collect();
        all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Ok(all)
    }

    /// Reads a listing; `None` if the repository does not exist. For an existing repository, a listing
    /// is missing only for a moment, so that error is temporary.
    async fn listing<T: for<'de> Deserialize<'de>>(
        &self,
        route: Route,
        prefix: &str,
    ) -> Result<Option<T>, RemoteError> {
        let read = || async {
            let listed = self.http.json(self.http.request(route, ""), "list", prefix).await;
            match listed {
                Err(error) if error.reason == FailureReason::NotFound => {}
                listed => return listed.map(Some),
            }
            let config = self.http.request(Route::Config, "");
            match self.http.get(config, limits::CONFIG_BYTES, "read", CONFIG).await {
                Err(error) if error.reason == FailureReason::NotFound => Ok(None),
                Err(error) => Err(error),
                Ok(_) => {
                    let why = "the repository exists, but its listing was not found".to_owned();
                    Err(ServiceError::new("list", prefix, FailureReason::Temporary, why))
                }
            }
        };
        Ok(self.requests.retry(RequestKind::List, prefix, limits::REPLY_BYTES, read).await?)
    }

    async fn listed_index(&self) -> Result<IndexListing, RemoteError> {
        let listed: Option<Index> = self.listing(Route::Index, INDEX).await?;
        let Some(Index { files, collected }) = listed else { return Ok(IndexListing::default()) };
        let file = |Listed { name, bytes }| {
            let key = format!("{INDEX}{name}");
            ListedObject { key, bytes, modified_secs: None }
        };
        let files = files.into_iter().map(file).collect();
        Ok(IndexListing { files, was_collected: collected })
    }

    async fn listed_packs(&self) -> Result<ListedPacks, RemoteError> {
        let listed: Option<Packs> = self.listing(Route::Packs, OBJECTS).await?;
        let packs = listed.map_or_else(Vec::new, |listed| listed.packs);
        let packs = packs.into_iter().filter_map(|Listed { name, bytes }| {
            Some(ListedPack { id: name.parse().ok()?, bytes, modified_secs: None })
        });
        Ok(ListedPacks { packs: packs.collect(), place: "-".to_owned() })
    }

    async fn index_file(&self, name: &str, most: u64) -> Result<Bytes, ServiceError> {
        let key = format!("{INDEX}{name}");
        let mut read = self.get((Route::IndexFile, name), most, &key).await;
        for _ in 0..OTHER_SERVERS {
            match &read {
                Err(error) if error.reason == FailureReason::NotFound => {}
                _ => break,
            }
            read = self.get((Route::IndexFile, name), most, &key).await;
        }
        read
    }

    async fn swap_ref(
        &self,
        RefMove { name, expected, new }: RefMove<'_>,
    ) -> Result<(), RemoteError> {
        if !expected.is_writable() {
            let (key, location) = (key(name), self.location.clone());
            return Err(RemoteError::Newer { key, location });
        }
        let key = key(name);
        let rest = key.strip_prefix(REFS).unwrap_or_default();
        let (route, body) = match new {
            Some(commit) => {
                let body = serde_json::to_vec(&Move { commit }).unwrap_or_default();
                (Route::MoveRef, Bytes::from(body))
            }
            None => (Route::DeleteRef, Bytes::new()),
        };
        let etag = expected.version().and_then(|version| version.etag.clone());
        let when = |request: Builder| {
            let request = match new {
                Some(_) => request.header(header::CONTENT_TYPE, "application/json"),
                None => request,
            };
            match &etag {
                Some(etag) => request.header(header::IF_MATCH, etag),
                None => request.header(header::IF_NONE_MATCH, "*"),
            }
        };
        // The server writes nonces of its own, so the new commit shows that the ref has moved.
        let is_result = |now: &RefSlot| now.commit == new && !now.is_damaged();
        let is_told = match self.put((route, rest), (&key, &body), when).await {
            Ok(reply) if new.is_some_and(|commit| reply.ref_at(commit).is_some()) => return Ok(()),
            // A proxy may answer with 200 in place of the server.
            Ok(_) => true,
            Err(error) if error.reason == FailureReason::Conflict => false,
            // All responses were lost, late, or from a relay that does not know the outcome. Only
            // the ref itself shows whether it has moved.
            Err(error) if error.reason.is_temporary() || error.reason == FailureReason::Other => {
                return match self.read_slot(name).await {
                    Ok(now) if is_result(&now) && !now.is_same(expected) => Ok(()),
                    _ => Err(error.into()),
                };
            }
            Err(error) => return Err(error.into()),
        };
        let now = self.read_slot(name).await?;
        match (is_result(&now), is_told && now.is_same(expected)) {
            (true, _) => Ok(()),
            (false, true) => Err(RemoteError::unconfirmed_write(&key, &self.location)),
            (false, false) => {
                let (name, location) = (Box::new(name.clone()), self.location.clone());
                Err(RemoteError::Raced { name, location, theirs: now.commit })
            }
        }
    }

    async fn publish_packs(
        &self,
        known: &Known,
        packs: Vec<PackIn<'_>>,
    ) -> Result<Option<String>, RemoteError> {
        let (files, _) = split(packs, known.index_file_bytes)?;
        let is_group = files.len() > 1;
        let (mut names, mut name) = (Vec::with_capacity(files.len()), None);
        for file in &files {
            let bytes = Bytes::from(outline::encode(FIRST_EPOCH, &outlines(file)?));
            let (hash, ending) = (name_of(&bytes), if is_group { PART } else { "" });
            self.put_index(&format!("{hash}{ending}"), &bytes).await?;
            names.extend(hash.parse::<outline::Name>());
            name = Some(hash);
        }
        if is_group {
            let bytes = Bytes::from(outline::encode_group(FIRST_EPOCH, &names));
            let group = format!("{}{GROUP}", name_of(&bytes));
            self.put_index(&group, &bytes).await?;
            name = Some(group);
        }
        if let Some(name) = &name {
            known.mirror.add(name, FIRST_EPOCH, files.iter().map(|file| outlines(file)))?;
        }
        known.mirror.forget_sending();
        Ok(name.map(|name| format!("{INDEX}{name}")))
    }

    async fn put_index(&self, name: &str, bytes: &Bytes) -> Result<(), ServiceError> {
        let key = format!("{INDEX}{name}");
        self.put((Route::Publish, name), (&key, bytes), |request| request).await.map(drop)
    }

    async fn send_pack(
        &self,
        pack: PackToSend<'_>,
        progress: &UploadProgress,
    ) -> Result<(), ServiceError> {
        let (id, key) = (pack.id.to_string(), format!("{OBJECTS}{}", pack.id));
        let permits = (pack.bytes / UPLOAD_BYTES + 1).min(UPLOADS as u64) as u32;
        let _permits = self.uploads.acquire_many(permits).await.expect("never closed");
        let send = async || {
            self.requests.check_not_stopped(&key, progress)?;
            let request = self.http.request(Route::SendPack, &id);
            match self.http.send_file(request, (pack.path, 0..pack.bytes), &key).await {
                // The caller may prefer to send smaller packs.
                Err(error)
                    if pack.bytes > RESENT_BYTES
                        && error
                            .interrupted_at
                            .is_some_and(|sent| u64::from(sent.get()) > RESENT_BYTES / 2) =>
                {
                    Ok(Err(self.requests.at_location(error)))
                }
                sent => Ok(Ok(sent?)),
            }
        };
        self.requests.retry(RequestKind::Put, &key, pack.bytes, send).await??;
        progress.advance(pack.bytes);
        Ok(())
    }
}

impl Peer for ServerStore {
    fn config(&self) -> Reply<'_, Option<Bytes>> {
        Box::pin(self.find_config())
    }

    fn inspect(&self) -> Reply<'_, Option<Bytes>> {
        Box::pin(self.find_config())
    }

    fn create<'a>(&'a self, new: &'a NewStore, send: Reply<'a, ()>) -> Reply<'a, Option<Bytes>> {
        Box::pin(async move {
            let created = self.create_repository(new).await?;
            send.await?;
            Ok(created)
        })
    }

    fn head(&self) -> Reply<'_, Option<RefName>> {
        Box::pin(self.find_head())
    }

    fn slots<'a>(&'a self, names: &'a [&'a RefName]) -> Reply<'a, Vec<RefSlot>> {
        Box::pin(self.read_slots(names))
    }

    fn refs(&self) -> Reply<'_, Vec<(RefName, RefSlot)>> {
        Box::pin(self.all_refs())
    }

    fn swap<'a>(
        &'a self,
        _known: &'a Known,
        one: RefMove<'a>,
        _observer: &'a dyn Observer,
    ) -> Reply<'a, ()> {
        Box::pin(self.swap_ref(one))
    }

    fn list_index(&self) -> Reply<'_, IndexListing> {
        Box::pin(self.listed_index())
    }

    fn read_index<'a>(
        &'a self,
        name: &'a str,
        most: u64,
    ) -> BoxFuture<'a, Result<IndexContent, ServiceError>> {
        Box::pin(async move { Ok(IndexContent::File(self.index_file(name, most).await?)) })
    }

    fn index_file_bytes<'a>(&'a self, name: &'a str) -> Reply<'a, Option<u64>> {
        Box::pin(async move {
            let key = format!("{INDEX}{name}");
            let most = limits::REMOTE_INDEX_BYTES;
            match self.get((Route::IndexFile, name), most, &key).await {
                Err(error) if error.reason == FailureReason::NotFound => Ok(None),
                read => Ok(Some(read?.len() as u64)),
            }
        })
    }

    fn packs(&self) -> Reply<'_, ListedPacks> {
        Box::pin(self.listed_packs())
    }

    fn pack_bytes(&self, pack: PackId) -> Reply<'_, Option<u64>> {
        Box::pin(async move {
            let (key, id) = (format!("{OBJECTS}{pack}"), pack.to_string());
            let find = || {
                let request = self.http.request(Route::PackLength, &id);
                self.http.send(request, Bytes::new(), 0, "stat", &key)
            };
            match self.requests.retry(RequestKind::Head, &key, 0, find).await {
                Ok(answer) => {
                    let length = answer.headers.get(header::CONTENT_LENGTH);
                    Ok(Some(length.and_then(|text| text.to_str().ok()?.parse().ok()).unwrap_or(0)))
                }
                Err(error) if error.reason == FailureReason::NotFound => Ok(None),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn read(&self, pack: PackId, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ServiceError>> {
        Box::pin(async move {
            let (key, id) = (format!("{OBJECTS}{pack}"), pack.to_string());
            let read = || self.http.read_range(&key, &id, range.clone());
            self.requests
                .retry(RequestKind::Get, &key, range.end.saturating_sub(range.start), read)
                .await
        })
    }

    fn send<'a>(
        &'a self,
        pack: PackToSend<'a>,
        progress: &'a UploadProgress,
    ) -> BoxFuture<'a, Result<SentPack, ServiceError>> {
        Box::pin(async move {
            self.send_pack(pack, progress).await?;
            Ok(SentPack::Checked)
        })
    }

    fn publish<'a>(
        &'a self,
        known: &'a Known,
        packs: Vec<PackIn<'a>>,
    ) -> Reply<'a, Option<String>> {
        Box::pin(self.publish_packs(known, packs))
    }

    fn mend<'a>(&'a self, _known: &'a Known, what: Mend<'a>) -> Reply<'a, Vec<String>> {
        Box::pin(async move {
            let (route, key, body) = match what {
                Mend::Settings(config) => {
                    (Route::MendConfig, CONFIG, Bytes::from(config.to_owned()))
                }
                Mend::Head { .. } => match self.find_head().await {
                    // The server knows the previous value of `HEAD`.
                    Ok(None) => (Route::MendHead, HEAD, Bytes::new()),
                    Err(error) if error.kind() == ErrorKind::Damaged => {
                        (Route::MendHead, HEAD, Bytes::new())
                    }
                    head => return head.map(|_| Vec::new()),
                },
                Mend::Index | Mend::Collection => return Ok(Vec::new()),
            };
            self.put((route, ""), (key, &body), |request| request).await?;
            Ok(vec![key.to_owned()])
        })
    }

    fn collectable(self: Arc<Self>) -> Result<Arc<BucketStore>, RemoteError> {
        Err(RemoteError::CollectServer { location: self.location.clone() })
    }

    fn stores(&self, _levels: usize) -> Reply<'_, Vec<String>> {
        Box::pin(async {
            let read = || {
                let request = self.http.start(Route::Repositories, &[]);
                self.http.json(request, "list", "")
            };
            let all: Repositories = self.requests.retry(RequestKind::List, "", 0, read).await?;
            Ok(all.repositories.into_iter().map(|repository| repository.name).collect())
        })
    }

    fn traffic(&self) -> &Arc<Traffic> {
        self.requests.traffic()
    }
}

/// Parses a response.
fn parsed<T: for<'de> Deserialize<'de>>(
    bytes: &[u8],
    operation: &'static str,
    key: &str,
) -> Result<T, ServiceError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ServiceError::new(operation, key, FailureReason::Other, error.to_string()))
}

/// Returns the meaning of a code.
fn meaning(code: Code) -> (FailureReason, Option<FailureDetail>) {
    let reason = match code {
        Code::AppendOnly => return (FailureReason::Denied, Some(FailureDetail::AppendOnly)),
        Code::NameConflict => return (FailureReason::Refused, Some(FailureDetail::NameConflict)),
        Code::NameReserved => return (FailureReason::Refused, Some(FailureDetail::NameReserved)),
        Code::Invalid | Code::NoCondition | Code::Rejected | Code::TooLarge => {
            FailureReason::Refused
        }
        Code::Unauthorized => FailureReason::Unauthenticated,
        Code::Forbidden => FailureReason::Denied,
        Code::SlowDown => FailureReason::Busy,
        Code::NoRoute | Code::NoMethod => FailureReason::Unsupported,
        Code::NoRepository | Code::NotFound => FailureReason::NotFound,
        Code::Conflict => FailureReason::Conflict,
        Code::Unavailable => FailureReason::Temporary,
        Code::Full => FailureReason::Full,
        Code::Range => FailureReason::Short,
        Code::Damaged => FailureReason::DamagedThere,
    };
    (reason, None)
}

/// Returns the meaning of the status of a response without a code, which a proxy may have sent.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::client::RequestPolicy;

    #[test]
    fn each_code_has_the_documented_meaning() {
        let text = include_str!("../../../../docs/protocol.md");
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        let codes = Code::all();
        assert_eq!(codes.len(), 19);
        for code in codes {
            let name = serde_json::to_string(&code).unwrap().replace('"', "`");
            let status = code.status();
            let row = rows.clone().find(|row| row.contains(&name) && row.contains(status.as_str()));
            assert!(row.is_some(), "docs/protocol.md lacks {name} with {status}");
            let ((reason, detail), of_status) = (meaning(code), reason_of_status(status));
            // The same error in a response without a code is no less clear, except for these.
            let is_clearer = match code {
                Code::NoRoute | Code::TooLarge | Code::Damaged => reason != of_status,
                _ => reason == of_status,
            };
            assert!(is_clearer, "{name}: {reason:?}, {of_status:?}");
            let has_detail =
                matches!(code, Code::AppendOnly | Code::NameConflict | Code::NameReserved);
            assert_eq!(detail.is_some(), has_detail, "{name}");
            assert_eq!(reason.is_temporary(), matches!(status.as_u16(), 429 | 503));
        }
    }

    #[tokio::test]
    async fn a_writer_relies_on_the_first_epoch_until_it_reads_the_index() {
        let requests = Requests::new(RequestPolicy::default(), usize::MAX, Arc::default());
        let location = "http://host/a".to_owned();
        let server = ServerStore::new(("http://host", "a"), None, location, requests).unwrap();
        let server = server.http;
        let sent = |route| {
            let request = server.request(route, "x").body(()).unwrap();
            request.headers().get(SNAP_EPOCH).cloned()
        };
        let heard = |epoch: &'static str, is_index| {
            let epoch = HeaderValue::from_static(epoch);
            server.learn_epoch(&HeaderMap::from_iter([(SNAP_EPOCH, epoch)]), is_index);
        };
        assert_eq!(sent(Route::SendPack), None);
        heard("0-a", false);
        heard("1-b", false);
        server.learn_epoch(&HeaderMap::new(), true);
        assert_eq!(sent(Route::SendPack).unwrap(), "0-a");
        heard("1-b", true);
        assert_eq!(sent(Route::MoveRef).unwrap(), "1-b");
        assert_eq!(sent(Route::Pack), None, "a read relies on nothing");
    }
}
