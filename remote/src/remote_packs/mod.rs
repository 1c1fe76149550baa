//! Reads frames of packs in a remote store, with prefetch. [`RemotePacks`] is the [`RemoteFrames`]
//! source of a local store, for several threads.
//!
//! It requests announced ranges at once, planned and merged, up to a limit of bytes in flight or
//! fetched. Reads make room for the next batch. A read of an unannounced range sends a request of
//! its own. A range stays in a small cache for other readers after its first read.
//!
//! Reads block, so they must not run on a thread of the async runtime.

mod budget;
mod lazy;
mod prefetch;

use std::{
    collections::BTreeSet,
    fmt,
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use snap_core::{
    base::{
        blocked::Blocked,
        id::{CommitId, ObjectId, PackId},
        limits,
    },
    disk::Disk,
    store::{RemoteCopies, RemoteFrameError, RemoteFrames, Store, StoreError},
};
use tokio::runtime::Handle;

pub use budget::PrefetchBudget;
pub use lazy::LazyRemotePacks;

pub(crate) use self::prefetch::PackRange;
use self::prefetch::{PrefetchState, ReadStep};
use crate::{
    peer::{Mirror, Peer, PeerPacks, Place, RemoteError, RemoteStore, pack_key, place_of},
    ranges::{JobOptions, LinkEstimate, NeededRange, RangePlanner, ReadError},
};

/// Limit for the bytes of ranges that are in flight or fetched but not read.
const HELD_BYTES: u64 = 48 << 20;

/// Maximum length of a request that completes the list of announced ranges. Long, so that the start
/// of a clone needs few requests.
const REQUEST_BYTES: u64 = 16 << 20;

/// Maximum length of a request if more ranges are queued. Shorter, because several requests share
/// the link, and each response is in memory twice while it is split into ranges.
const REQUEST_OF_MANY_BYTES: u64 = 8 << 20;

/// If the store itself keeps contents, ranges of at least this length do not stay in the cache:
/// returning a shared range would cost a copy.
const LONG_BYTES: u64 = 2 << 20;

/// Interval at which a waiting thread polls the stop flag.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Returns true if the user asked to stop.
pub type StopCheck = Arc<dyn Fn() -> bool + Send + Sync>;

/// The runtime and the stop flag of a thread that waits for requests.
#[derive(Clone)]
pub struct BlockingContext {
    /// The runtime that runs the requests. It must have threads of its own.
    pub runtime: Handle,
    /// Returns true if the wait must end.
    pub stop: StopCheck,
}

impl BlockingContext {
    /// Creates a `BlockingContext` that never stops.
    pub fn without_stop(runtime: &Handle) -> Self {
        Self { runtime: runtime.clone(), stop: Arc::new(|| false) }
    }

    /// Runs `work` until it ends or the caller stops. Blocks; must not be called on a thread of the
    /// runtime.
    ///
    /// # Errors
    /// The errors of `work`, and [`RemoteError::Blocked`].
    pub fn block_on<T>(
        &self,
        work: impl Future<Output = Result<T, RemoteError>>,
    ) -> Result<T, RemoteError> {
        let check = || if (self.stop)() { Err(Blocked::Interrupted) } else { Ok(()) };
        self.runtime.block_on(unless_stopped(work, &check))
    }
}

/// Awaits `work`; returns the error of `check` once that fails.
pub(crate) async fn unless_stopped<T>(
    work: impl Future<Output = Result<T, RemoteError>>,
    check: &dyn Fn() -> Result<(), Blocked>,
) -> Result<T, RemoteError> {
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::time::sleep(LOOK_EVERY) => check()?,
        }
    }
}

impl fmt::Debug for BlockingContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").finish_non_exhaustive()
    }
}

/// The packs of a remote store. Reads block the calling thread. Clones share the cache.
#[derive(Clone, Debug)]
pub struct RemotePacks {
    shared: Arc<PacksInner>,
    /// Whether the local store keeps contents after a read. It always keeps structure.
    keeps_contents: bool,
    /// Folder of the mirror, whose index lists other copies of objects.
    mirror: Option<PathBuf>,
}

