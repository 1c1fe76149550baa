//! Resumable uploads.

use std::path::Path;

use super::{
    super::{
        FailureReason, ResumableUpload, ServiceError, UploadProgress, UploadedBytes,
        transport::asking_first,
    },
    Client, PAGE_BYTES, RetryAfterLimit, jittered,
};

/// Number of pages that a streamed file takes in memory: the present piece and the next.
const STREAM_PAGES: u32 = ((2 << 20) / PAGE_BYTES) as u32;

impl Client {
    /// Sends the part of a file that the service does not have yet. Makes any number of attempts,
    /// as long as each makes progress.
    ///
    /// Returns false if the service does not support resumable uploads; checks this only after an
    /// error.
    pub(super) async fn write_resumed(
        &self,
        resume: &dyn ResumableUpload,
        key: &str,
        path: &Path,
        length: u64,
        progress: &UploadProgress,
    ) -> Result<bool, ServiceError> {
        let _room = self.held.acquire_many(STREAM_PAGES).await.expect("never closed");
        self.check_not_stopped(key, progress)?;
        let arrived = || self.retry("stat", key, 0, || resume.uploaded_bytes(key, length));
        let mut at = 0;
        if progress.may_resume() {
            let UploadedBytes::Part(bytes) = arrived().await? else {
                progress.skip(length);
                return Ok(true);
            };
            at = bytes;
            progress.skip(at);
        }
        let (mut tries, mut pause, mut reported) = (1, self.policy.pause, at);
        let mut busy = RetryAfterLimit::new(self.policy.busy);
        let mut is_known = false;
        loop {
            let rest = || asking_first(busy.is_refused(), resume.write_rest(key, path, length, at));
            let Err(error) = self.retry_until_stopped(1, "write", key, length - at, rest).await
            else {
                break;
            };
            let is_strange =
                matches!(error.reason, FailureReason::NotFound | FailureReason::Unsupported);
            if !is_known && (is_strange || error.reason.is_temporary()) {
                match self.retry("read", "", 0, || resume.is_known()).await {
                    Err(_) => return Err(error),
                    Ok(false) => return Ok(false),
                    Ok(true) => is_known = true,
                }
            }
            // The bytes of an earlier upload may be wrong. Then the server has discarded them,
            // and the upload starts again from zero.
            let is_busy = busy.may_retry(&error);
            let is_doubtful =
                matches!(error.reason, FailureReason::Refused | FailureReason::Other) && at > 0;
            let is_last = tries >= self.policy.attempts && !is_busy;
            if !(error.reason.is_temporary() || is_doubtful) || is_last {
                return Err(error);
            }
            self.check_not_stopped(key, progress)?;
            self.traffic.retry();
            self.pause(error.retry_after.unwrap_or_else(|| jittered(pause))).await?;
            let UploadedBytes::Part(now) = arrived().await? else { break };
            if is_doubtful && now > 0 {
                return Err(error);
            }
            (tries, pause) = match now > at {
                true => (1, self.policy.pause),
                false if is_busy => (tries, pause),
                false => (tries + 1, (pause * 2).min(self.policy.longest_pause)),
            };
            progress.advance(now.saturating_sub(reported));
            (at, reported) = (now, reported.max(now));
        }
        progress.advance(length - reported);
        Ok(true)
    }
}
