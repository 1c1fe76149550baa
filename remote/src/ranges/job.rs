//! A job: takes ranges, sends requests at once within the limits, and returns the pieces as they
//! arrive.

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{sync::Notify, task::JoinSet, time::Instant};

use super::{
    FetchRange, LinkEstimate, NeededRange, ReadError,
    plan::{PlanLimits, RequestPlan, length},
};

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
}

impl Default for JobOptions {
    /// 192 requests read 500 scattered ranges in three round trips. 64 MiB allow enough
    /// concurrent requests of 8 MiB for a fast network.
    fn default() -> Self {
        Self { requests: 192, budget_bytes: 64 << 20, request_bytes: 8 << 20 }
    }
}

/// Starts jobs on one service.
#[derive(Clone, Debug)]
pub struct RangePlanner {
    fetch: Arc<dyn FetchRange>,
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

/// The running read of a list of ranges. Dropping a job cancels its requests.
#[derive(Debug)]
pub struct RangeJob {
    shared: Arc<JobInner>,
}

#[derive(Debug)]
struct JobInner {
    planner: RangePlanner,
    plan: RequestPlan,
    state: Mutex<JobState>,
    /// Wakes the caller after each request.
    arrived: Notify,
    /// A task was dropped before its request ended: it panicked, or the runtime ended.
    is_broken: AtomicBool,
}

#[derive(Debug, Default)]
struct JobState {
    requests: Vec<RequestState>,
    pieces: Vec<PieceState>,
    tasks: JoinSet<()>,
    /// Number of requests in flight.
    in_flight: usize,
    /// Number of requests, in the order of the plan, that were started or skipped.
    started: usize,
    /// Pieces that the caller can take.
    ready: BTreeSet<usize>,
    /// The first piece that was never ready.
    head: usize,
    /// The first piece that the caller has not taken.
    next: usize,
    /// Bytes that count against the budget: requests in flight, and responses with pieces that the
    /// caller has not taken.
    held_bytes: u64,
    /// The caller has found no piece to take, and none has become ready since.
    waits: bool,
}

#[derive(Debug, Default)]
struct RequestState {
    /// The bytes of the request count against the budget.
    is_held: bool,
    in_flight: bool,
    response: Option<Bytes>,
    /// Number of pieces that the caller has not taken.
    untaken: usize,
}

#[derive(Debug, Default)]
struct PieceState {
    /// Number of requests that have not returned their part.
    missing: usize,
    error: Option<ReadError>,
    is_taken: bool,
}

impl PieceState {
    fn is_done(&self) -> bool {
        self.missing == 0 || self.error.is_some()
    }
}

impl RangePlanner {
    /// Creates a planner of requests to `fetch`, whose measurements go to `link`.
    pub fn new(fetch: Arc<dyn FetchRange>, link: Arc<LinkEstimate>, options: JobOptions) -> Self {
        Self { fetch, link, options }
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
        let plan = RequestPlan::new(wanted, &rules);
        let shared = JobInner {
            planner: self.clone(),
            state: Mutex::new(JobState::new(&plan)),
            plan,
            arrived: Notify::new(),
            is_broken: AtomicBool::new(false),
        };
        let job = RangeJob { shared: Arc::new(shared) };
        job.shared.start_what_fits(&mut job.shared.state.lock());
        job
    }
}

impl RangeJob {
    /// Returns the next piece to arrive, in any order, or `None` after the last one. Cancel-safe:
    /// dropping the future loses no piece.
    pub async fn next(&mut self) -> Option<RangeResult> {
        self.take(|state| state.ready.first().copied()).await
    }

    /// Returns the next piece in order of need, or `None` after the last one. Cancel-safe: dropping
    /// the future loses no piece.
    pub async fn next_in_order(&mut self) -> Option<RangeResult> {
        self.take(|state| state.ready.get(&state.next).copied()).await
    }

