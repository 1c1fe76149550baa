//! The differences between two trees, applied to the first one, give the second one.
//! What cannot be compared is reported.

use std::{collections::BTreeMap, os::unix::fs::PermissionsExt as _, path::PathBuf};

use parking_lot::Mutex;
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use snap_core::{
    base::{
        id::{CommitId, TreeId},
        kind::ErrorKind,
        limits,
        name::EntryName,
        observe::{Note, Observer, Silent},
    },
    format::{
        tree::{Entry, EntryKind, Metadata, split::FolderEncoder},
        wire::FormatError,
    },
    ops::{
        cat::CatError,
        diff::{
            self, Change, ChangeSide, ComparedFiles, ComparedFolder, ComparedKind, Detail,
            DiffError, DiffOptions, DiffOutcome, Limit, New, RenameDetection, Status,
        },
        list::{self, ListDepth},
    },
    repo::Repo,
    store::StoreError,
};

use crate::{
    crafted::{Body, Claim, Crafted, blob, leaf, node, tree},
    scratch::Scratch,
    trees::{Named, made, make, mode, name},
};

type Tree = BTreeMap<Vec<u8>, ChangeSide>;

/// Removes what only one of two ways to read an entry knows.
fn plain(mut item: ChangeSide) -> ChangeSide {
    if let ComparedKind::Folder { id } = &mut item.what {
        *id = None;
    }
    item
}

fn tree_of(repo: &Repo, id: CommitId) -> TreeId {
    repo.store().commit(&id).unwrap().tree
}

fn items(repo: &Repo, tree: TreeId) -> Tree {
    let mut items = Tree::new();
    let mut each = |path: &[u8], entry: &Entry| {
        items.insert(path.to_vec(), plain(entry.clone().into()));
        Ok(())
    };
    list::run(repo.store(), tree, b"", ListDepth::All, &Silent, &mut each).unwrap();
    items
}

fn run(
    repo: &Repo,
    (old, new): (Option<TreeId>, &New),
    options: &DiffOptions,
    observer: &dyn Observer,
) -> Result<(Vec<Change>, DiffOutcome), DiffError> {
    let mut changes = Vec::new();
    let mut each = |change| {
        changes.push(change);
        Ok(())
    };
    let outcome = diff::run(repo.store(), old, new, options, observer, &mut each)?;
    Ok((changes, outcome))
}

fn all() -> DiffOptions {
    DiffOptions { detail: Detail::All, ..DiffOptions::default() }
}

fn trees(repo: &Repo, old: TreeId, new: TreeId, options: &DiffOptions) -> Vec<Change> {
    run(repo, (Some(old), &New::Tree(Some(new))), options, &Silent).unwrap().0
}

fn folder(path: PathBuf) -> New {
    let (ignore, scope) = Default::default();
    let files = ComparedFiles::Folder(path);
    New::Folder(ComparedFolder { files, ignore, scope, reproducible: false })
}

fn apply(mut tree: Tree, changes: &[Change]) -> Tree {
    // Remove old paths first: a file may be renamed to the old path of another one.
    for change in changes {
        let gone = change.old_path.as_ref().unwrap_or(&change.path);
        if let Some(old) = &change.old {
            assert_eq!(tree.remove(gone), Some(plain(old.clone())));
        }
    }
    for change in changes {
        if let Some(new) = &change.new {
            assert_eq!(tree.insert(change.path.clone(), plain(new.clone())), None);
        }
    }
    tree
}

/// A name, and its entry before and after.
type Twice = (Vec<u8>, Option<(u32, crate::trees::Made)>, Option<(u32, crate::trees::Made)>);

fn twice() -> impl Strategy<Value = Twice> {
    (name(), (mode(), made()), (mode(), made()), 0..6_u8).prop_map(
        |(name, old, new, how)| match how {
            0 => (name, None, Some(new)),
            1 => (name, Some(old), None),
            2 => (name, Some(old), Some(new)),
            3 => (name, Some((old.0, old.1.clone())), Some((new.0, old.1))),
            _ => (name, Some(old.clone()), Some(old)),
        },
    )
}

