//! Limits for replies that are endless or announce an endless body.

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
    bucket::{FailureReason, ServiceError, folder::FolderBucket},
    peer::RemoteError,
};

use crate::place::{Place, branch, bucket, keyed_bucket, s3};

/// Bytes that may be sent beyond a limit before the sender notices that the client has stopped
/// reading.
const IN_BETWEEN: u64 = 16 << 20;

/// A service whose replies have this head and an endless body.
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
        // The thread ends with the process, and so do the connections that it waits for.
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
    let RemoteError::Service(ServiceError { reason: what, .. }) = error else { panic!("{said}") };
    assert_eq!(what, FailureReason::TooLong, "{said}");
    assert!(said.contains(&format!("{key} at test://place")), "{said}");
}

#[test]
fn a_response_with_an_excessive_length_is_not_read() {
    let endless = Endless::start("HTTP/1.1 200 OK\r\nContent-Length: 1099511627776\r\n\r\n");
    let place = Place::new();
    let service = keyed_bucket(&endless.endpoint, ("a", "b"), "bucket", &Arc::default());
    let client = Place::client(Arc::clone(&service));
    let remote = place.remote(service, "remote");
    let wait = &place.runtime;
    is_too_long(wait.block_on(remote.find_store()).unwrap_err(), "config.toml");
    is_too_long(wait.block_on(remote.place().default_branch()).unwrap_err(), "HEAD");
    let error = wait.block_on(remote.place().slot(&branch("main"))).unwrap_err();
    let said =
        "refs/heads/main at test://place is damaged: it is not a ref: it has more than 16384 B";
    assert_eq!(error.to_string(), said);
    let error = wait.block_on(client.get_range("objects/x", 0..4)).unwrap_err();
    assert_eq!(error.reason, FailureReason::RangeIgnored, "{error}");
    is_too_long(wait.block_on(client.list("refs/")).unwrap_err().into(), "refs/");
    assert!(endless.sent() <= 5 * IN_BETWEEN);
}

