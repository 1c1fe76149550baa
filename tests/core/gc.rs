//! Garbage collection in a local store: what it deletes, what it keeps, and commits, tags and other
//! collections beside it, at every step.

use std::{
    cell::Cell,
    fs::File,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use snap_core::{
    base::{
        id::{BlobId, CommitId, ObjectId},
        kind::ErrorKind,
        observe::{Note, Observer, Phase, Silent},
        time::Time,
    },
    disk::{DiskStep, FaultDecision, FaultInjector},
    format::ref_text::RefText,
    ops::{
        gc::{self, GcOptions, GcOutcome},
        tidy, verify,
    },
    repo::{RefLogMessage, RefName, Repo},
    store::Store,
};
use snap_testkit::rng::Rng;

use crate::{
    crafted::{Body, Crafted, chunked, leaf, tree},
    faults::{Fault, PLANS, Plan},
    scratch::{START, Scratch, assert_restores, check, copy, on_branch, open, open_gated, options},
};

/// A collection that deletes everything that no ref reaches.
pub(crate) const ALL: GcOptions = GcOptions {
    dry_run: false,
    undo: Duration::ZERO,
    undo_of_forget: Duration::ZERO,
    grace: Duration::ZERO,
    max_rewritten_bytes: None,
    present: Time { secs: START.secs + 1_000_000, nanos: 0 },
};

/// Returns bytes that cannot be compressed.
pub(crate) fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    Rng::new(seed).fill(&mut noise);
    noise
}

pub(crate) fn collect(repo: &Repo) -> GcOutcome {
    gc::run(repo, &ALL, &Silent).unwrap()
}

pub(crate) fn message(reason: &str) -> RefLogMessage<'_> {
    RefLogMessage { time: START, who: "a", reason }
}

pub(crate) fn delete_branch(repo: &Repo, name: &str) {
    let name = RefName::branch(name).unwrap();
    let at = repo.refs().read(&name).unwrap();
    repo.refs().update(&name, at, None, &message("branch: delete")).unwrap();
}

pub(crate) fn commit(repo: &Repo, source: &Path, branch: &str) -> CommitId {
    crate::scratch::commit(repo, source, &on_branch(branch)).id.unwrap()
}

pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs_err::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Returns true if a store has an object, shadowed or not.
pub(crate) fn has(store: &Store, id: &ObjectId) -> bool {
    !store.places(id).unwrap().is_empty()
}

/// A store with a live branch and a dead one: one pack that is dead as a whole, and packs with dead
/// and live objects.
fn with_garbage() -> (Scratch, CommitId) {
    let scratch = Scratch::new();
    let repo = scratch.repo();
    for n in 0..3 {
        scratch.write("kept", format!("kept {n}"));
        scratch.write(&format!("dead/{n}"), noise(n, 20_000));
        commit(&repo, &scratch.source(), "dead");
    }
    fs_err::remove_dir_all(scratch.source().join("dead")).unwrap();
    scratch.write("live", noise(9, 50_000));
    let kept = commit(&repo, &scratch.source(), "main");
    delete_branch(&repo, "dead");
    (scratch, kept)
}

#[test]
fn what_only_a_deleted_branch_reached_is_deleted() {
    let (scratch, kept) = with_garbage();
    let repo = scratch.repo();
    let secret = BlobId::of(&fs_err::read(scratch.source().join("live")).unwrap());
    let dead = BlobId::of(&noise(1, 20_000));
    let before = repo.store().packs();
    let outcome = collect(&repo);
    assert!(outcome.deleted_packs >= 1 && outcome.freed_bytes() > 0, "{outcome:?}");
    assert!(has(repo.store(), &secret.object()) && !has(repo.store(), &dead.object()));
    assert_ne!(repo.store().packs(), before);
    assert_eq!(check(&repo), Ok(1));
    scratch.assert_restores(kept);
    // There is nothing left to do, in this process or in another one.
    for repo in [repo, scratch.repo()] {
        let again = collect(&repo);
        assert_eq!((again.deleted_packs, again.dead_objects), (0, 0), "{again:?}");
    }
    let found =
        verify::run(&scratch.repo(), &verify::VerifyOptions { data: verify::Data::All }, &Silent);
    assert!(found.unwrap().problems.is_empty());
}