fn side(all: &[Twice], which: impl Fn(&Twice) -> &Option<(u32, crate::trees::Made)>) -> Vec<Named> {
    let named = all
        .iter()
        .filter_map(|twice| which(twice).clone().map(|(mode, made)| (twice.0.clone(), mode, made)));
    named.collect()
}

/// Turns the first tree into the second one, and keeps the files that both have, so
/// that they stay unchanged.
fn turn(scratch: &Scratch, old: &[Named], new: &[Named]) {
    let kept = scratch.path("kept");
    for (at, (name, mode, made)) in old.iter().enumerate() {
        let path = scratch.source().join(os(name));
        let stays =
            new.iter().any(|other| format!("{other:?}") == format!("{:?}", (name, mode, made)));
        if fs_err::symlink_metadata(&path).is_err() || stays {
            continue;
        }
        // Some files come back under another name.
        fs_err::create_dir_all(&kept).unwrap();
        if at % 3 == 0 && path.is_file() && !path.is_symlink() {
            let moved = scratch.source().join(format!("moved {at}"));
            if fs_err::symlink_metadata(&moved).is_err() {
                fs_err::rename(&path, moved).unwrap();
                continue;
            }
        }
        remove(&path);
    }
    make(&scratch.source(), new, &mut None);
}

fn os(name: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name)
}

fn remove(path: &std::path::Path) {
    if path.is_dir() && !path.is_symlink() {
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        fs_err::remove_dir_all(path).unwrap();
    } else {
        fs_err::remove_file(path).unwrap();
    }
}

/// Removes what is not read from the user's folder: the ids of contents that certainly
/// differ, and their holes.
fn as_seen_in_folder(mut changes: Vec<Change>, seen: &[Change]) -> Vec<Change> {
    for (change, seen) in changes.iter_mut().zip(seen) {
        for (side, seen) in [(&mut change.old, &seen.old), (&mut change.new, &seen.new)] {
            let (Some(side), Some(seen)) = (side, seen) else { continue };
            if let ComparedKind::Folder { id } = &mut side.what {
                *id = None;
            }
            if let (ComparedKind::File { id, .. }, ComparedKind::File { id: None, .. }) =
                (&mut side.what, &seen.what)
            {
                *id = None;
                side.metadata.sparse = seen.metadata.sparse;
            }
        }
    }
    changes
}

#[test]
fn applying_a_diff_turns_one_tree_into_the_other() {
    let run_all =
        TestRunner::new(snap_testkit::property::cases(64)).run(&vec(twice(), 0..10), |all_names| {
            let scratch = Scratch::new();
            let (before, after) =
                (side(&all_names, |twice| &twice.1), side(&all_names, |twice| &twice.2));
            make(&scratch.source(), &before, &mut None);
            let old = scratch.commit().id.unwrap();
            turn(&scratch, &before, &after);
            let repo = scratch.repo();
            let old = tree_of(&repo, old);
            let (in_folder, _) =
                run(&repo, (Some(old), &folder(scratch.source())), &all(), &Silent).unwrap();

            let new = tree_of(&repo, scratch.commit().id.unwrap());
            let repo = scratch.repo();
            for renames in [RenameDetection::Find, RenameDetection::Ignore] {
                let options = DiffOptions { renames, ..all() };
                let changes = trees(&repo, old, new, &options);
                prop_assert_eq!(apply(items(&repo, old), &changes), items(&repo, new));
                let back = trees(&repo, new, old, &options);
                prop_assert_eq!(apply(items(&repo, new), &back), items(&repo, old));
                let sound =
                    |change: &Change| change.old_path.is_none() || change.item().what.bytes() > 0;
                prop_assert!(changes.iter().all(sound));
            }
            let changes = trees(&repo, old, new, &all());
            prop_assert_eq!(
                as_seen_in_folder(changes, &in_folder),
                as_seen_in_folder(in_folder.clone(), &in_folder)
            );
            for tree in [old, new] {
                prop_assert_eq!(trees(&repo, tree, tree, &all()), []);
            }
            let now =
                run(&repo, (Some(new), &folder(scratch.source())), &all(), &Silent).unwrap().0;
            prop_assert_eq!(now, []);
            Ok(())
        });
    run_all.unwrap();
}

