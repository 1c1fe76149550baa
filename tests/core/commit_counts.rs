//! What a commit counts: the total while it reads the files, and the changes of files.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use snap_core::{
    base::{
        name::EntryName,
        observe::{Observer, Silent},
    },
    ops::commit::{self, CommitRun, CommitSource, FileChanges, NamedPath},
};
use snap_testkit::wait::until;

use crate::scratch::{Scratch, commit, on_branch, options};

/// Stops reading until the total is known.
struct AwaitsTotal {
    delay: Duration,
    total: OnceLock<u64>,
    read: AtomicU64,
}

impl AwaitsTotal {
    fn after(delay: Duration) -> Self {
        Self { delay, total: OnceLock::new(), read: AtomicU64::new(0) }
    }
}

impl Observer for AwaitsTotal {
    fn shows_progress_after(&self) -> Option<Duration> {
        Some(self.delay)
    }

    fn total(&self, total: u64) {
        self.total.set(total).unwrap();
    }

    fn advance(&self, bytes: u64, _: u64) {
        if self.delay.is_zero() {
            until("the total is known", || self.total.get().is_some());
        }
        self.read.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Writes files and folders, some of which are ignored. The rest has 1,109 bytes.
fn write_files(scratch: &Scratch, folder: &str) {
    let write =
        |name: &str, bytes: usize| scratch.write(&format!("{folder}/{name}"), vec![1; bytes]);
    write("file", 100);
    write("a/b/c/file", 1_000);
    write("a/b/ignored/file", 10_000);
    write("a/empty", 0);
    scratch.write(&format!("{folder}/a/b/.snapignore"), "ignored/\n");
    std::os::unix::fs::symlink(".", scratch.source().join(folder).join("link")).unwrap();
}

#[test]
fn a_first_commit_determines_its_total_while_it_reads_files() {
    let scratch = Scratch::new();
    write_files(&scratch, "one");
    write_files(&scratch, "two");
    let folder = || CommitSource::Folder(scratch.source());
    let paths = || {
        let named = ["one", "two/file", "two/a"].map(|name| NamedPath {
            path: scratch.source().join(name),
            inside: name.split('/').map(|name| EntryName::new(name.as_bytes()).unwrap()).collect(),
        });
        CommitSource::Paths(named.into())
    };
    let run = |source, branch, observer: &AwaitsTotal| {
        commit::run(&scratch.repo(), source, &on_branch(branch), observer).unwrap()
    };
    for (source, branch) in [(folder(), "folder"), (paths(), "paths")] {
        let observer = AwaitsTotal::after(Duration::ZERO);
        let made = run(source, branch, &observer);
        assert_eq!(made.totals.bytes, 2 * 1_109);
        assert_eq!(observer.total.get(), Some(&made.totals.bytes));
        assert_eq!(observer.read.into_inner(), made.totals.bytes);
    }
    // A commit that ends before its progress is shown counts nothing.
    let observer = AwaitsTotal::after(Duration::MAX);
    run(folder(), "quick", &observer);
    assert_eq!(observer.total.get(), None);
    // The size of the previous commit is an estimate.
    let observer = AwaitsTotal::after(Duration::from_nanos(1));
    run(folder(), "folder", &observer);
    assert_eq!(observer.total.get(), None);
}

#[test]
fn a_commit_compares_its_files_with_the_previous_commit() {
    let scratch = Scratch::new();
    for name in ["kept/a", "kept/b", "gone/a", "gone/below/b", "file", "turns", "large/x/y"] {
        scratch.write(name, name);
    }
    scratch.write("folder/a", "a");
    scratch.write("folder/b", "b");
    let first = scratch.settle();
    let remove = |name: &str| fs_err::remove_file(scratch.source().join(name)).unwrap();
    remove("kept/b");
    fs_err::remove_dir_all(scratch.source().join("gone")).unwrap();
    scratch.write("file", "modified");
    scratch.write("new/file", "new");
    // A file becomes a folder, and a folder becomes a file.
    remove("turns");
    scratch.write("turns/into/folder", "new");
    fs_err::remove_dir_all(scratch.source().join("folder")).unwrap();
    scratch.write("folder", "now a file");
    let dry = commit::CommitOptions { run: CommitRun::Dry, ..options() };
    let would = commit(&scratch.repo(), &scratch.source(), &dry);
    let second = scratch.commit();
    assert_ne!(second.id, first.id);
    let expected = FileChanges { added: 3, modified: 1, unmodified: 2, deleted: 6, ignored: 0 };
    assert_eq!((second.files, would.files), (expected, expected));
    // The files that are ignored now still exist.
    scratch.write(".snapignore", "large/\na\n");
    remove("new/file");
    let third = scratch.commit();
    let expected = FileChanges { added: 1, modified: 0, unmodified: 3, deleted: 1, ignored: 2 };
    assert_eq!(third.files, expected);
}

#[test]
fn folders_cached_from_another_branch_are_compared() {
    let scratch = Scratch::new();
    for name in ["same/a", "other/below/a", "other/below/b", "other/c"] {
        scratch.write(name, name);
    }
    scratch.settle();
    let on_other =
        |scratch: &Scratch| commit(&scratch.repo(), &scratch.source(), &on_branch("other"));
    let all_added = FileChanges { added: 4, ..FileChanges::default() };
    assert_eq!(on_other(&scratch).files, all_added);
    // The branch of `HEAD` goes on, and the stat cache with it.
    scratch.write("other/below/a", "modified");
    scratch.write("other/below/d", "added");
    fs_err::remove_file(scratch.source().join("other/c")).unwrap();
    scratch.settle();
    let made = on_other(&scratch);
    assert_eq!(made.bytes_read, 0);
    let expected = FileChanges { added: 1, modified: 1, unmodified: 2, deleted: 1, ignored: 0 };
    assert_eq!(made.files, expected);
}

#[test]
fn a_commit_of_named_paths_counts_deleted_files() {
    let scratch = Scratch::new();
    for name in ["a/x", "a/y", "b/x", "c"] {
        scratch.write(name, name);
    }
    scratch.commit();
    fs_err::remove_dir_all(scratch.source().join("a")).unwrap();
    fs_err::remove_file(scratch.source().join("b/x")).unwrap();
    scratch.write("c", "modified");
    let named = ["a", "b"].map(|name| NamedPath {
        path: scratch.source().join(name),
        inside: vec![EntryName::new(name.as_bytes()).unwrap()],
    });
    let unnamed = commit::OtherPaths::Keep(scratch.source());
    let options = commit::CommitOptions { unnamed, ..options() };
    let source = CommitSource::Paths(named.into());
    let made = commit::run(&scratch.repo(), source, &options, &Silent).unwrap();
    let expected = FileChanges { deleted: 3, unmodified: 1, ..FileChanges::default() };
    assert_eq!(made.files, expected);
}
