//! Random access to the bytes of a content, wherever its parts are stored.

use std::{fmt::Debug, ops::Range, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};

use super::{FetchRange, ReadError};

/// A content with random access to its bytes: an object, or a file of a snapshot in frames. Callers
/// may read several ranges concurrently.
pub trait RandomAccess: Debug + Send + Sync + 'static {
    /// Returns the length of the content in bytes.
    fn len(&self) -> u64;

    /// Returns true if the content has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads the whole `range`, which must end within the content.
    ///
    /// # Errors
    /// [`ReadError`].
    fn read_range(&self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ReadError>>;
}

/// An object as a content.
#[derive(Clone, Debug)]
pub struct WholeObject {
    fetch: Arc<dyn FetchRange>,
    key: Arc<str>,
    bytes: u64,
}

impl WholeObject {
    /// Creates a content of the object `key`, which has `bytes` bytes.
    pub fn new(fetch: Arc<dyn FetchRange>, key: &str, bytes: u64) -> Self {
        Self { fetch, key: key.into(), bytes }
    }
}

impl RandomAccess for WholeObject {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read_range(&self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ReadError>> {
        let fetched = self.fetch.fetch(&self.key, range);
        fetched.map(|result| result.map_err(ReadError::from)).boxed()
    }
}

/// The source that requests are sent to.
#[derive(Clone, Debug)]
pub(super) enum RequestTarget {
    /// Objects by key.
    Objects(Arc<dyn FetchRange>),
    /// One content; the keys of requests are ignored.
    Content(Arc<dyn RandomAccess>),
}

impl RequestTarget {
    /// Reads a range and checks the length of the response.
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
