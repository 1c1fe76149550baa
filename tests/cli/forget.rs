//! `snap forget`.

use crate::env::TestEnv;

/// A project with a commit on each of five days.
fn with_days() -> TestEnv {
    let mut env = TestEnv::new();
    for day in 1..=5 {
        env.write(&format!("day{day}"), format!("{day}"));
        let time = format!("2026-11-{day:02}T08:00:00Z");
        env.snap(["commit", "-m", &format!("day {day}"), "--time", &time]).succeeds();
    }
    env.set("SNAP_TIME", "2026-12-01T00:00:00Z");
    env
}

#[test]
fn a_policy_explains_itself_and_an_undo_takes_it_back() {
    let env = with_days();
    insta::assert_snapshot!(env.snap(["forget", "--keep-daily", "2", "-n"]).succeeds(), @"
    exit: 0
    --- stdout ---
    keep   [ID] 2026-11-05 08:00:00 +00:00 day 5 (tip of main, daily)
    keep   [ID] 2026-11-04 08:00:00 +00:00 day 4 (daily)
    forget [ID] 2026-11-03 08:00:00 +00:00 day 3 (no rule keeps it)
    forget [ID] 2026-11-02 08:00:00 +00:00 day 2 (no rule keeps it)
    forget [ID] 2026-11-01 08:00:00 +00:00 day 1 (no rule keeps it)
    --- stderr ---
    Would forget 3 of 5 commits
    Dry run: nothing was changed
    ");
    insta::assert_snapshot!(env.snap(["forget", "--keep-daily", "2"]).succeeds(), @"
    exit: 0
    --- stderr ---
    Forgot 3 of 5 commits
    `snap gc` frees the space; until then, `snap undo` takes this back
    ");
    insta::assert_snapshot!(env.snap(["log", "--oneline"]).succeeds(), @"
    exit: 0
    --- stdout ---
    [ID] 2026-11-05 08:00:00 +00:00 (HEAD -> main) day 5
    [ID] 2026-11-04 08:00:00 +00:00 day 4
    [ID] 2026-11-03 08:00:00 +00:00 (forgotten) day 3
    [ID] 2026-11-02 08:00:00 +00:00 (forgotten) day 2
    [ID] 2026-11-01 08:00:00 +00:00 (forgotten) day 1
    ");
    insta::assert_snapshot!(env.snap(["forget", "--keep-daily", "2"]).succeeds(), @"
    exit: 0
    --- stderr ---
    Nothing to forget; 2 commits stay
    ");
    insta::assert_snapshot!(env.snap(["undo", "-n"]).succeeds(), @r#"
    exit: 0
    --- stderr ---
    3 commits brought back: undo of "snap forget", 2026-12-01 00:00:00 +00:00
    Dry run: nothing was changed
    "#);
    insta::assert_snapshot!(env.snap(["undo"]).succeeds(), @r#"
    exit: 0
    --- stderr ---
    3 commits brought back: undo of "snap forget", 2026-12-01 00:00:00 +00:00
    "#);
    insta::assert_snapshot!(env.snap(["forget", "--keep-daily", "9"]).succeeds(), @"
    exit: 0
    --- stderr ---
    Nothing to forget; 5 commits stay
    ");
}

#[test]
fn what_a_collection_deleted_is_an_error_that_names_the_commit() {
    let env = with_days();
    env.snap(["forget", "HEAD~2", "HEAD~3"]).succeeds();
    env.snap(["gc", "--now"]).succeeds();
    insta::assert_snapshot!(env.snap(["restore", "HEAD~2", "out"]), @"
    exit: 1
    --- stderr ---
    error: commit [SHORT ID] was forgotten, and garbage collection has deleted it
    hint: `snap log` lists the commits that are left
    hint: a remote may still have it: `snap restore REMOTE#[SHORT ID] DIR`
    ");
    insta::assert_snapshot!(env.snap(["undo"]), @"
    exit: 1
    --- stderr ---
    error: cannot undo the last `snap forget`: `snap gc` has deleted commit [SHORT ID]
    hint: a copy elsewhere may still have it
    hint: `snap undo BRANCH` undoes the last change of one branch
    ");
    // The changes are those since the nearest commit that is left.
    let shown = env.snap(["show", "--patch", "HEAD~1"]).succeeds();
    assert_eq!(shown.stdout.matches("+++ b/day").count(), 3, "{}", shown.stdout);
    let found = env.snap(["log", "--json"]).succeeds();
    assert_eq!(found.stdout.matches(r#""forgotten":true"#).count(), 2);
    let id = found.stdout.lines().nth(2).unwrap().split('"').nth(9).unwrap().to_owned();
    // A prefix of the id of a deleted commit still names it.
    let shown = env.snap(["show", &id[..8]]);
    assert_eq!(shown.code, Some(1));
    assert!(shown.stderr.contains("was forgotten"), "{}", shown.stderr);
    let verified = env.snap(["verify", "--data"]).succeeds();
    assert!(verified.stderr.contains("; 2 forgotten, not checked\n"), "{verified}");
    let stats = env.snap(["stats"]).succeeds();
    assert!(stats.stdout.contains("3 snapshots, ") && stats.stdout.contains("; 2 forgotten\n"));
    assert!(stats.stdout.contains(", 0 chunk lists, 2 links\n"), "{stats}");
    env.write("more", "more");
    env.snap(["commit", "-m", "more"]).succeeds();
    env.snap(["undo"]).succeeds();
    // History goes elsewhere with its links.
    env.snap(["clone", ".", "copy"]).succeeds();
    let copied = env.snap(["--store", "copy/.snap", "log", "--oneline"]).succeeds();
    assert_eq!(copied.stdout.matches("(forgotten)").count(), 2, "{}", copied.stdout);
    env.snap(["--store", "copy/.snap", "verify", "--data"]).succeeds();
    env.snap(["pack", "HEAD", "-o", "all.snap"]).succeeds();
    env.snap(["--store", "third", "init"]).succeeds();
    env.snap(["--store", "third", "unpack", "all.snap"]).succeeds();
    let unpacked = env.snap(["--store", "third", "log", "--oneline"]).succeeds();
    assert_eq!(unpacked.stdout.matches("(forgotten)").count(), 2, "{}", unpacked.stdout);
}

#[test]
fn a_push_sends_links_and_no_deleted_commit() {
    let env = with_days();
    env.snap(["forget", "HEAD~2", "HEAD~3"]).succeeds();
    for state in ["kept", "deleted"] {
        let url = format!("file://{}", env.path(state).display());
        env.snap(["push", &url, "--all"]).succeeds();
        env.snap(["clone", &url, &format!("{state}-clone")]).succeeds();
        let store = format!("{state}-clone/.snap");
        let log = env.snap(["--store", &store, "log", "--oneline"]).succeeds();
        assert_eq!(log.stdout.lines().count(), 5);
        assert_eq!(log.stdout.matches("(forgotten)").count(), 2, "{}", log.stdout);
        env.snap(["--store", &store, "verify", "--data"]).succeeds();
        env.snap(["verify", &url]).succeeds();
        env.snap(["gc", "--now"]).succeeds();
    }
    // A remote whose branch is at a commit that was deleted here still takes a fast-forward, and no
    // links of commits that it has.
    env.snap(["remote", "add", "origin", &format!("file://{}", env.path("tip").display())])
        .succeeds();
    env.snap(["push", "origin", "--all"]).succeeds();
    env.write("next", "next");
    env.snap(["commit", "-m", "next"]).succeeds();
    env.snap(["forget", "HEAD~1"]).succeeds();
    env.snap(["gc", "--now"]).succeeds();
    env.snap(["push", "origin", "--all"]).succeeds();
    env.snap(["verify", "origin", "--data"]).succeeds();
    let url = format!("file://{}", env.path("kept").display());
    env.write("more", "more");
    env.snap(["commit", "-m", "more"]).succeeds();
    env.snap(["push", &url, "--all"]).succeeds();
    env.snap(["verify", &url]).succeeds();
}

#[test]
fn settings_are_the_policy_without_options() {
    let env = with_days();
    env.snap(["config", "set", "keep.daily", "2"]).succeeds();
    env.snap(["config", "set", "keep.within_weekly", "30d"]).succeeds();
    env.snap(["config", "set", "keep.label", r#"["release"]"#]).succeeds();
    let dry = env.snap(["forget", "-n"]).succeeds();
    assert!(dry.stdout.contains("(tip of main, daily, within weekly)"), "{}", dry.stdout);
    assert_eq!(dry.stdout.matches("forget").count(), 2, "{}", dry.stdout);
    // Options replace the settings.
    let dry = env.snap(["forget", "-n", "--keep-last", "4"]).succeeds();
    assert_eq!(dry.stdout.matches("forget").count(), 1, "{}", dry.stdout);
    env.snap(["config", "set", "keep.under", "much"]).succeeds();
    insta::assert_snapshot!(env.snap(["forget", "-n"]), @"
    exit: 2
    --- stderr ---
    error: [ROOT]/.snap/config.toml:43: `keep.under` is much, but must be a size such as 500GB
    hint: correct that line of the file
    hint: or remove the file; `snap repair` then recreates it with default settings
    ");
}

#[test]
fn wrong_policies_and_names_are_refused() {
    let env = with_days();
    env.snap(["tag", "v1", "HEAD~1"]).succeeds();
    insta::assert_snapshot!(env.snap(["forget"]), @"
    exit: 2
    --- stderr ---
    error: no policy says which commits to keep
    hint: add a rule, for example `snap forget --keep-daily 30 -n`
    hint: or name a commit: `snap forget REV`
    ");
    insta::assert_snapshot!(env.snap(["forget", "--keep-last", "0"]), @"
    exit: 2
    --- stderr ---
    error: this policy keeps only the last commit of each branch
    hint: add a rule such as --keep-daily 30, or pass --allow-none
    ");
    env.snap(["forget", "--keep-last", "0", "--allow-none", "-n"]).succeeds();
    insta::assert_snapshot!(env.snap(["forget", "main"]), @"
    exit: 2
    --- stderr ---
    error: cannot forget commit [SHORT ID]: tip of main
    hint: to apply a policy to the branch, add a rule such as `snap forget main --keep-daily 30`
    ");
    insta::assert_snapshot!(env.snap(["forget", "v1"]), @"
    exit: 2
    --- stderr ---
    error: cannot forget commit [SHORT ID]: tag v1
    hint: `snap tag -d v1` deletes the tag
    ");
    let ran = env.snap(["forget", "HEAD~2", "--group-by", "host"]);
    assert_eq!(ran.code, Some(2), "{ran}");
    insta::assert_snapshot!(env.snap(["forget", "nothing", "--keep-last", "3"]), @"
    exit: 1
    --- stderr ---
    error: there is no branch `nothing`
    hint: `snap branch` lists the branches
    ");
    insta::assert_snapshot!(env.snap(["forget", "s3://bucket/x#main", "--keep-last", "3"]), @"
    exit: 2
    --- stderr ---
    error: `s3://bucket/x#main` is a remote, and snap cannot forget commits of a remote yet
    hint: run `snap forget` in a clone of the remote
    ");
    insta::assert_snapshot!(env.snap(["forget", "--keep-last", "3", "--by", "received"]), @"
    exit: 2
    --- stderr ---
    error: no server records yet when it received a commit
    hint: leave out --by; rules then use the times of the commits
    ");
    insta::assert_snapshot!(env.snap(["forget", "--keep-within", "1y"]), @"
    exit: 2
    --- stderr ---
    error: invalid value '1y' for '--keep-within <AGE>': expected a time such as 90s, 10m, 1h30m, 30d or 2w

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(env.snap(["forget", "--keep-last", "2", "--group-by", "x"]), @"
    exit: 2
    --- stderr ---
    error: invalid value 'x' for '--group-by <branch|host|label:KEY>': expected branch, host or label:KEY

    For more information, try '--help'.
    ");
}
