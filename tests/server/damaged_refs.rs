//! Tests of stores and upstreams with damaged refs: only requests that need such a ref
//! fail.

use std::path::Path;

use reqwest::StatusCode;
use serde_json::json as value;
use snap_core::{
    base::id::CommitId,
    disk::Disk,
    repo::{ref_name::RefName, refs::Refs},
};

use crate::{
    place::{Place, Serving, eventually, json, refused},
    upstream::relay,
};

/// Creates a store with a commit at `main` and a damaged branch `other`.
fn with_damage() -> (Place, CommitId) {
    let place = Place::new();
    let commit = place.change("a", "first");
    damage(&place.store(), "other");
    (place, commit)
}

fn damage(store: &Path, name: &str) {
    fs_err::write(store.join("refs/heads").join(name), "garbage\n").unwrap();
}

async fn text_of(serving: &Serving, path: &str) -> (StatusCode, String) {
    let answer = serving.client.get(format!("{}{path}", serving.origin())).send().await.unwrap();
    (answer.status(), answer.text().await.unwrap())
}

async fn tag(serving: &Serving, path: &str) -> Option<String> {
    let answer = serving.get(path).send().await.unwrap();
    answer.headers().get("etag").map(|tag| tag.to_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_ref_is_reported_and_the_rest_is_served() {
    let (place, commit) = with_damage();
    let serving = Serving::of(&place);
    let archive = "/v1/repos/default/commits/main";
    for path in ["archive.tar", "archive.zip", "bundle", "tree"] {
        let (status, _) = text_of(&serving, &format!("{archive}/{path}")).await;
        assert_eq!(status, StatusCode::OK, "{path}");
    }
    for path in ["log", "stats", "find?pattern=a"] {
        assert_eq!(serving.get(path).send().await.unwrap().status(), StatusCode::OK, "{path}");
    }
    for path in ["/", "/r/default", "/r/default/refs"] {
        let (status, page) = text_of(&serving, path).await;
        assert_eq!(status, StatusCode::OK, "{path}: {page}");
        assert!(page.contains("The branch <bdi>other</bdi> is damaged"), "{path}: {page}");
    }
    for path in ["/r/default/stats", &format!("/r/default/c/{commit}")] {
        let (status, page) = text_of(&serving, path).await;
        assert_eq!(status, StatusCode::OK, "{path}: {page}");
    }
    for path in ["commits/other", "commits/other/archive.tar", "log?ref=other"] {
        let problem = refused(serving.get(path), 500, "damaged").await;
        assert_eq!(problem["detail"], "refs/heads/other is damaged", "{path}");
    }
    let (status, page) = text_of(&serving, "/r/default?rev=other").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(page.contains("refs/heads/other is damaged"), "{page}");
    // The page also reports the damage if no ref is sound.
    fs_err::write(place.store().join("refs/heads/main"), "").unwrap();
    // The server reads the refs again after some seconds.
    let is_told = async || {
        let (status, page) = text_of(&serving, "/r/default").await;
        assert_eq!(status, StatusCode::OK);
        page.contains("The branch <bdi>main</bdi> is damaged").then_some(())
    };
    eventually("the page does not report the damage", is_told).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_reports_damaged_refs_and_serves_the_others() {
    let (folder, (there, commit)) = (tempfile::tempdir().unwrap(), with_damage());
    let server = Serving::of(&there);
    let listed = json(server.get("refs"), StatusCode::OK).await;
    assert_eq!(listed["damaged"], value!(["refs/heads/other"]));
    let cache = folder.path().join("cache");
    let mut relayed = relay(server.origin(), &cache);
    for _ in 0..2 {
        assert_eq!(json(relayed.get("refs"), StatusCode::OK).await, listed);
        let body = format!("{{\"commit\": \"{commit}\"}}");
        let read = json(relayed.get("refs/heads/main"), StatusCode::OK).await;
        assert_eq!(read["commit"], commit.to_string());
        refused(relayed.get("refs/heads/other"), 500, "damaged").await;
        refused(relayed.get("commits/other"), 500, "damaged").await;
        // A damaged ref can be replaced if the damage is still the same.
        let damaged = tag(&relayed, "refs/heads/other").await.unwrap();
        let put = |tag: &str| relayed.put("refs/heads/other", body.clone()).header("if-match", tag);
        refused(put(&format!("\"{commit}\"")), 412, "conflict").await;
        fs_err::write(there.store().join("refs/heads/other"), "other garbage").unwrap();
        refused(put(&damaged), 412, "conflict").await;
        let damaged = tag(&relayed, "refs/heads/other").await.unwrap();
        assert_eq!(put(&damaged).send().await.unwrap().status(), StatusCode::OK);
        let refs = Refs::new(&there.store(), Disk::default());
        let name = RefName::branch("other").unwrap();
        assert_eq!(refs.read(&name).unwrap(), Some(commit));
        let sound = json(relayed.get("refs"), StatusCode::OK).await;
        assert_eq!((sound["refs"].as_array().unwrap().len(), sound.get("damaged")), (2, None));
        // A sound ref becomes damaged, and a relay that restarts notices.
        fs_err::remove_file(there.store().join("refs/heads/other")).unwrap();
        damage(&there.store(), "other");
        assert_eq!(json(relayed.get("refs"), StatusCode::OK).await, listed);
        relayed = relay(server.origin(), &cache);
    }
    // The ref is deleted at the upstream.
    let damaged = tag(&relayed, "refs/heads/other").await.unwrap();
    let delete = relayed.client.delete(format!("{}/refs/heads/other", relayed.base));
    let deleted = delete.header("if-match", damaged).send().await.unwrap();
    assert_eq!(deleted.status(), StatusCode::NO_CONTENT);
    assert_eq!(json(relayed.get("refs"), StatusCode::OK).await.get("damaged"), None);
    // A damaged `HEAD` does not block the rest.
    fs_err::write(there.store().join("HEAD"), "").unwrap();
    let refs = json(relayed.get("refs"), StatusCode::OK).await;
    assert_eq!(refs["refs"][0]["name"], "refs/heads/main");
}
