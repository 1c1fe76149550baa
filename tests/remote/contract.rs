//! The contract of every service.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use snap_core::base::kind::ErrorKind;
use snap_nettest::{
    DavOptions, DavServer, Fault, Kind, Proxy, Rule, S3Options, S3Server, SshServer,
};
use snap_remote::{
    bucket::{
        Body, Bucket, FailureReason, ListDepth, ObjectVersion, UploadProgress, WriteCondition,
        client::{Client, PART_BYTES, WHOLE_BYTES},
        folder::FolderBucket,
        memory::MemoryBucket,
        sftp::{SftpBucket, SshHost},
    },
    location::Location,
    peer::open::RemoteCredentials,
};
use snap_testkit::skip::skip_without_program;

use crate::place::{Draw, Place, branch, bucket, hasty, opening, service_at};

/// Unusual keys that refs may have.
const ODD: [&str; 9] = [
    "refs/heads/with space",
    "refs/heads/ümläut-日本",
    "refs/heads/a+b&c=d",
    "refs/heads/100%25",
    "refs/heads/p%41q",
    "refs/heads/fix",
    "refs/heads/fix#12",
    "refs/heads/deep/er/still",
    "refs/tags/v1.0~x'(y)",
];

async fn keys(service: &Arc<dyn Bucket>, prefix: &str) -> Vec<String> {
    let listed = service.list(prefix, ListDepth::All).await.unwrap();
    let mut keys: Vec<String> = listed.into_iter().map(|object| object.key).collect();
    keys.sort();
    keys
}

async fn reads_and_writes(service: &Arc<dyn Bucket>) {
    assert_eq!(service.get("nothing", 9).await.unwrap_err().reason, FailureReason::NotFound);
    assert_eq!(
        service.get_range("no/thing", 0..4).await.unwrap_err().reason,
        FailureReason::NotFound
    );
    assert_eq!(service.head("nothing").await.unwrap(), None);
    assert_eq!(keys(service, "objects/").await, Vec::<String>::new());
    assert_eq!(service.list("", ListDepth::Level(8)).await.unwrap(), []);
    service.delete(&["nothing".to_owned()]).await.unwrap();
    let bytes = Bytes::from_static(b"0123456789");
    service.put("objects/one", bytes.clone().into()).await.unwrap();
    assert_eq!(service.get("objects/one", 99).await.unwrap().bytes, bytes);
    assert_eq!(service.get("objects/one", 10).await.unwrap().bytes, bytes);
    assert_eq!(service.get("objects/one", 9).await.unwrap_err().reason, FailureReason::TooLong);
    assert_eq!(service.get_range("objects/one", 3..7).await.unwrap(), "3456");
    assert_eq!(service.get_range("objects/one", 0..1).await.unwrap(), "0");
    assert_eq!(
        service.get_range("objects/one", 8..12).await.unwrap_err().reason,
        FailureReason::Short
    );
    assert_eq!(service.head("objects/one").await.unwrap(), Some(10));
    service.put("objects/one", "other".into()).await.unwrap();
    assert_eq!(service.get("objects/one", 99).await.unwrap().bytes, "other");
    service.put("objects/two", "2".into()).await.unwrap();
    service.put("config.toml", "3".into()).await.unwrap();
    assert_eq!(keys(service, "objects/").await, ["objects/one", "objects/two"]);
    let listed = service.list("objects/", ListDepth::All).await.unwrap();
    assert_eq!(listed.iter().map(|object| object.bytes).sum::<u64>(), 6);
    let some = service.list("", ListDepth::Level(8)).await.unwrap();
    let mut some: Vec<String> = some.into_iter().map(|object| object.key).collect();
    some.retain(|key| key != "tmp/");
    some.sort();
    assert_eq!(some, ["config.toml", "objects/"]);
    assert_eq!(service.list("", ListDepth::Level(1)).await.unwrap().len(), 1);
    let many = ["objects/one", "objects/two", "objects/three"].map(str::to_owned);
    service.delete(&many).await.unwrap();
    assert_eq!(keys(service, "objects/").await, Vec::<String>::new());
    assert_eq!(service.head("config.toml").await.unwrap(), Some(1));
}

