//! `commit`: make a snapshot of folders, files, or a stream.
//!
//! [`run`] walks and reads (`walk`, `file`), encodes trees (`encode`),
//! makes everything durable, and moves the branch last (`publish`).

mod encode;
mod file;
mod job;
mod paths;
mod previous;
mod publish;
mod walk;

use std::{
    collections::BTreeMap,
    io::{self, Read},
    path::PathBuf,
    sync::atomic::Ordering,
};

use crate::{
    base::{
        id::{CommitId, TreeId},
        io::PathError,
        kind::ErrorKind,
        name::EntryName,
        observe::{Observer, Phase},
        time::Time,
    },
    chunk::{Params, ParamsError},
    format::{
        commit::Commit,
        tree::{Metadata, Totals},
    },
    local::{
        ignore::{self, PatternError, Rules},
        scan::FileStat,
        stat_cache::StatCache,
    },
    ops::commit::job::Job,
    repo::{Repo, ref_name::RefName, refs::RefError},
    store::{Added, StoreError, Writer},
};

/// What is committed.
pub enum Source<'s> {
    /// The root tree is what this folder contains.
    Folder(PathBuf),
    /// The root tree holds each of these under its own path.
    Paths(Vec<NamedPath>),
    /// The root tree holds one file of this name, read from a stream.
    Stream {
        /// Its name.
        name: EntryName,
        /// Its content.
        reader: Box<dyn Read + Send + 's>,
    },
}

/// A file or folder, and where it stands in the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPath {
    /// Where it is.
    pub path: PathBuf,
    /// Its path in the snapshot, at least one name.
    pub inside: Vec<EntryName>,
}

/// What a snapshot keeps of owners and times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Everything.
    #[default]
    Complete,
    /// Neither owners nor times, hard links, holes or attributes of the
    /// system's own: the same content gives the same tree id on every machine.
    Reproducible,
}

/// What to do when nothing changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unchanged {
    /// Make no commit.
    #[default]
    Keep,
    /// Make one all the same.
    Commit,
}

/// Whether anything is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Run {
    /// The commit is made.
    #[default]
    Real,
    /// Everything is looked at and read as for a commit, but nothing is
    /// written, not even what is known of files that were read.
    Dry,
}

/// Choices.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Branch to commit onto; `None` is the one that `HEAD` names.
    pub branch: Option<RefName>,
    /// Why.
    pub message: String,
    /// `key=value` pairs.
    pub labels: BTreeMap<String, String>,
    /// Who.
    pub author: String,
    /// On which machine.
    pub host: String,
    /// When; `None` is now.
    pub time: Option<Time>,
    /// What is left out.
    pub ignore: ignore::Options,
    /// What is kept of owners and times.
    pub content: Content,
    /// What to do when nothing changed.
    pub unchanged: Unchanged,
    /// Whether anything is written.
    pub run: Run,
    /// Threads; `None` is as many as suit the machine.
    pub jobs: Option<usize>,
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The commit; when nothing changed, the one that is there.
    pub id: Option<CommitId>,
    /// Whether a new commit was made; in a dry run, whether it would be.
    pub created: bool,
    /// Files that were not in the commit before.
    pub files_new: u64,
    /// Files with another content than in the commit before.
    pub files_changed: u64,
    /// Files with the same content.
    pub files_unmodified: u64,
    /// Files and folders that could not be read and are left out.
    pub skipped: u64,
    /// Files that kept changing while they were read.
    pub changing: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// What was added to the store; in a dry run, what would be, but for the
    /// commit itself and without `stored_bytes` and `packs`.
    pub added: Added,
    /// What is below the root.
    pub totals: Totals,
}

