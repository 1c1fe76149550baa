//! The index of a remote store: few files, no loss, read again after a change.

use std::sync::Arc;

use snap_core::{base::kind::ErrorKind, format::outline};
use snap_nettest::{S3Options, S3Server};
use snap_remote::{
    bucket::{Bucket, ListDepth, memory::MemoryBucket, traffic::Traffic},
    peer::RemoteError,
};

use crate::place::{Place, Wrapped, bucket, complete};

#[test]
fn the_index_stays_one_page_and_few_files_after_many_pushes() {
    let traffic = Arc::new(Traffic::default());
    let memory = || Arc::new(MemoryBucket::named("many_pushes"));
    let here = Place::new();
    let mut remote = here.remote_counting(memory(), "remote", Arc::clone(&traffic));
    let (mut most, mut last, mut over) = (0, None, 0);
    for number in 0..300 {
        let commit = here.change("a", format!("number {number}"));
        let before = traffic.counts().requests();
        here.push(&mut remote, commit).unwrap();
        // In this service each removed file is one request; in a bucket all are one request.
        let requests = traffic.counts().requests() - before;
        over += u64::from(number > 0 && requests > 6);
        assert!(number == 0 || requests <= 6 + 40, "{requests} at {number}");
        let files = here.runtime.block_on(memory().list("index/", ListDepth::All)).unwrap().len();
        most = most.max(files);
        last = Some(commit);
    }
    assert!(most <= 40, "{most}");
    // One of eight pushes merges, and the next push removes the merged files.
    assert!(over <= 2 * (300 / 7 + 1), "{over} of 300 cost more");
    let fresh = Place::new();
    let before = traffic.counts().requests();
    let mut reader = fresh.remote_counting(memory(), "fresh", Arc::clone(&traffic));
    fresh.runtime.block_on(reader.refresh()).unwrap();
    assert!(traffic.counts().requests() - before <= 1 + 40);
    assert_eq!(reader.mirror().store().packs(), remote.mirror().store().packs());
    let again = traffic.counts().requests();
    fresh.runtime.block_on(reader.refresh()).unwrap();
    assert_eq!(traffic.counts().requests() - again, 1, "known index files are not read again");
    assert_eq!(complete(memory(), "main"), last);
}

#[test]
fn merging_in_a_bucket_takes_at_most_seven_requests() {
    let server = S3Server::start(S3Options::default());
    let traffic = Arc::new(Traffic::default());
    let here = Place::new();
    let service = bucket(&server.endpoint(), &server, &traffic);
    let mut remote = here.remote_counting(service, "remote", Arc::clone(&traffic));
    let mut removed = 0;
    for number in 0..40 {
        let commit = here.change("a", format!("number {number}"));
        let before = traffic.counts();
        here.push(&mut remote, commit).unwrap();
        let now = traffic.counts();
        let requests = now.requests() - before.requests();
        assert!(requests <= if number == 0 { 11 } else { 7 }, "{requests} at {number}");
        removed += now.by_kind[5] - before.by_kind[5];
    }
    assert!((4..=6).contains(&removed), "{removed}");
    let files = server.keys().iter().filter(|key| key.contains("/index/")).count();
    assert!(files <= 16, "{files}");
}

#[test]
fn concurrent_index_merges_lose_no_pack() {
    let memory = || Arc::new(MemoryBucket::named("two_merge"));
    let places: Vec<Place> = (0..3).map(|_| Place::new()).collect();
    let mut lasts = Vec::new();
    std::thread::scope(|scope| {
        let pushes = places.iter().enumerate().map(|(who, place)| {
            scope.spawn(move || {
                let mut remote = place.remote(memory(), "remote");
                let mut last = None;
                for number in 0..60 {
                    let commit = place.change("a", format!("{who} {number}"));
                    let refs = vec![place.update(&format!("b{who}"), commit)];
                    place.push_all(&mut remote, refs).unwrap().all_moved().unwrap();
                    last = Some(commit);
                }
                last
            })
        });
        let pushes: Vec<_> = pushes.collect();
        lasts = pushes.into_iter().map(|push| push.join().unwrap()).collect();
    });
    for (who, last) in lasts.into_iter().enumerate() {
        assert_eq!(complete(memory(), &format!("b{who}")), last);
    }
    let files = places[0].runtime.block_on(memory().list("index/", ListDepth::All)).unwrap().len();
    assert!(files <= 60, "{files}");
}

