//! The requests of a push: their number, round trips and bytes.

use std::sync::Arc;

use parking_lot::Mutex;
use snap_nettest::{Fault, Kind, Proxy, Rule, S3Options, S3Server};
use snap_remote::{
    bucket::{Bucket, client::Client, memory::MemoryBucket, traffic::Traffic},
    peer::{ConditionProofs, RemoteError, RemoteStore},
    transfer::push,
};
use tokio::sync::Barrier;

use crate::place::{Draw, Place, Wrapped, branch, bucket, complete, hasty, s3};

#[test]
fn a_push_takes_few_requests_and_sends_what_was_planned() {
    let server = S3Server::start(S3Options::default());
    let traffic = Arc::new(Traffic::default());
    let here = Place::new();
    let service = bucket(&server.endpoint(), &server, &traffic);
    let mut remote = here.remote_counting(service, "remote", Arc::clone(&traffic));
    let large = Draw(1).bytes(60 << 20);
    let mut check = |commit, plan: push::PushPlan, requests: [u64; 6]| {
        let before = traffic.counts();
        let pushed = here.push(&mut remote, commit).unwrap();
        let now = traffic.counts();
        let made: Vec<u64> =
            now.by_kind.iter().zip(before.by_kind).map(|(now, before)| now - before).collect();
        assert_eq!(made, requests);
        assert_eq!((pushed.objects, pushed.raw_bytes), (plan.objects, plan.raw_bytes));
        assert_eq!((pushed.packs, pushed.sent_bytes), (plan.packs, plan.bytes));
        // Nothing is left to push.
        here.push(&mut remote, commit).unwrap();
        assert_eq!(traffic.counts().requests() - now.requests(), 2);
        let nothing = here.plan(&mut remote, commit);
        assert_eq!((nothing.objects, nothing.packs), (0, 0));
    };
    let plan = |commit| {
        let service = bucket(&server.endpoint(), &server, &Arc::default());
        // With a separate cache.
        let mut remote = here.remote(service, "planning");
        let before = server.dump();
        let plan = here.plan(&mut remote, commit);
        assert_eq!(server.dump(), before, "a plan writes nothing");
        plan
    };
    let first = here.change("a", "first");
    check(first, plan(first), [1, 0, 8, 1, 0, 0]);
    for number in 0..100 {
        here.write(&format!("{}/{number}", number % 50), "changed");
    }
    let second = here.commit();
    check(second, plan(second), [2, 0, 3, 1, 0, 0]);
    let third = here.change("large", &large);
    check(third, plan(third), [2, 0, 6, 1, 0, 2]);
    assert_eq!(complete(bucket(&server.endpoint(), &server, &Arc::default()), "main"), Some(third));
    let head = server.get("some/prefix/HEAD").unwrap();
    assert_eq!(head, "ref: refs/heads/main\n");
}

#[test]
fn conditional_writes_are_tested_once_for_each_bucket() {
    let (server, other) =
        (S3Server::start(S3Options::default()), S3Server::start(S3Options::default()));
    let here = Place::new();
    let commit = here.change("a", "first");
    let proofs = ConditionProofs::at(here.folder.path().join("conditions"));
    let first_push = |server: &S3Server, prefix: &str| {
        let traffic = Arc::new(Traffic::default());
        let keys = (server.access_key(), server.secret_key());
        let service = s3(&server.endpoint(), keys, server.bucket(), &traffic).below(prefix);
        let client = Client::new(Arc::new(service), hasty(), Arc::clone(&traffic));
        let cache = here.folder.path().join("store/cache").join(prefix);
        let location = "test://place".to_owned();
        let mut remote = RemoteStore::sharing(client, location, &cache, proofs.clone()).unwrap();
        here.push(&mut remote, commit).unwrap();
        traffic.counts().requests()
    };
    assert_eq!(first_push(&server, "one"), 10);
    assert_eq!(first_push(&server, "two"), 8);
    assert_eq!(first_push(&server, "three"), 8);
    assert_eq!(first_push(&other, "four"), 10, "another endpoint");
    fs_err::write(here.folder.path().join("conditions"), "damaged").unwrap();
    assert_eq!(first_push(&server, "five"), 10);
}

/// The calls of one round trip: the operation and the prefix of the key of each.
type Wave = &'static [(&'static str, &'static str)];

/// Answers calls only when all calls of their wave have arrived. A call of a later wave fails
/// permanently. A client that waits for a reply before its next call times out.
fn in_waves(inner: Arc<dyn Bucket>, waves: &'static [Wave]) -> Arc<Wrapped> {
    let barrier = |wave: &Wave| Arc::new(Barrier::new(wave.len()));
    let barriers: Vec<_> = waves.iter().map(barrier).collect();
    let left: Vec<Vec<_>> = waves.iter().map(|wave| wave.to_vec()).collect();
    let state = Mutex::new((left, barriers));
    Wrapped::new(inner, move |_, operation, key| {
        let mut state = state.lock();
        let at = state.0.iter().position(|wave| !wave.is_empty());
        let barrier = at.and_then(|at| {
            let is_it =
                |(what, prefix): &(&str, &str)| *what == operation && key.starts_with(prefix);
            let place = state.0[at].iter().position(is_it)?;
            state.0[at].remove(place);
            Some(Arc::clone(&state.1[at]))
        });
        Box::pin(async move {
            let Some(barrier) = barrier else { return true };
            barrier.wait().await;
            false
        })
    })
}

