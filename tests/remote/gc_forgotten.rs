//! Collections that delete forgotten commits of a remote store.

use std::{collections::BTreeMap, sync::Arc};

use snap_core::{
    base::id::{BlobId, CommitId},
    format::gc_state::Phase,
};
use snap_remote::{bucket::Bucket, gc::RemoteGcOptions};

use crate::{
    gc::{
        Contents, check_local, clone_all, collect, collect_as, delete, dump, interleave, load,
        memory, repacking, verify, while_true,
    },
    place::{Draw, Place, Wrapped, branch, complete},
    pull_after_gc::{self, MESSAGE},
};

/// A bucket whose only branch has four commits, and a client that has all of them.
///
/// Each commit has a pack. Most of that of the second one is a file that all later commits have. A
/// file of the second one is in a pack of a deleted branch.
struct History {
    objects: BTreeMap<String, Vec<u8>>,
    place: Place,
    commits: [CommitId; 4],
    /// What only the third commit has.
    secret: Vec<u8>,
    /// A child of the last commit, which is in no bucket.
    next: CommitId,
    /// A child of `next`.
    newest: CommitId,
    /// A child of the third commit, which is in no bucket.
    side: CommitId,
}

impl History {
    fn new(name: &str) -> Self {
        let (service, place, mut draw) = (load(name, &BTreeMap::new()), Place::new(), Draw(7));
        let (secret, shared, other) = (draw.bytes(500), draw.bytes(500), Place::new());
        let gone = vec![other.update("gone", other.change("shared", &shared))];
        other.push_all(&mut other.remote(service.clone(), "remote"), gone).unwrap();
        let push = |commit| {
            place.push(&mut place.remote(service.clone(), "warm"), commit).unwrap();
            commit
        };
        let first = push(place.change("a/b", draw.bytes(500)));
        place.write("kept", draw.bytes(20_000));
        place.write("shared", &shared);
        let second = push(place.change("a/b", draw.bytes(500)));
        fs_err::remove_file(place.folder.path().join("files/shared")).unwrap();
        let third = push(place.change("a/b", &secret));
        let fourth = push(place.change("a/b", draw.bytes(500)));
        delete(&place, service.clone(), "gone");
        let next = place.change("a/b", draw.bytes(500));
        let newest = place.change("a/b", draw.bytes(500));
        let main = branch("main");
        place.repo.refs().update(&main, Some(newest), Some(third), &MESSAGE).unwrap();
        let side = place.change("a/b", draw.bytes(500));
        let commits = [first, second, third, fourth];
        Self { objects: dump(&*service), place, commits, secret, next, newest, side }
    }

    /// Options of a collection that forgets the second and the third commit.
    fn forgetting(&self) -> RemoteGcOptions {
        let forgotten = [self.commits[1], self.commits[2]].into();
        RemoteGcOptions { forgotten, ..RemoteGcOptions::default() }
    }

    /// Pushes a branch. Returns the number of objects that were sent.
    fn push(&self, service: Arc<dyn Bucket>, cache: &str, name: &str, commit: CommitId) -> u64 {
        let mut remote = self.place.remote(service, cache);
        let refs = vec![self.place.update(name, commit)];
        let pushed = self.place.push_all(&mut remote, refs).unwrap();
        let objects = pushed.objects;
        pushed.all_moved().unwrap();
        objects
    }

    fn has_secret(&self, bucket: &Contents) -> bool {
        let folder = tempfile::tempdir().unwrap();
        let id = BlobId::of(&self.secret).object();
        bucket.store(folder.path()).locate(&id).unwrap().is_some()
    }
}

