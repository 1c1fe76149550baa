//! `commit`: creates a snapshot of folders, files or a stream.
//!
//! [`run`] works in four steps. It determines the branch and the parent (`commit_base`), reads the
//! files (`walk`, `file`), and encodes trees (`encode`). As the last step it makes everything
//! durable and moves the branch (`publish`).

mod cache;
mod commit_base;
mod encode;
mod error;
mod file;
mod job;
pub(in crate::ops) mod paths;
mod previous;
mod publish;
mod purged;
mod scope;
mod stream;
mod total;
mod walk;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read},
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use crate::{
    base::{
        again::until_settled,
        blocked::Blocked,
        id::{CommitId, TreeId},
        limits,
        name::EntryName,
        observe::{Observer, Phase},
        time::Time,
    },
    disk::output::folder_of,
    format::{
        selection::Selection,
        tree::{Entry, Metadata, Totals, check::xattr_bytes, split::EncodedFolder},
    },
    local::{
        ignore::{self, IgnoreFiles, IgnoreRules, IgnoreScope},
        read::ReadMode,
        scan::FileStat,
    },
    ops::{
        commit::{
            commit_base::CommitBase,
            job::CommitJob,
            paths::{KeepFrom, KeptFolder},
        },
        inbox::SharedInbox,
        unfetched_ignores::ignore_files,
    },
    repo::{Repo, files_lock::FilesUse, ref_name::RefName, scope::ScopePath},
    store::{ObjectWriter, StoreError, WriteStats},
};

pub use commit_base::{BehindBranch, SourceLayout};
pub use error::CommitError;
pub use previous::FileChanges;

/// The input of a commit.
pub enum CommitSource<'s> {
    /// The root tree is the contents of this folder.
    Folder(PathBuf),
    /// As `Folder`, in a partial clone with this scope. If the folder lacks a path outside the
    /// scope, the snapshot keeps the path from the previous commit.
    Partial(PathBuf, Vec<ScopePath>),
    /// The root tree contains each of these files and folders at its path `inside`.
    Paths(Vec<NamedPath>),
    /// The root tree contains one file with this name, read from a stream.
    Stream { name: EntryName, reader: Box<dyn Read + Send + 's> },
    /// As `Stream`, after an earlier attempt of the same commit has stored the content. Callers of
    /// [`run`] do not pass it.
    Stored(Box<Entry>),
}

impl CommitSource<'_> {
    fn is_stream(&self) -> bool {
        matches!(self, Self::Stream { .. } | Self::Stored(_))
    }

    /// Returns true if the source is all of the project's files, or everything in the
    /// scope of a partial clone.
    fn is_whole(&self) -> bool {
        matches!(self, Self::Folder(_) | Self::Partial(..))
    }
}

/// A file or folder, and its path in the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPath {
    /// The path on disk.
    pub path: PathBuf,
    /// The path in the snapshot, with at least one name.
    pub inside: Vec<EntryName>,
}

/// Selects which metadata a snapshot records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetadataLevel {
    /// All metadata.
    #[default]
    Complete,
    /// No owners, times, hard links, holes or system attributes. The same content then
    /// has the same tree id on every machine.
    Reproducible,
}

/// Selects what happens to paths of the previous commit that the source does not name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OtherPaths {
    /// The snapshot omits them.
    #[default]
    Remove,
    /// The snapshot keeps them. This folder corresponds to the root of the snapshot. Its ignore
    /// files apply, and the named paths lie in it.
    Keep(PathBuf),
}

/// Selects what to do if the branch has commits that the project's files do not contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BehindPolicy {
    /// Ignores the project's base and leaves it unchanged. Used for files that do not belong to the
    /// store's project.
    #[default]
    Ignore,
    /// Refuses to commit, since the commit would revert the changes of those commits. A
    /// stream reverts nothing and is committed.
    Refuse,
    /// Commits on top of those commits.
    Accept,
}

