//! Push and pull, with each kind of service.

use std::{path::Path, sync::Arc};

use opendal::{Operator, services};
use snap_core::{
    base::{id::CommitId, observe::Silent},
    disk::Disk,
    ops::commit::{self, CommitOptions as Commit, CommitSource},
    repo::{Config, RefLogMessage, RefName, Repo},
};
use snap_nettest::{DavOptions, DavServer, Kind, Proxy, S3Options, S3Server};
use snap_remote::{
    bucket::{
        Bucket,
        client::{Client, RequestPolicy},
        folder::FolderBucket,
        memory::MemoryBucket,
        opendal::OpendalBucket,
        traffic::Traffic,
        transport::Transport,
    },
    peer::{RemoteError, RemoteStore},
    transfer::{partial::PartialScope, pull, push},
};
use tokio::runtime::Runtime;

use crate::place::service_at;

pub(super) struct Place {
    pub(super) folder: tempfile::TempDir,
    pub(super) repo: Repo,
    pub(super) runtime: Runtime,
}

pub(super) fn main_branch() -> RefName {
    RefName::branch("main").unwrap()
}

impl Place {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        fs_err::create_dir(folder.path().join("files")).unwrap();
        Repo::init(&store, &Disk::default(), &Config::default()).unwrap();
        let repo = Repo::open(&store, Disk::default(), &Silent).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        Self { folder, repo, runtime }
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        let path = self.folder.path().join("files").join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    }

    pub(super) fn write_bytes(&self, name: &str, bytes: &[u8]) {
        let path = self.folder.path().join("files").join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, bytes).unwrap();
    }

    pub(super) fn commit(&self) -> CommitId {
        let source = CommitSource::Folder(self.folder.path().join("files"));
        let options = Commit { author: "ada".into(), host: "laptop".into(), ..Commit::default() };
        commit::run(&self.repo, source, &options, &Silent).unwrap().id.unwrap()
    }

    pub(super) fn remote(&self, service: Arc<dyn Bucket>, traffic: Arc<Traffic>) -> RemoteStore {
        let client = Client::new(service, RequestPolicy::default(), traffic);
        let cache = self.folder.path().join("store/cache/remote");
        RemoteStore::new(client, "test://place".to_owned(), &cache).unwrap()
    }

    pub(super) fn push(
        &self,
        remote: &mut RemoteStore,
        commit: CommitId,
    ) -> Result<push::PushOutcome, RemoteError> {
        let update =
            push::RefUpdate { name: main_branch(), commit, moves: push::AllowedMove::Forward };
        let options = push::PushOptions { refs: vec![update], scratch: self.folder.path() };
        push::run(&self.repo, remote, &options, self.runtime.handle(), &Silent)?.all_moved()
    }

    pub(super) fn pull(&self, remote: &mut RemoteStore) -> Result<pull::PullOutcome, RemoteError> {
        let level = self.repo.config().compression_level;
        let outcome = pull::run(
            self.repo.store(),
            remote,
            &pull::PullOptions { name: main_branch(), level, part: PartialScope::default() },
            self.runtime.handle(),
            &Silent,
        )?;
        let name = main_branch();
        let old = self.repo.refs().read(&name).unwrap();
        let now = snap_core::base::time::Time::now();
        let change = RefLogMessage { time: now, who: "ada", reason: "pull" };
        self.repo.refs().update(&name, old, Some(outcome.commit), &change).unwrap();
        Ok(outcome)
    }
}

/// Checks push and pull, for every service.
pub(crate) fn there_and_back(service: &dyn Fn(&Traffic) -> Arc<dyn Bucket>) {
    let traffic = Arc::new(Traffic::default());
    let here = Place::new();
    for number in 0..300 {
        here.write(&format!("{}/{number}", number % 7), &format!("content {number}"));
    }
    let first = here.commit();
    let mut remote = here.remote(service(&traffic), Arc::clone(&traffic));
    let sent = here.push(&mut remote, first).unwrap();
    assert_eq!((sent.refs[0].before, sent.packs), (None, 1));
    assert_eq!(here.push(&mut remote, first).unwrap().packs, 0);

    let there = Place::new();
    let mut other = there.remote(service(&traffic), Arc::clone(&traffic));
    let came = there.pull(&mut other).unwrap();
    assert_eq!((came.commit, came.added.objects), (first, sent.objects));

    here.write("3/new", "something new");
    let second = here.commit();
    let sent = here.push(&mut remote, second).unwrap();
    assert!(sent.objects < 10, "{sent:?}");
    assert_eq!(there.pull(&mut other).unwrap().added.objects, sent.objects);

    // Both stores add a commit: one push wins, the other gets an error.
    here.write("3/new", "one way");
    there.write("3/new", "another way");
    let (one, another) = (here.commit(), there.commit());
    here.push(&mut remote, one).unwrap();
    let error = there.push(&mut other, another).unwrap_err();
    assert!(matches!(error, RemoteError::Behind { theirs, .. } if theirs == one), "{error}");
    assert_eq!(there.pull(&mut other).unwrap().commit, one);
    let error = there.push(&mut other, another).unwrap_err();
    assert!(matches!(error, RemoteError::Diverged { theirs, .. } if theirs == one), "{error}");
}

