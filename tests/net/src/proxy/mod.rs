//! A proxy in front of an HTTP service: it counts requests, adds latency, and injects faults by
//! rules.
//!
//! Connections are kept alive on both sides. Headers pass unchanged, including `Host`, except for
//! hop-by-hop headers. Bodies pass as streams, except for those that a fault changes.
//!
//! Latency is added once to each request, before it is forwarded; connecting has no latency. In
//! each direction all connections share one rate.

mod body;
mod fault;
mod forward;
mod kind;
mod seen;

use std::{
    collections::HashMap,
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::Response;
use parking_lot::Mutex;
use tokio::sync::watch;

use self::{
    body::{AnyBody, Line, Way},
    forward::{Connection, Upstream},
};
pub use self::{
    fault::{Fault, Gate, Rule},
    kind::Kind,
    seen::{Counts, Seen},
};
use crate::serve::Serving;

/// A proxy on its own port, stopped on drop.
#[derive(Debug)]
pub struct Proxy {
    serving: Serving,
    inner: Arc<Inner>,
}

/// The state that all connections share.
pub(crate) struct Inner {
    start: Instant,
    upstream: Upstream,
    up: Line,
    down: Line,
    /// Changes each time the line breaks.
    broken: watch::Sender<()>,
    tally: Mutex<Tally>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("tally", &self.tally).finish_non_exhaustive()
    }
}

/// The state that changes with each request.
#[derive(Debug, Default)]
struct Tally {
    counts: Counts,
    in_flight: u64,
    seen: Vec<Arc<Seen>>,
    latency: Duration,
    rules: Vec<Rule>,
    /// The number of sent bytes after which the line breaks, and those that are left.
    breaks: Option<(u64, u64)>,
    /// Replies for [`Fault::Stale`], by method, path and range.
    replies: HashMap<(String, String, Option<String>), Response<Bytes>>,
}

/// The treatment of one request.
struct Arrival {
    delay: Duration,
    fault: Option<Fault>,
    /// True if the reply is kept for later requests.
    is_kept: bool,
}

impl Proxy {
    /// Starts a proxy for a service, such as `http://127.0.0.1:7070`.
    ///
    /// # Panics
    /// If `target` is not such an address, or a port or thread is not available.
    pub fn start(target: &str) -> Self {
        Self::balancing(&[target])
    }

    /// Starts a proxy for several services; each request goes to the next one.
    ///
    /// # Panics
    /// As [`Proxy::start`]; a request panics if there is no target.
    pub fn balancing(targets: &[&str]) -> Self {
        let inner = Arc::new(Inner {
            start: Instant::now(),
            upstream: Upstream::new(targets),
            up: Line::new(),
            down: Line::new(),
            broken: watch::Sender::default(),
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

    /// Forwards later requests to another service, which took the place of the first; `None` means
    /// that there is none, and requests are reset.
    ///
    /// # Panics
    /// As [`Proxy::start`].
    pub fn set_target(&self, target: Option<&str>) {
        self.inner.upstream.set_targets(target.as_slice());
    }

    /// Adds this latency to each later request.
    pub fn set_latency(&self, latency: Duration) {
        self.inner.tally(|tally| tally.latency = latency);
    }

    /// Limits the bytes a second of all bodies, separately in each direction.
    pub fn set_rate(&self, bytes_a_second: Option<u64>) {
        self.inner.up.set_rate(bytes_a_second);
        self.inner.down.set_rate(bytes_a_second);
    }

    /// Resets all connections each time that clients have sent this many bytes of bodies.
    pub fn break_every(&self, bytes: u64) {
        self.inner.tally(|tally| tally.breaks = Some((bytes, bytes)));
    }

    /// Adds a rule. Each rule that selects a request counts it. Delays add up; of several other
    /// faults, that of the oldest rule applies.
    pub fn add(&self, rule: Rule) {
        self.inner.tally(|tally| tally.rules.push(rule));
    }

    /// Removes all rules. Requests that stall keep stalling.
    pub fn clear_rules(&self) {
        self.inner.tally(|tally| {
            tally.rules.clear();
            tally.replies.clear();
        });
    }

    /// Returns the counters so far.
    pub fn counts(&self) -> Counts {
        self.inner.tally(|tally| tally.counts.clone())
    }

    /// Returns the counters so far and resets them, and the list of [`Self::requests`] as well.
    pub fn take_counts(&self) -> Counts {
        self.inner.tally(|tally| {
            tally.seen.clear();
            let fresh = Counts { in_flight_max: tally.in_flight, ..Counts::default() };
            std::mem::replace(&mut tally.counts, fresh)
        })
    }

    /// Returns all requests, in order of arrival.
    pub fn requests(&self) -> Vec<Seen> {
        self.inner.tally(|tally| tally.seen.iter().map(|seen| Seen::clone(seen)).collect())
    }
}

impl Inner {
    fn tally<T>(&self, act: impl FnOnce(&mut Tally) -> T) -> T {
        act(&mut self.tally.lock())
    }

    /// Counts bytes. Returns true if the line breaks at them.
    fn count_bytes(&self, way: Way, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let is_broken = self.tally(|tally| {
            if matches!(way, Way::Down) {
                tally.counts.received_bytes += bytes;
                return false;
            }
            tally.counts.sent_bytes += bytes;
            let Some((every, left)) = &mut tally.breaks else { return false };
            let is_broken = bytes > *left;
            *left = if is_broken { *every } else { *left - bytes };
            tally.counts.faults += u64::from(is_broken);
            is_broken
        });
        if is_broken {
            self.broken.send_replace(());
        }
        is_broken
    }

    /// Counts a request, and decides its treatment.
    fn arrive(&self, seen: &Arc<Seen>) -> Arrival {
        self.tally(|tally| {
            tally.counts.total += 1;
            *tally.counts.by_kind.entry(seen.kind).or_default() += 1;
            tally.seen.push(Arc::clone(seen));
            let (mut delay, mut fault, mut is_kept) = (tally.latency, None, false);
            for rule in &mut tally.rules {
                is_kept |= rule.fault == Fault::Stale && rule.is_for(seen);
                match rule.strikes(seen).then(|| rule.fault.clone()) {
                    Some(Fault::Delay(more)) => delay += more,
                    Some(harm) => fault = fault.or(Some(harm)),
                    None => {}
                }
            }
            tally.counts.faults += u64::from(fault.is_some());
            Arrival { delay, fault, is_kept }
        })
    }

    /// Keeps a reply for later requests with the same method, path and range.
    fn keep(&self, seen: &Seen, reply: &Response<Bytes>) {
        self.tally(|tally| tally.replies.insert(seen.what(), reply.clone()));
    }

    /// Returns the kept reply. Counts it as stale if it differs from `fresh`.
    fn outdated(&self, seen: &Seen, fresh: &Response<Bytes>) -> Option<Response<Bytes>> {
        self.tally(|tally| {
            let kept = tally.replies.get(&seen.what())?;
            let differs = kept.status() != fresh.status() || kept.body() != fresh.body();
            tally.counts.stale += u64::from(differs);
            Some(kept.clone())
        })
    }
}
