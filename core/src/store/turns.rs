//! Turns: only so many do something long at a time, in the order in which they
//! came, however many want to.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

use crate::{base::observe::Observer, store::objects::lock};

/// How often whoever waits asks whether it is still wanted.
const STEP: Duration = Duration::from_millis(100);

/// Who has a turn, and who waits for one.
#[derive(Debug)]
pub(super) struct Turns {
    line: Mutex<Line>,
    moved: Condvar,
}

#[derive(Debug)]
struct Line {
    taken: usize,
    /// Number of whoever comes next.
    next: u64,
    waiting: VecDeque<u64>,
}

/// A turn; over when this is dropped.
#[derive(Debug)]
pub(super) struct Turn<'t>(&'t Turns);

impl Turns {
    pub(super) const fn new() -> Self {
        let line = Line { taken: 0, next: 0, waiting: VecDeque::new() };
        Self { line: Mutex::new(line), moved: Condvar::new() }
    }

    /// Waits until no more than `most` have a turn with this one; `None` when the
    /// user asks to stop.
    pub(super) fn take(&self, most: usize, observer: &dyn Observer) -> Option<Turn<'_>> {
        let mut line = lock(&self.line);
        let number = line.next;
        line.next += 1;
        line.waiting.push_back(number);
        loop {
            let is_next = line.waiting.front() == Some(&number);
            let is_stopped = observer.cancelled();
            if is_stopped || is_next && line.taken < most {
                line.waiting.retain(|other| *other != number);
                line.taken += usize::from(!is_stopped);
                // Whoever is next now may have a turn, too.
                self.moved.notify_all();
                return (!is_stopped).then(|| Turn(self));
            }
            let waited = self.moved.wait_timeout(line, STEP);
            line = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether somebody waits.
    pub(super) fn is_wanted(&self) -> bool {
        !lock(&self.line).waiting.is_empty()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(&self.0.line).taken -= 1;
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

    struct Left(AtomicBool);

    impl Observer for Left {
        fn cancelled(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn turns_are_taken_in_order_and_whoever_leaves_is_not_waited_for() {
        let turns = Turns::new();
        let left = Left(AtomicBool::new(false));
        let first = turns.take(1, &Silent).unwrap();
        assert!(!turns.is_wanted());
        thread::scope(|scope| {
            let second = scope.spawn(|| turns.take(1, &left).is_some());
            while !turns.is_wanted() {
                thread::yield_now();
            }
            let third = scope.spawn(|| turns.take(1, &Silent).is_some());
            while lock(&turns.line).waiting.len() < 2 {
                thread::yield_now();
            }
            left.0.store(true, Ordering::Relaxed);
            assert!(!second.join().unwrap(), "it has left");
            assert!(turns.is_wanted(), "the third waits for the first still");
            drop(first);
            assert!(third.join().unwrap());
        });
        assert_eq!(lock(&turns.line).taken, 0);
    }
}
