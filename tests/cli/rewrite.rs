//! `snap rewrite`.

use snap_testkit::{bytes::Corpus, leftovers::files_with};

use crate::env::TestEnv;

const SECRET: &str = "correct horse battery staple";

/// A project with a password in its first two commits, pushed to a bucket.
fn with_secret() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("SNAP_TIME", "2026-12-01T00:00:00Z");
    env.write("conf/secret.env", format!("PASSWORD={SECRET}\n").repeat(20));
    for n in 1..=3 {
        env.write("app", format!("version {n}"));
        if n == 3 {
            fs_err::remove_file(env.path("conf/secret.env")).unwrap();
        }
        env.snap(["commit", "-m", &format!("version {n}")]).succeeds();
    }
    env
}

/// A sync client has left a copy of the branch under a name that no branch can have.
#[test]
fn a_file_that_cannot_be_a_ref_keeps_nothing_that_was_removed() {
    let env = with_secret();
    env.snap(["remote", "add", "origin", "./there"]).succeeds();
    env.snap(["push", "-q", "origin", "main"]).succeeds();
    for refs in [".snap/refs/heads", "there/refs/heads"] {
        let refs = env.path(refs);
        fs_err::copy(refs.join("main"), refs.join("main~conflict")).unwrap();
    }
    env.snap(["rewrite", "-q", "--exclude", "conf/secret.env"]).succeeds();
    let collected = env.snap(["gc"]).succeeds().stderr;
    assert!(collected.contains("skipped refs/heads/main~conflict: "), "{collected}");
    env.snap(["push", "-q", "--force", "origin", "main"]).succeeds();
    assert!(!files_with(&env.path("there"), SECRET.as_bytes()).is_empty());
    let collected = env.snap(["gc", "origin", "--now"]).succeeds().stderr;
    assert!(collected.contains("skipped refs/heads/main~conflict at "), "{collected}");
    assert!(files_with(&env.path("there"), SECRET.as_bytes()).is_empty());
    assert!(files_with(&env.path(".snap"), SECRET.as_bytes()).is_empty());
}

