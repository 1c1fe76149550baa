//! Restore: write what a snapshot holds into a folder.
//!
//! Two passes over the tree, three when something is there already:
//!
//! 1. *compare* (`visit`, without writing): only where the target is not
//!    empty and nothing may be overwritten, and for a dry run. What differs
//!    stops the restore before anything was written.
//! 2. *write* (`visit` → `window` → `small`, `large`): folders and links
//!    are made as the tree is walked, files are collected in windows. A window
//!    is sorted by where its contents lie, so that each frame is expanded once,
//!    and written by several threads while the next one is collected.
//! 3. *finish* (`finish`): what the snapshot lacks is removed if so wished,
//!    and folders get their attributes, deepest first.
//!
//! Memory holds a window, a few frames, the folders from the root to the
//! present one, and the hard links seen; it does not grow with the snapshot.
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
mod job;
mod large;
mod links;
mod remove;
mod small;
mod tally;
mod visit;
mod walk;
mod window;

use std::path::{Path, PathBuf};

use rustix::fs::Stat;

use crate::{
    base::{
        id::{BlobId, TreeId},
        observe::{Observer, Phase},
    },
    format::tree::{Entry, Metadata},
    local::owners::Ids,
    store::Store,
};

pub use error::{DamagedEntry, RestoreError};
use job::Job;
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
    /// It is removed, except a store and what the patterns leave out.
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

/// Content of a file that is there, if it is known without reading it.
pub type Known<'a> = dyn Fn(&Stat) -> Option<BlobId> + Sync + 'a;

/// A local file that probably holds the content of the file with this path
/// (relative to the target), to share its blocks.
pub type Holder<'a> = dyn Fn(&Path, &BlobId) -> Option<PathBuf> + Sync + 'a;

/// Told of each change, by path relative to the target.
pub type OnChange<'a> = dyn Fn(&Path, Change) + Sync + 'a;

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
}

/// Restores `what` into the folder `target`, which is created when missing.
///
/// # Errors
/// [`RestoreError::Differs`] before anything was written;
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
    let mut trust = Trust::Hash;
    if dry || (options.existing == Existing::Stop && !job.is_empty()) {
        observer.phase(Phase::Compare, None);
        visit::run(&job, what, Intent::Compare, trust)?;
        job.tally.check_conflicts()?;
        if dry {
            return job.tally.outcome(store);
        }
        job.tally.reset();
        trust = Trust::Compared;
    }
    let total_bytes = match what {
        What::Folder { tree, .. } => store.tree(tree).ok().map(|node| node.totals().bytes),
        What::Entry(_) => None,
    };
    observer.phase(Phase::Restore, total_bytes);
    visit::run(&job, what, Intent::Write, trust)?;
    finish::run(&job, what)?;
    store.tell_repairs(observer);
    job.tally.check_conflicts()?;
    job.tally.outcome(store)
}
