//! Tests of the stat cache.

use super::{tables::table_files, *};
use crate::local::scan::FileKind;

fn stat(inode: u64, mtime: Time) -> FileStat {
    FileStat {
        kind: FileKind::File,
        mode: 0o644,
        links: 1,
        device: 1,
        inode,
        size: 10,
        blocks: 8,
        uid: 0,
        gid: 0,
        special: 0,
        mtime,
        ctime: mtime,
    }
}

fn store() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    fs_err::create_dir(&cache).unwrap();
    fs_err::create_dir(dir.path().join("tmp")).unwrap();
    (dir, cache)
}

const HERE: Place = Place(4);
const BORN: Option<Time> = Some(Time { secs: 500, nanos: 0 });
const OLD: Time = Time { secs: 1000, nanos: 1 };
const NOW: Time = Time { secs: 2000, nanos: 0 };

#[test]
fn a_file_is_known_until_anything_about_it_changes() {
    let (_dir, cache) = store();
    let known = KnownFile { id: BlobId::of(b"x"), xattrs: true, sparse: false };
    for inode in 0..500 {
        let stats = StatCache::open(&cache, Disk::default());
        stats.add_file((&stat(inode, OLD), BORN), HERE, &known, NOW);
        stats.save().unwrap();
    }
    assert!(fs_err::read_dir(&cache).unwrap().count() < 12);
    let stats = StatCache::open(&cache, Disk::default());
    assert!((0..500).all(|inode| stats.file(&stat(inode, OLD)) == Some(known)));
    assert_eq!(stats.file(&stat(7, OLD.successor())), None);
    assert_eq!(stats.file(&FileStat { size: 11, ..stat(7, OLD) }), None);
    assert_eq!(stats.file(&FileStat { device: 2, ..stat(7, OLD) }), None);
    assert_eq!(stats.file(&stat(501, OLD)), None);
}

#[test]
fn a_file_that_was_just_written_is_not_remembered() {
    let known = KnownFile { id: BlobId::of(b"x"), xattrs: false, sparse: false };
    let soon = Time { secs: 1000, nanos: 15_000_000 };
    let later = Time { secs: 1000, nanos: 21_000_000 };
    assert!(!is_settled(&stat(1, OLD), soon));
    assert!(is_settled(&stat(1, OLD), later));
    let coarse = Time { secs: 1000, nanos: 0 };
    assert!(!is_settled(&stat(1, coarse), later));
    assert!(is_settled(&stat(1, coarse), Time { secs: 1002, nanos: 0 }));
    assert!(!is_settled(&stat(1, Time { secs: 9000, nanos: 0 }), NOW));

    let (_dir, cache) = store();
    let stats = StatCache::open(&cache, Disk::default());
    stats.add_file((&stat(1, OLD), BORN), HERE, &known, soon);
    stats.save().unwrap();
    assert_eq!(StatCache::open(&cache, Disk::default()).file(&stat(1, OLD)), None);
}

#[test]
fn the_newest_record_counts_and_damage_is_forgotten() {
    let (_dir, cache) = store();
    let record = |id: &[u8], mtime| {
        let stats = StatCache::open(&cache, Disk::default());
        let known = KnownFile { id: BlobId::of(id), xattrs: false, sparse: true };
        stats.add_file((&stat(1, mtime), BORN), HERE, &known, NOW);
        stats.save().unwrap();
    };
    record(b"first", OLD);
    record(b"second", OLD.successor());
    let stats = StatCache::open(&cache, Disk::default());
    assert_eq!(stats.file(&stat(1, OLD)), None);
    assert_eq!(stats.file(&stat(1, OLD.successor())).map(|f| f.id), Some(BlobId::of(b"second")));

    for path in table_files(&cache, "files").into_values() {
        let mut bytes = fs_err::read(&path).unwrap();
        bytes[4096 + 40] ^= 1;
        fs_err::write(&path, bytes).unwrap();
    }
    assert_eq!(StatCache::open(&cache, Disk::default()).file(&stat(1, OLD.successor())), None);
}

#[test]
fn a_file_that_was_only_moved_is_known_until_it_changes_again() {
    let (_dir, cache) = store();
    let known = KnownFile { id: BlobId::of(b"x"), xattrs: false, sparse: false };
    let stats = StatCache::open(&cache, Disk::default());
    stats.add_file((&stat(1, OLD), BORN), HERE, &known, NOW);
    stats.save().unwrap();

    let touched = FileStat { ctime: NOW, ..stat(1, OLD) };
    let there = Place(8);
    let stats = StatCache::open(&cache, Disk::default());
    assert_eq!(stats.file(&touched), None);
    assert_eq!(stats.moved_file(&touched, HERE, || BORN), None);
    // Another file that was given the inode, size and mtime of this one.
    assert_eq!(stats.moved_file(&touched, there, || Some(NOW)), None);
    assert_eq!(stats.moved_file(&touched, there, || None), None);
    assert_eq!(stats.moved_file(&FileStat { mtime: NOW, ..touched }, there, || BORN), None);
    let moved = stats.moved_file(&touched, there, || BORN);
    assert_eq!(moved, Some(KnownFile { xattrs: true, ..known }));
    stats.save().unwrap();

    let stats = StatCache::open(&cache, Disk::default());
    assert!(stats.file(&touched).is_some());
    let again = FileStat { ctime: NOW.successor(), ..touched };
    assert_eq!(stats.moved_file(&again, there, || BORN), None);
}
