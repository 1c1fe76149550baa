//! The environment of a test: a folder, cleared variables and a fixed clock.

use std::{
    ffi::OsStr,
    fmt,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// The time of every test, unless it sets another one.
pub(crate) const NOW: &str = "2026-11-21T08:00:00Z";

/// A folder for one test, with cleared variables and a fixed clock.
pub(crate) struct TestEnv {
    root: tempfile::TempDir,
    /// The folder of the user's state, outside of the committed files.
    _state: tempfile::TempDir,
    vars: Vec<(String, String)>,
}

/// The result of a run of the binary. Its display hides everything that differs from run to run.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    root: PathBuf,
}

impl TestEnv {
    pub(crate) fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap())
    }

    /// Makes an environment in memory if possible, for tests with very many commits.
    pub(crate) fn in_memory() -> Self {
        Self::at(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap())
    }

    fn at(root: tempfile::TempDir) -> Self {
        let vars = [
            ("SNAP_TIME", NOW),
            ("SNAP_AUTHOR", "ann"),
            ("SNAP_HOST", "box"),
            ("TZ", "UTC"),
            ("TERM", "dumb"),
        ];
        let mut vars = vars.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
        // Stores above the folder do not belong to the test.
        let above = root.path().parent().unwrap().to_str().unwrap().to_owned();
        vars.push(("SNAP_CEILING_DIRECTORIES".to_owned(), above));
        let state = tempfile::tempdir().unwrap();
        vars.push(("XDG_STATE_HOME".to_owned(), state.path().to_str().unwrap().to_owned()));
        // The settings of the machine must not affect the test.
        vars.push(("SNAP_CONFIG_SYSTEM".to_owned(), String::new()));
        // However slow the machine is, no command shows a progress bar.
        vars.push(("SNAP_TEST_PROGRESS_MILLIS".to_owned(), "3600000".to_owned()));
        // With one thread, each object has the same place in the pack in every run.
        vars.push(("SNAP_JOBS".to_owned(), "1".to_owned()));
        Self { root, _state: state, vars }
    }

    /// Sets a variable for all later runs.
    pub(crate) fn set(&mut self, key: &str, value: &str) {
        self.vars.push((key.to_owned(), value.to_owned()));
    }

    pub(crate) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.path().join(path)
    }

    /// Writes a file with mode 644; its parent folders get mode 755.
    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(&path, content).unwrap();
        self.mode(&path, 0o644);
        for folder in path.ancestors().skip(1).take_while(|above| *above != self.root.path()) {
            self.mode(folder, 0o755);
        }
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs_err::read_to_string(self.path(path)).unwrap()
    }

    pub(crate) fn mode(&self, path: impl AsRef<Path>, mode: u32) {
        let path = self.path(path);
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Makes a project and its store readable for all users. The files of the project keep their
    /// modes.
    pub(crate) fn open_to_all(&self, project: &str) {
        self.mode(project, 0o755);
        let mut folders = vec![self.path(project).join(".snap")];
        while let Some(folder) = folders.pop() {
            self.mode(&folder, 0o755);
            for entry in fs_err::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { folders.push(path) } else { self.mode(path, 0o644) }
            }
        }
    }

    /// Runs the binary in the root folder.
    pub(crate) fn snap<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ran {
        self.snap_in("", args)
    }

    /// Runs the binary in a folder below the root.
    pub(crate) fn snap_in<S: AsRef<OsStr>>(
        &self,
        dir: &str,
        args: impl IntoIterator<Item = S>,
    ) -> Ran {
        let output = self.command(dir).args(args).stdin(Stdio::null()).output().unwrap();
        Ran::new(output, self.root.path())
    }

    /// Runs the binary in a folder below the root, with a file as stdin.
    pub(crate) fn snap_reading<S: AsRef<OsStr>>(
        &self,
        (dir, input): (&str, &str),
        args: impl IntoIterator<Item = S>,
    ) -> Ran {
        let (input, _) = fs_err::File::open(self.path(input)).unwrap().into_parts();
        let output = self.command(dir).args(args).stdin(input).output().unwrap();
        Ran::new(output, self.root.path())
    }

    /// Returns the binary as a command that runs in a folder below the root.
    pub(crate) fn command(&self, dir: &str) -> Command {
        self.command_of(dir, env!("CARGO_BIN_EXE_snap"))
    }

    /// Returns another program as a command, with the same environment.
    pub(crate) fn command_of(&self, dir: &str, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path(dir)).env_clear().envs(self.vars.iter().cloned());
        command
    }
}

