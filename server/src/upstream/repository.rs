//! One store of an upstream, and the local store that caches it.
//!
//! A client that reads refs sees the state upstream after its request arrived. During an outage of
//! the upstream, it sees the last known state. A write goes upstream first, and the cache follows:
//! it never has a pack or a ref that upstream lacks, as far as this server knows.

mod cached_refs;
mod frames;
mod mend;
mod packs;

use std::{
    collections::HashSet,
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use snap_core::{
    base::{
        id::{CommitId, PackId},
        io::PathError,
        observe::Silent,
        single_flight::SingleFlight,
    },
    disk::Disk,
    format::ref_text::FIRST_EPOCH,
    ops::inbox::accept,
    repo::{
        Repo, config,
        ref_name::{RefKind, RefName},
        refs::{self, Damage, RefError},
    },
    store::Store,
};
use snap_remote::{
    peer::{Place, RefMove, RemoteError, RemoteStore, gc_view::GcView},
    remote_packs::{BlockingContext, RemotePacks},
    wire::headers::EpochTag,
};

use self::{
    cached_refs::{CachedRefs, UpstreamRefs},
    frames::{DamagedPacks, ProgressWatch, UpstreamFrames},
};
use super::{
    Upstream, UpstreamLayout,
    health::{UpstreamOutage, unavailable},
    shared_queries::{QueryGuard, SharedQueries},
};
use crate::{
    causes::causes,
    problem::{Code, HttpProblem},
};

/// Maximum number of pack outlines in memory at once.
const OUTLINES: usize = 64;

/// Folder beside the local store, with what is known of the store upstream.
const MIRROR: &str = "mirror";

/// Maximum number of commits that are remembered as complete upstream.
const VERIFIED: usize = 64;

/// Maximum age of the known state for requests that do not read refs.
const AGE: Duration = Duration::from_secs(1);

/// What the last read of the index upstream has shown.
#[derive(Clone, Copy, Debug, Default)]
struct UpstreamIndex {
    /// True if garbage was collected upstream.
    was_collected: bool,
    /// The epoch of a bucket, if it is known.
    epoch: Option<EpochTag>,
    /// Number of packs. The cache has each of them, as a stub or whole.
    packs: usize,
}

/// One store of an upstream, and the local store that caches it.
#[derive(Debug)]
pub struct UpstreamRepository {
    upstream: Arc<Upstream>,
    repo: Arc<Repo>,
    /// For requests that need no mirror.
    place: Place,
    /// The mirror. Locked for writing while the index is read and the cache follows it.
    remote: RwLock<RemoteStore>,
    index: Mutex<UpstreamIndex>,
    /// The refs upstream as last read, if the cached ones match them. Locked while a ref moves.
    refs: Mutex<Option<UpstreamRefs>>,
    /// Grows by one before and after each move of a ref by this server. An answer to a query that
    /// began before such a change is out of date.
    moves: AtomicU64,
    ref_queries: SharedQueries,
    /// Queries for the index.
    pack_queries: SharedQueries,
    cached_refs: CachedRefs,
    /// True if refs could not be copied because the disk of this server is full.
    is_full: AtomicBool,
    /// Commits verified as complete since upstream lost packs, the newest first.
    verified: Mutex<Vec<CommitId>>,
    /// Packs that were sent upstream and are not published yet.
    sent: Mutex<HashSet<PackId>>,
    /// The packs that are being fetched.
    fetching: SingleFlight<PackId, ()>,
    /// Packs whose cached copy is damaged.
    damaged: Arc<DamagedPacks>,
}

/// How recent the known state must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Read from upstream after the request arrived.
    Now,
    /// At most a second old.
    Lately,
}

