//! Whether a service keeps to the conditions of writes.
//!
//! A service that takes `If-Match` and writes all the same loses one of two
//! pushes. So before the first ref is moved on a condition, the settings of the
//! store are written again, with the same bytes, on two conditions that do not
//! hold. Both writes must be refused. What came of it is remembered with what
//! else is known of the remote. A service that writes, or that knows no
//! conditions, gets claims ([`claims`](super::claims)).

use std::sync::atomic::Ordering;

use bytes::Bytes;
use snap_core::base::{
    limits,
    observe::{Note, Observer},
};

use super::{CONFIG, RemoteError, RemoteStore};
use crate::service::{Conditions, ServiceError, Version, What, When};

/// What a service that keeps to none can do.
const NONE: Conditions = Conditions { absent: false, unchanged: false };

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
            Some(false) => Some(NONE),
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
            return Ok(NONE);
        }
        let attempt = async |is_taken: bool, when: When| match is_taken {
            true => self.client.write(CONFIG, Bytes::clone(&bytes), when).await.map(|_| true),
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
                Err(error) if error.what == What::Unsupported => is_kept = false,
                Err(error) => return Err(error.into()),
                Ok(_) => is_kept = false,
            }
        }
        if is_kept && !is_proven {
            return Ok(said);
        }
        self.mirror.remember_conditions(is_kept);
        if is_kept {
            return Ok(said);
        }
        observer.note(Note::ConditionsIgnored { location: &self.location });
        Ok(NONE)
    }
}
