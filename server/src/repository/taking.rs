//! Packs that come to count. What is in them, and whether all is there that they
//! refer to, is checked while others may do the same, since that may take long; then
//! they count at once, one push after the other.
//!
//! The check goes on for a while when whoever asked has left: clients ask again
//! after half a minute, and find it further on. Those who ask for the same packs
//! meanwhile wait for it together.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use snap_core::{
    base::{
        id::{CommitId, PackId},
        observe::Observer,
    },
    ops::accept::{self, Prepared},
};
use tokio::{runtime::Handle, task::AbortHandle};

use super::{Repository, Sent};
use crate::{
    body::Watch,
    problem::{Code, Problem},
    upstream::behind::Behind,
};

/// So long somebody may come again who has left.
const GRACE: Duration = Duration::from_secs(60);

/// How often those who wait look whether they are still wanted.
const STEP: Duration = Duration::from_millis(100);

/// For whom packs are checked, and how much.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Whether they have left.
    pub by: Arc<Watch>,
    /// So many bytes of contents that were cut may be read.
    pub content_bytes: u64,
}

/// Packs that are being checked.
#[derive(Debug, Default)]
pub(super) struct Takings {
    under_way: Mutex<HashMap<BTreeSet<PackId>, Arc<Taking>>>,
}

/// Some packs that are being checked.
#[derive(Debug, Default)]
struct Taking {
    askers: Mutex<Vec<Asker>>,
    done: Mutex<Option<Result<Sent, Problem>>>,
    ended: Condvar,
    /// The server stops, or nobody waited any more.
    is_stopped: AtomicBool,
}

#[derive(Debug)]
struct Asker {
    watch: Arc<Watch>,
    left: Option<Instant>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What those are told who will not read it, and those who came too late.
fn broken_off() -> Problem {
    Problem::new(Code::Unavailable, "the check was broken off")
}

impl Observer for Taking {
    fn cancelled(&self) -> bool {
        let mut askers = lock(&self.askers);
        askers.retain_mut(|asker| {
            !asker.watch.cancelled()
                || asker.left.get_or_insert_with(Instant::now).elapsed() < GRACE
        });
        if askers.is_empty() {
            // For good: some have seen it, and left what they were at undone.
            self.is_stopped.store(true, Ordering::Relaxed);
        }
        self.is_stopped.load(Ordering::Relaxed)
    }
}

impl Taking {
    fn add(&self, watch: &Arc<Watch>) {
        lock(&self.askers).push(Asker { watch: Arc::clone(watch), left: None });
    }

    /// Waits for what becomes of it.
    fn wait(&self, watch: &Watch) -> Result<Sent, Problem> {
        let mut done = lock(&self.done);
        loop {
            if let Some(done) = &*done {
                return done.clone();
            }
            if watch.cancelled() {
                return Err(broken_off());
            }
            done = self.ended.wait_timeout(done, STEP).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The turn of whoever does it. Over when this is dropped.
struct Turn<'t> {
    takings: &'t Takings,
    ids: &'t BTreeSet<PackId>,
    taking: Arc<Taking>,
    stopping: Option<AbortHandle>,
}

/// Tells of the end of the server, whose tasks end with it.
struct Stopping(Arc<Taking>);

impl Drop for Stopping {
    fn drop(&mut self) {
        self.0.is_stopped.store(true, Ordering::Relaxed);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        lock(&self.takings.under_way).remove(self.ids);
        lock(&self.taking.done).get_or_insert_with(|| Err(broken_off()));
        self.taking.ended.notify_all();
        if let Some(stopping) = &self.stopping {
            stopping.abort();
        }
    }
}

impl Takings {
    /// Begins, or waits for whoever has begun.
    fn begin<'t>(
        &'t self,
        ids: &'t BTreeSet<PackId>,
        watch: &Arc<Watch>,
    ) -> Result<Turn<'t>, Result<Sent, Problem>> {
        let mut under_way = lock(&self.under_way);
        if let Some(taking) = under_way.get(ids).map(Arc::clone) {
            taking.add(watch);
            drop(under_way);
            return Err(taking.wait(watch));
        }
        let taking = Arc::new(Taking::default());
        taking.add(watch);
        under_way.insert(ids.clone(), Arc::clone(&taking));
        drop(under_way);
        let stopping = Stopping(Arc::clone(&taking));
        let forever = async move {
            let _stopping = stopping;
            std::future::pending::<()>().await;
        };
        let stopping = Handle::try_current().ok();
        let stopping = stopping.map(|runtime| runtime.spawn(forever).abort_handle());
        Ok(Turn { takings: self, ids, taking, stopping })
    }
}

impl Repository {
    /// Has packs count that were sent, if they are right and complete.
    pub(super) fn take_in(&self, ids: &BTreeSet<PackId>, asked: &Asked) -> Result<Sent, Problem> {
        let turn = match self.takings.begin(ids, &asked.by) {
            Ok(turn) => turn,
            Err(done) => return done,
        };
        let done = self.check_and_count(ids, asked.content_bytes, &*turn.taking);
        *lock(&turn.taking.done) = Some(done.clone());
        done
    }

