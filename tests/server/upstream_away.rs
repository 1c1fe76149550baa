//! Tests of relays whose upstream is away, refuses, hangs, or has been replaced.

use reqwest::StatusCode;
use snap_core::{base::id::CommitId, repo::Config};
use snap_nettest::{Fault, Gate, Kind, Proxy, Rule, Seen};

use crate::{
    place::{Place, Serving, eventually, json, refused},
    upstream::{Bucket, UPSTREAM_PATIENCE, create, pack, push, relay, set, stands},
};

/// A server with a store, a proxy in front of it, and a relay that uses the proxy.
pub(crate) struct Relayed {
    pub(crate) there: Place,
    pub(crate) server: Serving,
    pub(crate) proxy: Proxy,
    pub(crate) relay: Serving,
    pub(crate) cache: tempfile::TempDir,
}

impl Relayed {
    pub(crate) fn new() -> Self {
        let there = Place::new();
        let server = Serving::of(&there);
        let proxy = Proxy::start(server.origin());
        let cache = tempfile::tempdir().unwrap();
        let relay = relay(&proxy.endpoint(), cache.path());
        Self { there, server, proxy, relay, cache }
    }

    /// Makes a commit at the server and reads all of it through the relay.
    pub(crate) async fn commit(&self, content: &str) -> CommitId {
        let before = stands(&self.relay, "main").await;
        let commit = self.there.change("a", content);
        assert_ne!(before, Some(commit));
        for id in self.there.repo.store().packs() {
            assert_eq!(pack(&self.relay, &id).await, self.there.pack_bytes(&id));
        }
        assert_eq!(stands(&self.relay, "main").await, Some(commit));
        commit
    }

