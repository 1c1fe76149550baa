//! The clock of a server: real time, or a time that a test moves.
//!
//! All waits for clients, for an upstream and for the expiry of caches use the clock of their
//! server, so that a test can end them. The real clock is that of the async runtime. A manual clock
//! changes only by [`Clock::advance`], which wakes the sleepers that are due. Points in time are
//! [`Instant`]s in both cases. Dates, as in tokens and logs, do not come from this clock.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use hyper::rt::{Sleep, Timer};
use tokio::sync::watch;

/// Interval in real time at which a waiting thread reads a manual clock.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Replaces a duration that overflows an [`Instant`]: 30 years.
const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// A source of time. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// `None` for the real clock.
    manual: Option<Arc<ManualTime>>,
}

/// A time that stands still until a test moves it.
#[derive(Debug)]
struct ManualTime {
    start: Instant,
    /// The time since `start`.
    passed: watch::Sender<Duration>,
    /// The end of each pending sleep and of each wait of a blocked thread, as time since `start`.
    pending: watch::Sender<Vec<Duration>>,
}

/// The future did not end in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

/// A future that ends at a point in time. It may be polled again after its end.
pub struct ClockSleep {
    /// `None` after the end.
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

/// The point in time until which a blocked thread waits.
pub struct ThreadDeadline {
    clock: Clock,
    end: Instant,
    _listed: Option<PendingSleep>,
}

/// A sleep that a manual clock lists, until it has ended or is dropped.
struct PendingSleep {
    time: Arc<ManualTime>,
    ends: Duration,
}

impl Clock {
    /// Creates a clock that stands still until [`advance`](Self::advance) moves it.
    pub fn manual() -> Self {
        let time = ManualTime {
            start: Instant::now(),
            passed: watch::Sender::new(Duration::ZERO),
            pending: watch::Sender::default(),
        };
        Self { manual: Some(Arc::new(time)) }
    }

    /// Returns the current time.
    pub fn now(&self) -> Instant {
        match &self.manual {
            None => tokio::time::Instant::now().into_std(),
            Some(time) => time.start + *time.passed.borrow(),
        }
    }

    /// Returns the time that has passed since `since`; zero if `since` is in the future.
    pub fn elapsed(&self, since: Instant) -> Duration {
        self.now().saturating_duration_since(since)
    }

    /// Returns the point in time `duration` from now.
    pub fn after(&self, duration: Duration) -> Instant {
        let now = self.now();
        now.checked_add(duration).unwrap_or_else(|| now + NEVER)
    }

    /// Returns a future that ends after `duration`.
    pub fn sleep(&self, duration: Duration) -> ClockSleep {
        self.sleep_until(self.after(duration))
    }

    /// Returns a future that ends at `end`.
    pub fn sleep_until(&self, end: Instant) -> ClockSleep {
        let Some(time) = &self.manual else {
            let waiting = Box::pin(tokio::time::sleep_until(end.into()));
            return ClockSleep { waiting: Some(waiting) };
        };
        let listed = PendingSleep::new(time, end);
        let (ends, mut passed) = (listed.ends, time.passed.subscribe());
        let waiting = Box::pin(async move {
            // Fails only if the clock is dropped, but `listed` keeps it alive.
            let _ = passed.wait_for(|passed| *passed >= ends).await;
            drop(listed);
        });
        ClockSleep { waiting: Some(waiting) }
    }

    /// Waits for `future`, but no longer than `limit`.
    ///
    /// # Errors
    /// [`Elapsed`] when `future` did not end in time.
    pub async fn timeout<T>(
        &self,
        limit: Duration,
        future: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        self.timeout_at(self.after(limit), future).await
    }

    /// Waits for `future`, but no longer than until `end`.
    ///
    /// # Errors
    /// [`Elapsed`] when `future` did not end in time.
    pub async fn timeout_at<T>(
        &self,
        end: Instant,
        future: impl Future<Output = T>,
    ) -> Result<T, Elapsed> {
        let Some(_) = &self.manual else {
            return tokio::time::timeout_at(end.into(), future).await.map_err(|_| Elapsed);
        };
        tokio::select! {
            // If both are ready, `future` has ended in time.
            biased;
            output = future => Ok(output),
            // The block lists the sleep only once it is polled, when `future` is pending. A bare
            // expression would be evaluated before the first poll.
            () = async { self.sleep_until(end).await } => Err(Elapsed),
        }
    }

    /// Returns a deadline `duration` from now, for a thread that waits.
    pub fn thread_deadline(&self, duration: Duration) -> ThreadDeadline {
        let end = self.after(duration);
        let listed = self.manual.as_ref().map(|time| PendingSleep::new(time, end));
        ThreadDeadline { clock: self.clone(), end, _listed: listed }
    }

    /// Moves a manual clock forward and wakes the sleepers that are due. Does nothing to the
    /// real clock.
    pub fn advance(&self, duration: Duration) {
        if let Some(time) = &self.manual {
            time.passed.send_modify(|passed| *passed += duration);
        }
    }

