//! Whether a service keeps to the conditions of writes.
//!
//! A service that takes `If-Match` and writes all the same loses one of two
//! pushes. So before the first ref is moved on a condition, the settings of the
//! store are written again, with the same bytes, on two conditions that do not
//! hold. Both writes must be refused. What came of it is remembered with what
//! else is known of the remote. A service that writes, or that knows no
//! conditions, gets claims ([`claims`](super::claims)).
//!
//! Anything between here and there can answer in place of the service. So a trial that fails
//! is made once more, and that it failed is remembered for a day ([`Mirror::keeps_conditions`]).
//!
//! [`Mirror::keeps_conditions`]: super::Mirror::keeps_conditions

use std::{sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use snap_core::base::{
    limits,
    observe::{Note, Observer},
};

use super::{CONFIG, RemoteError, RemoteStore};
use crate::service::{Conditions, ServiceError, Version, What, When, client::jittered};

/// How often a trial must fail to be believed.
const TRIALS: usize = 2;

/// The pause between them.
const PAUSE: Duration = Duration::from_millis(500);

/// What came of a trial.
enum Trial {
    /// Both writes were refused.
    Kept,
    /// One was done, or not understood.
    Failed,
    /// It proves nothing.
    Open,
}

/// A version that no object has.
fn unlike_any() -> Version {
    Version {
        etag: Some(format!("\"{}\"", "0".repeat(32))),
        // Generations are times in microseconds.
        generation: Some("1".to_owned()),
    }
}

impl RemoteStore {
    /// Which conditions the service keeps to, as far as that is known without
    /// asking it.
    pub(crate) fn known_conditions(&self) -> Option<Conditions> {
        let said = self.client.conditions();
        let takes_some = said.absent || said.unchanged;
        match self.mirror.keeps_conditions() {
            _ if !takes_some || !self.client.must_prove_conditions() => Some(said),
            Some(true) => Some(said),
            Some(false) => Some(Conditions::NONE),
            None => None,
        }
    }

    /// How many requests it takes to find that out, besides reading the settings.
    pub(crate) fn trials(&self) -> usize {
        let said = self.client.conditions();
        usize::from(said.absent) + usize::from(said.unchanged)
    }

    /// Whether the settings of the store were read or written by this process.
    pub(crate) fn has_config(&self) -> bool {
        self.config().is_some()
    }

    /// Which conditions the service keeps to.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub(super) async fn conditions(
        &self,
        observer: &dyn Observer,
    ) -> Result<Conditions, RemoteError> {
        let tried = self.conditions.get_or_try_init(|| async {
            match self.known_conditions() {
                Some(known) => Ok(known),
                None => self.try_conditions(observer).await,
            }
        });
        tried.await.copied()
    }

    async fn try_conditions(&self, observer: &dyn Observer) -> Result<Conditions, RemoteError> {
        let said = self.client.conditions();
        let read = async || {
            let read = self.client.find(CONFIG, limits::CONFIG_BYTES).await?;
            Ok::<_, RemoteError>(read.map(|read| read.bytes))
        };
        let known = match self.config() {
            None => read().await?,
            known => known,
        };
        // Without a store there is nothing to lose.
        let Some(bytes) = known else { return Ok(said) };
        // A service that ignores conditions writes what it is sent. So that must be what
        // is there, and not what came of it over a line that changes bytes.
        let is_own = self.wrote_config.load(Ordering::Relaxed);
        if !is_own && read().await?.as_ref() != Some(&bytes) {
            return Ok(Conditions::NONE);
        }
        for number in 0..TRIALS {
            if number > 0 {
                self.client.pause(jittered(PAUSE)).await?;
            }
            match self.try_once(said, &bytes).await? {
                Trial::Kept => {
                    self.mirror.remember_conditions(true);
                    return Ok(said);
                }
                Trial::Open => return Ok(said),
                Trial::Failed => {}
            }
        }
        self.mirror.remember_conditions(false);
        observer.note(Note::ConditionsIgnored { location: &self.location });
        Ok(Conditions::NONE)
    }

    /// Writes the settings again, on conditions that do not hold.
    async fn try_once(&self, said: Conditions, bytes: &Bytes) -> Result<Trial, RemoteError> {
        let attempt = async |is_taken: bool, when: When| match is_taken {
            true => self.client.write(CONFIG, Bytes::clone(bytes), when).await.map(|_| true),
            false => Err(ServiceError::new("write", CONFIG, What::Conflict, String::new())),
        };
        let (absent, unchanged) = futures::join!(
            attempt(said.absent, When::Absent),
            attempt(said.unchanged, When::Unchanged(unlike_any())),
        );
        let (mut is_kept, mut is_proven) = (true, true);
        for attempt in [absent, unchanged] {
            match attempt {
                Err(error) if error.what == What::Conflict => {}
                // A right to write refs alone proves nothing.
                Err(error) if error.what == What::Denied => is_proven = false,
                Err(error) if matches!(error.what, What::Unsupported | What::Refused) => {
                    is_kept = false;
                }
                Err(error) => return Err(error.into()),
                Ok(_) => is_kept = false,
            }
        }
        Ok(match (is_kept, is_proven) {
            (false, _) => Trial::Failed,
            (true, false) => Trial::Open,
            (true, true) => Trial::Kept,
        })
    }
}
