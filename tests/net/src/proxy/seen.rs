//! A log of the requests, and counters.

use std::{
    collections::BTreeMap,
    sync::OnceLock,
    time::{Duration, Instant},
};

use http::{HeaderName, Request, header};

use super::kind::Kind;

/// A request that the proxy received.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The kind.
    pub kind: Kind,
    /// The method.
    pub method: String,
    /// The path and query, as they were sent.
    pub path: String,
    /// The `Range` header.
    pub range: Option<String>,
    /// The `snap-epoch` header.
    pub epoch: Option<String>,
    /// The announced length of the body, if any.
    pub body_bytes: Option<u64>,
    /// The time of arrival, since the start of the proxy.
    pub at: Duration,
    /// Status of the reply, and the time at which its head was sent. Never set if there was no
    /// reply.
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
            epoch: text(HeaderName::from_static("snap-epoch")).map(str::to_owned),
            body_bytes: text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok()),
            at: start.elapsed(),
            reply: OnceLock::new(),
        }
    }

    /// Returns method, path and range.
    pub(super) fn what(&self) -> (String, String, Option<String>) {
        (self.method.clone(), self.path.clone(), self.range.clone())
    }

    /// Returns the status of the reply, or `None` as long as there is none.
    pub fn status(&self) -> Option<u16> {
        self.reply.get().map(|(status, _)| *status)
    }

    /// Returns the time at which the head of the reply was sent, since the start of the proxy.
    pub fn replied_at(&self) -> Option<Duration> {
        self.reply.get().map(|(_, at)| *at)
    }
}

/// Counters since the start, or since they were last taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests, including those with a fault.
    pub total: u64,
    /// Requests by kind. Kinds that did not occur are absent.
    pub by_kind: BTreeMap<Kind, u64>,
    /// Bytes of request bodies received from clients.
    pub sent_bytes: u64,
    /// Bytes of reply bodies sent to clients.
    pub received_bytes: u64,
    /// Connections that clients opened.
    pub connections: u64,
    /// Requests with a fault other than [`Fault::Delay`](super::Fault).
    pub faults: u64,
    /// Requests that [`Fault::Hold`](super::Fault), [`Fault::Stall`](super::Fault) or
    /// [`Fault::StallReply`](super::Fault) has held.
    pub stalled: u64,
    /// Replies that [`Fault::Stale`](super::Fault) replaced by an older one.
    pub stale: u64,
    /// Most concurrent requests: received, but not yet answered completely.
    pub in_flight_max: u64,
}

impl Counts {
    /// Returns the number of requests of a kind.
    pub fn of(&self, kind: Kind) -> u64 {
        self.by_kind.get(&kind).copied().unwrap_or_default()
    }
}
