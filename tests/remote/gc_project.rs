//! Clones and fetches from a store that collects its own garbage meanwhile, as behind a server.

use std::{
    collections::BTreeSet,
    fmt,
    ops::Range,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use snap_core::{
    base::{
        id::{CommitId, ObjectId, PackId},
        observe::{Observer, Silent},
    },
    disk::Disk,
    ops::{forget, reach},
    repo::{RefName, Repo},
    store::{Marks, ObjectLocation},
};
use snap_remote::{
    bucket::{PartialClone, ServiceError, UploadProgress, traffic::Traffic},
    peer::{
        IndexContent, IndexListing, ListedPacks, Mend, NewStore, PackIn, PackToSend, Peer, RefMove,
        RemoteError, Reply, SentPack, bucket::BucketStore, known::Known, open::RemoteCredentials,
        slot::RefSlot,
    },
    remote_packs::{BlockingContext, RemotePacks},
    transfer::{
        fetch::{self, FetchScope},
        partial::PartialScope,
    },
};

use crate::{
    gc::{check_local, clone_from, while_true},
    place::{Draw, Place, branch, opening},
    pull_after_gc::{MESSAGE, collect},
};

/// A project with five commits on `main`, in a pack each, and one on `side`.
///
/// Each commit has a file that only it has, and one that later commits have, too. The third commit is in the
/// pack of a large file that stays, so its pack is not written again.
struct Project {
    place: Place,
    commits: Vec<CommitId>,
    side: CommitId,
}

impl Project {
    fn new() -> Self {
        let (place, mut draw) = (Place::new(), Draw(11));
        let mut commits = Vec::new();
        for number in 0..5 {
            place.write("own", draw.bytes(400));
            place.write(&format!("kept/{number}"), draw.bytes(300));
            if number == 2 {
                place.write("kept/large", draw.bytes(20_000));
            }
            if number == 4 {
                fs_err::remove_file(place.folder.path().join("files/kept/0")).unwrap();
            }
            commits.push(place.commit());
        }
        let side = place.change("own", draw.bytes(400));
        let refs = place.repo.refs();
        refs.update(&branch("side"), None, Some(side), &MESSAGE).unwrap();
        refs.update(&branch("main"), Some(side), Some(commits[4]), &MESSAGE).unwrap();
        Self { place, commits, side }
    }

    fn served(&self) -> Served {
        Served::new(self.place.folder.path().join("store"), u64::MAX, || {})
    }

    /// Runs `second` before the verb `at` of `first`. Returns true if `first` has so many.
    fn interleave(
        &self,
        at: u64,
        first: impl FnOnce(Arc<Served>),
        second: impl FnOnce() + Send + 'static,
    ) -> bool {
        let served = Arc::new(Served::new(self.place.folder.path().join("store"), at, second));
        first(Arc::clone(&served));
        served.meanwhile.lock().is_none()
    }

    fn open(&self) -> Repo {
        let dir = self.place.folder.path().join("store");
        Repo::open(&dir, Disk::default(), &Silent).unwrap()
    }
}

/// A store that is opened anew for each verb. So it pins no packs between two requests, as a server
/// does not, and a collection need not wait until a clone ends.
struct Served {
    dir: PathBuf,
    traffic: Arc<Traffic>,
    calls: AtomicU64,
    /// The number of the verb before which `meanwhile` runs.
    at: u64,
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl fmt::Debug for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Served").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Served {
    fn new(dir: PathBuf, at: u64, meanwhile: impl FnOnce() + Send + 'static) -> Self {
        let meanwhile: Box<dyn FnOnce() + Send> = Box::new(meanwhile);
        let (traffic, calls) = (Arc::default(), AtomicU64::new(0));
        Self { dir, traffic, calls, at, meanwhile: Mutex::new(Some(meanwhile)) }
    }

    /// Runs `meanwhile` if it is its turn, and opens the store.
    async fn next(&self) -> Arc<dyn Peer> {
        if self.calls.fetch_add(1, SeqCst) == self.at {
            let meanwhile = self.meanwhile.lock().take();
            if let Some(meanwhile) = meanwhile {
                tokio::task::spawn_blocking(meanwhile).await.unwrap();
            }
        }
        let location = format!("file://{}", self.dir.display());
        let secrets = RemoteCredentials::default();
        let place = opening(&location, &[], &secrets, |opening| opening.place().unwrap());
        Arc::clone(place.peer())
    }
}

impl Peer for Served {
    fn config(&self) -> Reply<'_, Option<Bytes>> {
        Box::pin(async { self.next().await.config().await })
    }

    fn inspect(&self) -> Reply<'_, Option<Bytes>> {
        Box::pin(async { self.next().await.inspect().await })
    }

    fn partial_clone(&self) -> Reply<'_, Option<PartialClone>> {
        Box::pin(async { self.next().await.partial_clone().await })
    }

    fn head(&self) -> Reply<'_, Option<RefName>> {
        Box::pin(async { self.next().await.head().await })
    }

    fn refs(&self) -> Reply<'_, Vec<(RefName, RefSlot)>> {
        Box::pin(async { self.next().await.refs().await })
    }

    fn list_index(&self) -> Reply<'_, IndexListing> {
        Box::pin(async { self.next().await.list_index().await })
    }

    fn packs(&self) -> Reply<'_, ListedPacks> {
        Box::pin(async { self.next().await.packs().await })
    }

    fn pack_bytes(&self, pack: PackId) -> Reply<'_, Option<u64>> {
        Box::pin(async move { self.next().await.pack_bytes(pack).await })
    }

    fn read(&self, pack: PackId, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ServiceError>> {
        Box::pin(async move { self.next().await.read(pack, range).await })
    }

    fn stores(&self, levels: usize) -> Reply<'_, Vec<String>> {
        Box::pin(async move { self.next().await.stores(levels).await })
    }

    fn slots<'a>(&'a self, names: &'a [&'a RefName]) -> Reply<'a, Vec<RefSlot>> {
        Box::pin(async move { self.next().await.slots(names).await })
    }

    fn swap<'a>(
        &'a self,
        known: &'a Known,
        one: RefMove<'a>,
        observer: &'a dyn Observer,
    ) -> Reply<'a, ()> {
        Box::pin(async move { self.next().await.swap(known, one, observer).await })
    }

    fn read_index<'a>(
        &'a self,
        name: &'a str,
        most: u64,
    ) -> BoxFuture<'a, Result<IndexContent, ServiceError>> {
        Box::pin(async move { self.next().await.read_index(name, most).await })
    }

    fn index_file_bytes<'a>(&'a self, name: &'a str) -> Reply<'a, Option<u64>> {
        Box::pin(async move { self.next().await.index_file_bytes(name).await })
    }

    fn send<'a>(
        &'a self,
        pack: PackToSend<'a>,
        progress: &'a UploadProgress,
    ) -> BoxFuture<'a, Result<SentPack, ServiceError>> {
        Box::pin(async move { self.next().await.send(pack, progress).await })
    }

    fn publish<'a>(
        &'a self,
        known: &'a Known,
        packs: Vec<PackIn<'a>>,
    ) -> Reply<'a, Option<String>> {
        Box::pin(async move { self.next().await.publish(known, packs).await })
    }

    fn mend<'a>(&'a self, known: &'a Known, what: Mend<'a>) -> Reply<'a, Vec<String>> {
        Box::pin(async move { self.next().await.mend(known, what).await })
    }

    fn is_overtaken<'a>(&'a self, known: &'a Known) -> Reply<'a, bool> {
        Box::pin(async move { self.next().await.is_overtaken(known).await })
    }

    fn create<'a>(&'a self, new: &'a NewStore, send: Reply<'a, ()>) -> Reply<'a, Option<Bytes>> {
        Box::pin(async move { self.next().await.create(new, send).await })
    }

    fn collectable(self: Arc<Self>) -> Result<Arc<BucketStore>, RemoteError> {
        Err(RemoteError::CollectThere { location: "test://project".to_owned() })
    }

    fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }
}

