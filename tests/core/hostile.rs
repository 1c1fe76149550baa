//! Crafted stores: whatever they claim is refused, and quickly, and nothing
//! outside the target of a restore is ever touched.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use snap_core::{
    base::{
        id::{BlobId, CommitId, ObjectId, TreeId},
        kind::ErrorKind,
        observe::Silent,
    },
    format::{
        chunk_list::{self, Piece, Pieces},
        pack::ObjectKind,
    },
    ops::{
        accept, cat, find,
        list::{self, Depth},
        restore::{self, Existing, Extras, RestoreError, What},
        verify,
    },
    repo::{PastError, Repo, path::resolve_path},
    store::{Entries, StoreError},
};

use crate::crafted::{Body, Claim, Crafted, blob, chunk_list, leaf, node, piece, tree};

/// Refusing must not take longer.
const SOON: Duration = Duration::from_secs(20);

fn in_time<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    assert!(start.elapsed() < SOON, "{what} took {:?}", start.elapsed());
    done
}

fn restore(crafted: &Crafted, tree: TreeId) -> Result<restore::Outcome, RestoreError> {
    fs_err::create_dir_all(crafted.target()).unwrap();
    let what = What::Folder { tree, root: None };
    let options = restore::Options {
        existing: Existing::Overwrite,
        extras: Extras::Delete,
        ..restore::Options::default()
    };
    in_time("restore", || {
        restore::run(crafted.repo().store(), &what, &crafted.target(), &options, &Silent)
    })
}

fn list(repo: &Repo, tree: TreeId) -> Result<list::Outcome, list::ListError> {
    in_time("list", || {
        list::run(repo.store(), (tree, b""), Depth::All, &Silent, &mut |_, _| Ok(()))
    })
}

fn problems(repo: &Repo) -> Vec<String> {
    let all = verify::Options { data: verify::Data::All };
    let found = in_time("verify", || verify::run(repo, &all, &Silent).unwrap());
    found.problems.iter().map(|problem| format!("{problem:?}")).collect()
}

