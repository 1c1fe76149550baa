//! Changes that a commit must detect although size, mtime or inode are unchanged.

use std::{
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::PathBuf,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use rustix::fs::{XattrFlags, removexattr, setxattr};
use snap_core::{
    base::{
        id::BlobId,
        observe::{Note, Observer},
        time::Time,
    },
    chunk::{Cutter, Params},
    disk::Disk,
    local::{
        read::ReadMode,
        scan::FileStat,
        stat_cache::{KnownContent, KnownFile, NameHash, StatCache},
    },
    ops::{
        commit::{self, CommitOutcome, CommitRun, CommitSource},
        verify,
    },
};
use snap_testkit::{bytes::Corpus, skip::skip};

use crate::scratch::{Scratch, options};

fn mtime(scratch: &Scratch, name: &str) -> SystemTime {
    fs_err::metadata(scratch.source().join(name)).unwrap().modified().unwrap()
}

fn set_mtime(scratch: &Scratch, name: &str, time: SystemTime) {
    let file = fs_err::OpenOptions::new().write(true).open(scratch.source().join(name)).unwrap();
    file.file().set_modified(time).unwrap();
}

/// Overwrites a file in place and restores its mtime.
fn rewrite_unseen(scratch: &Scratch, name: &str, content: &[u8]) {
    let before = mtime(scratch, name);
    let path = scratch.source().join(name);
    assert_eq!(fs_err::metadata(&path).unwrap().len(), content.len() as u64);
    let file = fs_err::OpenOptions::new().write(true).open(&path).unwrap();
    file.file().write_all_at(content, 0).unwrap();
    set_mtime(scratch, name, before);
}

fn rename(scratch: &Scratch, from: &str, to: &str) {
    fs_err::rename(scratch.source().join(from), scratch.source().join(to)).unwrap();
}

/// Commits twice and compares each commit with the folder: the stat cache of the first
/// one must not mislead the second one.
#[track_caller]
fn assert_noticed(scratch: &Scratch) {
    for _ in 0..2 {
        let id = scratch.commit().id.unwrap();
        scratch.assert_restores(id);
    }
    scratch.settle();
    let id = scratch.commit().id.unwrap();
    scratch.assert_restores(id);
}

#[test]
fn a_rewrite_with_a_restored_mtime_is_detected() {
    let scratch = Scratch::new();
    scratch.write("file", "first");
    scratch.settle();
    rewrite_unseen(&scratch, "file", b"other");
    assert_noticed(&scratch);
}

#[test]
fn a_rewrite_through_one_hard_link_is_detected_for_both() {
    let scratch = Scratch::new();
    scratch.write("a/one", "first");
    fs_err::create_dir(scratch.source().join("b")).unwrap();
    fs_err::hard_link(scratch.source().join("a/one"), scratch.source().join("b/two")).unwrap();
    scratch.settle();
    rewrite_unseen(&scratch, "b/two", b"other");
    assert_noticed(&scratch);
    rewrite_unseen(&scratch, "a/one", b"third");
    assert_noticed(&scratch);
}

#[test]
fn a_rewrite_after_link_and_unlink_is_detected() {
    let scratch = Scratch::new();
    scratch.write("one", "first");
    scratch.settle();
    fs_err::hard_link(scratch.source().join("one"), scratch.source().join("two")).unwrap();
    fs_err::remove_file(scratch.source().join("one")).unwrap();
    rewrite_unseen(&scratch, "two", b"other");
    assert_eq!(fs_err::metadata(scratch.source().join("two")).unwrap().nlink(), 1);
    assert_noticed(&scratch);
}

#[test]
fn a_rewrite_after_a_move_is_detected_despite_its_mtime() {
    for (old, new) in [
        (b"first".to_vec(), b"other".to_vec()),
        (Corpus::Random.make(3 << 20), Corpus::Random.make_seeded(3 << 20, 7)),
    ] {
        let scratch = Scratch::new();
        scratch.write("a/one", &old);
        fs_err::create_dir(scratch.source().join("b")).unwrap();
        scratch.settle();
        rename(&scratch, "a/one", "b/two");
        rewrite_unseen(&scratch, "b/two", &new);
        assert_noticed(&scratch);
    }
}

#[test]
fn an_unconfirmed_record_is_not_trusted_after_a_rename() {
    let scratch = Scratch::new();
    scratch.write("file", "first");
    scratch.settle();
    rewrite_unseen(&scratch, "file", b"other");
    // The times of the file are too recent for the stat cache, as with a clock that is
    // behind.
    let stored = scratch.commit().id.unwrap();
    scratch.assert_restores(stored);
    rename(&scratch, "file", "renamed");
    assert_noticed(&scratch);
}

#[test]
fn a_file_with_times_in_the_future_is_read_each_time() {
    let scratch = Scratch::new();
    scratch.write("file", "first");
    scratch.settle();
    set_mtime(&scratch, "file", SystemTime::now() + Duration::from_secs(86_400));
    for content in [b"other", b"third", b"third"] {
        rewrite_unseen(&scratch, "file", content);
        assert_noticed_once(&scratch);
    }
    assert_eq!(scratch.commit().bytes_read, 5);
}

#[track_caller]
fn assert_noticed_once(scratch: &Scratch) {
    let id = scratch.commit().id.unwrap();
    scratch.assert_restores(id);
}

#[test]
fn a_moved_large_file_is_read_once_and_not_stored_again() {
    let scratch = Scratch::new();
    scratch.write("a/large", Corpus::Random.make(5 << 20));
    scratch.settle();
    rename(&scratch, "a/large", "a/renamed");
    let moved = scratch.commit();
    assert_eq!(moved.bytes_read, 5 << 20);
    // One tree for each folder, and the commit.
    assert_eq!(moved.added.objects, 3);
    scratch.assert_restores(moved.id.unwrap());
    scratch.settle();
}

#[test]
fn a_new_inode_of_the_same_size_and_mtime_is_detected() {
    let scratch = Scratch::new();
    for n in 0..50 {
        scratch.write(&format!("{n}"), "first");
        set_mtime(&scratch, &format!("{n}"), SystemTime::UNIX_EPOCH);
    }
    scratch.settle();
    // Many file systems reuse freed inode numbers.
    for n in 0..50 {
        fs_err::remove_file(scratch.source().join(format!("{n}"))).unwrap();
    }
    for n in (0..50).rev() {
        scratch.write(&format!("{n}"), "other");
        set_mtime(&scratch, &format!("{n}"), SystemTime::UNIX_EPOCH);
    }
    assert_noticed(&scratch);
}

#[test]
fn attribute_changes_are_detected() {
    let scratch = Scratch::new();
    scratch.write("folder/file", "content");
    std::os::unix::fs::symlink("target", scratch.source().join("folder/link")).unwrap();
    scratch.settle();
    let file = scratch.source().join("folder/file");
    let folder = scratch.source().join("folder");
    fs_err::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert_noticed(&scratch);
    fs_err::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    assert_noticed(&scratch);
    for path in [&file, &folder] {
        if setxattr(path.as_path(), "user.snap", b"value", XattrFlags::empty()).is_err() {
            skip("changes of attributes", "the file system has no extended attributes");
            continue;
        }
        assert_noticed(&scratch);
        setxattr(path.as_path(), "user.snap", b"other", XattrFlags::empty()).unwrap();
        assert_noticed(&scratch);
        removexattr(path.as_path(), "user.snap").unwrap();
        assert_noticed(&scratch);
    }
    if std::os::unix::fs::chown(&file, Some(1234), Some(1234)).is_ok() {
        assert_noticed(&scratch);
        std::os::unix::fs::lchown(folder.join("link"), Some(1234), None).unwrap();
        assert_noticed(&scratch);
    }
}

#[test]
fn a_type_change_under_the_same_name_is_detected() {
    let scratch = Scratch::new();
    scratch.write("name/below", "content");
    scratch.write("other", "file");
    scratch.settle();
    let name = scratch.source().join("name");
    fs_err::remove_dir_all(&name).unwrap();
    fs_err::write(&name, "now a file").unwrap();
    assert_noticed(&scratch);
    fs_err::remove_file(&name).unwrap();
    std::os::unix::fs::symlink("other", &name).unwrap();
    assert_noticed(&scratch);
    fs_err::remove_file(&name).unwrap();
    scratch.write("name/below", "content");
    assert_noticed(&scratch);
}

#[test]
fn a_dry_run_leaves_no_trace_in_the_stat_cache() {
    let scratch = Scratch::new();
    scratch.write("file", "first");
    scratch.settle();
    rewrite_unseen(&scratch, "file", b"other");
    let dry = commit::CommitOptions { run: CommitRun::Dry, ..options() };
    let source = || CommitSource::Folder(scratch.source());
    let would = commit::run(&scratch.repo(), source(), &dry, &Notes::default()).unwrap();
    assert_eq!((would.created, would.files.modified), (true, 1));
    assert_noticed(&scratch);
}

/// Appends to a file after a part of it was read, at most `times` times.
struct Meddler {
    path: PathBuf,
    times: AtomicUsize,
}

impl Observer for Meddler {
    fn advance(&self, bytes: u64, _: u64) {
        let one_less = |times: usize| times.checked_sub(1);
        let left = self.times.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        if bytes > 0 && left.is_ok() {
            let file = fs_err::OpenOptions::new().append(true).open(&self.path).unwrap();
            std::io::Write::write_all(&mut { file }, b"more").unwrap();
        }
    }
}

/// Writes a file once another one was read.
struct Grows {
    path: PathBuf,
    content: Vec<u8>,
    grown: OnceLock<()>,
}

impl Observer for Grows {
    fn advance(&self, bytes: u64, _: u64) {
        if bytes > 0 {
            self.grown.get_or_init(|| fs_err::write(&self.path, &self.content).unwrap());
        }
    }
}

#[test]
fn a_file_that_changes_during_a_read_is_retried_then_reported() {
    for content in [b"first".to_vec(), Corpus::Random.make(3 << 20)] {
        for (times, changing) in [(1, 0), (1_000, 1)] {
            let scratch = Scratch::new();
            scratch.write("folder/file", &content);
            let path = scratch.source().join("folder/file");
            let meddler = Meddler { path, times: AtomicUsize::new(times) };
            let source = CommitSource::Folder(scratch.source());
            let made = commit::run(&scratch.repo(), source, &options(), &meddler).unwrap();
            assert_eq!((made.changing, made.skipped), (changing, 0));
            if changing == 0 {
                scratch.assert_restores(made.id.unwrap());
            }
            assert_noticed(&scratch);
        }
    }
}

#[test]
fn a_file_that_grows_after_listing_is_read_completely() {
    let scratch = Scratch::new();
    scratch.write("a", "read first");
    scratch.write("b", "");
    let path = scratch.source().join("b");
    let grows = Grows { path, content: Corpus::Random.make(3 << 20), grown: OnceLock::new() };
    let source = CommitSource::Folder(scratch.source());
    let one_job = commit::CommitOptions { jobs: Some(1), ..options() };
    let made = commit::run(&scratch.repo(), source, &one_job, &grows).unwrap();
    assert!(grows.grown.get().is_some());
    assert_eq!((made.changing, made.skipped), (0, 0));
    scratch.assert_restores(made.id.unwrap());
}

/// As if a program had written through a memory map, or the disk had damaged the file:
/// the size and times are unchanged, the content is not.
#[test]
fn reading_all_files_detects_changes_with_equal_times() {
    let scratch = Scratch::new();
    scratch.write("folder/file", "first");
    let first = scratch.commit().id.unwrap();
    scratch.write("folder/file", "other");
    let cache = StatCache::open(&scratch.store().join("cache"), Disk::default());
    let stat = FileStat::of_path(&scratch.source().join("folder/file")).unwrap();
    let folder = FileStat::of_path(&scratch.source().join("folder")).unwrap();
    let known = KnownFile {
        content: KnownContent::Is(BlobId::of(b"first").into()),
        xattrs: false,
        sparse: false,
    };
    let later = Time { secs: stat.ctime.secs + 60, nanos: 0 };
    cache.add_file(&stat, NameHash::new(&folder, b"file"), &known, later);
    cache.save().unwrap();
    let misled = scratch.commit();
    assert_eq!(misled.bytes_read, 0, "the stat cache is trusted");
    assert_ne!(misled.id, Some(first), "the mtime differs");

    let all = commit::CommitOptions { reading: ReadMode::All, ..options() };
    let source = || CommitSource::Folder(scratch.source());
    let made = commit::run(&scratch.repo(), source(), &all, &Notes::default()).unwrap();
    assert_eq!((made.bytes_read, made.files.modified), (5, 1));
    scratch.assert_restores(made.id.unwrap());
    // The wrong cache entry is gone.
    assert_noticed(&scratch);
}

#[test]
fn reading_all_files_fills_the_stat_cache() {
    let scratch = Scratch::new();
    for n in 0..40 {
        scratch.write(&format!("{}/{n}", n % 3), format!("content {n}"));
    }
    scratch.settle();
    let all = commit::CommitOptions { reading: ReadMode::All, ..options() };
    let source = CommitSource::Folder(scratch.source());
    let made = commit::run(&scratch.repo(), source, &all, &Notes::default()).unwrap();
    assert_eq!((made.created, made.files.unmodified), (false, 40));
    assert!(made.bytes_read > 0);
    assert_eq!(scratch.commit().bytes_read, 0);
}

/// Runs of zeros are neither searched for cut points nor hashed chunk by chunk. They
/// must still give the same chunks as plain cutting.
#[test]
fn holes_and_zeros_are_chunked_like_other_data() {
    let scratch = Scratch::new();
    let mib = 1 << 20;
    let mut content = vec![0; 45 * mib + 17];
    let noise = Corpus::Random.make(3 * mib);
    content[11 * mib + 5..14 * mib + 5].copy_from_slice(&noise);
    content[30 * mib + 4095] = 1;
    for (name, is_sparse) in [("sparse", true), ("dense", false)] {
        let file = fs_err::File::create(scratch.source().join(name)).unwrap();
        file.set_len(content.len() as u64).unwrap();
        let blocks = content.chunks(64 << 10).enumerate();
        for (at, block) in blocks.filter(|(_, block)| !is_sparse || block.iter().any(|b| *b != 0)) {
            file.file().write_all_at(block, (at * (64 << 10)) as u64).unwrap();
        }
    }
    let id = scratch.commit().id.unwrap();
    scratch.assert_restores(id);
    let (mut cutter, mut rest) = (Cutter::new(Params::FORMAT), &content[..]);
    let repo = scratch.repo();
    while let Some(len) = cutter.next_cut(rest, true) {
        let chunk = BlobId::of(&rest[..len]);
        let place = repo.store().locate(&chunk.object()).unwrap();
        assert!(place.is_some(), "{} bytes left", rest.len());
        rest = &rest[len..];
    }
    let all = verify::VerifyOptions { data: verify::Data::All };
    let verified = verify::run(&repo, &all, &Notes::default()).unwrap();
    assert!(verified.problems.is_empty(), "{:?}", verified.problems);
}

#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Observer for Notes {
    fn note(&self, note: Note<'_>) {
        let told = match note {
            Note::AttributesUnread { path, .. } => format!("attributes {}", path.display()),
            Note::Skipped { path, .. } => format!("skipped {}", path.display()),
            other => format!("{other:?}"),
        };
        self.0.lock().push(told);
    }
}

