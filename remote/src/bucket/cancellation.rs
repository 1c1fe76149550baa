//! A cancellation token, which the client polls.

use std::{fmt, future::Future, future::pending, sync::Arc, time::Duration};

use super::call::CallContext;

/// Polling interval.
const POLL: Duration = Duration::from_millis(50);

/// A cancellation token. The default token is never cancelled.
#[derive(Clone, Default)]
pub struct CancellationToken(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl fmt::Debug for CancellationToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CancellationToken").field(&self.is_cancelled()).finish()
    }
}

impl CancellationToken {
    /// Creates a token that is cancelled as soon as `is_cancelled` returns true.
    pub fn from_fn(is_cancelled: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(is_cancelled)))
    }

    /// Returns true if the token is cancelled.
    pub(super) fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|is_cancelled| is_cancelled())
    }

    /// Runs `work`; returns `None` if the token is cancelled first. In a shielded call it always runs
    /// to its end.
    pub(super) async fn run_until_cancelled<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        if self.0.is_none() || CallContext::now().is_shielded {
            return Some(work.await);
        }
        tokio::select! {
            biased;
            () = self.cancelled() => None,
            done = work => Some(done),
        }
    }

    async fn cancelled(&self) {
        if self.0.is_none() {
            return pending().await;
        }
        while !self.is_cancelled() {
            tokio::time::sleep(POLL).await;
        }
    }
}
