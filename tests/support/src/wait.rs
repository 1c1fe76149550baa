//! Waiting for an event in another thread or process.

use std::{
    process::Child,
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

/// SIGINT in the mask of signals that `/proc` shows.
const SIGINT_BIT: u64 = 1 << 1;

/// Waits until a process has installed its handler for Ctrl-C. An earlier SIGINT is ignored if the
/// tests run in the background of a shell script, because child processes inherit that.
///
/// # Panics
/// If the process ends, or has no handler within [`PATIENCE`].
#[track_caller]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
pub fn until_it_handles_ctrl_c(child: &mut Child) {
    until_proc_shows(child, "status", "the process handles Ctrl-C", |status| {
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & SIGINT_BIT != 0
    });
}

/// Waits until the main thread of a process waits in `poll` or between two attempts, as for the
/// other end of a pipe.
///
/// # Panics
/// If the process ends, or does not wait within [`PATIENCE`].
#[track_caller]
pub fn until_it_waits(child: &mut Child) {
    until_proc_shows(child, "wchan", "the process waits", |place| {
        ["nanosleep", "poll"].iter().any(|call| place.contains(call))
    });
}

/// Waits until a file of a process in `/proc` satisfies `is_so`.
#[track_caller]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
fn until_proc_shows(child: &mut Child, file: &str, what: &str, is_so: impl Fn(&str) -> bool) {
    let path = format!("/proc/{}/{file}", child.id());
    until(what, || {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "ended with {ended:?} before: {what}");
        is_so(&fs_err::read_to_string(&path).unwrap())
    });
}
