//! Waiting for an event in another thread or process.

use std::{
    thread,
    time::{Duration, Instant},
};

/// A guard against hanging, far longer than anything takes on a busy machine. No promise.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Waits until `is_so` returns true.
///
/// # Panics
/// If that takes longer than [`PATIENCE`].
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
