//! Restore: the original content is restored, and nothing else is changed.

#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::{
    collections::BTreeSet,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use snap_core::{
    base::{
        id::BlobId,
        kind::ErrorKind,
        observe::{Note, Observer, Silent},
    },
    format::tree::Metadata,
    local::unfinished::{UNFINISHED_MODE, UNFINISHED_XATTR},
    ops::restore::{
        self, ContentLoss, Mode, RestoreAction, RestoreError, RestoreOptions, RestoreSource,
    },
};
use snap_testkit::{bytes::Corpus, trees};

use crate::restore_fixture::{
    Snapshot, add_folder, assert_no_drafts, assert_same, assert_same_below, dirs, file, mirror,
    odd, overwrite,
};

#[test]
fn an_odd_tree_is_restored_and_a_second_run_writes_nothing() {
    let (_dir, source, target) = dirs();
    odd(&source);
    let snapshot = Snapshot::of(&source);
    let outcome = snapshot.restore(&target).unwrap();
    assert_same(&source, &target);
    assert_eq!(outcome.not_applied, [], "root can apply everything");
    assert!(outcome.links > 0 && outcome.symlinks > 0 && outcome.others > 0, "{outcome:?}");

    let again = snapshot.restore(&target).unwrap();
    assert_same(&source, &target);
    assert_eq!((again.files_written, again.links, again.symlinks, again.folders), (0, 0, 0, 0));
    assert_eq!(again.repaired, 0, "{again:?}");
    let again = snapshot.restore_with(&target, &mirror()).unwrap();
    assert_eq!((again.files_written, again.removed, again.repaired), (0, 0, 0), "{again:?}");
}

#[test]
fn a_differing_file_stops_the_restore_before_any_write() {
    let (_dir, source, target) = dirs();
    for n in 0..40 {
        fs_err::write(source.join(format!("f{n:02}")), format!("{n:05}")).unwrap();
    }
    let snapshot = Snapshot::of(&source);
    fs_err::create_dir(&target).unwrap();
    for n in 0..15 {
        fs_err::write(target.join(format!("f{n:02}")), "other").unwrap();
    }
    let error = snapshot.restore(&target).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    let RestoreError::Differs { first, count } = &error else { panic!("{error}") };
    assert_eq!((first.len(), *count), (10, 15));
    assert!(error.to_string().ends_with("and 5 more differ from the snapshot"), "{error}");
    assert_eq!(fs_err::read_dir(&target).unwrap().count(), 15);

    let dry = RestoreOptions { mode: Mode::DryRun, ..overwrite() };
    let planned = snapshot.restore_with(&target, &dry).unwrap();
    assert_eq!((planned.files_written, planned.bytes_written), (40, 200));
    assert_eq!(fs_err::read_dir(&target).unwrap().count(), 15, "a dry run writes nothing");

    let done = snapshot.restore_with(&target, &overwrite()).unwrap();
    assert_eq!((done.files_written, done.bytes_written), (40, 200));
    assert_same(&source, &target);
}

#[test]
fn a_restore_detects_a_difference_of_equal_size_and_time() {
    let (_dir, source, target) = dirs();
    fs_err::write(source.join("f"), "right").unwrap();
    let snapshot = Snapshot::of(&source);
    snapshot.restore(&target).unwrap();
    let time = fs_err::metadata(source.join("f")).unwrap().modified().unwrap();
    fs_err::write(target.join("f"), "wrong").unwrap();
    std::fs::File::options()
        .write(true)
        .open(target.join("f"))
        .unwrap()
        .set_modified(time)
        .unwrap();
    assert!(matches!(snapshot.restore(&target), Err(RestoreError::Differs { count: 1, .. })));
    snapshot.restore_with(&target, &overwrite()).unwrap();
    assert_same(&source, &target);
}

