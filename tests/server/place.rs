//! Test fixtures: a store with commits, and a server for it.

use std::{
    cell::Cell,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use snap_core::{
    base::{
        id::{CommitId, PackId},
        observe::Silent,
    },
    disk::Disk,
    format::outline::{self, PackOutline},
    ops::commit::{self, CommitOptions as Commit, CommitSource},
    repo::{Config, Repo},
};
use snap_server::{
    clock::Clock,
    hub::Hub,
    routes::Server,
    run::{Listening, ShutdownHandle},
    settings::ServerSettings,
};
use snap_testkit::wait::PATIENCE;
use tokio::task::JoinHandle;

/// Waits for what must end. Fails with `hangs` if it does not within [`PATIENCE`].
pub(crate) async fn within_guard<T>(work: impl Future<Output = T>, hangs: &str) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("{hangs}"))
}

/// Waits until `check` returns a value: for what leaves no other trace than that. Fails
/// with `hangs` if that never happens.
pub(crate) async fn eventually<T>(hangs: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let checks = async {
        loop {
            if let Some(found) = check().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within_guard(checks, hangs).await
}

/// A store, and a folder to commit.
pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) repo: Repo,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs_err::create_dir(folder.path().join("files")).unwrap();
        let store = folder.path().join("store");
        Repo::init(&store, &Disk::default(), &Config::default()).unwrap();
        let repo = Repo::open(&store, Disk::default(), &Silent).unwrap();
        Self { folder, repo }
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    pub(crate) fn change(&self, name: &str, bytes: impl AsRef<[u8]>) -> CommitId {
        let path = self.folder.path().join("files").join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, bytes).unwrap();
        let source = CommitSource::Folder(self.folder.path().join("files"));
        // With one thread, each object has the same place in the pack in every run.
        let (author, host, jobs) = ("ada".into(), "laptop".into(), Some(1));
        let options = Commit { author, host, jobs, ..Commit::default() };
        commit::run(&self.repo, source, &options, &Silent).unwrap().id.unwrap()
    }

    pub(crate) fn pack_bytes(&self, id: &PackId) -> Vec<u8> {
        fs_err::read(self.repo.store().pack_path(id)).unwrap()
    }

    /// Copies a single pack of another place into this store, as if a server was killed
    /// before it had published the others.
    pub(crate) fn steal(&self, from: &Place, id: &PackId) {
        let to = self.repo.store().pack_path(id);
        fs_err::create_dir_all(to.parent().unwrap()).unwrap();
        fs_err::write(to, from.pack_bytes(id)).unwrap();
    }

    /// Returns the staging folder of the store.
    pub(crate) fn staged(&self) -> PathBuf {
        self.store().join("tmp/staged")
    }

    /// Returns the name and the bytes of an index file that lists these packs.
    pub(crate) fn outlines(&self, packs: &[PackId]) -> (String, Vec<u8>) {
        let store = self.repo.store();
        let mut packs = packs.to_vec();
        packs.sort_unstable();
        let outlines: Vec<_> = packs.iter().map(|id| store.outline(id).unwrap()).collect();
        named(&outlines)
    }
}

/// Encodes outlines in the given order. Returns the name and the bytes of the file.
pub(crate) fn named(outlines: &[PackOutline]) -> (String, Vec<u8>) {
    let bytes = outline::encode(0, outlines);
    (blake3::hash(&bytes).to_hex().to_string(), bytes)
}

/// A running server, with a clock that stands still until the test moves it: nothing times
/// out or expires by itself. The server is told to stop when this is dropped;
/// [`stop`](Self::stop) also waits until it has ended.
pub(crate) struct Serving {
    pub(crate) base: String,
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    shutdown: ShutdownHandle,
    answering: Option<JoinHandle<io::Result<()>>>,
    /// A file that the server locks until it has ended.
    lock: Option<PathBuf>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.shutdown.stop();
    }
}

impl Serving {
    /// Serves the store of a place.
    pub(crate) fn of(place: &Place) -> Self {
        Self::start(place, ServerSettings::default())
    }

    pub(crate) fn start(place: &Place, settings: ServerSettings) -> Self {
        Self::at(&place.store(), settings)
    }

    /// Serves a folder of stores.
    pub(crate) fn over(folder: &Path) -> Self {
        Self::at(folder, ServerSettings::default())
    }

    /// Serves a store, or a folder of stores.
    pub(crate) fn at(path: &Path, settings: ServerSettings) -> Self {
        Self::of_hub(Hub::open_with_clock(path, Clock::manual()).unwrap(), settings)
    }

    pub(crate) fn of_hub(hub: Hub, settings: ServerSettings) -> Self {
        let settings = ServerSettings { listen: "127.0.0.1:0".parse().unwrap(), ..settings };
        Self::of_server(Server::new(hub, settings))
    }

