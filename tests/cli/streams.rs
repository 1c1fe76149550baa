//! `snap commit --stdin`: streams, and the output of commands.

use std::{
    os::unix::process::CommandExt,
    process::{Child, Stdio},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use snap_testkit::wait::until;

use crate::env::{Ran, TestEnv};

/// A shell script that is run as a command whose output is committed.
fn dump(env: &TestEnv, script: &str) -> Ran {
    env.snap(dump_args(script))
}

fn dump_args(script: &str) -> [&str; 8] {
    ["commit", "--stdin", "db.sql", "--stdin-from-command", "--", "sh", "-c", script]
}

fn commits(env: &TestEnv) -> usize {
    env.snap(["log", "--json"]).json().len()
}

#[test]
fn an_empty_stream_is_refused() {
    let env = TestEnv::new();
    dump(&env, "echo good").succeeds();
    for more in [&[][..], &["--allow-empty"], &["--dry-run"], &["-b", "new"]] {
        let args = [&["commit", "--stdin", "db.sql"], more].concat();
        let refused = env.snap(args);
        assert_eq!(refused.code, Some(1), "{more:?}: {}", refused.stderr);
    }
    insta::assert_snapshot!(env.snap(["commit", "--stdin", "db.sql"]), @"
    exit: 1
    --- stderr ---
    error: the stream for db.sql is empty
    hint: nothing was committed
    hint: --stdin-from-command runs the command itself and detects a failure
    hint: --allow-empty-stream commits an empty file
    ");
    assert_eq!(dump(&env, "true").code, Some(1));
    assert_eq!(env.snap(["cat", "HEAD:db.sql"]).succeeds().stdout, "good\n");
    assert_eq!(commits(&env), 1);
    env.snap(["commit", "--stdin", "db.sql", "--allow-empty-stream"]).succeeds();
    assert_eq!(env.snap(["cat", "HEAD:db.sql"]).succeeds().stdout, "");
    // An unchanged stream makes no commit.
    env.snap(["commit", "--stdin", "db.sql", "--allow-empty-stream"]).succeeds();
    assert_eq!(commits(&env), 2);
}

#[test]
fn the_output_of_a_command_is_committed() {
    let env = TestEnv::new();
    let script = "cat; echo \"$#:$1:$2\"; echo note >&2";
    let args = [&dump_args(script)[..], &["sh", "", "-x"]].concat();
    let ran = env.snap(args).succeeds();
    assert!(ran.stderr.contains("note\n"), "{}", ran.stderr);
    assert_eq!(env.snap(["cat", "HEAD:db.sql"]).succeeds().stdout, "2::-x\n");
    // More than a pipe holds.
    dump(&env, "dd if=/dev/zero bs=1000 count=9000 2> /dev/null; echo end").succeeds();
    assert_eq!(env.snap(["cat", "HEAD:db.sql"]).succeeds().stdout.len(), 9_000_004);
}

#[test]
fn a_command_that_fails_makes_no_commit() {
    let env = TestEnv::new();
    dump(&env, "echo good").succeeds();
    insta::assert_snapshot!(dump(&env, "echo half; echo no connection >&2; exit 3"), @r"
    exit: 1
    --- stderr ---
    no connection
    error: `sh` failed: exit code 3
    hint: nothing was committed
    ");
    insta::assert_snapshot!(dump(&env, "echo half; kill -9 $$"), @r"
    exit: 1
    --- stderr ---
    error: `sh` failed: killed by signal 9
    hint: nothing was committed
    ");
    let args = ["commit", "--stdin", "db.sql", "--stdin-from-command", "--", "./no-such-program"];
    insta::assert_snapshot!(env.snap(args), @"
    exit: 1
    --- stderr ---
    error: cannot start `./no-such-program`
      caused by: No such file or directory (os error 2)
    hint: check the command after `--`
    hint: for shell syntax, write `-- sh -c '…'`
    ");
    // The first commit of a branch, and a failure of the last bytes of a large dump.
    let large = "dd if=/dev/zero bs=1000 count=9000 2> /dev/null; exit 1";
    assert_eq!(dump(&env, large).code, Some(1));
    let args = [&["commit", "-b", "new"], &dump_args("echo half; exit 1")[1..]].concat();
    assert_eq!(env.snap(args).code, Some(1));
    assert_eq!(env.snap(["branch"]).succeeds().stdout.lines().count(), 1);
    assert_eq!(env.snap(["cat", "HEAD:db.sql"]).succeeds().stdout, "good\n");
    assert_eq!(commits(&env), 1);
}

#[test]
fn a_command_does_not_start_for_a_commit_that_is_refused() {
    let env = TestEnv::new();
    env.write("db.sql/file", "1");
    env.snap(["commit", "-q"]).succeeds();
    assert_eq!(dump(&env, "touch ran; echo x").code, Some(2));
    for args in [
        &["commit", "--stdin-from-command", "--", "touch", "ran"][..],
        &["commit", "--stdin", "x", "--stdin-from-command"],
        &["commit", "--stdin", "x", "touch"],
        &["commit", "--allow-empty-stream"],
        &["commit", ""],
    ] {
        assert_eq!(env.snap(args).code, Some(2), "{args:?}");
    }
    assert!(!env.path("ran").exists());
    assert_eq!(commits(&env), 1);
}

/// Starts a commit in its own process group, and waits until its command runs.
fn started(env: &TestEnv, script: &str) -> Child {
    let mut command = env.command("");
    command.args(dump_args(script)).process_group(0).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the command starts", || env.path("running").exists());
    child
}

#[test]
fn ctrl_c_ends_the_command_and_nothing_is_committed() {
    let env = TestEnv::new();
    env.snap(["init", "-q"]).succeeds();
    // In each state the children must end too; otherwise reading their output would take 600 s.
    for script in [
        "touch running; sleep 600; touch survived",
        "echo half; touch running; exec sleep 600",
        "exec >&-; touch running; sleep 600; touch survived",
    ] {
        for to_group in [true, false] {
            let child = started(&env, script);
            let id = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            match to_group {
                true => kill_process_group(id, Signal::INT).unwrap(),
                false => kill_process(id, Signal::TERM).unwrap(),
            }
            let output = child.wait_with_output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(130), "{script}: {stderr}");
            assert!(!env.path("survived").exists(), "{script}");
            fs_err::remove_file(env.path("running")).unwrap();
        }
    }
    assert_eq!(commits(&env), 0);
}
