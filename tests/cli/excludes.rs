//! Exclude options other than patterns, and lists of paths.

use crate::env::{Ran, TestEnv};

/// Makes a project with marked folders and names in both cases.
fn env() -> TestEnv {
    let env = TestEnv::new();
    for (path, content) in [
        ("a.txt", "1"),
        ("a.TMP", "2"),
        ("b.tmp", "3"),
        ("marked/.nobackup", ""),
        ("marked/data", "4"),
        ("marked/deep/data", "5"),
        ("tagged/TAG", "no backup, please"),
        ("tagged/data", "6"),
        ("other/TAG", "backup"),
        ("other/data", "7"),
    ] {
        env.write(path, content);
    }
    env
}

/// Returns the paths of the files in the last commit.
fn files(env: &TestEnv) -> Vec<String> {
    let listed = env.snap(["ls", "-R"]).succeeds().stdout;
    listed.lines().filter(|line| !line.ends_with('/')).map(str::to_owned).collect()
}

const OPTIONS: [&str; 6] = [
    "--iexclude",
    "*.tmp",
    "--exclude-if-present",
    ".nobackup",
    "--exclude-if-present",
    "TAG:no backup",
];

const KEPT: [&str; 5] = ["a.txt", "marked/.nobackup", "other/TAG", "other/data", "tagged/TAG"];

#[test]
fn marked_folders_keep_only_their_marker_and_case_is_ignored_on_request() {
    let env = env();
    env.snap([&["commit", "-q"], &OPTIONS[..]].concat()).succeeds();
    assert_eq!(files(&env), KEPT);
    let shown = env.snap(["show"]).succeeds().stdout;
    let rules = "Left out: *.tmp in any case, folders with .nobackup, folders with TAG:no backup";
    assert!(shown.contains(rules), "{shown}");
    let rules = &env.snap(["--json", "show"]).json()[0]["selection"]["rules"][0];
    assert_eq!(rules["ignore_case_patterns"], serde_json::json!(["*.tmp"]));
    assert_eq!(rules["markers"][1]["name"]["path"], "TAG");
    assert_eq!(rules["markers"][1]["header"], "no backup");
    // A comparison with the same options finds no change; without them, it finds added files.
    let added = |args: &[&str]| {
        let status = env.snap([&["status", "-s", "--all"], args].concat()).succeeds();
        status.stdout.lines().filter(|line| !line.ends_with('/')).count()
    };
    assert_eq!((added(&OPTIONS), added(&[])), (0, 5));
    let ran = env.snap(["commit", "--exclude-if-present", "a/b"]);
    assert_eq!(ran.code, Some(2), "{ran}");
    assert!(ran.stderr.contains("expected the name of a file"), "{ran}");
}

#[test]
fn settings_and_profiles_exclude_in_the_same_way() {
    let env = env();
    env.snap(["init"]).succeeds();
    for (key, value) in [
        ("commit.iexclude", "['*.tmp']"),
        ("commit.exclude_if_present", "['.nobackup']"),
        ("profile.all.exclude_if_present", "['TAG:no backup']"),
    ] {
        env.snap(["config", "set", key, value]).succeeds();
    }
    env.snap(["config", "trust"]).succeeds();
    env.snap(["commit", "-q"]).succeeds();
    assert!(files(&env).contains(&"tagged/data".to_owned()));
    assert_eq!(files(&env).len(), KEPT.len() + 1);
    env.snap(["commit", "-q", "--profile", "all"]).succeeds();
    assert_eq!(files(&env), KEPT);
    env.snap(["config", "set", "commit.exclude_if_present", "['a/b']"]).succeeds();
    insta::assert_snapshot!(env.snap(["commit"]), @r"
    exit: 2
    --- stderr ---
    error: exclude_if_present: `a/b` does not start with the name of a file
    ");
}

#[test]
fn a_restore_that_deletes_keeps_what_the_commit_excluded() {
    let env = env();
    env.snap([&["commit", "-q"], &OPTIONS[..]].concat()).succeeds();
    env.write("extra", "8");
    env.write("other/extra", "9");
    // The marker of the snapshot counts, even if the folder has none now.
    fs_err::remove_file(env.path("marked/.nobackup")).unwrap();
    env.snap(["restore", "latest", "--overwrite", "--delete", "--yes"]).succeeds();
    for path in ["a.TMP", "b.tmp", "marked/data", "marked/deep/data", "tagged/data"] {
        assert!(env.path(path).exists(), "{path}");
    }
    assert!(!env.path("extra").exists() && !env.path("other/extra").exists());
    let all = ["restore", "latest", "--overwrite", "--delete", "--delete-excluded", "--yes"];
    env.snap(all).succeeds();
    assert!(!env.path("marked/data").exists() && !env.path("b.tmp").exists());
    assert!(env.path("marked/.nobackup").exists());
}

#[test]
fn paths_come_from_lists() {
    let env = env();
    env.snap(["commit", "-q", "a.txt"]).succeeds();
    env.write("list", "# a comment\n\nother\r\nb.tmp\n");
    env.write("raw", "# no comment\0a.TMP\0");
    env.write("# no comment", "10");
    env.snap(["commit", "-q", "--files-from", "list", "--files-from-raw", "raw"]).succeeds();
    let committed = ["# no comment", "a.TMP", "a.txt", "b.tmp", "other/TAG", "other/data"];
    assert_eq!(files(&env), committed);

    let said = |ran: Ran, code, text: &str| {
        assert!(ran.code == Some(code) && ran.stderr.contains(text), "{ran}");
    };
    // An empty list does not select the whole project.
    env.write("list", "# nothing\n");
    said(env.snap(["commit", "--files-from", "list"]), 2, "list contains no path");
    said(env.snap(["commit", "--files-from", "missing"]), 1, "missing");
    said(env.snap(["commit", "--stdin", "x", "--files-from", "list"]), 2, "--files-from");

    env.write("other/data", "changed");
    env.write("a.txt", "changed");
    env.write("list", "other\n");
    let status = env.snap(["status", "-s", "--files-from", "list"]).succeeds().stdout;
    assert_eq!(status, "M other/data\n");
    let diff = env.snap(["diff", "--name-only", "--files-from", "list"]).succeeds().stdout;
    assert_eq!(diff, "other/data\n");
    env.snap(["archive", "-q", "--files-from", "list", "-o", "x.snap"]).succeeds();
    let listed = env.snap(["ls", "-R", "x.snap"]).succeeds().stdout;
    assert_eq!(listed, "TAG\ndata\n");
}

#[test]
fn a_list_comes_from_stdin() {
    let env = env();
    env.snap(["commit", "-q", "a.txt"]).succeeds();
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, b"b.tmp\0other\0").unwrap();
    drop(writer);
    let mut command = env.command("");
    command.args(["commit", "-q", "--files-from-raw", "-"]).stdin(reader);
    assert!(command.output().unwrap().status.success());
    assert_eq!(files(&env), ["a.txt", "b.tmp", "other/TAG", "other/data"]);
}
