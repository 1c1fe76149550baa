//! Resumable uploads of packs: the server keeps the first bytes of an interrupted upload.

use bytes::Bytes;
use snap_core::base::limits;

use super::ServerStore;
use crate::{
    bucket::{
        FailureReason, RetryAfterLimit, ServiceError, UploadProgress, call::call, jittered,
        traffic::RequestKind,
    },
    peer::PackToSend,
    wire::{
        headers::{COMPLETE, UPLOAD_COMPLETE, UPLOAD_LENGTH, UPLOAD_OFFSET},
        routes::Route,
        types::{Capability, ServerInfo},
    },
};

impl ServerStore {
    /// Sends the part of a pack that the server does not have yet. Makes any number of attempts,
    /// as long as each makes progress.
    ///
    /// Returns false if the server does not support resumable uploads; checks this only after an
    /// error.
    pub(super) async fn send_resumed(
        &self,
        pack: PackToSend<'_>,
        key: &str,
        progress: &UploadProgress,
    ) -> Result<bool, ServiceError> {
        let (id, length, requests) = (pack.id.to_string(), pack.bytes, &self.requests);
        let arrived = || {
            requests.retry(RequestKind::Head, key, 0, || self.uploaded_bytes((&id, key), length))
        };
        let mut at = 0;
        if progress.may_resume() {
            at = arrived().await?;
            progress.skip(at);
        }
        let (mut tries, mut pause, mut reported) = (1, requests.policy().pause, at);
        let mut busy = RetryAfterLimit::new(requests.policy().busy);
        let mut is_known = false;
        while at < length {
            let is_refused = busy.is_refused();
            let rest = || async {
                let rest = self.send_rest((&id, key), pack, at);
                call(|context| context.is_refused = is_refused, rest).await.0
            };
            let sent =
                requests.retry_until_stopped(1, RequestKind::Put, key, length - at, rest).await;
            let Err(error) = sent else { break };
            let is_strange =
                matches!(error.reason, FailureReason::NotFound | FailureReason::Unsupported);
            if !is_known && (is_strange || error.reason.is_temporary()) {
                match requests.retry(RequestKind::Get, "", 0, || self.knows_uploads()).await {
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
            let is_last = tries >= requests.policy().attempts && !is_busy;
            if !(error.reason.is_temporary() || is_doubtful) || is_last {
                return Err(error);
            }
            requests.check_not_stopped(key, progress)?;
            requests.traffic().retry();
            requests.pause(error.retry_after.unwrap_or_else(|| jittered(pause))).await?;
            let now = arrived().await?;
            if is_doubtful && now > 0 && now < length {
                return Err(error);
            }
            (tries, pause) = match now > at {
                true => (1, requests.policy().pause),
                false if is_busy => (tries, pause),
                false => (tries + 1, (pause * 2).min(requests.policy().longest_pause)),
            };
            progress.advance(now.saturating_sub(reported));
            (at, reported) = (now, reported.max(now));
        }
        progress.advance(length - reported);
        Ok(true)
    }

    async fn knows_uploads(&self) -> Result<bool, ServiceError> {
        let ask = async || {
            let request = self.http.start(Route::Server, &[]);
            let bytes = self.http.get(request, limits::REPLY_BYTES, "read", "").await?;
            let info = serde_json::from_slice::<ServerInfo>(&bytes);
            Ok(info.is_ok_and(|info| info.capabilities.contains(&Capability::Uploads)))
        };
        self.resumes.get_or_try_init(ask).await.copied()
    }

    /// Returns how many bytes from the start of a pack the server has.
    async fn uploaded_bytes(
        &self,
        (id, key): (&str, &str),
        length: u64,
    ) -> Result<u64, ServiceError> {
        let ask = |route| {
            let request = self.http.request(route, id);
            self.http.send(request, Bytes::new(), limits::REPLY_BYTES, "stat", key)
        };
        let headers = match ask(Route::Upload).await {
            Ok(answer) => answer.headers,
            Err(error) if error.reason == FailureReason::NotFound => return Ok(0),
            Err(error) => return Err(error),
        };
        let number = |name| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
        if headers.get(UPLOAD_COMPLETE).is_some_and(|header| header == COMPLETE) {
            return Ok(length);
        }
        match number(UPLOAD_OFFSET).filter(|offset| *offset < length) {
            Some(offset) if number(UPLOAD_LENGTH) == Some(length) => Ok(offset),
            // The upload has another length, so another client has sent another file: start
            // over.
            _ => match ask(Route::ForgetUpload).await {
                Err(error) if error.reason != FailureReason::NotFound => Err(error),
                _ => Ok(0),
            },
        }
    }

    /// Sends the rest of a pack from offset `at` on.
    async fn send_rest(
        &self,
        (id, key): (&str, &str),
        pack: PackToSend<'_>,
        at: u64,
    ) -> Result<(), ServiceError> {
        let request = self.http.request(Route::ResumeUpload, id);
        let request = request.header(UPLOAD_OFFSET, at).header(UPLOAD_LENGTH, pack.bytes);
        let answer = self.http.send_file(request, (pack.path, at..pack.bytes), key).await?;
        match answer.headers.get(UPLOAD_COMPLETE).is_some_and(|header| header == COMPLETE) {
            true => Ok(()),
            false => {
                let why = "only a part of it was received".to_owned();
                Err(ServiceError::new("write", key, FailureReason::Temporary, why))
            }
        }
    }
}
