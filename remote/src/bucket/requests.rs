//! Requests with retries: the layer between a peer and its single attempts.
//!
//! A request waits for a permit of the `AdaptiveSemaphore`, which adapts concurrency to the
//! service, and for the byte rate limits. After a temporary error, the request waits for the pause
//! that the service asks for, or else with backoff and jitter, so that many clients do not retry at
//! the same time. A stop request interrupts a pause.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use tokio::time::sleep;

use super::{
    CancellationToken, FailureReason, ServiceError, UploadProgress,
    adaptive_semaphore::{AdaptiveSemaphore, RequestPermit},
    call::{CallContext, call},
    rate_limit::{BandwidthLimits, RateLimit},
    traffic::{RequestKind, Traffic},
};

/// Timeout for cleanup after a stop request, and for aborting uploads of killed processes. The next
/// push aborts the uploads that remain.
pub(super) const CLEARING: Duration = Duration::from_secs(5);

/// Timeout of one attempt at a store on this machine, which answers only after its work, such as a
/// check of all sent data.
const LOCAL_PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// Limits and timeouts of requests.
#[derive(Clone, Debug)]
pub struct RequestPolicy {
    /// Maximum number of attempts for each request, including the first.
    pub attempts: u32,
    /// The first pause between two attempts. It doubles after each attempt.
    pub pause: Duration,
    /// Maximum pause, unless the service asks for a longer one.
    pub longest_pause: Duration,
    /// Timeout of one attempt, plus the time that its bytes need at `least_rate`.
    pub timeout: Duration,
    /// Lowest expected transfer rate, in bytes a second.
    pub least_rate: u64,
    /// Total time for retries at times that the service requests. Such retries do not count as
    /// attempts.
    pub busy: Duration,
    /// Maximum number of concurrent requests. With 192, 500 scattered ranges take three round
    /// trips.
    pub requests: usize,
    /// The rate limits.
    pub limits: TransferLimits,
}

impl Default for RequestPolicy {
    fn default() -> Self {
        Self {
            attempts: 6,
            pause: Duration::from_millis(200),
            longest_pause: Duration::from_secs(20),
            timeout: Duration::from_secs(30),
            least_rate: 64 << 10,
            busy: Duration::from_secs(300),
            requests: 192,
            limits: TransferLimits::default(),
        }
    }
}

/// Rate limits in bytes a second; `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferLimits {
    pub upload: Option<u64>,
    pub download: Option<u64>,
}

/// Requests to one place, with retries, limits and counters. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    policy: Arc<RequestPolicy>,
    permits: Arc<AdaptiveSemaphore>,
    limits: Option<Arc<BandwidthLimits>>,
    stop: CancellationToken,
    traffic: Arc<Traffic>,
    /// For error messages.
    location: Arc<str>,
    /// Timeout of each attempt, whatever its bytes; `None` for the timeout of the policy.
    patience: Option<Duration>,
    /// True if requests and bytes are counted and limited here: one request for each attempt. False
    /// if the layer below does that, because it knows better.
    is_meter: bool,
}

impl Requests {
    /// Creates the requests to a place that allows `most` at a time. The layer below counts them in
    /// `traffic`.
    pub(crate) fn new(policy: RequestPolicy, most: usize, traffic: Arc<Traffic>) -> Self {
        let permits = Arc::new(AdaptiveSemaphore::new(policy.requests.min(most)));
        let limits = BandwidthLimits::new(&policy.limits).map(Arc::new);
        // All concurrent requests share the rate limit, so each may get only a fraction.
        let rate = limits.as_ref().and_then(|limits| limits.rate());
        let shared = rate.map_or(u64::MAX, |rate| rate / policy.requests.max(1) as u64);
        let least_rate = policy.least_rate.min(shared);
        Self {
            policy: Arc::new(RequestPolicy { least_rate, ..policy }),
            permits,
            limits,
            stop: CancellationToken::default(),
            traffic,
            location: "".into(),
            patience: None,
            is_meter: false,
        }
    }

    /// Sets the location that errors name.
    #[must_use]
    pub(crate) fn with_location(self, location: &str) -> Self {
        Self { location: location.into(), ..self }
    }

    /// Sets the stop flag, which interrupts every request and pause.
    #[must_use]
    pub(crate) fn with_cancellation(self, stop: CancellationToken) -> Self {
        Self { stop, ..self }
    }

