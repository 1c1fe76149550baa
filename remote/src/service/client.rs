//! A client that retries requests with exponential backoff.
//!
//! A request waits for a permit of the `AdaptiveSemaphore`, which adapts concurrency to the
//! service, and for the byte rate limits. After a temporary error, the client waits for the pause
//! that the service requests, or else with backoff and jitter, so that many clients do not retry at
//! the same time. A stop request interrupts a pause.
//!
//! If the reply to a write is lost, its result is unknown. The key of an object is its hash, so
//! another write is idempotent. A caller that swaps a ref has to read it back (see `refs`).

mod listing;
mod parts;
mod resumed;

use std::{
    hash::{BuildHasher, RandomState},
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{Mutex, OnceCell, Semaphore},
    time::sleep,
};

use super::{
    CancellationToken, ConditionalWrites, FailureReason, ObjectVersion, Service, ServiceError,
    StoredObject, UploadProgress, WriteCondition,
    adaptive_semaphore::{AdaptiveSemaphore, RequestPermit},
    check_hash,
    rate_limit::BandwidthLimits,
    shielded,
    traffic::Traffic,
    transport::asking_first,
    unreadable_file,
    upload::{PermittedBytes, read_part},
    upload_notes::UploadNotes,
};

/// Maximum length of a file for an upload in one request, even if the service supports multipart
/// uploads. A push of a few MiB then needs one request instead of five.
pub const WHOLE_BYTES: u64 = 48 << 20;

/// Length of one part of a multipart upload.
pub const PART_BYTES: u64 = 16 << 20;

/// Limit for the file bytes in memory during uploads, in pages.
const HELD_PAGES: u64 = (96 << 20) / PAGE_BYTES;

/// Bytes of a page, the unit of one permit of that limit.
const PAGE_BYTES: u64 = 64 << 10;

/// Maximum number of concurrent multipart uploads. Each holds one part while it waits for memory
/// for the next, so [`HELD_PAGES`] must have room for one more part: otherwise uploads could
/// deadlock.
const UPLOADS: usize = 2;

/// Timeout for cleanup after a stop request, and for aborting uploads of killed processes. The next
/// push aborts the uploads that remain.
const CLEARING: Duration = Duration::from_secs(5);

/// Timeout of one attempt at a store on this machine.
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

/// A service with retries, rate limits and counters.
#[derive(Clone, Debug)]
pub struct Client {
    service: Arc<dyn Service>,
    policy: Arc<RequestPolicy>,
    permits: Arc<AdaptiveSemaphore>,
    rate_limits: Arc<BandwidthLimits>,
    stop: CancellationToken,
    traffic: Arc<Traffic>,
    /// For error messages.
    location: Arc<str>,
    /// Permits for file bytes in memory, one for each page of [`PAGE_BYTES`].
    held: Arc<Semaphore>,
    /// Permits for multipart uploads.
    uploads: Arc<Semaphore>,
    notes: UploadNotes,
    /// Set once this client has aborted the uploads of killed processes.
    has_aborted_left: Arc<OnceCell<()>>,
}

impl Client {
    /// Creates a client of `service` that counts requests and retries in `traffic`.
    pub fn new(service: Arc<dyn Service>, policy: RequestPolicy, traffic: Arc<Traffic>) -> Self {
        let gauge =
            Arc::new(AdaptiveSemaphore::new(policy.requests.min(service.max_concurrency())));
        let pace = Arc::new(BandwidthLimits::new(&policy.limits));
        // All concurrent requests share the rate limit, so each may get only a fraction.
        let shared = pace.rate().map_or(u64::MAX, |rate| rate / policy.requests.max(1) as u64);
        let policy = RequestPolicy { least_rate: policy.least_rate.min(shared), ..policy };
        Self {
            service,
            policy: Arc::new(policy),
            permits: gauge,
            rate_limits: pace,
            stop: CancellationToken::default(),
            traffic,
            location: "".into(),
            held: Arc::new(Semaphore::new(HELD_PAGES as usize)),
            uploads: Arc::new(Semaphore::new(UPLOADS)),
            notes: UploadNotes::default(),
            has_aborted_left: Arc::default(),
        }
    }

    /// Sets the location that errors name.
    #[must_use]
    pub fn with_location(self, location: &str) -> Self {
        Self { location: location.into(), ..self }
    }

    /// Sets the stop flag, which interrupts every request and pause.
    #[must_use]
    pub fn with_cancellation(self, stop: CancellationToken) -> Self {
        Self { stop, ..self }
    }

