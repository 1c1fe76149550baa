//! Crafted stores: every invalid claim is refused quickly, and a restore never touches
//! anything outside its target.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use snap_core::{
    base::{
        blocked::Blocked,
        id::{BlobId, ChunkListId, CommitId, ContentId, ObjectId, TreeId},
        kind::ErrorKind,
        limits,
        observe::{Observer, Silent},
    },
    format::{
        chunk_list::{ChunkList, ZERO_CHUNK},
        pack::ObjectKind,
    },
    ops::{
        cat, diff, find, gc,
        inbox::accept,
        list::{self, ListDepth},
        missing_objects::{self, FetchRequest, HistoryDepth},
        reach::{self, ObjectSource, ReachError},
        recoverable::{Candidates, find_recoverable},
        restore::{self, Existing, Extras, RestoreError, RestoreSource},
        verify,
    },
    repo::{
        PastError, Repo,
        path::{PathInTreeError, resolve_path},
    },
    store::{
        ContentReader, Descend, Entries, Marks, ObjectLocation, ObjectWriter, Store, StoreError,
    },
};
use snap_testkit::{
    alone::{alone, peak_bytes},
    wait::PATIENCE,
};

use crate::crafted::{
    Body, Claim, Crafted, ForeignList, blob, chunk_list, chunked, foreign_lists, leaf, list_part,
    mib, node, tree,
};

/// Does work that must end. Without its limits it would take hours.
fn in_time<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    assert!(start.elapsed() < PATIENCE, "{what} took {:?}", start.elapsed());
    done
}

fn restore(crafted: &Crafted, tree: TreeId) -> Result<restore::RestoreOutcome, RestoreError> {
    fs_err::create_dir_all(crafted.target()).unwrap();
    let what = RestoreSource::Folder { tree, root: None };
    let options = restore::RestoreOptions {
        existing: Existing::Overwrite,
        extras: Extras::Delete,
        ..restore::RestoreOptions::default()
    };
    in_time("restore", || {
        restore::run(crafted.repo().store(), &what, &crafted.target(), &options, &Silent)
    })
}

/// Returns the number of entries.
fn list(repo: &Repo, tree: TreeId) -> Result<u64, list::ListError> {
    in_time("list", || {
        let mut entries = 0;
        list::run(repo.store(), tree, b"", ListDepth::All, &Silent, &mut |_, _| {
            entries += 1;
            Ok(())
        })?;
        Ok(entries)
    })
}

fn problems(repo: &Repo) -> Vec<String> {
    let all = verify::VerifyOptions { data: verify::Data::All };
    let found = in_time("verify", || verify::run(repo, &all, &Silent).unwrap());
    found.problems.iter().map(|problem| format!("{problem:?}")).collect()
}

/// Returns the paths of everything outside the target.
fn surroundings(crafted: &Crafted) -> Vec<String> {
    let walk = walkdir::WalkDir::new(crafted.dir.path().join("outside")).sort_by_file_name();
    walk.into_iter()
        .map(Result::unwrap)
        .filter(|entry| !entry.path().starts_with(crafted.target()))
        .map(|entry| entry.path().display().to_string())
        .collect()
}

#[test]
fn entries_with_names_that_no_folder_can_have_are_refused() {
    let content = blob(b"content");
    let id = BlobId::of(b"content");
    let bad: [&[&[u8]]; 12] = [
        &[b".."],
        &[b"."],
        &[b""],
        &[b"/etc/passwd"],
        &[b"a/b"],
        &[b"../x"],
        &[b"a\0b"],
        &[&[b'x'; 256]],
        &[b"same", b"same"],
        &[b"b", b"a"],
        &[b"a", b"..", b"z"],
        &[b"ok", b"ok/"],
    ];
    for names in bad {
        let entries: Vec<_> = names.iter().map(|name| (*name, Body::File(id, 7))).collect();
        let (root, claim) = tree(leaf(&entries));
        let crafted = Crafted::of(&[content.clone(), claim]);
        crafted.commit(root);
        let repo = crafted.repo();
        let error = repo.store().tree(&root).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{names:?}");
        assert!(matches!(error, StoreError::Object { .. }), "{names:?}: {error}");
        assert!(list(&repo, root).is_err());
        assert!(!problems(&repo).is_empty(), "{names:?}");
        fs_err::create_dir_all(crafted.target()).unwrap();
        let before = surroundings(&crafted);
        assert!(matches!(restore(&crafted, root), Err(RestoreError::Damaged { .. })), "{names:?}");
        assert_eq!(surroundings(&crafted), before);
        assert_eq!(fs_err::read_dir(crafted.target()).unwrap().count(), 0, "{names:?}");
    }
}

