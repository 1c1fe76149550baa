//! Tests of reading and applying attributes.

use std::os::{
    fd::AsFd,
    unix::fs::{MetadataExt, symlink},
};

use super::*;
use crate::local::contain::{FolderPath, TargetRoot};

fn xattr(name: &str, value: &[u8]) -> Xattr {
    Xattr { name: name.as_bytes().into(), value: value.into() }
}

fn nothing() -> Attributes<'static> {
    Attributes {
        owner: None,
        mode: None,
        mtime: None,
        xattrs: &[],
        capability: FileCapability::Apply,
        extra: Extra::Keep,
    }
}

/// Applies attributes; panics if the system refuses any.
fn apply_all(target: AttributeTarget<'_>, attributes: &Attributes<'_>) {
    apply(target, attributes, &mut |what, error| panic!("{what}: {error}"));
}

fn name(text: &str) -> EntryName {
    EntryName::new(text.as_bytes()).unwrap()
}

#[test]
fn extended_attributes_are_read_whole_and_sorted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let file = fs_err::File::create(&path).unwrap();
    let fd = file.file().as_fd();
    assert_eq!(read_xattrs(XattrTarget::Fd(fd)).unwrap(), []);
    let mut wanted =
        vec![xattr("user.b", b""), xattr("user.a", &[7; 3000]), xattr("user.c", b"\0\xff")];
    apply_all(AttributeTarget::Fd(fd), &Attributes { xattrs: &wanted, ..nothing() });
    wanted.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(read_xattrs(XattrTarget::Fd(fd)).unwrap(), wanted);
    assert_eq!(read_xattrs(XattrTarget::Path(&path)).unwrap(), wanted);
    let fewer = [xattr("user.a", b"new")];
    apply_all(
        AttributeTarget::Fd(fd),
        &Attributes { xattrs: &fewer, extra: Extra::Remove, ..nothing() },
    );
    assert_eq!(read_xattrs(XattrTarget::Fd(fd)).unwrap(), fewer);
}

#[test]
fn a_long_list_of_attribute_names_is_read() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let path = dir.path().join("f");
    let file = fs_err::File::create(&path).unwrap();
    let wanted: Vec<_> =
        (0..40).map(|n| xattr(&format!("user.{n:02}{}", "n".repeat(40)), b"v")).collect();
    apply_all(
        AttributeTarget::Fd(file.file().as_fd()),
        &Attributes { xattrs: &wanted, ..nothing() },
    );
    assert_eq!(read_xattrs(XattrTarget::Path(&path)).unwrap(), wanted);
}

#[test]
fn a_symlink_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fs_err::write(&path, "x").unwrap();
    let file = fs_err::File::open(&path).unwrap();
    let xattrs = [xattr("user.a", b"1")];
    apply_all(
        AttributeTarget::Fd(file.file().as_fd()),
        &Attributes { xattrs: &xattrs, ..nothing() },
    );
    symlink("f", dir.path().join("l")).unwrap();
    assert_eq!(read_xattrs(XattrTarget::Path(&dir.path().join("l"))).unwrap(), []);

    let root = TargetRoot::open(dir.path()).unwrap();
    let top = root.folder(&FolderPath::top()).unwrap();
    let mtime = Some(Time { secs: 5, nanos: 6 });
    let before = fs_err::metadata(&path).unwrap();
    apply_all(
        AttributeTarget::Symlink(&top, &name("l")),
        &Attributes { mtime, mode: Some(0o777), ..nothing() },
    );
    let after = fs_err::metadata(&path).unwrap();
    assert_eq!((before.mtime(), before.mode()), (after.mtime(), after.mode()));
    let link = fs_err::symlink_metadata(dir.path().join("l")).unwrap();
    assert_eq!((link.mtime(), link.mtime_nsec()), (5, 6));
}

#[test]
fn twelve_mode_bits_survive_a_change_of_owner() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fs_err::write(&path, "x").unwrap();
    let meta = fs_err::metadata(&path).unwrap();
    let root = TargetRoot::open(dir.path()).unwrap();
    let top = root.folder(&FolderPath::top()).unwrap();
    let attributes = Attributes {
        owner: Some(OwnerIds { uid: meta.uid(), gid: meta.gid() }),
        mode: Some(0o6755),
        mtime: Some(Time { secs: -1, nanos: 999_999_999 }),
        ..nothing()
    };
    let f = name("f");
    for target in [
        AttributeTarget::Entry(&top, &f, expected(FileType::RegularFile)),
        AttributeTarget::Fd(fs_err::File::open(&path).unwrap().file().as_fd()),
    ] {
        apply_all(target, &attributes);
        let after = fs_err::metadata(&path).unwrap();
        assert_eq!(after.mode() & 0o7777, 0o6755);
        assert_eq!((after.mtime(), after.mtime_nsec()), (-1, 999_999_999));
        apply_all(target, &Attributes { mode: Some(0o000), ..nothing() });
        assert_eq!(fs_err::metadata(&path).unwrap().mode() & 0o7777, 0);
        apply_all(target, &Attributes { mode: Some(0o600), ..nothing() });
    }
}

