//! Whether the upstream answers. When it does not, nobody waits for it again
//! before a moment has passed.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use snap_core::base::kind::ErrorKind;
use snap_remote::{service::What, store::RemoteError};

use crate::problem::{Code, Problem};

use crate::causes::causes;

/// It is not asked again before.
const PAUSE: Duration = Duration::from_secs(1);

/// Whether the upstream answers.
#[derive(Debug, Default)]
pub struct Contact {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When it last did.
    reached: Option<Instant>,
    /// When it last did not, if that was later.
    failed: Option<Instant>,
}

/// The upstream does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Away {
    /// How long ago it last did, as far as this server knows.
    pub age_secs: Option<u64>,
}

impl Contact {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It answered.
    pub fn reached(&self) {
        let mut state = self.state();
        state.reached = Some(Instant::now());
        if state.failed.take().is_some() {
            tracing::warn!("the upstream is back");
        }
    }

    /// It did not do what was asked. What is to be told of that.
    pub fn failed(&self, error: RemoteError) -> Problem {
        self.note(&error);
        problem(error)
    }

    /// The same for who tells of it in another way.
    pub fn note(&self, error: &RemoteError) {
        match error {
            // What fails here says nothing about it.
            RemoteError::Store(_) | RemoteError::Ref(_) | RemoteError::Io(_) => {}
            error if error.kind() == ErrorKind::Unavailable && !is_full(error) => {
                self.gone(&error.to_string());
            }
            _ => self.reached(),
        }
    }

    /// It took too long.
    pub fn timed_out(&self) -> Problem {
        self.gone("no answer in time");
        away()
    }

    /// Nothing came since `since` of what was asked for then. Where it has answered
    /// others meanwhile it is not away for that.
    pub fn hung(&self, since: Instant) {
        if self.state().reached.is_none_or(|reached| reached < since) {
            self.gone("nothing came in time");
        }
    }

    fn gone(&self, why: &str) {
        if self.state().failed.replace(Instant::now()).is_none() {
            tracing::warn!(why, "the upstream is away: what is here is served");
        }
    }

    /// Whether it has just failed, so that it need not be asked.
    pub fn is_given_up(&self) -> bool {
        self.state().failed.is_some_and(|failed| failed.elapsed() < PAUSE)
    }

    /// Whether it is away, as far as anybody knows.
    pub fn away(&self) -> Option<Away> {
        let state = self.state();
        state.failed?;
        Some(Away { age_secs: state.reached.map(|reached| reached.elapsed().as_secs()) })
    }
}

/// What is told when it is away.
pub fn away() -> Problem {
    Problem::new(Code::Unavailable, "the upstream is away")
}

fn is_full(error: &RemoteError) -> bool {
    matches!(error, RemoteError::Service(error) if error.what == What::Full)
}

/// The upstream's own words of why it does not take something.
fn refusal(error: &RemoteError) -> String {
    match error {
        RemoteError::Service(error) => format!("the upstream refuses it: {}", error.message),
        _ => "the upstream refuses it".to_owned(),
    }
}

/// What is told of an error there, or of one of the store here; the rest is
/// logged.
pub fn problem(error: RemoteError) -> Problem {
    let told = match error {
        RemoteError::Store(error) => return (*error).into(),
        RemoteError::Ref(error) => return (*error).into(),
        RemoteError::Io(error) => return error.into(),
        ref error => match error.kind() {
            _ if is_full(error) => Problem::new(Code::Full, "no room is left upstream"),
            ErrorKind::Invalid => Problem::new(Code::Rejected, refusal(error)),
            // It is known here, so it should be there.
            ErrorKind::NotFound => away(),
            ErrorKind::Damaged => Problem::new(Code::Damaged, "the store upstream is damaged"),
            ErrorKind::Denied => {
                Problem::new(Code::Unavailable, "the upstream does not let this server in")
            }
            _ => away(),
        },
    };
    tracing::warn!(error = %causes(&error), "upstream");
    told
}

#[cfg(test)]
mod tests {
    use snap_core::base::io::PathError;
    use snap_remote::service::ServiceError;

    use super::*;

    #[test]
    fn a_disk_that_is_full_here_is_not_an_upstream_that_is_away() {
        let contact = Contact::default();
        let full = |kind: std::io::ErrorKind| PathError {
            action: "write",
            path: "x".into(),
            source: kind.into(),
        };
        let told = contact.failed(full(std::io::ErrorKind::StorageFull).into());
        assert_eq!((told.code, contact.away()), (Code::Full, None));
        let busy = ServiceError::new("read", "x", What::Unreachable, String::new());
        let told = contact.failed(busy.into());
        assert_eq!(told.code, Code::Unavailable);
        assert!(contact.is_given_up());
    }

    #[test]
    fn one_that_has_answered_others_meanwhile_is_not_away() {
        let (contact, since) = (Contact::default(), Instant::now());
        contact.reached();
        contact.hung(since);
        assert_eq!(contact.away(), None);
        contact.hung(Instant::now() + Duration::from_millis(1));
        assert!(contact.away().is_some());
    }

    #[test]
    fn it_is_away_until_it_answers() {
        let contact = Contact::default();
        assert_eq!(contact.away(), None);
        contact.timed_out();
        assert_eq!(contact.away(), Some(Away { age_secs: None }));
        assert!(contact.is_given_up());
        contact.reached();
        assert_eq!((contact.away(), contact.is_given_up()), (None, false));
        contact.timed_out();
        assert_eq!(contact.away(), Some(Away { age_secs: Some(0) }));
    }
}
