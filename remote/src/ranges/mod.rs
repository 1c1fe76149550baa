//! Planned, merged, eager reads of ranges.

use std::{fmt::Debug, ops::Range};

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::service::ServiceError;

/// Where ranges are read from: one attempt a call, of whole ranges.
pub trait Fetch: Debug + Send + Sync + 'static {
    /// Reads `range` of the object `key`, all of it.
    ///
    /// # Errors
    /// [`ServiceError`].
    fn fetch<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes, ServiceError>>;
}
