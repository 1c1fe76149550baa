//! `diff`: what differs between two trees, or between one and a folder.
//!
//! [`run`] hands out a [`Change`] for each path that differs, in the order of
//! a walk: each folder's entries by name bytes, a folder before what is in it.
//!
//! Two trees of a store are walked side by side (`trees`): equal ones are not
//! opened. A folder of the user's is listed with the rules of a commit, several
//! folders at once (`walk`), and compared (`folder`): a folder whose listing
//! the stat cache knows costs its stats, a file that the cache does not prove
//! unchanged and that has the same length is read and hashed. Nothing in the
//! folder is written, and of the store only the stat cache, if many files had
//! to be read and if that can be done.
//!
//! A file that is gone and one of the same content that is new are one that was
//! renamed (`renames`). Folders are not: one that was moved shows as its files.
//! Empty files are not, either: they are all alike.
//!
//! Memory holds what lies on the way through the trees, results of folders
//! that are ahead of what was handed out, and changes that may turn out to be
//! renames, each with a ceiling.

mod change;
mod content;
mod error;
mod folder;
mod job;
mod limit;
pub mod lines;
mod renames;
mod slot;
mod trees;
mod walk;

use std::{path::PathBuf, sync::atomic::Ordering};

pub use self::{
    change::{Change, Differences, Item, Status, What},
    content::{Content, Reader},
    error::DiffError,
    limit::Limit,
};
use self::{folder::Side, job::Job, renames::Pairing, trees::Trees};
use crate::{
    base::{
        id::TreeId,
        observe::{Observer, Phase},
    },
    local::{
        fingerprint::Manner,
        ignore::{self, Rules},
        read::Reading,
        stat_cache::StatCache,
    },
    store::Store,
};

/// What a tree is compared with.
#[derive(Clone, Debug)]
pub enum New {
    /// A tree of the same store; `None` is an empty one.
    Tree(Option<TreeId>),
    /// What is in a folder now.
    Folder(Folder),
}

/// A folder of the user's, and what of it would be committed.
#[derive(Clone, Debug)]
pub struct Folder {
    /// Where it is.
    pub path: PathBuf,
    /// What is left out.
    pub ignore: ignore::Options,
    /// Whether it is compared with a snapshot that has neither owners nor times.
    pub reproducible: bool,
}

/// Which differences count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Content, kind, mode, owner and extended attributes.
    #[default]
    Usual,
    /// Times, hard links and holes, too.
    All,
}

/// Whether renamed files are recognised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Renames {
    /// By their content.
    #[default]
    Find,
    /// They show as removed and added.
    Ignore,
}

/// Choices.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Path of what is compared, which paths of changes begin with.
    pub prefix: Vec<u8>,
    /// Which paths are compared.
    pub limit: Limit,
    /// Which differences count.
    pub detail: Detail,
    /// Whether renamed files are recognised.
    pub renames: Renames,
    /// Which files of a folder are read. A file of another length than
    /// in the tree differs anyway and is not read.
    pub reading: Reading,
    /// Threads that list folders; `None` is as many as suit the machine.
    pub jobs: Option<usize>,
}

/// How much differs. Folders are counted by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Files, links and others that are new.
    pub added: u64,
    /// Those that are gone.
    pub removed: u64,
    /// Those with another content.
    pub modified: u64,
    /// Those, and folders, with other metadata.
    pub metadata: u64,
    /// Those, and folders, that have become something else.
    pub kind: u64,
    /// Those with another path.
    pub renamed: u64,
    /// Folders that are new.
    pub folders_added: u64,
    /// Folders that are gone.
    pub folders_removed: u64,
    /// Bytes of the files that are new, and what others have grown.
    pub bytes_added: u64,
    /// Bytes of the files that are gone, and what others have shrunk.
    pub bytes_removed: u64,
    /// Files and folders that could not be read, and so were not compared.
    pub skipped: u64,
    /// Files that were read.
    pub files_read: u64,
    /// Their bytes.
    pub bytes_read: u64,
}