/// Calls `contract` with each kind of service.
pub(super) fn with_each_service(name: &str, contract: &dyn Fn(&MakeService<'_>)) {
    contract(&|_| Arc::new(MemoryBucket::named(name)));
    let folder = tempfile::tempdir().unwrap();
    contract(&|_| Arc::new(FolderBucket::new(folder.path().join("x/y"))));
    let server = DavServer::start(DavOptions::default());
    let location = format!("{}/some/folder", server.endpoint().replacen("http", "webdav", 1));
    contract(&|_| service_at(&location));
    let server = S3Server::start(S3Options::default());
    contract(&|traffic| bucket(&server.endpoint(), &server, traffic));
}

/// A function that creates a service. The service counts its traffic, as far as it can.
pub(super) type MakeService<'a> = dyn Fn(&Arc<Traffic>) -> Arc<dyn Bucket> + 'a;

#[test]
fn memory_holds_a_store() {
    there_and_back(&|_| Arc::new(MemoryBucket::named("there_and_back")));
}

#[test]
fn a_folder_holds_a_store() {
    let folder = tempfile::tempdir().unwrap();
    there_and_back(&|_| Arc::new(FolderBucket::new(folder.path().join("x/y"))));
}

#[test]
fn a_share_holds_a_store() {
    let server = DavServer::start(DavOptions::default());
    let location = format!("{}/some/folder", server.endpoint().replacen("http", "webdav", 1));
    there_and_back(&|_| service_at(&location));
}

pub(super) fn bucket(endpoint: &str, server: &S3Server, traffic: &Arc<Traffic>) -> Arc<dyn Bucket> {
    let builder = services::S3::default()
        .bucket(server.bucket())
        .region(S3Server::REGION)
        .endpoint(endpoint)
        .access_key_id(server.access_key())
        .secret_access_key(server.secret_key())
        .checksum_algorithm("crc32c")
        .disable_config_load();
    let transport = Transport::new(Arc::clone(traffic)).unwrap();
    Arc::new(
        OpendalBucket::over_http(Operator::new(builder).unwrap(), transport, endpoint)
            .below("some/prefix"),
    )
}

#[test]
fn a_bucket_holds_a_store() {
    let server = S3Server::start(S3Options::default());
    there_and_back(&|_| bucket(&server.endpoint(), &server, &Arc::default()));
}

#[test]
fn a_push_and_a_small_change_take_few_requests() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let traffic = Arc::new(Traffic::default());
    let here = Place::new();
    for number in 0..2000 {
        here.write(&format!("{}/{number}", number % 50), &format!("content {number}"));
    }
    let first = here.commit();
    let mut remote =
        here.remote(bucket(&proxy.endpoint(), &server, &traffic), Arc::clone(&traffic));
    here.push(&mut remote, first).unwrap();
    let counts = proxy.take_counts();
    assert!(counts.total <= 11, "{counts:?}");
    assert_eq!(counts.total, traffic.counts().requests());
    for number in 0..100 {
        here.write(&format!("{}/{number}", number % 50), "changed");
    }
    let second = here.commit();
    here.push(&mut remote, second).unwrap();
    let counts = proxy.take_counts();
    assert!(counts.total <= 6, "{counts:?}");
    here.push(&mut remote, second).unwrap();
    let counts = proxy.take_counts();
    assert!(counts.total <= 2, "{counts:?}");
    assert_eq!(counts.of(Kind::Put), 0);
    let there = Place::new();
    let mut other = there.remote(bucket(&proxy.endpoint(), &server, &traffic), traffic);
    there.pull(&mut other).unwrap();
    let counts = proxy.take_counts();
    assert!(counts.total <= 10, "{counts:?}");
    assert!(Path::new(there.repo.dir()).exists());
}
