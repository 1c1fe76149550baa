//! `diff`: compares two trees, or a tree and a folder.
//!
//! [`run`] passes a [`Change`] to the caller for each path that differs. Changes come in
//! the order of a walk: the entries of a folder sorted by name bytes, and a folder before
//! its contents.
//!
//! Two trees of a store are walked side by side (`trees`); equal trees are not opened. A folder on
//! the user's disk is listed with the rules of a commit, several folders at once (`walk`), and
//! compared entry by entry (`folder`). If the stat cache knows a folder's listing, the folder costs
//! only the stats of its entries. A file is read and hashed only if it has the same length and the
//! cache does not prove it unchanged. The comparison writes nothing in the folder. If it had to
//! read many files, it saves the stat cache in the store and ignores a failure.
//!
//! A removed file and an added file with the same content are reported as a rename
//! (`renames`). Renamed folders are reported as renames of their files. Empty files are
//! never paired, since they all have the same content.
//!
//! Memory holds the position in each tree, the results of folders that were compared
//! ahead of output, and changes that may turn out to be renames. Each of these has a
//! limit.

mod change;
mod content;
mod disk_paths;
mod error;
mod folder;
mod job;
mod limit;
pub mod lines;
mod renames;
mod slot;
mod trees;
mod walk;

pub(super) use self::disk_paths::DiskPaths;
pub use self::{
    change::{Change, ChangeSide, ComparedKind, Differences, Status},
    content::{SideContent, SideReader},
    disk_paths::ComparedFiles,
    error::DiffError,
    limit::Limit,
};
use self::{folder::FolderSide, job::DiffJob, renames::Pairing, trees::Trees};
use parking_lot::Mutex;

use crate::{
    base::{
        id::TreeId,
        observe::{Observer, Phase},
    },
    local::{
        fingerprint::TreeOptions,
        ignore::{self, IgnoreFiles, IgnoreRules},
        owners::Owners,
        read::ReadMode,
        stat_cache::StatCache,
    },
    ops::unfetched_ignores::ignore_files,
    repo::scope::ScopePath,
    store::Store,
};

/// The new side of a comparison.
#[derive(Clone, Debug)]
pub enum New {
    /// A tree of the same store; `None` is an empty tree.
    Tree(Option<TreeId>),
    /// The present contents of a folder.
    Folder(ComparedFolder),
}

/// Files on the user's disk, and the rules that say which of them are committed.
#[derive(Clone, Debug)]
pub struct ComparedFolder {
    pub files: ComparedFiles,
    /// Rules that exclude files.
    pub ignore: ignore::Options,
    /// The paths of a partial clone, or empty for a full one. Ignore files above these
    /// paths are read from the snapshot.
    pub scope: Vec<ScopePath>,
    /// True if the old snapshot is reproducible: it records neither owners nor times.
    pub reproducible: bool,
}

/// Selects the differences that are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Content, kind, mode, owner and extended attributes.
    #[default]
    Usual,
    /// The usual differences, and times, hard links and holes.
    All,
}

/// Selects whether renamed files are detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameDetection {
    /// Detects renamed files by their content.
    #[default]
    Find,
    /// Reports a renamed file as removed and added.
    Ignore,
}

#[derive(Clone, Debug, Default)]
pub struct DiffOptions {
    /// Prefix of the path of each change.
    pub prefix: Vec<u8>,
    /// The paths that are compared.
    pub limit: Limit,
    /// The differences that are reported.
    pub detail: Detail,
    /// Selects whether renamed files are detected.
    pub renames: RenameDetection,
    /// Selects the files of a folder that are read. A file whose length differs from the
    /// tree is modified in any case and is not read.
    pub reading: ReadMode,
    /// Number of threads that list folders; `None` means one that depends on the number of cores.
    pub jobs: Option<usize>,
}

impl DiffOptions {
    /// Returns the default options, without the detection of renames.
    pub fn without_renames() -> Self {
        Self { renames: RenameDetection::Ignore, ..Self::default() }
    }
}

/// Totals of a comparison. Folders are counted separately from other entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiffOutcome {
    /// Added files, links and special files.
    pub added: u64,
    /// Deleted files, links and special files.
    pub deleted: u64,
    /// Files, links and special files that the ignore rules exclude now, but that still exist.
    pub ignored: u64,
    /// Files, links and special files with another content.
    pub modified: u64,
    /// Entries of any kind, folders included, of which only the metadata differ.
    pub metadata: u64,
    /// Entries of any kind, folders included, that changed their kind.
    pub kind: u64,
    /// Renamed files.
    pub renamed: u64,
    /// Added folders.
    pub folders_added: u64,
    /// Deleted folders.
    pub folders_deleted: u64,
    /// Folders that the ignore rules exclude now, but that still exist.
    pub folders_ignored: u64,
    /// Bytes of added files, and the growth of files that became larger.
    pub bytes_added: u64,
    /// Bytes of deleted files, and the loss of files that became smaller.
    pub bytes_deleted: u64,
    /// Files and folders that were not compared because they could not be read.
    pub skipped: u64,
    /// Files that were read to compare them.
    pub files_read: u64,
    /// Total size of the files that were read, in bytes.
    pub bytes_read: u64,
}

