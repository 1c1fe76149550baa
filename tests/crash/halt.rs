//! Halts a command at a step, and runs others meanwhile.

use rustix::process::{Signal, kill_process};
use snap_explore::steps::{self, Stop, await_halt, pid, stop_at};

use crate::place::{SNAP, folder, stderr, well};

#[test]
fn a_commit_whose_objects_a_collection_deletes_stores_them_again_or_is_refused() {
    let place = folder();
    // One project counts the steps, the other one is halted.
    let [counted, project] = ["counted", "project"].map(|name| place.path().join(name));
    let command = |project: &std::path::Path, args: &[&str]| {
        let mut command = SNAP.bare();
        command.args(args).env("HOME", place.path()).current_dir(project);
        command
    };
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
