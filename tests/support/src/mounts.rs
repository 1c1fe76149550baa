//! Runs tests that mount file systems in their own mount namespace, so that the mounts end with the
//! test.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{env, ffi::OsStr, path::Path, process::Command};

use crate::{alone::run_test, skip::skip};

/// The variable that marks the process that may mount.
const MARK: &str = "SNAP_TEST_OWN_MOUNTS";

/// Search path for `mkfs.ext4` and similar programs, independent of the caller's path.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs `work`, the whole body of the test `test`, in a process that may mount. If that is not
/// possible, reports the reason and skips the test.
pub fn in_own_mounts(test: &str, work: impl FnOnce()) {
    if are_own() {
        return work();
    }
    if let Some(reason) = why_not() {
        return skip(test, reason);
    }
    let this = env::current_exe().unwrap();
    let mut program = Command::new("unshare");
    program.args(["--mount".as_ref(), this.as_os_str()]).env(MARK, "1").env("PATH", PATH);
    run_test(&mut program, test);
}

/// Runs `work`, the whole body of the test `test`, in a process that may mount. If that is not
/// possible, runs it without mounts and reports that.
pub fn in_own_mounts_if_possible(test: &str, work: impl FnOnce()) {
    match why_not() {
        Some(reason) if !are_own() => {
            skip(&format!("mounts of {test}"), reason);
            work();
        }
        _ => in_own_mounts(test, work),
    }
}

/// Returns true if this process has its own mount namespace.
pub fn are_own() -> bool {
    env::var_os(MARK).is_some()
}

fn why_not() -> Option<&'static str> {
    if !rustix::process::getuid().is_root() {
        return Some("needs root");
    }
    let tries = Command::new("unshare")
        .args(["--mount", "mount", "-t", "tmpfs", "none", "/mnt"])
        .env("PATH", PATH)
        .output();
    match tries {
        Ok(output) if output.status.success() => None,
        _ => Some("`unshare --mount` and `mount` do not work here"),
    }
}

/// Runs a program of the system; returns true if it succeeds.
pub fn tool<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> bool {
    tool_says(program, args).0 == Some(0)
}

/// Runs a program of the system; returns its exit code and its output.
pub fn tool_says<S: AsRef<OsStr>>(
    program: &str,
    args: impl IntoIterator<Item = S>,
) -> (Option<i32>, String) {
    match Command::new(program).args(args).env("PATH", PATH).output() {
        Ok(output) => {
            let said = [output.stdout, output.stderr].concat();
            (output.status.code(), String::from_utf8_lossy(&said).into_owned())
        }
        Err(error) => (None, error.to_string()),
    }
}

/// Mounts an empty file system of `kibibytes` KiB in memory.
pub fn mount_memory(point: &Path, kibibytes: u64) {
    fs_err::create_dir_all(point).unwrap();
    let options = format!("size={kibibytes}k");
    let args = ["-t", "tmpfs", "-o", &options, "none"].map(OsStr::new);
    assert!(tool("mount", args.into_iter().chain([point.as_os_str()])));
}