async fn odd_keys(service: &Arc<dyn Bucket>) {
    for (number, key) in ODD.iter().enumerate() {
        service.put(key, number.to_string().into()).await.unwrap();
    }
    let mut odd: Vec<String> = ODD.map(str::to_owned).into();
    odd.sort();
    assert_eq!(keys(service, "refs/").await, odd);
    for (number, key) in ODD.iter().enumerate() {
        assert_eq!(service.get(key, 99).await.unwrap().bytes, number.to_string(), "{key}");
    }
    service.delete(&odd).await.unwrap();
    assert_eq!(keys(service, "refs/").await, Vec::<String>::new());
}

async fn keeps_conditions(service: &Arc<dyn Bucket>) {
    let can = service.facts().conditions;
    if !can.absent || !can.unchanged {
        return;
    }
    let write = |text: &'static str, when| service.put_if("refs/x", text.into(), when);
    let version = || async { service.get("refs/x", 99).await.unwrap().version.unwrap() };
    write("1", WriteCondition::Absent).await.unwrap();
    assert_eq!(
        write("2", WriteCondition::Absent).await.unwrap_err().reason,
        FailureReason::Conflict
    );
    let first: ObjectVersion = version().await;
    write("2", WriteCondition::Unchanged(first.clone())).await.unwrap();
    assert_eq!(
        write("3", WriteCondition::Unchanged(first)).await.unwrap_err().reason,
        FailureReason::Conflict
    );
    assert_eq!(service.get("refs/x", 99).await.unwrap().bytes, "2");
    let second = version().await;
    service.delete(&["refs/x".to_owned()]).await.unwrap();
    assert_eq!(
        write("3", WriteCondition::Unchanged(second)).await.unwrap_err().reason,
        FailureReason::Conflict
    );
    // Of many concurrent writers, one wins.
    let writes = (0..16).map(|number: u32| {
        let service = Arc::clone(service);
        tokio::spawn(async move {
            let write = service.put_if("refs/y", number.to_string().into(), WriteCondition::Absent);
            write.await.is_ok()
        })
    });
    let won = futures::future::join_all(writes).await;
    assert_eq!(won.into_iter().filter(|won| *won.as_ref().unwrap()).count(), 1);
}

async fn large_files(service: &Arc<dyn Bucket>, length: u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large");
    fs_err::write(&path, Draw(7).bytes(length as usize)).unwrap();
    let client = Client::new(Arc::clone(service), hasty(), Arc::default());
    let progress = UploadProgress::default();
    client.put_file("objects/large", &path, length, &progress).await.unwrap();
    assert_eq!(progress.bytes(), length);
    assert_eq!(service.head("objects/large").await.unwrap(), Some(length));
    let hash = |bytes: &[u8]| blake3::hash(bytes);
    let found = service.get("objects/large", u64::MAX).await.unwrap().bytes;
    assert_eq!(hash(&found), hash(&fs_err::read(&path).unwrap()));
    progress.stop();
    let error = client.put_file("objects/other", &path, length, &progress).await.unwrap_err();
    assert_eq!(error.reason, FailureReason::Stopped);
    assert_eq!(service.head("objects/other").await.unwrap(), None);
}