#[test]
fn cached_files_are_not_read() {
    let (_dir, source, target) = dirs();
    fs_err::write(source.join("f"), "right").unwrap();
    let snapshot = Snapshot::of(&source);
    snapshot.restore(&target).unwrap();
    let asked = AtomicU64::new(0);
    let known = |stat: &rustix::fs::Stat| {
        asked.fetch_add(1, Ordering::Relaxed);
        (stat.st_size == 5).then(|| BlobId::of(b"right").into())
    };
    let options = RestoreOptions { known: Some(&known), ..overwrite() };
    fs_err::write(target.join("f"), "wrong").unwrap();
    let outcome = snapshot.restore_with(&target, &options).unwrap();
    assert_eq!((outcome.files_kept, asked.into_inner()), (1, 1));
}

#[test]
fn attributes_are_repaired_without_writing_content() {
    let (_dir, source, target) = dirs();
    odd(&source);
    let snapshot = Snapshot::of(&source);
    snapshot.restore(&target).unwrap();
    let path = target.join("attributes/file");
    let inode = fs_err::metadata(&path).unwrap().ino();
    fs_err::set_permissions(&path, PermissionsExt::from_mode(0o4751)).unwrap();
    rustix::fs::setxattr(&path, "user.extra", b"x", rustix::fs::XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(&path, "user.comment", b"changed", rustix::fs::XattrFlags::empty())
        .unwrap();
    let stat = || fs_err::metadata(&path).map(|meta| (meta.mode(), meta.ctime_nsec())).unwrap();
    let before = stat();
    let kept = snapshot.restore(&target).unwrap();
    assert_eq!((kept.repaired, kept.files_own_attributes, stat()), (0, 1, before));
    let outcome = snapshot.restore_with(&target, &overwrite()).unwrap();
    assert_eq!((outcome.repaired, outcome.files_written), (1, 0));
    assert_eq!(fs_err::metadata(&path).unwrap().ino(), inode);
    assert_same(&source, &target);
}

#[test]
fn an_existing_folder_keeps_its_attributes() {
    let (_dir, source, target) = dirs();
    fs_err::create_dir_all(source.join("d/new")).unwrap();
    fs_err::write(source.join("d/f"), "x").unwrap();
    let modes = |mode| std::fs::Permissions::from_mode(mode);
    fs_err::set_permissions(source.join("d"), modes(0o755)).unwrap();
    fs_err::set_permissions(source.join("d/new"), modes(0o750)).unwrap();
    let snapshot = Snapshot::of(&source);
    fs_err::create_dir_all(target.join("d")).unwrap();
    fs_err::set_permissions(target.join("d"), modes(0o700)).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(target.join("d"), "user.mine", b"x", flags).unwrap();
    let outcome = snapshot.restore(&target).unwrap();
    assert_eq!((outcome.folders_own_attributes, outcome.folders), (1, 1));
    let mode = |path: &str| fs_err::metadata(target.join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("d"), mode("d/new")), (0o700, 0o750));
    assert!(rustix::fs::getxattr(target.join("d"), "user.mine", &mut [0_u8; 8][..]).is_ok());
    // A difference only in the times is not reported.
    rustix::fs::removexattr(target.join("d"), "user.mine").unwrap();
    fs_err::set_permissions(target.join("d"), modes(0o755)).unwrap();
    assert_eq!(snapshot.restore(&target).unwrap().folders_own_attributes, 0);
    let done = snapshot.restore_with(&target, &overwrite()).unwrap();
    assert_eq!(done.repaired, 0, "{done:?}");
    assert_same(&source, &target);
}

/// Gives a folder the state in which a restore leaves it if it is killed before its
/// last pass.
fn set_unfinished(folder: &Path) {
    let mode = u32::from(UNFINISHED_MODE);
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(folder, UNFINISHED_XATTR, b"", flags).unwrap();
    fs_err::set_permissions(folder, PermissionsExt::from_mode(mode)).unwrap();
}

