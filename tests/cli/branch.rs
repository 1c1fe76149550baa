//! `snap branch` and `snap tag` in a store without commits.

use crate::env::TestEnv;

fn env() -> TestEnv {
    let env = TestEnv::new();
    env.snap(["init"]).succeeds();
    env
}

#[test]
fn a_store_without_commits_has_no_branch_yet() {
    let env = env();
    insta::assert_snapshot!(env.snap(["branch"]), @r"
    exit: 0
    --- stderr ---
    On branch main; no commit yet
    ");
    insta::assert_snapshot!(env.snap(["branch", "x"]), @r"
    exit: 1
    --- stderr ---
    error: branch `main` has no commit yet
    hint: `snap commit` creates the first one
    ");
    insta::assert_snapshot!(env.snap(["branch", "-d", "main"]), @"
    exit: 1
    --- stderr ---
    error: `main` is the current branch
    hint: switch to another branch first: `snap branch --switch NAME`
    ");
    insta::assert_snapshot!(env.snap(["branch", "--switch", "x"]), @r"
    exit: 1
    --- stderr ---
    error: branch `x` does not exist
    hint: `snap branch` lists them
    ");
    insta::assert_snapshot!(env.snap(["branch", "--log"]), @"exit: 0");
    insta::assert_snapshot!(env.snap(["branch", "--log", "main"]), @"exit: 0");
    insta::assert_snapshot!(env.snap(["branch", "--log", "x"]), @r"
    exit: 1
    --- stderr ---
    error: branch `x` does not exist
    hint: `snap branch` lists them
    ");
}

#[test]
fn names_that_would_be_misread_are_refused() {
    let env = env();
    insta::assert_snapshot!(env.snap(["branch", "latest"]), @"
    exit: 2
    --- stderr ---
    error: `latest` is not a valid name of a branch: the word is reserved in revisions
    ");
    insta::assert_snapshot!(env.snap(["tag", "a..b"]), @"
    exit: 2
    --- stderr ---
    error: `a..b` is not a valid name of a tag: it contains `..` or ends with a dot
    ");
    insta::assert_snapshot!(env.snap(["tag", "-d", "none"]), @r"
    exit: 1
    --- stderr ---
    error: tag `none` does not exist
    hint: `snap tag` lists them
    ");
}

#[test]
fn branches_and_tags_come_and_go_and_come_back() {
    let mut env = env();
    for day in 1..=2 {
        env.set("SNAP_TIME", &format!("2026-11-0{day}T10:00:00Z"));
        env.write("file", "x".repeat(day));
        env.snap(["commit", "-m", &format!("day {day}")]).succeeds();
    }
    insta::assert_snapshot!(env.snap(["branch", "old", "HEAD~1"]), @r"
    exit: 0
    --- stderr ---
    Created branch old at [SHORT ID]
    ");
    insta::assert_snapshot!(env.snap(["branch"]), @r"
    exit: 0
    --- stdout ---
    * main [ID] 2026-11-02 10:00:00 +00:00 day 2
      old  [ID] 2026-11-01 10:00:00 +00:00 day 1
    ");
    insta::assert_snapshot!(env.snap(["branch", "old"]), @r"
    exit: 1
    --- stderr ---
    error: branch `old` already exists
    hint: --force moves it
    ");
    insta::assert_snapshot!(env.snap(["branch", "old/er"]), @r"
    exit: 1
    --- stderr ---
    error: branch `old/er` conflicts with `old`
    ");
    insta::assert_snapshot!(env.snap(["branch", "--force", "old", "HEAD"]), @r"
    exit: 0
    --- stderr ---
    Moved branch old from [SHORT ID] to [SHORT ID]
    ");
    insta::assert_snapshot!(env.snap(["branch", "--switch", "old"]), @r"
    exit: 0
    --- stderr ---
    Switched to branch old; files are unchanged
    ");
    // The log below has no entry of this.
    insta::assert_snapshot!(env.snap(["branch", "--switch", "old"]), @"
    exit: 0
    --- stderr ---
    Already on branch old
    ");
    insta::assert_snapshot!(env.snap(["branch", "--json"]), @r#"
    exit: 0
    --- stdout ---
    {"version":1,"type":"ref","name":"main","kind":"branch","id":"[ID]","current":false}
    {"version":1,"type":"ref","name":"old","kind":"branch","id":"[ID]","current":true}
    "#);
    insta::assert_snapshot!(env.snap(["branch", "-d", "main"]), @r"
    exit: 0
    --- stderr ---
    Deleted branch main; `snap branch main [SHORT ID]` restores it
    ");
    insta::assert_snapshot!(env.snap(["branch", "--log", "main"]), @r"
    exit: 0
    --- stdout ---
    2026-11-02 10:00:00 +00:00 [ID] -> nothing ann on box: branch: deleted
    2026-11-02 10:00:00 +00:00 [ID] -> [ID] ann: commit: day 2
    2026-11-01 10:00:00 +00:00 nothing -> [ID] ann: commit: day 1
    ");
    insta::assert_snapshot!(env.snap(["branch", "--log"]), @r"
    exit: 0
    --- stdout ---
    2026-11-02 10:00:00 +00:00 main -> old ann on box: switch: from main
    ");
    insta::assert_snapshot!(env.snap(["tag", "v1"]), @r"
    exit: 0
    --- stderr ---
    Created tag v1 at [SHORT ID]
    ");
    insta::assert_snapshot!(env.snap(["tag"]), @r"
    exit: 0
    --- stdout ---
    v1 [ID] 2026-11-02 10:00:00 +00:00 day 2
    ");
    insta::assert_snapshot!(env.snap(["tag", "-d", "v1"]), @r"
    exit: 0
    --- stderr ---
    Deleted tag v1; `snap tag v1 [SHORT ID]` restores it
    ");
}

#[test]
fn each_change_has_a_record() {
    let env = env();
    env.write("file", "1");
    env.snap(["commit"]).succeeds();
    let record = |args: &[&str]| env.snap(["--json", "-q"].iter().chain(args)).to_string();
    insta::assert_snapshot!(record(&["branch", "old"]), @r#"
    exit: 0
    --- stdout ---
    {"version":1,"type":"ref-changed","action":"made","kind":"branch","name":"old","id":"[ID]","old":null}
    "#);
    insta::assert_snapshot!(record(&["branch", "-f", "old", "HEAD"]), @r#"
    exit: 0
    --- stdout ---
    {"version":1,"type":"ref-changed","action":"moved","kind":"branch","name":"old","id":"[ID]","old":"[ID]"}
    "#);
    insta::assert_snapshot!(record(&["branch", "--switch", "old"]), @r#"
    exit: 0
    --- stdout ---
    {"version":1,"type":"ref-changed","action":"switched","kind":"branch","name":"old","id":"[ID]","old":"[ID]"}
    "#);
    insta::assert_snapshot!(record(&["tag", "v1"]), @r#"
    exit: 0
    --- stdout ---
    {"version":1,"type":"ref-changed","action":"made","kind":"tag","name":"v1","id":"[ID]","old":null}
    "#);
    insta::assert_snapshot!(record(&["tag", "-d", "v1"]), @r#"
    exit: 0
    --- stdout ---
    {"version":1,"type":"ref-changed","action":"deleted","kind":"tag","name":"v1","id":null,"old":"[ID]"}
    "#);
    env.write(".snap/refs/tags/v2", "rubbish");
    insta::assert_snapshot!(record(&["tag", "-f", "v2"]), @r#"
    exit: 0
    --- stdout ---
    {"version":1,"type":"ref-changed","action":"repaired","kind":"tag","name":"v2","id":"[ID]","old":null}
    "#);
}

#[test]
fn a_pull_into_a_bare_store_names_a_restore_into_a_folder() {
    let env = TestEnv::new();
    env.write("work/a", "1");
    env.snap_in("work", ["commit", "-q"]).succeeds();
    env.snap(["--store", "bare", "init", "-q"]).succeeds();
    let url = env.path("work").to_str().unwrap().to_owned();
    env.snap(["--store", "bare", "remote", "add", "origin", &url]).succeeds();
    let pulled = env.snap(["--store", "bare", "pull"]).succeeds().stderr;
    assert!(pulled.ends_with("hint: `snap restore main DIR` restores its files to a folder\n"));
    assert!(!pulled.contains("unchanged"), "{pulled}");
    env.snap(["--store", "bare", "restore", "-q", "main", "out"]).succeeds();
}

#[test]
fn a_branch_of_a_remote_is_listed_and_made_here_as_the_hint_says() {
    let env = TestEnv::new();
    env.write("work/a", "1");
    env.snap_in("work", ["commit", "-q"]).succeeds();
    env.snap_in("work", ["branch", "-q", "exp"]).succeeds();
    env.snap(["clone", "-q", "work", "clone"]).succeeds();
    insta::assert_snapshot!(env.snap_in("clone", ["branch", "--switch", "exp"]), @r"
    exit: 1
    --- stderr ---
    error: branch `exp` does not exist here
    hint: `snap branch exp origin/exp` creates it from that of the remote
    ");
    let listed = env.snap_in("clone", ["branch"]).succeeds();
    assert!(listed.stdout.starts_with("* main"), "{listed}");
    assert!(!listed.stdout.contains("exp"), "{listed}");
    let hint = "hint: `snap branch exp origin/exp` creates a branch of a remote here\n";
    assert_eq!(listed.stderr, hint);
    let remotes = env.snap_in("clone", ["branch", "--remotes"]).succeeds().stdout;
    let names: Vec<_> = remotes.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["origin/exp", "origin/main"]);
    let shown = env.snap_in("clone", ["remote", "show"]).succeeds().stdout;
    assert!(shown.contains("exp at ") && shown.contains("without a branch here"), "{shown}");
    env.snap_in("clone", ["branch", "exp", "origin/exp"]).succeeds();
    env.snap_in("clone", ["branch", "--switch", "exp"]).succeeds();
    assert_eq!(env.snap_in("clone", ["branch"]).succeeds().stderr, "");
}
