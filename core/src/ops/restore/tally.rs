//! What a restore has done so far, counted by all threads.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::process::geteuid;

use crate::{
    base::{
        id::ObjectId,
        observe::{Note, Observer},
    },
    ops::restore::{DamagedEntry, RestoreError},
    store::{Store, StoreError},
};

/// Conflicts that are listed by path; the others are counted.
const LISTED_CONFLICTS: usize = 10;

/// Damaged entries that are listed; the others are counted.
const LISTED_DAMAGED: usize = 1000;

/// What a restore did, or in a dry run would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Files written.
    pub files_written: u64,
    /// Their bytes.
    pub bytes_written: u64,
    /// Files whose blocks are shared with another's; counted as written, too.
    pub files_cloned: u64,
    /// Files that were there and right.
    pub files_kept: u64,
    /// Folders made.
    pub folders: u64,
    /// Symbolic links made.
    pub symlinks: u64,
    /// Hard links made.
    pub links: u64,
    /// Pipes, sockets and devices made.
    pub others: u64,
    /// Symbolic links, pipes, sockets and devices that were there and right.
    pub others_kept: u64,
    /// Entries whose content was right, but not their attributes.
    pub repaired: u64,
    /// Paths removed, counting each folder and all that was in it.
    pub removed: u64,
    /// Paths that the snapshot lacks and that could not be removed.
    pub not_removed: u64,
    /// Paths that the snapshot lacks and that are never removed, such as a
    /// store or a mount point; not counting what is below them.
    pub kept: u64,
    /// Paths that the snapshot lacks and that stay because commits leave them
    /// out; not counting what is below them.
    pub excluded: u64,
    /// Files that a dry run would remove or replace and that no commit holds.
    pub unsaved: u64,
    /// Entries of the snapshot that are never restored: a store in the target.
    pub skipped: u64,
    /// Pipes, sockets and devices that the system would not make.
    pub not_made: u64,
    /// What could not be applied, and to how many entries.
    pub not_applied: Vec<(&'static str, u64)>,
    /// How many of those refusals had another reason than that the user lacks the
    /// privilege, such as a file system without the attribute.
    pub failed_attributes: u64,
}

impl Outcome {
    /// Returns whether every entry of the snapshot was restored, with every attribute
    /// that this user may set, and every extra entry removed that was to be removed.
    pub fn is_complete(&self) -> bool {
        self.not_made + self.not_removed + self.skipped + self.failed_attributes == 0
    }
}

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    FilesWritten,
    BytesWritten,
    FilesCloned,
    FilesKept,
    Folders,
    Symlinks,
    Links,
    Others,
    OthersKept,
    Repaired,
    Removed,
    NotRemoved,
    Kept,
    Excluded,
    Unsaved,
    Skipped,
    NotMade,
    FailedAttributes,
}

/// Paths, of which the first are kept.
#[derive(Debug, Default)]
struct Paths {
    first: Vec<PathBuf>,
    count: u64,
}

impl Paths {
    fn add(&mut self, path: PathBuf) {
        self.count += 1;
        if self.first.len() < LISTED_CONFLICTS {
            self.first.push(path);
        }
    }

