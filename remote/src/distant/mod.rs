//! Frames of packs that lie elsewhere, for a store that threads read.
//!
//! What is announced is planned, merged and under way at once, up to a number
//! of bytes that are on their way or wait to be taken; more follows as they are
//! taken. What nobody announced is fetched when somebody waits for it. What was
//! taken stays for a while, should somebody else want it.
//!
//! Waiting threads must be none of the runtime's.

mod budget;
mod held;
mod lazy;

use std::{
    fmt,
    ops::Range,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use snap_core::{
    base::id::PackId,
    store::{Distant, DistantError},
};
use tokio::runtime::Handle;

pub use budget::Budget;
pub use lazy::LazyDistant;

use self::held::{Held, Key, Look};
use crate::{
    ranges::{Fetch, Link, Options, Planner, ReadError, Wanted},
    service::client::Client,
    store::{OBJECTS, RemoteError, RemoteStore, place_of},
};

/// Bytes that are on their way or wait to be taken.
const HELD_BYTES: u64 = 48 << 20;

/// Longest request where all that was announced is under way with it: what a
/// clone begins with is to be few of them.
const REQUEST_BYTES: u64 = 16 << 20;

/// Longest request where more follows: several share the way, and each lies in
/// memory a second time while it is taken apart.
const REQUEST_OF_MANY_BYTES: u64 = 8 << 20;

/// What is at least this long is not kept for others by a store that keeps it
/// itself: it would be copied.
const LONG_BYTES: u64 = 2 << 20;

/// How often a waiting thread looks whether it shall go on.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Says whether the user asked to stop.
pub type Stop = Arc<dyn Fn() -> bool + Send + Sync>;

/// How those who wait for the network do that.
#[derive(Clone)]
pub struct Waiting {
    /// Runs the requests; has threads of its own.
    pub runtime: Handle,
    /// Says whether to stop.
    pub stop: Stop,
}

impl Waiting {
    /// Until all is there: nobody can ask to stop.
    pub fn patiently(runtime: &Handle) -> Self {
        Self { runtime: runtime.clone(), stop: Arc::new(|| false) }
    }
}

impl Waiting {
    /// Waits for `work`, or until the user asks to stop.
    pub(crate) async fn unless_stopped<T>(
        &self,
        work: impl Future<Output = Result<T, RemoteError>>,
    ) -> Result<T, RemoteError> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = tokio::time::sleep(LOOK_EVERY) => {
                    if (self.stop)() {
                        return Err(RemoteError::Interrupted);
                    }
                }
            }
        }
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").finish_non_exhaustive()
    }
}

/// What becomes of contents that were read; the structure is always kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Contents {
    /// The store keeps them.
    #[default]
    Keep,
    /// They are fetched again the next time.
    Forget,
}

/// The packs of a remote store, read by threads. Clones share what is held.
#[derive(Clone, Debug)]
pub struct RemotePacks {
    shared: Arc<Shared>,
    contents: Contents,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    location: String,
    link: Arc<Link>,
    waiting: Waiting,
    held: Mutex<Held>,
    changed: Condvar,
    budget: Arc<Budget>,
}

impl RemotePacks {
    /// The packs of `remote`.
    pub fn new(remote: &RemoteStore, waiting: Waiting) -> Self {
        Self::of(remote.client().clone(), remote.location().to_owned(), waiting)
    }

    /// The same, which hold no more than `budget` allows them and others together.
    pub fn sharing(remote: &RemoteStore, waiting: Waiting, budget: &Arc<Budget>) -> Self {
        Self::within(remote.client().clone(), remote.location().to_owned(), waiting, budget)
    }

    /// The packs at `location`, which `client` asks.
    pub(crate) fn of(client: Client, location: String, waiting: Waiting) -> Self {
        // There is a limit to each anyway.
        Self::within(client, location, waiting, &Budget::new(u64::MAX))
    }

    fn within(client: Client, location: String, waiting: Waiting, budget: &Arc<Budget>) -> Self {
        let shared = Arc::new(Shared {
            client,
            location,
            link: Arc::default(),
            waiting,
            held: Mutex::new(Held::new(HELD_BYTES, budget)),
            changed: Condvar::new(),
            budget: Arc::clone(budget),
        });
        budget.join(&shared);
        Self { shared, contents: Contents::Keep }
    }

    /// The same, with another choice of what becomes of contents.
    #[must_use]
    pub fn with_contents(self, contents: Contents) -> Self {
        Self { contents, ..self }
    }

    /// What the way there is like.
    pub fn link(&self) -> &Arc<Link> {
        &self.shared.link
    }

    /// Whether more was announced than was asked for so far.
    pub(crate) fn has_queued(&self) -> bool {
        self.shared.lock().has_queued()
    }

    /// Takes what has come and nobody has read.
    pub(crate) fn leftovers(&self) -> Vec<(PackId, Range<u64>, Arc<Vec<u8>>)> {
        self.shared.lock().take_unread()
    }
}

