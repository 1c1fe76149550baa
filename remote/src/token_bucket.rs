//! A token bucket: the arithmetic of a rate limit, without a clock and without waiting.
//!
//! The bucket holds the tokens of one second and refills at a constant rate. It stores only the
//! instant at which it is full again, so a bucket of a client that left needs no update.

use std::time::{Duration, Instant};

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// A bucket of tokens, such as bytes or requests.
#[derive(Debug)]
pub struct TokenBucket {
    per_sec: u64,
    full_at: Instant,
}

impl TokenBucket {
    /// Creates a full bucket that refills with `per_sec` tokens a second, but at least one.
    pub fn new(per_sec: u64, now: Instant) -> Self {
        Self { per_sec: per_sec.max(1), full_at: now }
    }

    /// Returns the number of tokens that the bucket refills a second.
    pub fn per_sec(&self) -> u64 {
        self.per_sec
    }

    /// Returns the instant at which the bucket is full again.
    pub fn full_at(&self) -> Instant {
        self.full_at
    }

    /// Reserves tokens, and returns the instant from which the caller may use them: after the
    /// refill of all tokens reserved before.
    pub fn reserve(&mut self, tokens: u64, now: Instant) -> Instant {
        let start = self.full_at.max(now);
        self.full_at = start + self.refill_time(tokens);
        start
    }

    /// Takes one token; returns false if none is left.
    pub fn try_take(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.max(now) + self.refill_time(1);
        let may_take = full_at.duration_since(now) <= Duration::from_secs(1);
        if may_take {
            self.full_at = full_at;
        }
        may_take
    }

    /// Returns the time in which the bucket refills with `tokens`, rounded down.
    fn refill_time(&self, tokens: u64) -> Duration {
        let nanos = u128::from(tokens) * NANOS_PER_SEC / u128::from(self.per_sec);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_bucket_refills() {
        let now = Instant::now();
        for per_sec in [2, 7, 1000] {
            let mut bucket = TokenBucket::new(per_sec, now);
            let mut takes = |now, tokens: u64| {
                (0..tokens).all(|_| bucket.try_take(now)) && !bucket.try_take(now)
            };
            assert!(takes(now, per_sec), "{per_sec}");
            assert!(takes(now + Duration::from_millis(600), per_sec * 6 / 10), "{per_sec}");
            let much_later = now + Duration::from_secs(100);
            assert!(takes(much_later, per_sec), "the bucket holds the tokens of one second");
        }
    }

    #[test]
    fn reserved_tokens_come_one_after_the_other() {
        let now = Instant::now();
        let mut bucket = TokenBucket::new(1000, now);
        let ms = |ms| now + Duration::from_millis(ms);
        assert_eq!(bucket.reserve(500, now), now);
        assert_eq!(bucket.reserve(250, now), ms(500));
        assert_eq!(bucket.full_at(), ms(750));
        assert_eq!(bucket.reserve(1, ms(2000)), ms(2000));
    }
}
