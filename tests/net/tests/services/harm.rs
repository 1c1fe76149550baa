//! Each fault does what it documents, for the requests that its rule selects.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use snap_nettest::{DavOptions, DavServer, Fault, Gate, Kind, Proxy, Rule, S3Options, S3Server};
use snap_testkit::wait::PATIENCE;
use tokio::time::timeout;

use crate::client::{plain, s3};

const CONTENT_BYTES: usize = 10_000;

/// A file behind a proxy.
struct Setup {
    server: DavServer,
    proxy: Proxy,
    client: reqwest::Client,
    url: String,
}

impl Setup {
    async fn new() -> Self {
        let server = DavServer::start(DavOptions::default());
        let proxy = Proxy::start(&server.endpoint());
        let (client, url) = (plain(), format!("{}/file", proxy.endpoint()));
        client.put(&url).body(vec![0; CONTENT_BYTES]).send().await.unwrap();
        proxy.take_counts();
        Self { server, proxy, client, url }
    }

    async fn get(&self) -> reqwest::Result<reqwest::Response> {
        self.client.get(&self.url).send().await
    }

    /// Returns the content of a file on the server.
    fn file(&self, name: &str) -> std::io::Result<Vec<u8>> {
        fs_err::read(self.server.folder().join(name))
    }
}

/// Sends a request. Returns the bytes of the reply, and the error that ended it.
fn raw(proxy: &Proxy, path: &str) -> (Vec<u8>, Option<ErrorKind>) {
    let mut stream = TcpStream::connect(proxy.endpoint().replace("http://", "")).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut received = Vec::new();
    let end = stream.read_to_end(&mut received);
    (received, end.err().map(|error| error.kind()))
}

#[tokio::test]
async fn half_of_a_request_arrives_when_it_is_cut() {
    let setup = Setup::new().await;
    setup.proxy.add(Rule::new(Fault::CutRequest).times(1));
    let put = |bytes: Vec<u8>| setup.client.put(&setup.url).body(bytes).send();
    put(vec![1; CONTENT_BYTES]).await.unwrap_err();
    // The file server truncates the existing file, but possibly only after the client has seen
    // the end.
    let (start, mut left) = (Instant::now(), setup.file("file").unwrap());
    while left.len() == CONTENT_BYTES && start.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(5)).await;
        left = setup.file("file").unwrap();
    }
    assert!(left.len() < CONTENT_BYTES, "{}", left.len());
    put(vec![2; CONTENT_BYTES]).await.unwrap();
    assert_eq!(setup.file("file").unwrap(), [2; CONTENT_BYTES]);
}

#[tokio::test]
async fn a_stale_response_is_the_previous_one_and_is_counted() {
    let setup = Setup::new().await;
    let is_on = Arc::new(AtomicBool::new(false));
    setup.proxy.add(Rule::new(Fault::Stale).kind(Kind::Get).during(Arc::clone(&is_on)));
    let put = |byte| setup.client.put(&setup.url).body(vec![byte; CONTENT_BYTES]).send();
    let first = async || setup.get().await.unwrap().bytes().await.unwrap()[0];
    assert_eq!(first().await, 0);
    is_on.store(true, SeqCst);
    assert_eq!((first().await, setup.proxy.counts().stale), (0, 0), "nothing is out of date");
    put(1).await.unwrap();
    assert_eq!((first().await, setup.proxy.counts().stale), (0, 1));
    is_on.store(false, SeqCst);
    assert_eq!((first().await, setup.proxy.counts().stale), (1, 1));
}

#[tokio::test]
async fn a_reset_request_is_not_forwarded() {
    let setup = Setup::new().await;
    setup.proxy.add(Rule::new(Fault::Reset));
    assert_eq!(raw(&setup.proxy, "/file"), (Vec::new(), Some(ErrorKind::ConnectionReset)));
    let url = setup.url.replace("file", "other");
    setup.client.put(url).body("x").send().await.unwrap_err();
    setup.file("other").unwrap_err();
}