#[test]
fn an_index_file_merged_during_a_read_is_tolerated() {
    let memory = || Arc::new(MemoryBucket::named("merged_away"));
    let here = Place::new();
    let mut remote = here.remote(memory(), "remote");
    for number in 0..7 {
        let commit = here.change("a", format!("{number}"));
        here.push(&mut remote, commit).unwrap();
    }
    let reader = Place::new();
    // While the reader reads the files that it has listed, two pushes merge them away.
    let pusher = parking_lot::Mutex::new(Some((here, remote)));
    let pusher = Arc::new(pusher);
    let service = {
        let pusher = Arc::clone(&pusher);
        Wrapped::new(memory(), move |_, operation, key| {
            let merge = operation == "read" && key.starts_with("index/");
            let pusher = Arc::clone(&pusher);
            Box::pin(async move {
                if merge {
                    let merged = tokio::task::spawn_blocking(move || {
                        let Some((here, mut remote)) = pusher.lock().take() else {
                            return;
                        };
                        for text in ["merges", "removes"] {
                            let commit = here.change("a", text);
                            here.push(&mut remote, commit).unwrap();
                        }
                    });
                    merged.await.unwrap();
                }
                false
            })
        })
    };
    let mut other = reader.remote(service.clone(), "remote");
    reader.runtime.block_on(other.refresh()).unwrap();
    assert_eq!(other.mirror().store().packs().len(), 9);
    let lists = service.seen.lock().iter().filter(|(op, _)| *op == "list").count();
    assert!((2..=3).contains(&lists), "{lists}");
}

#[test]
fn lost_and_damaged_index_files_are_named() {
    let server = S3Server::start(S3Options::default());
    let here = Place::new();
    let service = || bucket(&server.endpoint(), &server, &Arc::default());
    let commit = here.change("a", "first");
    here.push(&mut here.remote(service(), "remote"), commit).unwrap();
    let key = server.keys().into_iter().find(|key| key.contains("/index/")).unwrap();
    let short = key.strip_prefix("some/prefix/").unwrap();
    let error = |cache: &str| {
        let mut reader = here.remote(service(), cache);
        here.runtime.block_on(reader.refresh()).unwrap_err()
    };
    let bytes = server.get(&key).unwrap();
    server.forget(&key);
    let vanished = error("one");
    assert!(matches!(vanished, RemoteError::Vanished { .. }), "{vanished}");
    assert_eq!(vanished.kind(), ErrorKind::Damaged);
    assert_eq!(
        vanished.to_string(),
        format!("{short} at test://place is listed but does not exist")
    );
    server.put(&key, bytes);
    server.corrupt(&key);
    let damaged = error("two");
    assert_eq!(damaged.kind(), ErrorKind::Damaged);
    let expected = format!("{short} at test://place is damaged: its bytes do not hash to its name");
    assert_eq!(damaged.to_string(), expected);
}