#[test]
fn a_dry_run_changes_nothing_and_says_what_would_be() {
    let (scratch, _) = with_garbage();
    let before = scratch.path("before");
    copy(&scratch.store(), &before);
    let repo = scratch.repo();
    let would = gc::run(&repo, &GcOptions { dry_run: true, ..ALL }, &Silent).unwrap();
    drop(repo);
    for folder in ["objects", "refs/heads"] {
        let names = |store: &Path| {
            files(&store.join(folder))
                .iter()
                .map(|path| path.file_name().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&scratch.store()), names(&before));
    }
    let epoch = |store: &Path| fs_err::read(store.join("gc")).unwrap();
    assert_eq!(epoch(&scratch.store()), epoch(&before));
    assert!(!scratch.store().join("shadow").exists());
    let is = collect(&scratch.repo());
    assert_eq!((would.deleted_packs, would.deleted_bytes), (is.deleted_packs, is.deleted_bytes));
}

#[test]
fn former_values_of_refs_are_kept_for_the_time_of_undo() {
    let (scratch, _) = with_garbage();
    let dead = BlobId::of(&noise(1, 20_000));
    let undo = Duration::from_secs(2_000_000);
    gc::run(&scratch.repo(), &GcOptions { undo, ..ALL }, &Silent).unwrap();
    assert!(has(scratch.repo().store(), &dead.object()), "within the time of undo");
    collect(&scratch.repo());
    assert!(!has(scratch.repo().store(), &dead.object()));
}

/// Returns the content of the commit of [`with_former_tip`] that only a former value has.
fn former() -> BlobId {
    BlobId::of(&noise(77, 20_000))
}

/// A store with a commit that `refer` gives to a ref, and takes away again.
fn with_former_tip(refer: impl Fn(&Repo, CommitId)) -> Scratch {
    let scratch = Scratch::new();
    let repo = scratch.repo();
    scratch.write("kept", "kept");
    commit(&repo, &scratch.source(), "main");
    scratch.write("former", noise(77, 20_000));
    let id = commit(&repo, &scratch.source(), "made");
    // Without the line of the commit, only `refer` leads to it.
    delete_branch(&repo, "made");
    fs_err::remove_file(scratch.store().join("logs/refs/heads/made.log")).unwrap();
    refer(&repo, id);
    scratch
}

#[test]
fn former_values_of_tracking_branches_and_unpacked_commits_are_kept_for_the_time_of_undo() {
    let tracking = RefName::remote("origin", "x").unwrap();
    let seen = |repo: &Repo, old, new| {
        repo.refs().update(&tracking, old, new, &message("seen")).unwrap();
    };
    let other = |repo: &Repo| repo.refs().head_commit().unwrap();
    let deleted = |repo: &Repo, id| {
        seen(repo, None, Some(id));
        seen(repo, Some(id), None);
    };
    let moved = |repo: &Repo, id| {
        seen(repo, None, Some(id));
        seen(repo, Some(id), other(repo));
    };
    let unpacked = |repo: &Repo, id| {
        repo.refs().record_unpacked(id, &message("unpack: x.snap")).unwrap();
    };
    for number in 0..3 {
        let scratch = with_former_tip(|repo, id| match number {
            0 => deleted(repo, id),
            1 => moved(repo, id),
            _ => unpacked(repo, id),
        });
        let undo = Duration::from_secs(2_000_000);
        gc::run(&scratch.repo(), &GcOptions { undo, ..ALL }, &Silent).unwrap();
        let repo = scratch.repo();
        assert!(has(repo.store(), &former().object()), "case {number}: within the time of undo");
        collect(&repo);
        assert!(!has(scratch.repo().store(), &former().object()), "case {number}: after it");
        assert_eq!(check(&scratch.repo()), Ok(1), "case {number}");
    }
}

