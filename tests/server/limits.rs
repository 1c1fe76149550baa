//! Tests of clients that send nothing, little, too much or garbage over raw sockets.
//! They do no harm, and other clients are served meanwhile.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    path::Path,
    time::Duration,
};

use snap_server::settings::{LogSettings, ServerLimits, ServerSettings};
use snap_testkit::wait::PATIENCE;

use crate::{
    place::{Place, Serving, eventually, within_guard},
    watched::{metrics, number},
};

/// Starts a server with these limits.
pub(crate) fn start(place: &Place, limits: ServerLimits) -> Serving {
    Serving::start(place, ServerSettings { limits, ..ServerSettings::default() })
}

pub(crate) fn connect(serving: &Serving) -> TcpStream {
    let stream = TcpStream::connect(serving.origin().trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads until the server closes the connection.
pub(crate) fn rest(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("the connection was not closed: {error}"),
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sends these bytes. Returns the status of the response, or `None` if there is none.
fn status(serving: &Serving, request: &str) -> Option<u16> {
    let mut stream = connect(serving);
    // The server may have closed the connection already.
    let _ = stream.write_all(request.as_bytes());
    let _ = stream.shutdown(Shutdown::Write);
    let answer = rest(stream);
    Some(answer.strip_prefix("HTTP/1.1 ")?.split(' ').next()?.parse().unwrap())
}

pub(crate) async fn is_served(serving: &Serving) {
    let answer = within_guard(serving.get("refs").send(), "others are not served").await;
    assert_eq!(answer.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_request_is_closed_at_its_timeout() {
    let place = Place::new();
    let limits = ServerLimits::default();
    let header = Duration::from_secs(limits.header_secs);
    let stall = limits.stall();
    let serving = start(&place, limits);
    let put = "PUT /v1/repos/default/packs/";
    let name = "5f".repeat(32);
    let half_a_body =
        format!("{put}{name} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nab");
    for said in
        ["", "P", "PRI * HTTP/2.0\r\n\r\n", "GET / HT", "GET / HTTP/1.1\r\nHost: lo", &half_a_body]
    {
        let mut stream = connect(&serving);
        stream.write_all(said.as_bytes()).unwrap();
        let answer = tokio::task::spawn_blocking(|| rest(stream));
        let told = said.ends_with("ab");
        let patience = if told { stall } else { header };
        serving.until_sleeping(patience).await;
        assert!(!answer.is_finished(), "{said:?}");
        let answer = serving.passing(patience, answer).await.unwrap();
        assert_eq!(answer.contains("the request body stalled"), told, "{said:?}: {answer}");
    }
    assert!(fs_err::read_dir(place.staged()).map_or(true, |mut left| left.next().is_none()));
    is_served(&serving).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_no_responses_is_disconnected() {
    let place = Place::new();
    let limits = ServerLimits { connections: 1, ..ServerLimits::default() };
    let stall = limits.stall();
    let serving = start(&place, limits);
    let mut greedy = connect(&serving);
    let request = b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // Until the server closes the connection. First the buffers of both sides fill up.
    let asking = tokio::task::spawn_blocking(move || while greedy.write_all(request).is_ok() {});
    serving.until_sleeping(stall).await;
    assert!(serving.get("refs").send().await.is_err(), "there are two connections");
    serving.passing(stall, asking).await.unwrap();
    // The only connection slot becomes free.
    let others = async || serving.get("refs").send().await.ok();
    assert_eq!(eventually("the server stays blocked", others).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_above_the_limit_are_refused() {
    let place = Place::new();
    for limits in [
        ServerLimits { connections: 2, ..ServerLimits::default() },
        ServerLimits { address_connections: 2, ..ServerLimits::default() },
    ] {
        let serving = start(&place, limits);
        let request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let answered = |stream: &mut TcpStream| {
            stream.write_all(request).is_ok()
                && stream.read(&mut [0; 1000]).is_ok_and(|bytes| bytes > 0)
        };
        let (mut one, mut two) = (connect(&serving), connect(&serving));
        assert!(answered(&mut one) && answered(&mut two));
        assert!(!answered(&mut connect(&serving)), "the limit is exceeded");
        assert!(answered(&mut one), "open connections still work");
        drop(one);
        let others = async || answered(&mut connect(&serving)).then_some(());
        eventually("the limit stays exceeded", others).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_are_refused() {
    let place = Place::new();
    place.change("a", "content");
    let serving = Serving::of(&place);
    let path = "/v1/repos/default/missing";
    let post = |headers: &str| {
        status(&serving, &format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\nx"))
    };
    for headers in [
        "Content-Length: -1",
        "Content-Length: 99999999999999999999999",
        "Content-Length: 1\r\nContent-Length: 2",
        "Content-Length: 0x1",
        "Transfer-Encoding: nonsense",
        "Content-Length: 18446744073709551615",
        "Bad Header: x",
        "X: a\0b",
    ] {
        // Closing the connection without a response is acceptable.
        let refused = post(headers);
        assert!(
            refused.is_none_or(|status| (400..500).contains(&status)),
            "{headers}: {refused:?}"
        );
    }
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(200_000));
    // The response may be lost because the request is still being sent.
    assert!(status(&serving, &long).is_none_or(|status| status == 431));
    for path in ["/v1/repos/a%0d%0aSet-Cookie:%20x=y/refs", "/r/a%0d%0aX-Evil:%201/c/main"] {
        let mut stream = connect(&serving);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .unwrap();
        let answer = rest(stream);
        let head = answer.split("\r\n\r\n").next().unwrap().to_lowercase();
        assert!(head.starts_with("http/1.1 404"), "{head}");
        assert!(!head.contains("x-evil") && !head.contains("x=y"), "{head}");
    }
    for dots in
        ["/v1/repos/default/../../../etc/passwd", "/assets/../../etc/passwd", "//etc/passwd"]
    {
        let mut stream = connect(&serving);
        write!(stream, "GET {dots} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .unwrap();
        assert!(rest(stream).starts_with("HTTP/1.1 404"), "{dots}");
    }
    is_served(&serving).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expect_100_continue_is_refused_before_the_body() {
    let place = Place::new();
    let serving = start(&place, ServerLimits { upload_bytes: 1000, ..ServerLimits::default() });
    let name = "5f".repeat(32);
    let put = |length: u64| {
        let request = format!(
            "PUT /v1/repos/default/packs/{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Expect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
        );
        status(&serving, &request)
    };
    assert_eq!((put(1001), put(999)), (Some(413), Some(100)));
}

/// Returns how often this process has opened a file.
fn open_count(path: &Path) -> usize {
    let files = fs_err::read_dir("/proc/self/fd").unwrap().flatten();
    files.filter(|file| fs_err::read_link(file.path()).is_ok_and(|to| to == path)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_of_a_disconnected_client_is_logged() {
    let place = Place::new();
    let commit = place.change("a", "content");
    let audit = place.folder.path().join("audit.jsonl");
    let log = LogSettings { audit: Some(audit.clone()), ..LogSettings::default() };
    let serving = Serving::start(&place, ServerSettings { log, ..ServerSettings::default() });
    let body = format!("{{\"commit\": \"{commit}\"}}");
    // While the test holds the lock of all refs, no ref moves.
    let lock_path = fs_err::canonicalize(place.store().join("lock")).unwrap();
    let lock = fs_err::File::open(&lock_path).unwrap().into_file();
    lock.lock().unwrap();
    let before = open_count(&lock_path);
    let mut stream = connect(&serving);
    write!(
        stream,
        "PUT /v1/repos/default/refs/tags/t HTTP/1.1\r\nHost: localhost\r\n\
         If-None-Match: *\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let waits = async || (open_count(&lock_path) > before).then_some(());
    eventually("no ref is being moved", waits).await;
    drop(stream);
    // Only the request for the metrics is in progress.
    metrics(&serving, "", |text| number(text, "snap_requests_in_flight") == Some(1)).await;
    lock.unlock().unwrap();
    let is_moved = async || place.store().join("refs/tags/t").exists().then_some(());
    eventually("the ref is not moved", is_moved).await;
    let logged = fs_err::read_to_string(&audit).unwrap();
    assert!(logged.contains("\"tags/t\"") && logged.contains("499"), "{logged}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_waits_for_requests_in_progress() {
    let (here, there) = (Place::new(), Place::new());
    here.change("a", "content");
    let id = here.repo.store().packs()[0];
    let bytes = here.pack_bytes(&id);
    let (first, last) = bytes.split_at(bytes.len() / 2);
    // One upload continues, the other one never does.
    for goes_on in [true, false] {
        let limits = ServerLimits::default();
        let patience = Duration::from_secs(limits.stop_secs);
        let serving = start(&there, limits);
        let mut stream = connect(&serving);
        let name = if goes_on { id.to_string() } else { "5f".repeat(32) };
        write!(
            stream,
            "PUT /v1/repos/default/packs/{name} HTTP/1.1\r\nHost: localhost\r\n\
             Content-Length: {}\r\n\r\n",
            bytes.len()
        )
        .unwrap();
        stream.write_all(first).unwrap();
        let is_coming = |text: &str| number(text, "snap_uploads_in_flight") == Some(1);
        metrics(&serving, "", is_coming).await;
        serving.begin_stop();
        serving.until_sleeping(patience).await;
        assert!(!serving.has_ended(), "it waits");
        if goes_on {
            stream.write_all(last).unwrap();
            let answer = tokio::task::spawn_blocking(|| rest(stream)).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
        } else {
            serving.clock.advance(patience);
        }
        serving.stop().await;
    }
}
