//! Clones and fetches from a store that collects its own garbage meanwhile, as behind a server.

use std::{collections::BTreeSet, ops::Range, path::PathBuf, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use snap_core::{
    base::{
        id::{CommitId, ObjectId},
        observe::Silent,
    },
    disk::Disk,
    ops::{forget, reach},
    repo::Repo,
    store::{Marks, ObjectLocation},
};
use snap_remote::{
    remote_packs::{BlockingContext, RemotePacks},
    service::{
        ConditionalWrites, ListedObject, ObjectVersion, Service, ServiceError, StoredObject,
        WriteCondition, local_store::LocalStore,
    },
    store::RemoteStore,
    transfer::{
        fetch::{self, FetchScope},
        partial::PartialScope,
    },
};

use crate::{
    gc::{check_local, clone_part, interleave, while_true},
    place::{Draw, Place, branch},
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

    fn service(&self) -> Arc<dyn Service> {
        Arc::new(Serving(self.place.folder.path().join("store")))
    }

    fn open(&self) -> Repo {
        let dir = self.place.folder.path().join("store");
        Repo::open(&dir, Disk::default(), &Silent).unwrap()
    }
}

/// A store that is opened anew for each request. So it pins no packs between two requests, as a
/// server does not, and a collection need not wait until a clone ends.
#[derive(Debug)]
struct Serving(PathBuf);

impl Serving {
    async fn open(&self) -> LocalStore {
        let opened = LocalStore::new(self.0.clone(), "ada", Arc::default());
        // It knows the index files of its last listing.
        opened.list("index/").await.unwrap();
        opened
    }
}

impl Service for Serving {
    fn read<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<StoredObject, ServiceError>> {
        Box::pin(async move { self.open().await.read(key, range).await })
    }

    fn read_whole<'a>(
        &'a self,
        key: &'a str,
        most: u64,
    ) -> BoxFuture<'a, Result<StoredObject, ServiceError>> {
        Box::pin(async move { self.open().await.read_whole(key, most).await })
    }

    fn write<'a>(
        &'a self,
        key: &'a str,
        bytes: Bytes,
        when: WriteCondition,
    ) -> BoxFuture<'a, Result<Option<ObjectVersion>, ServiceError>> {
        Box::pin(async move { self.open().await.write(key, bytes, when).await })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
    ) -> BoxFuture<'a, Result<Vec<ListedObject>, ServiceError>> {
        Box::pin(async move { self.open().await.list(prefix).await })
    }

    fn length<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>, ServiceError>> {
        Box::pin(async move { self.open().await.length(key).await })
    }

    fn remove<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ServiceError>> {
        Box::pin(async move { self.open().await.remove(key).await })
    }

    fn conditions(&self) -> ConditionalWrites {
        ConditionalWrites { absent: false, unchanged: false }
    }

    fn must_prove_conditions(&self) -> bool {
        false
    }

    fn maintains_index(&self) -> bool {
        true
    }

    fn was_collected(&self) -> bool {
        LocalStore::new(self.0.clone(), "ada", Arc::default()).was_collected()
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

fn fetch_all(place: &Place, repo: Repo, service: Arc<dyn Service>) -> Repo {
    let mut remote: RemoteStore = place.remote(service, "clone");
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
            let read = |wrapped: Arc<dyn Service>| {
                let cloned = clone_part(&place, wrapped, part()).unwrap();
                let cloned = match depth {
                    None => cloned,
                    Some(_) => fetch_all(&place, cloned, project.service()),
                };
                check_complete(&cloned, &project.commits[4..]);
                // A shallow clone keeps what it has of deleted packs.
                let is_whole = cloned.store().partial_packs().is_empty();
                assert!(is_whole || depth.is_some(), "{at}");
                for commit in &project.commits {
                    assert!(cloned.store().knows(commit).unwrap(), "{depth:?} {at}");
                }
            };
            interleave(project.service(), at, read, move || forget(&repo, &commits[..4]))
        });
        assert!(calls > 5, "{calls}");
    }
}

#[test]
fn a_branch_that_is_deleted_at_each_request_of_a_clone_hinders_no_other() {
    let calls = while_true(|at| {
        let (project, place) = (Project::new(), Place::new());
        let (repo, side) = (project.open(), project.side);
        let read = |wrapped: Arc<dyn Service>| {
            let cloned = clone_part(&place, wrapped, PartialScope::default()).unwrap();
            check_complete(&cloned, &project.commits[4..]);
            assert_eq!(cloned.store().partial_packs(), [], "{at}");
        };
        interleave(project.service(), at, read, move || {
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
    let cloned = clone_part(&place, project.service(), part).unwrap();
    forget(&project.open(), &project.commits[..4]);
    let fetched = fetch_all(&place, cloned, project.service());
    check_complete(&fetched, &project.commits[4..]);
    for commit in &project.commits[..3] {
        assert!(fetched.store().is_forgotten(commit).unwrap());
    }
}
