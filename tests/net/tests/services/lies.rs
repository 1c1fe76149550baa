//! Faulty behaviour of the S3 server, and what a test sees of its state.

use opendal::{ErrorKind, Operator};
use snap_nettest::{Denied, Proxy, S3Options, S3Server};

use crate::client::s3;

fn start() -> (S3Server, Operator) {
    let server = S3Server::start(S3Options::default());
    let client = s3(&server, &server.endpoint());
    (server, client)
}

async fn listed(client: &Operator) -> Vec<String> {
    let entries = client.list_with("").recursive(true).await.unwrap();
    entries.iter().map(|entry| entry.path().to_owned()).collect()
}

#[tokio::test]
async fn a_listing_is_stale_while_it_is_frozen() {
    let (server, client) = start();
    server.put("old", "x");
    server.freeze_listings(true);
    client.write("new", "x").await.unwrap();
    client.delete("old").await.unwrap();
    assert_eq!(listed(&client).await, ["old"]);
    assert!(client.exists("new").await.unwrap());
    server.freeze_listings(false);
    assert_eq!(listed(&client).await, ["new"]);
}

#[tokio::test]
async fn a_forgotten_object_is_listed_and_not_found() {
    let (server, client) = start();
    server.put("pack", "x");
    server.forget("pack");
    assert_eq!(listed(&client).await, ["pack"]);
    assert_eq!(client.read("pack").await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(server.keys(), Vec::<String>::new());
    client.write_with("pack", "again").if_not_exists(true).await.unwrap();
    assert_eq!(client.read("pack").await.unwrap().to_vec(), b"again");
}

#[tokio::test]
async fn a_corrupted_object_differs_by_a_bit_and_keeps_its_tag() {
    let (server, client) = start();
    server.put("pack", vec![0; 100]);
    let before = client.stat("pack").await.unwrap();
    server.corrupt("pack");
    let after = client.stat("pack").await.unwrap();
    assert_eq!((before.etag(), before.content_length()), (after.etag(), after.content_length()));
    let ones: u32 =
        client.read("pack").await.unwrap().to_vec().iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(ones, 1);
    server.damage("pack", |bytes| bytes.truncate(10));
    assert_eq!(client.stat("pack").await.unwrap().content_length(), 10);
}

#[tokio::test]
async fn denied_requests_get_403() {
    let (server, client) = start();
    server.put("pack", "x");
    server.deny(Denied::Writes);
    assert_eq!(client.write("other", "x").await.unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(client.delete("pack").await.unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(client.read("pack").await.unwrap().to_vec(), b"x");
    server.deny(Denied::Everything);
    assert_eq!(client.read("pack").await.unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(client.list("").await.unwrap_err().kind(), ErrorKind::PermissionDenied);
    server.deny(Denied::Nothing);
    client.write("other", "x").await.unwrap();
}

#[tokio::test]
async fn a_full_bucket_answers_507() {
    let (server, _) = start();
    let proxy = Proxy::start(&server.endpoint());
    let client = s3(&server, &proxy.endpoint());
    server.put("pack", vec![0; 100]);
    server.set_capacity(Some(150));
    client.write("fits", vec![0; 50]).await.unwrap();
    client.write("too-much", vec![0; 1]).await.unwrap_err();
    assert_eq!(proxy.requests().last().unwrap().status(), Some(507));
    assert_eq!(client.read("pack").await.unwrap().len(), 100);
    client.delete("pack").await.unwrap();
    client.write("too-much", vec![0; 1]).await.unwrap();
}

#[tokio::test]
async fn a_dump_restores_all_objects() {
    let (server, client) = start();
    server.put("a", "1");
    server.put("b", "2");
    let dump = server.dump();
    assert!(server.remove("a"));
    assert!(!server.remove("a"));
    client.write("c", "3").await.unwrap();
    server.load(dump.clone());
    assert_eq!(server.dump(), dump);
    assert_eq!(listed(&client).await, ["a", "b"]);
    let other = S3Server::start(S3Options::default());
    other.load(dump.clone());
    assert_eq!(other.dump(), dump);
}

#[test]
fn a_dropped_server_stops_listening() {
    let server = S3Server::start(S3Options::default());
    let address = server.endpoint().replace("http://", "");
    std::net::TcpStream::connect(&address).unwrap();
    drop(server);
    std::net::TcpStream::connect(&address).unwrap_err();
}
