//! A local store with files to commit, and services to push to.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};
use std::{ops::Range, slice::from_ref, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;
use opendal::{Operator, services};
use parking_lot::Mutex;
use snap_core::{
    base::{id::CommitId, observe::Silent},
    disk::Disk,
    ops::{
        commit::{self, CommitOptions as Commit, CommitSource},
        reach,
    },
    repo::{Config, RefLogMessage, RefName, Repo},
    store::{Marks, ObjectLocation as At},
};
use snap_nettest::S3Server;
use snap_remote::{
    bucket::{
        Attempt, Body, Bucket, BucketFacts, CancellationToken, FailureReason, ListDepth,
        ListedObject, ObjectVersion, ServiceError, StoredObject, WriteCondition,
        client::{Client, RequestPolicy},
        opendal::OpendalBucket,
        traffic::Traffic,
        transport::Transport,
    },
    peer::{
        Peer, RefMove, RemoteError, RemoteStore,
        open::{Opening, RemoteCredentials},
        slot::RefSlot,
    },
    transfer::{partial::PartialScope, pull, push},
};
use tokio::runtime::Runtime;

pub(crate) fn branch(name: &str) -> RefName {
    RefName::branch(name).unwrap()
}

/// A policy whose retries take almost no time.
pub(crate) fn hasty() -> RequestPolicy {
    let pause = Duration::from_millis(1);
    RequestPolicy { pause, longest_pause: pause, attempts: 4, ..RequestPolicy::default() }
}

/// Calls `open` with what opening a place needs.
pub(crate) fn opening<T>(
    location: &str,
    options: &[(&str, &str)],
    secrets: &RemoteCredentials,
    open: impl FnOnce(&Opening<'_>) -> T,
) -> T {
    let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let (location, options) = (location.parse().unwrap(), options.collect());
    let traffic = Arc::default();
    open(&Opening { policy: hasty(), ..Opening::new(&location, &options, secrets, &traffic) })
}

/// Opens the bucket, share or folder at a location.
pub(crate) fn service_at(location: &str) -> Arc<dyn Bucket> {
    opening(location, &[], &RemoteCredentials::default(), |opening| opening.bucket().unwrap())
}

/// Moves a ref by compare-and-swap.
pub(crate) async fn swap(
    remote: &RemoteStore,
    name: &RefName,
    expected: &RefSlot,
    new: Option<CommitId>,
) -> Result<(), RemoteError> {
    remote.swap(RefMove { name, expected, new }, &Silent).await
}

/// Pseudo-random numbers from a seed (SplitMix64).
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.below(u64::MAX).to_be_bytes());
        words.flatten().take(count).collect()
    }
}

