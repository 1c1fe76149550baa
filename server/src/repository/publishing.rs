//! Publishes uploaded packs.
//!
//! The server first checks the packs and everything that they refer to. A check may
//! take long, so several checks can run at the same time. Then all packs of a push are
//! published together, under a lock, one push after another.
//!
//! A check continues for [`GRACE`] after the last client has left: clients retry after
//! half a minute and should not start over. Requests for the same packs share one
//! check.

use std::{
    collections::{BTreeSet, HashMap},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use snap_core::{
    base::{
        id::{CommitId, PackId},
        observe::Observer,
    },
    ops::{accept::VerifiedPacks, staging_area::PublishTarget},
    store::Store,
};
use tokio::{runtime::Handle, task::AbortHandle};

use super::{Received, Repository};
use crate::{
    body::DisconnectObserver,
    clock::Clock,
    problem::{Code, HttpProblem},
    upstream::repository::UpstreamRepository,
};

/// How long a check continues after a client has left, so that the client may retry.
const GRACE: Duration = Duration::from_secs(60);

/// How often a waiting request checks that its client is still connected.
const STEP: Duration = Duration::from_millis(100);

/// The client that wants packs published, and the limit for checking them.
#[derive(Clone, Debug)]
pub struct PublishRequest {
    /// Tells whether the client has left.
    pub by: Arc<DisconnectObserver>,
    /// The limit for reading chunked contents, in bytes.
    pub content_bytes: u64,
}

/// The running checks, by the packs that they check.
#[derive(Debug)]
pub(super) struct SharedChecks {
    clock: Clock,
    under_way: Mutex<HashMap<BTreeSet<PackId>, Arc<SharedCheck>>>,
}

/// A running check, shared by all requests for the same packs.
#[derive(Debug)]
struct SharedCheck {
    clients: Mutex<Vec<WaitingClient>>,
    done: Mutex<Option<Result<Received, HttpProblem>>>,
    ended: Condvar,
    /// True if the server stops, or all clients left too long ago. Never becomes false
    /// again.
    is_stopped: AtomicBool,
    clock: Clock,
}

/// A client that waits for the check, and the time when it was first seen to have left.
#[derive(Debug)]
struct WaitingClient {
    watch: Arc<DisconnectObserver>,
    left: Option<Instant>,
}

/// The result for clients that have left, and for those that joined a check after it
/// was cancelled.
fn cancelled_check() -> HttpProblem {
    HttpProblem::new(Code::Unavailable, "the check was cancelled")
}

impl Observer for SharedCheck {
    fn cancelled(&self) -> bool {
        let mut clients = self.clients.lock();
        clients.retain_mut(|client| {
            let mut left = || *client.left.get_or_insert_with(|| self.clock.now());
            !client.watch.cancelled() || self.clock.elapsed(left()) < GRACE
        });
        if clients.is_empty() {
            // Irrevocable: some threads may have seen the cancellation and skipped
            // their work.
            self.is_stopped.store(true, Ordering::Relaxed);
        }
        self.is_stopped.load(Ordering::Relaxed)
    }
}

impl SharedCheck {
    fn new(clock: Clock) -> Self {
        let (clients, done, ended) = (Mutex::default(), Mutex::default(), Condvar::new());
        Self { clients, done, ended, is_stopped: AtomicBool::new(false), clock }
    }

    fn add(&self, watch: &Arc<DisconnectObserver>) {
        self.clients.lock().push(WaitingClient { watch: Arc::clone(watch), left: None });
    }

    /// Waits for the result of the check.
    fn wait(&self, watch: &DisconnectObserver) -> Result<Received, HttpProblem> {
        let mut done = self.done.lock();
        loop {
            if let Some(done) = &*done {
                return done.clone();
            }
            if watch.cancelled() {
                return Err(cancelled_check());
            }
            self.ended.wait_for(&mut done, STEP);
        }
    }
}

/// Marks the check as running. Dropping it ends the check, with an error if it has no
/// result.
struct CheckGuard<'t> {
    checks: &'t SharedChecks,
    ids: &'t BTreeSet<PackId>,
    check: Arc<SharedCheck>,
    stopping: Option<AbortHandle>,
}

