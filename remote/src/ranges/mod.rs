//! Range requests: planned in advance and merged, or cached with read-ahead; and a seekable reader.
//!
//! A caller that knows all its ranges in advance gives them to a [`RangePlanner`]. The planner
//! merges ranges, sends the requests at once and returns the pieces as they arrive. Other
//! callers read a [`RangeReader`], or a [`SeekableReader`] of it, which has a cache and reads
//! ahead.
//!
//! Requests run as tasks, so callers must use this module within a tokio runtime. The
//! [`FetchRange`] implementation is responsible for retries, concurrency and rate limits.

mod cache;
mod driver;
mod error;
mod job;
mod link;
mod pattern;
mod plan;
mod random_access;
mod range_reader;
mod seekable_reader;

use std::{fmt::Debug, ops::Range};

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::bucket::{ServiceError, client::Client};

pub(crate) use cache::{BlockCache, CachedBlock, RequestedBlock};
pub use error::ReadError;
pub use job::{JobCounts, JobOptions, RangeJob, RangePlanner, RangeResult, Submission};
pub use link::LinkEstimate;
pub use plan::NeededRange;
pub use random_access::{RandomAccess, WholeObject};
pub use range_reader::{RangeReader, RangeReaderOptions};
pub use seekable_reader::SeekableReader;

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
