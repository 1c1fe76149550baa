//! Clone, partial clone and fetch, with each kind of service.

use std::{path::Path, sync::Arc};

use snap_core::{
    base::{id::CommitId, observe::Silent},
    disk::Disk,
    ops::{
        missing_objects::{FetchRequest, HistoryDepth},
        restore::{self, RestoreError, RestoreOptions, RestoreSource as Restored},
    },
    repo::Repo,
    store::StoreError,
};
use snap_nettest::{Proxy, S3Options, S3Server};
use snap_remote::{
    bucket::traffic::Traffic,
    peer::{RemoteError, RemoteStore},
    remote_packs::{BlockingContext, LazyRemotePacks, RemotePacks},
    transfer::{clone, fetch, partial::PartialScope},
};
use snap_testkit::{
    bytes::Corpus,
    compare::{self, compare},
};

use super::transfer::{MakeService, Place, bucket, main_branch, with_each_service};

/// Restores a commit into `folder`, and panics if that fails.
pub(super) fn restore(repo: &Repo, commit: CommitId, folder: &Path) -> Result<(), RemoteError> {
    let restored = try_restore(repo, commit, folder);
    restored.map_err(|error| panic!("{error}: {:?}", std::error::Error::source(&error)))
}

/// Restores a commit into `folder`.
pub(super) fn try_restore(
    repo: &Repo,
    commit: CommitId,
    folder: &Path,
) -> Result<(), RestoreError> {
    let tree = repo.store().commit(&commit)?.tree;
    let what = Restored::Folder { tree, root: None };
    restore::run(repo.store(), &what, folder, &RestoreOptions::default(), &Silent).map(drop)
}

/// Clones into `place`, which then fetches from `remote`.
pub(super) fn clone_into(
    place: Place,
    remote: &mut RemoteStore,
    part: PartialScope,
) -> Result<(Place, clone::CloneOutcome), RemoteError> {
    let Place { folder, repo, runtime } = place;
    let packs = RemotePacks::new(remote, BlockingContext::without_stop(runtime.handle()));
    let repo = repo.with_remote_frames(Arc::new(packs.clone()));
    let options = clone::CloneOptions { name: None, part: part.clone() };
    let from = clone::CloneSource { remote, packs: &packs };
    let files = folder.path().join("files");
    let outcome = clone::run(
        repo.store(),
        from,
        &options,
        |outcome| match part.paths.is_empty() {
            true => restore(&repo, outcome.commit, &files),
            false => Ok(()),
        },
        runtime.handle(),
        &Silent,
    )?;
    Ok((Place { folder, repo, runtime }, outcome))
}

fn pushed(service: &MakeService<'_>) -> (Place, Vec<CommitId>) {
    let traffic = Arc::new(Traffic::default());
    let here = Place::new();
    let mut commits = Vec::new();
    for round in 0..3_u64 {
        for number in 0..100 {
            here.write(&format!("{}/{number}", number % 7), &format!("content {number} {round}"));
        }
        here.write_bytes("large", &Corpus::Random.make_seeded(5 << 20, round));
        here.write_bytes("only/this", &Corpus::Random.make_seeded(50_000, 10 + round));
        commits.push(here.commit());
        let mut remote = here.remote(service(&traffic), Arc::clone(&traffic));
        here.push(&mut remote, commits[round as usize]).unwrap();
    }
    (here, commits)
}

fn same_files(a: &Place, b: &Place) {
    let (a, b) = (a.folder.path().join("files"), b.folder.path().join("files"));
    assert_eq!(compare(&a, &b, &compare::Options::content_only()), Vec::<String>::new());
}

fn contract(service: &MakeService<'_>) {
    let (here, commits) = pushed(service);
    let traffic = Arc::new(Traffic::default());
    let there = Place::new();
    let mut remote = there.remote(service(&traffic), Arc::clone(&traffic));
    let (there, outcome) = clone_into(there, &mut remote, PartialScope::default()).unwrap();
    assert_eq!((outcome.commit, &outcome.default_branch), (commits[2], &main_branch()));
    assert_eq!(outcome.refs, [(main_branch(), commits[2])]);
    same_files(&here, &there);
    assert_eq!(there.repo.store().partial_packs(), []);
    // The clone is complete: it needs no remote store.
    let repo = Repo::open(there.repo.dir(), Disk::default(), &Silent).unwrap();
    for commit in &commits {
        restore(&repo, *commit, &there.folder.path().join(commit.to_string())).unwrap();
    }

    // Clones only the last commit, and only some of its paths.
    let there = Place::new();
    let mut remote = there.remote(service(&traffic), Arc::clone(&traffic));
    let part = PartialScope { depth: Some(1), paths: vec![b"only".to_vec()] };
    let (there, _) = clone_into(there, &mut remote, part).unwrap();
    let alone = Repo::open(there.repo.dir(), Disk::default(), &Silent).unwrap();
    let wanted = |paths: &[&[u8]], commit: CommitId| FetchRequest {
        commit,
        paths: paths.iter().map(|path| path.to_vec()).collect(),
    };
    let find = |repo: &Repo, wanted| {
        snap_core::ops::missing_objects::find(
            repo.store(),
            &[wanted],
            HistoryDepth::Commits(1),
            &Silent,
        )
    };
    assert_eq!(find(&alone, wanted(&[b"only"], commits[2])).unwrap(), []);
    assert_ne!(find(&alone, wanted(&[b"large"], commits[2])).unwrap(), []);
    let error = alone.store().fetch_pack(&alone.store().partial_packs()[0]).unwrap_err();
    assert!(matches!(error, StoreError::Absent { .. }), "{error}");

    // A restore fetches on demand, a fetch gets one more commit, and then everything.
    restore(&there.repo, commits[2], &there.folder.path().join("needed")).unwrap();
    let of = fetch::FetchScope::Commits(wanted(&[], commits[1]), HistoryDepth::Commits(1));
    let mut run = |what: &fetch::FetchScope| {
        fetch::run(there.repo.store(), &mut remote, what, there.runtime.handle(), &Silent).unwrap()
    };
    assert!(run(&of).received_bytes > 5 << 20);
    assert_eq!(find(&there.repo, wanted(&[], commits[1])).unwrap(), []);
    let all = run(&fetch::FetchScope::Everything);
    assert_eq!(all.partial, 0, "{all:?}");
    assert_eq!(run(&fetch::FetchScope::Everything), fetch::FetchOutcome::default());
    let repo = Repo::open(there.repo.dir(), Disk::default(), &Silent).unwrap();
    for commit in &commits {
        restore(&repo, *commit, &there.folder.path().join(commit.to_string())).unwrap();
    }
}

