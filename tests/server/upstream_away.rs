//! Servers before others that are away, refuse, hang, or are not what they were.

use std::time::Duration;

use reqwest::StatusCode;
use snap_core::base::id::CommitId;
use snap_nettest::{Fault, Proxy, Rule};

use crate::{
    place::{Place, Serving, refused},
    upstream::{pack, push, relay, set, stands},
};

/// A server with a store, a proxy before it, and a relay before that.
struct Relayed {
    there: Place,
    _server: Serving,
    proxy: Proxy,
    relay: Serving,
    _cache: tempfile::TempDir,
}

impl Relayed {
    fn new() -> Self {
        let there = Place::new();
        let server = Serving::of(&there);
        let proxy = Proxy::start(server.origin());
        let cache = tempfile::tempdir().unwrap();
        let relay = relay(&proxy.endpoint(), cache.path());
        Self { there, _server: server, proxy, relay, _cache: cache }
    }

    /// A commit there, all of which is here then.
    async fn commit(&self, content: &str) -> CommitId {
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

/// Nobody asks before.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(1100)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_be_seen_any_more_takes_nothing_with_it() {
    let place = Relayed::new();
    let first = place.commit("first").await;
    // Its token may have lost it, its folder may not be mounted.
    place.proxy.add(Rule::new(Fault::status(404)));
    for _ in 0..2 {
        assert!(place.says_away().await);
        assert_eq!(stands(&place.relay, "main").await, Some(first));
        for id in place.there.repo.store().packs() {
            assert_eq!(pack(&place.relay, &id).await, place.there.pack_bytes(&id));
        }
        let other = set(&place.relay, "other", None, first);
        refused(other, 503, "unavailable").await;
        pause().await;
    }
    place.proxy.clear_rules();
    assert!(!place.says_away().await);
    let second = place.commit("second").await;
    let moved = set(&place.relay, "other", None, second).send().await.unwrap();
    assert_eq!(moved.status(), StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_cannot_be_had_for_a_moment_is_not_an_empty_one() {
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
