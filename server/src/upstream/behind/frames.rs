//! Frames of packs elsewhere, for the store here. What comes of them takes room in
//! the cache, and nobody waits for long for what does not come: as long as
//! something comes now and then it is waited for, else it is given up, and then
//! only a few wait at a time until something comes again.

use std::{
    collections::BTreeSet,
    ops::Range,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use snap_core::{
    base::{id::PackId, kind::ErrorKind},
    store::{Distant, DistantError},
};
use snap_remote::{
    distant::{RemotePacks, Stop},
    service::client::Client,
    store::RemoteError,
};

use crate::upstream::{
    cache::Cache,
    contact::{Contact, away},
};

/// So long nobody waits after it was given up.
const PAUSE: Duration = Duration::from_secs(1);

/// So many wait then, until something comes.
const PROBES: usize = 16;

/// Packs elsewhere.
#[derive(Debug)]
pub(super) struct Frames {
    pub(super) packs: RemotePacks,
    pub(super) watch: Arc<Watch>,
    pub(super) cache: Arc<Cache>,
    pub(super) contact: Arc<Contact>,
    pub(super) damaged: Arc<Damaged>,
}

/// Packs whose copy in the cache was found damaged.
#[derive(Debug)]
pub(super) struct Damaged {
    /// Folder with a file for each pack that may not lie upstream yet.
    pub(super) pending: PathBuf,
    packs: Mutex<BTreeSet<PackId>>,
}

impl Damaged {
    pub(super) fn new(pending: PathBuf) -> Self {
        Self { pending, packs: Mutex::default() }
    }

    fn packs(&self) -> MutexGuard<'_, BTreeSet<PackId>> {
        self.packs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a pack. Returns whether it lies upstream.
    pub(super) fn note(&self, pack: PackId) -> bool {
        self.packs().insert(pack);
        !self.pending.join(pack.to_string()).exists()
    }

    /// The packs that were noted since this was last called.
    pub(super) fn take(&self) -> BTreeSet<PackId> {
        std::mem::take(&mut *self.packs())
    }
}

impl Distant for Frames {
    fn read(&self, pack: PackId, range: Range<u64>) -> Result<Vec<u8>, DistantError> {
        let turn = self.watch.begin(self.contact.is_given_up()).ok_or_else(gone)?;
        self.cache.frames().count(false);
        match self.packs.read(pack, range) {
            Ok(bytes) => {
                drop(turn);
                self.cache.grew(bytes.len() as u64);
                Ok(bytes)
            }
            Err(error) if error.kind == ErrorKind::Interrupted => {
                self.contact.hung(turn.began);
                turn.give_up();
                Err(gone())
            }
            Err(error) => {
                if let Some(error) = error.source.downcast_ref::<RemoteError>() {
                    self.contact.note(error);
                }
                Err(error)
            }
        }
    }

    fn will_need(&self, ranges: &[(PackId, Range<u64>)]) {
        self.packs.will_need(ranges);
    }

    fn was_here(&self) {
        self.cache.frames().count(true);
    }

    fn found_damage(&self, pack: PackId) -> bool {
        self.damaged.note(pack)
    }

    fn place(&self, pack: PackId) -> Option<String> {
        self.packs.place(pack)
    }

    fn keeps_contents(&self) -> bool {
        self.packs.keeps_contents()
    }
}

fn gone() -> DistantError {
    DistantError { kind: ErrorKind::Unavailable, source: Box::new(away()) }
}

/// Whether anything comes of what is waited for.
#[derive(Debug)]
pub(super) struct Watch {
    /// Counts what comes.
    client: Client,
    patience: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    waiting: usize,
    progress: u64,
    /// When something last came, as far as anybody looked.
    moved: Option<Instant>,
    /// Since when somebody waits and nothing has come.
    since: Instant,
    /// When it was given up, and nothing has come since.
    hangs: Option<Instant>,
}

impl Watch {
    /// Over what `client` asks for; without anything that comes it is waited no
    /// longer than `patience`.
    pub(super) fn new(client: Client, patience: Duration) -> Self {
        let progress = client.traffic().progress();
        let since = Instant::now();
        let state = State { waiting: 0, progress, moved: None, since, hangs: None };
        Self { client, patience, state: Mutex::new(state) }
    }

    /// Says to those who wait whether they have done so for long enough.
    pub(super) fn stop(self: &Arc<Self>) -> Stop {
        let watch = Arc::clone(self);
        Arc::new(move || watch.look().since.elapsed() >= watch.patience)
    }

    fn look(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.see(self.client.traffic().progress());
        state
    }

    /// Somebody is about to wait; `None` if that is in vain. Where something came
    /// just now it is not, though others were not answered.
    fn begin(&self, is_given_up: bool) -> Option<Turn<'_>> {
        let mut state = self.look();
        let moves = state.moved.is_some_and(|moved| moved.elapsed() < self.patience);
        (state.lets_in() && (moves || !is_given_up)).then(|| {
            state.waiting += 1;
            Turn { watch: self, began: Instant::now() }
        })
    }
}

impl State {
    fn see(&mut self, progress: u64) {
        if self.progress != progress {
            let now = Instant::now();
            (self.progress, self.moved, self.since) = (progress, Some(now), now);
            self.hangs = None;
        }
        if self.waiting == 0 {
            self.since = Instant::now();
        }
    }

    fn lets_in(&self) -> bool {
        self.hangs.is_none_or(|at| at.elapsed() >= PAUSE && self.waiting < PROBES)
    }
}

/// Somebody waits, as long as it lives.
struct Turn<'w> {
    watch: &'w Watch,
    began: Instant,
}

impl Turn<'_> {
    /// Nothing came in time.
    fn give_up(self) {
        self.watch.look().hangs = Some(Instant::now());
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.watch.look().waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State { waiting: 0, progress: 0, moved: None, since: Instant::now(), hangs: None }
    }

    #[test]
    fn of_one_that_hangs_few_wait_until_something_comes() {
        let mut state = state();
        state.waiting = 10 * PROBES;
        assert!(state.lets_in(), "nobody knows yet");
        state.hangs = Some(Instant::now());
        (state.waiting, state.progress) = (0, 7);
        state.see(7);
        assert!(!state.lets_in(), "it has just been given up");
        state.hangs = Instant::now().checked_sub(PAUSE);
        assert!(state.lets_in());
        state.waiting = PROBES;
        assert!(!state.lets_in());
        state.see(8);
        assert!(state.lets_in(), "something has come");
    }

    #[test]
    fn who_waits_alone_waits_from_when_they_came() {
        let mut state = state();
        let long_ago = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
        state.since = long_ago;
        state.see(0);
        assert!(state.since > long_ago);
        (state.since, state.waiting) = (long_ago, 1);
        state.see(0);
        assert_eq!(state.since, long_ago);
        state.see(1);
        assert!(state.since > long_ago);
    }
}