#[test]
fn duplicate_names_are_refused_but_case_differences_are_not() {
    let (inner, inner_claim) = tree(leaf(&[(b"f", Body::File(BlobId::of(b"x"), 1))]));
    let twice: [(&[u8], Body); 2] = [(b"a", Body::Symlink(b"/tmp")), (b"a", Body::Folder(inner))];
    let (root, claim) = tree(leaf(&twice));
    let crafted = Crafted::of(&[blob(b"x"), inner_claim, claim]);
    assert!(matches!(restore(&crafted, root), Err(RestoreError::Damaged { .. })));
    assert_eq!(fs_err::read_dir(crafted.target()).unwrap().count(), 0);

    let id = BlobId::of(b"x");
    let (root, claim) = tree(leaf(&[(b"NAME", Body::File(id, 1)), (b"name", Body::File(id, 1))]));
    let crafted = Crafted::of(&[blob(b"x"), claim]);
    restore(&crafted, root).unwrap();
    assert_eq!(fs_err::read_dir(crafted.target()).unwrap().count(), 2);
}

#[test]
fn a_restore_does_not_follow_symlinks_of_an_earlier_one() {
    let (inner, inner_claim) = tree(leaf(&[(b"f", Body::File(BlobId::of(b"x"), 1))]));
    let (trap, trap_claim) =
        tree(leaf(&[(b"a", Body::Symlink(b"../outside")), (b"b", Body::Symlink(b".."))]));
    let (through, through_claim) =
        tree(leaf(&[(b"a", Body::Folder(inner)), (b"b", Body::Folder(inner))]));
    let crafted = Crafted::of(&[blob(b"x"), inner_claim, trap_claim, through_claim]);
    let outside = crafted.dir.path().join("outside/outside");
    fs_err::create_dir_all(&outside).unwrap();
    fs_err::write(outside.join("kept"), "kept").unwrap();
    for tree in [trap, through, trap, through] {
        let before = surroundings(&crafted);
        restore(&crafted, tree).unwrap();
        assert_eq!(surroundings(&crafted), before);
    }
    assert!(crafted.target().join("a/f").is_file());
    assert!(!fs_err::symlink_metadata(crafted.target().join("a")).unwrap().is_symlink());
}

/// Makes nested folders. Returns the outermost one and all objects.
fn nested(depth: usize) -> (TreeId, Vec<Claim>) {
    let (mut id, claim) = tree(leaf(&[]));
    let mut claims = vec![claim];
    for _ in 0..depth {
        let (next, claim) = tree(leaf(&[(b"d", Body::Folder(id))]));
        claims.push(claim);
        id = next;
    }
    (id, claims)
}

#[test]
fn folders_nested_too_deep_are_refused() {
    for depth in [2_049, 100_000] {
        let (root, claims) = nested(depth);
        let crafted = Crafted::of(&claims);
        crafted.commit(root);
        let repo = crafted.repo();
        assert!(matches!(list(&repo, root), Err(list::ListError::TooDeep { .. })), "{depth}");
        let restored = restore(&crafted, root);
        assert!(matches!(restored, Err(RestoreError::TooDeep { .. })), "{depth}: {restored:?}");
        let problems = problems(&repo);
        assert!(problems.iter().any(|problem| problem.contains("Depth")), "{depth}: {problems:?}");
        let path = b"d/".repeat(depth);
        in_time("a path", || resolve_path(repo.store(), root, &path).map(drop)).unwrap();
        remove_deep(&crafted.target());
    }
}

/// Removes a deep tree with `rm`, because the paths are too long for the system.
pub(crate) fn remove_deep(path: &Path) {
    let removed = std::process::Command::new("rm").arg("-rf").arg(path).status().unwrap();
    assert!(removed.success());
}

#[test]
fn tree_nodes_with_a_wrong_level_are_refused() {
    let (one, one_claim) = tree(leaf(&[(b"a", Body::File(BlobId::of(b"x"), 1))]));
    let (two, two_claim) = tree(leaf(&[(b"m", Body::File(BlobId::of(b"x"), 1))]));
    let pair = [(b"a".to_vec(), one), (b"m".to_vec(), two)];
    let (low, low_claim) = tree(node(1, &pair));
    let (skipping, skipping_claim) = tree(node(3, &pair));
    let (same, same_claim) = tree(node(1, &[(b"a".to_vec(), low), (b"m".to_vec(), two)]));
    let (mixed, mixed_claim) = tree(node(2, &[(b"a".to_vec(), low), (b"m".to_vec(), two)]));
    let claims =
        [blob(b"x"), one_claim, two_claim, low_claim, skipping_claim, same_claim, mixed_claim];
    let crafted = Crafted::of(&claims);
    let repo = crafted.repo();
    assert_eq!(list(&repo, low).unwrap(), 2);
    for bad in [skipping, same, mixed] {
        assert!(list(&repo, bad).is_err());
        assert!(Entries::of(repo.store(), bad).any(|entry| entry.is_err()));
        assert!(matches!(restore(&crafted, bad), Err(RestoreError::Damaged { .. })));
    }
    for level in [5, 6, 255] {
        let (bad, claim) = tree(node(level, &pair));
        let crafted = Crafted::of(&[claim]);
        assert!(crafted.repo().store().tree(&bad).is_err(), "level {level}");
    }
    for children in [&pair[..0], &pair[..1]] {
        let (bad, claim) = tree(node(1, children));
        assert!(Crafted::of(&[claim]).repo().store().tree(&bad).is_err(), "a second form");
    }
}

