//! Faulty buckets and networks: the reported errors and their kinds.

use std::{sync::Arc, time::Duration};

use snap_core::base::kind::ErrorKind;
use snap_nettest::{Denied, Fault, Kind, Proxy, Rule, S3Options, S3Server};
use snap_remote::{
    bucket::{
        Bucket, UploadProgress,
        client::{Client, RequestPolicy, WHOLE_BYTES},
        traffic::Traffic,
    },
    peer::{RemoteError, RemoteStore},
};

use crate::place::{Place, branch, bucket, complete, hasty, keyed_bucket};

/// Pushes a commit and returns the error.
fn failed(service: Arc<dyn Bucket>, server: &S3Server) -> RemoteError {
    let here = Place::new();
    let commit = here.change("a", "first");
    let error = here.push(&mut here.remote(service, "remote"), commit).unwrap_err();
    let mut text = format!("{error:?}");
    let mut cause: Option<&dyn std::error::Error> = Some(&error);
    while let Some(error) = cause {
        text = format!("{text} {error}");
        cause = error.source();
    }
    assert!(!text.contains(server.secret_key()) && !text.contains(server.access_key()), "{text}");
    assert!(text.contains("test://place"), "{text}");
    error
}

#[track_caller]
fn says(error: &RemoteError, kind: ErrorKind, words: &str) {
    let text = error.to_string();
    assert!(text.contains(words), "{text:?} does not say {words:?}");
    assert!(text.contains("test://place"), "{text}");
    assert_eq!(error.kind(), kind, "{text}");
}

#[test]
fn permission_errors_are_reported_with_their_cause() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let ask = || bucket(&proxy.endpoint(), &server, &Arc::default());
    server.deny(Denied::Everything);
    says(&failed(ask(), &server), ErrorKind::Denied, "permission denied");
    server.deny(Denied::Writes);
    let error = failed(ask(), &server);
    says(&error, ErrorKind::Denied, "permission denied");
    assert!(error.to_string().starts_with("cannot write "), "{error}");
    server.deny(Denied::Nothing);
    assert_eq!(server.keys(), Vec::<String>::new());
    let (access, secret) = (server.access_key(), server.secret_key());
    for keys in [("WRONGACCESSKEY000000", secret), (access, "wrong secret")] {
        let service = keyed_bucket(&proxy.endpoint(), keys, server.bucket(), &Arc::default());
        says(&failed(service, &server), ErrorKind::Denied, "authentication failed");
    }
    let other =
        keyed_bucket(&proxy.endpoint(), (access, secret), "unknown-bucket", &Arc::default());
    says(&failed(other, &server), ErrorKind::NotFound, "the bucket does not exist");
    for (fault, words) in [
        (
            Fault::error(403, "RequestTimeTooSkewed"),
            "the local clock and the clock of the service differ too much",
        ),
        (Fault::error(400, "ExpiredToken"), "the credentials have expired"),
    ] {
        proxy.add(Rule::new(fault));
        says(&failed(ask(), &server), ErrorKind::Denied, words);
        proxy.clear_rules();
    }
}

#[test]
fn an_unreachable_service_is_reported() {
    let server = S3Server::start(S3Options::default());
    let nobody = {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", socket.local_addr().unwrap())
    };
    let keys = (server.access_key(), server.secret_key());
    for endpoint in [nobody.as_str(), "http://no-such-host.invalid"] {
        let service = keyed_bucket(endpoint, keys, "bucket", &Arc::default());
        let error = failed(service, &server);
        let host = match endpoint == nobody {
            true => nobody.replace("http://", ""),
            false => "no-such-host.invalid:80".to_owned(),
        };
        says(&error, ErrorKind::Unavailable, &format!("cannot connect to {host}: "));
        let is_refused = error.to_string().contains("refused");
        assert_eq!(is_refused, endpoint == nobody, "{error}");
    }
}

#[test]
fn a_bucket_that_is_no_store_is_not_changed() {
    let server = S3Server::start(S3Options::default());
    let ask = || bucket(&server.endpoint(), &server, &Arc::default());
    server.put("some/prefix/holiday.jpg", "picture");
    let error = failed(ask(), &server);
    says(&error, ErrorKind::Invalid, "test://place is not a store: it contains other files");
    assert!(error.to_string().contains("holiday.jpg"), "{error}");
    assert_eq!(server.keys(), ["some/prefix/holiday.jpg"]);
    server.put("some/prefix/config.toml", "version = 99\n");
    let error = failed(ask(), &server);
    says(&error, ErrorKind::Unsupported, "the settings of the store at test://place");
    server.put("some/prefix/config.toml", "what is this?");
    let error = failed(ask(), &server);
    assert!(matches!(error, RemoteError::Config { .. }), "{error}");
    assert_eq!(server.keys().len(), 2);
}