#[test]
fn a_password_goes_from_history_and_from_the_disk() {
    let env = with_secret();
    env.snap(["tag", "v1", "HEAD~1"]).succeeds();
    insta::assert_snapshot!(env.snap(["rewrite", "--exclude", "conf/secret.env", "-n"]).succeeds(), @"
    exit: 0
    --- stdout ---
    main  [ID] -> [ID]
    v1  [ID] -> [ID]
    --- stderr ---
    Would rewrite 3 commits without conf/secret.env
    Dry run: nothing was changed
    ");
    insta::assert_snapshot!(env.snap(["rewrite", "--exclude", "./conf/secret.env"]).succeeds(), @"
    exit: 0
    --- stdout ---
    main  [ID] -> [ID]
    v1  [ID] -> [ID]
    --- stderr ---
    Rewrote 3 commits without conf/secret.env
    `snap gc` deletes 7 objects; until then, `snap undo` takes this back
    ");
    insta::assert_snapshot!(env.snap(["log", "--oneline"]).succeeds(), @"
    exit: 0
    --- stdout ---
    [ID] 2026-12-01 00:00:00 +00:00 (HEAD -> main) version 3
    [ID] 2026-12-01 00:00:00 +00:00 (tag: v1) version 2
    [ID] 2026-12-01 00:00:00 +00:00 version 1
    ");
    assert!(!files_with(&env.path(".snap"), SECRET.as_bytes()).is_empty());
    insta::assert_snapshot!(env.snap(["undo", "-n"]).succeeds(), @r#"
    exit: 0
    --- stderr ---
    2 refs moved back: undo of "snap rewrite", 2026-12-01 00:00:00 +00:00
    Dry run: nothing was changed
    "#);
    insta::assert_snapshot!(env.snap(["undo"]).succeeds(), @r#"
    exit: 0
    --- stderr ---
    2 refs moved back: undo of "snap rewrite", 2026-12-01 00:00:00 +00:00
    "#);
    env.snap(["rewrite", "--exclude", "conf/secret.env"]).succeeds();
    let collected = env.snap(["gc"]).succeeds().stderr;
    assert!(collected.contains("7 objects that `snap rewrite` removed are gone"), "{collected}");

    assert!(files_with(&env.path(".snap"), SECRET.as_bytes()).is_empty());
    insta::assert_snapshot!(env.snap(["undo"]), @"
    exit: 1
    --- stderr ---
    error: cannot undo the last `snap rewrite`: `snap gc` has deleted what it removed
    hint: `snap branch --log` lists other changes; `snap undo NAME` undoes one
    ");
    insta::assert_snapshot!(env.snap(["verify", "--data"]).succeeds(), @"
    exit: 0
    --- stderr ---
    Checked 2 packs with 10 objects, and 3 commits reachable from branches and tags
    Data read: [SIZE] of the data
    No errors found
    ");
}

#[test]
fn a_commit_of_a_removed_file_is_refused_until_it_is_allowed() {
    let env = with_secret();
    env.write("conf/secret.env", format!("PASSWORD={SECRET}\n").repeat(20));
    insta::assert_snapshot!(env.snap(["rewrite", "--exclude", "conf/secret.env"]).succeeds(), @"
    exit: 0
    --- stdout ---
    main  [ID] -> [ID]
    --- stderr ---
    Rewrote 3 commits without conf/secret.env
    `snap gc` deletes 7 objects; until then, `snap undo` takes this back
    hint: conf/secret.env is still in this folder; add it to .snapignore, or remove it
    ");
    insta::assert_snapshot!(env.snap(["commit", "-m", "again"]), @"
    exit: 1
    --- stderr ---
    error: `conf/secret.env` has a content that `snap rewrite` removed from history
    hint: add it to .snapignore or remove it; --allow conf/secret.env commits it all the same
    hint: `snap gc` deletes the copy that is in this store now
    ");
    env.snap(["commit", "-m", "again", "--allow", "./conf/secret.env"]).succeeds();
    env.write("copy", format!("PASSWORD={SECRET}\n").repeat(20));
    env.snap(["commit", "-m", "copy"]).succeeds();
}

#[test]
fn other_branches_and_remotes_that_have_it_are_named() {
    let env = with_secret();
    let bucket = env.path("bucket");
    env.snap(["branch", "side", "HEAD~1"]).succeeds();
    env.snap(["remote", "add", "origin", bucket.to_str().unwrap()]).succeeds();
    env.snap(["push", "--all"]).succeeds();
    insta::assert_snapshot!(env.snap(["rewrite", "--exclude", "*.env", "main"]), @"
    exit: 1
    --- stdout ---
    main  [ID] -> [ID]
    --- stderr ---
    Rewrote 3 commits without conf/secret.env
    `snap gc` deletes 1 object; until then, `snap undo` takes this back
    warning: other branches or tags still have it: side
    hint: without names, `snap rewrite` rewrites all branches and tags
    origin still has it. To replace and delete it there:
      snap push --force origin main side
      snap gc origin --now
    ");
    insta::assert_snapshot!(env.snap(["rewrite", "--exclude", "*.env"]).succeeds(), @"
    exit: 0
    --- stdout ---
    side  [ID] -> [ID]
    --- stderr ---
    Rewrote 2 commits without conf/secret.env
    `snap gc` deletes 6 objects; until then, `snap undo` takes this back
    origin still has it. To replace and delete it there:
      snap push --force origin main side
      snap gc origin --now
    ");
    let collected = env.snap(["gc"]).succeeds().stderr;
    assert!(collected.contains("7 objects that `snap rewrite` removed are gone"), "{collected}");
    assert!(collected.contains("Removed 2 remote-tracking refs that reached them"), "{collected}");

    insta::assert_snapshot!(env.snap(["pull"]), @"
    exit: 1
    --- stderr ---
    error: commit [SHORT ID] was removed by `snap rewrite`
    hint: run the same `snap rewrite` where the commit comes from, and push from there with --force
    ");
    env.snap(["push", "--force", "origin", "main", "side"]).succeeds();
    env.snap(["pull"]).succeeds();
    assert!(files_with(&env.path(".snap"), SECRET.as_bytes()).is_empty());
    assert!(!files_with(&bucket, SECRET.as_bytes()).is_empty());
    let collected = env.snap(["gc", "origin", "--now"]).succeeds().stderr;
    assert!(collected.contains("that `snap rewrite` removed are gone"), "{collected}");
    assert!(files_with(&bucket, SECRET.as_bytes()).is_empty(), "{collected}");
    env.snap(["verify", "origin", "--data"]).succeeds();
    env.snap(["clone", bucket.to_str().unwrap(), "cloned"]).succeeds();
    assert!(files_with(&env.path("cloned"), SECRET.as_bytes()).is_empty());
}

#[test]
fn what_a_rewrite_loses_or_does_not_find_is_said() {
    let env = with_secret();
    env.snap(["branch", "side", "HEAD"]).succeeds();
    env.write("app", "on the side");
    env.snap(["commit", "-b", "side", "-m", "side", "--onto-tip"]).succeeds();
    env.snap(["branch", "-d", "side"]).succeeds();
    insta::assert_snapshot!(env.snap(["rewrite", "--exclude", "*.env", "--exclude", "typo"]), @"
    exit: 1
    --- stdout ---
    main  [ID] -> [ID]
    --- stderr ---
    Rewrote 4 commits without conf/secret.env
    `snap gc` deletes 8 objects; until then, `snap undo` takes this back
    warning: no commit contains typo
    ");
    env.snap(["undo"]).succeeds();
    insta::assert_snapshot!(env.snap(["undo", "--redo"]), @"
    exit: 2
    --- stderr ---
    error: cannot redo `snap rewrite`
    hint: run the same `snap rewrite` again
    ");
}

#[test]
fn wrong_arguments_change_nothing() {
    let env = with_secret();
    insta::assert_snapshot!(env.snap(["rewrite"]), @"
    exit: 2
    --- stderr ---
    error: the following required arguments were not provided:
      --exclude <PATTERN>

    Usage: snap rewrite --exclude <PATTERN> [BRANCH|TAG]...

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(env.snap(["rewrite", "--exclude", "no-such"]), @"
    exit: 1
    --- stderr ---
    error: no commit contains `no-such`
    hint: `snap find NAME` shows which commits have a file
    ");
    insta::assert_snapshot!(env.snap(["rewrite", "--exclude", "app", "no-branch"]), @"
    exit: 1
    --- stderr ---
    error: branch or tag `no-branch` does not exist and never did
    hint: `snap branch` lists the branches
    hint: `snap tag` lists the tags
    ");
    insta::assert_snapshot!(env.snap(["rewrite", "--exclude", "app", "HEAD"]), @"
    exit: 1
    --- stderr ---
    error: branch or tag `HEAD` does not exist and never did
    hint: `snap branch` lists the branches
    hint: `snap tag` lists the tags
    ");
    insta::assert_snapshot!(env.snap(["rewrite", "--exclude", "["]), @"
    exit: 2
    --- stderr ---
    error: `[` is not a valid pattern
      caused by: it can match no path
    ");
    assert_eq!(env.snap(["log", "--oneline"]).succeeds().stdout.lines().count(), 3);
}

#[test]
fn other_paths_with_the_content_are_named_until_they_are_rewritten_or_allowed() {
    let env = with_secret();
    env.write("old.env", format!("PASSWORD={SECRET}\n").repeat(20));
    env.snap(["commit", "-m", "version 4"]).succeeds();
    insta::assert_snapshot!(env.snap(["rewrite", "--exclude", "conf/secret.env"]), @"
    exit: 1
    --- stdout ---
    main  [ID] -> [ID]
    --- stderr ---
    Rewrote 4 commits without conf/secret.env
    `snap gc` deletes 7 objects; until then, `snap undo` takes this back
    warning: old.env in commit [SHORT ID] has a removed content
    hint: `snap rewrite --exclude PATH` removes a path from all branches and tags
    hint: `snap commit --allow PATH` keeps its content
    ");
    insta::assert_snapshot!(env.snap(["-q", "gc"]), @"
    exit: 1
    --- stderr ---
    warning: branches or tags still reach what `snap rewrite` removed: main
    warning: old.env in commit [SHORT ID] has a removed content
    ");
    let record = env.snap(["gc", "--json"]).stdout;
    assert!(
        record.contains(r#""remaining":["main"],"remaining_paths":[{"path":"old.env","#),
        "{record}"
    );
    env.snap(["commit", "--allow", "old.env"]).succeeds();
    env.snap(["gc"]).succeeds();
    env.snap(["rewrite", "--exclude", "old.env"]).succeeds();
    env.snap(["gc"]).succeeds();
    assert!(files_with(&env.path(".snap"), SECRET.as_bytes()).is_empty());
}

/// Another file may have chunks of a removed large file.
#[test]
fn a_large_removed_file_can_be_committed_again() {
    let env = TestEnv::new();
    env.write("app", "version 1");
    env.snap(["commit"]).succeeds();
    let large = Corpus::Random.make(5 << 20);
    env.write("disk.img", &large);
    env.snap(["commit"]).succeeds();
    env.snap(["rewrite", "-q", "--exclude", "disk.img"]).succeeds();
    env.snap(["gc", "-q"]).succeeds();
    let stored = || env.snap(["stats", "--json"]).succeeds().stdout;
    let before = stored();
    let refused = env.snap(["commit"]);
    assert!(refused.code == Some(1) && refused.stderr.contains("--allow"), "{refused}");
    assert_ne!(stored(), before);
    env.snap(["gc", "-q"]).succeeds();
    assert_eq!(stored(), before, "the refused content stays");
    // Its first chunks were removed, but it is another content.
    env.write("disk.img", [&large[..], b"more"].concat());
    env.snap(["commit"]).succeeds();
    env.snap(["gc"]).succeeds();
    env.snap(["verify", "--data"]).succeeds();
    env.write("disk.img", &large);
    env.snap(["commit", "--allow", "disk.img"]).succeeds();
    env.snap(["gc"]).succeeds();
    env.snap(["verify", "--data"]).succeeds();
    fs_err::remove_file(env.path("disk.img")).unwrap();
    env.snap(["restore", "HEAD:disk.img"]).succeeds();
    assert!(fs_err::read(env.path("disk.img")).unwrap() == large);
}

#[test]
fn a_tag_that_was_not_rewritten_is_named_by_each_collection() {
    let env = with_secret();
    env.snap(["tag", "v1", "HEAD~1"]).succeeds();
    assert_eq!(env.snap(["rewrite", "--exclude", "conf/secret.env", "main"]).code, Some(1));
    insta::assert_snapshot!(env.snap(["-q", "gc"]), @"
    exit: 1
    --- stderr ---
    warning: branches or tags still reach what `snap rewrite` removed: v1
    warning: conf/secret.env in commit [SHORT ID] has a removed content
    ");
    env.snap(["tag", "-d", "v1"]).succeeds();
    let collected = env.snap(["gc"]).succeeds().stderr;
    assert!(collected.contains("that `snap rewrite` removed are gone"), "{collected}");
    assert!(files_with(&env.path(".snap"), SECRET.as_bytes()).is_empty());
}

/// Another user commits the file again on top of the new history.
#[test]
fn a_pull_names_what_it_brings_back() {
    let env = with_secret();
    env.snap(["clone", ".", "theirs"]).succeeds();
    env.snap(["rewrite", "--exclude", "conf/secret.env"]).succeeds();
    env.snap(["gc"]).succeeds();
    let theirs = |args: &[&str]| env.snap_in("theirs", args);
    theirs(&["pull", "--force"]).succeeds();
    env.write("theirs/back", format!("PASSWORD={SECRET}\n").repeat(20));
    theirs(&["commit", "--onto-tip", "-m", "again"]).succeeds();
    let pushed = theirs(&["push"]).succeeds().stderr;
    assert!(pushed.contains("warning: back in commit "), "{pushed}");
    theirs(&["pack", "-o", "again.snap"]).succeeds();
    env.snap(["undo"]).succeeds();
    insta::assert_snapshot!(env.snap(["pull", "./theirs"]), @"
    exit: 0
    --- stderr ---
    main -> main  [SHORT ID]..[SHORT ID]
    warning: back in commit [SHORT ID] has a removed content
    hint: `snap rewrite --exclude PATH` removes a path from all branches and tags
    hint: `snap commit --allow PATH` keeps its content
    Files are unchanged
    hint: `snap pull --update ./theirs` updates them and keeps local changes
    hint: `snap restore main --overwrite --delete -n` lists what a restore would change
    ");
    let unpacked = env.snap(["unpack", "theirs/again.snap", "-b", "other"]).succeeds().stderr;
    assert!(!unpacked.contains("back in commit"), "the branch main has it: {unpacked}");
}

/// The files of the project come from a commit that no ref reaches, and that has the removed content at
/// another path.
#[test]
fn a_project_whose_files_come_from_a_removed_content_is_not_damaged() {
    let env = with_secret();
    env.write("copy.env", env.read("app"));
    env.snap(["commit", "-qm", "copy", "-b", "side"]).succeeds();
    env.snap(["branch", "--force", "side", "main~1"]).succeeds();
    env.snap(["rewrite", "-q", "--exclude", "app"]).succeeds();
    env.snap(["gc", "-q"]).succeeds();
    env.snap(["verify", "-q"]).succeeds();
    fs_err::remove_file(env.path("copy.env")).unwrap();
    fs_err::remove_file(env.path("app")).unwrap();
    env.write("new", "new work\n");
    env.snap(["commit", "-qm", "new"]).succeeds();
    env.snap(["verify", "-q"]).succeeds();
}
