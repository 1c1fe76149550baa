//! `snap log` and `snap show`.

use crate::env::TestEnv;

/// Makes three commits, a day apart.
fn env() -> TestEnv {
    let mut env = TestEnv::new();
    for day in 1..=3 {
        env.set("SNAP_TIME", &format!("2026-11-0{day}T10:00:00Z"));
        env.write("file", "x".repeat(day));
        env.snap(["commit", "-m", &format!("day {day}\nmore of it"), "--label", "ci=7"]).succeeds();
    }
    env
}

#[test]
fn a_range_lists_the_commits_that_only_its_end_has() {
    let mut env = env();
    env.snap(["branch", "side", "HEAD~1"]).succeeds();
    env.set("SNAP_TIME", "2026-11-01T00:00:00Z");
    env.write("file", "side");
    env.snap(["commit", "-m", "on the side", "-b", "side", "--onto-tip"]).succeeds();
    let list = |args: &[&str]| {
        let lines = env.snap(["--json", "log"].iter().chain(args)).succeeds().json();
        let subject = |line: &serde_json::Value| {
            line["message"].as_str().unwrap().lines().next().unwrap().to_owned()
        };
        lines.iter().map(subject).collect::<Vec<_>>()
    };
    assert_eq!(list(&["side..main"]), ["day 3"]);
    assert_eq!(list(&["side.."]), ["day 3"]);
    assert_eq!(list(&["..side"]), ["on the side"]);
    assert_eq!(list(&["main~2..main"]), ["day 3", "day 2"]);
    assert_eq!(list(&["main..main"]), [""; 0]);
    assert_eq!(list(&["main~2..main", "--", "file"]), ["day 3", "day 2"]);
    assert_eq!(list(&["main~2..main", "--first-parent", "-n", "1"]), ["day 3"]);
    env.snap(["remote", "add", "b", env.path("b").to_str().unwrap()]).succeeds();
    env.snap(["push", "b", "main", "side"]).succeeds();
    assert_eq!(list(&["b#side..main"]), ["day 3"]);
    let all = env.snap(["log", "side..main", "--all"]);
    assert_eq!(all.code, Some(2), "{all}");
    assert_eq!(env.snap(["log", "side...main"]).code, Some(2));
    assert_eq!(env.snap(["log", "side..nothing"]).code, Some(1));
}