/// Selects what to do if the last commit of the branch has other sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherSources {
    /// Commits on top of the last commit.
    #[default]
    Accept,
    /// Refuses to commit.
    Refuse,
}

/// Selects what to do if nothing changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unchanged {
    /// Creates no commit.
    #[default]
    Keep,
    /// Creates a commit in any case.
    Commit,
}

/// Selects what to do with a stream of 0 bytes. The program that should have written it may have
/// failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EmptyStream {
    /// Refuses to commit.
    #[default]
    Refuse,
    /// Commits an empty file.
    Accept,
}

/// Selects between a commit and a dry run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CommitRun {
    /// Creates the commit.
    #[default]
    Real,
    /// Reads everything as for a commit, but writes nothing, not even the stat cache.
    Dry,
}

#[derive(Clone, Debug, Default)]
pub struct CommitOptions {
    /// Branch to commit onto; `None` means the branch of `HEAD`.
    pub branch: Option<RefName>,
    pub message: String,
    /// The labels: `key=value` pairs.
    pub labels: BTreeMap<String, String>,
    pub author: String,
    /// Name of the machine.
    pub host: String,
    /// Time of the commit if the user specified it; `None` means the present.
    pub time: Option<Time>,
    /// Time at which the operation started; `None` reads the system's clock.
    pub now: Option<Time>,
    /// Time of a fixed clock at which the commit is created; `None` reads the system's
    /// clock.
    pub present: Option<Time>,
    /// Rules that exclude files.
    pub ignore: ignore::Options,
    /// The metadata that the snapshot records.
    pub content: MetadataLevel,
    /// Selects what happens to paths that the source does not name.
    pub unnamed: OtherPaths,
    /// Selects what to do about commits that the files do not contain.
    pub unseen: BehindPolicy,
    /// Absolute paths of the sources, and names of streams. Empty for the project's own
    /// files.
    pub sources: BTreeSet<Box<[u8]>>,
    /// Selects what to do if the last commit has none of these sources.
    pub other_sources: OtherSources,
    /// Selects what to do if nothing changed.
    pub unchanged: Unchanged,
    /// Selects what to do with a stream of 0 bytes.
    pub empty_stream: EmptyStream,
    /// Selects between a commit and a dry run.
    pub run: CommitRun,
    /// Paths in the snapshot whose contents are stored even if a rewrite has purged them.
    pub allow: BTreeSet<Vec<u8>>,
    /// Selects which files are read.
    pub reading: ReadMode,
    /// Number of threads. `None` means the setting `jobs`, or if that is unset, a number that
    /// depends on the cores.
    pub jobs: Option<usize>,
}

impl CommitOptions {
    fn now(&self) -> Time {
        self.now.unwrap_or_else(Time::now)
    }
}

/// The result of a commit.
#[derive(Clone, Debug, Default)]
pub struct CommitOutcome {
    /// The new commit. If nothing changed, the existing one.
    pub id: Option<CommitId>,
    /// True if a new commit was created or, in a dry run, would be.
    pub created: bool,
    /// Files, compared with the previous commit.
    pub files: FileChanges,
    /// Files and folders that were left out because they cannot be read.
    pub skipped: u64,
    /// Files that changed repeatedly while they were read.
    pub changing: u64,
    /// Entries that were committed without extended attributes, because these cannot be
    /// read.
    pub without_attributes: u64,
    /// Bytes that were read from files.
    pub bytes_read: u64,
    /// Objects that were added to the store. A dry run counts what would be added,
    /// without the commit itself, and leaves `stored_bytes` and `packs` at 0.
    pub added: WriteStats,
    /// Objects that an unchanged commit stored again because the store had lost them.
    /// They are part of `added`.
    pub stored_again: u64,
    /// Totals of everything below the root.
    pub totals: Totals,
}