/// Forgets commits, and deletes them.
fn forget(repo: &Repo, commits: &[CommitId]) {
    let commits: BTreeSet<CommitId> = commits.iter().copied().collect();
    forget::run(repo, &commits, &MESSAGE, &Silent).unwrap();
    collect(repo);
}

/// Checks that everything that commits reach is here, and that all other objects rely only on what is.
#[track_caller]
fn check_complete(repo: &Repo, commits: &[CommitId]) {
    let store = repo.store();
    let marks = Marks::new(store);
    let mut enter = |id: &ObjectId, place: &ObjectLocation| {
        assert!(store.is_here(place)?, "{id:?} is not here");
        marks.mark(id)
    };
    reach::visit(store, commits, &mut enter, &Silent).unwrap();
    check_local(store);
}

fn fetch_all(place: &Place, repo: Repo, served: Served) -> Repo {
    let mut remote = place.remote_of(Arc::new(served), "clone");
    let waiting = BlockingContext::without_stop(place.runtime.handle());
    let dir = repo.dir().to_owned();
    let repo = repo.with_remote_frames(Arc::new(RemotePacks::new(&remote, waiting)));
    let handle = place.runtime.handle();
    fetch::run(repo.store(), &mut remote, &FetchScope::Everything, handle, &Silent).unwrap();
    Repo::open(&dir, Disk::default(), &Silent).unwrap()
}

