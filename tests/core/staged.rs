//! Staged packs that wait to become part of a store: either all of them do, or those
//! that do are complete in themselves.

use std::{
    collections::BTreeSet,
    io,
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use snap_core::{
    base::{
        id::{ChunkListId, CommitId, ObjectId, PackId},
        observe::Silent,
    },
    disk::{DiskStep, FaultDecision, FaultInjector},
    format::{
        outline,
        pack::{ObjectClass, ObjectKind},
    },
    ops::inbox::{GROUP, IndexUpload, PART, Received, SharedInbox, StagedError},
    repo::Repo,
    store::{ChunkVisit, Descend, PackFile, StoreError, walk_chunks},
};
use snap_testkit::bytes::Corpus;

use crate::{
    crafted::{Claim, ForeignList, chunked, foreign_lists, mib, pack_of},
    scratch::{Scratch, open_gated, until_waited_for},
};

/// Makes three commits of a large file that grows, so that later chunk lists name
/// earlier chunks. Returns the last one.
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
fn stage(from: &Repo, staged: &SharedInbox) -> BTreeSet<PackId> {
    let ids: BTreeSet<PackId> = from.store().packs().into_iter().collect();
    for id in &ids {
        let bytes = fs_err::read(from.store().pack_path(id)).unwrap();
        let pieces = bytes.chunks(1 << 20).map(Ok::<_, StagedError>);
        staged.receive(*id, pieces, &Silent).unwrap();
    }
    assert!(ids.len() > 2, "{} packs", ids.len());
    ids
}

/// Asserts that a store has all chunks of each of its chunk lists.
fn assert_lists_are_whole(repo: &Repo) {
    let store = repo.store();
    for id in store.packs() {
        let pack = store.open_pack(&id).unwrap();
        let objects = pack.objects().unwrap();
        for list in objects.iter().filter(|object| object.kind == ObjectKind::ChunkList) {
            let read = |id: &ObjectId, kind| store.object(id, kind);
            let check = &mut |met: ChunkVisit<'_>| {
                if let ChunkVisit::Chunks(chunks) = met {
                    let is_there = |id: &ObjectId| store.locate(id).unwrap().is_some();
                    assert!(chunks?.iter().all(|chunk| is_there(&chunk.id.object())));
                }
                Ok::<_, StoreError>(Descend::Enter)
            };
            // A part of a long list is visited as its chunks, which are checked above.
            walk_chunks(&ChunkListId::from_object(list.id), &read, check).unwrap();
        }
    }
}

/// A gate that fails permanently after this number of packs got their names in
/// `objects/`.
#[derive(Debug)]
struct Dies {
    after: usize,
    named: AtomicUsize,
}

impl FaultInjector for Dies {
    fn decide(&self, step: DiskStep, path: &Path) -> FaultDecision {
        let is_pack = step == DiskStep::Rename
            && path.parent().is_some_and(|folder| folder.ends_with("store/objects"));
        let named = match is_pack {
            true => self.named.fetch_add(1, Ordering::SeqCst),
            false => self.named.load(Ordering::SeqCst),
        };
        match named > self.after || (is_pack && named == self.after) {
            true => FaultDecision::Fail(io::Error::from_raw_os_error(5)),
            false => FaultDecision::Go,
        }
    }
}

#[test]
fn a_commit_removes_packs_staged_by_killed_pushes() {
    let (here, _) = grown();
    let there = Scratch::new();
    let repo = there.repo();
    let staged = SharedInbox::new(repo.store());
    let ids = stage(&here.repo(), &staged);
    fs_err::write(staged.dir().join("pack-1-2-3"), "partly received").unwrap();
    fs_err::write(staged.dir().join("part of an upload"), "to a server").unwrap();
    let commit = |text: &str| {
        there.write("file", text);
        there.commit();
    };
    commit("another process stages packs");
    assert_eq!(staged.list().unwrap().len(), ids.len());

    // That process was killed after it had begun to publish one of them.
    drop(staged);
    let staged = SharedInbox::new(repo.store());
    let begun = BTreeSet::from([*ids.first().unwrap()]);
    staged.journal_begin(&begun).unwrap();
    commit("no process stages packs");
    let names = fs_err::read_dir(staged.dir()).unwrap();
    let mut names: Vec<_> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    let begun = begun.first().unwrap().to_string();
    assert_eq!(names, [begun.as_str(), "publishing"]);
}

