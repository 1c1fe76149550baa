//! The task that runs a job: it starts requests within the limits, assembles pieces and
//! sends them to the caller.

use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

use bytes::{Bytes, BytesMut};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender},
    task::JoinSet,
    time::Instant,
};

use super::{
    JobOptions, LinkEstimate, RangeResult, ReadError, Submission,
    job::JobCounters,
    plan::{RequestPlan, length},
    random_access::RequestTarget,
};

/// A message from the [`RangeJob`](super::RangeJob) to its driver.
#[derive(Clone, Copy, Debug)]
pub(super) enum JobMessage {
    /// The caller took the piece at this position, so its bytes no longer count.
    Taken(usize),
    /// The caller waits for the piece at this position, or for any piece, and has not received one.
    Waiting(Option<usize>),
}

/// The state of a request.
#[derive(Debug, Default)]
struct RequestProgress {
    started: bool,
    arrived: bool,
    /// The response, while a piece still has to copy its part.
    bytes: Option<Bytes>,
    /// Number of pieces that have not copied their part of the response.
    unread: usize,
    /// Number of pieces that the caller has not taken.
    untaken: usize,
}

/// The state of a piece.
#[derive(Debug)]
struct PieceAssembly {
    /// The first request whose bytes have not been copied into the piece.
    next: usize,
    buffer: BytesMut,
    done: bool,
}

#[derive(Debug)]
pub(super) struct JobDriver {
    plan: Arc<RequestPlan>,
    source: RequestTarget,
    link: Arc<LinkEstimate>,
    options: JobOptions,
    pieces: UnboundedSender<RangeResult>,
    meter: Arc<JobCounters>,
    tasks: JoinSet<(usize, Result<Bytes, ReadError>)>,
    requests: Vec<RequestProgress>,
    assemblies: Vec<PieceAssembly>,
    /// Number of requests, in the order of the plan, that were started or skipped.
    started: usize,
    /// Position of the first piece that was not sent to the caller.
    head: usize,
    /// Number of pieces that were not sent to the caller.
    left: usize,
    /// Number of pieces that were sent to the caller but not taken.
    untaken: usize,
    /// Bytes that count against the budget: requests in flight, and responses with pieces that the
    /// caller has not taken.
    held_bytes: u64,
    /// The piece that the caller waits for, as in [`JobMessage::Waiting`].
    waiting: Option<Option<usize>>,
}

impl JobDriver {
    pub(super) fn new(
        plan: Arc<RequestPlan>,
        source: RequestTarget,
        link: Arc<LinkEstimate>,
        options: JobOptions,
        pieces: UnboundedSender<RangeResult>,
        meter: Arc<JobCounters>,
    ) -> Self {
        let progress = |pieces: usize| RequestProgress {
            unread: pieces,
            untaken: pieces,
            ..RequestProgress::default()
        };
        let requests = plan.requests.iter().map(|request| progress(request.pieces.len())).collect();
        let assembly = |parts: &Range<u32>| PieceAssembly {
            next: parts.start as usize,
            buffer: BytesMut::new(),
            done: false,
        };
        let assemblies = plan.parts.iter().map(assembly).collect();
        let left = plan.wanted.len();
        Self {
            plan,
            source,
            link,
            options,
            pieces,
            meter,
            tasks: JoinSet::new(),
            requests,
            assemblies,
            started: 0,
            head: 0,
            left,
            untaken: 0,
            held_bytes: 0,
            waiting: None,
        }
    }

    /// Sends the empty pieces and starts the first requests.
    pub(super) fn begin(&mut self) {
        for position in 0..self.plan.wanted.len() {
            if self.plan.wanted[position].range.is_empty() {
                self.hand_on(position, Ok(Bytes::new()));
            }
        }
        self.start_what_fits();
    }

    /// Runs until the caller has received every piece.
    pub(super) async fn run(mut self, mut messages: UnboundedReceiver<JobMessage>) {
        while self.left > 0 {
            tokio::select! {
                // Messages come first: a taken piece frees budget, and a wait decides what
                // may start.
                biased;
                message = messages.recv() => match message {
                    Some(JobMessage::Taken(position)) => self.release(position),
                    Some(JobMessage::Waiting(what)) => self.wait_for(what),
                    None => return,
                },
                Some(ended) = self.tasks.join_next() => match ended {
                    Ok((request, Ok(bytes))) => self.arrive(request, &bytes),
                    Ok((request, Err(error))) => self.fail(request, &error),
                    // The task of a request panicked, so the job ends.
                    Err(_) => return,
                },
            }
            self.start_what_fits();
        }
    }

    /// Notes that the caller waits, unless the piece was sent in the meantime.
    fn wait_for(&mut self, what: Option<usize>) {
        let is_there = match what {
            Some(position) => self.assemblies[position].done,
            None => self.untaken > 0,
        };
        if !is_there {
            self.waiting = Some(what);
        }
    }

