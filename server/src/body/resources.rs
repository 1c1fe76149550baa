//! Resources of all request and response bodies of a server. Threads, memory and archives have a
//! quota for each client. The clock and the timeout of stalled bodies are here, too.

use std::{sync::Arc, time::Duration};

use super::{
    fair_semaphore::{FairPermit, FairSemaphore},
    memory,
};
use crate::{body::THREADS, clock::Clock, problem::HttpProblem};

/// Number of blocking threads that may wait for slow clients, in total and for one client. The
/// other threads are left for work that does not wait for clients.
const MAX_WAITING_THREADS: usize = THREADS * 3 / 4;
pub(super) const MAX_WAITING_PER_CLIENT: usize = MAX_WAITING_THREADS / 4;

/// Number of archives that are made at the same time, in total and for one client. Making one takes
/// up to 45 MiB: two batches of entries, the frames of those entries, and the pieces that wait for
/// the client. An archive compressed with zstd counts twice, because of zstd's buffers. So all
/// archives together stay within the 256 MiB that the server promises.
const ARCHIVES: usize = 5;
const ARCHIVES_EACH: usize = 4;

/// Resources that the bodies of one server share.
#[derive(Debug)]
pub struct BodyResources {
    /// Permits of the threads that may wait for slow clients.
    pub(super) waiting_threads: Arc<FairSemaphore>,
    archives: Arc<FairSemaphore>,
    /// Memory for bodies that are held whole.
    pub(super) memory: Arc<FairSemaphore>,
    /// Timeout of a body that makes no progress.
    pub(super) stall: Duration,
    pub(super) clock: Clock,
}

impl BodyResources {
    /// Creates the resources of a server. A body that makes no progress for `stall` times
    /// out.
    pub fn new(stall: Duration, clock: Clock) -> Arc<Self> {
        let shared = |all, each| Arc::new(FairSemaphore::new(all, each, clock.clone()));
        Arc::new(Self {
            waiting_threads: shared(MAX_WAITING_THREADS, MAX_WAITING_PER_CLIENT),
            archives: shared(ARCHIVES, ARCHIVES_EACH),
            memory: shared(memory::MOST_UNITS, memory::EACH_UNITS),
            stall,
            clock: clock.clone(),
        })
    }

    /// Waits for permits to make an archive: two for an archive compressed with zstd, one for
    /// others.
    ///
    /// # Errors
    /// [`Code::Unavailable`](crate::problem::Code::Unavailable) when the permits do not become free
    /// in time.
    pub(crate) async fn archive_permits(&self, count: u32) -> Result<FairPermit, HttpProblem> {
        self.archives.take(count).await
    }
}