#[test]
fn an_interrupted_publication_is_resumed() {
    let (here, last) = grown();
    for after in 0..3 {
        let there = Scratch::new();
        let gate = Dies { after, named: AtomicUsize::new(0) };
        let repo = open_gated(&there.store(), Arc::new(gate));
        let staged = SharedInbox::new(repo.store());
        let ids = stage(&here.repo(), &staged);
        staged.publish(&repo, &ids, &Silent).unwrap_err();
        drop((staged, repo));

        let repo = there.repo();
        assert_eq!(repo.store().packs().len(), after);
        // A commit may rely on all packs that are there.
        assert_lists_are_whole(&repo);
        let staged = SharedInbox::new(repo.store());
        staged.resume_publication(&repo).unwrap();
        let packs: BTreeSet<PackId> = repo.store().packs().into_iter().collect();
        assert_eq!(packs, ids);
        staged.check_commit_complete(&repo, &last).unwrap();
        assert_eq!(staged.list().unwrap(), []);
        assert_eq!(fs_err::read_dir(staged.dir()).unwrap().count(), 0, "no journal either");
    }
}

#[test]
fn packs_with_missing_references_are_not_published() {
    let (here, last) = grown();
    let there = Scratch::new();
    let repo = there.repo();
    let staged = SharedInbox::new(repo.store());
    let ids = stage(&here.repo(), &staged);
    // Publish the last pack without the packs before it.
    let place = here.repo().store().locate(&last.object()).unwrap().unwrap();
    let alone = here.repo().store().pack_id(place.pack).unwrap();
    let error = staged.publish(&repo, &[alone].into(), &Silent).unwrap_err();
    assert!(error.is_client_error(), "{error}");
    assert_eq!(repo.store().packs(), []);
    assert!(matches!(
        staged.check_commit_complete(&repo, &last),
        Err(StagedError::NoCommit { .. })
    ));
    assert_eq!(staged.publish(&repo, &ids, &Silent).unwrap(), ids);
    assert!(staged.publish(&repo, &ids, &Silent).unwrap().is_empty());
}

#[test]
fn packs_with_forged_or_foreign_chunk_lists_are_not_published() {
    let there = Scratch::new();
    let repo = there.repo();
    let staged = SharedInbox::new(repo.store());
    let send = |objects: &[Claim]| {
        let bytes = pack_of(objects);
        let id = PackId::from_bytes(*blake3::hash(&bytes).as_bytes());
        let received = staged.receive(id, std::iter::once(Ok::<_, StagedError>(bytes)), &Silent);
        received.map(|_| id)
    };
    // A forged list does not match its id, so its pack is refused at once.
    let (_, mut forged) = chunked(&[&mib(1), &mib(2)]);
    forged[2].0 = chunked(&[&mib(2), &mib(1)]).0.object();
    let error = send(&forged).unwrap_err();
    assert!(error.is_client_error(), "{error}");
    assert_eq!(staged.list().unwrap(), []);
    // A foreign list matches its id, so it is found when the packs are walked.
    for ForeignList { told, claims, .. } in foreign_lists() {
        let id = send(&claims).unwrap();
        let error = staged.publish(&repo, &[id].into(), &Silent).unwrap_err();
        assert!(error.is_client_error(), "{told}: {error}");
        assert_eq!(repo.store().packs(), [], "{told}");
    }
    // The chunks alone are sound.
    let id = send(&chunked(&[&mib(1), &mib(2)]).1).unwrap();
    assert_eq!(staged.publish(&repo, &[id].into(), &Silent).unwrap(), [id].into());
}