#[test]
fn forgotten_commits_are_deleted_and_stay_in_the_history() {
    let history = History::new("forgotten");
    let [first, second, third, fourth] = history.commits;
    let service = memory("forgotten");
    let outcome = collect_as(service.clone(), &history.forgetting()).unwrap();
    assert_eq!((outcome.forgotten_commits, outcome.deleted_packs), (2, 2));
    assert!(outcome.left_objects > 0, "{outcome:?}");
    let bucket = Contents::read(&*service);
    bucket.check();
    assert!(!history.has_secret(&bucket));
    assert_eq!(bucket.table.forgotten, [second, third].into());
    verify(service.clone());
    let place = Place::new();
    let cloned = clone_all(&place, service.clone()).unwrap();
    check_local(cloned.store());
    for (id, is_gone) in [(first, false), (second, true), (third, true), (fourth, false)] {
        assert!(cloned.store().knows(&id).unwrap());
        assert_eq!(cloned.store().is_forgotten(&id).unwrap(), is_gone, "{id}");
    }
    cloned.refs().update(&branch("main"), None, Some(fourth), &MESSAGE).unwrap();
    pull_after_gc::collect(&cloned);
    check_local(cloned.store());
    assert!(cloned.store().knows(&second).unwrap());
    // The next collections know what was forgotten.
    let again = collect(service.clone()).unwrap();
    assert_eq!((again.deleted_packs, again.forgotten_commits), (0, 0));
    history.push(service.clone(), "warm", "main", history.next);
    let again = collect_as(service.clone(), &history.forgetting()).unwrap();
    assert_eq!(again.forgotten_commits, 0);
    let bucket = Contents::read(&*service);
    bucket.check();
    assert_eq!(bucket.table.forgotten, [second, third].into());
    assert_eq!(complete(service, "main"), Some(history.next));
}

#[test]
fn a_push_sends_no_forgotten_ancestors_again() {
    let history = History::new("forgotten_push");
    let service = memory("forgotten_push");
    collect_as(service.clone(), &history.forgetting()).unwrap();
    for (name, commit) in [("main", history.next), ("side", history.side)] {
        // A commit, two folders and a content.
        assert_eq!(history.push(service.clone(), "warm", name, commit), 4);
        let bucket = Contents::read(&*service);
        bucket.check();
        assert!(!history.has_secret(&bucket));
        assert_eq!(complete(service.clone(), name), Some(commit));
    }
}

#[test]
fn a_branch_at_a_forgotten_commit_is_complete_and_stays() {
    let history = History::new("forgotten_branch");
    let [_, second, third, _] = history.commits;
    let service = memory("forgotten_branch");
    collect_as(service.clone(), &history.forgetting()).unwrap();
    history.push(service.clone(), "warm", "old", third);
    for forgotten in [vec![second, third], vec![second]] {
        let bucket = Contents::read(&*service);
        bucket.check();
        assert!(history.has_secret(&bucket));
        assert_eq!(bucket.table.forgotten, forgotten.into_iter().collect());
        assert_eq!(complete(service.clone(), "old"), Some(third));
        check_local(clone_all(&Place::new(), service.clone()).unwrap().store());
        // Something to collect, so that there is another epoch.
        history.push(service.clone(), "warm", "gone", history.next);
        delete(&history.place, service.clone(), "gone");
        assert!(collect_as(service.clone(), &history.forgetting()).unwrap().deleted_packs > 0);
    }
}

#[test]
fn a_push_at_each_request_of_a_collection_that_forgets_loses_nothing() {
    let history = Arc::new(History::new("push_in_forget"));
    for repacks in [true, false] {
        let [_, _, third, _] = history.commits;
        let pushes = [("main", history.next), ("old", third), ("main", history.newest)];
        for (number, (name, commit)) in pushes.into_iter().enumerate() {
            let calls = while_true(|at| {
                let service = load("push_in_forget", &history.objects);
                let mut forgotten = history.forgetting().forgotten;
                // In the last push, its parent is forgotten, and the bucket does not have it yet.
                forgotten.extend((number == 2).then_some(history.next));
                let options = RemoteGcOptions { forgotten, ..repacking(repacks) };
                let collect = |wrapped: Arc<dyn Bucket>| {
                    collect_as(wrapped, &options).unwrap();
                };
                let (pusher, cache) = (Arc::clone(&history), format!("{repacks}_{number}_{at}"));
                let has_met = interleave(service.clone(), at, collect, move || {
                    let service = memory("push_in_forget");
                    pusher.push(service.clone(), &cache, name, commit);
                    Contents::read(&*service).check();
                });
                Contents::read(&*service).check();
                if has_met {
                    assert_eq!(complete(service.clone(), name), Some(commit), "{name} {at}");
                    collect_as(service.clone(), &options).unwrap();
                    Contents::read(&*service).check();
                    assert_eq!(complete(service, name), Some(commit), "{name} {at}");
                }
                has_met
            });
            assert!(calls > 15, "{calls}");
        }
    }
}

