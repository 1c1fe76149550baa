//! One repository: a store on disk, the packs staged for it, and the index that
//! clients read. With an upstream (`snap serve --upstream`, or a bucket), the store on disk is a
//! cache of the upstream's store.
//!
//! All functions here may block. Callers run them on blocking threads, never on the
//! async runtime. Which repositories exist is decided in [`hub`](crate::hub).

mod bundle;
mod folder_watch;
mod index;
mod object_upload;
mod packs;
mod publishing;
mod reading;
mod refs;
mod relaying;

use std::{
    fs::File,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use snap_core::{
    base::{
        byte_cache::{ByteCache, CacheLimits},
        id::{CommitId, PackId},
        io::PathError,
        observe::Silent,
    },
    disk::Disk,
    format::ref_text::RefText,
    ops::{inbox::SharedInbox, verify::DataChecks},
    repo::{
        Config, Repo, RepoError, config,
        open::{self, refuse_remote},
        refs::{Damage, RefListing},
    },
};
use snap_remote::wire::headers::EpochTag;

pub use self::bundle::{BundleLayout, ClientObjects, CopyPack};
pub(crate) use self::folder_watch::FolderWatch;
pub use self::object_upload::OBJECT_BYTES;
pub use self::packs::RepositoryPacks;
pub use self::reading::{FoundFile, InFrame, Revision, write_content};
pub use self::refs::RepositoryRefs;
pub use snap_core::ops::inbox::Received;

use self::{index::Index, publishing::SharedChecks};
use crate::{
    clock::Clock,
    problem::{Code, HttpProblem},
    upstream::{Upstream, health::UpstreamOutage, repository::UpstreamRepository},
};

/// Memory limit for cached bundle layouts, in bytes.
const LAYOUTS_BYTES: usize = 1 << 20;

/// The clock and the limits of all repositories of a server.
#[derive(Clone, Debug)]
pub struct RepositoryResources {
    pub(crate) clock: Clock,
    /// Number of repositories that were opened so far.
    opened: Arc<AtomicU64>,
}

impl RepositoryResources {
    /// Creates the resources of a server with this clock.
    pub fn new(clock: Clock) -> Self {
        Self { clock, opened: Arc::default() }
    }
}

/// A repository that is served.
#[derive(Debug)]
pub struct Repository {
    name: String,
    number: u64,
    repo: Arc<Repo>,
    index: Index,
    staged: SharedInbox,
    shared_checks: SharedChecks,
    /// Layouts of bundles that clients requested recently, by commit.
    bundles: ByteCache<CommitId, Arc<BundleLayout>>,
    upstream: Option<Arc<UpstreamRepository>>,
    /// The epoch of the store when it was opened.
    opened_epoch: Option<EpochTag>,
    landmarks: FolderWatch,
    /// Branches and tags as they were last read.
    listing: Mutex<Option<RefListing>>,
}

/// The state in which a ref must be for a write to change it (compare-and-swap).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefCondition {
    /// The ref does not exist.
    Absent,
    /// The ref points at this commit, whatever the nonce of the last write.
    At(CommitId),
    /// The ref has this text: no process has written it since.
    AtWrite(RefText),
    /// The file of the ref is damaged, in exactly this way.
    Damaged(Damage),
}

impl RefCondition {
    /// Returns the commit that the ref must point at, if there is one.
    pub fn commit(&self) -> Option<CommitId> {
        match self {
            Self::Absent | Self::Damaged(_) => None,
            Self::At(commit) => Some(*commit),
            Self::AtWrite(text) => text.commit,
        }
    }

    /// Returns the ETag of a ref in this state.
    pub fn tag(&self) -> String {
        match self {
            Self::Absent => String::new(),
            Self::At(commit) => commit.to_string(),
            Self::AtWrite(text) => text.tag(),
            Self::Damaged(damage) => damage.tag(),
        }
    }

    /// Parses an ETag. A commit alone matches any nonce.
    pub fn from_tag(tag: &str) -> Option<Self> {
        let damaged = || Damage::from_tag(tag).map(Self::Damaged);
        let at = || tag.parse().ok().map(Self::At);
        let at_write = || RefText::from_tag(tag).ok().filter(|text| text.commit.is_some());
        damaged().or_else(at).or_else(|| at_write().map(Self::AtWrite))
    }
}

/// Where the bytes of a pack are read from.
#[derive(Debug)]
pub enum PackContent {
    /// A file of a store on this disk.
    File(File),
    /// The cache and the upstream, frame by frame.
    Frames,
}