#[test]
fn without_an_old_or_new_tree_all_is_added_or_deleted() {
    let scratch = Scratch::new();
    scratch.write("a/b/c", "deep");
    scratch.write("d", "flat");
    let id = scratch.commit().id.unwrap();
    let repo = scratch.repo();
    let (changes, outcome) =
        run(&repo, (None, &folder(scratch.source())), &all(), &Silent).unwrap();
    let paths: Vec<_> = changes.iter().map(|c| String::from_utf8_lossy(&c.path)).collect();
    assert_eq!(paths, ["a", "a/b", "a/b/c", "d"]);
    assert_eq!((outcome.added, outcome.folders_added, outcome.bytes_added), (2, 2, 8));
    let (gone, _) =
        run(&repo, (Some(tree_of(&repo, id)), &New::Tree(None)), &all(), &Silent).unwrap();
    assert!(gone.iter().all(|change| change.status() == Status::Deleted));
    assert_eq!(gone.len(), 4);
}

#[test]
fn a_path_limit_excludes_all_other_changes() {
    let scratch = Scratch::new();
    for name in ["a/one", "a/two", "ab", "b/deep/x"] {
        scratch.write(name, name);
    }
    let old = scratch.commit().id.unwrap();
    for name in ["a/one", "ab", "b/deep/x"] {
        scratch.write(name, "another content");
    }
    fs_err::remove_file(scratch.source().join("a/two")).unwrap();
    let new = scratch.commit().id.unwrap();
    let repo = scratch.repo();
    let (old, new) = (tree_of(&repo, old), tree_of(&repo, new));
    for (limit, expected) in [
        (&["a"][..], &["a/one", "a/two"][..]),
        (&["b/deep/x", "ab"], &["ab", "b/deep/x"]),
        (&["a/two"], &["a/two"]),
        (&["nothing"], &[]),
    ] {
        let limit = Limit::to(limit.iter().map(|path| path.as_bytes().to_vec()).collect());
        let options = DiffOptions { limit, ..DiffOptions::default() };
        for new in [New::Tree(Some(new)), folder(scratch.source())] {
            let (changes, _) = run(&repo, (Some(old), &new), &options, &Silent).unwrap();
            let paths: Vec<_> = changes.iter().map(|c| String::from_utf8_lossy(&c.path)).collect();
            assert_eq!(paths, expected);
        }
    }
}

/// Makes a folder of 50,000 files. The files in `changed` have another content. Only
/// nodes for which `keep` returns true are stored.
fn large(changed: &[usize], keep: &mut dyn FnMut(TreeId) -> bool) -> (TreeId, Vec<Claim>) {
    let mut claims = Vec::new();
    let mut encoder = FolderEncoder::new();
    let mut put = |id: TreeId, bytes: Vec<u8>| {
        if keep(id) {
            claims.push(tree(bytes).1);
        }
        Ok::<_, FormatError>(())
    };
    for number in 0..50_000 {
        let content = blob(if changed.contains(&number) { b"changed" } else { b"content" });
        let id = snap_core::base::id::BlobId::from_object(content.0);
        let entry = Entry {
            name: EntryName::new(format!("{number:06}").as_bytes()).unwrap(),
            kind: EntryKind::File { size: 7, id: id.into() },
            metadata: Metadata { mode: 0o644, ..Metadata::default() },
        };
        encoder.push(entry, &Default::default(), &mut put).unwrap();
    }
    let id = encoder.finish(&mut put).unwrap().id;
    (id, claims)
}