    /// Starts a server on a free port.
    pub(crate) fn of_server(server: Server) -> Self {
        let clock = server.clock().clone();
        let listening = Listening::new(server).unwrap();
        let base = format!("http://{}/v1/repos/default", listening.address().unwrap());
        let shutdown = listening.stop();
        let answering = Some(tokio::spawn(listening.answer()));
        // reqwest needs a TLS provider even for plain HTTP.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // The guard against a server that never answers.
        let client = Client::builder().timeout(PATIENCE).build().unwrap();
        Self { base, client, clock, shutdown, answering, lock: None }
    }

    /// Names a file that the server locks until nothing of it runs any more.
    pub(crate) fn with_lock(self, lock: PathBuf) -> Self {
        let mut serving = self;
        serving.lock = Some(lock);
        serving
    }

    /// Tells the server to stop.
    pub(crate) fn begin_stop(&self) {
        self.shutdown.stop();
    }

    /// Returns true if the server has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.answering.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the times that are left to the sleeps of the server satisfy `are`.
    pub(crate) async fn until_sleeps(&self, are: impl Fn(&[Duration]) -> bool) {
        within_guard(self.clock.until_sleeping(are), "the server does not wait").await;
    }

    /// Waits until a sleep of the server has that long left.
    pub(crate) async fn until_sleeping(&self, left: Duration) {
        self.until_sleeps(|all| all.contains(&left)).await;
    }

    /// Waits until `count` sleeps of the server have that long left, and then moves its clock
    /// on by as much.
    pub(crate) async fn pass_all(&self, count: usize, left: Duration) {
        self.until_sleeps(|all| all.iter().filter(|one| **one == left).count() == count).await;
        self.clock.advance(left);
    }

    /// Waits for `work`. Meanwhile, whenever a sleep of the server has at most `longest`
    /// left, and all that are due have ended, the clock moves on by that.
    pub(crate) async fn passing<T>(&self, longest: Duration, work: impl Future<Output = T>) -> T {
        let time = async {
            loop {
                let next = Cell::new(longest);
                let are = |left: &[Duration]| {
                    let first = left.iter().min().filter(|first| !first.is_zero());
                    let first = first.filter(|first| **first <= longest);
                    first.inspect(|first| next.set(**first)).is_some()
                };
                self.clock.until_sleeping(are).await;
                self.clock.advance(next.get());
            }
        };
        let either = async {
            tokio::select! {
                biased;
                done = work => done,
                never = time => never,
            }
        };
        within_guard(either, "the server does not do what time makes it do").await
    }

    /// Waits until the server sleeps for that long, and then moves its clock on by as much.
    pub(crate) async fn pass(&self, left: Duration) {
        self.until_sleeping(left).await;
        self.clock.advance(left);
    }

    /// Moves the clock of a relay on until it asks its upstream again: a second after a
    /// failure, and a little more after an answer that it remembers.
    pub(crate) fn asks_again(&self) {
        self.clock.advance(Duration::from_millis(1001));
    }

    /// Stops the server, and waits until it has ended and has unlocked its cache.
    pub(crate) async fn stop(mut self) {
        self.shutdown.stop();
        let answering = self.answering.take().unwrap();
        within_guard(answering, "the server does not stop").await.unwrap().unwrap();
        let Some(lock) = self.lock.take() else { return };
        let unlocked = tokio::task::spawn_blocking(move || {
            let lock = fs_err::File::open(lock).unwrap().into_file();
            lock.lock().unwrap();
            // A process that another test starts may have inherited the file.
            lock.unlock().unwrap();
        });
        within_guard(unlocked, "the server keeps its cache locked").await.unwrap();
    }

    /// Returns the base URL of the server.
    pub(crate) fn origin(&self) -> &str {
        self.base.trim_end_matches("/v1/repos/default")
    }

    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("{}/{path}", self.base))
    }

    pub(crate) fn put(&self, path: &str, body: impl Into<reqwest::Body>) -> RequestBuilder {
        self.client.put(format!("{}/{path}", self.base)).body(body)
    }

    /// Uploads packs and publishes them. Returns the first refusal.
    pub(crate) async fn send(&self, from: &Place, packs: &[PackId]) -> Response {
        for id in packs {
            let sent = self.put(&format!("packs/{id}"), from.pack_bytes(id)).send().await.unwrap();
            if !sent.status().is_success() {
                return sent;
            }
        }
        let (name, bytes) = from.outlines(packs);
        self.put(&format!("index/{name}"), bytes).send().await.unwrap()
    }
}

/// Returns bytes that do not compress.
pub(crate) fn random(seed: u8, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    blake3::Hasher::new_keyed(&[seed; 32]).finalize_xof().fill(&mut content);
    content
}

/// Sends a request, checks the status, and returns the JSON response.
pub(crate) async fn json(request: RequestBuilder, status: StatusCode) -> Value {
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), status);
    serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
}

/// Sends a request, and checks the status and the code of the problem response.
pub(crate) async fn refused(request: RequestBuilder, status: u16, code: &str) -> Value {
    let response = request.send().await.unwrap();
    assert_eq!(response.status().as_u16(), status);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    let problem: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
    assert_eq!((&problem["code"], &problem["status"]), (&code.into(), &status.into()));
    problem
}