/// Collects the names of the files that operations skip because of their names.
#[derive(Default)]
struct MisnamedFiles(Mutex<Vec<String>>);

impl Observer for MisnamedFiles {
    fn note(&self, note: Note<'_>) {
        if let Note::MisnamedRef { path, commit, .. } = note {
            self.0.lock().push(format!("{path} {}", commit.is_some()));
        }
    }
}

#[test]
fn a_file_whose_name_no_ref_can_have_is_skipped_and_its_commit_is_kept() {
    let scratch = Scratch::new();
    let repo = scratch.repo();
    scratch.write("only-there", "x");
    let other = commit(&repo, &scratch.source(), "other");
    fs_err::remove_file(scratch.source().join("only-there")).unwrap();
    scratch.write("live", "y");
    commit(&repo, &scratch.source(), "main");
    let (content, branch) = (BlobId::of(b"x").object(), RefName::branch("other").unwrap());
    let refs = scratch.store().join("refs");
    fs_err::copy(refs.join("heads/other"), refs.join("heads/other.lock")).unwrap();
    delete_branch(&repo, "other");
    fs_err::create_dir_all(refs.join("tags")).unwrap();
    fs_err::write(refs.join("tags/.DS_Store"), [0; 9000]).unwrap();
    let lost = RefText::new(Some(CommitId::from_bytes([7; 32]))).encode();
    fs_err::write(refs.join("heads/._main"), lost).unwrap();
    let expected =
        ["refs/heads/._main true", "refs/heads/other.lock true", "refs/tags/.DS_Store false"];
    for _ in 0..2 {
        let noted = MisnamedFiles::default();
        gc::run(&repo, &ALL, &noted).unwrap();
        assert_eq!(noted.0.into_inner(), expected);
        let noted = MisnamedFiles::default();
        let options = verify::VerifyOptions::default();
        let found = verify::run(&repo, &options, &noted).unwrap();
        assert!(found.problems.is_empty(), "{:?}", found.problems);
        assert_eq!(noted.0.into_inner(), expected);
    }
    assert!(has(repo.store(), &content));
    fs_err::rename(refs.join("heads/other.lock"), refs.join("heads/other")).unwrap();
    assert_eq!((check(&repo), repo.refs().read(&branch).unwrap()), (Ok(2), Some(other)));
    // Without the file, a collection deletes the commit.
    delete_branch(&repo, "other");
    collect(&repo);
    assert!(!has(repo.store(), &content));
}

