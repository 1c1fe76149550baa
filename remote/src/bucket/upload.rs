//! Multipart uploads, and the progress of uploads.

use std::{
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::sync::OwnedSemaphorePermit;

use super::ServiceError;

/// A multipart upload of one object. Several parts are in flight at once; a retry sends only the
/// failed part.
pub trait MultipartUpload: Send {
    /// Adds the next part, and returns when there is room for another one.
    ///
    /// # Errors
    /// [`ServiceError`] of this part or an earlier one. After a temporary error, the upload sends
    /// an earlier part again by itself, and the caller must add this part again.
    fn send_part(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<(), ServiceError>>;

    /// Waits for all parts and completes the object.
    ///
    /// # Errors
    /// As [`MultipartUpload::send_part`].
    fn finish(&mut self) -> BoxFuture<'_, Result<(), ServiceError>>;

    /// Aborts the upload and removes its parts.
    ///
    /// # Errors
    /// [`ServiceError`]; parts may then remain.
    fn abort(&mut self) -> BoxFuture<'_, Result<(), ServiceError>>;
}

/// Progress of uploads, and a flag to stop them.
#[derive(Debug, Default)]
pub struct UploadProgress {
    stopped: AtomicBool,
    bytes: AtomicU64,
}

impl UploadProgress {
    /// Returns the number of bytes that were sent.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Stops the uploads at their next part.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    /// Returns true if the uploads were stopped.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    pub(crate) fn advance(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }
}

/// Reads a part of a file on a thread that may block.
pub(super) async fn read_part(path: &Path, range: Range<u64>) -> io::Result<Vec<u8>> {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || {
        let mut file = fs_err::File::open(path)?;
        file.seek(SeekFrom::Start(range.start))?;
        let mut bytes = vec![0; (range.end - range.start) as usize];
        file.read_exact(&mut bytes)?;
        Ok(bytes)
    });
    read.await.unwrap_or_else(|_| Err(io::Error::other("reading was cancelled")))
}

/// Bytes with the permit for their memory. Dropping the last reference releases the permit.
pub(super) struct PermittedBytes(
    pub(super) Bytes,
    #[expect(dead_code, reason = "it counts while it lives")] pub(super) OwnedSemaphorePermit,
);

impl AsRef<[u8]> for PermittedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
