//! The list of requests without an answer, for progress messages.
//!
//! A request is on the list from its first attempt to its last, including the pauses between.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// The requests without an answer.
#[derive(Debug, Default)]
pub struct PendingRequests {
    state: Mutex<PendingState>,
}

#[derive(Debug, Default)]
struct PendingState {
    /// By number, so that the oldest request comes first.
    all: BTreeMap<u64, PendingRequest>,
    begun: u64,
}

/// A request without an answer.
#[derive(Clone, Debug)]
pub struct PendingRequest {
    /// The operation: `read`, `write`, `list`, …
    pub operation: &'static str,
    /// The key or prefix.
    pub key: String,
    /// The location; may be empty.
    pub location: String,
    /// Start of the first attempt.
    pub since: Instant,
    /// The latest time at which the client gives up.
    pub until: Instant,
    /// Number of failed attempts.
    pub failed: u32,
    /// True if the service asked to come back later.
    pub is_busy: bool,
}

/// Removes a request from the list on drop.
#[derive(Debug)]
pub(super) struct PendingGuard<'w> {
    waits: &'w PendingRequests,
    number: u64,
}

impl PendingRequests {
    /// Returns the request that has waited longest.
    pub fn oldest(&self) -> Option<PendingRequest> {
        self.state.lock().all.values().next().cloned()
    }

    pub(super) fn begin(
        &self,
        operation: &'static str,
        key: &str,
        location: &str,
        patience: Duration,
    ) -> PendingGuard<'_> {
        let since = Instant::now();
        let waiting = PendingRequest {
            operation,
            key: key.to_owned(),
            location: location.to_owned(),
            since,
            until: since + patience,
            failed: 0,
            is_busy: false,
        };
        let mut state = self.state.lock();
        state.begun += 1;
        let number = state.begun;
        state.all.insert(number, waiting);
        PendingGuard { waits: self, number }
    }
}

impl PendingGuard<'_> {
    /// Records a failed attempt. The remaining attempts together take at most `patience`.
    pub(super) fn failed(&self, patience: Duration, is_busy: bool) {
        if let Some(waiting) = self.waits.state.lock().all.get_mut(&self.number) {
            waiting.failed += 1;
            waiting.until = Instant::now() + patience;
            waiting.is_busy = is_busy;
        }
    }
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        self.waits.state.lock().all.remove(&self.number);
    }
}
