//! How many requests a service bears at a time: fewer after it said that they
//! are too many, slowly more again while it does not.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Requests that go well before one more is tried.
const STEP: u32 = 8;

/// A limit that follows what the service says.
#[derive(Debug)]
pub(super) struct Gauge {
    state: Mutex<State>,
    free: Notify,
    most: usize,
}

#[derive(Debug)]
struct State {
    under_way: usize,
    limit: usize,
    /// Requests that went well since the limit changed.
    well: u32,
}

/// A request's turn; the next one comes when it is dropped.
#[derive(Debug)]
pub(super) struct Turn<'g>(&'g Gauge);

impl Gauge {
    /// At most `most` at a time.
    pub(super) fn new(most: usize) -> Self {
        let most = most.max(1);
        Self {
            state: Mutex::new(State { under_way: 0, limit: most, well: 0 }),
            free: Notify::new(),
            most,
        }
    }

    /// Waits until one more request may be made.
    pub(super) async fn turn(&self) -> Turn<'_> {
        loop {
            // Before looking: what becomes free in between is not missed.
            let free = self.free.notified();
            {
                let mut state = self.lock();
                if state.under_way < state.limit {
                    state.under_way += 1;
                    return Turn(self);
                }
            }
            free.await;
        }
    }

    /// Requests that may be under way now.
    #[cfg(test)]
    fn limit(&self) -> usize {
        self.lock().limit
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Says that the request went well.
    pub(super) fn went_well(&self) {
        let mut state = self.0.lock();
        state.well += 1;
        if state.well >= STEP && state.limit < self.0.most {
            (state.limit, state.well) = (state.limit + 1, 0);
            self.0.free.notify_one();
        }
    }

    /// Says that there were too many.
    pub(super) fn was_too_many(&self) {
        let mut state = self.0.lock();
        // Those that were under way together count as one complaint.
        if state.well > 0 || state.limit == self.0.most {
            (state.limit, state.well) = ((state.limit / 2).max(1), 0);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
        self.0.free.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_limit_falls_by_half_and_grows_by_one() {
        let gauge = Gauge::new(8);
        let first = gauge.turn().await;
        first.was_too_many();
        assert_eq!(gauge.limit(), 4);
        first.was_too_many();
        assert_eq!(gauge.limit(), 4, "one complaint of those that were under way together");
        (0..STEP).for_each(|_| first.went_well());
        assert_eq!(gauge.limit(), 5);
        for limit in [2, 2] {
            first.went_well();
            first.was_too_many();
            assert!(gauge.limit() >= limit - 1);
        }
        (0..100 * STEP).for_each(|_| first.went_well());
        assert_eq!(gauge.limit(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_the_limit_are_under_way() {
        let gauge = std::sync::Arc::new(Gauge::new(3));
        let most = std::sync::Arc::new(Mutex::new((0, 0)));
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let (gauge, most) = (gauge.clone(), most.clone());
                tokio::spawn(async move {
                    let _turn = gauge.turn().await;
                    {
                        let mut most = most.lock().unwrap();
                        most.0 += 1;
                        most.1 = most.1.max(most.0);
                    }
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                    most.lock().unwrap().0 -= 1;
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*most.lock().unwrap(), (0, 3));
    }
}