/// A pack whose bytes do not hash to its name, as when it is damaged while it is sent, never
/// becomes visible under its name.
async fn packs_are_hashed_as_they_go(service: &Arc<dyn Bucket>, lengths: [u64; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pack");
    let client = Client::new(Arc::clone(service), hasty(), Arc::default());
    for length in lengths {
        let mut bytes = Draw(length).bytes(length as usize);
        let key = format!("objects/{}", blake3::hash(&bytes).to_hex());
        // The damage is after the first part.
        *bytes.last_mut().unwrap() ^= 1;
        fs_err::write(&path, &bytes).unwrap();
        let write = async || client.put_file(&key, &path, length, &UploadProgress::default()).await;
        assert_eq!(write().await.unwrap_err().reason, FailureReason::Damaged, "{length}");
        assert_eq!(service.head(&key).await.unwrap(), None, "{length}");
        *bytes.last_mut().unwrap() ^= 1;
        fs_err::write(&path, &bytes).unwrap();
        write().await.unwrap();
        assert_eq!(service.head(&key).await.unwrap(), Some(length));
    }
}

fn keeps_to_it(service: &Arc<dyn Bucket>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        reads_and_writes(service).await;
        odd_keys(service).await;
        keeps_conditions(service).await;
        large_files(service, WHOLE_BYTES + PART_BYTES + 5).await;
        packs_are_hashed_as_they_go(service, [1000, WHOLE_BYTES + PART_BYTES + 7]).await;
    });
}

#[test]
fn memory_keeps_to_the_contract() {
    let service: Arc<dyn Bucket> = Arc::new(MemoryBucket::named("contract"));
    keeps_to_it(&service);
}

#[test]
fn a_folder_keeps_to_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let service: Arc<dyn Bucket> = Arc::new(FolderBucket::new(folder.path().join("store")));
    keeps_to_it(&service);
}

#[test]
fn a_bucket_keeps_to_the_contract() {
    let server = S3Server::start(S3Options::default());
    keeps_to_it(&bucket(&server.endpoint(), &server, &Arc::default()));
    assert_eq!(server.unfinished_uploads(), Vec::<String>::new());
}

/// The variable with the server, in the child process whose `PATH` has a special `ssh`.
const SFTP: &str = "SNAP_TEST_SFTP";

/// On a file server a folder is not an object, and a listing has a limit.
async fn folders_are_no_objects(host: SftpBucket) {
    for key in ["many/a", "many/b/c", "refs/heads/x/y"] {
        host.put(key, "x".into()).await.unwrap();
    }
    assert_eq!(host.head("many/b").await.unwrap(), None);
    let read = async |key| host.get(key, 99).await.unwrap_err().reason;
    assert_eq!(read("many/b").await, FailureReason::NotAFile);
    assert_eq!(read("refs/heads/x").await, FailureReason::NotFound);
    let write = async |key| host.put(key, "x".into()).await.unwrap_err().reason;
    assert_eq!(write("refs/heads/x").await, FailureReason::Refused, "a folder has this name");
    assert_eq!(
        write("many/a/below").await,
        FailureReason::Refused,
        "a file has the name of its folder"
    );
    assert_eq!(host.list("many/", ListDepth::All).await.unwrap().len(), 2);
    // Two objects and a folder.
    let host = host.listing_at_most(3);
    assert_eq!(host.list("many/", ListDepth::All).await.unwrap().len(), 2);
    let host = host.listing_at_most(2);
    assert_eq!(
        host.list("many/", ListDepth::All).await.unwrap_err().reason,
        FailureReason::TooLong
    );
}

/// `ssh` is found through the `PATH`, which a test cannot change for itself. So the test runs
/// once more in a child process.
#[test]
fn a_host_keeps_to_the_contract() {
    if let Ok(location) = std::env::var(SFTP) {
        let key = std::env::var("SNAP_TEST_SFTP_KEY").unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _entered = runtime.enter();
        let secrets = RemoteCredentials::default();
        let service = opening(&location, &[("key", &*key)], &secrets, |opening| opening.bucket());
        keeps_to_it(&service.unwrap());
        let location: Location = location.parse().unwrap();
        let host = SshHost { key: Some(key), ..SshHost::parse(&location.authority) };
        let host = SftpBucket::new(host, &format!("/{}", location.path), Arc::default());
        return runtime.block_on(folders_are_no_objects(host));
    }
    let Some(server) = SshServer::start() else {
        skip_without_program("a test of SFTP", "sshd");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let location = format!("sftp://{}{}/store", server.authority(), folder.path().display());
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "contract::a_host_keeps_to_the_contract"])
        .env("PATH", server.path())
        .env(SFTP, location)
        .env("SNAP_TEST_SFTP_KEY", server.key())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let left = fs_err::read_dir(folder.path().join("store/tmp")).unwrap().count();
    assert_eq!(left, 0, "temporary objects remain");
}

