//! Tracks whether the data that clients receive is current.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use super::health::UpstreamOutage;
use crate::clock::Clock;

/// Tracks when clients last received current data of a store.
#[derive(Debug)]
pub(super) struct Staleness {
    state: Mutex<StalenessState>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct StalenessState {
    /// When a client last received current data.
    last: Option<Instant>,
    is_stale: bool,
}

impl Staleness {
    pub(super) fn new(clock: Clock) -> Self {
        Self { state: Mutex::default(), clock }
    }

    fn state(&self) -> MutexGuard<'_, StalenessState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a client receives data, current or not.
    pub(super) fn record(&self, is_fresh: bool) {
        let mut state = self.state();
        state.is_stale = !is_fresh;
        if is_fresh {
            state.last = Some(self.clock.now());
        }
    }

    /// Returns how old the data may be; `None` if it is current.
    pub(super) fn outage(&self) -> Option<UpstreamOutage> {
        let state = self.state();
        let age_secs = state.last.map(|last| self.clock.elapsed(last).as_secs());
        state.is_stale.then_some(UpstreamOutage { age_secs })
    }
}
