//! Queries that callers share. Callers that ask at the same time share one query. A caller
//! shares the answer to a query that began after the call, never an older one, because the
//! answer may have changed in between.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use snap_core::base::single_flight::{Flight, LeaderGuard, SingleFlight};

use super::health::UpstreamOutage;
use crate::clock::Clock;

/// Shared queries, one after the other.
#[derive(Debug)]
pub(super) struct SharedQueries {
    queries: SingleFlight<(), ()>,
    /// When the last query that was answered began.
    answered: Arc<Mutex<Option<Instant>>>,
    /// True if the last caller had no answer.
    is_stale: AtomicBool,
    clock: Clock,
}

/// A query in progress. It ends on drop, even if its thread panics or never starts.
#[derive(Debug)]
pub(super) struct QueryGuard {
    leader: LeaderGuard<(), ()>,
    began: Instant,
    answered: Arc<Mutex<Option<Instant>>>,
}

impl SharedQueries {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            queries: SingleFlight::default(),
            answered: Arc::default(),
            is_stale: AtomicBool::new(false),
            clock,
        }
    }

    /// Returns how old the data may be that clients receive; `None` if it is current.
    pub(super) fn outage(&self) -> Option<UpstreamOutage> {
        let age_secs = self.answered.lock().map(|began| self.clock.elapsed(began).as_secs());
        self.is_stale.load(Ordering::Relaxed).then_some(UpstreamOutage { age_secs })
    }

    /// Records whether the data that clients receive is current.
    pub(super) fn record(&self, is_fresh: bool) {
        self.is_stale.store(!is_fresh, Ordering::Relaxed);
    }

    /// Returns true if the last query that was answered began at most `age` ago.
    pub(super) fn is_younger(&self, age: Duration) -> bool {
        self.answered.lock().is_some_and(|began| self.clock.elapsed(began) <= age)
    }

    /// Waits for the answer to a query that begins from now on, but no longer than
    /// `timeout`. If no query is in progress, `start_query` starts one in another thread.
    /// Returns true if there was an answer.
    pub(super) fn join(&self, timeout: Duration, start_query: impl FnOnce(QueryGuard)) -> bool {
        let deadline = self.clock.thread_deadline(timeout);
        let next_wait = || deadline.next_wait();
        let query = match self.queries.join_next((), next_wait) {
            None => return false,
            Some(Flight::Follower(query)) => query,
            Some(Flight::Leader(leader)) => {
                let query = leader.follow();
                let (began, answered) = (self.clock.now(), Arc::clone(&self.answered));
                start_query(QueryGuard { leader, began, answered });
                query
            }
        };
        query.wait(next_wait).is_some()
    }
}

impl QueryGuard {
    /// Ends the query, with an answer or without.
    pub(super) fn finish(self, is_answered: bool) {
        if is_answered {
            *self.answered.lock() = Some(self.began);
            self.leader.finish(());
        }
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

    /// Asks in a thread. Each query goes to `begun` when it starts, and the test ends it.
    fn ask<'scope>(
        scope: &'scope Scope<'scope, '_>,
        queries: &'scope SharedQueries,
        begun: &mpsc::Sender<QueryGuard>,
    ) -> ScopedJoinHandle<'scope, bool> {
        let begun = begun.clone();
        scope.spawn(move || queries.join(MINUTE, |query| begun.send(query).unwrap()))
    }

    #[test]
    fn callers_share_a_query_that_began_after_they_asked() {
        let shared = SharedQueries::new(Clock::manual());
        let (begun, queries) = mpsc::channel();
        thread::scope(|scope| {
            let first = ask(scope, &shared, &begun);
            let first_query = queries.recv().unwrap();
            // These callers come while the first query is in progress, so none of them shares it.
            let others: Vec<_> = (0..31).map(|_| ask(scope, &shared, &begun)).collect();
            // A guard, and a handle for each caller.
            while shared.queries.member_count(&()) < 33 {
                thread::yield_now();
            }
            first_query.finish(true);
            assert!(first.join().unwrap());
            let second_query = queries.recv().unwrap();
            assert!(
                others.iter().all(|other| !other.is_finished()),
                "a caller shares an older answer"
            );
            second_query.finish(true);
            assert!(others.into_iter().all(|other| other.join().unwrap()));
            assert!(queries.try_recv().is_err(), "there was a third query");
        });
        assert!(shared.is_younger(Duration::ZERO));
    }

    #[test]
    fn a_caller_waits_for_an_answer_until_its_timeout() {
        let clock = Clock::manual();
        let queries = SharedQueries::new(clock.clone());
        let in_progress = Mutex::new(None);
        let hangs = |query| {
            *in_progress.lock() = Some(query);
            clock.advance(MINUTE);
        };
        assert!(!queries.join(MINUTE, hangs));
        assert!(!queries.join(Duration::ZERO, |_| panic!("a query is already in progress")));
        drop(in_progress.lock().take());
        assert!(!queries.join(MINUTE, |query| query.finish(false)));
        assert!(queries.join(MINUTE, |query| query.finish(true)));
        clock.advance(Duration::from_secs(2));
        assert!(queries.is_younger(Duration::from_secs(2)));
        assert!(!queries.is_younger(Duration::from_secs(1)));
        // A thread that never starts.
        assert!(!queries.join(MINUTE, drop));
    }
}
