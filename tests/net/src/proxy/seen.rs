//! What came by: each request, and their sums.

use std::{
    collections::BTreeMap,
    sync::OnceLock,
    time::{Duration, Instant},
};

use http::{Request, header};

use super::kind::Kind;

/// A request that came to the proxy.
#[derive(Clone, Debug)]
pub struct Seen {
    /// What it is for.
    pub kind: Kind,
    /// Its method.
    pub method: String,
    /// Its path and query, as they were sent.
    pub path: String,
    /// Its `Range` header.
    pub range: Option<String>,
    /// Length of its body, where it is announced.
    pub body_bytes: Option<u64>,
    /// When it came, from the start of the proxy.
    pub at: Duration,
    /// Status of the reply and when its head went out. Never set when there
    /// was none.
    pub(super) reply: OnceLock<(u16, Duration)>,
}

impl Seen {
    pub(super) fn new<B>(request: &Request<B>, start: Instant) -> Self {
        let headers = request.headers();
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        Self {
            kind: Kind::of(request.method(), request.uri()),
            method: request.method().to_string(),
            path: request.uri().path_and_query().map_or_else(String::new, ToString::to_string),
            range: text(header::RANGE).map(str::to_owned),
            body_bytes: text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok()),
            at: start.elapsed(),
            reply: OnceLock::new(),
        }
    }

    /// Status of the reply; `None` while, or if, there is none.
    pub fn status(&self) -> Option<u16> {
        self.reply.get().map(|(status, _)| *status)
    }

    /// When the head of the reply went out, from the start of the proxy.
    pub fn replied_at(&self) -> Option<Duration> {
        self.reply.get().map(|(_, at)| *at)
    }
}

/// Sums since the start, or since they were last taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests, those at which a fault struck included.
    pub total: u64,
    /// Requests by kind; a kind that did not occur is absent.
    pub by_kind: BTreeMap<Kind, u64>,
    /// Bytes of request bodies that came from clients.
    pub sent_bytes: u64,
    /// Bytes of reply bodies that went to clients.
    pub received_bytes: u64,
    /// Connections that clients made.
    pub connections: u64,
    /// Requests at which a fault other than [`Fault::Delay`](super::Fault) struck.
    pub faults: u64,
    /// Most requests that were under way at once: come, and not replied to whole.
    pub in_flight_max: u64,
}

impl Counts {
    /// Requests of a kind.
    pub fn of(&self, kind: Kind) -> u64 {
        self.by_kind.get(&kind).copied().unwrap_or_default()
    }
}
