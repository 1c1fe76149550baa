//! Restore against attacks: links and folders planted in the target, invalid trees,
//! damaged packs, and stores in the way.

#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::{
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use snap_core::{
    base::{id::BlobId, kind::ErrorKind, observe::Silent},
    format::tree::{Entry, EntryKind, Owner, Xattr},
    ops::restore::{self, Ownership, RestoreError, RestoreOptions, RestoreSource},
    repo::path::{ResolvedPath, resolve_path},
};
use snap_testkit::skip::{needs_root, skip};
use snap_testkit::{bytes::Corpus, trees};

use crate::restore_fixture::{
    Snapshot, add_folder, assert_no_drafts, assert_same, assert_same_below, content, dirs, file,
    mirror, name, overwrite, plain,
};

#[test]
fn a_store_below_the_target_is_neither_removed_nor_changed() {
    let (dir, source, _) = dirs();
    fs_err::write(source.join("f"), "x").unwrap();
    let store_path;
    {
        let mut snapshot = Snapshot::of(&source);
        let target = tempfile::tempdir_in(dir.path()).unwrap().keep();
        store_path = target.join("deep/backup");
        fs_err::create_dir(target.join("deep")).unwrap();
        fs_err::rename(snapshot.store.dir(), &store_path).unwrap();
        let disk = snap_core::disk::Disk::default();
        snapshot.store = snap_core::store::Store::open(&store_path, disk, &Silent).unwrap();
        snapshot.restore_with(&target, &mirror()).unwrap();
        assert!(store_path.join("objects").is_dir());
        assert_eq!(fs_err::read(target.join("f")).unwrap(), b"x");
        // A tree that would overwrite files of the store.
        let writer = snap_core::store::ObjectWriter::new(&snapshot.store, 3, 1).unwrap();
        let (inner, _) = add_folder(&writer, vec![file(&writer, "config.toml", b"evil")]);
        let (deep, _) = add_folder(&writer, vec![plain("backup", EntryKind::Folder { id: inner })]);
        let (empty, _) = add_folder(&writer, Vec::new());
        let store = vec![
            file(&writer, "HEAD", b"main"),
            file(&writer, "config.toml", b"evil"),
            plain("objects", EntryKind::Folder { id: empty }),
        ];
        let (planted, _) = add_folder(&writer, store);
        let snap = vec![
            plain(".snap", EntryKind::Folder { id: planted }),
            plain("deep", EntryKind::Folder { id: deep }),
        ];
        let (tree, _) = add_folder(&writer, snap);
        writer.finish().unwrap();
        let what = RestoreSource::Folder { tree, root: None };
        let outcome = restore::run(&snapshot.store, &what, &target, &mirror(), &Silent).unwrap();
        assert_eq!(outcome.skipped, 2);
        assert!(!store_path.join("config.toml").exists() && !target.join(".snap").exists());
    }
}

#[test]
fn symlinks_in_the_target_are_not_followed() {
    let (dir, source, target) = dirs();
    fs_err::create_dir_all(source.join("folder/deep")).unwrap();
    fs_err::write(source.join("folder/deep/f"), "content").unwrap();
    fs_err::write(source.join("file"), "content").unwrap();
    let snapshot = Snapshot::of(&source);
    let outside = dir.path().join("outside");
    fs_err::create_dir_all(outside.join("deep")).unwrap();
    fs_err::write(outside.join("victim"), "precious").unwrap();
    fs_err::create_dir(&target).unwrap();
    symlink(&outside, target.join("folder")).unwrap();
    symlink(outside.join("victim"), target.join("file")).unwrap();

    let error = snapshot.restore(&target).unwrap_err();
    assert!(matches!(error, RestoreError::Differs { count: 2, .. }), "{error}");
    snapshot.restore_with(&target, &overwrite()).unwrap();
    assert_same(&source, &target);
    assert_eq!(fs_err::read(outside.join("victim")).unwrap(), b"precious");
    assert_eq!(fs_err::read_dir(outside.join("deep")).unwrap().count(), 0);
}

