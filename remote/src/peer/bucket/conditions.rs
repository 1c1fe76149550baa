//! Tests whether a service honours the conditions of writes.
//!
//! A service that accepts `If-Match` but writes anyway loses one of two concurrent pushes. So
//! before the first conditional write of a ref, the client writes the settings of the store again,
//! with the same bytes, under two conditions that do not hold. The service must refuse both writes.
//! [`ConditionProofs`](super::condition_proofs::ConditionProofs) remember the result. On a service that writes anyway
//! or has no conditions, clients use [`claims`](super::claims).
//!
//! A proxy may answer in place of the service. So the client repeats a failed test once.

use std::{sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use snap_core::base::{
    limits,
    observe::{Note, Observer},
};

use super::BucketStore;
use crate::{
    bucket::{
        ConditionalWrites, FailureReason, ObjectVersion, ServiceError, WriteCondition, jittered,
    },
    peer::{CONFIG, RemoteError},
};

/// Number of failed tests that prove a failure.
const TRIALS: usize = 2;

/// The pause between two tests.
const PAUSE: Duration = Duration::from_millis(500);

/// The result of one test.
enum ConditionTest {
    /// The service refused both writes.
    Honoured,
    /// The service carried out a write, or does not support the condition.
    Ignored,
    /// The test proves nothing.
    Inconclusive,
}

/// Returns a version that no object has.
fn unlike_any() -> ObjectVersion {
    ObjectVersion {
        etag: Some(format!("\"{}\"", "0".repeat(32))),
        // Real generations are times in microseconds.
        generation: Some("1".to_owned()),
    }
}

impl BucketStore {
    /// Returns the conditions that the service honours, if they are known without a new test.
    pub(crate) fn known_conditions(&self) -> Option<ConditionalWrites> {
        let reported = self.client.facts().conditions;
        let Some(bucket) = &self.client.facts().unproven_bucket else { return Some(reported) };
        match self.condition_proofs.get(bucket)? {
            true => Some(reported),
            false => Some(ConditionalWrites::NONE),
        }
    }

    /// Returns the conditions that the service honours, after a test if necessary.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub(crate) async fn conditions(
        &self,
        observer: &dyn Observer,
    ) -> Result<ConditionalWrites, RemoteError> {
        let tried = self.conditions.get_or_try_init(|| async {
            match self.known_conditions() {
                Some(known) => Ok(known),
                None => self.test_conditions(observer).await,
            }
        });
        tried.await.copied()
    }

    async fn test_conditions(
        &self,
        observer: &dyn Observer,
    ) -> Result<ConditionalWrites, RemoteError> {
        let reported = self.client.facts().conditions;
        let read = async || {
            let read = self.client.find(CONFIG, limits::CONFIG_BYTES).await?;
            Ok::<_, RemoteError>(read.map(|read| read.bytes))
        };
        let known = self.config.lock().clone();
        let known = match known {
            None => read().await?,
            known => known,
        };
        // Without a store, there is nothing to lose.
        let Some(bytes) = known else { return Ok(reported) };
        // A service that ignores conditions will write these bytes. So check that they are the
        // stored bytes, without damage in transit.
        let is_own = self.wrote_config.load(Ordering::Relaxed);
        if !is_own && read().await?.as_ref() != Some(&bytes) {
            return Ok(ConditionalWrites::NONE);
        }
        for number in 0..TRIALS {
            if number > 0 {
                self.client.requests().pause(jittered(PAUSE)).await?;
            }
            match self.test_once(reported, &bytes).await? {
                ConditionTest::Honoured => {
                    self.remember_conditions(true);
                    return Ok(reported);
                }
                ConditionTest::Inconclusive => return Ok(reported),
                ConditionTest::Ignored => {}
            }
        }
        self.remember_conditions(false);
        observer.note(Note::ConditionsIgnored { location: &self.location });
        Ok(ConditionalWrites::NONE)
    }

    fn remember_conditions(&self, is_kept: bool) {
        if let Some(bucket) = &self.client.facts().unproven_bucket {
            self.condition_proofs.remember(bucket, is_kept);
        }
    }

    /// Runs one test: writes the settings again, under conditions that do not hold.
    async fn test_once(
        &self,
        reported: ConditionalWrites,
        bytes: &Bytes,
    ) -> Result<ConditionTest, RemoteError> {
        let attempt = async |is_taken: bool, when: WriteCondition| match is_taken {
            true => self.client.put_if(CONFIG, Bytes::clone(bytes), when).await.map(|_| true),
            false => {
                Err(ServiceError::new("write", CONFIG, FailureReason::Conflict, String::new()))
            }
        };
        let (absent, unchanged) = futures::join!(
            attempt(reported.absent, WriteCondition::Absent),
            attempt(reported.unchanged, WriteCondition::Unchanged(unlike_any())),
        );
        let (mut is_kept, mut is_proven) = (true, true);
        for attempt in [absent, unchanged] {
            match attempt {
                Err(error) if error.reason == FailureReason::Conflict => {}
                // The refusal proves nothing: the user may have the right to write refs only.
                Err(error) if error.reason == FailureReason::Denied => is_proven = false,
                Err(error)
                    if matches!(
                        error.reason,
                        FailureReason::Unsupported | FailureReason::Refused
                    ) =>
                {
                    is_kept = false;
                }
                Err(error) => return Err(error.into()),
                Ok(_) => is_kept = false,
            }
        }
        Ok(match (is_kept, is_proven) {
            (false, _) => ConditionTest::Ignored,
            (true, false) => ConditionTest::Inconclusive,
            (true, true) => ConditionTest::Honoured,
        })
    }
}
