//! Tests that measure the memory of their process, and so must have it for themselves.

use std::{env, process::Command};

/// Environment variable that marks the process of one test.
const MARK: &str = "SNAP_TEST_ALONE";

/// Runs `work`, the whole body of the test `test`, in a process in which no other test runs.
///
/// # Panics
/// If the test fails there.
#[expect(clippy::unwrap_used, reason = "a test may panic")]
pub fn alone(test: &str, work: impl FnOnce()) {
    if env::var_os(MARK).is_some() {
        return work();
    }
    run_test(Command::new(env::current_exe().unwrap()).env(MARK, "1"), test);
}

/// Runs one test. `program` is a command that runs this test program.
///
/// # Panics
/// If the test fails, or there is none of that name.
#[expect(clippy::unwrap_used, reason = "a test may panic")]
pub(crate) fn run_test(program: &mut Command, test: &str) {
    let done = program.args(["--exact", test, "--nocapture"]).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && out.contains("1 passed"), "{out}{err}");
}

/// Returns the peak memory of this process in bytes.
///
/// # Panics
/// If `/proc` does not say it.
#[must_use]
pub fn peak_bytes() -> u64 {
    peak_bytes_of(std::process::id())
}

/// Returns the peak memory of a process in bytes (`VmHWM`).
///
/// # Panics
/// If `/proc` does not say it.
#[expect(clippy::unwrap_used, reason = "a test may panic")]
pub fn peak_bytes_of(process: u32) -> u64 {
    let status = fs_err::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}
