//! A job: takes ranges, sends requests at once and returns the pieces as they arrive.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use futures::{Stream, stream};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, error::TryRecvError, unbounded_channel},
    task::AbortHandle,
};

use super::{
    FetchRange, LinkEstimate, NeededRange, RandomAccess, ReadError,
    driver::{JobDriver, JobMessage},
    plan::{PlanLimits, RequestPlan},
    random_access::RequestTarget,
};

/// The time at which a job sends requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Submission {
    /// As soon as the limits allow.
    #[default]
    Eager,
    /// One by one, each when the caller waits for it. This is slow and only for a comparison in a
    /// benchmark.
    Lazy,
}

/// Limits of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOptions {
    /// Maximum number of requests in flight.
    pub requests: usize,
    /// Maximum bytes of requests in flight, and of responses with pieces that the caller has not
    /// taken. The job raises the limit to fit the next piece in order of need.
    ///
    /// One request may exceed the limit if no other is in flight and the caller cannot take any
    /// held piece before the response arrives. Otherwise the job would deadlock.
    pub budget_bytes: u64,
    /// Maximum length of a request. The job splits longer ranges.
    pub request_bytes: u64,
    /// The time at which a job sends requests.
    pub submission: Submission,
}

impl Default for JobOptions {
    /// 192 requests read 500 scattered ranges in three round trips. 64 MiB allow enough
    /// concurrent requests of 8 MiB for a fast network.
    fn default() -> Self {
        Self {
            requests: 192,
            budget_bytes: 64 << 20,
            request_bytes: 8 << 20,
            submission: Submission::Eager,
        }
    }
}

/// Starts jobs on one service or one content.
#[derive(Clone, Debug)]
pub struct RangePlanner {
    source: RequestTarget,
    link: Arc<LinkEstimate>,
    options: JobOptions,
}

/// The result for one requested range.
#[derive(Clone, Debug)]
pub struct RangeResult {
    /// Position of the range in the list given to [`RangePlanner::start`].
    pub position: usize,
    /// The bytes of the range. They may be a slice of a longer response, which stays in
    /// memory as long as any of its slices.
    pub bytes: Result<Bytes, ReadError>,
}

/// Counters of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// Number of sent requests.
    pub requests: u64,
    /// Number of requests in the plan of the whole job.
    pub planned_requests: u64,
    /// Bytes received.
    pub fetched_bytes: u64,
    /// Bytes of the union of the requested ranges.
    pub needed_bytes: u64,
}

/// Counters that the driver updates.
#[derive(Debug, Default)]
pub(super) struct JobCounters {
    pub requests: AtomicU64,
    pub fetched_bytes: AtomicU64,
}

/// The running read of a list of ranges. Dropping a job cancels its requests.
#[derive(Debug)]
pub struct RangeJob {
    plan: Arc<RequestPlan>,
    meter: Arc<JobCounters>,
    pieces: UnboundedReceiver<RangeResult>,
    messages: UnboundedSender<JobMessage>,
    driver: AbortHandle,
    /// Pieces that arrived before their turn in [`RangeJob::next_in_order`].
    early: BTreeMap<usize, RangeResult>,
    taken: Vec<bool>,
    /// The caller has taken every piece before this position.
    head: usize,
    left: usize,
}

impl RangePlanner {
    /// Creates a planner of requests to `fetch`, whose measurements go to `link`.
    pub fn new(fetch: Arc<dyn FetchRange>, link: Arc<LinkEstimate>, options: JobOptions) -> Self {
        Self { source: RequestTarget::Objects(fetch), link, options }
    }

    /// Creates a planner of requests to one content; ignores the keys of ranges.
    pub fn for_content(
        blocks: Arc<dyn RandomAccess>,
        link: Arc<LinkEstimate>,
        options: JobOptions,
    ) -> Self {
        Self { source: RequestTarget::Content(blocks), link, options }
    }

