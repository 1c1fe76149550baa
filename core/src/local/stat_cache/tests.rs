//! Tests of the stat cache.

use std::path::PathBuf;

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

const HERE: NameHash = NameHash(16);
const OLD: Time = Time { secs: 1000, nanos: 1 };
const NOW: Time = Time { secs: 2000, nanos: 0 };

#[test]
fn a_file_is_known_until_its_stat_changes() {
    let (_dir, cache) = store();
    let known = KnownFile {
        content: KnownContent::Is(BlobId::of(b"x").into()),
        xattrs: true,
        sparse: false,
    };
    for inode in 0..500 {
        let stats = StatCache::open(&cache, Disk::default());
        stats.add_file(&stat(inode, OLD), HERE, &known, NOW);
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
fn a_file_that_was_just_written_is_not_cached() {
    let known = KnownFile {
        content: KnownContent::Is(BlobId::of(b"x").into()),
        xattrs: false,
        sparse: false,
    };
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
    stats.add_file(&stat(1, OLD), HERE, &known, soon);
    stats.save().unwrap();
    assert_eq!(StatCache::open(&cache, Disk::default()).file(&stat(1, OLD)), None);
}

#[test]
fn the_newest_record_wins_and_damage_is_dropped() {
    let (_dir, cache) = store();
    let record = |id: &[u8], mtime| {
        let stats = StatCache::open(&cache, Disk::default());
        let known = KnownFile {
            content: KnownContent::Is(BlobId::of(id).into()),
            xattrs: false,
            sparse: true,
        };
        stats.add_file(&stat(1, mtime), HERE, &known, NOW);
        stats.save().unwrap();
    };
    record(b"first", OLD);
    record(b"second", OLD.successor());
    let stats = StatCache::open(&cache, Disk::default());
    assert_eq!(stats.file(&stat(1, OLD)), None);
    assert_eq!(
        stats.file(&stat(1, OLD.successor())).and_then(|file| file.id()),
        Some(BlobId::of(b"second").into())
    );

    for path in table_files(&cache, "files").into_values() {
        let mut bytes = fs_err::read(&path).unwrap();
        bytes[4096 + 40] ^= 1;
        fs_err::write(&path, bytes).unwrap();
    }
    assert_eq!(StatCache::open(&cache, Disk::default()).file(&stat(1, OLD.successor())), None);
}

#[test]
fn a_changed_ctime_leaves_only_a_likely_content() {
    let (_dir, cache) = store();
    let known = KnownFile {
        content: KnownContent::Is(BlobId::of(b"x").into()),
        xattrs: false,
        sparse: false,
    };
    let stats = StatCache::open(&cache, Disk::default());
    stats.add_file(&stat(1, OLD), HERE, &known, NOW);
    stats.save().unwrap();

    let stats = StatCache::open(&cache, Disk::default());
    for links in [1, 2] {
        let touched = FileStat { ctime: NOW, links, ..stat(1, OLD) };
        assert_eq!(stats.file(&touched), None);
        assert_eq!(stats.file_at(&touched, HERE), None);
        assert_eq!(stats.likely_content(&touched), known.id());
        assert_eq!(stats.likely_content(&FileStat { mtime: NOW, ..touched }), None);
        assert_eq!(stats.likely_content(&FileStat { size: 11, ..touched }), None);
    }
}

#[test]
fn a_file_with_one_name_is_known_only_at_its_path() {
    let (_dir, cache) = store();
    let known = KnownFile {
        content: KnownContent::Is(BlobId::of(b"x").into()),
        xattrs: false,
        sparse: false,
    };
    let stats = StatCache::open(&cache, Disk::default());
    stats.add_file(&stat(1, OLD), HERE, &known, NOW);
    stats.save().unwrap();

    let stats = StatCache::open(&cache, Disk::default());
    assert_eq!(stats.file_at(&stat(1, OLD), HERE), Some(known));
    assert_eq!(stats.file_at(&stat(1, OLD), NameHash(32)), None);
    assert_eq!(stats.file_at(&FileStat { links: 2, ..stat(1, OLD) }, NameHash(32)), Some(known));
}

#[test]
fn dropped_records_hide_those_of_older_tables() {
    let (_dir, cache) = store();
    let known = KnownFile {
        content: KnownContent::Is(BlobId::of(b"x").into()),
        xattrs: false,
        sparse: false,
    };
    let folder = KnownFolder {
        listing: [1; 16],
        full: [2; 16],
        tree: TreeId::from_bytes([3; 32]),
        totals: Totals { files: 1, folders: 0, others: 0, bytes: 1 },
    };
    let stats = StatCache::open(&cache, Disk::default());
    for inode in 0..100 {
        stats.add_file(&stat(inode, OLD), HERE, &known, NOW);
        stats.add_folder(1, inode, &folder);
    }
    stats.save().unwrap();

    let drops = StatCache::open(&cache, Disk::default());
    // One file was read while its times were too recent; the other one was not read at all.
    let recent = FileStat { ctime: NOW, ..stat(7, OLD) };
    drops.add_file(&recent, HERE, &known, NOW);
    drops.forget_file(&stat(8, OLD));
    drops.forget_folder(&stat(9, OLD));
    drops.forget_file(&stat(1_000, OLD));
    drops.save().unwrap();

    let tables = || table_files(&cache, "files").len() + table_files(&cache, "folders").len();
    assert_eq!(tables(), 4, "the tombstones lie in tables of their own");
    let check = || {
        let stats = StatCache::open(&cache, Disk::default());
        let is_known = |inode| stats.file(&stat(inode, OLD)).is_some();
        assert_eq!((0..100).filter(|&inode| !is_known(inode)).collect::<Vec<_>>(), [7, 8]);
        assert_eq!(
            (0..100).filter(|&inode| stats.folder(1, inode).is_none()).collect::<Vec<_>>(),
            [9]
        );
        stats
    };
    let merged = check();
    for inode in 100..300 {
        merged.add_file(&stat(inode, OLD), HERE, &known, NOW);
        merged.add_folder(1, inode, &folder);
    }
    merged.save().unwrap();
    assert_eq!(tables(), 2, "all tables were merged");
    check();
}

#[test]
fn the_kind_of_a_content_and_a_difference_are_kept() {
    let (_dir, cache) = store();
    let blob = ContentId::Blob(BlobId::of(b"x"));
    let chunked = ContentId::Chunked(ChunkListId::of(b"x"));
    let contents = [blob, chunked].map(|id| [KnownContent::Is(id), KnownContent::DiffersFrom(id)]);
    for (inode, content) in contents.concat().into_iter().enumerate() {
        let known = KnownFile { content, xattrs: false, sparse: false };
        let stats = StatCache::open(&cache, Disk::default());
        stats.add_file(&stat(inode as u64, OLD), HERE, &known, NOW);
        stats.save().unwrap();
        let found =
            StatCache::open(&cache, Disk::default()).file_at(&stat(inode as u64, OLD), HERE);
        assert_eq!(found, Some(known));
    }
    let differs =
        |id| KnownFile { content: KnownContent::DiffersFrom(id), xattrs: false, sparse: false };
    assert_eq!(differs(blob).has_content(&blob), Some(false));
    assert_eq!(differs(blob).has_content(&chunked), None);
    assert_eq!(differs(blob).id(), None);
}
