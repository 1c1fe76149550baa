//! Stores with packs that lie elsewhere: how stubs are filled and become whole, and
//! that all other operations work meanwhile.

use std::{os::unix::fs::FileExt, sync::Arc};

use proptest::{prelude::*, test_runner::TestRunner};
use snap_core::{
    base::{id::PackId, kind::ErrorKind, observe::Silent},
    disk::Disk,
    format::pack::{ObjectClass, ObjectKind},
    ops::{commit, commit::CommitSource, tidy, verify},
    repo::Repo,
    store::{RemoteFrames, Store, StoreError},
};
use snap_testkit::rng::Rng;

use crate::{
    bundle::{packed, taken},
    crafted::{Crafted, blob},
    elsewhere::{
        Elsewhere, Event, Mood, assert_whole, frames, history, of_class, put, reaching, stub, stubs,
    },
    scratch::{Scratch, assert_restores, check, copy, open, options, temporary, until_waited_for},
};

fn verified(repo: &Repo, data: verify::Data) -> verify::VerifyOutcome {
    verify::run(repo, &verify::VerifyOptions { data }, &Silent).unwrap()
}

/// Fetches all absent frames and checks the result.
#[track_caller]
fn make_whole(scratch: &Scratch, elsewhere: &Arc<Elsewhere>) {
    let repo = reaching(scratch, elsewhere);
    for id in repo.store().partial_packs() {
        repo.store().fetch_pack(&id).unwrap();
    }
    assert_whole(scratch, elsewhere);
}

#[test]
fn absent_frames_are_fetched_once_and_complete_their_packs() {
    let (from, id) = history();
    let (empty, elsewhere) = stubs(&from, id);
    let all = frames(empty.repo().store());
    assert!(all.len() > 8, "{} frames", all.len());
    let here = proptest::collection::vec(any::<bool>(), all.len());
    let run = |here: Vec<bool>| {
        let scratch = Scratch::new();
        fs_err::remove_dir_all(scratch.store()).unwrap();
        copy(&empty.store(), &scratch.store());
        let repo = reaching(&scratch, &elsewhere);
        elsewhere.take();
        for ((pack, frame), _) in all.iter().zip(&here).filter(|(_, here)| **here) {
            put(repo.store(), &elsewhere, pack, &frame.range());
        }
        let target = scratch.path("target");
        assert_restores(&repo, id, &from.source(), &target);
        let reads = elsewhere.reads();
        for ((pack, frame), here) in all.iter().zip(&here) {
            let read = reads.get(&(*pack, frame.offset)).copied().unwrap_or_default();
            assert!(read <= usize::from(!here), "{read} reads of a frame, here: {here}");
        }
        drop(repo);
        // Fetched frames are kept, so the source is not needed any more.
        elsewhere.set(Mood::Offline);
        fs_err::remove_dir_all(&target).unwrap();
        assert_restores(&scratch.repo(), id, &from.source(), &target);
        elsewhere.set(Mood::Well);
        make_whole(&scratch, &elsewhere);
        assert_restores(&scratch.repo(), id, &from.source(), &scratch.path("again"));
        Ok(())
    };
    TestRunner::new(snap_testkit::property::cases(12)).run(&here, run).unwrap();
}

#[test]
fn a_frame_is_fetched_once_for_all_threads() {
    let (from, id) = history();
    let (scratch, elsewhere) = stubs(&from, id);
    let repo = reaching(&scratch, &elsewhere);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| repo.store().commit(&id).unwrap());
        }
    });
    assert_eq!(elsewhere.reads().into_values().collect::<Vec<_>>(), [1]);
}