#[test]
fn nodes_with_wrong_first_names_of_children_are_refused() {
    let (one, one_claim) = tree(leaf(&[(b"b", Body::File(BlobId::of(b"x"), 1))]));
    let (two, two_claim) = tree(leaf(&[(b"m", Body::File(BlobId::of(b"x"), 1))]));
    let claims = [blob(b"x"), one_claim, two_claim];
    for firsts in [["a", "m"], ["b", "l"], ["b", "n"]] {
        let (root, claim) = tree(node(1, &[(firsts[0].into(), one), (firsts[1].into(), two)]));
        let crafted = Crafted::of(&[&claims[..], &[claim]].concat());
        let repo = crafted.repo();
        assert!(list(&repo, root).is_err(), "{firsts:?}");
        assert!(Entries::of(repo.store(), root).any(|entry| entry.is_err()), "{firsts:?}");
        assert!(matches!(restore(&crafted, root), Err(RestoreError::Damaged { .. })), "{firsts:?}");
    }
}

#[test]
fn leaves_that_overlap_are_refused_by_every_walk() {
    let file = || Body::File(BlobId::of(b"x"), 1);
    let (one, one_claim) = tree(leaf(&[(b"a", file()), (b"c", file())]));
    let (two, two_claim) = tree(leaf(&[(b"b", file()), (b"d", file())]));
    let (split, claim) = tree(node(1, &[(b"a".to_vec(), one), (b"b".to_vec(), two)]));
    let (root, root_claim) = tree(leaf(&[(b"folder", Body::Folder(split))]));
    let crafted = Crafted::of(&[blob(b"x"), one_claim, two_claim, claim, root_claim]);
    let commit = crafted.commit(root);
    let (repo, id) = (crafted.repo(), one.object());
    let store = repo.store();
    let names_it =
        |error: &StoreError| matches!(error, StoreError::Object { id: at, .. } if *at == id);

    let error = list(&repo, root).unwrap_err();
    assert!(
        matches!(&error, list::ListError::Tree { path, source } if path == "folder" && names_it(source)),
        "{error}"
    );
    let error = diff::run(
        store,
        None,
        &diff::New::Tree(Some(root)),
        &diff::DiffOptions::default(),
        &Silent,
        &mut |_| Ok(()),
    )
    .unwrap_err();
    assert!(
        matches!(&error, diff::DiffError::Tree { path, source } if path == "folder" && names_it(source)),
        "{error}"
    );
    let error = resolve_path(store, root, b"folder/a").unwrap_err();
    assert!(matches!(&error, PathInTreeError::Store(source) if names_it(source)), "{error}");
    let marks = Marks::new(store);
    let error = reach::visit(store, &[commit], &mut |id, _| marks.mark(id), &Silent).unwrap_err();
    assert!(matches!(&error, ReachError::Store(source) if names_it(source)), "{error}");
    for paths in [Vec::new(), vec![b"folder/a".to_vec()]] {
        let wanted = [FetchRequest { commit, paths }];
        let error = missing_objects::find(store, &wanted, HistoryDepth::All, &Silent).unwrap_err();
        assert!(matches!(&error, ReachError::Store(source) if names_it(source)), "{error}");
    }
    let contents = [BlobId::of(b"x").into()].into();
    let mut wanted = Candidates { contents, ..Candidates::default() };
    find_recoverable(store, &[commit], &mut wanted, &Silent).unwrap();
    assert!(wanted.contents.is_empty(), "the second leaf is in order");
    assert!(matches!(restore(&crafted, root), Err(RestoreError::Damaged { .. })));
    let all = verify::VerifyOptions { data: verify::Data::All };
    let found = verify::run(&repo, &all, &Silent).unwrap();
    let affected: Vec<_> =
        found.touched.paths.iter().map(|touched| (&touched.path[..], touched.object)).collect();
    assert_eq!((found.problems.len(), affected), (1, vec![(&b"folder"[..], id)]));
}

