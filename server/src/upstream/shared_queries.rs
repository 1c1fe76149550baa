//! Request coalescing: callers that ask at the same time share one query. A caller shares
//! the answer to a query that began after the call, never an older one, because the answer
//! may have changed in between.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use crate::clock::Clock;

/// Coalesced queries, one after the other. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct SingleFlight {
    shared: Arc<FlightInner>,
}

#[derive(Debug)]
struct FlightInner {
    state: Mutex<FlightState>,
    query_ended: Condvar,
    clock: Clock,
}

#[derive(Debug, Default)]
struct FlightState {
    /// Queries that began.
    started: u64,
    /// Queries that ended.
    finished: u64,
    /// True if the last query that ended succeeded.
    succeeded: bool,
    /// When the last successful query began.
    last: Option<Instant>,
    /// Callers so far.
    #[cfg(test)]
    joined: u64,
}

impl SingleFlight {
    pub(super) fn new(clock: Clock) -> Self {
        let (state, query_ended) = (Mutex::default(), Condvar::new());
        Self { shared: Arc::new(FlightInner { state, query_ended, clock }) }
    }

    /// Returns true if the last successful query began at most `age` ago.
    pub(super) fn is_younger(&self, age: Duration) -> bool {
        self.shared.state.lock().last.is_some_and(|last| self.shared.clock.elapsed(last) <= age)
    }

    /// Waits for the answer to a query that begins from now on, but no longer than
    /// `timeout`. If no query is in progress, `start_query` starts one in another thread.
    /// Returns true if there was an answer.
    pub(super) fn join(&self, timeout: Duration, start_query: impl Fn(QueryGuard)) -> bool {
        let clock = &self.shared.clock;
        let end = clock.after(timeout);
        let mut state = self.shared.state.lock();
        #[cfg(test)]
        {
            state.joined += 1;
        }
        // A query in progress began before this call: wait for the one after it.
        let wanted = state.started + 1;
        while state.finished < wanted {
            if state.started == state.finished {
                state.started += 1;
                drop(state);
                start_query(QueryGuard {
                    flights: self.clone(),
                    began: clock.now(),
                    succeeded: false,
                });
                state = self.shared.state.lock();
                continue;
            }
            if clock.now() >= end {
                return false;
            }
            clock.wait_until(&self.shared.query_ended, &mut state, end);
        }
        state.succeeded
    }
}

/// A query in progress. It ends on drop, even if its thread panics or never starts.
#[derive(Debug)]
pub(super) struct QueryGuard {
    flights: SingleFlight,
    began: Instant,
    succeeded: bool,
}

impl QueryGuard {
    /// Ends the query, with an answer or without.
    pub(super) fn finish(mut self, succeeded: bool) {
        self.succeeded = succeeded;
    }
}

impl Drop for QueryGuard {
    fn drop(&mut self) {
        let mut state = self.flights.shared.state.lock();
        state.finished = state.started;
        state.succeeded = self.succeeded;
        if self.succeeded {
            state.last = Some(self.began);
        }
        self.flights.shared.query_ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc,
        thread::{self, Scope, ScopedJoinHandle},
    };

    use super::*;

    /// Long enough for everything that tests wait for.
    const MINUTE: Duration = Duration::from_secs(60);

    /// Asks in a thread. Each query goes to `queries` when it starts, and the test ends it.
    fn ask<'scope>(
        scope: &'scope Scope<'scope, '_>,
        flights: &SingleFlight,
        queries: &mpsc::Sender<QueryGuard>,
    ) -> ScopedJoinHandle<'scope, bool> {
        let (flights, queries) = (flights.clone(), queries.clone());
        scope.spawn(move || flights.join(MINUTE, |query| queries.send(query).unwrap()))
    }

    #[test]
    fn many_who_ask_at_once_share_a_question_that_was_put_after_they_came() {
        let flights = SingleFlight::new(Clock::manual());
        let (start_query, queries) = mpsc::channel();
        thread::scope(|scope| {
            let first = ask(scope, &flights, &start_query);
            let first_query = queries.recv().unwrap();
            // They come while the first query is in progress, so none of them shares it.
            let others: Vec<_> = (0..31).map(|_| ask(scope, &flights, &start_query)).collect();
            while flights.shared.state.lock().joined < 32 {
                thread::yield_now();
            }
            first_query.finish(true);
            assert!(first.join().unwrap());
            let second_query = queries.recv().unwrap();
            assert!(others.iter().all(|other| !other.is_finished()), "one shares an older answer");
            second_query.finish(true);
            assert!(others.into_iter().all(|other| other.join().unwrap()));
            assert!(queries.try_recv().is_err(), "there was a third query");
        });
        assert_eq!(flights.shared.state.lock().started, 2);
        assert!(flights.is_younger(Duration::ZERO));
    }

    #[test]
    fn nobody_waits_for_longer_than_they_would_and_nobody_is_told_of_what_failed() {
        let clock = Clock::manual();
        let flights = SingleFlight::new(clock.clone());
        let flying = Mutex::new(None);
        let stays = |query| {
            *flying.lock() = Some(query);
            clock.advance(MINUTE);
        };
        assert!(!flights.join(MINUTE, stays));
        assert!(!flights.join(Duration::ZERO, |_| panic!("a query is already in progress")));
        drop(flying.lock().take());
        assert!(!flights.join(MINUTE, |query| query.finish(false)));
        assert!(flights.join(MINUTE, |query| query.finish(true)));
        clock.advance(Duration::from_secs(2));
        assert!(flights.is_younger(Duration::from_secs(2)));
        assert!(!flights.is_younger(Duration::from_secs(1)));
        // A thread that never starts.
        assert!(!flights.join(MINUTE, drop));
    }
}