#[test]
fn a_folder_swapped_for_a_symlink_is_not_followed() {
    let (dir, source, target) = dirs();
    let outside = dir.path().join("outside");
    fs_err::create_dir(&outside).unwrap();
    trees::text_files(&source, 2000, 50).unwrap();
    let snapshot = Snapshot::of(&source);
    let folder = fs_err::read_dir(&source).unwrap().next().unwrap().unwrap().file_name();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (victim, aside) = (target.join(&folder), dir.path().join("aside"));
            while !stop.load(Ordering::Relaxed) {
                if fs_err::rename(&victim, &aside).is_ok() {
                    let _ = symlink(&outside, &victim);
                    std::thread::yield_now();
                    let _ = fs_err::remove_file(&victim);
                    let _ = fs_err::rename(&aside, &victim);
                }
            }
        });
        for _ in 0..20 {
            let _ = snapshot.restore_with(&target, &mirror());
            let _ = fs_err::remove_dir_all(&target);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs_err::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn damage_is_named_and_everything_else_restored() {
    let (_dir, source, target) = dirs();
    fs_err::write(source.join("good"), "good").unwrap();
    let bytes = Corpus::Random.make(6 << 20);
    fs_err::write(source.join("large"), &bytes).unwrap();
    fs_err::hard_link(source.join("large"), source.join("linked")).unwrap();
    let snapshot = Snapshot::of(&source);
    let pack = snapshot.pack_path();
    let mut stored = fs_err::read(&pack).unwrap();
    let at = stored.windows(64).position(|w| *w == bytes[3 << 20..(3 << 20) + 64]).unwrap();
    stored[at] ^= 1;
    fs_err::set_permissions(&pack, PermissionsExt::from_mode(0o644)).unwrap();
    fs_err::write(&pack, stored).unwrap();

    let found = resolve_path(&snapshot.store, snapshot.tree, b"large").unwrap();
    let ResolvedPath::Entry(Entry { kind: EntryKind::File { id: large, .. }, .. }) = found else {
        panic!("{found:?}")
    };
    let error = snapshot.restore_with(&target, &mirror()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    let RestoreError::Damaged { entries, count: 2, outcome, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!([&*entries[0].path, &*entries[1].path], ["large", "linked"].map(Path::new));
    for entry in entries {
        assert_eq!(entry.object, large.object());
        assert_eq!(entry.pack, Some(snapshot.store.packs()[0]));
    }
    let [first, other] = [&entries[0], &entries[1]].map(|entry| entry.source.to_string());
    assert_eq!(first, other, "a further name has the error of the first name");
    assert_eq!(outcome.files_written, 1);
    assert_eq!(fs_err::read(target.join("good")).unwrap(), b"good");
    assert!(!target.join("large").exists() && !target.join("linked").exists());
    assert_no_drafts(&target);
}

#[test]
fn a_blocking_folder_is_reported_before_damage() {
    let missing = EntryKind::File { size: 3, id: BlobId::of(b"abc").into() };
    let snapshot = Snapshot::made(None, |writer| {
        add_folder(writer, vec![file(writer, "f", b"x"), plain("gone", missing)]).0
    });
    let target = snapshot.dir.path().join("target");
    fs_err::create_dir_all(target.join("f/full")).unwrap();
    let error = snapshot.restore_with(&target, &overwrite()).unwrap_err();
    assert!(matches!(&error, RestoreError::Blocked { count: 1, .. }), "{error}");
    fs_err::remove_dir_all(target.join("f")).unwrap();
    let error = snapshot.restore_with(&target, &overwrite()).unwrap_err();
    assert!(matches!(&error, RestoreError::Damaged { count: 1, .. }), "{error}");
    assert_eq!(fs_err::read(target.join("f")).unwrap(), b"x");
}

#[test]
fn a_missing_content_is_named() {
    let kind = EntryKind::File { size: 3, id: BlobId::of(b"abc").into() };
    let snapshot = Snapshot::of_entries(vec![plain("f", kind)]);
    let target = snapshot.dir.path().join("target");
    let error = snapshot.restore(&target).unwrap_err();
    assert!(matches!(&error, RestoreError::Damaged { count: 1, .. }), "{error}");
    assert!(!target.join("f").exists());
}

#[test]
fn files_with_a_wrong_size_in_the_tree_are_not_written() {
    let snapshot = Snapshot::made(None, |writer| {
        let mut small = file(writer, "a", b"abc");
        small.kind = EntryKind::File { size: 4, id: BlobId::of(b"abc").into() };
        let EntryKind::File { id, .. } = content(writer, &vec![7; 5 << 20]) else { panic!() };
        let large = plain("b", EntryKind::File { size: (1 << 20) + 1, id });
        add_folder(writer, vec![small, large]).0
    });
    let target = snapshot.dir.path().join("target");
    let error = snapshot.restore(&target).unwrap_err();
    assert!(matches!(&error, RestoreError::Damaged { count: 2, .. }), "{error}");
    assert_eq!(fs_err::read_dir(&target).unwrap().count(), 0);
}

#[test]
fn a_depth_bomb_is_refused() {
    let snapshot = Snapshot::made(None, |writer| {
        let (mut id, _) = add_folder(writer, Vec::new());
        for _ in 0..2100 {
            id = add_folder(writer, vec![plain("d", EntryKind::Folder { id })]).0;
        }
        id
    });
    let target = snapshot.dir.path().join("target");
    let error = snapshot.restore(&target).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().ends_with("is nested deeper than 2048 folders"), "{error}");
}

#[test]
fn a_deep_tree_is_restored_compared_and_removed() {
    let long = "n".repeat(100);
    let snapshot = Snapshot::made(None, |writer| {
        let (mut id, _) = add_folder(writer, vec![file(writer, "bottom", b"x")]);
        for _ in 0..200 {
            id = add_folder(writer, vec![plain(&long, EntryKind::Folder { id })]).0;
        }
        id
    });
    let target = snapshot.dir.path().join("target");
    let outcome = snapshot.restore(&target).unwrap();
    assert_eq!((outcome.folders, outcome.files_written), (200, 1));
    assert_eq!(snapshot.restore(&target).unwrap().files_kept, 1);
    let writer = snap_core::store::ObjectWriter::new(&snapshot.store, 3, 1).unwrap();
    let (tree, _) = add_folder(&writer, Vec::new());
    writer.finish().unwrap();
    let what = RestoreSource::Folder { tree, root: None };
    restore::run(&snapshot.store, &what, &target, &mirror(), &Silent).unwrap();
    assert_eq!(fs_err::read_dir(&target).unwrap().count(), 0);
}

#[test]
fn a_tree_with_unsorted_leaves_is_damaged() {
    use snap_core::{
        base::id::TreeId,
        format::tree::{Child, Node, Totals},
    };
    let snapshot = Snapshot::made(None, |writer| {
        let leaf = |called: &str| {
            let (id, totals) = add_folder(writer, vec![file(writer, called, called.as_bytes())]);
            (Child { first: name(called), id }, totals)
        };
        let (twice, totals) = leaf("same");
        let children = vec![Child { first: name("a"), ..twice.clone() }, twice];
        let node = Node::Inner { level: 1, totals: Totals { files: 2, ..totals }, children };
        let bytes = node.encode();
        let id = TreeId::of(&bytes);
        writer.add_tree(id, &bytes).unwrap();
        id
    });
    let target = snapshot.dir.path().join("target");
    let error = snapshot.restore(&target).unwrap_err();
    assert!(matches!(&error, RestoreError::Damaged { count: 1, .. }), "{error}");
}

#[test]
fn files_restored_without_their_owner_lose_setuid() {
    if !needs_root() {
        return;
    }
    let (_dir, source, target) = dirs();
    fs_err::write(source.join("f"), "x").unwrap();
    std::os::unix::fs::chown(source.join("f"), Some(12_345), Some(12_345)).unwrap();
    fs_err::set_permissions(source.join("f"), PermissionsExt::from_mode(0o4755)).unwrap();
    let snapshot = Snapshot::of(&source);
    let options = RestoreOptions { ownership: Ownership::Leave, ..RestoreOptions::default() };
    snapshot.restore_with(&target, &options).unwrap();
    let meta = fs_err::metadata(target.join("f")).unwrap();
    assert_eq!((meta.uid(), meta.mode() & 0o7777), (0, 0o755));
    snapshot.restore_with(&target, &overwrite()).unwrap();
    assert_same(&source, &target);
}

#[test]
fn a_file_of_another_user_does_not_become_setuid() {
    if !needs_root() {
        return;
    }
    let (_dir, source, target) = dirs();
    fs_err::write(source.join("s"), "x").unwrap();
    fs_err::set_permissions(source.join("s"), PermissionsExt::from_mode(0o4755)).unwrap();
    let snapshot = Snapshot::of(&source);
    snapshot.restore(&target).unwrap();
    let at = target.join("s");
    std::os::unix::fs::chown(&at, Some(1001), Some(1001)).unwrap();
    let options = RestoreOptions { ownership: Ownership::Leave, ..overwrite() };
    for mode in [0o4755, 0o755] {
        fs_err::set_permissions(&at, PermissionsExt::from_mode(mode)).unwrap();
        snapshot.restore_with(&target, &options).unwrap();
        let meta = fs_err::metadata(&at).unwrap();
        assert_eq!((meta.uid(), meta.mode() & 0o7777), (1001, 0o755));
    }
}

#[test]
fn files_restored_without_their_owner_lose_capabilities() {
    if !needs_root() {
        return;
    }
    let (_dir, source, target) = dirs();
    let path = source.join("tool");
    fs_err::write(&path, "x").unwrap();
    let foreign = 12_345;
    std::os::unix::fs::chown(&path, Some(foreign), Some(foreign)).unwrap();
    // `CAP_NET_BIND_SERVICE`, permitted and effective.
    let mut capability = [0_u8; 20];
    capability[..8].copy_from_slice(&[1, 0, 0, 2, 0, 4, 0, 0]);
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&path, "security.capability", &capability, flags).is_err() {
        return skip("capabilities of a file", "the file system keeps none");
    }
    let has_capability =
        |path: &Path| rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64]).is_ok();
    let restored = target.join("tool");
    let snapshot = Snapshot::of(&source);
    let unowned = |existing| RestoreOptions { ownership: Ownership::Leave, ..existing };
    snapshot.restore_with(&target, &unowned(RestoreOptions::default())).unwrap();
    assert!(!has_capability(&restored));
    // With the owner, the file gets it; a restore in place without the owner removes it.
    snapshot.restore_with(&target, &overwrite()).unwrap();
    assert!(has_capability(&restored));
    let outcome = snapshot.restore_with(&target, &unowned(overwrite())).unwrap();
    assert_eq!((outcome.repaired, outcome.files_written), (1, 0));
    assert!(!has_capability(&restored));
    let outcome = snapshot.restore_with(&target, &unowned(overwrite())).unwrap();
    assert_eq!(outcome.repaired, 0);

    // The same file without a recorded owner.
    let writer = snap_core::store::ObjectWriter::new(&snapshot.store, 3, 1).unwrap();
    let mut entry = file(&writer, "tool", b"x");
    entry.metadata.xattrs = vec![Xattr {
        name: b"security.capability".as_slice().into(),
        value: capability.as_slice().into(),
    }];
    let (tree, _) = add_folder(&writer, vec![entry]);
    writer.finish().unwrap();
    let what = RestoreSource::Folder { tree, root: None };
    rustix::fs::setxattr(&restored, "security.capability", &capability, flags).unwrap();
    for target in [&target, &target.join("new")] {
        restore::run(&snapshot.store, &what, target, &overwrite(), &Silent).unwrap();
        assert!(!has_capability(&target.join("tool")));
    }
}

