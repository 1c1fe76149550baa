//! The folders of one sequence, and the program that works in them.

use std::{
    io,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use fs_err as fs;

use crate::operation::Place;

/// The folders of one sequence. They vanish with it.
pub(crate) struct World {
    dir: tempfile::TempDir,
    program: PathBuf,
    mounted: Vec<PathBuf>,
}

/// What a run of the program came to.
pub(crate) struct Ran {
    /// Its exit code; `None` when it was killed.
    pub(crate) code: Option<i32>,
    /// What it said on stdout.
    pub(crate) stdout: String,
    /// What it said on stderr.
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
    /// The commit id that it printed.
    pub(crate) fn id(&self) -> Option<String> {
        let is_id = |line: &&str| line.len() == 64 && line.bytes().all(|b| b.is_ascii_hexdigit());
        self.stdout.lines().find(is_id).map(str::to_owned)
    }

    /// Exit code and stderr, for messages.
    pub(crate) fn told(&self) -> String {
        format!("exit code {:?}, stderr: {}", self.code, self.stderr.trim_end())
    }
}

impl World {
    /// Makes the folders, in memory where the machine has a folder for that.
    pub(crate) fn new(program: &Path) -> io::Result<Self> {
        let memory = Path::new("/dev/shm");
        let dir =
            if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
        let world = Self { dir, program: program.to_owned(), mounted: Vec::new() };
        for folder in ["home", "outside", "project"] {
            fs::create_dir(world.dir.path().join(folder))?;
        }
        fs::write(world.outside().join("precious"), "a file outside of the project\n")?;
        Ok(world)
    }

    /// The folder of a place.
    pub(crate) fn folder(&self, place: Place) -> PathBuf {
        self.dir.path().join(place.folder())
    }

    /// The store of a place.
    pub(crate) fn store(&self, place: Place) -> PathBuf {
        let folder = self.folder(place);
        if place == Place::Hub { folder } else { folder.join(".snap") }
    }

    /// Whether a place has a store, finished and not only begun.
    pub(crate) fn has_store(&self, place: Place) -> bool {
        let store = self.store(place);
        ["config.toml", "HEAD", "objects"].iter().all(|name| store.join(name).exists())
    }

    /// The folder that bind mounts show.
    pub(crate) fn outside(&self) -> PathBuf {
        self.dir.path().join("outside")
    }

    /// A folder for restores elsewhere.
    pub(crate) fn elsewhere(&self) -> PathBuf {
        self.dir.path().join("elsewhere")
    }

    /// The location of the remote.
    pub(crate) fn location(&self) -> String {
        format!("file://{}", self.folder(Place::Hub).display())
    }

    /// The program in a folder, with an environment of its own.
    pub(crate) fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.program);
        let home = self.dir.path().join("home");
        let vars = [("SNAP_AUTHOR", "ann"), ("SNAP_HOST", "box"), ("TZ", "UTC"), ("TERM", "dumb")];
        command.env_clear().envs(vars).env("HOME", home).current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the program.
    pub(crate) fn run<S: AsRef<std::ffi::OsStr>>(
        &self,
        folder: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> Ran {
        self.command(folder).args(args).output().unwrap().into()
    }

    /// Mounts something; `false` when the system does not let this process.
    pub(crate) fn mount<'a>(&mut self, args: &[&'a str], point: &'a Path) -> bool {
        let point_text = point.to_str().expect("a plain path");
        let done = snap_testkit::mounts::tool("mount", args.iter().copied().chain([point_text]));
        if done {
            self.mounted.push(point.to_owned());
        }
        done
    }

    /// Unmounts the latest mount.
    pub(crate) fn unmount(&mut self) {
        if let Some(point) = self.mounted.pop() {
            assert!(snap_testkit::mounts::tool("umount", [point]));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        while !self.mounted.is_empty() {
            self.unmount();
        }
    }
}
