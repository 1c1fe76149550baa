//! Reading a remote store without a local copy.

use std::sync::Arc;

use snap_core::{
    base::{id::ContentId, observe::Silent},
    format::tree::{Entry, EntryKind},
    ops::cat,
    repo::{
        path::{ResolvedPath, resolve_path},
        spec::{Resolved, Revisions, SpecError, base_texts},
    },
};
use snap_nettest::{Fault, Proxy, Rule, S3Options, S3Server};
use snap_remote::{
    bucket::{memory::MemoryBucket, traffic::Traffic},
    peer::{RemoteError, RemoteStore},
    ranges::RangeReaderOptions,
    reader::{RefSelection, RemoteReader},
    remote_packs::BlockingContext,
    transfer::partial::PartialScope,
};
use snap_testkit::{bytes::Corpus, rng::Rng};

use super::{
    clone::clone_into,
    transfer::{MakeService, Place, bucket, with_each_service},
};
use crate::place::{self, Wrapped};

const LARGE: usize = 9 << 20;

fn read(place: &Place, remote: RemoteStore, specs: &[&str]) -> Result<RemoteReader, RemoteError> {
    let texts: Vec<_> = specs.iter().map(|spec| base_texts(spec.as_bytes(), &|_| None)).collect();
    RemoteReader::open(
        remote,
        RefSelection::Revisions(&texts),
        &BlockingContext::without_stop(place.runtime.handle()),
    )
}

fn resolve(reading: &RemoteReader, spec: &str) -> Result<Resolved, SpecError> {
    Revisions::new(reading.repo(), &|_| None).resolve(spec.as_bytes())
}

fn content_id(reading: &RemoteReader, spec: &str) -> ContentId {
    let resolved = resolve(reading, spec).unwrap();
    let path = resolved.path.unwrap();
    let store = reading.repo().store();
    match resolve_path(store, resolved.commit.tree, &path).unwrap() {
        ResolvedPath::Entry(Entry { kind: EntryKind::File { id, .. }, .. }) => id,
        other => panic!("{other:?}"),
    }
}

fn content(reading: &RemoteReader, spec: &str) -> Vec<u8> {
    let id = content_id(reading, spec);
    let mut bytes = Vec::new();
    cat::run(reading.repo().store(), &id, None, &mut bytes, &Silent).unwrap();
    bytes
}

#[test]
fn a_commit_pushed_during_an_index_read_is_found() {
    let memory = |name: &str| Arc::new(MemoryBucket::named(name));
    for name in ["meanwhile_read", "meanwhile_clone"] {
        let pusher = place::Place::new();
        let first = pusher.change("a", "first");
        pusher.push(&mut pusher.remote(memory(name), "remote"), first).unwrap();
        let second = pusher.change("a", "second");
        let late = memory(name);
        let service = Wrapped::pushing_meanwhile(memory(name), move || {
            pusher.push(&mut pusher.remote(late, "remote"), second).unwrap();
        });
        let reader = Place::new();
        let mut remote = reader.remote(service, Arc::default());
        if name == "meanwhile_read" {
            let reading = read(&reader, remote, &["main"]).unwrap();
            assert_eq!(resolve(&reading, "main").unwrap().id, second);
            assert_eq!(content(&reading, "main:a"), b"second");
        } else {
            let (_clone, outcome) =
                clone_into(reader, &mut remote, PartialScope::default()).unwrap();
            assert_eq!(outcome.commit, second);
        }
    }
}

fn contract(service: &MakeService<'_>) {
    let traffic = Arc::new(Traffic::default());
    let here = Place::new();
    for number in 0..200 {
        here.write(&format!("{}/{number}", number % 7), &format!("content {number}"));
    }
    let large = Corpus::Random.make(LARGE);
    here.write_bytes("large", &large);
    let first = here.commit();
    here.write("3/3", "another content");
    let second = here.commit();
    let remote = || here.remote(service(&traffic), Arc::clone(&traffic));
    here.push(&mut remote(), second).unwrap();

    let there = Place::new();
    let remote = || there.remote(service(&traffic), Arc::clone(&traffic));
    let start = &first.to_string()[..10];
    let old = format!("{start}:3/3");
    let specs = ["main:3/3", "main~1:3/3", "HEAD:large", "latest^", &old];
    for _ in 0..2 {
        let reading = read(&there, remote(), &specs).unwrap();
        assert_eq!(content(&reading, "main:3/3"), b"another content");
        assert_eq!(content(&reading, "main~1:3/3"), b"content 3");
        assert_eq!(content(&reading, &old), b"content 3");
        assert!(content(&reading, "HEAD:large") == large);
        assert_eq!(resolve(&reading, "latest^").unwrap().id, first);
    }
    let reading = read(&there, remote(), &["mian:3/3"]).unwrap();
    let error = resolve(&reading, "mian:3/3").unwrap_err();
    assert!(matches!(error, SpecError::Unknown { ref close, .. } if close == &["main"]), "{error}");

    // A ref is read each time, and its new commit is fetched.
    here.write("3/3", "a third content");
    let third = here.commit();
    here.push(&mut here.remote(service(&traffic), Arc::clone(&traffic)), third).unwrap();
    let reading = read(&there, remote(), &["main:3/3"]).unwrap();
    assert_eq!(content(&reading, "main:3/3"), b"a third content");
    let all = BlockingContext::without_stop(there.runtime.handle());
    let reading = RemoteReader::open(remote(), RefSelection::All, &all).unwrap();
    assert_eq!(resolve(&reading, "HEAD").unwrap().id, third);
}

