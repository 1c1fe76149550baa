//! The first `snap commit` in a folder, which creates the store: questions, and git beside it.

use std::process::Command;

use snap_testkit::skip::skip_without_program;

use crate::{env::TestEnv, terminal::answered};

/// An environment with a home folder, and projects of other programs in it.
fn env() -> TestEnv {
    let mut env = TestEnv::new();
    env.write("home/file", "1");
    env.write("home/code/.git/HEAD", "ref: refs/heads/main\n");
    env.write("home/code/src/main.rs", "fn main() {}");
    env.write("home/docs/file", "1");
    let home = env.path("home").to_str().unwrap().to_owned();
    env.set("HOME", &home);
    env
}

#[test]
fn a_commit_on_a_terminal_asks_before_it_creates_a_store_in_home_or_inside_a_project() {
    let env = env();
    for (folder, args, place) in [
        ("home", "", "in your home folder."),
        ("home/code/src", "", "/home/code, which has a `.git`."),
        ("home/code/src", "main.rs", "/home/code, which has a `.git`."),
    ] {
        let store = env.path(folder).join(".snap");
        let line = format!("snap commit {args}");
        for typed in ["n\n", "\n"] {
            let Some((code, said)) = answered(&env, folder, &line, typed) else { return };
            assert_eq!(code, Some(1), "{folder}: {said}");
            assert!(said.contains("The new store ") && said.contains(place), "{folder}: {said}");
            assert!(said.contains("error: no store was created at "), "{folder}: {said}");
            assert!(said.contains("hint: change to the project folder first"), "{folder}: {said}");
            assert!(!store.exists(), "{folder}: {said}");
        }
        let (code, said) = answered(&env, folder, &line, "y\n").unwrap();
        assert_eq!(code, Some(0), "{folder}: {said}");
        assert!(store.join("refs/heads/main").is_file(), "{folder}: {said}");
        let (code, said) = answered(&env, folder, &line, "").unwrap();
        assert_eq!(code, Some(0), "{folder}: {said}");
        assert!(!said.contains("[y/N]"), "the store exists: {said}");
        fs_err::remove_dir_all(&store).unwrap();
    }
}

#[test]
fn a_commit_asks_nothing_elsewhere_and_without_a_terminal() {
    let env = env();
    for folder in ["home/docs", "home/code"] {
        let Some((code, said)) = answered(&env, folder, "snap commit", "") else { return };
        assert_eq!(code, Some(0), "{folder}: {said}");
        assert!(!said.contains("[y/N]"), "{folder}: {said}");
        fs_err::remove_dir_all(env.path(folder).join(".snap")).unwrap();
    }
    // One of stdin and stderr is not a terminal, or the folder has been chosen before.
    for (line, code, makes_store) in [
        ("snap commit 2>/dev/null", 1, false),
        ("snap commit </dev/null", 1, false),
        ("snap --json commit", 1, false),
        ("snap commit docs </dev/null", 1, false),
        ("snap commit --dry-run", 0, false),
        ("snap init && snap commit", 0, true),
    ] {
        let (ended, said) = answered(&env, "home", line, "").unwrap();
        assert_eq!(ended, Some(code), "{line}: {said}");
        assert!(!said.contains("[y/N]"), "{line}: {said}");
        let store = env.path("home/.snap");
        assert_eq!(store.exists(), makes_store, "{line}: {said}");
        if store.exists() {
            fs_err::remove_dir_all(store).unwrap();
        }
    }
    let said = env.snap_in("home/code/src", ["commit"]).succeeds().stderr;
    let store = env.path("home/code/src/.snap");
    assert!(said.starts_with(&format!("Creating the store {} in", store.display())), "{said}");
    assert!(said.contains("/home/code, which has a `.git`\n"), "{said}");
    assert!(store.join("refs/heads/main").is_file());
}

#[test]
fn git_ignores_the_store_however_it_was_created() {
    let env = TestEnv::new();
    let git = |folder: &str, args: &[&str]| {
        let mut command = Command::new("git");
        command.env_clear().env("HOME", env.path("")).env("PATH", "/usr/bin:/bin");
        let output = command.current_dir(env.path(folder)).args(args).output().ok()?;
        assert!(output.status.success(), "{output:?}");
        Some(String::from_utf8(output.stdout).unwrap())
    };
    env.write("commit/file", "1");
    env.snap_in("commit", ["commit", "-q"]).succeeds();
    env.snap_in("commit", ["pack", "-q", "HEAD", "-o", "../b.snap"]).succeeds();
    env.snap(["init", "-q", "init"]).succeeds();
    env.snap(["init", "-q", "--shared", "shared"]).succeeds();
    env.snap(["clone", "-q", "commit", "clone"]).succeeds();
    fs_err::create_dir(env.path("unpack")).unwrap();
    env.snap_in("unpack", ["unpack", "-q", "../b.snap"]).succeeds();
    for folder in ["commit", "init", "shared", "clone", "unpack"] {
        assert_eq!(env.read(&format!("{folder}/.snap/.gitignore")), "*\n");
        let Some(_) = git(folder, &["init", "-q"]) else {
            return skip_without_program("a test of git beside snap", "git");
        };
        env.write(&format!("{folder}/other"), "2");
        let listed = git(folder, &["status", "--porcelain", "-uall"]).unwrap();
        assert!(listed.contains("?? other") && !listed.contains(".snap"), "{folder}: {listed}");
        env.snap_in(folder, ["verify", "--data"]).succeeds();
    }
    env.snap(["--store", "bare", "init"]).succeeds();
    assert!(!env.path("bare/.gitignore").exists());
}

#[test]
fn the_first_commit_beside_git_says_that_gitignore_is_not_used() {
    let env = env();
    env.write("home/code/.gitignore", "target\n");
    env.write("home/code/target/big", "2");
    let in_code = |args: &[&str]| env.snap_in("home/code", args.iter().copied()).succeeds();
    insta::assert_snapshot!(in_code(&["commit", "--dry-run"]), @"
    exit: 0
    --- stderr ---
    .gitignore is not used: the snapshot also contains what git ignores
    hint: `snap commit --gitignore` uses it once
    hint: `snap config set commit.gitignore true` uses it always
    Would commit 3 files, 20 B: 3 added, 0 modified, 0 unmodified
    Read [SIZE], would add [SIZE]
    `.git` is left out: git keeps its own history
    hint: `snap commit --include-git` saves it once
    hint: `snap config set commit.git true` saves it always
    ");
    let said = |args: &[&str], note: &str| in_code(args).stderr.contains(note);
    let note = |args: &[&str]| said(args, ".gitignore is not used");
    let restart = || fs_err::remove_dir_all(env.path("home/code/.snap")).unwrap();
    assert!(note(&["commit"]));
    assert!(!note(&["commit", "--allow-empty"]), "only the first commit");
    restart();
    assert!(!note(&["commit", "--gitignore"]), "it is used");
    restart();
    assert!(!note(&["commit", "-q"]));
    restart();
    in_code(&["init"]);
    in_code(&["config", "set", "commit.gitignore", "true"]);
    assert!(!note(&["commit"]), "it is used");
    assert!(!env.snap_in("home/docs", ["commit"]).stderr.contains("git"), "no git");
    restart();
    fs_err::remove_file(env.path("home/code/.gitignore")).unwrap();
    assert!(!note(&["commit"]), "there is no .gitignore");
}