/// The mode of an unfinished folder alone is not enough to recognise one.
#[test]
fn a_closed_folder_with_the_unfinished_mode_stays_closed() {
    let (_dir, source, target) = dirs();
    fs_err::create_dir_all(source.join("box/below")).unwrap();
    fs_err::write(source.join("box/below/file"), "x").unwrap();
    let snapshot = Snapshot::of(&source);
    let closed = [target.clone(), target.join("box"), target.join("box/below")];
    for folder in &closed {
        fs_err::create_dir_all(folder).unwrap();
        fs_err::write(folder.join("key"), "secret").unwrap();
    }
    for folder in closed.iter().rev() {
        let mode = PermissionsExt::from_mode(u32::from(UNFINISHED_MODE));
        fs_err::set_permissions(folder, mode).unwrap();
    }
    let mode = |path: &Path| fs_err::metadata(path).unwrap().mode() & 0o7777;
    let outcome = snapshot.restore(&target).unwrap();
    assert_eq!(outcome.folders_own_attributes, 2, "{outcome:?}");
    assert_eq!(closed.each_ref().map(|folder| mode(folder)), [0o1700; 3]);
    // A marked folder whose owner has changed its mode since.
    set_unfinished(&closed[1]);
    fs_err::set_permissions(&closed[1], PermissionsExt::from_mode(0o700)).unwrap();
    snapshot.restore(&target).unwrap();
    assert_eq!(mode(&closed[1]), 0o700);
    let left = rustix::fs::getxattr(&closed[1], UNFINISHED_XATTR, &mut [0_u8; 8][..]);
    assert!(left.is_err(), "the mark is gone");
}

#[test]
fn a_folder_just_created_by_a_killed_restore_is_finished() {
    let (_dir, source, target) = dirs();
    fs_err::create_dir_all(source.join("box")).unwrap();
    fs_err::write(source.join("box/file"), "x").unwrap();
    let snapshot = Snapshot::of(&source);
    fs_err::create_dir_all(target.join("box")).unwrap();
    let mode = PermissionsExt::from_mode(u32::from(UNFINISHED_MODE));
    fs_err::set_permissions(target.join("box"), mode).unwrap();
    snapshot.restore(&target).unwrap();
    assert_same(&source.join("box"), &target.join("box"));
}

#[test]
fn folders_created_by_a_killed_restore_are_finished() {
    let (_dir, source, target) = dirs();
    odd(&source);
    let snapshot = Snapshot::of(&source);
    snapshot.restore(&target).unwrap();
    // The state after a restore that was killed before its last pass, just after it
    // made a link.
    let folders = walkdir::WalkDir::new(&target).into_iter().flatten();
    for folder in folders.filter(|entry| entry.file_type().is_dir()) {
        for xattr in ["user.comment", "system.posix_acl_access", "system.posix_acl_default"] {
            let _ = rustix::fs::removexattr(folder.path(), xattr);
        }
        set_unfinished(folder.path());
    }
    let link = walkdir::WalkDir::new(&target).into_iter().flatten();
    let link = link.into_iter().find(|entry| entry.path_is_symlink()).unwrap();
    let to = fs_err::read_link(link.path()).unwrap();
    fs_err::remove_file(link.path()).unwrap();
    symlink(to, link.path()).unwrap();
    let outcome = snapshot.restore(&target).unwrap();
    assert_eq!((outcome.files_own_attributes, outcome.folders_own_attributes), (0, 0));
    assert_eq!(outcome.files_written, 0);
    assert_same(&source, &target);
}

#[test]
fn a_completed_restore_leaves_no_unfinished_mark() {
    let (dir, source, _) = dirs();
    fs_err::create_dir(source.join("d")).unwrap();
    fs_err::write(source.join("d/f"), "x").unwrap();
    let snapshot = Snapshot::of(&source);
    let whats = [
        RestoreSource::Folder { tree: snapshot.tree, root: None },
        RestoreSource::Entry(Box::new(crate::restore_fixture::plain(
            "e",
            snap_core::format::tree::EntryKind::Folder { id: snapshot.tree },
        ))),
    ];
    for (number, what) in whats.iter().enumerate() {
        for include in [vec![], vec!["nothing".into()]] {
            let target = dir.path().join(format!("t{number}{}", include.len()));
            let options = RestoreOptions { include, ..RestoreOptions::default() };
            restore::run(&snapshot.store, what, &target, &options, &Silent).unwrap();
            for entry in walkdir::WalkDir::new(&target) {
                let mode = entry.unwrap().metadata().unwrap().mode();
                assert_eq!(mode & 0o1000, 0, "{mode:o}");
            }
        }
    }
}

