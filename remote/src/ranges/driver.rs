//! What runs a job: starts requests while there is room, puts pieces together
//! and hands them on.

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
    Link, Options, Piece, ReadError, Submission,
    blocks::Source,
    job::Meter,
    plan::{Plan, length},
};

/// What whoever takes the pieces tells the driver.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    /// The piece was taken: its bytes are no longer the job's.
    Taken(usize),
    /// Nothing is there, and somebody waits: for this piece, or for any.
    Waiting(Option<usize>),
}

/// How far a request is.
#[derive(Debug, Default)]
struct Progress {
    started: bool,
    arrived: bool,
    /// Bytes that pieces which are not put together yet will need.
    bytes: Option<Bytes>,
    /// Pieces that its bytes were not put into yet.
    unread: usize,
    /// Pieces that were not taken yet.
    untaken: usize,
}

/// How far a piece is.
#[derive(Debug)]
struct Assembly {
    /// The first of its requests that was not put into it yet.
    next: usize,
    buffer: BytesMut,
    done: bool,
}

#[derive(Debug)]
pub(super) struct Driver {
    plan: Arc<Plan>,
    source: Source,
    link: Arc<Link>,
    options: Options,
    pieces: UnboundedSender<Piece>,
    meter: Arc<Meter>,
    tasks: JoinSet<(usize, Result<Bytes, ReadError>)>,
    requests: Vec<Progress>,
    assemblies: Vec<Assembly>,
    /// How many in the plan's order were started or given up.
    started: usize,
    /// The first piece that was not handed on.
    head: usize,
    /// Pieces that were not handed on.
    left: usize,
    /// Pieces that were handed on and not taken.
    untaken: usize,
    held_bytes: u64,
    waiting: Option<Option<usize>>,
}

impl Driver {
    pub(super) fn new(
        plan: Arc<Plan>,
        (source, link): (Source, Arc<Link>),
        options: Options,
        (pieces, meter): (UnboundedSender<Piece>, Arc<Meter>),
    ) -> Self {
        let progress =
            |pieces: usize| Progress { unread: pieces, untaken: pieces, ..Progress::default() };
        let requests = plan.requests.iter().map(|request| progress(request.pieces.len())).collect();
        let assembly = |parts: &Range<u32>| Assembly {
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

    /// Hands on what is empty and starts the first requests.
    pub(super) fn begin(&mut self) {
        for position in 0..self.plan.wanted.len() {
            if self.plan.wanted[position].range.is_empty() {
                self.hand_on(position, Ok(Bytes::new()));
            }
        }
        self.start_what_fits();
    }

    /// Runs until all pieces were handed on.
    pub(super) async fn run(mut self, mut messages: UnboundedReceiver<Message>) {
        while self.left > 0 {
            tokio::select! {
                // What has come makes room, and says what is to be waited for.
                biased;
                message = messages.recv() => match message {
                    Some(Message::Taken(position)) => self.release(position),
                    Some(Message::Waiting(what)) => self.wait_for(what),
                    None => return,
                },
                Some(ended) = self.tasks.join_next() => match ended {
                    Ok((request, Ok(bytes))) => self.arrive(request, &bytes),
                    Ok((request, Err(error))) => self.fail(request, &error),
                    // The reader below panicked; the job ends with that.
                    Err(_) => return,
                },
            }
            self.start_what_fits();
        }
    }

    /// Somebody waits, unless what is waited for was handed on meanwhile.
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
                // All of them have failed by another request.
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
        // Nothing will be given back: what is held are parts of pieces, or
        // pieces that come after the one that is waited for.
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

    /// Puts what has come into a piece, and hands it on when that is all.
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

    /// Hands on an error in place of a piece.
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

    /// A piece needs the bytes of the request no more.
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
        // Whoever no longer takes pieces has dropped the job.
        let _ = self.pieces.send(Piece { position, bytes });
    }

    fn release(&mut self, position: usize) {
        self.untaken -= 1;
        for part in self.plan.parts_of(position) {
            self.requests[part].untaken -= 1;
            self.settle(part);
        }
    }

    /// Gives the budget back what a request had, once nothing of it is left.
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