/// Cancels the check when it is dropped. A task of the runtime owns it, so that happens
/// when the server stops.
struct Stopping(Arc<SharedCheck>);

impl Drop for Stopping {
    fn drop(&mut self) {
        self.0.is_stopped.store(true, Ordering::Relaxed);
    }
}

impl Drop for CheckGuard<'_> {
    fn drop(&mut self) {
        self.checks.under_way.lock().remove(self.ids);
        self.check.done.lock().get_or_insert_with(|| Err(cancelled_check()));
        self.check.ended.notify_all();
        if let Some(stopping) = &self.stopping {
            stopping.abort();
        }
    }
}

impl SharedChecks {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, under_way: Mutex::default() }
    }

    /// Starts a check, or waits for the result of one that is running for the same
    /// packs.
    fn begin<'t>(
        &'t self,
        ids: &'t BTreeSet<PackId>,
        watch: &Arc<DisconnectObserver>,
    ) -> Result<CheckGuard<'t>, Result<Received, HttpProblem>> {
        let mut under_way = self.under_way.lock();
        if let Some(check) = under_way.get(ids).map(Arc::clone) {
            check.add(watch);
            drop(under_way);
            return Err(check.wait(watch));
        }
        let check = Arc::new(SharedCheck::new(self.clock.clone()));
        check.add(watch);
        under_way.insert(ids.clone(), Arc::clone(&check));
        drop(under_way);
        // Do not hold the lock of all checks while waiting for one.
        let stopping = Stopping(Arc::clone(&check));
        let forever = async move {
            let _stopping = stopping;
            std::future::pending::<()>().await;
        };
        let stopping = Handle::try_current().ok();
        let stopping = stopping.map(|runtime| runtime.spawn(forever).abort_handle());
        Ok(CheckGuard { checks: self, ids, check, stopping })
    }
}

impl Repository {
    /// Publishes staged packs if they and everything that they refer to are sound and
    /// complete.
    pub(super) fn publish_staged(
        &self,
        ids: &BTreeSet<PackId>,
        request: &PublishRequest,
    ) -> Result<Received, HttpProblem> {
        let guard = match self.shared_checks.begin(ids, &request.by) {
            Ok(guard) => guard,
            Err(done) => return done,
        };
        let done = self.check_and_count(ids, request.content_bytes, &*guard.check);
        *guard.check.done.lock() = Some(done.clone());
        done
    }

    fn check_and_count(
        &self,
        ids: &BTreeSet<PackId>,
        most: u64,
        observer: &dyn Observer,
    ) -> Result<Received, HttpProblem> {
        let Some(behind) = &self.upstream else {
            let new = self.staged.publish(&self.repo, ids, most, observer)?;
            return Ok(if new.is_empty() { Received::AlreadyPresent } else { Received::Added });
        };
        let (target, mut lock) = (Relay { repository: self, behind }, None);
        let new = self.staged.publish_to(&target, (ids, most), observer, &mut lock)?;
        let _one_at_a_time = lock.map_or_else(|| self.staged.publishing(), Ok)?;
        behind.publish()?;
        Ok(if new.is_empty() { Received::AlreadyPresent } else { Received::Added })
    }

    /// Returns the packs of `ids` that are not in the cache's store yet.
    fn lacking(&self, ids: &BTreeSet<PackId>) -> BTreeSet<PackId> {
        let there: BTreeSet<PackId> = self.repo.store().packs().into_iter().collect();
        ids.difference(&there).copied().collect()
    }
}

/// A repository with an upstream, to which new packs are announced.
struct Relay<'a> {
    repository: &'a Repository,
    behind: &'a UpstreamRepository,
}