    fn check_and_count(
        &self,
        ids: &BTreeSet<PackId>,
        most: u64,
        observer: &dyn Observer,
    ) -> Result<Sent, Problem> {
        let Some(behind) = &self.behind else {
            let new = self.staged.publish(&self.repo, ids, most, observer)?;
            return Ok(if new.is_empty() { Sent::Known } else { Sent::New });
        };
        self.refresh()?;
        behind.look()?;
        let mut new = Vec::new();
        for id in self.lacking(ids) {
            match self.sent(&id)? {
                Some(path) => new.push((id, path)),
                // Another push has had it count just now.
                None if self.lacking(&BTreeSet::from([id])).is_empty() => {}
                None => {
                    return Err(Problem::new(Code::Rejected, format!("pack {id} was not sent")));
                }
            }
        }
        let new_ids: BTreeSet<PackId> = new.iter().map(|(id, _)| *id).collect();
        let prepared = match new.is_empty() {
            true => None,
            false => {
                self.staged.keep_on(&new_ids);
                let tips = self.known_refs()?.into_iter().map(|(_, id)| id);
                let tips: Vec<CommitId> = tips.collect();
                Some(accept::prepare(self.repo.store(), &new, (&tips, most), observer))
            }
        };
        if matches!(prepared, Some(Err(_))) {
            // They may have been damaged since they were checked, or what they refer
            // to in a cache.
            self.staged.check_again(&new_ids);
            if self.behind.as_ref().is_some_and(|behind| behind.mend()) {
                return self.check_and_count(ids, most, observer);
            }
        }
        let one_at_a_time = self.staged.publishing()?;
        self.refresh()?;
        // Others may have had some of them count meanwhile.
        let lacking = self.lacking(&new_ids);
        if matches!(prepared, Some(Err(_))) && !lacking.is_empty() && lacking.len() < new_ids.len()
        {
            // They may have gone while they were looked at: once more, without those.
            drop(one_at_a_time);
            return self.check_and_count(ids, most, observer);
        }
        let sent = match prepared {
            Some(prepared) if !lacking.is_empty() => {
                self.adopt(behind, &lacking, prepared?, observer)?;
                Sent::New
            }
            _ => Sent::Known,
        };
        behind.publish()?;
        Ok(sent)
    }

    /// Those that do not count yet in the cache of an upstream.
    fn lacking(&self, ids: &BTreeSet<PackId>) -> BTreeSet<PackId> {
        let there: BTreeSet<PackId> = self.repo.store().packs().into_iter().collect();
        ids.difference(&there).copied().collect()
    }

    fn adopt(
        &self,
        behind: &Behind,
        new: &BTreeSet<PackId>,
        prepared: Prepared<'_>,
        observer: &dyn Observer,
    ) -> Result<(), Problem> {
        let ids: Vec<PackId> = new.iter().copied().collect();
        behind.remember_pending(&ids)?;
        if let Err(error) = prepared.adopt(observer) {
            behind.forget_pending(&ids);
            return Err(error.into());
        }
        self.staged.complete().extend(&ids);
        ids.iter().for_each(|id| self.staged.forget(id));
        behind.grew(&ids);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::Waiting;

    #[test]
    fn a_check_goes_on_as_long_as_somebody_waits_or_may_come_again() {
        let (first, second) = (Waiting::default(), Waiting::default());
        let taking = Taking::default();
        taking.add(&first.watch());
        drop(first);
        assert!(!taking.cancelled(), "it may come again");
        taking.add(&second.watch());
        let long_ago = Instant::now().checked_sub(GRACE).unwrap();
        lock(&taking.askers)[0].left = Some(long_ago);
        assert!(!taking.cancelled(), "another one waits");
        drop(second);
        assert!(!taking.cancelled());
        lock(&taking.askers)[0].left = Some(long_ago);
        assert!(taking.cancelled());
        taking.add(&Waiting::default().watch());
        assert!(taking.cancelled(), "what was left undone stays so");
    }

    #[test]
    fn those_who_ask_for_the_same_packs_are_told_the_same() {
        let (takings, waiting) = (Takings::default(), Waiting::default());
        let ids = BTreeSet::from([PackId::from_bytes([7; 32])]);
        let turn = takings.begin(&ids, &waiting.watch()).ok().unwrap();
        std::thread::scope(|scope| {
            let ask = || takings.begin(&ids, &waiting.watch()).err();
            let other = scope.spawn(ask);
            while lock(&turn.taking.askers).len() < 2 {
                std::thread::yield_now();
            }
            *lock(&turn.taking.done) = Some(Ok(Sent::New));
            drop(turn);
            assert_eq!(other.join().unwrap().unwrap().unwrap(), Sent::New);
        });
        // What ended without a word was broken off.
        let turn = takings.begin(&ids, &waiting.watch()).ok().unwrap();
        let taking = Arc::clone(&turn.taking);
        drop(turn);
        let problem = taking.wait(&waiting.watch()).unwrap_err();
        assert_eq!(problem.code, Code::Unavailable);
        assert!(lock(&takings.under_way).is_empty());
    }

    #[test]
    fn a_check_ends_with_the_server() {
        let (takings, waiting) = (Takings::default(), Waiting::default());
        let ids = BTreeSet::new();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let inside = runtime.enter();
        let turn = takings.begin(&ids, &waiting.watch()).ok().unwrap();
        assert!(!turn.taking.cancelled());
        drop(inside);
        drop(runtime);
        assert!(turn.taking.cancelled());
    }
}