#[test]
fn an_index_of_several_files_takes_effect_atomically() {
    let memory = || Arc::new(MemoryBucket::named("several_files"));
    let here = Place::new();
    for number in 0..5 {
        here.change("a", format!("{number}"));
    }
    let last = here.change("a", "last");
    let service = Wrapped::new(memory(), |_, _, _| Box::pin(async { false }));
    let mut remote = here.remote(service.clone(), "remote").with_index_files_of(1);
    here.push(&mut remote, last).unwrap();
    // 2 reads, the settings, `HEAD`, the state of the collection, 6 packs, 6 parts, a group, a ref.
    assert_eq!(service.calls(), 19);
    let names: Vec<String> = {
        let listed = here.runtime.block_on(memory().list("index/", ListDepth::All)).unwrap();
        listed.into_iter().map(|object| object.key).collect()
    };
    let ending = |ending: &str| names.iter().filter(|name| name.ends_with(ending)).count();
    assert_eq!((ending(".part"), ending(".group")), (6, 1), "{names:?}");
    assert_eq!(complete(memory(), "main"), Some(last));
    // The published packs are known to the client that wrote them and to a new one.
    for cache in ["remote", "fresh"] {
        let more = here.change("a", cache);
        let sent = here.push(&mut here.remote(memory(), cache), more).unwrap();
        assert_eq!(sent.packs, 1, "{cache}");
    }
    // A group without one of its parts lists nothing.
    let part = names.iter().find(|name| name.ends_with(".part")).unwrap();
    here.runtime.block_on(memory().delete(&[part.to_owned()])).unwrap();
    let mut reader = here.remote(memory(), "reader");
    let vanished = here.runtime.block_on(reader.refresh()).unwrap_err();
    assert!(matches!(&vanished, RemoteError::Vanished { key, .. } if key == part), "{vanished}");
    assert!(!reader.mirror().has(&last.object()).unwrap());
}

#[test]
fn a_mirror_without_state_is_cleared_and_a_damaged_state_is_damage() {
    let memory = || Arc::new(MemoryBucket::named("mirror_state"));
    let here = Place::new();
    let first = here.change("a", "first");
    here.push(&mut here.remote(memory(), "remote"), first).unwrap();
    let (remote, other) = (here.remote(memory(), "remote"), here.remote(memory(), "remote"));
    let (one, other) = (remote.mirror(), other.mirror());
    assert!(one.was_seen() && !one.may_have_sent() && !one.is_damaged());
    // Two processes change the state, and lose nothing of each other.
    one.remember_sending();
    other.note_damaged_index(&["name".to_owned()]).unwrap();
    assert!(other.was_seen() && other.may_have_sent() && one.is_damaged());
    other.forget_sending();
    one.note_damaged_index(&[]).unwrap();
    assert!(one.was_seen() && !one.may_have_sent() && !other.is_damaged());
    let path = one.store().dir().join("state-5");
    fs_err::write(&path, "seen\n").unwrap();
    let damaged = here.remote(memory(), "remote");
    assert!(damaged.mirror().is_damaged() && !damaged.mirror().was_seen());
    assert_eq!(damaged.mirror().outlines().len(), 1);
    fs_err::remove_file(&path).unwrap();
    let mut cleared = here.remote(memory(), "remote");
    assert!(!cleared.mirror().was_seen() && cleared.mirror().outlines().is_empty());
    assert_eq!(here.push(&mut cleared, first).unwrap().packs, 0);
    assert!(cleared.mirror().was_seen() && cleared.mirror().has(&first.object()).unwrap());
}

#[test]
fn a_stub_without_an_index_file_is_not_trusted() {
    let memory = || Arc::new(MemoryBucket::named("stubs"));
    let here = Place::new();
    let first = here.change("a", "first");
    here.push(&mut here.remote(memory(), "remote"), first).unwrap();
    let second = here.change("a", "second");
    // As after a push that was killed between the two steps.
    let remote = here.remote(memory(), "remote");
    let store = here.repo.store();
    let outlines: Vec<_> = store.packs().iter().map(|id| store.outline(id).unwrap()).collect();
    remote.mirror().store().add_stubs(&outlines).unwrap();
    assert!(remote.mirror().has(&second.object()).unwrap());
    drop(remote);
    let mut remote = here.remote(memory(), "remote");
    assert!(remote.mirror().has(&first.object()).unwrap());
    assert!(!remote.mirror().has(&second.object()).unwrap());
    here.push(&mut remote, second).unwrap();
    assert_eq!(complete(memory(), "main"), Some(second));
}

