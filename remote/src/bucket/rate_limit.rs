//! Rate limits for uploads and downloads.
//!
//! Each piece of a body waits before it is sent, so no request exceeds the limit for long. The
//! pieces of a retry count again. A body finds the limits of its client in the
//! [`CallContext`](super::call::CallContext).

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use super::requests::TransferLimits;
use crate::token_bucket::TokenBucket;

/// Maximum and minimum length of a piece under a limit, in bytes.
const PIECE_BYTES: (u64, u64) = (64 << 10, 1 << 10);

/// Minimum number of pieces a second. With it, each of several concurrent requests makes progress
/// every few seconds, as services expect.
const PIECES_A_SECOND: u64 = 4;

/// A rate limit in bytes a second that many requests share, or no limit.
#[derive(Debug)]
pub(super) struct RateLimit(Option<Mutex<TokenBucket>>);

impl RateLimit {
    /// Creates a limit of `rate` bytes a second; `None` means no limit.
    pub(super) fn new(rate: Option<u64>) -> Self {
        let bucket = |rate| Mutex::new(TokenBucket::new(rate, Instant::now().into_std()));
        Self(rate.map(bucket))
    }

    pub(super) fn rate(&self) -> Option<u64> {
        self.0.as_ref().map(|bucket| bucket.lock().per_sec())
    }

    /// Returns the length of a piece, or `None` without a limit.
    pub(super) fn piece(&self) -> Option<u64> {
        let (longest, shortest) = PIECE_BYTES;
        self.rate().map(|rate| (rate / PIECES_A_SECOND).clamp(shortest, longest))
    }

    /// Reserves `bytes`, and returns the time at which the caller may send them: after all bytes
    /// reserved before.
    pub(super) fn reserve(&self, bytes: u64) -> Instant {
        let now = Instant::now();
        match self.0.as_ref().filter(|_| bytes > 0) {
            Some(bucket) => bucket.lock().reserve(bytes, now.into_std()).into(),
            None => now,
        }
    }

    /// Reserves `bytes`, and waits until the caller may send them.
    pub(super) async fn take(&self, bytes: u64) {
        if self.0.is_some() {
            sleep_until(self.reserve(bytes)).await;
        }
    }
}

/// The rate limits of a client.
#[derive(Debug)]
pub(super) struct BandwidthLimits {
    pub(super) up: RateLimit,
    pub(super) down: RateLimit,
}

impl BandwidthLimits {
    /// Creates the limits, or returns `None` without limits.
    pub(super) fn new(limits: &TransferLimits) -> Option<Self> {
        let are_limited = limits.upload.or(limits.download).is_some();
        let (up, down) = (RateLimit::new(limits.upload), RateLimit::new(limits.download));
        are_limited.then_some(Self { up, down })
    }

    /// Returns the lower of the two limits.
    pub(super) fn rate(&self) -> Option<u64> {
        self.up.rate().into_iter().chain(self.down.rate()).min()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::bucket::call::{CallContext, call};

    #[tokio::test(start_paused = true)]
    async fn the_rate_limit_is_shared() {
        let throttle = RateLimit::new(Some(1000));
        let began = Instant::now();
        for _ in 0..4 {
            throttle.take(500).await;
        }
        assert_eq!(began.elapsed().as_millis(), 1500);
        RateLimit::new(None).take(u64::MAX).await;
        assert!(began.elapsed() < Duration::from_secs(2));
    }

    #[tokio::test]
    async fn bandwidth_limits_apply_per_client() {
        let piece = || CallContext::now().limits.and_then(|limits| limits.up.piece());
        let under = async |upload| {
            let limits = TransferLimits { upload, download: None };
            let limits = BandwidthLimits::new(&limits).map(Arc::new);
            call(|context| context.limits = limits, async { piece() }).await.0
        };
        assert_eq!(under(Some(1 << 30)).await, Some(64 << 10));
        assert_eq!(under(Some(40_000)).await, Some(10_000));
        assert_eq!(under(Some(1)).await, Some(1 << 10));
        assert_eq!(under(None).await, None);
        assert_eq!(piece(), None);
    }
}
