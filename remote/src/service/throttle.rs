//! Bytes a second at most.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

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

    /// Waits until what others took has had its time, and takes `bytes`.
    pub(super) async fn take(&self, bytes: u64) {
        let Some(rate) = self.rate.filter(|_| bytes > 0) else { return };
        let start = {
            let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let start = paid.map_or(now, |paid| paid.max(now));
            *paid = Some(start + Duration::from_secs_f64(bytes as f64 / rate as f64));
            start
        };
        sleep_until(start).await;
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
}
