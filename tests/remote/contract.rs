//! What every service keeps to, whatever is behind it.

use std::{collections::BTreeMap, io::Write as _, sync::Arc};

use bytes::Bytes;
use snap_nettest::{
    DavOptions, DavServer, Fault, Kind, Proxy, Rule, S3Options, S3Server, SshServer,
};
use snap_remote::service::{
    Progress, Service, Version, What, When,
    client::{Client, PART_BYTES, WHOLE_BYTES},
    folder::Folder,
    memory::Memory,
    open::{Secrets, open},
};

use crate::place::{Draw, bucket, hasty};

/// Keys such as refs may have.
const ODD: [&str; 6] = [
    "refs/heads/with space",
    "refs/heads/ümläut-日本",
    "refs/heads/a+b&c=d",
    "refs/heads/100%25",
    "refs/heads/deep/er/still",
    "refs/tags/v1.0~x'(y)",
];

async fn keys(service: &Arc<dyn Service>, prefix: &str) -> Vec<String> {
    let listed = service.list(prefix).await.unwrap();
    let mut keys: Vec<String> = listed.into_iter().map(|object| object.key).collect();
    keys.sort();
    keys
}

async fn reads_and_writes(service: &Arc<dyn Service>) {
    assert_eq!(service.read_whole("nothing", 9).await.unwrap_err().what, What::NotFound);
    assert_eq!(service.read("no/thing", 0..4).await.unwrap_err().what, What::NotFound);
    assert_eq!(service.length("nothing").await.unwrap(), None);
    assert_eq!(keys(service, "objects/").await, Vec::<String>::new());
    assert_eq!(service.peek("", 8).await.unwrap(), Vec::<String>::new());
    service.remove("nothing").await.unwrap();
    let bytes = Bytes::from_static(b"0123456789");
    service.write("objects/one", bytes.clone(), When::Always).await.unwrap();
    assert_eq!(service.read_whole("objects/one", 99).await.unwrap().bytes, bytes);
    assert_eq!(service.read_whole("objects/one", 10).await.unwrap().bytes, bytes);
    assert_eq!(service.read_whole("objects/one", 9).await.unwrap_err().what, What::TooLong);
    assert_eq!(service.read("objects/one", 3..7).await.unwrap().bytes, "3456");
    assert_eq!(service.read("objects/one", 0..1).await.unwrap().bytes, "0");
    assert_eq!(service.read("objects/one", 8..12).await.unwrap_err().what, What::Short);
    assert_eq!(service.length("objects/one").await.unwrap(), Some(10));
    service.write("objects/one", "other".into(), When::Always).await.unwrap();
    assert_eq!(service.read_whole("objects/one", 99).await.unwrap().bytes, "other");
    service.write("objects/two", "2".into(), When::Always).await.unwrap();
    service.write("config.toml", "3".into(), When::Always).await.unwrap();
    assert_eq!(keys(service, "objects/").await, ["objects/one", "objects/two"]);
    let listed = service.list("objects/").await.unwrap();
    assert_eq!(listed.iter().map(|object| object.bytes).sum::<u64>(), 6);
    let some = service.peek("", 8).await.unwrap();
    assert!(some.iter().any(|key| key.starts_with("objects/")), "{some:?}");
    let many = ["objects/one", "objects/two", "objects/three"].map(str::to_owned);
    service.remove_many(&many).await.unwrap();
    assert_eq!(keys(service, "objects/").await, Vec::<String>::new());
    assert_eq!(service.length("config.toml").await.unwrap(), Some(1));
}

async fn odd_keys(service: &Arc<dyn Service>) {
    for (number, key) in ODD.iter().enumerate() {
        service.write(key, number.to_string().into(), When::Always).await.unwrap();
    }
    let mut odd: Vec<String> = ODD.map(str::to_owned).into();
    odd.sort();
    assert_eq!(keys(service, "refs/").await, odd);
    for (number, key) in ODD.iter().enumerate() {
        assert_eq!(service.read_whole(key, 99).await.unwrap().bytes, number.to_string(), "{key}");
    }
    service.remove_many(&odd).await.unwrap();
    assert_eq!(keys(service, "refs/").await, Vec::<String>::new());
}

async fn keeps_conditions(service: &Arc<dyn Service>) {
    let can = service.conditions();
    if !can.absent || !can.unchanged {
        return;
    }
    let write = |text: &'static str, when| service.write("refs/x", text.into(), when);
    let version = || async { service.read_whole("refs/x", 99).await.unwrap().version.unwrap() };
    write("1", When::Absent).await.unwrap();
    assert_eq!(write("2", When::Absent).await.unwrap_err().what, What::Conflict);
    let first: Version = version().await;
    write("2", When::Unchanged(first.clone())).await.unwrap();
    assert_eq!(write("3", When::Unchanged(first)).await.unwrap_err().what, What::Conflict);
    assert_eq!(service.read_whole("refs/x", 99).await.unwrap().bytes, "2");
    let second = version().await;
    service.remove("refs/x").await.unwrap();
    assert_eq!(write("3", When::Unchanged(second)).await.unwrap_err().what, What::Conflict);
    // Of many, one wins.
    let writes = (0..16).map(|number: u32| {
        let service = Arc::clone(service);
        tokio::spawn(async move {
            let write = service.write("refs/y", number.to_string().into(), When::Absent);
            write.await.is_ok()
        })
    });
    let won = futures::future::join_all(writes).await;
    assert_eq!(won.into_iter().filter(|won| *won.as_ref().unwrap()).count(), 1);
}

