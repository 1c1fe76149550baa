//! Hooks before and after a commit.

use std::{
    io::Write,
    os::unix::process::CommandExt,
    process::{Child, Stdio},
};

use rustix::process::{Pid, Signal, kill_process_group};
use snap_testkit::wait::until;

use crate::env::TestEnv;

fn env(hooks: &[(&str, &str)]) -> TestEnv {
    let env = TestEnv::new();
    env.snap(["init"]).succeeds();
    env.write("a", "1");
    for (name, command) in hooks {
        env.snap(["config", "set", &format!("hooks.{name}"), command]).succeeds();
    }
    env
}

fn commits(env: &TestEnv) -> usize {
    env.snap(["log", "--json"]).json().len()
}

#[test]
fn they_run_before_and_after_and_are_told_what_is_made() {
    let env = env(&[
        ("pre_commit", "echo \"$SNAP_HOOK of $SNAP_BRANCH in $PWD\"; echo dump > dump"),
        (
            "post_commit",
            "echo \"$SNAP_HOOK of $SNAP_STORE: $SNAP_COMMIT after ${SNAP_PARENT:-none}\"; echo \
             \"$SNAP_CREATED $SNAP_FILES $SNAP_BYTES $SNAP_FILES_ADDED $SNAP_FILES_MODIFIED\"",
        ),
    ]);
    env.write("sub/b", "2");
    insta::assert_snapshot!(env.snap_in("sub", ["commit"]), @"
    exit: 0
    --- stdout ---
    [ID]
    --- stderr ---
    pre_commit of main in [ROOT]
    Committed 3 files, 7 B: 3 added, 0 modified, 0 unmodified
    Read [SIZE], added [SIZE], stored [SIZE] in [TIME]
    post_commit of [ROOT]/.snap: [ID] after none
    true 3 7 3 0
    ");
}

#[test]
fn the_one_after_runs_also_when_nothing_changed() {
    let env = env(&[("post_commit", "echo created: $SNAP_CREATED, parent: ${SNAP_PARENT:+yes}")]);
    env.snap(["commit"]).succeeds();
    insta::assert_snapshot!(env.snap(["commit"]), @r"
    exit: 0
    --- stdout ---
    [ID]
    --- stderr ---
    Nothing changed since 2026-11-21 08:00:00 +00:00, checked in [TIME]
    created: false, parent:
    ");
    insta::assert_snapshot!(env.snap(["commit", "--allow-empty", "-q"]), @"exit: 0");
}

#[test]
fn a_failure_before_the_commit_stops_it_and_one_after_is_reported() {
    let env = env(&[("pre_commit", "echo no disk >&2; exit 3"), ("post_commit", "kill -9 $$")]);
    insta::assert_snapshot!(env.snap(["commit"]), @"
    exit: 1
    --- stderr ---
    no disk
    error: the pre_commit hook failed: exit code 3
    hint: nothing was committed; `snap commit --no-hooks` commits without hooks
    ");
    assert_eq!(commits(&env), 0);
    env.snap(["config", "set", "hooks.pre_commit", ""]).succeeds();
    insta::assert_snapshot!(env.snap(["commit", "-q"]), @r"
    exit: 0
    --- stderr ---
    warning: the post_commit hook failed: killed by signal 9; the commit was made
    ");
    assert_eq!(commits(&env), 1);
}

#[test]
fn what_a_failure_does_can_be_said() {
    let env = env(&[("pre_commit", "exit 3"), ("post_commit", "exit 4"), ("on_failure", "report")]);
    insta::assert_snapshot!(env.snap(["commit", "-q"]), @r"
    exit: 0
    --- stderr ---
    warning: the pre_commit hook failed: exit code 3; continuing
    warning: the post_commit hook failed: exit code 4; the commit was made
    ");
    env.snap(["config", "set", "hooks.on_failure", "stop"]).succeeds();
    env.snap(["config", "set", "hooks.pre_commit", "true"]).succeeds();
    insta::assert_snapshot!(env.snap(["commit", "-q", "--allow-empty"]), @r"
    exit: 1
    --- stderr ---
    error: the post_commit hook failed: exit code 4; the commit was made
    ");
    assert_eq!(commits(&env), 2);
}

#[test]
fn one_that_is_missing_or_cannot_be_started_is_told() {
    let mut env = env(&[("pre_commit", "no-such-command 2> /dev/null")]);
    insta::assert_snapshot!(env.snap(["commit"]), @"
    exit: 1
    --- stderr ---
    error: the pre_commit hook failed: exit code 127: a command in it was not found
    hint: nothing was committed; `snap commit --no-hooks` commits without hooks
    ");
    env.set("PATH", "/nowhere");
    insta::assert_snapshot!(env.snap(["commit"]), @"
    exit: 1
    --- stderr ---
    error: cannot start the pre_commit hook
      caused by: No such file or directory (os error 2)
    hint: hooks run with `sh -c`; check that `sh` is in PATH
    ");
    env.snap(["commit", "--no-hooks"]).succeeds();
}

#[test]
fn a_usage_error_is_told_before_anything_runs() {
    let env = env(&[("pre_commit", "echo ran")]);
    insta::assert_snapshot!(env.snap(["commit", "--label", "a=1", "--label", "a=2"]), @r"
    exit: 2
    --- stderr ---
    error: label `a` is given twice
    ");
}

#[test]
fn those_of_a_profile_stand_in_place_of_the_others() {
    let env = env(&[("pre_commit", "echo for all"), ("post_commit", "echo after all")]);
    let set = |key: &str, value: &str| {
        env.snap(["config", "set", &format!("profile.home.{key}"), value]).succeeds();
    };
    set("hooks.pre_commit", "echo for $SNAP_PROFILE; false");
    set("hooks.on_failure", "report");
    insta::assert_snapshot!(env.snap(["commit", "--profile", "home"]), @"
    exit: 0
    --- stdout ---
    [ID]
    --- stderr ---
    for home
    warning: the pre_commit hook failed: exit code 1; continuing
    Committed 1 file, 1 B: 1 added, 0 modified, 0 unmodified
    Read [SIZE], added [SIZE], stored [SIZE] in [TIME]
    after all
    ");
}

#[test]
fn a_commit_that_a_hook_makes_runs_none() {
    let snap = env!("CARGO_BIN_EXE_snap");
    let env = env(&[("post_commit", &format!("{snap} commit -q --allow-empty -m inner"))]);
    env.snap(["commit", "-m", "outer"]).succeeds();
    assert_eq!(commits(&env), 2);
}

#[test]
fn neither_an_empty_input_nor_a_dry_run_confuses_them() {
    let env = env(&[("pre_commit", "cat; echo ran >> ran")]);
    env.snap(["commit", "--dry-run"]).succeeds();
    assert!(!env.path("ran").exists());
    let mut command = env.command("");
    command.args(["commit", "-q", "--stdin", "in"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"data").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(env.snap(["cat", "HEAD:in"]).succeeds().stdout, "data");
    assert_eq!(env.read("ran"), "ran\n");
}

/// Starts snap in its own process group, and waits until its hook runs.
fn started(env: &TestEnv) -> Child {
    let mut command = env.command("");
    command.arg("commit").process_group(0).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the hook starts", || env.path("running").exists());
    child
}

/// Sends SIGINT to the process group of snap, as Ctrl-C does.
fn interrupted(child: Child) -> String {
    let id = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process_group(id, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn ctrl_c_ends_a_slow_one_and_nothing_is_committed() {
    // The children of the hook must end too; otherwise reading their output would take 600 s.
    let env = env(&[("pre_commit", "touch running; sleep 600; touch survived")]);
    insta::assert_snapshot!(interrupted(started(&env)), @"
    error: interrupted in the pre_commit hook
    hint: nothing was committed; run the command again
    ");
    assert_eq!(commits(&env), 0);
    assert!(!env.path("survived").exists());
}

#[test]
fn ctrl_c_after_the_commit_leaves_it_standing() {
    let env = env(&[("post_commit", "touch running; sleep 600; touch survived")]);
    let said = interrupted(started(&env));
    assert!(said.ends_with("error: interrupted in the post_commit hook; the commit was made\n"));
    assert_eq!(commits(&env), 1);
    assert!(!env.path("survived").exists());
}