impl Repository {
    /// Opens the store in `dir` and serves it as `name`.
    ///
    /// # Errors
    /// [`RepoError`] when the store cannot be opened; [`RepoError::Remote`] when
    /// `snap push` made the folder. Nothing is written into the folder in that case.
    pub fn open(name: &str, dir: &Path, shared: &RepositoryResources) -> Result<Self, RepoError> {
        refuse_remote(dir)?;
        let repo = Repo::open_without_settings(dir, Disk::default(), &Silent)?;
        Ok(Self::of(name, Arc::new(repo), None, shared)?)
    }

    /// Opens the repository `name` of an upstream.
    ///
    /// # Errors
    /// [`Code::NoRepository`] when the upstream has no such repository;
    /// [`Code::Unavailable`] when the upstream does not answer and nothing of the
    /// repository is cached.
    pub fn open_behind(
        name: &str,
        upstream: &Arc<Upstream>,
        shared: &RepositoryResources,
    ) -> Result<Self, HttpProblem> {
        let upstream = UpstreamRepository::open(upstream, name)?;
        Ok(Self::of(name, Arc::clone(upstream.repo()), Some(Arc::new(upstream)), shared)?)
    }

    fn of(
        name: &str,
        repo: Arc<Repo>,
        upstream: Option<Arc<UpstreamRepository>>,
        shared: &RepositoryResources,
    ) -> Result<Self, PathError> {
        repo.store().sweep();
        let index = Index::open(repo.store())?;
        let staged = SharedInbox::new(repo.store());
        staged.sweep();
        let number = shared.opened.fetch_add(1, Ordering::Relaxed);
        let bundles = ByteCache::new(CacheLimits::of_small_entries(LAYOUTS_BYTES));
        let name = name.to_owned();
        let shared_checks = SharedChecks::new(shared.clock.clone());
        let folders = ["", "objects", "refs"].map(|folder| repo.dir().join(folder));
        let mirrors = upstream.iter().map(|upstream| upstream.mirror());
        // A served store stays usable without `HEAD`, and without settings that were
        // missing when it was opened. A cache needs both files.
        let files: &[&str] =
            if upstream.is_some() { &[config::FILE, "HEAD"] } else { &[config::FILE] };
        let files = files.iter().map(|file| repo.dir().join(file));
        let files = files.filter(|file| upstream.is_some() || file.exists());
        let landmarks = FolderWatch::of(folders.into_iter().chain(mirrors), files);
        let opened_epoch = known_epoch(&repo, upstream.as_deref());
        let repository = Self {
            name,
            number,
            repo,
            index,
            staged,
            shared_checks,
            bundles,
            upstream,
            opened_epoch,
            landmarks,
            listing: Mutex::default(),
        };
        repository.packs().finish_interrupted_publish();
        Ok(repository)
    }

    /// Returns the outage of the upstream because of which the local state may be outdated. `None`
    /// means that the state is current, or that there is no upstream.
    pub fn outage(&self) -> Option<UpstreamOutage> {
        self.upstream.as_ref().and_then(|upstream| upstream.outage())
    }

    /// Returns the epoch of the store, or of the store upstream, as of the last look at it. `None`
    /// means that it is unknown. Reads nothing from disk.
    pub fn epoch(&self) -> Option<EpochTag> {
        known_epoch(&self.repo, self.upstream.as_deref())
    }

    /// Returns the [`epoch`](Self::epoch) when the store was opened.
    pub fn opened_epoch(&self) -> Option<EpochTag> {
        self.opened_epoch
    }

    /// Returns true if only the caller holds this repository and no request to its
    /// upstream is running.
    pub fn is_idle(this: &Arc<Self>) -> bool {
        Arc::strong_count(this) == 1
            && this.upstream.as_ref().is_none_or(UpstreamRepository::is_idle)
    }

    /// Returns true if the folders are still those that were opened. If not, the server must not
    /// answer from the folders that are there now: they would look like an empty store.
    pub fn is_there(&self) -> bool {
        self.landmarks.are_unchanged()
    }

    /// Returns true if the whole pack is available: either it is stored whole, or the
    /// rest can be fetched from the upstream.
    fn has(&self, id: &PackId) -> bool {
        self.upstream.is_some() || !self.repo.store().is_partial(id)
    }