#[test]
fn equal_nodes_of_a_large_directory_are_not_opened() {
    let mut seen = std::collections::HashSet::new();
    let (old, _) = large(&[], &mut |id| seen.insert(id));
    let mut common = std::collections::HashSet::new();
    let (new, changed) = large(&[0, 30_000], &mut |id| match seen.contains(&id) {
        true => !common.insert(id),
        false => true,
    });
    assert!(common.len() > 5);
    let (_, kept) = large(&[], &mut |id| !common.contains(&id));
    let crafted = Crafted::of(&[changed, kept].concat());
    let repo = crafted.repo();
    let changes = trees(&repo, old, new, &DiffOptions::default());
    let paths: Vec<_> = changes.iter().map(|c| String::from_utf8_lossy(&c.path)).collect();
    assert_eq!(paths, ["000000", "030000"]);
    // A comparison with nothing reads the whole tree, and some of it is missing.
    let error =
        run(&repo, (None, &New::Tree(Some(new))), &DiffOptions::default(), &Silent).unwrap_err();
    assert!(matches!(&error, DiffError::Tree { path, .. } if path == "."), "{error}");
}

#[test]
fn trees_that_no_writer_makes_are_refused() {
    let id = snap_core::base::id::BlobId::of(b"x");
    let (inner, inner_claim) = tree(leaf(&[(b"a", Body::File(id, 1))]));
    let (wrong, wrong_claim) = tree(node(1, &[(b"b".to_vec(), inner), (b"c".to_vec(), inner)]));
    let (top, top_claim) = tree(leaf(&[(b"folder", Body::Folder(wrong))]));
    let crafted = Crafted::of(&[inner_claim, wrong_claim, top_claim]);
    let error = run(&crafted.repo(), (None, &New::Tree(Some(top))), &all(), &Silent).unwrap_err();
    let DiffError::Tree { path, source } = &error else { panic!("{error}") };
    assert_eq!(path, "folder");
    let StoreError::Object { id, .. } = &**source else { panic!("{source}") };
    assert_eq!(*id, inner.object());
    assert_eq!(error.kind(), ErrorKind::Damaged);

    // Nested folders, deeper than the limit.
    let mut claims = Vec::new();
    let (mut below, claim) = tree(leaf(&[]));
    claims.push(claim);
    for _ in 0..limits::DEPTH + 2 {
        let (id, claim) = tree(leaf(&[(b"d", Body::Folder(below))]));
        claims.push(claim);
        below = id;
    }
    let crafted = Crafted::of(&claims);
    let deep = run(&crafted.repo(), (None, &New::Tree(Some(below))), &all(), &Silent).unwrap_err();
    assert!(matches!(deep, DiffError::TooDeep { .. }), "{deep}");
}

/// An observer that collects all notes.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Observer for Told {
    fn note(&self, note: Note<'_>) {
        self.0.lock().push(format!("{note:?}"));
    }
}

#[test]
fn rename_detection_is_skipped_above_the_candidate_limit() {
    let many = limits::RENAME_CANDIDATES / 2 + 1;
    let one = |from: usize| {
        let id = snap_core::base::id::BlobId::of(b"content");
        let mut encoder = FolderEncoder::new();
        let mut claims = Vec::new();
        let mut put = |_, bytes: Vec<u8>| {
            claims.push(tree(bytes).1);
            Ok::<_, FormatError>(())
        };
        for number in from..from + many {
            let entry = Entry {
                name: EntryName::new(format!("{number:06}").as_bytes()).unwrap(),
                kind: EntryKind::File { size: 7, id: id.into() },
                metadata: Metadata { mode: 0o644, ..Metadata::default() },
            };
            encoder.push(entry, &Default::default(), &mut put).unwrap();
        }
        let id = encoder.finish(&mut put).unwrap().id;
        (id, claims)
    };
    let (old, new) = (one(0), one(many));
    let crafted = Crafted::of(&[old.1, new.1].concat());
    let told = Told::default();
    let sides = (Some(old.0), &New::Tree(Some(new.0)));
    let (changes, outcome) = run(&crafted.repo(), sides, &DiffOptions::default(), &told).unwrap();
    assert_eq!((changes.len(), outcome.renamed), (2 * many, 0));
    let told = told.0.into_inner();
    assert_eq!(
        told,
        [format!("RenameDetectionSkipped {{ limit: {} }}", limits::RENAME_CANDIDATES)]
    );
}