#[tokio::test]
async fn a_lost_reply_is_lost_after_the_server_has_acted() {
    let setup = Setup::new().await;
    setup.proxy.add(Rule::new(Fault::LoseReply));
    assert_eq!(raw(&setup.proxy, "/file"), (Vec::new(), Some(ErrorKind::ConnectionReset)));
    let url = setup.url.replace("file", "other");
    setup.client.put(url).body("x").send().await.unwrap_err();
    assert_eq!(setup.file("other").unwrap(), b"x");
}

#[tokio::test]
async fn a_lost_reply_to_a_conditional_write_conflicts_with_itself() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let client = s3(&server, &proxy.endpoint());
    proxy.add(Rule::new(Fault::LoseReply).kind(Kind::Put).path("refs/").times(1));
    client.write_with("refs/main", "mine").if_not_exists(true).await.unwrap_err();
    assert_eq!(server.get("refs/main").unwrap(), "mine");
    let error = client.write_with("refs/main", "mine").if_not_exists(true).await.unwrap_err();
    assert_eq!(error.kind(), opendal::ErrorKind::ConditionNotMatch);
    assert_eq!(proxy.counts().of(Kind::Put), 2);
}

#[tokio::test]
async fn refused_requests_get_s3_errors_and_are_not_forwarded() {
    let setup = Setup::new().await;
    for status in [429, 500, 503] {
        setup.proxy.add(Rule::new(Fault::status(status)).times(1));
        let url = setup.url.replace("file", "other");
        let reply = setup.client.put(url).body("x").send().await.unwrap();
        assert_eq!(reply.status(), status);
        assert_eq!(reply.headers().get("retry-after"), None);
    }
    setup.file("other").unwrap_err();
    setup.proxy.add(Rule::new(Fault::retry_after(503, 7)).times(1));
    let reply = setup.get().await.unwrap();
    assert_eq!(reply.headers()["retry-after"], "7");
    assert!(reply.text().await.unwrap().contains("<Code>SlowDown</Code>"));
    setup.proxy.add(Rule::new(Fault::error(403, "RequestTimeTooSkewed")).times(1));
    let text = setup.get().await.unwrap().text().await.unwrap();
    assert!(text.contains("<Code>RequestTimeTooSkewed</Code>"), "{text}");
    // One connection served all requests.
    let counts = setup.proxy.counts();
    assert_eq!((counts.faults, counts.connections), (5, 0));
}

#[tokio::test]
async fn a_truncated_response_states_the_full_length() {
    let setup = Setup::new().await;
    setup.proxy.add(Rule::new(Fault::Truncate).times(2));
    let reply = setup.get().await.unwrap();
    assert_eq!(reply.content_length(), Some(CONTENT_BYTES as u64));
    reply.bytes().await.unwrap_err();
    let (received, end) = raw(&setup.proxy, "/file");
    let head = received.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    assert_eq!((received.len() - head, end), (CONTENT_BYTES / 2, None));
    assert_eq!(setup.get().await.unwrap().bytes().await.unwrap().len(), CONTENT_BYTES);
}

#[tokio::test]
async fn a_flip_fault_changes_exactly_one_bit() {
    let setup = Setup::new().await;
    let ones = |bytes: &[u8]| bytes.iter().map(|byte| byte.count_ones()).sum::<u32>();
    setup.proxy.add(Rule::new(Fault::FlipReply).times(1));
    let flipped = setup.get().await.unwrap().bytes().await.unwrap();
    assert_eq!((flipped.len(), ones(&flipped)), (CONTENT_BYTES, 1));
    assert_eq!(ones(&setup.get().await.unwrap().bytes().await.unwrap()), 0);

    setup.proxy.add(Rule::new(Fault::FlipRequest).times(1));
    let url = setup.url.replace("file", "other");
    let reply = setup.client.put(url).body(vec![0; 999]).send().await.unwrap();
    assert!(reply.status().is_success());
    let stored = setup.file("other").unwrap();
    assert_eq!((stored.len(), ones(&stored)), (999, 1));
}