#[test]
fn receiving_a_pack_removes_files_of_killed_processes() {
    let (here, _) = grown();
    let there = Scratch::new();
    let staged = SharedInbox::new(there.repo().store());
    fs_err::create_dir_all(staged.dir()).unwrap();
    let [left, coming] = ["left", "coming"].map(|who| {
        let path = staged.dir().join(format!("pack-{who}"));
        fs_err::write(&path, "a part").unwrap();
        path
    });
    let held = fs_err::File::open(&coming).unwrap();
    held.file().lock().unwrap();
    let ids = stage(&here.repo(), &staged);
    assert!(!left.exists(), "the writer no longer runs");
    assert!(coming.exists());
    assert_eq!(staged.list().unwrap().len(), ids.len());
}

#[test]
fn the_next_pack_removes_staged_names_of_packs_in_the_store() {
    let (here, _) = grown();
    let there = Scratch::new();
    let repo = there.repo();
    let staged = SharedInbox::new(repo.store());
    let ids = stage(&here.repo(), &staged);
    staged.publish(&repo, &ids, &Silent).unwrap();
    let [linked, copied] = [ids.first().unwrap(), ids.last().unwrap()];
    let names = [linked, copied].map(|id| staged.dir().join(id.to_string()));
    fs_err::hard_link(repo.store().pack_path(linked), &names[0]).unwrap();
    fs_err::copy(repo.store().pack_path(copied), &names[1]).unwrap();

    let other = Scratch::new();
    other.write("file", "other");
    other.commit();
    let other = other.repo();
    receive(&other, &staged, &other.store().packs()[0]);
    assert!(!names[0].exists(), "the killed process had made it part of the store");
    assert!(names[1].exists(), "it is another file");
    let packs: BTreeSet<PackId> = repo.store().packs().into_iter().collect();
    assert_eq!(packs, ids);
}

/// Stages one pack.
fn receive(from: &Repo, staged: &SharedInbox, id: &PackId) -> Received {
    let bytes = fs_err::read(from.store().pack_path(id)).unwrap();
    staged.receive(*id, std::iter::once(Ok::<_, StagedError>(bytes)), &Silent).unwrap()
}

/// Flips a bit in each frame of a class. With `is_quiet`, the file keeps its
/// modification time.
fn damage(path: &Path, id: PackId, class: ObjectClass, is_quiet: bool) {
    let pack = PackFile::open(path, id).unwrap();
    let modified = fs_err::metadata(path).unwrap().modified().unwrap();
    let mut permissions = fs_err::metadata(path).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o644);
    fs_err::set_permissions(path, permissions).unwrap();
    let file = fs_err::File::options().read(true).write(true).open(path).unwrap();
    for frame in pack.frames().iter().filter(|frame| frame.class == class) {
        let mut byte = [0];
        file.file().read_exact_at(&mut byte, frame.offset + 1).unwrap();
        file.file().write_all_at(&[byte[0] ^ 4], frame.offset + 1).unwrap();
    }
    if is_quiet {
        file.file().set_modified(modified).unwrap();
    }
}

#[test]
fn a_publication_in_progress_is_not_resumed() {
    let (here, _) = grown();
    let there = Scratch::new();
    let repo = there.repo();
    let staged = SharedInbox::new(repo.store());
    let ids = stage(&here.repo(), &staged);
    staged.publish(&repo, &ids, &Silent).unwrap();
    stage(&here.repo(), &staged);
    let lock = staged.publishing().unwrap();
    staged.journal_begin(&ids).unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let repo = there.repo();
            SharedInbox::new(repo.store()).resume_publication(&repo).unwrap();
        });
        until_waited_for(staged.dir());
        assert_eq!(staged.journaled().unwrap(), ids, "the journal changed while it was locked");
        drop(lock);
        other.join().unwrap();
    });
    assert_eq!(staged.journaled().unwrap(), BTreeSet::new());
}

