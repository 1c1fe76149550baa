//! Files that go on where they broke off.

use std::path::Path;

use super::{
    super::{Arrived, Progress, Resume, ServiceError, What, transport::asking_first},
    Busy, Client, PAGE_BYTES, jittered,
};

/// Pages that a file takes while it goes up as a stream: the piece that goes,
/// and the next.
const STREAM_PAGES: u32 = ((2 << 20) / PAGE_BYTES) as u32;

impl Client {
    /// Sends a file from where what is there of it ends. As long as each try
    /// brings it further there may be any number of them. Says whether it is
    /// known there how: that is asked only when something went wrong.
    pub(super) async fn write_resumed(
        &self,
        (resume, key): (&dyn Resume, &str),
        (path, length): (&Path, u64),
        progress: &Progress,
    ) -> Result<bool, ServiceError> {
        let _room = self.held.acquire_many(STREAM_PAGES).await.expect("never closed");
        self.check_going(key, progress)?;
        let arrived = || self.attempts("stat", key, 0, || resume.arrived(key, length));
        let mut at = 0;
        if progress.may_go_on() {
            let Arrived::Part(bytes) = arrived().await? else {
                progress.spare(length);
                return Ok(true);
            };
            at = bytes;
            progress.spare(at);
        }
        let (mut tries, mut pause, mut told) = (1, self.policy.pause, at);
        let mut busy = Busy::new(self.policy.busy);
        let mut is_known = false;
        loop {
            let rest =
                || asking_first(busy.is_refused(), resume.write_rest(key, (path, length), at));
            let Err(error) = self.persist(1, ("write", key), length - at, rest).await else {
                break;
            };
            let is_strange = matches!(error.what, What::NotFound | What::Unsupported);
            if !is_known && (is_strange || error.what.is_temporary()) {
                match self.attempts("read", "", 0, || resume.is_known()).await {
                    Err(_) => return Err(error),
                    Ok(false) => return Ok(false),
                    Ok(true) => is_known = true,
                }
            }
            // Who sent what came before may have lied: then nothing of it stays.
            let is_busy = busy.asks_again(&error);
            let is_doubtful = matches!(error.what, What::Refused | What::Other) && at > 0;
            let is_last = tries >= self.policy.attempts && !is_busy;
            if !(error.what.is_temporary() || is_doubtful) || is_last {
                return Err(error);
            }
            self.check_going(key, progress)?;
            self.traffic.retry();
            self.pause(error.retry_after.unwrap_or_else(|| jittered(pause))).await?;
            let Arrived::Part(now) = arrived().await? else { break };
            if is_doubtful && now > 0 {
                return Err(error);
            }
            (tries, pause) = match now > at {
                true => (1, self.policy.pause),
                false if is_busy => (tries, pause),
                false => (tries + 1, (pause * 2).min(self.policy.longest_pause)),
            };
            progress.advance(now.saturating_sub(told));
            (at, told) = (now, told.max(now));
        }
        progress.advance(length - told);
        Ok(true)
    }
}
