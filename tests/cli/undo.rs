//! `snap undo`.

use crate::env::TestEnv;

/// Makes three commits, a day apart.
fn env() -> TestEnv {
    let mut env = TestEnv::new();
    for day in 1..=3 {
        env.set("SNAP_TIME", &format!("2026-11-0{day}T10:00:00Z"));
        env.write("file", "x".repeat(day));
        env.snap(["commit", "-m", &format!("day {day}")]).succeeds();
    }
    env
}

fn heads(env: &TestEnv) -> String {
    let shown = env.snap(["log", "--oneline", "--all"]).succeeds();
    shown.stdout.lines().map(|line| line.split_once(' ').unwrap().1.to_owned() + "\n").collect()
}

#[test]
fn repeated_undos_go_back_and_redos_forward() {
    let env = env();
    insta::assert_snapshot!(env.snap(["undo", "--dry-run"]), @r#"
    exit: 0
    --- stderr ---
    main moves back from [SHORT ID] (day 3) to [SHORT ID] (day 2): undo of "commit: day 3", 2026-11-03 10:00:00 +00:00
    Dry run: nothing was changed
    "#);
    insta::assert_snapshot!(env.snap(["undo"]), @r#"
    exit: 0
    --- stderr ---
    main moves back from [SHORT ID] (day 3) to [SHORT ID] (day 2): undo of "commit: day 3", 2026-11-03 10:00:00 +00:00
    Done; `snap undo --redo` redoes it
    "#);
    assert_eq!(env.read("file"), "xxx", "no file is touched");
    env.snap(["undo", "-q"]).succeeds();
    insta::assert_snapshot!(env.snap(["undo"]), @r#"
    exit: 0
    --- stderr ---
    main moves back from [SHORT ID] (day 1) to no commit: undo of "commit: day 1", 2026-11-01 10:00:00 +00:00
    Done; `snap undo --redo` redoes it
    "#);
    insta::assert_snapshot!(env.snap(["undo"]), @r"
    exit: 1
    --- stderr ---
    error: nothing to undo
    ");
    insta::assert_snapshot!(env.snap(["log"]), @r"
    exit: 1
    --- stderr ---
    error: branch `main` has no commit yet
    hint: `snap commit` creates the first one
    ");
    insta::assert_snapshot!(env.snap(["undo", "--redo"]), @r#"
    exit: 0
    --- stderr ---
    main is created again at [SHORT ID] (day 1): redo of "commit: day 1", 2026-11-01 10:00:00 +00:00
    Done; `snap undo` undoes it
    "#);
    env.snap(["undo", "--redo", "-q"]).succeeds();
    insta::assert_snapshot!(env.snap(["undo", "--redo"]), @r#"
    exit: 0
    --- stderr ---
    main moves forward from [SHORT ID] (day 2) to [SHORT ID] (day 3): redo of "commit: day 3", 2026-11-03 10:00:00 +00:00
    Done; `snap undo` undoes it
    "#);
    insta::assert_snapshot!(env.snap(["undo", "--redo"]), @r"
    exit: 1
    --- stderr ---
    error: nothing to redo
    hint: only the last undo can be redone, and only before any other change
    ");
    insta::assert_snapshot!(heads(&env), @r"
    2026-11-03 10:00:00 +00:00 (HEAD -> main) day 3
    2026-11-02 10:00:00 +00:00 day 2
    2026-11-01 10:00:00 +00:00 day 1
    ");
}

#[test]
fn whatever_changed_last_is_taken_back() {
    let env = env();
    env.snap(["branch", "side", "HEAD~1"]).succeeds();
    env.snap(["tag", "v1"]).succeeds();
    env.snap(["branch", "--force", "side", "HEAD~2"]).succeeds();
    env.snap(["branch", "--switch", "side"]).succeeds();
    env.snap(["branch", "-d", "main"]).succeeds();
    env.snap(["tag", "-d", "v1"]).succeeds();
    insta::assert_snapshot!(env.snap(["undo"]), @r#"
    exit: 0
    --- stderr ---
    tag v1 is restored at [SHORT ID] (day 3): undo of "tag: deleted", 2026-11-03 10:00:00 +00:00
    Done; `snap undo --redo` redoes it
    "#);
    insta::assert_snapshot!(env.snap(["undo"]), @r#"
    exit: 0
    --- stderr ---
    main is restored at [SHORT ID] (day 3): undo of "branch: deleted", 2026-11-03 10:00:00 +00:00
    Done; `snap undo --redo` redoes it
    "#);
    insta::assert_snapshot!(env.snap(["undo"]), @r#"
    exit: 0
    --- stderr ---
    HEAD moves back from branch side to branch main: undo of "switch: from main", 2026-11-03 10:00:00 +00:00
    Done; `snap undo --redo` redoes it
    "#);
    insta::assert_snapshot!(env.snap(["undo"]), @r#"
    exit: 0
    --- stderr ---
    side moves back from [SHORT ID] (day 1) to [SHORT ID] (day 2): undo of "branch: at HEAD~2", 2026-11-03 10:00:00 +00:00
    Done; `snap undo --redo` redoes it
    "#);
    insta::assert_snapshot!(env.snap(["undo"]), @r#"
    exit: 0
    --- stderr ---
    tag v1, at [SHORT ID] (day 3), is deleted: undo of "tag: at HEAD", 2026-11-03 10:00:00 +00:00
    Done; `snap undo --redo` redoes it
    "#);
    insta::assert_snapshot!(env.snap(["undo"]), @r#"
    exit: 0
    --- stderr ---
    side, at [SHORT ID] (day 2), is deleted: undo of "branch: at HEAD~1", 2026-11-03 10:00:00 +00:00
    Done; `snap undo --redo` redoes it
    "#);
    insta::assert_snapshot!(heads(&env), @r"
    2026-11-03 10:00:00 +00:00 (HEAD -> main) day 3
    2026-11-02 10:00:00 +00:00 day 2
    2026-11-01 10:00:00 +00:00 day 1
    ");
    (0..6).for_each(|_| drop(env.snap(["undo", "--redo"]).succeeds()));
    insta::assert_snapshot!(heads(&env), @"2026-11-01 10:00:00 +00:00 (HEAD -> side) day 1");
}

#[test]
fn a_name_chooses_what_is_taken_back() {
    let env = env();
    env.snap(["tag", "v1"]).succeeds();
    env.snap(["tag", "-d", "v1"]).succeeds();
    insta::assert_snapshot!(env.snap(["undo", "main"]), @r#"
    exit: 0
    --- stderr ---
    main moves back from [SHORT ID] (day 3) to [SHORT ID] (day 2): undo of "commit: day 3", 2026-11-03 10:00:00 +00:00
    Done; `snap undo --redo` redoes it
    "#);
    insta::assert_snapshot!(env.snap(["undo", "v1"]), @r#"
    exit: 0
    --- stderr ---
    tag v1 is restored at [SHORT ID] (day 3): undo of "tag: deleted", 2026-11-03 10:00:00 +00:00
    Done; `snap undo --redo` redoes it
    "#);
    insta::assert_snapshot!(env.snap(["undo", "HEAD"]), @r"
    exit: 1
    --- stderr ---
    error: nothing to undo of HEAD
    hint: `snap undo` without a name undoes the last change
    ");
    insta::assert_snapshot!(env.snap(["undo", "none"]), @"
    exit: 1
    --- stderr ---
    error: branch or tag `none` does not exist and never did
    hint: `snap branch` lists the branches
    hint: `snap tag` lists the tags
    ");
    insta::assert_snapshot!(env.snap(["undo", "tags/none"]), @r"
    exit: 1
    --- stderr ---
    error: tag `none` does not exist
    hint: `snap tag` lists them
    ");
    insta::assert_snapshot!(env.snap(["undo", "a b"]), @r"
    exit: 2
    --- stderr ---
    error: `a b` is not a valid name of a branch: it contains a space, a control character or one of ~ ^ : ? * [ \
    ");
    env.snap(["tag", "v2"]).succeeds();
    insta::assert_snapshot!(env.snap(["undo", "--redo"]), @r"
    exit: 1
    --- stderr ---
    error: nothing to redo: tag `v2` has changed since the last undo
    hint: name the branch or tag: `snap undo --redo NAME`
    ");
    env.snap(["undo", "--redo", "main"]).succeeds();
}

#[test]
fn json_tells_what_was_done() {
    let env = env();
    insta::assert_snapshot!(env.snap(["--json", "-q", "undo", "-n"]), @r#"
    exit: 0
    --- stdout ---
    {"version":1,"type":"undo","action":"undo","name":"main","kind":"branch","from":"[ID]","to":"[ID]","time":"2026-11-03T10:00:00Z","who":"ann","reason":"commit: day 3","done":false}
    "#);
    env.snap(["undo", "-q"]).succeeds();
    env.snap(["undo", "-q"]).succeeds();
    insta::assert_snapshot!(env.snap(["--json", "-q", "undo"]), @r#"
    exit: 0
    --- stdout ---
    {"version":1,"type":"undo","action":"undo","name":"main","kind":"branch","from":"[ID]","to":null,"time":"2026-11-01T10:00:00Z","who":"ann","reason":"commit: day 1","done":true}
    "#);
    insta::assert_snapshot!(env.snap(["branch", "--log", "main"]), @r"
    exit: 0
    --- stdout ---
    2026-11-03 10:00:00 +00:00 [ID] -> nothing ann on box: undo: commit: day 1
    2026-11-03 10:00:00 +00:00 [ID] -> [ID] ann on box: undo: commit: day 2
    2026-11-03 10:00:00 +00:00 [ID] -> [ID] ann on box: undo: commit: day 3
    2026-11-03 10:00:00 +00:00 [ID] -> [ID] ann: commit: day 3
    2026-11-02 10:00:00 +00:00 [ID] -> [ID] ann: commit: day 2
    2026-11-01 10:00:00 +00:00 nothing -> [ID] ann: commit: day 1
    ");
}

#[test]
fn what_cannot_be_undone_is_said() {
    let env = TestEnv::new();
    env.snap(["init"]).succeeds();
    insta::assert_snapshot!(env.snap(["undo"]), @r"
    exit: 1
    --- stderr ---
    error: nothing to undo
    ");

    let env = self::env();
    let main = env.path(".snap/refs/heads/main");
    let there = fs_err::read_to_string(&main).unwrap();
    let moved = there.replacen(there.lines().next().unwrap(), &"1".repeat(64), 1);
    fs_err::write(&main, moved).unwrap();
    insta::assert_snapshot!(env.snap(["undo"]), @r"
    exit: 4
    --- stderr ---
    error: the log of branch `main` does not record how it got its current value
    hint: `snap branch --force main ID` moves it to a commit
    ");
    fs_err::write(&main, "nonsense\n").unwrap();
    insta::assert_snapshot!(env.snap(["undo"]), @"
    exit: 4
    --- stderr ---
    error: [ROOT]/.snap/refs/heads/main is damaged: it is not a commit id
    hint: `snap branch --force main [SHORT ID]` restores it
    hint: `snap branch --log main` lists its earlier commits
    ");
    // After the repair the branch is at its old commit, and a further undo continues from there.
    env.snap(["branch", "--force", "main", there.lines().next().unwrap()]).succeeds();
    env.snap(["undo"]).succeeds();
    assert!(heads(&env).starts_with("2026-11-02"), "{}", heads(&env));
}

#[test]
fn a_commit_that_is_gone_is_not_gone_back_to() {
    let mut env = TestEnv::new();
    env.write("file", "1");
    env.snap(["commit", "-m", "first"]).succeeds();
    let objects = env.path(".snap/objects");
    let packs = || {
        let packs = fs_err::read_dir(&objects).unwrap().map(|entry| entry.unwrap().path());
        packs.collect::<std::collections::BTreeSet<_>>()
    };
    let first = packs();
    env.set("SNAP_TIME", "2026-11-22T10:00:00Z");
    env.write("file", "2");
    env.snap(["commit", "-m", "second"]).succeeds();
    first.iter().for_each(|pack| fs_err::remove_file(pack).unwrap());
    fs_err::remove_dir_all(env.path(".snap/index")).unwrap();
    insta::assert_snapshot!(env.snap(["undo"]), @r"
    exit: 4
    --- stderr ---
    error: cannot read commit [SHORT ID], the earlier value of branch `main`
      caused by: commit [ID] is not in the store
    hint: `snap branch --force main ID` moves it to a commit
    ");
}

#[test]
fn what_could_not_be_done_is_not_said() {
    let env = env();
    // A folder in place of the lock file cannot be locked.
    fs_err::remove_file(env.path(".snap/lock")).unwrap();
    fs_err::create_dir(env.path(".snap/lock")).unwrap();
    let said = env.snap(["undo"]);
    assert_eq!(said.code, Some(1), "{said}");
    assert!(said.stderr.starts_with("error: "), "{said}");
}

#[test]
fn a_commit_after_the_file_of_the_branch_was_lost_is_taken_back_to_the_one_before() {
    let env = env();
    let tip = env.snap(["log", "--json"]).json()[0]["id"].clone();
    fs_err::remove_file(env.path(".snap/refs/heads/main")).unwrap();
    env.write("file", "after the loss");
    env.snap(["commit", "-m", "day 4"]).succeeds();
    env.snap(["undo"]).succeeds();
    assert_eq!(env.snap(["log", "--json"]).json()[0]["id"], tip);
    env.snap(["undo"]).succeeds();
    let log = env.snap(["log", "--json"]).json();
    assert_eq!((log.len(), &log[0]["message"]), (2, &"day 2".into()));
    // A deleted branch does not count as lost.
    env.snap(["branch", "side"]).succeeds();
    env.snap(["branch", "--delete", "side"]).succeeds();
    env.snap(["branch", "side"]).succeeds();
    env.snap(["undo", "side"]).succeeds();
    assert!(!env.path(".snap/refs/heads/side").exists());
}

#[test]
fn what_was_taken_back_is_in_no_history_of_later_commits() {
    let commits = |env: &TestEnv, branch: &str| {
        env.snap(["log", "--oneline", branch]).succeeds().stdout.lines().count()
    };
    let env = TestEnv::new();
    let commit = |content: &str, more: &[&str]| {
        env.write("file", content);
        env.snap(["commit", "-qm", content].iter().chain(more)).succeeds();
    };
    commit("a key", &[]);
    env.snap(["undo", "-q"]).succeeds();
    commit("one", &[]);
    assert_eq!(commits(&env, "main"), 1);
    commit("another key", &[]);
    env.snap(["undo", "-q"]).succeeds();
    commit("two", &["-b", "side"]);
    assert_eq!(commits(&env, "side"), 2);
    // A redone commit counts again.
    commit("three", &["-b", "other"]);
    env.snap(["undo", "-q"]).succeeds();
    env.snap(["undo", "-q", "--redo"]).succeeds();
    commit("four", &["-b", "last"]);
    assert_eq!(commits(&env, "last"), 4);
}