    /// Returns the bytes of all ranges, by position.
    ///
    /// # Errors
    /// The first [`ReadError`]; the remaining requests are then cancelled.
    pub async fn all(mut self) -> Result<Vec<Bytes>, ReadError> {
        let mut all = vec![Bytes::new(); self.shared.plan.wanted.len()];
        while let Some(piece) = self.next().await {
            all[piece.position] = piece.bytes?;
        }
        Ok(all)
    }

    /// Takes the piece that `choose` returns, and waits while it returns none.
    async fn take(&mut self, choose: impl Fn(&JobState) -> Option<usize>) -> Option<RangeResult> {
        let shared = &self.shared;
        loop {
            {
                let mut state = shared.state.lock();
                if state.next == state.pieces.len() {
                    return None;
                }
                if let Some(position) = choose(&state) {
                    let bytes = state.take(&shared.plan, position);
                    shared.start_what_fits(&mut state);
                    return Some(RangeResult { position, bytes });
                }
                if shared.is_broken.load(Ordering::Acquire) {
                    let all = 0..state.pieces.len();
                    all.for_each(|position| state.fail(position, &ReadError::Stopped));
                    continue;
                }
                state.waits = true;
                shared.start_what_fits(&mut state);
            }
            shared.arrived.notified().await;
        }
    }
}

impl JobInner {
    fn start_what_fits(self: &Arc<Self>, state: &mut JobState) {
        while let Some(request) = self.plan.order.get(state.started).map(|at| *at as usize) {
            let wanted = &self.plan.requests[request];
            let is_done = |piece: &u32| state.pieces[*piece as usize].is_done();
            // Otherwise every piece of this request has already failed in another request.
            if !wanted.pieces.iter().all(is_done) {
                if !self.may_start(state, wanted.bytes()) {
                    return;
                }
                (state.requests[request].is_held, state.requests[request].in_flight) = (true, true);
                state.held_bytes += wanted.bytes();
                state.in_flight += 1;
                let request = RunningRequest { job: Arc::downgrade(self), request };
                let (key, range) = (Arc::clone(&wanted.key), wanted.range.clone());
                state.tasks.spawn(request.run(self.planner.clone(), key, range));
            }
            state.started += 1;
        }
    }

    fn may_start(&self, state: &JobState, bytes: u64) -> bool {
        let options = &self.planner.options;
        let idle = state.in_flight == 0;
        let budget = options.budget_bytes.max(self.plan.bytes_of(state.head));
        let fits = state.held_bytes.saturating_add(bytes) <= budget;
        // Nothing will free budget: the held bytes belong to incomplete pieces, or to pieces after
        // the one that the caller waits for. Without this exception the job would deadlock.
        let stuck = state.ready.is_empty() || state.waits;
        state.in_flight < options.requests.max(1) && (fits || (idle && stuck))
    }

    fn arrive(self: &Arc<Self>, request: usize, result: Result<Bytes, ReadError>) {
        let mut state = self.state.lock();
        while state.tasks.try_join_next().is_some() {}
        state.arrive(&self.plan, request, result);
        self.start_what_fits(&mut state);
        drop(state);
        self.arrived.notify_one();
    }
}

impl JobState {
    fn new(plan: &RequestPlan) -> Self {
        let request = |untaken| RequestState { untaken, ..RequestState::default() };
        let piece = |missing| PieceState { missing, ..PieceState::default() };
        let pieces: Vec<_> = plan.parts.iter().map(|parts| piece(parts.len())).collect();
        let mut state = Self {
            requests: plan.requests.iter().map(|one| request(one.pieces.len())).collect(),
            ready: (0..pieces.len()).filter(|at| pieces[*at].is_done()).collect(),
            pieces,
            ..Self::default()
        };
        state.move_head();
        state
    }