#[test]
fn a_deleted_commit_is_not_recorded_as_unpacked() {
    let made = Cell::new(None);
    let scratch = with_former_tip(|_, id| made.set(Some(id)));
    let repo = scratch.repo();
    collect(&repo);
    let error = repo.refs().record_unpacked(made.get().unwrap(), &message("unpack: x.snap"));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn new_packs_and_what_they_refer_to_are_kept() {
    let (scratch, _) = with_garbage();
    let dead = BlobId::of(&noise(1, 20_000));
    let age = Duration::from_secs(1000);
    for pack in files(&scratch.store().join("objects")) {
        let written = std::time::UNIX_EPOCH + Duration::from_secs(ALL.present.secs as u64) - age;
        File::options().write(true).open(pack).unwrap().set_modified(written).unwrap();
    }
    let kept = gc::run(&scratch.repo(), &GcOptions { grace: 2 * age, ..ALL }, &Silent).unwrap();
    assert_eq!(kept.deleted_packs, 0);
    assert!(has(scratch.repo().store(), &dead.object()));
    gc::run(&scratch.repo(), &GcOptions { grace: age / 2, ..ALL }, &Silent).unwrap();
    assert!(!has(scratch.repo().store(), &dead.object()));
}

#[test]
fn a_damaged_or_missing_object_of_a_ref_ends_a_collection_before_it_deletes() {
    let (scratch, kept) = with_garbage();
    let repo = scratch.repo();
    let tree = repo.store().commit(&kept).unwrap().tree;
    let place = repo.store().places(&tree.object()).unwrap()[0];
    let pack = repo.store().pack_id(place.pack).unwrap();
    fs_err::remove_file(repo.store().pack_path(&pack)).unwrap();
    drop(repo);
    let before = files(&scratch.store().join("objects"));
    let error = gc::run(&scratch.repo(), &ALL, &Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert_eq!(files(&scratch.store().join("objects")), before);
}

#[test]
fn a_commit_after_a_collection_reads_no_file() {
    let (scratch, _) = with_garbage();
    scratch.settle();
    let before = scratch.repo().store().packs();
    collect(&scratch.repo());
    assert_ne!(scratch.repo().store().packs(), before);
    let repo = scratch.repo();
    let outcome = crate::scratch::commit(&repo, &scratch.source(), &options());
    assert_eq!((outcome.created, outcome.bytes_read, outcome.stored_again), (false, 0, 0));
}

#[test]
fn content_that_was_deleted_is_stored_again() {
    let (scratch, _) = with_garbage();
    collect(&scratch.repo());
    for n in 0..3 {
        scratch.write(&format!("dead/{n}"), noise(n, 20_000));
    }
    let id = scratch.commit().id.unwrap();
    assert_eq!(check(&scratch.repo()), Ok(2));
    scratch.assert_restores(id);
}

#[test]
fn a_ref_cannot_move_to_a_deleted_commit() {
    let (scratch, kept) = with_garbage();
    scratch.write("kept", "other");
    let repo = scratch.repo();
    let dead = commit(&repo, &scratch.source(), "other");
    delete_branch(&repo, "other");
    let opened_before = scratch.repo();
    collect(&repo);
    for repo in [&repo, &opened_before, &scratch.repo()] {
        let tag = RefName::tag("t").unwrap();
        let error = repo.refs().update(&tag, None, Some(dead), &message("tag: t")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        let error = repo.refs().create_all(&[(tag, dead)], &message("tag: t")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        repo.refs().update(&RefName::tag("k").unwrap(), None, Some(kept), &message("tag")).unwrap();
        repo.refs().update(&RefName::tag("k").unwrap(), Some(kept), None, &message("tag")).unwrap();
    }
}

/// One content, cut in two ways in two packs: each list that an entry names keeps its chunks, even if
/// another pack has a forged list of the same id.
#[test]
fn every_list_that_an_entry_names_keeps_its_chunks() {
    const KIB: usize = 1 << 10;
    for is_forged_first in [false, true] {
        let crafted = Crafted::empty();
        let whole = noise(7, 3000 * KIB);
        let cuts = [[0, 1000, 2000, 3000], [0, 900, 1900, 3000], [0, 1100, 2100, 3000]];
        let lists = cuts.map(|cuts| {
            let chunks: Vec<_> =
                cuts.windows(2).map(|cut| &whole[cut[0] * KIB..cut[1] * KIB]).collect();
            chunked(&chunks)
        });
        // The list that no entry names, under the ids of the others.
        let forged = [0, 1].map(|of| {
            let (_, kind, bytes) = lists[2].1.last().unwrap().clone();
            (lists[of].0.object(), kind, bytes)
        });
        if is_forged_first {
            crafted.add(&forged);
            drop(crafted.repo());
        }
        for (_, claims) in &lists {
            crafted.add(claims);
        }
        if !is_forged_first {
            crafted.add(&forged);
        }
        let size = whole.len() as u64;
        let file = |of: usize| Body::Chunked(lists[of].0, size);
        let (tree, claim) = tree(leaf(&[(b"a", file(0)), (b"b", file(1))]));
        crafted.add(&[claim]);
        crafted.commit(tree);
        let repo = crafted.repo();
        collect(&repo);
        for (of, (_, claims)) in lists.iter().enumerate() {
            for (id, kind, _) in claims {
                assert_eq!(has(repo.store(), id), of < 2, "{of} {kind:?}");
            }
        }
        assert_eq!(check(&repo), Ok(1));
    }
}

/// Does something else before one step of a disk, unless the process holds a lock for which the
/// other one would wait.
struct Meanwhile {
    store: PathBuf,
    at: usize,
    count: AtomicUsize,
    has_run: AtomicBool,
    act: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Meanwhile({})", self.at)
    }
}

impl Meanwhile {
    fn new(store: &Path, at: usize, act: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            store: store.to_owned(),
            at,
            count: AtomicUsize::new(0),
            has_run: AtomicBool::new(false),
            act: Box::new(act),
        })
    }

    fn is_free(&self) -> bool {
        ["lock", "gc.lock", "compact.lock", "shadow.lock"].iter().all(|name| {
            let file = File::options().read(true).write(true).open(self.store.join(name));
            file.map_or(true, |file| file.try_lock().is_ok())
        })
    }
}

impl FaultInjector for Meanwhile {
    fn decide(&self, _: DiskStep, _: &Path) -> FaultDecision {
        let number = self.count.fetch_add(1, Ordering::SeqCst);
        if number >= self.at && !self.has_run.load(Ordering::SeqCst) && self.is_free() {
            self.has_run.store(true, Ordering::SeqCst);
            (self.act)();
        }
        FaultDecision::Go
    }
}

/// Runs `first` with `second` before each of its steps, each time in a new copy of `scratch`. The
/// refs must be complete afterwards, and after one more collection.
pub(crate) fn interleave(
    scratch: &Scratch,
    first: &dyn Fn(&Repo, &Path),
    second: impl Fn(&Path, &Path) + Send + Sync + Clone + 'static,
) -> usize {
    for at in 0.. {
        let place = scratch.path(&format!("run{at}"));
        fs_err::create_dir(&place).unwrap();
        let (store, source) = (place.join("store"), scratch.source());
        copy(&scratch.store(), &store);
        let meanwhile = {
            let (store, source, second) = (store.clone(), source.clone(), second.clone());
            Meanwhile::new(&store.clone(), at, move || second(&store, &source))
        };
        let repo = open_gated(&store, Arc::clone(&meanwhile) as _);
        first(&repo, &source);
        drop(repo);
        let repo = open(&store);
        assert!(check(&repo).is_ok(), "before step {at}: {:?}", check(&repo));
        collect(&repo);
        let repo = open(&store);
        assert!(check(&repo).is_ok(), "before step {at}, collected: {:?}", check(&repo));
        fs_err::remove_dir_all(&place).unwrap();
        if !meanwhile.has_run.load(Ordering::SeqCst) {
            return at;
        }
    }
    unreachable!()
}

/// A source whose next commit finds dead objects stored: a tree and contents of the dead branch.
fn with_reused_garbage() -> Scratch {
    let (scratch, _) = with_garbage();
    for n in 0..3 {
        scratch.write(&format!("dead/{n}"), noise(n, 20_000));
    }
    scratch.write("new", "new");
    scratch
}

#[test]
fn a_commit_is_complete_with_a_collection_before_any_of_its_steps() {
    let scratch = with_reused_garbage();
    let steps = interleave(
        &scratch,
        &|repo, source| {
            let id = commit(repo, source, "main");
            assert_restores(repo, id, source, &repo.dir().with_file_name("out"));
        },
        |store, _| {
            collect(&open(store));
        },
    );
    assert!(steps > 10, "{steps} steps");
}

#[test]
fn a_collection_is_right_with_a_commit_before_any_of_its_steps() {
    let scratch = with_reused_garbage();
    let steps = interleave(
        &scratch,
        &|repo, _| {
            collect(repo);
        },
        |store, source| {
            commit(&open(store), source, "main");
        },
    );
    assert!(steps > 10, "{steps} steps");
}

/// A collection that is killed between its shadows and its epoch has deleted nothing, and a commit
/// that relied on what is now shadowed is complete.
#[test]
fn a_commit_is_complete_with_a_killed_collection_before_any_of_its_steps() {
    let scratch = with_reused_garbage();
    for killed_at in 0.. {
        let steps = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&steps);
        interleave(
            &scratch,
            &|repo, source| {
                commit(repo, source, "main");
            },
            move |store, _| {
                let fault = Fault::new(Plan::Crash, killed_at);
                let _ = gc::run(&open_gated(store, Arc::clone(&fault) as _), &ALL, &Silent);
                seen.fetch_max(fault.steps.lock().len(), Ordering::SeqCst);
            },
        );
        if steps.load(Ordering::SeqCst) <= killed_at {
            assert!(killed_at > 10, "{killed_at} steps");
            break;
        }
    }
}