#[test]
fn a_content_with_a_forged_object_is_not_recoverable() {
    let (list, sound) = chunked(&[&mib(1), &mib(2)]);
    let (_, other) = chunked(&[&mib(2), &mib(1)]);
    let forge = |at: usize, bytes: &[u8]| {
        let mut claims = sound.clone();
        claims[at].2 = bytes.to_vec();
        claims
    };
    for (told, claims, is_recoverable) in [
        ("sound", sound.clone(), true),
        ("the list", forge(2, &other[2].2), false),
        ("a chunk", forge(1, &mib(3)), false),
    ] {
        let (root, claim) = tree(leaf(&[(b"file", Body::Chunked(list, 2 << 20))]));
        let crafted = Crafted::of(&[claims, vec![claim]].concat());
        let commit = crafted.commit(root);
        let contents = [ContentId::Chunked(list)].into();
        let mut wanted = Candidates { contents, ..Candidates::default() };
        find_recoverable(crafted.repo().store(), &[commit], &mut wanted, &Silent).unwrap();
        assert_eq!(wanted.contents.is_empty(), is_recoverable, "{told}");
    }
}

#[test]
fn a_folder_of_ten_to_the_sixteenth_entries_is_refused_fast() {
    // There are only a few objects: each node names the one below 16,000 times.
    let names: Vec<Vec<u8>> = (0..16_000).map(|n| format!("{n:05}").into_bytes()).collect();
    for entries in [Vec::new(), vec![(&b"00000"[..], Body::File(BlobId::of(b"x"), 1))]] {
        let (mut id, claim) = tree(leaf(&entries));
        let mut claims = vec![blob(b"x"), claim];
        for level in 1..=4 {
            let children: Vec<_> = names.iter().map(|name| (name.clone(), id)).collect();
            let (next, claim) = tree(node(level, &children));
            // All nodes together fit in one frame, which holds at most 16 MiB.
            claims.push(claim);
            id = next;
        }
        let crafted = Crafted::of(&claims);
        crafted.commit(id);
        let repo = crafted.repo();
        assert!(list(&repo, id).is_err());
        assert!(in_time("entries", || Entries::of(repo.store(), id).any(|entry| entry.is_err())));
        assert!(restore(&crafted, id).is_err());
        assert!(!problems(&repo).is_empty());
    }
}

#[test]
fn objects_of_a_wrong_kind_or_id_are_refused() {
    let content = blob(b"not a tree at all");
    let as_tree = TreeId::from_object(content.0);
    let crafted = Crafted::of(std::slice::from_ref(&content));
    crafted.commit(as_tree);
    let repo = crafted.repo();
    let error = repo.store().tree(&as_tree).unwrap_err();
    assert!(matches!(error, StoreError::WrongKind { found: ObjectKind::Blob, .. }), "{error}");
    assert!(list(&repo, as_tree).is_err() && restore(&crafted, as_tree).is_err());
    assert!(!problems(&repo).is_empty());

    // A pack that has other bytes under an id: a tree that names itself, and a commit
    // that is its own parent.
    let wanted = ObjectId::from_bytes([7; 32]);
    let own = TreeId::from_object(wanted);
    let lies = [
        (ObjectKind::Tree, leaf(&[(b"me", Body::Folder(own))])),
        (ObjectKind::Commit, crate::crafted::commit(own).1.2),
        (ObjectKind::Blob, b"other bytes".to_vec()),
        (ObjectKind::Blob, Vec::new()),
    ];
    for (kind, bytes) in lies {
        let crafted = Crafted::of(&[(wanted, kind, bytes)]);
        let error = crafted.repo().store().object(&wanted, kind).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { wanted: id, .. } if id == wanted), "{error}");
        let repo = crafted.repo();
        assert!(repo.store().commit(&CommitId::from_object(wanted)).is_err());
        assert!(list(&repo, own).is_err());
        assert!(restore(&crafted, own).is_err());
    }
}