#[test]
fn changes_in_a_large_folder_are_found() {
    let scratch = Scratch::new();
    for number in 0..5000 {
        scratch.write(&format!("large/{number:04}"), format!("{number}"));
        if number % 1000 == 0 {
            scratch.write(&format!("large/{number:04}.d/file"), "x");
        }
    }
    let id = scratch.commit().id.unwrap();
    let repo = scratch.repo();
    let old = tree_of(&repo, id);
    scratch.write("large/0007", "seven");
    scratch.write("large/2000.d/file", "other");
    let (changes, _) =
        run(&repo, (Some(old), &folder(scratch.source())), &DiffOptions::default(), &Silent)
            .unwrap();
    let paths: Vec<_> = changes.iter().map(|c| String::from_utf8_lossy(&c.path)).collect();
    assert_eq!(paths, ["large/0007", "large/2000.d/file"]);
}

#[test]
fn a_receiver_error_or_a_cancellation_ends_the_diff() {
    let scratch = Scratch::new();
    for number in 0..300 {
        scratch.write(&format!("{}/{number}", number % 20), "x");
    }
    let repo = scratch.repo();
    let mut seen = 0;
    let mut each = |_| {
        seen += 1;
        if seen == 10 { Err(std::io::Error::other("full").into()) } else { Ok(()) }
    };
    let result =
        diff::run(repo.store(), None, &folder(scratch.source()), &all(), &Silent, &mut each);
    // Changes that may be renames are held back until the end.
    assert!(matches!(result, Err(DiffError::Output(_))));
    assert_eq!(seen, 10);

    struct Stop;
    impl Observer for Stop {
        fn cancelled(&self) -> bool {
            true
        }
    }
    let result = run(&repo, (None, &folder(scratch.source())), &all(), &Stop);
    assert!(matches!(result, Err(DiffError::Blocked(_))));
}

#[test]
fn no_change_is_lost_when_threads_compare_small_folders() {
    let scratch = Scratch::new();
    for number in 0..6000 {
        scratch.write(&format!("{:03}/{number}", number / 20), "some text");
    }
    let id = scratch.commit().id.unwrap();
    scratch.write("030/new", "new");
    let repo = scratch.repo();
    let sides = (Some(tree_of(&repo, id)), &folder(scratch.source()));
    let options = DiffOptions { jobs: Some(3), ..all() };
    for _ in 0..100 {
        let (changes, _) = run(&repo, sides, &options, &Silent).unwrap();
        let new = changes.iter().filter(|change| change.path == b"030/new").count();
        assert_eq!(new, 1);
    }
}

#[test]
fn a_file_that_grew_after_its_comparison_is_not_read_whole() {
    let scratch = Scratch::new();
    let source = scratch.source();
    let id = scratch.commit().id.unwrap();
    for name in ["grows", "grows little"] {
        fs_err::write(source.join(name), "a line\n").unwrap();
    }
    let repo = scratch.repo();
    let new = folder(source.clone());
    let sides = (Some(tree_of(&repo, id)), &new);
    let changes = run(&repo, sides, &DiffOptions::default(), &Silent).unwrap().0;
    fs_err::write(source.join("grows"), vec![b'x'; 1 << 20]).unwrap();
    fs_err::write(source.join("grows little"), "a line\nanother\n").unwrap();
    let reader = diff::SideReader::new(repo.store(), &new, 8 << 20).unwrap();
    let read = |name: &str| {
        let change = changes.iter().find(|change| change.path == name.as_bytes()).unwrap();
        reader.new_side(&change.path, change.new.as_ref(), &Silent)
    };
    let Err(CatError::Output(grown)) = read("grows") else { panic!("it is read whole") };
    assert_eq!(grown.to_string(), "it grew while it was compared");
    let little = diff::SideContent::Bytes(b"a line\nanother\n".to_vec());
    assert_eq!(read("grows little").unwrap(), little);
}
