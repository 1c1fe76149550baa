//! A folder with the program, an environment and a clock, for one random sequence.

use std::{
    cell::Cell,
    io,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use snap_core::base::time::Time;

use crate::program::folder;

/// A folder for one sequence, removed on drop. Each command takes a second of its clock.
pub(crate) struct Sandbox {
    dir: tempfile::TempDir,
    program: PathBuf,
    jobs: Option<u32>,
    /// The clock, in seconds since 1970.
    secs: Cell<i64>,
}

/// The result of a run of the program.
pub(crate) struct Ran {
    /// The exit code; `None` if it was killed.
    pub(crate) code: Option<i32>,
    /// Its stdout.
    pub(crate) stdout: String,
    /// Its stderr.
    pub(crate) stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }
}

impl Ran {
    /// Returns the commit id that it printed.
    pub(crate) fn id(&self) -> Option<String> {
        let is_id = |line: &&str| line.len() == 64 && line.bytes().all(|b| b.is_ascii_hexdigit());
        self.stdout.lines().find(is_id).map(str::to_owned)
    }

    /// Formats exit code and stderr, for messages.
    pub(crate) fn told(&self) -> String {
        format!("exit code {:?}, stderr: {}", self.code, self.stderr.trim_end())
    }
}

impl Sandbox {
    /// Creates the folder, in memory if possible. The clock starts at `secs`.
    pub(crate) fn new(program: &Path, jobs: Option<u32>, secs: i64) -> io::Result<Self> {
        let sandbox =
            Self { dir: folder(), program: program.to_owned(), jobs, secs: Cell::new(secs) };
        fs_err::create_dir(sandbox.path().join("home"))?;
        Ok(sandbox)
    }

    /// Returns the folder.
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the time of the next command, in seconds since 1970.
    pub(crate) fn secs(&self) -> i64 {
        self.secs.get()
    }

    /// Sets the clock forward.
    pub(crate) fn wait(&self, secs: i64) {
        self.secs.set(self.secs.get() + secs);
    }

    /// Returns the program as a command in a folder, with a cleared environment.
    pub(crate) fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.program);
        let vars = [("SNAP_AUTHOR", "ann"), ("SNAP_HOST", "box"), ("TZ", "UTC"), ("TERM", "dumb")];
        command.env_clear().envs(vars).env("HOME", self.path().join("home")).current_dir(folder);
        command.env("SNAP_TIME", Time { secs: self.secs(), nanos: 0 }.rfc3339());
        self.wait(1);
        command.envs(self.jobs.map(|jobs| ("SNAP_JOBS", jobs.to_string())));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}