#[test]
fn the_right_copy_of_a_forged_list_or_chunk_is_used() {
    let chunks = [mib(1), mib(2), mib(3)];
    let whole = chunks.concat();
    let (list, right) = chunked(&chunks.each_ref().map(|chunk| &chunk[..]));
    let id = ContentId::Chunked(list);
    let (_, other) = chunked(&[&mib(2), &mib(1), &mib(3)]);
    for forged in
        [(right[1].0, ObjectKind::Blob, mib(4)), (right[3].0, right[3].1, other[3].2.clone())]
    {
        // The store looks into the pack with more objects first.
        for (fillers, is_met) in [(0, false), (9, true)] {
            let mut wrong: Vec<Claim> = (0..fillers).map(|filler| blob(&[filler])).collect();
            wrong.push(forged.clone());
            let crafted = Crafted::empty();
            let mut packs = [&wrong, &right].map(|objects| {
                crafted.add(objects);
                // Opening the store indexes the pack by itself.
                crafted.repo().store().packs()
            });
            let (tree, claim) = tree(leaf(&[(b"file", Body::Chunked(list, 3 << 20))]));
            crafted.add(&[claim]);
            let repo = crafted.repo();
            let store = repo.store();
            let first =
                store.locate(&forged.0).unwrap().and_then(|place| store.pack_id(place.pack));
            assert_eq!(first == packs[0].pop(), is_met, "{fillers}");
            let mut streamed = Vec::new();
            let reader = ContentReader::new(store);
            let read = reader.stream::<StoreError>(&id, Some(3 << 20), &mut |bytes| {
                streamed.extend_from_slice(bytes);
                Ok(())
            });
            assert!(read.is_ok() && streamed == whole, "{read:?}");
            let outcome = restore(&crafted, tree).unwrap();
            assert_eq!((outcome.files_written, outcome.bytes_written), (1, 3 << 20));
            assert!(fs_err::read(crafted.target().join("file")).unwrap() == whole);
        }
    }
}

#[test]
fn an_index_with_wrong_records_is_not_trusted() {
    let (one, two) = (blob(&[1; 100]), blob(&[2; 100]));
    let crafted = Crafted::of(&[one.clone(), two.clone()]);
    drop(crafted.repo());
    let files = fs_err::read_dir(crafted.store().join("index")).unwrap();
    let mut files = files.map(|entry| entry.unwrap().path());
    let path = files.find(|path| path.extension().is_some_and(|end| end == "idx")).unwrap();
    let whole = fs_err::read(&path).unwrap();
    let mut mismatches = 0;
    // Change the pack, kind, frame, offset and length of each record, and fix the
    // checksums.
    for record in [0, 48] {
        for (at, value) in [
            (32, 5),
            (35, 0x30),
            (35, 0xf0),
            (36, 9),
            (40, 50),
            (40, 200),
            (43, 255),
            (44, 99),
            (47, 255),
        ] {
            let mut bytes = whole.clone();
            let start = 4096 + 8;
            bytes[start + record + at] = value;
            let sum = snap_core::format::pack::checksum(&bytes[start..8192]);
            bytes[4096..start].copy_from_slice(&sum.to_le_bytes());
            fs_err::remove_file(&path).unwrap();
            fs_err::write(&path, bytes).unwrap();
            let repo = crafted.repo();
            for (id, kind, content) in [&one, &two] {
                match repo.store().object(id, *kind) {
                    Ok(read) => assert_eq!(read, *content),
                    // A place that the pack does not have is no damage of the pack.
                    Err(StoreError::IndexMismatch { pack }) => {
                        mismatches += 1;
                        assert!(!repo.store().is_shadowed(&pack));
                    }
                    Err(_) => {}
                }
                let mut out = Vec::new();
                if cat::run(repo.store(), &BlobId::from_object(*id).into(), None, &mut out, &Silent)
                    .is_ok()
                {
                    assert_eq!(out, *content);
                }
            }
        }
    }
    // A frame number, an offset and a length beyond the pack, in each of the records.
    assert!(mismatches >= 6, "{mismatches}");
}

/// A list that no writer makes is refused by everything that uses it, although it matches its id.
#[test]
fn inconsistent_chunk_lists_are_refused() {
    for ForeignList { told, id, size, mut claims } in foreign_lists() {
        let (root, claim) = tree(leaf(&[(b"file", Body::Chunked(id, size))]));
        claims.push(claim);
        let crafted = Crafted::of(&claims);
        crafted.commit(root);
        let repo = crafted.repo();
        let (mut sink, content) = (std::io::sink(), ContentId::Chunked(id));
        let read = in_time(told, || cat::run(repo.store(), &content, None, &mut sink, &Silent));
        assert!(read.is_err(), "{told}: {read:?}");
        let restored = restore(&crafted, root).unwrap_err();
        assert!(matches!(restored, RestoreError::Damaged { .. }), "{told}: {restored}");
        assert!(!crafted.target().join("file").exists(), "{told}");
        assert!(!problems(&repo).is_empty(), "{told} was not reported");
        // A writer looks for the id of a content that it has read. No such content has a list with
        // other lengths than those of its chunks.
        let writer = ObjectWriter::counting(repo.store(), 3).unwrap();
        let is_stored = writer.contains_content(&content).unwrap();
        assert_eq!(is_stored, told.ends_with("er than stated") && !told.contains("part"), "{told}");
    }
}

