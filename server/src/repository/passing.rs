//! A repository that stands for one upstream: what is told of it is as it is there,
//! as far as that answers, and what comes is passed on. Where there is no upstream
//! the store here is all there is.

use std::{path::PathBuf, sync::Arc};

use snap_core::base::{id::PackId, observe::Silent};

use super::{Repository, Sent};
use crate::{
    problem::{Code, Problem},
    upstream::behind::{Behind, Freshness},
};

impl Repository {
    /// Learns how it stands upstream, where it has one; what is not known
    /// because that is away stays as it was.
    pub fn catch_up(&self, freshness: Freshness) {
        if let Some(behind) = &self.behind {
            behind.catch_up(freshness);
        }
    }

    /// The same for those who tell of refs or of the index: of one that was never
    /// seen as it is upstream nothing is told, not even that there is nothing.
    ///
    /// # Errors
    /// [`Code::Unavailable`].
    pub(super) fn catch_up_now(&self) -> Result<(), Problem> {
        self.catch_up(Freshness::Now);
        self.check_seen()
    }

    /// Checks that it was seen as it is upstream, now or at some time before.
    pub(super) fn check_seen(&self) -> Result<(), Problem> {
        self.behind.as_ref().map_or(Ok(()), |behind| behind.check_followed())
    }

    /// It is there, upstream as well.
    pub(super) fn known(&self) -> Result<Sent, Problem> {
        if let Some(behind) = &self.behind {
            behind.publish()?;
        }
        Ok(Sent::Known)
    }

    /// Reads refs, or what else is kept of an upstream; once more where what was read
    /// turned out to be damaged here.
    ///
    /// # Errors
    /// Those of `read`.
    pub(super) fn read_kept<T>(&self, read: impl Fn() -> Result<T, Problem>) -> Result<T, Problem> {
        let done = read();
        let Some(behind) = &self.behind else { return done };
        if behind.mend() {
            return read();
        }
        match done {
            Err(problem) if problem.code == Code::Damaged => {
                behind.catch_up(Freshness::Now);
                read()
            }
            done => done,
        }
    }

    /// What is told of a problem: what is damaged in a cache goes well another time.
    pub fn mended(&self, problem: Problem) -> Problem {
        let is_cache = |behind: &Arc<Behind>| behind.mend() || !self.is_there();
        // Where packs are lost, what is in them is not found.
        let may_be_cache = matches!(problem.code, Code::Damaged | Code::NotFound);
        match may_be_cache && self.behind.as_ref().is_some_and(is_cache) {
            true => Problem {
                retry_after_secs: Some(1),
                ..Problem::new(Code::Unavailable, "the cache of this server was damaged")
            },
            false => problem,
        }
    }

    /// Sends a pack that was checked upstream, where there is one.
    pub(super) fn pass_on_pack(&self, id: &PackId) -> Result<(), Problem> {
        let Some(behind) = &self.behind else { return Ok(()) };
        self.staged.pack(id)?.map_or(Ok(()), |path| behind.send(id, &path))
    }

    /// Does `work`, which adds packs to the store, and tells of them upstream.
    pub(super) fn pass_on<T>(
        &self,
        work: impl FnOnce() -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        match &self.behind {
            Some(behind) => behind.adopt(work),
            None => work(),
        }
    }

    /// A pack that waits to count: here, or upstream, to where it came through
    /// another server.
    pub(super) fn sent(&self, id: &PackId) -> Result<Option<PathBuf>, Problem> {
        let found = self.staged.pack(id)?;
        if found.is_some() {
            return Ok(found);
        }
        let Some(behind) = &self.behind else { return Ok(None) };
        let Some(pieces) = behind.sent_by_others(id)? else { return Ok(None) };
        self.staged.receive(*id, pieces, &Silent)?;
        Ok(self.staged.pack(id)?)
    }
}
