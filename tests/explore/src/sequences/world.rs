//! The folders of one sequence, and the program that runs in them.

use std::{
    cell::Cell,
    io,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use fs_err as fs;

use crate::sequences::{
    files::{Tree, is_immutable, observe, set_immutable},
    operation::Place,
};

/// The folders of one sequence, removed on drop.
pub(crate) struct World {
    dir: tempfile::TempDir,
    program: PathBuf,
    jobs: Option<u32>,
    mounted: Vec<PathBuf>,
    /// Number of commands so far, which is the clock.
    commands: Cell<u32>,
    /// True if a file may be immutable.
    pub(crate) has_immutable: Cell<bool>,
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

impl World {
    /// Creates the folders, in memory if possible.
    pub(crate) fn new(program: &Path, jobs: Option<u32>) -> io::Result<Self> {
        let memory = Path::new("/dev/shm");
        let dir =
            if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
        let world = Self {
            dir,
            program: program.to_owned(),
            jobs,
            mounted: Vec::new(),
            commands: Cell::default(),
            has_immutable: Cell::default(),
        };
        for folder in ["home", "outside", "project"] {
            fs::create_dir(world.dir.path().join(folder))?;
        }
        fs::write(world.outside().join("precious"), "a file outside of the project\n")?;
        Ok(world)
    }

    /// Returns the folder of a place.
    pub(crate) fn folder(&self, place: Place) -> PathBuf {
        self.dir.path().join(place.folder())
    }

    /// Returns the store of a place.
    pub(crate) fn store(&self, place: Place) -> PathBuf {
        let folder = self.folder(place);
        if place == Place::Hub { folder } else { folder.join(".snap") }
    }

    /// Returns true if a place has a store that is completely created.
    pub(crate) fn has_store(&self, place: Place) -> bool {
        let store = self.store(place);
        ["config.toml", "HEAD", "objects"].iter().all(|name| store.join(name).exists())
    }

    /// Returns the folder that bind mounts show.
    pub(crate) fn outside(&self) -> PathBuf {
        self.dir.path().join("outside")
    }

    /// Returns the folder for restores elsewhere.
    pub(crate) fn elsewhere(&self) -> PathBuf {
        self.dir.path().join("elsewhere")
    }

    /// Runs `work` while another project is in the folder `victim`, where links called `.snap`
    /// lead. Returns its store before and after.
    pub(crate) fn beside_victim<T>(&self, work: impl FnOnce() -> T) -> (T, [Tree; 2]) {
        let (hidden, shown) = (self.dir.path().join("hidden"), self.dir.path().join("victim"));
        if !hidden.exists() {
            fs::create_dir(&hidden).unwrap();
            fs::write(hidden.join("thesis"), "all of it\n").unwrap();
            let ran = self.run(&hidden, ["commit"]);
            assert_eq!(ran.code, Some(0), "{}", ran.told());
        }
        fs::rename(&hidden, &shown).unwrap();
        let store = shown.join(".snap");
        let before = observe(&store).unwrap();
        let done = work();
        let after = observe(&store).unwrap();
        fs::rename(&shown, &hidden).unwrap();
        (done, [before, after])
    }

    /// Returns the folder of another user of the remote.
    pub(crate) fn attacker(&self) -> PathBuf {
        self.dir.path().join("attacker")
    }

    /// Returns the location of the remote.
    pub(crate) fn location(&self) -> String {
        format!("file://{}", self.folder(Place::Hub).display())
    }

    /// Returns the program as a command in a folder, with a cleared environment and its own clock.
    pub(crate) fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(&self.program);
        let home = self.dir.path().join("home");
        let vars = [("SNAP_AUTHOR", "ann"), ("SNAP_HOST", "box"), ("TZ", "UTC"), ("TERM", "dumb")];
        command.env_clear().envs(vars).env("HOME", home).current_dir(folder);
        let secs = self.commands.get();
        self.commands.set(secs + 1);
        let (hours, minutes, secs) = (secs / 3600, secs / 60 % 60, secs % 60);
        command.env("SNAP_TIME", format!("2026-01-01T{hours:02}:{minutes:02}:{secs:02}Z"));
        command.envs(self.jobs.map(|jobs| ("SNAP_JOBS", jobs.to_string())));
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

    /// Mounts a file system; returns `false` if the system does not allow it.
    pub(crate) fn mount<'a>(&mut self, args: &[&'a str], point: &'a Path) -> bool {
        let point_text = point.to_str().expect("a plain path");
        let done = snap_testkit::mounts::tool("mount", args.iter().copied().chain([point_text]));
        if done {
            self.mounted.push(point.to_owned());
        }
        done
    }

    /// Unmounts the latest mount, lazily. A child process of another thread has copies of this
    /// process's open files until its `exec`, so the mount may be busy.
    pub(crate) fn unmount(&mut self) {
        if let Some(point) = self.mounted.pop() {
            assert!(snap_testkit::mounts::tool("umount", [Path::new("-l"), &point]));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        while !self.mounted.is_empty() {
            self.unmount();
        }
        if self.has_immutable.get() {
            for place in Place::WORKING {
                let folder = self.folder(place);
                for path in observe(&folder).unwrap_or_default().into_keys() {
                    let path = folder.join(path);
                    if is_immutable(&path) {
                        let _ = set_immutable(&path, false);
                    }
                }
            }
        }
    }
}