    /// Makes requests wait for a store on this machine as long as it works.
    #[must_use]
    pub(crate) fn of_this_machine(self) -> Self {
        Self { patience: Some(LOCAL_PATIENCE), ..self.metered() }
    }

    /// Counts requests and bytes, and applies the rate limits, in place of the layer below.
    #[must_use]
    pub(super) fn metered(self) -> Self {
        Self { is_meter: true, ..self }
    }

    /// Returns the counters.
    pub(crate) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Returns the stop flag.
    pub(super) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Returns the limits.
    pub(crate) fn policy(&self) -> &RequestPolicy {
        &self.policy
    }

    /// Runs a cleanup. After a stop request, makes one more attempt, within [`CLEARING`].
    pub(super) async fn clean_up<F>(
        &self,
        kind: RequestKind,
        key: &str,
        mut attempt: impl FnMut() -> F,
    ) -> Result<(), ServiceError>
    where
        F: Future<Output = Result<(), ServiceError>>,
    {
        match self.retry(kind, key, 0, &mut attempt).await {
            Err(error) if error.reason == FailureReason::Stopped => {
                let cleared = tokio::time::timeout(CLEARING, attempt()).await;
                cleared.unwrap_or(Err(error)).map_err(|error| self.at_location(error))
            }
            done => done,
        }
    }

    /// Waits for `pause`.
    ///
    /// # Errors
    /// [`FailureReason::Stopped`].
    pub(crate) async fn pause(&self, pause: Duration) -> Result<(), ServiceError> {
        self.stop
            .run_until_cancelled(sleep(pause))
            .await
            .ok_or_else(|| self.cancelled_error("wait", ""))
    }

    /// Runs `work` to its end, even after a stop request.
    pub(crate) async fn shielded<T>(&self, work: impl Future<Output = T>) -> T {
        call(|context| context.is_shielded = true, work).await.0
    }

    /// Checks that the uploads of `progress` go on.
    ///
    /// # Errors
    /// [`FailureReason::Stopped`].
    pub(crate) fn check_not_stopped(
        &self,
        key: &str,
        progress: &UploadProgress,
    ) -> Result<(), ServiceError> {
        match progress.is_stopped() {
            true => Err(self.cancelled_error("write", key)),
            false => Ok(()),
        }
    }

    /// Counts received bytes, and waits until the rate limit allows more, if the layer below does
    /// neither.
    pub(crate) async fn received(&self, bytes: u64) {
        if self.is_meter {
            self.traffic.received(bytes);
            // The next attempt notices a stop request.
            let wait = self.take(|limits| &limits.down, bytes);
            let _ = self.stop.run_until_cancelled(wait).await;
        }
    }

    /// Waits until a rate limit allows `bytes` more.
    async fn take(&self, way: impl Fn(&BandwidthLimits) -> &RateLimit, bytes: u64) {
        if let Some(limits) = &self.limits {
            way(limits).take(bytes).await;
        }
    }

    pub(super) fn cancelled_error(&self, operation: &'static str, key: &str) -> ServiceError {
        self.at_location(ServiceError::new(operation, key, FailureReason::Stopped, String::new()))
    }

    pub(crate) fn at_location(&self, error: ServiceError) -> ServiceError {
        ServiceError { location: self.location.to_string(), ..error }
    }

    /// Makes attempts until one succeeds or fails for good. `bytes` are those that an attempt moves.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt, with the location.
    pub(crate) async fn retry<T, F>(
        &self,
        kind: RequestKind,
        key: &str,
        bytes: u64,
        attempt: impl FnMut() -> F,
    ) -> Result<T, ServiceError>
    where
        F: Future<Output = Result<T, ServiceError>>,
    {
        self.retry_until_stopped(self.policy.attempts, kind, key, bytes, attempt).await
    }

    /// Runs the retry loop until it ends or the client is stopped.
    pub(crate) async fn retry_until_stopped<T, F>(
        &self,
        tries: u32,
        kind: RequestKind,
        key: &str,
        bytes: u64,
        attempt: impl FnMut() -> F,
    ) -> Result<T, ServiceError>
    where
        F: Future<Output = Result<T, ServiceError>>,
    {
        let work = self.retry_loop(tries, kind, key, bytes, attempt);
        self.stop
            .run_until_cancelled(work)
            .await
            .unwrap_or_else(|| Err(self.cancelled_error(kind.operation(), key)))
    }

