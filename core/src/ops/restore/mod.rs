//! Restore: write what a snapshot holds into a folder.
//!
//! Two passes over the tree, three when something is there already:
//!
//! 1. *compare* (`visit`, without writing): only where the target is not
//!    empty and nothing may be overwritten, for a dry run, and to plan what is
//!    removed (`plan`). What differs stops the restore before anything was
//!    written.
//! 2. *write* (`visit` → `window` → `small`, `large`): folders and links
//!    are made as the tree is walked, files are collected in windows. A window
//!    is sorted by where its contents lie, so that each frame is expanded once,
//!    and written by several threads while the next one is collected.
//! 3. *finish*: what was planned is removed (`remove`), and folders get their
//!    attributes, deepest first (`finish`).
//!
//! Memory holds a window, a few frames, the folders from the root to the
//! present one, the hard links seen, and the plan of what is removed; it does
//! not grow with the snapshot.
//!
//! A file appears under its name when its content was hashed and found right.
//! A file whose content is damaged is left out, told at the end, and does not
//! stop the others. Run again, a restore keeps what is right. Attributes of an
//! entry that is otherwise right are repaired in every case; `Existing` is
//! about content. Nothing is synced.

mod compare;
mod error;
mod filter;
mod finish;
mod guard;
mod job;
mod large;
mod links;
mod plan;
mod recover;
mod remove;
mod small;
mod tally;
mod visit;
mod walk;
mod window;

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use rustix::fs::Stat;

use crate::{
    base::{
        id::{BlobId, CommitId, TreeId},
        observe::{Observer, Phase},
    },
    format::{
        selection::UnreadPaths,
        tree::{Entry, Metadata},
    },
    local::{ignore, owners::Ids},
    store::Store,
};

pub use error::{DamagedEntry, RestoreError};
use job::Job;
use plan::Plan;
pub use tally::Outcome;
use visit::{Intent, Trust};

/// What is restored.
#[derive(Clone, Debug)]
pub enum What {
    /// What a tree holds; the target stands for the tree itself.
    Folder {
        /// The tree.
        tree: TreeId,
        /// The folder's own attributes, for the target.
        root: Option<Metadata>,
    },
    /// One entry; it appears in the target under its own name.
    Entry(Box<Entry>),
}

/// What happens to an entry that is there and differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// It stops the restore before anything is written.
    #[default]
    Stop,
    /// It is replaced. Of folders that stand where something else belongs only
    /// empty ones, unless [`Extras::Delete`] is given, too.
    Overwrite,
}

/// What happens to an entry that the snapshot lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extras {
    /// It stays.
    #[default]
    Keep,
    /// It is removed, except stores, what lies behind a mount point, what
    /// cannot be read, what the patterns leave out and what
    /// [`Options::protection`] keeps.
    Delete,
}

/// Whether anything is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Yes.
    #[default]
    Write,
    /// No; changes are only told.
    DryRun,
}

/// Whether owners are restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ownership {
    /// As recorded, as far as privilege goes.
    #[default]
    Apply,
    /// Files belong to whoever restores them.
    Leave,
}

/// A change that is made, or would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// An entry is made that was not there.
    Create,
    /// An entry takes the place of another.
    Replace,
    /// An entry's attributes are set right.
    Repair,
    /// An entry is removed with what is below.
    Remove,
}

/// The loss that a change causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loss {
    /// Nothing, or it was not found out.
    #[default]
    Nothing,
    /// A file whose content a commit holds.
    Recoverable,
    /// A file whose content no commit holds.
    Unsaved,
}

/// What a restore is about to remove for ever.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// How many files no commit holds.
    pub count: u64,
    /// The first of them, relative to the target.
    pub first: Vec<PathBuf>,
}

/// Which extras stay because no commit could have contained them.
#[derive(Clone, Debug, Default)]
pub struct Protection {
    /// Rules in force, and rules that the commit records. Each excludes.
    pub rules: Vec<ignore::Options>,
    /// Paths in the snapshot that the commit could not read.
    pub unread: UnreadPaths,
    /// Paths in the snapshot that it was made of; `None` when it was made of one
    /// folder with all that is in it.
    pub made_of: Option<Vec<Vec<u8>>>,
    /// The path in the snapshot that the target stands for.
    pub place: Vec<u8>,
    /// The root tree of the snapshot, for ignore files above the place.
    pub root: Option<TreeId>,
    /// The folder that stands for the root, when the target is in its place
    /// below it.
    pub above: Option<PathBuf>,
}

/// Content of a file that is there, if it is known without reading it.
pub type Known<'a> = dyn Fn(&Stat) -> Option<BlobId> + Sync + 'a;

/// A local file that probably holds the content of the file with this path
/// (relative to the target), to share its blocks.
pub type Holder<'a> = dyn Fn(&Path, &BlobId) -> Option<PathBuf> + Sync + 'a;