#[test]
fn commits_are_listed_newest_first() {
    let env = env();
    env.snap(["tag", "v1", "HEAD~2"]).succeeds();
    insta::assert_snapshot!(env.snap(["log"]), @r"
    exit: 0
    --- stdout ---
    commit [ID] (HEAD -> main)
    Author:  ann on box
    Date:    2026-11-03 10:00:00 +00:00
    Content: 1 file, 3 B
    Label:   ci=7

        day 3
        more of it

    commit [ID]
    Author:  ann on box
    Date:    2026-11-02 10:00:00 +00:00
    Content: 1 file, 2 B
    Label:   ci=7

        day 2
        more of it

    commit [ID] (tag: v1)
    Author:  ann on box
    Date:    2026-11-01 10:00:00 +00:00
    Content: 1 file, 1 B
    Label:   ci=7

        day 1
        more of it
    ");
    insta::assert_snapshot!(env.snap(["log", "--oneline", "-n", "2"]), @r"
    exit: 0
    --- stdout ---
    [ID] 2026-11-03 10:00:00 +00:00 (HEAD -> main) day 3
    [ID] 2026-11-02 10:00:00 +00:00 day 2
    ");
    insta::assert_snapshot!(env.snap(["log", "--oneline", "v1"]), @r"
    exit: 0
    --- stdout ---
    [ID] 2026-11-01 10:00:00 +00:00 (tag: v1) day 1
    ");
    insta::assert_snapshot!(env.snap(["log", "--oneline", "--until", "2026-11-02", "--since", "2026-11-01T12:00"]), @r"
    exit: 0
    --- stdout ---
    [ID] 2026-11-02 10:00:00 +00:00 day 2
    ");
}

#[test]
fn revisions_name_commits_by_date_and_distance() {
    let env = env();
    for (rev, size) in [
        ("latest", 3),
        ("HEAD~1", 2),
        ("latest~2", 1),
        ("latest@2026-11-02", 2),
        ("latest@2026-11-02T09:59", 1),
        ("main@2026-11-03T10:00:00Z", 3),
    ] {
        let content = env.snap(["cat", &format!("{rev}:file")]).succeeds().stdout;
        assert_eq!(content.len(), size, "{rev}");
    }
}

#[test]
fn what_names_no_commit_is_told_with_what_is_close() {
    let env = env();
    insta::assert_snapshot!(env.snap(["log", "mian"]), @r"
    exit: 1
    --- stderr ---
    error: `mian` is not a commit, branch or tag
    hint: did you mean `main`?
    ");
    insta::assert_snapshot!(env.snap(["log", "lastest"]), @"
    exit: 1
    --- stderr ---
    error: `lastest` is not a commit, branch or tag
    hint: did you mean `latest`?
    ");
    insta::assert_snapshot!(env.snap(["log", "HEAD~5"]), @r"
    exit: 1
    --- stderr ---
    error: commit [SHORT ID] has no parent 1
    hint: it is the first commit
    ");
    insta::assert_snapshot!(env.snap(["log", "latest@2020-01-01"]), @"
    exit: 1
    --- stderr ---
    error: `latest@2020-01-01` has no commit on or before that date
    hint: `snap log --all` lists the commits
    hint: `snap branch` lists the branches, `snap tag` the tags
    ");
    for (typed, hint) in [
        ("src", "hint: a path follows a revision, as in `HEAD:PATH`"),
        ("main..other", "hint: `snap diff OLD NEW` compares two commits"),
        ("@2026-11-01", "hint: `latest@DATE` is the newest commit"),
    ] {
        env.write("src/file", "");
        let refused = env.snap(["show", typed]);
        assert_eq!((refused.code, refused.stderr.contains(hint)), (Some(1), true), "{refused}");
    }
    insta::assert_snapshot!(env.snap(["log", "latest@soon"]), @r"
    exit: 2
    --- stderr ---
    error: `soon` is not a date
    hint: a date looks like 2026-11-01, 2026-11-01T10:00 or yesterday
    ");
    insta::assert_snapshot!(env.snap(["log", "--since", "soon"]), @r"
    exit: 2
    --- stderr ---
    error: `soon` is not a date
    hint: a date looks like 2026-11-01, 2026-11-01T10:00 or yesterday
    ");
    insta::assert_snapshot!(env.snap(["log", "-n", "0"]), @r"
    exit: 2
    --- stderr ---
    error: invalid value '0' for '--max-count <NUMBER>': expected a number of 1 or more

    For more information, try '--help'.
    ");
}

#[test]
fn an_ambiguous_id_lists_its_candidates() {
    let mut env = TestEnv::in_memory();
    env.write("file", "x");
    let mut seen = std::collections::HashMap::new();
    let mut twins = None;
    // After about 300 commits, two ids share their first four digits.
    for second in 0..3000 {
        env.set(
            "SNAP_TIME",
            &format!("2026-11-01T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60),
        );
        let id = env.snap(["commit", "--reproducible", "--allow-empty", "-m", "again"]).succeeds();
        let prefix = id.line()[..4].to_owned();
        if seen.insert(prefix.clone(), second).is_some() {
            twins = Some(prefix);
            break;
        }
    }
    let error = env.snap(["show", &twins.unwrap()]);
    assert_eq!(error.code, Some(1));
    assert!(error.stderr.contains("is ambiguous\nhint: give more digits\n  "));
    assert_eq!(error.stderr.matches("again").count(), 2, "{}", error.stderr);
}

#[test]
fn a_commit_is_shown_whole() {
    let env = env();
    insta::assert_snapshot!(env.snap(["show", "latest~1"]), @r"
    exit: 0
    --- stdout ---
    commit [ID]
    Author:  ann on box
    Date:    2026-11-02 10:00:00 +00:00
    Content: 1 file, 2 B
    Label:   ci=7

        day 2
        more of it

    Tree:    [ID]
    Parent:  [ID]
    Folders: 0
    Others:  0
    ");
    let shown = env.snap(["show", "--json"]).succeeds();
    assert_eq!(shown.json(), env.snap(["log", "-n1", "--json"]).succeeds().json());
}

#[test]
fn a_commit_is_shown_with_the_rules_that_left_paths_out() {
    let env = TestEnv::new();
    env.write("a", "1");
    let args = ["commit", "-e", "*.o", "-e", "!b.o", "--exclude-caches", "--gitignore"];
    env.snap(args).succeeds();
    let shown = env.snap(["show"]).succeeds().stdout;
    assert!(shown.ends_with("\nLeft out: *.o, !b.o, .gitignore files, cache folders\n"), "{shown}");
    let rules = &env.snap(["log", "--json"]).succeeds().json()[0]["selection"]["rules"];
    assert_eq!(rules[0]["patterns"], serde_json::json!(["*.o", "!b.o"]));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let env = env();
    let mut log = env.command("").arg("log").stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(log.stdout.take());
    assert!(log.wait().unwrap().success());
}

#[test]
fn a_date_means_the_whole_day() {
    let env = env();
    let days = |args: &[&str]| {
        let log = env.snap([&["log", "--json"], args].concat()).succeeds().json();
        log.iter()
            .map(|commit| commit["time"].as_str().unwrap()[8..10].to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(days(&["--since", "2026-11-02"]), ["03", "02"]);
    assert_eq!(days(&["--until", "2026-11-02"]), ["02", "01"]);
    assert_eq!(days(&["--since", "2026-11-02", "--until", "2026-11-02"]), ["02"]);
    assert_eq!(days(&["--since", "today"]), ["03"]);
    assert_eq!(days(&["--until", "yesterday"]), ["02", "01"]);
}

#[test]
fn commits_after_one_that_is_lost_are_all_listed() {
    let env = TestEnv::new();
    let packs = || -> Vec<_> {
        let files = fs_err::read_dir(env.path(".snap/objects")).unwrap();
        files.map(|file| file.unwrap().path()).collect()
    };
    env.write("file", "1");
    env.snap(["commit", "-m", "one"]).succeeds();
    let first = packs();
    for message in ["two", "three", "four"] {
        env.write("file", message);
        env.snap(["commit", "-m", message]).succeeds();
    }
    first.iter().for_each(|pack| fs_err::remove_file(pack).unwrap());
    let ran = env.snap(["log", "--oneline"]);
    assert_eq!(ran.code, Some(4), "{ran}");
    let messages: Vec<_> =
        ran.stdout.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(messages, ["four", "three", "two"], "{ran}");
    assert!(ran.stderr.contains("is not in the store"), "{ran}");
    // A push reports the same error as the log.
    let pushed = env.snap(["push", "./elsewhere"]);
    assert_eq!(pushed.code, Some(4), "{pushed}");
    assert_eq!(pushed.stderr, ran.stderr, "{pushed}");
}

/// Makes commits of different authors, machines and labels. Returns their messages, newest first,
/// as `snap log` with `args` lists them.
fn messages(env: &TestEnv, args: &[&str]) -> Vec<String> {
    let log = env.snap([&["--json", "log"], args].concat()).succeeds().json();
    log.iter().map(|commit| commit["message"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn filters_select_commits_that_meet_all_of_them() {
    let env = TestEnv::new();
    for (message, author, host, label, file) in [
        ("first", "Ann Lee", "web1", "ci=1", "a"),
        ("second", "Bob", "web10", "ci=2", "b"),
        ("upgrade\n\nof second", "Ann Lee", "web10", "trip=1", "a"),
    ] {
        env.write(file, message);
        let commit = ["commit", "-qm", message, "--author", author, "--host", host];
        env.snap([&commit[..], &["--label", label]].concat()).succeeds();
    }
    let all = ["upgrade\n\nof second", "second", "first"];
    assert_eq!(messages(&env, &[]), all);
    assert_eq!(messages(&env, &["--author", "Ann"]), [all[0], all[2]]);
    assert_eq!(messages(&env, &["--author", "ann"]), [""; 0]);
    assert_eq!(messages(&env, &["--grep", "second"]), [all[0], all[1]]);
    assert_eq!(messages(&env, &["--host", "web1"]), [all[2]]);
    assert_eq!(messages(&env, &["--label", "ci"]), [all[1], all[2]]);
    assert_eq!(messages(&env, &["--label", "ci=2"]), [all[1]]);
    assert_eq!(messages(&env, &["--label", "ci", "--label", "trip"]), [""; 0]);
    assert_eq!(messages(&env, &["--author", "Ann", "--host", "web10"]), [all[0]]);
    // The limit counts the selected commits, and a path only adds a condition.
    assert_eq!(messages(&env, &["--label", "ci", "-n", "1"]), [all[1]]);
    assert_eq!(messages(&env, &["--label", "ci", "--", "a"]), [all[2]]);
    assert_eq!(messages(&env, &["--author", "Ann", "-n", "1", "--", "a"]), [all[0]]);
    assert_eq!(messages(&env, &["-2", "--reverse"]), [all[1], all[0]]);
    assert_eq!(messages(&env, &["--reverse", "--", "a"]), [all[2], all[0]]);
    assert_eq!(env.snap(["log", "--label", "=x"]).code, Some(2));
}

#[test]
fn a_patch_shows_what_a_commit_changed() {
    let env = TestEnv::new();
    for (file, content) in [("a", "1\n"), ("b", "2\n"), ("a", "3\n")] {
        env.write(file, content);
        env.snap(["commit", "-qm", &format!("{file} is {}", content.trim())]).succeeds();
    }
    insta::assert_snapshot!(env.snap(["log", "-p", "--oneline", "-n", "2"]), @r"
    exit: 0
    --- stdout ---
    [ID] 2026-11-21 08:00:00 +00:00 (HEAD -> main) a is 3
    diff --git a/a b/a
    index [SHORT ID]..[SHORT ID] 100644
    --- a/a
    +++ b/a
    @@ -1 +1 @@
    -1
    +3
    [ID] 2026-11-21 08:00:00 +00:00 b is 2
    diff --git a/b b/b
    new file mode 100644
    index [SHORT ID]..[SHORT ID]
    --- /dev/null
    +++ b/b
    @@ -0,0 +1 @@
    +2
    ");
    let patch = env.snap(["diff", "HEAD~1", "HEAD"]).succeeds().stdout;
    let shown = env.snap(["show", "-p"]).succeeds().stdout;
    assert!(shown.ends_with(&format!("\n\n{patch}")), "{shown}");
    // The first commit has no parent.
    let shown = env.snap(["show", "-p", "HEAD~2"]).succeeds().stdout;
    assert!(shown.contains("--- /dev/null\n+++ b/a\n"), "{shown}");
    insta::assert_snapshot!(env.snap(["show", "-p", "HEAD:a"]), @r"
    exit: 2
    --- stderr ---
    error: --patch needs a commit, not a path in it
    ");
}

#[test]
fn a_patch_of_paths_has_only_these_under_their_names_of_the_time() {
    let env = TestEnv::new();
    env.write("old", "one\n");
    env.write("other", "1");
    env.snap(["commit", "-q"]).succeeds();
    fs_err::rename(env.path("old"), env.path("new")).unwrap();
    env.write("other", "2");
    env.snap(["commit", "-q"]).succeeds();
    env.write("new", "two\n");
    env.write("other", "3");
    env.snap(["commit", "-q"]).succeeds();
    let log = env.snap(["log", "-p", "--oneline", "--follow", "--", "new"]).succeeds().stdout;
    let lines: Vec<_> = log.lines().filter(|line| line.starts_with("diff ")).collect();
    let expected = ["diff --git a/new b/new", "diff --git a/old b/new", "diff --git a/old b/old"];
    assert_eq!(lines, expected, "{log}");
    assert!(log.contains("rename from old\nrename to new\n"), "{log}");
}