/// The id of a content is that of its list, so only the size in the entry may be wrong.
#[test]
fn a_size_that_differs_from_the_list_is_refused() {
    let (id, claims) = chunked(&[&mib(1), &mib(2)]);
    for size in [(1 << 20) + 1, (2 << 20) - 1, (2 << 20) + 1, u64::MAX] {
        let (root, claim) = tree(leaf(&[(b"file", Body::Chunked(id, size))]));
        let crafted = Crafted::of(&[&claims[..], &[claim]].concat());
        crafted.commit(root);
        let restored = restore(&crafted, root).unwrap_err();
        assert!(matches!(restored, RestoreError::Damaged { .. }), "{size}: {restored}");
        assert!(!crafted.target().join("file").exists(), "{size}");
        assert!(!problems(&crafted.repo()).is_empty(), "{size}");
        let (repo, mut out) = (crafted.repo(), Vec::new());
        let printed =
            cat::run(repo.store(), &ContentId::Chunked(id), Some(size), &mut out, &Silent);
        assert_eq!(printed.unwrap_err().kind(), ErrorKind::Damaged, "{size}");
        assert!(out.is_empty(), "{size}");
    }
}

/// The ids of a blob and of a list are right, but the entry says that it is the other one.
#[test]
fn an_entry_with_the_id_of_another_kind_is_refused() {
    let content = vec![7; 2 << 20];
    let (list, listed) = chunked(&[&mib(1), &mib(2)]);
    let blob_id = BlobId::of(&content);
    let as_blob = BlobId::from_object(list.object());
    let as_list = ChunkListId::from_object(blob_id.object());
    for (id, body, claims) in [
        (as_blob.into(), Body::File(as_blob, 2 << 20), listed),
        (ContentId::Chunked(as_list), Body::Chunked(as_list, 2 << 20), vec![blob(&content)]),
    ] {
        let (root, claim) = tree(leaf(&[(b"file", body)]));
        let crafted = Crafted::of(&[claims, vec![claim]].concat());
        let commit = crafted.commit(root);
        let repo = crafted.repo();
        let restored = restore(&crafted, root).unwrap_err();
        assert!(matches!(restored, RestoreError::Damaged { .. }), "{restored}");
        let printed = cat::run(repo.store(), &id, None, &mut Vec::new(), &Silent).unwrap_err();
        assert_eq!(printed.kind(), ErrorKind::Damaged, "{printed}");
        assert!(!problems(&repo).is_empty());
        let error = accept::check_commit(repo.store(), &commit, &[], false, &Silent).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    }
}

/// An entry of a blob states at most the length of a chunk, and an entry of a list more than a file
/// that is stored whole.
#[test]
fn an_entry_with_an_impossible_size_is_refused() {
    let list = ChunkListId::of(b"a list");
    for (body, is_right) in [
        (Body::File(BlobId::of(b"x"), 4 << 20), true),
        (Body::File(BlobId::of(b"x"), (4 << 20) + 1), false),
        (Body::File(BlobId::of(b"x"), u64::MAX), false),
        (Body::Chunked(list, 0), false),
        (Body::Chunked(list, 1 << 20), false),
        (Body::Chunked(list, (1 << 20) + 1), true),
        (Body::Chunked(list, u64::MAX), true),
    ] {
        let (root, claim) = tree(leaf(&[(b"file", body)]));
        let crafted = Crafted::of(&[claim]);
        assert_eq!(crafted.repo().store().tree(&root).is_ok(), is_right);
    }
}

#[test]
fn a_wrong_file_size_in_a_tree_is_reported() {
    for size in [0, 4, 6, u64::MAX] {
        let (root, claim) = tree(leaf(&[(b"file", Body::File(BlobId::of(b"12345"), size))]));
        let crafted = Crafted::of(&[blob(b"12345"), claim]);
        crafted.commit(root);
        assert!(!problems(&crafted.repo()).is_empty(), "{size}");
        if restore(&crafted, root).is_ok() {
            assert_eq!(fs_err::read(crafted.target().join("file")).unwrap(), b"12345");
        }
    }
}

#[test]
fn a_wrong_size_in_a_second_entry_of_a_content_is_refused() {
    let (id, claims) = chunked(&[&mib(1), &mib(2)]);
    let size = 2 << 20;
    let check = |second: u64| {
        let entries: [(&[u8], Body); 2] =
            [(b"a", Body::Chunked(id, size)), (b"b", Body::Chunked(id, second))];
        let (root, claim) = tree(leaf(&entries));
        let crafted = Crafted::of(&[&claims[..], &[claim]].concat());
        let commit = crafted.commit(root);
        accept::check_commit(crafted.repo().store(), &commit, &[], false, &Silent)
    };
    check(size).unwrap();
    for lie in [(1 << 20) + 1, size - 1, size + 1, u64::MAX] {
        let error = check(lie).unwrap_err();
        let why = std::error::Error::source(&error).unwrap().to_string();
        assert!(why.contains(&format!("has {size} bytes instead of {lie}")), "{why}");
    }
    check(0).unwrap_err();
}