#[test]
fn an_entry_that_cannot_be_opened_gets_its_attributes() {
    let dir = tempfile::tempdir().unwrap();
    let root = TargetRoot::open(dir.path()).unwrap();
    let top = root.folder(&FolderPath::top()).unwrap();
    let pipe = name("p");
    top.make_node(&pipe, rustix::fs::FileType::Fifo, 0o600, None).unwrap();
    let attributes = Attributes {
        mode: Some(0o642),
        mtime: Some(Time { secs: 9, nanos: 1 }),
        extra: Extra::Remove,
        ..nothing()
    };
    apply_all(AttributeTarget::Entry(&top, &pipe, expected(FileType::Fifo)), &attributes);
    let meta = fs_err::metadata(dir.path().join("p")).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.mtime(), meta.mtime_nsec()), (0o642, 9, 1));
    assert_eq!(read_entry_xattrs(&top, &pipe).unwrap(), []);
}

#[test]
fn refused_attributes_are_reported_and_others_applied() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fs_err::write(&path, "x").unwrap();
    let file = fs_err::File::open(&path).unwrap();
    let xattrs = [xattr("nonsense.a", b"1"), xattr("user.a", b"2")];
    let mut told = Vec::new();
    let attributes = Attributes { xattrs: &xattrs, mode: Some(0o640), ..nothing() };
    apply(AttributeTarget::Fd(file.file().as_fd()), &attributes, &mut |what, _| told.push(what));
    assert_eq!(told, ["extended attribute"]);
    assert_eq!(fs_err::metadata(&path).unwrap().mode() & 0o7777, 0o640);
    assert_eq!(read_xattrs(XattrTarget::Path(&path)).unwrap(), xattrs[1..]);
}

fn expected(kind: FileType) -> ExpectedFile {
    ExpectedFile { kind, inode: None }
}

#[test]
fn a_file_that_replaced_the_entry_keeps_owner_and_mode() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fs_err::write(&path, "somebody's secret").unwrap();
    let before = fs_err::metadata(&path).unwrap();
    let root = TargetRoot::open(dir.path()).unwrap();
    let top = root.folder(&FolderPath::top()).unwrap();
    let f = name("f");
    let owner = Some(OwnerIds { uid: before.uid(), gid: before.gid() });
    let attributes = Attributes { owner, mode: Some(0o777), ..nothing() };
    let other = ExpectedFile { inode: Some(before.ino() + 1), ..expected(FileType::RegularFile) };
    for target in [
        AttributeTarget::Entry(&top, &f, expected(FileType::Fifo)),
        AttributeTarget::Entry(&top, &f, other),
        AttributeTarget::Symlink(&top, &f),
    ] {
        let mut refused = 0;
        apply(target, &attributes, &mut |_, _| refused += 1);
        assert!(refused > 0);
        assert_eq!(fs_err::metadata(&path).unwrap().mode(), before.mode());
    }
}

#[test]
fn capabilities_are_dropped_if_the_owner_cannot_be_set() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fs_err::write(&path, "x").unwrap();
    let root = TargetRoot::open(dir.path()).unwrap();
    let top = root.folder(&FolderPath::top()).unwrap();
    // `CAP_NET_BIND_SERVICE`, permitted and effective.
    let mut value = [0; 20];
    value[..8].copy_from_slice(&[1, 0, 0, 2, 0, 4, 0, 0]);
    let xattrs = [xattr("security.capability", &value), xattr("user.a", b"1")];
    let f = name("f");
    let wanted = Attributes { xattrs: &xattrs, extra: Extra::Remove, ..nothing() };
    let mut is_root = true;
    let file = AttributeTarget::Entry(&top, &f, expected(FileType::RegularFile));
    apply(file, &wanted, &mut |_, _| is_root = false);
    if !is_root {
        return; // Only root may set capabilities, and not on every file system.
    }
    assert_eq!(read_xattrs(XattrTarget::Path(&path)).unwrap(), xattrs);
    let dropped = Attributes { capability: FileCapability::Drop, ..wanted };
    apply_all(file, &dropped);
    assert_eq!(read_xattrs(XattrTarget::Path(&path)).unwrap(), xattrs[1..]);

    // The owner cannot be set, since the entry is not the expected one.
    apply_all(file, &wanted);
    let mut told = Vec::new();
    let replaced = AttributeTarget::Entry(&top, &f, expected(FileType::Fifo));
    let owned = Attributes { owner: Some(OwnerIds { uid: 0, gid: 0 }), ..wanted };
    apply(replaced, &owned, &mut |what, _| told.push(what));
    assert_eq!(told, ["owner", "file capability"]);
    assert_eq!(read_xattrs(XattrTarget::Path(&path)).unwrap(), xattrs[1..]);
}
