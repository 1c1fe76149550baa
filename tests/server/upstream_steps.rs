//! Tests of a push whose steps fail half-way, or go to several replicas of one bucket.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use reqwest::{Body, RequestBuilder, StatusCode};
use snap_core::{
    base::id::{BlobId, CommitId, ObjectId},
    format::pack::ObjectKind,
};
use snap_nettest::{Fault, Kind, Rule};

use crate::{
    place::{Place, Serving, json, refused},
    upstream::{Bucket, create, pack, push, set, stands},
};

fn object(serving: &Serving, id: ObjectId, kind: &str, bytes: impl Into<Body>) -> RequestBuilder {
    serving.put(&format!("objects/{id}"), bytes).header("snap-kind", kind)
}

fn bundle(serving: &Serving, bytes: &[u8]) -> RequestBuilder {
    serving.client.post(format!("{}/bundles", serving.base)).body(bytes.to_vec())
}

/// Returns the bundle of a commit.
pub(crate) async fn bundle_of(place: &Place, commit: CommitId) -> Vec<u8> {
    let serving = Serving::of(place);
    let read = serving.get(&format!("commits/{commit}/bundle")).send().await.unwrap();
    assert_eq!(read.status(), StatusCode::OK);
    read.bytes().await.unwrap().to_vec()
}

async fn is_there(serving: &Serving, id: ObjectId) -> bool {
    serving.get(&format!("objects/{id}")).send().await.unwrap().status() == StatusCode::OK
}

