//! Several processes that use one store at the same time, and stores that grow old.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime},
};

use snap_core::{
    base::{
        id::{ObjectId, TreeId},
        limits,
        observe::{Note, Observer, Silent},
        time::Time,
    },
    format::pack::ObjectKind,
    ops::{
        commit::{self, CommitSource},
        tidy, verify,
    },
    repo::{Repo, history::History},
    store::ObjectWriter,
};
use snap_testkit::rng::Rng;

use crate::scratch::{START, Scratch, check, on_branch, open, options, refs};

fn files(repo: &Repo) -> usize {
    fs_err::read_dir(repo.dir().join("objects")).unwrap().count()
}

/// Asserts that every pack can be read without the existing index.
#[track_caller]
fn assert_packs_stand_alone(scratch: &Scratch, commits: usize) {
    fs_err::remove_dir_all(scratch.store().join("index")).unwrap();
    let repo = scratch.repo();
    assert_eq!(repo.store().unreadable_packs().len(), 0, "{:?}", repo.store().unreadable_packs());
    assert_eq!(check(&repo), Ok(commits));
}

#[test]
fn two_thousand_commits_leave_few_files_and_lose_no_object() {
    let scratch = Scratch::new();
    let repo = scratch.repo();
    for n in 0..2_000 {
        scratch.write("file", format!("{n}"));
        let outcome = crate::scratch::commit(&repo, &scratch.source(), &options());
        assert!(outcome.created);
        tidy::run(&repo, &Silent).unwrap();
        if n % 250 == 0 {
            assert_eq!(check(&repo), Ok(n + 1));
        }
    }
    assert!(files(&repo) <= 60, "{} files in objects/", files(&repo));
    // Segments of packs that are gone are kept for some seconds.
    let segments = || fs_err::read_dir(repo.dir().join("index")).unwrap();
    for segment in segments() {
        let file = std::fs::File::options().write(true).open(segment.unwrap().path()).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    }
    drop(scratch.repo());
    let count = segments().count();
    assert!(count <= 30, "{count} files in index/");
    assert_eq!(check(&repo), Ok(2_000));
    assert_eq!(check(&scratch.repo()), Ok(2_000), "opened again");
    assert_packs_stand_alone(&scratch, 2_000);
}

#[test]
fn an_object_in_two_packs_is_found_after_one_is_deleted() {
    let scratch = Scratch::new();
    scratch.write("file", "content");
    let (one, two) = (scratch.repo(), scratch.repo());
    // Neither store knows of the other one's commit, so both store the content.
    crate::scratch::commit(&one, &scratch.source(), &on_branch("one"));
    scratch.write("more", "other content");
    crate::scratch::commit(&two, &scratch.source(), &on_branch("two"));
    // A third commit merges the segments of the index.
    scratch.write("third", "3");
    crate::scratch::commit(&scratch.repo(), &scratch.source(), &on_branch("three"));
    let repo = scratch.repo();
    for pack in repo.store().packs() {
        let left = open_without(&scratch, &pack.to_string());
        let objects: Vec<(ObjectId, ObjectKind)> =
            left.store().ids_between(&[0; 32], &[255; 32], 1000).unwrap();
        let file = snap_core::base::id::BlobId::of(b"content").object();
        let holders = holders(&left, file);
        let found = objects.iter().any(|(id, _)| *id == file);
        assert_eq!(found, holders > 0, "in {holders} packs that are left");
    }
}

/// Counts the packs that hold an object, according to their footers.
fn holders(repo: &Repo, id: ObjectId) -> usize {
    let packs = repo.store().packs();
    let holds = |pack: &&snap_core::base::id::PackId| {
        let file = snap_core::store::PackFile::open(&repo.store().pack_path(pack), **pack).unwrap();
        file.objects().unwrap().iter().any(|object| object.id == id)
    };
    packs.iter().filter(holds).count()
}

/// Opens a copy of the store without one pack.
fn open_without(scratch: &Scratch, pack: &str) -> Repo {
    let copy = scratch.path(&format!("without-{pack:.8}"));
    crate::scratch::copy(&scratch.store(), &copy);
    fs_err::remove_file(copy.join("objects").join(pack)).unwrap();
    open(&copy)
}

#[test]
fn no_pack_has_more_objects_than_a_reader_accepts() {
    let scratch = Scratch::new();
    let repo = scratch.repo();
    let writer = ObjectWriter::new(repo.store(), 3, 1).unwrap();
    let last = add_trees(&writer, 0, (1 << 20) + 1000);
    writer.finish().unwrap();
    let repo = scratch.repo();
    fs_err::remove_dir_all(scratch.store().join("index")).unwrap();
    assert_eq!(scratch.repo().store().unreadable_packs().len(), 0);
    assert!(repo.store().object(&last, ObjectKind::Tree).is_ok());
}

/// Adds `count` small objects as trees. Returns the id of the last one.
fn add_trees(writer: &ObjectWriter<'_>, first: u32, count: u32) -> ObjectId {
    let mut last = None;
    for n in first..first + count {
        let bytes = n.to_le_bytes();
        let id = TreeId::of(&bytes);
        writer.add_tree(id, &bytes).unwrap();
        last = Some(id.object());
    }
    last.unwrap()
}

