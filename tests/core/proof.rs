//! Proven packs: a writer relies on nothing that this machine has not hashed.

use std::path::Path;

use snap_core::{
    base::{
        id::{BlobId, ChunkListId, CommitId, ContentId, PackId},
        kind::ErrorKind,
        observe::Silent,
    },
    disk::{
        Disk,
        table::{Table, TableWriter},
    },
    format::{
        pack::{ObjectKind, PackedObject, TRAILER_BYTES},
        table::{Shape, TablePurpose},
    },
    ops::{
        bundle::pack,
        verify::{self, Data},
    },
    repo::Repo,
    store::{StoreError, compact},
};
use snap_testkit::bytes::Corpus;

use crate::{
    bundle::{packed, taken},
    crafted::{Body, Claim, Crafted, blob, chunked, leaf, listed, mib, piece, tree},
    elsewhere::{Elsewhere, put, reaching},
    scratch::{
        Scratch, assert_restores, commit, content_id, copy, on_branch, open, options, temporary,
    },
};

/// A file that the victim has and the attacker knows.
fn file() -> Vec<u8> {
    Corpus::Random.make(4 << 20)
}

/// Returns the objects of the file: its chunks, and its list at the end.
fn objects() -> Vec<Claim> {
    let scratch = Scratch::new();
    scratch.write("large", file());
    scratch.commit();
    let repo = scratch.repo();
    let [pack] = repo.store().packs()[..] else { panic!("one pack") };
    let mut objects = repo.store().open_pack(&pack).unwrap().objects().unwrap();
    objects.retain(|object| matches!(object.kind, ObjectKind::Blob | ObjectKind::ChunkList));
    objects.sort_by_key(|object| object.kind);
    let claim = |object: &PackedObject| {
        (object.id, object.kind, repo.store().object(&object.id, object.kind).unwrap())
    };
    objects.iter().map(claim).collect()
}

/// Returns the id of the list of the file.
fn list() -> ChunkListId {
    match content_id(&file()) {
        ContentId::Chunked(id) => id,
        ContentId::Blob(_) => panic!("the file is chunked"),
    }
}

/// Objects that pass for the file: its id, but another content.
fn forgeries() -> Vec<(&'static str, Vec<Claim>)> {
    let id = list().object();
    let forged_blob = (id, ObjectKind::Blob, b"else".to_vec());
    let as_list = |mut claims: Vec<Claim>| {
        claims.last_mut().unwrap().0 = id;
        claims
    };
    let (wrong, missing) =
        (chunked(&[&mib(1), &mib(2)]).1, listed([piece(&mib(3)), piece(&mib(4))]).1);
    let garbage = (id, ObjectKind::ChunkList, b"?".to_vec());
    let mut forged_chunk = objects();
    forged_chunk[0].2[7] ^= 1;
    vec![
        ("a blob of another content", vec![forged_blob]),
        ("a list of other chunks", as_list(wrong)),
        ("a list of missing chunks", as_list(missing)),
        ("a list that cannot be decoded", vec![garbage]),
        ("a chunk of another content", forged_chunk),
    ]
}

fn verified(repo: &Repo, data: Data) -> verify::VerifyOutcome {
    verify::run(repo, &verify::VerifyOptions { data }, &Silent).unwrap()
}

/// Commits the file into the store in `store`, and checks that the snapshot can be restored.
#[track_caller]
fn assert_commit_stores_the_file(scratch: &Scratch, store: &Path, forgery: &str) -> CommitId {
    scratch.write("mine", file());
    let outcome = commit(&open(store), &scratch.source(), &options());
    let target = scratch.path(&format!("restored {forgery}"));
    assert_restores(&open(store), outcome.id.unwrap(), &scratch.source(), &target);
    outcome.id.unwrap()
}

#[test]
fn a_commit_stores_content_that_a_foreign_store_only_claims() {
    for (forgery, objects) in forgeries() {
        let (store, scratch) = (Crafted::of(&objects), Scratch::new());
        assert_commit_stores_the_file(&scratch, &store.store(), forgery);
        // A second commit finds the proven copy.
        scratch.write("new", forgery);
        let again = commit(&store.repo(), &scratch.source(), &options());
        assert!(again.added.raw_bytes < 10_000, "{forgery}: {:?}", again.added);
        assert_eq!(store.repo().store().shadows().table.entries().count(), 1, "{forgery}");
    }
}

