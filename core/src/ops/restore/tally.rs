//! The totals, conflicts and damage of a restore. All threads add to one [`Tally`].

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use rustix::process::geteuid;

use crate::{
    base::{
        id::ObjectId,
        observe::{Note, Observer},
    },
    ops::restore::{DamagedEntry, RestoreError},
    store::{Store, StoreError},
};

/// Maximum number of conflicts that are listed by path. Further ones are only counted.
const LISTED_CONFLICTS: usize = 10;

/// Maximum number of damaged entries that are listed. Further ones are only counted.
const LISTED_DAMAGED: usize = 1000;

/// Totals of a restore. A dry run counts what a restore would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestoreOutcome {
    /// Files that were written.
    pub files_written: u64,
    /// Total size of the written files in bytes.
    pub bytes_written: u64,
    /// Files that share blocks with another file. They also count as written.
    pub files_cloned: u64,
    /// Existing files with the right content.
    pub files_kept: u64,
    /// Folders that were created.
    pub folders: u64,
    /// Symbolic links that were created.
    pub symlinks: u64,
    /// Hard links that were created.
    pub links: u64,
    /// Pipes, sockets and devices that were created.
    pub others: u64,
    /// Existing symbolic links, pipes, sockets and devices that were right.
    pub others_kept: u64,
    /// Existing entries with the right content whose attributes were corrected. For
    /// folders the mtime alone does not count.
    pub repaired: u64,
    /// Existing files, links and special files with the right content that keep
    /// attributes which differ from the snapshot.
    pub files_own_attributes: u64,
    /// Existing folders that keep attributes which differ from the snapshot.
    pub folders_own_attributes: u64,
    /// Paths that were removed. A folder and each entry in it count separately.
    pub removed: u64,
    /// Extras that could not be removed, or that stay because the rules of an ignore file that
    /// applies to them are unknown. Extras are paths that the snapshot lacks.
    pub not_removed: u64,
    /// Extras that are never removed, such as a store or a mount point. Entries below
    /// them are not counted.
    pub kept: u64,
    /// Extras that are kept because commits exclude them. Entries below them are not counted.
    pub excluded: u64,
    /// Files that no commit contains and that a dry run would remove or replace.
    pub unsaved: u64,
    /// Entries of the snapshot that are never restored, since they would be part of a
    /// store in the target.
    pub skipped: u64,
    /// Entries that the target refused, such as a device without privilege, or anything in
    /// an immutable folder. A refused folder counts once.
    pub not_made: u64,
    /// Attributes that could not be applied, each with the number of entries.
    pub not_applied: Vec<(&'static str, u64)>,
    /// Number of these refusals for another reason than a lack of privilege, such as a file system
    /// without support for the attribute.
    pub failed_attributes: u64,
}

impl RestoreOutcome {
    /// Returns true if the restore is complete: every entry and every attribute that this
    /// user may set is as in the snapshot, and every planned extra was removed.
    pub fn is_complete(&self) -> bool {
        let own_attributes = self.files_own_attributes + self.folders_own_attributes;
        let refused = self.not_made + self.not_removed + self.skipped + self.failed_attributes;
        refused + own_attributes == 0
    }
}

/// A list of paths that keeps the first ones and counts all.
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

    /// Returns the first paths, sorted so that the order of threads does not matter, and
    /// the count.
    fn take(&mut self) -> (Vec<PathBuf>, u64) {
        self.first.sort();
        (std::mem::take(&mut self.first), std::mem::take(&mut self.count))
    }
}

fn damaged_entry(path: PathBuf, object: ObjectId, source: Arc<StoreError>) -> DamagedEntry {
    let pack = match &*source {
        StoreError::Damaged { pack, .. }
        | StoreError::Format { pack, .. }
        | StoreError::Frame { pack, .. }
        | StoreError::Absent { pack, .. }
        | StoreError::CorruptedInTransit { pack, .. }
        | StoreError::Expand { pack, .. }
        | StoreError::Gone { pack } => Some(*pack),
        _ => None,
    };
    DamagedEntry { path, object, pack, source }
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The totals; `not_applied` is empty here.
    outcome: Mutex<RestoreOutcome>,
    not_applied: Mutex<BTreeMap<&'static str, u64>>,
    differing: Mutex<Paths>,
    blocked: Mutex<Paths>,
    damaged: Mutex<(Vec<DamagedEntry>, u64)>,
    /// Damaged ignore files of the snapshot that decide about extras. A visit that writes does not
    /// read them if the target has the same files.
    rules_damaged: Mutex<Vec<DamagedEntry>>,
}

impl Tally {
    pub(super) fn count(&self, change: impl FnOnce(&mut RestoreOutcome)) {
        change(&mut self.outcome.lock());
    }