impl Ran {
    fn new(output: Output, root: &Path) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
            root: root.to_owned(),
        }
    }

    /// Asserts that the exit code is 0.
    #[track_caller]
    pub(crate) fn succeeds(self) -> Self {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self
    }

    /// Returns the only line of stdout.
    #[track_caller]
    pub(crate) fn line(&self) -> &str {
        let line = self.stdout.strip_suffix('\n').unwrap();
        assert!(!line.contains('\n'), "{line}");
        line
    }

    /// Parses each line of stdout as JSON.
    pub(crate) fn json(&self) -> Vec<serde_json::Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn shown(&self, text: &str) -> String {
        let root = self.root.to_str().unwrap();
        steady(&text.replace(root, "[ROOT]"))
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => writeln!(f, "exit: {code}")?,
            None => writeln!(f, "killed")?,
        }
        for (name, text) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            if !text.is_empty() {
                write!(f, "--- {name} ---\n{}", self.shown(text))?;
            }
        }
        Ok(())
    }
}

/// Replaces ids (64, 16 or 12 hex digits), durations, and amounts of data read, which depend on the
/// age of the files.
pub(crate) fn steady(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_hexdigit()) {
        let (before, from) = rest.split_at(at);
        shown.push_str(before);
        let end = from.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(from.len());
        let (word, after) = from.split_at(end);
        let is_hex = word.bytes().all(|b| b.is_ascii_hexdigit());
        shown.push_str(match word.len() {
            64 if is_hex => "[ID]",
            12 | 16 if is_hex => "[SHORT ID]",
            _ => word,
        });
        rest = after;
    }
    shown.push_str(rest);
    let would = |line: &str| line.contains(", would add ");
    // The number of frames depends on the order of the threads.
    let of_bundle = |line: &str| {
        ["Packed ", "Unpacked ", "Archived "].iter().any(|verb| line.starts_with(verb))
    };
    let of_data = |line: &str| line.starts_with("Data read: ") && line.ends_with(" of the data\n");
    let lines = shown.split_inclusive('\n').map(|line| match line.rsplit_once(" in ") {
        Some((front, _)) if would(front) => "Read [SIZE], would add [SIZE]\n".to_owned(),
        Some((front, _)) if front.starts_with("Read ") => {
            "Read [SIZE], added [SIZE], stored [SIZE] in [TIME]\n".to_owned()
        }
        Some((front, time)) if time.ends_with(" s\n") || time.ends_with(" ms\n") => {
            let front = if of_bundle(line) { without_sizes(front) } else { front.to_owned() };
            format!("{front} in [TIME]\n")
        }
        _ if of_bundle(line) => without_sizes(line),
        _ if of_data(line) => "Data read: [SIZE] of the data\n".to_owned(),
        _ => line.to_owned(),
    });
    lines.collect()
}

/// Replaces sizes such as `1.5 KiB`.
fn without_sizes(line: &str) -> String {
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    for at in (1..words.len()).rev() {
        let unit: String = words[at].chars().filter(char::is_ascii_alphabetic).collect();
        let is_number = words[at - 1].parse::<f64>().is_ok();
        if is_number && ["B", "KiB", "MiB"].contains(&&*unit) {
            words[at - 1] = words[at].replace(&unit, "[SIZE]");
            words.remove(at);
        }
    }
    words.join(" ")
}

/// Returns random bytes, which cannot be compressed.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    snap_testkit::rng::Rng::new(seed).fill(&mut bytes);
    bytes
}
