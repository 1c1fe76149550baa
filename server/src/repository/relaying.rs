//! Relaying: keeps a repository in step with its upstream, and passes uploads on to it.
//! Does nothing for a repository without an upstream.

use std::sync::Arc;

use super::Repository;
use crate::{
    problem::{Code, HttpProblem},
    upstream::repository::{Freshness, UpstreamRepository},
};

impl Repository {
    /// Updates the local state from the upstream. If the upstream does not answer, the
    /// state stays as it is.
    pub fn catch_up(&self, freshness: Freshness) {
        if let Some(upstream) = &self.upstream {
            upstream.catch_up(freshness);
        }
    }

    /// Updates the local state from the upstream, before a caller reads refs or the index. Returns
    /// an error if the local state never matched the upstream's, because an empty response would be
    /// wrong.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub(super) fn catch_up_now(&self) -> Result<(), HttpProblem> {
        self.catch_up(Freshness::Now);
        self.check_seen()
    }

    /// Checks that the local state has matched the upstream's, now or earlier.
    pub(super) fn check_seen(&self) -> Result<(), HttpProblem> {
        self.upstream.as_ref().map_or(Ok(()), |upstream| upstream.check_followed())
    }

    /// Reads refs or other cached state. If the cached copy was damaged and is repaired, reads it
    /// again.
    ///
    /// # Errors
    /// The errors of `read`.
    pub(super) fn read_kept<T>(
        &self,
        read: impl Fn() -> Result<T, HttpProblem>,
    ) -> Result<T, HttpProblem> {
        let done = read();
        let Some(upstream) = &self.upstream else { return done };
        if upstream.mend() {
            return read();
        }
        match done {
            Err(problem) if problem.code == Code::Damaged => {
                upstream.catch_up(Freshness::Now);
                read()
            }
            done => done,
        }
    }

    /// Returns the problem to report to the client. Damage in a cache becomes
    /// [`Code::Unavailable`], because the cache is repaired and a retry succeeds.
    pub fn hide_cache_damage(&self, problem: HttpProblem) -> HttpProblem {
        let is_cache = |upstream: &Arc<UpstreamRepository>| upstream.mend() || !self.is_there();
        // Objects of lost packs are reported as not found.
        let may_be_cache = matches!(problem.code, Code::Damaged | Code::NotFound);
        match may_be_cache && self.upstream.as_ref().is_some_and(is_cache) {
            true => HttpProblem {
                retry_after_secs: Some(1),
                ..HttpProblem::new(
                    Code::Unavailable,
                    "the cache of this server was damaged and is being repaired",
                )
            },
            false => problem,
        }
    }
}