impl UpstreamRepository {
    /// Opens the repository called `name`: the local store, or else a new one with the
    /// settings that it has upstream.
    ///
    /// # Errors
    /// [`Code::NoRepository`] when there is none; [`Code::Unavailable`].
    pub fn open(upstream: &Arc<Upstream>, name: &str) -> Result<Self, HttpProblem> {
        let make_room = || upstream.cache.make_room(0);
        Self::open_here(upstream, name).or_else(|problem| match problem.is_own_disk_full {
            true if make_room() => Self::open_here(upstream, name),
            _ => Err(problem),
        })
    }

    fn open_here(upstream: &Arc<Upstream>, name: &str) -> Result<Self, HttpProblem> {
        upstream.cache.restore()?;
        upstream.form()?;
        let folder = upstream.cache.of(name);
        let store = folder.join("store");
        let theirs = upstream.config(name);
        let is_kept = ["objects", "refs"].iter().all(|part| store.join(part).is_dir())
            && [config::FILE, "HEAD"].iter().all(|part| store.join(part).is_file());
        if is_kept {
            let kept = Self::open_kept(upstream, name);
            match (kept, &theirs) {
                // Clients cut files by the settings, and damaged settings may still be valid.
                (Ok(kept), Ok(Some(theirs))) if *theirs != *kept.repo.config() => {
                    tracing::warn!(name, "the cached settings differ from those upstream");
                }
                (Ok(kept), _) => return Ok(kept),
                // Remove nothing because the disk is full, or while upstream cannot replace it.
                (Err(problem), theirs)
                    if matches!(problem.code, Code::Full | Code::NoRepository)
                        || theirs.is_err() =>
                {
                    return Err(problem);
                }
                (Err(problem), _) => {
                    tracing::warn!(%problem, name, "the cache is unusable and is rebuilt");
                }
            }
        }
        let theirs = theirs?.ok_or_else(|| {
            let why = format!("repository `{name}` does not exist upstream");
            HttpProblem::new(Code::NoRepository, why)
        })?;
        // A part of an older cache may be left.
        match fs_err::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(PathError::when("remove", &folder)(error).into());
            }
            _ => {}
        }
        Repo::init(&store, &Disk::default(), &theirs)?;
        Self::open_kept(upstream, name)
    }

    /// Opens the existing local store.
    fn open_kept(upstream: &Arc<Upstream>, name: &str) -> Result<Self, HttpProblem> {
        let store = upstream.cache.of(name).join("store");
        let (place, remote) = (upstream.place(name)?, upstream.remote(name, MIRROR)?);
        // Only data of packs and of the index counts as progress, not that of refs.
        let watch = Arc::new(ProgressWatch::new(
            Arc::clone(remote.place().traffic()),
            upstream.patience,
            upstream.clock.clone(),
        ));
        let waiting = BlockingContext { runtime: upstream.runtime.clone(), stop: watch.stop() };
        let packs = RemotePacks::with_shared_budget(&remote, waiting, &upstream.memory);
        let (cache, contact) = (Arc::clone(&upstream.cache), Arc::clone(&upstream.contact));
        let damaged = Arc::<DamagedPacks>::default();
        let packs = UpstreamFrames { packs, watch, cache, contact, damaged: Arc::clone(&damaged) };
        let opening = upstream.cache.opening(&store);
        let repo =
            Repo::open(&store, Disk::default(), &Silent)?.with_remote_frames(Arc::new(packs));
        let repo = Arc::new(repo);
        opening.opened(Arc::downgrade(&repo));
        let repository = Self {
            cached_refs: CachedRefs::of(&repo),
            upstream: Arc::clone(upstream),
            repo,
            place,
            remote: RwLock::new(remote),
            index: Mutex::default(),
            refs: Mutex::default(),
            moves: AtomicU64::new(0),
            ref_queries: SharedQueries::new(upstream.clock.clone()),
            pack_queries: SharedQueries::new(upstream.clock.clone()),
            is_full: AtomicBool::new(false),
            verified: Mutex::default(),
            sent: Mutex::default(),
            fetching: SingleFlight::default(),
            damaged,
        };
        // Packs that upstream has may have been evicted from the cache: add their stubs.
        let synced = repository.sync_packs(&repository.remote.read());
        synced.map_err(|error| repository.to_problem(error))?;
        repository.mend();
        Ok(repository)
    }

    /// Returns true if garbage was collected upstream, as of the last read of its index.
    pub fn was_collected(&self) -> bool {
        self.index.lock().was_collected
    }

    /// Returns the epoch of a bucket as of the last read of its index; `None` before the first
    /// collection, and for a snap server.
    pub fn epoch(&self) -> Option<EpochTag> {
        self.index.lock().epoch
    }

    /// Returns the folder beside the local store that must stay in place.
    pub fn mirror(&self) -> PathBuf {
        self.repo.dir().with_file_name(MIRROR)
    }

    /// Returns true if only the caller holds the repository, and no thread still queries the
    /// upstream.
    pub fn is_idle(this: &Arc<Self>) -> bool {
        Arc::strong_count(this) == 1
    }

    /// Returns the local store.
    pub fn repo(&self) -> &Arc<Repo> {
        &self.repo
    }

    fn store(&self) -> &Store {
        self.repo.store()
    }

    /// Converts an error for the client. If the cache is at fault, discards it.
    fn to_problem(&self, error: RemoteError) -> HttpProblem {
        if mend::is_of_cache(&error) {
            self.discard();
        }
        self.upstream.contact.failed(error)
    }

    /// Waits for a request that belongs to a change, without the timeout that readers have.
    fn wait<T, E: Into<RemoteError>>(
        &self,
        request: impl Future<Output = Result<T, E>>,
    ) -> Result<T, HttpProblem> {
        let done = self.upstream.runtime.block_on(request);
        let done = done.map_err(|error| self.to_problem(error.into()))?;
        self.upstream.contact.record_success();
        Ok(done)
    }

    /// Copies the state from upstream. If that fails, the cache stays as it is, and is [reported as
    /// outdated](Self::outage).
    pub fn catch_up(self: &Arc<Self>, freshness: Freshness) {
        self.mend();
        if freshness == Freshness::Lately && self.ref_queries.is_younger(AGE) {
            return self.ref_queries.record(true);
        }
        let compare = |repository: &Self| repository.compare_with_room().is_ok();
        let is_fresh = !self.upstream.contact.is_backing_off()
            && self
                .ref_queries
                .join(self.upstream.patience, |guard| self.start_query(guard, compare));
        self.ref_queries.record(is_fresh);
    }

    /// Asks the upstream in a new thread. A caller that times out must not end the query
    /// that others wait for, and all threads that serve requests may be waiting.
    fn start_query(self: &Arc<Self>, guard: QueryGuard, query: fn(&Self) -> bool) {
        let (repository, span) = (Arc::clone(self), tracing::Span::current());
        let work = move || span.in_scope(|| guard.finish(query(&repository)));
        if let Err(error) = thread::Builder::new().name("upstream".into()).spawn(work) {
            tracing::error!(%error, "cannot start a thread to query the upstream");
        }
    }

    /// Returns the outage because of which the cached state may be outdated; `None` if it is
    /// current.
    pub fn outage(&self) -> Option<UpstreamOutage> {
        self.ref_queries.outage()
    }

    /// Checks that the cached refs matched those upstream at some time. Otherwise the server knows
    /// nothing about the refs, not even that there are none.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn check_followed(&self) -> Result<(), HttpProblem> {
        let followed = match self.cached_refs.have_followed() {
            false if self.is_full.load(Ordering::SeqCst) => {
                let why = "the disk of this server is full";
                return Err(HttpProblem::new(Code::Unavailable, why));
            }
            followed => followed,
        };
        // If upstream answers, the cached refs were compared just now.
        match followed && (self.outage().is_none() || self.cached_refs.are_unchanged()?) {
            true => Ok(()),
            false => Err(unavailable()),
        }
    }

    /// Returns true if everything that was copied from upstream is still in the cache. Files of a
    /// cache may be deleted one by one.
    fn is_intact(&self) -> Result<bool, HttpProblem> {
        self.store().refresh()?;
        let here: HashSet<PackId> = self.store().packs().into_iter().collect();
        let remote = self.remote.read();
        let has_packs = remote.mirror().store().packs().iter().all(|id| here.contains(id));
        let are_refs_intact = self.cached_refs.are_unchanged().unwrap_or(false);
        Ok(has_packs && remote.mirror().is_intact() && are_refs_intact)
    }

    /// Discards the local store: the next request creates it again.
    pub fn discard(&self) {
        tracing::warn!(store = %self.repo.dir().display(), "the cache is incomplete and is rebuilt");
        // Without its settings file the store is never opened again.
        let _ = fs_err::remove_file(self.repo.dir().join(config::FILE));
    }

    /// Reads the refs upstream.
    fn read_refs(&self) -> Result<UpstreamRefs, HttpProblem> {
        let asked = async {
            let head = async {
                match self.place.default_branch().await {
                    Err(RemoteError::Damaged { .. }) => Ok(None),
                    head => head.map(Some),
                }
            };
            futures::try_join!(self.place.readable_refs(), head)
        };
        let ((refs, damaged), head) = self.upstream.ask(asked)?;
        let is_blocked = |error: &RemoteError| matches!(error, RemoteError::RefBlocked { .. });
        let (blocked, damaged): (Vec<_>, Vec<_>) =
            damaged.into_iter().partition(|(_, error)| is_blocked(error));
        // The cache keeps refs as files, so it cannot have such a ref, not even a damaged one.
        blocked.iter().for_each(|(_, error)| tracing::warn!("{error}; it is not served"));
        let mut damaged: Vec<RefName> = damaged.into_iter().map(|(name, _)| name).collect();
        damaged.sort_unstable();
        Ok(UpstreamRefs { refs, damaged, head })
    }

    /// Returns the damage of a ref upstream, if it is damaged.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub fn damage(&self, name: &RefName) -> Result<Option<Damage>, HttpProblem> {
        Ok(self.upstream.ask(self.place.any_slot(name))?.damage())
    }

    /// Copies the state from upstream. If the disk of the cache is full, makes room and tries once
    /// more.
    fn compare_with_room(&self) -> Result<(), HttpProblem> {
        let compared = self.compare().or_else(|problem| match problem.is_own_disk_full {
            true if self.upstream.cache.make_room(0) => self.compare(),
            _ => Err(problem),
        });
        let is_full = compared.as_ref().is_err_and(|problem| problem.is_own_disk_full);
        self.is_full.store(is_full, Ordering::SeqCst);
        compared
    }

    /// Reads the refs upstream, and updates the cached ones.
    fn compare(&self) -> Result<(), HttpProblem> {
        let moves = self.moves.load(Ordering::SeqCst);
        let mut found = self.read_refs()?;
        let mut known = self.refs.lock();
        if self.moves.load(Ordering::SeqCst) != moves {
            // This server moved a ref during the query, so the answer may be out of date. Read the
            // refs again under the lock, without which this server moves no ref.
            found = self.read_refs()?;
        }
        let is_known = known.as_ref() == Some(&found);
        if is_known && self.is_intact()? {
            return Ok(());
        }
        // A store that looks empty may be storage that is not reachable: check before packs are
        // removed from the cache.
        if found.refs.is_empty() && !self.store().packs().is_empty() {
            self.wait(self.place.must_exist())?;
        }
        self.refresh_packs()?;
        let followed = self.cached_refs.follow(&found);
        if is_known && followed.is_err() {
            self.discard();
        }
        let is_all = followed.map_err(|error| self.to_problem(error))?;
        *known = is_all.then_some(found);
        Ok(self.cached_refs.remember()?)
    }

    /// Makes the cache follow an index that was just read. Discards the cache if its own copy of the
    /// index is damaged.
    fn follow_index(&self, remote: &RemoteStore) -> Result<(), HttpProblem> {
        // Packs whose outlines the cache has lost must not count as packs that upstream has lost.
        if !remote.mirror().is_intact() {
            self.discard();
            return Err(unavailable());
        }
        let tag = |view: Arc<GcView>| EpochTag::new(view.state.epoch, view.state.epoch_nonce);
        let epoch = remote.mirror().gc().map(tag);
        let packs = remote.mirror().store().pack_count();
        *self.index.lock() = UpstreamIndex { was_collected: remote.was_collected(), epoch, packs };
        self.sync_packs(remote).map_err(|error| self.to_problem(error))
    }

    /// Adds stubs for all packs that are upstream, and removes packs that are not.
    fn sync_packs(&self, remote: &RemoteStore) -> Result<(), RemoteError> {
        let there = remote.mirror().store();
        let here: HashSet<PackId> = self.store().packs().into_iter().collect();
        let theirs: HashSet<PackId> = there.packs().into_iter().collect();
        let new: Vec<&PackId> = theirs.difference(&here).collect();
        for some in new.chunks(OUTLINES) {
            let outlines =
                some.iter().map(|id| there.outline(id)).collect::<Result<Vec<_>, _>>()?;
            self.store().add_stubs(&outlines)?;
        }
        let mut gone = here.difference(&theirs).peekable();
        if gone.peek().is_none() {
            return Ok(());
        }
        for id in gone {
            self.repo.disk().remove(&self.store().pack_path(id))?;
        }
        Ok(self.store().refresh()?)
    }

    /// Moves a ref, first upstream and then in the cache. `new: None` deletes the ref. The
    /// expectation `At(None)` means that the ref does not exist.
    ///
    /// # Errors
    /// [`Code::Conflict`] when the ref is not as expected, [`Code::Rejected`] when there is no such
    /// commit, [`Code::NameConflict`] when another ref excludes the name, [`Code::Unavailable`]. An
    /// error before the compare-and-swap upstream has moved nothing.
    pub fn swap(
        &self,
        name: &RefName,
        expected: refs::ExpectedRef<'_>,
        new: Option<CommitId>,
        who: &str,
    ) -> Result<(), HttpProblem> {
        if self.upstream.contact.is_backing_off() {
            return Err(unavailable());
        }
        let mut known = self.refs.lock();
        let (slot, listing) = self.wait(self.place.look(name))?;
        if let Some(new) = &new {
            if let Some(listing) = listing {
                // This store accepts any ref, and may have been emptied, or restored to an older
                // state.
                let mut remote = self.remote.write();
                self.wait(remote.take_in_listed(listing))?;
                self.follow_index(&remote)?;
            }
            self.check_commit_complete(new)?;
        }
        let remote = self.remote.read();
        // This server remembers what is stored upstream, and would rely on deleted objects.
        if new.is_some() && (remote.mirror().gc().is_some() || slot.epoch() != FIRST_EPOCH) {
            return Err(HttpProblem::collected());
        }
        let is_met = match expected {
            refs::ExpectedRef::Damaged(damage) => slot.damage() == Some(damage),
            refs::ExpectedRef::At(commit) => !slot.is_damaged() && slot.commit == commit,
            refs::ExpectedRef::Text(_) | refs::ExpectedRef::Lost(_) => false,
        };
        if !is_met {
            return Err(match slot.is_damaged() {
                true => HttpProblem::new(Code::Conflict, format!("{name} is damaged")),
                false => conflict_at(name, slot.commit),
            });
        }
        let is_first = new.is_some() && slot.commit.is_none() && self.is_first_branch(name)?;
        self.moves.fetch_add(1, Ordering::SeqCst);
        let one = RefMove { name, expected: &slot, new };
        let swapped = self.upstream.runtime.block_on(remote.swap(one, &Silent));
        self.moves.fetch_add(1, Ordering::SeqCst);
        *known = None;
        match swapped {
            Ok(()) => {}
            Err(RemoteError::Raced { theirs, .. }) => return Err(conflict_at(name, theirs)),
            Err(RemoteError::Collected { .. }) => return Err(HttpProblem::collected()),
            Err(error) => return Err(self.to_problem(error)),
        }
        // The ref has moved upstream. From here on, report success, whatever fails.
        if is_first && let Err(problem) = self.wait(self.place.begin_head(name)) {
            tracing::warn!(%problem, %name, "the first branch is not the default branch upstream");
        }
        match self.cached_refs.move_one(name, new, who) {
            Ok(()) => {}
            // The local store is made anew from upstream.
            Err(RefError::Damaged { .. }) => self.discard(),
            // The next request that reads refs copies them from upstream.
            Err(error) => {
                tracing::warn!(error = %causes(&error), %name, "a ref moved upstream, but not in the cache");
            }
        }
        Ok(())
    }

    /// Returns true if upstream has no branch, and another default branch than `name`. Clones begin
    /// with the first branch; a snap server sets that itself.
    fn is_first_branch(&self, name: &RefName) -> Result<bool, HttpProblem> {
        let is_branch = |name: &RefName| name.kind() == RefKind::Branch;
        if !is_branch(name) || !self.repo.refs().names(RefKind::Branch)?.is_empty() {
            return Ok(false);
        }
        let UpstreamRefs { refs, damaged, head } = self.read_refs()?;
        let mut names = refs.iter().map(|(other, _)| other).chain(&damaged);
        Ok(!names.any(is_branch) && head.is_some_and(|head| head != *name))
    }

    /// Checks that a commit is upstream, with everything that it refers to.
    ///
    /// # Errors
    /// [`Code::Rejected`] when there is no such commit, [`Code::Unavailable`] when packs
    /// that it needs are gone.
    fn check_commit_complete(&self, new: &CommitId) -> Result<(), HttpProblem> {
        let is_there = || self.remote.read().mirror().has(&new.object());
        if !is_there()? {
            self.refresh_packs()?;
        }
        if !is_there()? {
            self.wait(self.place.must_exist())?;
            return Err(HttpProblem::new(Code::Rejected, format!("commit {new} does not exist")));
        }
        self.store().commit(new)?;
        // Read the whole commit only after upstream has lost objects.
        if !self.remote.read().mirror().is_damaged() {
            return Ok(());
        }
        let mut verified = self.verified.lock();
        accept::check_commit(self.store(), new, &verified, false, &Silent).map_err(|error| {
            let why = format!("commit {new} is incomplete upstream: {}", causes(&error));
            HttpProblem::new(Code::Unavailable, why)
        })?;
        // Keep the newest. An evicted commit is trusted again through a kept descendant.
        verified.truncate(VERIFIED - 1);
        verified.insert(0, *new);
        Ok(())
    }
}

impl Drop for UpstreamRepository {
    fn drop(&mut self) {
        self.upstream.cache.closed(self.repo.dir(), &self.repo);
    }
}

/// Creates the refusal that says which commit a ref is at.
fn conflict_at(name: &RefName, at: Option<CommitId>) -> HttpProblem {
    let why = match at {
        Some(at) => format!("{name} is at {at}"),
        None => format!("{name} does not exist"),
    };
    HttpProblem::new(Code::Conflict, why)
}

impl Upstream {
    /// Returns true if upstream can have a repository of that name.
    ///
    /// # Errors
    /// As [`Upstream::form`].
    pub fn may_have(&self, name: &str) -> Result<bool, HttpProblem> {
        let is_only = name == snap_remote::wire::routes::ONLY;
        Ok(self.form()? == UpstreamLayout::Folder || is_only)
    }
}
