//! What a commit counts: the total while it reads the files.

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
        observe::Observer,
    },
    ops::commit::{self, CommitSource, NamedPath},
};
use snap_testkit::wait::until;

use crate::scratch::{Scratch, on_branch};

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
