//! A piece of work that one of several threads takes, and what comes of it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Work of which one thread makes a result.
pub(super) struct Slot<W, R> {
    state: Mutex<State<W, R>>,
    done: Condvar,
}

enum State<W, R> {
    Waiting(W),
    /// Somebody is at it, or the result has been taken.
    Taken,
    Done(R),
}

impl<W, R> Slot<W, R> {
    pub(super) fn new(work: W) -> Self {
        Self { state: Mutex::new(State::Waiting(work)), done: Condvar::new() }
    }

    /// The work, for the first who asks.
    pub(super) fn begin(&self) -> Option<W> {
        self.take_if(|state| match state {
            State::Waiting(work) => Ok(work),
            other => Err(other),
        })
    }

    pub(super) fn finish(&self, result: R) {
        *self.lock() = State::Done(result);
        self.done.notify_all();
    }

    /// The result, once there is one, for the first who asks.
    pub(super) fn result(&self) -> Option<R> {
        self.take_if(|state| match state {
            State::Done(result) => Ok(result),
            other => Err(other),
        })
    }

    /// Waits for those who have begun.
    pub(super) fn wait(&self) {
        let at_it = |state: &mut State<W, R>| matches!(state, State::Taken);
        drop(self.done.wait_while(self.lock(), at_it).unwrap_or_else(PoisonError::into_inner));
    }

    /// Looks and takes under one lock: between two, a result would be lost
    /// to the state that is put back.
    fn take_if<T>(&self, what: impl FnOnce(State<W, R>) -> Result<T, State<W, R>>) -> Option<T> {
        let mut state = self.lock();
        match what(std::mem::replace(&mut *state, State::Taken)) {
            Ok(taken) => Some(taken),
            Err(other) => {
                *state = other;
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<W, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::Slot;

    #[test]
    fn a_result_is_not_lost_to_those_who_ask_for_the_work() {
        const ROUNDS: usize = 20_000;
        let slots: Vec<Slot<usize, usize>> = (0..ROUNDS).map(Slot::new).collect();
        let together = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for slot in &slots {
                    let work = slot.begin().unwrap();
                    together.wait();
                    slot.finish(work + 1);
                }
            });
            for (number, slot) in slots.iter().enumerate() {
                together.wait();
                // While the other one finishes.
                for _ in 0..10 {
                    assert_eq!(slot.begin(), None);
                }
                slot.wait();
                assert_eq!(slot.result(), Some(number + 1));
                assert_eq!(slot.result(), None);
            }
        });
    }
}