#[test]
fn remote_revisions_are_read_over_each_service() {
    with_each_service("reading", &contract);
}

#[test]
fn a_missing_remote_store_is_reported() {
    with_each_service("reading_nothing", &|service| {
        let there = Place::new();
        let traffic = Arc::new(Traffic::default());
        let remote = there.remote(service(&traffic), traffic);
        let error = read(&there, remote, &["main:x"]).unwrap_err();
        assert!(matches!(error, RemoteError::NoStore { .. }), "{error}");
        assert!(error.to_string().contains("test://place"), "{error}");
    });
}

#[test]
fn the_first_small_file_takes_six_requests_and_the_next_two() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let traffic = Arc::new(Traffic::default());
    let here = Place::new();
    for number in 0..3000 {
        here.write(&format!("{}/{number}", number % 50), &format!("content {number}"));
    }
    let first = here.commit();
    let service = || bucket(&proxy.endpoint(), &server, &traffic);
    here.push(&mut here.remote(service(), Arc::clone(&traffic)), first).unwrap();
    proxy.take_counts();

    let there = Place::new();
    let mut seen = Vec::new();
    for path in ["7/7", "7/7", "8/8"] {
        let remote = there.remote(service(), Arc::clone(&traffic));
        let spec = format!("main:{path}");
        let reading = read(&there, remote, &[&spec]).unwrap();
        assert_eq!(content(&reading, &spec), format!("content {}", &path[2..]).into_bytes());
        drop(reading);
        seen.push(proxy.take_counts().total);
    }
    assert!(seen[0] <= 6 && seen[1] <= 2 && seen[2] <= 2, "{seen:?}");
}

#[test]
fn ranges_of_a_large_file_are_read_and_checked() {
    let server = S3Server::start(S3Options::default());
    let traffic = Arc::new(Traffic::default());
    let here = Place::new();
    let large = Corpus::Source.make(LARGE);
    let random = Corpus::Random.make(LARGE);
    here.write_bytes("source", &large);
    here.write_bytes("random", &random);
    here.write("small", "a few bytes");
    let first = here.commit();
    let service = || bucket(&server.endpoint(), &server, &traffic);
    here.push(&mut here.remote(service(), Arc::clone(&traffic)), first).unwrap();
    let there = Place::new();
    let specs = ["main:source", "main:random", "main:small"];
    let reading = read(&there, there.remote(service(), Arc::clone(&traffic)), &specs).unwrap();
    let small: &[u8] = b"a few bytes";
    for (spec, wanted) in specs.into_iter().zip([&large[..], &random[..], small]) {
        let id = content_id(&reading, spec);
        let content = reading.open_file(&id, RangeReaderOptions::default()).unwrap();
        assert_eq!(content.len(), wanted.len() as u64);
        let mut rng = Rng::new(7);
        let ranges: Vec<_> = (0..100)
            .map(|_| {
                let start = rng.below(wanted.len() as u64);
                start..(start + 5000).min(wanted.len() as u64)
            })
            .collect();
        let fetched = here.runtime.block_on(async { content.fetch(&ranges).await }).unwrap();
        for (range, bytes) in ranges.iter().zip(fetched) {
            assert!(bytes == wanted[range.start as usize..range.end as usize]);
        }
        let whole = here.runtime.block_on(async { content.read_at(0, u64::MAX).await }).unwrap();
        assert!(whole == wanted);
    }
    // No part is fetched twice, except for evicted ones.
    drop(reading);
    let pack = server.keys().into_iter().find(|key| key.contains("objects/")).unwrap();
    server.damage(&pack, |bytes| {
        for at in (0..bytes.len() / 2).step_by(1000) {
            bytes[at + 500] ^= 1;
        }
    });
    let other = Place::new();
    let reading = read(&other, other.remote(service(), Arc::clone(&traffic)), &specs).unwrap();
    let id = content_id(&reading, "main:random");
    let content = reading.open_file(&id, RangeReaderOptions::default()).unwrap();
    let read = other.runtime.block_on(async { content.read_at(0, u64::MAX).await });
    let error = read.unwrap_err();
    assert!(matches!(error, snap_remote::ranges::ReadError::Content(_)), "{error}");
}

#[test]
fn a_bit_flipped_once_in_transit_is_retried() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let traffic = Arc::new(Traffic::default());
    let here = Place::new();
    let random = Corpus::Random.make(200_000);
    let text = Corpus::Text.make(200_000);
    here.write_bytes("random", &random);
    here.write_bytes("text", &text);
    let first = here.commit();
    let direct = bucket(&server.endpoint(), &server, &traffic);
    here.push(&mut here.remote(direct, Arc::clone(&traffic)), first).unwrap();
    for (spec, wanted) in [("main:random", &random), ("main:text", &text)] {
        let there = Place::new();
        let service = bucket(&proxy.endpoint(), &server, &traffic);
        let reading = read(&there, there.remote(service, Arc::clone(&traffic)), &[spec]).unwrap();
        let id = content_id(&reading, spec);
        let file = reading.open_file(&id, RangeReaderOptions::default()).unwrap();
        proxy.add(Rule::new(Fault::FlipReply).path("objects/").times(1));
        let whole = there.runtime.block_on(async { file.read_at(0, u64::MAX).await }).unwrap();
        assert!(whole == *wanted, "{spec}");
        proxy.clear_rules();
        proxy.add(Rule::new(Fault::FlipReply).path("objects/").times(1));
        assert!(content(&reading, spec) == *wanted, "{spec}");
        proxy.clear_rules();
    }
}
