//! Runs the binary in the folder of a test, and reads its answers.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Output, Stdio},
    time::{Duration, SystemTime},
};

use crate::versions;

/// Longer than the age at which temporary files are removed.
const AGES: Duration = Duration::from_secs(7 * 3600);

/// Makes a folder, in memory if possible: what a kill leaves does not depend on the disk.
pub fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match tempfile::tempdir_in(memory) {
        Ok(folder) => folder,
        Err(_) => tempfile::tempdir().unwrap(),
    }
}

/// The binary under test.
#[derive(Clone, Copy, Debug)]
pub struct Program<'p>(pub &'p str);

impl Program<'_> {
    /// Returns the binary as a command without a store, with piped output and a cleared
    /// environment. It has one thread for each commit or restore, so that its steps have an order.
    pub fn bare(self) -> Command {
        let mut command = Command::new(self.0);
        command.env_clear().envs([
            ("SNAP_AUTHOR", "ann"),
            ("SNAP_HOST", "box"),
            ("SNAP_JOBS", "1"),
            ("TZ", "UTC"),
            ("TERM", "dumb"),
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns the binary as a command for the store `store`.
    pub fn snap(self, store: &Path) -> Command {
        let mut command = self.bare();
        command.arg("--store").arg(store);
        command
    }

    /// Lists the commits of a branch, newest first.
    #[track_caller]
    pub fn log(self, store: &Path, branch: &str) -> Vec<Listed> {
        let text = well(self.snap(store).args(["--json", "log", branch]));
        text.lines()
            .map(|line| {
                let commit: BTreeMap<String, serde_json::Value> =
                    serde_json::from_str(line).unwrap();
                let text = |key: &str| commit[key].as_str().unwrap().to_owned();
                Listed { id: text("id"), message: text("message") }
            })
            .collect()
    }

    /// Restores a commit of a version from [`versions`], and checks it.
    #[track_caller]
    pub fn restores(self, store: &Path, commit: &Listed) {
        let target = folder();
        well(self.snap(store).args(["restore", &commit.id]).arg(target.path()));
        versions::check(target.path(), &commit.message);
    }
}

/// Runs a command that must succeed, and returns its stdout.
#[track_caller]
pub fn well(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, stderr(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command that must fail with `code`, and returns its stderr.
#[track_caller]
pub fn fails(command: &mut Command, code: i32) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{command:?}: {}", stderr(&output));
    stderr(&output)
}

/// Returns stderr as text.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the id that a commit printed, if it printed one.
pub fn printed_id(stdout: &[u8]) -> Option<String> {
    let line = std::str::from_utf8(stdout).unwrap().strip_suffix('\n')?;
    assert!(line.len() == 64 && line.bytes().all(|b| b.is_ascii_hexdigit()), "{line}");
    Some(line.to_owned())
}

/// Waits until a commit prints its id; returns `None` if it ends without one.
pub fn await_id(child: &mut Child) -> Option<String> {
    let mut line = Vec::new();
    let mut out: BufReader<ChildStdout> = BufReader::new(child.stdout.take().unwrap());
    out.read_until(b'\n', &mut line).unwrap();
    printed_id(&line)
}

/// Kills a process, and returns its stderr.
pub fn kill(mut child: Child) -> String {
    child.kill().unwrap();
    child.wait().unwrap();
    let mut text = Vec::new();
    child.stderr.take().unwrap().read_to_end(&mut text).unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

/// A listed commit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    pub id: String,
    pub message: String,
}

/// Lists the files in the store's folder for temporary files.
pub fn left_over(store: &Path) -> Vec<String> {
    names(&store.join("tmp"))
}

/// Lists the names in a folder.
pub fn names(folder: &Path) -> Vec<String> {
    let names = fs_err::read_dir(folder).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Makes temporary files look old, as if their processes had ended long ago.
pub fn age_left_over(store: &Path) {
    let long_ago = SystemTime::now() - AGES;
    for name in left_over(store) {
        let path = store.join("tmp").join(name);
        let file = fs_err::File::open(path).unwrap();
        file.file().set_modified(long_ago).unwrap();
    }
}

/// Lists files below a folder that a restore has not yet renamed to their final names.
pub fn drafts(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if entry.file_name().as_encoded_bytes().starts_with(b".snap-tmp-") {
                found.push(entry.path());
            }
        }
    }
    found
}
