//! Relaying: keeps a repository in step with its upstream, and passes uploads on to it.
//! Does nothing for a repository without an upstream.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use snap_core::{
    base::{
        id::{CommitId, PackId},
        observe::{Observer, Silent},
    },
    ops::inbox::{StagedError, accept},
};

use super::{Received, Repository};
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

    /// Sends a checked pack to the upstream, if there is one.
    pub(super) fn forward_pack(&self, id: &PackId) -> Result<(), HttpProblem> {
        let Some(upstream) = &self.upstream else { return Ok(()) };
        self.staged.pack(id)?.map_or(Ok(()), |path| upstream.send(id, &path))
    }

    /// Publishes staged packs upstream, if they and everything that they refer to are sound and
    /// complete, and then adds them to the cache.
    pub(super) fn publish_upstream(
        &self,
        upstream: &UpstreamRepository,
        ids: &BTreeSet<PackId>,
        observer: &dyn Observer,
    ) -> Result<Received, HttpProblem> {
        let store = self.repo.store();
        let lacking = || {
            let there: BTreeSet<PackId> = store.packs().into_iter().collect();
            ids.difference(&there).copied().collect::<BTreeSet<_>>()
        };
        loop {
            upstream.refresh_packs()?;
            let new = lacking();
            if new.is_empty() {
                return Ok(Received::AlreadyPresent);
            }
            let mut packs = Vec::new();
            for id in &new {
                let not_sent = || StagedError::NotSent { name: format!("pack {id}") };
                packs.push((*id, self.sent(upstream, id)?.ok_or_else(not_sent)?));
            }
            self.staged.touch(&new);
            let verified = match accept::prepare(store, &packs, &self.tips()?, observer) {
                Ok(verified) => verified,
                Err(error) => {
                    let may_be_damage = error.may_be_damage();
                    if may_be_damage {
                        self.staged.check_again(&new);
                    }
                    // The packs may refer to objects whose cached copy is damaged, or another request
                    // has published some of them meanwhile and removed the files.
                    if may_be_damage && upstream.mend() || lacking().len() < new.len() {
                        continue;
                    }
                    return Err(StagedError::from(error).into());
                }
            };
            let published = upstream.publish(verified.own());
            if published.is_err() {
                self.staged.check_again(&new);
            }
            // If the cache has stubs instead, the packs are published all the same.
            let _ = published?.followed(verified.adopt(observer));
            new.iter().for_each(|id| self.staged.forget(id));
            return Ok(Received::Added);
        }
    }

    /// Returns the commits that refs point at, as last read.
    fn tips(&self) -> Result<Vec<CommitId>, HttpProblem> {
        Ok(self.refs().cached()?.iter().map(|(_, id)| *id).collect())
    }

    /// Returns a staged pack, from this store or from the upstream. A client may have sent it through
    /// another replica of the same bucket.
    fn sent(
        &self,
        upstream: &UpstreamRepository,
        id: &PackId,
    ) -> Result<Option<PathBuf>, HttpProblem> {
        let found = self.staged.pack(id)?;
        if found.is_some() {
            return Ok(found);
        }
        let Some(pieces) = upstream.unpublished_pack(id)? else { return Ok(None) };
        self.staged.receive(*id, pieces, &Silent)?;
        Ok(self.staged.pack(id)?)
    }
}