#[tokio::test]
async fn a_stalled_response_never_ends() {
    let setup = Setup::new().await;
    let patience = Duration::from_millis(300);
    setup.proxy.add(Rule::new(Fault::Stall).times(1));
    timeout(patience, setup.get()).await.unwrap_err();
    setup.proxy.add(Rule::new(Fault::StallBody).times(1));
    let mut reply = setup.get().await.unwrap();
    let mut received = 0;
    while received < CONTENT_BYTES / 2 {
        received += reply.chunk().await.unwrap().unwrap().len();
    }
    assert_eq!(received, CONTENT_BYTES / 2);
    timeout(patience, reply.chunk()).await.unwrap_err();
    assert!(setup.get().await.unwrap().status().is_success());
}

#[tokio::test]
async fn a_delay_combines_with_another_fault() {
    let setup = Setup::new().await;
    let delay = Duration::from_millis(50);
    setup.proxy.set_latency(delay);
    setup.proxy.add(Rule::new(Fault::Delay(delay)));
    setup.proxy.add(Rule::new(Fault::status(500)));
    setup.proxy.add(Rule::new(Fault::status(503)));
    let begin = Instant::now();
    assert_eq!(setup.get().await.unwrap().status(), 500);
    assert!(begin.elapsed() >= 2 * delay);
}

#[tokio::test]
async fn a_rule_applies_only_to_matching_requests() {
    let setup = Setup::new().await;
    let statuses = async |rule: Rule, count: usize| {
        setup.proxy.clear_rules();
        setup.proxy.add(rule);
        let mut statuses = Vec::new();
        for _ in 0..count {
            statuses.push(setup.get().await.unwrap().status().as_u16());
        }
        statuses
    };
    let rule = || Rule::new(Fault::status(503));
    assert_eq!(statuses(rule().skip(1).times(2), 4).await, [200, 503, 503, 200]);
    assert_eq!(statuses(rule().path("elsewhere"), 2).await, [200, 200]);
    assert_eq!(statuses(rule().path("fil"), 2).await, [503, 503]);
    assert_eq!(statuses(rule().kind(Kind::Put), 1).await, [200]);
    assert_eq!(statuses(rule().test(|seen| seen.method == "GET"), 1).await, [503]);
    let drawn = statuses(rule().chance(0.3, 42), 100).await;
    let struck = drawn.iter().filter(|status| **status == 503).count();
    assert!((15..45).contains(&struck), "{struck}");
    assert_eq!(statuses(rule().chance(0.3, 42), 100).await, drawn);
}

/// Waits until the proxy has stopped `count` requests.
async fn await_stalled(proxy: &Proxy, count: u64) {
    while proxy.counts().stalled < count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_held_request_is_served_after_its_release() {
    let setup = Setup::new().await;
    let gate = Gate::default();
    setup.proxy.add(Rule::new(Fault::Hold(gate.clone())).times(1));
    let (client, other) = (setup.client.clone(), format!("{}/other", setup.proxy.endpoint()));
    let held = tokio::spawn(client.put(&other).body("held").send());
    await_stalled(&setup.proxy, 1).await;
    assert!(setup.file("other").is_err());
    gate.open();
    assert!(held.await.unwrap().unwrap().status().is_success());
    assert_eq!(setup.file("other").unwrap(), b"held");
}

#[tokio::test]
async fn a_request_with_a_stalled_reply_was_served() {
    let setup = Setup::new().await;
    setup.proxy.add(Rule::new(Fault::StallReply).times(1));
    let (client, other) = (setup.client.clone(), format!("{}/other", setup.proxy.endpoint()));
    let stalled = tokio::spawn(client.put(&other).body("served").send());
    await_stalled(&setup.proxy, 1).await;
    assert_eq!(setup.file("other").unwrap(), b"served");
    assert!(!stalled.is_finished());
}

#[tokio::test]
async fn requests_without_a_target_are_reset_until_one_is_set() {
    let setup = Setup::new().await;
    let next = DavServer::start(DavOptions::default());
    fs_err::write(next.folder().join("file"), "next").unwrap();
    setup.proxy.set_target(None);
    assert!(setup.get().await.is_err());
    setup.proxy.set_target(Some(&next.endpoint()));
    assert_eq!(setup.get().await.unwrap().bytes().await.unwrap(), "next");
}
