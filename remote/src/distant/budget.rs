//! Memory that those share who read several stores at a time: when one of them
//! needs room, it goes first that was used the longest ago.

use std::{
    cmp::Reverse,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use super::Shared;

/// How much may be on its way, wait to be taken, or stay for others, of all packs
/// elsewhere that were made [with it](super::RemotePacks::sharing). What a thread
/// waits for comes even where there is no room; it counts, and others go for it.
pub struct Budget {
    most_bytes: u64,
    held_bytes: Arc<AtomicU64>,
    /// Locked before what is held of any of them, never after.
    members: Mutex<Vec<Weak<Shared>>>,
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { most_bytes, held_bytes, .. } = self;
        let mut shown = f.debug_struct("Budget");
        shown.field("most_bytes", most_bytes).field("held_bytes", held_bytes);
        shown.finish_non_exhaustive()
    }
}

/// Bytes that one of them holds, which count for all.
#[derive(Debug)]
pub(super) struct Count {
    pub(super) bytes: u64,
    all: Arc<AtomicU64>,
}

impl Count {
    pub(super) fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.all.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn remove(&mut self, bytes: u64) {
        self.bytes -= bytes;
        self.all.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.remove(self.bytes);
    }
}

/// Somebody's turn to take room.
pub(super) struct Turn<'b> {
    budget: &'b Budget,
    members: MutexGuard<'b, Vec<Weak<Shared>>>,
}

impl Budget {
    /// Memory of so many bytes.
    pub fn new(most_bytes: u64) -> Arc<Self> {
        let (held_bytes, members) = (Arc::default(), Mutex::default());
        Arc::new(Self { most_bytes, held_bytes, members })
    }

    /// Bytes that are held, or on their way.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// For one who is to share it; nothing yet.
    pub(super) fn count(&self) -> Count {
        Count { bytes: 0, all: Arc::clone(&self.held_bytes) }
    }

    pub(super) fn join(&self, member: &Arc<Shared>) {
        let mut members = self.members();
        members.retain(|member| member.strong_count() > 0);
        members.push(Arc::downgrade(member));
    }

    fn members(&self) -> MutexGuard<'_, Vec<Weak<Shared>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps others from taking room meanwhile. Whoever comes holds no lock.
    pub(super) fn turn(&self) -> Turn<'_> {
        Turn { budget: self, members: self.members() }
    }

    /// Lets go of what can go if there is too much. Whoever comes holds no lock.
    pub(super) fn settle(&self) {
        if self.held_bytes() > self.most_bytes {
            self.turn().make_room(0);
        }
    }
}

impl Turn<'_> {
    /// Room that there is.
    pub(super) fn room(&self) -> u64 {
        self.budget.most_bytes.saturating_sub(self.budget.held_bytes())
    }

    /// Sees to it that there is room for so many bytes, as far as it goes.
    pub(super) fn make_room(&self, bytes: u64) {
        let wanted = bytes.min(self.budget.most_bytes);
        let missing = || {
            let there = self.budget.held_bytes().saturating_add(wanted);
            there.saturating_sub(self.budget.most_bytes)
        };
        if missing() == 0 {
            return;
        }
        let mut members: Vec<(Instant, Arc<Shared>)> = Vec::new();
        for member in self.members.iter().filter_map(Weak::upgrade) {
            let used = member.lock().used();
            members.push((used, member));
        }
        members.sort_unstable_by_key(|(used, _)| Reverse(*used));
        while let Some((_, member)) = members.pop()
            && missing() > 0
        {
            member.lock().make_room(missing());
        }
    }
}
