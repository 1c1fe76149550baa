//! Refs where the service writes on no condition: WebDAV, SFTP.
//!
//! Whoever moves a ref first writes a claim, an object of a name that nobody
//! else uses, then lists the claims on that ref. Who finds no other is alone:
//! of two, the one that listed later sees the claim of the other, for that was
//! written before. Who finds another takes the own claim back and tries again
//! a while later, with a claim of another name. Who is alone reads the ref,
//! compares, writes, reads it back, and takes the claim away.
//!
//! A client that dies leaves its claim. Others take it away once they have seen
//! it, under the same name, for a whole [`LEASE`] by their own clock; no clocks
//! are compared. So a claim is good for half a lease: who has not begun to
//! write by then does not, and who gets no answer in the rest gives up.
//!
//! A write without an answer may be carried out later, also when it was made again
//! and that went well. So the claim of a writer stays as long as one of its writes
//! has no answer: others take it away a lease later. Both sides count time with a
//! clock that goes on while a machine is suspended.
//!
//! What holds: of writers that go on or die, no two move a ref from the same
//! place, and nobody is told that it moved when it did not. It rests on a
//! listing that shows what was written before it was asked for.
//!
//! Other clients may rely on conditions at the same place: they were set up otherwise, or
//! their trial of the service came out otherwise. They look at no claim. So the write goes out
//! on a condition as well, wherever one can go along: that the ref is what was read under the
//! claim. A service that takes no notice of conditions writes all the same, and one that refuses
//! them, twice, is sent the write without. For the same reason clients that rely on conditions
//! need not look at claims.
//!
//! What cannot hold without help of the service: a request to write that is
//! held up on its way for longer than a lease, and is then still carried
//! out, overwrites what somebody else has written meanwhile. No object goes
//! with it, only the ref stands where it should not; whoever had been told that
//! it moved is told with their next push that it went another way.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use snap_core::{
    base::{
        id::CommitId,
        observe::{Note, Observer},
        time::since_boot,
    },
    format::ref_text::Nonce,
    repo::ref_name::RefName,
};
use tokio::time::{Instant, timeout};

use super::{
    RemoteError, RemoteStore,
    refs::{Slot, key, text},
};
use crate::service::{ServiceError, What, When, client::jittered};

/// How long a claim stays that nobody takes away.
pub const LEASE: Duration = Duration::from_secs(60);

/// How long the one who holds a claim may take before writing, and to write.
const HALF: Duration = Duration::from_secs(30);

/// How long others are waited for before giving up.
const PATIENCE: Duration = Duration::from_secs(300);

/// How often a service must refuse a condition before a ref is written without. One such
/// answer may be that of something else on the way.
const REFUSALS: usize = 2;

/// The first pause when somebody else has a claim, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(4));

/// A point in time, by a clock that goes on while the machine is suspended.
#[derive(Clone, Copy, Debug)]
struct Moment {
    since_boot: Duration,
    /// The runtime's own clock, which tests move on.
    instant: Instant,
}

impl Moment {
    fn now() -> Self {
        Self { since_boot: since_boot(), instant: Instant::now() }
    }

    fn elapsed(&self) -> Duration {
        since_boot().saturating_sub(self.since_boot).max(self.instant.elapsed())
    }
}

impl RemoteStore {
    /// Moves a ref under a claim.
    pub(super) async fn swap_claimed(
        &self,
        name: &RefName,
        expected: &Slot,
        (new, observer): (Option<CommitId>, &dyn Observer),
    ) -> Result<(), RemoteError> {
        let claims = format!("claims/{}/{}/", name.kind().folder(), name.short());
        let (began, mut pause) = (Moment::now(), PAUSES.0);
        let mut seen: HashMap<String, Moment> = HashMap::new();
        while began.elapsed() < PATIENCE {
            let nonce = Nonce::random();
            let claim = format!("{claims}{nonce}");
            let claimed = Moment::now();
            let open = AtomicUsize::new(0);
            let written = self.client.write(&claim, Bytes::from_static(b"\n"), When::Always).await;
            if let Err(error) = written {
                if error.what == What::Stopped {
                    // It may be there all the same.
                    let _ = self.client.clear_away(&claim).await;
                }
                return Err(error.into());
            }
            let others = self.others(&claims, &claim).await;
            let outcome = match &others {
                Ok(others) if others.is_empty() => {
                    Some(self.swap_alone(name, expected, (new, nonce), (claimed, &open)).await)
                }
                _ => None,
            };
            // One that stays is taken away by others, a lease later.
            if open.load(Ordering::SeqCst) == 0 {
                let _ = self.client.clear_away(&claim).await;
            }
            if let Some(outcome) = outcome {
                return outcome;
            }
            let others = others?;
            if seen.is_empty() {
                observer.note(Note::ClaimHeld {
                    name: name.short(),
                    location: &self.location,
                    patience_secs: PATIENCE.as_secs(),
                });
            }
            self.take_away_stale(&mut seen, others).await?;
            self.client.pause(jittered(pause)).await?;
            pause = (pause * 2).min(PAUSES.1);
        }
        Err(RemoteError::Held { name: Box::new(name.clone()), location: self.location.clone() })
    }

