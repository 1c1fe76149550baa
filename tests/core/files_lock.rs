//! The lock on a project's files, and files that are restored in the middle of a commit
//! in spite of it.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use snap_core::{
    base::{
        id::CommitId,
        observe::{Note, Observer, Silent},
    },
    disk::{Disk, DiskStep, FaultDecision, FaultInjector},
    ops::commit::{self, BehindPolicy, CommitSource},
    repo::{
        Config, RefError, RefLogMessage, RefName, Repo,
        files_lock::FilesUse,
        ref_name::Pointer,
        refs::{Head, Refs},
    },
};

use crate::scratch::{START, open, open_gated, options, temporary};

/// An observer that cancels once it is notified that it waits.
#[derive(Default)]
struct Impatient(AtomicBool);

impl Observer for Impatient {
    fn note(&self, note: Note<'_>) {
        if matches!(note, Note::FilesBusy { .. }) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn project(dir: &Path) -> Repo {
    Repo::init(&dir.join(".snap"), &Disk::default(), &Config::default()).unwrap();
    open(&dir.join(".snap"))
}

#[test]
fn a_restore_waits_for_commits_and_a_commit_waits_for_a_restore() {
    let dir = temporary();
    let repo = project(dir.path());
    let reads = [(); 2].map(|()| repo.lock_files(FilesUse::Read, &Silent).unwrap().unwrap());
    let busy = repo.lock_files(FilesUse::Write, &Impatient::default());
    assert!(matches!(busy, Err(RefError::Blocked(_))), "{busy:?}");
    drop(reads);
    let write = repo.lock_files(FilesUse::Write, &Silent).unwrap();
    fs_err::write(dir.path().join("a"), "1").unwrap();
    let with = commit::CommitOptions { unseen: BehindPolicy::Refuse, ..options() };
    let made = commit::run(
        &repo,
        CommitSource::Folder(dir.path().to_owned()),
        &with,
        &Impatient::default(),
    );
    assert!(made.is_err(), "the files are being written");
    drop(write);
    commit::run(&repo, CommitSource::Folder(dir.path().to_owned()), &with, &Silent).unwrap();
}

/// An observer that runs a function once, in the middle of a commit: after files were
/// read.
struct Meanwhile<F>(Mutex<Option<F>>);

impl<F: FnOnce() + Send> Observer for Meanwhile<F> {
    fn advance(&self, _: u64, _: u64) {
        if let Some(work) = self.0.lock().take() {
            work();
        }
    }
}

#[test]
fn files_restored_during_a_commit_are_read_again() {
    let dir = temporary();
    let repo = project(dir.path());
    let file = |name: &str| dir.path().join(name);
    let source = || CommitSource::Folder(dir.path().to_owned());
    let with = || commit::CommitOptions { unseen: BehindPolicy::Refuse, ..options() };
    let main = RefName::branch("main").unwrap();
    fs_err::write(file("a"), "1").unwrap();
    let first = commit::run(&repo, source(), &with(), &Silent).unwrap().id.unwrap();
    // A commit of another folder.
    fs_err::write(file("theirs"), "1").unwrap();
    let theirs = commit::run(&repo, source(), &with(), &Silent).unwrap().id.unwrap();
    let change = RefLogMessage { time: START, who: "Ann", reason: "undo" };
    repo.refs().update(&main, Some(theirs), Some(first), &change).unwrap();
    fs_err::remove_file(file("theirs")).unwrap();
    fs_err::remove_dir_all(file(".snap/logs")).unwrap();
    repo.set_committed_base(first).unwrap();
    fs_err::write(file("mine"), "1").unwrap();
    // The restore ignores the lock, as on a file system without locks on folders.
    let meanwhile = Meanwhile(Mutex::new(Some(|| {
        let repo = open(&file(".snap"));
        let change = RefLogMessage { time: START, who: "Ann", reason: "pull: elsewhere" };
        repo.refs().update(&main, Some(first), Some(theirs), &change).unwrap();
        fs_err::write(file("theirs"), "1").unwrap();
        repo.set_committed_base(theirs).unwrap();
    })));
    let made = commit::run(&repo, source(), &with(), &meanwhile).unwrap().id.unwrap();
    let made = open(&file(".snap")).store().commit(&made).unwrap();
    assert_eq!(made.parents, [theirs]);
    assert_eq!(made.totals.files, 3, "the other commit's file is included");
}

/// A gate that refuses to rename files to refs.
#[derive(Debug)]
struct NoRefs;

impl FaultInjector for NoRefs {
    fn decide(&self, step: DiskStep, path: &Path) -> FaultDecision {
        let is_ref = path.to_string_lossy().contains("/refs/") || path.ends_with("HEAD");
        let is_log = path.to_string_lossy().contains("/logs/");
        match step {
            DiskStep::Rename if is_ref && !is_log => {
                FaultDecision::Fail(std::io::ErrorKind::StorageFull.into())
            }
            _ => FaultDecision::Go,
        }
    }
}

#[test]
fn a_ref_that_could_not_be_written_leaves_no_line_in_its_log() {
    let dir = temporary();
    let repo = project(dir.path());
    fs_err::write(dir.path().join("a"), "1").unwrap();
    let id = commit::run(&repo, CommitSource::Folder(dir.path().to_owned()), &options(), &Silent);
    let id: CommitId = id.unwrap().id.unwrap();
    let main = RefName::branch("main").unwrap();
    let tag = RefName::parse_full("refs/tags/v1").unwrap();
    let lines = |refs: &Refs| {
        (
            refs.log(&main).unwrap().len(),
            refs.log(&tag).unwrap().len(),
            refs.log_of(&Pointer::Head).unwrap().len(),
        )
    };
    let before = lines(repo.refs());
    let gated = open_gated(&dir.path().join(".snap"), Arc::new(NoRefs));
    let change = RefLogMessage { time: START, who: "Ann", reason: "tag" };
    assert!(gated.refs().update(&tag, None, Some(id), &change).is_err());
    assert!(gated.refs().update(&main, Some(id), Some(CommitId::of(b"x")), &change).is_err());
    let head = gated.refs().head().unwrap();
    assert!(gated.refs().set_head(&head, &Head::Detached(id), &change).is_err());
    assert_eq!(lines(repo.refs()), before);
    assert_eq!(repo.refs().read(&main).unwrap(), Some(id));
}
