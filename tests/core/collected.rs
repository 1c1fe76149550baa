//! What garbage collection has deleted is called deleted, and what is lost is called lost.

use std::time::Duration;

use snap_core::{
    base::{id::CommitId, kind::ErrorKind, observe::Silent, time::Time},
    ops::{
        forget::{self, LastForget},
        gc::{self, GcOptions},
        removal_error::RemovalError,
    },
    repo::{
        Pointer, RefError, RefLogMessage, RefName, Repo, UndoError,
        undo::{self, Direction},
    },
    store::StoreError,
};

use crate::{
    gc::{ALL, collect, commit, delete_branch, message},
    scratch::{START, Scratch, check, copy, open},
};

/// A store with a commit on `main`, and another one on `dead`, with its packs.
fn with_dead() -> (Scratch, CommitId) {
    let scratch = Scratch::new();
    let repo = scratch.repo();
    scratch.write("kept", "kept");
    commit(&repo, &scratch.source(), "main");
    scratch.write("dead", "dead");
    let dead = commit(&repo, &scratch.source(), "dead");
    (scratch, dead)
}

/// Removes the packs of an object, and opens the store as a later process does.
fn lose(repo: Repo, id: &CommitId) -> Repo {
    let (store, dir) = (repo.store(), repo.dir().to_owned());
    for place in store.places(&id.object()).unwrap() {
        fs_err::remove_file(store.pack_path(&store.pack_id(place.pack).unwrap())).unwrap();
    }
    drop(repo);
    open(&dir)
}

fn undo(repo: &Repo, name: &str, direction: Direction) -> UndoError {
    let pointer = Pointer::Ref(RefName::branch(name).unwrap());
    undo::plan(repo, Some(&pointer), direction).unwrap_err()
}