#[test]
fn a_push_takes_few_round_trips() {
    let memory = || Arc::new(MemoryBucket::named("waves"));
    let here = Place::new();
    let push = |commit, waves: &'static [Wave]| {
        let service = in_waves(memory(), waves);
        let sent = here.push(&mut here.remote(service.clone(), "remote"), commit).unwrap();
        assert_eq!(service.calls(), waves.iter().map(|wave| wave.len() as u64).sum::<u64>());
        sent
    };
    let first = here.change("a", "first");
    push(
        first,
        &[
            &[("list", ""), ("read", "refs/heads/main")],
            &[
                ("write", "config.toml"),
                ("write", "HEAD"),
                ("write", "gc/state"),
                ("write", "objects/"),
            ],
            &[("write", "index/")],
            &[("write", "refs/heads/main")],
        ],
    );
    let second = here.change("a", "second");
    push(
        second,
        &[
            &[("read", "refs/heads/main"), ("list", "index/"), ("read", "config.toml")],
            &[("write", "objects/")],
            &[("write", "index/")],
            &[("write", "refs/heads/main")],
        ],
    );
    push(second, &[&[("read", "refs/heads/main"), ("list", "index/")]]);
    assert_eq!(complete(memory(), "main"), Some(second));
}

#[test]
fn refs_of_one_push_succeed_or_fail_independently() {
    let service = || Arc::new(MemoryBucket::named("many_refs"));
    let (here, there) = (Place::new(), Place::new());
    let mut remote = here.remote(service(), "remote");
    let mut other = there.remote(service(), "remote");
    let theirs = there.change("x", "theirs");
    there.push_all(&mut other, vec![there.update("taken", theirs)]).unwrap();
    let (one, two) = (here.change("a", "1"), here.change("a", "2"));
    let names = ["main", "taken", "b", "c", "d", "e"];
    let mut refs: Vec<_> = names.iter().map(|name| here.update(name, two)).collect();
    refs[2].commit = one;
    let outcome = here.push_all(&mut remote, refs.clone()).unwrap();
    for pushed in &outcome.refs {
        let error = pushed.result.as_ref().err();
        let is_taken = pushed.name == branch("taken");
        assert_eq!(matches!(error, Some(RemoteError::Behind { .. })), is_taken, "{error:?}");
        assert_eq!(pushed.before, is_taken.then_some(theirs));
    }
    assert!(outcome.all_moved().is_err());
    for (name, commit) in [("main", two), ("taken", theirs), ("b", one), ("e", two)] {
        assert_eq!(complete(service(), name), Some(commit), "{name}");
    }
    // A forced push reports the old commit.
    refs[1].moves = push::AllowedMove::Force;
    let outcome = here.push_all(&mut remote, refs).unwrap().all_moved().unwrap();
    assert_eq!((outcome.packs, outcome.refs[1].before), (0, Some(theirs)));
    assert_eq!(complete(service(), "taken"), Some(two));
}

#[test]
fn a_deleted_ref_can_be_created_again() {
    let service = || Arc::new(MemoryBucket::named("deleted"));
    let here = Place::new();
    let mut remote = here.remote(service(), "remote");
    let handle = here.runtime.handle().clone();
    let name = branch("main");
    let (one, two) = (here.change("a", "1"), here.change("a", "2"));
    let none = push::delete(&remote, &name, None, &handle).unwrap_err();
    assert!(matches!(none, RemoteError::NoStore { .. }), "{none}");
    here.push(&mut remote, one).unwrap();
    let error = push::delete(&remote, &name, Some(two), &handle).unwrap_err();
    assert!(matches!(error, RemoteError::Raced { theirs: Some(at), .. } if at == one), "{error}");
    assert_eq!(push::delete(&remote, &name, Some(one), &handle).unwrap(), Some(one));
    assert_eq!(complete(service(), "main"), None);
    let gone = push::delete(&remote, &name, None, &handle).unwrap_err();
    assert!(matches!(gone, RemoteError::NoRef { .. }), "{gone}");
    let again = here.push(&mut remote, two).unwrap();
    assert_eq!(again.refs[0].before, None);
    assert_eq!(complete(service(), "main"), Some(two));
}