/// A local store with a folder to commit.
pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) repo: Repo,
    pub(crate) runtime: Runtime,
    branch: RefName,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::with_config(&Config::default())
    }

    pub(crate) fn with_config(config: &Config) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        fs_err::create_dir(folder.path().join("files")).unwrap();
        Repo::init(&store, &Disk::default(), config).unwrap();
        let repo = Repo::open(&store, Disk::default(), &Silent).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        Self { folder, repo, runtime, branch: branch("main") }
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.folder.path().join("files").join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, bytes).unwrap();
    }

    pub(crate) fn commit(&self) -> CommitId {
        let source = CommitSource::Folder(self.folder.path().join("files"));
        // With one thread, each object has the same place in the pack in every run.
        let (author, host, jobs) = ("ada".into(), "laptop".into(), Some(1));
        let options = Commit { author, host, jobs, ..Commit::default() };
        commit::run(&self.repo, source, &options, &Silent).unwrap().id.unwrap()
    }

    /// Writes a file and commits.
    pub(crate) fn change(&self, name: &str, bytes: impl AsRef<[u8]>) -> CommitId {
        self.write(name, bytes);
        self.commit()
    }

    /// Opens a remote store with its mirror in `cache`.
    pub(crate) fn remote(&self, service: Arc<dyn Bucket>, cache: &str) -> RemoteStore {
        self.remote_counting(service, cache, Arc::default())
    }

    pub(crate) fn remote_counting(
        &self,
        service: Arc<dyn Bucket>,
        cache: &str,
        traffic: Arc<Traffic>,
    ) -> RemoteStore {
        let client = Client::new(service, hasty(), traffic);
        let cache = self.folder.path().join("store/cache").join(cache);
        RemoteStore::new(client, "test://place".to_owned(), &cache).unwrap()
    }

    pub(crate) fn remote_of(&self, peer: Arc<dyn Peer>, cache: &str) -> RemoteStore {
        let cache = self.folder.path().join("store/cache").join(cache);
        snap_remote::peer::Place::new(peer, "test://place".to_owned()).into_store(&cache).unwrap()
    }

    /// A client like that of [`Self::remote`].
    pub(crate) fn client(service: Arc<dyn Bucket>) -> Client {
        Client::new(service, hasty(), Arc::default()).with_location("test://place")
    }

    /// As [`Self::remote`], with a stop flag.
    pub(crate) fn remote_until(
        &self,
        service: Arc<dyn Bucket>,
        cache: &str,
        stop: CancellationToken,
    ) -> RemoteStore {
        let client = Client::new(service, hasty(), Arc::default()).with_cancellation(stop);
        let cache = self.folder.path().join("store/cache").join(cache);
        RemoteStore::new(client, "test://place".to_owned(), &cache).unwrap()
    }

    pub(crate) fn update(&self, name: &str, commit: CommitId) -> push::RefUpdate {
        push::RefUpdate { name: branch(name), commit, moves: push::AllowedMove::Forward }
    }

    pub(crate) fn push_all(
        &self,
        remote: &mut RemoteStore,
        refs: Vec<push::RefUpdate>,
    ) -> Result<push::PushOutcome, RemoteError> {
        let options = push::PushOptions { refs, scratch: self.folder.path() };
        push::run(&self.repo, remote, &options, self.runtime.handle(), &Silent)
    }

    pub(crate) fn push(
        &self,
        remote: &mut RemoteStore,
        commit: CommitId,
    ) -> Result<push::PushOutcome, RemoteError> {
        let update = push::RefUpdate { name: self.branch.clone(), ..self.update("main", commit) };
        self.push_all(remote, vec![update])?.all_moved()
    }

    pub(crate) fn plan(&self, remote: &mut RemoteStore, commit: CommitId) -> push::PushPlan {
        let refs = vec![self.update("main", commit)];
        let options = push::PushOptions { refs, scratch: self.folder.path() };
        push::plan(&self.repo, remote, &options, self.runtime.handle(), &Silent).unwrap()
    }

    pub(crate) fn pull(
        &self,
        remote: &mut RemoteStore,
        name: &RefName,
    ) -> Result<CommitId, RemoteError> {
        let level = self.repo.config().compression_level;
        let options =
            pull::PullOptions { name: name.clone(), level, part: PartialScope::default() };
        let outcome =
            pull::run(self.repo.store(), remote, &options, self.runtime.handle(), &Silent)?;
        let now = snap_core::base::time::Time::now();
        let change = RefLogMessage { time: now, who: "ada", reason: "pull" };
        let old = self.repo.refs().read(name).unwrap();
        self.repo.refs().update(name, old, Some(outcome.commit), &change).unwrap();
        Ok(outcome.commit)
    }
}

/// Returns the commit of a ref, after checking with an empty mirror that everything it refers to
/// is known and that all packs exist. `None` if the ref does not exist.
pub(crate) fn complete(service: Arc<dyn Bucket>, name: &str) -> Option<CommitId> {
    let place = Place::new();
    let mut remote = place.remote(Arc::clone(&service), "fresh");
    let standing = place.runtime.block_on(remote.place().read_ref(&branch(name))).unwrap()?;
    place.runtime.block_on(remote.refresh()).unwrap();
    let packs = place.runtime.block_on(service.list("objects/", ListDepth::All)).unwrap();
    for id in remote.mirror().store().packs() {
        let key = format!("objects/{id}");
        assert!(packs.iter().any(|pack| pack.key == key), "{key} is missing");
    }
    assert_eq!(place.pull(&mut remote, &branch(name)).unwrap(), standing);
    let marks = Marks::new(place.repo.store());
    let mut enter = |id: &snap_core::base::id::ObjectId, _: &At| marks.mark(id);
    reach::visit(place.repo.store(), &[standing], &mut enter, &Silent).unwrap();
    Some(standing)
}

pub(crate) fn bucket(endpoint: &str, server: &S3Server, traffic: &Arc<Traffic>) -> Arc<dyn Bucket> {
    keyed_bucket(endpoint, (server.access_key(), server.secret_key()), server.bucket(), traffic)
}

pub(crate) fn keyed_bucket(
    endpoint: &str,
    keys: (&str, &str),
    bucket: &str,
    traffic: &Arc<Traffic>,
) -> Arc<dyn Bucket> {
    Arc::new(s3(endpoint, keys, bucket, traffic))
}

pub(crate) fn s3(
    endpoint: &str,
    (access, secret): (&str, &str),
    bucket: &str,
    traffic: &Arc<Traffic>,
) -> OpendalBucket {
    let builder = services::S3::default()
        .bucket(bucket)
        .region(S3Server::REGION)
        .endpoint(endpoint)
        .access_key_id(access)
        .secret_access_key(secret)
        .checksum_algorithm("crc32c")
        .disable_config_load();
    let transport = Transport::new(Arc::clone(traffic)).unwrap();
    OpendalBucket::over_http(Operator::new(builder).unwrap(), transport, endpoint)
        .below("some/prefix")
}

