//! Adaptive concurrency limit. It halves when the service reports too many requests, and rises by
//! one after each [`STEP`] successful requests.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Number of successful requests before the limit rises by one.
const STEP: u32 = 8;

/// A semaphore whose limit follows the answers of the service.
#[derive(Debug)]
pub(super) struct AdaptiveSemaphore {
    state: Mutex<SemaphoreState>,
    free: Notify,
    most: usize,
}

#[derive(Debug)]
struct SemaphoreState {
    in_flight: usize,
    limit: usize,
    /// Number of successful requests since the limit last changed.
    successes: u32,
}

/// A permit for one request, released on drop.
#[derive(Debug)]
pub(super) struct RequestPermit<'g>(&'g AdaptiveSemaphore);

impl AdaptiveSemaphore {
    /// Creates a semaphore with a limit of at most `most`.
    pub(super) fn new(most: usize) -> Self {
        let most = most.max(1);
        Self {
            state: Mutex::new(SemaphoreState { in_flight: 0, limit: most, successes: 0 }),
            free: Notify::new(),
            most,
        }
    }

    /// Waits for a permit.
    pub(super) async fn acquire(&self) -> RequestPermit<'_> {
        loop {
            // Create this before the check, so as not to miss a permit that is released in between.
            let free = self.free.notified();
            {
                let mut state = self.state.lock();
                if state.in_flight < state.limit {
                    state.in_flight += 1;
                    return RequestPermit(self);
                }
            }
            free.await;
        }
    }

    #[cfg(test)]
    fn limit(&self) -> usize {
        self.state.lock().limit
    }
}

impl RequestPermit<'_> {
    /// Reports that the request succeeded.
    pub(super) fn succeeded(&self) {
        let mut state = self.0.state.lock();
        state.successes += 1;
        if state.successes >= STEP && state.limit < self.0.most {
            (state.limit, state.successes) = (state.limit + 1, 0);
            self.0.free.notify_one();
        }
    }

    /// Reports that the service refused the request as too many.
    pub(super) fn throttled(&self) {
        let mut state = self.0.state.lock();
        // Several refusals without a success in between lower the limit only once.
        if state.successes > 0 || state.limit == self.0.most {
            (state.limit, state.successes) = ((state.limit / 2).max(1), 0);
        }
    }
}

impl Drop for RequestPermit<'_> {
    fn drop(&mut self) {
        self.0.state.lock().in_flight -= 1;
        self.0.free.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_limit_halves_on_throttling_and_grows_by_one() {
        let gauge = AdaptiveSemaphore::new(8);
        let first = gauge.acquire().await;
        first.throttled();
        assert_eq!(gauge.limit(), 4);
        first.throttled();
        assert_eq!(gauge.limit(), 4, "concurrent refusals count once");
        (0..STEP).for_each(|_| first.succeeded());
        assert_eq!(gauge.limit(), 5);
        for limit in [2, 2] {
            first.succeeded();
            first.throttled();
            assert!(gauge.limit() >= limit - 1);
        }
        (0..100 * STEP).for_each(|_| first.succeeded());
        assert_eq!(gauge.limit(), 8);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrency_never_exceeds_the_limit() {
        let gauge = std::sync::Arc::new(AdaptiveSemaphore::new(3));
        let most = std::sync::Arc::new(Mutex::new((0, 0)));
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let (gauge, most) = (gauge.clone(), most.clone());
                tokio::spawn(async move {
                    let _turn = gauge.acquire().await;
                    {
                        let mut most = most.lock();
                        most.0 += 1;
                        most.1 = most.1.max(most.0);
                    }
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                    most.lock().0 -= 1;
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*most.lock(), (0, 3));
    }
}
