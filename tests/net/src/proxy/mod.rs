//! A proxy in front of an HTTP service: counts what passes, adds latency, does
//! harm where a rule says so.
//!
//! Connections are kept alive on both sides. Heads pass as they are, `Host`
//! included, less what belongs to one hop; bodies pass as they come, other
//! than those that a fault changes.
//!
//! Latency is added once to each request, before it is forwarded; to connect
//! costs nothing. The rate is one for all connections, each way.

mod body;
mod fault;
mod forward;
mod kind;
mod seen;

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use self::{
    body::{AnyBody, Line, Way},
    forward::{Connection, Upstream},
};
pub use self::{
    fault::{Fault, Rule},
    kind::Kind,
    seen::{Counts, Seen},
};
use crate::serve::Serving;

/// A proxy on a port of its own, stopped when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    serving: Serving,
    inner: Arc<Inner>,
}

/// What all connections share.
pub(crate) struct Inner {
    start: Instant,
    upstream: Upstream,
    up: Line,
    down: Line,
    tally: Mutex<Tally>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("tally", &self.tally).finish_non_exhaustive()
    }
}

/// What changes with each request.
#[derive(Debug, Default)]
struct Tally {
    counts: Counts,
    in_flight: u64,
    seen: Vec<Arc<Seen>>,
    latency: Duration,
    rules: Vec<Rule>,
}

impl Proxy {
    /// Starts a proxy for a service, such as `http://127.0.0.1:7070`.
    ///
    /// # Panics
    /// When `target` is not such an address, or there is no port or thread to
    /// be had.
    pub fn start(target: &str) -> Self {
        let inner = Arc::new(Inner {
            start: Instant::now(),
            upstream: Upstream::new(target),
            up: Line::new(),
            down: Line::new(),
            tally: Mutex::default(),
        });
        let shared = Arc::clone(&inner);
        let serving = Serving::start(move |stream| {
            shared.tally(|tally| tally.counts.connections += 1);
            Connection::new(Arc::clone(&shared)).serve(stream)
        });
        Self { serving, inner }
    }

    /// `http://127.0.0.1:PORT`, to be used in place of the target.
    pub fn endpoint(&self) -> String {
        self.serving.endpoint()
    }

    /// Adds that much to each request from now on.
    pub fn set_latency(&self, latency: Duration) {
        self.inner.tally(|tally| tally.latency = latency);
    }

    /// Limits the bytes a second of bodies, each way for itself.
    pub fn set_rate(&self, bytes_a_second: Option<u64>) {
        self.inner.up.set_rate(bytes_a_second);
        self.inner.down.set_rate(bytes_a_second);
    }

    /// Adds a rule. Each rule that has something to say about a request counts
    /// it; delays add up, and of other faults that of the oldest rule counts.
    pub fn add(&self, rule: Rule) {
        self.inner.tally(|tally| tally.rules.push(rule));
    }

    /// Ends all rules. What stalls stays so.
    pub fn clear_rules(&self) {
        self.inner.tally(|tally| tally.rules.clear());
    }

    /// Sums up to now.
    pub fn counts(&self) -> Counts {
        self.inner.tally(|tally| tally.counts.clone())
    }

    /// Sums up to now, which then begin anew, as does [`Self::requests`].
    pub fn take_counts(&self) -> Counts {
        self.inner.tally(|tally| {
            tally.seen.clear();
            let fresh = Counts { in_flight_max: tally.in_flight, ..Counts::default() };
            std::mem::replace(&mut tally.counts, fresh)
        })
    }

    /// Each request, in the order in which they came.
    pub fn requests(&self) -> Vec<Seen> {
        self.inner.tally(|tally| tally.seen.iter().map(|seen| Seen::clone(seen)).collect())
    }
}

impl Inner {
    fn tally<T>(&self, act: impl FnOnce(&mut Tally) -> T) -> T {
        act(&mut self.tally.lock().expect("nobody panics while holding the sums"))
    }

    fn count_bytes(&self, way: Way, bytes: usize) {
        self.tally(|tally| match way {
            Way::Up => tally.counts.sent_bytes += bytes as u64,
            Way::Down => tally.counts.received_bytes += bytes as u64,
        });
    }

    /// Counts a request, and says for how long it is held and what is done to
    /// it then.
    fn arrive(&self, seen: &Arc<Seen>) -> (Duration, Option<Fault>) {
        self.tally(|tally| {
            tally.counts.total += 1;
            *tally.counts.by_kind.entry(seen.kind).or_default() += 1;
            tally.seen.push(Arc::clone(seen));
            let (mut delay, mut harm) = (tally.latency, None);
            for rule in &mut tally.rules {
                match rule.strikes(seen).then(|| rule.fault.clone()) {
                    Some(Fault::Delay(more)) => delay += more,
                    Some(fault) => harm = harm.or(Some(fault)),
                    None => {}
                }
            }
            tally.counts.faults += u64::from(harm.is_some());
            (delay, harm)
        })
    }
}
