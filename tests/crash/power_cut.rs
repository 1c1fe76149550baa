//! Power cuts: the file system is shut down without flushing its journal, and mounted again. That
//! happens while a commit is halted at a counted step, or right after it has printed its id.
//!
//! This loses the page cache and everything that is not committed to the journal. It does not model
//! torn sectors, or disks that report a flush too early.
//!
//! This is one of the few modules with `unsafe`: the shutdown is an ioctl of ext4 without a safe
//! wrapper. It takes a pointer to a u32 that outlives the call, and does not write to the memory of
//! this process.
#![expect(unsafe_code, reason = "an ioctl without a wrapper; see the header")]

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use rustix::{
    io::ioctl_fionread,
    ioctl::{Opcode, Setter, ioctl, opcode},
};
use snap_explore::{
    steps::{self, Stop, await_halt, merge_packs, spread, stop_at},
    versions,
};
use snap_testkit::{
    mounts::{in_own_mounts, tool, tool_says},
    skip::skip,
};

use crate::place::{await_id, copy, folder, kill, log, printed_id, restores, snap, well};

/// `EXT4_IOC_SHUTDOWN`.
const SHUTDOWN: Opcode = opcode::read::<u32>(b'X', 125);

/// `EXT4_GOING_FLAGS_NOLOGFLUSH`: everything that is not in the journal is lost.
const WITHOUT_JOURNAL: u32 = 2;

const IMAGE_BYTES: u64 = 96 << 20;

/// Number of power cuts right after an id was printed.
const CUTS_AFTER_IDS: u64 = 16;

/// Number of power cuts in steps of a commit and of merging packs.
const CUTS_ANYWHERE: usize = 24;

/// A new store is created after this number of cuts, so that creating one is tested too.
const STORE_EVERY: u64 = 8;

/// An ext4 file system in an image file.
struct Disk {
    image: PathBuf,
    point: PathBuf,
}

impl Disk {
    /// Creates and mounts a file system; returns `None` if loop devices do not work.
    fn new(place: &Path) -> Option<Self> {
        let disk = Self { image: place.join("image"), point: place.join("disk") };
        fs_err::create_dir(&disk.point).unwrap();
        fs_err::File::create(&disk.image).unwrap().set_len(IMAGE_BYTES).unwrap();
        let made = tool("mkfs.ext4", [OsStr::new("-q"), OsStr::new("-F"), disk.image.as_os_str()]);
        (made && disk.mount()).then_some(disk)
    }

    fn mount(&self) -> bool {
        let options = ["-o", "loop"].map(OsStr::new);
        tool("mount", options.into_iter().chain([self.image.as_os_str(), self.point.as_os_str()]))
    }

    /// Simulates a power cut.
    fn cut(&self) {
        let folder = fs_err::File::open(&self.point).unwrap();
        // SAFETY: the opcode takes a pointer to a u32, and gets one.
        let cut = unsafe { ioctl(&folder, Setter::<SHUTDOWN, u32>::new(WITHOUT_JOURNAL)) };
        cut.unwrap();
    }

    /// Simulates the restart of the machine.
    fn start_again(&self) {
        assert!(tool("umount", [&self.point]));
        // Replays the journal. Exit code 1 means that files without a name were removed, 4 and
        // higher that the file system is damaged.
        let check = ["-f", "-p"].map(OsStr::new).into_iter().chain([self.image.as_os_str()]);
        let (code, said) = tool_says("e2fsck", check);
        assert!(matches!(code, Some(0 | 1)), "e2fsck: {code:?}\n{said}");
        assert!(self.mount());
    }
}

/// A disk with a store, a line of versions, and the acknowledged commits.
struct Scene {
    disk: Disk,
    work: PathBuf,
    stores: u64,
    number: u64,
    acknowledged: BTreeSet<String>,
}

impl Scene {
    fn new(disk: Disk, work: PathBuf) -> Self {
        Self { disk, work, stores: 0, number: 0, acknowledged: BTreeSet::new() }
    }

    fn store(&self) -> PathBuf {
        self.disk.point.join(format!("store{}", self.stores))
    }

    fn begin_another_store(&mut self) {
        if self.stores > 0 {
            fs_err::remove_dir_all(self.store()).unwrap();
        }
        self.stores += 1;
        self.acknowledged.clear();
        well(snap(&self.store()).arg("init"));
    }

    fn commit(&mut self) -> Command {
        self.number += 1;
        let message = format!("main {}", self.number);
        versions::write(&self.work, &message);
        self.commit_to(&self.store())
    }

