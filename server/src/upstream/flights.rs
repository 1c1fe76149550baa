//! What many ask at once is asked once: whoever comes shares the answer to the
//! next question that is put, never one that was put before they came, since
//! what they want to know may have changed meanwhile.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Questions, one after the other. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Flights {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    landed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    begun: u64,
    landed: u64,
    /// Whether the last one that has landed went well.
    went_well: bool,
    /// When the last one began that went well.
    last: Option<Instant>,
}

impl Flights {
    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there was an answer to a question that is no older than that.
    pub(super) fn is_younger(&self, age: Duration) -> bool {
        self.state().last.is_some_and(|last| last.elapsed() <= age)
    }

    /// Has `pilot` put a question in another thread, unless somebody else does, and
    /// waits for the answer to one that was put from now on; not for longer than
    /// `patience`. Says whether there was one.
    pub(super) fn join(&self, patience: Duration, pilot: impl Fn(Landing)) -> bool {
        let end = Instant::now() + patience;
        let mut state = self.state();
        let wanted = state.begun + 1;
        while state.landed < wanted {
            if state.begun == state.landed {
                state.begun += 1;
                drop(state);
                pilot(Landing { flights: self.clone(), began: Instant::now(), went_well: false });
                state = self.state();
                continue;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.shared.landed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.went_well
    }
}

/// Lands even if the pilot panics, or never comes.
#[derive(Debug)]
pub(super) struct Landing {
    flights: Flights,
    began: Instant,
    went_well: bool,
}

impl Landing {
    /// There was an answer, or not.
    pub(super) fn land(mut self, went_well: bool) {
        self.went_well = went_well;
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut state = self.flights.state();
        state.landed = state.begun;
        state.went_well = self.went_well;
        if self.went_well {
            state.last = Some(self.began);
        }
        self.flights.shared.landed.notify_all();
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
        let (flights, asked) = (Flights::default(), AtomicU64::new(0));
        let asked = &asked;
        thread::scope(|scope| {
            for _ in 0..32 {
                scope.spawn(|| {
                    let before = asked.load(Ordering::SeqCst);
                    let pilot = |landing: Landing| {
                        scope.spawn(move || {
                            let number = asked.load(Ordering::SeqCst);
                            thread::sleep(Duration::from_millis(50));
                            asked.store(number + 1, Ordering::SeqCst);
                            landing.land(true);
                        });
                    };
                    assert!(flights.join(Duration::from_secs(60), pilot));
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
        let flights = Flights::default();
        let flying = Mutex::new(None);
        let stays = |landing| *flying.lock().unwrap() = Some(landing);
        assert!(!flights.join(Duration::from_millis(10), stays));
        assert!(!flights.join(Duration::from_millis(10), |_| panic!("somebody else flies")));
        drop(flying.lock().unwrap().take());
        assert!(!flights.join(Duration::from_secs(60), |landing| landing.land(false)));
        assert!(flights.join(Duration::from_secs(60), |landing| landing.land(true)));
        // A pilot who never comes.
        assert!(!flights.join(Duration::from_secs(60), drop));
    }
}
