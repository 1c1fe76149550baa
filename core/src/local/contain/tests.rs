//! Tests of containment: no operation leaves the target.

use std::{
    os::unix::{ffi::OsStrExt, fs::symlink},
    time::{Duration, Instant},
};

use super::*;

fn name(text: impl AsRef<[u8]>) -> EntryName {
    EntryName::new(text.as_ref()).unwrap()
}

fn path(names: &[&str]) -> Arc<FolderPath> {
    names.iter().fold(FolderPath::top(), |at, n| at.child(name(n)))
}

/// Returns a root for each of the two ways to open folders.
fn roots(dir: &Path) -> [TargetRoot; 2] {
    [TargetRoot::open(dir).unwrap(), TargetRoot::open(dir).unwrap().stepwise()]
}

#[test]
fn a_link_to_a_folder_is_not_followed() {
    let outside = tempfile::tempdir().unwrap();
    fs_err::create_dir_all(outside.path().join("in")).unwrap();
    let inside = tempfile::tempdir().unwrap();
    fs_err::create_dir_all(inside.path().join("real/deep")).unwrap();
    symlink(outside.path(), inside.path().join("absolute")).unwrap();
    symlink("real", inside.path().join("relative")).unwrap();
    symlink("..", inside.path().join("real/up")).unwrap();
    for root in roots(inside.path()) {
        root.folder(&path(&["real", "deep"])).unwrap();
        for bad in [&["absolute"][..], &["absolute", "in"], &["relative", "deep"], &["real", "up"]]
        {
            let error = root.folder(&path(bad)).unwrap_err();
            let error = Errno::from_io_error(&error).unwrap();
            assert!(matches!(error, Errno::LOOP | Errno::NOTDIR), "{bad:?}: {error:?}");
        }
        let top = root.folder(&FolderPath::top()).unwrap();
        assert!(top.folder(&name("absolute")).is_err());
        assert!(top.open_file(&name("absolute")).is_err());
        assert!(top.create_file(&name("absolute"), 0o600).is_err());
        assert!(top.make_folder(&name("absolute"), 0o700).is_err());
    }
    assert_eq!(fs_err::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn the_target_can_be_a_symlink() {
    let dir = tempfile::tempdir().unwrap();
    fs_err::create_dir_all(dir.path().join("real/x")).unwrap();
    symlink("real", dir.path().join("link")).unwrap();
    let (root, created) = TargetRoot::create(&dir.path().join("link")).unwrap();
    assert!(!created);
    root.folder(&path(&["x"])).unwrap();
    let (_, created) = TargetRoot::create(&dir.path().join("link/a/b/c")).unwrap();
    assert!(created);
    assert!(dir.path().join("real/a/b/c").is_dir());
    fs_err::write(dir.path().join("file"), "").unwrap();
    assert!(TargetRoot::create(&dir.path().join("file")).is_err());
}

#[test]
fn a_link_that_replaced_a_folder_is_not_followed() {
    let outside = tempfile::tempdir().unwrap();
    let inside = tempfile::tempdir().unwrap();
    let (real, aside) = (inside.path().join("d"), inside.path().join("aside"));
    fs_err::create_dir(&real).unwrap();
    let stop = AtomicBool::new(false);
    let mut reached = 0;
    // If the scheduler suspends the other thread in the middle of a swap, the folder is missing for
    // that long.
    let patience = Instant::now() + Duration::from_secs(60);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                fs_err::rename(&real, &aside).unwrap();
                symlink(outside.path(), &real).unwrap();
                fs_err::remove_file(&real).unwrap();
                fs_err::rename(&aside, &real).unwrap();
            }
        });
        for root in roots(inside.path()) {
            let before = reached;
            for count in 0.. {
                if count >= 5_000 && (reached > before || Instant::now() > patience) {
                    break;
                }
                let Ok(folder) = root.folder(&path(&["d"])) else { continue };
                folder.create_file(&name(format!("{count}")), 0o600).unwrap();
                folder.remove(&name(format!("{count}"))).unwrap();
                reached += 1;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(reached > 0, "the folder never existed");
    assert_eq!(fs_err::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn a_path_longer_than_path_max_works() {
    let dir = tempfile::tempdir().unwrap();
    let long = name("n".repeat(200));
    for root in roots(dir.path()) {
        let mut at = FolderPath::top();
        for _ in 0..60 {
            let folder = root.folder(&at).unwrap();
            let _ = folder.make_folder(&long, 0o700);
            at = at.child(long.clone());
        }
        assert!(at.to_path().as_os_str().as_bytes().len() > 12_000);
        let folder = root.folder(&at).unwrap();
        drop(folder.create_file(&name("x"), 0o600).unwrap());
        folder.remove(&name("x")).unwrap();
    }
}

#[test]
fn a_listing_is_sorted_by_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let root = TargetRoot::open(dir.path()).unwrap();
    let top = root.folder(&FolderPath::top()).unwrap();
    assert!(top.list().unwrap().is_empty());
    let names: [&[u8]; 5] = [b"\xff\xfe", b"a", b"Z", b"new\nline", &[b'x'; 255]];
    for bytes in names {
        drop(top.create_file(&name(bytes), 0o600).unwrap());
    }
    top.make_folder(&name("folder"), 0o700).unwrap();
    let listing = top.list().unwrap();
    let found: Vec<_> = listing.iter().collect();
    assert_eq!(listing.iter().count(), 6);
    assert!(found.is_sorted_by_key(|(name, _)| name.to_vec()));
    assert_eq!(listing.get(2), Some((&b"folder"[..], FileType::Directory)));
    assert_eq!(listing.get(6), None);
}

#[test]
fn a_rename_to_a_new_name_replaces_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let root = TargetRoot::open(dir.path()).unwrap();
    let top = root.folder(&FolderPath::top()).unwrap();
    fs_err::write(dir.path().join("a"), "a").unwrap();
    fs_err::write(dir.path().join("b"), "b").unwrap();
    assert_eq!(top.rename_new(&name("a"), &name("b")).unwrap(), Renamed::Taken);
    assert_eq!(fs_err::read(dir.path().join("b")).unwrap(), b"b");
    assert_eq!(top.rename_new(&name("a"), &name("c")).unwrap(), Renamed::Done);
    top.replace(&name("c"), &name("b")).unwrap();
    assert_eq!(fs_err::read(dir.path().join("b")).unwrap(), b"a");
    assert!(top.stat(&name("a")).unwrap().is_none());
    top.remove(&name("gone")).unwrap();
    top.remove_folder(&name("gone")).unwrap();
}

#[test]
fn links_and_special_files_are_created() {
    let dir = tempfile::tempdir().unwrap();
    let root = TargetRoot::open(dir.path()).unwrap();
    let top = root.folder(&FolderPath::top()).unwrap();
    top.make_symlink(&name("l"), b"../../etc/passwd").unwrap();
    assert_eq!(top.read_link(&name("l")).unwrap(), b"../../etc/passwd");
    top.make_node(&name("p"), FileType::Fifo, 0o600, None).unwrap();
    top.make_node(&name("s"), FileType::Socket, 0o600, None).unwrap();
    // A hard link to a symbolic link links the symbolic link itself, not its target.
    top.link(&name("l"), &top, &name("l2")).unwrap();
    assert_eq!(top.stat(&name("l2")).unwrap().unwrap().st_nlink, 2);
    let kind = |n| FileType::from_raw_mode(top.stat(&name(n)).unwrap().unwrap().st_mode);
    assert_eq!(
        (kind("p"), kind("s"), kind("l2")),
        (FileType::Fifo, FileType::Socket, FileType::Symlink)
    );
}
