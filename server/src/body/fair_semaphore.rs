//! A fair semaphore: each client has a quota, and the wait for permits is limited.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::client_key::ClientKey;
use crate::{
    clock::Clock,
    problem::{Code, HttpProblem},
};

/// Longest wait for permits. After it, the server refuses the request, and the client should retry.
const PATIENCE: Duration = Duration::from_secs(5);

/// Seconds after which a refused client should retry.
const AGAIN_SECS: u64 = 2;

/// Longest time that a [large](FairSemaphore::is_large) request stays at the head of the queue,
/// where it reserves all free permits. Then it queues again at the end, so it delays small requests
/// by at most this time. A steady stream of small requests can starve a large request until
/// [`PATIENCE`].
const HOLD: Duration = Duration::from_millis(200);

/// A request is large if it exceeds this fraction of one client's quota.
const LARGE_FRACTION: usize = 8;

/// A semaphore with a quota for each client.
#[derive(Debug)]
pub(crate) struct FairSemaphore {
    /// Permits of all clients together.
    all: Arc<Semaphore>,
    /// Permits that one client may hold.
    per_client: usize,
    /// The quotas of the clients that hold permits or wait for some.
    shares: Mutex<BTreeMap<ClientKey, ClientQuota>>,
    clock: Clock,
}

#[derive(Debug)]
struct ClientQuota {
    /// Number of requests of the client that hold permits or wait for some.
    users: usize,
    free: Arc<Semaphore>,
}

/// A request that holds permits or waits for some. The quota of a client is dropped with its last
/// request.
#[derive(Debug)]
struct QuotaUser {
    fair: Arc<FairSemaphore>,
    client: ClientKey,
    free: Arc<Semaphore>,
}

/// Permits, which are released on drop.
#[derive(Debug)]
pub(crate) struct FairPermit {
    own: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
    _user: QuotaUser,
}

impl FairPermit {
    /// Releases `amount` permits now, or all if there are fewer.
    pub(super) fn give_back(&mut self, amount: usize) {
        let amount = amount.min(self.own.num_permits());
        drop(self.own.split(amount));
        drop(self.all.split(amount));
    }
}

impl FairSemaphore {
    pub(super) fn new(all: usize, each: usize, clock: Clock) -> Self {
        let all = Arc::new(Semaphore::new(all));
        Self { all, per_client: each, shares: Mutex::default(), clock }
    }

    /// Returns the number of permits that one client may hold.
    pub(super) fn each(&self) -> usize {
        self.per_client
    }

    /// Acquires permits for [the client of this task](ClientKey::current).
    ///
    /// # Errors
    /// [`Code::Unavailable`] when the permits do not become free in time.
    pub(crate) async fn take(self: &Arc<Self>, amount: u32) -> Result<FairPermit, HttpProblem> {
        let user = self.user(ClientKey::current());
        let (free, all) = (&user.free, &self.all);
        let acquire = |from: &Arc<Semaphore>| Arc::clone(from).acquire_many_owned(amount);
        // Acquire the client's own quota first. A request that waits for its quota is not yet in
        // the queue of `all`, where it would hold up other clients.
        let permits = async {
            if !self.is_large(amount) {
                let own = acquire(free).await.ok()?;
                return Some((own, acquire(all).await.ok()?));
            }
            let own = self.requeue_after_hold(|| acquire(free)).await.ok()?;
            Some((own, self.requeue_after_hold(|| acquire(all)).await.ok()?))
        };
        match self.clock.timeout(PATIENCE, permits).await {
            Ok(Some((own, all))) => Ok(FairPermit { own, all, _user: user }),
            _ => Err(HttpProblem {
                retry_after_secs: Some(AGAIN_SECS),
                ..HttpProblem::new(Code::Unavailable, "the server is busy")
            }),
        }
    }

    fn is_large(&self, amount: u32) -> bool {
        amount as usize > (self.per_client / LARGE_FRACTION).max(1)
    }