#[test]
fn two_collections_do_not_disturb_each_other_at_any_step() {
    let (scratch, _) = with_garbage();
    let steps = interleave(
        &scratch,
        &|repo, _| {
            collect(repo);
        },
        |store, _| {
            collect(&open(store));
        },
    );
    assert!(steps > 10, "{steps} steps");
}

/// A store with so many small packs, live and dead, that a merge has something to do.
fn with_many_packs() -> Scratch {
    let (scratch, _) = with_garbage();
    let repo = scratch.repo();
    for n in 0..12 {
        scratch.write("many", format!("{n}"));
        commit(&repo, &scratch.source(), if n % 2 == 0 { "odd" } else { "main" });
    }
    delete_branch(&repo, "odd");
    drop(repo);
    scratch
}

#[test]
fn a_merge_of_packs_revives_nothing_with_a_collection_before_any_of_its_steps() {
    let scratch = with_many_packs();
    let steps = interleave(
        &scratch,
        &|repo, _| {
            tidy::run(repo, &Silent).unwrap();
        },
        |store, _| {
            collect(&open(store));
        },
    );
    assert!(steps > 5, "{steps} steps");
}

#[test]
fn a_collection_that_fails_at_any_step_loses_nothing_and_the_next_one_finishes() {
    let (scratch, _) = with_garbage();
    let dead = BlobId::of(&noise(1, 20_000));
    for plan in PLANS {
        for at in 0.. {
            let store = scratch.path("failing");
            copy(&scratch.store(), &store);
            let fault = Fault::new(plan, at);
            let steps = {
                let repo = open_gated(&store, Arc::clone(&fault) as _);
                let _ = gc::run(&repo, &ALL, &Silent);
                fault.steps.lock().len()
            };
            let repo = open(&store);
            assert_eq!(check(&repo), Ok(1), "{plan:?} at {at}");
            collect(&repo);
            assert!(!has(open(&store).store(), &dead.object()), "{plan:?} at {at}");
            assert_eq!(check(&open(&store)), Ok(1), "{plan:?} at {at}");
            fs_err::remove_dir_all(&store).unwrap();
            if steps <= at {
                assert!(at > 10, "{at} steps");
                break;
            }
        }
    }
}