#[test]
fn delete_removes_extra_files_but_no_store() {
    let (dir, source, target) = dirs();
    trees::text_files(&source, 250, 100).unwrap();
    let snapshot = Snapshot::of(&source);
    snapshot.restore(&target).unwrap();
    let outside = dir.path().join("outside");
    fs_err::create_dir(&outside).unwrap();
    fs_err::write(outside.join("precious"), "x").unwrap();
    fs_err::create_dir_all(target.join(".snap/objects")).unwrap();
    fs_err::write(target.join(".snap/lock"), "").unwrap();
    fs_err::create_dir_all(target.join("extra/deep/deeper")).unwrap();
    fs_err::write(target.join("extra/deep/deeper/f"), "x").unwrap();
    fs_err::write(target.join("extra-file"), "x").unwrap();
    symlink(&outside, target.join("extra/link")).unwrap();
    symlink(&outside, target.join("link")).unwrap();

    let seen = Mutex::new(Vec::new());
    let on_change = |path: &Path, change: RestoreAction, _: ContentLoss| {
        seen.lock().push((path.to_owned(), change));
    };
    let dry = RestoreOptions { mode: Mode::DryRun, on_change: Some(&on_change), ..mirror() };
    assert_eq!(snapshot.restore_with(&target, &dry).unwrap().removed, 7);
    let planned = std::mem::take(&mut *seen.lock());
    let paths = ["extra", "extra/deep", "extra/deep/deeper", "extra/deep/deeper/f", "extra/link"];
    let expected = paths.iter().chain(&["extra-file", "link"]);
    let expected: Vec<_> = expected.map(|p| (PathBuf::from(p), RestoreAction::Remove)).collect();
    assert_eq!(planned, expected);
    assert!(target.join("extra-file").exists());

    let options = RestoreOptions { on_change: Some(&on_change), ..mirror() };
    let outcome = snapshot.restore_with(&target, &options).unwrap();
    assert_eq!((outcome.removed, outcome.files_kept), (7, 250));
    assert!(target.join(".snap/objects").is_dir());
    assert!(outside.join("precious").exists());
    fs_err::remove_dir_all(target.join(".snap")).unwrap();
    assert_same_below(&source, &target);
}

#[test]
fn a_folder_that_blocks_a_file_is_removed_only_with_delete() {
    let (_dir, source, target) = dirs();
    fs_err::write(source.join("a"), "x").unwrap();
    fs_err::write(source.join("b"), "x").unwrap();
    symlink("nowhere", source.join("c")).unwrap();
    let snapshot = Snapshot::of(&source);
    for full in ["a", "c"] {
        fs_err::create_dir_all(target.join(full)).unwrap();
        fs_err::write(target.join(full).join("precious"), "x").unwrap();
    }
    fs_err::create_dir(target.join("b")).unwrap();
    assert!(matches!(snapshot.restore(&target), Err(RestoreError::Differs { count: 3, .. })));
    let error = snapshot.restore_with(&target, &overwrite()).unwrap_err();
    assert!(matches!(error, RestoreError::Blocked { count: 2, .. }), "{error}");
    assert_eq!(error.to_string(), "`a`, `c` are folders that are not empty");
    // Removable entries are still there: nothing is written before all conflicts are
    // known.
    assert!(target.join("a/precious").exists() && target.join("b").is_dir());
    snapshot.restore_with(&target, &mirror()).unwrap();
    assert_same(&source, &target);
}

