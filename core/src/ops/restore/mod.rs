//! `restore`: writes the contents of a snapshot into a folder.
//!
//! A restore takes two passes over the tree, and a third one first if the target is not
//! empty:
//!
//! 1. *compare* (`visit`, without writing): for a dry run, to plan removals (`plan`), and if
//!    nothing may be overwritten in a target that is not empty. An entry that differs stops the
//!    restore before anything is written.
//! 2. *write* (`visit` → `window` → `large`): contents of replaced folders are removed
//!    (`remove`). Folders and links are created during the walk, and files are collected in
//!    windows. A window is sorted by the position of the contents, so that each frame is
//!    decompressed once. Several threads write it while the next window is collected.
//! 3. *finish*: extras are removed (`remove`) unless contents are damaged, and folders get their
//!    attributes, deepest first (`finish`).
//!
//! Memory holds up to three windows, a few frames, and the folders from the root to the present
//! one. It also holds the hard links seen so far, which grow with the snapshot, and the plan of
//! removals, which grows with the target.
//!
//! A file gets its name only after its content was hashed and verified. A file with damaged content
//! is left out and reported at the end; the other files are restored. A repeated restore keeps
//! files that are right. The attributes of an existing entry change only if it may be overwritten.
//! The next restore finishes the folders that a killed restore created
//! ([`unfinished`](crate::local::unfinished)). A restore syncs nothing.

mod compare;
mod error;
mod exact;
mod filter;
mod finish;
mod guard;
mod job;
mod large;
mod links;
mod plan;
mod recover;
mod remove;
mod tally;
mod visit;
mod walk;
mod window;

use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustix::fs::Stat;

use crate::{
    base::{
        id::{CommitId, ContentId, TreeId},
        observe::{Observer, Phase},
    },
    format::{
        selection::UnreadPaths,
        tree::{Entry, Metadata},
    },
    local::{ignore, owners::OwnerMapping},
    store::Store,
};

pub(in crate::ops) use compare::file_type;
pub use error::{DamagedEntry, RestoreError};
pub use exact::ExactPaths;
use job::RestoreJob;
use plan::RemovalPlan;
pub use tally::RestoreOutcome;
use visit::{FileProof, VisitMode};

/// The source of a restore.
#[derive(Clone, Debug)]
pub enum RestoreSource {
    /// The contents of a tree. The target corresponds to the tree itself.
    Folder { tree: TreeId, root: Option<Metadata> },
    /// One entry, which is restored into the target under its own name.
    Entry(Box<Entry>),
}

/// Selects what happens to an existing entry that differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// The entry stops the restore before anything is written. If only the attributes differ, the
    /// entry stays as it is, and the restore continues.
    #[default]
    Stop,
    /// The entry is replaced, or gets the attributes of the snapshot. A folder in the place of
    /// another kind of entry is replaced only if it is empty, unless [`Extras::Delete`] is given,
    /// too.
    Overwrite,
}

/// Selects what happens to an entry that the snapshot lacks (an extra).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extras {
    /// The extra stays.
    #[default]
    Keep,
    /// The extra is removed. Exceptions: stores, everything behind a mount point, entries that
    /// cannot be read, entries that the patterns leave out, and entries that
    /// [`RestoreOptions::protection`] keeps.
    Delete,
}

/// Selects between a restore and a dry run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Writes.
    #[default]
    Write,
    /// Writes nothing and only reports changes.
    DryRun,
    /// Writes nothing and only calls [`RestoreOptions::confirm`], if there is a reason.
    Check,
}

/// Selects whether owners are restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ownership {
    /// Applies recorded owners, as far as the user's privileges allow.
    #[default]
    Apply,
    /// Leaves files with the user who runs the restore.
    Leave,
}

/// A change that the restore makes, or would make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestoreAction {
    /// A new entry is created.
    Create,
    /// An entry replaces another one.
    Replace,
    /// The attributes of an entry are corrected.
    Repair,
    /// The attributes of an entry differ and are kept.
    Keep,
    /// An entry is removed with everything below it.
    Remove,
}