/// Everything outside the target, as a text.
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
fn a_symlink_and_a_folder_of_one_name_are_refused_and_case_is_not() {
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
fn a_symlink_of_one_snapshot_leads_no_other_one_outside() {
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

/// Folders inside each other; the outermost one and all of them.
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

/// `remove_dir_all` itself takes deep trees, but paths must be short.
pub(crate) fn remove_deep(path: &Path) {
    let removed = std::process::Command::new("rm").arg("-rf").arg(path).status().unwrap();
    assert!(removed.success());
}

#[test]
fn nodes_that_are_not_in_levels_are_refused() {
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
    assert_eq!(list(&repo, low).unwrap().entries, 2);
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
fn nodes_whose_children_start_elsewhere_are_refused() {
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
fn a_folder_of_ten_to_the_sixteenth_entries_is_refused_at_once() {
    // Few objects: each node names the one below 16,000 times.
    let names: Vec<Vec<u8>> = (0..16_000).map(|n| format!("{n:05}").into_bytes()).collect();
    for entries in [Vec::new(), vec![(&b"00000"[..], Body::File(BlobId::of(b"x"), 1))]] {
        let (mut id, claim) = tree(leaf(&entries));
        let mut claims = vec![blob(b"x"), claim];
        for level in 1..=4 {
            let children: Vec<_> = names.iter().map(|name| (name.clone(), id)).collect();
            let (next, claim) = tree(node(level, &children));
            // Frames hold 16 MiB at most.
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
fn objects_of_another_kind_or_under_another_id_are_refused() {
    let content = blob(b"not a tree at all");
    let as_tree = TreeId::from_object(content.0);
    let crafted = Crafted::of(std::slice::from_ref(&content));
    crafted.commit(as_tree);
    let repo = crafted.repo();
    let error = repo.store().tree(&as_tree).unwrap_err();
    assert!(matches!(error, StoreError::WrongKind { found: ObjectKind::Blob, .. }), "{error}");
    assert!(list(&repo, as_tree).is_err() && restore(&crafted, as_tree).is_err());
    assert!(!problems(&repo).is_empty());

    // A pack that gives other bytes for an id: a tree that would name itself,
    // a commit that would be its own parent.
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
fn an_index_that_points_elsewhere_is_not_believed() {
    let (one, two) = (blob(&[1; 100]), blob(&[2; 100]));
    let crafted = Crafted::of(&[one.clone(), two.clone()]);
    drop(crafted.repo());
    let path =
        fs_err::read_dir(crafted.store().join("index")).unwrap().next().unwrap().unwrap().path();
    let whole = fs_err::read(&path).unwrap();
    // Each record's pack, kind, frame, offset and length, with right sums.
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
            let sum = snap_core::format::table::checksum(&bytes[start..8192]);
            bytes[4096..start].copy_from_slice(&sum.to_le_bytes());
            fs_err::remove_file(&path).unwrap();
            fs_err::write(&path, bytes).unwrap();
            let repo = crafted.repo();
            for (id, kind, content) in [&one, &two] {
                if let Ok(read) = repo.store().object(id, *kind) {
                    assert_eq!(read, *content);
                }
                let mut out = Vec::new();
                if cat::run(repo.store(), &BlobId::from_object(*id), &mut out, &Silent).is_ok() {
                    assert_eq!(out, *content);
                }
            }
        }
    }
}

#[test]
fn chunk_lists_that_lie_are_refused() {
    let (a, b) = (vec![1; 5_000], vec![2; 6_000]);
    let whole = BlobId::of(&[&a[..], &b[..]].concat());
    let (pa, pb) = (piece(&a), piece(&b));
    let longer = |by: i64, p: Piece| Piece { bytes: (i64::from(p.bytes) + by) as u32, ..p };
    let part = |pieces: &[Piece]| blob(&chunk_list::encode_part(pieces));
    let named =
        |claim: &Claim| Piece { id: BlobId::from_object(claim.0), bytes: claim.2.len() as u32 };
    let both = part(&[pa, pb]);
    let itself = Piece { id: whole, bytes: 11_000 };
    let missing = Piece { id: BlobId::of(b"nowhere"), bytes: 6_000 };
    let lists: Vec<(&str, u64, Pieces)> = vec![
        ("a total too large", 11_001, Pieces::Chunks(vec![pa, pb])),
        ("a total too small", 0, Pieces::Chunks(vec![pa, pb])),
        ("a missing chunk", 11_000, Pieces::Chunks(vec![pa, missing])),
        ("the wrong order", 11_000, Pieces::Chunks(vec![pb, pa])),
        ("a chunk too many", 16_000, Pieces::Chunks(vec![pa, pb, pa])),
        ("a chunk too few", 5_000, Pieces::Chunks(vec![pa])),
        ("itself", 11_000, Pieces::Chunks(vec![itself])),
        ("itself as a part", 11_000, Pieces::Parts(vec![itself])),
        ("nothing", 0, Pieces::Chunks(vec![])),
        ("no parts", 0, Pieces::Parts(vec![])),
        ("lengths that lie", 11_000, Pieces::Chunks(vec![longer(1, pa), longer(-1, pb)])),
        (
            "a length of 4 GiB",
            5_000 + u64::from(u32::MAX),
            Pieces::Chunks(vec![pa, Piece { bytes: u32::MAX, ..pb }]),
        ),
        ("a part that is no part", 11_000, Pieces::Parts(vec![pa])),
        ("a part that is missing", 11_000, Pieces::Parts(vec![missing])),
        ("parts with another total", 12_000, Pieces::Parts(vec![named(&both)])),
        ("parts twice", 22_000, Pieces::Parts(vec![named(&both), named(&both)])),
    ];
    for (told, total, pieces) in lists {
        let (root, claim) = tree(leaf(&[(b"file", Body::File(whole, 11_000))]));
        let list = chunk_list(whole, total, pieces);
        let crafted = Crafted::of(&[blob(&a), blob(&b), both.clone(), list, claim]);
        crafted.commit(root);
        let repo = crafted.repo();
        let mut out = Vec::new();
        let read = in_time(told, || cat::run(repo.store(), &whole, &mut out, &Silent));
        assert!(read.is_err() || BlobId::of(&out) == whole, "{told}");
        let restored = restore(&crafted, root);
        let file = crafted.target().join("file");
        match &restored {
            Ok(_) => assert_eq!(BlobId::of(&fs_err::read(&file).unwrap()), whole, "{told}"),
            Err(error) => {
                assert!(matches!(error, RestoreError::Damaged { .. }), "{told}: {error}");
                assert!(!file.exists(), "{told}");
            }
        }
        let expected = told == "lengths that lie" || told == "a length of 4 GiB";
        assert!(expected || restored.is_err() && read.is_err(), "{told} was believed");
        assert!(expected || !problems(&repo).is_empty(), "{told} was not found");
    }
}

#[test]
fn a_size_in_a_tree_that_lies_is_noticed() {
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
fn a_second_entry_that_lies_of_a_cut_content_is_noticed() {
    let id = BlobId::of(b"onetwo");
    let pieces = Pieces::Chunks(vec![piece(b"one"), piece(b"two")]);
    let list = chunk_list::ChunkList { total_bytes: 6, pieces };
    let list = (id.object(), ObjectKind::ChunkList, list.encode());
    let check = |second: u64| {
        let entries: [(&[u8], Body); 2] =
            [(b"a", Body::File(id, 6)), (b"b", Body::File(id, second))];
        let (root, claim) = tree(leaf(&entries));
        let crafted = Crafted::of(&[blob(b"one"), blob(b"two"), list.clone(), claim]);
        let commit = crafted.commit(root);
        accept::check_commit(crafted.repo().store(), &commit, &[], &Silent)
    };
    check(6).unwrap();
    for lie in [0, 5, 7, u64::MAX] {
        let error = check(lie).unwrap_err();
        let why = std::error::Error::source(&error).unwrap().to_string();
        assert!(why.contains(&format!("has 6 bytes, but its entry says {lie}")), "{why}");
    }
}

#[test]
fn a_chunk_list_of_a_billion_chunks_in_few_bytes_does_not_fill_the_memory() {
    let chunk = piece(b"x");
    let part = chunk_list::encode_part(&vec![chunk; 16_384]);
    let named = Piece { id: BlobId::of(&part), bytes: part.len() as u32 };
    let whole = BlobId::of(b"whatever");
    let list = chunk_list(whole, 5, Pieces::Parts(vec![named; 16_384]));
    let crafted = Crafted::of(&[blob(b"x"), blob(&part), list]);
    let repo = crafted.repo();
    let before = peak_bytes();
    let read =
        in_time("a long list", || cat::run(repo.store(), &whole, &mut std::io::sink(), &Silent));
    assert!(read.is_err());
    let grown = peak_bytes() - before;
    assert!(grown < 200 << 20, "{} MiB for a list that lies", grown >> 20);
}

/// A tree of 16^levels files in a few kilobytes: each folder names the next one
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
fn a_search_in_a_tree_that_expands_without_end_holds_little() {
    let (root, claims) = expanding(24);
    let crafted = Crafted::of(&claims);
    let commit = crafted.commit(root);
    let repo = crafted.repo();
    let before = peak_bytes();
    for (pattern, most) in [("*", 60_000), ("f", 20_000), ("**/d1?/f", 20_000)] {
        let limit_bytes = 8 << 20;
        let options = find::Options { limit_bytes, ..find::Options::new(pattern.as_bytes()) };
        let (mut count, mut last) = (0, Vec::new());
        let mut each = |found: &find::Found| {
            let path: Vec<Vec<u8>> = found.path.split(|b| *b == b'/').map(<[u8]>::to_vec).collect();
            assert!(path > last, "{pattern} is handed out in order, and each path once");
            (count, last) = (count + 1, path);
            if count < most { Ok(()) } else { Err(PastError::Interrupted) }
        };
        let found =
            in_time(pattern, || find::run(repo.store(), &[commit], &options, &Silent, &mut each));
        assert!(matches!(found, Err(PastError::Interrupted)), "{pattern}: {found:?}");
    }
    // What is nowhere is known soon.
    let options = find::Options::new(b"nothing");
    let mut each = |_: &find::Found| Ok::<_, PastError>(());
    let found = in_time("nothing", || {
        find::run(repo.store(), &[commit], &options, &Silent, &mut each).unwrap()
    });
    assert_eq!((found.paths, found.trees), (0, 25));
    let grown = peak_bytes() - before;
    assert!(grown < 200 << 20, "{} MiB", grown >> 20);
}

/// Most memory that this process has had.
fn peak_bytes() -> u64 {
    let status = fs_err::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