/// Told of each change, by path relative to the target, and in a dry run of
/// what it loses.
pub type OnChange<'a> = dyn Fn(&Path, Change, Loss) + Sync + 'a;

/// Asked whether to go on when something would be removed for ever.
pub type Confirm<'a> = dyn Fn(&Losses) -> bool + Sync + 'a;

/// Choices; the default is careful and writes.
#[derive(Clone, Default)]
pub struct Options<'a> {
    /// What happens to entries that differ.
    pub existing: Existing,
    /// What happens to entries that the snapshot lacks.
    pub extras: Extras,
    /// Whether anything is written.
    pub mode: Mode,
    /// Only what matches one of these, in the syntax of ignore files.
    pub include: Vec<String>,
    /// Nothing that matches one of these.
    pub exclude: Vec<String>,
    /// Whether owners are taken by name or by number.
    pub ids: Ids,
    /// Whether owners are restored.
    pub ownership: Ownership,
    /// Threads; 0 for one a core.
    pub jobs: usize,
    /// Proves equality without reading.
    pub known: Option<&'a Known<'a>>,
    /// Finds files to share blocks with.
    pub holder: Option<&'a Holder<'a>>,
    /// Told of each change.
    pub on_change: Option<&'a OnChange<'a>>,
    /// Keeps extras that no commit could have contained.
    pub protection: Option<&'a Protection>,
    /// Commits that, with all before them, make a content recoverable.
    pub tips: Vec<CommitId>,
    /// Asked before anything is removed or written, if something that no commit
    /// holds would be removed.
    pub confirm: Option<&'a Confirm<'a>>,
    /// True if the caller has just made the target, so that it gets the
    /// attributes that the snapshot has for it.
    pub is_new_target: bool,
    /// A folder that the target is in, or is. No link on the way from it to the target
    /// is followed.
    pub above: Option<&'a Path>,
    /// Receives what was done, also when an error ended the run.
    pub so_far: Option<&'a Mutex<Outcome>>,
}

/// Restores `what` into the folder `target`, which is created when missing.
///
/// # Errors
/// [`RestoreError::Differs`], [`RestoreError::Blocked`] and
/// [`RestoreError::Unsaved`] before anything was written;
/// [`RestoreError::Damaged`] after everything that is not was;
/// [`RestoreError::Interrupted`] and errors of the system in between. Run again
/// it goes on.
pub fn run(
    store: &Store,
    what: &What,
    target: &Path,
    options: &Options<'_>,
    observer: &dyn Observer,
) -> Result<Outcome, RestoreError> {
    let mut job = Job::new(store, options, observer)?;
    job.open(target)?;
    let dry = options.mode == Mode::DryRun;
    let (mut trust, mut plan) = (Trust::Hash, Plan::default());
    if dry || (options.existing == Existing::Stop && !job.is_empty()) {
        observer.phase(Phase::Compare, None);
        plan = visit::plan(&job, what, Intent::Compare, trust)?;
        if dry {
            recover::assess(&job, &mut plan)?;
            plan.tell(&job);
        }
        job.tally.check_conflicts()?;
        if dry {
            return job.tally.outcome(store);
        }
        job.tally.reset();
        trust = Trust::Compared;
    } else if !job.is_empty() {
        // Also when nothing is deleted: a folder that cannot make way is told
        // before anything is written.
        observer.phase(Phase::Compare, None);
        plan = visit::plan(&job, what, Intent::Plan, Trust::Kind)?;
        job.tally.check_conflicts()?;
        job.tally.reset();
    }
    if let Some(confirm) = options.confirm.filter(|_| !plan.is_empty()) {
        recover::assess(&job, &mut plan)?;
        let losses = plan.losses();
        if losses.count > 0 && !confirm(&losses) {
            if observer.cancelled() {
                return Err(RestoreError::Interrupted);
            }
            return Err(RestoreError::Unsaved(losses));
        }
    }
    let done = write(&job, what, &plan, trust);
    if let Some(so_far) = options.so_far {
        *so_far.lock().unwrap_or_else(PoisonError::into_inner) = job.tally.counts();
    }
    done?;
    store.tell_repairs(observer);
    job.tally.check_conflicts()?;
    job.tally.outcome(store)
}

/// Writes what is restored and removes what was planned.
fn write(job: &Job<'_>, what: &What, plan: &Plan, trust: Trust) -> Result<(), RestoreError> {
    remove::run(job, &plan.in_the_way);
    job.check()?;
    let total_bytes = match what {
        What::Folder { tree, .. } => job.store.tree(tree).ok().map(|node| node.totals().bytes),
        What::Entry(_) => None,
    };
    job.observer.phase(Phase::Restore, total_bytes);
    visit::write(job, what, trust)?;
    if !job.tally.is_damaged() {
        remove::run(job, &plan.extras);
        job.check()?;
    }
    finish::run(job, what)
}
