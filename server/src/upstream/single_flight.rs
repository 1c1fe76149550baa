//! Request coalescing: callers that ask at the same time share one query. A caller shares
//! the answer to a query that began after the call, never an older one, because the answer
//! may have changed in between.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Coalesced queries, one after the other. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct SingleFlight {
    shared: Arc<FlightInner>,
}

#[derive(Debug, Default)]
struct FlightInner {
    state: Mutex<FlightState>,
    query_ended: Condvar,
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
}

impl SingleFlight {
    fn state(&self) -> MutexGuard<'_, FlightState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the last successful query began at most `age` ago.
    pub(super) fn is_younger(&self, age: Duration) -> bool {
        self.state().last.is_some_and(|last| last.elapsed() <= age)
    }

    /// Waits for the answer to a query that begins from now on, but no longer than
    /// `timeout`. If no query is in progress, `start_query` starts one in another thread.
    /// Returns true if there was an answer.
    pub(super) fn join(&self, timeout: Duration, start_query: impl Fn(QueryGuard)) -> bool {
        let end = Instant::now() + timeout;
        let mut state = self.state();
        // A query in progress began before this call: wait for the one after it.
        let wanted = state.started + 1;
        while state.finished < wanted {
            if state.started == state.finished {
                state.started += 1;
                drop(state);
                start_query(QueryGuard {
                    flights: self.clone(),
                    began: Instant::now(),
                    succeeded: false,
                });
                state = self.state();
                continue;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.shared.query_ended.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
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
        let mut state = self.flights.state();
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
        sync::atomic::{AtomicU64, Ordering},
        thread,
    };

    use super::*;

    #[test]
    fn many_who_ask_at_once_share_a_question_that_was_put_after_they_came() {
        let (flights, asked) = (SingleFlight::default(), AtomicU64::new(0));
        let asked = &asked;
        thread::scope(|scope| {
            for _ in 0..32 {
                scope.spawn(|| {
                    let before = asked.load(Ordering::SeqCst);
                    let start_query = |landing: QueryGuard| {
                        scope.spawn(move || {
                            let number = asked.load(Ordering::SeqCst);
                            thread::sleep(Duration::from_millis(50));
                            asked.store(number + 1, Ordering::SeqCst);
                            landing.finish(true);
                        });
                    };
                    assert!(flights.join(Duration::from_secs(60), start_query));
                    assert!(asked.load(Ordering::SeqCst) > before);
                });
            }
        });
        let asked = asked.load(Ordering::SeqCst);
        assert!((1..16).contains(&asked), "{asked}");
        assert!(flights.is_younger(Duration::from_secs(60)));
    }

    #[test]
    fn nobody_waits_for_longer_than_they_would_and_nobody_is_told_of_what_failed() {
        let flights = SingleFlight::default();
        let flying = Mutex::new(None);
        let stays = |landing| *flying.lock().unwrap() = Some(landing);
        assert!(!flights.join(Duration::from_millis(10), stays));
        assert!(
            !flights.join(Duration::from_millis(10), |_| panic!("a query is already in progress"))
        );
        drop(flying.lock().unwrap().take());
        assert!(!flights.join(Duration::from_secs(60), |landing| landing.finish(false)));
        assert!(flights.join(Duration::from_secs(60), |landing| landing.finish(true)));
        // A thread that never starts.
        assert!(!flights.join(Duration::from_secs(60), drop));
    }
}
