//! A content as a sequence of bytes, wherever its parts lie.

use std::{fmt::Debug, ops::Range, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};

use super::{Fetch, ReadError};

/// A content whose bytes can be read in any place: an object, or a file that
/// is put together from the frames of a snapshot. Several ranges are read at
/// once.
pub trait Blocks: Debug + Send + Sync + 'static {
    /// Length of the content in bytes.
    fn len(&self) -> u64;

    /// Whether there is nothing in it.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads `range`, all of it; it ends within the content.
    ///
    /// # Errors
    /// [`ReadError`].
    fn read_range(&self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ReadError>>;
}

/// An object seen as a content.
#[derive(Clone, Debug)]
pub struct WholeObject {
    fetch: Arc<dyn Fetch>,
    key: Arc<str>,
    bytes: u64,
}

impl WholeObject {
    /// The object `key`, of which it is known that it is `bytes` long.
    pub fn new(fetch: Arc<dyn Fetch>, key: &str, bytes: u64) -> Self {
        Self { fetch, key: key.into(), bytes }
    }
}

impl Blocks for WholeObject {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read_range(&self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ReadError>> {
        let fetched = self.fetch.fetch(&self.key, range);
        fetched.map(|result| result.map_err(ReadError::from)).boxed()
    }
}

/// What requests are sent to.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// Objects by key.
    Objects(Arc<dyn Fetch>),
    /// One content; keys say nothing.
    Content(Arc<dyn Blocks>),
}

impl Source {
    /// Reads a range and checks the length of what comes.
    pub(super) async fn read(self, key: Arc<str>, range: Range<u64>) -> Result<Bytes, ReadError> {
        let bytes = match &self {
            Self::Objects(fetch) => fetch.fetch(&key, range.clone()).await?,
            Self::Content(blocks) => blocks.read_range(range.clone()).await?,
        };
        let actual_bytes = bytes.len() as u64;
        if actual_bytes == range.end - range.start {
            Ok(bytes)
        } else {
            Err(ReadError::Length { key, range, actual_bytes })
        }
    }
}
