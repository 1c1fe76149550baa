//! Tests of clients that send nothing, little, too much or garbage over raw sockets.
//! They do no harm, and other clients are served meanwhile.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    time::{Duration, Instant},
};

use snap_server::{
    hub::Hub,
    routes::Server,
    run::Listening,
    settings::{LogSettings, ServerLimits, ServerSettings},
};

use crate::place::{Place, Serving};

/// A generous time limit, for busy machines.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

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
    let answer = tokio::time::timeout(PATIENCE, serving.get("refs").send()).await;
    assert_eq!(answer.unwrap().unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_says_too_little_is_sent_away() {
    let place = Place::new();
    let limits = ServerLimits { header_secs: 1, stall_secs: 1, ..ServerLimits::default() };
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
        let begun = Instant::now();
        let answer = tokio::task::spawn_blocking(|| rest(stream)).await.unwrap();
        assert!(begun.elapsed() > Duration::from_millis(500), "{said:?}: {answer}");
        let told = said.ends_with("ab");
        assert_eq!(answer.contains("the request body stalled"), told, "{said:?}: {answer}");
    }
    assert!(fs_err::read_dir(place.staged()).map_or(true, |mut left| left.next().is_none()));
    is_served(&serving).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_takes_no_answers_is_sent_away() {
    let place = Place::new();
    let limits = ServerLimits { stall_secs: 1, connections: 1, ..ServerLimits::default() };
    let serving = start(&place, limits);
    let mut greedy = connect(&serving);
    greedy.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let request = b"GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // Until the buffers of both sides are full.
    while greedy.write_all(request).is_ok() {}
    // The only connection slot becomes free.
    let since = Instant::now();
    while serving.get("refs").send().await.is_err() {
        assert!(since.elapsed() < PATIENCE, "the server stays blocked");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(greedy);
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_as_many_connections_as_there_may_be() {
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
        let since = Instant::now();
        while !answered(&mut connect(&serving)) {
            assert!(since.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_refused() {
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
async fn who_waits_to_be_told_sends_nothing_that_is_refused() {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_sender_hangs_up_is_logged() {
    let place = Place::new();
    let commit = place.change("a", "content");
    let audit = place.folder.path().join("audit.jsonl");
    let log = LogSettings { audit: Some(audit.clone()), ..LogSettings::default() };
    let serving = Serving::start(&place, ServerSettings { log, ..ServerSettings::default() });
    let body = format!("{{\"commit\": \"{commit}\"}}");
    for number in 0..20 {
        let mut stream = connect(&serving);
        write!(
            stream,
            "PUT /v1/repos/default/refs/tags/t{number} HTTP/1.1\r\nHost: localhost\r\n\
             If-None-Match: *\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let _ = stream.shutdown(Shutdown::Both);
    }
    let since = Instant::now();
    loop {
        let logged = fs_err::read_to_string(&audit).unwrap_or_default();
        let moved = fs_err::read_dir(place.store().join("refs/tags")).map_or(0, Iterator::count);
        let told = (0..20).filter(|number| logged.contains(&format!("tags/t{number}\""))).count();
        // Requests that arrived whole were at least started. Each that moved a ref is
        // logged.
        if told >= moved && (told == 20 || since.elapsed() > Duration::from_secs(3)) {
            break;
        }
        assert!(since.elapsed() < PATIENCE, "{moved} moves, {told} logged:\n{logged}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_what_is_under_way_before_it_stops() {
    let (here, there) = (Place::new(), Place::new());
    here.change("a", "content");
    let id = here.repo.store().packs()[0];
    let bytes = here.pack_bytes(&id);
    let (first, last) = bytes.split_at(bytes.len() / 2);
    // One upload continues, the other one never does.
    for goes_on in [true, false] {
        let limits =
            ServerLimits { stop_secs: if goes_on { 20 } else { 1 }, ..ServerLimits::default() };
        let settings = ServerSettings {
            listen: "127.0.0.1:0".parse().unwrap(),
            limits,
            ..ServerSettings::default()
        };
        let hub = Hub::open(&there.store()).unwrap();
        let listening = Listening::new(Server::new(hub, settings)).unwrap();
        let (address, stop) = (listening.address().unwrap(), listening.stop());
        let answering = tokio::spawn(listening.answer());
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let name = if goes_on { id.to_string() } else { "5f".repeat(32) };
        write!(
            stream,
            "PUT /v1/repos/default/packs/{name} HTTP/1.1\r\nHost: localhost\r\n\
             Content-Length: {}\r\n\r\n",
            bytes.len()
        )
        .unwrap();
        stream.write_all(first).unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        stop.stop();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!answering.is_finished(), "it waits");
        if goes_on {
            stream.write_all(last).unwrap();
            let answer = tokio::task::spawn_blocking(|| rest(stream)).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
        }
        tokio::time::timeout(PATIENCE, answering).await.unwrap().unwrap().unwrap();
    }
}
