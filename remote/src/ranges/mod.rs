//! Planned, merged, eager reads of ranges, and a seekable reader.
//!
//! Whoever knows what will be needed asks a [`Planner`] for all of it: it
//! merges, starts the requests at once and hands out the pieces as they come.
//! Whoever does not reads a [`Content`], or a [`SeekableReader`] of it, which
//! keeps what was read and reads ahead.
//!
//! Requests run as tasks, so all of this is used within a tokio runtime.
//! Retries, turns and rates are the business of the [`Fetch`] below.

mod blocks;
mod cache;
mod content;
mod driver;
mod error;
mod job;
mod link;
mod pattern;
mod plan;
mod reader;

use std::{fmt::Debug, ops::Range};

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::service::{ServiceError, client::Client};

pub use blocks::{Blocks, WholeObject};
pub use content::{Content, ContentOptions};
pub use error::ReadError;
pub use job::{Counts, Job, Options, Piece, Planner, Submission};
pub use link::Link;
pub use plan::Wanted;
pub use reader::SeekableReader;

/// Where ranges are read from. A call may try more than once; what it answers
/// is final.
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

impl Fetch for Client {
    fn fetch<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Bytes, ServiceError>> {
        Box::pin(async move { Ok(self.read(key, range).await?.bytes) })
    }
}