impl DiffOutcome {
    /// Returns the number of changes.
    pub fn changes(&self) -> u64 {
        let files = self.added + self.deleted + self.modified + self.renamed;
        files
            + self.ignored
            + self.metadata
            + self.kind
            + self.folders_added
            + self.folders_deleted
            + self.folders_ignored
    }

    /// Counts a change.
    pub fn count(&mut self, change: &Change) {
        let bytes = |item: &Option<ChangeSide>| item.as_ref().map_or(0, |item| item.what.bytes());
        let (old, new) = (bytes(&change.old), bytes(&change.new));
        if !change.is_ignored {
            self.bytes_added += new.saturating_sub(old);
            self.bytes_deleted += old.saturating_sub(new);
        }
        let count = match (change.status(), change.item().what.is_folder()) {
            (Status::Added, true) => &mut self.folders_added,
            (Status::Added, false) => &mut self.added,
            (Status::Deleted, true) => &mut self.folders_deleted,
            (Status::Deleted, false) => &mut self.deleted,
            (Status::Ignored, true) => &mut self.folders_ignored,
            (Status::Ignored, false) => &mut self.ignored,
            (Status::Modified, _) => &mut self.modified,
            (Status::Metadata, _) => &mut self.metadata,
            (Status::Kind, _) => &mut self.kind,
            (Status::Renamed, _) => &mut self.renamed,
        };
        *count += 1;
    }
}

/// Receives each change. An error that it returns ends the comparison.
pub type OnChange<'a> = &'a mut dyn FnMut(Change) -> Result<(), DiffError>;

/// Compares the tree `old` (`None` is an empty tree) with `new`.
///
/// # Errors
/// [`DiffError`]. Changes that were passed to `each` before the error are valid. A file
/// that cannot be read is not an error: it is reported to `observer` and counted.
pub fn run(
    store: &Store,
    old: Option<TreeId>,
    new: &New,
    options: &DiffOptions,
    observer: &dyn Observer,
    each: OnChange<'_>,
) -> Result<DiffOutcome, DiffError> {
    let (limit, detail, outcome) = (&options.limit, options.detail, Mutex::default());
    let job = DiffJob { store, limit, detail, observer, outcome };
    let mut emit = |change: Change| {
        job.outcome.lock().count(&change);
        each(change)
    };
    let mut pairing = Pairing::new(options.renames, observer, &mut emit);
    match new {
        New::Tree(new) => {
            let mut trees = Trees::new(&job, options.prefix.clone(), old, *new)?;
            while let Some(change) = trees.next()? {
                observer.check()?;
                pairing.push(change)?;
            }
            pairing.finish(&|_| None)?;
        }
        New::Folder(folder) => with_folder(&job, old, folder, options, pairing)?,
    }
    store.report_repairs(observer);
    Ok(job.outcome.into_inner())
}

/// The stat cache is saved if this many files or bytes were read. If fewer were read, saving it
/// takes as long as reading the files again.
const WORTH_SAVING_FILES: u64 = 256;
const WORTH_SAVING_BYTES: u64 = 16 << 20;

fn with_folder(
    job: &DiffJob<'_>,
    old: Option<TreeId>,
    folder: &ComparedFolder,
    options: &DiffOptions,
    mut pairing: Pairing<'_>,
) -> Result<(), DiffError> {
    job.observer.phase(Phase::Compare, None);
    let store = job.store;
    let rules = IgnoreRules::beside(folder.ignore.clone(), store.dir())?;
    let unfetched = match old {
        Some(tree) => {
            let files = ignore_files(store, tree, &folder.scope, folder.ignore.gitignore);
            let unread = |source| DiffError::IgnoreFile { source: Box::new(source) };
            files.map_err(unread)?
        }
        None => IgnoreFiles::new(),
    };
    let rules = &rules.with_unfetched(unfetched);
    let one_file_system = folder.ignore.one_file_system;
    let tree_options = TreeOptions { reproducible: folder.reproducible, one_file_system };
    let cache = &store.dir().join("cache");
    let cache = StatCache::for_reading(options.reading, cache, store.disk().clone());
    let (disk_paths, owners) = (&DiskPaths::open(&folder.files)?, Owners::default());
    let side = FolderSide { job, disk_paths, rules, cache: &cache, tree_options, owners };
    walk::run(&side, old, options.jobs, &mut |change| pairing.push(change))?;
    pairing.finish(&|path| side.identify(path))?;
    drop(side);
    let DiffOutcome { files_read, bytes_read, .. } = *job.outcome.lock();
    let much_read = files_read >= WORTH_SAVING_FILES || bytes_read >= WORTH_SAVING_BYTES;
    // Do not save a cache that started empty: it knows less than the cache on disk.
    if much_read && options.reading == ReadMode::Changed {
        // The cache only saves time, so an error (such as a read-only disk) is ignored.
        let _ = cache.save();
    }
    Ok(())
}