    /// Clears the tally before the visit that writes, which finds damaged entries again. Keeps the
    /// counts of extras that stay, and the damaged ignore files. The caller has already called
    /// [`Tally::check_conflicts`].
    pub(super) fn reset(&mut self) {
        let RestoreOutcome { kept, excluded, not_removed, .. } = *self.outcome.get_mut();
        let outcome = RestoreOutcome { kept, excluded, not_removed, ..RestoreOutcome::default() };
        let rules_damaged = std::mem::take(self.rules_damaged.get_mut());
        *self = Self {
            outcome: Mutex::new(outcome),
            rules_damaged: Mutex::new(rules_damaged),
            ..Self::default()
        };
    }

    pub(super) fn differs(&self, path: PathBuf) {
        self.differing.lock().add(path);
    }

    pub(super) fn blocked(&self, path: PathBuf) {
        self.blocked.lock().add(path);
    }

    pub(super) fn damaged(
        &self,
        path: PathBuf,
        object: ObjectId,
        source: impl Into<Arc<StoreError>>,
    ) {
        let entry = damaged_entry(path, object, source.into());
        let mut damaged = self.damaged.lock();
        damaged.1 += 1;
        if damaged.0.len() < LISTED_DAMAGED {
            damaged.0.push(entry);
        }
    }

    /// Records a damaged ignore file of the snapshot, because of which extras stay.
    pub(super) fn rules_damaged(&self, path: PathBuf, object: ObjectId, source: StoreError) {
        let mut damaged = self.rules_damaged.lock();
        if damaged.len() < LISTED_DAMAGED {
            damaged.push(damaged_entry(path, object, Arc::new(source)));
        }
    }

    pub(super) fn is_damaged(&self) -> bool {
        self.damaged.lock().1 > 0
    }

    /// Counts an attribute that could not be applied. Reports the first failure of each
    /// attribute to the observer.
    pub(super) fn not_applied(
        &self,
        observer: &dyn Observer,
        what: &'static str,
        path: &Path,
        error: &io::Error,
    ) {
        let mut not_applied = self.not_applied.lock();
        let count = not_applied.entry(what).or_default();
        *count += 1;
        let is_first = *count == 1;
        drop(not_applied);
        let lacks_privilege = error.kind() == io::ErrorKind::PermissionDenied;
        if !lacks_privilege || geteuid().is_root() {
            self.count(|outcome| outcome.failed_attributes += 1);
        }
        if is_first {
            observer.note(Note::NotApplied { what, path, error });
        }
    }

    /// Counts an entry that could not be created, and reports it to the observer.
    pub(super) fn not_made(
        &self,
        observer: &dyn Observer,
        noun: &'static str,
        path: &Path,
        error: &io::Error,
    ) {
        self.count(|outcome| outcome.not_made += 1);
        observer.note(Note::NotCreated { noun, path, error });
    }

    /// Returns an error if an existing entry differs or blocks another one.
    pub(super) fn check_conflicts(&self) -> Result<(), RestoreError> {
        let (first, count) = self.differing.lock().take();
        if count > 0 {
            return Err(RestoreError::Differs { first, count });
        }
        if self.is_damaged() {
            return Ok(()); // `outcome` reports both.
        }
        let (first, count) = self.blocked.lock().take();
        if count > 0 { Err(RestoreError::Blocked { first, count }) } else { Ok(()) }
    }

    /// Returns the totals so far.
    pub(super) fn totals(&self) -> RestoreOutcome {
        let not_applied = self.not_applied.lock().iter().map(|(what, n)| (*what, *n)).collect();
        RestoreOutcome { not_applied, ..self.outcome.lock().clone() }
    }

    /// Returns the totals, or an error if entries are damaged.
    pub(super) fn outcome(&self, store: &Store) -> Result<RestoreOutcome, RestoreError> {
        let outcome = self.totals();
        let (mut entries, mut count) = std::mem::take(&mut *self.damaged.lock());
        for entry in std::mem::take(&mut *self.rules_damaged.lock()) {
            if !entries.iter().any(|known| known.path == entry.path) {
                count += 1;
                entries.push(entry);
            }
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        for entry in &mut entries {
            if entry.pack.is_none() {
                let place = store.locate(&entry.object).ok().flatten();
                entry.pack = place.and_then(|place| store.pack_id(place.pack));
            }
        }
        let Some(first) = entries.first() else { return Ok(outcome) };
        let source = Arc::clone(&first.source);
        let (blocked, blocked_count) = self.blocked.lock().take();
        let outcome = Box::new(outcome);
        Err(RestoreError::Damaged { entries, count, source, blocked, blocked_count, outcome })
    }
}