impl Distant for RemotePacks {
    fn read(&self, pack: PackId, range: Range<u64>) -> Result<Vec<u8>, DistantError> {
        let key = Key { pack, start: range.start, end: range.end.max(range.start) };
        let bytes = self.shared.read(key)?;
        if self.keeps_contents() && key.bytes() >= LONG_BYTES {
            self.shared.lock().let_go(key);
        }
        Ok(Arc::try_unwrap(bytes).unwrap_or_else(|shared| shared.to_vec()))
    }

    fn will_need(&self, ranges: &[(PackId, Range<u64>)]) {
        let mut held = self.shared.lock();
        for (pack, range) in ranges {
            held.announce(Key { pack: *pack, start: range.start, end: range.end });
        }
        drop(held);
        self.shared.start_what_fits();
    }

    fn place(&self, pack: PackId) -> Option<String> {
        Some(place_of(&format!("{OBJECTS}{pack}"), &self.shared.location))
    }

    fn keeps_contents(&self) -> bool {
        self.contents == Contents::Keep
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(self: &Arc<Self>, key: Key) -> Result<Arc<Vec<u8>>, DistantError> {
        let mut held = self.lock();
        let mut waits = false;
        loop {
            if (self.waiting.stop)() {
                if waits {
                    held.wait_no_more(key);
                }
                return Err(RemoteError::Interrupted.into());
            }
            match held.look(key, waits) {
                Look::Here(bytes) => {
                    drop(held);
                    self.start_what_fits();
                    return Ok(bytes);
                }
                Look::Failed(error) => return Err(self.told(key, error).into()),
                Look::Start => {
                    drop(held);
                    self.budget.settle();
                    self.start(vec![key], REQUEST_BYTES);
                    held = self.lock();
                    waits = true;
                    continue;
                }
                Look::UnderWay => waits = true,
            }
            let woken = self.changed.wait_timeout(held, LOOK_EVERY);
            held = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn told(&self, key: Key, source: ReadError) -> RemoteError {
        let location = self.location.clone();
        RemoteError::Range { key: key.object(), range: key.start..key.end, location, source }
    }

    fn start_what_fits(self: &Arc<Self>) {
        let wanted_bytes = self.lock().wanted_bytes();
        if wanted_bytes == 0 {
            return;
        }
        let turn = self.budget.turn();
        turn.make_room(wanted_bytes);
        let mut held = self.lock();
        let batch = held.next_batch(turn.room());
        let request_bytes = match held.has_queued() {
            true => REQUEST_OF_MANY_BYTES,
            false => REQUEST_BYTES,
        };
        drop(held);
        drop(turn);
        if !batch.is_empty() {
            self.start(batch, request_bytes);
        }
    }

    /// Sends the requests for ranges that are under way from now on. Not to be
    /// called by who has the lock: a runtime that has ended drops what it is
    /// given at once.
    fn start(self: &Arc<Self>, batch: Vec<Key>, request_bytes: u64) {
        let wanted = batch.iter().map(|key| Wanted {
            key: format!("{OBJECTS}{}", key.pack).into(),
            range: key.start..key.end,
        });
        // What fits was found out before.
        let options = Options { budget_bytes: u64::MAX, request_bytes, ..Options::default() };
        let fetch: Arc<dyn Fetch> = Arc::new(self.client.clone());
        let planner = Planner::new(fetch, Arc::clone(&self.link), options);
        let _inside = self.waiting.runtime.enter();
        let mut job = planner.start(wanted.collect());
        let mut arrivals = Arrivals { shared: Arc::downgrade(self), left: batch };
        self.waiting.runtime.spawn(async move {
            while let Some(piece) = job.next().await
                && arrivals.arrive(piece.position, piece.bytes)
            {}
        });
    }

    fn arrive(self: &Arc<Self>, key: Key, result: Result<Arc<Vec<u8>>, ReadError>) {
        if result.is_ok() {
            self.client.traffic().needed(key.bytes());
        }
        self.lock().arrive(key, result);
        self.changed.notify_all();
        self.start_what_fits();
    }
}

/// Ranges that are on their way with one job.
struct Arrivals {
    shared: Weak<Shared>,
    /// Those that came are empty.
    left: Vec<Key>,
}

impl Arrivals {
    /// Says whether there is anybody for what is still to come.
    fn arrive(&mut self, position: usize, bytes: Result<bytes::Bytes, ReadError>) -> bool {
        let key = std::mem::replace(&mut self.left[position], Key::NONE);
        let Some(shared) = self.shared.upgrade() else { return false };
        // A copy, so that nothing else of its request is held with it.
        shared.arrive(key, bytes.map(|bytes| Arc::new(bytes.to_vec())));
        true
    }
}

impl Drop for Arrivals {
    /// Nobody waits for ever when the runtime ends.
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else { return };
        for key in self.left.drain(..).filter(|key| *key != Key::NONE) {
            shared.lock().arrive(key, Err(ReadError::Stopped));
            shared.changed.notify_all();
        }
    }
}