/// Returns all folders of this name below a folder.
fn folders(below: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(folders(&path, name));
            found.extend(path.ends_with(name).then_some(path));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retried_upload_is_published_before_it_is_confirmed() {
    let bucket = Bucket::new();
    let one = bucket.replica("one");
    create(&one).await;
    let id = BlobId::of(b"content").object();
    bucket.proxy.add(Rule::new(Fault::Reset).kind(Kind::Put).path("/index/"));
    refused(object(&one, id, "blob", "content"), 503, "unavailable").await;
    bucket.come_back();
    assert!(!is_there(&bucket.replica("two"), id).await);
    let again = object(&one, id, "blob", "content").send().await.unwrap();
    assert_eq!(again.status(), StatusCode::CREATED);
    assert!(is_there(&bucket.replica("three"), id).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_bundle_is_confirmed_only_after_publication() {
    let (bucket, place) = (Bucket::new(), Place::new());
    let commit = place.change("a", "first");
    let bytes = bundle_of(&place, commit).await;
    let one = bucket.replica("one");
    create(&one).await;
    assert!(!is_there(&one, commit.object()).await);
    bucket.proxy.add(Rule::new(Fault::Reset).kind(Kind::Put).path("/index/"));
    refused(bundle(&one, &bytes), 503, "unavailable").await;
    bucket.come_back();
    assert!(!is_there(&one, commit.object()).await);
    let second = bundle(&one, &bytes).send().await.unwrap();
    assert!(second.status().is_success(), "{}", second.text().await.unwrap());
    assert!(is_there(&bucket.replica("two"), commit.object()).await);
    let moved = set(&one, "main", None, commit).send().await.unwrap();
    assert_eq!(moved.status(), StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ref_to_an_unknown_commit_is_checked_again() {
    let (bucket, place) = (Bucket::new(), Place::new());
    let first = place.change("a", "first");
    let one = bucket.replica("one");
    create(&one).await;
    push(&one, &place, None, first).await;
    let all = bucket.server.dump();
    let mut less = all.clone();
    less.retain(|key, _| !key.contains("/index/"));
    bucket.server.load(less);
    let two = bucket.replica("two");
    assert_eq!(stands(&two, "main").await, None);
    bucket.server.load(all);
    assert_eq!(stands(&two, "main").await, Some(first));
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_commit_can_come_through_several_replicas() {
    let (bucket, place) = (Bucket::new(), Place::new());
    let commit = place.change("a", "first");
    let (one, two) = (bucket.replica("one"), bucket.replica("two"));
    create(&one).await;
    let store = place.repo.store();
    let tree = store.commit(&commit).unwrap().tree;
    let blob = BlobId::of(b"first").object();
    let missing = serde_json::json!({ "ids": [blob.to_string()] }).to_string();
    let missing = async |serving: &Serving| {
        let asked = serving.client.post(format!("{}/missing", serving.base));
        let asked = asked.header("content-type", "application/json").body(missing.clone());
        json(asked, StatusCode::OK).await["missing"].as_array().unwrap().len()
    };
    assert_eq!(missing(&two).await, 1);
    let steps = [
        (&one, blob, "blob", ObjectKind::Blob),
        (&two, tree.object(), "tree", ObjectKind::Tree),
        (&one, commit.object(), "commit", ObjectKind::Commit),
    ];
    for (serving, id, name, kind) in steps {
        let bytes = match kind {
            ObjectKind::Blob => b"first".to_vec(),
            kind => store.object(&id, kind).unwrap(),
        };
        let sent = object(serving, id, name, bytes).send().await.unwrap();
        assert_eq!(sent.status(), StatusCode::CREATED, "{name}");
    }
    assert_eq!(missing(&two).await, 0);
    assert!(is_there(&two, commit.object()).await);
    let moved = set(&two, "main", None, commit).send().await.unwrap();
    assert_eq!(moved.status(), StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_of_packs_reads_no_pack_of_the_bucket() {
    let (bucket, place) = (Bucket::new(), Place::new());
    // The second version of this long content shares most chunks with the first.
    let mut content: Vec<u8> = (0..12).flat_map(noise).collect();
    let first = place.change("a", &content);
    let one = bucket.replica("one");
    create(&one).await;
    push(&one, &place, None, first).await;
    let before = place.repo.store().packs();
    content.extend(b"more");
    let second = place.change("a", &content);
    let new: Vec<_> =
        place.repo.store().packs().into_iter().filter(|id| !before.contains(id)).collect();
    let two = bucket.replica("two");
    assert_eq!(stands(&two, "main").await, Some(first));
    bucket.proxy.add(Rule::new(Fault::Reset).kind(Kind::Get).path("/objects/"));
    let sent = two.send(&place, &new).await;
    assert_eq!(sent.status(), StatusCode::CREATED);
    bucket.come_back();
    let moved = set(&two, "main", Some(first), second).send().await.unwrap();
    assert_eq!(moved.status(), StatusCode::OK);
}

pub(crate) fn noise(seed: u64) -> Vec<u8> {
    let hashes = (0..32_u64 << 10).map(|at| blake3::hash(&(at << 8 | seed).to_le_bytes()));
    hashes.flat_map(|hash| *hash.as_bytes()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_larger_than_the_cache_is_served() {
    let (bucket, place) = (Bucket::new(), Place::new());
    let commit = place.change("a", noise(1));
    let one = bucket.replica("one");
    create(&one).await;
    push(&one, &place, None, commit).await;
    let small = bucket.bounded("small", 100 << 10);
    for id in place.repo.store().packs() {
        for _ in 0..2 {
            assert!(pack(&small, &id).await == place.pack_bytes(&id));
        }
    }
}

/// Returns the disk space of all packs below a folder, whole and partial, in bytes.
pub(crate) fn taken_bytes(below: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let both = ["store/objects", "store/partial"].map(|name| folders(below, name));
    let files = both.iter().flatten().flat_map(|folder| fs_err::read_dir(folder).unwrap());
    files.map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn partial_packs_count_towards_the_cache_and_are_evicted() {
    const ROOM: u64 = 3 << 20;
    let (bucket, place) = (Bucket::new(), Place::new());
    let one = bucket.replica("one");
    create(&one).await;
    let mut before = None;
    for number in 0..7 {
        let commit = place.change(&format!("file{number}"), noise(number));
        push(&one, &place, before, commit).await;
        before = Some(commit);
    }
    let small = bucket.bounded("small", ROOM);
    let folder = bucket.folder.path().join("small");
    for number in 0..7 {
        let path = format!("commits/main/files/file{number}");
        let read = small.get(&path).send().await.unwrap();
        assert_eq!(read.status(), StatusCode::OK);
        assert!(read.bytes().await.unwrap() == noise(number));
        // Age the files, because the least recently used one is evicted.
        for folder in folders(&folder, "store/partial") {
            for entry in fs_err::read_dir(folder).unwrap() {
                let file = fs_err::File::options().write(true).open(entry.unwrap().path()).unwrap();
                let past = file.metadata().unwrap().modified().unwrap() - Duration::from_secs(60);
                file.file().set_modified(past).unwrap();
            }
        }
    }
    let taken = taken_bytes(&folder);
    assert!(taken <= ROOM + (2 << 20), "{taken}");
}
