//! Publishes uploaded packs.
//!
//! The server first checks the packs and everything that they refer to. A check may take long, so
//! several checks can run at the same time. Then the server publishes all packs of a push together,
//! under a lock, one push after another.
//!
//! A check continues for [`GRACE`] after the last client has disconnected: clients retry after half
//! a minute, and a retry should not start the check over. Requests for the same packs share one
//! check.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use snap_core::base::{
    id::PackId,
    observe::Observer,
    single_flight::{Flight, LeaderGuard, SingleFlight},
};
use tokio::{runtime::Handle, task::AbortHandle};

use super::{Received, RepositoryPacks};
use crate::{
    body::DisconnectObserver,
    clock::Clock,
    problem::{Code, HttpProblem},
};

/// How long a check continues after its last client has disconnected, so that the client may retry.
const GRACE: Duration = Duration::from_secs(60);

/// How often a waiting request checks that its client is still connected.
const STEP: Duration = Duration::from_millis(100);

/// The running checks, by the packs that they check.
#[derive(Debug)]
pub(super) struct SharedChecks {
    clock: Clock,
    running: SingleFlight<BTreeSet<PackId>, CheckResult, Arc<SharedCheck>>,
}

/// The result of a check, for all requests that share it.
type CheckResult = Result<Received, HttpProblem>;

/// A running check, shared by all requests for the same packs.
#[derive(Debug)]
struct SharedCheck {
    clients: Mutex<Vec<WaitingClient>>,
    /// True once the server stops, or once all clients have been gone for [`GRACE`]. Never becomes
    /// false again.
    is_stopped: AtomicBool,
    clock: Clock,
}

/// A client that waits for the check, and when the check first found the client disconnected.
#[derive(Debug)]
struct WaitingClient {
    watch: Arc<DisconnectObserver>,
    left: Option<Instant>,
}

/// The result for clients that have disconnected, and for clients that joined a check after it was
/// cancelled.
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
        Self { clients: Mutex::default(), is_stopped: AtomicBool::new(false), clock }
    }

    fn add(&self, watch: &Arc<DisconnectObserver>) {
        self.clients.lock().push(WaitingClient { watch: Arc::clone(watch), left: None });
    }
}

/// A running check. Dropping it ends the check.
struct CheckGuard {
    leader: LeaderGuard<BTreeSet<PackId>, CheckResult, Arc<SharedCheck>>,
    check: Arc<SharedCheck>,
    _stopping: Option<StoppingTask>,
}

/// Cancels the check on drop. A task of the runtime owns it, and the runtime drops its tasks when
/// the server stops.
struct Stopping(Arc<SharedCheck>);

impl Drop for Stopping {
    fn drop(&mut self) {
        self.0.is_stopped.store(true, Ordering::Relaxed);
    }
}

/// The task that owns a [`Stopping`]. It ends with the check.
struct StoppingTask(AbortHandle);

impl Drop for StoppingTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl SharedChecks {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, running: SingleFlight::default() }
    }

    /// Starts a check, or waits for the result of one that is running for the same
    /// packs.
    fn begin(
        &self,
        ids: &BTreeSet<PackId>,
        watch: &Arc<DisconnectObserver>,
    ) -> Result<CheckGuard, CheckResult> {
        let new_check = || Arc::new(SharedCheck::new(self.clock.clone()));
        let (flight, check) = self.running.join_with_state(ids.clone(), new_check);
        check.add(watch);
        let leader = match flight {
            Flight::Leader(leader) => leader,
            Flight::Follower(running) => {
                let next_wait = || (!watch.cancelled()).then_some(STEP);
                return Err(running.wait(next_wait).unwrap_or_else(|| Err(cancelled_check())));
            }
        };
        let stopping = Stopping(Arc::clone(&check));
        let forever = async move {
            let _stopping = stopping;
            std::future::pending::<()>().await;
        };
        let runtime = Handle::try_current().ok();
        let task = runtime.map(|runtime| StoppingTask(runtime.spawn(forever).abort_handle()));
        Ok(CheckGuard { leader, check, _stopping: task })
    }
}

impl RepositoryPacks<'_> {
    /// Publishes staged packs if they and everything that they refer to are sound and
    /// complete. `client` is cancelled when the client disconnects.
    pub(super) fn publish_staged(
        &self,
        ids: &BTreeSet<PackId>,
        client: &Arc<DisconnectObserver>,
    ) -> Result<Received, HttpProblem> {
        self.0.check_epoch()?;
        let guard = match self.0.shared_checks.begin(ids, client) {
            Ok(guard) => guard,
            Err(done) => return done,
        };
        let done = self.publish_checked(ids, &*guard.check);
        guard.leader.finish(done.clone());
        done
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
    fn a_check_continues_while_a_client_waits_or_may_retry() {
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
    fn requests_for_the_same_packs_share_a_result() {
        let (checks, waiting) = (checks(), ClientWaiting::default());
        let ids = BTreeSet::from([PackId::from_bytes([7; 32])]);
        let turn = checks.begin(&ids, &waiting.watch()).ok().unwrap();
        std::thread::scope(|scope| {
            let ask = || checks.begin(&ids, &waiting.watch()).err();
            let other = scope.spawn(ask);
            while turn.check.clients.lock().len() < 2 {
                std::thread::yield_now();
            }
            turn.leader.finish(Ok(Received::Added));
            assert_eq!(other.join().unwrap().unwrap().unwrap(), Received::Added);
        });
        // A check that ends without a result counts as cancelled.
        let turn = checks.begin(&ids, &waiting.watch()).ok().unwrap();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| checks.begin(&ids, &waiting.watch()).err());
            while turn.check.clients.lock().len() < 2 {
                std::thread::yield_now();
            }
            drop(turn);
            let problem = other.join().unwrap().unwrap().unwrap_err();
            assert_eq!(problem.code, Code::Unavailable);
        });
        assert_eq!(checks.running.member_count(&ids), 0);
    }

    #[test]
    fn a_check_is_cancelled_when_the_server_stops() {
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