#[track_caller]
fn assert_collected(error: &UndoError, id: CommitId) {
    assert!(matches!(error, UndoError::Collected { id: own, .. } if *own == id), "{error}");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[track_caller]
fn assert_lost(error: &UndoError) {
    let UndoError::Commit { source, .. } = error else { panic!("{error}") };
    assert!(matches!(**source, StoreError::Missing { .. }), "{source}");
}

#[test]
fn an_undo_names_the_collection_that_deleted_a_commit_and_no_collection_of_a_lost_one() {
    let (scratch, dead) = with_dead();
    let repo = scratch.repo();
    delete_branch(&repo, "dead");
    // Without any collection, only damage removes a pack.
    let other = scratch.path("lost-before");
    copy(&scratch.store(), &other);
    assert_lost(&undo(&lose(open(&other), &dead), "dead", Direction::Undo));
    // A collection that had to keep the commit.
    let keeping = GcOptions { undo: Duration::from_secs(2_000_000), ..ALL };
    scratch.write("garbage", "garbage");
    commit(&repo, &scratch.source(), "garbage");
    gc::run(&repo, &keeping, &Silent).unwrap();
    let other = scratch.path("lost-after");
    copy(&scratch.store(), &other);
    assert_lost(&undo(&lose(open(&other), &dead), "dead", Direction::Undo));
    // A collection that deleted it, in this process and for another one.
    collect(&repo);
    assert_collected(&undo(&repo, "dead", Direction::Undo), dead);
    assert_collected(&undo(&scratch.repo(), "dead", Direction::Undo), dead);
    assert_eq!(check(&repo), Ok(2));
}

#[test]
fn a_redo_names_the_collection_that_deleted_a_commit() {
    let (scratch, _) = with_dead();
    let repo = scratch.repo();
    scratch.write("dead", "more");
    let more = commit(&repo, &scratch.source(), "dead");
    let plan = undo::plan(&repo, None, Direction::Undo).unwrap();
    plan.run(repo.refs(), &message(&plan.reason())).unwrap();
    collect(&repo);
    assert_collected(&undo(&repo, "dead", Direction::Redo), more);
}

#[test]
fn a_commit_that_a_branch_needs_is_lost_and_not_collected() {
    let (scratch, dead) = with_dead();
    let repo = scratch.repo();
    scratch.write("dead", "more");
    commit(&repo, &scratch.source(), "dead");
    // An ancestor of another branch, from which the branch moved away.
    let name = RefName::branch("side").unwrap();
    let main = repo.refs().read(&RefName::branch("main").unwrap()).unwrap();
    repo.refs().update(&name, None, Some(dead), &message("branch: at")).unwrap();
    repo.refs().update(&name, Some(dead), main, &message("branch: at")).unwrap();
    scratch.write("garbage", "garbage");
    commit(&repo, &scratch.source(), "garbage");
    delete_branch(&repo, "garbage");
    assert!(collect(&repo).deleted_packs > 0);
    assert_lost(&undo(&lose(repo, &dead), "side", Direction::Undo));
}

/// Another process or a wrong clock may have run a collection in the future.
#[test]
fn a_commit_that_is_lost_after_a_collection_with_a_wrong_clock_is_lost() {
    let (scratch, dead) = with_dead();
    let repo = scratch.repo();
    scratch.write("garbage", "garbage");
    commit(&repo, &scratch.source(), "garbage");
    delete_branch(&repo, "garbage");
    let present = Time { secs: START.secs + 1_000_000_000, nanos: 0 };
    assert!(gc::run(&repo, &GcOptions { present, ..ALL }, &Silent).unwrap().deleted_packs > 0);
    delete_branch(&repo, "dead");
    assert_lost(&undo(&lose(repo, &dead), "dead", Direction::Undo));
}

#[test]
fn what_a_rewrite_removed_is_collected_within_the_time_of_an_undo() {
    use snap_core::ops::rewrite::{self, RewriteOptions};
    let (scratch, dead) = with_dead();
    let repo = scratch.repo();
    delete_branch(&repo, "dead");
    scratch.write("later", "later");
    commit(&repo, &scratch.source(), "main");
    let options = RewriteOptions { patterns: vec!["dead".to_owned()], ..RewriteOptions::default() };
    rewrite::run(&repo, &options, &message("rewrite"), &Silent).unwrap();
    let keeping = GcOptions { undo: Duration::from_secs(2_000_000), ..ALL };
    gc::run(&repo, &keeping, &Silent).unwrap();
    assert_collected(&undo(&repo, "dead", Direction::Undo), dead);
}

#[test]
fn no_ref_moves_to_a_commit_that_the_store_lacks() {
    let (scratch, dead) = with_dead();
    let repo = lose(scratch.repo(), &dead);
    let error = tag(&repo, dead);
    let RefError::Objects(source) = &error else { panic!("{error}") };
    assert!(matches!(**source, StoreError::Missing { .. }), "{source}");
}

/// A store with a forgotten commit on `main`.
fn with_forgotten() -> (Scratch, CommitId) {
    let scratch = Scratch::new();
    let repo = scratch.repo();
    scratch.write("own", "old");
    let old = commit(&repo, &scratch.source(), "main");
    scratch.write("own", "new");
    commit(&repo, &scratch.source(), "main");
    forget::run(&repo, &[old].into(), &message("forget"), &Silent).unwrap();
    (scratch, old)
}

fn tag(repo: &Repo, at: CommitId) -> RefError {
    let name = RefName::tag("t").unwrap();
    repo.refs().update(&name, None, Some(at), &message("tag")).unwrap_err()
}

#[test]
fn a_lost_forgotten_commit_is_not_called_deleted() {
    let (scratch, old) = with_forgotten();
    let repo = scratch.repo();
    // A collection that had to keep the forgotten commit.
    scratch.write("garbage", "garbage");
    commit(&repo, &scratch.source(), "garbage");
    delete_branch(&repo, "garbage");
    let undo_of_forget = Duration::from_secs(2_000_000);
    let keeping = GcOptions { undo_of_forget, ..ALL };
    for is_collected in [false, true] {
        if is_collected {
            assert!(gc::run(&repo, &keeping, &Silent).unwrap().deleted_packs > 0);
        }
        let other = scratch.path(&format!("lost-{is_collected}"));
        copy(&scratch.store(), &other);
        let repo = lose(open(&other), &old);
        assert!(matches!(repo.store().commit(&old), Err(StoreError::Missing { .. })));
        assert!(!repo.may_be_collected(&old).unwrap());
        let last = LastForget::read(&repo).unwrap().unwrap();
        assert_eq!(last.deleted, Some(old));
        let error = LastForget::check_not_lost(&repo, &old).unwrap_err();
        assert!(matches!(error, RemovalError::Store(StoreError::Missing { .. })), "{error}");
        let error = tag(&repo, old);
        assert!(matches!(error, RefError::Objects(_)), "{error}");
        // Its link still leads to the commits before it.
        assert!(repo.store().ancestor(&old).unwrap().is_forgotten);
    }
    collect(&repo);
    for repo in [repo, scratch.repo()] {
        assert!(matches!(repo.store().commit(&old), Err(StoreError::Forgotten { .. })));
        assert!(repo.may_be_collected(&old).unwrap());
        LastForget::check_not_lost(&repo, &old).unwrap();
        assert!(matches!(tag(&repo, old), RefError::Collected { .. }));
    }
}

/// Another command forgets a commit after a collection with a wrong clock.
#[test]
fn a_commit_that_was_forgotten_after_a_collection_is_lost() {
    let (scratch, old) = with_forgotten();
    let repo = scratch.repo();
    let last = LastForget::read(&repo).unwrap().unwrap();
    last.undo(&repo, &message("undo: forget")).unwrap();
    scratch.write("garbage", "garbage");
    commit(&repo, &scratch.source(), "garbage");
    delete_branch(&repo, "garbage");
    let present = Time { secs: START.secs + 1_000_000_000, nanos: 0 };
    gc::run(&repo, &GcOptions { present, ..ALL }, &Silent).unwrap();
    let message = RefLogMessage { time: START, ..message("forget") };
    forget::run(&repo, &[old].into(), &message, &Silent).unwrap();
    let repo = lose(repo, &old);
    assert!(matches!(repo.store().commit(&old), Err(StoreError::Missing { .. })));
}