#[test]
fn patterns_select_restored_and_removed_paths() {
    let (_dir, source, target) = dirs();
    for path in ["src/a.c", "src/a.o", "src/sub/b.c", "docs/x.md", "docs/y.txt", "top.c"] {
        fs_err::create_dir_all(source.join(path).parent().unwrap()).unwrap();
        fs_err::write(source.join(path), path).unwrap();
    }
    fs_err::create_dir(source.join("empty")).unwrap();
    let snapshot = Snapshot::of(&source);
    let options = RestoreOptions {
        include: vec!["src/".into(), "*.md".into()],
        exclude: vec!["*.o".into()],
        ..mirror()
    };
    fs_err::create_dir_all(target.join("src/gone")).unwrap();
    for stays in ["src/keep.o", "elsewhere.txt"] {
        fs_err::write(target.join(stays), "x").unwrap();
    }
    fs_err::write(target.join("src/gone/f.c"), "x").unwrap();
    let outcome = snapshot.restore_with(&target, &options).unwrap();
    assert_eq!((outcome.files_written, outcome.removed), (3, 2));
    for (path, there) in [
        ("src/a.c", true),
        ("src/sub/b.c", true),
        ("docs/x.md", true),
        ("src/keep.o", true),
        ("elsewhere.txt", true),
        ("src/a.o", false),
        ("docs/y.txt", false),
        ("top.c", false),
        ("empty", false),
        ("src/gone", false),
    ] {
        assert_eq!(target.join(path).exists(), there, "{path}");
    }
    let mtime = |dir: &Path| fs_err::metadata(dir.join("docs")).unwrap().modified().unwrap();
    assert_eq!(mtime(&source), mtime(&target));
}

#[test]
fn a_single_entry_is_restored_under_its_name() {
    let (_dir, source, target) = dirs();
    fs_err::create_dir_all(source.join("a/b")).unwrap();
    fs_err::write(source.join("a/b/f"), "x").unwrap();
    let snapshot = Snapshot::of(&source);
    let snap_core::format::tree::Node::Leaf { entries, .. } =
        snapshot.store.tree(&snapshot.tree).unwrap()
    else {
        panic!("a small folder is a leaf")
    };
    fs_err::create_dir(&target).unwrap();
    fs_err::write(target.join("bystander"), "x").unwrap();
    let what = RestoreSource::Entry(Box::new(entries[0].clone()));
    restore::run(&snapshot.store, &what, &target, &mirror(), &Silent).unwrap();
    assert_same(&source.join("a"), &target.join("a"));
    assert!(target.join("bystander").exists());
}

