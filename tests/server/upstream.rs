//! Tests of servers in front of a bucket, or of another server.

use std::{collections::BTreeMap, path::Path, time::Duration};

use futures::future::join_all;
use reqwest::{RequestBuilder, Response, StatusCode};
use snap_core::{
    base::id::{CommitId, PackId},
    repo::Config,
};
use snap_nettest::{Fault, Gate, Kind, Proxy, Rule, S3Options, S3Server};
use snap_remote::peer::open::RemoteCredentials;
use snap_server::{
    clock::Clock,
    hub::Hub,
    settings::{ServerLimits, ServerSettings},
    upstream::{Upstream, UpstreamAddress, cache::CacheFolder},
};
use tokio::runtime::Handle;

use crate::place::{Place, Serving, json, refused};

/// A bucket behind a proxy, and a folder for caches.
pub(crate) struct Bucket {
    pub(crate) server: S3Server,
    pub(crate) proxy: Proxy,
    pub(crate) folder: tempfile::TempDir,
    /// The clock of all replicas.
    pub(crate) clock: Clock,
}

/// How long relays and replicas wait for their upstream before they serve cached data. Only
/// the clock of the test counts.
pub(crate) const UPSTREAM_PATIENCE: Duration = Duration::from_secs(5);

impl Bucket {
    pub(crate) fn new() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = S3Server::start(S3Options::default());
        let proxy = Proxy::start(&server.endpoint());
        let folder = tempfile::tempdir().unwrap();
        Self { server, proxy, folder, clock: Clock::manual() }
    }

    /// Starts a server in front of the bucket with this cache folder.
    pub(crate) fn replica(&self, cache: &str) -> Serving {
        self.bounded(cache, 1 << 30)
    }

    pub(crate) fn bounded(&self, cache: &str, cache_bytes: u64) -> Serving {
        let options = [("endpoint", self.proxy.endpoint()), ("region", "us-east-1".to_owned())];
        let origin = UpstreamAddress {
            location: "s3://bucket/all".parse().unwrap(),
            options: options.map(|(name, value)| (name.to_owned(), value)).into(),
            secrets: RemoteCredentials {
                name: Some(self.server.access_key().to_owned()),
                secret: Some(self.server.secret_key().to_owned()),
                session: None,
            },
        };
        before(origin, &self.folder.path().join(cache), cache_bytes, self.clock.clone())
    }

    /// Makes all requests to the bucket fail.
    pub(crate) fn go_away(&self) {
        self.proxy.add(Rule::new(Fault::Reset));
    }

    /// Makes the bucket work again, and the replicas ask it again.
    pub(crate) fn come_back(&self) {
        self.proxy.clear_rules();
        self.clock.advance(Duration::from_secs(1));
    }
}

pub(crate) fn before(
    origin: UpstreamAddress,
    cache: &Path,
    cache_bytes: u64,
    clock: Clock,
) -> Serving {
    let cache = CacheFolder::open_with_clock(cache, &origin.key(), cache_bytes, clock).unwrap();
    let lock = cache.root().join("lock");
    let limits = ServerLimits::default();
    assert_eq!(UPSTREAM_PATIENCE.as_secs(), limits.upstream_secs);
    let upstream = Upstream::new(origin, cache, &limits, Handle::current()).unwrap();
    // A test moves the clock on while a request is on its way. The server must not close the
    // idle connection on which the request arrives.
    let limits = ServerLimits { header_secs: 30 * 24 * 3600, ..limits };
    let settings = ServerSettings { limits, ..ServerSettings::default() };
    Serving::of_hub(Hub::for_upstream(upstream), settings).with_lock(lock)
}

/// Starts a relay for a server.
pub(crate) fn relay(of: &str, cache: &Path) -> Serving {
    let origin = UpstreamAddress {
        location: of.parse().unwrap(),
        options: BTreeMap::new(),
        secrets: RemoteCredentials::default(),
    };
    before(origin, cache, 1 << 30, Clock::manual())
}

pub(crate) fn creation(serving: &Serving) -> RequestBuilder {
    serving.client.put(&serving.base).body(Config::default().to_text())
}

pub(crate) async fn create(serving: &Serving) {
    let made = creation(serving).send().await.unwrap();
    assert_eq!(made.status(), StatusCode::CREATED);
}

pub(crate) fn set(
    serving: &Serving,
    branch: &str,
    from: Option<CommitId>,
    to: CommitId,
) -> RequestBuilder {
    let path = format!("refs/heads/{branch}");
    let put = serving.put(&path, format!("{{\"commit\": \"{to}\"}}"));
    match from {
        Some(from) => put.header("if-match", format!("\"{from}\"")),
        None => put.header("if-none-match", "*"),
    }
}

