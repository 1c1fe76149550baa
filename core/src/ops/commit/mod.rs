//! `commit`: make a snapshot of folders, files, or a stream.
//!
//! [`run`] finds what the commit is made on top of (`ground`), walks and reads
//! (`walk`, `file`), encodes trees (`encode`),
//! makes everything durable, and moves the branch last (`publish`).

mod cache;
mod encode;
mod error;
mod file;
mod ground;
mod job;
mod paths;
mod previous;
mod publish;
mod scope;
mod stream;
mod walk;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Read},
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::{PoisonError, atomic::Ordering},
};

use crate::{
    base::{
        id::{CommitId, TreeId},
        limits,
        name::EntryName,
        observe::{Observer, Phase},
        time::Time,
    },
    chunk::Params,
    format::{
        commit::Commit,
        selection::Selection,
        tree::{Entry, Metadata, Totals, check::xattr_bytes, split::Folder},
    },
    local::{
        ignore::{self, Rules, Scope},
        read::Reading,
        scan::FileStat,
    },
    ops::commit::{ground::Ground, job::Job, paths::Kept},
    repo::{Repo, files_lock::FilesUse, ref_name::RefName, refs::RefError, scope::ScopePath},
    store::{Added, Writer},
};

pub use error::CommitError;
pub use ground::Behind;

/// What is committed.
pub enum Source<'s> {
    /// The root tree is what this folder contains.
    Folder(PathBuf),
    /// The same for the folder of a partial clone: paths outside the scope that
    /// are not in the folder are kept from the commit before.
    Partial(PathBuf, Vec<ScopePath>),
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

/// What happens to paths of the commit before that the source does not name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Unnamed {
    /// The snapshot does not contain them.
    #[default]
    Remove,
    /// They are kept. The root of the snapshot stands for this folder, whose
    /// ignore files count, and in which the named paths lie.
    Keep(PathBuf),
}

/// What to do when the branch has commits from elsewhere that the project's
/// files do not contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unseen {
    /// The files do not belong to the store's project: its base neither counts
    /// nor changes.
    #[default]
    Ignore,
    /// Refuse to commit, because that would take those commits back. A stream
    /// takes nothing back and is committed.
    Refuse,
    /// Commit on top of them.
    Accept,
}

/// What to do when the last commit of the branch has other sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherSources {
    /// Commit on top of it.
    #[default]
    Accept,
    /// Refuse to commit.
    Refuse,
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
    /// When, as the user says; `None` is the present.
    pub time: Option<Time>,
    /// The present; `None` asks the system's clock.
    pub now: Option<Time>,
    /// What is left out.
    pub ignore: ignore::Options,
    /// What is kept of owners and times.
    pub content: Content,
    /// What happens to paths that the source does not name.
    pub unnamed: Unnamed,
    /// What to do about commits that the files do not contain.
    pub unseen: Unseen,
    /// Absolute paths of what is committed, and names of streams; none for the
    /// project's own files.
    pub sources: BTreeSet<Box<[u8]>>,
    /// What to do when the last commit has none of these sources.
    pub other_sources: OtherSources,
    /// What to do when nothing changed.
    pub unchanged: Unchanged,
    /// Whether anything is written.
    pub run: Run,
    /// Which files are read.
    pub reading: Reading,
    /// Number of threads. `None`: the setting `jobs`, else as many as suit the machine.
    pub jobs: Option<usize>,
}

impl Options {
    fn now(&self) -> Time {
        self.now.unwrap_or_else(Time::now)
    }
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
    /// Entries whose extended attributes could not be read: they are committed
    /// without.
    pub without_attributes: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// What was added to the store; in a dry run, what would be, but for the
    /// commit itself and without `stored_bytes` and `packs`.
    pub added: Added,
    /// Objects that an unchanged commit stored again, because the store had lost
    /// them; part of `added`.
    pub stored_again: u64,
    /// What is below the root.
    pub totals: Totals,
}

