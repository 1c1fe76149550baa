//! Range requests: planned in advance and merged, or cached with read-ahead.
//!
//! A caller that knows all its ranges in advance gives them to a [`RangePlanner`]. The planner
//! merges ranges, sends the requests at once and returns the pieces as they arrive. Other
//! callers use a [`RangeReader`], which has a cache, reads ahead and is a seekable file.
//!
//! Requests run as tasks, so callers must use this module within a tokio runtime. The
//! [`FetchRange`] implementation is responsible for retries, concurrency and rate limits.

mod content;
mod error;
mod job;
mod link;
mod pattern;
mod plan;
mod range_reader;

use std::{fmt::Debug, ops::Range};

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::bucket::{ServiceError, client::Client};

pub(crate) use content::{Content, ContentPart, ContentUnit, UnitDecoder};
pub use error::ReadError;
pub use job::{JobOptions, RangeJob, RangePlanner, RangeResult};
pub use link::LinkEstimate;
pub use plan::NeededRange;
pub use range_reader::{RangeReader, RangeReaderOptions};

/// A source of ranges. A call may retry internally; its result is final.
pub trait FetchRange: Debug + Send + Sync + 'static {
    /// Reads the whole `range` of the object `key`.
    ///
    /// # Errors
    /// [`ServiceError`].
    fn fetch<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes, ServiceError>>;
}

impl FetchRange for Client {
    fn fetch<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes, ServiceError>> {
        Box::pin(self.get_range(key, range))
    }
}
