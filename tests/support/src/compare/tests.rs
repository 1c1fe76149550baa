//! Tests that make each kind of difference by hand and check that it is found.

use std::{
    io::Write as _,
    os::unix::fs::{PermissionsExt, chown},
};

use fs_err as fs;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use tempfile::TempDir;

use super::*;
use crate::trees;

/// Two equal folders, including times; a test changes the second one.
struct Pair {
    a: TempDir,
    b: TempDir,
}

impl Pair {
    fn new() -> Self {
        let pair = Self { a: tempfile::tempdir().unwrap(), b: tempfile::tempdir().unwrap() };
        for dir in [&pair.a, &pair.b] {
            let dir = dir.path();
            fs::create_dir(dir.join("folder")).unwrap();
            fs::write(dir.join("folder/file"), "content").unwrap();
            fs::write(dir.join("folder/other"), "content").unwrap();
            fs::hard_link(dir.join("folder/file"), dir.join("name")).unwrap();
            fs_err::os::unix::fs::symlink("folder", dir.join("symlink")).unwrap();
            for name in ["folder/file", "folder/other", "symlink", "folder", ""] {
                set_time(&dir.join(name), 5);
            }
        }
        assert_eq!(pair.differences(), Vec::<String>::new());
        pair
    }

    fn spoil(&self, name: &str) -> PathBuf {
        self.b.path().join(name)
    }

    fn differences(&self) -> Vec<String> {
        compare(self.a.path(), self.b.path(), &Options::default())
    }

    fn differences_but_times(&self) -> Vec<String> {
        let options = Options { times: false, ..Options::default() };
        compare(self.a.path(), self.b.path(), &options)
    }
}

