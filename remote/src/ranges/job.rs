//! A job: ranges in, pieces out, requests under way from the start.

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
    Blocks, Fetch, Link, ReadError, Wanted,
    blocks::Source,
    driver::{Driver, Message},
    plan::{Plan, Rules},
};

/// When requests are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Submission {
    /// As soon as there is room for them.
    #[default]
    Eager,
    /// One by one, when somebody waits for them. Slow: it is there so that a
    /// benchmark can show how slow.
    Lazy,
}

/// What a job keeps to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Requests at once.
    pub requests: usize,
    /// Bytes of requests that are under way, or have come and hold pieces that
    /// were not taken. A piece that needs more than this may have it. Beyond
    /// that one request at a time is sent, when nothing else is under way and
    /// nothing that is held can be taken before it has come.
    pub budget_bytes: u64,
    /// Longest request. Longer ranges are read by several.
    pub request_bytes: u64,
    /// When requests are sent.
    pub submission: Submission,
}

impl Default for Options {
    /// 500 ranges that are far from each other in three round trips, within
    /// 64 MiB, and enough requests of 8 MiB for a fast network.
    fn default() -> Self {
        Self {
            requests: 192,
            budget_bytes: 64 << 20,
            request_bytes: 8 << 20,
            submission: Submission::Eager,
        }
    }
}

/// Starts jobs on one service.
#[derive(Clone, Debug)]
pub struct Planner {
    source: Source,
    link: Arc<Link>,
    options: Options,
}

/// A range that was needed.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Its position in the list of them.
    pub position: usize,
    /// Its bytes. They may be a slice of a longer request, which stays in
    /// memory as long as any slice of it does.
    pub bytes: Result<Bytes, ReadError>,
}

/// What a job has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that were sent.
    pub requests: u64,
    /// Requests that the whole job takes.
    pub planned_requests: u64,
    /// Bytes that have come.
    pub fetched_bytes: u64,
    /// Distinct bytes that are needed.
    pub needed_bytes: u64,
}

/// What the driver counts.
#[derive(Debug, Default)]
pub(super) struct Meter {
    pub requests: AtomicU64,
    pub fetched_bytes: AtomicU64,
}

/// Ranges that are being read. Dropping it stops what is under way.
#[derive(Debug)]
pub struct Job {
    plan: Arc<Plan>,
    meter: Arc<Meter>,
    pieces: UnboundedReceiver<Piece>,
    messages: UnboundedSender<Message>,
    driver: AbortHandle,
    /// Came before their turn.
    early: BTreeMap<usize, Piece>,
    taken: Vec<bool>,
    /// All before this were taken.
    head: usize,
    left: usize,
}

impl Planner {
    /// A planner of requests to `fetch`, whose measurements go to `link`.
    pub fn new(fetch: Arc<dyn Fetch>, link: Arc<Link>, options: Options) -> Self {
        Self { source: Source::Objects(fetch), link, options }
    }

    /// A planner of requests to one content; the keys of ranges say nothing.
    pub fn of_content(blocks: Arc<dyn Blocks>, link: Arc<Link>, options: Options) -> Self {
        Self { source: Source::Content(blocks), link, options }
    }

    /// Starts to read `wanted`, which stand in order of need. Ranges may
    /// overlap, be the same, be empty. The first requests are under way when
    /// this returns.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(&self, wanted: Vec<Wanted>) -> Job {
        let rules = Rules {
            gap_bytes: self.link.gap_bytes(),
            request_bytes: self.options.request_bytes,
            window_bytes: self.options.budget_bytes / 2,
        };
        let plan = Arc::new(Plan::new(wanted, &rules));
        let meter = Arc::new(Meter::default());
        let (send_piece, pieces) = unbounded_channel();
        let (messages, receive_message) = unbounded_channel();
        let mut driver = Driver::new(
            Arc::clone(&plan),
            (self.source.clone(), Arc::clone(&self.link)),
            self.options.clone(),
            (send_piece, Arc::clone(&meter)),
        );
        driver.begin();
        let driver = tokio::spawn(driver.run(receive_message)).abort_handle();
        let left = plan.wanted.len();
        Job {
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

impl Job {
    /// The next piece that is there, in whatever order they come; `None` when
    /// all were taken. Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Piece> {
        if self.left == 0 {
            return None;
        }
        let piece = match self.early.pop_first() {
            Some((_, piece)) => piece,
            None => self.receive(Message::Waiting(None)).await,
        };
        Some(self.take(piece))
    }

    /// The next piece in order of need; `None` when all were taken. Nothing is
    /// lost when the future is dropped.
    pub async fn next_in_order(&mut self) -> Option<Piece> {
        if self.left == 0 {
            return None;
        }
        loop {
            if let Some(piece) = self.early.remove(&self.head) {
                return Some(self.take(piece));
            }
            let piece = self.receive(Message::Waiting(Some(self.head))).await;
            self.early.insert(piece.position, piece);
        }
    }

    /// The pieces as they come.
    pub fn arriving(self) -> impl Stream<Item = Piece> + Send {
        stream::unfold(self, |mut job| async move { Some((job.next().await?, job)) })
    }

    /// The pieces in order of need.
    pub fn in_order(self) -> impl Stream<Item = Piece> + Send {
        stream::unfold(self, |mut job| async move { Some((job.next_in_order().await?, job)) })
    }

    /// All of them, at their positions.
    ///
    /// # Errors
    /// The first [`ReadError`]; the rest is stopped then.
    pub async fn all(mut self) -> Result<Vec<Bytes>, ReadError> {
        let mut all = vec![Bytes::new(); self.plan.wanted.len()];
        while let Some(piece) = self.next().await {
            all[piece.position] = piece.bytes?;
        }
        Ok(all)
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        Counts {
            requests: self.meter.requests.load(Ordering::Relaxed),
            planned_requests: self.plan.requests.len() as u64,
            fetched_bytes: self.meter.fetched_bytes.load(Ordering::Relaxed),
            needed_bytes: self.plan.needed_bytes,
        }
    }

    /// A piece from the driver, which is told when there is none yet.
    async fn receive(&mut self, waiting: Message) -> Piece {
        match self.pieces.try_recv() {
            Ok(piece) => return piece,
            Err(TryRecvError::Empty) => {
                // Of no interest to a driver that has done its work.
                let _ = self.messages.send(waiting);
            }
            Err(TryRecvError::Disconnected) => {}
        }
        match self.pieces.recv().await {
            Some(piece) => piece,
            None => Piece { position: self.head, bytes: Err(ReadError::Stopped) },
        }
    }

    fn take(&mut self, piece: Piece) -> Piece {
        self.taken[piece.position] = true;
        self.left -= 1;
        while self.taken.get(self.head).is_some_and(|taken| *taken) {
            self.head += 1;
        }
        let _ = self.messages.send(Message::Taken(piece.position));
        piece
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