#[test]
fn a_store_that_is_collected_at_each_request_of_a_clone_gives_a_complete_one() {
    for depth in [None, Some(1)] {
        let part = || PartialScope { depth, ..PartialScope::default() };
        let calls = while_true(|at| {
            let (project, place) = (Project::new(), Place::new());
            let (repo, commits) = (project.open(), project.commits.clone());
            let read = |served: Arc<Served>| {
                let cloned = clone_from(&place, served, part()).unwrap();
                let cloned = match depth {
                    None => cloned,
                    Some(_) => fetch_all(&place, cloned, project.served()),
                };
                check_complete(&cloned, &project.commits[4..]);
                // A shallow clone keeps what it has of deleted packs.
                let is_whole = cloned.store().partial_packs().is_empty();
                assert!(is_whole || depth.is_some(), "{at}");
                for commit in &project.commits {
                    assert!(cloned.store().knows(commit).unwrap(), "{depth:?} {at}");
                }
            };
            project.interleave(at, read, move || forget(&repo, &commits[..4]))
        });
        assert!(calls > 5, "{calls}");
    }
}

#[test]
fn a_branch_that_is_deleted_at_each_request_of_a_clone_hinders_no_other() {
    let calls = while_true(|at| {
        let (project, place) = (Project::new(), Place::new());
        let (repo, side) = (project.open(), project.side);
        let read = |served: Arc<Served>| {
            let cloned = clone_from(&place, served, PartialScope::default()).unwrap();
            check_complete(&cloned, &project.commits[4..]);
            assert_eq!(cloned.store().partial_packs(), [], "{at}");
        };
        project.interleave(at, read, move || {
            repo.refs().update(&branch("side"), Some(side), None, &MESSAGE).unwrap();
            collect(&repo);
        })
    });
    assert!(calls > 5, "{calls}");
}

#[test]
fn a_fetch_after_a_collection_takes_the_links() {
    let (project, place) = (Project::new(), Place::new());
    let part = PartialScope { depth: Some(2), ..PartialScope::default() };
    let cloned = clone_from(&place, Arc::new(project.served()), part).unwrap();
    forget(&project.open(), &project.commits[..4]);
    let fetched = fetch_all(&place, cloned, project.served());
    check_complete(&fetched, &project.commits[4..]);
    for commit in &project.commits[..3] {
        assert!(fetched.store().is_forgotten(commit).unwrap());
    }
}