    fn start_what_fits(&mut self) {
        while let Some(request) = self.plan.order.get(self.started).map(|at| *at as usize) {
            let wanted = &self.plan.requests[request];
            if wanted.pieces.iter().all(|piece| self.assemblies[*piece as usize].done) {
                // Every piece of this request has already failed in another request.
                self.started += 1;
                continue;
            }
            let bytes = wanted.bytes();
            if self.tasks.len() >= self.options.requests.max(1) || !self.may_start(bytes) {
                return;
            }
            self.started += 1;
            self.held_bytes += bytes;
            self.requests[request].started = true;
            self.meter.requests.fetch_add(1, Ordering::Relaxed);
            let (source, link) = (self.source.clone(), Arc::clone(&self.link));
            let (key, range) = (Arc::clone(&wanted.key), wanted.range.clone());
            self.tasks.spawn(async move {
                let start = Instant::now();
                let result = source.read(key, range).await;
                if result.is_ok() {
                    link.record(bytes, start.elapsed());
                }
                (request, result)
            });
        }
    }

    fn may_start(&self, bytes: u64) -> bool {
        let idle = self.tasks.is_empty();
        if self.options.submission == Submission::Lazy {
            return idle && self.waiting.is_some();
        }
        let budget = self.options.budget_bytes.max(self.plan.bytes_of(self.head));
        let fits = self.held_bytes.saturating_add(bytes) <= budget;
        // Nothing will free budget: the held bytes belong to incomplete pieces, or to pieces after
        // the one that the caller waits for. Without this exception the job would deadlock.
        let stuck = self.untaken == 0 || self.waiting == Some(Some(self.head));
        fits || (idle && stuck)
    }

    fn arrive(&mut self, request: usize, bytes: &Bytes) {
        self.meter.fetched_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let plan = Arc::clone(&self.plan);
        let pieces = &plan.requests[request].pieces;
        self.requests[request].arrived = true;
        self.requests[request].bytes = Some(bytes.clone());
        for position in pieces {
            self.assemble(*position as usize);
        }
        self.settle(request);
    }

    fn fail(&mut self, request: usize, error: &ReadError) {
        let plan = Arc::clone(&self.plan);
        self.requests[request].arrived = true;
        for position in &plan.requests[request].pieces {
            self.give_up(*position as usize, error);
        }
        self.settle(request);
    }

    /// Copies the responses that have arrived into a piece, and sends it once complete.
    fn assemble(&mut self, position: usize) {
        let plan = Arc::clone(&self.plan);
        let (wanted, parts) = (&plan.wanted[position].range, &plan.parts[position]);
        let end = parts.end as usize;
        while !self.assemblies[position].done {
            let part = self.assemblies[position].next;
            let Some(bytes) = self.requests[part].bytes.clone() else { return };
            let whole = &plan.requests[part].range;
            let from = wanted.start.max(whole.start) - whole.start;
            let to = wanted.end.min(whole.end) - whole.start;
            let slice = bytes.slice(from as usize..to as usize);
            let assembly = &mut self.assemblies[position];
            assembly.next += 1;
            let complete = if parts.len() == 1 {
                slice
            } else {
                if assembly.buffer.is_empty() {
                    assembly.buffer.reserve(length(wanted) as usize);
                }
                assembly.buffer.extend_from_slice(&slice);
                if assembly.next < end { Bytes::new() } else { assembly.buffer.split().freeze() }
            };
            let whole_piece = assembly.next == end;
            self.read_by_one(part);
            if whole_piece {
                self.hand_on(position, Ok(complete));
            }
        }
    }

    /// Sends an error in place of a piece.
    fn give_up(&mut self, position: usize, error: &ReadError) {
        let assembly = &mut self.assemblies[position];
        if assembly.done {
            return;
        }
        assembly.buffer = BytesMut::new();
        let unread = assembly.next;
        let end = self.plan.parts[position].end as usize;
        for part in unread..end {
            self.read_by_one(part);
        }
        self.hand_on(position, Err(error.clone()));
    }

    /// Notes that one more piece is done with the response, and frees the response after
    /// the last one.
    fn read_by_one(&mut self, request: usize) {
        let progress = &mut self.requests[request];
        progress.unread -= 1;
        if progress.unread == 0 {
            progress.bytes = None;
        }
    }

    fn hand_on(&mut self, position: usize, bytes: Result<Bytes, ReadError>) {
        self.assemblies[position].done = true;
        self.left -= 1;
        self.untaken += 1;
        self.waiting = None;
        while self.assemblies.get(self.head).is_some_and(|assembly| assembly.done) {
            self.head += 1;
        }
        // Sending fails only if the caller has dropped the job.
        let _ = self.pieces.send(RangeResult { position, bytes });
    }

    fn release(&mut self, position: usize) {
        self.untaken -= 1;
        for part in self.plan.parts_of(position) {
            self.requests[part].untaken -= 1;
            self.settle(part);
        }
    }

    /// Releases the budget of a request once the caller took all of its pieces.
    fn settle(&mut self, request: usize) {
        let progress = &mut self.requests[request];
        if progress.started && progress.arrived && progress.untaken == 0 {
            progress.started = false;
            self.held_bytes -= self.plan.requests[request].bytes();
        }
        if progress.unread == 0 {
            progress.bytes = None;
        }
    }
}