    /// Starts to read the ranges `wanted`, given in order of need. Ranges may overlap, repeat or be
    /// empty. Starts the first requests before it returns.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(&self, wanted: Vec<NeededRange>) -> RangeJob {
        let rules = PlanLimits {
            gap_bytes: self.link.gap_bytes(),
            request_bytes: self.options.request_bytes,
            window_bytes: self.options.budget_bytes / 2,
        };
        let plan = Arc::new(RequestPlan::new(wanted, &rules));
        let meter = Arc::new(JobCounters::default());
        let (send_piece, pieces) = unbounded_channel();
        let (messages, receive_message) = unbounded_channel();
        let mut driver = JobDriver::new(
            Arc::clone(&plan),
            self.source.clone(),
            Arc::clone(&self.link),
            self.options.clone(),
            send_piece,
            Arc::clone(&meter),
        );
        driver.begin();
        let driver = tokio::spawn(driver.run(receive_message)).abort_handle();
        let left = plan.wanted.len();
        RangeJob {
            plan,
            meter,
            pieces,
            messages,
            driver,
            early: BTreeMap::new(),
            taken: vec![false; left],
            head: 0,
            left,
        }
    }
}

impl RangeJob {
    /// Returns the next piece to arrive, in any order, or `None` after the last one. Cancel-safe:
    /// dropping the future loses no piece.
    pub async fn next(&mut self) -> Option<RangeResult> {
        if self.left == 0 {
            return None;
        }
        let piece = match self.early.pop_first() {
            Some((_, piece)) => piece,
            None => self.receive(JobMessage::Waiting(None)).await,
        };
        Some(self.take(piece))
    }

    /// Returns the next piece in order of need, or `None` after the last one. Cancel-safe: dropping
    /// the future loses no piece.
    pub async fn next_in_order(&mut self) -> Option<RangeResult> {
        if self.left == 0 {
            return None;
        }
        loop {
            if let Some(piece) = self.early.remove(&self.head) {
                return Some(self.take(piece));
            }
            let piece = self.receive(JobMessage::Waiting(Some(self.head))).await;
            self.early.insert(piece.position, piece);
        }
    }

    /// Returns a stream of the pieces in order of arrival.
    pub fn as_they_arrive(self) -> impl Stream<Item = RangeResult> + Send {
        stream::unfold(self, |mut job| async move { Some((job.next().await?, job)) })
    }

    /// Returns a stream of the pieces in order of need.
    pub fn in_order(self) -> impl Stream<Item = RangeResult> + Send {
        stream::unfold(self, |mut job| async move { Some((job.next_in_order().await?, job)) })
    }

    /// Returns the bytes of all ranges, by position.
    ///
    /// # Errors
    /// The first [`ReadError`]; the remaining requests are then cancelled.
    pub async fn all(mut self) -> Result<Vec<Bytes>, ReadError> {
        let mut all = vec![Bytes::new(); self.plan.wanted.len()];
        while let Some(piece) = self.next().await {
            all[piece.position] = piece.bytes?;
        }
        Ok(all)
    }

    /// Returns the counters so far.
    pub fn counts(&self) -> JobCounts {
        JobCounts {
            requests: self.meter.requests.load(Ordering::Relaxed),
            planned_requests: self.plan.requests.len() as u64,
            fetched_bytes: self.meter.fetched_bytes.load(Ordering::Relaxed),
            needed_bytes: self.plan.needed_bytes,
        }
    }

    /// Receives a piece from the driver, and tells the driver if the caller has to wait.
    async fn receive(&mut self, waiting: JobMessage) -> RangeResult {
        match self.pieces.try_recv() {
            Ok(piece) => return piece,
            Err(TryRecvError::Empty) => {
                // Sending fails only if the driver has finished.
                let _ = self.messages.send(waiting);
            }
            Err(TryRecvError::Disconnected) => {}
        }
        match self.pieces.recv().await {
            Some(piece) => piece,
            None => RangeResult { position: self.head, bytes: Err(ReadError::Stopped) },
        }
    }

    fn take(&mut self, piece: RangeResult) -> RangeResult {
        self.taken[piece.position] = true;
        self.left -= 1;
        while self.taken.get(self.head).is_some_and(|taken| *taken) {
            self.head += 1;
        }
        let _ = self.messages.send(JobMessage::Taken(piece.position));
        piece
    }
}

impl Drop for RangeJob {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