    fn user(self: &Arc<Self>, client: ClientKey) -> QuotaUser {
        let mut shares = self.shares.lock();
        let new = || ClientQuota { users: 0, free: Arc::new(Semaphore::new(self.per_client)) };
        let share = shares.entry(client).or_insert_with(new);
        share.users += 1;
        QuotaUser { fair: Arc::clone(self), client, free: Arc::clone(&share.free) }
    }

    /// Waits in a queue. After each [`HOLD`], gives up the place and queues again at the end.
    async fn requeue_after_hold<T, F: Future<Output = T>>(&self, queue: impl Fn() -> F) -> T {
        loop {
            if let Ok(got) = self.clock.timeout(HOLD, queue()).await {
                return got;
            }
        }
    }
}

impl Drop for QuotaUser {
    fn drop(&mut self) {
        let mut shares = self.fair.shares.lock();
        if let Some(share) = shares.get_mut(&self.client) {
            share.users -= 1;
            if share.users == 0 {
                shares.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a semaphore with six permits, of which one client may hold `each`.
    fn fair(each: usize) -> Arc<FairSemaphore> {
        Arc::new(FairSemaphore::new(6, each, Clock::default()))
    }

    /// Takes permits for the client of that name.
    async fn take_for(
        fair: &Arc<FairSemaphore>,
        name: &'static str,
        amount: u32,
    ) -> Result<FairPermit, HttpProblem> {
        ClientKey::new(name).scope(fair.take(amount)).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_request_delays_small_ones_only_briefly() {
        let fair = fair(4);
        let take = |name: &'static str, amount| take_for(&fair, name, amount);
        let (most, some) = (take("a", 4).await.unwrap(), take("b", 1).await.unwrap());
        let begun = tokio::time::Instant::now();
        let large = ["c", "d"].map(|name| {
            let fair = Arc::clone(&fair);
            tokio::spawn(async move { take_for(&fair, name, 3).await })
        });
        tokio::task::yield_now().await;
        // One permit is free, and reserved for the large requests.
        let small = take("e", 1).await.unwrap();
        assert!(begun.elapsed() <= HOLD, "{:?}", begun.elapsed());
        drop(small);
        // A client with many small requests does not wait longer for any of them.
        for _ in 0..10 {
            let begun = tokio::time::Instant::now();
            drop(take("e", 1).await.unwrap());
            assert!(begun.elapsed() <= HOLD, "{:?}", begun.elapsed());
        }
        // The large requests succeed once there are enough permits.
        drop((most, some));
        for taken in large {
            assert!(taken.await.unwrap().is_ok());
        }
        assert!(begun.elapsed() < PATIENCE);
        assert!(fair.shares.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_above_its_share_does_not_block_others() {
        let fair = fair(2);
        let take = |name: &'static str, amount| take_for(&fair, name, amount);
        let first = take("greedy", 1).await.unwrap();
        let second = take("greedy", 1).await.unwrap();
        let wait = || {
            let fair = Arc::clone(&fair);
            tokio::spawn(async move { take_for(&fair, "greedy", 1).await.map(drop) })
        };
        let waiting: Vec<_> = (0..20).map(|_| wait()).collect();
        // Other clients get their permits without waiting.
        let begun = tokio::time::Instant::now();
        let (_one, _other) = (take("one", 2).await.unwrap(), take("other", 2).await.unwrap());
        assert_eq!(begun.elapsed(), Duration::ZERO);
        drop(first);
        let answers: Vec<_> = futures::future::join_all(waiting).await;
        let refused: Vec<HttpProblem> =
            answers.into_iter().filter_map(|taken| taken.unwrap().err()).collect();
        // The requests that had the permits have released them.
        assert!(refused.is_empty(), "{refused:?}");
        let third = take("greedy", 1).await.unwrap();
        let problem = take("greedy", 1).await.unwrap_err();
        assert_eq!((problem.code, problem.retry_after_secs), (Code::Unavailable, Some(2)));
        assert_eq!(begun.elapsed(), PATIENCE);
        // All six permits are in use.
        assert!(take("late", 1).await.is_err());
        drop((second, third));
        assert!(take("late", 1).await.is_ok());
        drop((_one, _other));
        assert!(fair.shares.lock().is_empty(), "clients without permits are forgotten");
    }
}
