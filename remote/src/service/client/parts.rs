//! Files that go up in parts.

use std::path::Path;

use tokio::sync::Mutex;

use super::{
    super::{Progress, ServiceError, Upload, What, check_hash},
    Client, PART_BYTES,
};

/// How much more often an upload in parts is tried: each of several parts that
/// are under way may fail once.
const PART_ATTEMPTS: u32 = 4;

impl Client {
    pub(super) async fn write_parts(
        &self,
        (key, upload): (&str, &Mutex<Box<dyn Upload>>),
        (path, length): (&Path, u64),
        progress: &Progress,
    ) -> Result<(), ServiceError> {
        let tries = self.policy.attempts + PART_ATTEMPTS;
        let (mut at, mut hasher) = (0, blake3::Hasher::new());
        while at < length {
            self.check_going(key, progress)?;
            let end = length.min(at + PART_BYTES);
            let bytes = self.hold(key, path, at..end).await?;
            hasher.update(&bytes);
            // It waits for others to be through.
            let patience = (end - at).saturating_mul(8);
            let part = || async { upload.lock().await.part(bytes.clone()).await };
            self.persist(tries, ("write", key), patience, part).await?;
            progress.advance(end - at);
            at = end;
        }
        // Before it is there for others.
        check_hash(key, hasher.finalize()).map_err(|error| self.placed(error))?;
        let finish = || async { upload.lock().await.finish().await };
        match self.persist(tries, ("write", key), PART_BYTES * 8, finish).await {
            // Whose reply was lost may have been done.
            Err(error) if error.what == What::NotFound => match self.length(key).await? {
                Some(found) if found == length => Ok(()),
                _ => Err(error),
            },
            result => result,
        }
    }
}
