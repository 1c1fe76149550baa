//! A fair semaphore: limits how many threads do long work at a time, and serves waiting
//! threads in order of arrival.

use std::{collections::VecDeque, time::Duration};

use parking_lot::{Condvar, Mutex};

use crate::base::observe::Observer;

/// Interval at which a waiting thread checks whether the user asked to stop.
const STEP: Duration = Duration::from_millis(100);

/// The semaphore. A process has as many as it wants to limit independently.
#[derive(Debug, Default)]
pub struct FifoSemaphore {
    line: Mutex<WaitQueue>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct WaitQueue {
    taken: usize,
    /// Number of the next thread that arrives.
    next: u64,
    waiting: VecDeque<u64>,
}

/// A permit. Dropping it releases it.
#[derive(Debug)]
pub(super) struct FifoPermit<'t>(&'t FifoSemaphore);

impl FifoSemaphore {
    /// Waits until it is this thread's turn and fewer than `most` permits are taken.
    /// Returns `None` when the user asks to stop.
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
                // The thread that is first in line now may get a permit, too.
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