#[test]
fn an_emptied_remote_is_refilled_only_by_force() {
    let server = S3Server::start(S3Options::default());
    let here = Place::new();
    let service = || bucket(&server.endpoint(), &server, &Arc::default());
    let mut remote = here.remote(service(), "remote");
    let first = here.change("a", "first");
    here.push(&mut remote, first).unwrap();
    let force =
        |commit| push::RefUpdate { moves: push::AllowedMove::Force, ..here.update("main", commit) };
    server.load(Default::default());
    // The mirror says that the commit existed, but the ref does not. A disk may not be mounted.
    for _ in 0..2 {
        let gone = here.push(&mut remote, first).unwrap_err();
        assert!(matches!(gone, RemoteError::Emptied { .. }), "{gone}");
        assert_eq!(server.keys(), Vec::<String>::new());
    }
    here.push_all(&mut remote, vec![force(first)]).unwrap().all_moved().unwrap();
    assert_eq!(complete(service(), "main"), Some(first));
    server.load(Default::default());
    let second = here.change("a", "second");
    let gone = here.push(&mut remote, second).unwrap_err();
    assert!(matches!(gone, RemoteError::Emptied { .. }), "{gone}");
    assert_eq!(server.keys(), Vec::<String>::new());
    here.push_all(&mut remote, vec![force(second)]).unwrap().all_moved().unwrap();
    assert_eq!(complete(service(), "main"), Some(second));
    // A client without a mirror of the store creates a new one.
    server.load(Default::default());
    fs_err::remove_file(here.folder.path().join("store/cache/remote/state-5")).unwrap();
    let third = here.change("a", "third");
    here.push(&mut here.remote(service(), "remote"), third).unwrap();
    assert_eq!(complete(service(), "main"), Some(third));
}

#[test]
fn only_failed_parts_of_an_upload_are_sent_again() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let here = Place::new();
    let mut remote = here.remote(bucket(&proxy.endpoint(), &server, &Arc::default()), "remote");
    let commit = here.change("large", Draw(2).bytes(60 << 20));
    proxy.add(Rule::new(Fault::status(503)).kind(Kind::UploadPart).skip(1).times(2));
    proxy.add(Rule::new(Fault::LoseReply).kind(Kind::UploadPart).skip(4).times(1));
    proxy.add(Rule::new(Fault::LoseReply).kind(Kind::CompleteUpload).times(1));
    here.push(&mut remote, commit).unwrap();
    let counts = proxy.take_counts();
    let parts = counts.of(Kind::UploadPart);
    assert!((7..=8).contains(&parts), "{counts:?}");
    assert_eq!(counts.of(Kind::CreateUpload), 1);
    assert_eq!(server.unfinished_uploads(), Vec::<String>::new());
    assert_eq!(
        complete(bucket(&server.endpoint(), &server, &Arc::default()), "main"),
        Some(commit)
    );
}

#[test]
fn a_failed_upload_leaves_no_unfinished_upload() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let here = Place::new();
    let mut remote = here.remote(bucket(&proxy.endpoint(), &server, &Arc::default()), "remote");
    let commit = here.change("large", Draw(3).bytes(60 << 20));
    proxy.add(Rule::new(Fault::status(403)).kind(Kind::UploadPart).skip(2));
    let error = here.push(&mut remote, commit).unwrap_err();
    assert!(error.to_string().contains("objects/"), "{error}");
    assert_eq!(server.unfinished_uploads(), Vec::<String>::new());
    proxy.clear_rules();
    here.push(&mut remote, commit).unwrap();
    assert_eq!(
        complete(bucket(&server.endpoint(), &server, &Arc::default()), "main"),
        Some(commit)
    );
}

#[test]
fn a_rejected_push_writes_no_object() {
    for bytes in [500, 9 << 20] {
        let name = format!("refused{bytes}");
        let memory = || Arc::new(MemoryBucket::named(&name));
        let (here, there) = (Place::new(), Place::new());
        let theirs = there.change("x", "theirs");
        there.push(&mut there.remote(memory(), "remote"), theirs).unwrap();
        let ours = here.change("large", Draw(4).bytes(bytes));
        let service = Wrapped::new(memory(), |_, _, _| Box::pin(async { false }));
        let mut remote = here.remote(service.clone(), "remote");
        // The second time, the store is known, and the packs are selected before the answers.
        for _ in 0..2 {
            let error = here.push(&mut remote, ours).unwrap_err();
            assert!(matches!(error, RemoteError::Behind { .. }), "{error}");
        }
        let seen = service.seen.lock();
        assert!(seen.iter().all(|(operation, _)| *operation != "write"), "{seen:?}");
    }
}

#[test]
fn pulling_an_existing_commit_fetches_no_pack() {
    let server = S3Server::start(S3Options::default());
    let service = || bucket(&server.endpoint(), &server, &Arc::default());
    let (here, there) = (Place::new(), Place::new());
    let first = here.change("a", "first");
    here.push(&mut here.remote(service(), "remote"), first).unwrap();
    let mut remote = there.remote(service(), "remote");
    assert_eq!(there.pull(&mut remote, &branch("main")).unwrap(), first);
    // Another branch appears in the meantime, which this client does not need.
    let other = here.change("b", "other");
    let refs = vec![here.update("other", other), here.update("again", first)];
    here.push_all(&mut here.remote(service(), "remote"), refs).unwrap();
    let packs = there.repo.store().packs();
    assert_eq!(there.pull(&mut remote, &branch("again")).unwrap(), first);
    assert_eq!(there.repo.store().packs(), packs);
}
