//! Tests of caches and served folders that are removed while a server runs.

use reqwest::StatusCode;
use serde_json::Value;
use snap_core::base::id::CommitId;

use crate::{
    place::{Place, Serving, refused},
    upstream::{pack, relay, stands},
    upstream_away::Relayed,
};

/// Checks that the relay's answers are complete and current.
async fn tells_all(serving: &Serving, there: &Place, commit: CommitId) {
    assert_eq!(stands(serving, "main").await, Some(commit));
    let listed = serving.get("refs").send().await.unwrap();
    assert_eq!(listed.status(), StatusCode::OK);
    assert!(!listed.headers().contains_key("snap-upstream"));
    let listed: Value = serde_json::from_slice(&listed.bytes().await.unwrap()).unwrap();
    assert_eq!(listed["refs"][0]["commit"], commit.to_string());
    for id in there.repo.store().packs() {
        assert_eq!(pack(serving, &id).await, there.pack_bytes(&id));
    }
    let ready = serving.client.get(format!("{}/ready", serving.origin())).send().await.unwrap();
    assert_eq!(ready.status(), StatusCode::OK);
}

/// Returns the folder in which a relay caches its repository.
fn kept(place: &Relayed) -> std::path::PathBuf {
    let caches = fs_err::read_dir(place.cache.path()).unwrap();
    let cache = caches.map(|entry| entry.unwrap().path()).find(|path| path.is_dir()).unwrap();
    cache.join("default")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_removed_at_run_time_is_rebuilt() {
    let place = Relayed::new();
    let commit = place.commit("first").await;
    let parts = ["", "store", "store/refs", "store/partial", "store/objects", "mirror"];
    for part in parts {
        match fs_err::remove_dir_all(kept(&place).join(part)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed.unwrap(),
        }
        tells_all(&place.relay, &place.there, commit).await;
    }
    fs_err::remove_dir_all(kept(&place).parent().unwrap()).unwrap();
    tells_all(&place.relay, &place.there, commit).await;
    // A relay that starts with a part of the cache missing rebuilds it as well.
    for part in ["store/refs", "store/objects", "mirror", "store/config.toml"] {
        let half = kept(&place).join(part);
        let _ = fs_err::remove_dir_all(&half);
        let _ = fs_err::remove_file(&half);
        let caches = tempfile::tempdir().unwrap();
        let copy = caches.path().join("cache");
        let mut copying = std::process::Command::new("cp");
        let copied = copying.arg("-a").arg(place.cache.path()).arg(&copy).status().unwrap();
        assert!(copied.success());
        let other = relay(&place.proxy.endpoint(), &copy);
        tells_all(&other, &place.there, commit).await;
        tells_all(&place.relay, &place.there, commit).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_without_cache_and_upstream_is_not_shown_empty() {
    let place = Relayed::new();
    let commit = place.commit("first").await;
    place.proxy.add(snap_nettest::Rule::new(snap_nettest::Fault::Reset));
    assert_eq!(stands(&place.relay, "main").await, Some(commit), "the cached ref is served");
    fs_err::remove_dir_all(kept(&place).join("store/refs/heads")).unwrap();
    refused(place.relay.get("refs"), 503, "unavailable").await;
    fs_err::remove_dir_all(kept(&place)).unwrap();
    refused(place.relay.get("refs"), 503, "unavailable").await;
    place.proxy.clear_rules();
    place.relay.asks_again();
    tells_all(&place.relay, &place.there, commit).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_removed_at_run_time_is_unavailable_not_empty() {
    let place = Place::new();
    let commit = place.change("a", "first");
    let serving = Serving::of(&place);
    assert_eq!(stands(&serving, "main").await, Some(commit));
    let away = place.folder.path().join("away");
    fs_err::rename(place.store(), &away).unwrap();
    refused(serving.get("refs"), 503, "unavailable").await;
    refused(serving.get("index"), 503, "unavailable").await;
    let ready = format!("{}/ready", serving.origin());
    let unready = serving.client.get(&ready).send().await.unwrap();
    assert_eq!(unready.status(), StatusCode::SERVICE_UNAVAILABLE);
    fs_err::rename(&away, place.store()).unwrap();
    assert_eq!(stands(&serving, "main").await, Some(commit));

    // Below a folder of stores, one store may vanish. If the folder itself vanishes,
    // that is an error.
    let folder = tempfile::tempdir().unwrap();
    let stores = folder.path().join("stores");
    fs_err::create_dir(&stores).unwrap();
    fs_err::rename(place.store(), stores.join("default")).unwrap();
    let serving = Serving::over(&stores);
    assert_eq!(stands(&serving, "main").await, Some(commit));
    fs_err::remove_dir_all(stores.join("default")).unwrap();
    refused(serving.get("refs"), 404, "no-repository").await;
    fs_err::remove_dir_all(&stores).unwrap();
    fs_err::create_dir(&stores).unwrap();
    refused(serving.get("refs"), 503, "unavailable").await;
    let ready = format!("{}/ready", serving.origin());
    let unready = serving.client.get(&ready).send().await.unwrap();
    assert_eq!(unready.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_lost_upstream_is_listed_and_served() {
    let (folder, cache, place) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), Place::new());
    let commit = place.change("a", "first");
    fs_err::rename(place.store(), folder.path().join("default")).unwrap();
    let serving = Serving::over(folder.path());
    let relay = relay(serving.origin(), cache.path());
    assert_eq!(stands(&relay, "main").await, Some(commit));
    fs_err::remove_dir_all(folder.path().join("default")).unwrap();
    relay.asks_again();
    for url in [format!("{}/refs", relay.base), format!("{}/v1/repos", relay.origin())] {
        let told = relay.client.get(&url).send().await.unwrap();
        assert_eq!(told.status(), StatusCode::OK, "{url}");
        assert!(told.headers().contains_key("snap-upstream"), "{url}");
        let told = told.text().await.unwrap();
        assert!(told.contains("main") || told.contains("\"default\""), "{url}: {told}");
    }
}