/// Called before each call is passed on.
type Before = Box<dyn Fn(u64, &'static str, &str) -> BoxFuture<'static, bool> + Send + Sync>;

/// A service that wraps another one. It shows each call to `before`, with its number from 0, its
/// operation and its key. The call fails permanently if `before` returns true.
pub(crate) struct Wrapped {
    inner: Arc<dyn Bucket>,
    calls: AtomicU64,
    before: Before,
    pub(crate) error: fn(&'static str, &str) -> ServiceError,
    pub(crate) seen: Mutex<Vec<(&'static str, String)>>,
}

impl std::fmt::Debug for Wrapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wrapped").finish_non_exhaustive()
    }
}

impl Wrapped {
    pub(crate) fn new(
        inner: Arc<dyn Bucket>,
        before: impl Fn(u64, &'static str, &str) -> BoxFuture<'static, bool> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let error = |operation, key: &str| {
            ServiceError::new(operation, key, FailureReason::Other, "it broke".to_owned())
        };
        Arc::new(Self {
            inner,
            calls: AtomicU64::new(0),
            before: Box::new(before),
            error,
            seen: Mutex::default(),
        })
    }

    /// Makes every call fail with this error.
    pub(crate) fn failing_with(
        inner: Arc<dyn Bucket>,
        error: fn(&'static str, &str) -> ServiceError,
    ) -> Arc<Self> {
        let failing = Arc::into_inner(Self::failing_from(inner, 0)).unwrap();
        Arc::new(Self { error, ..failing })
    }

    /// Makes every call from number `first` on fail permanently.
    pub(crate) fn failing_from(inner: Arc<dyn Bucket>, first: u64) -> Arc<Self> {
        Self::new(inner, move |number, _, _| Box::pin(async move { number >= first }))
    }

    /// Returns a service in which another push happens after the first listing of the index and
    /// before the ref is read.
    pub(crate) fn pushing_meanwhile(
        inner: Arc<dyn Bucket>,
        push: impl FnOnce() + Send + 'static,
    ) -> Arc<Self> {
        let push = Arc::new(Mutex::new(Some(push)));
        let listed = Arc::new(tokio::sync::Semaphore::new(0));
        Self::new(inner, move |_, operation, key| {
            let is_ref = operation == "read" && key.starts_with("refs/");
            if operation == "list" && key == "index/" {
                listed.add_permits(1);
            }
            let (push, listed) = (Arc::clone(&push), Arc::clone(&listed));
            Box::pin(async move {
                if is_ref {
                    let _listed = listed.acquire().await.unwrap();
                    let push = push.lock().take();
                    if let Some(push) = push {
                        tokio::task::spawn_blocking(push).await.unwrap();
                    }
                }
                false
            })
        })
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(SeqCst)
    }

    async fn pass(&self, operation: &'static str, key: &str) -> Result<(), ServiceError> {
        let number = self.calls.fetch_add(1, SeqCst);
        self.seen.lock().push((operation, key.to_owned()));
        match (self.before)(number, operation, key).await {
            false => Ok(()),
            true => Err((self.error)(operation, key)),
        }
    }
}

impl Bucket for Wrapped {
    fn facts(&self) -> &BucketFacts {
        self.inner.facts()
    }

    fn get<'a>(&'a self, key: &'a str, most: u64) -> Attempt<'a, StoredObject> {
        Box::pin(async move {
            self.pass("read", key).await?;
            self.inner.get(key, most).await
        })
    }

    fn get_range<'a>(&'a self, key: &'a str, range: Range<u64>) -> Attempt<'a, Bytes> {
        Box::pin(async move {
            self.pass("read", key).await?;
            self.inner.get_range(key, range).await
        })
    }

    fn put<'a>(&'a self, key: &'a str, body: Body) -> Attempt<'a, Option<ObjectVersion>> {
        Box::pin(async move {
            self.pass("write", key).await?;
            self.inner.put(key, body).await
        })
    }

    fn put_if<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        when: WriteCondition,
    ) -> Attempt<'a, Option<ObjectVersion>> {
        Box::pin(async move {
            self.pass("write", key).await?;
            self.inner.put_if(key, bytes, when).await
        })
    }

    fn delete<'a>(&'a self, keys: &'a [String]) -> Attempt<'a, ()> {
        Box::pin(async move {
            for key in keys {
                self.pass("remove", key).await?;
                self.inner.delete(from_ref(key)).await?;
            }
            Ok(())
        })
    }

    fn list<'a>(&'a self, prefix: &'a str, depth: ListDepth) -> Attempt<'a, Vec<ListedObject>> {
        Box::pin(async move {
            self.pass("list", prefix).await?;
            self.inner.list(prefix, depth).await
        })
    }

    fn head<'a>(&'a self, key: &'a str) -> Attempt<'a, Option<u64>> {
        Box::pin(async move {
            self.pass("stat", key).await?;
            self.inner.head(key).await
        })
    }
}