    /// Returns a commit of the present version.
    fn commit_to(&self, store: &Path) -> Command {
        let mut command = snap(store);
        command.args(["commit", "-m", &format!("main {}", self.number)]).arg(&self.work);
        command
    }

    /// Returns the steps of a commit of the present version, which is made in a copy of the store.
    fn steps(&self) -> Vec<String> {
        let folder = folder();
        let store = folder.path().join("copy");
        copy(&self.store(), &store);
        steps::count(&mut self.commit_to(&store))
    }

    /// Cuts the power, kills the process, whose stderr is returned, and starts the machine again.
    fn cut(&mut self, child: Child) -> String {
        self.disk.cut();
        let said = kill(child);
        self.disk.start_again();
        said
    }

    fn check(&self) {
        let store = self.store();
        if self.acknowledged.is_empty() && !store.join("refs/heads/main").exists() {
            return;
        }
        let listed = log(&store, "main");
        let ids: BTreeSet<String> = listed.iter().map(|commit| commit.id.clone()).collect();
        let lost: Vec<_> = self.acknowledged.difference(&ids).collect();
        assert!(lost.is_empty(), "acknowledged, but not listed: {lost:?}");
        listed.iter().for_each(|commit| restores(&store, commit));
        well(snap(&store).args(["verify", "--data"]));
    }
}

/// Runs `work` with a disk whose power can be cut.
fn with_disk(test: &str, work: impl FnOnce(Scene)) {
    let test = format!("power_cut::{test}");
    in_own_mounts(&test, || {
        let place = folder();
        let Some(disk) = Disk::new(place.path()) else {
            return skip(&test, "an ext4 image cannot be mounted here (mkfs.ext4, loop devices)");
        };
        work(Scene::new(disk, place.path().join("work")));
    });
}

/// This test proves that a cut loses data; without it the tests below would prove nothing.
#[test]
fn a_cut_loses_what_was_not_synced() {
    with_disk("a_cut_loses_what_was_not_synced", |scene| {
        let file = scene.disk.point.join("file");
        fs_err::write(&file, "not synced").unwrap();
        scene.disk.cut();
        scene.disk.start_again();
        assert!(!file.exists() || fs_err::read(&file).unwrap().is_empty());
    });
}

#[test]
fn what_was_acknowledged_survives_a_power_cut() {
    with_disk("what_was_acknowledged_survives_a_power_cut", |mut scene| {
        for cuts in 0..CUTS_AFTER_IDS {
            if cuts % STORE_EVERY == 0 {
                scene.begin_another_store();
            }
            let mut child = scene.commit().spawn().unwrap();
            let id = await_id(&mut child);
            let said = scene.cut(child);
            assert!(id.is_some(), "ended without an id: {said}");
            scene.acknowledged.extend(id);
            scene.check();
        }
    });
}

#[test]
fn a_power_cut_at_any_moment_leaves_a_store_that_restores_all_it_lists() {
    let test = "a_power_cut_at_any_moment_leaves_a_store_that_restores_all_it_lists";
    with_disk(test, |mut scene| {
        scene.begin_another_store();
        let mut commit = scene.commit();
        // Until the next commit merges packs.
        let steps = loop {
            scene.acknowledged.extend(printed_id(well(&mut commit).as_bytes()));
            commit = scene.commit();
            let steps = scene.steps();
            if merge_packs(&steps) {
                break steps;
            }
        };
        let whole = scene.disk.point.join("whole");
        copy(&scene.store(), &whole);
        let acknowledged = scene.acknowledged.clone();
        for step in spread(steps.len(), CUTS_ANYWHERE) {
            fs_err::remove_dir_all(scene.store()).unwrap();
            copy(&whole, &scene.store());
            rustix::fs::syncfs(fs_err::File::open(&scene.disk.point).unwrap().file()).unwrap();
            scene.acknowledged = acknowledged.clone();
            let mut child = stop_at(&mut commit, step, Stop::Halt).spawn().unwrap();
            assert!(await_halt(&child), "a commit has {step} steps");
            // What it has printed before it halted; the pipe is not closed yet.
            let printed = ioctl_fionread(child.stdout.as_ref().unwrap()).unwrap() > 0;
            let id = if printed { await_id(&mut child) } else { None };
            scene.acknowledged.extend(id);
            let said = scene.cut(child);
            assert!(!said.contains("panicked"), "{said}");
            scene.check();
        }
    });
}
