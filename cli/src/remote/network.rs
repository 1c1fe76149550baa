//! What all remotes of a command share: the counters, the stop flag, and the progress bar.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use indicatif::ProgressBar;
use parking_lot::Mutex;
use snap_remote::bucket::traffic::Traffic;

/// The counters of one command.
#[derive(Debug)]
pub(crate) struct Network {
    traffic: Arc<Traffic>,
    stop: Arc<AtomicBool>,
    /// True if a remote of the command is in a bucket.
    has_bucket: AtomicBool,
    /// The progress bar shown while requests are in progress.
    bar: Mutex<Option<ProgressBar>>,
    /// True if a thread already reports what the command waits for.
    claim_wait_reporter: AtomicBool,
}

impl Network {
    /// Starts with zero requests; Ctrl-C sets `stop`.
    pub(crate) fn new(stop: Arc<AtomicBool>) -> Self {
        Self {
            traffic: Arc::default(),
            stop,
            has_bucket: AtomicBool::new(false),
            bar: Mutex::default(),
            claim_wait_reporter: AtomicBool::new(false),
        }
    }

    /// Returns true if a thread already reports what the command waits for. The caller becomes that
    /// thread otherwise, so later calls return true.
    pub(super) fn claim_wait_reporter(&self) -> bool {
        self.claim_wait_reporter.swap(true, Ordering::Relaxed)
    }

    /// Sets the bar that is drawn from now on.
    pub(crate) fn draws(&self, bar: &ProgressBar) {
        *self.bar.lock() = Some(bar.clone());
    }

    /// Prints something without breaking the bar.
    pub(super) fn aside(&self, print: impl FnOnce()) {
        let bar = self.bar.lock().clone();
        match bar.filter(|bar| !bar.is_finished() && !bar.is_hidden()) {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Returns the counters.
    pub(crate) fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Notes that a remote of the command is in a bucket.
    pub(super) fn note_bucket(&self) {
        self.has_bucket.store(true, Ordering::Relaxed);
    }

    /// Returns true if a remote of the command is in a bucket.
    pub(super) fn has_bucket(&self) -> bool {
        self.has_bucket.load(Ordering::Relaxed)
    }

    /// Returns true if the user requested to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