#[test]
fn a_full_bucket_is_reported_and_a_later_push_succeeds() {
    let server = S3Server::start(S3Options::default());
    let service = || bucket(&server.endpoint(), &server, &Arc::default());
    let here = Place::new();
    let first = here.change("a", "first");
    here.push(&mut here.remote(service(), "remote"), first).unwrap();
    let stored: usize = server.dump().values().map(bytes::Bytes::len).sum();
    server.set_capacity(Some(stored as u64 + 100));
    let second = here.change("b", [7; 5000]);
    let error = here.push(&mut here.remote(service(), "remote"), second).unwrap_err();
    says(&error, ErrorKind::Unavailable, "the service has no space left");
    assert_eq!(complete(service(), "main"), Some(first));
    server.set_capacity(None);
    here.push(&mut here.remote(service(), "remote"), second).unwrap();
    assert_eq!(complete(service(), "main"), Some(second));
}

/// A bit that flips in transit would be found only by a later reader, which is too late.
#[test]
fn data_damaged_in_transit_is_sent_again() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let traffic = Arc::new(Traffic::default());
    let here = Place::new();
    let commit = here.change("a", "first");
    for part in ["objects/", "index/", "refs/", "config.toml"] {
        proxy.add(Rule::new(Fault::FlipRequest).kind(Kind::Put).path(part).times(1));
    }
    let service = bucket(&proxy.endpoint(), &server, &traffic);
    let mut remote = here.remote_counting(Arc::clone(&service), "remote", Arc::clone(&traffic));
    here.push(&mut remote, commit).unwrap();
    assert_eq!((proxy.counts().faults, traffic.counts().retries), (4, 4));
    let direct = bucket(&server.endpoint(), &server, &Arc::default());
    assert_eq!(complete(direct, "main"), Some(commit));
    // A part of a multipart upload.
    let (path, length) = (here.folder.path().join("large"), WHOLE_BYTES + 5);
    fs_err::write(&path, vec![7; length as usize]).unwrap();
    proxy.add(Rule::new(Fault::FlipRequest).kind(Kind::UploadPart).times(1));
    let client = Client::new(service, hasty(), Arc::clone(&traffic));
    let progress = UploadProgress::default();
    here.runtime.block_on(client.put_file("objects/x", &path, length, &progress)).unwrap();
    assert_eq!(proxy.counts().faults, 5);
    let found = server.get("some/prefix/objects/x").unwrap();
    assert!(found.len() as u64 == length && found.iter().all(|byte| *byte == 7));
    // The retries are limited.
    proxy.add(Rule::new(Fault::FlipRequest).kind(Kind::Put).path("objects/"));
    let second = here.change("a", "second");
    let error = here.push(&mut remote, second).unwrap_err();
    says(&error, ErrorKind::Unavailable, "the data was damaged in transit");
}

#[test]
fn a_ref_that_is_damaged_is_named() {
    let server = S3Server::start(S3Options::default());
    server.put("some/prefix/refs/heads/main", "what is this?");
    let service = bucket(&server.endpoint(), &server, &Arc::default());
    let here = Place::new();
    let remote = here.remote(service, "remote");
    let error = here.runtime.block_on(remote.place().read_ref(&branch("main"))).unwrap_err();
    says(&error, ErrorKind::Damaged, "refs/heads/main at test://place is damaged");
}

#[test]
fn a_damaged_truncated_or_lost_pack_is_named() {
    let server = S3Server::start(S3Options::default());
    let service = || bucket(&server.endpoint(), &server, &Arc::default());
    let here = Place::new();
    let first = here.change("a", "first");
    here.push(&mut here.remote(service(), "remote"), first).unwrap();
    let key = server.keys().into_iter().find(|key| key.contains("/objects/")).unwrap();
    let name = key.strip_prefix("some/prefix/").unwrap();
    let whole = server.get(&key).unwrap();
    let pulled = |cache: &str| {
        let there = Place::new();
        let mut remote = there.remote(service(), cache);
        there.pull(&mut remote, &branch("main")).unwrap_err()
    };
    // In the first frame: a damaged footer does not matter, since the index has a copy.
    server.damage(&key, |bytes| bytes[20] ^= 1);
    says(&pulled("one"), ErrorKind::Damaged, name);
    server.put(&key, whole.slice(..20));
    says(&pulled("two"), ErrorKind::Damaged, name);
    server.forget(&key);
    says(&pulled("three"), ErrorKind::Damaged, name);
}

