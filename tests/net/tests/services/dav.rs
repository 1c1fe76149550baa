//! WebDAV, with and without a password.

use opendal::{ErrorKind, Operator, services};
use snap_nettest::{DavOptions, DavServer};

use crate::client::with_transport;

fn client(server: &DavServer, password: Option<&str>) -> Operator {
    let mut service = services::Webdav::default().endpoint(&server.endpoint());
    if let Some(password) = password {
        service = service.username("ada").password(password);
    }
    with_transport(Operator::new(service).unwrap())
}

#[tokio::test]
async fn files_are_written_read_listed_and_removed() {
    let server = DavServer::start(DavOptions::default());
    let client = client(&server, None);
    client.write("packs/a/one", "1234567890").await.unwrap();
    client.write("packs/two", "2").await.unwrap();
    assert_eq!(client.read_with("packs/a/one").range(2..5).await.unwrap().to_vec(), b"345");
    assert_eq!(client.stat("packs/a/one").await.unwrap().content_length(), 10);
    let entries = client.list_with("packs/").recursive(true).await.unwrap();
    let mut files: Vec<&str> =
        entries.iter().map(opendal::Entry::path).filter(|path| !path.ends_with('/')).collect();
    files.sort_unstable();
    assert_eq!(files, ["packs/a/one", "packs/two"]);
    assert!(server.folder().join("packs/a/one").is_file());
    client.delete("packs/two").await.unwrap();
    assert!(!server.folder().join("packs/two").exists());
    assert_eq!(client.read("packs/two").await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn only_requests_with_the_password_are_accepted() {
    let user = Some(("ada".to_owned(), "lovelace".to_owned()));
    let server = DavServer::start(DavOptions { user, ..DavOptions::default() });
    client(&server, Some("lovelace")).write("file", "x").await.unwrap();
    assert_eq!(client(&server, Some("lovelace")).read("file").await.unwrap().to_vec(), b"x");
    for password in [None, Some("byron")] {
        client(&server, password).read("file").await.unwrap_err();
    }
}