    /// The retry loop: each attempt has a permit and a timeout, and a pause follows it.
    async fn retry_loop<T, F>(
        &self,
        tries: u32,
        kind: RequestKind,
        key: &str,
        bytes: u64,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, ServiceError>
    where
        F: Future<Output = Result<T, ServiceError>>,
    {
        let (operation, is_sent) = (kind.operation(), self.is_meter && kind == RequestKind::Put);
        if is_sent {
            self.take(|limits| &limits.up, bytes).await;
        }
        let needed = self.policy.timeout + transfer_time(bytes, self.policy.least_rate);
        let patience = self.patience.unwrap_or(needed);
        let mut pause = self.policy.pause;
        // Returns the maximum time that `tries` more attempts take.
        let left = |pause: Duration, tries: u32| {
            let pauses = (0..tries)
                .map(|n| (pause * 2_u32.saturating_pow(n)).min(self.policy.longest_pause));
            patience * (tries + 1) + pauses.sum::<Duration>()
        };
        let all = left(pause, tries.saturating_sub(1));
        let waits = self.traffic.pending();
        let wait =
            self.patience.is_none().then(|| waits.begin(operation, key, &self.location, all));
        let mut number = 0;
        let mut busy = RetryAfterLimit::new(self.policy.busy);
        loop {
            let turn = self.permits.acquire().await;
            let in_flight = self.traffic.begin();
            // Boxed, because each async function around a future holds it twice.
            let attempt = Box::pin(attempt());
            let context = |context: &mut CallContext| {
                context.limits.clone_from(&self.limits);
                context.is_refused = busy.is_refused();
            };
            if self.is_meter {
                self.traffic.request(kind);
            }
            let outcome = tokio::time::timeout(patience, call(context, attempt)).await;
            drop(in_flight);
            let timed_out = |_| Err(timeout_error(operation, key, patience));
            let error = match outcome.map_or_else(timed_out, |(result, _)| result) {
                Ok(done) => {
                    turn.succeeded();
                    if is_sent {
                        self.traffic.sent(bytes);
                    }
                    return Ok(done);
                }
                Err(error) => error,
            };
            record_outcome(turn, error.reason);
            // Retry at the time that the service requests, within the limit of `busy`. A caller
            // that allows only one attempt handles such requests itself.
            let is_busy = tries > 1 && busy.may_retry(&error);
            number += u32::from(!is_busy);
            if !error.reason.is_temporary() || number >= tries {
                return Err(self.at_location(error));
            }
            self.traffic.retry();
            let rest = left(pause, tries - number - 1);
            if let Some(wait) = &wait {
                wait.failed(if is_busy { busy.remaining() + patience } else { rest }, is_busy);
            }
            sleep(error.retry_after.unwrap_or_else(|| jittered(pause))).await;
            if !is_busy {
                pause = (pause * 2).min(self.policy.longest_pause);
            }
        }
    }
}

/// The total time limit for retries that a service asks for.
struct RetryAfterLimit {
    patience: Duration,
    since: Option<tokio::time::Instant>,
}

impl RetryAfterLimit {
    fn new(patience: Duration) -> Self {
        Self { patience, since: None }
    }

    /// Returns true if the service asks for a retry within the remaining time. Starts the time
    /// limit at the first such error.
    fn may_retry(&mut self, error: &ServiceError) -> bool {
        let Some(wait) = error.retry_after.filter(|_| error.reason.is_temporary()) else {
            return false;
        };
        self.since.get_or_insert_with(tokio::time::Instant::now);
        wait <= self.remaining()
    }

    /// Returns the remaining time.
    fn remaining(&self) -> Duration {
        let waited = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        self.patience.saturating_sub(waited)
    }

    /// Returns true if the service has asked to come back later at least once.
    fn is_refused(&self) -> bool {
        self.since.is_some()
    }
}

fn record_outcome(turn: RequestPermit, what: FailureReason) {
    if what == FailureReason::Busy {
        turn.throttled();
    }
}

fn transfer_time(bytes: u64, rate: u64) -> Duration {
    Duration::from_secs(bytes / rate.max(1))
}

fn timeout_error(operation: &'static str, key: &str, patience: Duration) -> ServiceError {
    let message = format!("no reply within {} s", patience.as_secs());
    ServiceError::new(operation, key, FailureReason::Temporary, message)
}

/// Returns a random pause between half of `pause` and all of it.
pub(crate) fn jittered(pause: Duration) -> Duration {
    // Each `RandomState` has other random keys, so it is a source of randomness.
    let random = RandomState::new().hash_one(std::process::id()) % 1024;
    pause / 2 + pause.mul_f64(random as f64 / 2048.0)
}