#[test]
fn a_collection_that_forgets_at_each_request_of_a_push_loses_nothing() {
    let history = History::new("forget_in_push");
    for (name, commit) in [("main", history.next), ("old", history.commits[2])] {
        let calls = while_true(|at| {
            let service = load("forget_in_push", &history.objects);
            let options = history.forgetting();
            let push = |wrapped: Arc<dyn Bucket>| {
                history.push(wrapped, &format!("{name}_{at}"), name, commit);
            };
            let has_met = interleave(service.clone(), at, push, move || {
                let service = memory("forget_in_push");
                collect_as(service.clone(), &options).unwrap();
                Contents::read(&*service).check();
            });
            Contents::read(&*service).check();
            assert_eq!(complete(service, name), Some(commit), "{name} {at}");
            has_met
        });
        assert!(calls > 5, "{calls}");
    }
}

#[test]
fn a_collection_that_forgets_can_be_killed_at_each_request() {
    let history = History::new("killed_forget");
    let calls = while_true(|at| {
        let service = load("killed_forget", &history.objects);
        let failing = Wrapped::failing_from(service.clone(), at);
        let killed = collect_as(failing.clone(), &history.forgetting());
        assert!(killed.is_ok() || failing.calls() > at, "{at}");
        Contents::read(&*service).check();
        if at % 2 == 0 {
            history.push(service.clone(), &format!("killed_{at}"), "main", history.next);
            Contents::read(&*service).check();
        }
        if at % 3 == 0 {
            collect(service.clone()).unwrap();
            Contents::read(&*service).check();
        }
        collect_as(service.clone(), &history.forgetting()).unwrap();
        let bucket = Contents::read(&*service);
        bucket.check();
        assert_eq!(bucket.state.unwrap().phase, Phase::Swept);
        assert_eq!(bucket.table.forgotten, history.forgetting().forgotten, "{at}");
        assert!(!history.has_secret(&bucket), "{at}");
        failing.calls() > at
    });
    assert!(calls > 15, "{calls}");
}

#[test]
fn a_pull_or_clone_at_each_request_of_a_collection_that_forgets_is_complete() {
    let history = History::new("pull_in_forget");
    let tip = history.commits[3];
    for clones in [false, true] {
        while_true(|at| {
            let service = load("pull_in_forget", &history.objects);
            let collect = |wrapped: Arc<dyn Bucket>| {
                collect_as(wrapped, &history.forgetting()).unwrap();
            };
            interleave(service, at, collect, move || {
                let (place, service) = (Place::new(), memory("pull_in_forget"));
                match clones {
                    true => check_local(clone_all(&place, service).unwrap().store()),
                    false => {
                        let mut remote = place.remote(service, "remote");
                        assert_eq!(place.pull(&mut remote, &branch("main")).unwrap(), tip);
                        check_local(place.repo.store());
                    }
                }
            })
        });
    }
}

#[test]
fn a_dry_run_forgets_nothing() {
    let history = History::new("forget_dry");
    let service = load("forget_dry", &history.objects);
    let options = RemoteGcOptions { dry_run: true, ..history.forgetting() };
    let outcome = collect_as(service.clone(), &options).unwrap();
    assert_eq!((outcome.forgotten_commits, outcome.deleted_packs), (2, 2));
    assert_eq!(dump(&*service), history.objects);
}
