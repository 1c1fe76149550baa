//! `snap log -- PATH`.

use crate::env::TestEnv;

/// A change of the files before a commit, and the message of the commit.
type Step = (&'static str, fn(&TestEnv));

/// Makes a file that changes, moves and gets another mode, a day apart.
fn env() -> TestEnv {
    let mut env = TestEnv::new();
    let changes: [Step; 5] = [
        ("begin", |env| {
            env.write("docs/a.txt", "a");
            env.write("other", "1");
        }),
        ("edit", |env| env.write("docs/a.txt", "b")),
        ("another", |env| env.write("other", "2")),
        ("move", |env| fs_err::rename(env.path("docs/a.txt"), env.path("b.txt")).unwrap()),
        ("mode", |env| env.mode("b.txt", 0o600)),
    ];
    for (day, (message, change)) in changes.iter().enumerate() {
        change(&env);
        env.set("SNAP_TIME", &format!("2026-11-0{}T10:00:00Z", day + 1));
        env.snap(["commit", "-m", message]).succeeds();
    }
    env
}

fn messages(env: &TestEnv, args: &[&str]) -> Vec<String> {
    let log = env.snap([&["--json", "log"], args].concat()).succeeds().json();
    log.iter().map(|commit| commit["message"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn only_commits_that_changed_a_path_are_listed() {
    let env = env();
    assert_eq!(messages(&env, &["--", "other"]), ["another", "begin"]);
    assert_eq!(messages(&env, &["--", "docs/a.txt"]), ["move", "edit", "begin"]);
    assert_eq!(messages(&env, &["--", "docs/"]), ["move", "edit", "begin"]);
    assert_eq!(messages(&env, &["--", "b.txt"]), ["mode", "move"]);
    assert_eq!(messages(&env, &["--", "b.txt", "./other"]), ["mode", "move", "another", "begin"]);
    assert_eq!(messages(&env, &["HEAD~2", "--", "docs/a.txt"]), ["edit", "begin"]);
    assert_eq!(messages(&env, &["--follow", "--", "b.txt"]), ["mode", "move", "edit", "begin"]);
    assert_eq!(messages(&env, &["-n1", "--follow", "--", "b.txt"]), ["mode"]);
    let days = ["--since", "2026-11-02", "--until", "2026-11-04", "--", "docs"];
    assert_eq!(messages(&env, &days), ["move", "edit"]);
    assert_eq!(messages(&env, &["--since", "2026-11-04", "--", "other"]), [""; 0]);
    insta::assert_snapshot!(env.snap(["log", "--oneline", "--", "b.txt"]), @r"
    exit: 0
    --- stdout ---
    [ID] 2026-11-05 10:00:00 +00:00 (HEAD -> main) mode
    [ID] 2026-11-04 10:00:00 +00:00 move
    ");
}

#[test]
fn a_rename_is_shown_where_it_happened() {
    let env = env();
    insta::assert_snapshot!(env.snap(["log", "HEAD~1", "-n1", "--follow", "--", "b.txt"]), @r"
    exit: 0
    --- stdout ---
    commit [ID]
    Author:  ann on box
    Date:    2026-11-04 10:00:00 +00:00
    Content: 2 files, 2 B

        move

    Renamed: docs/a.txt -> b.txt
    ");
    let log = env.snap(["--json", "log", "--follow", "--", "b.txt"]).succeeds().json();
    assert_eq!(log[1]["renames"][0]["from"], "docs/a.txt");
    assert_eq!(log[1]["renames"][0]["to"], "b.txt");
    assert!(log[0].get("renames").is_none());
}

#[test]
fn a_path_that_never_was_is_an_error() {
    let env = env();
    insta::assert_snapshot!(env.snap(["log", "--", "none", "a.txt"]), @"
    exit: 1
    --- stderr ---
    error: no commit contains `none`, `a.txt`
    hint: paths are relative to the current folder
    hint: `snap find NAME` searches the whole history
    ");
    insta::assert_snapshot!(env.snap(["log", "--since", "2026-11-05", "--", "none"]), @"
    exit: 1
    --- stderr ---
    error: no commit contains `none`
    hint: paths are relative to the current folder
    hint: `snap find NAME` searches the whole history
    ");
    insta::assert_snapshot!(env.snap(["log", "--", "../docs"]), @r"
    exit: 2
    --- stderr ---
    error: `../docs` is outside the project
    hint: `./` and `../` start at the current folder, `REV:PATH` at the top of the snapshot
    ");
    insta::assert_snapshot!(env.snap(["log", "--follow"]), @r"
    exit: 2
    --- stderr ---
    error: the following required arguments were not provided:
      <PATH>...

    Usage: snap log --follow [REV] -- <PATH>...

    For more information, try '--help'.
    ");
}
