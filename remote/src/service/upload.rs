//! Writing large objects in parts.

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

/// An object that is being written in parts. Several are under way at once;
/// one that fails for a while is sent again alone.
pub trait Upload: Send {
    /// Hands over the next part. Returns when there is room for one more.
    ///
    /// # Errors
    /// [`ServiceError`] of this part or one before. When it is temporary, that
    /// part is already being sent again, and this one is to be handed over anew.
    fn part(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<(), ServiceError>>;

    /// Waits for all parts and makes the object of them.
    ///
    /// # Errors
    /// As [`Upload::part`].
    fn finish(&mut self) -> BoxFuture<'_, Result<(), ServiceError>>;

    /// Gives up, and removes what was sent.
    ///
    /// # Errors
    /// [`ServiceError`]; parts may then be left.
    fn abort(&mut self) -> BoxFuture<'_, Result<(), ServiceError>>;
}

/// How far a file has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// All of it is there.
    Whole,
    /// Its first bytes are; none, if nothing is known of it.
    Part(u64),
}

/// Files whose first bytes stay when sending them breaks off.
pub trait Resume: Send + Sync {
    /// Whether it is so there. Asks no more than once.
    ///
    /// # Errors
    /// [`ServiceError`].
    fn is_known(&self) -> BoxFuture<'_, Result<bool, ServiceError>>;

    /// How much of a file of that length is there.
    ///
    /// # Errors
    /// [`ServiceError`].
    fn arrived<'a>(
        &'a self,
        key: &'a str,
        length: u64,
    ) -> BoxFuture<'a, Result<Arrived, ServiceError>>;

    /// Sends the rest of a file, from where what is there of it ends.
    ///
    /// # Errors
    /// [`ServiceError`]; a temporary one also where it does not end there.
    fn write_rest<'a>(
        &'a self,
        key: &'a str,
        file: (&'a Path, u64),
        at: u64,
    ) -> BoxFuture<'a, Result<(), ServiceError>>;
}

/// How far uploads have come, and whether they shall go on.
#[derive(Debug, Default)]
pub struct Progress {
    stopped: AtomicBool,
    bytes: AtomicU64,
    spared: AtomicU64,
    may_go_on: bool,
}

impl Progress {
    /// Of uploads of which a part may be there, from an earlier run.
    pub fn going_on() -> Self {
        Self { may_go_on: true, ..Self::default() }
    }

    pub(super) fn may_go_on(&self) -> bool {
        self.may_go_on
    }

    /// Bytes that were there before.
    pub fn spared(&self) -> u64 {
        self.spared.load(Relaxed)
    }

    pub(super) fn spare(&self, bytes: u64) {
        self.spared.fetch_add(bytes, Relaxed);
        self.advance(bytes);
    }

    /// Bytes that were handed over, or were there before.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Asks uploads to end at their next part.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    /// Whether they were asked to.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    pub(super) fn advance(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }
}

/// Reads a part of a file, away from the runtime's threads.
pub(super) async fn read_part(path: &Path, range: Range<u64>) -> io::Result<Vec<u8>> {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || {
        let mut file = fs_err::File::open(path)?;
        file.seek(SeekFrom::Start(range.start))?;
        let mut bytes = vec![0; (range.end - range.start) as usize];
        file.read_exact(&mut bytes)?;
        Ok(bytes)
    });
    read.await.unwrap_or_else(|_| Err(io::Error::other("reading was given up")))
}

/// Bytes that take room until the last copy of them is gone.
pub(super) struct Held(
    pub(super) Vec<u8>,
    #[expect(dead_code, reason = "it counts while it lives")] pub(super) OwnedSemaphorePermit,
);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