fn set_time(path: &Path, nanos: i64) {
    let time = Timespec { tv_sec: 1_000_000_000, tv_nsec: nanos };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

#[test]
fn content_of_the_same_size_is_read() {
    let pair = Pair::new();
    fs::write(pair.spoil("folder/other"), "contend").unwrap();
    set_time(&pair.spoil("folder/other"), 5);
    assert_eq!(pair.differences(), [r#""folder/other": content: differs at byte 6"#]);
}

#[test]
fn a_difference_far_into_a_file_is_found() {
    let pair = Pair::new();
    let mut content = vec![7; 700_000];
    fs::write(pair.a.path().join("long"), &content).unwrap();
    content[600_001] = 8;
    fs::write(pair.spoil("long"), &content).unwrap();
    assert_eq!(pair.differences_but_times(), [r#""long": content: differs at byte 600001"#]);
}

#[test]
fn a_size_is_compared() {
    let pair = Pair::new();
    fs::write(pair.spoil("folder/other"), "longer content").unwrap();
    assert_eq!(pair.differences_but_times(), [r#""folder/other": size: 7, got 14"#]);
}

#[test]
fn missing_and_extra_files_are_named() {
    let pair = Pair::new();
    fs::rename(pair.spoil("folder/other"), pair.spoil("folder/another")).unwrap();
    assert_eq!(
        pair.differences_but_times(),
        [r#""folder/another": should not be there"#, r#""folder/other": missing"#]
    );
}

#[test]
fn file_types_and_entries_below_are_compared() {
    let pair = Pair::new();
    fs::remove_dir_all(pair.spoil("folder")).unwrap();
    fs::write(pair.spoil("folder"), "").unwrap();
    let found = pair.differences_but_times();
    assert_eq!(found[0], r#""folder": kind: folder, got file"#);
    assert!(found.contains(&r#""folder/file": missing"#.to_owned()), "{found:?}");
}

#[test]
fn twelve_mode_bits_are_compared() {
    for mode in [0o4644, 0o2644, 0o1644, 0o645, 0o600] {
        let pair = Pair::new();
        fs::set_permissions(pair.spoil("folder/other"), PermissionsExt::from_mode(mode)).unwrap();
        let wanted = format!(r#""folder/other": mode: 0644, got {mode:04o}"#);
        assert_eq!(pair.differences(), [wanted]);
    }
}

#[test]
fn times_of_all_entries_are_compared_to_the_nanosecond() {
    for name in ["folder/other", "folder", "symlink", ""] {
        let pair = Pair::new();
        set_time(&pair.spoil(name), 6);
        let wanted = format!("{name:?}: time: 1000000000+000000005ns, got 1000000000+000000006ns");
        assert_eq!(pair.differences(), [wanted]);
        assert_eq!(pair.differences_but_times(), Vec::<String>::new());
    }
}

#[test]
fn the_root_can_be_excluded() {
    let pair = Pair::new();
    set_time(pair.b.path(), 6);
    let options = Options { root: false, ..Options::default() };
    assert_eq!(compare(pair.a.path(), pair.b.path(), &options), Vec::<String>::new());
}

#[test]
fn owners_are_compared() {
    let pair = Pair::new();
    if chown(pair.spoil("folder/other"), Some(1), Some(2)).is_err() {
        return; // Only root can give files away.
    }
    assert_eq!(
        pair.differences(),
        [r#""folder/other": user: 0, got 1"#, r#""folder/other": group: 0, got 2"#]
    );
    let options = Options { owner: false, ..Options::default() };
    assert_eq!(compare(pair.a.path(), pair.b.path(), &options), Vec::<String>::new());
}

#[test]
fn symlink_targets_are_compared() {
    let pair = Pair::new();
    fs::remove_file(pair.spoil("symlink")).unwrap();
    fs_err::os::unix::fs::symlink("folder/", pair.spoil("symlink")).unwrap();
    assert_eq!(pair.differences_but_times(), [r#""symlink": target: "folder", got "folder/""#]);
}

#[test]
fn attributes_are_compared_with_their_values() {
    let pair = Pair::new();
    for (dir, value) in [(&pair.a, b"one"), (&pair.b, b"two")] {
        let path = dir.path().join("folder");
        if rustix::fs::setxattr(path, "user.test", value, XattrFlags::empty()).is_err() {
            return; // This file system keeps none.
        }
    }
    let found = pair.differences();
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with(r#""folder": attributes: {"user.test""#), "{found:?}");
}

#[test]
fn lost_hard_links_are_found() {
    let pair = Pair::new();
    fs::remove_file(pair.spoil("name")).unwrap();
    fs::copy(pair.spoil("folder/file"), pair.spoil("name")).unwrap();
    assert_eq!(
        pair.differences_but_times(),
        [r#""name": hard link: one with "folder/file", got one with "name""#]
    );
}

#[test]
fn added_hard_links_are_found() {
    let pair = Pair::new();
    fs::remove_file(pair.spoil("folder/other")).unwrap();
    fs::hard_link(pair.spoil("folder/file"), pair.spoil("folder/other")).unwrap();
    assert_eq!(
        pair.differences_but_times(),
        [r#""folder/other": hard link: one with "folder/other", got one with "folder/file""#]
    );
}

#[test]
fn lost_holes_are_found() {
    let pair = Pair::new();
    fs::File::create(pair.a.path().join("sparse")).unwrap().set_len(1 << 20).unwrap();
    fs::File::create(pair.spoil("sparse")).unwrap().write_all(&vec![0; 1 << 20]).unwrap();
    let found = pair.differences_but_times();
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with(r#""sparse": holes: occupies 0 bytes"#), "{found:?}");
}

#[test]
fn device_numbers_are_compared() {
    let pair = Pair::new();
    for (dir, minor) in [(&pair.a, 3), (&pair.b, 5)] {
        let path = dir.path().join("device");
        let device = rustix::fs::makedev(1, minor);
        let mode = Mode::from_raw_mode(0o600);
        if rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, mode, device).is_err() {
            return; // Only root can make devices.
        }
    }
    assert_eq!(pair.differences_but_times(), [r#""device": device: 259, got 261"#]);
}

#[test]
fn names_to_skip_are_skipped_at_any_depth() {
    let pair = Pair::new();
    fs::create_dir(pair.spoil(".snap")).unwrap();
    fs::write(pair.spoil(".snap/inside"), "").unwrap();
    fs::write(pair.spoil("folder/.snap"), "").unwrap();
    let options = Options { times: false, skip: vec![".snap".into()], ..Options::default() };
    assert_eq!(compare(pair.a.path(), pair.b.path(), &options), Vec::<String>::new());
    assert_eq!(pair.differences_but_times().len(), 3);
}

#[test]
fn content_only_ignores_metadata_except_executability() {
    let pair = Pair::new();
    set_time(&pair.spoil("folder/other"), 9);
    fs::create_dir_all(pair.spoil("empty/folders")).unwrap();
    fs::set_permissions(pair.spoil("folder/other"), PermissionsExt::from_mode(0o664)).unwrap();
    let compare = || compare(pair.a.path(), pair.b.path(), &Options::content_only());
    assert_eq!(compare(), Vec::<String>::new());
    fs::set_permissions(pair.spoil("folder/other"), PermissionsExt::from_mode(0o744)).unwrap();
    assert_eq!(compare(), [r#""folder/other": mode: 0000, got 0100"#]);
}

#[test]
fn a_missing_folder_is_a_difference() {
    let pair = Pair::new();
    assert_eq!(compare(pair.a.path(), &pair.spoil("nowhere"), &Options::default()).len(), 1);
}

#[test]
fn a_cp_copy_of_the_odd_tree_has_no_differences() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    trees::odd(a.path()).unwrap();
    let status = std::process::Command::new("cp")
        .args(["-a", "--sparse=always"])
        .args([a.path().join("."), b.path().to_owned()])
        .status();
    if !status.is_ok_and(|status| status.success()) {
        return; // Without root the file of mode 000 cannot be copied.
    }
    assert_eq!(compare(a.path(), b.path(), &Options::default()), Vec::<String>::new());
}
