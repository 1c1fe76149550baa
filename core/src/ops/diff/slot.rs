//! A unit of work that one thread takes, with a place for its result.

use parking_lot::{Condvar, Mutex};

/// A unit of work with one result. One thread takes the work; one thread takes the
/// result.
pub(super) struct TaskSlot<W, R> {
    work: Mutex<Option<W>>,
    result: Mutex<Option<R>>,
    done: Condvar,
}

impl<W, R> TaskSlot<W, R> {
    pub(super) fn new(work: W) -> Self {
        Self { work: Mutex::new(Some(work)), result: Mutex::new(None), done: Condvar::new() }
    }

    /// Takes the work. Returns `None` if another thread has taken it.
    pub(super) fn begin(&self) -> Option<W> {
        self.work.lock().take()
    }

    pub(super) fn finish(&self, result: R) {
        *self.result.lock() = Some(result);
        self.done.notify_all();
    }

    /// Takes the result. Returns `None` if there is none yet or it was taken before.
    pub(super) fn result(&self) -> Option<R> {
        self.result.lock().take()
    }

    /// Waits until the result is there. A thread must have taken the work, and none the result.
    pub(super) fn wait(&self) {
        self.done.wait_while(&mut self.result.lock(), |result| result.is_none());
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