#[test]
fn large_sparse_and_duplicate_files_are_restored() {
    let (_dir, source, target) = dirs();
    let mut bytes = Corpus::Source.make(9 << 20);
    bytes.extend(vec![0; 3 << 20]);
    for copy in ["a", "b"] {
        fs_err::write(source.join(copy), &bytes).unwrap();
    }
    let sparse = fs_err::File::create(source.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(sparse.file(), b"end", 8 << 20).unwrap();
    sparse.set_len((8 << 20) + 5_000_000).unwrap();
    let snapshot = Snapshot::of(&source);
    let outcome = snapshot.restore(&target).unwrap();
    assert_eq!(outcome.files_written, 3);
    assert_same(&source, &target);
    assert!(fs_err::metadata(target.join("sparse")).unwrap().blocks() < 64);
}

#[test]
fn hard_links_are_restored_over_existing_files() {
    let (_dir, source, target) = dirs();
    fs_err::create_dir(source.join("d")).unwrap();
    fs_err::write(source.join("a"), "shared").unwrap();
    fs_err::hard_link(source.join("a"), source.join("b")).unwrap();
    fs_err::hard_link(source.join("a"), source.join("d/c")).unwrap();
    let snapshot = Snapshot::of(&source);
    assert_eq!(snapshot.restore(&target).unwrap().links, 2);
    assert_same(&source, &target);
    // One name becomes a separate file, one is removed.
    fs_err::remove_file(target.join("b")).unwrap();
    fs_err::write(target.join("b"), "shared").unwrap();
    fs_err::remove_file(target.join("d/c")).unwrap();
    let outcome = snapshot.restore(&target).unwrap();
    assert_eq!((outcome.links, outcome.files_own_attributes), (1, 1), "b is left alone");
    let outcome = snapshot.restore_with(&target, &overwrite()).unwrap();
    assert_eq!((outcome.links, outcome.files_written), (1, 0));
    assert_same_below(&source, &target);
    // The first name is changed, and so all of them.
    fs_err::write(target.join("a"), "changed").unwrap();
    assert!(matches!(snapshot.restore(&target), Err(RestoreError::Differs { count: 3, .. })));
    snapshot.restore_with(&target, &overwrite()).unwrap();
    assert_same(&source, &target);
    assert_no_drafts(&target);
}

#[test]
fn hard_links_with_different_attributes_are_split() {
    let snapshot = Snapshot::made(None, |writer| {
        let linked = |called: &str, mode: u16, link: u64| {
            let mut entry = crate::restore_fixture::file(writer, called, b"shared");
            (entry.metadata.mode, entry.metadata.link) = (mode, Some(link));
            entry
        };
        let entries = vec![
            linked("a", 0o644, 7),
            linked("b", 0o600, 7),
            linked("c", 0o644, 8),
            linked("d", 0o644, 8),
        ];
        crate::restore_fixture::add_folder(writer, entries).0
    });
    let (_dir, _, target) = dirs();
    let stat = |called: &str| fs_err::metadata(target.join(called)).unwrap();
    let assert_restored = || {
        assert_eq!(["a", "b"].map(|name| stat(name).mode() & 0o7777), [0o644, 0o600]);
        assert_ne!(stat("a").ino(), stat("b").ino());
        assert_eq!(stat("c").ino(), stat("d").ino());
    };
    let outcome = snapshot.restore(&target).unwrap();
    assert_eq!((outcome.files_written, outcome.links), (3, 1));
    assert_restored();
    // The names belong to one file in the target.
    fs_err::remove_file(target.join("b")).unwrap();
    fs_err::hard_link(target.join("a"), target.join("b")).unwrap();
    for written in [1, 0] {
        let outcome = snapshot.restore_with(&target, &overwrite()).unwrap();
        assert_eq!(outcome.files_written, written);
        assert_restored();
    }
}

#[test]
fn hard_links_with_equal_attributes_stay_linked() {
    let modes = [("a", 0o644), ("b", 0o600), ("c", 0o640), ("d", 0o600), ("e", 0o644)];
    let snapshot = Snapshot::made(None, |writer| {
        let entries = modes.map(|(called, mode)| {
            let mut entry = crate::restore_fixture::file(writer, called, b"shared");
            (entry.metadata.mode, entry.metadata.link) = (mode, Some(7));
            entry
        });
        crate::restore_fixture::add_folder(writer, entries.to_vec()).0
    });
    let (_dir, _, target) = dirs();
    let stat = |called: &str| fs_err::metadata(target.join(called)).unwrap();
    let assert_restored = || {
        for (called, mode) in modes {
            assert_eq!(stat(called).mode() & 0o7777, u32::from(mode), "{called}");
        }
        let inodes = modes.map(|(called, _)| stat(called).ino());
        assert_eq!((inodes[0], inodes[1]), (inodes[4], inodes[3]));
        assert_eq!(BTreeSet::from(inodes).len(), 3);
    };
    snapshot.restore(&target).unwrap();
    assert_restored();
    // All names belong to one file in the target, which has the attributes of one of them.
    for mode in [0o644, 0o600, 0o640, 0o777] {
        for (called, _) in &modes[1..] {
            fs_err::remove_file(target.join(called)).unwrap();
            fs_err::hard_link(target.join("a"), target.join(called)).unwrap();
        }
        fs_err::set_permissions(target.join("a"), PermissionsExt::from_mode(mode)).unwrap();
        snapshot.restore_with(&target, &overwrite()).unwrap();
        assert_restored();
        let again = snapshot.restore_with(&target, &overwrite()).unwrap();
        assert_eq!((again.files_written, again.links), (0, 0), "{mode:o}");
    }
}

#[test]
fn a_folder_that_blocks_a_hard_link_stops_the_restore() {
    for blocked in ["a", "b"] {
        let (_dir, source, target) = dirs();
        fs_err::write(source.join("a"), "shared").unwrap();
        fs_err::hard_link(source.join("a"), source.join("b")).unwrap();
        fs_err::hard_link(source.join("a"), source.join("c")).unwrap();
        let snapshot = Snapshot::of(&source);
        fs_err::create_dir_all(target.join(blocked)).unwrap();
        fs_err::write(target.join(blocked).join("precious"), "x").unwrap();
        let error = snapshot.restore_with(&target, &overwrite()).unwrap_err();
        assert!(matches!(error, RestoreError::Blocked { count: 1, .. }), "{error}");
        assert_eq!(error.to_string(), format!("`{blocked}` is a folder that is not empty"));
        assert!(!target.join("c").exists());
        snapshot.restore_with(&target, &mirror()).unwrap();
        assert_same_below(&source, &target);
    }
}

/// Cancels after a number of files, and collects notes.
#[derive(Default)]
struct Watcher {
    cancel_after: Option<u64>,
    files: AtomicU64,
    notes: Mutex<Vec<String>>,
}

impl Observer for Watcher {
    fn advance(&self, _: u64, files: u64) {
        self.files.fetch_add(files, Ordering::Relaxed);
    }

    fn note(&self, note: Note<'_>) {
        self.notes.lock().push(format!("{note:?}"));
    }

    fn cancelled(&self) -> bool {
        self.cancel_after.is_some_and(|after| self.files.load(Ordering::Relaxed) >= after)
    }
}

#[test]
fn an_interrupted_restore_resumes() {
    let (_dir, source, target) = dirs();
    trees::text_files(&source, 3000, 60).unwrap();
    let snapshot = Snapshot::of(&source);
    let watcher = Watcher { cancel_after: Some(1500), ..Watcher::default() };
    let options = RestoreOptions::default();
    let error =
        restore::run(&snapshot.store, &snapshot.what(), &target, &options, &watcher).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert_no_drafts(&target);
    let leftover = target.join(snap_core::local::write::temporary_name().as_os_str());
    fs_err::write(&leftover, "half").unwrap();
    let users_own = target.join(".snap-tmp-0123456789abcdef0123456789abcdef");
    fs_err::write(&users_own, "not ours").unwrap();
    let outcome = snapshot.restore(&target).unwrap();
    assert!(outcome.files_kept >= 1000 && outcome.files_written >= 1, "{outcome:?}");
    assert_eq!(fs_err::read_to_string(&users_own).unwrap(), "not ours");
    fs_err::remove_file(users_own).unwrap();
    assert_same_below(&source, &target);
}

#[test]
fn attributes_that_cannot_be_applied_are_reported_once() {
    let snapshot = Snapshot::made(None, |writer| {
        let xattr =
            snap_core::format::tree::Xattr { name: (*b"nonsense.x").into(), value: (*b"v").into() };
        let files = (0..5).map(|n| {
            let metadata =
                Metadata { mode: 0o644, xattrs: vec![xattr.clone()], ..Metadata::default() };
            snap_core::format::tree::Entry { metadata, ..file(writer, format!("{n}"), b"x") }
        });
        add_folder(writer, files.collect()).0
    });
    let target = snapshot.dir.path().join("target");
    let watcher = Watcher::default();
    let options = RestoreOptions::default();
    let outcome =
        restore::run(&snapshot.store, &snapshot.what(), &target, &options, &watcher).unwrap();
    assert_eq!(outcome.not_applied, [("extended attribute", 5)]);
    assert!(!outcome.is_complete());
    assert_eq!(outcome.files_written, 5);
    assert_eq!(watcher.notes.into_inner().len(), 1);
}

#[test]
fn a_dry_run_does_not_create_the_target() {
    let (_dir, source, target) = dirs();
    trees::text_files(&source, 120, 10).unwrap();
    let snapshot = Snapshot::of(&source);
    let dry = RestoreOptions { mode: Mode::DryRun, ..RestoreOptions::default() };
    let outcome = snapshot.restore_with(&target, &dry).unwrap();
    assert_eq!((outcome.files_written, outcome.bytes_written), (120, 1200));
    assert!(!target.exists());
}

#[test]
fn files_without_a_recorded_owner_are_restored_without_setuid() {
    let snapshot = Snapshot::made(None, |writer| {
        let mut program = crate::restore_fixture::file(writer, "program", b"x");
        program.metadata.mode = 0o6755;
        crate::restore_fixture::add_folder(writer, vec![program]).0
    });
    let target = snapshot.dir.path().join("target");
    for _again in 0..2 {
        snapshot.restore_with(&target, &overwrite()).unwrap();
        let mode = fs_err::metadata(target.join("program")).unwrap().mode() & 0o7777;
        assert_eq!(mode, 0o755);
    }
}
