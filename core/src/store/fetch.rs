//! Deduplication of fetches. Threads that need the same frame share one fetch. A frame that was
//! announced is not announced again before it has arrived.

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
    format::pack::Frame,
    store::{RemoteFrames, StoreError},
};

/// A frame: its pack, and its offset in the pack or [`METADATA`].
type FetchKey = (PackId, u64);

/// Stands for all metadata frames of a pack, in place of an offset.
const METADATA: u64 = u64::MAX;

/// Fetches frames from a remote.
#[derive(Debug)]
pub(super) struct Fetcher {
    pub(super) remote: Arc<dyn RemoteFrames>,
    pub(super) disk: Disk,
    state: Mutex<FetchState>,
    fetches: SingleFlight<FetchKey, ()>,
    /// Number of live [`Pause`]s. No frame is fetched while this number is above 0.
    pauses: AtomicUsize,
}

#[derive(Debug, Default)]
struct FetchState {
    announced: HashSet<FetchKey>,
    /// Packs that the remote has lost.
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

    /// Prefetches ranges, except ranges that are already announced.
    pub(super) fn announce(&self, mut ranges: Vec<(PackId, Range<u64>)>) {
        let mut state = self.state.lock();
        ranges.retain(|(pack, range)| state.announced.insert((*pack, range.start)));
        drop(state);
        if !ranges.is_empty() {
            self.remote.prefetch(&ranges);
        }
    }

    /// Returns true on the first call for a pack. The caller must then prefetch all metadata of the
    /// pack.
    pub(super) fn claim_metadata_prefetch(&self, pack: PackId) -> bool {
        self.state.lock().announced.insert((pack, METADATA))
    }

    /// Forgets all announcements, so that failed prefetches are requested again.
    pub(super) fn forget(&self) {
        self.state.lock().announced.clear();
    }

    /// Records that the remote has lost a pack. Returns true on the first call for the pack.
    pub(super) fn note_lost(&self, pack: PackId) -> bool {
        self.state.lock().lost.insert(pack)
    }

    /// Reads a frame from the remote and verifies its checksum. Tells the source to discard bytes that
    /// do not match.
    pub(super) fn read(&self, pack: PackId, frame: &Frame) -> Result<Vec<u8>, StoreError> {
        let read = self.remote.read(pack, frame.range());
        let stored = read.map_err(|source| {
            self.forget();
            StoreError::Fetch { pack, source }
        })?;
        if frame.matches(&stored) {
            return Ok(stored);
        }
        self.remote.discard(pack, frame.range());
        let place = self.remote.location(pack);
        Err(StoreError::CorruptedInTransit { pack, offset_bytes: frame.offset, place })
    }

    /// Waits until no other thread is fetching this frame. Until the guard is dropped, other
    /// threads wait.
    pub(super) fn begin_fetch(&self, pack: PackId, offset: u64) -> FetchGuard<'_> {
        let key = (pack, offset);
        FetchGuard { fetcher: self, key, _leader: self.fetches.lead(key) }
    }
}

/// Stops the fetches of a store until it is dropped.
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

/// Excludes other threads from fetching the same frame until it is dropped.
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
