//! A remote store with a forged chunk list, which anyone who may write there can add: what clones
//! and pulls receive of it satisfies no commit. A server or a project does not take it.

use std::{io::Read as _, sync::Arc};

use snap_core::{
    base::{kind::ErrorKind, observe::Silent},
    disk::Disk,
    format::{chunk_list::ListBuilder, pack::ObjectKind},
    local::cut::identify_source,
    repo::{RefName, Repo},
    store::ObjectWriter,
};
use snap_remote::{
    bucket::traffic::Traffic,
    peer::{Mirror, RemoteError},
    remote_packs::{BlockingContext, RemotePacks},
    transfer::{clone, partial::PartialScope, pull, push},
};
use snap_testkit::{bytes::Corpus, trees};

use super::{
    clone::{clone_into, restore},
    transfer::{MakeService, Place, with_each_service},
};

const CHUNK: usize = 1 << 20;

fn evil() -> RefName {
    RefName::branch("evil").unwrap()
}

/// A file that the victim has and the attacker knows.
fn file() -> Vec<u8> {
    Corpus::Random.make_seeded(4 * CHUNK, 1)
}

/// Pushes a branch with the file to a remote. Under the id of the file's chunk list, the pack has the
/// list of another content. Returns false if the remote refuses the pack.
fn push_forged_list(service: &MakeService<'_>) -> bool {
    let traffic = Arc::new(Traffic::default());
    let attacker = Place::new();
    let other = Corpus::Random.make_seeded(4 * CHUNK, 2);
    let writer = ObjectWriter::new(attacker.repo.store(), 3, 1).unwrap();
    let mut list = ListBuilder::default();
    for chunk in writer.add_chunks(&other, &[CHUNK, 2 * CHUNK, 3 * CHUNK, 4 * CHUNK]).unwrap() {
        list.push(chunk).unwrap();
    }
    let (_, lists) = list.finish().unwrap();
    let (id, _) = identify_source(&mut (&file()[..]).take(u64::MAX), &|| false).unwrap();
    writer.add_metadata(ObjectKind::ChunkList, id.object(), &lists[0].bytes).unwrap();
    writer.finish().unwrap();
    attacker.write_bytes("iso", &file());
    let commit = attacker.commit();
    let update = push::RefUpdate { name: evil(), commit, moves: push::AllowedMove::Forward };
    let options = push::PushOptions { refs: vec![update], scratch: attacker.folder.path() };
    let mut remote = attacker.remote(service(&traffic), Arc::clone(&traffic));
    let runtime = attacker.runtime.handle();
    match push::run(&attacker.repo, &mut remote, &options, runtime, &Silent) {
        Ok(pushed) => drop(pushed.all_moved().unwrap()),
        Err(error) => {
            let why = format!("{error:?}");
            assert!(why.contains("Damaged") || why.contains("is damaged"), "{why}");
            return false;
        }
    }
    true
}

/// Commits the file, and restores the commit from this store alone.
#[track_caller]
fn assert_commit_stores_the_file(place: &Place) {
    place.write_bytes("mine", &file());
    let commit = place.commit();
    let alone = Repo::open(place.repo.dir(), Disk::default(), &Silent).unwrap();
    let target = place.folder.path().join("restored");
    restore(&alone, commit, &target).unwrap();
    assert!(fs_err::read(target.join("mine")).unwrap() == file());
}

fn contract(service: &MakeService<'_>) {
    let traffic = Arc::new(Traffic::default());
    let here = Place::new();
    here.write("honest", "content");
    let first = here.commit();
    let mut remote = here.remote(service(&traffic), Arc::clone(&traffic));
    here.push(&mut remote, first).unwrap();
    let puller = Place::new();
    let mut pulled = puller.remote(service(&traffic), Arc::clone(&traffic));
    puller.pull(&mut pulled).unwrap();
    let is_pushed = push_forged_list(service);

    // The branch of somebody else fails no clone and no pull.
    let there = Place::new();
    let mut remote = there.remote(service(&traffic), Arc::clone(&traffic));
    let (there, _) = clone_into(there, &mut remote, PartialScope::default()).unwrap();
    assert_eq!(there.repo.store().partial_packs(), []);
    assert_commit_stores_the_file(&there);
    let part = PartialScope { depth: Some(1), paths: vec![b"honest".to_vec()] };
    let there = Place::new();
    let mut remote = there.remote(service(&traffic), Arc::clone(&traffic));
    let (there, _) = clone_into(there, &mut remote, part).unwrap();
    assert_commit_stores_the_file(&there);
    here.write("more", "content");
    let second = here.commit();
    let mut remote = here.remote(service(&traffic), Arc::clone(&traffic));
    here.push(&mut remote, second).unwrap();
    assert_eq!(puller.pull(&mut pulled).unwrap().commit, second);
    assert_commit_stores_the_file(&puller);

    if !is_pushed {
        return;
    }
    // That branch itself is damaged.
    let there = Place::new();
    let mut remote = there.remote(service(&traffic), Arc::clone(&traffic));
    let options = pull::PullOptions { name: evil(), level: 3, part: PartialScope::default() };
    let runtime = there.runtime.handle();
    let error = pull::run(there.repo.store(), &mut remote, &options, runtime, &Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    let packs = RemotePacks::new(&remote, BlockingContext::without_stop(there.runtime.handle()));
    let Place { folder: _folder, repo, runtime } = there;
    let repo = repo.with_remote_frames(Arc::new(packs.clone()));
    let from = clone::CloneSource { remote: &mut remote, packs: &packs };
    let options = clone::CloneOptions { name: Some(evil()), part: PartialScope::default() };
    let handle = runtime.handle();
    let cloned =
        clone::run::<RemoteError>(repo.store(), from, &options, |_| Ok(()), handle, &Silent);
    assert_eq!(cloned.unwrap_err().kind(), ErrorKind::Damaged);
}

#[test]
fn a_forged_chunk_list_is_refused() {
    with_each_service("proof", &contract);
}

#[test]
fn a_push_does_not_trust_a_copied_mirror() {
    with_each_service("mirror", &|service| {
        let traffic = Arc::new(Traffic::default());
        let place = Place::new();
        place.write("file", "content");
        let commit = place.commit();
        let mut remote = place.remote(service(&traffic), Arc::clone(&traffic));
        place.push(&mut remote, commit).unwrap();
        let made = remote.mirror().store().dir().to_owned();
        assert!(Mirror::open(&made).unwrap().has(&commit.object()).unwrap());
        // An archive brings the same files in another folder.
        let unpacked = made.with_file_name("unpacked");
        trees::copy(&made, &unpacked).unwrap();
        for _ in 0..2 {
            let mirror = Mirror::open(&unpacked).unwrap();
            assert_eq!((mirror.outlines().len(), mirror.store().packs()), (0, Vec::new()));
        }
    });
}