/// Why there is no commit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// What is to be committed cannot be read.
    #[error("cannot read {}", path.display())]
    Source {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Two sources have one place in the snapshot, or one lies in another.
    #[error("{} and {} have the same place in the snapshot", first.display(), second.display())]
    Overlap {
        /// One.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// A pattern cannot be parsed.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The store's chunk sizes are unusable.
    #[error("the store's chunk sizes are unusable")]
    Chunk(#[source] ParamsError),
    /// The stream could not be read.
    #[error("cannot read the stream")]
    Stream(#[source] io::Error),
    /// The commit itself is too large to be stored.
    #[error("message and labels come to {bytes} bytes, more than {limit}")]
    TooLarge {
        /// What they come to.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
    /// A reader would refuse a commit of so many labels.
    #[error("{count} labels are more than {limit}")]
    TooManyLabels {
        /// How many there are.
        count: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// Others kept moving the branch.
    #[error("branch `{}` kept moving, {tries} times", name.short())]
    Contended {
        /// Which.
        name: RefName,
        /// How often it was tried.
        tries: usize,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A ref could not be read or moved.
    #[error(transparent)]
    Ref(#[from] RefError),
    /// A folder could not be read.
    #[error(transparent)]
    Io(#[from] PathError),
    /// Threads could not be started.
    #[error("cannot start worker threads")]
    Threads(#[source] rayon::ThreadPoolBuildError),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl CommitError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Source { source, .. } | Self::Stream(source) => ErrorKind::of_io(source),
            Self::Overlap { .. }
            | Self::Pattern(_)
            | Self::Chunk(_)
            | Self::TooLarge { .. }
            | Self::TooManyLabels { .. } => ErrorKind::Invalid,
            Self::Contended { .. } => ErrorKind::Locked,
            Self::Store(error) => error.kind(),
            Self::Ref(error) => error.kind(),
            Self::Io(error) => error.kind(),
            Self::Threads(_) => ErrorKind::Unavailable,
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }
}

/// The root of what was read.
struct Root {
    tree: TreeId,
    totals: Totals,
    metadata: Option<Metadata>,
}

/// Bytes of stack of a worker: a thread that waits may take on a second task.
const STACK_BYTES: usize = 8 << 20;

/// Makes a snapshot of `source` and moves the branch to it.
///
/// When it returns, the snapshot survives a power cut. When it fails, the
/// branch is where it was. A dry run says what would come of it.
///
/// # Errors
/// [`CommitError`]; files that cannot be read are no error, but told to
/// `observer` and counted.
pub fn run(
    repo: &Repo,
    source: Source<'_>,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Outcome, CommitError> {
    let base = publish::Base::read(repo, options)?;
    // The commit before is the best guess at how much there is.
    observer.phase(Phase::Commit, base.total_bytes());
    let rules = Rules::beside(options.ignore.clone(), repo.dir())?;
    let cache = StatCache::open(&repo.dir().join("cache"), repo.disk().clone());
    let threads = options.jobs.unwrap_or_else(default_jobs);
    let level = repo.config().compression.level;
    let writer = match options.run {
        Run::Real => Writer::new(repo.store(), level, threads)?,
        Run::Dry => Writer::counting(repo.store(), level)?,
    };
    let chunk = repo.config().chunk;
    let params = Params::new(chunk.min as usize, chunk.average as usize, chunk.max as usize);
    let params = params.map_err(CommitError::Chunk)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).stack_size(STACK_BYTES).build();
    let pool = pool.map_err(CommitError::Threads)?;

    let job = Job::new(&writer, &cache, &rules, (params, options.content), observer);
    let read = pool.install(|| read(&job, source, base.tree()));
    job.outcome()?;
    let root = read?.ok_or(CommitError::Interrupted)?;

    let mut outcome = Outcome {
        files_new: job.counts.new.load(Ordering::Relaxed),
        files_changed: job.counts.changed.load(Ordering::Relaxed),
        files_unmodified: job.counts.unmodified.load(Ordering::Relaxed),
        skipped: job.counts.skipped.load(Ordering::Relaxed),
        changing: job.counts.changing.load(Ordering::Relaxed),
        bytes_read: job.counts.bytes_read.load(Ordering::Relaxed),
        totals: root.totals,
        ..Outcome::default()
    };
    drop(job);
    if options.run == Run::Dry {
        publish::preview(&base, &root, &writer, options, &mut outcome);
        return Ok(outcome);
    }
    publish::run(repo, base, &root, writer, options, observer, &mut outcome)?;
    repo.store().tell_repairs(observer);
    if let Err(error) = cache.save() {
        observer.note(crate::base::observe::Note::TidyFailed { error: &error });
    }
    Ok(outcome)
}

/// Three threads for two cores, so that one can wait for the disk: on 24,000
/// files with a cold cache two threads take 1.7 times as long as four, and with
/// a warm one four take 1.1 times as long as two.
fn default_jobs() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (cores + cores.div_ceil(2)).clamp(3, 16)
}

fn read(
    job: &Job<'_>,
    source: Source<'_>,
    previous: Option<TreeId>,
) -> Result<Option<Root>, CommitError> {
    match source {
        Source::Folder(path) => {
            let root = walk::Root { path: &path, inside: b"", previous };
            let walked = walk::run(job, &root);
            let walked =
                walked.map_err(|source| CommitError::Source { path: path.clone(), source })?;
            Ok(walked.map(|(folder, stat)| Root {
                tree: folder.id,
                totals: folder.totals,
                metadata: Some(root_metadata(job, &path, &stat)),
            }))
        }
        Source::Paths(paths) => paths::read(job, paths, previous),
        Source::Stream { name, mut reader } => {
            paths::read_stream(job, name, &mut *reader, previous).map(Some)
        }
    }
}

/// What is kept about the root folder itself.
fn root_metadata(job: &Job<'_>, path: &std::path::Path, stat: &FileStat) -> Metadata {
    use crate::local::attributes::{XattrTarget, read_xattrs};
    // The root may have been reached through a symlink; its target counts.
    let real = fs_err::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let xattrs = read_xattrs(XattrTarget::Path(&real)).unwrap_or_default();
    encode::metadata(job, stat, job.content.keep(xattrs), false)
}

/// Makes the commit that `root` amounts to.
fn make(root: &Root, parents: Vec<CommitId>, time: Time, options: &Options) -> Commit {
    Commit {
        tree: root.tree,
        parents,
        time,
        author: options.author.clone(),
        host: options.host.clone(),
        message: options.message.clone(),
        labels: options.labels.clone(),
        root: root.metadata.clone(),
        totals: root.totals,
    }
}
