//! One repository: a store on disk, the packs staged for it, and the index that
//! clients read. With an upstream (`snap serve --upstream`, or a bucket), the store on disk is a
//! cache of the upstream's store.
//!
//! All functions here may block. Callers run them on blocking threads, never on the
//! async runtime. Which repositories exist is decided in [`hub`](crate::hub).

mod bundle;
mod completeness;
mod folder_watch;
mod index;
mod object_upload;
mod publishing;
mod reading;
mod relaying;

use std::{
    fs::File,
    io::{self, Write},
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use snap_core::{
    base::{
        blocked::Blocked,
        byte_cache::{ByteCache, CacheLimits},
        id::{CommitId, PackId},
        io::PathError,
        observe::{Observer, Silent},
        time::Time,
    },
    disk::Disk,
    format::{outline, ref_text::RefText},
    ops::{
        inbox::{self, IndexUpload, SharedInbox, StagedError},
        verify::DataChecks,
    },
    repo::{
        Config, Repo, RepoError, config,
        history::{History, Parents},
        open::{self, refuse_remote},
        past::PastError,
        ref_name::{RefKind, RefName},
        refs::{self, Damage, Head, RefError, RefListing, RefLogMessage},
    },
    store::ContentError,
};
use snap_remote::wire::{headers::EpochTag, types::Listed};

pub use self::bundle::{BundleLayout, ClientObjects, CopyPack};
pub(crate) use self::folder_watch::FolderWatch;
pub use self::object_upload::OBJECT_BYTES;
pub use self::reading::{FoundFile, InFrame, Revision, write_content};
pub use snap_core::ops::inbox::Received;

use self::{index::Index, publishing::SharedChecks};
use crate::{
    body::{self, BodyPieces, DisconnectObserver},
    clock::Clock,
    problem::{Code, HttpProblem},
    ref_log::{self, LastMove},
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
        let mirrors = upstream.iter().flat_map(|upstream| upstream.mirrors());
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
        repository.finish_interrupted_publish();
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

    /// Returns the branch that a clone checks out, after a check for changes upstream.
    ///
    /// # Errors
    /// [`Code::Damaged`] when `HEAD` is damaged, [`Code::NotFound`] when `HEAD` is detached and
    /// there is no branch, [`Code::Unavailable`] when the upstream has never answered.
    pub fn default_branch(&self) -> Result<RefName, HttpProblem> {
        self.catch_up_now()?;
        self.cached_branch()
    }

    /// Returns the default branch as last read, without a request to the upstream.
    ///
    /// # Errors
    /// [`Code::Damaged`] when `HEAD` is damaged, [`Code::NotFound`] when `HEAD` is
    /// detached and there is no branch.
    pub fn cached_branch(&self) -> Result<RefName, HttpProblem> {
        let refs = self.repo.refs();
        self.read_kept(|| match refs.head()? {
            Head::Branch(name) => Ok(name),
            Head::Detached(_) => {
                let first = refs.names(RefKind::Branch)?.into_iter().next();
                first.ok_or_else(|| {
                    HttpProblem::new(Code::NotFound, "the repository has no branches")
                })
            }
        })
    }

    /// Rewrites `HEAD` from its log if the file is lost or damaged. Returns the default
    /// branch. A relay leaves the repair to its upstream.
    ///
    /// # Errors
    /// [`Code::Unavailable`], and those of [`Repository::default_branch`].
    pub fn mend_head(&self) -> Result<RefName, HttpProblem> {
        if self.upstream.is_none() {
            self.repo.mend_head()?;
        }
        self.default_branch()
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

    /// Returns all readable branches and tags, after a check for changes upstream.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn refs(&self) -> Result<Arc<Vec<(RefName, CommitId)>>, HttpProblem> {
        Ok(self.listing()?.refs)
    }

    /// Returns all readable branches and tags as last read, without a request to the
    /// upstream.
    ///
    /// # Errors
    /// As [`Repository::refs`].
    pub fn cached_refs(&self) -> Result<Arc<Vec<(RefName, CommitId)>>, HttpProblem> {
        Ok(self.cached_listing()?.refs)
    }

    /// Returns all readable branches and tags and the names of damaged ones, after a
    /// check for changes upstream.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn listing(&self) -> Result<RefListing, HttpProblem> {
        self.catch_up_now()?;
        self.cached_listing()
    }

    /// Returns the [`listing`](Self::listing) as last read, without a request to the upstream.
    ///
    /// # Errors
    /// As [`Repository::listing`].
    pub fn cached_listing(&self) -> Result<RefListing, HttpProblem> {
        self.read_kept(|| {
            // Hold the lock while the refs are read, so that simultaneous requests read them once.
            let mut kept = self.listing.lock();
            let before = kept.take();
            let misnamed = before.as_ref().map(|listing| Arc::clone(&listing.misnamed));
            let listing = match before.filter(RefListing::is_current) {
                Some(listing) => listing,
                None => self.repo.refs().list_all()?,
            };
            // Log each misnamed file once, not for every listing.
            let is_new = |path: &&std::path::PathBuf| {
                misnamed.as_ref().is_none_or(|old| !old.contains(path))
            };
            for path in listing.misnamed.iter().filter(is_new) {
                tracing::warn!(
                    repository = self.name,
                    ?path,
                    "a file among the refs has a name that no ref may have"
                );
            }
            // A relay repairs damaged refs from the upstream. Only a ref that is damaged upstream
            // stays damaged locally. Any other damage is an error, which makes `read_kept` repair
            // it.
            if self.upstream.is_some() {
                for name in listing.damaged.iter() {
                    if self.repo.refs().damage(name)? != Some(Damage::elsewhere()) {
                        return Err(HttpProblem::new(Code::Damaged, format!("{name} is damaged")));
                    }
                }
            }
            Ok(kept.insert(listing).clone())
        })
    }

    /// Returns the last move of a ref that is at this commit, if the log records it. Sends no
    /// request to the upstream.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn last_move(&self, name: &RefName, at: CommitId) -> Result<Option<LastMove>, HttpProblem> {
        Ok(self.repo.refs().last_change_of(name, at)?.and_then(LastMove::of))
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

    /// Returns the commit that a ref points at, after a check for changes upstream.
    ///
    /// # Errors
    /// [`Code::Damaged`] when the ref is damaged, [`Code::Unavailable`].
    pub fn ref_target(&self, name: &RefName) -> Result<Option<CommitId>, HttpProblem> {
        self.catch_up_now()?;
        Ok(self.repo.refs().read(name)?)
    }

    /// Returns the damage of a ref, or `None` if the ref is sound. On a relay the
    /// damage is that of the upstream's ref.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn damage(&self, name: &RefName) -> Result<Option<Damage>, HttpProblem> {
        let damage = self.repo.refs().damage(name)?;
        match &self.upstream {
            Some(upstream) if damage == Some(Damage::elsewhere()) => upstream.damage(name),
            Some(_) => Ok(None),
            None => Ok(damage),
        }
    }

    /// Returns the state of a ref that exists. A relay omits the nonce: several
    /// relays may serve one upstream, and all of them must give the same answer.
    ///
    /// # Errors
    /// As [`Repository::ref_target`].
    pub fn state(&self, name: &RefName) -> Result<Option<RefCondition>, HttpProblem> {
        self.catch_up_now()?;
        Ok(self.repo.refs().text(name)?.map(|text| self.state_of(text)))
    }

    fn state_of(&self, text: RefText) -> RefCondition {
        match text.commit {
            None => RefCondition::Absent,
            Some(commit) if self.upstream.is_some() => RefCondition::At(commit),
            Some(_) => RefCondition::AtWrite(text),
        }
    }

    /// Returns true if `new` is `old` or a descendant of `old`, through any parent.
    ///
    /// # Errors
    /// [`Code::Rejected`] when the history of `new` is incomplete in this store,
    /// [`Code::Unavailable`] when `observer` cancels because the client has disconnected.
    pub fn is_after(
        &self,
        new: &CommitId,
        old: &CommitId,
        observer: &dyn Observer,
    ) -> Result<bool, HttpProblem> {
        if self.upstream.is_none() {
            self.check_commit_complete(new)?;
        }
        for step in History::new(self.repo.store(), &[*new], Parents::All)? {
            if observer.cancelled() {
                return Err(PastError::Blocked(Blocked::Interrupted).into());
            }
            if step?.id == *old {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves a ref by compare-and-swap; `None` deletes it. This store must have the new commit,
    /// with everything that it refers to. Returns the new state of the ref.
    ///
    /// # Errors
    /// [`Code::Conflict`] when the ref is not as expected; [`Code::Rejected`] when the commit is
    /// incomplete, the ref is lost, a newer version wrote it, or a garbage collection has run here;
    /// [`Code::NameConflict`] when one ref name would be a folder of another; [`Code::Invalid`] when
    /// a new ref may not have that name; [`Code::Damaged`] when the settings are damaged.
    pub fn swap(
        &self,
        name: &RefName,
        expected: RefCondition,
        new: Option<CommitId>,
        who: &str,
    ) -> Result<RefCondition, HttpProblem> {
        if expected == RefCondition::Absent && new.is_some() && name.check_new().is_err() {
            let why = "the name contains an invisible or bidirectional control character";
            return Err(HttpProblem::new(Code::Invalid, why));
        }
        if let Some(upstream) = &self.upstream {
            let there = match expected {
                RefCondition::Damaged(damage) => refs::ExpectedRef::Damaged(damage),
                expected => refs::ExpectedRef::At(expected.commit()),
            };
            upstream.swap(name, there, new, who)?;
            return Ok(new.map_or(RefCondition::Absent, RefCondition::At));
        }
        self.check_epoch()?;
        // Damaged settings may be those of a newer version of snap, so no ref is moved.
        match self.settings() {
            Err(problem) if problem.code == Code::Damaged => return Err(problem),
            _ => {}
        }
        if let Some(new) = &new {
            self.check_commit_complete(new)?;
        }
        let change = RefLogMessage { time: Time::now(), who, reason: ref_log::PUSH };
        let must = match &expected {
            RefCondition::Damaged(damage) => refs::ExpectedRef::Damaged(*damage),
            RefCondition::AtWrite(text) => refs::ExpectedRef::Text(text),
            expected => refs::ExpectedRef::At(expected.commit()),
        };
        let refs = self.repo.refs();
        let moved = match refs.swap(name, must, new, &change) {
            // The log still names the lost commit. A descendant of it keeps all its
            // history.
            Err(RefError::Lost { at, .. })
                if new.is_some_and(|new| self.is_after(&new, &at, &Silent).unwrap_or(false)) =>
            {
                refs.swap(name, refs::ExpectedRef::Lost(at), new, &change)
            }
            moved => moved,
        };
        let moved = match moved {
            Err(
                RefError::Exists { at: found, .. } | RefError::Moved { found: Some(found), .. },
            ) => return Err(HttpProblem::new(Code::Conflict, format!("{name} is at {found}"))),
            Err(RefError::Moved { found: None, .. }) => {
                return Err(HttpProblem::new(Code::Conflict, format!("{name} does not exist")));
            }
            Err(RefError::Newer { .. }) => {
                let why = format!(
                    "{name} was written by a newer version of snap, so this server cannot move it"
                );
                return Err(HttpProblem::new(Code::Rejected, why));
            }
            Err(RefError::NameConflict { name, other }) => {
                return Err(HttpProblem::name_clash(&name, &other));
            }
            Err(RefError::Lost { name, at }) => {
                let why = format!(
                    "the file of {name} was lost on this server; it was at {at}, and {} is not a \
                     descendant of that commit",
                    new.map(|id| id.to_string()).unwrap_or_default()
                );
                return Err(HttpProblem::new(Code::Rejected, why));
            }
            moved => moved?,
        };
        if expected.commit().is_none() && new.is_some() {
            self.repo.refs().begin_head(name, &change)?;
        }
        Ok(self.state_of(moved))
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

    /// Lists all packs with their lengths, published and staged.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn packs(&self) -> Result<Vec<Listed>, HttpProblem> {
        self.check_seen()?;
        self.refresh()?;
        let store = self.repo.store();
        let listed = |(name, bytes)| Listed { name, bytes };
        let mut packs: Vec<Listed> = self.staged.list()?.into_iter().map(listed).collect();
        for id in store.packs().into_iter().filter(|id| self.has(id)) {
            let path = store.pack_path(&id);
            // Another process has just merged this pack into a larger one.
            let Ok(meta) = fs_err::metadata(&path) else { continue };
            packs.push(Listed { name: id.to_string(), bytes: meta.len() });
        }
        packs.sort_unstable();
        packs.dedup();
        Ok(packs)
    }

    /// Opens a published pack for reading. Returns its source and its length in bytes.
    ///
    /// # Errors
    /// [`Code::NotFound`], [`Code::Unavailable`].
    pub fn pack(&self, id: &PackId) -> Result<(PackContent, u64), HttpProblem> {
        if !self.repo.store().packs().contains(id) {
            self.catch_up_now()?;
            self.refresh()?;
        }
        let missing = || HttpProblem::not_found(format_args!("pack {id}"));
        if let Some(upstream) = &self.upstream {
            return Ok((PackContent::Frames, upstream.fetch_whole(id)?.ok_or_else(missing)?));
        }
        let file = self.open_pack(id)?.ok_or_else(missing)?;
        let path = self.repo.store().pack_path(id);
        let length = file.metadata().map_err(PathError::when("stat", &path))?.len();
        Ok((PackContent::File(file), length))
    }

    /// Writes a range of a pack's bytes to `out`. Bytes from a cache are checked first.
    ///
    /// # Errors
    /// The errors of `out`, and an error when the pack cannot be read.
    pub fn copy_pack(
        &self,
        id: &PackId,
        source: &PackContent,
        range: Range<u64>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match source {
            PackContent::File(file) => body::copy_range(file, range, out),
            PackContent::Frames => match self.repo.store().copy_pack(id, range, out) {
                Err(ContentError::Callback(error)) => Err(error),
                Err(ContentError::Store(error)) => Err(io::Error::other(error)),
                Ok(()) => Ok(()),
            },
        }
    }

    /// Opens the file of a whole pack of this store.
    fn open_pack(&self, id: &PackId) -> Result<Option<File>, HttpProblem> {
        let store = self.repo.store();
        let open = || fs_err::File::open(store.pack_path(id));
        let file = match open() {
            Err(_) => {
                self.refresh()?;
                open()
            }
            file => file,
        };
        let file = file.ok().filter(|_| !store.is_partial(id));
        Ok(file.map(|file| file.into_parts().0))
    }

    /// Returns true if a pack that a client sends is already published here and is sound.
    fn is_whole_here(&self, id: &PackId) -> Result<bool, HttpProblem> {
        let store = self.repo.store();
        if !store.packs().contains(id) {
            return Ok(false);
        }
        if self.upstream.is_some() {
            return Ok(true);
        }
        Ok(!store.is_partial(id) && inbox::is_sound(store, id)?)
    }

    /// Receives a pack: hashes the bytes as they arrive, then checks every frame and
    /// object. The check stops when the client disconnects. The pack stays staged until
    /// it is [published](Self::publish).
    ///
    /// # Errors
    /// [`Code::Rejected`] when the pack does not match its name or is damaged. The
    /// server keeps nothing of a pack that failed.
    pub fn receive(&self, id: PackId, pieces: BodyPieces) -> Result<Received, HttpProblem> {
        self.check_epoch()?;
        if self.is_whole_here(&id)? {
            return self.already_present();
        }
        let watch = pieces.observer();
        let sent = self.staged.receive(id, pieces, &*watch)?;
        self.forward_pack(&id)?;
        Ok(sent)
    }

    /// Returns the names and lengths of the index files that clients read. An
    /// unreadable pack is listed only in files that were written before it became
    /// unreadable.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn index(&self) -> Result<Vec<Listed>, HttpProblem> {
        self.catch_up_now()?;
        self.refresh()?;
        self.read_kept(|| self.index.current(self.repo.store(), &|id| self.has(id)))
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

    /// Reads one file of the index.
    ///
    /// # Errors
    /// [`Code::NotFound`].
    pub fn index_file(&self, name: &str) -> Result<Vec<u8>, HttpProblem> {
        self.index.read(name)
    }

    /// Publishes the staged packs that an outline file, or a group of such files, lists. All
    /// objects that the packs refer to must be present. A part of a group is only stored until the
    /// whole group has arrived.
    ///
    /// # Errors
    /// [`Code::Rejected`] when something is missing, [`Code::TooLarge`] when chunk lists name too many
    /// chunks. In both cases no pack is published.
    pub fn publish(
        &self,
        name: &str,
        bytes: &[u8],
        client: &Arc<DisconnectObserver>,
    ) -> Result<Received, HttpProblem> {
        let ids = match self.staged.read_index_file(name, bytes)? {
            IndexUpload::Part => return Ok(Received::Added),
            IndexUpload::Packs(ids) => ids,
        };
        let sent = self.publish_staged(&ids, client)?;
        if name.ends_with(inbox::GROUP) {
            return Ok(sent);
        }
        let outlines = outline::decode(bytes).map_err(StagedError::from)?.outlines;
        // Keep the client's file, so that the client does not download it again.
        self.index.adopt(self.repo.store(), name, bytes, &outlines)?;
        Ok(sent)
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
