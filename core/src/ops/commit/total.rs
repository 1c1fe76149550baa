//! Counts the bytes that a first commit will read, while it reads them.
//!
//! A later commit takes the size of the previous commit as an estimate. For a first commit, a
//! thread lists the same folders with the same rules, and sets the total of the progress bar when
//! done. The thread opens no file, and it runs only if the observer shows progress.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError},
    thread,
};

use crate::{
    local::{
        ignore::{IgnoreRules, IgnoreScope},
        read::{open_folder, open_root},
        scan::{FileKind, FileStat},
        visible::{Visible, join},
    },
    ops::commit::{
        CommitOptions, CommitSource, NamedPath, OtherPaths, are_in_project, job::CommitJob,
        paths::joined,
    },
    repo::Repo,
};

/// Calls `read`, which reads `input`. Meanwhile, counts the bytes of `input` if the observer of
/// `job` shows progress and `estimate` is not known.
pub(super) fn count_beside<T>(
    repo: &Repo,
    job: &CommitJob<'_>,
    input: &mut CommitSource<'_>,
    options: &CommitOptions,
    estimate: Option<u64>,
    read: impl FnOnce(&mut CommitSource<'_>) -> T,
) -> T {
    let delay = job.observer.shows_progress_after().filter(|_| estimate.is_none());
    let roots = counted_roots(repo, input, options);
    let (Some(delay), false) = (delay, roots.is_empty()) else { return read(input) };
    let (reading, ended) = mpsc::channel::<()>();
    thread::scope(|threads| {
        let count = move || {
            if ended.recv_timeout(delay) == Err(RecvTimeoutError::Timeout)
                && let Some(bytes) = total_bytes(job, &roots, &ended)
            {
                job.observer.total(bytes);
            }
        };
        // If the thread cannot be started, the progress bar has no total.
        let _ = thread::Builder::new().name("total".to_owned()).spawn_scoped(threads, count);
        let outcome = read(input);
        // End the thread.
        drop(reading);
        outcome
    })
}

/// Returns the roots of the walk, or nothing if their ignore rules depend on other folders. The
/// root of the snapshot has no name.
fn counted_roots(repo: &Repo, input: &CommitSource<'_>, options: &CommitOptions) -> Vec<NamedPath> {
    match (input, &options.unnamed) {
        (CommitSource::Folder(path), _) => {
            vec![NamedPath { path: path.clone(), inside: Vec::new() }]
        }
        (CommitSource::Paths(paths), OtherPaths::Remove)
            if !repo.project().is_some_and(|root| are_in_project(root, paths)) =>
        {
            paths.clone()
        }
        _ => Vec::new(),
    }
}

/// Returns the total size of the files in bytes, or `None` if the sender of `ended` was dropped.
/// Skips entries that cannot be listed, as the commit does.
fn total_bytes(job: &CommitJob<'_>, roots: &[NamedPath], ended: &Receiver<()>) -> Option<u64> {
    let stop = || ended.try_recv() == Err(TryRecvError::Disconnected) || job.stopped();
    let bytes = |root: &NamedPath| match FileStat::of_path(&root.path) {
        Ok(stat) if stat.kind == FileKind::File => stat.size,
        _ => bytes_below(job.rules, root, &stop),
    };
    let total = roots.iter().map(bytes).sum();
    (!stop()).then_some(total)
}

/// A listed folder whose entries are being counted.
struct CountedFolder {
    fd: OwnedFd,
    /// The path in the snapshot.
    path: Vec<u8>,
    visible: Visible,
    /// Index of the next entry to count.
    next: usize,
}

/// Returns the total size of the files in a folder. Stops early once `stop` returns true.
fn bytes_below(rules: &IgnoreRules, root: &NamedPath, stop: &dyn Fn() -> bool) -> u64 {
    let list = |fd: OwnedFd, path: Vec<u8>, above: &IgnoreScope| {
        let visible = Visible::read(rules, above, &fd, &path, stop)?;
        io::Result::Ok(CountedFolder { fd, path, visible, next: 0 })
    };
    let Ok(top) = open_root(&root.path) else { return 0 };
    let Ok(FileStat { device, .. }) = FileStat::of_fd(top.as_fd()) else { return 0 };
    let top = list(top, joined(&root.inside), &IgnoreScope::default());
    let mut bytes = 0;
    // The open folders from the root to the next entry. This stack takes less memory than a list of
    // all folders that are still to be listed.
    let mut folders: Vec<CountedFolder> = top.into_iter().collect();
    while let Some(CountedFolder { fd, path, visible, next }) = folders.last_mut() {
        let Some(entry) = visible.listing.entries.get(*next) else {
            folders.pop();
            continue;
        };
        *next += 1;
        match entry.stat.kind {
            FileKind::File => bytes += entry.stat.size,
            FileKind::Folder if stop() => break,
            FileKind::Folder
                if rules.enters(&*fd, visible.listing.name(entry), &entry.stat, device) =>
            {
                let name = visible.listing.name(entry);
                let below = open_folder(fd.as_fd(), OsStr::from_bytes(name))
                    .and_then(|fd| list(fd, join(path, name), &visible.scope));
                folders.extend(below);
            }
            _ => {}
        }
    }
    bytes
}
