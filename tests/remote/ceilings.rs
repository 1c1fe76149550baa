//! Whoever replies without end, or says that it will, is not listened to.

use std::{
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use snap_core::base::{kind::ErrorKind, limits};
use snap_nettest::{S3Options, S3Server};
use snap_remote::{
    service::{ServiceError, What, folder::Folder},
    store::RemoteError,
};

use crate::place::{Place, branch, bucket, keyed_bucket, s3};

/// What is sent beyond a ceiling before it is noticed that nobody listens.
const IN_BETWEEN: u64 = 16 << 20;

/// A service of which each reply has this head, and a body without end.
struct Endless {
    endpoint: String,
    sent: Arc<AtomicU64>,
}

impl Endless {
    fn start(head: &'static str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let sent = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&sent);
        // It ends with the process, like the connections that it waits for.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let count = Arc::clone(&count);
                thread::spawn(move || pour(stream, head, &count));
            }
        });
        Self { endpoint, sent }
    }

    fn sent(&self) -> u64 {
        self.sent.swap(0, Ordering::Relaxed)
    }
}

fn pour(mut stream: TcpStream, head: &str, sent: &AtomicU64) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let piece = [b"10000\r\n".as_slice(), &[b' '; 1 << 16], b"\r\n"].concat();
    let begun = stream.write_all(head.as_bytes());
    while begun.is_ok() && stream.write_all(&piece).is_ok() {
        sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
    }
}

fn is_too_long(error: RemoteError, key: &str) {
    let said = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{said}");
    let RemoteError::Service(ServiceError { what, .. }) = error else { panic!("{said}") };
    assert_eq!(what, What::TooLong, "{said}");
    assert!(said.contains(&format!("{key} at test://place")), "{said}");
}

#[test]
fn what_is_announced_as_too_long_is_not_read() {
    let endless = Endless::start("HTTP/1.1 200 OK\r\nContent-Length: 1099511627776\r\n\r\n");
    let place = Place::new();
    let service = keyed_bucket(&endless.endpoint, ("a", "b"), "bucket", &Arc::default());
    let remote = place.remote(service, "remote");
    let wait = &place.runtime;
    is_too_long(wait.block_on(remote.look()).unwrap_err(), "config.toml");
    is_too_long(wait.block_on(remote.default_branch()).unwrap_err(), "HEAD");
    is_too_long(wait.block_on(remote.slot(&branch("main"))).unwrap_err(), "refs/heads/main");
    let client = remote.client();
    is_too_long(wait.block_on(client.read("objects/x", 0..4)).unwrap_err().into(), "objects/x");
    is_too_long(wait.block_on(client.list("refs/")).unwrap_err().into(), "refs/");
    assert!(endless.sent() <= 5 * IN_BETWEEN);
}

#[test]
fn a_reply_without_end_is_not_read_to_its_end() {
    let endless = Endless::start("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    let place = Place::new();
    let service = keyed_bucket(&endless.endpoint, ("a", "b"), "bucket", &Arc::default());
    let remote = place.remote(service, "remote");
    let wait = &place.runtime;
    is_too_long(wait.block_on(remote.client().list("refs/")).unwrap_err().into(), "refs/");
    assert!(endless.sent() <= limits::REPLY_BYTES + IN_BETWEEN);
    // Objects have a length, so what has none is no object; each is tried again.
    wait.block_on(remote.look()).unwrap_err();
    wait.block_on(remote.slot(&branch("main"))).unwrap_err();
    assert!(endless.sent() <= 8 * IN_BETWEEN);
}

#[test]
fn a_refusal_without_end_is_told_as_one() {
    let endless = Endless::start("HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n");
    let place = Place::new();
    let service = keyed_bucket(&endless.endpoint, ("a", "b"), "bucket", &Arc::default());
    let remote = place.remote(service, "remote");
    is_too_long(place.runtime.block_on(remote.look()).unwrap_err(), "config.toml");
    assert!(endless.sent() <= limits::CONFIG_BYTES + IN_BETWEEN);
}

#[test]
fn a_file_of_the_index_is_no_longer_than_it_can_be() {
    let server = S3Server::start(S3Options::default());
    let place = Place::new();
    let name = "0".repeat(64);
    let bytes = limits::REMOTE_INDEX_BYTES as usize + 1;
    server.put(&format!("some/prefix/index/{name}"), vec![0; bytes]);
    let mut remote = place.remote(bucket(&server.endpoint(), &server, &Arc::default()), "remote");
    let error = place.runtime.block_on(remote.refresh()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    let expected =
        format!("index/{name} at test://place is damaged: it cannot be as long as {bytes} B");
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_file_in_a_folder_may_be_as_long_as_the_disk_allows() {
    let place = Place::new();
    let there = place.folder.path().join("there");
    fs_err::create_dir_all(there.join("refs/heads")).unwrap();
    for key in ["config.toml", "HEAD", "refs/heads/main"] {
        fs_err::File::create(there.join(key)).unwrap().set_len(1 << 40).unwrap();
    }
    let remote = place.remote(Arc::new(Folder::new(there, Arc::default())), "remote");
    let wait = &place.runtime;
    is_too_long(wait.block_on(remote.look()).unwrap_err(), "config.toml");
    is_too_long(wait.block_on(remote.default_branch()).unwrap_err(), "HEAD");
    is_too_long(wait.block_on(remote.slot(&branch("main"))).unwrap_err(), "refs/heads/main");
}

/// Answers each request with a page of a listing after which there is another one.
fn list_without_end(stream: TcpStream, pages: &AtomicU64) {
    let mut answer = stream.try_clone().unwrap();
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(line)) = lines.next() {
        if !line.is_empty() {
            continue;
        }
        let page = pages.fetch_add(1, Ordering::Relaxed);
        let keys = (0..1000).map(|number| {
            let key = format!("some/prefix/index/{page}-{number}");
            let when = "<LastModified>2026-11-01T00:00:00.000Z</LastModified>";
            format!("<Contents><Key>{key}</Key>{when}<ETag>\"x\"</ETag><Size>1</Size></Contents>")
        });
        let keys: String = keys.collect();
        let body = format!(
            "<ListBucketResult><IsTruncated>true</IsTruncated>\
             <NextContinuationToken>{page}</NextContinuationToken>{keys}</ListBucketResult>"
        );
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        if answer.write_all(format!("{head}{body}").as_bytes()).is_err() {
            break;
        }
    }
}

#[test]
fn a_listing_without_end_is_given_up() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let pages = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&pages);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let count = Arc::clone(&count);
            thread::spawn(move || list_without_end(stream, &count));
        }
    });
    let place = Place::new();
    let service = s3(&endpoint, ("a", "b"), "bucket", &Arc::default()).listing_at_most(5_500);
    let remote = place.remote(Arc::new(service), "remote");
    let error = place.runtime.block_on(remote.client().list("index/")).unwrap_err();
    assert!(error.to_string().ends_with("more than 5500 objects"), "{error}");
    is_too_long(error.into(), "index/");
    assert!((6..=8).contains(&pages.load(Ordering::Relaxed)), "{pages:?}");
}
