//! Packs that wait to become part of a store: all of them do, or what is there is
//! enough for what relies on it.

use std::{
    collections::BTreeSet,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use snap_core::{
    base::{
        id::{CommitId, ObjectId, PackId},
        observe::Silent,
    },
    disk::{Gate, Step, Verdict},
    format::pack::ObjectKind,
    ops::staged::{Staged, StagedError},
    repo::Repo,
    store::{Met, walk_chunks},
};
use snap_testkit::bytes::Corpus;

use crate::scratch::{Scratch, open_gated};

/// Three commits of a large file that grows, so that later lists name earlier chunks.
/// Returns the last one.
fn grown() -> (Scratch, CommitId) {
    let scratch = Scratch::new();
    let mut content = Vec::new();
    let mut last = None;
    for round in 0..3 {
        content.extend(Corpus::Random.make_seeded(9 << 20, round));
        scratch.write("large", &content);
        scratch.write(&format!("small{round}"), "small");
        last = scratch.commit().id;
    }
    (scratch, last.unwrap())
}

/// Stages all packs of a store for another one.
fn stage(from: &Repo, staged: &Staged) -> BTreeSet<PackId> {
    let ids: BTreeSet<PackId> = from.store().packs().into_iter().collect();
    for id in &ids {
        let bytes = fs_err::read(from.store().pack_path(id)).unwrap();
        let pieces = bytes.chunks(1 << 20).map(Ok::<_, StagedError>);
        staged.receive(*id, pieces, &Silent).unwrap();
    }
    assert!(ids.len() > 2, "{} packs", ids.len());
    ids
}

/// Each chunk list in a store has all of its chunks there.
fn assert_lists_are_whole(repo: &Repo) {
    let store = repo.store();
    for id in store.packs() {
        let pack = store.open_pack(&id).unwrap();
        let objects = pack.objects().unwrap();
        for list in objects.iter().filter(|object| object.kind == ObjectKind::ChunkList) {
            let read = |id: &ObjectId, kind| store.object(id, kind);
            let check = &mut |met: Met<'_>| {
                if let Met::Chunks(chunks) = met {
                    let is_there = |id: &ObjectId| store.locate(id).unwrap().is_some();
                    assert!(chunks.iter().all(|chunk| is_there(&chunk.id.object())));
                }
                Ok::<_, snap_core::store::StoreError>(())
            };
            // A list whose parts are chunks, not objects of their own, is checked above.
            walk_chunks(list.id, &read, check).unwrap();
        }
    }
}

/// Fails when so many packs have got their names in `objects/`, for good.
#[derive(Debug)]
struct Dies {
    after: usize,
    named: AtomicUsize,
}

impl Gate for Dies {
    fn pass(&self, step: Step, path: &Path) -> Verdict {
        let is_pack = step == Step::Rename
            && path.parent().is_some_and(|folder| folder.ends_with("store/objects"));
        let named = match is_pack {
            true => self.named.fetch_add(1, Ordering::SeqCst),
            false => self.named.load(Ordering::SeqCst),
        };
        match named > self.after || (is_pack && named == self.after) {
            true => Verdict::Fail(io::Error::from_raw_os_error(5)),
            false => Verdict::Go,
        }
    }
}

#[test]
fn packs_of_which_only_some_became_part_of_a_store_are_gone_on_with() {
    let (here, last) = grown();
    for after in 0..3 {
        let there = Scratch::new();
        let gate = Dies { after, named: AtomicUsize::new(0) };
        let repo = open_gated(&there.store(), Arc::new(gate));
        let staged = Staged::new(repo.store());
        let ids = stage(&here.repo(), &staged);
        staged.publish(&repo, &ids, u64::MAX, &Silent).unwrap_err();
        drop((staged, repo));

        let repo = there.repo();
        assert_eq!(repo.store().packs().len(), after);
        // Whatever came, a commit may rely on it.
        assert_lists_are_whole(&repo);
        let staged = Staged::new(repo.store());
        staged.go_on(&repo).unwrap();
        let packs: BTreeSet<PackId> = repo.store().packs().into_iter().collect();
        assert_eq!(packs, ids);
        staged.check_whole(&repo, &last).unwrap();
        assert_eq!(staged.list().unwrap(), []);
        assert_eq!(fs_err::read_dir(staged.dir()).unwrap().count(), 0, "no journal either");
    }
}

#[test]
fn what_refers_to_something_that_is_not_there_does_not_count() {
    let (here, last) = grown();
    let there = Scratch::new();
    let repo = there.repo();
    let staged = Staged::new(repo.store());
    let ids = stage(&here.repo(), &staged);
    // The last pack without those before it.
    let place = here.repo().store().locate(&last.object()).unwrap().unwrap();
    let alone = here.repo().store().pack_id(place.pack).unwrap();
    let error = staged.publish(&repo, &[alone].into(), u64::MAX, &Silent).unwrap_err();
    assert!(error.is_theirs(), "{error}");
    assert_eq!(repo.store().packs(), []);
    assert!(matches!(staged.check_whole(&repo, &last), Err(StagedError::NoCommit { .. })));
    assert_eq!(staged.publish(&repo, &ids, u64::MAX, &Silent).unwrap(), ids);
    assert!(staged.publish(&repo, &ids, u64::MAX, &Silent).unwrap().is_empty());
}

#[test]
fn what_killed_processes_left_goes_with_the_next_pack() {
    let (here, _) = grown();
    let there = Scratch::new();
    let staged = Staged::new(there.repo().store());
    fs_err::create_dir_all(staged.dir()).unwrap();
    let [left, coming, young] = ["left", "coming", "young"].map(|who| {
        let path = staged.dir().join(format!("pack-{who}"));
        fs_err::write(&path, "a part").unwrap();
        path
    });
    let held = fs_err::File::open(&coming).unwrap();
    held.file().lock().unwrap();
    for path in [&left, &coming] {
        let before = SystemTime::now() - Duration::from_secs(120);
        fs_err::File::open(path).unwrap().file().set_modified(before).unwrap();
    }
    let ids = stage(&here.repo(), &staged);
    assert!(!left.exists(), "its writer is dead");
    assert!(coming.exists() && young.exists());
    assert_eq!(staged.list().unwrap().len(), ids.len());
}