#[test]
fn temporary_failures_are_retried_after_the_requested_delay() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let traffic = Arc::new(Traffic::default());
    let here = Place::new();
    let commit = here.change("a", "first");
    let service = bucket(&proxy.endpoint(), &server, &traffic);
    let mut remote = here.remote_counting(service, "remote", Arc::clone(&traffic));
    proxy.add(Rule::new(Fault::retry_after(503, 1)).path("objects/").kind(Kind::Put).times(1));
    proxy.add(Rule::new(Fault::status(500)).path("index/").kind(Kind::Put).times(1));
    proxy.add(Rule::new(Fault::Reset).path("refs/").kind(Kind::Put).times(1));
    proxy.add(Rule::new(Fault::Truncate).path("config.toml").kind(Kind::Get).times(1));
    let began = std::time::Instant::now();
    here.push(&mut remote, commit).unwrap();
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert!((3..=4).contains(&traffic.counts().retries), "{:?}", traffic.counts());
    // The retries are limited.
    proxy.add(Rule::new(Fault::status(503)));
    let second = here.change("a", "second");
    let error = here.push(&mut remote, second).unwrap_err();
    says(&error, ErrorKind::Unavailable, "too many requests");
}

#[test]
fn a_stalled_request_times_out() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let here = Place::new();
    let commit = here.change("a", "first");
    let policy = RequestPolicy { timeout: Duration::from_millis(300), attempts: 2, ..hasty() };
    let service = bucket(&proxy.endpoint(), &server, &Arc::default());
    let client = Client::new(service, policy, Arc::default());
    let cache = here.folder.path().join("store/cache/stalled");
    let mut remote = RemoteStore::new(client, "test://place".to_owned(), &cache).unwrap();
    proxy.add(Rule::new(Fault::Stall).path("objects/"));
    let error = here.push(&mut remote, commit).unwrap_err();
    says(&error, ErrorKind::Unavailable, "no reply within 0 s");
    proxy.clear_rules();
    here.push(
        &mut here.remote(bucket(&proxy.endpoint(), &server, &Arc::default()), "other"),
        commit,
    )
    .unwrap();
    assert_eq!(
        complete(bucket(&server.endpoint(), &server, &Arc::default()), "main"),
        Some(commit)
    );
}

#[test]
fn a_response_of_a_proxy_does_not_confirm_a_write() {
    for part in ["refs/heads/main", "/objects/", "/index/"] {
        let server = S3Server::start(S3Options::default());
        let proxy = Proxy::start(&server.endpoint());
        let here = Place::new();
        let service = || bucket(&proxy.endpoint(), &server, &Arc::default());
        let first = here.change("a", "first");
        here.push(&mut here.remote(service(), "remote"), first).unwrap();
        // A proxy answers with 200 in place of the service, for a while.
        proxy.add(Rule::new(Fault::status(200)).kind(Kind::Put).path(part));
        let second = here.change("a", "second");
        let pushed = here.push(&mut here.remote(service(), "remote"), second);
        assert!(pushed.is_err(), "{part}: {pushed:?}");
        assert_eq!(complete(service(), "main"), Some(first), "{part}");
        proxy.clear_rules();
        here.push(&mut here.remote(service(), "remote"), second).unwrap();
        assert_eq!(complete(service(), "main"), Some(second), "{part}");
    }
}

#[test]
fn the_error_of_a_redirected_write_names_the_target() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let here = Place::new();
    let mut remote = here.remote(bucket(&proxy.endpoint(), &server, &Arc::default()), "remote");
    proxy.add(Rule::new(Fault::Redirect).kind(Kind::Put).path("config.toml"));
    let commit = here.change("a", "1");
    let error = here.push(&mut remote, commit).unwrap_err().to_string();
    assert!(error.contains("cannot write config.toml at test://place: "), "{error}");
    assert!(error.contains(" redirects to ") && error.contains("which is not followed"), "{error}");
}

#[test]
fn a_ref_move_with_lost_responses_is_confirmed_by_a_read() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let ask = || bucket(&proxy.endpoint(), &server, &Arc::default());
    let here = Place::new();
    let mut remote = here.remote(ask(), "remote");
    let first = here.change("a", "first");
    here.push(&mut remote, first).unwrap();
    for (number, fault) in
        [Fault::LoseReply, Fault::RefuseAfter(500), Fault::RefuseAfter(503)].into_iter().enumerate()
    {
        let commit = here.change("a", format!("change {number}"));
        proxy.add(Rule::new(fault.clone()).kind(Kind::Put).path("/refs/heads/main"));
        let pushed = here.push(&mut remote, commit);
        assert!(pushed.is_ok(), "{fault:?}: {pushed:?}");
        proxy.clear_rules();
        assert_eq!(complete(ask(), "main"), Some(commit), "{fault:?}");
    }
    // A move that did not happen is an error.
    let last = complete(ask(), "main");
    let commit = here.change("a", "last");
    proxy.add(Rule::new(Fault::Reset).kind(Kind::Put).path("/refs/heads/main"));
    let error = here.push(&mut remote, commit).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    proxy.clear_rules();
    assert_eq!(complete(ask(), "main"), last);
}