impl Outcome {
    /// How many changes there are.
    pub fn changes(&self) -> u64 {
        let files = self.added + self.removed + self.modified + self.renamed;
        files + self.metadata + self.kind + self.folders_added + self.folders_removed
    }

    /// Counts a change.
    pub fn count(&mut self, change: &Change) {
        let bytes = |item: &Option<Item>| item.as_ref().map_or(0, |item| item.what.bytes());
        let (old, new) = (bytes(&change.old), bytes(&change.new));
        self.bytes_added += new.saturating_sub(old);
        self.bytes_removed += old.saturating_sub(new);
        let count = match (change.status(), change.item().what.is_folder()) {
            (Status::Added, true) => &mut self.folders_added,
            (Status::Added, false) => &mut self.added,
            (Status::Removed, true) => &mut self.folders_removed,
            (Status::Removed, false) => &mut self.removed,
            (Status::Modified, _) => &mut self.modified,
            (Status::Metadata, _) => &mut self.metadata,
            (Status::Kind, _) => &mut self.kind,
            (Status::Renamed, _) => &mut self.renamed,
        };
        *count += 1;
    }
}

/// Receives each change; an error of it ends the comparison.
pub type Each<'a> = &'a mut dyn FnMut(Change) -> Result<(), DiffError>;

/// Compares the tree `old` (`None` is an empty one) with `new`.
///
/// # Errors
/// [`DiffError`]; what was handed out before stands. Files that cannot be read
/// are no error, but told to `observer` and counted.
pub fn run(
    store: &Store,
    (old, new): (Option<TreeId>, &New),
    options: &Options,
    observer: &dyn Observer,
    each: Each<'_>,
) -> Result<Outcome, DiffError> {
    let job = Job::new(store, (&options.limit, options.detail), observer);
    let mut outcome = Outcome::default();
    let mut emit = |change: Change| {
        outcome.count(&change);
        each(change)
    };
    let mut pairing = Pairing::new(options.renames, observer, &mut emit);
    match new {
        New::Tree(new) => {
            let mut trees = Trees::new(&job, options.prefix.clone(), old, *new)?;
            while let Some(change) = trees.next()? {
                if observer.cancelled() {
                    return Err(DiffError::Interrupted);
                }
                pairing.push(change)?;
            }
            pairing.finish(&|_| None)?;
        }
        New::Folder(folder) => with_folder(&job, (old, folder), options, pairing)?,
    }
    store.tell_repairs(observer);
    outcome.skipped = job.skipped.load(Ordering::Relaxed);
    outcome.files_read = job.files_read.load(Ordering::Relaxed);
    outcome.bytes_read = job.bytes_read.load(Ordering::Relaxed);
    Ok(outcome)
}

/// So much must have been read for the stat cache to be saved: that takes as
/// long as reading some files does.
const WORTH_SAVING: (u64, u64) = (256, 16 << 20);

fn with_folder(
    job: &Job<'_>,
    (old, folder): (Option<TreeId>, &Folder),
    options: &Options,
    mut pairing: Pairing<'_>,
) -> Result<(), DiffError> {
    job.observer.phase(Phase::Compare, None);
    let store = job.store;
    let rules = Rules::beside(folder.ignore.clone(), store.dir())?;
    let one_file_system = folder.ignore.one_file_system;
    let manner = Manner { reproducible: folder.reproducible, one_file_system };
    let cache = &store.dir().join("cache");
    let cache = StatCache::for_reading(options.reading, cache, store.disk().clone());
    let side = Side::open(job, (&folder.path, &rules), &cache, manner)?;
    walk::run(&side, old, options.jobs, &mut |change| pairing.push(change))?;
    pairing.finish(&|path| side.identify(path))?;
    drop(side);
    let files = job.files_read.load(Ordering::Relaxed);
    let bytes = job.bytes_read.load(Ordering::Relaxed);
    let much_read = files >= WORTH_SAVING.0 || bytes >= WORTH_SAVING.1;
    // A cache that was begun anew knows less than the one that is there.
    if much_read && options.reading == Reading::Changed {
        // It saves time and nothing else; on a read-only disk it is not kept.
        let _ = cache.save();
    }
    Ok(())
}