/// The root of what was read.
struct Root {
    tree: TreeId,
    totals: Totals,
    metadata: Option<Metadata>,
    selection: Selection,
    /// Whether entries of the commit before were kept in it.
    keeps_others: bool,
    /// True if objects of those entries may be gone or damaged.
    is_unproven: bool,
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
    let mut input = Input::from(source);
    let is_of_project = !input.is_stream() && options.unseen != Unseen::Ignore;
    let _lock = match is_of_project && options.run == Run::Real {
        true => repo.lock_files(FilesUse::Read, observer)?,
        false => None,
    };
    for _ in 0..limits::REF_RETRIES {
        let mut ground = Ground::read(repo, input.is_stream(), options)?;
        ground.check(repo, &input, options, observer)?;
        match attempt(repo, &mut input, (ground, options), observer)? {
            Some(outcome) => return Ok(outcome),
            // What is kept of the commit before is another one's now.
            None => repo.store().refresh()?,
        }
    }
    let tries = limits::REF_RETRIES;
    match Ground::read(repo, input.is_stream(), options)?.branch() {
        Some(name) => Err(CommitError::Contended { name: name.clone(), tries }),
        None => Err(RefError::HeadMoved.into()),
    }
}

/// What is committed, for one attempt after the other.
enum Input<'s> {
    Folder(PathBuf),
    Partial(PathBuf, Vec<ScopePath>),
    Paths(Vec<NamedPath>),
    Stream(EntryName, Box<dyn Read + Send + 's>),
    /// A stream that was read.
    Entry(Box<Entry>),
}

impl<'s> From<Source<'s>> for Input<'s> {
    fn from(source: Source<'s>) -> Self {
        match source {
            Source::Folder(path) => Self::Folder(path),
            Source::Partial(path, scope) => Self::Partial(path, scope),
            Source::Paths(paths) => Self::Paths(paths),
            Source::Stream { name, reader } => Self::Stream(name, reader),
        }
    }
}

impl Input<'_> {
    fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(..) | Self::Entry(_))
    }

    /// Returns whether it is all of the files, or all within the scope of a partial clone.
    fn is_whole(&self) -> bool {
        matches!(self, Self::Folder(_) | Self::Partial(..))
    }
}

