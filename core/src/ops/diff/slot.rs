//! A unit of work that one thread takes, with a place for its result.

use parking_lot::{Condvar, Mutex};

/// A unit of work with one result. One thread takes the work; one thread takes the
/// result.
pub(super) struct TaskSlot<W, R> {
    state: Mutex<TaskState<W, R>>,
    done: Condvar,
}

enum TaskState<W, R> {
    Waiting(W),
    /// A thread is working on the task, or the result has been taken.
    Taken,
    Done(R),
}

impl<W, R> TaskSlot<W, R> {
    pub(super) fn new(work: W) -> Self {
        Self { state: Mutex::new(TaskState::Waiting(work)), done: Condvar::new() }
    }

    /// Takes the work. Returns `None` if another thread has taken it.
    pub(super) fn begin(&self) -> Option<W> {
        self.take_if(|state| match state {
            TaskState::Waiting(work) => Ok(work),
            other => Err(other),
        })
    }

    pub(super) fn finish(&self, result: R) {
        *self.state.lock() = TaskState::Done(result);
        self.done.notify_all();
    }

    /// Takes the result. Returns `None` if there is none yet or it was taken before.
    pub(super) fn result(&self) -> Option<R> {
        self.take_if(|state| match state {
            TaskState::Done(result) => Ok(result),
            other => Err(other),
        })
    }

    /// Waits while another thread is working on the task.
    pub(super) fn wait(&self) {
        let at_it = |state: &mut TaskState<W, R>| matches!(state, TaskState::Taken);
        self.done.wait_while(&mut self.state.lock(), at_it);
    }

    /// Inspects and replaces the state under one lock. With two locks, another thread
    /// could store its result in between, and restoring the old state would lose it.
    fn take_if<T>(
        &self,
        what: impl FnOnce(TaskState<W, R>) -> Result<T, TaskState<W, R>>,
    ) -> Option<T> {
        let mut state = self.state.lock();
        match what(std::mem::replace(&mut *state, TaskState::Taken)) {
            Ok(taken) => Some(taken),
            Err(other) => {
                *state = other;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::TaskSlot;

    #[test]
    fn polling_a_task_slot_does_not_lose_its_result() {
        const ROUNDS: usize = 20_000;
        let slots: Vec<TaskSlot<usize, usize>> = (0..ROUNDS).map(TaskSlot::new).collect();
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
                // The other thread stores its result at the same time.
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