/// The root tree that was read.
struct CommittedRoot {
    tree: TreeId,
    totals: Totals,
    metadata: Option<Metadata>,
    selection: Selection,
    /// True if the tree keeps entries of the previous commit.
    keeps_others: bool,
    /// True if objects of the kept entries may be missing or damaged.
    is_unproven: bool,
}

/// Stack size of a worker thread in bytes. A worker that waits for a task may run a
/// second task on the same stack.
const STACK_BYTES: usize = 8 << 20;

/// Creates a snapshot of `source` and moves the branch to it.
///
/// When this returns, the snapshot survives a power cut. When it fails, the branch has
/// not moved. A dry run reports what a commit would do.
///
/// # Errors
/// [`CommitError`]. Files that cannot be read are not an error: they are reported to
/// `observer` and counted.
pub fn run(
    repo: &Repo,
    mut source: CommitSource<'_>,
    options: &CommitOptions,
    observer: &dyn Observer,
) -> Result<CommitOutcome, CommitError> {
    let is_of_project = !source.is_stream() && options.unseen != BehindPolicy::Ignore;
    let _lock = match is_of_project && options.run == CommitRun::Real {
        true => repo.lock_files(FilesUse::Read, observer)?,
        false => None,
    };
    let mut state = (&mut source, repo.store().epoch()?);
    let done = until_settled(
        &mut state,
        limits::REF_RETRIES,
        |(source, epoch)| {
            *epoch = repo.store().epoch()?;
            let mut commit_base = CommitBase::read(repo, source.is_stream(), options)?;
            commit_base.check(repo, source, options, observer)?;
            let outcome = attempt(repo, source, commit_base, options, observer)?;
            if outcome.is_none() {
                // The branch moved, so the tree must keep the entries of another commit.
                repo.store().refresh()?;
            }
            Ok(outcome)
        },
        |(source, epoch), error: &CommitError| {
            // A garbage collection deleted objects that the commit stored or found stored. The next
            // attempt stores them. A stream cannot be read again.
            let is_missing = matches!(error, CommitError::Store(StoreError::Missing { .. }));
            let is_collected =
                error.is_collected() || is_missing && repo.store().epoch()? != *epoch;
            let is_passing = is_collected && !source.is_stream();
            if is_passing {
                repo.store().refresh()?;
            }
            Ok(is_passing)
        },
    )?;
    match done {
        Some(outcome) => Ok(outcome),
        None => Err(CommitBase::read(repo, source.is_stream(), options)?.contended()),
    }
}

/// Attempts the commit. Returns `None` if the branch moved and the tree must be built
/// again, because it keeps entries of the previous commit.
fn attempt(
    repo: &Repo,
    source: &mut CommitSource<'_>,
    commit_base: CommitBase,
    options: &CommitOptions,
    observer: &dyn Observer,
) -> Result<Option<CommitOutcome>, CommitError> {
    // The size of the previous commit is the best estimate of the total.
    let estimate = commit_base.total_bytes();
    observer.phase(Phase::Commit, estimate);
    let packs = repo.store().packs();
    let rules = IgnoreRules::beside(options.ignore.clone(), repo.dir())?;
    let rules = rules.with_unfetched(unfetched_ignores(repo, source, &commit_base, options)?);
    let cache::OpenedCache { cache, shadows, is_relied_on } = cache::open(repo, options, observer);
    let threads = options.jobs.or(repo.config().jobs).unwrap_or_else(default_jobs);
    let level = repo.config().compression_level;
    let writer = match options.run {
        CommitRun::Real => {
            SharedInbox::new(repo.store()).sweep_abandoned();
            ObjectWriter::new(repo.store(), level, threads)?
        }
        CommitRun::Dry => ObjectWriter::counting(repo.store(), level)?,
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).stack_size(STACK_BYTES).build();
    let pool = pool.map_err(CommitError::Threads)?;

    let job = CommitJob::new(&writer, &cache, &rules, options.content, observer);
    let read = total::count_beside(repo, &job, source, options, estimate, |source| {
        pool.install(|| read(repo, &job, source, &commit_base, options))
    });
    job.check()?;
    let mut root = read?.ok_or(Blocked::Interrupted)?;
    let unread = std::mem::take(&mut *job.unread.lock());
    root.selection = commit_base.selection(unread, source, options);
    // Do not check the entries that a partial clone keeps: remotes store their objects.
    let is_partial = matches!(source, CommitSource::Partial(..));
    root.is_unproven = root.keeps_others && !is_relied_on && !is_partial;

    let mut outcome = CommitOutcome { totals: root.totals, ..job.into_outcome() };
    if options.run == CommitRun::Dry {
        publish::preview(repo, &commit_base, &root, &writer, options, &mut outcome);
        return Ok(Some(outcome));
    }
    let publication =
        publish::Publication { repo, root: &root, packs_before: &packs, options, source, observer };
    let is_made = publication.run(commit_base, writer, &mut outcome)?;
    if !is_made {
        return Ok(None);
    }
    repo.store().report_repairs(observer);
    cache::save(repo, cache, shadows, observer);
    Ok(Some(outcome))
}

