//! Counters of requests and bytes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::pending::PendingRequests;

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestKind {
    /// A read of an object or a range.
    Get,
    /// A look-up of an object without its content.
    Head,
    /// A write of an object or a part.
    Put,
    /// A listing.
    List,
    /// A removal.
    Delete,
    /// The start or the end of a multipart upload, and every other request.
    Post,
}

impl RequestKind {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Get, Self::Head, Self::Put, Self::List, Self::Delete, Self::Post];

    /// Returns the name in JSON records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Head => "head",
            Self::Put => "put",
            Self::List => "list",
            Self::Delete => "delete",
            Self::Post => "post",
        }
    }

    /// Returns the name in error messages.
    pub(crate) fn operation(self) -> &'static str {
        match self {
            Self::Get => "read",
            Self::Head => "stat",
            Self::Put => "write",
            Self::List => "list",
            Self::Delete => "remove",
            Self::Post => "write to the store",
        }
    }
}

/// Counters that many requests share.
#[derive(Debug, Default)]
pub struct Traffic {
    requests: [AtomicU64; RequestKind::ALL.len()],
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
    bytes_moved: AtomicU64,
    bytes_needed: AtomicU64,
    retries: AtomicU64,
    in_flight: AtomicU64,
    waits: PendingRequests,
}

/// A request in progress, until it is dropped.
pub(super) struct InFlight<'a>(&'a AtomicU64);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A snapshot of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficCounts {
    /// Number of requests by kind, in the order of [`RequestKind::ALL`].
    pub by_kind: [u64; RequestKind::ALL.len()],
    /// Bytes of bodies sent.
    pub bytes_sent: u64,
    /// Bytes of bodies received.
    pub bytes_received: u64,
    /// Received bytes of needed ranges; all other bytes filled gaps between ranges.
    pub bytes_needed: u64,
    /// Number of retries.
    pub retries: u64,
}

impl TrafficCounts {
    /// Returns the number of requests, including retries.
    pub fn requests(&self) -> u64 {
        self.by_kind.iter().sum()
    }
}

impl Traffic {
    /// Counts a request.
    pub fn request(&self, kind: RequestKind) {
        self.requests[kind as usize].fetch_add(1, Relaxed);
    }

    /// Counts bytes of a body as sent.
    pub fn sent(&self, bytes: u64) {
        self.bytes_sent.fetch_add(bytes, Relaxed);
    }

    /// Counts bytes of a body as received.
    pub fn received(&self, bytes: u64) {
        self.bytes_received.fetch_add(bytes, Relaxed);
    }

    /// Counts a received piece of a body.
    pub fn moved(&self, bytes: u64) {
        self.bytes_moved.fetch_add(bytes, Relaxed);
    }

    /// Returns a number that grows with every received byte. While it stays the same, a waiting
    /// request makes no visible progress.
    pub fn progress(&self) -> u64 {
        let counters = [&self.bytes_received, &self.bytes_moved];
        counters.iter().map(|counter| counter.load(Relaxed)).fold(0, u64::wrapping_add)
    }

    /// Returns a number that grows with every received or sent byte.
    pub fn moving(&self) -> u64 {
        self.progress().wrapping_add(self.bytes_sent.load(Relaxed))
    }

    /// Counts a request in progress.
    pub(super) fn begin(&self) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Relaxed);
        InFlight(&self.in_flight)
    }

    /// Returns the number of requests in progress.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Relaxed)
    }

    /// Returns the requests without an answer.
    pub fn pending(&self) -> &PendingRequests {
        &self.waits
    }

    /// Counts received bytes as needed.
    pub fn needed(&self, bytes: u64) {
        self.bytes_needed.fetch_add(bytes, Relaxed);
    }

    /// Counts a retry.
    pub fn retry(&self) {
        self.retries.fetch_add(1, Relaxed);
    }

    /// Returns the current counters.
    pub fn counts(&self) -> TrafficCounts {
        let mut by_kind = [0; RequestKind::ALL.len()];
        for (count, counter) in by_kind.iter_mut().zip(&self.requests) {
            *count = counter.load(Relaxed);
        }
        TrafficCounts {
            by_kind,
            bytes_sent: self.bytes_sent.load(Relaxed),
            bytes_received: self.bytes_received.load(Relaxed),
            bytes_needed: self.bytes_needed.load(Relaxed),
            retries: self.retries.load(Relaxed),
        }
    }
}