#[test]
fn a_forged_tree_is_not_taken_as_stored() {
    let scratch = Scratch::new();
    scratch.write("folder/file", "content");
    let honest = scratch.commit().id.unwrap();
    let root = scratch.repo().store().commit(&honest).unwrap().tree;
    let other = leaf(&[(b"x", Body::File(BlobId::of(b"x"), 1))]);
    let claim = (root.object(), ObjectKind::Tree, other);
    let store = Crafted::of(&[claim]);
    let id = commit(&store.repo(), &scratch.source(), &options()).id.unwrap();
    assert_restores(&store.repo(), id, &scratch.source(), &scratch.path("restored"));
}

/// Adds a record of an object that no pack has to each index segment of a store.
fn forge_index(store: &Path, id: &BlobId) {
    const SHAPE: Shape = Shape { purpose: TablePurpose::Index, key_bytes: 32, record_bytes: 48 };
    let index = store.join("index");
    for entry in fs_err::read_dir(&index).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "idx") {
            continue;
        }
        let (mut records, meta) = {
            let table = Table::open(&path, SHAPE).unwrap();
            let records = table.iter().map(|record| record.unwrap().to_vec());
            (records.collect::<Vec<_>>(), table.meta().to_vec())
        };
        let mut forged = records[0].clone();
        forged[..32].copy_from_slice(id.object().as_bytes());
        records.push(forged);
        records.sort();
        fs_err::remove_file(&path).unwrap();
        let mut writer = TableWriter::create(&Disk::default(), &path, SHAPE).unwrap();
        records.iter().for_each(|record| writer.push(record).unwrap());
        writer.finish(&meta).unwrap();
    }
}

#[test]
fn a_commit_does_not_trust_a_foreign_index() {
    let scratch = Scratch::new();
    scratch.write("large", Corpus::Random.make_seeded(8_000, 1));
    scratch.commit();
    let victims = Corpus::Random.make_seeded(500, 2);
    forge_index(&scratch.store(), &BlobId::of(&victims));
    let copied = scratch.path("copied");
    copy(&scratch.store(), &copied);
    // Hashing the packs proves them, not the index.
    verified(&open(&copied), Data::All);
    scratch.write("mine", victims);
    let id = commit(&open(&copied), &scratch.source(), &options()).id.unwrap();
    assert_restores(&open(&copied), id, &scratch.source(), &scratch.path("restored"));
}

#[test]
fn a_foreign_index_finds_objects_of_packs_with_damaged_tables() {
    let scratch = Scratch::new();
    scratch.write("file", "content");
    scratch.commit();
    let copied = scratch.path("copied");
    copy(&scratch.store(), &copied);
    let packs = scratch.repo().store().packs();
    let path = copied.join("objects").join(packs[0].to_string());
    let mut bytes = fs_err::read(&path).unwrap();
    let at = bytes.len() - TRAILER_BYTES - 1;
    bytes[at] ^= 1;
    fs_err::remove_file(&path).unwrap();
    fs_err::write(&path, bytes).unwrap();
    for _ in 0..2 {
        let repo = open(&copied);
        let blob = BlobId::of(b"content").object();
        assert_eq!(*repo.store().object(&blob, ObjectKind::Blob).unwrap(), *b"content");
    }
}

#[test]
fn verify_rebuilds_an_index_that_disagrees_with_a_pack() {
    let scratch = Scratch::new();
    scratch.write("file", "content");
    scratch.commit();
    let forged = BlobId::of(b"nowhere");
    forge_index(&scratch.store(), &forged);
    let repo = scratch.repo();
    assert!(repo.store().locate(&forged.object()).unwrap().is_some());
    assert!(verified(&repo, Data::None).problems.is_empty());
    assert!(repo.store().locate(&forged.object()).unwrap().is_none());
}