/// Makes the commit; `None` when the branch moved and the tree must be made
/// again, because it keeps entries of the commit before.
fn attempt(
    repo: &Repo,
    input: &mut Input<'_>,
    (ground, options): (Ground, &Options),
    observer: &dyn Observer,
) -> Result<Option<Outcome>, CommitError> {
    // The commit before is the best guess at how much there is.
    observer.phase(Phase::Commit, ground.total_bytes());
    let packs = repo.store().packs();
    let rules = Rules::beside(options.ignore.clone(), repo.dir())?;
    let cache::Opened { cache, shadows, is_relied_on } = cache::open(repo, options, observer);
    let threads = options.jobs.or(repo.config().jobs).unwrap_or_else(default_jobs);
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
    let read = pool.install(|| read(&job, input, &ground, options));
    job.outcome()?;
    let mut root = read?.ok_or(CommitError::Interrupted)?;
    let unread = std::mem::take(&mut *job.unread.lock().unwrap_or_else(PoisonError::into_inner));
    root.selection = ground.selection(unread, (input, options));
    // What a partial clone keeps lies elsewhere.
    let is_partial = matches!(input, Input::Partial(..));
    root.is_unproven = root.keeps_others && !is_relied_on && !is_partial;

    let mut outcome = Outcome {
        files_new: job.counts.new.load(Ordering::Relaxed),
        files_changed: job.counts.changed.load(Ordering::Relaxed),
        files_unmodified: job.counts.unmodified.load(Ordering::Relaxed),
        skipped: job.counts.skipped.load(Ordering::Relaxed),
        changing: job.counts.changing.load(Ordering::Relaxed),
        without_attributes: job.counts.without_attributes.load(Ordering::Relaxed),
        bytes_read: job.counts.bytes_read.load(Ordering::Relaxed),
        totals: root.totals,
        ..Outcome::default()
    };
    drop(job);
    if options.run == Run::Dry {
        publish::preview(&ground, &root, &writer, options, &mut outcome);
        return Ok(Some(outcome));
    }
    let is_made = publish::run(
        (repo, ground),
        (&root, writer, &packs),
        (options, input),
        observer,
        &mut outcome,
    )?;
    if !is_made {
        return Ok(None);
    }
    repo.store().tell_repairs(observer);
    cache::save(repo, (cache, shadows), observer);
    Ok(Some(outcome))
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
    input: &mut Input<'_>,
    ground: &Ground,
    options: &Options,
) -> Result<Option<Root>, CommitError> {
    let previous = ground.tree();
    let kept_root = match (&*input, &options.unnamed) {
        (Input::Partial(root, _), _) | (_, Unnamed::Keep(root)) => Some(root.clone()),
        (_, Unnamed::Remove) => None,
    };
    let stat_of = |path: &Path| {
        let stat = fs_err::File::open(path).and_then(|folder| FileStat::of_fd(folder.as_fd()));
        stat.map_err(|source| CommitError::Source { path: path.to_owned(), source })
    };
    let kept = match &kept_root {
        Some(root) => Some(Kept { root, device: stat_of(root)?.device }),
        None => None,
    };
    let folder = match input {
        Input::Folder(path) => {
            let (scope, device) = (Scope::default(), None);
            let root = walk::Root { path, inside: b"", previous, scope, device };
            let walked = walk::run(job, &root);
            let walked =
                walked.map_err(|source| CommitError::Source { path: path.clone(), source })?;
            return Ok(walked
                .map(|(folder, stat)| Root::new(&folder, Some(root_metadata(job, path, &stat)))));
        }
        Input::Partial(root, scope) => {
            let (items, present) = scope::items_in_scope(job, root, scope)?;
            paths::root_folder(job, &items, (kept, Some(present)), previous)?
        }
        Input::Paths(paths) => paths::read(job, paths, kept, previous)?,
        Input::Stream(name, reader) => {
            let kept = previous.filter(|_| kept.is_some());
            stream::check_place(job, name, kept)?;
            let entry = stream::read(job, name.clone(), &mut **reader, previous)?;
            let folder = stream::with_entry(job, entry.clone(), kept);
            *input = Input::Entry(Box::new(entry));
            Some(folder?)
        }
        Input::Entry(entry) => {
            let kept = previous.filter(|_| kept.is_some());
            stream::check_place(job, &entry.name, kept)?;
            Some(stream::with_entry(job, (**entry).clone(), kept)?)
        }
    };
    let keeps_others = kept_root.is_some();
    // Without a commit of the whole folder the root stands for no folder, and a
    // restore must not take the rest of one for extra.
    let metadata = ground.root_metadata().filter(|_| keeps_others).cloned();
    Ok(folder.map(|folder| Root { keeps_others, ..Root::new(&folder, metadata) }))
}

impl Root {
    fn new(folder: &Folder, metadata: Option<Metadata>) -> Self {
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

/// What is kept about the root folder itself.
fn root_metadata(job: &Job<'_>, path: &Path, stat: &FileStat) -> Metadata {
    // The root may have been reached through a symlink; its target counts.
    let real = fs_err::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let xattrs = job.content.keep(job.xattrs_at(&real));
    let mut metadata = encode::metadata(job, stat, xattrs, false);
    let bytes: usize = metadata.xattrs.iter().map(xattr_bytes).sum();
    if bytes > limits::ROOT_XATTR_BYTES {
        let limit = limits::ROOT_XATTR_BYTES;
        let text = format!("{bytes} bytes are more than the {limit} that a root folder may have");
        job.lose_attributes(path, &io::Error::other(text));
        metadata.mode = metadata.mode_without_acl();
        metadata.xattrs.clear();
    }
    metadata
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
        selection: root.selection.clone(),
    }
}
