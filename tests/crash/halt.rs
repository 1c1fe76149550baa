//! Halts a command at a step, and runs others meanwhile.

use std::{path::Path, process::Command};

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

/// The command has received everything, and the collection begins an epoch before it names a pack.
#[test]
fn a_pull_or_unpack_that_a_collection_overtakes_begins_again() {
    for args in [["pull", "origin"], ["unpack", "../new.snap"]] {
        let place = folder();
        let run =
            |project: &str, args: &[&str]| within(place.path(), &place.path().join(project), args);
        let write = |path: &str, text: &str| fs_err::write(place.path().join(path), text).unwrap();
        fs_err::create_dir(place.path().join("origin")).unwrap();
        write("origin/first", "first\n");
        well(&mut run("origin", &["commit", "-m", "one"]));
        // One clone counts the steps, the other one is halted.
        for clone in ["counted", "clone"] {
            well(&mut run("", &["clone", "origin", clone]));
            write(&format!("{clone}/garbage"), clone);
            well(&mut run(clone, &["commit", "-m", "garbage", "-b", "garbage"]));
            well(&mut run(clone, &["restore", "main", "--overwrite", "--delete"]));
            well(&mut run(clone, &["branch", "-d", "garbage"]));
        }
        write("origin/second", "second\n");
        well(&mut run("origin", &["commit", "-m", "two"]));
        well(&mut run("origin", &["pack", "main", "-o", "../new.snap"]));
        let steps = steps::count(&mut run("counted", &args));
        let step = steps.iter().position(|step| step.contains("/.snap/objects/")).unwrap() as u64;
        let mut command = run("clone", &args);
        let child = stop_at(&mut command, step, Stop::Halt).spawn().unwrap();
        assert!(await_halt(&child), "{args:?} names a pack");
        let mut collect = run("clone", &["--json", "gc", "--now"]);
        let collected = well(collect.env("SNAP_TIME", "2099-01-01T00:00:00Z"));
        assert!(collected.contains("\"deleted_packs\":1"), "{collected}");
        kill_process(pid(&child), Signal::CONT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        well(&mut run("clone", &["verify", "--data"]));
        well(&mut run("clone", &args));
    }
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