/// The disk has no room for a pack.
#[derive(Debug)]
struct NoRoomForPacks;

impl FaultInjector for NoRoomForPacks {
    fn decide(&self, step: DiskStep, path: &Path) -> FaultDecision {
        let is_pack =
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"pack"));
        match step {
            DiskStep::Create | DiskStep::Write { .. } if is_pack => {
                FaultDecision::Fail(std::io::Error::from_raw_os_error(28))
            }
            _ => FaultDecision::Go,
        }
    }
}

#[test]
fn without_room_for_copies_dead_packs_are_deleted() {
    let (scratch, _) = with_garbage();
    let repo = open_gated(&scratch.store(), Arc::new(NoRoomForPacks));
    let outcome = collect(&repo);
    assert!(outcome.needed_bytes > 0 && outcome.deleted_packs > 0, "{outcome:?}");
    assert_eq!((outcome.rewritten_packs, check(&repo)), (0, Ok(1)));
    let outcome = collect(&scratch.repo());
    assert!(outcome.needed_bytes == 0 && outcome.rewritten_packs > 0, "{outcome:?}");
    assert_eq!(check(&scratch.repo()), Ok(1));
}

/// A disk without a free byte, until a file was deleted.
#[derive(Debug, Default)]
struct FullUntilDeletion(AtomicBool);

