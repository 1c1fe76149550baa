//! Other programs that tests need: shells, `man`, nginx.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Stdio,
};

use snap_testkit::programs::find_or_skip;

use crate::env::TestEnv;

/// An installed program.
pub(crate) struct Tool(PathBuf);

/// Finds the program of this name. If it is missing, reports that a test is skipped.
pub(crate) fn find(name: &str) -> Option<Tool> {
    find_or_skip("a test", name).map(Tool)
}

impl Tool {
    /// Returns the path of the program.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Runs it, with `snap` in the PATH and a timeout of a minute. Returns its stdout and stderr.
    #[track_caller]
    pub(crate) fn run<S: AsRef<OsStr>>(
        &self,
        env: &TestEnv,
        args: impl IntoIterator<Item = S>,
    ) -> (String, String) {
        let snap = PathBuf::from(env!("CARGO_BIN_EXE_snap"));
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", snap.parent().unwrap().display());
        let mut command = env.command_of("", "/usr/bin/timeout");
        command.arg("60").arg(&self.0).args(args).stdin(Stdio::null());
        command.env("PATH", path).env("HOME", env.path("")).env("LC_ALL", "C.UTF-8");
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{:?}: {}", output.status, text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    }
}