#[test]
fn pieces_in_any_order_from_several_threads_fill_a_pack() {
    let (from, id) = history();
    let (scratch, elsewhere) = stubs(&from, id);
    let repo = scratch.repo();
    let store = repo.store();
    for pack in store.partial_packs() {
        let first = store.absent_frames(&pack).unwrap()[0];
        let error = store.complete(&pack, &Silent).unwrap_err();
        assert!(
            matches!(error, StoreError::Absent { offset_bytes, .. } if offset_bytes == first.offset),
            "{error}"
        );
        let bytes = elsewhere.bytes(&pack);
        let mut rng = Rng::new(7);
        let mut pieces = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let end = bytes.len().min(at + 1 + rng.below(300_000) as usize);
            pieces.push(at..end);
            at = end;
        }
        std::thread::scope(|scope| {
            for share in 0..3 {
                let own = pieces.iter().rev().skip(share).step_by(3);
                let own: Vec<_> = own.cloned().collect();
                scope.spawn(move || {
                    for piece in own {
                        store.fill(&pack, piece.start as u64, &bytes[piece]).unwrap();
                    }
                });
            }
        });
        assert_eq!(store.absent_frames(&pack).unwrap(), []);
        assert!(store.complete(&pack, &Silent).unwrap());
        assert!(store.complete(&pack, &Silent).unwrap());
        store.fill(&pack, 0, &[0; 1000]).unwrap();
        assert_eq!(store.absent_frames(&pack).unwrap(), []);
    }
    assert_whole(&scratch, &elsewhere);
    assert_restores(&repo, id, &from.source(), &scratch.path("target"));
}

#[test]
fn a_partial_pack_that_does_not_match_its_id_stays_partial() {
    let (from, id) = history();
    let (scratch, elsewhere) = stubs(&from, id);
    let from = from.repo();
    let repo = scratch.repo();
    let store = repo.store();
    let pack = store.packs()[0];
    let end = elsewhere.bytes(&pack).len() as u64;
    assert!(matches!(store.fill(&pack, end, &[1]), Err(StoreError::Format { .. })));
    assert!(matches!(store.fill(&pack, u64::MAX, &[1]), Err(StoreError::Format { .. })));
    let nobody = PackId::from_bytes([9; 32]);
    assert!(matches!(store.fill(&nobody, 0, &[1]), Err(StoreError::Gone { .. })));
    assert!(matches!(store.complete(&nobody, &Silent), Err(StoreError::Gone { .. })));

    // All frames of another pack, under a wrong id. Chunk lists of the pack may name chunks of
    // packs that are not here, so they are checked later.
    let lie = snap_core::format::outline::PackOutline {
        id: nobody,
        ..from.store().outline(&pack).unwrap()
    };
    store.add_stubs([&lie]).unwrap();
    store.fill(&nobody, 0, elsewhere.bytes(&pack)).unwrap();
    assert_eq!(store.absent_frames(&nobody).unwrap(), []);
    let error = store.complete(&nobody, &Silent).unwrap_err();
    assert!(matches!(error, StoreError::PackHash { actual, .. } if actual == pack), "{error}");
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(store.is_partial(&nobody));
    assert!(!scratch.store().join("objects").join(nobody.to_string()).exists());
}

#[test]
fn a_partial_pack_with_a_wrong_object_stays_partial() {
    // The frames and the id of the pack are right. Only the check of each object finds
    // the error.
    let liar = Crafted::of(&[(blob(b"said").0, ObjectKind::Blob, b"else".to_vec())]);
    let from = liar.repo();
    let [pack] = from.store().packs()[..] else { panic!("one pack") };
    let bytes = fs_err::read(from.store().pack_path(&pack)).unwrap();
    let scratch = Scratch::new();
    let repo = scratch.repo();
    let store = repo.store();
    store.add_stubs([&from.store().outline(&pack).unwrap()]).unwrap();
    store.fill(&pack, 0, &bytes).unwrap();
    assert_eq!(store.absent_frames(&pack).unwrap(), []);
    let error = store.complete(&pack, &Silent).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(store.is_partial(&pack));
    assert!(!scratch.store().join("objects").join(pack.to_string()).exists());
}

