//! The first `snap commit` in a folder, which creates the store: questions, and git beside it.

use crate::env::TestEnv;

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
fn the_first_commit_beside_git_says_that_gitignore_is_not_used() {
    let env = env();
    env.write("home/code/.gitignore", "target\n");
    env.write("home/code/target/big", "2");
    let in_code = |args: &[&str]| env.snap_in("home/code", args.iter().copied()).succeeds();
    insta::assert_snapshot!(in_code(&["commit", "--dry-run"]), @r"
    exit: 0
    --- stderr ---
    .gitignore is not used: the snapshot also contains what git ignores
    hint: `snap commit --gitignore` uses it once
      `snap config set commit.gitignore true` uses it always
    Would commit 4 files, 41 B: 4 new, 0 changed, 0 unmodified
    Read [SIZE], would add [SIZE]
    ");
    let note = |args: &[&str]| in_code(args).stderr.contains(".gitignore is not used");
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
    assert!(!env.snap_in("home/docs", ["commit"]).stderr.contains("gitignore"), "no git");
}
