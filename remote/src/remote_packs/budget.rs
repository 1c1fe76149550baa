//! A memory budget that several [`RemotePacks`](super::RemotePacks) share.
//!
//! When a member needs room, the budget first evicts bytes of the least recently used member.

use std::{
    cmp::Reverse,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use parking_lot::{Mutex, MutexGuard};

use super::PacksInner;

/// A limit for the bytes in flight, fetched and cached of all [`RemotePacks`] that [share
/// it](super::RemotePacks::with_shared_budget).
///
/// A thread fetches the range that it waits for even if the budget is full. Its bytes count in the
/// budget, which evicts other bytes for them.
///
/// [`RemotePacks`]: super::RemotePacks
#[derive(Debug)]
pub struct PrefetchBudget {
    most_bytes: u64,
    held_bytes: Arc<AtomicU64>,
    /// Lock order: this lock before the lock of any member, never after it.
    members: Mutex<Vec<Weak<PacksInner>>>,
}

/// Counter of the bytes that one member holds, which count towards the total of the budget.
#[derive(Debug)]
pub(super) struct HeldBytes {
    pub(super) bytes: u64,
    all: Arc<AtomicU64>,
}

impl HeldBytes {
    pub(super) fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.all.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn remove(&mut self, bytes: u64) {
        self.bytes -= bytes;
        self.all.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.remove(self.bytes);
    }
}

/// The exclusive right to make and take room in the budget.
pub(super) struct BudgetGuard<'b> {
    budget: &'b PrefetchBudget,
    members: MutexGuard<'b, Vec<Weak<PacksInner>>>,
}

impl PrefetchBudget {
    /// Creates a budget of `most_bytes` bytes.
    pub fn new(most_bytes: u64) -> Arc<Self> {
        let (held_bytes, members) = (Arc::default(), Mutex::default());
        Arc::new(Self { most_bytes, held_bytes, members })
    }

    /// Returns the bytes that all members hold or have requested.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Returns a counter of zero bytes for a new member.
    pub(super) fn count(&self) -> HeldBytes {
        HeldBytes { bytes: 0, all: Arc::clone(&self.held_bytes) }
    }

    pub(super) fn join(&self, member: &Arc<PacksInner>) {
        let mut members = self.members.lock();
        members.retain(|member| member.strong_count() > 0);
        members.push(Arc::downgrade(member));
    }

    /// Waits for the exclusive right to take room. The caller must hold no lock of a
    /// member.
    pub(super) fn lock(&self) -> BudgetGuard<'_> {
        BudgetGuard { budget: self, members: self.members.lock() }
    }

    /// Evicts bytes if the members hold more than the budget. The caller must hold no lock of a
    /// member.
    pub(super) fn return_unused(&self) {
        if self.held_bytes() > self.most_bytes {
            self.lock().make_room(0);
        }
    }
}

impl BudgetGuard<'_> {
    /// Returns the bytes that are free in the budget.
    pub(super) fn room(&self) -> u64 {
        self.budget.most_bytes.saturating_sub(self.budget.held_bytes())
    }

    /// Evicts until `bytes` bytes are free, or until no member has anything left to evict.
    pub(super) fn make_room(&self, bytes: u64) {
        let wanted = bytes.min(self.budget.most_bytes);
        let missing = || {
            let there = self.budget.held_bytes().saturating_add(wanted);
            there.saturating_sub(self.budget.most_bytes)
        };
        if missing() == 0 {
            return;
        }
        let mut members: Vec<(Instant, Arc<PacksInner>)> = Vec::new();
        for member in self.members.iter().filter_map(Weak::upgrade) {
            let used = member.held.lock().used;
            members.push((used, member));
        }
        // Sort the most recently used first, so that `pop` returns the least recently used member.
        members.sort_unstable_by_key(|(used, _)| Reverse(*used));
        while let Some((_, member)) = members.pop()
            && missing() > 0
        {
            member.held.lock().make_room(missing());
        }
    }
}