/// Makes a list that names one part of zeros as often as a list can.
fn repetitive() -> (ChunkListId, u64, Vec<Claim>) {
    let (part, part_claim) = list_part(&vec![ZERO_CHUNK; limits::CHUNK_LIST_ENTRIES]);
    let list = ChunkList::Parts(vec![part; limits::CHUNK_LIST_PARTS]);
    let (id, claim) = chunk_list(&list);
    (id, list.total_bytes(), vec![blob(&vec![0; limits::CHUNK_BYTES]), part_claim, claim])
}

#[test]
fn a_chunk_list_of_millions_of_chunks_takes_bounded_memory() {
    alone("hostile::a_chunk_list_of_millions_of_chunks_takes_bounded_memory", || {
        let (id, size, claims) = repetitive();
        let (root, claim) = tree(leaf(&[(b"file", Body::Chunked(id, size))]));
        // The chunk is missing.
        let crafted = Crafted::of(&[&claims[1..], &[claim]].concat());
        crafted.commit(root);
        let repo = crafted.repo();
        let before = peak_bytes();
        let mut chunks = 0_u64;
        let walked = in_time("a long list", || {
            repo.store().for_each_named::<StoreError>(&id, &mut |_, kind| {
                chunks += u64::from(kind == ObjectKind::Blob);
                Ok(Descend::Enter)
            })
        });
        walked.unwrap();
        assert_eq!(chunks, limits::CHUNK_LIST_ENTRIES as u64, "the part is walked once");
        let content = ContentId::Chunked(id);
        assert!(cat::run(repo.store(), &content, None, &mut std::io::sink(), &Silent).is_err());
        assert!(restore(&crafted, root).is_err());
        assert!(!problems(&repo).is_empty());
        let grown = peak_bytes() - before;
        assert!(grown < 200 << 20, "{} MiB for a list with a missing chunk", grown >> 20);
    });
}

/// Counts the reads of each object.
struct CountingSource<'s> {
    store: &'s Store,
    reads: RefCell<BTreeMap<ObjectId, usize>>,
}

impl ObjectSource for CountingSource<'_> {
    fn locate(&self, id: &ObjectId) -> Result<Option<ObjectLocation>, StoreError> {
        self.store.locate(id)
    }

    fn object(&self, id: &ObjectId, kind: ObjectKind) -> Result<Vec<u8>, StoreError> {
        *self.reads.borrow_mut().entry(*id).or_default() += 1;
        self.store.object(id, kind)
    }

    fn is_here(&self, _: &ObjectId) -> Result<bool, StoreError> {
        Ok(true)
    }
}

/// Counts the questions whether to stop. A walk asks before each part and before the chunks of each
/// part that it enters.
#[derive(Default)]
struct Asked(AtomicUsize);

impl Observer for Asked {
    fn cancelled(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed);
        false
    }
}

/// 40 KB of list would otherwise cost millions of lookups.
#[test]
fn a_part_that_a_list_names_often_is_read_once() {
    let (id, size, mut claims) = repetitive();
    let part = claims[1].0;
    let (root, claim) = tree(leaf(&[(b"file", Body::Chunked(id, size))]));
    claims.push(claim);
    let crafted = Crafted::of(&claims);
    crafted.commit(root);
    let repo = crafted.repo();
    let counting = CountingSource { store: repo.store(), reads: RefCell::default() };
    let mut enter = |_: &ObjectId, _: &ObjectLocation| Ok(true);
    reach::visit_below(&counting, &[(id.object(), ObjectKind::ChunkList)], &mut enter, &Silent)
        .unwrap();
    assert_eq!(counting.reads.take(), [(id.object(), 1), (part, 1)].into());

    // Other walks ask once for each of the 1,024 names, and once more for a part that they enter. A
    // collection also asks for each chunk of the part.
    let (limit, packs) = (1_024 + 500, repo.store().packs());
    let packs: Vec<_> = packs.into_iter().map(|id| (id, repo.store().pack_path(&id))).collect();
    let (asked, target) = (Asked::default(), Crafted::empty());
    accept::prepare(target.repo().store(), &packs, &[], &asked).unwrap();
    let prepared = asked.0.into_inner();
    assert!((1_024..limit).contains(&prepared), "{prepared}");
    let asked = Asked::default();
    gc::run(&repo, &crate::gc::ALL, &asked).unwrap();
    let collected = asked.0.into_inner();
    let limit = limit + limits::CHUNK_LIST_ENTRIES;
    assert!((1_024..limit).contains(&collected), "{collected}");
    assert_eq!(problems(&repo), Vec::<String>::new());
}