    fn arrive(&mut self, plan: &RequestPlan, request: usize, result: Result<Bytes, ReadError>) {
        self.in_flight -= 1;
        self.requests[request].in_flight = false;
        for position in plan.requests[request].pieces.iter().map(|piece| *piece as usize) {
            match &result {
                Err(error) => self.fail(position, error),
                Ok(_) => {
                    let piece = &mut self.pieces[position];
                    piece.missing -= 1;
                    if piece.missing == 0 && piece.error.is_none() {
                        self.add_ready(position);
                    }
                }
            }
        }
        self.requests[request].response = result.ok();
        self.settle(plan, request);
    }

    /// Ends a piece with an error, unless it is complete or has failed.
    fn fail(&mut self, position: usize, error: &ReadError) {
        if !self.pieces[position].is_done() {
            self.pieces[position].error = Some(error.clone());
            self.add_ready(position);
        }
    }

    fn add_ready(&mut self, position: usize) {
        self.ready.insert(position);
        self.waits = false;
        self.move_head();
    }

    fn move_head(&mut self) {
        while self.pieces.get(self.head).is_some_and(PieceState::is_done) {
            self.head += 1;
        }
    }

    /// Takes a ready piece: copies it from its responses, or returns a slice of the only one.
    fn take(&mut self, plan: &RequestPlan, position: usize) -> Result<Bytes, ReadError> {
        self.ready.remove(&position);
        let piece = &mut self.pieces[position];
        piece.is_taken = true;
        let error = piece.error.clone();
        while self.pieces.get(self.next).is_some_and(|piece| piece.is_taken) {
            self.next += 1;
        }
        let (wanted, parts) = (&plan.wanted[position].range, &plan.parts[position]);
        let (mut only, mut joined) = (Bytes::new(), Vec::new());
        for part in plan.parts_of(position) {
            if let (Some(response), None) = (&self.requests[part].response, &error) {
                let whole = &plan.requests[part].range;
                let from = wanted.start.max(whole.start) - whole.start;
                let to = wanted.end.min(whole.end) - whole.start;
                let slice = response.slice(from as usize..to as usize);
                if parts.len() == 1 {
                    only = slice;
                } else {
                    joined.reserve_exact((length(wanted) as usize) - joined.len());
                    joined.extend_from_slice(&slice);
                }
            }
            self.requests[part].untaken -= 1;
            self.settle(plan, part);
        }
        match error {
            Some(error) => Err(error),
            None if parts.len() == 1 => Ok(only),
            None => Ok(joined.into()),
        }
    }

    /// Frees the response of a request, and its budget, once the caller took all of its pieces.
    fn settle(&mut self, plan: &RequestPlan, request: usize) {
        let state = &mut self.requests[request];
        if state.is_held && !state.in_flight && state.untaken == 0 {
            state.is_held = false;
            state.response = None;
            self.held_bytes -= plan.requests[request].bytes();
        }
    }
}

/// A request in flight.
struct RunningRequest {
    job: Weak<JobInner>,
    request: usize,
}

impl RunningRequest {
    async fn run(mut self, planner: RangePlanner, key: Arc<str>, range: Range<u64>) {
        let start = Instant::now();
        let mut result = planner.fetch.fetch(&key, range.clone()).await.map_err(ReadError::from);
        let actual_bytes = result.as_ref().map_or(0, |bytes| bytes.len() as u64);
        if result.is_ok() && actual_bytes != length(&range) {
            result = Err(ReadError::Length { key, range, actual_bytes });
        }
        if result.is_ok() {
            planner.link.record(actual_bytes, start.elapsed());
        }
        if let Some(job) = std::mem::take(&mut self.job).upgrade() {
            job.arrive(self.request, result);
        }
    }
}

impl Drop for RunningRequest {
    /// Takes no lock: a runtime that has ended drops a new task at once, while
    /// [`JobInner::start_what_fits`] holds the lock.
    fn drop(&mut self) {
        if let Some(job) = self.job.upgrade() {
            job.is_broken.store(true, Ordering::Release);
            job.arrived.notify_one();
        }
    }
}
