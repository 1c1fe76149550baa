//! Skipping a test that cannot run on this machine, visibly.
//!
//! libtest has no notion of a test that is skipped at run time, so such a test returns early and
//! counts as passed. [`skip`] reports it on stderr and in a file, so that `./gate` can count the
//! skipped tests, and CI can fail when there are more than expected.

use std::{env, io::Write};

/// Environment variable with the path of a file that gets one line for each skipped test.
const LOG: &str = "SNAP_TEST_SKIPPED";

/// Reports that `test` is skipped, and why.
///
/// # Panics
/// If the line cannot be written.
#[expect(clippy::unwrap_used, reason = "a test may panic")]
pub fn skip(test: &str, reason: &str) {
    let line = format!("skipped {test}: {reason}\n");
    // The harness captures what the print macros write, but not this.
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    if let Some(path) = env::var_os(LOG) {
        let mut log = fs_err::OpenOptions::new();
        log.create(true).append(true).open(path).unwrap().write_all(line.as_bytes()).unwrap();
    }
}

/// Reports that `test` is skipped because a program that it needs is missing.
///
/// # Panics
/// In CI, where `.ci/run` installs all programs.
pub fn skip_without_program(test: &str, program: &str) {
    assert!(env::var_os("CI").is_none(), "{program} is missing; .ci/run installs it");
    skip(test, &format!("{program} is not installed"));
}
