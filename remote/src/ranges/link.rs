//! What the way to a service is like: how long a request takes, how fast bytes
//! come, and so over which gap it is better to read on.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A request no longer than this takes as long as a round trip does.
const SHORT_BYTES: u64 = 64 << 10;

/// How much a measurement counts that is better than the average.
const BETTER: f64 = 0.4;

/// How much one counts that is worse: it may have waited for its turn, or
/// been tried twice.
const WORSE: f64 = 0.1;

const LATENCY_SECS: (f64, f64) = (0.000_1, 10.0);
const BYTES_PER_SEC: (f64, f64) = (64.0 * 1024.0, 4.0 * 1024.0 * 1024.0 * 1024.0);

/// Gaps up to this are always read over: a request costs about as much.
pub(super) const LEAST_GAP_BYTES: u64 = 16 << 10;

/// Gaps beyond this are never read over: requests run side by side, so that
/// one more costs less than its latency.
pub(super) const LARGEST_GAP_BYTES: u64 = 1 << 20;

/// Latency and rate of one request, by exponentially weighted averages of
/// those that went well. Shared by all jobs of a client.
#[derive(Debug)]
pub struct Link {
    measured: Mutex<Measured>,
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    latency_secs: f64,
    bytes_per_sec: f64,
}

impl Default for Link {
    /// A bucket in the same part of the world: 40 ms, 16 MiB/s.
    fn default() -> Self {
        Self::starting_at(Duration::from_millis(40), 16 << 20)
    }
}

impl Link {
    /// A link of which this much is known.
    pub fn starting_at(latency: Duration, bytes_per_sec: u64) -> Self {
        let measured = Measured {
            latency_secs: within(latency.as_secs_f64(), LATENCY_SECS),
            bytes_per_sec: within(bytes_per_sec as f64, BYTES_PER_SEC),
        };
        Self { measured: Mutex::new(measured) }
    }

    /// Takes note of a request that went well.
    pub fn record(&self, bytes: u64, took: Duration) {
        let (bytes_f, took) = (bytes as f64, took.as_secs_f64());
        let mut measured = self.lock();
        let transfer_secs = bytes_f / measured.bytes_per_sec;
        if bytes <= SHORT_BYTES || took < measured.latency_secs {
            let latency = (took - transfer_secs).max(took / 2.0);
            let better = latency < measured.latency_secs;
            measured.latency_secs =
                within(average(measured.latency_secs, latency, better), LATENCY_SECS);
        }
        if bytes > SHORT_BYTES {
            // At least a sixteenth of the time was spent on the bytes.
            let secs = (took - measured.latency_secs).max(took / 16.0).max(1e-9);
            let rate = within(bytes_f / secs, BYTES_PER_SEC);
            let better = rate > measured.bytes_per_sec;
            measured.bytes_per_sec = average(measured.bytes_per_sec, rate, better);
        }
    }

    /// How long a request takes before its first byte comes.
    pub fn latency(&self) -> Duration {
        Duration::from_secs_f64(self.lock().latency_secs)
    }

    /// How fast the bytes of one request come.
    pub fn bytes_per_sec(&self) -> u64 {
        self.lock().bytes_per_sec as u64
    }

    /// The largest gap that takes no longer to read than another request
    /// would: latency × rate, from 16 KiB to 1 MiB.
    pub fn gap_bytes(&self) -> u64 {
        let measured = *self.lock();
        let gap = measured.latency_secs * measured.bytes_per_sec;
        (gap as u64).clamp(LEAST_GAP_BYTES, LARGEST_GAP_BYTES)
    }

    fn lock(&self) -> MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn within(value: f64, (least, most): (f64, f64)) -> f64 {
    value.clamp(least, most)
}

fn average(old: f64, new: f64, better: bool) -> f64 {
    let weight = if better { BETTER } else { WORSE };
    old + weight * (new - old)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(samples: &[(u64, u64)]) -> Link {
        let link = Link::default();
        for _ in 0..100 {
            for (bytes, millis) in samples {
                link.record(*bytes, Duration::from_millis(*millis));
            }
        }
        link
    }

    #[test]
    fn a_near_and_slow_service_is_asked_more_often_than_a_far_and_fast_one() {
        let near = after(&[(4 << 10, 1), (1 << 20, 101)]);
        assert!(near.latency() < Duration::from_millis(2));
        assert_eq!(near.gap_bytes(), LEAST_GAP_BYTES);
        let far = after(&[(4 << 10, 100), (10 << 20, 200)]);
        assert!(far.latency() > Duration::from_millis(80));
        assert!(far.bytes_per_sec() > 80 << 20);
        assert_eq!(far.gap_bytes(), LARGEST_GAP_BYTES);
    }

    #[test]
    fn nothing_that_is_measured_leads_beyond_the_limits() {
        for (bytes, millis) in [(0, 0), (u64::MAX, 0), (0, u64::MAX), (u64::MAX, u64::MAX)] {
            let link = after(&[(bytes, millis)]);
            assert!((LEAST_GAP_BYTES..=LARGEST_GAP_BYTES).contains(&link.gap_bytes()));
            assert!(link.latency() <= Duration::from_secs(10));
        }
    }

    #[test]
    fn one_request_that_waited_changes_little() {
        let link = after(&[(4 << 10, 20)]);
        link.record(4 << 10, Duration::from_millis(120));
        assert!(link.latency() < Duration::from_millis(35));
    }
}
