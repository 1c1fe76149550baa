//! What many ask at once is asked once: whoever comes shares the answer to the
//! next question that is put, never one that was put before they came, since
//! what they want to know may have changed meanwhile.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Questions, one after the other.
#[derive(Debug, Default)]
pub(super) struct Flights {
    state: Mutex<State>,
    landed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    begun: u64,
    landed: u64,
    /// When the last one began that went well.
    last: Option<Instant>,
}

impl Flights {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there was an answer to a question that is no older than that.
    pub(super) fn is_younger(&self, age: Duration) -> bool {
        self.state().last.is_some_and(|last| last.elapsed() <= age)
    }

    /// Puts a question, or waits until somebody else has; not for longer than
    /// `patience`. `fly` says whether there was an answer.
    pub(super) fn join(&self, patience: Duration, fly: impl Fn() -> bool) {
        let end = Instant::now() + patience;
        let mut state = self.state();
        let wanted = state.begun + 1;
        while state.landed < wanted {
            if state.begun == state.landed {
                state.begun += 1;
                drop(state);
                let mut landing =
                    Landing { flights: self, began: Instant::now(), went_well: false };
                landing.went_well = fly();
                drop(landing);
                return;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let woken = self.landed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Lands even if the pilot panics.
struct Landing<'f> {
    flights: &'f Flights,
    began: Instant,
    went_well: bool,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        let mut state = self.flights.state();
        state.landed = state.begun;
        if self.went_well {
            state.last = Some(self.began);
        }
        self.flights.landed.notify_all();
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
        thread::scope(|scope| {
            for _ in 0..32 {
                scope.spawn(|| {
                    let before = asked.load(Ordering::SeqCst);
                    flights.join(Duration::from_secs(60), || {
                        let number = asked.load(Ordering::SeqCst);
                        thread::sleep(Duration::from_millis(50));
                        asked.store(number + 1, Ordering::SeqCst);
                        true
                    });
                    assert!(asked.load(Ordering::SeqCst) > before);
                });
            }
        });
        let asked = asked.into_inner();
        assert!((1..16).contains(&asked), "{asked}");
        assert!(flights.is_younger(Duration::from_secs(60)));
    }

    #[test]
    fn nobody_waits_for_longer_than_they_would() {
        let flights = Flights::default();
        thread::scope(|scope| {
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let ended = Mutex::new(ended);
            let (up, flying) = std::sync::mpsc::channel();
            let flights = &flights;
            scope.spawn(move || {
                flights.join(Duration::from_secs(60), || {
                    up.send(()).unwrap();
                    ended.lock().unwrap().recv().unwrap();
                    true
                });
            });
            flying.recv().unwrap();
            flights.join(Duration::from_millis(10), || panic!("somebody else flies"));
            end.send(()).unwrap();
        });
    }
}
