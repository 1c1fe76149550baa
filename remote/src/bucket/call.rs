//! The context of a call, for what lies below OpenDAL.
//!
//! OpenDAL's HTTP transport takes no arguments besides the request. So the retry layer and the
//! buckets put what the transport needs into the one task-local of this crate, and the transport
//! puts what it learns into the [`HttpReply`] of the context.

use std::{
    collections::HashSet,
    future::Future,
    num::NonZeroU32,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use opendal::{Error, ErrorKind, Execute, raw::BoxedStaticFuture};
use parking_lot::Mutex;

use super::rate_limit::BandwidthLimits;

/// Minimum for the limit of a body. Replies other than objects, such as tokens and errors, may be
/// that long.
const LEAST_CEILING: u64 = 1 << 20;

/// Maximum number of successive pages of a listing without a new name. Services may send empty
/// pages while they pass over deleted objects.
const IDLE_PAGES: usize = 100;

tokio::task_local! {
    static CALL: CallContext;
}

/// The context of a call.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallContext {
    /// The rate limits of the client, if it has any.
    pub(super) limits: Option<Arc<BandwidthLimits>>,
    /// True if the service has refused the request before. The transport then holds back a large
    /// body for a moment, in which the service may refuse the request again.
    pub(crate) is_refused: bool,
    /// True if a cancellation does not interrupt the call.
    pub(crate) is_shielded: bool,
    /// Sends a range of a file in place of the body. The call must be a single unsigned request.
    pub(crate) file: Option<Arc<SentFile>>,
    /// Maximum length of a reply in bytes, see [`Self::at_most`].
    pub(super) most: Option<u64>,
    /// The progress of a listing, whose pages must not go on for ever.
    pub(super) listing: Option<Arc<Mutex<ListingProgress>>>,
    reply: Arc<Mutex<HttpReply>>,
}

/// Status and headers of the last reply within a call.
#[derive(Clone, Debug, Default)]
pub(crate) struct HttpReply {
    /// Host and port of the last request.
    pub(super) host: Option<String>,
    /// True if the call has sent an HTTP request.
    pub(super) asked: bool,
    /// The status; `None` without a reply.
    pub(super) status: Option<u16>,
    /// The pause that the service requests.
    pub(crate) retry_after: Option<Duration>,
    /// The limit that the body exceeded.
    pub(super) longer_than: Option<u64>,
    /// Why the listing would never end.
    pub(super) endless_listing: Option<&'static str>,
    /// Number of bytes of a streamed body that were sent before the connection broke.
    pub(crate) interrupted_at: Option<NonZeroU32>,
}

/// A range of a file to send as a body.
#[derive(Debug)]
pub(crate) struct SentFile {
    pub(super) path: PathBuf,
    pub(super) range: Range<u64>,
    pub(super) hasher: Mutex<blake3::Hasher>,
}

impl SentFile {
    pub(crate) fn new(path: &Path, range: Range<u64>) -> Arc<Self> {
        Arc::new(Self { path: path.to_owned(), range, hasher: Mutex::default() })
    }

    /// Returns the hash of the bytes that the last request sent.
    pub(super) fn hash(&self) -> blake3::Hash {
        self.hasher.lock().finalize()
    }
}

/// The progress of a listing that comes in pages.
#[derive(Debug, Default)]
pub(super) struct ListingProgress {
    /// Hashes of the page requests. A repeated request means that the service has sent the same
    /// continuation token twice.
    requests: HashSet<blake3::Hash>,
    /// Number of pages since the last new name.
    idle_pages: usize,
}

/// Makes a call in a changed copy of the current context. Returns its last reply as well.
pub(crate) async fn call<T>(
    change: impl FnOnce(&mut CallContext),
    attempt: impl Future<Output = T>,
) -> (T, HttpReply) {
    let mut context = CallContext { reply: Arc::default(), ..CallContext::now() };
    change(&mut context);
    let reply = Arc::clone(&context.reply);
    let result = CALL.scope(context, attempt).await;
    let reply = reply.lock().clone();
    (result, reply)
}

impl CallContext {
    /// Returns the context of the current task.
    pub(super) fn now() -> Self {
        CALL.try_with(Clone::clone).unwrap_or_default()
    }

    /// Fails the call as soon as a reply exceeds `most` bytes. The limit is at least
    /// [`LEAST_CEILING`].
    pub(crate) fn at_most(&mut self, most: u64) {
        self.most = Some(most.max(LEAST_CEILING));
    }

    /// Records the last reply.
    pub(super) fn note(&self, reply: HttpReply) {
        *self.reply.lock() = reply;
    }

    /// Notes that the body exceeded its limit, and returns the error.
    pub(super) fn too_long(&self, most: u64) -> Error {
        self.reply.lock().longer_than = Some(most);
        Error::new(ErrorKind::Unexpected, format!("the reply is longer than {most} B"))
    }

    /// Counts the request for a page of a listing.
    ///
    /// # Errors
    /// If the listing would never end.
    pub(super) fn count_page(&self, uri: &http::Uri) -> Result<(), Error> {
        let Some(listing) = &self.listing else { return Ok(()) };
        let mut listing = listing.lock();
        listing.idle_pages += 1;
        let why = match listing.requests.insert(blake3::hash(uri.to_string().as_bytes())) {
            false => "the service sent the same continuation token twice",
            true if listing.idle_pages > IDLE_PAGES => "the service sends pages without new names",
            true => return Ok(()),
        };
        self.reply.lock().endless_listing = Some(why);
        Err(Error::new(ErrorKind::Unexpected, why))
    }

    /// Records that a listing has brought a new name.
    pub(super) fn note_listed_name() {
        let note = |context: &Self| context.listing.as_ref().map(|at| at.lock().idle_pages = 0);
        let _ = CALL.try_with(note);
    }
}

/// Runs the parts of an upload in tasks of their own, under the rate limits of the client. Passes an
/// error reply on to the call of the part.
#[derive(Debug)]
pub(super) struct TokioExecutor;

impl Execute for TokioExecutor {
    fn execute(&self, work: BoxedStaticFuture<()>) {
        let CallContext { limits, reply: parent, .. } = CallContext::now();
        tokio::spawn(async move {
            let ((), reply) = call(|context| context.limits = limits, work).await;
            if reply.asked && reply.status.is_none_or(|status| status >= 400) {
                *parent.lock() = reply;
            }
        });
    }
}