#[test]
fn ignored_ranges_are_not_reported_as_damage() {
    let server = S3Server::start(S3Options { ignores_ranges: true, ..S3Options::default() });
    let service = bucket(&server.endpoint(), &server, &Arc::default());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let bytes = Bytes::from(vec![7; 100_000]);
    runtime.block_on(async {
        service.put("objects/x", bytes.clone().into()).await.unwrap();
        for range in [0..10, 10..20, 99_990..100_000] {
            let error = service.get_range("objects/x", range).await.unwrap_err();
            assert_eq!(error.reason, FailureReason::RangeIgnored, "{error}");
            assert_eq!(error.reason.kind(), ErrorKind::Unsupported);
        }
        assert_eq!(service.get_range("objects/x", 0..100_000).await.unwrap(), bytes);
        let error = service.get_range("objects/x", 0..100_001).await.unwrap_err();
        assert_eq!(error.reason, FailureReason::Short, "{error}");
    });
}

/// A file server truncates a file before the first byte arrives. A truncated ref could never move
/// again, and a truncated pack would count for its readers.
#[test]
fn an_interrupted_write_leaves_no_object() {
    let server = DavServer::start(DavOptions::default());
    let proxy = Proxy::start(&server.endpoint());
    let location = proxy.endpoint().replacen("http", "webdav", 1);
    let open = || service_at(&location);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let service = open();
        let write = |text: &'static str| service.put("refs/heads/main", text.into());
        write("0123456789").await.unwrap();
        let kind = Kind::Put;
        proxy.add(Rule::new(Fault::CutRequest).kind(kind).times(1));
        write("abcdefghij").await.unwrap_err();
        let found = service.get("refs/heads/main", 1024).await.unwrap();
        assert_eq!(found.bytes, "0123456789");
        let file = server.folder().join("large");
        fs_err::write(&file, [7; 100_000]).unwrap();
        let file: Arc<Path> = file.into();
        proxy.add(Rule::new(Fault::CutRequest).kind(kind).times(1));
        service.put("objects/pack", Body::File(file.clone(), 100_000)).await.unwrap_err();
        assert_eq!(keys(&service, "objects/").await, Vec::<String>::new());
        service.put("objects/pack", Body::File(file.clone(), 100_000)).await.unwrap();
        assert_eq!(service.head("objects/pack").await.unwrap(), Some(100_000));
        assert_eq!(keys(&service, "tmp/").await, Vec::<String>::new());
    });
}

/// A proxy that answers with 200 in place of the server has renamed nothing.
#[test]
fn a_response_of_a_proxy_does_not_confirm_a_rename() {
    let server = DavServer::start(DavOptions::default());
    let proxy = Proxy::start(&server.endpoint());
    let location = proxy.endpoint().replacen("http", "webdav", 1);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let service = service_at(&location);
        let write = || service.put("objects/pack", "0123456789".into());
        proxy.add(Rule::new(Fault::Pretend).test(|seen| seen.method == "MOVE").times(1));
        let error = write().await.unwrap_err();
        assert!(error.reason.is_temporary(), "{error}");
        assert_eq!(service.head("objects/pack").await.unwrap(), None);
        write().await.unwrap();
        assert_eq!(service.head("objects/pack").await.unwrap(), Some(10));
        assert_eq!(proxy.counts().faults, 1);
    });
}

