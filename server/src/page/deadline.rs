//! Work that takes too long for a page is given up.

use std::time::{Duration, Instant};

use snap_core::base::observe::Observer;

/// So long people wait.
const PATIENCE: Duration = Duration::from_secs(5);

/// Ends work when its time has come, or when its observer wants that.
pub(super) struct Deadline<'a> {
    ends: Instant,
    observer: &'a dyn Observer,
}

impl<'a> Deadline<'a> {
    /// As long as people wait.
    pub(super) fn usual(observer: &'a dyn Observer) -> Self {
        Self::after(PATIENCE, observer)
    }

    /// So long from now.
    pub(super) fn after(time: Duration, observer: &'a dyn Observer) -> Self {
        Self { ends: Instant::now() + time, observer }
    }
}

impl Observer for Deadline<'_> {
    fn cancelled(&self) -> bool {
        self.observer.cancelled() || Instant::now() >= self.ends
    }
}

#[cfg(test)]
mod tests {
    use snap_core::base::observe::Silent;

    use super::*;

    struct Gone;

    impl Observer for Gone {
        fn cancelled(&self) -> bool {
            true
        }
    }

    #[test]
    fn work_ends_in_time_and_when_nobody_waits() {
        assert!(!Deadline::usual(&Silent).cancelled());
        assert!(Deadline::after(Duration::ZERO, &Silent).cancelled());
        assert!(Deadline::usual(&Gone).cancelled());
    }
}
