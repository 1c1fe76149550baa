//! A push that is interrupted at each of its requests, and repeated.

use std::{collections::BTreeMap, sync::Arc};

use snap_core::base::id::CommitId;
use snap_nettest::{Fault, Kind, Proxy, Rule, S3Options, S3Server};
use snap_remote::bucket::{Bucket, ListDepth, client::RequestPolicy, memory::MemoryBucket};

use crate::place::{Draw, Place, Wrapped, bucket, complete};

/// Creates three packs: two are pushed whole, one in part.
fn history(here: &Place) -> Vec<CommitId> {
    let mut commits = Vec::new();
    for number in 0..3_u64 {
        for file in 0..20 {
            let bytes = Draw(number * 100 + file).bytes(5_000);
            here.write(&format!("{number}/{file}"), bytes);
        }
        commits.push(here.commit());
    }
    commits
}

#[test]
fn a_retried_push_does_not_resend_uploaded_packs() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let here = Place::new();
    let commits = history(&here);
    let first = *commits.first().unwrap();
    let last = *commits.last().unwrap();
    let mut whole = None;
    for refused in 0.. {
        server.load(BTreeMap::new());
        let cache = format!("cache{refused}");
        let service = bucket(&proxy.endpoint(), &server, &Arc::default());
        let mut remote = here.remote(service, &cache);
        here.push(&mut remote, first).unwrap();
        let before = server.keys();
        proxy.take_counts();
        proxy.add(Rule::new(Fault::status(403)).skip(refused));
        let result = here.push(&mut remote, last);
        proxy.clear_rules();
        if result.is_ok() {
            whole = Some(refused);
            break;
        }
        let arrived: Vec<String> =
            server.keys().into_iter().filter(|key| !before.contains(key)).collect();
        // A new client, as in another process.
        let service = bucket(&proxy.endpoint(), &server, &Arc::default());
        let mut remote = here.remote(service, &cache);
        proxy.take_counts();
        here.push(&mut remote, last).unwrap();
        let sent = proxy.requests().into_iter().filter(|seen| seen.kind == Kind::Put);
        let again: Vec<String> = sent
            .map(|seen| seen.path)
            .filter(|path| {
                arrived.iter().any(|key| key.contains("objects/") && path.contains(key.as_str()))
            })
            .collect();
        assert_eq!(again, Vec::<String>::new(), "after {refused} requests");
        let packs = server.keys().iter().filter(|key| key.contains("/objects/")).count();
        assert_eq!(packs, 3, "after {refused} requests");
        let fresh = bucket(&server.endpoint(), &server, &Arc::default());
        assert_eq!(complete(fresh, "main"), Some(last));
    }
    assert!(whole.unwrap() >= 5, "each request was tried");
}

#[test]
fn an_assembled_pack_is_reproducible() {
    let here = Place::new();
    for number in 0..400_u64 {
        here.write(&format!("{}/{number}", number % 5), Draw(number).bytes(3_000));
    }
    here.commit();
    for number in 0..200 {
        let gone = here.folder.path().join(format!("files/{}/{number}", number % 5));
        fs_err::remove_file(gone).unwrap();
    }
    // Starts a new history that needs a part of that pack.
    fs_err::remove_file(here.folder.path().join("store/refs/heads/main")).unwrap();
    fs_err::remove_file(here.folder.path().join("store/logs/refs/heads/main.log")).unwrap();
    let commit = here.commit();
    let sent = |name: &str| {
        let service: Arc<dyn Bucket> = Arc::new(MemoryBucket::named(name));
        let mut remote = here.remote(Arc::clone(&service), name);
        here.push(&mut remote, commit).unwrap();
        let listed = here.runtime.block_on(service.list("objects/", ListDepth::All)).unwrap();
        let mut keys: Vec<String> = listed.into_iter().map(|object| object.key).collect();
        keys.sort();
        keys
    };
    let (one, another) = (sent("gathered_1"), sent("gathered_2"));
    assert_eq!(one, another);
    let local: Vec<String> =
        here.repo.store().packs().iter().map(|id| format!("objects/{id}")).collect();
    assert!(one.iter().any(|key| !local.contains(key)), "a new pack was assembled");
}

