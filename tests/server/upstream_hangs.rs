//! Tests of relays whose upstream hangs, partly or as a whole, and of slow clients.

use futures::{StreamExt, future::join_all, stream};
use reqwest::{Body, StatusCode};
use snap_core::base::id::CommitId;
use snap_nettest::{Fault, Rule};
use tokio::sync::oneshot;

use crate::{
    place::{Place, Serving, eventually, json, refused},
    upstream::{Bucket, UPSTREAM_PATIENCE, create, kept_bytes, pack, push, relay, stands},
    upstream_away::Relayed,
    upstream_steps::{bundle_of, noise},
    watched::{metrics, number},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_store_never_read_from_the_upstream_is_not_shown_empty() {
    let Relayed { there, server: _server, proxy, relay: first, cache } = Relayed::new();
    let commit = there.change("a", "first");
    proxy.add(Rule::new(Fault::Stall).test(|seen| !seen.path.ends_with("/config")));
    let mut serving = Some(first);
    for _ in 0..2 {
        // The second relay starts with the cache of the first.
        let again = || relay(&proxy.endpoint(), cache.path());
        let now = serving.take().unwrap_or_else(again);
        let id = there.repo.store().packs()[0];
        let asked = ["refs", "head", "index", "packs", "refs/heads/main", "commits/main"];
        for path in asked.map(str::to_owned).into_iter().chain([format!("packs/{id}")]) {
            let refused = refused(now.get(&path), 503, "unavailable");
            now.passing(UPSTREAM_PATIENCE, refused).await;
            now.asks_again();
        }
        let page = now.client.get(format!("{}/r/default", now.origin())).send();
        let page = now.passing(UPSTREAM_PATIENCE, page).await.unwrap();
        assert_eq!(page.status(), StatusCode::SERVICE_UNAVAILABLE);
        now.stop().await;
    }
    proxy.clear_rules();
    let again = relay(&proxy.endpoint(), cache.path());
    assert_eq!(stands(&again, "main").await, Some(commit));
    let refs = json(again.get("refs"), StatusCode::OK).await;
    assert_eq!(refs["head"], "refs/heads/main");
    assert_eq!(
        fs_err::read_dir(cache.path()).unwrap().count(),
        1,
        "the servers used several caches"
    );
}

/// Reads a file of a commit.
async fn file(serving: &Serving, commit: CommitId, name: &str) -> StatusCode {
    let read = serving.get(&format!("commits/{commit}/files/{name}")).send().await.unwrap();
    let status = read.status();
    read.bytes().await.unwrap();
    status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_fetch_does_not_block_cached_data() {
    let place = Relayed::new();
    let first = place.commit("first").await;
    let second = place.there.change("b", "second");
    assert_eq!(stands(&place.relay, "main").await, Some(second));
    // Refs stay readable while the packs of the upstream hang.
    place.proxy.add(Rule::new(Fault::Stall).path("/packs/"));
    let asked = join_all((0..40).map(|_| file(&place.relay, second, "b")));
    let is_asked_for = async || {
        let asked = place.proxy.requests();
        asked.iter().any(|seen| seen.path.contains("/packs/")).then_some(())
    };
    place.proxy.take_counts();
    let (told, ()) = futures::join!(asked, async {
        eventually("no pack is asked for", is_asked_for).await;
        // All of them wait together, so they give up together.
        place.relay.clock.advance(UPSTREAM_PATIENCE);
    });
    assert!(told.iter().all(|status| *status == StatusCode::SERVICE_UNAVAILABLE), "{told:?}");
    assert_eq!(file(&place.relay, second, "b").await, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(file(&place.relay, first, "a").await, StatusCode::OK);
    place.proxy.clear_rules();
    place.relay.asks_again();
    let third = place.there.change("c", "third");
    assert_eq!(stands(&place.relay, "main").await, Some(third));
    assert_eq!(file(&place.relay, third, "c").await, StatusCode::OK);
    // A fetch that never got an answer is repeated.
    assert_eq!(file(&place.relay, second, "b").await, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_repository_list_is_served_from_the_cache() {
    let place = Relayed::new();
    place.commit("first").await;
    place.proxy.add(Rule::new(Fault::Stall).test(|seen| seen.path.ends_with("/v1/repos")));
    let names = async || {
        let asked = place.relay.client.get(format!("{}/v1/repos", place.relay.origin()));
        let answer = asked.send().await.unwrap();
        let is_old = answer.headers().contains_key("snap-upstream");
        let bytes = answer.bytes().await.unwrap();
        let told: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(told["repositories"][0]["name"], "default");
        is_old
    };
    // Those who come together wait together.
    let all = join_all((0..40).map(|_| names()));
    let (old, ()) = futures::join!(all, place.relay.pass_all(40, UPSTREAM_PATIENCE));
    assert!(old.into_iter().all(|is_old| is_old));
    // The failure is remembered, so nobody waits while the clock stands still.
    assert!(names().await);
    place.proxy.clear_rules();
    // The query that hangs ends, and the list in the cache is too old.
    place.relay.clock.advance(3 * UPSTREAM_PATIENCE);
    assert!(!names().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_bundle_upload_does_not_evict_cached_packs() {
    const ROOM: u64 = 3 << 20;
    let (bucket, place, other) = (Bucket::new(), Place::new(), Place::new());
    let one = bucket.replica("one");
    create(&one).await;
    let mut before = None;
    for number in 0..6 {
        let commit = place.change(&format!("file{number}"), noise(number));
        push(&one, &place, before, commit).await;
        before = Some(commit);
    }
    let commit = other.change("b", "own");
    let bundle = bundle_of(&other, commit).await;
    let half = bundle.len() as u64 / 2;
    let (begun, rest) = (bundle[..bundle.len() / 2].to_vec(), bundle[bundle.len() / 2..].to_vec());
    let small = bucket.bounded("small", ROOM);
    assert_eq!(stands(&small, "main").await, before);
    let (go_on, wait) = oneshot::channel::<()>();
    let rest = async move {
        wait.await.unwrap();
        rest
    };
    let body = stream::iter([begun]).chain(stream::once(rest)).map(std::io::Result::Ok);
    let sending =
        small.client.post(format!("{}/bundles", small.base)).body(Body::wrap_stream(body));
    let sending = tokio::spawn(sending.send());
    let has_come = |text: &str| number(text, "snap_received_bytes_total") >= Some(half);
    metrics(&small, "", has_come).await;
    for id in place.repo.store().packs() {
        assert!(pack(&small, &id).await == place.pack_bytes(&id));
    }
    let kept = kept_bytes(&bucket.folder.path().join("small"));
    assert!(kept <= ROOM + (2 << 20), "{kept}");
    go_on.send(()).unwrap();
    let sent = sending.await.unwrap().unwrap();
    assert!(sent.status().is_success(), "{}", sent.text().await.unwrap());
    let there = bucket.replica("two").get(&format!("objects/{commit}")).send().await.unwrap();
    assert_eq!(there.status(), StatusCode::OK);
}