#[test]
fn a_pack_damaged_after_its_check_can_be_sent_again() {
    for (class, is_quiet) in
        [(ObjectClass::Data, false), (ObjectClass::Metadata, false), (ObjectClass::Metadata, true)]
    {
        let told = format!("{class:?}, time stays: {is_quiet}");
        let (here, last) = grown();
        let there = Scratch::new();
        let repo = there.repo();
        let staged = SharedInbox::new(repo.store());
        let ids = stage(&here.repo(), &staged);
        let place = here.repo().store().locate(&last.object()).unwrap().unwrap();
        let id = here.repo().store().pack_id(place.pack).unwrap();
        damage(&staged.dir().join(id.to_string()), id, class, is_quiet);
        let error = staged.publish(&repo, &ids, &Silent).expect_err(&told);
        assert!(error.is_client_error(), "{told}: {error}");
        assert_eq!(repo.store().packs(), [], "{told}");
        assert_eq!(receive(&here.repo(), &staged, &id), Received::Added, "{told}");
        assert_eq!(staged.publish(&repo, &ids, &Silent).unwrap(), ids, "{told}");
        // Published packs do not wait any more.
        assert_eq!(staged.list().unwrap(), [], "{told}");
    }
}

#[test]
fn a_damaged_commit_of_the_store_is_no_client_error() {
    let (here, last) = grown();
    let there = Scratch::new();
    let repo = there.repo();
    let staged = SharedInbox::new(repo.store());
    let ids = stage(&here.repo(), &staged);
    staged.publish(&repo, &ids, &Silent).unwrap();
    let place = repo.store().locate(&last.object()).unwrap().unwrap();
    let id = repo.store().pack_id(place.pack).unwrap();
    damage(&repo.store().pack_path(&id), id, ObjectClass::Metadata, false);
    let repo = there.repo();
    let error = SharedInbox::new(repo.store()).check_commit_complete(&repo, &last).unwrap_err();
    assert!(matches!(error, StagedError::Store(_)) && !error.is_client_error(), "{error:?}");
}

#[test]
fn a_damaged_ref_of_the_store_does_not_refuse_packs() {
    for name in ["bad", "bad name?"] {
        let (here, last) = grown();
        let there = Scratch::new();
        let repo = there.repo();
        fs_err::create_dir_all(there.store().join("refs/heads")).unwrap();
        fs_err::write(there.store().join("refs/heads").join(name), "garbage").unwrap();
        let staged = SharedInbox::new(repo.store());
        let ids = stage(&here.repo(), &staged);
        assert_eq!(staged.publish(&repo, &ids, &Silent).unwrap(), ids);
        SharedInbox::new(repo.store()).check_commit_complete(&repo, &last).unwrap();
    }
}

#[test]
fn unreadable_and_missing_group_parts_are_distinguished() {
    let (here, _) = grown();
    let there = Scratch::new();
    let staged = SharedInbox::new(there.repo().store());
    let packs = here.repo().store().packs();
    let outlines: Vec<_> =
        packs.iter().map(|id| here.repo().store().outline(id).unwrap()).collect();
    let part = outline::encode(0, &outlines);
    let hash = blake3::hash(&part);
    let group = outline::encode_group(0, &[outline::Name::from_bytes(*hash.as_bytes())]);
    let name = format!("{}{PART}", hash.to_hex());
    let group_name = format!("{}{GROUP}", blake3::hash(&group).to_hex());
    let path = staged.dir().join(&name);
    staged.read_index_file(&name, &part).unwrap();
    let told = staged.read_index_file(&group_name, &group).unwrap();
    assert!(matches!(told, IndexUpload::Packs(ids) if ids.iter().eq(&packs)));
    // The states after a power cut: zeros, or a part of another group.
    for damaged in [vec![0; part.len()], outline::encode(0, &outlines[..1])] {
        staged.read_index_file(&name, &part).unwrap();
        fs_err::write(&path, damaged).unwrap();
        let error = staged.read_index_file(&group_name, &group).unwrap_err();
        assert!(matches!(error, StagedError::NotSent { .. }), "{error:?}");
        assert!(!path.exists(), "it can be sent again");
    }
    fs_err::create_dir(&path).unwrap();
    let error = staged.read_index_file(&group_name, &group).unwrap_err();
    assert!(!error.is_client_error(), "{error:?}");
}
