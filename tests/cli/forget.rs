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
    `snap gc` frees the space after 2026-12-08 00:00:00 +00:00, `snap gc --now` at once
    Until then, `snap undo` takes this back
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
    Done; `snap undo --redo` redoes it
    "#);
    insta::assert_snapshot!(env.snap(["forget", "--keep-daily", "9"]).succeeds(), @"
    exit: 0
    --- stderr ---
    Nothing to forget; 5 commits stay
    ");
}

#[test]
fn a_redo_forgets_again_until_something_else_changes() {
    let env = with_days();
    let forgotten = || env.snap(["log"]).succeeds().stdout.matches("(forgotten)").count();
    env.snap(["forget", "HEAD~2", "HEAD~3"]).succeeds();
    env.snap(["undo"]).succeeds();
    insta::assert_snapshot!(env.snap(["undo", "--redo", "-n"]).succeeds(), @r#"
    exit: 0
    --- stderr ---
    2 commits forgotten again: redo of "snap forget", 2026-12-01 00:00:00 +00:00
    Dry run: nothing was changed
    "#);
    assert_eq!(forgotten(), 0);
    insta::assert_snapshot!(env.snap(["undo", "--redo"]).succeeds(), @r#"
    exit: 0
    --- stderr ---
    2 commits forgotten again: redo of "snap forget", 2026-12-01 00:00:00 +00:00
    Done; `snap undo` undoes it
    "#);
    assert_eq!(forgotten(), 2);
    insta::assert_snapshot!(env.snap(["undo", "--redo"]), @"
    exit: 1
    --- stderr ---
    error: nothing to redo
    hint: only the last undo can be redone, and only before any other change
    ");
    // A commit that was undone before the forget, and one that was made after it.
    env.snap(["undo"]).succeeds();
    insta::assert_snapshot!(env.snap(["undo", "--redo", "--json"]).succeeds().stdout, @r#"
    {"version":1,"type":"undo","action":"redo","name":"forgotten","kind":"commits","from":null,"to":null,"time":"2026-12-01T00:00:00Z","who":"","reason":"forget: 2 commits","done":true}
    "#);
    env.snap(["undo"]).succeeds();
    env.snap(["undo"]).succeeds();
    env.snap(["undo", "--redo"]).succeeds();
    env.snap(["undo", "--redo"]).succeeds();
    assert_eq!(forgotten(), 2);
    env.snap(["undo"]).succeeds();
    env.snap(["tag", "other"]).succeeds();
    insta::assert_snapshot!(env.snap(["undo", "--redo"]), @"
    exit: 1
    --- stderr ---
    error: cannot redo `snap forget`: tag `other` has changed since the last undo
    hint: run the same `snap forget` again
    ");
    env.snap(["undo"]).succeeds();
    env.snap(["forget", "HEAD~3"]).succeeds();
    insta::assert_snapshot!(env.snap(["undo", "--redo"]), @"
    exit: 1
    --- stderr ---
    error: nothing to redo: `snap forget` has run since the last undo
    hint: name the branch or tag: `snap undo --redo NAME`
    ");
    // An older rewrite that was undone.
    env.snap(["rewrite", "--exclude", "day1"]).succeeds();
    env.snap(["undo"]).succeeds();
    env.snap(["undo"]).succeeds();
    assert_eq!(forgotten(), 0);
    insta::assert_snapshot!(env.snap(["undo", "--redo"]), @r#"
    exit: 0
    --- stderr ---
    1 commit forgotten again: redo of "snap forget", 2026-12-01 00:00:00 +00:00
    Done; `snap undo` undoes it
    "#);
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
    assert_eq!(copied.stdout.matches("(forgotten at origin)").count(), 2, "{}", copied.stdout);
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
        assert_eq!(log.stdout.matches("(forgotten at origin)").count(), 2, "{}", log.stdout);
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
}

/// The commits of a bug report: with minutes instead of months, all but two were forgotten.
#[test]
fn ages_have_the_units_of_restic() {
    let env = TestEnv::new();
    for month in ["01", "03", "05", "07", "09", "11"] {
        env.write("f", month);
        let time = format!("2026-{month}-15T12:00:00Z");
        env.snap(["commit", "--time", &time]).succeeds();
    }
    let dry = |age: &str| {
        let args = ["forget", "-n", "--keep-last", "2", "--keep-within-monthly", age];
        env.snap(args).succeeds().stderr
    };
    assert!(dry("12m").starts_with("Nothing to forget; 6 commits stay"), "{}", dry("12m"));
    assert!(dry("1y").starts_with("Nothing to forget; 6 commits stay"), "{}", dry("1y"));
    assert!(dry("6m").starts_with("Would forget 2 of 6"), "{}", dry("6m"));
    assert!(dry("5m5w").starts_with("Would forget 2 of 6"), "{}", dry("5m5w"));
    assert!(dry("3d12h").starts_with("Would forget 4 of 6"), "{}", dry("3d12h"));
    env.snap(["config", "set", "keep.within", "12m"]).succeeds();
    let all = env.snap(["forget", "-n"]).succeeds().stderr;
    assert!(all.starts_with("Nothing to forget; 6 commits stay"), "{all}");
}

#[test]
fn a_policy_keeps_a_commit_of_the_future_and_its_name_forgets_it() {
    let env = with_days();
    env.write("future", "1");
    env.snap(["commit", "-m", "future", "--time", "2030-01-01T00:00:00Z"]).succeeds();
    env.write("last", "1");
    env.snap(["commit", "-m", "last", "--time", "2026-11-30T08:00:00Z"]).succeeds();
    insta::assert_snapshot!(env.snap(["forget", "--keep-last", "2", "-n"]).succeeds(), @"
    exit: 0
    --- stdout ---
    keep   [ID] 2030-01-01 00:00:00 +00:00 future (dated in the future)
    keep   [ID] 2026-11-30 08:00:00 +00:00 last (tip of main, last)
    keep   [ID] 2026-11-05 08:00:00 +00:00 day 5 (last)
    forget [ID] 2026-11-04 08:00:00 +00:00 day 4 (no rule keeps it)
    forget [ID] 2026-11-03 08:00:00 +00:00 day 3 (no rule keeps it)
    forget [ID] 2026-11-02 08:00:00 +00:00 day 2 (no rule keeps it)
    forget [ID] 2026-11-01 08:00:00 +00:00 day 1 (no rule keeps it)
    --- stderr ---
    Would forget 4 of 7 commits
    Dry run: nothing was changed
    ");
    insta::assert_snapshot!(env.snap(["forget", "HEAD~1"]).succeeds(), @"
    exit: 0
    --- stderr ---
    Forgot 1 of 1 commit
    `snap gc` frees the space after 2026-12-08 00:00:00 +00:00, `snap gc --now` at once
    Until then, `snap undo` takes this back
    ");
    let log = env.snap(["log", "--oneline"]).succeeds().stdout;
    assert!(log.contains("(forgotten)"), "{log}");
}

#[test]
fn a_date_names_the_commit_that_it_means() {
    let env = with_days();
    let url = env.path("origin").display().to_string();
    env.snap(["push", &url]).succeeds();
    let (remote, main) = (format!("{url}#main@2026-11-03"), format!("{url}#main"));
    for args in [
        &["cat", "latest@2026-11-03:day3"][..],
        &["ls", "main@2026-11-03"],
        &["restore", "main@2026-11-03:day3", "out"],
        &["export", "main@2026-11-03", "-o", "out.tar"],
        &["show", "main@2026-11-03"],
        &["diff", "main@2026-11-03", "main"],
        &["log", "main@2026-11-03"],
        &["ls", &remote],
        &["log", &remote],
        &["diff", &remote, &main],
    ] {
        let told = env.snap(args).succeeds().stderr;
        let named = "main@2026-11-03` is commit ";
        assert!(told.replace("latest@", "main@").contains(named), "{args:?}: {told}");
        assert!(told.contains(" of 2026-11-03 08:00:00 +00:00\n"), "{args:?}: {told}");
        assert_eq!(told.matches("is commit").count(), 1, "{args:?}: {told}");
    }
    let quiet = env.snap(["-q", "cat", "main@2026-11-03:day3"]).succeeds();
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("3", ""));
    let own = env.snap(["cat", "main~2:day3"]).succeeds();
    assert_eq!(own.stderr, "");
    insta::assert_snapshot!(env.snap(["ls", "main@2026-11-03T09:00~1"]).succeeds(), @"
    exit: 0
    --- stdout ---
    day1
    day2
    --- stderr ---
    `main@2026-11-03T09:00~1` is commit [SHORT ID] of 2026-11-02 08:00:00 +00:00
    ");
}

#[test]
fn a_date_of_forgotten_commits_says_so() {
    let env = with_days();
    env.snap(["forget", "HEAD~1", "HEAD~2", "HEAD~4"]).succeeds();
    insta::assert_snapshot!(env.snap(["cat", "latest@2026-11-04:day1"]).succeeds(), @"
    exit: 0
    --- stdout ---
    1--- stderr ---
    `latest@2026-11-04` is commit [SHORT ID] of 2026-11-02 08:00:00 +00:00; the newer commit [SHORT ID] of 2026-11-04 08:00:00 +00:00 was forgotten
    ");
    env.snap(["forget", "HEAD~3"]).succeeds();
    insta::assert_snapshot!(env.snap(["cat", "latest@2026-11-04:day1"]), @"
    exit: 1
    --- stderr ---
    error: all commits of `latest@2026-11-04` on or before that date were forgotten; the newest of them is [SHORT ID] of 2026-11-04T08:00:00Z
    hint: `snap log` lists the commits that are left
    hint: until `snap gc` deletes it, `snap restore [SHORT ID] DIR` still restores it
    ");
    insta::assert_snapshot!(env.snap(["cat", "latest@2026-10-31:day1"]), @"
    exit: 1
    --- stderr ---
    error: `latest@2026-10-31` has no commit on or before that date
    hint: `snap log --all` lists the commits
    hint: `snap branch` lists the branches, `snap tag` the tags
    ");
    // A collection changes nothing here: links have the times.
    env.snap(["gc", "--now"]).succeeds();
    let gone = env.snap(["cat", "latest@2026-11-04:day1"]);
    assert!(gone.stderr.contains("were forgotten; the newest of them is "), "{gone}");
}

#[test]
fn one_commit_stays_and_several_stay() {
    let env = TestEnv::new();
    env.write("f", "1");
    env.snap(["commit"]).succeeds();
    let told = |args: &[&str]| env.snap([&["forget", "-n"], args].concat()).succeeds().stderr;
    assert_eq!(told(&["--keep-last", "3"]), "Nothing to forget; 1 commit stays\n");
    env.write("f", "2");
    env.snap(["commit"]).succeeds();
    assert_eq!(told(&["--keep-last", "3"]), "Nothing to forget; 2 commits stay\n");
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
    insta::assert_snapshot!(env.snap(["forget", "--keep-within", "90s"]), @"
    exit: 2
    --- stderr ---
    error: invalid value '90s' for '--keep-within <AGE>': expected an age such as 12h, 30d, 8w, 12m (months) or 1y5m7d; minutes and seconds are too short

    For more information, try '--help'.
    ");
    for text in ["30min", "6mo", "1h30", "-1d", "1y1y", ""] {
        let ran = env.snap(["forget", &format!("--keep-within-daily={text}"), "-n"]);
        assert_eq!(ran.code, Some(2), "{ran}");
    }
    insta::assert_snapshot!(env.snap(["forget", "--keep-last", "2", "--group-by", "x"]), @"
    exit: 2
    --- stderr ---
    error: invalid value 'x' for '--group-by <branch|host|label:KEY>': expected branch, host or label:KEY

    For more information, try '--help'.
    ");
}
