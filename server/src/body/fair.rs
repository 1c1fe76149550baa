//! What there is little of, in shares: nobody has more than theirs, and nobody
//! waits for long.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::sharer::Sharer;
use crate::problem::{Code, Problem};

/// Whoever waits for longer is sent away, to come again.
const PATIENCE: Duration = Duration::from_secs(5);

/// When.
const AGAIN_SECS: u64 = 2;

/// So much of something, of which each may have a part.
#[derive(Debug)]
pub(crate) struct Fair {
    all: Semaphore,
    each: usize,
    shares: Mutex<BTreeMap<Sharer, Share>>,
}

#[derive(Debug)]
struct Share {
    /// Those who have some of it, or wait for it.
    users: usize,
    free: Arc<Semaphore>,
}

/// Somebody who has some of a share, or waits for it.
#[derive(Debug)]
struct User {
    fair: &'static Fair,
    sharer: Sharer,
    free: Arc<Semaphore>,
}

/// Some of it; free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    own: OwnedSemaphorePermit,
    all: SemaphorePermit<'static>,
    _user: User,
}

impl Taken {
    /// Frees so much of it now, or all if it is less.
    pub(super) fn give_back(&mut self, amount: usize) {
        let amount = amount.min(self.own.num_permits());
        drop(self.own.split(amount));
        drop(self.all.split(amount));
    }
}

impl Fair {
    pub(super) const fn new(all: usize, each: usize) -> Self {
        Self { all: Semaphore::const_new(all), each, shares: Mutex::new(BTreeMap::new()) }
    }

    /// What one may have.
    pub(super) fn each(&self) -> usize {
        self.each
    }

    /// Takes so much for [whoever this is done for](Sharer::of_this).
    ///
    /// # Errors
    /// [`Code::Unavailable`] when it is not to be had soon.
    pub(crate) async fn take(&'static self, amount: u32) -> Result<Taken, Problem> {
        let user = self.user(Sharer::of_this());
        let free = Arc::clone(&user.free);
        // Who waits for the own share keeps nobody from theirs.
        let taking = async {
            let own = free.acquire_many_owned(amount).await.ok()?;
            Some((own, self.all.acquire_many(amount).await.ok()?))
        };
        match tokio::time::timeout(PATIENCE, taking).await {
            Ok(Some((own, all))) => Ok(Taken { own, all, _user: user }),
            _ => Err(Problem {
                retry_after_secs: Some(AGAIN_SECS),
                ..Problem::new(Code::Unavailable, "too much is under way at once")
            }),
        }
    }

    fn user(&'static self, sharer: Sharer) -> User {
        let mut shares = self.shares();
        let new = || Share { users: 0, free: Arc::new(Semaphore::new(self.each)) };
        let share = shares.entry(sharer).or_insert_with(new);
        share.users += 1;
        User { fair: self, sharer, free: Arc::clone(&share.free) }
    }

    fn shares(&self) -> MutexGuard<'_, BTreeMap<Sharer, Share>> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let mut shares = self.fair.shares();
        if let Some(share) = shares.get_mut(&self.sharer) {
            share.users -= 1;
            if share.users == 0 {
                shares.remove(&self.sharer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static FAIR: Fair = Fair::new(6, 2);

    #[tokio::test(start_paused = true)]
    async fn who_has_a_share_waits_a_while_and_keeps_nobody() {
        let take = |name: &'static str, amount| Sharer::new(name).asks(FAIR.take(amount));
        let first = take("greedy", 1).await.unwrap();
        let second = take("greedy", 1).await.unwrap();
        let wait = || tokio::spawn(async move { take("greedy", 1).await.map(drop) });
        let waiting: Vec<_> = (0..20).map(|_| wait()).collect();
        // The others have theirs without waiting.
        let begun = tokio::time::Instant::now();
        let (_one, _other) = (take("one", 2).await.unwrap(), take("other", 2).await.unwrap());
        assert_eq!(begun.elapsed(), Duration::ZERO);
        drop(first);
        let answers: Vec<_> = futures::future::join_all(waiting).await;
        let refused: Vec<Problem> =
            answers.into_iter().filter_map(|taken| taken.unwrap().err()).collect();
        // Those that had it did not keep it.
        assert!(refused.is_empty(), "{refused:?}");
        let third = take("greedy", 1).await.unwrap();
        let problem = take("greedy", 1).await.unwrap_err();
        assert_eq!((problem.code, problem.retry_after_secs), (Code::Unavailable, Some(2)));
        assert_eq!(begun.elapsed(), PATIENCE);
        // There are six of them.
        assert!(take("late", 1).await.is_err());
        drop((second, third));
        assert!(take("late", 1).await.is_ok());
        drop((_one, _other));
        assert!(FAIR.shares().is_empty(), "nobody is remembered");
    }
}