#[derive(Debug)]
struct PacksInner {
    peer: Arc<dyn Peer>,
    location: String,
    link: Arc<LinkEstimate>,
    waiting: BlockingContext,
    held: Mutex<PrefetchState>,
    changed: Condvar,
    /// The number of reads of the index because a pack was damaged or lost, and whether garbage was
    /// ever collected there.
    refreshes: Mutex<(usize, bool)>,
    budget: Arc<PrefetchBudget>,
}

impl RemotePacks {
    /// Creates a reader of the packs of `remote`, with a budget of its own.
    pub fn new(remote: &RemoteStore, waiting: BlockingContext) -> Self {
        // No shared budget: `HELD_BYTES` is the only limit.
        Self::with_shared_budget(remote, waiting, &PrefetchBudget::new(u64::MAX))
    }

    /// Creates a reader like [`Self::new`], with a budget that it shares with other `RemotePacks`.
    pub fn with_shared_budget(
        remote: &RemoteStore,
        waiting: BlockingContext,
        budget: &Arc<PrefetchBudget>,
    ) -> Self {
        let shared = Arc::new(PacksInner {
            peer: Arc::clone(remote.place().peer()),
            location: remote.place().location().to_owned(),
            link: Arc::default(),
            waiting,
            held: Mutex::new(PrefetchState::new(HELD_BYTES, budget)),
            changed: Condvar::new(),
            refreshes: Mutex::default(),
            budget: Arc::clone(budget),
        });
        budget.join(&shared);
        Self { shared, keeps_contents: true, mirror: Some(remote.mirror().dir().to_owned()) }
    }

    /// Creates a reader of packs whose contents are not kept, and that looks for no other copies.
    pub(crate) fn forgetful(remote: &RemoteStore, waiting: BlockingContext) -> Self {
        Self { keeps_contents: false, mirror: None, ..Self::new(remote, waiting) }
    }

    /// Looks for other copies of damaged and lost frames in the mirror in `dir`.
    pub(crate) fn with_mirror(self, dir: &Path) -> Self {
        Self { mirror: Some(dir.to_owned()), ..self }
    }

    /// Opens the mirror of `remote` as a store that fetches what it reads.
    pub(crate) fn stubs(remote: RemoteStore, waiting: BlockingContext) -> Store {
        let packs = Self::forgetful(&remote, waiting);
        remote.into_store().with_remote_frames(Arc::new(packs))
    }

    /// Returns the measured latency and rate of the connection.
    pub fn link(&self) -> &Arc<LinkEstimate> {
        &self.shared.link
    }

    /// Returns true if an announced range has not been requested yet.
    pub(crate) fn has_queued(&self) -> bool {
        self.shared.held.lock().has_queued()
    }

    /// Removes and returns the ranges that were fetched but never read.
    pub(crate) fn leftovers(&self) -> Vec<(PackRange, Arc<Vec<u8>>)> {
        self.shared.held.lock().take_unread()
    }
}

impl RemoteFrames for RemotePacks {
    fn read(&self, pack: PackId, range: Range<u64>) -> Result<Vec<u8>, RemoteFrameError> {
        let key = PackRange::new(pack, &range);
        let bytes = self.shared.read(key)?;
        if self.keeps_contents() && key.bytes() >= LONG_BYTES {
            self.shared.held.lock().evict(key);
        }
        Ok(Arc::try_unwrap(bytes).unwrap_or_else(|shared| shared.to_vec()))
    }

    fn discard(&self, pack: PackId, range: Range<u64>) {
        self.shared.held.lock().discard(PackRange::new(pack, &range));
    }

    fn prefetch(&self, ranges: &[(PackId, Range<u64>)]) {
        let mut held = self.shared.held.lock();
        for (pack, range) in ranges {
            held.announce(PackRange::new(*pack, range));
        }
        drop(held);
        self.shared.start_what_fits();
    }

