//! Bytes a second at most.
//!
//! Bodies take their time piece by piece as they go, so that no single request
//! goes at the full rate of the line, and one that is made again takes its time
//! again. How a body comes to know of its client's limits: a client makes each
//! attempt under its [`Pace`].

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

/// Longest and shortest piece that goes at a time under a limit, in bytes.
const PIECE_BYTES: (u64, u64) = (64 << 10, 1 << 10);

/// Pieces in which the bytes of a second go at least: each of several requests
/// under way then moves every few seconds, as services want.
const PIECES_A_SECOND: u64 = 4;

tokio::task_local! {
    static PACE: Arc<Pace>;
}

/// A limit of bytes a second that many share, or none.
#[derive(Debug)]
pub(super) struct Throttle {
    rate: Option<u64>,
    /// When all that was let through will have been paid for.
    paid: Mutex<Option<Instant>>,
}

impl Throttle {
    /// At most `rate` bytes a second; `None` for as many as there are.
    pub(super) fn new(rate: Option<u64>) -> Self {
        Self { rate: rate.map(|rate| rate.max(1)), paid: Mutex::new(None) }
    }

    /// The limit.
    pub(super) fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// How many bytes are to go at a time, if there is a limit.
    pub(super) fn piece(&self) -> Option<u64> {
        let (longest, shortest) = PIECE_BYTES;
        self.rate.map(|rate| (rate / PIECES_A_SECOND).clamp(shortest, longest))
    }

    /// Takes `bytes`, which may go at the moment that is returned: when what
    /// others took has had its time.
    pub(super) fn reserve(&self, bytes: u64) -> Instant {
        let now = Instant::now();
        let Some(rate) = self.rate.filter(|_| bytes > 0) else { return now };
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        let start = paid.map_or(now, |paid| paid.max(now));
        *paid = Some(start + Duration::from_secs_f64(bytes as f64 / rate as f64));
        start
    }

    /// Takes `bytes`, and waits until they may go.
    pub(super) async fn take(&self, bytes: u64) {
        if self.rate.is_some() {
            sleep_until(self.reserve(bytes)).await;
        }
    }
}

/// How fast the bytes of a client may go.
#[derive(Debug)]
pub(super) struct Pace {
    pub(super) up: Throttle,
    pub(super) down: Throttle,
}

impl Pace {
    /// With a limit each way, or none.
    pub(super) fn new((up, down): (Option<u64>, Option<u64>)) -> Self {
        Self { up: Throttle::new(up), down: Throttle::new(down) }
    }

    /// The lower of the limits.
    pub(super) fn rate(&self) -> Option<u64> {
        self.up.rate().into_iter().chain(self.down.rate()).min()
    }

    /// That of the client whose attempt this is a part of, if it has a limit.
    pub(super) fn now() -> Option<Arc<Self>> {
        PACE.try_with(Arc::clone).ok()
    }

    /// Makes an attempt, which keeps to it.
    pub(super) async fn during<T>(pace: Option<Arc<Self>>, attempt: impl Future<Output = T>) -> T {
        match pace.filter(|pace| pace.rate().is_some()) {
            Some(pace) => PACE.scope(pace, attempt).await,
            None => attempt.await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bytes_take_their_time_for_all_together() {
        let throttle = Throttle::new(Some(1000));
        let began = Instant::now();
        for _ in 0..4 {
            throttle.take(500).await;
        }
        assert_eq!(began.elapsed().as_millis(), 1500);
        Throttle::new(None).take(u64::MAX).await;
        assert!(began.elapsed() < Duration::from_secs(2));
    }

    #[tokio::test]
    async fn an_attempt_knows_the_limits_of_its_client_only() {
        let piece = || Pace::now().and_then(|pace| pace.up.piece());
        let of = |up| Some(Arc::new(Pace::new((up, None))));
        assert_eq!(Pace::during(of(Some(1 << 30)), async { piece() }).await, Some(64 << 10));
        assert_eq!(Pace::during(of(Some(40_000)), async { piece() }).await, Some(10_000));
        assert_eq!(Pace::during(of(Some(1)), async { piece() }).await, Some(1 << 10));
        assert_eq!(Pace::during(of(None), async { piece() }).await, None);
        assert_eq!(piece(), None);
    }
}