/// Packs that are received together are walked together: each part is entered once.
#[test]
fn a_part_that_lists_of_many_packs_name_is_entered_once() {
    let (part, part_claim) = list_part(&vec![ZERO_CHUNK; limits::CHUNK_LIST_ENTRIES]);
    let sender = Crafted::of(&[blob(&vec![0; limits::CHUNK_BYTES]), part_claim]);
    let paths: Vec<String> = (2..100).map(|count| format!("{count:03}")).collect();
    let mut files = Vec::new();
    for (count, path) in (2..100).zip(&paths) {
        let list = ChunkList::Parts(vec![part; count]);
        let (id, claim) = chunk_list(&list);
        sender.add(&[claim]);
        files.push((path.as_bytes(), Body::Chunked(id, list.total_bytes())));
    }
    let repo = sender.repo();
    let packs: Vec<_> = repo.store().packs();
    let packs: Vec<_> = packs.into_iter().map(|id| (id, repo.store().pack_path(&id))).collect();
    let (asked, target) = (Asked::default(), Crafted::empty());
    let target = target.repo();
    let prepared = accept::prepare(target.store(), &packs, &[], &asked).unwrap();
    let names: usize = (2..100).sum();
    // A list that enters the part again asks once more.
    assert!((names..names + 50).contains(&asked.0.into_inner()));
    prepared.adopt(&Silent).unwrap();

    // So are the files of a snapshot whose missing objects are fetched: for the chunks once.
    let (root, claim) = tree(leaf(&files));
    sender.add(&[claim]);
    let (wanted, asked) =
        ([FetchRequest { commit: sender.commit(root), paths: Vec::new() }], Asked::default());
    missing_objects::find(sender.repo().store(), &wanted, HistoryDepth::All, &asked).unwrap();
    let names = names + limits::CHUNK_LIST_ENTRIES;
    assert!((names..names + 50).contains(&asked.0.into_inner()));
}

/// Makes a tree of 16^`levels` files in a few kilobytes: each folder names the next one
/// sixteen times.
fn expanding(levels: usize) -> (TreeId, Vec<Claim>) {
    let names: Vec<Vec<u8>> = (0..16).map(|at| format!("d{at:02}").into_bytes()).collect();
    let id = BlobId::of(b"x");
    let (mut root, claim) = tree(leaf(&[(b"f", Body::File(id, 1))]));
    let mut claims = vec![blob(b"x"), claim];
    for _ in 0..levels {
        let entries: Vec<(&[u8], Body)> =
            names.iter().map(|name| (&name[..], Body::Folder(root))).collect();
        let (above, claim) = tree(leaf(&entries));
        claims.push(claim);
        root = above;
    }
    (root, claims)
}

#[test]
fn a_search_in_an_expanding_tree_takes_bounded_memory() {
    alone("hostile::a_search_in_an_expanding_tree_takes_bounded_memory", || {
        let (root, claims) = expanding(24);
        let crafted = Crafted::of(&claims);
        let commit = crafted.commit(root);
        let repo = crafted.repo();
        let before = peak_bytes();
        for (pattern, most) in [("*", 60_000), ("f", 20_000), ("**/d1?/f", 20_000)] {
            let limit_bytes = 8 << 20;
            let options =
                find::FindOptions { limit_bytes, ..find::FindOptions::new(pattern.as_bytes()) };
            let (mut count, mut last) = (0, Vec::new());
            let mut each = |found: &find::FoundPath| {
                let path: Vec<Vec<u8>> =
                    found.path.split(|b| *b == b'/').map(<[u8]>::to_vec).collect();
                assert!(path > last, "{pattern}: a path is out of order or repeated");
                (count, last) = (count + 1, path);
                if count < most { Ok(()) } else { Err(Blocked::Interrupted.into()) }
            };
            let found = in_time(pattern, || {
                find::run(repo.store(), &[commit], &options, &Silent, &mut each)
            });
            assert!(matches!(found, Err(PastError::Blocked(_))), "{pattern}: {found:?}");
        }
        // A search for a name that does not occur ends quickly.
        let options = find::FindOptions::new(b"nothing");
        let mut each = |_: &find::FoundPath| Ok::<_, PastError>(());
        let found = in_time("nothing", || {
            find::run(repo.store(), &[commit], &options, &Silent, &mut each).unwrap()
        });
        assert_eq!((found.paths, found.trees), (0, 25));
        let grown = peak_bytes() - before;
        assert!(grown < 200 << 20, "{} MiB", grown >> 20);
    });
}
