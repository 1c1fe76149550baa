//! Skipping a test that cannot run on this machine, visibly.
//!
//! libtest has no notion of a test that is skipped at run time, so such a test returns early and
//! counts as passed. [`skip`] reports it on stderr and in a file; `./gate` counts and lists these
//! tests, and fails if something that a test lacked is there.

use std::{env, io::Write};

/// Environment variable with the path of a file that gets one line for each skipped test.
const LOG: &str = "SNAP_TEST_SKIPPED";

/// Reports that `test` is skipped, and why.
///
/// # Panics
/// If the line cannot be written.
#[expect(clippy::unwrap_used, reason = "a test may panic")]
pub fn skip(test: &str, reason: &str) {
    let line = format!("skipped: {test}: {reason}\n");
    // The harness captures what the print macros write, but not this.
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    if let Some(path) = env::var_os(LOG) {
        let mut log = fs_err::OpenOptions::new();
        log.create(true).append(true).open(path).unwrap().write_all(line.as_bytes()).unwrap();
    }
}

/// Reports that `test` is skipped because a program that it needs is missing.
pub fn skip_without_program(test: &str, program: &str) {
    skip(test, &format!("{program} is not installed"));
}

/// Returns true if this is root. Otherwise reports that the running test is skipped.
#[must_use]
pub fn needs_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        // libtest names the thread of a test.
        let thread = std::thread::current();
        skip(thread.name().unwrap_or("a test"), "needs root");
    }
    is_root
}
