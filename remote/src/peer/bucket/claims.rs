//! Compare-and-swap of refs by claims, for services without conditional writes: WebDAV and SFTP.
//!
//! A client that moves a ref first writes a claim: an object with a name that no other client uses.
//! Then it lists the claims on that ref. If there is no other claim, the client is alone: of two
//! clients, the one that lists later sees the earlier claim of the other. If there is another
//! claim, the client removes its own and tries again later, with a claim of another name. A client
//! that is alone reads the ref, compares, writes, reads it back, and removes its claim.
//!
//! A client that dies leaves its claim. Other clients remove a claim once they have seen it, under
//! the same name, for a whole [`LEASE`] by their own clock; no client compares clocks. So a claim
//! is valid for half a lease. After that time, a client does not begin to write, and gives up a
//! write without an answer.
//!
//! The service may still carry out a write without an answer later, even if a retry succeeded. So a
//! client leaves its claim if one of its writes has no answer; other clients remove the claim a
//! lease later. Both sides measure time with a clock that continues while a machine is suspended.
//!
//! The guarantee: among clients that continue or die, no two move a ref from the same commit, and
//! no client reports a move that did not happen. It relies on listings that show everything written
//! before their requests.
//!
//! Other clients may rely on conditional writes at the same place, because of another configuration
//! or another result of their test of the service. They do not look at claims. So if the service
//! takes conditions, the write of the ref is conditional as well: the ref must be the one that was
//! read under the claim. A service that ignores conditions writes anyway. A service that refuses
//! them twice gets an unconditional write.
//!
//! The limit: a write request that is delayed for longer than a lease overwrites a later write of
//! another client. No object is lost, only the ref is wrong. The next push of the other client
//! reports that the branch has diverged.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use snap_core::{
    base::{
        observe::{Note, Observer},
        time::since_boot,
    },
    format::ref_text::Nonce,
    repo::ref_name::RefName,
};
use tokio::time::{Instant, timeout};

use super::refs::{BucketRefs, NewRef, condition};
use crate::{
    bucket::{FailureReason, ServiceError, WriteCondition, jittered},
    peer::{
        RemoteError,
        slot::{RefSlot, key},
    },
};

/// Time for which other clients must see a claim before they remove it.
pub const LEASE: Duration = Duration::from_secs(60);

/// Time within which the holder of a claim must complete its write.
const HALF: Duration = Duration::from_secs(30);

/// Time for which a client waits for the claims of other clients before it gives up.
const PATIENCE: Duration = Duration::from_secs(300);

/// Number of refused conditional writes after which the client writes without a condition. A single
/// refusal may come from a proxy.
const REFUSALS: usize = 2;

/// Initial and maximum pause while another client holds a claim.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(4));

/// A point in time, by a clock that continues while the machine is suspended.
#[derive(Clone, Copy, Debug)]
struct BootInstant {
    since_boot: Duration,
    /// The clock of the runtime, which tests can advance.
    instant: Instant,
}

impl BootInstant {
    fn now() -> Self {
        Self { since_boot: since_boot(), instant: Instant::now() }
    }

    fn elapsed(&self) -> Duration {
        since_boot().saturating_sub(self.since_boot).max(self.instant.elapsed())
    }
}

impl<'a> BucketRefs<'a> {
    /// Moves a ref under a claim.
    pub(super) async fn swap_claimed(
        self,
        name: &RefName,
        expected: &RefSlot,
        new: NewRef,
        observer: &dyn Observer,
    ) -> Result<(), RemoteError> {
        let claims = format!("claims/{}/{}/", name.kind().folder(), name.short());
        let (began, mut pause) = (BootInstant::now(), PAUSES.0);
        let mut seen: HashMap<String, BootInstant> = HashMap::new();
        while began.elapsed() < PATIENCE {
            let nonce = Nonce::random();
            let claim = format!("{claims}{nonce}");
            let claimed = BootInstant::now();
            let open = AtomicUsize::new(0);
            let written = self.store.client.put(&claim, Bytes::from_static(b"\n")).await;
            if let Err(error) = written {
                if error.reason == FailureReason::Stopped {
                    // The service may have written the claim all the same.
                    let _ = self.store.client.delete_leftover(&claim).await;
                }
                return Err(error.into());
            }
            let others = self.others(&claims, &claim).await;
            let outcome = match &others {
                Ok(others) if others.is_empty() => {
                    Some(self.swap_alone(name, expected, new, nonce, claimed, &open).await)
                }
                _ => None,
            };
            // Other clients remove a claim that stays a lease later.
            if open.load(Ordering::SeqCst) == 0 {
                let _ = self.store.client.delete_leftover(&claim).await;
            }
            if let Some(outcome) = outcome {
                return outcome;
            }
            let others = others?;
            if seen.is_empty() {
                observer.note(Note::RefClaimedElsewhere {
                    name: name.short(),
                    location: &self.store.location,
                    patience_secs: PATIENCE.as_secs(),
                });
            }
            self.take_away_stale(&mut seen, others).await?;
            self.store.client.requests().pause(jittered(pause)).await?;
            pause = (pause * 2).min(PAUSES.1);
        }
        Err(RemoteError::Held {
            name: Box::new(name.clone()),
            location: self.store.location.clone(),
        })
    }

