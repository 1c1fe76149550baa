//! Tests of a relay for many repositories: its memory and its disk use do not grow with
//! them.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    sync::Arc,
};

use futures::future::join_all;
use reqwest::StatusCode;
use snap_core::base::id::PackId;
use snap_remote::{peer::open::RemoteCredentials, remote_packs::PrefetchBudget};
use snap_server::{
    clock::Clock,
    hub::Hub,
    routes::Server,
    settings::{ServerLimits, ServerSettings},
    upstream::{Upstream, UpstreamAddress, cache::CacheFolder},
};
use snap_testkit::wait::PATIENCE;
use tokio::runtime::Handle;

use crate::{
    place::{Place, Serving, eventually, random},
    upstream_steps::taken_bytes,
};

const MIB: usize = 1 << 20;

/// The number of repositories, each with a file `a` of 1 MiB.
const MANY: u8 = 12;

fn content(number: u8) -> Vec<u8> {
    random(number, MIB)
}

/// A server with many repositories, and the cache folder of a relay.
struct Many {
    folder: tempfile::TempDir,
    cache: tempfile::TempDir,
    packs: Vec<PackId>,
    server: Serving,
}

/// A relay of that server.
struct Relay {
    serving: Serving,
    server: Server,
    memory: Arc<PrefetchBudget>,
}

impl Many {
    fn new() -> Self {
        let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut packs = Vec::new();
        for number in 0..MANY {
            let place = Place::new();
            place.change("a", content(number));
            packs.push(longest(&place));
            fs_err::rename(place.store(), folder.path().join(name(number))).unwrap();
        }
        let server = Serving::over(folder.path());
        Self { folder, cache, packs, server }
    }

    fn relay(&self, cache_bytes: u64, limits: ServerLimits) -> Relay {
        let origin = UpstreamAddress {
            location: self.server.origin().parse().unwrap(),
            options: BTreeMap::new(),
            secrets: RemoteCredentials::default(),
        };
        let cache = CacheFolder::open_with_clock(
            self.cache.path(),
            &origin.key(),
            cache_bytes,
            Clock::manual(),
        );
        let cache = cache.unwrap();
        let upstream = Upstream::new(origin, cache, &limits, Handle::current()).unwrap();
        let memory = Arc::clone(upstream.memory());
        let listen = "127.0.0.1:0".parse().unwrap();
        let settings = ServerSettings { listen, limits, ..ServerSettings::default() };
        let server = Server::new(Hub::for_upstream(upstream), settings);
        Relay { serving: Serving::of_server(server.clone()), server, memory }
    }
}

fn name(number: u8) -> String {
    format!("repo{number}")
}

fn longest(place: &Place) -> PackId {
    let packs = place.repo.store().packs();
    packs.into_iter().max_by_key(|id| place.pack_bytes(id).len()).unwrap()
}

impl Relay {
    async fn get(&self, number: u8, path: &str) -> Vec<u8> {
        let url = format!("{}/v1/repos/{}/{path}", self.serving.origin(), name(number));
        let read = self.serving.client.get(url).send().await.unwrap();
        assert_eq!(read.status(), StatusCode::OK, "{path} of {number}");
        read.bytes().await.unwrap().to_vec()
    }

    async fn read(&self, number: u8) {
        assert!(self.get(number, "commits/main/files/a").await == content(number), "{number}");
    }

    /// Waits until no request holds a repository. A thread may hold it for a moment after the
    /// last byte of the response.
    async fn until_idle(&self, number: u8) {
        let open = self.server.hub().get_open_for_scan(&name(number)).unwrap();
        // The hub and this function hold it.
        let is_idle = async || (Arc::strong_count(&open) == 2).then_some(());
        eventually("a request holds the repository", is_idle).await;
    }

    fn open_count(&self) -> usize {
        self.server.hub().open_count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repositories_share_one_prefetch_budget() {
    const ROOM: u64 = 4 << 20;
    let many = Many::new();
    let relay =
        many.relay(1 << 30, ServerLimits { upstream_bytes: ROOM, ..ServerLimits::default() });
    let mut most = 0;
    for number in 0..MANY {
        relay.read(number).await;
        most = most.max(relay.memory.held_bytes());
    }
    assert_eq!(relay.open_count(), usize::from(MANY));
    // Check that memory is held at all, otherwise the limit proves nothing.
    assert!(most > ROOM / 2, "{most}");
    assert!(most <= ROOM + MIB as u64, "{most}");
    join_all((0..MANY).map(|number| relay.read(number))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_repositories_are_closed_and_reopened() {
    const OPEN: usize = 3;
    const ROOM: u64 = 4 << 20;
    let many = Many::new();
    let limits =
        ServerLimits { open_repositories: OPEN, cache_bytes: 0, ..ServerLimits::default() };
    let relay = many.relay(ROOM, limits);
    for _ in 0..2 {
        for number in 0..MANY {
            let id = many.packs[usize::from(number)];
            let read = relay.get(number, &format!("packs/{id}")).await;
            assert!(blake3::hash(&read).as_bytes() == id.as_bytes());
            relay.read(number).await;
            relay.until_idle(number).await;
            assert!(relay.open_count() <= OPEN, "{}", relay.open_count());
        }
    }
    // Files of closed repositories are evicted from the cache as well.
    let taken = taken_bytes(many.cache.path());
    assert!(taken <= ROOM + 2 * MIB as u64, "{taken}");
    assert!(taken > MIB as u64, "{taken}");
    // Many simultaneous requests to more repositories than stay open.
    let reads = (0..5 * MANY).map(|turn| relay.read(turn % MANY));
    join_all(reads).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_with_an_upload_in_progress_stays_open() {
    let many = Many::new();
    let limits = ServerLimits { open_repositories: 1, ..ServerLimits::default() };
    let relay = many.relay(1 << 30, limits);
    let place = Place::new();
    place.change("b", random(200, MIB));
    let id = longest(&place);
    let bytes = place.pack_bytes(&id);
    let (first, last) = bytes.split_at(bytes.len() / 2);
    let address = relay.serving.origin().trim_start_matches("http://").to_owned();
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "PUT /v1/repos/repo0/packs/{id} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n",
        bytes.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(first).unwrap();
    // The repository is open once a part of the pack is on disk.
    let comes = async || is_coming(many.cache.path()).then_some(());
    eventually("nothing comes", comes).await;
    let number = relay.server.hub().get_open("repo0").unwrap().number();
    for number in 1..MANY {
        relay.read(number).await;
    }
    assert_eq!(relay.server.hub().get_open("repo0").unwrap().number(), number);
    stream.write_all(last).unwrap();
    let answer = tokio::task::spawn_blocking(move || {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let answer = answer.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert!(many.folder.path().join("repo0/tmp/staged").join(id.to_string()).is_file());
}

/// Returns true if a pack is being received below a folder.
fn is_coming(below: &Path) -> bool {
    fs_err::read_dir(below).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        let is_pack = entry.file_name().to_string_lossy().starts_with("pack-");
        match path.is_dir() {
            true => is_coming(&path),
            false => is_pack && entry.metadata().is_ok_and(|meta| meta.len() > 0),
        }
    })
}
