//! Requests that pass the proxy without a fault: counted, delayed, slowed.

use std::time::{Duration, Instant};

use futures::future::join_all;
use snap_nettest::{Counts, DavOptions, DavServer, Kind, Proxy, S3Options, S3Server};

use crate::client::{plain, s3};

#[tokio::test]
async fn the_proxy_counts_requests_and_bytes_exactly() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let client = s3(&server, &proxy.endpoint());
    assert_eq!(proxy.counts(), Counts::default());

    for number in 0..7 {
        client.write(&format!("small/{number}"), vec![1; 1_000]).await.unwrap();
    }
    for number in 0..5 {
        client.read_with(&format!("small/{number}")).range(0..100).await.unwrap();
    }
    client.stat("small/0").await.unwrap();
    client.delete("small/0").await.unwrap();
    let counts = proxy.take_counts();
    assert_eq!(counts.total, 14);
    assert_eq!(
        Vec::from_iter(counts.by_kind),
        [(Kind::Get, 5), (Kind::Head, 1), (Kind::Put, 7), (Kind::Delete, 1)]
    );
    assert_eq!(counts.sent_bytes, 7_000);
    assert_eq!(counts.received_bytes, 500);
    assert_eq!(counts.connections, 1);
    assert_eq!(counts.in_flight_max, 1);
    assert_eq!(counts.faults, 0);

    let mut writer = client.writer_with("large").chunk(5 << 20).await.unwrap();
    writer.write(vec![2; 11 << 20]).await.unwrap();
    writer.close().await.unwrap();
    client.list("").await.unwrap();
    client.delete_iter(["small/1", "small/2"]).await.unwrap();
    let counts = proxy.take_counts();
    assert_eq!(
        Vec::from_iter(counts.by_kind),
        [
            (Kind::DeleteMany, 1),
            (Kind::List, 1),
            (Kind::CreateUpload, 1),
            (Kind::UploadPart, 3),
            (Kind::CompleteUpload, 1)
        ]
    );
    assert_eq!(proxy.counts(), Counts::default());
}

#[tokio::test]
async fn each_request_is_recorded() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let client = s3(&server, &proxy.endpoint());
    client.write("pack", vec![1; 1_000]).await.unwrap();
    client.read_with("pack").range(10..20).await.unwrap();
    client.read("other").await.unwrap_err();
    let requests = proxy.requests();
    let brief: Vec<_> = requests
        .iter()
        .map(|seen| (&*seen.method, &*seen.path, seen.range.as_deref(), seen.status()))
        .collect();
    assert_eq!(brief.len(), 3);
    assert_eq!(brief[0], ("PUT", "/bucket/pack", None, Some(200)));
    assert_eq!(brief[1], ("GET", "/bucket/pack", Some("bytes=10-19"), Some(206)));
    assert_eq!(brief[2].3, Some(404));
    assert_eq!(requests[0].body_bytes, Some(1_000));
    assert!(requests[0].replied_at().unwrap() <= requests[1].at);
}

#[tokio::test]
async fn latency_is_added_to_concurrent_requests_in_parallel() {
    let server = DavServer::start(DavOptions::default());
    let proxy = Proxy::start(&server.endpoint());
    let (client, url) = (plain(), format!("{}/file", proxy.endpoint()));
    client.put(&url).body("x").send().await.unwrap();
    let latency = Duration::from_millis(100);
    proxy.set_latency(latency);

    let begin = Instant::now();
    for _ in 0..3 {
        client.get(&url).send().await.unwrap();
    }
    assert!(begin.elapsed() >= 3 * latency);

    proxy.take_counts();
    join_all((0..20).map(|_| client.get(&url).send())).await;
    let counts = proxy.counts();
    assert_eq!(counts.of(Kind::Get), 20);
    assert!(counts.in_flight_max > 1, "{counts:?}");
    for seen in proxy.requests() {
        assert!(seen.replied_at().unwrap() - seen.at >= latency);
    }
}

#[tokio::test]
async fn the_rate_limit_is_shared_by_all_connections() {
    let server = DavServer::start(DavOptions::default());
    let proxy = Proxy::start(&server.endpoint());
    let (client, url) = (plain(), format!("{}/file", proxy.endpoint()));
    proxy.set_rate(Some(1_000_000));
    let begin = Instant::now();
    client.put(&url).body(vec![1; 200_000]).send().await.unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(200));

    let begin = Instant::now();
    let read = || async { client.get(&url).send().await.unwrap().bytes().await.unwrap().len() };
    assert_eq!(join_all((0..3).map(|_| read())).await, [200_000; 3]);
    assert!(begin.elapsed() >= Duration::from_millis(600));
    let counts = proxy.counts();
    assert_eq!((counts.sent_bytes, counts.received_bytes >= 600_000), (200_000, true));
}

#[tokio::test]
async fn a_proxy_without_a_service_returns_502() {
    let server = DavServer::start(DavOptions::default());
    let proxy = Proxy::start(&server.endpoint());
    drop(server);
    let reply = plain().get(proxy.endpoint()).send().await.unwrap();
    assert_eq!(reply.status(), 502);
}