#[test]
fn frames_are_written_only_if_all_checksums_match() {
    let (from, id) = history();
    let (scratch, elsewhere) = stubs(&from, id);
    let repo = scratch.repo();
    let store = repo.store();
    let pack =
        store.partial_packs().into_iter().find(|pack| store.absent_frames(pack).unwrap().len() > 2);
    let pack = pack.unwrap();
    let absent = store.absent_frames(&pack).unwrap();
    let two = &absent[..2];
    let range = two[0].range().start as usize..two[1].range().end as usize;
    let mut bytes = elsewhere.bytes(&pack)[range].to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    let error = store.fill_frames(&pack, two, &bytes).unwrap_err();
    let second = two[1].offset;
    assert!(
        matches!(error, StoreError::CorruptedInTransit { offset_bytes, .. } if offset_bytes == second),
        "{error}"
    );
    assert!(store.fill_frames(&pack, two, &bytes[..bytes.len() - 1]).is_err());
    assert_eq!(store.absent_frames(&pack).unwrap(), absent);
    *bytes.last_mut().unwrap() ^= 1;
    store.fill_frames(&pack, two, &bytes).unwrap();
    assert_eq!(store.absent_frames(&pack).unwrap(), absent[2..]);
    assert_eq!(open(&scratch.store()).store().absent_frames(&pack).unwrap(), absent[2..]);
}

#[test]
fn damaged_frames_of_a_partial_pack_are_fetched_again() {
    let (from, id) = history();
    let (scratch, elsewhere) = stubs(&from, id);
    let repo = reaching(&scratch, &elsewhere);
    let store = repo.store();
    for (pack, frame) in frames(store) {
        put(store, &elsewhere, &pack, &frame.range());
    }
    // One of the packs has a chunk list in its last frame.
    for pack in store.partial_packs() {
        assert_eq!(store.absent_frames(&pack).unwrap(), []);
        let last = *store.open_pack(&pack).unwrap().frames().last().unwrap();
        let path = store.pack_path(&pack);
        Disk::default().fill(&path, last.offset, &vec![7; last.stored_bytes as usize]).unwrap();
        elsewhere.take();
        let error = store.complete(&pack, &Silent).unwrap_err();
        assert!(
            matches!(error, StoreError::Absent { offset_bytes, .. } if offset_bytes == last.offset),
            "{error}"
        );
        assert!(elsewhere.reads().is_empty(), "it fetches nothing");
        // The store knows the damaged frame now and fetches it again.
        assert_eq!(store.absent_frames(&pack).unwrap(), [last]);
        store.fetch_pack(&pack).unwrap();
        assert!(!store.is_partial(&pack));
    }
}

#[test]
fn a_stub_does_not_replace_existing_frames() {
    let (from, id) = history();
    let (scratch, elsewhere) = stubs(&from, id);
    let repo = scratch.repo();
    let (pack, range) = of_class(repo.store(), ObjectClass::Data)[0].clone();
    put(repo.store(), &elsewhere, &pack, &range);
    let before = repo.store().absent_frames(&pack).unwrap();
    stub(from.repo().store(), &open(&scratch.store()), id);
    assert_eq!(open(&scratch.store()).store().absent_frames(&pack).unwrap(), before);
    // Whole packs are not replaced with stubs either.
    stub(from.repo().store(), &from.repo(), id);
    assert_eq!(from.repo().store().partial_packs(), []);
    assert_eq!(fs_err::read_dir(from.store().join("partial")).unwrap().count(), 0);
}

#[test]
fn a_pack_that_another_process_completed_is_readable() {
    let (from, id) = history();
    let (scratch, elsewhere) = stubs(&from, id);
    let (ours, theirs) = (scratch.repo(), reaching(&scratch, &elsewhere));
    let packs = ours.store().packs();
    packs.iter().for_each(|pack| theirs.store().fetch_pack(pack).unwrap());
    assert_whole(&scratch, &elsewhere);
    // This store has not listed its packs since.
    assert_eq!(ours.store().partial_packs(), packs);
    assert_restores(&ours, id, &from.source(), &scratch.path("target"));
    packs.iter().for_each(|pack| drop(ours.store().open_pack(pack).unwrap()));
}