    async fn others(&self, claims: &str, own: &str) -> Result<Vec<String>, ServiceError> {
        let listed = self.client.list(claims).await?;
        // The claims on a ref of a longer name have more parts.
        let is_other = |key: &String| {
            key != own && key.strip_prefix(claims).is_some_and(|rest| !rest.contains('/'))
        };
        Ok(listed.into_iter().map(|object| object.key).filter(is_other).collect())
    }

    /// Takes away claims that have been seen for a lease.
    async fn take_away_stale(
        &self,
        seen: &mut HashMap<String, Moment>,
        others: Vec<String>,
    ) -> Result<(), RemoteError> {
        let now = Moment::now();
        seen.retain(|key, _| others.contains(key));
        for key in others {
            if seen.entry(key.clone()).or_insert(now).elapsed() >= LEASE {
                self.client.remove(&key).await?;
                seen.remove(&key);
            }
        }
        Ok(())
    }

    /// Compares and writes while nobody else does. Writes without an answer are
    /// counted.
    async fn swap_alone(
        &self,
        name: &RefName,
        expected: &Slot,
        (new, nonce): (Option<CommitId>, Nonce),
        (claimed, open): (Moment, &AtomicUsize),
    ) -> Result<(), RemoteError> {
        let now = self.any_slot(name).await?;
        if !now.is_same(expected) {
            return Err(self.raced(name, &now));
        }
        let key = key(name);
        let late = || {
            let message = "it took too long to be sure of it".to_owned();
            let error = ServiceError::new("write", &key, What::Temporary, message);
            ServiceError { location: self.location.clone(), ..error }
        };
        if claimed.elapsed() > HALF {
            return Err(late().into());
        }
        let write = self.write_claimed((name, &now), (new, nonce), open);
        let write = timeout(HALF.saturating_sub(claimed.elapsed()), write);
        // Once begun it is seen to its end: a claim that went before a write that
        // is still under way would be no claim. Whatever was replied, what is
        // there then says whether it went well.
        let written = async { (write.await, self.any_slot(name).await) };
        let (written, now) = self.client.unhindered(written).await;
        let now = now?;
        match (now.nonce == Some(nonce), written) {
            (true, _) => Ok(()),
            (false, Ok(Ok(_))) => Err(self.raced(name, &now)),
            (false, Ok(Err(RemoteError::Service(error)))) if error.what == What::Conflict => {
                Err(self.raced(name, &now))
            }
            (false, Ok(Err(error))) => Err(error),
            (false, Err(_)) => Err(late().into()),
        }
    }

    /// Writes a ref under a claim, on the condition that it is what was read, if one can go
    /// along.
    async fn write_claimed(
        &self,
        (name, read): (&RefName, &Slot),
        (new, nonce): (Option<CommitId>, Nonce),
        open: &AtomicUsize,
    ) -> Result<(), RemoteError> {
        let (key, bytes) = (key(name), text(new, nonce));
        let write = |when| self.client.write_counted(&key, (bytes.clone(), when), open);
        let takes = self.client.takes_conditions();
        let mut read = read.clone();
        for _ in 0..REFUSALS {
            let condition = read.condition(takes);
            let Some(when) = condition.filter(|_| !self.refuses_conditions.load(Ordering::Relaxed))
            else {
                break;
            };
            let Err(error) = write(when).await else { return Ok(()) };
            match error.what {
                What::Unsupported | What::Refused => {}
                // A service that refuses a condition which holds knows none, either.
                What::Conflict => {
                    let now = self.any_slot(name).await?;
                    if !now.is_same(&read) {
                        return Err(error.into());
                    }
                    read = now;
                }
                _ => return Err(error.into()),
            }
        }
        if read.condition(takes).is_some() {
            self.refuses_conditions.store(true, Ordering::Relaxed);
        }
        Ok(write(When::Always).await.map(drop)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_while_the_machine_is_suspended() {
        let now = Moment::now();
        assert!(now.elapsed() < HALF);
        // A clock that stops meanwhile would say that no time has passed.
        let before = Moment { since_boot: now.since_boot.saturating_sub(LEASE), ..now };
        assert!(before.elapsed() >= LEASE.min(now.since_boot));
    }
}
