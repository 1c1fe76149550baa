//! A client of objects by key, whose `Requests` retry.
//!
//! If the reply to a write is lost, its result is unknown. The key of an object is its hash, so
//! another write is idempotent. A caller that swaps a ref has to read it back (see `refs`).

mod listing;
mod parts;

use std::{
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use tokio::sync::{Mutex, OnceCell, Semaphore};

use super::{
    CancellationToken, ConditionalWrites, FailureReason, ObjectVersion, Service, ServiceError,
    StoredObject, UploadProgress, WriteCondition, check_hash,
    requests::Requests,
    traffic::Traffic,
    unreadable_file,
    upload::{PermittedBytes, read_part},
    upload_notes::UploadNotes,
};

pub use super::requests::{RequestPolicy, TransferLimits};

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

/// A service with retries, rate limits and counters.
#[derive(Clone, Debug)]
pub struct Client {
    service: Arc<dyn Service>,
    requests: Requests,
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
        let requests = Requests::new(policy, service.max_concurrency(), traffic);
        Self {
            service,
            requests,
            held: Arc::new(Semaphore::new(HELD_PAGES as usize)),
            uploads: Arc::new(Semaphore::new(UPLOADS)),
            notes: UploadNotes::default(),
            has_aborted_left: Arc::default(),
        }
    }

    /// Sets the location that errors name.
    #[must_use]
    pub fn with_location(self, location: &str) -> Self {
        Self { requests: self.requests.with_location(location), ..self }
    }

    /// Sets the stop flag, which interrupts every request and pause.
    #[must_use]
    pub fn with_cancellation(self, stop: CancellationToken) -> Self {
        Self { requests: self.requests.with_cancellation(stop), ..self }
    }

    /// Returns the requests, with their counters.
    pub(crate) fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Waits until the rate limit allows `bytes` more, unless the service applies it itself.
    async fn limit_upload(&self, bytes: u64) {
        if !self.service.applies_rate_limits() {
            self.requests.limit_upload(bytes).await;
        }
    }

    /// Waits like [`Self::limit_upload`], for received bytes.
    async fn limit_download(&self, bytes: u64) {
        if !self.service.applies_rate_limits() {
            self.requests.limit_download(bytes).await;
        }
    }

    /// Records multipart uploads in the cache of a remote.
    #[must_use]
    pub(crate) fn with_upload_notes(self, cache: &Path) -> Self {
        Self { notes: UploadNotes::of(cache), ..self }
    }

    /// Returns the conditions of a write that the service honours.
    pub fn conditions(&self) -> ConditionalWrites {
        self.service.conditions()
    }

    /// Returns the conditions that a write can carry, even if the service ignores them.
    pub fn takes_conditions(&self) -> ConditionalWrites {
        self.service.takes_conditions()
    }

    /// Returns the bucket in which the service may ignore the conditions that it reports: its kind,
    /// its endpoint and its name.
    pub fn unproven_bucket(&self) -> Option<&str> {
        self.service.unproven_bucket()
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

    /// Reads a range of an object.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn read(&self, key: &str, range: Range<u64>) -> Result<StoredObject, ServiceError> {
        let bytes = range.end.saturating_sub(range.start);
        let object = self
            .requests
            .retry("read", key, bytes, || self.service.read(key, range.clone()))
            .await?;
        self.limit_download(object.bytes.len() as u64).await;
        Ok(object)
    }

    /// Reads a whole object of at most `most` bytes.
    ///
    /// # Errors
    /// [`FailureReason::TooLong`], or another [`ServiceError`] of the last attempt.
    pub async fn read_whole(&self, key: &str, most: u64) -> Result<StoredObject, ServiceError> {
        let read = || self.service.read_whole(key, most);
        let object = self.requests.retry("read", key, most, read).await?;
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
        self.requests.retry("write", key, length, write).await
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
        self.requests.retry("write", key, length, write).await
    }

    /// Returns the length of an object, or `None` if it does not exist.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn length(&self, key: &str) -> Result<Option<u64>, ServiceError> {
        self.requests.retry("stat", key, 0, || self.service.length(key)).await
    }

    /// Removes an object, if it exists.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn remove(&self, key: &str) -> Result<(), ServiceError> {
        self.requests.retry("remove", key, 0, || self.service.remove(key)).await
    }

    /// Removes an object that must not remain. After a stop request, still makes one attempt, with
    /// a short timeout.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt.
    pub async fn remove_leftover(&self, key: &str) -> Result<(), ServiceError> {
        self.requests.clean_up("remove", key, || self.service.remove(key)).await
    }

    /// Removes objects; skips those that do not exist.
    ///
    /// # Errors
    /// [`ServiceError`] of the last attempt; some objects may be gone then.
    pub async fn remove_many(&self, keys: &[String]) -> Result<(), ServiceError> {
        let first = keys.first().map_or("", String::as_str);
        self.requests.retry("remove", first, 0, || self.service.remove_many(keys)).await
    }

    /// Returns the maximum number of objects that [`Client::remove_many`] removes in one request.
    pub fn max_removals_per_request(&self) -> usize {
        self.service.max_removals_per_request()
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
        if length <= WHOLE_BYTES {
            let bytes = self.read_file_part(key, path, 0..length).await?;
            // Hash the same bytes that the request sends.
            check_hash(key, blake3::hash(&bytes))
                .map_err(|error| self.requests.at_location(error))?;
            self.requests.check_not_stopped(key, progress)?;
            self.write(key, bytes, WriteCondition::Always).await?;
            progress.advance(length);
            return Ok(());
        }
        let _turn = self.uploads.acquire().await.expect("never closed");
        self.requests.check_not_stopped(key, progress)?;
        let note = Arc::new(self.notes.note(key));
        let Some(upload) = self.service.upload(key, Arc::clone(&note)) else {
            self.limit_upload(length).await;
            let write = || self.service.write_file(key, path, length);
            self.requests.retry("write", key, length, write).await?;
            progress.advance(length);
            return Ok(());
        };
        self.abort_abandoned_uploads().await;
        let upload = Mutex::new(upload);
        let parts = self.write_parts(key, &upload, path, length, progress);
        let result = self
            .requests
            .stop()
            .run_until_cancelled(parts)
            .await
            .unwrap_or_else(|| Err(self.requests.cancelled_error("write", key)));
        let ended = match &result {
            Ok(()) => Ok(()),
            Err(_) => {
                let abort = || async { upload.lock().await.abort().await };
                self.requests.clean_up("write", key, abort).await
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
        let bytes =
            read.map_err(|error| self.requests.at_location(unreadable_file(key, &error)))?;
        Ok(Bytes::from_owner(PermittedBytes(bytes, room)))
    }
}