    fn other_copies(&self, pack: PackId, objects: &[ObjectId]) -> RemoteCopies {
        let find = |dir: &Path| -> Result<RemoteCopies, StoreError> {
            let mirror = Store::open_read_only(dir, Disk::scratch())?;
            let mut packs = mirror.other_copies_of_objects(&pack, objects)?.packs;
            // If the pack had commits that the remote has forgotten, their links are elsewhere.
            let commits = objects.iter().map(|id| CommitId::from_object(*id));
            let forgotten: Vec<CommitId> =
                mirror.forgotten().commits().map(|(id, _)| *id).collect();
            let links: Vec<ObjectId> =
                commits.chain(forgotten.iter().copied()).map(|id| id.link()).collect();
            packs.extend(mirror.other_copies_of_objects(&pack, &links)?.packs);
            let packs = packs.iter().map(|id| mirror.outline(id)).collect::<Result<_, _>>()?;
            Ok(RemoteCopies { packs, forgotten })
        };
        let Some(dir) = &self.mirror else { return RemoteCopies::default() };
        self.shared.refresh_index(dir);
        // Without a readable mirror, the caller reports the damage.
        find(dir).unwrap_or_default()
    }

    fn dead_copies(&self, mut copies: Vec<(PackId, ObjectId)>) -> Vec<(PackId, ObjectId)> {
        let dir = self.mirror.as_ref().filter(|_| !copies.is_empty());
        let mirror = dir.and_then(|dir| Mirror::open(dir).ok());
        let Some(dead) = mirror.and_then(|mirror| mirror.dead_copies()) else { return Vec::new() };
        copies.retain(|(pack, id)| dead.contains(pack, id));
        copies
    }

    fn deleted(&self, pack: PackId, objects: &[ObjectId]) -> BTreeSet<ObjectId> {
        let find = |dir: &Path| -> Result<BTreeSet<ObjectId>, StoreError> {
            let mirror = Store::open_read_only(dir, Disk::scratch())?;
            let mut deleted = BTreeSet::new();
            // A lost pack that the index lists is damage.
            for id in objects.iter().filter(|_| !mirror.packs().contains(&pack)) {
                if mirror.locate(id)?.is_none() {
                    deleted.insert(*id);
                }
            }
            Ok(deleted)
        };
        match &self.mirror {
            Some(dir) if self.shared.refreshes.lock().1 => find(dir).unwrap_or_default(),
            _ => BTreeSet::new(),
        }
    }

    fn location(&self, pack: PackId) -> Option<String> {
        Some(place_of(&pack_key(&pack), &self.shared.location))
    }

    fn keeps_contents(&self) -> bool {
        self.keeps_contents
    }
}

impl PacksInner {
    fn read(self: &Arc<Self>, key: PackRange) -> Result<Arc<Vec<u8>>, RemoteFrameError> {
        let mut held = self.held.lock();
        let mut waits = false;
        loop {
            if (self.waiting.stop)() {
                if waits {
                    held.end_wait(key);
                }
                return Err(RemoteError::Blocked(Blocked::Interrupted).into());
            }
            match held.next_step(key, waits) {
                ReadStep::Fetched(bytes) => {
                    drop(held);
                    self.start_what_fits();
                    return Ok(bytes);
                }
                ReadStep::Failed(error) => return Err(self.read_error(key, error).into()),
                ReadStep::Request => {
                    drop(held);
                    self.budget.return_unused();
                    self.start(vec![key], REQUEST_BYTES);
                    held = self.held.lock();
                    waits = true;
                    continue;
                }
                ReadStep::InFlight => waits = true,
            }
            self.changed.wait_for(&mut held, LOOK_EVERY);
        }
    }

