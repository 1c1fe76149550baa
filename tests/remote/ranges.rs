//! Planned reads and the seekable reader, on a service that counts requests and answers in
//! virtual time.

mod planner;
mod property;
mod reader;

use std::{ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use snap_remote::{
    bucket::{FailureReason, ServiceError},
    ranges::{FetchRange, NeededRange},
};

/// The requests that a service received.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// In order of arrival.
    pub(crate) requests: Vec<(String, Range<u64>)>,
    pub(crate) answered: Vec<bool>,
    pub(crate) cancelled: usize,
    pub(crate) most_at_once: usize,
    /// At the arrival of each request: the bytes held, and the number of other requests in
    /// flight.
    pub(crate) held: Vec<(u64, usize)>,
    /// The ranges that a job needs, and those that were taken.
    pub(crate) wanted: Vec<NeededRange>,
    pub(crate) taken: Vec<bool>,
}

impl Log {
    pub(crate) fn under_way(&self) -> usize {
        self.answered.iter().filter(|answered| !**answered).count() - self.cancelled
    }

    pub(crate) fn fetched_bytes(&self) -> u64 {
        self.requests.iter().map(|(_, range)| range.end - range.start).sum()
    }

    pub(crate) fn is_for(&self, request: usize, piece: usize) -> bool {
        let ((key, range), wanted) = (&self.requests[request], &self.wanted[piece]);
        let overlap = range.start < wanted.range.end && wanted.range.start < range.end;
        overlap && !wanted.range.is_empty() && **key == *wanted.key
    }

    fn held_bytes(&self) -> u64 {
        let is_held = |request: usize| {
            let untaken = |piece| self.is_for(request, piece) && !self.taken[piece];
            !self.answered[request] || (0..self.wanted.len()).any(untaken)
        };
        let held = (0..self.requests.len()).filter(|request| is_held(*request));
        held.map(|request| self.requests[request].1.end - self.requests[request].1.start).sum()
    }

    /// Returns true if no byte was requested twice.
    pub(crate) fn is_disjoint(&self) -> bool {
        let mut sorted = self.requests.clone();
        sorted.sort_by(|(a, x), (b, y)| (a, x.start).cmp(&(b, y.start)));
        sorted.windows(2).all(|pair| pair[0].0 != pair[1].0 || pair[0].1.end <= pair[1].1.start)
    }
}

/// Remote objects whose bytes are computed from their positions.
#[derive(Debug, Default)]
pub(crate) struct Far {
    latency: Duration,
    /// Random extra latency of some answers.
    spread: Duration,
    bytes_per_sec: Option<u64>,
    /// Requests that include one of these bytes fail.
    bad: Mutex<Vec<u64>>,
    log: Arc<Mutex<Log>>,
}

impl Far {
    pub(crate) fn new(latency_millis: u64) -> Self {
        Self { latency: Duration::from_millis(latency_millis), ..Self::default() }
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock()
    }

    pub(crate) fn requests(&self) -> usize {
        self.log().requests.len()
    }

    /// Returns the number of requests in flight, and of cancelled ones.
    pub(crate) fn unanswered(&self) -> (usize, usize) {
        let log = self.log();
        (log.under_way(), log.cancelled)
    }

    fn begin(&self, key: &str, range: &Range<u64>) -> Answering {
        let mut log = self.log();
        let others = log.under_way();
        log.requests.push((key.to_owned(), range.clone()));
        log.answered.push(false);
        log.most_at_once = log.most_at_once.max(others + 1);
        let held = log.held_bytes();
        log.held.push((held, others));
        Answering { log: Arc::clone(&self.log), request: log.requests.len() - 1 }
    }

    fn delay(&self, range: &Range<u64>) -> Duration {
        let transfer = self.bytes_per_sec.map_or(Duration::ZERO, |rate| {
            Duration::from_secs_f64((range.end - range.start) as f64 / rate as f64)
        });
        self.latency + transfer + self.spread * (range.start.wrapping_mul(0x9E37_79B9) % 7) as u32
    }
}

/// A request in flight.
struct Answering {
    log: Arc<Mutex<Log>>,
    request: usize,
}

impl Drop for Answering {
    fn drop(&mut self) {
        let mut log = self.log.lock();
        if !log.answered[self.request] {
            log.cancelled += 1;
        }
    }
}

impl FetchRange for Far {
    fn fetch<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes, ServiceError>> {
        Box::pin(async move {
            let answering = self.begin(key, &range);
            match self.delay(&range) {
                Duration::ZERO => tokio::task::yield_now().await,
                delay => tokio::time::sleep(delay).await,
            }
            self.log().answered[answering.request] = true;
            if self.bad.lock().iter().any(|bad| range.contains(bad)) {
                return Err(broken(key));
            }
            Ok(bytes_at(key, &range))
        })
    }
}

pub(crate) fn broken(key: &str) -> ServiceError {
    ServiceError::new("read", key, FailureReason::Temporary, "the line is dead".to_owned())
}

pub(crate) fn bytes_at(key: &str, range: &Range<u64>) -> Bytes {
    let seed = key.bytes().map(u64::from).sum::<u64>();
    let byte = |at: u64| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8 ^ seed as u8;
    range.clone().map(byte).collect()
}

pub(crate) fn wanted(key: &str, range: Range<u64>) -> NeededRange {
    NeededRange { key: key.into(), range }
}
