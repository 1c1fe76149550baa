//! Tracks whether the upstream answers. After a failure the server sends no further request for a
//! moment, so that clients do not wait in vain.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use snap_core::base::kind::ErrorKind;
use snap_remote::{
    bucket::{FailureDetail, FailureReason},
    peer::RemoteError,
};

use crate::{
    causes::causes,
    clock::Clock,
    problem::{Code, HttpProblem},
};

/// Pause after a failure, during which the server sends no request to the upstream.
const PAUSE: Duration = Duration::from_secs(1);

/// Tracks whether the upstream answers.
#[derive(Debug)]
pub struct UpstreamHealth {
    state: Mutex<HealthState>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct HealthState {
    /// When the upstream last answered.
    reached: Option<Instant>,
    /// When a request last failed; `None` if the upstream has answered since.
    failed: Option<Instant>,
}

/// The upstream does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamOutage {
    /// Seconds since the upstream last answered; `None` if it has not since this server started.
    pub age_secs: Option<u64>,
}

impl UpstreamHealth {
    pub(super) fn new(clock: Clock) -> Self {
        Self { state: Mutex::default(), clock }
    }

    /// Records an answer.
    pub fn record_success(&self) {
        let mut state = self.state.lock();
        state.reached = Some(self.clock.now());
        if state.failed.take().is_some() {
            tracing::warn!("the upstream answers again");
        }
    }

    /// Records a request that failed, and returns the problem for the client.
    pub fn failed(&self, error: RemoteError) -> HttpProblem {
        self.record_failure(&error);
        problem(error)
    }

    /// Records what an error says about the upstream: it is unavailable, it has answered, or
    /// nothing. [`failed`](Self::failed) also returns the problem for the client.
    pub fn record_failure(&self, error: &RemoteError) {
        match error {
            // A failure on this server says nothing about the upstream.
            RemoteError::Store(_) | RemoteError::Ref(_) | RemoteError::Io(_) => {}
            error if error.kind() == ErrorKind::Unavailable && !is_full(error) => {
                self.gone(&error.to_string());
            }
            // Any other error is an answer.
            _ => self.record_success(),
        }
    }

    /// Records a request that timed out, and returns the problem for the client.
    pub fn timed_out(&self) -> HttpProblem {
        self.gone("no answer in time");
        unavailable()
    }

    /// Records a request made at `since` for which no data arrived. If the upstream has answered
    /// another request since then, there is no outage.
    pub fn record_stall(&self, since: Instant) {
        if self.state.lock().reached.is_none_or(|reached| reached < since) {
            self.gone("no data arrived in time");
        }
    }

    fn gone(&self, why: &str) {
        if self.state.lock().failed.replace(self.clock.now()).is_none() {
            tracing::warn!(why, "the upstream does not answer, cached data is served");
        }
    }

    /// Returns true if a request has just failed, so that the next one should not try.
    pub fn is_backing_off(&self) -> bool {
        self.state.lock().failed.is_some_and(|failed| self.clock.elapsed(failed) < PAUSE)
    }

    /// Returns [`UpstreamOutage`] if the last known request to the upstream failed.
    pub fn outage(&self) -> Option<UpstreamOutage> {
        let state = self.state.lock();
        state.failed?;
        let age = |reached| self.clock.elapsed(reached).as_secs();
        Some(UpstreamOutage { age_secs: state.reached.map(age) })
    }
}

/// Creates the problem for an upstream that does not answer.
pub fn unavailable() -> HttpProblem {
    HttpProblem::new(Code::Unavailable, "the upstream does not answer")
}

fn is_full(error: &RemoteError) -> bool {
    matches!(error, RemoteError::Service(error) if error.reason == FailureReason::Full)
}

/// Creates the problem that passes a refusal of the upstream on to the client.
fn refusal(error: &RemoteError) -> HttpProblem {
    let rejected = "the upstream rejected the request";
    let RemoteError::Service(error) = error else {
        return HttpProblem::new(Code::Rejected, rejected);
    };
    let code = match error.detail {
        Some(FailureDetail::NameConflict) => Code::NameConflict,
        Some(FailureDetail::NameReserved) => Code::NameReserved,
        _ => {
            let why = format!("{rejected}: {}", error.message);
            return HttpProblem::new(Code::Rejected, why);
        }
    };
    HttpProblem::new(code, &*error.message)
}

/// Converts an error of the upstream, or of the local store, for the client. Logs the
/// details.
pub fn problem(error: RemoteError) -> HttpProblem {
    let problem = match error {
        RemoteError::Store(error) => return (*error).into(),
        RemoteError::Ref(error) => return (*error).into(),
        RemoteError::Io(error) => return error.into(),
        ref error => match error.kind() {
            _ if is_full(error) => HttpProblem::new(Code::Full, "the upstream has no space left"),
            ErrorKind::Invalid | ErrorKind::Refused => refusal(error),
            // The repository is known here, so upstream should have the object.
            ErrorKind::NotFound => unavailable(),
            ErrorKind::Damaged => HttpProblem::new(Code::Damaged, "the store upstream is damaged"),
            ErrorKind::Denied => {
                HttpProblem::new(Code::Unavailable, "the upstream denied access to this server")
            }
            _ => unavailable(),
        },
    };
    tracing::warn!(error = %causes(&error), "upstream");
    problem
}

#[cfg(test)]
mod tests {
    use snap_core::base::io::PathError;
    use snap_remote::bucket::ServiceError;

    use super::*;

    #[test]
    fn a_full_local_disk_is_not_an_upstream_outage() {
        let contact = UpstreamHealth::new(Clock::manual());
        let full = |kind: std::io::ErrorKind| PathError {
            action: "write",
            path: "x".into(),
            source: kind.into(),
        };
        let told = contact.failed(full(std::io::ErrorKind::StorageFull).into());
        assert_eq!((told.code, contact.outage()), (Code::Full, None));
        let busy = ServiceError::new("read", "x", FailureReason::Unreachable, String::new());
        let told = contact.failed(busy.into());
        assert_eq!(told.code, Code::Unavailable);
        assert!(contact.is_backing_off());
    }

    #[test]
    fn a_stall_before_the_last_response_is_no_outage() {
        let clock = Clock::manual();
        let (contact, since) = (UpstreamHealth::new(clock.clone()), clock.now());
        contact.record_success();
        contact.record_stall(since);
        assert_eq!(contact.outage(), None);
        clock.advance(Duration::from_millis(1));
        contact.record_stall(clock.now());
        assert!(contact.outage().is_some());
    }

    #[test]
    fn an_outage_lasts_until_the_upstream_responds() {
        let clock = Clock::manual();
        let contact = UpstreamHealth::new(clock.clone());
        assert_eq!(contact.outage(), None);
        contact.timed_out();
        assert_eq!(contact.outage(), Some(UpstreamOutage { age_secs: None }));
        assert!(contact.is_backing_off());
        clock.advance(PAUSE);
        assert!(!contact.is_backing_off(), "it is asked again");
        contact.timed_out();
        contact.record_success();
        assert_eq!((contact.outage(), contact.is_backing_off()), (None, false));
        clock.advance(Duration::from_secs(7));
        contact.timed_out();
        assert_eq!(contact.outage(), Some(UpstreamOutage { age_secs: Some(7) }));
    }
}