    /// The first few in order, whichever thread found them first.
    fn take(&mut self) -> (Vec<PathBuf>, u64) {
        self.first.sort();
        (std::mem::take(&mut self.first), std::mem::take(&mut self.count))
    }
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    counts: [AtomicU64; 18],
    not_applied: Mutex<BTreeMap<&'static str, u64>>,
    differing: Mutex<Paths>,
    blocked: Mutex<Paths>,
    damaged: Mutex<(Vec<DamagedEntry>, u64)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tally {
    pub(super) fn add(&self, count: Count, more: u64) {
        self.counts[count as usize].fetch_add(more, Ordering::Relaxed);
    }

    fn get(&self, count: Count) -> u64 {
        self.counts[count as usize].load(Ordering::Relaxed)
    }

    /// Forgets what was counted, except what stays; conflicts and damage were
    /// dealt with.
    pub(super) fn reset(&mut self) {
        let (kept, excluded) = (self.get(Count::Kept), self.get(Count::Excluded));
        *self = Self::default();
        self.add(Count::Kept, kept);
        self.add(Count::Excluded, excluded);
    }

    pub(super) fn differs(&self, path: PathBuf) {
        lock(&self.differing).add(path);
    }

    pub(super) fn blocked(&self, path: PathBuf) {
        lock(&self.blocked).add(path);
    }

    pub(super) fn damaged(
        &self,
        path: PathBuf,
        object: ObjectId,
        source: impl Into<Arc<StoreError>>,
    ) {
        let source = source.into();
        let pack = match &*source {
            StoreError::Damaged { pack, .. }
            | StoreError::Format { pack, .. }
            | StoreError::Frame { pack, .. }
            | StoreError::Absent { pack, .. }
            | StoreError::Garbled { pack, .. }
            | StoreError::Expand { pack, .. }
            | StoreError::Gone { pack } => Some(*pack),
            _ => None,
        };
        let mut damaged = lock(&self.damaged);
        damaged.1 += 1;
        if damaged.0.len() < LISTED_DAMAGED {
            damaged.0.push(DamagedEntry { path, object, pack, source });
        }
    }

    pub(super) fn is_damaged(&self) -> bool {
        lock(&self.damaged).1 > 0
    }

    /// Counts what could not be applied, and tells the observer of the first.
    pub(super) fn not_applied(
        &self,
        observer: &dyn Observer,
        what: &'static str,
        path: &Path,
        error: &io::Error,
    ) {
        let mut not_applied = lock(&self.not_applied);
        let count = not_applied.entry(what).or_default();
        *count += 1;
        let is_first = *count == 1;
        drop(not_applied);
        let lacks_privilege = error.kind() == io::ErrorKind::PermissionDenied;
        if !lacks_privilege || geteuid().is_root() {
            self.add(Count::FailedAttributes, 1);
        }
        if is_first {
            observer.note(Note::NotApplied { what, path, error });
        }
    }

    /// Counts what could not be made, and tells the observer of it.
    pub(super) fn not_made(
        &self,
        observer: &dyn Observer,
        noun: &'static str,
        path: &Path,
        error: &io::Error,
    ) {
        self.add(Count::NotMade, 1);
        observer.note(Note::NotMade { noun, path, error });
    }

    /// Fails when something differs, or stands in the way.
    pub(super) fn check_conflicts(&self) -> Result<(), RestoreError> {
        let (first, count) = lock(&self.differing).take();
        if count > 0 {
            return Err(RestoreError::Differs { first, count });
        }
        if self.is_damaged() {
            return Ok(()); // `outcome` tells of both.
        }
        let (first, count) = lock(&self.blocked).take();
        if count > 0 { Err(RestoreError::Blocked { first, count }) } else { Ok(()) }
    }

    /// The counts up to now.
    pub(super) fn counts(&self) -> Outcome {
        Outcome {
            files_written: self.get(Count::FilesWritten),
            bytes_written: self.get(Count::BytesWritten),
            files_cloned: self.get(Count::FilesCloned),
            files_kept: self.get(Count::FilesKept),
            folders: self.get(Count::Folders),
            symlinks: self.get(Count::Symlinks),
            links: self.get(Count::Links),
            others: self.get(Count::Others),
            others_kept: self.get(Count::OthersKept),
            repaired: self.get(Count::Repaired),
            removed: self.get(Count::Removed),
            not_removed: self.get(Count::NotRemoved),
            kept: self.get(Count::Kept),
            excluded: self.get(Count::Excluded),
            unsaved: self.get(Count::Unsaved),
            skipped: self.get(Count::Skipped),
            not_made: self.get(Count::NotMade),
            failed_attributes: self.get(Count::FailedAttributes),
            not_applied: lock(&self.not_applied).iter().map(|(what, n)| (*what, *n)).collect(),
        }
    }

    /// What was done; an error when something is damaged.
    pub(super) fn outcome(&self, store: &Store) -> Result<Outcome, RestoreError> {
        let outcome = self.counts();
        let (mut entries, count) = std::mem::take(&mut *lock(&self.damaged));
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        for entry in &mut entries {
            if entry.pack.is_none() {
                let place = store.locate(&entry.object).ok().flatten();
                entry.pack = place.and_then(|place| store.pack_id(place.pack));
            }
        }
        let Some(first) = entries.first() else { return Ok(outcome) };
        let source = Arc::clone(&first.source);
        let (blocked, blocked_count) = lock(&self.blocked).take();
        let outcome = Box::new(outcome);
        Err(RestoreError::Damaged { entries, count, source, blocked, blocked_count, outcome })
    }
}
