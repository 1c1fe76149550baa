//! The folders of one sequence, and the program that runs in them.

use std::{
    cell::Cell,
    ffi::OsStr,
    io,
    path::{Path, PathBuf},
    process::Command,
};

use fs_err as fs;

use crate::{
    sandbox::{Ran, Sandbox},
    sequences::{
        files::{Tree, is_immutable, observe, set_immutable},
        operation::{Place, YEAR_2026_SECS},
    },
};

/// The folders of one sequence.
pub(crate) struct World {
    sandbox: Sandbox,
    mounted: Vec<PathBuf>,
    /// True if a file may be immutable.
    pub(crate) has_immutable: Cell<bool>,
}

impl World {
    /// Creates the folders.
    pub(crate) fn new(program: &Path, jobs: Option<u32>) -> io::Result<Self> {
        let sandbox = Sandbox::new(program, jobs, YEAR_2026_SECS)?;
        let world = Self { sandbox, mounted: Vec::new(), has_immutable: Cell::default() };
        for folder in ["outside", "project"] {
            fs::create_dir(world.sandbox.path().join(folder))?;
        }
        fs::write(world.outside().join("precious"), "a file outside of the project\n")?;
        Ok(world)
    }

    /// Returns the folder of a place.
    pub(crate) fn folder(&self, place: Place) -> PathBuf {
        self.sandbox.path().join(place.folder())
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
        self.sandbox.path().join("outside")
    }

    /// Returns the folder for restores elsewhere.
    pub(crate) fn elsewhere(&self) -> PathBuf {
        self.sandbox.path().join("elsewhere")
    }

    /// Runs `work` while another project is in the folder `victim`, where links called `.snap`
    /// lead. Returns its store before and after.
    pub(crate) fn beside_victim<T>(&self, work: impl FnOnce() -> T) -> (T, [Tree; 2]) {
        let (hidden, shown) =
            (self.sandbox.path().join("hidden"), self.sandbox.path().join("victim"));
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
        self.sandbox.path().join("attacker")
    }

    /// Returns the location of the remote.
    pub(crate) fn location(&self) -> String {
        format!("file://{}", self.folder(Place::Hub).display())
    }

    /// See [`Sandbox::command`].
    pub(crate) fn command(&self, folder: &Path) -> Command {
        self.sandbox.command(folder)
    }

    /// Runs the program.
    pub(crate) fn run<S: AsRef<OsStr>>(
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
