//! Rolling checks: each pack is read again after some time. The pack whose last check is
//! oldest comes first, and a run ends when its time budget is spent.
//!
//! The file `cache/checked` has a line for each pack that was read and found sound, in the format
//! of [`PackCheck`]. For a local store the identity is the device, inode and ctime of the pack's
//! file. A copy of the store or a replaced pack therefore counts as unchecked. For a partial pack,
//! the check covers the frames that are stored locally. The file is a cache: a pack without a line
//! is due.

use std::{
    collections::BTreeSet,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{
    base::{id::PackId, time::Time},
    ops::verify::{Data, VerifyOutcome},
    store::{PackCheck, PackChecks, Store, StoreError},
};

/// Name of the file with the times of checks.
const CHECKED: &str = "checked";

/// Selects the packs that a rolling check reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rolling {
    /// A pack is due if its last check is at least this old.
    pub max_age: Duration,
    /// No further pack is started after this time. The first due pack is always read, so
    /// that each run makes progress.
    pub budget: Option<Duration>,
}

/// Returns the identity of a pack, or `None` if it cannot be determined.
type PackIdentifier<'s> = dyn Fn(&PackId) -> Option<String> + Sync + 's;

/// Decides how much of each pack is read, and records which packs were checked
/// completely.
pub(super) struct Schedule<'s> {
    data: Data,
    /// The file with the times of checks.
    path: PathBuf,
    identify: Box<PackIdentifier<'s>>,
    now_secs: i64,
    /// Earlier checks that still match the present packs.
    before: PackChecks,
    deadline: Option<Instant>,
    has_begun: AtomicBool,
    right: Mutex<PackChecks>,
    due: AtomicU64,
    left: AtomicU64,
}

impl<'s> Schedule<'s> {
    /// Creates the schedule of a run that starts now, from the check times that `store`
    /// keeps.
    pub(super) fn new(
        store: &Store,
        data: Data,
        identify: impl Fn(&PackId) -> Option<String> + Sync + 's,
    ) -> Self {
        let path = checks_file(store);
        let now_secs = Time::now().secs;
        let (before, budget) = match data {
            Data::Due(rolling) => (valid_checks(&path, now_secs, &identify), rolling.budget),
            _ => (PackChecks::new(), None),
        };
        Self {
            data,
            path,
            identify: Box::new(identify),
            now_secs,
            before,
            // A budget that overflows the clock means no deadline.
            deadline: budget.and_then(|budget| Instant::now().checked_add(budget)),
            has_begun: AtomicBool::new(false),
            right: Mutex::default(),
            due: AtomicU64::new(0),
            left: AtomicU64::new(0),
        }
    }

    /// Sorts packs by their last check, oldest first. Packs that were never checked come
    /// first.
    pub(super) fn sort(&self, packs: &mut [PackId]) {
        if matches!(self.data, Data::Due(_)) {
            packs.sort_by_key(|id| self.before.get(id).map(|check| check.secs));
        }
    }

    /// Returns true if the last check of a pack is too old.
    pub(super) fn is_due(&self, id: &PackId) -> bool {
        let Data::Due(rolling) = self.data else { return false };
        let age_secs = self.before.get(id).map(|check| self.now_secs.abs_diff(check.secs));
        age_secs.is_none_or(|age| age >= rolling.max_age.as_secs())
    }

    /// Returns how much of a pack to read now. Must be called for one pack after the
    /// other, in order. A pack that is known to be damaged is read in each run,
    /// regardless of the budget. A run that skipped it would report no problem.
    pub(super) fn begin(&self, id: &PackId, was_damaged: bool) -> Data {
        match self.data {
            Data::Due(_) if was_damaged => {
                self.due.fetch_add(1, Ordering::Relaxed);
                return Data::All;
            }
            Data::Due(_) if !self.is_due(id) => return Data::None,
            Data::Due(_) => {}
            _ if was_damaged => return Data::All,
            data => return data,
        }
        self.due.fetch_add(1, Ordering::Relaxed);
        let is_late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if self.has_begun.swap(true, Ordering::Relaxed) && is_late {
            self.left.fetch_add(1, Ordering::Relaxed);
            return Data::None;
        }
        Data::All
    }

    /// Returns the identity of a pack. Call this before the pack is read, so that a pack
    /// replaced meanwhile is not recorded as checked.
    pub(super) fn identity(&self, id: &PackId) -> Option<String> {
        (self.identify)(id)
    }

    /// Records that a pack with this identity was read completely and is sound.
    pub(super) fn add_sound(&self, id: PackId, identity: Option<String>) {
        if let Some(identity) = identity {
            self.right.lock().insert(id, PackCheck { secs: self.now_secs, identity });
        }
    }

    /// Saves the checks of all packs that `store` still has, and adds the counts to
    /// `outcome`.
    pub(super) fn finish(&self, store: &Store, outcome: &mut VerifyOutcome) {
        outcome.due_packs = self.due.load(Ordering::Relaxed);
        outcome.left_packs = self.left.load(Ordering::Relaxed);
        let right = self.right.lock();
        if right.is_empty() {
            return;
        }
        // Another run may have written the file meanwhile, so merge with its present
        // contents.
        let mut checks = PackCheck::read_all(&self.path);
        let present: BTreeSet<PackId> = store.packs().into_iter().collect();
        checks.retain(|id, _| present.contains(id));
        checks.extend(right.iter().map(|(id, check)| (*id, check.clone())));
        outcome.unsaved_times = write(&self.path, &checks, store).err();
    }
}

/// When the packs of a store were last read and hashed completely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataChecks {
    /// Time of the oldest of these checks, in seconds since 1970; `None` without a checked pack.
    pub oldest_secs: Option<i64>,
    /// Packs without a check.
    pub unchecked_packs: u64,
}

impl DataChecks {
    /// Reads when the packs of a local store were checked. Reads no pack.
    pub fn of(store: &Store) -> Self {
        let identify = |id: &PackId| identity_here(store, id);
        let checks = valid_checks(&checks_file(store), Time::now().secs, &identify);
        let unchecked = store.packs().into_iter().filter(|id| !checks.contains_key(id));
        Self {
            oldest_secs: checks.values().map(|check| check.secs).min(),
            unchecked_packs: unchecked.count() as u64,
        }
    }
}

fn checks_file(store: &Store) -> PathBuf {
    store.dir().join("cache").join(CHECKED)
}

/// Reads the checks that match the present packs. A check time in the future is not trusted.
fn valid_checks(path: &Path, now_secs: i64, identify: &PackIdentifier<'_>) -> PackChecks {
    let mut checks = PackCheck::read_all(path);
    checks.retain(|id, check| {
        check.secs <= now_secs && identify(id).as_ref() == Some(&check.identity)
    });
    checks
}

/// Returns the identity of a local pack: device, inode and ctime of its file.
pub(super) fn identity_here(store: &Store, id: &PackId) -> Option<String> {
    let meta = fs_err::metadata(store.pack_path(id)).ok()?;
    let changed = (meta.ctime(), meta.ctime_nsec());
    Some(format!("{}:{}:{}.{:09}", meta.dev(), meta.ino(), changed.0, changed.1))
}

fn write(path: &Path, checks: &PackChecks, store: &Store) -> Result<(), StoreError> {
    let disk = store.disk();
    disk.create_folders(path.parent().unwrap_or(Path::new(".")))?;
    let text: String = checks.iter().map(|(id, check)| check.line(id)).collect();
    Ok(disk.write_whole(&store.scratch_dir()?, path, text.as_bytes())?)
}