impl FaultInjector for FullUntilDeletion {
    fn decide(&self, step: DiskStep, path: &Path) -> FaultDecision {
        let is_spare = path.ends_with("gc.reserve") || path.ends_with("cache/some");
        match step {
            DiskStep::Remove if is_spare => self.0.store(true, Ordering::SeqCst),
            // The lock files exist.
            DiskStep::Create if path.exists() => {}
            DiskStep::Create | DiskStep::Write { .. } if !self.0.load(Ordering::SeqCst) => {
                return FaultDecision::Fail(std::io::Error::from_raw_os_error(28));
            }
            _ => {}
        }
        FaultDecision::Go
    }
}

#[test]
fn a_collection_on_a_full_disk_begins_with_its_reserve() {
    let (scratch, _) = with_garbage();
    let reserve = scratch.store().join("gc.reserve");
    assert!(reserve.exists());
    for has_reserve in [true, false] {
        let store = scratch.path(&format!("{has_reserve}"));
        copy(&scratch.store(), &store);
        collect(&open(&store));
        scratch.write("more", noise(11, 50_000));
        commit(&open(&store), &scratch.source(), "dead");
        delete_branch(&open(&store), "dead");
        if !has_reserve {
            // Then room comes from the cache.
            fs_err::remove_file(store.join("gc.reserve")).unwrap();
            fs_err::write(store.join("cache/some"), "derived").unwrap();
        }
        let repo = open_gated(&store, Arc::new(FullUntilDeletion::default()));
        let outcome = collect(&repo);
        assert!(outcome.deleted_packs > 0 && outcome.needed_bytes == 0, "{outcome:?}");
        assert_eq!(check(&open(&store)), Ok(1));
        assert!(store.join("gc.reserve").exists(), "it is back");
        assert!(!store.join("cache/some").exists());
    }
}

/// Makes a commit when a collection begins to mark.
struct CommitBeside<'a> {
    scratch: &'a Scratch,
    count: AtomicUsize,
}

impl Observer for CommitBeside<'_> {
    fn phase(&self, phase: Phase, _: Option<u64>) {
        if phase == Phase::Mark {
            let count = self.count.fetch_add(1, Ordering::SeqCst);
            self.scratch.write("live", noise(20 + count as u64, 1000));
            commit(&self.scratch.repo(), &self.scratch.source(), "main");
        }
    }
}

#[test]
fn a_commit_just_before_the_refs_are_read_is_no_damage() {
    let (scratch, _) = with_garbage();
    let repo = scratch.repo();
    // The collector knows the packs of before.
    repo.store().refresh().unwrap();
    let beside = CommitBeside { scratch: &scratch, count: AtomicUsize::default() };
    gc::run(&repo, &ALL, &beside).unwrap();
    assert_eq!(beside.count.into_inner(), 1);
    assert_eq!(check(&scratch.repo()), Ok(2));
}

#[test]
fn a_limit_of_rewritten_bytes_leaves_only_complete_garbage() {
    let (scratch, _) = with_garbage();
    let limited = GcOptions { max_rewritten_bytes: Some(0), ..ALL };
    let outcome = gc::run(&scratch.repo(), &limited, &Silent).unwrap();
    assert_eq!((outcome.rewritten_packs, outcome.written_bytes), (0, 0));
    let repo = scratch.repo();
    assert!(!repo.store().shadows().has_any_dead());
    assert_eq!(check(&repo), Ok(1));
    assert!(collect(&repo).rewritten_packs > 0);
}

#[test]
fn a_collection_is_right_with_a_merge_of_packs_before_any_of_its_steps() {
    let scratch = with_many_packs();
    let steps = interleave(
        &scratch,
        &|repo, _| {
            collect(repo);
        },
        |store, _| {
            tidy::run(&open(store), &Silent).unwrap();
        },
    );
    assert!(steps > 10, "{steps} steps");
}
