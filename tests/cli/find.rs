//! `snap find`.

use crate::env::TestEnv;

/// Makes three commits, a day apart: one file returns, another one moves.
fn env() -> TestEnv {
    let mut env = TestEnv::new();
    let commit = |env: &mut TestEnv, day: usize| {
        env.set("SNAP_TIME", &format!("2026-11-0{day}T10:00:00Z"));
        env.snap(["commit", "--reproducible", "-m", &format!("day {day}")]).succeeds();
    };
    env.write("src/main.rs", "1");
    env.write("src/deep/lib.rs", "lib");
    env.write("README.md", "read");
    std::os::unix::fs::symlink("README.md", env.path("link.md")).unwrap();
    commit(&mut env, 1);
    env.write("src/main.rs", "22");
    fs_err::rename(env.path("src/deep/lib.rs"), env.path("src/lib.rs")).unwrap();
    commit(&mut env, 2);
    env.write("src/main.rs", "1");
    commit(&mut env, 3);
    env
}

#[test]
fn each_version_is_listed_with_the_commits_it_lived_in() {
    let env = env();
    insta::assert_snapshot!(env.snap(["find", "*.rs"]), @r"
    exit: 0
    --- stdout ---
    src/deep/lib.rs
      [ID] 3 B: in 1 commit, [SHORT ID] (2026-11-01 10:00:00 +00:00)
    src/lib.rs
      [ID] 3 B: in 2 commits, from [SHORT ID] (2026-11-02 10:00:00 +00:00) to [SHORT ID] (2026-11-03 10:00:00 +00:00)
    src/main.rs
      [ID] 1 B: in 2 commits
        1 commit: [SHORT ID] (2026-11-03 10:00:00 +00:00)
        1 commit: [SHORT ID] (2026-11-01 10:00:00 +00:00)
      [ID] 2 B: in 1 commit, [SHORT ID] (2026-11-02 10:00:00 +00:00)
    ");
    insta::assert_snapshot!(env.snap(["find", "src/*/*"]), @r"
    exit: 0
    --- stdout ---
    src/deep/lib.rs
      [ID] 3 B: in 1 commit, [SHORT ID] (2026-11-01 10:00:00 +00:00)
    ");
    insta::assert_snapshot!(env.snap(["find", "--type", "l", "*"]), @r"
    exit: 0
    --- stdout ---
    link.md
      symlink -> README.md: in 3 commits, from [SHORT ID] (2026-11-01 10:00:00 +00:00) to [SHORT ID] (2026-11-03 10:00:00 +00:00)
    ");
    insta::assert_snapshot!(env.snap(["find", "-i", "readme.MD", "HEAD~1"]), @r"
    exit: 0
    --- stdout ---
    README.md
      [ID] 4 B: in 2 commits, from [SHORT ID] (2026-11-01 10:00:00 +00:00) to [SHORT ID] (2026-11-02 10:00:00 +00:00)
    ");
    insta::assert_snapshot!(env.snap(["find", "deep/"]), @r"
    exit: 0
    --- stdout ---
    src/deep
      folder: in 3 commits, from [SHORT ID] (2026-11-01 10:00:00 +00:00) to [SHORT ID] (2026-11-03 10:00:00 +00:00)
    ");
    insta::assert_snapshot!(env.snap(["find", "-v", "main", "HEAD"]), @r"
    exit: 0
    --- stderr ---
    Searched 3 commits; read 8 trees
    No path in 3 commits matches main
    ");
}

#[test]
fn json_has_all_ranges() {
    let env = env();
    insta::assert_snapshot!(env.snap(["--json", "find", "main.rs"]), @r#"
    exit: 0
    --- stdout ---
    {"version":1,"type":"version","path":"src/main.rs","kind":"file","mode":"0644","size":1,"id":"[ID]","commits":2,"ranges":[{"first":{"id":"[ID]","time":"2026-11-03T10:00:00Z"},"last":{"id":"[ID]","time":"2026-11-03T10:00:00Z"},"commits":1},{"first":{"id":"[ID]","time":"2026-11-01T10:00:00Z"},"last":{"id":"[ID]","time":"2026-11-01T10:00:00Z"},"commits":1}]}
    {"version":1,"type":"version","path":"src/main.rs","kind":"file","mode":"0644","size":2,"id":"[ID]","commits":1,"ranges":[{"first":{"id":"[ID]","time":"2026-11-02T10:00:00Z"},"last":{"id":"[ID]","time":"2026-11-02T10:00:00Z"},"commits":1}]}
    "#);
    let found = env.snap(["--json", "find", "-t", "d", "*"]).succeeds().json();
    let paths: Vec<_> = found.iter().map(|version| version["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["src", "src/deep"]);
    assert!(found.iter().all(|version| version["id"].is_null()));
}

#[test]
fn branches_and_tags_are_searched_unless_others_are_named() {
    let env = env();
    env.snap(["tag", "old", "HEAD~1"]).succeeds();
    env.snap(["branch", "--force", "main", "HEAD~2"]).succeeds();
    let versions = |args: &[&str]| {
        let found = env.snap([&["--json", "find", "main.rs"], args].concat()).succeeds().json();
        found.iter().map(|version| version["commits"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(versions(&[]), [1, 1]);
    assert_eq!(versions(&["HEAD"]), [1]);
    assert_eq!(versions(&["HEAD", "old"]), [1, 1]);
    assert_eq!(env.snap(["find", "x", "none"]).code, Some(1));
}

#[test]
fn names_that_are_not_utf_8_are_found_and_told_in_hex() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    let env = TestEnv::new();
    let name = OsStr::from_bytes(b"caf\xe9\x1b");
    fs_err::write(env.path(name), "x").unwrap();
    env.snap(["commit"]).succeeds();
    let found = env.snap(["--json", "find", "caf*"]).succeeds().json();
    assert_eq!(found[0]["path_hex"], "636166e91b");
    let found = env.snap([OsStr::new("find"), OsStr::new("-q"), name]).succeeds();
    assert_eq!(found.stdout.lines().count(), 2, "{}", found.stdout);
}

#[test]
fn what_cannot_be_looked_for_is_said() {
    let env = TestEnv::new();
    insta::assert_snapshot!(env.snap(["find", "x"]), @"
    exit: 1
    --- stderr ---
    error: no store found in this folder or above
    hint: `snap commit` creates a store here
    hint: `snap init` creates an empty store
    hint: `snap --store STORE COMMAND` uses another store
    ");
    env.snap(["init"]).succeeds();
    insta::assert_snapshot!(env.snap(["find", "x"]), @r"
    exit: 0
    --- stderr ---
    The store has no commits
    ");
    insta::assert_snapshot!(env.snap(["find", "x", "HEAD"]), @r"
    exit: 1
    --- stderr ---
    error: branch `main` has no commit yet
    hint: `snap commit` creates the first one
    ");
    insta::assert_snapshot!(env.snap(["find", "{a"]), @"
    exit: 2
    --- stderr ---
    error: `{a` is not a valid pattern
      caused by: error parsing glob '{a': unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)
    hint: a pattern is a name or path with *, ?, [abc], {a,b} or **
    hint: a backslash makes the next character literal
    ");
    insta::assert_snapshot!(env.snap(["find", ""]), @"
    exit: 2
    --- stderr ---
    error: `` is not a valid pattern
      caused by: it is empty
    hint: a pattern is a name or path with *, ?, [abc], {a,b} or **
    hint: a backslash makes the next character literal
    ");
    insta::assert_snapshot!(env.snap(["find", "../x"]), @"
    exit: 2
    --- stderr ---
    error: `../x` is outside the project
    hint: `./` and `../` start at the current folder, `REV:PATH` at the top of the snapshot
    ");
}
