//! A fair semaphore: limits the number of threads that do long work at a time, and gives permits to
//! waiting threads in order of arrival.

use std::{collections::VecDeque, time::Duration};

use parking_lot::{Condvar, Mutex};

use crate::base::observe::Observer;

/// Interval at which a waiting thread checks whether the user asked to stop.
const STEP: Duration = Duration::from_millis(100);

/// A semaphore with a FIFO queue. Each call of `take` states the limit.
#[derive(Debug, Default)]
pub struct FifoSemaphore {
    line: Mutex<WaitQueue>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct WaitQueue {
    taken: usize,
    /// Queue number for the next thread that arrives.
    next: u64,
    waiting: VecDeque<u64>,
}

/// A permit, released on drop.
#[derive(Debug)]
pub(super) struct FifoPermit<'t>(&'t FifoSemaphore);

impl FifoSemaphore {
    /// Waits until this thread is first in the queue and fewer than `most` permits are taken.
    /// Returns `None` if the user asks to stop.
    pub(super) fn take(&self, most: usize, observer: &dyn Observer) -> Option<FifoPermit<'_>> {
        let mut line = self.line.lock();
        let number = line.next;
        line.next += 1;
        line.waiting.push_back(number);
        loop {
            let is_next = line.waiting.front() == Some(&number);
            let is_stopped = observer.cancelled();
            if is_stopped || is_next && line.taken < most {
                line.waiting.retain(|other| *other != number);
                line.taken += usize::from(!is_stopped);
                // The new first thread of the queue may get a permit, too.
                self.moved.notify_all();
                return (!is_stopped).then(|| FifoPermit(self));
            }
            self.moved.wait_for(&mut line, STEP);
        }
    }

    /// Returns true if a thread is waiting.
    pub(super) fn is_wanted(&self) -> bool {
        !self.line.lock().waiting.is_empty()
    }
}

impl Drop for FifoPermit<'_> {
    fn drop(&mut self) {
        self.0.line.lock().taken -= 1;
        self.0.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use super::*;
    use crate::base::observe::Silent;

    struct CancelFlag(AtomicBool);

    impl Observer for CancelFlag {
        fn cancelled(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn permits_are_granted_in_order_and_cancelled_waiters_leave() {
        let permits = FifoSemaphore::default();
        let left = CancelFlag(AtomicBool::new(false));
        let first = permits.take(1, &Silent).unwrap();
        assert!(!permits.is_wanted());
        thread::scope(|scope| {
            let second = scope.spawn(|| permits.take(1, &left).is_some());
            while !permits.is_wanted() {
                thread::yield_now();
            }
            let third = scope.spawn(|| permits.take(1, &Silent).is_some());
            while permits.line.lock().waiting.len() < 2 {
                thread::yield_now();
            }
            left.0.store(true, Ordering::Relaxed);
            assert!(!second.join().unwrap(), "a cancelled thread gets no permit");
            assert!(permits.is_wanted(), "the third thread still waits");
            drop(first);
            assert!(third.join().unwrap());
        });
        assert_eq!(permits.line.lock().taken, 0);
    }
}
