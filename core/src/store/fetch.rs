//! Frames on their way from elsewhere: each is fetched once, however many
//! threads want it, and announced once until it is here.

use std::{
    collections::HashSet,
    ops::Range,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{
    base::id::PackId,
    disk::Disk,
    store::{Distant, objects::lock},
};

/// A frame: its pack, and where in it the frame starts.
type Key = (PackId, u64);

/// In place of a frame's start: all metadata of the pack.
const METADATA: u64 = u64::MAX;

/// Fetches frames.
#[derive(Debug)]
pub(super) struct Fetcher {
    pub(super) distant: Arc<dyn Distant>,
    pub(super) disk: Disk,
    state: Mutex<State>,
    done: Condvar,
    /// How many want that nothing is fetched.
    pauses: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    announced: HashSet<Key>,
    under_way: HashSet<Key>,
}

impl Fetcher {
    pub(super) fn new(distant: Arc<dyn Distant>, disk: Disk) -> Self {
        let (state, pauses) = (Mutex::default(), AtomicUsize::new(0));
        Self { distant, disk, state, done: Condvar::new(), pauses }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.pauses.load(Ordering::Relaxed) > 0
    }

    /// Passes on what will be read, without what was passed on before.
    pub(super) fn announce(&self, mut ranges: Vec<(PackId, Range<u64>)>) {
        let mut state = lock(&self.state);
        ranges.retain(|(pack, range)| state.announced.insert((*pack, range.start)));
        drop(state);
        if !ranges.is_empty() {
            self.distant.will_need(&ranges);
        }
    }

    /// Whether all metadata of a pack is to be announced: the first time only.
    pub(super) fn is_new(&self, pack: PackId) -> bool {
        lock(&self.state).announced.insert((pack, METADATA))
    }

    /// Forgets what was announced: it did not come, and is said anew.
    pub(super) fn forget(&self) {
        lock(&self.state).announced.clear();
    }

    /// Waits until nobody else is at this frame.
    pub(super) fn turn(&self, pack: PackId, offset: u64) -> Turn<'_> {
        let key = (pack, offset);
        let mut state = lock(&self.state);
        while !state.under_way.insert(key) {
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Turn { fetcher: self, key }
    }
}

/// Keeps a store from fetching, for as long as it lives.
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

/// Keeps others from fetching the same frame, for as long as it lives.
pub(super) struct Turn<'f> {
    fetcher: &'f Fetcher,
    key: Key,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.fetcher.state);
        state.under_way.remove(&self.key);
        state.announced.remove(&self.key);
        self.fetcher.done.notify_all();
    }
}
