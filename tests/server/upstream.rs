//! Servers before a bucket, and before another server.

use std::{collections::BTreeMap, time::Duration};

use futures::future::join_all;
use reqwest::{RequestBuilder, StatusCode};
use snap_core::{
    base::id::{CommitId, PackId},
    repo::Config,
};
use snap_nettest::{Fault, Kind, Proxy, Rule, S3Options, S3Server};
use snap_remote::service::open::Secrets;
use snap_server::{
    hub::Hub,
    settings::{Limits, Settings},
    upstream::{Origin, Upstream, cache::Cache},
};
use tokio::runtime::Handle;

use crate::place::{Place, Serving, json, refused};

/// A bucket behind a proxy, and folders for caches.
pub(crate) struct Bucket {
    pub(crate) server: S3Server,
    pub(crate) proxy: Proxy,
    pub(crate) folder: tempfile::TempDir,
    /// How long its replicas wait for an answer of the bucket.
    pub(crate) upstream_secs: u64,
}

/// The time-out of servers whose upstream answers. No test reaches it, however busy the machine is.
const PATIENT_SECS: u64 = 60;

/// The time-out of servers whose upstream hangs.
pub(crate) const IMPATIENT_SECS: u64 = 4;

impl Bucket {
    pub(crate) fn new() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = S3Server::start(S3Options::default());
        let proxy = Proxy::start(&server.endpoint());
        let folder = tempfile::tempdir().unwrap();
        Self { server, proxy, folder, upstream_secs: PATIENT_SECS }
    }

    /// A server before it, whose cache is called so.
    pub(crate) fn replica(&self, cache: &str) -> Serving {
        self.bounded(cache, 1 << 30)
    }

    pub(crate) fn bounded(&self, cache: &str, cache_bytes: u64) -> Serving {
        let options = [("endpoint", self.proxy.endpoint()), ("region", "us-east-1".to_owned())];
        let origin = Origin {
            location: "s3://bucket/all".parse().unwrap(),
            options: options.map(|(name, value)| (name.to_owned(), value)).into(),
            secrets: Secrets {
                name: Some(self.server.access_key().to_owned()),
                secret: Some(self.server.secret_key().to_owned()),
                session: None,
            },
        };
        before(origin, self.folder.path().join(cache), cache_bytes, self.upstream_secs)
    }

    /// Nobody answers.
    pub(crate) fn go_away(&self) {
        self.proxy.add(Rule::new(Fault::Reset));
    }

    pub(crate) async fn come_back(&self) {
        self.proxy.clear_rules();
        // Nobody asks before.
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }
}

pub(crate) fn before(
    origin: Origin,
    cache: std::path::PathBuf,
    cache_bytes: u64,
    upstream_secs: u64,
) -> Serving {
    let cache = Cache::open(&cache, &origin.key(), cache_bytes).unwrap();
    let limits = Limits { upstream_secs, ..Limits::default() };
    let upstream = Upstream::new(origin, cache, &limits, Handle::current()).unwrap();
    Serving::of_hub(Hub::behind(upstream), Settings::default())
}

/// A relay before a server.
pub(crate) fn relay(of: &str, cache: &std::path::Path) -> Serving {
    relay_within(of, cache, PATIENT_SECS)
}

/// A relay that waits so many seconds for an answer.
pub(crate) fn relay_within(of: &str, cache: &std::path::Path, upstream_secs: u64) -> Serving {
    let origin = Origin {
        location: of.parse().unwrap(),
        options: BTreeMap::new(),
        secrets: Secrets::default(),
    };
    before(origin, cache.to_owned(), 1 << 30, upstream_secs)
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
    let tag = response.headers().get("etag")?.to_str().unwrap();
    // A server of its own says more than the commit.
    let commit = tag.trim_matches('"').split('-').next().unwrap();
    Some(commit.parse().unwrap())
}

pub(crate) async fn pack(serving: &Serving, id: &PackId) -> Vec<u8> {
    let response = serving.get(&format!("packs/{id}")).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response.bytes().await.unwrap().to_vec()
}

