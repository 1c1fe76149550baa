//! Measures latency and bandwidth of the connection to a service. From these follows the largest
//! gap between two ranges for which one request is faster than two.

use std::{ops::RangeInclusive, time::Duration};

use parking_lot::Mutex;

/// A request up to this length measures the latency only.
const SHORT_BYTES: u64 = 64 << 10;

/// Weight in the average of a measurement that is better than the average.
const BETTER: f64 = 0.4;

/// Weight of a measurement that is worse. It is lower, because the request may have waited for a
/// permit or failed at first.
const WORSE: f64 = 0.1;

// Bounds of the averages.
const LATENCY_SECS: RangeInclusive<f64> = 0.000_1..=10.0;
const BYTES_PER_SEC: RangeInclusive<f64> = 64.0 * 1024.0..=4.0 * 1024.0 * 1024.0 * 1024.0;

/// Requests always read gaps up to this length, because an extra request costs about as much.
pub(super) const LEAST_GAP_BYTES: u64 = 16 << 10;

/// Requests never read longer gaps. They run concurrently, so an extra one costs less than its
/// latency.
pub(super) const LARGEST_GAP_BYTES: u64 = 1 << 20;

/// Latency and bandwidth of one request, as exponentially weighted averages over successful
/// requests. All jobs of a client share it.
#[derive(Debug)]
pub struct LinkEstimate {
    measured: Mutex<LinkAverages>,
}

#[derive(Clone, Copy, Debug)]
struct LinkAverages {
    latency_secs: f64,
    bytes_per_sec: f64,
}

impl Default for LinkEstimate {
    /// A bucket in a nearby region: 40 ms and 16 MiB/s.
    fn default() -> Self {
        Self::starting_at(Duration::from_millis(40), 16 << 20)
    }
}

impl LinkEstimate {
    /// Creates a link with initial values for both averages.
    pub fn starting_at(latency: Duration, bytes_per_sec: u64) -> Self {
        let measured = LinkAverages {
            latency_secs: within(latency.as_secs_f64(), &LATENCY_SECS),
            bytes_per_sec: within(bytes_per_sec as f64, &BYTES_PER_SEC),
        };
        Self { measured: Mutex::new(measured) }
    }

    /// Updates the averages with a successful request.
    pub fn record(&self, bytes: u64, took: Duration) {
        let (bytes_f, took) = (bytes as f64, took.as_secs_f64());
        let mut measured = self.measured.lock();
        let transfer_secs = bytes_f / measured.bytes_per_sec;
        if bytes <= SHORT_BYTES || took < measured.latency_secs {
            let latency = (took - transfer_secs).max(took / 2.0);
            let better = latency < measured.latency_secs;
            measured.latency_secs =
                within(average(measured.latency_secs, latency, better), &LATENCY_SECS);
        }
        if bytes > SHORT_BYTES {
            // Attribute at least a sixteenth of the time to the transfer, so that a request faster
            // than the average latency does not give an absurd rate.
            let secs = (took - measured.latency_secs).max(took / 16.0).max(1e-9);
            let rate = within(bytes_f / secs, &BYTES_PER_SEC);
            let better = rate > measured.bytes_per_sec;
            measured.bytes_per_sec = average(measured.bytes_per_sec, rate, better);
        }
    }

    /// Returns the largest gap that takes no longer to read than another request: latency ×
    /// bandwidth, clamped to 16 KiB … 1 MiB.
    pub fn gap_bytes(&self) -> u64 {
        let measured = *self.measured.lock();
        let gap = measured.latency_secs * measured.bytes_per_sec;
        (gap as u64).clamp(LEAST_GAP_BYTES, LARGEST_GAP_BYTES)
    }
}

fn within(value: f64, bounds: &RangeInclusive<f64>) -> f64 {
    value.clamp(*bounds.start(), *bounds.end())
}

fn average(old: f64, new: f64, better: bool) -> f64 {
    let weight = if better { BETTER } else { WORSE };
    old + weight * (new - old)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(samples: &[(u64, u64)]) -> LinkEstimate {
        let link = LinkEstimate::default();
        for _ in 0..100 {
            for (bytes, millis) in samples {
                link.record(*bytes, Duration::from_millis(*millis));
            }
        }
        link
    }

    fn latency(link: &LinkEstimate) -> Duration {
        Duration::from_secs_f64(link.measured.lock().latency_secs)
    }

    #[test]
    fn the_gap_limit_grows_with_latency_and_bandwidth() {
        let near = after(&[(4 << 10, 1), (1 << 20, 101)]);
        assert!(latency(&near) < Duration::from_millis(2));
        assert_eq!(near.gap_bytes(), LEAST_GAP_BYTES);
        let far = after(&[(4 << 10, 100), (10 << 20, 200)]);
        assert!(latency(&far) > Duration::from_millis(80));
        assert!(far.measured.lock().bytes_per_sec > f64::from(80 << 20));
        assert_eq!(far.gap_bytes(), LARGEST_GAP_BYTES);
    }

    #[test]
    fn extreme_measurements_stay_within_the_limits() {
        for (bytes, millis) in [(0, 0), (u64::MAX, 0), (0, u64::MAX), (u64::MAX, u64::MAX)] {
            let link = after(&[(bytes, millis)]);
            assert!((LEAST_GAP_BYTES..=LARGEST_GAP_BYTES).contains(&link.gap_bytes()));
            assert!(latency(&link) <= Duration::from_secs(10));
        }
    }

    #[test]
    fn one_slow_request_changes_the_latency_little() {
        let link = after(&[(4 << 10, 20)]);
        link.record(4 << 10, Duration::from_millis(120));
        assert!(latency(&link) < Duration::from_millis(35));
    }
}
