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

#[derive(Debug, Default)]
struct NameListState {
    /// The names, and when they became known. Those in the cache if upstream did not answer.
    known: Option<(Vec<String>, Instant)>,
    /// Number of repositories that this server has created. A new repository makes each list out of
    /// date that was requested before.
    created: u64,
}

impl NameList {
    pub(super) fn new(clock: Clock) -> Self {
        Self { queries: SharedQueries::new(clock), state: Mutex::default() }
    }

    /// Drops the list, because a repository is being created.
    pub(super) fn forget(&self) {
        let mut state = self.state.lock();
        (state.known, state.created) = (None, state.created + 1);
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
            if let Some(names) = self.known_names() {
                return names;
            }
            let ask = |guard| self.start_query(guard);
            if self.contact.is_backing_off() || !self.names.queries.join(self.patience, ask) {
                break;
            }
        }
        // Another thread may have had an answer.
        self.known_names().unwrap_or_else(|| {
            let names = self.cache.names();
            self.names.queries.record(false);
            self.names.state.lock().known = Some((names.clone(), self.clock.now()));
            names
        })
    }

    fn known_names(&self) -> Option<Vec<String>> {
        let state = self.names.state.lock();
        let (names, at) = state.known.as_ref()?;
        (self.clock.elapsed(*at) < NAMES_FOR).then(|| names.clone())
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
        let created = self.names.state.lock().created;
        let listing = self.root.stores(LEVELS);
        match self.runtime.block_on(self.clock.timeout(LISTING, listing)) {
            Ok(Ok(mut names)) => {
                self.contact.record_success();
                // The server still serves repositories that are in the cache but not listed, as if
                // upstream did not answer.
                let listed = names.len();
                names.extend(self.cache.names());
                names.sort_unstable();
                names.dedup();
                let mut state = self.names.state.lock();
                if state.created == created {
                    self.names.queries.record(names.len() == listed);
                    state.known = Some((names, self.clock.now()));
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

    /// Returns the outage because of which the list, or all data, may be out of date; `None` if
    /// they are current.
    pub fn outage(&self) -> Option<UpstreamOutage> {
        self.contact.outage().or_else(|| self.names.queries.outage())
    }
}