#[test]
fn full_and_partial_clones_have_the_requested_objects() {
    with_each_service("clone", &contract);
}

#[test]
fn absent_objects_are_fetched_on_demand_only() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let endpoint = proxy.endpoint();
    let (_, commits) = pushed(&|traffic| bucket(&endpoint, &server, traffic));
    let traffic = Arc::new(Traffic::default());
    let there = Place::new();
    let mut remote = there.remote(bucket(&endpoint, &server, &traffic), Arc::clone(&traffic));
    let part = PartialScope { depth: Some(1), paths: vec![b"only".to_vec()] };
    let (there, _) = clone_into(there, &mut remote, part).unwrap();
    let cache = there.folder.path().join("store/cache/remote");
    let location = format!("test://{}", proxy.endpoint());
    let waiting = BlockingContext::without_stop(there.runtime.handle());
    let service = bucket(&endpoint, &server, &traffic);
    let connect = move || {
        let (policy, traffic) =
            (snap_remote::bucket::client::RequestPolicy::default(), Arc::clone(&traffic));
        let client =
            snap_remote::bucket::client::Client::new(Arc::clone(&service), policy, traffic);
        RemoteStore::new(client, location.clone(), &cache)
    };
    let repo = Repo::open(there.repo.dir(), Disk::default(), &Silent).unwrap();
    let repo = repo.with_remote_frames(Arc::new(LazyRemotePacks::new(connect, waiting)));
    proxy.take_counts();
    let tree = repo.store().commit(&commits[2]).unwrap().tree;
    repo.store().tree(&tree).unwrap();
    assert_eq!(proxy.take_counts().total, 0);
    restore(&repo, commits[2], &there.folder.path().join("again")).unwrap();
    assert!((1..8).contains(&proxy.take_counts().total));
}

#[test]
fn a_pull_into_a_partial_clone_fetches_no_excluded_packs() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let endpoint = proxy.endpoint();
    let service = |traffic: &Arc<Traffic>| bucket(&endpoint, &server, traffic);
    let (here, _) = pushed(&service);
    let traffic = Arc::new(Traffic::default());
    let there = Place::new();
    let mut remote = there.remote(service(&traffic), Arc::clone(&traffic));
    let part = PartialScope { depth: Some(1), paths: vec![b"only".to_vec()] };
    let (there, _) = clone_into(there, &mut remote, part).unwrap();
    let left_out = there.repo.store().partial_packs();
    assert!(left_out.len() > 2, "{left_out:?}");

    here.write("3/new", "something new");
    let newest = here.commit();
    here.push(&mut here.remote(service(&traffic), Arc::clone(&traffic)), newest).unwrap();
    proxy.take_counts();
    assert_eq!(there.pull(&mut remote).unwrap().commit, newest);
    let paths: Vec<String> = proxy.requests().into_iter().map(|seen| seen.path).collect();
    // The ref, the listing of the index, the new index file, the new pack.
    assert_eq!(paths.len(), 4, "{paths:?}");
    assert_eq!(paths.iter().filter(|path| path.contains("/objects/")).count(), 1, "{paths:?}");
    assert_eq!(there.repo.store().partial_packs(), left_out);
    restore(&there.repo, newest, &there.folder.path().join("newest")).unwrap();
}

#[test]
fn a_clone_of_ten_thousand_files_takes_ten_requests() {
    let server = S3Server::start(S3Options::default());
    let proxy = Proxy::start(&server.endpoint());
    let traffic = Arc::new(Traffic::default());
    let here = Place::new();
    let text = Corpus::Source.make(10_000 * 4096);
    for (number, bytes) in text.chunks(4096).enumerate() {
        here.write_bytes(&format!("{}/{number}", number % 100), bytes);
    }
    let first = here.commit();
    let service = || bucket(&proxy.endpoint(), &server, &traffic);
    here.push(&mut here.remote(service(), Arc::clone(&traffic)), first).unwrap();
    proxy.take_counts();
    let there = Place::new();
    let mut remote = there.remote(service(), Arc::clone(&traffic));
    let (there, _) = clone_into(there, &mut remote, PartialScope::default()).unwrap();
    let counts = proxy.take_counts();
    assert!(counts.total <= 10, "{counts:?}");
    same_files(&here, &there);
}
