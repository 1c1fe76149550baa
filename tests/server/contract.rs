//! The contract of every peer: a store in a folder, in memory, in a bucket, on a WebDAV share, on a
//! snap server, behind a relay and a replica, and the store of a project on this machine.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use futures::future::join_all;
use snap_core::{
    base::{id::CommitId, observe::Silent},
    repo::{Config, RefName},
};
use snap_nettest::{DavOptions, DavServer, S3Options, S3Server};
use snap_remote::{
    bucket::{
        FailureReason, UploadProgress,
        client::{Client, RequestPolicy},
        memory::MemoryBucket,
    },
    peer::{
        NewStore, PackToSend, RefMove, RemoteError, RemoteStore, StoreLookup,
        open::{Opening, RemoteCredentials},
        slot::RefSlot,
    },
};

use crate::{
    place::{Place, Serving},
    upstream::{Bucket, relay},
};

/// Number of clients that create a ref at the same moment.
const CLIENTS: usize = 6;

/// Opens the store at a location.
fn at(
    location: &str,
    options: &[(&str, &str)],
    key: Option<(&str, &str)>,
    cache: &Path,
) -> RemoteStore {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let (location, options) = (location.parse().unwrap(), options.collect::<BTreeMap<_, _>>());
    let secrets = RemoteCredentials {
        name: key.map(|(name, _)| name.to_owned()),
        secret: key.map(|(_, secret)| secret.to_owned()),
        session: None,
    };
    Opening::new(&location, &options, &secrets, &Arc::default()).store(cache).unwrap()
}

/// Sends all packs of a store that the peer lacks, and publishes them.
async fn push_packs(peer: &mut RemoteStore, from: &Place) {
    peer.refresh().await.unwrap();
    let there = peer.mirror().store().packs();
    let mut packs = from.repo.store().packs();
    packs.retain(|id| !there.contains(id));
    for id in &packs {
        let path = from.repo.store().pack_path(id);
        let pack = PackToSend { id: *id, path: &path, bytes: from.pack_bytes(id).len() as u64 };
        // A client whose answer was lost sends the pack again.
        for _ in 0..2 {
            peer.place().send(pack, &UploadProgress::default()).await.unwrap();
        }
    }
    peer.publish(from.repo.store(), &packs).await.unwrap();
}

async fn moved(
    peer: &RemoteStore,
    name: &RefName,
    expected: &RefSlot,
    new: Option<CommitId>,
) -> Result<(), RemoteError> {
    peer.swap(RefMove { name, expected, new }, &Silent).await
}

