//! Other programs that a test needs: shells, `man`, nginx.

use std::{
    ffi::OsStr,
    io::Write,
    path::{Path, PathBuf},
    process::Stdio,
};

use crate::env::TestEnv;

/// A program that is there.
pub(crate) struct Tool(PathBuf);

/// The program of this name. Where it is not there, the test is skipped with a
/// word; in CI, which installs all of them, that is a failure.
pub(crate) fn find(name: &str) -> Option<Tool> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    // sbin is not in everybody's path.
    let places = std::env::split_paths(&paths).chain(["/usr/sbin".into()]);
    let found = places.map(|dir| dir.join(name)).find(|path| path.is_file());
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "{name} is missing; .ci/run installs it");
        // Past the harness, which would keep it to itself.
        let note = format!("skipped: {name} is not here\n");
        std::io::stderr().write_all(note.as_bytes()).unwrap();
    }
    found.map(Tool)
}

impl Tool {
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Runs it, with `snap` in the PATH and for a minute at most; what it
    /// prints on stdout and stderr.
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