#[test]
fn whole_packs_take_precedence_and_their_stubs_are_removed() {
    let (from, id) = history();
    let (scratch, elsewhere) = stubs(&from, id);
    let objects = scratch.store().join("objects");
    for pack in from.repo().store().packs() {
        fs_err::write(objects.join(pack.to_string()), elsewhere.bytes(&pack)).unwrap();
    }
    assert_eq!(fs_err::read_dir(scratch.store().join("partial")).unwrap().count(), 3);
    let repo = scratch.repo();
    assert_eq!(repo.store().partial_packs(), []);
    assert_restores(&repo, id, &from.source(), &scratch.path("target"));
    scratch.write("new", "new");
    commit::run(&repo, CommitSource::Folder(scratch.source()), &options(), &Silent).unwrap();
    assert_eq!(fs_err::read_dir(scratch.store().join("partial")).unwrap().count(), 0);
    assert_eq!(check(&scratch.repo()), Ok(4));
}

#[test]
fn a_bundle_completes_partial_packs_without_fetching() {
    let (from, id) = history();
    let (scratch, elsewhere) = stubs(&from, id);
    let bundle = packed(from.repo().store(), id, &[]);
    let repo = reaching(&scratch, &elsewhere);
    assert_eq!(taken(repo.store(), &bundle).unwrap().commit, id);
    assert_eq!(elsewhere.reads().len(), 0, "the bundle contains everything");
    assert_whole(&scratch, &elsewhere);
}

#[test]
fn partial_packs_are_not_merged() {
    let (from, id) = history();
    let (scratch, elsewhere) = stubs(&from, id);
    for n in 0..30 {
        from.write(&format!("small/{n}"), format!("{n}"));
        from.commit();
    }
    let partial = scratch.repo().store().packs();
    let repo = reaching(&scratch, &elsewhere);
    fs_err::remove_dir_all(from.source().join("small")).unwrap();
    copy(&from.source().join("b"), &scratch.source().join("b"));
    for n in 0..9 {
        scratch.write("new", format!("{n}"));
        commit::run(&repo, CommitSource::Folder(scratch.source()), &options(), &Silent).unwrap();
    }
    elsewhere.take();
    let outcome = tidy::run(&repo, &Silent).unwrap();
    assert!(outcome.merged >= 8, "{outcome:?}");
    assert_eq!(repo.store().partial_packs(), partial);
    assert_eq!(elsewhere.take(), [], "partial packs are not read");
    assert_eq!(check(&repo), Ok(12));
    make_whole(&scratch, &elsewhere);
}

#[test]
fn the_index_is_rebuilt_from_whole_and_partial_packs() {
    let (from, id) = history();
    let (scratch, elsewhere) = stubs(&from, id);
    reaching(&scratch, &elsewhere).store().fetch_pack(&from.repo().store().packs()[0]).unwrap();
    assert_eq!(scratch.repo().store().partial_packs().len(), 2);
    let ids = |store: &Store| store.ids_between(&[0; 32], &[255; 32], usize::MAX).unwrap();
    let all = ids(from.repo().store());
    assert!(all.len() > 20);
    fs_err::remove_dir_all(scratch.store().join("index")).unwrap();
    let repo = scratch.repo();
    assert_eq!(ids(repo.store()), all);
    repo.store().reindex().unwrap();
    assert_eq!(ids(repo.store()), all);
    assert_eq!(repo.store().unreadable_packs().len(), 0);
    assert_eq!(ids(Repo::open_read_only(&scratch.store()).unwrap().store()), all);
}