    /// Waits until `predicate` accepts the remaining times of all pending sleeps and [thread
    /// deadlines](Self::thread_deadline) of a manual clock. A sleep that is due but was not polled
    /// yet has zero left. Never ends for the real clock.
    pub async fn until_sleeping(&self, predicate: impl Fn(&[Duration]) -> bool) {
        let Some(time) = &self.manual else { return std::future::pending().await };
        let mut pending = time.pending.subscribe();
        let fits = |ends: &Vec<Duration>| {
            let now = *time.passed.borrow();
            let left: Vec<_> = ends.iter().map(|end| end.saturating_sub(now)).collect();
            predicate(&left)
        };
        let _ = pending.wait_for(fits).await;
    }
}

impl ThreadDeadline {
    /// Returns how long the thread may wait before it calls this method again; `None` after the
    /// deadline.
    pub fn next_wait(&self) -> Option<Duration> {
        let left = self.end.saturating_duration_since(self.clock.now());
        let wait = if self.clock.manual.is_some() { LOOK_EVERY } else { left };
        (!left.is_zero()).then_some(wait)
    }
}

impl Future for ClockSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if let Some(waiting) = &mut self.waiting {
            ready!(waiting.as_mut().poll(context));
            self.waiting = None;
        }
        Poll::Ready(())
    }
}

impl fmt::Debug for ClockSleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClockSleep").finish_non_exhaustive()
    }
}

impl PendingSleep {
    fn new(time: &Arc<ManualTime>, end: Instant) -> Self {
        let ends = end.saturating_duration_since(time.start);
        time.pending.send_modify(|pending| pending.push(ends));
        Self { time: Arc::clone(time), ends }
    }
}

impl Drop for PendingSleep {
    fn drop(&mut self) {
        self.time.pending.send_modify(|pending| {
            if let Some(at) = pending.iter().position(|ends| *ends == self.ends) {
                pending.swap_remove(at);
            }
        });
    }
}

impl Sleep for ClockSleep {}

/// Lets the HTTP server wait by this clock.
impl Timer for Clock {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(self.sleep(duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(self.sleep_until(deadline))
    }

    fn now(&self) -> Instant {
        self.now()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn a_manual_clock_wakes_only_expired_sleeps() {
        let clock = Clock::manual();
        let began = clock.now();
        let (short, long) = (clock.sleep(SECOND), clock.sleep(3 * SECOND));
        clock.until_sleeping(|left| left == [SECOND, 3 * SECOND]).await;
        clock.advance(SECOND);
        short.await;
        clock.until_sleeping(|left| left == [2 * SECOND]).await;
        assert_eq!(clock.elapsed(began), SECOND);
        assert_eq!(clock.timeout(SECOND, async { 7 }).await, Ok(7));
        let (timed_out, ()) = tokio::join!(clock.timeout(SECOND, long), async {
            clock.until_sleeping(|left| left.contains(&SECOND)).await;
            clock.advance(SECOND);
        });
        assert_eq!(timed_out, Err(Elapsed));
        clock.until_sleeping(<[Duration]>::is_empty).await;
        assert_eq!(clock.elapsed(clock.now() + SECOND), Duration::ZERO);
    }

    #[test]
    fn a_thread_that_waits_notices_a_manual_clock_that_moved() {
        let clock = Clock::manual();
        let deadline = clock.thread_deadline(SECOND);
        std::thread::scope(|scope| {
            scope.spawn(|| clock.advance(SECOND));
            while let Some(wait) = deadline.next_wait() {
                std::thread::park_timeout(wait);
            }
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_thread_waits_for_the_time_that_is_left() {
        let clock = Clock::default();
        let deadline = clock.thread_deadline(2 * SECOND);
        clock.sleep(SECOND).await;
        assert_eq!(deadline.next_wait(), Some(SECOND));
        clock.sleep(SECOND).await;
        assert_eq!(deadline.next_wait(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_real_clock_follows_the_runtime() {
        let clock = Clock::default();
        let began = clock.now();
        clock.sleep(SECOND).await;
        assert_eq!(clock.elapsed(began), SECOND);
        assert_eq!(clock.timeout(SECOND, std::future::pending::<()>()).await, Err(Elapsed));
        clock.advance(SECOND);
        assert_eq!(clock.elapsed(began), 2 * SECOND);
    }

    #[tokio::test]
    async fn a_timeout_of_a_ready_future_is_not_listed_as_a_sleep() {
        let clock = Clock::manual();
        let is_listed = async { clock.until_sleeping(|left| !left.is_empty()).now_or_never() };
        assert_eq!(clock.timeout(SECOND, is_listed).await, Ok(None));
    }

    #[tokio::test]
    async fn the_maximum_duration_never_elapses() {
        for clock in [Clock::default(), Clock::manual()] {
            assert!(clock.after(Duration::MAX) > clock.now() + NEVER - SECOND);
            assert_eq!(clock.timeout(Duration::MAX, async { 7 }).await, Ok(7));
        }
    }
}