#[test]
fn files_with_an_invalid_owner_lose_setuid() {
    let (_dir, source, target) = dirs();
    let snapshot = Snapshot::of(&source);
    let writer = snap_core::store::ObjectWriter::new(&snapshot.store, 3, 1).unwrap();
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let owners = [("both", u32::MAX, u32::MAX), ("group", uid, u32::MAX), ("user", u32::MAX, gid)];
    let entries = owners.map(|(name, uid, gid)| {
        let mut entry = file(&writer, name, b"x");
        let owner = Owner { uid, gid, user: Default::default(), group: Default::default() };
        (entry.metadata.owner, entry.metadata.mode) = (Some(Arc::new(owner)), 0o6755);
        entry
    });
    let (tree, _) = add_folder(&writer, entries.to_vec());
    writer.finish().unwrap();
    let what = RestoreSource::Folder { tree, root: None };
    let options = RestoreOptions { ownership: Ownership::Apply, ..overwrite() };
    // The second restore compares the files that the first one made.
    for _ in 0..2 {
        restore::run(&snapshot.store, &what, &target, &options, &Silent).unwrap();
        for (name, ..) in owners {
            let meta = fs_err::metadata(target.join(name)).unwrap();
            assert_eq!((meta.uid(), meta.mode() & 0o7777), (uid, 0o755), "{name}");
        }
    }
}

#[test]
fn access_control_lists_of_the_target_are_not_inherited() {
    let (_dir, source, target) = dirs();
    fs_err::create_dir(source.join("d")).unwrap();
    fs_err::write(source.join("d/f"), "x").unwrap();
    fs_err::write(source.join("g"), "x").unwrap();
    let snapshot = Snapshot::of(&source);
    fs_err::create_dir(&target).unwrap();
    // Version 2, then tag, permissions and id of: owner, user 1, group, mask, others.
    let mut acl = vec![2, 0, 0, 0];
    for (tag, rights, id) in [
        (1_u16, 7_u16, u32::MAX),
        (2, 7, 1),
        (4, 5, u32::MAX),
        (16, 7, u32::MAX),
        (32, 5, u32::MAX),
    ] {
        acl.extend(tag.to_le_bytes());
        acl.extend(rights.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&target, "system.posix_acl_default", &acl, flags).is_err() {
        return skip("a default access control list", "the file system has none");
    }
    snapshot.restore(&target).unwrap();
    assert_same_below(&source, &target);
}