/// A server or a proxy that confirms a rename as a server should may have renamed nothing, too.
#[test]
fn a_rename_that_is_only_confirmed_fails() {
    let server = DavServer::start(DavOptions::default());
    let proxy = Proxy::start(&server.endpoint());
    let location = proxy.endpoint().replacen("http", "webdav", 1);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let file = server.folder().join("file");
    fs_err::write(&file, "0123456789").unwrap();
    let file: Arc<Path> = file.into();
    runtime.block_on(async {
        let service = service_at(&location);
        for (status, key) in [(201, "objects/pack"), (204, "index/file"), (201, "config.toml")] {
            let confirmed = Fault::Refuse { status, code: "", retry_after_secs: None };
            proxy.add(Rule::new(confirmed).test(|seen| seen.method == "MOVE").times(2));
            let write = || service.put(key, "0123456789".into());
            let file = Body::File(Arc::clone(&file), 10);
            for written in [write().await, service.put(key, file).await] {
                let error = written.unwrap_err();
                assert!(error.reason.is_temporary(), "{key}: {error}");
                assert_eq!(service.head(key).await.unwrap(), None);
            }
            write().await.unwrap();
            assert_eq!(service.head(key).await.unwrap(), Some(10));
        }
        assert_eq!(keys(&service, "tmp/").await, Vec::<String>::new());
    });
}

/// Redirects are not followed. A redirected rename would rename another object, and a redirected
/// read would find no object.
#[test]
fn a_redirected_request_fails() {
    let server = DavServer::start(DavOptions::default());
    let proxy = Proxy::start(&server.endpoint());
    let location = proxy.endpoint().replacen("http", "webdav", 1);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let service = service_at(&location);
        service.put("refs/heads/main", "0123456789".into()).await.unwrap();
        fs_err::create_dir(server.folder().join("login")).unwrap();
        // The second key needs a folder that does not exist.
        for (method, key) in [("MOVE", "refs/heads/main"), ("MKCOL", "index/new")] {
            proxy.add(Rule::new(Fault::Redirect).test(move |seen| seen.method == method).times(1));
            let write = service.put(key, "abcdefghij".into());
            assert!(write.await.unwrap_err().to_string().contains("redirects to "), "{method}");
        }
        fs_err::remove_dir(server.folder().join("login")).unwrap();
        proxy.add(Rule::new(Fault::Redirect).kind(Kind::Get).times(1));
        let error = service.get("refs/heads/main", 99).await.unwrap_err();
        assert!(
            error.reason != FailureReason::NotFound && error.to_string().contains("redirects to ")
        );
        assert_eq!(proxy.counts().faults, 3);
        assert_eq!(service.get("refs/heads/main", 99).await.unwrap().bytes, "0123456789");
    });
}

/// A server may list a file as the content of a folder with its name, and send a page in place of
/// a ref. Then the ref is unreadable, not absent.
#[test]
fn an_html_page_in_place_of_a_ref_is_an_error() {
    let server = DavServer::start(DavOptions::default());
    let proxy = Proxy::start(&server.endpoint());
    let location = proxy.endpoint().replacen("http", "webdav", 1);
    let here = Place::new();
    let _entered = here.runtime.enter();
    let service = || service_at(&location);
    let commit = here.change("a", "first");
    here.push(&mut here.remote(service(), "remote"), commit).unwrap();
    proxy.add(Rule::new(Fault::Pretend).kind(Kind::Get).path("refs/heads/main").times(1));
    let remote = here.remote(service(), "remote");
    let read = || here.runtime.block_on(remote.place().read_ref(&branch("main")));
    let error = read().unwrap_err();
    assert!(error.to_string().contains("refs/heads/main"), "{error}");
    assert!(read().is_ok());
}

#[test]
fn a_share_keeps_to_the_contract() {
    let server = DavServer::start(DavOptions::default());
    let location = format!("{}/some/folder", server.endpoint().replacen("http", "webdav", 1));
    let service = service_at(&location);
    keeps_to_it(&service);
}
