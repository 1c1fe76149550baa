//! Exit codes, and the codes of errors in `--json`.

use std::{
    net::TcpListener,
    os::unix::{fs::chown, process::CommandExt},
};

use snap_testkit::skip::needs_root;

use crate::{
    env::{Ran, TestEnv},
    restore::NOBODY,
};

/// Returns the record of the error.
fn error_of(ran: &Ran) -> serde_json::Value {
    let records = ran.stderr.lines().filter_map(|line| serde_json::from_str(line).ok());
    let mut errors = records.filter(|record: &serde_json::Value| record["type"] == "error");
    errors.next_back().unwrap_or_else(|| panic!("no error: {ran}"))
}

#[test]
fn errors_have_a_code_that_says_whether_to_retry() {
    let env = TestEnv::new();
    env.write("work/a", "a");
    env.snap_in("work", ["commit"]).succeeds();
    // A port on which nothing listens.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = format!("http://{}/p", listener.local_addr().unwrap());
    drop(listener);
    let folder = env.path("nothing").display().to_string();
    for (dir, args, code, exit) in [
        ("work", &["cat", "HEAD:b"][..], "not-found", 1),
        ("work", &["log", "nothing"], "not-found", 1),
        ("", &["log"], "no-store", 1),
        ("work", &["ls", &format!("file://{folder}#main")], "no-store", 1),
        ("work", &["push", &closed], "unreachable", 1),
        ("work", &["log", "--nonsense"], "usage", 2),
        ("work", &["log", "--all", "HEAD"], "usage", 2),
        ("work", &["config", "set", "jobs", "0"], "invalid", 2),
        ("work", &["branch", "main", "HEAD"], "exists", 1),
        (
            "work",
            &["commit", "--stdin", "x", "--stdin-from-command", "--", "false"],
            "command-failed",
            1,
        ),
    ] {
        let ran = env.snap_in(dir, [&["--json"], args].concat());
        let error = error_of(&ran);
        assert_eq!((error["code"].as_str(), ran.code), (Some(code), Some(exit)), "{args:?}: {ran}");
        assert_eq!(error["retry"], code == "unreachable", "{args:?}: {ran}");
    }
}

#[test]
fn the_schema_has_the_codes_of_the_documentation() {
    let page = include_str!("../../docs/cli.md");
    let (_, list) = page.split_once("\n## Error codes\n").unwrap();
    let (list, _) = list.split_once("\n## ").unwrap();
    let listed: Vec<&str> =
        list.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../docs/schema/error.json")).unwrap();
    let codes = schema["properties"]["code"]["enum"].as_array().unwrap();
    let mut codes: Vec<&str> = codes.iter().map(|code| code.as_str().unwrap()).collect();
    codes.sort_by_key(|code| code.replace('-', " "));
    assert_eq!(listed, codes);
}

#[test]
fn a_restore_of_nothing_fails_and_a_restore_of_a_part_skips() {
    if !needs_root() {
        return;
    }
    let env = TestEnv::new();
    env.write("p/d/a", "a");
    env.write("p/b", "b");
    env.snap_in("p", ["commit"]).succeeds();
    env.mode("", 0o755);
    env.open_to_all("p");
    fs_err::create_dir_all(env.path("out/d")).unwrap();
    env.mode("out/d", 0o555);
    chown(env.path("out"), Some(NOBODY), Some(NOBODY)).unwrap();
    let restore = |what: &str, target: &str| {
        let mut command = env.command("p");
        command.uid(NOBODY).gid(NOBODY).args(["restore", what, target]).output().unwrap()
    };
    let nothing = restore("HEAD:d", "../out/d");
    assert_eq!(nothing.status.code(), Some(1), "{nothing:?}");
    let part = restore("HEAD", "../out");
    assert_eq!(part.status.code(), Some(3), "{part:?}");
    assert_eq!(env.read("out/b"), "b");
}

#[test]
fn a_deleted_folder_is_named() {
    let env = TestEnv::new();
    let snap = env!("CARGO_BIN_EXE_snap");
    for args in ["remote list", "log", "find x"] {
        fs_err::create_dir(env.path("gone")).unwrap();
        let script = format!("rmdir ../gone; exec {snap} {args}");
        let ran = env.command_of("gone", "sh").args(["-c", &script]).output().unwrap();
        assert_eq!(ran.status.code(), Some(1), "{args}");
        let told = String::from_utf8(ran.stderr).unwrap();
        let expected = "error: the current folder was deleted\nhint: change to another folder\n";
        assert_eq!(told, expected, "{args}");
    }
}

#[test]
fn a_bundle_that_is_only_the_output_is_not_mentioned() {
    let env = TestEnv::new();
    env.write("a", "a");
    env.snap(["commit"]).succeeds();
    env.snap(["pack", "main", "-o", "x.snap"]).succeeds();
    for args in [&["pack", "nosuch", "-o", "x.snap"][..], &["pack", "nosuch", "--output=x.snap"]] {
        let ran = env.snap(args);
        assert!(!ran.stderr.contains("bundle"), "{ran}");
    }
    let ran = env.snap(["log", "x.snap"]);
    assert!(ran.stderr.contains("x.snap is a bundle"), "{ran}");
}

#[test]
fn a_remote_is_searched_and_changed_without_a_store_here() {
    let env = TestEnv::new();
    env.write("work/docs/a.pdf", "a");
    env.snap_in("work", ["commit"]).succeeds();
    env.snap_in("work", ["branch", "old"]).succeeds();
    env.write("work/b.pdf", "b");
    env.snap_in("work", ["commit"]).succeeds();
    let url = format!("file://{}", env.path("origin").display());
    env.snap_in("work", ["push", &url, "--all"]).succeeds();
    let found = |args: &[&str]| {
        let ran = env.snap([&["find", "*.pdf"], args].concat()).succeeds();
        let paths = ran.stdout.lines().filter(|line| !line.starts_with(' '));
        paths.map(str::to_owned).collect::<Vec<_>>()
    };
    let [main, old] = ["main", "old"].map(|branch| format!("{url}#{branch}"));
    assert_eq!(found(&[&url]), ["b.pdf", "docs/a.pdf"]);
    assert_eq!(found(&[&main]), ["b.pdf", "docs/a.pdf"]);
    assert_eq!(found(&[&old]), ["docs/a.pdf"]);
    let mixed = env.snap(["find", "x", &url, "main"]);
    assert_eq!(mixed.code, Some(2), "{mixed}");
    let there = env.snap(["--json", "stats", &main]).succeeds().json();
    let here = env.snap_in("work", ["--json", "stats"]).succeeds().json();
    assert_eq!(there[0], here[0]);
    assert_eq!(env.snap(["--json", "stats", &url, "--all"]).succeeds().json().len(), there.len());
    let deleted = env.snap(["push", &url, "--delete", "old"]).succeeds();
    assert!(deleted.stderr.starts_with("old  deleted; it was at "), "{deleted}");
    assert_eq!(env.snap(["find", "*.pdf", &old]).code, Some(1));
}
