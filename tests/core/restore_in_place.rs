//! A restore over existing files restores everything that the snapshot records.

#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::{
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

use snap_core::ops::restore::{Mode, RestoreError, RestoreOptions};
use snap_testkit::skip::{needs_root, skip};

use crate::restore_fixture::{Snapshot, assert_same, dirs, overwrite};

#[test]
fn a_capability_that_the_snapshot_lacks_is_removed() {
    if !needs_root() {
        return;
    }
    let (_dir, source, target) = dirs();
    fs_err::write(source.join("tool"), "x").unwrap();
    let snapshot = Snapshot::of(&source);
    snapshot.restore(&target).unwrap();
    // `CAP_NET_BIND_SERVICE`, permitted and effective.
    let mut capability = [0_u8; 20];
    capability[..8].copy_from_slice(&[1, 0, 0, 2, 0, 4, 0, 0]);
    let path = target.join("tool");
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&path, "security.capability", &capability, flags).is_err() {
        return skip("capabilities of a file", "the file system keeps none");
    }
    let inode = fs_err::metadata(&path).unwrap().ino();
    assert_eq!(snapshot.restore(&target).unwrap().files_own_attributes, 1);
    let outcome = snapshot.restore_with(&target, &overwrite()).unwrap();
    assert_eq!((outcome.repaired, outcome.files_written), (1, 0));
    assert_eq!(fs_err::metadata(&path).unwrap().ino(), inode);
    let mut value = [0_u8; 64];
    assert!(rustix::fs::getxattr(&path, "security.capability", &mut value).is_err());
    assert_eq!(snapshot.restore(&target).unwrap().repaired, 0);
}

fn blocks(path: &Path) -> u64 {
    fs_err::metadata(path).unwrap().blocks()
}

#[test]
fn filled_holes_of_a_sparse_file_are_punched_in_place() {
    let (_dir, source, target) = dirs();
    let file = fs_err::File::create(source.join("sparse")).unwrap();
    file.file().write_all_at(b"start", 0).unwrap();
    file.file().write_all_at(b"middle", (1 << 20) + 17).unwrap();
    file.set_len((3 << 20) + 100).unwrap();
    drop(file);
    let bytes = fs_err::read(source.join("sparse")).unwrap();
    if blocks(&source.join("sparse")) * 512 >= bytes.len() as u64 {
        return skip("filled holes", "the file system has no holes");
    }
    let snapshot = Snapshot::of(&source);
    fs_err::create_dir(&target).unwrap();
    let path = target.join("sparse");
    fs_err::write(&path, &bytes).unwrap();
    let inode = fs_err::metadata(&path).unwrap().ino();
    let outcome = snapshot.restore_with(&target, &overwrite()).unwrap();
    assert_eq!((outcome.files_written, outcome.repaired), (0, 1));
    assert_eq!(fs_err::metadata(&path).unwrap().ino(), inode);
    assert!(blocks(&path) < 100, "{}", blocks(&path));
    assert_same(&source, &target);
    // The same for a file that is written again.
    fs_err::write(&path, vec![1; bytes.len()]).unwrap();
    snapshot.restore_with(&target, &overwrite()).unwrap();
    assert!(blocks(&path) < 100, "{}", blocks(&path));
    assert_same(&source, &target);
}

#[test]
fn a_dry_run_finds_a_content_that_the_store_lacks() {
    let (_dir, source, target) = dirs();
    fs_err::write(source.join("here"), "here").unwrap();
    let lost = snap_core::base::id::BlobId::of(b"lost");
    let snapshot = Snapshot::made(None, |writer| {
        let kind = snap_core::format::tree::EntryKind::File { size: 4, id: lost.into() };
        let entries = vec![
            crate::restore_fixture::file(writer, "here", b"here"),
            crate::restore_fixture::plain("lost", kind),
        ];
        crate::restore_fixture::add_folder(writer, entries).0
    });
    for mode in [Mode::DryRun, Mode::Write] {
        let error =
            snapshot.restore_with(&target, &RestoreOptions { mode, ..overwrite() }).unwrap_err();
        assert!(matches!(error, RestoreError::Damaged { count: 1, .. }), "{mode:?}: {error}");
    }
}
