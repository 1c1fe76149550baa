//! Named pipes in place of files: they work once another process opens the other end, and Ctrl-C
//! ends the wait.

use std::{process::Stdio, thread};

use rustix::process::{Pid, Signal, kill_process};
use snap_testkit::wait::{until, until_it_handles_ctrl_c, until_it_waits};

use crate::env::TestEnv;

fn env() -> TestEnv {
    let env = TestEnv::new();
    env.write("home/a", "content");
    env.write("home/b.o", "object");
    env.snap_in("home", ["commit"]).succeeds();
    let (fifo, mode) = (rustix::fs::FileType::Fifo, 0o600.into());
    rustix::fs::mknodat(rustix::fs::CWD, env.path("pipe"), fifo, mode, 0).unwrap();
    env
}

#[test]
fn a_pipe_without_another_end_gives_way_to_ctrl_c() {
    let env = env();
    let runs: [&[&str]; 6] = [
        &["unpack", "../pipe"],
        &["archive", ".", "-o", "../pipe"],
        &["pack", "-f", "-o", "../pipe"],
        &["export", "latest", "--format", "tar", "-o", "../pipe"],
        &["commit", "--dry-run", "--exclude-from", "../pipe"],
        &["status", "--exclude-from", "../pipe"],
    ];
    for args in runs {
        let mut command = env.command("home");
        let command = command.args(args).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        until_it_handles_ctrl_c(&mut child);
        until_it_waits(&mut child);
        let id = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(id, Signal::INT).unwrap();
        until("it ends after Ctrl-C", || child.try_wait().unwrap().is_some());
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{args:?}: {stderr}");
        assert!(stderr.contains("interrupted"), "{args:?}: {stderr}");
    }
}

#[test]
fn a_folder_is_no_bundle() {
    let env = env();
    insta::assert_snapshot!(env.snap_in("home", ["unpack", "."]), @r"
    exit: 1
    --- stderr ---
    error: cannot open .
      caused by: Is a directory (os error 21)
    ");
}

#[test]
fn a_pipe_with_another_end_is_as_a_file() {
    let env = env();
    let pipe = env.path("pipe");
    // As in `--exclude-from <(echo '*.o')`.
    let patterns = thread::spawn({
        let pipe = pipe.clone();
        move || fs_err::write(pipe, "*.o\n").unwrap()
    });
    env.snap_in("home", ["commit", "--exclude-from", "../pipe"]).succeeds();
    patterns.join().unwrap();
    assert_eq!(env.snap_in("home", ["ls", "latest"]).succeeds().stdout, "a\n");

    let reader = thread::spawn({
        let pipe = pipe.clone();
        move || fs_err::read(pipe).unwrap()
    });
    env.snap_in("home", ["pack", "-o", "../pipe"]).succeeds();
    let bundle = reader.join().unwrap();
    let writer = thread::spawn(move || fs_err::write(pipe, bundle).unwrap());
    env.snap(["--store", "other", "init"]).succeeds();
    env.snap(["--store", "other", "unpack", "pipe"]).succeeds();
    writer.join().unwrap();
    assert_eq!(env.snap(["--store", "other", "ls", "latest"]).succeeds().stdout, "a\n");
}