/// More attribute names than the system can list: reading them fails with `E2BIG`.
fn attribute_names() -> impl Iterator<Item = String> {
    (0..300).map(|n| format!("trusted.{n:0>240}"))
}

fn commit_telling(scratch: &Scratch) -> (CommitOutcome, Vec<String>) {
    let notes = Notes::default();
    let source = CommitSource::Folder(scratch.source());
    let made = commit::run(&scratch.repo(), source, &options(), &notes).unwrap();
    (made, notes.0.into_inner())
}

#[test]
fn unreadable_attributes_are_reported_by_each_commit() {
    let scratch = Scratch::new();
    scratch.write("folder/file", "content");
    scratch.write("folder/inner/other", "content");
    for name in ["folder/file", "folder/inner"] {
        let path = scratch.source().join(name);
        for name in attribute_names() {
            if setxattr(path.as_path(), &*name, b"value", XattrFlags::empty()).is_err() {
                let reason = "needs root and a file system with many attributes";
                return skip("attributes that cannot be read", reason);
            }
        }
    }
    let told = |name: &str| format!("attributes {}", scratch.source().join(name).display());
    let start = std::time::Instant::now();
    loop {
        let (made, notes) = commit_telling(&scratch);
        assert_eq!(made.without_attributes, 2);
        assert_eq!(notes, [told("folder/file"), told("folder/inner")]);
        if start.elapsed() > Duration::from_millis(100) {
            break;
        }
    }
    for name in ["folder/file", "folder/inner"] {
        let path = scratch.source().join(name);
        for name in attribute_names().skip(1) {
            removexattr(path.as_path(), &*name).unwrap();
        }
    }
    let (made, notes) = commit_telling(&scratch);
    assert_eq!((made.without_attributes, notes), (0, Vec::new()));
    assert_noticed(&scratch);
}