#[test]
fn a_commit_onto_stubs_fetches_no_data_and_stores_all_files() {
    let (from, id) = history();
    let (scratch, elsewhere) = stubs(&from, id);
    let repo = reaching(&scratch, &elsewhere);
    fs_err::write(from.source().join("b/deep/new"), "new").unwrap();
    let source = CommitSource::Folder(from.source());
    let made = commit::run(&repo, source, &options(), &Silent).unwrap();
    assert!(made.created);
    // Stubs of the user's files do not count as stored: the files are stored again.
    assert!(made.added.raw_bytes > 1 << 20, "{:?}", made.added);
    let data = of_class(repo.store(), ObjectClass::Data);
    for event in elsewhere.take() {
        let (Event::Need(pack, range) | Event::Read(pack, range)) = event;
        assert!(!data.contains(&(pack, range)), "data was requested");
    }
    let commit = repo.store().commit(&made.id.unwrap()).unwrap();
    assert_eq!(commit.parents, [id]);
    // All objects of the commit are in whole packs.
    let alone = open(&scratch.store());
    assert_restores(&alone, made.id.unwrap(), &from.source(), &scratch.path("target"));
}

#[test]
fn verify_distinguishes_absent_objects_from_damage() {
    let (from, id) = history();
    let (scratch, elsewhere) = stubs(&from, id);
    let repo = reaching(&scratch, &elsewhere);
    let store = repo.store();
    let total = verified(&from.repo(), verify::Data::None).objects;
    let none = verified(&repo, verify::Data::All);
    assert_eq!((none.packs, none.partial_packs, none.problems.len()), (3, 3, 0));
    assert_eq!((none.objects, none.absent_objects, none.commits), (total, total, 0));

    for class in [ObjectClass::Metadata, ObjectClass::Data] {
        for (pack, range) in
            of_class(store, class).iter().skip(usize::from(class == ObjectClass::Data))
        {
            put(store, &elsewhere, pack, range);
        }
    }
    let (pack, first) = of_class(store, ObjectClass::Data)[0].clone();
    let some = verified(&repo, verify::Data::All);
    assert!(some.problems.is_empty(), "{:?}", some.problems);
    let frame = store.absent_frames(&pack).unwrap()[0];
    assert_eq!(frame.range(), first);
    assert_eq!(some.absent_objects, u64::from(frame.objects));
    assert_eq!(some.commits, 3);
    assert!(some.bytes_read > 5 << 20);
    // Frames that do not match their checksum count as absent.
    store.fill(&pack, first.start, &[7; 5000]).unwrap();
    let garbage = verified(&open(&scratch.store()), verify::Data::All);
    assert!(garbage.problems.is_empty(), "{:?}", garbage.problems);
    assert_eq!(garbage.absent_objects, some.absent_objects);
    assert_eq!(elsewhere.take(), [], "verification fetches nothing");

    // Damage in a whole pack is reported as damage, even if the pack exists elsewhere.
    make_whole(&scratch, &elsewhere);
    let path = open(&scratch.store()).store().pack_path(&pack);
    let mut bytes = fs_err::read(&path).unwrap();
    bytes[first.start as usize] ^= 1;
    fs_err::write(&path, bytes).unwrap();
    let repo = reaching(&scratch, &elsewhere);
    elsewhere.take();
    assert!(verified(&repo, verify::Data::All).problems.len() > 1);
    let damaged = repo.store().open_pack(&pack).unwrap().stored(&frame).unwrap_err();
    assert!(matches!(damaged, StoreError::Frame { .. }), "{damaged}");
    assert_eq!(elsewhere.take(), []);
}