#[test]
fn merging_packs_of_many_objects_leaves_readable_packs() {
    let scratch = Scratch::new();
    let repo = scratch.repo();
    let mut last = Vec::new();
    for n in 0..8 {
        let writer = ObjectWriter::new(repo.store(), 3, 1).unwrap();
        last.push(add_trees(&writer, n * 131_072, 131_072));
        writer.finish().unwrap();
    }
    let outcome = tidy::run(&repo, &Silent).unwrap();
    assert_eq!(outcome.merged, 8);
    fs_err::remove_dir_all(scratch.store().join("index")).unwrap();
    let repo = scratch.repo();
    for pack in repo.store().packs() {
        let objects = repo.store().open_pack(&pack).unwrap().object_count();
        assert!(objects <= limits::PENDING_OBJECTS, "{objects} objects in {pack}");
    }
    for id in last {
        repo.store().object(&id, ObjectKind::Tree).unwrap();
    }
}

#[test]
fn concurrent_commits_to_a_branch_all_enter_its_history() {
    const THREADS: usize = 8;
    const COMMITS: usize = 12;
    let scratch = Scratch::new();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let scratch = &scratch;
            scope.spawn(move || {
                let source = scratch.path(&format!("source-{thread}"));
                fs_err::create_dir(&source).unwrap();
                let repo = scratch.repo();
                for n in 0..COMMITS {
                    fs_err::write(source.join("file"), format!("{thread} {n}")).unwrap();
                    fs_err::write(source.join("same"), "the same everywhere").unwrap();
                    let message = format!("{thread} {n}");
                    let own = format!("own-{thread}");
                    let options = commit::CommitOptions { message, ..options() };
                    assert!(crate::scratch::commit(&repo, &source, &options).created);
                    let options =
                        commit::CommitOptions { message: "own".into(), ..on_branch(&own) };
                    assert!(crate::scratch::commit(&repo, &source, &options).created);
                    tidy::run(&repo, &Silent).unwrap();
                }
            });
        }
    });
    let repo = scratch.repo();
    let count = |name: &str| {
        let tip = refs(&repo).into_iter().find(|(have, _)| have == name).unwrap().1;
        let history = History::new(repo.store(), &[tip], Default::default()).unwrap();
        let messages = history.map(|item| item.unwrap().commit.message);
        messages.collect::<std::collections::HashSet<_>>().len()
    };
    assert_eq!(count("refs/heads/main"), THREADS * COMMITS);
    assert_eq!(refs(&repo).len(), THREADS + 1);
    assert_eq!(check(&repo), Ok(2 * THREADS * COMMITS));
    assert_packs_stand_alone(&scratch, 2 * THREADS * COMMITS);
}

#[test]
fn readers_continue_while_packs_are_merged_and_removed() {
    let scratch = Scratch::new();
    let mut rng = Rng::new(1);
    let writer = scratch.repo();
    let mut contents = Vec::new();
    let done = AtomicBool::new(false);
    scratch.write("first", "first");
    crate::scratch::commit(&writer, &scratch.source(), &options());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let repo = scratch.repo();
                let mut most = 0;
                while !done.load(Ordering::Relaxed) {
                    let commits = check(&repo).unwrap();
                    assert!(commits >= most, "{commits} commits after {most}");
                    most = commits;
                }
            });
        }
        scope.spawn(|| {
            let whole = verify::VerifyOptions::default();
            while !done.load(Ordering::Relaxed) {
                let found = verify::run(&scratch.repo(), &whole, &Silent).unwrap();
                assert!(found.problems.is_empty(), "{:?}", found.problems);
            }
        });
        let work = || {
            for n in 0..120 {
                let mut content = vec![0; 2_000];
                rng.fill(&mut content);
                scratch.write(&format!("{n}"), &content);
                contents.push(content);
                crate::scratch::commit(&writer, &scratch.source(), &options());
                tidy::run(&writer, &Silent).unwrap();
            }
        };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        done.store(true, Ordering::Relaxed);
        result.unwrap();
    });
    assert_eq!(check(&scratch.repo()), Ok(121));
}

/// Collects the number of seconds by which parent commits are dated in the future.
#[derive(Default)]
struct Ahead(parking_lot::Mutex<Vec<i64>>);

impl Observer for Ahead {
    fn note(&self, note: Note<'_>) {
        if let Note::ParentInFuture { ahead_secs } = note {
            self.0.lock().push(ahead_secs);
        }
    }
}

#[test]
fn overlapping_commits_do_not_report_a_wrong_clock() {
    let scratch = Scratch::new();
    let repo = scratch.repo();
    let at = |secs| Time { secs: START.secs + secs, nanos: 0 };
    let commit_at = |began: Time, present: Time| {
        let options =
            commit::CommitOptions { now: Some(began), present: Some(present), ..options() };
        let ahead = Ahead::default();
        let source = CommitSource::Folder(scratch.source());
        let made = commit::run(&repo, source, &options, &ahead).unwrap().id.unwrap();
        repo.store().refresh().unwrap();
        (repo.store().commit(&made).unwrap().time, ahead.0.into_inner())
    };
    scratch.write("a", "1");
    assert_eq!(commit_at(at(21), at(22)), (at(21), vec![]));
    scratch.write("a", "2");
    assert_eq!(commit_at(at(0), at(30)), (at(30), vec![]));
    scratch.write("a", "3");
    assert_eq!(commit_at(at(10), at(25)), (at(10), vec![5]));
}
