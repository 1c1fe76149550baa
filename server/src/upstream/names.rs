//! Names of the repositories there. Where it does not say them in time, those are
//! told that are known here, and are said to be that.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use snap_remote::service::snap_server::ONLY;

use super::{
    Form, Upstream,
    contact::Away,
    flights::{Flights, Landing},
};

/// Levels of folders in which stores are looked for.
const LEVELS: usize = 4;

/// So long they are not asked for again.
const NAMES_FOR: Duration = Duration::from_secs(3);

/// So long a list may take to come: longer than anybody waits for it, so that one
/// of many folders is there for those who come next.
const LISTING: Duration = Duration::from_secs(15);

/// How often they are asked for where somebody makes one meanwhile.
const TRIES: usize = 3;

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct Names {
    flights: Flights,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    known: Option<Known>,
    /// When they were last as they are there.
    last: Option<Instant>,
    /// How often one was made from here: an answer from before is old.
    made: u64,
}

#[derive(Debug)]
struct Known {
    names: Vec<String>,
    at: Instant,
    /// Whether they are those there.
    is_fresh: bool,
}

impl Names {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One is made there.
    pub(super) fn forget(&self) {
        let mut state = self.state();
        (state.known, state.made) = (None, state.made + 1);
    }
}

impl State {
    fn lately(&self) -> Option<&Known> {
        self.known.as_ref().filter(|known| known.at.elapsed() < NAMES_FOR)
    }

    fn put(&mut self, names: Vec<String>, is_fresh: bool) {
        let at = Instant::now();
        self.known = Some(Known { names, at, is_fresh });
        if is_fresh {
            self.last = Some(at);
        }
    }
}

impl Upstream {
    /// Names of the repositories there; where it does not answer, of those that
    /// are known here.
    pub fn names(self: &Arc<Self>) -> Vec<String> {
        match self.form() {
            Ok(Form::Store) => return vec![ONLY.to_owned()],
            Ok(Form::Folder) => {}
            Err(_) => return self.cache.names(),
        }
        for _ in 0..TRIES {
            if let Some(known) = self.names.state().lately() {
                return known.names.clone();
            }
            let ask = |landing| self.send_off(landing);
            if self.contact.is_given_up() || !self.names.flights.join(self.patience, ask) {
                break;
            }
        }
        let here = self.cache.names();
        let mut state = self.names.state();
        // Somebody else may have had an answer.
        if let Some(known) = state.lately() {
            return known.names.clone();
        }
        state.put(here.clone(), false);
        here
    }

    /// Asks in a thread of its own.
    fn send_off(self: &Arc<Self>, landing: Landing) {
        let (upstream, span) = (Arc::clone(self), tracing::Span::current());
        let ask = move || span.in_scope(|| landing.land(upstream.list()));
        if let Err(error) = thread::Builder::new().name("upstream".into()).spawn(ask) {
            tracing::error!(%error, "no thread to ask the upstream");
        }
    }

    fn list(&self) -> bool {
        let made = self.names.state().made;
        let asked = self.root.stores(LEVELS);
        let asked = async { tokio::time::timeout(LISTING, asked).await };
        match self.runtime.block_on(asked) {
            Ok(Ok(names)) => {
                self.contact.reached();
                let (names, is_all) = self.with_kept(names);
                let mut state = self.names.state();
                if state.made == made {
                    state.put(names, is_all);
                }
                true
            }
            Ok(Err(error)) => {
                let _ = self.contact.failed(error.into());
                false
            }
            // There are many folders, or it is away: others will tell.
            Err(_) => false,
        }
    }

    /// Adds the repositories that are kept here and not named there: they are served
    /// on, as those of an upstream that is away. Returns whether there is none.
    fn with_kept(&self, mut names: Vec<String>) -> (Vec<String>, bool) {
        let there = names.len();
        let kept = self.cache.names().into_iter().filter(|kept| !names.contains(kept));
        let kept: Vec<String> = kept.collect();
        names.extend(kept);
        names.sort_unstable();
        let is_all = names.len() == there;
        (names, is_all)
    }

    /// Since when what is told of all of them may not be as it is there, if so.
    pub fn away(&self) -> Option<Away> {
        let of_names = || {
            let state = self.names.state();
            let is_stale = state.lately().is_some_and(|known| !known.is_fresh);
            let age_secs = state.last.map(|last| last.elapsed().as_secs());
            is_stale.then_some(Away { age_secs })
        };
        self.contact.away().or_else(of_names)
    }
}