/// Uses three threads for two cores, so that one thread can wait for the disk. Measured
/// on 24,000 files with two cores: with a cold cache, two threads take 1.7 times as long
/// as four. With a warm cache, four take 1.1 times as long as two.
fn default_jobs() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (cores + cores.div_ceil(2)).clamp(3, 16)
}

/// Returns true if each path lies at the place in the project that it has in the
/// snapshot.
fn are_in_project(root: &Path, paths: &[NamedPath]) -> bool {
    let folder = |path: &Path| fs_err::canonicalize(folder_of(path)).ok();
    paths.iter().all(|named| {
        let names = named.inside.iter().map(EntryName::as_os_str);
        let place = names.fold(root.to_owned(), |path, name| path.join(name));
        folder(&place).is_some_and(|place| folder(&named.path) == Some(place))
    })
}

/// Returns the ignore files that apply in the project's folder although a partial clone
/// did not fetch them.
fn unfetched_ignores(
    repo: &Repo,
    source: &CommitSource<'_>,
    commit_base: &CommitBase,
    options: &CommitOptions,
) -> Result<IgnoreFiles, CommitError> {
    let Some(scope) = repo.scope()? else { return Ok(IgnoreFiles::new()) };
    let is_project = match (source, &options.unnamed) {
        (CommitSource::Partial(..), _) | (_, OtherPaths::Keep(_)) => true,
        (CommitSource::Folder(path), _) => repo.project() == Some(path),
        (CommitSource::Paths(paths), _) => {
            repo.project().is_some_and(|root| are_in_project(root, paths))
        }
        _ => false,
    };
    if !is_project {
        return Ok(IgnoreFiles::new());
    }
    let base = repo.base()?.unwrap_or_default();
    let of_base = || base.named().find_map(|id| Some(repo.store().commit(&id).ok()?.tree));
    match commit_base.tree().or_else(of_base) {
        Some(tree) => Ok(ignore_files(repo.store(), tree, &scope, options.ignore.gitignore)?),
        None => Err(CommitError::UnknownRules),
    }
}

