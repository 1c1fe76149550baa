//! Tracks whether the data that clients receive is current.

use std::time::Instant;

use parking_lot::Mutex;

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

    /// Records that a client receives data, current or not.
    pub(super) fn record(&self, is_fresh: bool) {
        let mut state = self.state.lock();
        state.is_stale = !is_fresh;
        if is_fresh {
            state.last = Some(self.clock.now());
        }
    }

    /// Returns how old the data may be; `None` if it is current.
    pub(super) fn outage(&self) -> Option<UpstreamOutage> {
        let state = self.state.lock();
        let age_secs = state.last.map(|last| self.clock.elapsed(last).as_secs());
        state.is_stale.then_some(UpstreamOutage { age_secs })
    }
}