#[test]
fn only_packs_written_or_hashed_locally_are_proven() {
    let scratch = Scratch::new();
    scratch.write("large", file());
    let id = scratch.commit().id.unwrap();
    let packs = scratch.repo().store().packs();
    let is_proven = |store: &Path| {
        let repo = open(store);
        packs.iter().all(|pack| repo.store().is_proven(pack))
    };
    assert!(is_proven(&scratch.store()), "what a commit wrote");

    // Other names of a pack, other modes, and a store that moves change nothing.
    let pack = scratch.repo().store().pack_path(&packs[0]);
    fs_err::hard_link(&pack, scratch.path("link")).unwrap();
    let moved = scratch.path("moved");
    fs_err::rename(scratch.store(), &moved).unwrap();
    assert!(is_proven(&moved), "what was moved");

    // A copy has all bytes, and also the list of proven packs.
    let copied = scratch.path("copied");
    copy(&moved, &copied);
    assert!(copied.join("cache/proven").exists());
    assert!(!is_proven(&copied), "what was copied");

    // A commit of the same files into the copy hashes what it relies on, and adds none of it.
    let again = commit(&open(&copied), &scratch.source(), &on_branch("again"));
    assert!(again.added.raw_bytes < 10_000, "{:?}", again.added);
    assert_restores(&open(&copied), id, &scratch.source(), &scratch.path("restored"));

    verified(&open(&copied), Data::None);
    assert!(!is_proven(&copied), "no content was hashed");
    let outcome = verified(&open(&copied), Data::All);
    assert!(outcome.problems.is_empty(), "{:?}", outcome.problems);
    assert!(is_proven(&copied), "what was verified");

    // Without the list of proven packs, nothing is proven.
    fs_err::remove_file(copied.join("cache/proven")).unwrap();
    assert!(!is_proven(&copied));
}

#[test]
fn the_objects_of_a_foreign_store_are_hashed_once() {
    let scratch = Scratch::new();
    scratch.write("large", file());
    scratch.write("small", "content");
    scratch.commit();
    let copied = scratch.path("copied");
    copy(&scratch.store(), &copied);
    open(&copied).store().hash_unproven_packs(&Silent).unwrap();
    let (small, large) = (BlobId::of(b"content").object(), list().object());
    let [pack] = open(&copied).store().packs()[..] else { panic!("one pack") };
    // Damage in place shows that nothing is read again.
    let path = open(&copied).store().pack_path(&pack);
    let frames = open(&copied).store().open_pack(&pack).unwrap().frames().to_vec();
    for frame in frames {
        snap_core::disk::Disk::default().fill(&path, frame.offset, &[7]).unwrap();
    }
    let repo = open(&copied);
    assert!(repo.store().is_stored(&small).unwrap());
    assert!(repo.store().is_stored(&large).unwrap());
    assert!(repo.store().is_proven(&pack));

    for (forgery, objects) in forgeries() {
        let store = Crafted::of(&objects);
        store.repo().store().hash_unproven_packs(&Silent).unwrap();
        let shadows = store.repo().store().shadows();
        assert_eq!(shadows.table.entries().count(), 1, "{forgery}: the forged object is shadowed");
    }
}

#[test]
fn a_damaged_list_of_proven_packs_proves_no_pack_wrongly() {
    let scratch = Scratch::new();
    scratch.write("large", file());
    scratch.commit();
    let list = scratch.store().join("cache/proven");
    let lines = fs_err::read_to_string(&list).unwrap();
    let [pack] = scratch.repo().store().packs()[..] else { panic!("one pack") };
    for (text, is_proven) in [
        (String::new(), false),
        ("\0\u{fffd} \n\n".to_owned() + &lines, true),
        (lines[..lines.len() / 2].to_owned(), false),
        (lines[..lines.len() / 2].to_owned() + &lines, false),
        (lines.replace(&pack.to_string(), &PackId::from_bytes([7; 32]).to_string()), false),
    ] {
        fs_err::write(&list, &text).unwrap();
        assert_eq!(scratch.repo().store().is_proven(&pack), is_proven, "{text:?}");
    }
    fs_err::remove_file(&list).unwrap();
    fs_err::create_dir(&list).unwrap();
    scratch.write("more", "of it");
    let id = scratch.commit().id.unwrap();
    scratch.assert_restores(id);
}

#[test]
fn the_list_of_proven_packs_does_not_grow_with_the_commits() {
    let scratch = Scratch::new();
    for n in 0..200 {
        scratch.write("file", n.to_string());
        scratch.commit();
        compact::run(scratch.repo().store(), 3, &Silent).unwrap();
    }
    let packs = scratch.repo().store().pack_count();
    let lines = fs_err::read_to_string(scratch.store().join("cache/proven")).unwrap();
    assert!(
        lines.lines().count() <= 2 * packs + 70,
        "{} lines, {packs} packs",
        lines.lines().count()
    );
    let repo = scratch.repo();
    assert!(repo.store().packs().iter().all(|pack| repo.store().is_proven(pack)));
}