/// Pushes over a service that breaks permanently at each call in turn. Afterwards a new reader
/// sees either the old state or the new one, and the next push completes. Index files have about
/// `index_bytes`.
fn breaks_everywhere(name: &str, conditions: bool, index_bytes: u64) {
    let here = Place::new();
    let remote =
        |service, cache: &str| here.remote(service, cache).with_index_files_of(index_bytes);
    let first = here.change("a", "first");
    let second = here.change("a", "second");
    for start in [None, Some(first)] {
        for breaks in 0.. {
            let memory = || -> Arc<dyn Bucket> {
                let name = format!("{name}_{}_{breaks}", start.is_some());
                let memory = MemoryBucket::named(&name);
                match conditions {
                    true => Arc::new(memory),
                    false => {
                        Arc::new(memory.with_conditions(snap_remote::bucket::ConditionalWrites {
                            absent: false,
                            unchanged: false,
                        }))
                    }
                }
            };
            let cache = format!("{name}_{}_{breaks}", start.is_some());
            if let Some(start) = start {
                here.push(&mut remote(memory(), &cache), start).unwrap();
            }
            let broken = Wrapped::failing_from(memory(), breaks);
            let result = here.push(&mut remote(broken, &cache), second);
            // The next push would have to wait for a claim that was left.
            let left = here.runtime.block_on(memory().list("claims/", ListDepth::All)).unwrap();
            for claim in &left {
                here.runtime.block_on(memory().delete(std::slice::from_ref(&claim.key))).unwrap();
            }
            let stands = complete(memory(), "main");
            match &result {
                Ok(_) => assert_eq!(stands, Some(second)),
                Err(_) => assert!(stands == start || stands == Some(second), "{breaks}"),
            }
            // Alternates with a client that has an empty mirror: it relies on the index alone.
            let other = format!("{cache}_other");
            let client = if breaks % 2 == 0 { &cache } else { &other };
            here.push(&mut remote(memory(), client), second).unwrap();
            assert_eq!(complete(memory(), "main"), Some(second), "after {breaks} calls");
            if result.is_ok() && left.is_empty() {
                assert!(breaks >= 5, "each call was tried");
                break;
            }
        }
    }
}

#[test]
fn a_push_survives_a_failure_at_each_service_call() {
    breaks_everywhere("breaks", true, 4 << 20);
}

#[test]
fn a_push_to_a_share_survives_a_failure_at_each_call() {
    breaks_everywhere("breaks_share", false, 4 << 20);
}

#[test]
fn pushing_a_split_index_survives_a_failure_at_each_call() {
    breaks_everywhere("breaks_parts", true, 1);
}

#[test]
fn a_push_survives_the_loss_of_any_response() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let here = Place::new();
    let first = here.change("a", "first");
    let second = here.change("a", "second");
    for lost in 0..16 {
        server.load(BTreeMap::new());
        let service = || bucket(&proxy.endpoint(), &server, &Arc::default());
        let mut remote = here.remote(service(), &format!("cache{lost}"));
        proxy.add(Rule::new(Fault::LoseReply).skip(lost).times(1));
        // No push takes its own write for that of another client.
        here.push(&mut remote, first).unwrap();
        let moved = here.push(&mut remote, second).unwrap();
        assert_eq!(moved.refs[0].before, Some(first), "reply {lost}");
        proxy.clear_rules();
        let fresh = bucket(&server.endpoint(), &server, &Arc::default());
        assert_eq!(complete(fresh, "main"), Some(second));
    }
    assert!(RequestPolicy::default().attempts > 1);
}
