//! What went over the wire: counted as it goes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::waits::Waits;

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Reading an object, or a range of it.
    Get,
    /// Asking whether it is there.
    Head,
    /// Writing an object, or a part of one.
    Put,
    /// Listing.
    List,
    /// Removing.
    Delete,
    /// Beginning and ending an upload in parts, and whatever else there is.
    Post,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Get, Self::Head, Self::Put, Self::List, Self::Delete, Self::Post];

    /// Its name in records.
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
}

/// Counters that many requests share.
#[derive(Debug, Default)]
pub struct Traffic {
    requests: [AtomicU64; Kind::ALL.len()],
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
    bytes_moved: AtomicU64,
    bytes_needed: AtomicU64,
    retries: AtomicU64,
    waits: Waits,
}

/// What they say at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By kind, in the order of [`Kind::ALL`].
    pub by_kind: [u64; Kind::ALL.len()],
    /// Bodies that were sent.
    pub bytes_sent: u64,
    /// Bodies that were received.
    pub bytes_received: u64,
    /// What of those was asked for; the rest lay in gaps between.
    pub bytes_needed: u64,
    /// Requests that were made again.
    pub retries: u64,
}

impl Counts {
    /// All requests, those that were made again included.
    pub fn requests(&self) -> u64 {
        self.by_kind.iter().sum()
    }
}

impl Traffic {
    /// Counts a request.
    pub fn request(&self, kind: Kind) {
        self.requests[kind as usize].fetch_add(1, Relaxed);
    }

    /// Counts bytes that went out.
    pub fn sent(&self, bytes: u64) {
        self.bytes_sent.fetch_add(bytes, Relaxed);
    }

    /// Counts bytes that came in.
    pub fn received(&self, bytes: u64) {
        self.bytes_received.fetch_add(bytes, Relaxed);
    }

    /// Counts bytes of a body that have come by now, piece by piece.
    pub fn moved(&self, bytes: u64) {
        self.bytes_moved.fetch_add(bytes, Relaxed);
    }

    /// A number that grows whenever anything comes in: while it stays the same those
    /// who wait see nothing of what they wait for.
    pub fn progress(&self) -> u64 {
        let counters = [&self.bytes_received, &self.bytes_moved];
        counters.iter().map(|counter| counter.load(Relaxed)).fold(0, u64::wrapping_add)
    }

    /// A number that grows whenever anything comes in or goes out.
    pub fn moving(&self) -> u64 {
        self.progress().wrapping_add(self.bytes_sent.load(Relaxed))
    }

    /// Requests that have no answer yet.
    pub fn waits(&self) -> &Waits {
        &self.waits
    }

    /// Counts bytes that somebody had asked for.
    pub fn needed(&self, bytes: u64) {
        self.bytes_needed.fetch_add(bytes, Relaxed);
    }

    /// Counts a request that is made again.
    pub fn retry(&self) {
        self.retries.fetch_add(1, Relaxed);
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        let mut by_kind = [0; Kind::ALL.len()];
        for (count, counter) in by_kind.iter_mut().zip(&self.requests) {
            *count = counter.load(Relaxed);
        }
        Counts {
            by_kind,
            bytes_sent: self.bytes_sent.load(Relaxed),
            bytes_received: self.bytes_received.load(Relaxed),
            bytes_needed: self.bytes_needed.load(Relaxed),
            retries: self.retries.load(Relaxed),
        }
    }
}