/// Sends what a place has and nobody was told of, and moves `main` there.
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
async fn each_step_of_a_push_may_go_through_another_replica() {
    let (bucket, place) = (Bucket::new(), Place::new());
    let first = place.change("a", "first");
    let (one, two) = (bucket.replica("one"), bucket.replica("two"));
    refused(one.get("refs"), 404, "no-repository").await;
    create(&one).await;
    refused(creation(&two), 412, "conflict").await;
    let id = place.repo.store().packs()[0];
    let sent = one.put(&format!("packs/{id}"), place.pack_bytes(&id)).send().await.unwrap();
    assert_eq!(sent.status(), StatusCode::CREATED);
    // Until it is told of nobody knows it.
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
async fn what_is_not_complete_counts_nowhere() {
    let (bucket, place) = (Bucket::new(), Place::new());
    place.change("a", "first");
    let before = place.repo.store().packs();
    let second = place.change("b", "second");
    let new: Vec<PackId> =
        place.repo.store().packs().into_iter().filter(|id| !before.contains(id)).collect();
    let one = bucket.replica("one");
    create(&one).await;
    // It refers to what is in the pack before.
    assert_eq!(one.send(&place, &new).await.status(), StatusCode::UNPROCESSABLE_ENTITY);
    refused(set(&one, "main", None, second), 422, "rejected").await;
    assert!(!bucket.server.keys().iter().any(|key| key.contains("/index/")));
    push(&one, &place, None, second).await;
    assert_eq!(stands(&bucket.replica("two"), "main").await, Some(second));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_here_is_served_while_the_bucket_is_away_and_nothing_is_taken() {
    let (bucket, place) = (Bucket::new(), Place::new());
    let first = place.change("a", "first");
    let one = bucket.replica("one");
    create(&one).await;
    push(&one, &place, None, first).await;
    let id = place.repo.store().packs()[0];
    let there = one.get("refs").send().await.unwrap();
    assert!(!there.headers().contains_key("snap-upstream"));

    bucket.go_away();
    // One that starts now, on what another one kept.
    drop(one);
    tokio::time::sleep(Duration::from_millis(300)).await;
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
    assert_eq!(bucket.server.dump(), keys, "nothing is left half-done");

    bucket.come_back().await;
    push(&one, &place, Some(first), second).await;
    let read = one.get("refs").send().await.unwrap();
    assert!(!read.headers().contains_key("snap-upstream"));
    assert_eq!(stands(&bucket.replica("two"), "main").await, Some(second));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_is_fetched_once_however_many_ask() {
    let (bucket, place) = (Bucket::new(), Place::new());
    let content: Vec<u8> = (0..3_000_000_u64).flat_map(|n| (n * n).to_le_bytes()).collect();
    let first = place.change("a", content);
    create(&bucket.replica("one")).await;
    push(&bucket.replica("two"), &place, None, first).await;
    let three = bucket.replica("three");
    assert_eq!(stands(&three, "main").await, Some(first));
    let packs = place.repo.store().packs();
    let total: usize = packs.iter().map(|id| place.pack_bytes(id).len()).sum();
    bucket.proxy.take_counts();
    bucket.proxy.set_latency(Duration::from_millis(20));
    let reads = (0..24).map(|number| pack(&three, &packs[number % packs.len()]));
    for (number, read) in join_all(reads).await.into_iter().enumerate() {
        assert!(read == place.pack_bytes(&packs[number % packs.len()]));
    }
    let received = bucket.proxy.counts().received_bytes as usize;
    assert!(received < total + total / 10 + 100_000, "{received} of {total}");
    // Nor is it asked for again.
    bucket.proxy.take_counts();
    pack(&three, &packs[0]).await;
    let asked = bucket.proxy.requests();
    assert!(!asked.iter().any(|seen| seen.path.contains("/objects/")), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_ask_where_refs_stand_share_the_answer() {
    let (bucket, place) = (Bucket::new(), Place::new());
    let first = place.change("a", "first");
    let one = bucket.replica("one");
    create(&one).await;
    push(&one, &place, None, first).await;
    bucket.proxy.set_latency(Duration::from_millis(50));
    bucket.proxy.take_counts();
    let all = join_all((0..64).map(|_| stands(&one, "main"))).await;
    assert!(all.iter().all(|stands| *stands == Some(first)));
    let lists = bucket.proxy.counts().of(Kind::List);
    assert!(lists <= 8, "{lists} lists for 64 who asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_that_is_full_makes_room_and_what_went_comes_again() {
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

/// Bytes of whole packs below a folder.
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
async fn bundles_go_through_replicas_as_pushes_do() {
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
async fn a_relay_passes_pushes_on_and_keeps_what_was_read() {
    let (folder, place, there) = (tempfile::tempdir().unwrap(), Place::new(), Place::new());
    let first = place.change("a", "first");
    let server = Serving::of(&there);
    let relayed = relay(server.origin(), folder.path());
    let names = json(relayed.client.get(relayed.base.replace("/default", "")), StatusCode::OK);
    assert_eq!(names.await["repositories"][0]["name"], "default");
    push(&relayed, &place, None, first).await;
    assert_eq!(stands(&server, "main").await, Some(first));
    // What is committed there is seen at once.
    let second = there.change("b", "second");
    let standing = stands(&server, "main").await;
    assert_eq!(stands(&relayed, "main").await, standing);
    let object = relayed.get(&format!("objects/{second}")).send().await.unwrap();
    assert_eq!(object.status(), StatusCode::OK);
    // A lost race is told with where it stands.
    refused(set(&relayed, "main", None, second), 412, "conflict").await;
    assert_eq!(stands(&relayed, "main").await, standing);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ref_beside_another_is_refused_before_the_bucket_has_it() {
    let bucket = Bucket::new();
    let [one, two] = ["one", "two"].map(|cache| bucket.replica(cache));
    create(&one).await;
    let place = Place::new();
    let commit = place.change("a", "content");
    assert!(one.send(&place, &place.repo.store().packs()).await.status().is_success());
    assert_eq!(set(&one, "a", None, commit).send().await.unwrap().status(), StatusCode::CREATED);
    for serving in [&one, &two] {
        let refusal = refused(set(serving, "a/b", None, commit), 422, "rejected").await;
        assert_eq!(refusal["detail"], "`heads/a/b` cannot be beside `heads/a`");
        assert_eq!(stands(serving, "a/b").await, None);
    }
}
