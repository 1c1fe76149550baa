//! The guarantees of S3.

use std::sync::Arc;

use futures::future::join_all;
use opendal::{ErrorKind, Operator};
use snap_nettest::{Kind, Proxy, S3Options, S3Server};
use tokio::sync::Barrier;

use crate::client::{plain, s3, s3_as};

const RACERS: usize = 16;
const ROUNDS: usize = 5;

fn start() -> (S3Server, Operator) {
    let server = S3Server::start(S3Options::default());
    let client = s3(&server, &server.endpoint());
    (server, client)
}

/// Returns pseudo-random bytes, so that no two parts are equal.
fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Runs `RACERS` tasks that start together, and returns their results.
async fn race<F, T>(racer: impl Fn(usize) -> F) -> Vec<opendal::Result<T>>
where
    F: Future<Output = opendal::Result<T>> + Send + 'static,
    T: Send + 'static,
{
    let barrier = Arc::new(Barrier::new(RACERS));
    let racing = (0..RACERS).map(|number| {
        let (barrier, act) = (Arc::clone(&barrier), racer(number));
        tokio::spawn(async move {
            barrier.wait().await;
            act.await
        })
    });
    join_all(racing).await.into_iter().map(Result::unwrap).collect()
}

/// Returns the winner, after checking that all others failed by the condition.
fn only_winner<T>(outcomes: &[opendal::Result<T>]) -> usize {
    let lost = |outcome: &opendal::Result<T>| {
        outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConditionNotMatch)
    };
    assert_eq!(outcomes.iter().filter(|outcome| lost(outcome)).count(), RACERS - 1);
    outcomes.iter().position(Result::is_ok).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_racing_creates_wins() {
    let (server, client) = start();
    for round in 0..ROUNDS {
        let key = format!("refs/{round}");
        let outcomes = race(|number| {
            let (client, key) = (client.clone(), key.clone());
            async move { client.write_with(&key, number.to_string()).if_not_exists(true).await }
        })
        .await;
        let winner = only_winner(&outcomes);
        assert_eq!(server.get(&key).unwrap(), winner.to_string());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_racing_swaps_wins() {
    let (server, client) = start();
    server.put("refs/main", "first");
    for _ in 0..ROUNDS {
        let tag = client.stat("refs/main").await.unwrap().etag().unwrap().to_owned();
        let outcomes =
            race(|number| {
                let (client, tag) = (client.clone(), tag.clone());
                async move {
                    client.write_with("refs/main", format!("{tag} {number}")).if_match(&tag).await
                }
            })
            .await;
        let winner = only_winner(&outcomes);
        assert_eq!(server.get("refs/main").unwrap(), format!("{tag} {winner}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_racing_multipart_uploads_wins() {
    let server = S3Server::start(S3Options::default());
    let client = s3(&server, &server.endpoint());
    let content = bytes((5 << 20) + 1);
    let outcomes = race(|number| {
        let (client, mut content) = (client.clone(), content.clone());
        content[0] = number as u8;
        async move {
            let mut writer = client.writer_with("pack").if_not_exists(true).chunk(5 << 20).await?;
            writer.write(content).await?;
            writer.close().await
        }
    })
    .await;
    let winner = only_winner(&outcomes);
    assert_eq!(server.get("pack").unwrap()[0], winner as u8);
    assert_eq!(server.unfinished_uploads(), vec!["pack"; RACERS - 1]);
}

#[tokio::test]
async fn a_swap_of_a_missing_object_fails() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let client = s3(&server, &proxy.endpoint());
    let error = client.write_with("refs/main", "x").if_match("\"0\"").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConditionNotMatch);
    assert_eq!(proxy.requests()[0].status(), Some(404));
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[tokio::test]
async fn range_requests_return_the_requested_bytes() {
    let (server, client) = start();
    let content = bytes(100_000);
    server.put("pack", content.clone());
    for range in [0..1, 0..100_000, 10..20, 65_535..65_537, 99_999..100_000] {
        let read = client.read_with("pack").range(range.clone()).await.unwrap();
        let wanted = &content[range.start as usize..range.end as usize];
        assert_eq!(read.to_vec(), wanted, "{range:?}");
    }
    let suffix = opendal::BytesRange::suffix(12);
    let read = client.read_with("pack").range(suffix).await.unwrap();
    assert_eq!(read.to_vec(), &content[99_988..]);
    let beyond = client.read_with("pack").range(100_000..100_001).await.unwrap_err();
    assert_eq!(beyond.kind(), ErrorKind::RangeNotSatisfied);
}

#[tokio::test]
async fn a_read_of_another_version_fails() {
    let (server, client) = start();
    server.put("pack", "first");
    let tag = client.stat("pack").await.unwrap().etag().unwrap().to_owned();
    assert_eq!(client.read_with("pack").if_match(&tag).await.unwrap().to_vec(), b"first");
    server.put("pack", "other");
    let error = client.read_with("pack").if_match(&tag).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConditionNotMatch);
}

#[tokio::test]
async fn listings_are_paginated() {
    let server = S3Server::start(S3Options { page_entries: 7, ..S3Options::default() });
    let proxy = Proxy::start(&server.endpoint());
    let client = s3(&server, &proxy.endpoint());
    let keys: Vec<String> =
        (0..50).map(|number| format!("packs/{}/{number:02}", number % 5)).collect();
    for key in &keys {
        server.put(key, "x");
    }
    server.put("packs.txt", "not below packs/");

    let found = client.list_with("packs/").recursive(true).await.unwrap();
    let mut found: Vec<&str> = found.iter().map(opendal::Entry::path).collect();
    found.sort_unstable();
    let mut wanted: Vec<&str> = keys.iter().map(String::as_str).collect();
    wanted.sort_unstable();
    assert_eq!(found, wanted);
    assert_eq!(proxy.take_counts().of(Kind::List), 8);

    let folders = client.list("packs/").await.unwrap();
    let mut folders: Vec<&str> = folders.iter().map(opendal::Entry::path).collect();
    folders.sort_unstable();
    assert_eq!(folders, ["packs/0/", "packs/1/", "packs/2/", "packs/3/", "packs/4/"]);
    assert_eq!(proxy.take_counts().of(Kind::List), 1);
}

#[tokio::test]
async fn a_multipart_upload_creates_one_object() {
    let (server, client) = start();
    let content = bytes(12 << 20);
    let mut writer = client.writer_with("pack").chunk(5 << 20).concurrent(3).await.unwrap();
    writer.write(content.clone()).await.unwrap();
    assert_eq!(server.keys(), Vec::<String>::new());
    writer.close().await.unwrap();
    assert_eq!(server.get("pack").unwrap(), content);
    assert_eq!(server.unfinished_uploads(), Vec::<String>::new());
    assert!(client.stat("pack").await.unwrap().etag().unwrap().ends_with("-3\""));
    // A range that spans two parts.
    let range = (5 << 20) - 10..(5 << 20) + 10;
    let read = client.read_with("pack").range(range.clone()).await.unwrap();
    assert_eq!(read.to_vec(), &content[range.start as usize..range.end as usize]);
}

#[tokio::test]
async fn a_multipart_upload_can_be_aborted() {
    let (server, client) = start();
    let mut writer = client.writer_with("pack").chunk(5 << 20).await.unwrap();
    writer.write(bytes(11 << 20)).await.unwrap();
    assert_eq!(server.unfinished_uploads(), ["pack"]);
    writer.abort().await.unwrap();
    assert_eq!(server.unfinished_uploads(), Vec::<String>::new());
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[tokio::test]
async fn objects_are_removed_singly_and_in_batches() {
    let (server, client) = start();
    let keys: Vec<String> = (0..20).map(|number| format!("packs/{number}")).collect();
    for key in &keys {
        client.write(key, "x").await.unwrap();
    }
    client.delete("packs/0").await.unwrap();
    client.delete("packs/0").await.unwrap();
    client.delete_iter(keys[1..19].to_vec()).await.unwrap();
    assert_eq!(server.keys(), ["packs/19"]);
}

#[tokio::test]
async fn wrong_and_missing_keys_are_refused() {
    let (server, _) = start();
    server.put("secret", "x");
    let proxy = Proxy::start(&server.endpoint());
    for keys in [("NOBODY", server.secret_key()), (server.access_key(), "guessed")] {
        let client = s3_as(&server, &proxy.endpoint(), keys);
        let error = client.read("secret").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{keys:?}");
        assert_eq!(proxy.requests().last().unwrap().status(), Some(403), "{keys:?}");
        client.write("secret", "changed").await.unwrap_err();
    }
    let unsigned = plain().get(format!("{}/bucket/secret", server.endpoint()));
    assert_eq!(unsigned.send().await.unwrap().status(), 403);
    assert_eq!(server.get("secret").unwrap(), "x");
}

#[tokio::test]
async fn a_missing_bucket_is_not_found() {
    let (server, _) = start();
    let service = opendal::services::S3::default()
        .bucket("elsewhere")
        .region(S3Server::REGION)
        .endpoint(&server.endpoint())
        .access_key_id(server.access_key())
        .secret_access_key(server.secret_key())
        .disable_config_load();
    let client = crate::client::with_transport(Operator::new(service).unwrap());
    let error = client.read("x").await.unwrap_err();
    assert!(error.to_string().contains("NoSuchBucket"), "{error}");
}