/// Checks what holds for every peer. `open` opens the store with a mirror in a folder.
async fn keeps_to_it(exists: bool, open: impl Fn(&Path) -> RemoteStore) {
    let (from, caches) = (Place::new(), tempfile::tempdir().unwrap());
    let cache = |number: usize| caches.path().join(number.to_string());
    let (mut one, mut two) = (open(&cache(1)), open(&cache(2)));
    let main = RefName::branch("main").unwrap();
    if !exists {
        assert_eq!(one.inspect_location().await.unwrap(), StoreLookup::Missing);
        let new = NewStore { config: Config::default().to_text(), head: main.clone() };
        one.create(&new).await.unwrap();
        // Another client has created the store meanwhile.
        two.create(&new).await.unwrap();
    }
    for peer in [&one, &two] {
        assert_eq!(peer.inspect_location().await.unwrap(), StoreLookup::Store);
        peer.place().must_exist().await.unwrap();
        assert_eq!(peer.place().all_refs().await.unwrap(), []);
    }

    // A pack whose bytes do not hash to its name is not kept.
    let first = from.change("a", "first");
    let id = from.repo.store().packs()[0];
    let wrong = caches.path().join("wrong");
    let mut bytes = from.pack_bytes(&id);
    *bytes.last_mut().unwrap() ^= 1;
    fs_err::write(&wrong, &bytes).unwrap();
    let pack = PackToSend { id, path: &wrong, bytes: bytes.len() as u64 };
    let refused = one.place().send(pack, &UploadProgress::default()).await.unwrap_err();
    let is_refusal = matches!(refused.reason, FailureReason::Damaged | FailureReason::Refused);
    assert!(is_refusal, "{refused}");

    // Published packs are visible with all their objects, and can be read in ranges.
    push_packs(&mut one, &from).await;
    two.refresh().await.unwrap();
    assert!(two.mirror().has(&first.object()).unwrap());
    let whole = from.pack_bytes(&id);
    let length = whole.len() as u64;
    assert_eq!(two.place().pack_bytes(id).await.unwrap(), Some(length));
    assert_eq!(two.place().read(id, 0..length).await.unwrap(), whole);
    assert_eq!(two.place().read(id, 5..9).await.unwrap(), whole[5..9]);

    // Of many clients that create a ref, one wins, and the others learn that they have lost.
    let commits: Vec<CommitId> = (0..CLIENTS).map(|n| from.change("own", n.to_string())).collect();
    push_packs(&mut one, &from).await;
    let (slot, _) = one.place().look(&main).await.unwrap();
    assert!(!slot.exists() && slot.commit.is_none());
    let creations = commits.iter().enumerate().map(|(number, commit)| {
        let (mut peer, slot, main) = (open(&cache(10 + number)), &slot, &main);
        async move {
            peer.refresh().await.unwrap();
            moved(&peer, main, slot, Some(*commit)).await.map(|()| *commit)
        }
    });
    let results = join_all(creations).await;
    let won: Vec<CommitId> =
        results.iter().filter_map(|result| result.as_ref().ok().copied()).collect();
    for error in results.iter().filter_map(|result| result.as_ref().err()) {
        assert!(matches!(error, RemoteError::Raced { .. }), "{error}");
    }
    assert_eq!(won.len(), 1, "{results:?}");
    assert_eq!(two.place().all_refs().await.unwrap(), [(main.clone(), won[0])]);
    assert_eq!(two.place().default_branch().await.unwrap(), main);

    // A name below a ref is refused, and changes nothing.
    let below = RefName::branch("main/below").unwrap();
    let absent = two.place().any_slot(&below).await.unwrap();
    moved(&two, &below, &absent, Some(first)).await.unwrap_err();
    assert_eq!(two.place().read_ref(&below).await.unwrap(), None);

    // A move relies on the content that the client has seen.
    let seen = two.place().slot(&main).await.unwrap();
    let second = from.change("b", "second");
    push_packs(&mut one, &from).await;
    let slot = one.place().slot(&main).await.unwrap();
    moved(&one, &main, &slot, Some(second)).await.unwrap();
    let late = moved(&two, &main, &seen, Some(first)).await.unwrap_err();
    assert!(matches!(late, RemoteError::Raced { theirs, .. } if theirs == Some(second)), "{late}");
    assert_eq!(two.place().read_ref(&main).await.unwrap(), Some(second));

    // A deleted ref is gone, and its name is free again.
    let slot = two.place().slot(&main).await.unwrap();
    two.refresh().await.unwrap();
    moved(&two, &main, &slot, None).await.unwrap();
    assert_eq!(one.place().all_refs().await.unwrap(), []);
    let slot = one.place().slot(&main).await.unwrap();
    assert_eq!(slot.commit, None);
    moved(&one, &main, &slot, Some(second)).await.unwrap();
    assert_eq!(two.place().read_ref(&main).await.unwrap(), Some(second));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_in_a_folder_keeps_to_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let location = format!("file://{}", folder.path().join("store").display());
    keeps_to_it(false, |cache| at(&location, &[], None, cache)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_in_memory_keeps_to_the_contract() {
    let open = |cache: &Path| {
        let bucket = Arc::new(MemoryBucket::named("peers"));
        let client = Client::new(bucket, RequestPolicy::default(), Arc::default());
        RemoteStore::new(client, "test://peers".to_owned(), cache).unwrap()
    };
    keeps_to_it(false, open).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_in_a_bucket_keeps_to_the_contract() {
    let server = S3Server::start(S3Options::default());
    let endpoint = server.endpoint();
    let options = [("endpoint", &*endpoint), ("region", "us-east-1")];
    let key = Some((server.access_key(), server.secret_key()));
    keeps_to_it(false, |cache| at("s3://bucket/store", &options, key, cache)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_on_a_share_keeps_to_the_contract() {
    let server = DavServer::start(DavOptions::default());
    let location = format!("{}/store", server.endpoint().replacen("http", "webdav", 1));
    keeps_to_it(false, |cache| at(&location, &[], None, cache)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_of_a_project_keeps_to_the_contract() {
    let place = Place::new();
    let location = format!("file://{}", place.store().display());
    keeps_to_it(true, |cache| at(&location, &[], None, cache)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_keeps_to_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let serving = Serving::over(folder.path());
    let location = format!("{}/team/store", serving.origin());
    keeps_to_it(false, |cache| at(&location, &[], None, cache)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_keeps_to_the_contract() {
    let (folder, caches) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let serving = Serving::over(folder.path());
    let relay = relay(serving.origin(), caches.path());
    let location = format!("{}/team/store", relay.origin());
    keeps_to_it(false, |cache| at(&location, &[], None, cache)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_keeps_to_the_contract() {
    let bucket = Bucket::new();
    let replica = bucket.replica("one");
    let location = format!("{}/default", replica.origin());
    keeps_to_it(false, |cache| at(&location, &[], None, cache)).await;
}