impl PublishTarget for Relay<'_> {
    type Error = HttpProblem;

    fn store(&self) -> &Store {
        self.repository.repo.store()
    }

    fn refresh(&self) -> Result<(), HttpProblem> {
        self.repository.refresh()?;
        self.behind.refresh_packs()
    }

    fn lacking(&self, ids: &BTreeSet<PackId>) -> BTreeSet<PackId> {
        self.repository.lacking(ids)
    }

    fn sent(&self, id: &PackId) -> Result<Option<PathBuf>, HttpProblem> {
        self.repository.sent(id)
    }

    fn tips(&self) -> Result<Vec<CommitId>, HttpProblem> {
        Ok(self.repository.cached_refs()?.iter().map(|(_, id)| *id).collect())
    }

    fn repair_damage(&self) -> bool {
        // The packs may refer to objects whose cached copy is damaged.
        self.behind.mend()
    }

    fn adopt(
        &self,
        new: &BTreeSet<PackId>,
        prepared: VerifiedPacks<'_>,
        observer: &dyn Observer,
    ) -> Result<(), HttpProblem> {
        let (staged, behind) = (&self.repository.staged, self.behind);
        let ids: Vec<PackId> = new.iter().copied().collect();
        behind.remember_pending(&ids)?;
        if let Err(error) = prepared.adopt(observer) {
            behind.forget_pending(&ids);
            return Err(error.into());
        }
        staged.complete().extend(&ids);
        ids.iter().for_each(|id| staged.forget(id));
        behind.record_growth(&ids);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::ClientWaiting;

    fn checks() -> SharedChecks {
        SharedChecks::new(Clock::manual())
    }

    #[test]
    fn a_check_goes_on_as_long_as_somebody_waits_or_may_come_again() {
        let (first, second) = (ClientWaiting::default(), ClientWaiting::default());
        let clock = Clock::manual();
        let check = SharedCheck::new(clock.clone());
        check.add(&first.watch());
        drop(first);
        assert!(!check.cancelled(), "the client may retry");
        check.add(&second.watch());
        clock.advance(GRACE);
        assert!(!check.cancelled(), "another client waits");
        drop(second);
        assert!(!check.cancelled());
        clock.advance(GRACE);
        assert!(check.cancelled());
        check.add(&ClientWaiting::default().watch());
        assert!(check.cancelled(), "a cancelled check stays cancelled");
    }

    #[test]
    fn those_who_ask_for_the_same_packs_are_told_the_same() {
        let (checks, waiting) = (checks(), ClientWaiting::default());
        let ids = BTreeSet::from([PackId::from_bytes([7; 32])]);
        let turn = checks.begin(&ids, &waiting.watch()).ok().unwrap();
        std::thread::scope(|scope| {
            let ask = || checks.begin(&ids, &waiting.watch()).err();
            let other = scope.spawn(ask);
            while turn.check.clients.lock().len() < 2 {
                std::thread::yield_now();
            }
            *turn.check.done.lock() = Some(Ok(Received::Added));
            drop(turn);
            assert_eq!(other.join().unwrap().unwrap().unwrap(), Received::Added);
        });
        // A check that ends without a result counts as cancelled.
        let turn = checks.begin(&ids, &waiting.watch()).ok().unwrap();
        let check = Arc::clone(&turn.check);
        drop(turn);
        let problem = check.wait(&waiting.watch()).unwrap_err();
        assert_eq!(problem.code, Code::Unavailable);
        assert!(checks.under_way.lock().is_empty());
    }

    #[test]
    fn a_check_ends_with_the_server() {
        let (checks, waiting) = (checks(), ClientWaiting::default());
        let ids = BTreeSet::new();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let inside = runtime.enter();
        let turn = checks.begin(&ids, &waiting.watch()).ok().unwrap();
        assert!(!turn.check.cancelled());
        drop(inside);
        drop(runtime);
        assert!(turn.check.cancelled());
    }
}
