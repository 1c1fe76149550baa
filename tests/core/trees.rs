//! For any content of a folder, a commit and a restore give the same content.

use std::{
    ffi::OsStr,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::Path,
};

use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use snap_testkit::trees;

use crate::scratch::{Scratch, check};

/// A kind of entry to create.
#[derive(Clone, Debug)]
pub(crate) enum Made {
    File(Vec<u8>, usize),
    Sparse(u64, Vec<u8>),
    Folder(Vec<(Vec<u8>, u32, Made)>),
    Symlink(Vec<u8>),
    HardLink,
    Fifo,
}

pub(crate) type Named = (Vec<u8>, u32, Made);

pub(crate) fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("no name", |byte| *byte != 0 && *byte != b'/');
    let bytes = prop_oneof![9 => vec(byte.clone(), 1..6), 1 => vec(byte, 250..=255)];
    bytes.prop_filter("no name", |name| {
        name != b"." && name != b".." && name != b".snap" && name != b".snapignore"
    })
}

pub(crate) fn made() -> impl Strategy<Value = Made> {
    let target = vec(1..=255_u8, 1..60);
    let leaf = prop_oneof![
        4 => (vec(any::<u8>(), 0..40), 0..400_usize).prop_map(|(bytes, times)| Made::File(bytes, times)),
        1 => Just(Made::File(Vec::new(), 0)),
        1 => (0..3_000_000_u64, vec(any::<u8>(), 1..50)).prop_map(|(hole, bytes)| Made::Sparse(hole, bytes)),
        1 => target.prop_map(Made::Symlink),
        1 => Just(Made::HardLink),
        1 => Just(Made::Fifo),
    ];
    leaf.prop_recursive(4, 40, 8, |inner| vec((name(), mode(), inner), 0..8).prop_map(Made::Folder))
}

pub(crate) fn mode() -> impl Strategy<Value = u32> {
    0..=0o7777_u32
}

/// Creates the entries. Skips names that exist already.
pub(crate) fn make(dir: &Path, named: &[Named], first_file: &mut Option<std::path::PathBuf>) {
    for (name, mode, made) in named {
        let path = dir.join(OsStr::from_bytes(name));
        if fs_err::symlink_metadata(&path).is_ok() {
            continue;
        }
        match made {
            Made::File(bytes, times) => fs_err::write(&path, bytes.repeat(*times)).unwrap(),
            Made::Sparse(hole, bytes) => {
                let file =
                    std::fs::File::options().write(true).create_new(true).open(&path).unwrap();
                std::os::unix::fs::FileExt::write_all_at(&file, bytes, *hole).unwrap();
            }
            Made::Folder(inside) => {
                fs_err::create_dir(&path).unwrap();
                make(&path, inside, first_file);
            }
            Made::Symlink(target) => {
                fs_err::os::unix::fs::symlink(OsStr::from_bytes(target), &path).unwrap();
                continue;
            }
            Made::HardLink => match first_file {
                Some(first) => {
                    fs_err::hard_link(first, &path).unwrap();
                    continue;
                }
                None => fs_err::write(&path, "first").unwrap(),
            },
            Made::Fifo => {
                let mode = rustix::fs::Mode::from_raw_mode(0o600);
                rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)
                    .unwrap();
            }
        }
        let is_root = rustix::process::geteuid().is_root();
        let readable = if is_root { *mode } else { *mode & 0o777 | 0o700 };
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(readable)).unwrap();
        if matches!(made, Made::File(..)) {
            first_file.get_or_insert(path);
        }
    }
}

/// Generates the content of a folder.
pub(crate) fn any_tree() -> impl Strategy<Value = Vec<Named>> {
    vec((name(), mode(), made()), 0..10)
}

/// Writes the content to a folder.
pub(crate) fn write_tree(dir: &Path, tree: &[Named]) {
    make(dir, tree, &mut None);
}

#[test]
fn restore_undoes_commit() {
    let run = TestRunner::new(snap_testkit::property::cases(48)).run(&any_tree(), |named| {
        let scratch = Scratch::new();
        write_tree(&scratch.source(), &named);
        let outcome = scratch.commit();
        prop_assert_eq!(outcome.skipped, 0);
        prop_assert_eq!(check(&scratch.repo()), Ok(1));
        scratch.assert_restores(outcome.id.unwrap());
        Ok(())
    });
    run.unwrap();
}

#[test]
fn the_odd_tree_is_committed_and_restored() {
    let scratch = Scratch::new();
    trees::odd(&scratch.source()).unwrap();
    let outcome = scratch.commit();
    assert_eq!(check(&scratch.repo()), Ok(1));
    if rustix::process::geteuid().is_root() {
        assert_eq!(outcome.skipped, 0);
        scratch.assert_restores(outcome.id.unwrap());
    }
    assert!(!scratch.commit().created);
}