/// The content that a change would lose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContentLoss {
    /// No content, or not determined.
    #[default]
    Nothing,
    /// A file whose content a commit contains.
    Recoverable,
    /// A file whose content no commit contains.
    Unsaved,
}

/// The files that a restore is about to remove or replace irrecoverably.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Number of files that no commit contains.
    pub count: u64,
    /// Paths of the first such files, relative to the target.
    pub first: Vec<PathBuf>,
}

/// Selects the losses that the caller must confirm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AskedLosses {
    /// Files that are removed.
    #[default]
    Removed,
    /// Also files that other entries replace.
    RemovedAndReplaced,
}

/// Selects what happens to a `.git` at the top of the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GitAtTop {
    /// It is restored and removed as any other entry.
    #[default]
    Restore,
    /// It belongs to git: it is neither written nor removed.
    Keep,
}

/// Describes which extras are kept because no commit could have contained them.
#[derive(Clone, Debug, Default)]
pub struct ExtraProtection {
    /// The present exclude rules and the rules that the commit records. Each set is
    /// applied by itself.
    pub rules: Vec<ignore::Options>,
    /// Paths in the snapshot that the commit could not read.
    pub unread: UnreadPaths,
    /// Paths in the snapshot from which the commit was made. `None` if it was made from
    /// one whole folder.
    pub made_of: Option<Vec<Vec<u8>>>,
    /// The path in the snapshot to which the target corresponds.
    pub place: Vec<u8>,
    /// The root tree of the snapshot, for ignore files above `place`.
    pub root: Option<TreeId>,
    /// The folder that corresponds to the root of the snapshot, if the target lies at
    /// `place` below it.
    pub above: Option<PathBuf>,
}

/// Returns the content's id of an existing file, if it is known without reading the file.
pub type ContentLookup<'a> = dyn Fn(&Stat) -> Option<ContentId> + Sync + 'a;

/// Returns a local file that probably has the content of the file at this path (relative
/// to the target). The restore can share its blocks.
pub type ReflinkLookup<'a> = dyn Fn(&Path, &ContentId) -> Option<PathBuf> + Sync + 'a;

/// Receives each change with its path relative to the target. In a dry run, also receives
/// what the change loses.
pub type OnRestoreAction<'a> = dyn Fn(&Path, RestoreAction, ContentLoss) + Sync + 'a;

/// Asks whether to continue although files would be lost.
pub type Confirm<'a> = dyn Fn(&Losses) -> bool + Sync + 'a;

/// Options of a restore. The default overwrites nothing and writes for real.
#[derive(Clone, Default)]
pub struct RestoreOptions<'a> {
    /// Selects what happens to existing entries that differ.
    pub existing: Existing,
    /// Selects what happens to entries that the snapshot lacks.
    pub extras: Extras,
    /// Selects between a restore and a dry run.
    pub mode: Mode,
    /// Restores only entries that match one of these patterns, in the syntax of ignore
    /// files.
    pub include: Vec<String>,
    /// Restores no entries that match one of these patterns.
    pub exclude: Vec<String>,
    /// Restores and removes only these paths, as far as the patterns allow, and refuses a path that
    /// has changed since [`ExactPaths::look`].
    pub only: Option<&'a ExactPaths>,
    /// Selects whether owners are mapped by name or by number.
    pub ids: OwnerMapping,
    /// Selects whether owners are restored.
    pub ownership: Ownership,
    /// Number of threads; 0 means one for each core.
    pub jobs: usize,
    /// Returns known content ids, so that existing files need not be read.
    pub known: Option<&'a ContentLookup<'a>>,
    /// Finds files whose blocks can be shared.
    pub holder: Option<&'a ReflinkLookup<'a>>,
    /// Receives each change.
    pub on_change: Option<&'a OnRestoreAction<'a>>,
    /// Keeps extras that no commit could have contained.
    pub protection: Option<&'a ExtraProtection>,
    /// Commits whose histories make a content recoverable.
    pub tips: Vec<CommitId>,
    /// Called before anything is removed or written, if a file that no commit contains
    /// would be lost.
    pub confirm: Option<&'a Confirm<'a>>,
    /// Selects the losses about which `confirm` is called.
    pub asked: AskedLosses,
    /// Selects what happens to a `.git` at the top of the target.
    pub git: GitAtTop,
    /// Called once before the first change, unless this is a dry run.
    pub before_changes: Option<&'a (dyn Fn() + Sync + 'a)>,
    /// True if the caller has just created the target. The target then gets the
    /// attributes from the snapshot.
    pub is_new_target: bool,
    /// A folder that contains the target, or is the target. No symlink between it and the
    /// target is followed.
    pub above: Option<&'a Path>,
    /// Receives the counts so far, even if an error ended the restore.
    pub so_far: Option<&'a Mutex<RestoreOutcome>>,
}