    /// Reads the new files of the index: a repair may have uploaded copies, or a collection deleted
    /// packs, since the mirror in `dir` was filled. Many damaged frames cause only a few readings.
    /// After a failure, the mirror still knows the earlier copies. Returns true if garbage was ever
    /// collected there.
    fn refresh_index(&self, dir: &Path) -> bool {
        let mut refreshes = self.refreshes.lock();
        let (count, was_collected) = &mut *refreshes;
        if *count < limits::GC_ROUNDS {
            *count += 1;
            let place = Place::new(Arc::clone(&self.peer), self.location.clone());
            let remote = place.into_store(dir);
            let refreshed = remote.and_then(|mut remote| {
                self.waiting.block_on(remote.refresh())?;
                Ok(remote.was_collected())
            });
            *was_collected = refreshed.unwrap_or(false);
        }
        *was_collected
    }

    fn read_error(&self, key: PackRange, source: ReadError) -> RemoteError {
        let (key, range) = (pack_key(&key.pack), key.range());
        RemoteError::Range { key, range, location: self.location.clone(), source }
    }

    fn start_what_fits(self: &Arc<Self>) {
        let wanted_bytes = self.held.lock().wanted_bytes();
        if wanted_bytes == 0 {
            return;
        }
        let turn = self.budget.lock();
        turn.make_room(wanted_bytes);
        let mut held = self.held.lock();
        let batch = held.next_batch(turn.room());
        let request_bytes = match held.has_queued() {
            true => REQUEST_OF_MANY_BYTES,
            false => REQUEST_BYTES,
        };
        drop(held);
        drop(turn);
        if !batch.is_empty() {
            self.start(batch, request_bytes);
        }
    }

    /// Sends the requests for a batch of ranges that are already marked as in flight. The caller
    /// must not hold the lock `held`: a runtime that has shut down drops the task at once, and
    /// dropping [`JobArrivals`] takes that lock.
    fn start(self: &Arc<Self>, batch: Vec<PackRange>, request_bytes: u64) {
        let wanted = batch
            .iter()
            .map(|key| NeededRange { key: pack_key(&key.pack).into(), range: key.range() });
        // The batch already fits the limits.
        let options = JobOptions { budget_bytes: u64::MAX, request_bytes, ..JobOptions::default() };
        let fetch = Arc::new(PeerPacks(Arc::clone(&self.peer)));
        let planner = RangePlanner::new(fetch, Arc::clone(&self.link), options);
        let _inside = self.waiting.runtime.enter();
        let mut job = planner.start(wanted.collect());
        let mut arrivals = JobArrivals { shared: Arc::downgrade(self), left: batch };
        self.waiting.runtime.spawn(async move {
            while let Some(piece) = job.next().await
                && arrivals.arrive(piece.position, piece.bytes)
            {}
        });
    }

    fn arrive(self: &Arc<Self>, key: PackRange, result: Result<Arc<Vec<u8>>, ReadError>) {
        if result.is_ok() {
            self.peer.traffic().needed(key.bytes());
        }
        self.held.lock().arrive(key, result);
        self.changed.notify_all();
        self.start_what_fits();
    }
}

/// The ranges of one job that have not arrived yet.
struct JobArrivals {
    shared: Weak<PacksInner>,
    /// By position in the job. An entry that has arrived is [`PackRange::NONE`].
    left: Vec<PackRange>,
}

impl JobArrivals {
    /// Stores a result. Returns false if the packs were dropped, so that the job can end.
    fn arrive(&mut self, position: usize, bytes: Result<bytes::Bytes, ReadError>) -> bool {
        let key = std::mem::replace(&mut self.left[position], PackRange::NONE);
        let Some(shared) = self.shared.upgrade() else { return false };
        // Copy the piece, because a slice would keep the whole response in memory.
        shared.arrive(key, bytes.map(|bytes| Arc::new(bytes.to_vec())));
        true
    }
}

impl Drop for JobArrivals {
    /// Fails the remaining ranges, so that no thread waits for ever if the runtime ends.
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        for key in self.left.drain(..).filter(|key| *key != PackRange::NONE) {
            shared.held.lock().arrive(key, Err(ReadError::Stopped));
            shared.changed.notify_all();
        }
    }
}
