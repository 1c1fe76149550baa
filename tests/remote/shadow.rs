//! Packs that were merged in the remote store, and damaged local packs.

use std::sync::Arc;

use snap_core::{
    base::{id::CommitId, kind::ErrorKind, observe::Silent},
    disk::Disk,
    ops::tidy,
    repo::Repo,
};
use snap_remote::{
    bucket::{Bucket, folder::FolderBucket, traffic::Traffic},
    transfer::{fetch, partial::PartialScope},
};

use super::{
    clone::{clone_into, restore},
    transfer::Place,
};

fn folder(place: &Place) -> (Arc<dyn Bucket>, Arc<Traffic>) {
    let path = place.folder.path().join("remote");
    fs_err::create_dir_all(&path).unwrap();
    (Arc::new(FolderBucket::new(path)), Arc::default())
}

fn push(here: &Place, commit: CommitId) {
    let (service, traffic) = folder(here);
    here.push(&mut here.remote(service, traffic), commit).unwrap();
}

#[test]
fn stubs_of_packs_that_the_remote_merged_are_replaced() {
    let here = Place::new();
    let mut last = None;
    for round in 0..9 {
        here.write(&format!("docs/{round}"), &format!("text {round}"));
        here.write(&format!("other/{round}"), &format!("more {round}"));
        let commit = here.commit();
        push(&here, commit);
        last = Some(commit);
    }
    let last = last.unwrap();
    let (service, traffic) = folder(&here);
    let there = Place::new();
    let mut remote = there.remote(service, traffic);
    let part = PartialScope { depth: Some(1), paths: vec![b"docs".to_vec()] };
    let (there, _) = clone_into(there, &mut remote, part).unwrap();
    assert!(there.repo.store().partial_packs().len() > 1);

    // The remote store has the same objects in other packs now.
    let merged = tidy::run(&here.repo, &Silent).unwrap().merged;
    assert!(merged >= 8, "{merged}");
    let path = here.folder.path().join("remote");
    for gone in ["objects", "index", "refs"] {
        fs_err::remove_dir_all(path.join(gone)).unwrap();
    }
    fs_err::remove_dir_all(here.folder.path().join("store/cache/remote")).unwrap();
    push(&here, last);

    let what = fetch::FetchScope::Everything;
    let handle = there.runtime.handle();
    let outcome = fetch::run(there.repo.store(), &mut remote, &what, handle, &Silent).unwrap();
    assert_eq!(outcome.partial, 0, "{outcome:?}");
    let alone = Repo::open(there.repo.dir(), Disk::default(), &Silent).unwrap();
    restore(&alone, last, &there.folder.path().join("restored")).unwrap();
}

#[test]
fn a_damaged_local_pack_is_reported_and_not_pushed() {
    let here = Place::new();
    here.write("file", "content");
    let commit = here.commit();
    let pack = here.repo.store().packs()[0];
    let path = here.repo.store().pack_path(&pack);
    let mut bytes = fs_err::read(&path).unwrap();
    bytes[17] ^= 1;
    fs_err::write(&path, bytes).unwrap();
    let (service, traffic) = folder(&here);
    let error = here.push(&mut here.remote(service, traffic), commit).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.to_string().contains(&format!("{pack:.12}")), "{error}");
    assert!(here.repo.store().is_damaged(&pack));
    let remote = here.folder.path().join("remote");
    assert!(!remote.join("objects").join(pack.to_string()).exists());
    assert!(!remote.join("refs/heads/main").exists());
}
