//! A client of objects by key, whose `Requests` retry.
//!
//! If the reply to a write is lost, its result is unknown. The key of an object is its hash, so
//! another write is idempotent. A caller that swaps a ref has to read it back (see `refs`).

use std::{
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use futures::future::join_all;
use tokio::{
    sync::{Mutex, OnceCell, Semaphore},
    time::timeout,
};

pub use super::requests::{RequestPolicy, TransferLimits};
use super::{
    Attempt, Body, Bucket, BucketFacts, CancellationToken, FailureReason, ListDepth, ListedObject,
    MultipartUpload, ObjectVersion, ServiceError, StoredObject, UploadProgress, WriteCondition,
    check_hash,
    requests::{CLEARING, Requests},
    traffic::{
        RequestKind::{Delete, Get, Head, List, Put},
        Traffic,
    },
    upload::PermittedBytes,
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

/// Extra attempts for a multipart upload: each of several concurrent parts may fail once.
const PART_ATTEMPTS: u32 = 4;

/// A bucket with retries, rate limits and counters. Errors of its methods are those of the last
/// attempt.
#[derive(Clone, Debug)]
pub struct Client {
    bucket: Arc<dyn Bucket>,
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
    /// Creates a client of `bucket` that counts requests and retries in `traffic`.
    pub fn new(bucket: Arc<dyn Bucket>, policy: RequestPolicy, traffic: Arc<Traffic>) -> Self {
        let facts = bucket.facts();
        let requests = Requests::new(policy, facts.max_requests, traffic);
        Self {
            requests: if facts.is_metered { requests } else { requests.metered() },
            bucket,
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

    /// Records multipart uploads in the cache of a remote.
    #[must_use]
    pub(crate) fn with_upload_notes(self, cache: &Path) -> Self {
        Self { notes: UploadNotes::of(cache), ..self }
    }

    /// Returns the requests, with their counters.
    pub(crate) fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Returns what the bucket is and can do.
    pub(crate) fn facts(&self) -> &BucketFacts {
        self.bucket.facts()
    }

    /// Reads a whole object of at most `most` bytes.
    ///
    /// # Errors
    /// [`FailureReason::TooLong`], or another [`ServiceError`].
    pub async fn get(&self, key: &str, most: u64) -> Result<StoredObject, ServiceError> {
        let object = self.requests.retry(Get, key, most, || self.bucket.get(key, most)).await?;
        self.requests.received(object.bytes.len() as u64).await;
        Ok(object)
    }

    /// Reads a whole object of at most `most` bytes, or returns `None` if it does not exist.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn find(&self, key: &str, most: u64) -> Result<Option<StoredObject>, ServiceError> {
        match self.get(key, most).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.reason == FailureReason::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a range of an object.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Bytes, ServiceError> {
        let bytes = range.end.saturating_sub(range.start);
        let get = || self.bucket.get_range(key, range.clone());
        let bytes = self.requests.retry(Get, key, bytes, get).await?;
        self.requests.received(bytes.len() as u64).await;
        Ok(bytes)
    }

    /// Makes one attempt to write an object.
    fn put_once<'a>(
        &'a self,
        key: &'a str,
        bytes: &Bytes,
        when: &WriteCondition,
    ) -> Attempt<'a, Option<ObjectVersion>> {
        match when {
            WriteCondition::Always => self.bucket.put(key, bytes.clone().into()),
            when => self.bucket.put_if(key, bytes.clone(), when.clone()),
        }
    }

    /// Writes an object, and replaces an existing one.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn put(
        &self,
        key: &str,
        bytes: impl Into<Bytes>,
    ) -> Result<Option<ObjectVersion>, ServiceError> {
        self.put_if(key, bytes.into(), WriteCondition::Always).await
    }

    /// Writes an object if a condition holds. After a lost reply, [`FailureReason::Conflict`] may
    /// mean that an earlier attempt succeeded.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn put_if(
        &self,
        key: &str,
        bytes: Bytes,
        when: WriteCondition,
    ) -> Result<Option<ObjectVersion>, ServiceError> {
        let put = || self.put_once(key, &bytes, &when);
        self.requests.retry(Put, key, bytes.len() as u64, put).await
    }

    /// Writes an object like [`Self::put_if`]. Counts attempts without a definite answer in `open`,
    /// because the service may still carry them out later.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn put_counted(
        &self,
        key: &str,
        bytes: Bytes,
        when: WriteCondition,
        open: &AtomicUsize,
    ) -> Result<Option<ObjectVersion>, ServiceError> {
        let put = || async {
            // An attempt that times out stays counted.
            open.fetch_add(1, Ordering::SeqCst);
            let written = self.put_once(key, &bytes, &when).await;
            if written.as_ref().err().is_none_or(|error| error.reason.is_settled()) {
                open.fetch_sub(1, Ordering::SeqCst);
            }
            written
        };
        self.requests.retry(Put, key, bytes.len() as u64, put).await
    }

    /// Returns the length of an object, or `None` if it does not exist.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn head(&self, key: &str) -> Result<Option<u64>, ServiceError> {
        self.requests.retry(Head, key, 0, || self.bucket.head(key)).await
    }

    /// Lists the objects whose keys begin with `prefix`.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn list(&self, prefix: &str) -> Result<Vec<ListedObject>, ServiceError> {
        self.list_to(prefix, ListDepth::All).await
    }

    /// Lists at most `most` objects and folders directly below `prefix`, and returns their keys. The
    /// key of a folder ends with `/`.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn list_level(&self, prefix: &str, most: usize) -> Result<Vec<String>, ServiceError> {
        let listed = self.list_to(prefix, ListDepth::Level(most)).await?;
        Ok(listed.into_iter().map(|object| object.key).collect())
    }

    async fn list_to(
        &self,
        prefix: &str,
        depth: ListDepth,
    ) -> Result<Vec<ListedObject>, ServiceError> {
        self.requests.retry(List, prefix, 0, || self.bucket.list(prefix, depth)).await
    }

    /// Deletes any number of objects; skips those that do not exist.
    ///
    /// # Errors
    /// [`ServiceError`]; some objects may be gone then.
    pub async fn delete(&self, keys: &[String]) -> Result<(), ServiceError> {
        for keys in keys.chunks(self.facts().max_deletions) {
            self.requests.retry(Delete, &keys[0], 0, || self.bucket.delete(keys)).await?;
        }
        Ok(())
    }

    /// Deletes an object that must not remain. After a stop request, still makes one attempt, with
    /// a short timeout.
    ///
    /// # Errors
    /// [`ServiceError`].
    pub async fn delete_leftover(&self, key: &str) -> Result<(), ServiceError> {
        let keys = [key.to_owned()];
        self.requests.clean_up(Delete, key, || self.bucket.delete(&keys)).await
    }

    /// Writes a file as an object, and replaces an existing one.
    ///
    /// Uploads a file longer than [`WHOLE_BYTES`] in parts, or as a stream if the bucket has no
    /// multipart uploads. Aborts a failed multipart upload. All concurrent uploads together hold a
    /// small number of parts in memory. Hashes a pack during the read.
    ///
    /// # Errors
    /// [`FailureReason::Damaged`] if a pack does not hash to its name, [`FailureReason::Stopped`] if
    /// `progress` was stopped, or another [`ServiceError`].
    pub async fn put_file(
        &self,
        key: &str,
        path: &Path,
        length: u64,
        progress: &UploadProgress,
    ) -> Result<(), ServiceError> {
        let file = Body::File(path.into(), length);
        if length <= WHOLE_BYTES {
            let bytes = self.read_file_part(key, &file, 0..length).await?;
            // Hash the same bytes that the request sends.
            check_hash(key, blake3::hash(&bytes))
                .map_err(|error| self.requests.at_location(error))?;
            self.requests.check_not_stopped(key, progress)?;
            self.put(key, bytes).await?;
            progress.advance(length);
            return Ok(());
        }
        let _turn = self.uploads.acquire().await.expect("never closed");
        self.requests.check_not_stopped(key, progress)?;
        let note = Arc::new(self.notes.note(key));
        let Some(upload) = self.bucket.upload(key, Arc::clone(&note)) else {
            let put = || self.bucket.put(key, file.clone());
            self.requests.retry(Put, key, length, put).await?;
            progress.advance(length);
            return Ok(());
        };
        self.abort_abandoned_uploads().await;
        let upload = Mutex::new(upload);
        let parts = self.put_parts(key, &upload, &file, progress);
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
                self.requests.clean_up(Put, key, abort).await
            }
        };
        // The next push aborts an upload that remains.
        if ended.is_ok() {
            note.remove();
        }
        result
    }

    async fn put_parts(
        &self,
        key: &str,
        upload: &Mutex<Box<dyn MultipartUpload>>,
        file: &Body,
        progress: &UploadProgress,
    ) -> Result<(), ServiceError> {
        let tries = self.requests.policy().attempts + PART_ATTEMPTS;
        let (length, mut at, mut hasher) = (file.length(), 0, blake3::Hasher::new());
        while at < length {
            self.requests.check_not_stopped(key, progress)?;
            let end = length.min(at + PART_BYTES);
            let bytes = self.read_file_part(key, file, at..end).await?;
            hasher.update(&bytes);
            // A part may have to wait for earlier parts, so its timeout covers eight parts.
            let patience = (end - at).saturating_mul(8);
            let part = || async { upload.lock().await.send_part(bytes.clone()).await };
            self.requests.retry_until_stopped(tries, Put, key, patience, part).await?;
            progress.advance(end - at);
            at = end;
        }
        // Check the hash before the object becomes visible.
        check_hash(key, hasher.finalize()).map_err(|error| self.requests.at_location(error))?;
        let finish = || async { upload.lock().await.finish().await };
        match self.requests.retry_until_stopped(tries, Put, key, PART_BYTES * 8, finish).await {
            // `NotFound` may follow a lost reply: the completed upload no longer exists.
            Err(error) if error.reason == FailureReason::NotFound => match self.head(key).await? {
                Some(found) if found == length => Ok(()),
                _ => Err(error),
            },
            result => result,
        }
    }

    /// Reads a part of a file as soon as memory for it is free.
    async fn read_file_part(
        &self,
        key: &str,
        file: &Body,
        range: Range<u64>,
    ) -> Result<Bytes, ServiceError> {
        let pages = (range.end - range.start).div_ceil(PAGE_BYTES) as u32;
        let room = Arc::clone(&self.held).acquire_many_owned(pages).await.expect("never closed");
        let bytes = file.read(key, range).await;
        let bytes = bytes.map_err(|error| self.requests.at_location(error))?;
        Ok(Bytes::from_owner(PermittedBytes(bytes, room)))
    }

    /// Aborts multipart uploads of killed processes, once for each client. Sends no request if none
    /// are [noted](super::upload_notes), and leaves failures to the next push.
    pub(crate) async fn abort_abandoned_uploads(&self) {
        let abort = || async {
            let aborts = self.notes.abandoned().into_iter().map(|left| async {
                let aborted = self.bucket.abort_upload(&left.key, &left.id).await;
                let error = aborted.as_ref().err();
                if error.is_none_or(|error| error.reason == FailureReason::NotFound)
                    || left.is_old()
                {
                    left.remove();
                }
            });
            let aborts = timeout(CLEARING, join_all(aborts));
            let _ = self.requests.stop().run_until_cancelled(aborts).await;
        };
        self.has_aborted_left.get_or_init(abort).await;
    }
}