#[test]
fn damaged_frames_from_a_remote_are_not_stored() {
    let (from, id) = history();
    let (scratch, elsewhere) = stubs(&from, id);
    let repo = reaching(&scratch, &elsewhere);
    for mood in [Mood::Short, Mood::Wrong] {
        elsewhere.set(mood);
        let error = repo.store().commit(&id).unwrap_err();
        assert!(matches!(error, StoreError::CorruptedInTransit { .. }), "{error}");
        let said = error.to_string();
        assert!(
            said.starts_with(
                "the pack elsewhere arrived damaged: the checksum of the frame at byte "
            ),
            "{said}"
        );
        assert_eq!((error.kind(), error.damaged_pack()), (ErrorKind::Damaged, None));
        assert_eq!(verified(&repo, verify::Data::All).problems.len(), 0, "nothing here is damaged");
    }
    elsewhere.set(Mood::Well);
    assert_restores(&repo, id, &from.source(), &scratch.path("target"));
}

#[test]
fn a_read_only_store_reads_absent_frames_from_the_remote() {
    // The test may run as root, who can write everywhere. So a gate refuses all writes
    // to a copy of the store.
    let (from, id) = history();
    let (scratch, elsewhere) = stubs(&from, id);
    let repo = reaching(&scratch, &elsewhere);
    let packs = repo.store().packs();
    packs.iter().for_each(|pack| drop(repo.store().open_pack(pack).unwrap()));
    let frozen = temporary();
    copy(&scratch.store(), &frozen.path().join("store"));
    let disk = Disk::with_fault_injector(Arc::new(Refusing));
    let store = Store::open(&frozen.path().join("store"), disk, &Silent).unwrap();
    let store = store.with_remote_frames(Arc::clone(&elsewhere) as Arc<dyn RemoteFrames>);
    for _ in 0..2 {
        let bytes = store.object(&id.object(), ObjectKind::Commit).unwrap();
        assert!(!bytes.is_empty());
    }
    assert!(store.absent_frames(&packs[0]).unwrap().len() > 1);
    assert!(elsewhere.reads().len() == 1);
}

/// A gate that refuses every step.
#[derive(Debug)]
struct Refusing;

impl snap_core::disk::FaultInjector for Refusing {
    fn decide(
        &self,
        _: snap_core::disk::DiskStep,
        _: &std::path::Path,
    ) -> snap_core::disk::FaultDecision {
        snap_core::disk::FaultDecision::Fail(std::io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

#[test]
fn a_stub_that_replaces_a_pack_being_completed_stays_partial() {
    let (from, id) = history();
    let (scratch, elsewhere) = stubs(&from, id);
    let repo = reaching(&scratch, &elsewhere);
    let pack = repo.store().partial_packs()[0];
    for (_, frame) in frames(repo.store()).iter().filter(|(of, _)| *of == pack) {
        put(repo.store(), &elsewhere, &pack, &frame.range());
    }
    let path = repo.store().pack_path(&pack);
    let other = scratch.path("other");
    let outline = from.repo().store().outline(&pack).unwrap();
    let file = fs_err::File::create(&other).unwrap();
    file.file().write_all_at(&outline.head, 0).unwrap();
    let tail = outline.file_bytes - outline.tail.len() as u64;
    file.file().write_all_at(&outline.tail, tail).unwrap();
    let locked = fs_err::File::open(&path).unwrap();
    locked.file().lock().unwrap();
    // A pack that another process completes is not shed.
    assert!(!repo.store().evict_pack(&pack).unwrap());
    std::thread::scope(|scope| {
        let completing = scope.spawn(|| repo.store().complete(&pack, &Silent));
        until_waited_for(&path);
        fs_err::rename(&other, &path).unwrap();
        drop(locked);
        let done = completing.join().unwrap();
        assert!(matches!(done, Err(StoreError::Absent { .. })), "{done:?}");
    });
    let repo = reaching(&scratch, &elsewhere);
    repo.store().fetch_pack(&pack).unwrap();
    assert!(!repo.store().is_partial(&pack));
    assert!(repo.store().evict_pack(&pack).unwrap());
    assert!(repo.store().is_partial(&pack));
    make_whole(&scratch, &elsewhere);
}