    /// Lists the claims of other clients on the same ref.
    async fn others(self, claims: &str, own: &str) -> Result<Vec<String>, ServiceError> {
        let listed = self.store.client.list(claims).await?;
        // A claim on a ref with a longer name has more parts in its key.
        let is_other = |key: &String| {
            key != own && key.strip_prefix(claims).is_some_and(|rest| !rest.contains('/'))
        };
        Ok(listed.into_iter().map(|object| object.key).filter(is_other).collect())
    }

    /// Removes claims that this client has seen for a whole lease.
    async fn take_away_stale(
        self,
        seen: &mut HashMap<String, BootInstant>,
        others: Vec<String>,
    ) -> Result<(), RemoteError> {
        let now = BootInstant::now();
        seen.retain(|key, _| others.contains(key));
        for key in others {
            if seen.entry(key.clone()).or_insert(now).elapsed() >= LEASE {
                self.store.client.delete(std::slice::from_ref(&key)).await?;
                seen.remove(&key);
            }
        }
        Ok(())
    }

    /// Compares and writes the ref while this client holds the only claim. Counts writes without
    /// an answer in `open`.
    async fn swap_alone(
        self,
        name: &RefName,
        expected: &RefSlot,
        new: NewRef,
        nonce: Nonce,
        claimed: BootInstant,
        open: &AtomicUsize,
    ) -> Result<(), RemoteError> {
        let now = self.store.any_slot(name).await?;
        if !now.is_same(expected) {
            return Err(self.store.race_error(name, &now));
        }
        let key = key(name);
        let late = || {
            let message = "the write took too long to be certain of its result".to_owned();
            let error = ServiceError::new("write", &key, FailureReason::Temporary, message);
            ServiceError { location: self.store.location.clone(), ..error }
        };
        if claimed.elapsed() > HALF {
            return Err(late().into());
        }
        let write = self.write_claimed(name, &now, new, nonce, open);
        let write = timeout(HALF.saturating_sub(claimed.elapsed()), write);
        // Shield this from cancellation, which would remove the claim during a write. The second
        // read of the ref shows whether the write succeeded, even if its answer was lost.
        let written = async { (write.await, self.store.any_slot(name).await) };
        let (written, now) = self.store.client.requests().shielded(written).await;
        let now = now?;
        match (now.nonce() == Some(nonce), written) {
            (true, _) => Ok(()),
            (false, Ok(Ok(_))) => Err(self.store.race_error(name, &now)),
            // If the ref has not changed, the conflict is a refusal by the service, see the next
            // arm.
            (false, Ok(Err(RemoteError::Service(error))))
                if error.reason == FailureReason::Conflict && !now.is_same(expected) =>
            {
                Err(self.store.race_error(name, &now))
            }
            (false, Ok(Err(error))) => Err(error),
            (false, Err(_)) => Err(late().into()),
        }
    }

    /// Writes a ref under a claim. If the service takes conditions, the ref must still be `read`.
    async fn write_claimed(
        self,
        name: &RefName,
        read: &RefSlot,
        new: NewRef,
        nonce: Nonce,
        open: &AtomicUsize,
    ) -> Result<(), RemoteError> {
        let (key, bytes) = (key(name), new.text(nonce));
        let write = |when| self.store.client.put_counted(&key, bytes.clone(), when, open);
        let takes = self.store.client.facts().takes_conditions;
        let mut read = read.clone();
        for _ in 0..REFUSALS {
            let condition = condition(&read, takes);
            let Some(when) =
                condition.filter(|_| !self.store.refuses_conditions.load(Ordering::Relaxed))
            else {
                break;
            };
            let Err(error) = write(when).await else { return Ok(()) };
            match error.reason {
                FailureReason::Unsupported | FailureReason::Refused => {}
                // A service that refuses although the condition holds does not support conditions.
                FailureReason::Conflict => {
                    let now = self.store.any_slot(name).await?;
                    if !now.is_same(&read) {
                        return Err(error.into());
                    }
                    read = now;
                }
                _ => return Err(error.into()),
            }
        }
        if condition(&read, takes).is_some() {
            self.store.refuses_conditions.store(true, Ordering::Relaxed);
        }
        Ok(write(WriteCondition::Always).await.map(drop)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_includes_time_in_suspension() {
        let now = BootInstant::now();
        assert!(now.elapsed() < HALF);
        // A clock that stops during suspension would report that no time has passed.
        let before = BootInstant { since_boot: now.since_boot.saturating_sub(LEASE), ..now };
        assert!(before.elapsed() >= LEASE.min(now.since_boot));
    }
}
