//! Work that takes too long for a page is given up.

use std::time::{Duration, Instant};

use snap_core::base::observe::Observer;

/// So long people wait.
const PATIENCE: Duration = Duration::from_secs(5);

/// Ends work when its time has come.
#[derive(Debug)]
pub(super) struct Deadline(Instant);

impl Deadline {
    /// As long as people wait.
    pub(super) fn usual() -> Self {
        Self::after(PATIENCE)
    }

    /// So long from now.
    pub(super) fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }
}

impl Observer for Deadline {
    fn cancelled(&self) -> bool {
        Instant::now() > self.0
    }
}
