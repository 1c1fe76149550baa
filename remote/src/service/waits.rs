//! Requests that are waited for: since when, and for how long yet.
//!
//! A request counts from its first attempt to its last, with the pauses between.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Requests that have no answer yet.
#[derive(Debug, Default)]
pub struct Waits {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By number, so that the oldest is the first.
    all: BTreeMap<u64, Waiting>,
    begun: u64,
}

/// A request that has no answer yet.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// What is done: `read`, `write`, `list`, …
    pub operation: &'static str,
    /// With which key or prefix.
    pub key: String,
    /// Where; may be empty.
    pub location: String,
    /// When it was first made.
    pub since: Instant,
    /// When it is given up at the latest.
    pub until: Instant,
    /// Attempts that failed.
    pub failed: u32,
    /// Whether the service asked to come again later.
    pub is_busy: bool,
}

/// Takes a request off the list when it is dropped.
#[derive(Debug)]
pub(super) struct Wait<'w> {
    waits: &'w Waits,
    number: u64,
}

impl Waits {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request that is waited for the longest.
    pub fn oldest(&self) -> Option<Waiting> {
        self.lock().all.values().next().cloned()
    }

    pub(super) fn begin(
        &self,
        (operation, key): (&'static str, &str),
        location: &str,
        patience: Duration,
    ) -> Wait<'_> {
        let since = Instant::now();
        let waiting = Waiting {
            operation,
            key: key.to_owned(),
            location: location.to_owned(),
            since,
            until: since + patience,
            failed: 0,
            is_busy: false,
        };
        let mut state = self.lock();
        state.begun += 1;
        let number = state.begun;
        state.all.insert(number, waiting);
        Wait { waits: self, number }
    }
}

impl Wait<'_> {
    /// An attempt failed; all others take no longer than `patience` together.
    pub(super) fn failed(&self, patience: Duration, is_busy: bool) {
        if let Some(waiting) = self.waits.lock().all.get_mut(&self.number) {
            waiting.failed += 1;
            waiting.until = Instant::now() + patience;
            waiting.is_busy = is_busy;
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.waits.lock().all.remove(&self.number);
    }
}