async fn large_files(service: &Arc<dyn Service>, length: u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large");
    fs_err::write(&path, Draw(7).bytes(length as usize)).unwrap();
    let client = Client::new(Arc::clone(service), hasty(), Arc::default());
    let progress = Progress::default();
    client.write_file("objects/large", (&path, length), &progress).await.unwrap();
    assert_eq!(progress.bytes(), length);
    assert_eq!(service.length("objects/large").await.unwrap(), Some(length));
    let hash = |bytes: &[u8]| blake3::hash(bytes);
    let found = service.read_whole("objects/large", u64::MAX).await.unwrap().bytes;
    assert_eq!(hash(&found), hash(&fs_err::read(&path).unwrap()));
    progress.stop();
    let error = client.write_file("objects/other", (&path, length), &progress).await.unwrap_err();
    assert_eq!(error.what, What::Stopped);
    assert_eq!(service.length("objects/other").await.unwrap(), None);
}

/// A pack of which the bytes are not those that its name says, as when it is damaged
/// while it is sent, never lies under its name.
async fn packs_are_hashed_as_they_go(service: &Arc<dyn Service>, lengths: [u64; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pack");
    let client = Client::new(Arc::clone(service), hasty(), Arc::default());
    for length in lengths {
        let mut bytes = Draw(length).bytes(length as usize);
        let key = format!("objects/{}", blake3::hash(&bytes).to_hex());
        // Behind the first part.
        *bytes.last_mut().unwrap() ^= 1;
        fs_err::write(&path, &bytes).unwrap();
        let write = async || client.write_file(&key, (&path, length), &Progress::default()).await;
        assert_eq!(write().await.unwrap_err().what, What::Damaged, "{length}");
        assert_eq!(service.length(&key).await.unwrap(), None, "{length}");
        *bytes.last_mut().unwrap() ^= 1;
        fs_err::write(&path, &bytes).unwrap();
        write().await.unwrap();
        assert_eq!(service.length(&key).await.unwrap(), Some(length));
    }
}

fn keeps_to_it(service: &Arc<dyn Service>) {
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
    let service: Arc<dyn Service> = Arc::new(Memory::named("contract", Arc::default()));
    keeps_to_it(&service);
}

#[test]
fn a_folder_keeps_to_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let service: Arc<dyn Service> =
        Arc::new(Folder::new(folder.path().join("store"), Arc::default()));
    keeps_to_it(&service);
}

#[test]
fn a_bucket_keeps_to_the_contract() {
    let server = S3Server::start(S3Options::default());
    keeps_to_it(&bucket(&server.endpoint(), &server, &Arc::default()));
    assert_eq!(server.unfinished_uploads(), Vec::<String>::new());
}

/// The variable that says where, in the process that has an `ssh` of its own.
const SFTP: &str = "SNAP_TEST_SFTP";

/// `ssh` is found by the `PATH`, which a test cannot change for itself: so it
/// runs once more, as another process.
#[test]
fn a_host_keeps_to_the_contract() {
    if let Ok(location) = std::env::var(SFTP) {
        let options = std::env::var("SNAP_TEST_SFTP_KEY").unwrap();
        let options = BTreeMap::from([("key".to_owned(), options)]);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _entered = runtime.enter();
        let service =
            open(&location.parse().unwrap(), &options, &Secrets::default(), &Arc::default());
        return keeps_to_it(&service.unwrap());
    }
    let Some(server) = SshServer::start() else {
        assert!(std::env::var_os("CI").is_none(), "sshd is missing; .ci/run installs it");
        // Past the harness, which would keep it to itself.
        std::io::stderr().write_all(b"skipped: OpenSSH is not here\n").unwrap();
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
    assert_eq!(left, 0, "what was written aside has its name, or is cleared away");
}

/// A server of files empties a file before the first byte comes. A ref that was
/// cut would never move again, and a pack that was cut counts for its readers.
#[test]
fn of_a_write_that_is_cut_nothing_is_seen() {
    let server = DavServer::start(DavOptions::default());
    let proxy = Proxy::start(&server.endpoint());
    let location = proxy.endpoint().replacen("http", "webdav", 1).parse().unwrap();
    let open = || open(&location, &BTreeMap::new(), &Secrets::default(), &Arc::default());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let service = open().unwrap();
        let write =
            |text: &'static str| service.write("refs/heads/main", text.into(), When::Always);
        write("0123456789").await.unwrap();
        let kind = Kind::Put;
        proxy.add(Rule::new(Fault::CutRequest).kind(kind).times(1));
        write("abcdefghij").await.unwrap_err();
        let found = service.read_whole("refs/heads/main", 1024).await.unwrap();
        assert_eq!(found.bytes, "0123456789");
        let file = server.folder().join("large");
        fs_err::write(&file, [7; 100_000]).unwrap();
        proxy.add(Rule::new(Fault::CutRequest).kind(kind).times(1));
        service.write_file("objects/pack", &file, 100_000).await.unwrap_err();
        assert_eq!(keys(&service, "objects/").await, Vec::<String>::new());
        service.write_file("objects/pack", &file, 100_000).await.unwrap();
        assert_eq!(service.length("objects/pack").await.unwrap(), Some(100_000));
        assert_eq!(keys(&service, "tmp/").await, Vec::<String>::new());
    });
}

#[test]
fn a_share_keeps_to_the_contract() {
    let server = DavServer::start(DavOptions::default());
    let location = format!("{}/some/folder", server.endpoint().replacen("http", "webdav", 1));
    let location = location.parse().unwrap();
    let service = open(&location, &BTreeMap::new(), &Secrets::default(), &Arc::default());
    keeps_to_it(&service.unwrap());
}