    /// Records multipart uploads in the cache of a remote.
    #[must_use]
    pub(crate) fn with_upload_notes(self, cache: &Path) -> Self {
        Self { notes: UploadNotes::of(cache), ..self }
    }

    /// Returns the counters.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Returns the conditions of a write that the service honours.
    pub fn conditions(&self) -> ConditionalWrites {
        self.service.conditions()
    }

    /// Returns the conditions that a write can carry, even if the service ignores them.
    pub fn takes_conditions(&self) -> ConditionalWrites {
        self.service.takes_conditions()
    }

    /// Returns true if the service may claim to honour conditions without doing so.
    pub fn must_prove_conditions(&self) -> bool {
        self.service.must_prove_conditions()
    }

    /// Returns true if the service itself refuses a ref whose name is a parent folder of another
    /// ref's name, or the reverse.
    pub fn refuses_conflicting_refs(&self) -> bool {
        self.service.refuses_conflicting_refs()
    }

    /// Returns true if no object can have the name of a folder of another object.
    pub fn has_folders(&self) -> bool {
        self.service.has_folders()
    }

    /// Returns true if a client must create a store before it writes anything else to it.
    pub fn must_create_store_first(&self) -> bool {
        self.service.must_create_store_first()
    }

    /// Reads a range of an object.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn read(&self, key: &str, range: Range<u64>) -> Result<StoredObject, ServiceError> {
        let bytes = range.end.saturating_sub(range.start);
        let object =
            self.retry("read", key, bytes, || self.service.read(key, range.clone())).await?;
        self.limit_download(object.bytes.len() as u64).await;
        Ok(object)
    }

    /// Reads a whole object of at most `most` bytes.
    ///
    /// # Errors
    /// [`FailureReason::TooLong`], or another [`ServiceError`] of the last attempt.
    pub async fn read_whole(&self, key: &str, most: u64) -> Result<StoredObject, ServiceError> {
        let read = || self.service.read_whole(key, most);
        let object = self.retry("read", key, most, read).await?;
        self.limit_download(object.bytes.len() as u64).await;
        Ok(object)
    }

    /// Reads a whole object of at most `most` bytes, or returns `None` if it does not exist.
    ///
    /// # Errors
    /// As [`Client::read_whole`].
    pub async fn find(&self, key: &str, most: u64) -> Result<Option<StoredObject>, ServiceError> {
        match self.read_whole(key, most).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.reason == FailureReason::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes an object. After a lost reply, [`FailureReason::Conflict`] may mean that an earlier
    /// attempt succeeded.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn write(
        &self,
        key: &str,
        bytes: Bytes,
        when: WriteCondition,
    ) -> Result<Option<ObjectVersion>, ServiceError> {
        let length = bytes.len() as u64;
        self.limit_upload(length).await;
        let write = || self.service.write(key, bytes.clone(), when.clone());
        self.retry("write", key, length, write).await
    }

    /// Writes an object. Counts attempts without a definite answer in `open`, because the service
    /// may still carry them out later.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn write_counted(
        &self,
        key: &str,
        bytes: Bytes,
        when: WriteCondition,
        open: &AtomicUsize,
    ) -> Result<Option<ObjectVersion>, ServiceError> {
        let length = bytes.len() as u64;
        self.limit_upload(length).await;
        let write = || async {
            // An attempt that times out stays counted.
            open.fetch_add(1, Ordering::SeqCst);
            let written = self.service.write(key, bytes.clone(), when.clone()).await;
            if written.as_ref().err().is_none_or(|error| error.reason.is_settled()) {
                open.fetch_sub(1, Ordering::SeqCst);
            }
            written
        };
        self.retry("write", key, length, write).await
    }

    /// Returns the length of an object, or `None` if it does not exist.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn length(&self, key: &str) -> Result<Option<u64>, ServiceError> {
        self.retry("stat", key, 0, || self.service.length(key)).await
    }

    /// Removes an object, if it exists.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn remove(&self, key: &str) -> Result<(), ServiceError> {
        self.retry("remove", key, 0, || self.service.remove(key)).await
    }

    /// Removes an object that must not remain. After a stop request, still makes one attempt, with
    /// a short timeout.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn remove_leftover(&self, key: &str) -> Result<(), ServiceError> {
        self.clean_up("remove", key, || self.service.remove(key)).await
    }

    /// Runs a cleanup. After a stop request, makes one more attempt, within [`CLEARING`].
    async fn clean_up<F>(
        &self,
        operation: &'static str,
        key: &str,
        mut attempt: impl FnMut() -> F,
    ) -> Result<(), ServiceError>
    where
        F: Future<Output = Result<(), ServiceError>>,
    {
        match self.retry(operation, key, 0, &mut attempt).await {
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
    pub async fn pause(&self, pause: Duration) -> Result<(), ServiceError> {
        self.stop
            .run_until_cancelled(sleep(pause))
            .await
            .ok_or_else(|| self.cancelled_error("wait", ""))
    }

    /// Runs `work` to its end, even after a stop request.
    pub async fn shielded<T>(&self, work: impl Future<Output = T>) -> T {
        shielded(work).await
    }

    /// Removes objects; skips those that do not exist.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt; some objects may be gone then.
    pub async fn remove_many(&self, keys: &[String]) -> Result<(), ServiceError> {
        let first = keys.first().map_or("", String::as_str);
        self.retry("remove", first, 0, || self.service.remove_many(keys)).await
    }

    /// Returns the maximum number of objects that [`Client::remove_many`] removes in one request.
    pub fn max_removals_per_request(&self) -> usize {
        self.service.max_removals_per_request()
    }

    /// Returns true if the upload of a file of this length may be resumable.
    pub fn may_resume(&self, key: &str, length: u64) -> bool {
        self.service.resumable_upload(key, length).is_some()
    }

    /// Returns true if the client uploads a file of this length in parts.
    pub fn takes_parts(&self, key: &str, length: u64) -> bool {
        length > WHOLE_BYTES && self.service.upload(key, Arc::default()).is_some()
    }

    /// Writes a file as an object, and replaces an existing one.
    ///
    /// Uploads a file longer than [`WHOLE_BYTES`] in parts, or as a stream if the service has no
    /// multipart uploads. Resumes an interrupted upload if the service keeps partial uploads.
    /// Aborts a failed multipart upload. All concurrent uploads together hold a small number of
    /// parts in memory.
    ///
    /// The client hashes a pack during the read, except for a snap server, which itself hashes
    /// received packs.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt; [`FailureReason::Damaged`] if a pack does not hash to
    /// its name; [`FailureReason::Stopped`] if `progress` was stopped.
    pub async fn write_file(
        &self,
        key: &str,
        path: &Path,
        length: u64,
        progress: &UploadProgress,
    ) -> Result<(), ServiceError> {
        if let Some(resume) = self.service.resumable_upload(key, length)
            && self.write_resumed(resume, key, path, length, progress).await?
        {
            return Ok(());
        }
        if length <= WHOLE_BYTES {
            let bytes = self.read_file_part(key, path, 0..length).await?;
            // Hash the same bytes that the request sends.
            check_hash(key, blake3::hash(&bytes)).map_err(|error| self.at_location(error))?;
            self.check_not_stopped(key, progress)?;
            self.write(key, bytes, WriteCondition::Always).await?;
            progress.advance(length);
            return Ok(());
        }
        let _turn = self.uploads.acquire().await.expect("never closed");
        self.check_not_stopped(key, progress)?;
        let note = Arc::new(self.notes.note(key));
        let Some(upload) = self.service.upload(key, Arc::clone(&note)) else {
            self.limit_upload(length).await;
            let write = || self.service.write_file(key, path, length);
            self.retry("write", key, length, write).await?;
            progress.advance(length);
            return Ok(());
        };
        self.abort_abandoned_uploads().await;
        let upload = Mutex::new(upload);
        let parts = self.write_parts(key, &upload, path, length, progress);
        let result = self
            .stop
            .run_until_cancelled(parts)
            .await
            .unwrap_or_else(|| Err(self.cancelled_error("write", key)));
        let ended = match &result {
            Ok(()) => Ok(()),
            Err(_) => {
                let abort = || async { upload.lock().await.abort().await };
                self.clean_up("write", key, abort).await
            }
        };
        // The next push aborts an upload that remains.
        if ended.is_ok() {
            note.remove();
        }
        result
    }

    /// Reads a part of a file as soon as memory for it is free.
    async fn read_file_part(
        &self,
        key: &str,
        path: &Path,
        range: Range<u64>,
    ) -> Result<Bytes, ServiceError> {
        let pages = (range.end - range.start).div_ceil(PAGE_BYTES) as u32;
        let room = Arc::clone(&self.held).acquire_many_owned(pages).await.expect("never closed");
        let read = read_part(path, range).await;
        let bytes = read.map_err(|error| self.at_location(unreadable_file(key, &error)))?;
        Ok(Bytes::from_owner(PermittedBytes(bytes, room)))
    }

    fn check_not_stopped(&self, key: &str, progress: &UploadProgress) -> Result<(), ServiceError> {
        match progress.is_stopped() {
            true => Err(self.cancelled_error("write", key)),
            false => Ok(()),
        }
    }

    /// Waits until the rate limit allows `bytes` more, unless the service applies it itself.
    async fn limit_upload(&self, bytes: u64) {
        if !self.service.applies_rate_limits() {
            // The next attempt notices a stop request.
            let _ = self.stop.run_until_cancelled(self.rate_limits.up.take(bytes)).await;
        }
    }

    /// Waits like [`Self::limit_upload`], for received bytes.
    async fn limit_download(&self, bytes: u64) {
        if !self.service.applies_rate_limits() {
            let _ = self.stop.run_until_cancelled(self.rate_limits.down.take(bytes)).await;
        }
    }

    fn cancelled_error(&self, operation: &'static str, key: &str) -> ServiceError {
        self.at_location(ServiceError::new(operation, key, FailureReason::Stopped, String::new()))
    }

    fn at_location(&self, error: ServiceError) -> ServiceError {
        ServiceError { location: self.location.to_string(), ..error }
    }

    async fn retry<T, F>(
        &self,
        operation: &'static str,
        key: &str,
        bytes: u64,
        attempt: impl FnMut() -> F,
    ) -> Result<T, ServiceError>
    where
        F: Future<Output = Result<T, ServiceError>>,
    {
        self.retry_until_stopped(self.policy.attempts, operation, key, bytes, attempt).await
    }

    /// Runs the retry loop until it ends or the client is stopped.
    async fn retry_until_stopped<T, F>(
        &self,
        tries: u32,
        operation: &'static str,
        key: &str,
        bytes: u64,
        attempt: impl FnMut() -> F,
    ) -> Result<T, ServiceError>
    where
        F: Future<Output = Result<T, ServiceError>>,
    {
        let work = self.retry_loop(tries, operation, key, bytes, attempt);
        self.stop
            .run_until_cancelled(work)
            .await
            .unwrap_or_else(|| Err(self.cancelled_error(operation, key)))
    }

    /// The retry loop: each attempt has a permit and a timeout, and a pause follows it.
    async fn retry_loop<T, F>(
        &self,
        tries: u32,
        operation: &'static str,
        key: &str,
        bytes: u64,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, ServiceError>
    where
        F: Future<Output = Result<T, ServiceError>>,
    {
        // A store on this machine answers only after its work, such as a check of all sent data.
        let is_here = self.service.local_store().is_some();
        let patience = match is_here {
            true => LOCAL_PATIENCE,
            false => self.policy.timeout + transfer_time(bytes, self.policy.least_rate),
        };
        let mut pause = self.policy.pause;
        // Returns the maximum time that `tries` more attempts take.
        let left = |pause: Duration, tries: u32| {
            let pauses = (0..tries)
                .map(|n| (pause * 2_u32.saturating_pow(n)).min(self.policy.longest_pause));
            patience * (tries + 1) + pauses.sum::<Duration>()
        };
        let all = left(pause, tries.saturating_sub(1));
        let waits = self.traffic.pending();
        let wait = (!is_here).then(|| waits.begin(operation, key, &self.location, all));
        let mut number = 0;
        let mut busy = RetryAfterLimit::new(self.policy.busy);
        loop {
            let turn = self.permits.acquire().await;
            let attempt = asking_first(busy.is_refused(), attempt());
            let attempt = BandwidthLimits::during(Some(Arc::clone(&self.rate_limits)), attempt);
            let outcome = tokio::time::timeout(patience, attempt).await;
            let result = outcome.unwrap_or_else(|_| Err(timeout_error(operation, key, patience)));
            let error = match result {
                Ok(done) => {
                    turn.succeeded();
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
pub(super) struct RetryAfterLimit {
    patience: Duration,
    since: Option<tokio::time::Instant>,
}

impl RetryAfterLimit {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, since: None }
    }

    /// Returns true if the service asks for a retry within the remaining time. Starts the time
    /// limit at the first such error.
    pub(super) fn may_retry(&mut self, error: &ServiceError) -> bool {
        let Some(wait) = error.retry_after.filter(|_| error.reason.is_temporary()) else {
            return false;
        };
        self.since.get_or_insert_with(tokio::time::Instant::now);
        wait <= self.remaining()
    }

    /// Returns the remaining time.
    pub(super) fn remaining(&self) -> Duration {
        let waited = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        self.patience.saturating_sub(waited)
    }

    /// Returns true if the service has asked to come back later at least once.
    pub(super) fn is_refused(&self) -> bool {
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