#[test]
fn an_endless_response_is_aborted_at_the_limit() {
    let endless = Endless::start("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    let place = Place::new();
    let service = keyed_bucket(&endless.endpoint, ("a", "b"), "bucket", &Arc::default());
    let client = Place::client(Arc::clone(&service));
    let remote = place.remote(service, "remote");
    let wait = &place.runtime;
    is_too_long(wait.block_on(client.list("refs/")).unwrap_err().into(), "refs/");
    assert!(endless.sent() <= limits::REPLY_BYTES + IN_BETWEEN);
    // An object has a length, so a reply without one is not an object. Each request is retried.
    wait.block_on(remote.find_store()).unwrap_err();
    wait.block_on(remote.place().slot(&branch("main"))).unwrap_err();
    assert!(endless.sent() <= 8 * IN_BETWEEN);
}

#[test]
fn an_endless_error_response_is_reported_as_too_long() {
    let endless = Endless::start("HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n");
    let place = Place::new();
    let service = keyed_bucket(&endless.endpoint, ("a", "b"), "bucket", &Arc::default());
    let remote = place.remote(service, "remote");
    is_too_long(place.runtime.block_on(remote.find_store()).unwrap_err(), "config.toml");
    assert!(endless.sent() <= limits::CONFIG_BYTES + IN_BETWEEN);
}

#[test]
fn an_index_file_above_its_size_limit_is_refused() {
    let server = S3Server::start(S3Options::default());
    let place = Place::new();
    let name = "0".repeat(64);
    let bytes = limits::REMOTE_INDEX_BYTES as usize + 1;
    server.put(&format!("some/prefix/index/{name}"), vec![0; bytes]);
    let mut remote = place.remote(bucket(&server.endpoint(), &server, &Arc::default()), "remote");
    let error = place.runtime.block_on(remote.refresh()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    let expected = format!(
        "index/{name} at test://place is damaged: its length of {bytes} B exceeds the limit"
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn excessively_long_files_in_a_folder_are_not_read() {
    let place = Place::new();
    let there = place.folder.path().join("there");
    fs_err::create_dir_all(there.join("refs/heads")).unwrap();
    for key in ["config.toml", "HEAD", "refs/heads/main"] {
        fs_err::File::create(there.join(key)).unwrap().set_len(1 << 40).unwrap();
    }
    let remote = place.remote(Arc::new(FolderBucket::new(there)), "remote");
    let wait = &place.runtime;
    is_too_long(wait.block_on(remote.find_store()).unwrap_err(), "config.toml");
    is_too_long(wait.block_on(remote.place().default_branch()).unwrap_err(), "HEAD");
    let error = wait.block_on(remote.place().slot(&branch("main"))).unwrap_err();
    let said =
        "refs/heads/main at test://place is damaged: it is not a ref: it has more than 16384 B";
    assert_eq!(error.to_string(), said);
}

/// Answers each request with a page of a listing that announces another page.
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
fn an_endless_listing_is_aborted_at_the_limit() {
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
    let client = Place::client(Arc::new(service));
    let error = place.runtime.block_on(client.list("index/")).unwrap_err();
    assert!(error.to_string().ends_with("more than 5500 objects"), "{error}");
    is_too_long(error.into(), "index/");
    assert!((6..=8).contains(&pages.load(Ordering::Relaxed)), "{pages:?}");
}

/// Answers each request with a page that announces another page, and lists nothing or the same
/// object again. The continuation token is new each time, or always the same. `pages` counts the
/// pages over all connections: a client may open another one for any request.
fn list_without_progress(
    stream: TcpStream,
    (has_object, is_token_new): (bool, bool),
    pages: &AtomicU64,
) {
    let mut answer = stream.try_clone().unwrap();
    let mut lines = BufReader::new(stream).lines();
    let contents = "<Contents><Key>some/prefix/index/x</Key><ETag>\"x\"</ETag><Size>1</Size>\
                    <LastModified>2026-11-01T00:00:00.000Z</LastModified></Contents>";
    let contents = if has_object { contents } else { "" };
    while let Some(Ok(line)) = lines.next() {
        if !line.is_empty() {
            continue;
        }
        let page = if is_token_new { pages.fetch_add(1, Ordering::Relaxed) } else { 0 };
        let body = format!(
            "<ListBucketResult><IsTruncated>true</IsTruncated>\
             <NextContinuationToken>t{page}</NextContinuationToken>{contents}</ListBucketResult>"
        );
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        if answer.write_all(format!("{head}{body}").as_bytes()).is_err() {
            break;
        }
    }
}

#[test]
fn a_listing_without_progress_is_aborted() {
    let cases = [
        ((false, false), "the same continuation token twice"),
        ((true, false), "the same continuation token twice"),
        ((false, true), "pages without new names"),
        ((true, true), "pages without new names"),
    ];
    for (case, why) in cases {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let pages = Arc::new(AtomicU64::new(0));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let pages = Arc::clone(&pages);
                thread::spawn(move || list_without_progress(stream, case, &pages));
            }
        });
        let place = Place::new();
        let service = keyed_bucket(&endpoint, ("a", "b"), "bucket/some/prefix", &Arc::default());
        let client = Place::client(service);
        let error = place.runtime.block_on(client.list("index/")).unwrap_err();
        let said = error.to_string();
        let begin = "cannot list index/ at test://place: the listing does not end";
        assert!(said.starts_with(begin) && said.ends_with(why), "{case:?}: {said}");
        // A peek stops after the objects that it asked for.
        let peeked = place.runtime.block_on(client.list_level("index/", 2));
        match case {
            (true, _) => assert_eq!(peeked.unwrap().len(), 2),
            _ => assert!(peeked.unwrap_err().to_string().ends_with(why), "{case:?}"),
        }
    }
}

/// Sends the same reply to every request.
fn reply_always(stream: TcpStream, reply: &[u8]) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let _ = (&stream).write_all(reply);
}

#[test]
fn a_listing_with_keys_outside_its_prefix_is_an_error() {
    let body = "<ListBucketResult><Contents><Key>x</Key><Size>1</Size>\
                <LastModified>2026-01-01T00:00:00Z</LastModified></Contents></ListBucketResult>";
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let reply = head + body;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        listener.incoming().flatten().for_each(|stream| reply_always(stream, reply.as_bytes()));
    });
    let place = Place::new();
    let service = keyed_bucket(&endpoint, ("a", "b"), "bucket/some/prefix", &Arc::default());
    let client = Place::client(service);
    let error = place.runtime.block_on(client.list("refs/")).unwrap_err();
    assert!(error.to_string().contains("a key outside of the requested prefix"), "{error}");
}