#[test]
fn merging_proves_what_it_hashes_and_leaves_out_forgeries() {
    // The pack with the forged chunk is too large for a merge with small packs.
    for (forgery, objects) in forgeries().drain(1..4) {
        let (store, scratch) = (Crafted::of(&objects), Scratch::new());
        let forged = store.repo().store().packs();
        for n in 0..9u8 {
            store.add(&[blob(&[n])]);
        }
        let before = store.repo().store().packs();
        let error = compact::run(store.repo().store(), 3, &Silent).unwrap_err();
        assert!(
            matches!(&error, StoreError::Damaged { pack, .. } if *pack == forged[0]),
            "{forgery}: {error}"
        );
        let repo = store.repo();
        let mut made = repo.store().packs();
        assert!(made.contains(&forged[0]) && repo.store().is_shadowed(&forged[0]), "{forgery}");
        made.retain(|pack| !before.contains(pack));
        assert!(!made.is_empty(), "{forgery}");
        for n in 0..9u8 {
            let place = repo.store().locate(&BlobId::of(&[n]).object()).unwrap().unwrap();
            let pack = repo.store().pack_id(place.pack).unwrap();
            assert_eq!(made.contains(&pack), repo.store().is_proven(&pack), "{forgery}");
        }
        assert_commit_stores_the_file(&scratch, &store.store(), forgery);
    }
}

#[test]
fn a_pack_with_a_forged_list_or_chunk_stays_partial() {
    let id = list().object();
    for (forgery, objects) in forgeries() {
        let from = Crafted::of(&objects);
        let (source, scratch) = (from.repo(), Scratch::new());
        let source = source.store();
        let outlines: Vec<_> =
            source.packs().iter().map(|id| source.outline(id).unwrap()).collect();
        scratch.repo().store().add_stubs(&outlines).unwrap();
        let elsewhere = Elsewhere::of(source);
        let repo = reaching(&scratch, &elsewhere);
        for pack in repo.store().partial_packs() {
            put(repo.store(), &elsewhere, &pack, &(0..elsewhere.bytes(&pack).len() as u64));
            let error = repo.store().complete(&pack, &Silent).unwrap_err();
            assert!(matches!(error, StoreError::Damaged { .. }), "{forgery}: {error}");
            assert!(repo.store().is_partial(&pack) && !repo.store().is_proven(&pack), "{forgery}");
        }
        assert!(!open(&scratch.store()).store().is_stored(&id).unwrap(), "{forgery}");
        assert_commit_stores_the_file(&scratch, &scratch.store(), forgery);
    }
}

#[test]
fn a_bundle_of_packs_that_share_a_chunk_list_has_it_once() {
    let objects = objects();
    let size = file().len() as u64;
    let (root, claim) = tree(leaf(&[(b"large", Body::Chunked(list(), size))]));
    // Which of the packs comes first depends on their ids.
    for filler in 0..6 {
        let store = Crafted::of(&[&objects[..], std::slice::from_ref(&claim)].concat());
        store.add(&[objects.last().unwrap().clone(), blob(&[filler])]);
        let id = store.commit(root);
        let bundle = packed(store.repo().store(), id, &[]);
        let target = Crafted::empty();
        assert_eq!(taken(target.repo().store(), &bundle).unwrap().commit, id);
    }
}

#[test]
fn bundling_a_foreign_store_refuses_a_forged_list_or_chunk() {
    for (forgery, mut objects) in forgeries().split_off(1) {
        let (root, claim) = tree(leaf(&[(b"iso", Body::Chunked(list(), file().len() as u64))]));
        objects.push(claim);
        let store = Crafted::of(&objects);
        let id = store.commit(root);
        let folder = temporary();
        let options = pack::PackOptions { since: Vec::new(), scratch: folder.path(), level: 3 };
        for _ in 0..2 {
            // The second time, the object is known to be wrong.
            let (repo, mut out) = (store.repo(), Vec::new());
            let error = pack::run(repo.store(), id, &options, &mut out, &Silent).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged, "{forgery}: {error}");
        }
        let scratch = Scratch::new();
        let honest = assert_commit_stores_the_file(&scratch, &store.store(), forgery);
        packed(store.repo().store(), honest, &[]);
    }
}