    async fn says_away(&self) -> bool {
        let read = self.relay.get("refs").send().await.unwrap();
        assert_eq!(read.status(), StatusCode::OK);
        read.headers().contains_key("snap-upstream")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_keeps_serving_a_store_that_disappeared_upstream() {
    let place = Relayed::new();
    let first = place.commit("first").await;
    // The token may have lost its rights, or the folder may not be mounted.
    place.proxy.add(Rule::new(Fault::status(404)));
    for _ in 0..2 {
        assert!(place.says_away().await);
        assert_eq!(stands(&place.relay, "main").await, Some(first));
        for id in place.there.repo.store().packs() {
            assert_eq!(pack(&place.relay, &id).await, place.there.pack_bytes(&id));
        }
        let other = set(&place.relay, "other", None, first);
        refused(other, 503, "unavailable").await;
        place.relay.asks_again();
    }
    place.proxy.clear_rules();
    assert!(!place.says_away().await);
    let second = place.commit("second").await;
    let moved = set(&place.relay, "other", None, second).send().await.unwrap();
    assert_eq!(moved.status(), StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_temporary_404_is_not_an_empty_list() {
    let place = Relayed::new();
    let first = place.commit("first").await;
    place.proxy.add(Rule::new(Fault::status(404)).path("/refs").times(1));
    place.proxy.add(Rule::new(Fault::status(404)).path("/index").times(1));
    assert_eq!(stands(&place.relay, "main").await, Some(first));
    let own = Place::new();
    let commit = own.change("b", "own");
    push(&place.relay, &own, Some(first), commit).await;
    assert_eq!(stands(&place.relay, "main").await, Some(commit));
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_from_the_cache_are_marked_as_stale() {
    let place = Relayed::new();
    let first = place.commit("first").await;
    let page = format!("{}/r/default", place.relay.origin());
    for status in [401, 403, 400] {
        place.proxy.add(Rule::new(Fault::status(status)));
        assert!(place.says_away().await, "{status}");
        assert_eq!(stands(&place.relay, "main").await, Some(first));
        let shown = place.relay.client.get(&page).send().await.unwrap();
        assert!(shown.headers().contains_key("snap-upstream"), "{status}");
        assert!(
            shown.text().await.unwrap().contains("This page shows the last known state"),
            "{status}"
        );
        place.proxy.clear_rules();
        place.relay.asks_again();
        assert!(!place.says_away().await, "{status}");
    }
    let shown = place.relay.client.get(&page).send().await.unwrap();
    assert!(!shown.text().await.unwrap().contains("This page shows the last known state"));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_to_a_stalled_upstream_time_out() {
    let place = Relayed::new();
    let first = place.commit("first").await;
    let second = place.there.change("b", "not here");
    assert_eq!(stands(&place.relay, "main").await, Some(second));
    place.proxy.add(Rule::new(Fault::Stall));
    // The two requests, and the query to the upstream.
    let time = place.relay.pass_all(3, UPSTREAM_PATIENCE);
    let (one, two, ()) = futures::join!(place.says_away(), place.says_away(), time);
    assert!(one && two);
    // For a while it is not asked again.
    assert_eq!(stands(&place.relay, "main").await, Some(second));
    refused(set(&place.relay, "main", None, first), 503, "unavailable").await;
    // The first read of a pack waits, because the upstream was heard of since the read before.
    // The next one knows that nothing comes.
    place.proxy.take_counts();
    let path = format!("commits/{second}/files/b");
    let is_asked_for = async || {
        let asked = place.proxy.requests();
        asked.iter().any(|seen| seen.path.contains("/packs/")).then_some(())
    };
    futures::join!(refused(place.relay.get(&path), 503, "unavailable"), async {
        eventually("no pack is asked for", is_asked_for).await;
        place.relay.clock.advance(UPSTREAM_PATIENCE);
    });
    refused(place.relay.get(&path), 503, "unavailable").await;
    place.proxy.clear_rules();
    place.relay.asks_again();
    assert!(!place.says_away().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn upstream_refusals_are_forwarded_and_are_no_outage() {
    let place = Relayed::new();
    let first = place.commit("first").await;
    let own = Place::new();
    own.change("b", "own");
    let id = own.repo.store().packs()[0];
    for (status, told, code) in [(413, 507, "full"), (422, 422, "rejected"), (400, 422, "rejected")]
    {
        place.proxy.add(Rule::new(Fault::status(status)).path("/packs/").kind(Kind::Put));
        let sent = place.relay.put(&format!("packs/{id}"), own.pack_bytes(&id));
        refused(sent, told, code).await;
        assert!(!place.says_away().await, "{status}");
        let branch = format!("b{status}");
        let moved = set(&place.relay, &branch, None, first).send().await.unwrap();
        assert_eq!(moved.status(), StatusCode::CREATED);
        place.proxy.clear_rules();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_scan_of_many_folders_is_no_outage() {
    const FOLDERS: usize = 60;
    const AT_ONCE: usize = 8;
    let bucket = Bucket::new();
    let named = |number: usize| format!("all/folder{number}/store/config.toml");
    let config = Config::default().to_text();
    let all = (0..FOLDERS).map(|number| (named(number), config.clone().into()));
    bucket.server.load(all.collect());
    let gate = Gate::default();
    bucket.proxy.add(Rule::new(Fault::Hold(gate.clone())).path("folder"));
    let one = bucket.replica("one");
    let all = one.client.get(one.base.replace("/default", ""));
    let are_asked_for = async || {
        let asked = bucket.proxy.requests();
        (asked.iter().filter(|seen| seen.path.contains("folder")).count() >= AT_ONCE).then_some(())
    };
    // Many folders are looked at together, so that far away this takes a moment, too.
    let (answer, ()) = futures::join!(all.send(), async {
        eventually("folders are looked at one after the other", are_asked_for).await;
        gate.open();
    });
    let answer = answer.unwrap();
    assert!(!answer.headers().contains_key("snap-upstream"));
    let answer: serde_json::Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
    assert_eq!(answer["repositories"].as_array().unwrap().len(), FOLDERS);
    bucket.proxy.take_counts();
    json(one.client.get(one.base.replace("/default", "")), StatusCode::OK).await;
    assert_eq!(bucket.proxy.counts().total, 0, "the upstream was asked again");
    // The cache keeps nothing for repositories that do not exist.
    for number in 0..10 {
        let path = one.base.replace("/default", &format!("/none{number}"));
        refused(one.client.get(format!("{path}/refs")), 404, "no-repository").await;
    }
    let cache = fs_err::read_dir(bucket.folder.path().join("one")).unwrap().next().unwrap();
    let kept = fs_err::read_dir(cache.unwrap().path()).unwrap();
    let kept: Vec<_> = kept.map(|entry| entry.unwrap()).filter(|e| e.path().is_dir()).collect();
    assert!(kept.is_empty(), "{kept:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_do_not_wait_for_uploads() {
    let bucket = Bucket::new();
    let one = bucket.replica("one");
    create(&one).await;
    assert_eq!(stands(&one, "main").await, None);
    let noise: Vec<u8> =
        (0..30_000_u64).flat_map(|n| *blake3::hash(&n.to_le_bytes()).as_bytes()).collect();
    let id = snap_core::base::id::BlobId::of(&noise).object();
    let gate = Gate::default();
    let held = Rule::new(Fault::Hold(gate.clone())).kind(Kind::Put).path("/objects/");
    bucket.proxy.add(held);
    let sending = one.put(&format!("objects/{id}"), noise).header("snap-kind", "blob").send();
    let sending = tokio::spawn(sending);
    let is_sent = async || {
        let requests = bucket.proxy.requests();
        let is_it = |seen: &Seen| seen.kind == Kind::Put && seen.path.contains("/objects/");
        requests.iter().any(is_it).then_some(())
    };
    eventually("nothing is sent", is_sent).await;
    let read = one.get("refs").send().await.unwrap();
    assert!(!read.headers().contains_key("snap-upstream"));
    assert!(!sending.is_finished(), "the read has waited");
    gate.open();
    assert_eq!(sending.await.unwrap().unwrap().status(), StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn refs_are_refreshed_with_few_requests() {
    let place = Relayed::new();
    let first = place.commit("first").await;
    for number in 0..8 {
        let made = set(&place.relay, &format!("branch{number}"), None, first).send().await;
        assert_eq!(made.unwrap().status(), StatusCode::CREATED);
    }
    place.relay.asks_again();
    assert!(!place.says_away().await);
    place.proxy.take_counts();
    assert!(!place.says_away().await);
    let asked = place.proxy.requests();
    assert!(asked.len() <= 4, "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_requires_the_upstream_and_a_writable_cache() {
    let place = Relayed::new();
    let ready = format!("{}/ready", place.relay.origin());
    let ready = || place.relay.client.get(&ready);
    assert_eq!(ready().send().await.unwrap().status(), StatusCode::OK);
    place.proxy.add(Rule::new(Fault::Reset));
    place.relay.asks_again();
    let told = refused(ready(), 503, "unavailable").await;
    assert_eq!(told["detail"], "the upstream does not answer");
    place.proxy.clear_rules();
    place.relay.asks_again();
    assert_eq!(ready().send().await.unwrap().status(), StatusCode::OK);
    // A cache that was removed is created again, if its folder can be written.
    fs_err::remove_dir_all(place.cache.path()).unwrap();
    place.relay.asks_again();
    assert_eq!(ready().send().await.unwrap().status(), StatusCode::OK);
    fs_err::remove_dir_all(place.cache.path()).unwrap();
    fs_err::write(place.cache.path(), "no folder").unwrap();
    place.relay.asks_again();
    refused(ready(), 503, "unavailable").await;
    fs_err::remove_file(place.cache.path()).unwrap();
    fs_err::create_dir(place.cache.path()).unwrap();
}