#[test]
fn mirrors_keep_the_index_read_by_another_process() {
    let memory = || Arc::new(MemoryBucket::named("two_processes"));
    let here = Place::new();
    let first = here.change("a", "first");
    let (mut one, mut two) = (here.remote(memory(), "remote"), here.remote(memory(), "remote"));
    here.push(&mut one, first).unwrap();
    let second = here.change("a", "second");
    here.push(&mut two, second).unwrap();
    let again = here.remote(memory(), "remote");
    for commit in [first, second] {
        assert!(again.mirror().has(&commit.object()).unwrap());
    }
    assert_eq!(again.mirror().outlines().len(), 2);
}

#[test]
fn stores_of_other_versions_are_refused() {
    let server = S3Server::start(S3Options::default());
    let here = Place::new();
    let service = || bucket(&server.endpoint(), &server, &Arc::default());
    let first = here.change("a", "first");
    here.push(&mut here.remote(service(), "remote"), first).unwrap();
    let config = "some/prefix/config.toml";
    let text = String::from_utf8(server.get(config).unwrap().to_vec()).unwrap();
    let second = here.change("a", "second");
    for (version, message) in [
        (4, "has store version 4, from before the first release; this snap reads version 5"),
        (6, "has store version 6; this snap reads up to 5"),
    ] {
        let other = text.replace("\nversion = 5\n", &format!("\nversion = {version}\n"));
        server.put(config, other.into_bytes());
        let before = server.keys();
        let error = here.push(&mut here.remote(service(), "fresh"), second).unwrap_err();
        let RemoteError::Config { source, .. } = &error else { panic!("{error}") };
        assert!(source.to_string().contains(message), "{source}");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert_eq!(server.keys(), before);
    }
}

#[test]
fn files_of_a_newer_version_are_not_overwritten() {
    let server = S3Server::start(S3Options::default());
    let here = Place::new();
    let service = || bucket(&server.endpoint(), &server, &Arc::default());
    let first = here.change("a", "first");
    here.push(&mut here.remote(service(), "remote"), first).unwrap();
    let second = here.change("a", "second");
    let key = "some/prefix/refs/heads/main";
    let former = format!("{first} something new\n");
    let text = [&server.get(key).unwrap()[..], former.as_bytes()].concat();
    server.put(key, text);
    let before = server.keys();
    let error = here.push(&mut here.remote(service(), "remote"), second).unwrap_err();
    assert!(
        matches!(&error, RemoteError::Newer { key, .. } if key == "refs/heads/main"),
        "{error}"
    );
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let counts = |keys: &[String]| keys.iter().filter(|key| key.contains("/index/")).count();
    assert_eq!(counts(&server.keys()), counts(&before), "nothing was published");
    let mut newer = outline::encode(0, &[]);
    newer[8] = 4;
    server.put(&format!("some/prefix/index/{}", blake3::hash(&newer).to_hex()), newer);
    let mut reader = here.remote(service(), "fresh");
    let error = here.runtime.block_on(reader.refresh()).unwrap_err();
    assert!(
        matches!(&error, RemoteError::Newer { key, .. } if key.starts_with("index/")),
        "{error}"
    );
}

#[test]
fn stale_listings_lose_no_push() {
    let server = S3Server::start(S3Options::default());
    let here = Place::new();
    let service = || bucket(&server.endpoint(), &server, &Arc::default());
    let mut remote = here.remote(service(), "remote");
    server.freeze_listings(true);
    for number in 0..12 {
        let commit = here.change("a", format!("{number}"));
        let sent = here.push(&mut remote, commit).unwrap();
        assert_eq!(sent.packs, 1, "known objects are not sent again");
        server.freeze_listings(number < 9);
    }
    server.freeze_listings(false);
    let last = here.change("a", "last");
    here.push(&mut remote, last).unwrap();
    assert_eq!(complete(service(), "main"), Some(last));
}
