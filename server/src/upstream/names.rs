//! The names of the repositories upstream. If upstream does not list them in time, clients
//! get the names in the cache, with a note that they may be out of date.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use snap_remote::wire::routes::ONLY;

use super::{
    Upstream, UpstreamLayout,
    health::UpstreamOutage,
    shared_queries::{QueryGuard, SharedQueries},
};
use crate::clock::Clock;

/// Number of folder levels that are searched for stores.
const LEVELS: usize = 4;

/// How long a list of names is used.
const NAMES_FOR: Duration = Duration::from_secs(3);

/// Timeout of a query for the list. It is longer than requests wait, so that a slow list of
/// many folders is ready for later requests.
const LISTING: Duration = Duration::from_secs(15);

/// Maximum number of queries for the list, while new repositories make it out of date.
const TRIES: usize = 3;

/// The list of names, as last known.
#[derive(Debug)]
pub(super) struct NameList {
    queries: SharedQueries,
    state: Mutex<NameListState>,
}

#[derive(Debug)]
struct NameListState {
    known: Option<ListedNames>,
    /// When the list last matched the list upstream.
    last: Option<Instant>,
    /// Number of repositories that this server has created. A new repository makes each list out of
    /// date that was requested before.
    made: u64,
    clock: Clock,
}

#[derive(Debug)]
struct ListedNames {
    names: Vec<String>,
    at: Instant,
    /// True if the list matches the list upstream.
    is_fresh: bool,
}

impl NameList {
    pub(super) fn new(clock: Clock) -> Self {
        let known = NameListState { known: None, last: None, made: 0, clock: clock.clone() };
        Self { queries: SharedQueries::new(clock), state: Mutex::new(known) }
    }

    /// Drops the list, because a repository is being created.
    pub(super) fn forget(&self) {
        let mut state = self.state.lock();
        (state.known, state.made) = (None, state.made + 1);
    }
}

impl NameListState {
    fn recent(&self) -> Option<&ListedNames> {
        self.known.as_ref().filter(|known| self.clock.elapsed(known.at) < NAMES_FOR)
    }

    fn put(&mut self, names: Vec<String>, is_fresh: bool) {
        let at = self.clock.now();
        self.known = Some(ListedNames { names, at, is_fresh });
        if is_fresh {
            self.last = Some(at);
        }
    }
}

impl Upstream {
    /// Returns the names of the repositories upstream, or of those in the cache if the upstream
    /// does not answer.
    pub fn names(self: &Arc<Self>) -> Vec<String> {
        match self.form() {
            Ok(UpstreamLayout::Store) => return vec![ONLY.to_owned()],
            Ok(UpstreamLayout::Folder) => {}
            Err(_) => return self.cache.names(),
        }
        for _ in 0..TRIES {
            if let Some(known) = self.names.state.lock().recent() {
                return known.names.clone();
            }
            let ask = |guard| self.start_query(guard);
            if self.contact.is_backing_off() || !self.names.queries.join(self.patience, ask) {
                break;
            }
        }
        let here = self.cache.names();
        let mut state = self.names.state.lock();
        // Another thread may have had an answer.
        if let Some(known) = state.recent() {
            return known.names.clone();
        }
        state.put(here.clone(), false);
        here
    }

    /// Queries the list in a new thread.
    fn start_query(self: &Arc<Self>, guard: QueryGuard) {
        let (upstream, span) = (Arc::clone(self), tracing::Span::current());
        let ask = move || span.in_scope(|| guard.finish(upstream.list()));
        if let Err(error) = thread::Builder::new().name("upstream".into()).spawn(ask) {
            tracing::error!(%error, "cannot start a thread to query the upstream");
        }
    }

    /// Queries the list. Returns true if upstream answered.
    fn list(&self) -> bool {
        let made = self.names.state.lock().made;
        let listing = self.root.stores(LEVELS);
        match self.runtime.block_on(self.clock.timeout(LISTING, listing)) {
            Ok(Ok(names)) => {
                self.contact.record_success();
                let (names, is_all) = self.with_kept(names);
                let mut state = self.names.state.lock();
                if state.made == made {
                    state.put(names, is_all);
                }
                true
            }
            Ok(Err(error)) => {
                let _ = self.contact.failed(error);
                false
            }
            // Either there are many folders, or upstream is away; other requests will show which of
            // the two it is.
            Err(_) => false,
        }
    }

    /// Adds repositories that are in the cache but not listed upstream. The server still serves
    /// them, as if upstream did not answer. Returns true if it added none.
    fn with_kept(&self, mut names: Vec<String>) -> (Vec<String>, bool) {
        let there = names.len();
        let kept = self.cache.names().into_iter().filter(|kept| !names.contains(kept));
        let kept: Vec<String> = kept.collect();
        names.extend(kept);
        names.sort_unstable();
        let is_all = names.len() == there;
        (names, is_all)
    }

    /// Returns the outage because of which the list, or all data, may be out of date; `None` if
    /// they are current.
    pub fn outage(&self) -> Option<UpstreamOutage> {
        let of_names = || {
            let state = self.names.state.lock();
            let is_stale = state.recent().is_some_and(|known| !known.is_fresh);
            let age_secs = state.last.map(|last| state.clock.elapsed(last).as_secs());
            is_stale.then_some(UpstreamOutage { age_secs })
        };
        self.contact.outage().or_else(of_names)
    }
}