fn read(
    repo: &Repo,
    job: &CommitJob<'_>,
    source: &mut CommitSource<'_>,
    commit_base: &CommitBase,
    options: &CommitOptions,
) -> Result<Option<CommittedRoot>, CommitError> {
    let previous = commit_base.tree();
    let kept_root = match (&*source, &options.unnamed) {
        (CommitSource::Partial(root, _), _) | (_, OtherPaths::Keep(root)) => Some(root.clone()),
        (_, OtherPaths::Remove) => None,
    };
    let device_of = |path: &Path| {
        let stat = fs_err::File::open(path).and_then(|folder| FileStat::of_fd(folder.as_fd()));
        let unread = |source| CommitError::Source { path: path.to_owned(), source };
        stat.map(|stat| stat.device).map_err(unread)
    };
    let scope = match (&*source, &kept_root) {
        (CommitSource::Partial(_, scope), _) => Some(scope.clone()),
        (CommitSource::Paths(_), Some(_)) => repo.scope()?,
        _ => None,
    };
    let kept = kept_root.as_deref().map(|root| {
        device_of(root).map(|device| KeepFrom { root, device, scope: scope.as_deref() })
    });
    let kept = kept.transpose()?;
    let folder = match source {
        CommitSource::Folder(path) => {
            let (scope, device) = (IgnoreScope::default(), None);
            let root = walk::WalkRoot { path, inside: b"", previous, scope, device };
            let walked = walk::run(job, &root);
            let walked =
                walked.map_err(|source| CommitError::Source { path: path.clone(), source })?;
            return Ok(walked.map(|(folder, stat)| {
                CommittedRoot::new(&folder, Some(root_metadata(job, path, &stat)))
            }));
        }
        CommitSource::Partial(root, scope) => {
            let (items, present) =
                scope::items_in_scope(job, root, &IgnoreScope::default(), b"", scope)?;
            let kept = kept.map(|from| KeptFolder { from, present: &present });
            paths::folder(job, &items, None, kept, &mut Vec::new(), previous)?
        }
        CommitSource::Paths(paths) => {
            let is_alone = kept.is_none();
            let project = repo.project().filter(|root| is_alone && are_in_project(root, paths));
            paths::read(job, paths, kept, project, previous)?
        }
        CommitSource::Stream { name, reader } => {
            let kept = previous.filter(|_| kept.is_some());
            stream::check_place(job, name, kept)?;
            let entry =
                stream::read(job, name.clone(), &mut **reader, options.empty_stream, previous)?;
            let folder = stream::with_entry(job, entry.clone(), kept);
            *source = CommitSource::Stored(Box::new(entry));
            Some(folder?)
        }
        CommitSource::Stored(entry) => {
            let kept = previous.filter(|_| kept.is_some());
            stream::check_place(job, &entry.name, kept)?;
            Some(stream::with_entry(job, (**entry).clone(), kept)?)
        }
    };
    let keeps_others = kept_root.is_some();
    // Unless a whole folder is committed, no folder corresponds to the root of the snapshot. If the
    // snapshot recorded attributes, a restore could delete the rest of a folder as extra files.
    let metadata = commit_base.root_metadata().filter(|_| keeps_others).cloned();
    Ok(folder.map(|folder| CommittedRoot { keeps_others, ..CommittedRoot::new(&folder, metadata) }))
}

impl CommittedRoot {
    fn new(folder: &EncodedFolder, metadata: Option<Metadata>) -> Self {
        let (tree, totals) = (folder.id, folder.totals);
        Self {
            tree,
            totals,
            metadata,
            selection: Selection::default(),
            keeps_others: false,
            is_unproven: false,
        }
    }
}

/// Returns the recorded metadata of the root folder itself.
fn root_metadata(job: &CommitJob<'_>, path: &Path, stat: &FileStat) -> Metadata {
    // The root may be a symlink, so read the attributes of its target.
    let real = fs_err::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let xattrs = job.content.keep(job.xattrs_at(&real));
    let mut metadata = encode::metadata(job, stat, xattrs, false);
    let bytes: usize = metadata.xattrs.iter().map(xattr_bytes).sum();
    if bytes > limits::ROOT_XATTR_BYTES {
        let limit = limits::ROOT_XATTR_BYTES;
        let text = format!(
            "{bytes} bytes of extended attributes on the root folder; the limit is {limit}"
        );
        job.lose_attributes(path, &io::Error::other(text));
        metadata.mode = metadata.mode_without_acl();
        metadata.xattrs.clear();
    }
    metadata
}
