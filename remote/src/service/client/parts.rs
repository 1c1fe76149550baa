//! Multipart uploads.

use std::path::Path;

use futures::future::join_all;
use tokio::{sync::Mutex, time::timeout};

use super::{
    super::requests::CLEARING,
    super::{FailureReason, MultipartUpload, ServiceError, UploadProgress, check_hash},
    Client, PART_BYTES,
};

/// Extra attempts for a multipart upload: each of several concurrent parts may fail once.
const PART_ATTEMPTS: u32 = 4;

impl Client {
    /// Aborts multipart uploads of killed processes, once for each client. Sends no request if none
    /// are [noted](crate::service::upload_notes), and leaves failures to the next push.
    pub(crate) async fn abort_abandoned_uploads(&self) {
        self.has_aborted_left.get_or_init(|| self.abort_abandoned_uploads_now()).await;
    }

    async fn abort_abandoned_uploads_now(&self) {
        let aborts = self.notes.abandoned().into_iter().map(|left| async {
            let aborted = self.service.abort_upload(&left.key, &left.id).await;
            let is_gone =
                aborted.as_ref().err().is_none_or(|error| error.reason == FailureReason::NotFound);
            if is_gone || left.is_old() {
                left.remove();
            }
        });
        let _ = self.requests.stop().run_until_cancelled(timeout(CLEARING, join_all(aborts))).await;
    }

    pub(super) async fn write_parts(
        &self,
        key: &str,
        upload: &Mutex<Box<dyn MultipartUpload>>,
        path: &Path,
        length: u64,
        progress: &UploadProgress,
    ) -> Result<(), ServiceError> {
        let tries = self.requests.policy().attempts + PART_ATTEMPTS;
        let (mut at, mut hasher) = (0, blake3::Hasher::new());
        while at < length {
            self.requests.check_not_stopped(key, progress)?;
            let end = length.min(at + PART_BYTES);
            let bytes = self.read_file_part(key, path, at..end).await?;
            hasher.update(&bytes);
            // A part may have to wait for earlier parts, so its timeout covers eight parts.
            let patience = (end - at).saturating_mul(8);
            let part = || async { upload.lock().await.send_part(bytes.clone()).await };
            self.requests.retry_until_stopped(tries, "write", key, patience, part).await?;
            progress.advance(end - at);
            at = end;
        }
        // Check the hash before the object becomes visible.
        check_hash(key, hasher.finalize()).map_err(|error| self.requests.at_location(error))?;
        let finish = || async { upload.lock().await.finish().await };
        match self.requests.retry_until_stopped(tries, "write", key, PART_BYTES * 8, finish).await {
            // `NotFound` may follow a lost reply: the completed upload no longer exists.
            Err(error) if error.reason == FailureReason::NotFound => {
                match self.length(key).await? {
                    Some(found) if found == length => Ok(()),
                    _ => Err(error),
                }
            }
            result => result,
        }
    }
}