pub(crate) async fn stands(serving: &Serving, branch: &str) -> Option<CommitId> {
    let response = serving.get(&format!("refs/heads/{branch}")).send().await.unwrap();
    let status = response.status();
    assert!(matches!(status.as_u16(), 200 | 404), "{status} {}", response.text().await.unwrap());
    commit_of(&response)
}

/// The commit in the `ETag` of an answer to a request for a ref.
pub(crate) fn commit_of(response: &Response) -> Option<CommitId> {
    let tag = response.headers().get("etag")?.to_str().unwrap();
    // The ETag of a server with its own store has more parts than the commit.
    let commit = tag.trim_matches('"').split('-').next().unwrap();
    Some(commit.parse().unwrap())
}

pub(crate) async fn pack(serving: &Serving, id: &PackId) -> Vec<u8> {
    let response = serving.get(&format!("packs/{id}")).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response.bytes().await.unwrap().to_vec()
}

/// Uploads and publishes packs that the server does not have, then moves `main`.
pub(crate) async fn push(serving: &Serving, from: &Place, before: Option<CommitId>, to: CommitId) {
    let mut new = Vec::new();
    for id in from.repo.store().packs() {
        let counts = serving.client.head(format!("{}/packs/{id}", serving.base)).send().await;
        if !counts.unwrap().status().is_success() {
            new.push(id);
        }
    }
    let sent = serving.send(from, &new).await;
    assert!(sent.status().is_success(), "{}", sent.status());
    let moved = set(serving, "main", before, to).send().await.unwrap();
    assert!(moved.status().is_success(), "{}", moved.text().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_can_use_several_replicas() {
    let (bucket, place) = (Bucket::new(), Place::new());
    let first = place.change("a", "first");
    let (one, two) = (bucket.replica("one"), bucket.replica("two"));
    refused(one.get("refs"), 404, "no-repository").await;
    create(&one).await;
    refused(creation(&two), 412, "conflict").await;
    let id = place.repo.store().packs()[0];
    let sent = one.put(&format!("packs/{id}"), place.pack_bytes(&id)).send().await.unwrap();
    assert_eq!(sent.status(), StatusCode::CREATED);
    // Before it is published, the other replica does not know the pack.
    refused(two.get(&format!("packs/{id}")), 404, "not-found").await;
    refused(set(&two, "main", None, first), 422, "rejected").await;
    let (name, outlines) = place.outlines(&[id]);
    let told = two.put(&format!("index/{name}"), outlines).send().await.unwrap();
    assert_eq!(told.status(), StatusCode::CREATED);
    let moved = set(&one, "main", None, first).send().await.unwrap();
    assert_eq!(moved.status(), StatusCode::CREATED);
    for serving in [&one, &two, &bucket.replica("three")] {
        assert_eq!(stands(serving, "main").await, Some(first));
        assert_eq!(pack(serving, &id).await, place.pack_bytes(&id));
        let index = json(serving.get("index"), StatusCode::OK).await;
        assert_eq!(index["files"].as_array().unwrap().len(), 1);
        refused(set(serving, "main", None, first), 412, "conflict").await;
    }
    let gone = two.client.delete(format!("{}/refs/heads/main", two.base));
    let gone = gone.header("if-match", format!("\"{first}\"")).send().await.unwrap();
    assert_eq!(gone.status(), StatusCode::NO_CONTENT);
    assert_eq!(stands(&one, "main").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_do_not_publish_incomplete_packs() {
    let (bucket, place) = (Bucket::new(), Place::new());
    place.change("a", "first");
    let before = place.repo.store().packs();
    let second = place.change("b", "second");
    let new: Vec<PackId> =
        place.repo.store().packs().into_iter().filter(|id| !before.contains(id)).collect();
    let one = bucket.replica("one");
    create(&one).await;
    // The pack refers to objects in an earlier pack.
    assert_eq!(one.send(&place, &new).await.status(), StatusCode::UNPROCESSABLE_ENTITY);
    refused(set(&one, "main", None, second), 422, "rejected").await;
    assert!(!bucket.server.keys().iter().any(|key| key.contains("/index/")));
    push(&one, &place, None, second).await;
    assert_eq!(stands(&bucket.replica("two"), "main").await, Some(second));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_read_only_while_the_bucket_is_unavailable() {
    let (bucket, place) = (Bucket::new(), Place::new());
    let first = place.change("a", "first");
    let one = bucket.replica("one");
    create(&one).await;
    push(&one, &place, None, first).await;
    let id = place.repo.store().packs()[0];
    let there = one.get("refs").send().await.unwrap();
    assert!(!there.headers().contains_key("snap-upstream"));

    bucket.go_away();
    // A new server starts with the cache of the first.
    one.stop().await;
    let keys = bucket.server.dump();
    let one = bucket.replica("one");
    assert_eq!(stands(&one, "main").await, Some(first));
    let read = one.get(&format!("packs/{id}")).send().await.unwrap();
    let told = read.headers()["snap-upstream"].to_str().unwrap().to_owned();
    assert!(told.starts_with("away"), "{told}");
    assert_eq!(read.bytes().await.unwrap(), place.pack_bytes(&id));
    let known = json(one.client.get(one.base.replace("/repos/default", "")), StatusCode::OK).await;
    assert_eq!(known["upstream"]["state"], "away");
    let second = place.change("b", "second");
    let new = place.repo.store().packs().into_iter().find(|other| *other != id).unwrap();
    let bytes = place.pack_bytes(&new);
    refused(one.put(&format!("packs/{new}"), bytes), 503, "unavailable").await;
    let (name, outlines) = place.outlines(&[new]);
    refused(one.put(&format!("index/{name}"), outlines), 503, "unavailable").await;
    refused(set(&one, "main", Some(first), second), 503, "unavailable").await;
    assert_eq!(stands(&one, "main").await, Some(first));
    assert_eq!(bucket.server.dump(), keys, "a refused move changed the bucket");

    bucket.come_back();
    push(&one, &place, Some(first), second).await;
    let read = one.get("refs").send().await.unwrap();
    assert!(!read.headers().contains_key("snap-upstream"));
    assert_eq!(stands(&bucket.replica("two"), "main").await, Some(second));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_lost_objects_gets_no_ref_to_them() {
    let (bucket, place) = (Bucket::new(), Place::new());
    let first = place.change("a", "first");
    let one = bucket.replica("one");
    create(&one).await;
    push(&one, &place, None, first).await;
    let older = bucket.server.dump();
    let second = place.change("b", "second");
    push(&one, &place, Some(first), second).await;
    let before = place.repo.store().packs();
    bucket.server.load(BTreeMap::new());
    refused(set(&one, "other", None, second), 503, "unavailable").await;
    assert!(bucket.server.keys().is_empty(), "{:?}", bucket.server.keys());
    // The cache of the server may hold the last copy.
    for id in &before {
        assert_eq!(pack(&one, id).await, place.pack_bytes(id));
    }
    bucket.server.load(older.clone());
    refused(set(&one, "other", None, second), 422, "rejected").await;
    assert_eq!(bucket.server.dump(), older);
    // A commit that descends from the lost one is refused as well.
    let third = place.change("c", "third");
    let mut new = place.repo.store().packs();
    new.retain(|id| !before.contains(id));
    assert_eq!(one.send(&place, &new).await.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let set = set(&one, "other", None, third).send().await.unwrap();
    assert!(!set.status().is_success(), "{}", set.status());
    assert!(!bucket.server.keys().iter().any(|key| key.ends_with("heads/other")));
    push(&one, &place, Some(first), third).await;
    assert_eq!(stands(&bucket.replica("two"), "main").await, Some(third));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_ref_is_set_to_a_partly_lost_commit() {
    let (bucket, place) = (Bucket::new(), Place::new());
    let first = place.change("a", "first");
    let one = bucket.replica("one");
    create(&one).await;
    push(&one, &place, None, first).await;
    let of_first: Vec<_> =
        bucket.server.keys().into_iter().filter(|key| key.contains("/index/")).collect();
    let second = place.change("b", "second");
    push(&one, &place, Some(first), second).await;
    // The index still lists the second commit, but not what it shares with the first.
    of_first.iter().for_each(|key| assert!(bucket.server.remove(key)));
    refused(set(&one, "other", None, second), 503, "unavailable").await;
    // A server that restarts with the same cache knows of the loss, too.
    one.stop().await;
    let one = bucket.replica("one");
    refused(set(&one, "other", None, second), 503, "unavailable").await;
    assert!(!bucket.server.keys().iter().any(|key| key.ends_with("heads/other")));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_fetch_a_pack_once() {
    let (bucket, place) = (Bucket::new(), Place::new());
    let content: Vec<u8> = (0..3_000_000_u64).flat_map(|n| (n * n).to_le_bytes()).collect();
    let first = place.change("a", content);
    create(&bucket.replica("one")).await;
    push(&bucket.replica("two"), &place, None, first).await;
    let three = bucket.replica("three");
    assert_eq!(stands(&three, "main").await, Some(first));
    let packs = place.repo.store().packs();
    bucket.proxy.take_counts();
    let reads = (0..24).map(|number| pack(&three, &packs[number % packs.len()]));
    for (number, read) in join_all(reads).await.into_iter().enumerate() {
        assert!(read == place.pack_bytes(&packs[number % packs.len()]));
    }
    let asked = bucket.proxy.requests().into_iter().map(|seen| (seen.path, seen.range));
    let mut asked: Vec<_> = asked.filter(|(path, _)| path.contains("/objects/")).collect();
    let all = asked.len();
    asked.sort_unstable();
    asked.dedup();
    assert!(all > 0 && asked.len() == all, "some were asked for twice: {asked:#?}");
    // It is not fetched again either.
    bucket.proxy.take_counts();
    pack(&three, &packs[0]).await;
    let asked = bucket.proxy.requests();
    assert!(!asked.iter().any(|seen| seen.path.contains("/objects/")), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_ref_requests_share_one_query() {
    let (bucket, place) = (Bucket::new(), Place::new());
    let first = place.change("a", "first");
    let one = bucket.replica("one");
    create(&one).await;
    push(&one, &place, None, first).await;
    // The first request after a push looks for its packs, too.
    assert_eq!(stands(&one, "main").await, Some(first));
    bucket.proxy.take_counts();
    assert_eq!(stands(&one, "main").await, Some(first));
    let lists = bucket.proxy.take_counts().of(Kind::List);
    // The answer to the first request is held until the others wait, too.
    let gate = Gate::default();
    bucket.proxy.add(Rule::new(Fault::Hold(gate.clone())).kind(Kind::List));
    let all = join_all((0..64).map(|_| stands(&one, "main")));
    let (all, ()) = futures::join!(all, async {
        // And the query itself.
        let are_waiting = |left: &[Duration]| {
            left.iter().filter(|left| **left == UPSTREAM_PATIENCE).count() == 64 + 1
        };
        one.until_sleeps(are_waiting).await;
        gate.open();
    });
    assert!(all.iter().all(|stands| *stands == Some(first)));
    // Those who come while a query is under way wait for the next one.
    assert_eq!(bucket.proxy.counts().of(Kind::List), 2 * lists);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_cache_evicts_packs_and_fetches_them_again() {
    const ROOM: u64 = 3 << 20;
    let (bucket, place) = (Bucket::new(), Place::new());
    create(&bucket.replica("one")).await;
    let small = bucket.bounded("small", ROOM);
    let mut before = None;
    for number in 0..6_u64 {
        let noise = (0..128_u64 << 10).map(|at| blake3::hash(&(at << 8 | number).to_le_bytes()));
        let content: Vec<u8> = noise.flat_map(|hash| hash.as_bytes()[..8].to_vec()).collect();
        let commit = place.change(&format!("file{number}"), content);
        push(&small, &place, before, commit).await;
        before = Some(commit);
    }
    let packs = place.repo.store().packs();
    for _ in 0..2 {
        for id in &packs {
            assert!(pack(&small, id).await == place.pack_bytes(id));
        }
    }
    let kept = kept_bytes(&bucket.folder.path().join("small"));
    assert!(kept <= ROOM + (2 << 20), "{kept}");
    let all: usize = packs.iter().map(|id| place.pack_bytes(id).len()).sum();
    assert!(all as u64 > 2 * ROOM, "{all}");
}

/// Returns the bytes of whole packs below a folder.
pub(crate) fn kept_bytes(folder: &std::path::Path) -> u64 {
    let mut sum = 0;
    for entry in fs_err::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        if path.is_dir() {
            sum += kept_bytes(&path);
        } else if path.parent().unwrap().ends_with("objects") {
            sum += entry.metadata().unwrap().len();
        }
    }
    sum
}

#[tokio::test(flavor = "multi_thread")]
async fn bundles_are_served_and_accepted_by_replicas() {
    let (bucket, place) = (Bucket::new(), Place::new());
    let first = place.change("a", "first");
    let (one, two) = (bucket.replica("one"), bucket.replica("two"));
    create(&one).await;
    push(&one, &place, None, first).await;
    let bundle = two.get(&format!("commits/{first}/bundle")).send().await.unwrap();
    assert_eq!(bundle.status(), StatusCode::OK);
    let bundle = bundle.bytes().await.unwrap();
    let other = Bucket::new();
    let (three, four) = (other.replica("three"), other.replica("four"));
    create(&three).await;
    let sent = three.client.post(format!("{}/bundles", three.base)).body(bundle);
    let sent = sent.send().await.unwrap();
    assert!(sent.status().is_success(), "{}", sent.text().await.unwrap());
    let moved = set(&four, "main", None, first).send().await.unwrap();
    assert_eq!(moved.status(), StatusCode::CREATED);
    let read = three.get(&format!("objects/{first}")).send().await.unwrap();
    assert_eq!(read.status(), StatusCode::OK);
    assert_eq!(stands(&other.replica("five"), "main").await, Some(first));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_forwards_pushes_and_serves_current_refs() {
    let (folder, place, there) = (tempfile::tempdir().unwrap(), Place::new(), Place::new());
    let first = place.change("a", "first");
    let server = Serving::of(&there);
    let relayed = relay(server.origin(), folder.path());
    let names = json(relayed.client.get(relayed.base.replace("/default", "")), StatusCode::OK);
    assert_eq!(names.await["repositories"][0]["name"], "default");
    push(&relayed, &place, None, first).await;
    assert_eq!(stands(&server, "main").await, Some(first));
    // A commit at the server is visible through the relay at once.
    let second = there.change("b", "second");
    let standing = stands(&server, "main").await;
    assert_eq!(stands(&relayed, "main").await, standing);
    let object = relayed.get(&format!("objects/{second}")).send().await.unwrap();
    assert_eq!(object.status(), StatusCode::OK);
    // After a lost race the response has the commit that the ref points at.
    refused(set(&relayed, "main", None, second), 412, "conflict").await;
    assert_eq!(stands(&relayed, "main").await, standing);
}

/// Returns the folder of the store in a cache that has one.
fn cached_store(below: &std::path::Path) -> std::path::PathBuf {
    let mut waiting = vec![below.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs_err::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.ends_with("store") {
                return path;
            }
            waiting.extend(path.is_dir().then_some(path));
        }
    }
    panic!("no store below {}", below.display())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_failure_does_not_undo_an_upstream_ref_move() {
    let (folder, place, there) = (tempfile::tempdir().unwrap(), Place::new(), Place::new());
    let server = Serving::of(&there);
    let relayed = relay(server.origin(), folder.path());
    let first = place.change("a", "first");
    push(&relayed, &place, None, first).await;
    // The relay can no longer write the log of this branch.
    let log = cached_store(folder.path()).join("logs/refs/heads/main.log");
    fs_err::remove_file(&log).unwrap();
    fs_err::create_dir(&log).unwrap();
    let second = place.change("a", "second");
    push(&relayed, &place, Some(first), second).await;
    assert_eq!(stands(&server, "main").await, Some(second));
    fs_err::remove_dir(&log).unwrap();
    assert_eq!(stands(&relayed, "main").await, Some(second));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_confirms_a_ref_move_after_a_lost_response() {
    let (folder, place, there) = (tempfile::tempdir().unwrap(), Place::new(), Place::new());
    let server = Serving::of(&there);
    let proxy = Proxy::start(server.origin());
    let relayed = relay(&proxy.endpoint(), folder.path());
    let mut before = None;
    for (number, fault) in [Fault::LoseReply, Fault::RefuseAfter(503)].into_iter().enumerate() {
        let commit = place.change("a", format!("change {number}"));
        proxy.add(Rule::new(fault.clone()).kind(Kind::Put).path("/refs/heads/main"));
        push(&relayed, &place, before, commit).await;
        proxy.clear_rules();
        assert_eq!(stands(&server, "main").await, Some(commit), "{fault:?}");
        before = Some(commit);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conflicting_ref_name_is_refused_before_the_bucket_write() {
    let bucket = Bucket::new();
    let [one, two] = ["one", "two"].map(|cache| bucket.replica(cache));
    create(&one).await;
    let place = Place::new();
    let commit = place.change("a", "content");
    assert!(one.send(&place, &place.repo.store().packs()).await.status().is_success());
    assert_eq!(set(&one, "a", None, commit).send().await.unwrap().status(), StatusCode::CREATED);
    for serving in [&one, &two] {
        let refusal = refused(set(serving, "a/b", None, commit), 422, "name-conflict").await;
        assert_eq!(refusal["detail"], "`heads/a/b` conflicts with `heads/a`");
        assert_eq!(stands(serving, "a/b").await, None);
    }
}
