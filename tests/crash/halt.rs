//! Halts a command at a step, and runs others meanwhile.

use std::{
    path::Path,
    process::{Command, Output},
};

use rustix::process::{Signal, kill_process};
use snap_explore::steps::{self, Stop, await_halt, pid, stop_at};

use crate::place::{SNAP, folder, stderr, well};

/// Returns a command in a project. `home` has the settings of its user.
fn within(home: &Path, project: &Path, args: &[&str]) -> Command {
    let mut command = SNAP.bare();
    command.args(args).current_dir(project);
    command.env("HOME", home);
    command
}

/// Two clones of the project `origin`: one counts the steps of a command, the other one is halted
/// before the command names its first pack.
struct Clones(tempfile::TempDir);

impl Clones {
    fn new() -> Self {
        let clones = Self(folder());
        fs_err::create_dir(clones.0.path().join("origin")).unwrap();
        clones.write("origin/first", "first\n");
        well(&mut clones.run("origin", &["commit", "-m", "one"]));
        for clone in ["counted", "clone"] {
            well(&mut clones.run("", &["clone", "origin", clone]));
            clones.write(&format!("{clone}/garbage"), clone);
            well(&mut clones.run(clone, &["commit", "-m", "garbage", "-b", "garbage"]));
            well(&mut clones.run(clone, &["restore", "main", "--overwrite", "--delete"]));
            well(&mut clones.run(clone, &["branch", "-d", "garbage"]));
        }
        clones.write("origin/second", "second\n");
        well(&mut clones.run("origin", &["commit", "-m", "two"]));
        well(&mut clones.run("origin", &["pack", "main", "-o", "../new.snap"]));
        clones
    }

    fn write(&self, path: &str, text: &str) {
        fs_err::write(self.0.path().join(path), text).unwrap();
    }

    fn run(&self, project: &str, args: &[&str]) -> Command {
        within(self.0.path(), &self.0.path().join(project), args)
    }

    /// Runs other commands in the clone while the first one, which has received everything, is
    /// halted.
    fn overtake(&self, args: &[&str], others: impl FnOnce()) -> Output {
        let steps = steps::count(&mut self.run("counted", args));
        let step = steps.iter().position(|step| step.contains("/.snap/objects/")).unwrap() as u64;
        let mut command = self.run("clone", args);
        let child = stop_at(&mut command, step, Stop::Halt).spawn().unwrap();
        assert!(await_halt(&child), "{args:?} names a pack");
        others();
        kill_process(pid(&child), Signal::CONT).unwrap();
        child.wait_with_output().unwrap()
    }
}

#[test]
fn a_pull_or_unpack_that_a_collection_overtakes_begins_again() {
    for args in [["pull", "origin"], ["unpack", "../new.snap"]] {
        let clones = Clones::new();
        let output = clones.overtake(&args, || {
            let mut collect = clones.run("clone", &["--json", "gc", "--now"]);
            let collected = well(collect.env("SNAP_TIME", "2099-01-01T00:00:00Z"));
            assert!(collected.contains("\"deleted_packs\":1"), "{collected}");
        });
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        well(&mut clones.run("clone", &["verify", "--data"]));
        well(&mut clones.run("clone", &args));
    }
}

#[test]
fn a_pull_that_a_rewrite_and_a_collection_overtake_names_the_replaced_commit() {
    let clones = Clones::new();
    let output = clones.overtake(&["pull", "origin"], || {
        well(&mut clones.run("clone", &["rewrite", "--exclude", "first"]));
        well(&mut clones.run("clone", &["gc"]));
    });
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("was removed by `snap rewrite`"), "{text}");
    well(&mut clones.run("clone", &["verify", "--data"]));
}

#[test]
fn a_commit_whose_objects_a_collection_deletes_stores_them_again_or_is_refused() {
    let place = folder();
    // One project counts the steps, the other one is halted.
    let [counted, project] = ["counted", "project"].map(|name| place.path().join(name));
    let command = |project: &Path, args: &[&str]| within(place.path(), project, args);
    for project in [&counted, &project] {
        fs_err::create_dir(project).unwrap();
        fs_err::write(project.join("secret"), "secret\n").unwrap();
        well(&mut command(project, &["commit", "-m", "one"]));
        fs_err::write(project.join("new"), "new\n").unwrap();
    }
    let steps = steps::count(&mut command(&counted, &["commit", "-m", "two"]));
    // Then the commit has written its objects, and no ref reaches them.
    let step = steps.iter().position(|step| step.ends_with("/.snap/lock")).unwrap() as u64 + 1;
    let mut commit = command(&project, &["commit", "-m", "two"]);
    let child = stop_at(&mut commit, step, Stop::Halt).spawn().unwrap();
    assert!(await_halt(&child), "a commit takes the lock of the refs");
    well(&mut command(&project, &["rewrite", "--exclude", "secret"]));
    well(&mut command(&project, &["gc", "--now"]));
    kill_process(pid(&child), Signal::CONT).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("`secret` has a content that `snap rewrite` removed"), "{text}");
    fs_err::remove_file(project.join("secret")).unwrap();
    well(&mut command(&project, &["commit", "-m", "two"]));
    well(&mut command(&project, &["verify", "--data"]));
}