/// Restores `what` into the folder `target`, which is created if it is missing.
///
/// # Errors
/// Before anything is written: [`RestoreError::Differs`], [`RestoreError::Blocked`] and
/// [`RestoreError::Unsaved`]. After all undamaged entries were restored:
/// [`RestoreError::Damaged`]. At any time: [`RestoreError::Interrupted`] and I/O errors.
/// A repeated run continues the restore.
pub fn run(
    store: &Store,
    what: &RestoreSource,
    target: &Path,
    options: &RestoreOptions<'_>,
    observer: &dyn Observer,
) -> Result<RestoreOutcome, RestoreError> {
    let mut job = RestoreJob::new(store, options, observer)?;
    job.open(target)?;
    let dry = options.mode == Mode::DryRun;
    let compares = dry || (options.existing == Existing::Stop && !job.is_empty());
    let mut plan = RemovalPlan::default();
    if compares || !job.is_empty() {
        observer.phase(Phase::Compare, None);
        plan = match (compares, job.asks_about_edits()) {
            (true, _) => job.plan_removals(what, VisitMode::Compare, FileProof::Hash)?,
            // This pass also runs without `--delete`, so that a folder that cannot be
            // replaced is reported before anything is written.
            (false, true) => job.plan_removals(what, VisitMode::Plan, FileProof::Content)?,
            (false, false) => job.plan_removals(what, VisitMode::Plan, FileProof::Kind)?,
        };
        if dry {
            job.assess_losses(&mut plan)?;
            plan.report(&job);
        }
        job.tally.check_conflicts()?;
        if dry {
            return job.tally.outcome(store);
        }
        job.tally.reset();
    }
    let proof = if compares { FileProof::Compared } else { FileProof::Hash };
    if let Some(confirm) = options.confirm.filter(|_| plan.removals().next().is_some()) {
        job.assess_losses(&mut plan)?;
        let losses = plan.losses();
        if losses.count > 0 && !confirm(&losses) {
            observer.check().map_err(|_| RestoreError::Interrupted)?;
            return Err(RestoreError::Unsaved(losses));
        }
    }
    if options.mode == Mode::Check {
        return job.tally.outcome(store);
    }
    if let Some(before_changes) = options.before_changes {
        before_changes();
    }
    let done = job.write(what, &plan, proof);
    if let Some(so_far) = options.so_far {
        *so_far.lock() = job.tally.totals();
    }
    done?;
    store.report_repairs(observer);
    job.tally.check_conflicts()?;
    job.tally.outcome(store)
}

impl RestoreJob<'_> {
    /// Writes the entries and executes the planned removals.
    fn write(
        &self,
        what: &RestoreSource,
        plan: &RemovalPlan,
        proof: FileProof,
    ) -> Result<(), RestoreError> {
        self.remove_planned(&plan.in_the_way);
        self.check()?;
        let total_bytes = match what {
            RestoreSource::Folder { tree, .. } => {
                self.store.tree(tree).ok().map(|node| node.totals().bytes)
            }
            RestoreSource::Entry(_) => None,
        };
        self.observer.phase(Phase::Restore, total_bytes);
        self.write_entries(what, proof)?;
        if !self.tally.is_damaged() {
            self.remove_planned(&plan.extras);
            self.check()?;
        }
        self.finish_folders(what)
    }
}
