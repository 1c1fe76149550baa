//! Deduplication of fetches: each frame is fetched once, however many threads need it,
//! and prefetched only once until it has arrived.

use std::{
    collections::HashSet,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

use crate::{
    base::{
        id::PackId,
        single_flight::{LeaderGuard, SingleFlight},
    },
    disk::Disk,
    store::RemoteFrames,
};

/// A frame: its pack, and its offset in the pack.
type FetchKey = (PackId, u64);

/// In place of a frame's offset: all metadata of the pack.
const METADATA: u64 = u64::MAX;

/// Fetches frames from elsewhere.
#[derive(Debug)]
pub(super) struct Fetcher {
    pub(super) remote: Arc<dyn RemoteFrames>,
    pub(super) disk: Disk,
    state: Mutex<FetchState>,
    fetches: SingleFlight<FetchKey, ()>,
    /// Number of live [`Pause`]s. Nothing is fetched while it is above 0.
    pauses: AtomicUsize,
}

#[derive(Debug, Default)]
struct FetchState {
    announced: HashSet<FetchKey>,
    /// Packs that do not exist where they should lie.
    lost: HashSet<PackId>,
}

impl Fetcher {
    pub(super) fn new(remote: Arc<dyn RemoteFrames>, disk: Disk) -> Self {
        let (state, pauses) = (Mutex::default(), AtomicUsize::new(0));
        Self { remote, disk, state, fetches: SingleFlight::default(), pauses }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.pauses.load(Ordering::Relaxed) > 0
    }

    /// Prefetches ranges, except those that were prefetched before.
    pub(super) fn announce(&self, mut ranges: Vec<(PackId, Range<u64>)>) {
        let mut state = self.state.lock();
        ranges.retain(|(pack, range)| state.announced.insert((*pack, range.start)));
        drop(state);
        if !ranges.is_empty() {
            self.remote.prefetch(&ranges);
        }
    }

    /// Returns true the first time for each pack: all of its metadata is to be
    /// prefetched then.
    pub(super) fn claim_metadata_prefetch(&self, pack: PackId) -> bool {
        self.state.lock().announced.insert((pack, METADATA))
    }

    /// Forgets all prefetches, so that failed ones are requested again.
    pub(super) fn forget(&self) {
        self.state.lock().announced.clear();
    }

    /// Records a pack that does not exist where it should lie. Returns true the first time.
    pub(super) fn note_lost(&self, pack: PackId) -> bool {
        self.state.lock().lost.insert(pack)
    }

    /// Waits until no other thread is fetching this frame, and keeps others from doing so.
    pub(super) fn begin_fetch(&self, pack: PackId, offset: u64) -> FetchGuard<'_> {
        let key = (pack, offset);
        FetchGuard { fetcher: self, key, _leader: self.fetches.lead(key) }
    }
}

/// Keeps a store from fetching while it lives.
#[derive(Debug)]
pub struct Pause {
    fetcher: Option<Arc<Fetcher>>,
}

impl Pause {
    pub(super) fn new(fetcher: Option<Arc<Fetcher>>) -> Self {
        if let Some(fetcher) = &fetcher {
            fetcher.pauses.fetch_add(1, Ordering::Relaxed);
        }
        Self { fetcher }
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        if let Some(fetcher) = &self.fetcher {
            fetcher.pauses.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Keeps other threads from fetching the same frame while it lives.
pub(super) struct FetchGuard<'f> {
    fetcher: &'f Fetcher,
    key: FetchKey,
    _leader: LeaderGuard<FetchKey, ()>,
}

impl Drop for FetchGuard<'_> {
    fn drop(&mut self) {
        self.fetcher.state.lock().announced.remove(&self.key);
    }
}