    /// Creates a store in `dir` with the settings that a client sent.
    ///
    /// # Errors
    /// [`Code::Conflict`] when there is a store already, [`Code::Rejected`] when the
    /// text is not valid settings.
    pub fn create(dir: &Path, config: &str) -> Result<(), HttpProblem> {
        Ok(Repo::init(dir, &Disk::default(), &sent_settings(config)?)?)
    }

    /// Returns the name under which the repository is served.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a number that is unique among all repositories that the server has opened.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the repository on disk.
    pub fn repo(&self) -> &Repo {
        &self.repo
    }

    /// Rereads the list of packs, to find packs that other processes added or merged.
    ///
    /// # Errors
    /// [`Code::Unavailable`] when the store cannot be listed.
    pub fn refresh(&self) -> Result<(), HttpProblem> {
        Ok(self.repo.store().refresh()?)
    }

    /// Returns the bytes that the quota counts: refs with their logs, published packs, and staged
    /// packs.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn bytes(&self) -> Result<u64, HttpProblem> {
        self.refresh()?;
        let store = self.repo.store();
        let packs = store.packs().into_iter().filter(|id| self.has(id));
        let lengths = packs.filter_map(|id| fs_err::metadata(store.pack_path(&id)).ok());
        Ok(lengths.map(|meta| meta.len()).sum::<u64>()
            + self.staged.bytes()
            + self.repo.refs().bytes()?)
    }

    /// Returns the text of the settings.
    ///
    /// # Errors
    /// [`Code::Damaged`] when the settings are lost or damaged, [`Code::Unavailable`].
    pub fn settings(&self) -> Result<String, HttpProblem> {
        if self.upstream.is_some() {
            return Ok(self.repo.config().to_text());
        }
        let config = open::read_config(self.repo.dir()).map_err(|error| {
            let is_damaged = error.is_of_settings();
            let problem = HttpProblem::from(error);
            match is_damaged {
                true => HttpProblem::new(Code::Damaged, format!("{} is damaged", config::FILE)),
                false => problem,
            }
        });
        Ok(config?.to_text())
    }

    /// If the settings file is lost or damaged, rewrites it with the settings that the client sent.
    /// Returns the text of the settings. A relay leaves the repair to its upstream.
    ///
    /// # Errors
    /// [`Code::Rejected`] when the client's text is not valid settings, and those of
    /// [`Repository::settings`].
    pub fn mend_settings(&self, config: &str) -> Result<String, HttpProblem> {
        let config = sent_settings(config)?;
        if self.upstream.is_none() {
            Repo::mend_settings(self.repo.dir(), &Disk::default(), &config)?;
        }
        self.settings()
    }

    /// Returns when the packs were last read and hashed completely; `None` for a repository with an
    /// upstream, where its packs are verified.
    pub fn data_checks(&self) -> Option<DataChecks> {
        self.upstream.is_none().then(|| DataChecks::of(self.repo.store()))
    }

    /// Returns the number of packs that are known to be damaged. Returns 0 for a cache, which
    /// repairs its packs from the upstream.
    pub fn damaged_pack_count(&self) -> usize {
        let store = self.repo.store();
        match self.upstream.is_some() || !store.has_shadows() {
            true => 0,
            false => store.packs().iter().filter(|id| store.is_damaged(id)).count(),
        }
    }

    /// Refuses a write to a store in which a garbage collection has run, also one that runs beside
    /// this server. The server remembers which objects are stored, and would rely on deleted ones.
    ///
    /// # Errors
    /// [`Code::Rejected`].
    fn check_epoch(&self) -> Result<(), HttpProblem> {
        if self.upstream.is_none() && !self.repo.store().epoch()?.is_first() {
            return Err(HttpProblem::collected());
        }
        Ok(())
    }

    /// Returns true if garbage was ever collected in the store.
    ///
    /// # Errors
    /// [`HttpProblem`] if the epoch cannot be read.
    pub fn was_collected(&self) -> Result<bool, HttpProblem> {
        match &self.upstream {
            Some(upstream) => Ok(upstream.was_collected()),
            None => Ok(self.repo.store().epoch()?.number > 0),
        }
    }
}

fn known_epoch(repo: &Repo, upstream: Option<&UpstreamRepository>) -> Option<EpochTag> {
    match upstream {
        Some(upstream) => upstream.epoch(),
        None => EpochTag::of(&repo.store().known_epoch()),
    }
}

/// Parses settings that a client sent.
fn sent_settings(text: &str) -> Result<Config, HttpProblem> {
    let config = Config::parse(text, Path::new(config::FILE));
    config.map_err(|why| HttpProblem::new(Code::Rejected, why.to_string()))
}
