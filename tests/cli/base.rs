//! Tests of the base of a project's files, which a commit builds on.

use std::{collections::BTreeSet, path::PathBuf};

use snap_testkit::skip::{needs_root, skip};

use crate::env::TestEnv;

/// Makes two clones of one remote, `ann` and `bob`, which both have its one commit.
pub(crate) fn two_clones() -> TestEnv {
    let env = TestEnv::new();
    env.write("ann/a.txt", "one");
    env.write("ann/sub/b.txt", "two");
    let url = format!("file://{}", env.path("there").display());
    env.snap_in("ann", ["commit", "-m", "start"]).succeeds();
    env.snap_in("ann", ["remote", "add", "origin", &url]).succeeds();
    env.snap_in("ann", ["push"]).succeeds();
    env.snap(["clone", "-q", &url, "bob"]).succeeds();
    env
}

/// Bob changes a file and pushes it; Ann pulls it, and her files stay unchanged.
fn behind() -> TestEnv {
    let env = two_clones();
    env.write("bob/a.txt", "bob was here");
    env.snap_in("bob", ["commit", "--author", "bob", "-m", "fix the roof"]).succeeds();
    env.snap_in("bob", ["push"]).succeeds();
    env.snap_in("ann", ["pull"]).succeeds();
    env.write("ann/c.txt", "three");
    env
}

#[test]
fn a_folder_of_a_stores_name_that_is_none_does_not_hide_the_project() {
    let env = TestEnv::new();
    env.write("home/a.txt", "one");
    env.snap_in("home", ["commit"]).succeeds();
    env.write("home/sub/.snap/notes", "mine");
    env.snap_in("home", ["commit", "sub"]).succeeds();
    assert_eq!(env.snap_in("home/sub", ["cat", "HEAD:sub/.snap/notes"]).succeeds().stdout, "mine");
    // A damaged store is not skipped: the commit would go to another one.
    env.write("home/sub/.snap/config.toml", "");
    assert_eq!(env.snap_in("home/sub", ["commit"]).code, Some(1));
}

#[test]
fn a_commit_after_a_pull_is_refused_and_names_the_commits_and_their_paths() {
    let env = behind();
    let refused = env.snap_in("ann", ["commit"]);
    assert_eq!(refused.code, Some(1));
    for part in [
        "branch `main` has 1 newer commit than the files here",
        "by bob (fix the roof)",
        "they changed a.txt",
        "snap restore HEAD --overwrite --delete",
        "snap commit --onto-tip",
        "snap commit -b NAME",
    ] {
        assert!(refused.stderr.contains(part), "{part} is missing in {}", refused.stderr);
    }
    assert_eq!(env.snap_in("ann", ["commit", "--dry-run"]).code, Some(1));
    assert_eq!(env.snap_in("ann", ["cat", "HEAD:a.txt"]).succeeds().stdout, "bob was here");
    insta::assert_snapshot!(env.snap_in("ann", ["status"]), @"
    exit: 0
    --- stdout ---
    On branch main
    Last commit [SHORT ID], just now: fix the roof
    The files are behind the branch by 1 commit; the newest is [SHORT ID] by bob
    The list shows the changes of that commit in reverse

      modified    a.txt (3 B, -9 B)
      added       c.txt (5 B)

    1 added, 1 modified; 5 B added, 9 B deleted
    --- stderr ---
    hint: `snap pull --update` updates the files and keeps local changes
    hint: `snap diff [SHORT ID]` shows the local changes alone
    ");
    let status = &env.snap_in("ann", ["--json", "status"]).succeeds().json()[0];
    assert_eq!(status["unseen"], 1);
}

#[test]
fn after_a_restore_of_the_tip_a_commit_keeps_what_was_pulled() {
    let env = behind();
    env.snap_in("ann", ["restore", "HEAD", "--overwrite"]).succeeds();
    env.snap_in("ann", ["commit"]).succeeds();
    assert_eq!(env.snap_in("ann", ["cat", "HEAD:a.txt"]).succeeds().stdout, "bob was here");
    assert_eq!(env.snap_in("ann", ["cat", "HEAD:c.txt"]).succeeds().stdout, "three");
}

#[test]
fn files_that_equal_the_tip_may_be_committed_however_they_got_here() {
    let env = behind();
    env.snap_in("ann", ["restore", "HEAD:a.txt", "--overwrite"]).succeeds();
    assert_eq!(env.snap_in("ann", ["commit"]).code, Some(1), "c.txt is not in the tip");
    env.snap_in("ann", ["commit", "c.txt"]).succeeds();
    env.snap_in("ann", ["commit", "--dry-run"]).succeeds();
    env.snap_in("ann", ["commit"]).succeeds();
    env.write("ann/c.txt", "four");
    env.snap_in("ann", ["commit"]).succeeds();
    assert_eq!(env.snap_in("ann", ["cat", "HEAD:a.txt"]).succeeds().stdout, "bob was here");
    assert_eq!(env.snap_in("ann", ["cat", "HEAD:c.txt"]).succeeds().stdout, "four");
}

#[test]
fn a_deletion_of_what_a_commit_excludes_is_not_taken_back_by_the_next_one() {
    let env = two_clones();
    fs_err::remove_file(env.path("bob/a.txt")).unwrap();
    env.snap_in("bob", ["commit"]).succeeds();
    env.snap_in("bob", ["push"]).succeeds();
    env.snap_in("ann", ["pull"]).succeeds();
    assert_eq!(env.snap_in("ann", ["commit"]).code, Some(1));
    env.snap_in("ann", ["commit", "--exclude", "a.txt"]).succeeds();
    assert_eq!(env.snap_in("ann", ["commit"]).code, Some(1));
}

#[test]
fn a_restore_that_keeps_an_excluded_file_that_was_deleted_does_not_move_the_base() {
    let env = two_clones();
    fs_err::remove_file(env.path("bob/a.txt")).unwrap();
    env.snap_in("bob", ["commit"]).succeeds();
    env.snap_in("bob", ["push"]).succeeds();
    env.snap_in("ann", ["pull"]).succeeds();
    env.write("ann/.snapignore", "a.txt\n");
    env.snap_in("ann", ["restore", "HEAD", "--overwrite", "--delete", "-y"]).succeeds();
    assert!(env.path("ann/a.txt").exists());
    assert_eq!(env.snap_in("ann", ["commit"]).code, Some(1));
}

#[test]
fn a_restore_that_cannot_set_a_mode_does_not_move_the_base() {
    if !needs_root() {
        return;
    }
    let env = two_clones();
    env.mode("", 0o755);
    env.mode("bob/sub", 0o700);
    env.snap_in("bob", ["commit"]).succeeds();
    env.snap_in("bob", ["push"]).succeeds();
    env.snap_in("ann", ["pull"]).succeeds();
    let own = |owner: &str, place: &str| {
        let mut change = std::process::Command::new("chown");
        assert!(change.args(["-R", owner]).arg(env.path(place)).status().unwrap().success());
    };
    own("65534:65534", "ann");
    std::os::unix::fs::chown(env.path("ann/sub"), Some(65_533), Some(65_533)).unwrap();
    let run = |args: &[&str]| {
        let mut command = env.command("ann");
        std::os::unix::process::CommandExt::uid(&mut command, 65_534);
        command.args(args).output().unwrap()
    };
    let restored = run(&["restore", "HEAD", "--overwrite", "--delete"]);
    let stderr = String::from_utf8_lossy(&restored.stderr);
    assert!(stderr.contains("mode of 1 entry could not be set"), "{stderr}");
    assert_eq!(run(&["commit"]).status.code(), Some(1));
}

#[test]
fn attributes_that_a_colleague_gave_the_root_folder_or_a_file_are_not_reverted() {
    for path in ["", "/a.txt"] {
        let env = two_clones();
        env.mode(format!("bob{path}"), 0o700);
        env.snap_in("bob", ["commit"]).succeeds();
        env.snap_in("bob", ["push"]).succeeds();
        env.snap_in("ann", ["pull"]).succeeds();
        assert_eq!(env.snap_in("ann", ["commit"]).code, Some(1), "{path}");
    }
}

#[test]
fn a_new_branch_takes_the_files_as_they_are_and_starts_at_their_base() {
    let env = behind();
    env.snap_in("ann", ["commit", "-b", "mine"]).succeeds();
    assert_eq!(env.snap_in("ann", ["cat", "main:a.txt"]).succeeds().stdout, "bob was here");
    assert_eq!(env.snap_in("ann", ["cat", "mine:a.txt"]).succeeds().stdout, "one");
    assert_eq!(env.snap_in("ann", ["log", "--json", "mine"]).succeeds().json().len(), 2);
    assert_eq!(env.snap_in("ann", ["commit"]).code, Some(1), "main is still ahead");
}

#[test]
fn onto_tip_takes_back_what_was_pulled_and_the_next_commit_goes_on() {
    let env = behind();
    env.snap_in("ann", ["commit", "--onto-tip"]).succeeds();
    assert_eq!(env.snap_in("ann", ["cat", "HEAD:a.txt"]).succeeds().stdout, "one");
    assert_eq!(env.snap_in("ann", ["log", "--json"]).succeeds().json().len(), 3);
    env.write("ann/c.txt", "four");
    env.snap_in("ann", ["commit"]).succeeds();
}

#[test]
fn after_named_paths_onto_the_tip_the_files_still_lack_what_was_pulled() {
    let env = behind();
    env.snap_in("ann", ["commit", "c.txt", "--onto-tip"]).succeeds();
    assert_eq!(env.snap_in("ann", ["cat", "HEAD:c.txt"]).succeeds().stdout, "three");
    assert_eq!(env.snap_in("ann", ["cat", "HEAD:a.txt"]).succeeds().stdout, "bob was here");
    env.write("ann/c.txt", "four");
    let refused = env.snap_in("ann", ["commit"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("has 1 newer commit than the files here"),
        "{}",
        refused.stderr
    );
    env.snap_in("ann", ["commit", "c.txt", "--onto-tip"]).succeeds();
    assert_eq!(env.snap_in("ann", ["cat", "HEAD:a.txt"]).succeeds().stdout, "bob was here");
}

#[test]
fn a_commit_of_files_from_elsewhere_does_not_stand_for_the_projects_files() {
    let env = behind();
    env.write("other/x.txt", "elsewhere");
    env.snap_in("ann", ["commit", "../other", "--replace"]).succeeds();
    // Naming the branch does not permit the commit.
    for args in [&["commit"][..], &["commit", "-b", "main"]] {
        let refused = env.snap_in("ann", args);
        assert_eq!(refused.code, Some(1), "{}", refused.stderr);
        assert!(refused.stderr.contains("branch `main` holds snapshots of "), "{}", refused.stderr);
    }
    let refused = env.snap_in("ann", ["commit", "--replace"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("fix the roof"), "{}", refused.stderr);
}

#[test]
fn restoring_the_tip_into_the_project_by_name_brings_the_files_up_to_date() {
    let env = behind();
    env.snap_in("ann", ["restore", "HEAD", ".", "--overwrite"]).succeeds();
    env.snap_in("ann", ["commit"]).succeeds();
    assert_eq!(env.snap_in("ann", ["cat", "HEAD:a.txt"]).succeeds().stdout, "bob was here");
}

#[test]
fn paths_that_what_was_pulled_did_not_change_are_committed_on_top_of_it() {
    let env = behind();
    env.write("ann/sub/b.txt", "mine");
    env.snap_in("ann", ["commit", "c.txt", "sub"]).succeeds();
    for (path, text) in [("a.txt", "bob was here"), ("c.txt", "three"), ("sub/b.txt", "mine")] {
        assert_eq!(env.snap_in("ann", ["cat", &format!("HEAD:{path}")]).succeeds().stdout, text);
    }
    let refused = env.snap_in("ann", ["commit"]).stderr;
    assert!(refused.contains("they changed a.txt\n"), "{refused}");
    // The commit is refused again, although the branch now differs from the base in this file.
    env.write("ann/c.txt", "four");
    env.snap_in("ann", ["commit", "c.txt"]).succeeds();
    for args in [&["commit", "a.txt"][..], &["commit", "c.txt", "a.txt"], &["commit"]] {
        assert_eq!(env.snap_in("ann", args).code, Some(1), "{args:?}");
    }
}

#[test]
fn a_named_path_below_what_a_colleague_made_a_file_is_refused() {
    let env = two_clones();
    fs_err::remove_dir_all(env.path("bob/sub")).unwrap();
    env.write("bob/sub", "bob's work");
    env.write("bob/new", "bob's file");
    env.snap_in("bob", ["commit"]).succeeds();
    env.snap_in("bob", ["push"]).succeeds();
    env.snap_in("ann", ["pull"]).succeeds();
    env.write("ann/sub/mine", "x");
    env.write("ann/new/mine", "x");
    for path in ["sub/mine", "new/mine", "sub", "new"] {
        assert_eq!(env.snap_in("ann", ["commit", path]).code, Some(1), "{path}");
    }
    assert_eq!(env.snap_in("ann", ["cat", "HEAD:sub"]).succeeds().stdout, "bob's work");
}

#[test]
fn files_that_a_colleague_deleted_are_not_brought_back_by_a_commit_after_a_restore() {
    let env = two_clones();
    fs_err::remove_file(env.path("bob/sub/b.txt")).unwrap();
    env.snap_in("bob", ["commit"]).succeeds();
    env.snap_in("bob", ["push"]).succeeds();
    env.snap_in("ann", ["pull"]).succeeds();
    let told = env.snap_in("ann", ["restore", "HEAD", "--overwrite"]).succeeds().stderr;
    assert!(told.contains("1 entry, such as `sub"), "{told}");
    assert_eq!(env.snap_in("ann", ["commit"]).code, Some(1));
    env.snap_in("ann", ["restore", "HEAD", "--overwrite", "--delete"]).succeeds();
    assert!(!env.path("ann/sub/b.txt").exists());
    env.write("ann/c.txt", "three");
    env.snap_in("ann", ["commit"]).succeeds();
}

#[test]
fn a_copy_of_hard_links_does_not_take_commits_of_the_other_for_its_own() {
    let env = two_clones();
    let mut copy = std::process::Command::new("cp");
    assert!(copy.arg("-al").args([env.path("ann"), env.path("copy")]).status().unwrap().success());
    env.write("ann/new.txt", "work");
    env.snap_in("ann", ["commit"]).succeeds();
    env.snap_in("ann", ["push"]).succeeds();
    env.snap_in("copy", ["pull", "origin"]).succeeds();
    env.write("copy/z.txt", "z");
    let refused = env.snap_in("copy", ["commit"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("they changed new.txt"), "{}", refused.stderr);
}

#[test]
fn a_restore_that_left_something_out_does_not_bring_the_files_up_to_date() {
    if !needs_root() {
        return;
    }
    let env = two_clones();
    let mut make = std::process::Command::new("mknod");
    if !make.arg(env.path("ann/null")).args(["c", "1", "3"]).status().unwrap().success() {
        return skip("a device that is left out", "cannot make a device");
    }
    env.snap_in("ann", ["commit"]).succeeds();
    env.snap_in("ann", ["push"]).succeeds();
    env.mode("", 0o755);
    let mut change = std::process::Command::new("chown");
    let all = [env.path("bob"), env.path("there")];
    assert!(change.args(["-R", "65534:65534"]).args(all).status().unwrap().success());
    let run = |args: &[&str]| {
        let mut command = env.command("bob");
        std::os::unix::process::CommandExt::uid(&mut command, 65_534);
        command.args(args).output().unwrap().status.code()
    };
    assert_eq!(run(&["pull", "origin"]), Some(0));
    assert_eq!(run(&["restore", "HEAD", "--overwrite", "--no-owner"]), Some(3));
    assert_eq!(run(&["commit"]), Some(1));
}

#[test]
fn a_clone_is_as_private_as_what_was_committed() {
    let env = TestEnv::new();
    env.write("diary/note", "private");
    env.mode("diary", 0o700);
    env.snap_in("diary", ["commit"]).succeeds();
    let url = format!("file://{}", env.path("there").display());
    env.snap_in("diary", ["push", &url, "main"]).succeeds();
    let mode = |path: &str| {
        let meta = fs_err::metadata(env.path(path)).unwrap();
        std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o777
    };
    env.snap(["clone", &url, "copy"]).succeeds();
    env.snap(["clone", &url, "bare", "--no-restore"]).succeeds();
    assert_eq!((mode("copy"), mode("bare")), (0o700, 0o700));
    env.mode("diary", 0o755);
    env.snap_in("diary", ["commit"]).succeeds();
    env.snap_in("diary", ["push", &url, "main"]).succeeds();
    env.snap(["clone", &url, "open"]).succeeds();
    assert_eq!(mode("open"), 0o755);
}

#[test]
fn a_store_and_a_remote_are_not_taken_for_each_other() {
    let env = two_clones();
    let url = format!("file://{}", env.path("bob/.snap").display());
    let before = env.read("bob/.snap/refs/heads/main");
    let pushed = env.snap_in("ann", ["push", &url, "main"]).succeeds();
    assert!(pushed.stderr.contains("Nothing to push"), "{}", pushed.stderr);
    env.snap(["clone", &url, "x"]).succeeds();
    assert_eq!(env.read("bob/.snap/refs/heads/main"), before);
    for args in [&["log"][..], &["commit", "ann", "-b", "zz"], &["tag", "t", "main"]] {
        let refused = env.snap([&["--store", "there"], args].concat());
        assert_eq!(refused.code, Some(2), "{args:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("is a remote"), "{}", refused.stderr);
    }
    assert!(!env.path("there/refs/heads/zz").exists());
    // A copy of a store without its derived files is a store.
    for part in ["lock", "compact.lock"] {
        let _ = fs_err::remove_file(env.path("bob/.snap").join(part));
    }
    for part in ["cache", "logs"] {
        fs_err::remove_dir_all(env.path("bob/.snap").join(part)).unwrap();
    }
    env.snap_in("bob", ["log"]).succeeds();
}

#[test]
fn with_a_lost_base_named_paths_on_a_new_branch_update_the_tip() {
    let env = behind();
    fs_err::remove_file(env.path("ann/.snap/base")).unwrap();
    let made = env.snap_in("ann", ["commit", "c.txt", "-b", "mine"]).succeeds();
    assert!(made.stderr.contains("the store does not know which commit"), "{}", made.stderr);
    let listed = env.snap_in("ann", ["ls", "-R", "mine"]).succeeds().stdout;
    assert_eq!(listed, "a.txt\nc.txt\nsub/\nsub/b.txt\n");
}

#[test]
fn when_the_last_commit_is_lost_the_hint_tells_how_to_store_the_files() {
    let env = TestEnv::new();
    env.write("home/a.txt", "one");
    env.snap_in("home", ["commit"]).succeeds();
    fs_err::remove_dir_all(env.path("home/.snap/objects")).unwrap();
    fs_err::create_dir(env.path("home/.snap/objects")).unwrap();
    let refused = env.snap_in("home", ["commit"]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    for part in ["the last commit of branch `main` cannot be read", "`snap commit -b NAME`"] {
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
    env.snap_in("home", ["commit", "-b", "again"]).succeeds();
    assert_eq!(env.snap_in("home", ["cat", "again:a.txt"]).succeeds().stdout, "one");
}

#[test]
fn a_lost_commit_that_the_files_come_from_is_found_and_repaired() {
    let env = two_clones();
    env.write("bob/a.txt", "bob was here");
    env.snap_in("bob", ["commit", "-m", "second"]).succeeds();
    env.snap_in("bob", ["push"]).succeeds();
    let packs = || -> BTreeSet<PathBuf> {
        let files = fs_err::read_dir(env.path("ann/.snap/objects")).unwrap();
        files.map(|file| file.unwrap().path()).collect()
    };
    let before = packs();
    env.snap_in("ann", ["pull"]).succeeds();
    env.snap_in("ann", ["restore", "main", "--overwrite"]).succeeds();
    for pack in packs().difference(&before) {
        fs_err::remove_file(pack).unwrap();
    }
    env.snap_in("ann", ["undo", "main"]).succeeds();
    let refused = env.snap_in("ann", ["commit"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    for part in ["from which the files come, is lost", "`snap repair` recovers"] {
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
    assert_eq!(env.snap_in("ann", ["verify"]).code, Some(4));
    env.snap_in("ann", ["repair"]).succeeds();
    env.snap_in("ann", ["verify"]).succeeds();
    env.write("ann/new.txt", "new");
    env.snap_in("ann", ["commit"]).succeeds();
}

#[test]
fn rules_that_the_last_commit_lacks_are_recorded_although_no_file_changed() {
    let env = TestEnv::new();
    env.write("home/a.txt", "one");
    env.snap_in("home", ["commit"]).succeeds();
    env.write("home/x.key", "secret");
    let exclude = ["commit", "--exclude", "*.key"];
    env.snap_in("home", exclude).succeeds();
    env.snap_in("home", ["restore", "HEAD", "--overwrite", "--delete", "--yes"]).succeeds();
    assert_eq!(env.read("home/x.key"), "secret");
    assert_eq!(env.snap_in("home", ["log", "--json"]).succeeds().json().len(), 2);
    env.snap_in("home", exclude).succeeds();
    assert_eq!(env.snap_in("home", ["log", "--json"]).succeeds().json().len(), 2);
}

#[test]
fn too_many_sets_of_rules_are_refused_and_a_whole_commit_starts_anew() {
    let env = TestEnv::new();
    env.write("home/a.txt", "one");
    env.snap_in("home", ["commit"]).succeeds();
    let update = |number: usize| {
        env.write("home/a.txt", number.to_string());
        env.snap_in("home", ["commit", "a.txt", "--exclude", &format!("*.{number}")])
    };
    (0..snap_core::base::limits::RULE_SETS).for_each(|number| drop(update(number).succeeds()));
    let refused = update(1_000);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("65 sets of exclude rules"), "{}", refused.stderr);
    assert!(refused.stderr.contains("or commit the whole project"));
    env.snap_in("home", ["commit"]).succeeds();
    update(1_000).succeeds();
}

#[test]
fn after_a_pull_in_a_partial_clone_the_named_command_keeps_the_clone_partial() {
    let env = two_clones();
    let url = format!("file://{}", env.path("there").display());
    env.snap(["clone", "-q", &url, "part", "--path", "sub"]).succeeds();
    env.write("bob/sub/b.txt", "bob was here");
    env.snap_in("bob", ["commit"]).succeeds();
    env.snap_in("bob", ["push"]).succeeds();
    let pulled = env.snap_in("part", ["pull"]).succeeds().stderr;
    let (_, command) = pulled.rsplit_once("`snap ").unwrap();
    let (command, _) = command.split_once(" -n`").unwrap();
    assert_eq!(command, "restore main:sub --overwrite --delete");
    env.snap_in("part", command.split(' ')).succeeds();
    assert_eq!(env.read("part/sub/b.txt"), "bob was here");
    env.snap_in("part", ["commit"]).succeeds();
    assert!(!env.path("part/a.txt").exists());
    let status = &env.snap_in("part", ["--json", "status"]).succeeds().json()[0];
    assert_eq!(status["scope"], serde_json::json!(["sub"]), "{status}");
}

#[test]
fn in_a_partial_clone_a_closed_folder_outside_its_scope_is_left_out_by_name() {
    if !needs_root() {
        return;
    }
    let env = two_clones();
    let url = format!("file://{}", env.path("there").display());
    env.snap(["clone", "-q", &url, "part", "--path", "sub"]).succeeds();
    env.write("part/sub/b.txt", "changed");
    env.write("part/closed/x", "root's own");
    env.mode("", 0o755);
    let mut change = std::process::Command::new("chown");
    assert!(change.args(["-R", "65534:65534"]).arg(env.path("part")).status().unwrap().success());
    std::os::unix::fs::chown(env.path("part/closed"), Some(0), Some(0)).unwrap();
    env.mode("part/closed", 0o700);
    let mut command = env.command("part");
    std::os::unix::process::CommandExt::uid(&mut command, 65_534);
    let output = command.args(["commit", "--json"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert_eq!(stderr.matches("closed").count(), 1, "{stderr}");
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["skipped"], 1, "{record}");
    assert_eq!(env.snap_in("part", ["cat", "HEAD:sub/b.txt"]).succeeds().stdout, "changed");
}

#[test]
fn a_lost_base_means_the_tip_and_a_note_says_so() {
    let env = behind();
    fs_err::remove_file(env.path("ann/.snap/base")).unwrap();
    let made = env.snap_in("ann", ["commit"]).succeeds();
    assert!(made.stderr.contains("the store does not know which commit"), "{}", made.stderr);
    env.write("ann/c.txt", "five");
    let again = env.snap_in("ann", ["commit"]).succeeds();
    assert!(!again.stderr.contains("does not know"), "{}", again.stderr);
}

#[test]
fn a_base_that_was_not_written_after_a_commit_does_not_refuse_it() {
    let env = two_clones();
    let base = env.read("ann/.snap/base");
    env.write("ann/c.txt", "three");
    env.snap_in("ann", ["commit"]).succeeds();
    fs_err::write(env.path("ann/.snap/base"), base).unwrap();
    env.write("ann/c.txt", "four");
    env.snap_in("ann", ["commit"]).succeeds();
}

#[test]
fn after_an_old_revision_was_restored_a_commit_goes_on_from_the_tip() {
    let env = two_clones();
    env.write("ann/a.txt", "newer");
    env.snap_in("ann", ["commit"]).succeeds();
    env.snap_in("ann", ["restore", "HEAD~1", "--overwrite"]).succeeds();
    env.snap_in("ann", ["commit"]).succeeds();
    assert_eq!(env.snap_in("ann", ["cat", "HEAD:a.txt"]).succeeds().stdout, "one");
    assert_eq!(env.snap_in("ann", ["log", "--json"]).succeeds().json().len(), 3);
}

#[test]
fn files_that_were_never_restored_from_an_unpacked_bundle_are_not_committed_over_it() {
    let env = two_clones();
    env.snap_in("ann", ["pack", "HEAD", "-o", "../x.snap"]).succeeds();
    fs_err::create_dir(env.path("new")).unwrap();
    env.snap_in("new", ["unpack", "../x.snap"]).succeeds();
    assert_eq!(env.snap_in("new", ["commit"]).code, Some(1));
    env.snap_in("new", ["restore", "HEAD"]).succeeds();
    env.snap_in("new", ["commit"]).succeeds();
}

#[test]
fn a_commit_that_a_restore_took_out_of_the_files_does_not_count_as_contained() {
    let env = two_clones();
    env.write("ann/a.txt", "two");
    env.write("ann/mine.txt", "mine");
    env.snap_in("ann", ["commit", "-m", "second"]).succeeds();
    env.snap_in("ann", ["push"]).succeeds();
    env.snap_in("ann", ["undo", "main"]).succeeds();
    env.snap_in("ann", ["restore", "latest", "--overwrite", "--delete", "-y"]).succeeds();
    env.write("ann/new.txt", "new");
    for (back, forth) in [(vec!["undo", "--redo"], vec!["undo", "main"]), (vec!["pull"], vec![])] {
        env.snap_in("ann", back.iter().copied()).succeeds();
        for commit in [vec!["commit"], vec!["commit", "a.txt"], vec!["commit", "mine.txt"]] {
            let refused = env.snap_in("ann", commit.iter().copied());
            assert_ne!(refused.code, Some(0), "{back:?} {commit:?}: {}", refused.stderr);
        }
        if !forth.is_empty() {
            env.snap_in("ann", forth).succeeds();
        }
    }
    env.snap_in("ann", ["restore", "latest", "--overwrite"]).succeeds();
    env.snap_in("ann", ["commit"]).succeeds();
    assert_eq!(env.snap_in("ann", ["cat", "HEAD:mine.txt"]).succeeds().stdout, "mine");
    assert_eq!(env.snap_in("ann", ["cat", "HEAD:a.txt"]).succeeds().stdout, "two");
}

#[test]
fn branches_that_were_switched_between_without_a_restore_take_commits() {
    let env = two_clones();
    env.write("ann/a.txt", "two");
    env.snap_in("ann", ["commit", "-b", "exp"]).succeeds();
    env.write("ann/a.txt", "three");
    env.snap_in("ann", ["commit"]).succeeds();
    env.write("ann/a.txt", "four");
    env.snap_in("ann", ["commit", "-b", "exp"]).succeeds();
    env.snap_in("ann", ["restore", "main", "--overwrite", "--delete", "-y"]).succeeds();
    env.write("ann/a.txt", "five");
    let refused = env.snap_in("ann", ["commit", "-b", "exp"]);
    assert_eq!(refused.code, Some(1), "its files are no longer those of exp: {}", refused.stderr);
}

#[test]
fn what_was_restored_counts_as_contained_after_commits_on_other_branches() {
    let env = two_clones();
    env.write("ann/a.txt", "two");
    env.snap_in("ann", ["commit", "-b", "exp"]).succeeds();
    env.write("ann/a.txt", "three");
    env.snap_in("ann", ["commit"]).succeeds();
    env.snap_in("ann", ["restore", "exp", "--overwrite", "--delete", "-y"]).succeeds();
    for branch in ["main", "exp", "main", "exp"] {
        env.snap_in("ann", ["commit", "-b", branch, "--allow-empty"]).succeeds();
    }
}

#[test]
fn a_link_to_the_store_is_no_file_of_the_project() {
    let env = TestEnv::new();
    env.write("home/a.txt", "one");
    env.snap_in("home", ["commit", "-m", "first"]).succeeds();
    fs_err::rename(env.path("home/.snap"), env.path("store")).unwrap();
    std::os::unix::fs::symlink("../store", env.path("home/.snap")).unwrap();
    env.write("home/sub/inner/b.txt", "two");
    env.snap_in("home/sub/inner", ["init"]).succeeds();
    fs_err::rename(env.path("home/sub/inner/.snap"), env.path("other")).unwrap();
    std::os::unix::fs::symlink(env.path("other"), env.path("home/sub/inner/.snap")).unwrap();
    env.write("home/a.txt", "two");
    env.snap_in("home", ["--store", ".snap", "commit", "-m", "second"]).succeeds();
    let listed = env.snap_in("home", ["--store", ".snap", "ls", "-R", "latest"]).succeeds().stdout;
    assert!(!listed.contains(".snap"), "{listed}");
    env.snap_in(
        "home",
        ["--store", ".snap", "restore", "latest~1", "--overwrite", "--delete", "-y"],
    )
    .succeeds();
    for link in ["home/.snap", "home/sub/inner/.snap"] {
        assert!(env.path(link).is_symlink(), "{link}");
    }
    assert_eq!(
        env.snap_in("home", ["--store", ".snap", "log", "--json"]).succeeds().json().len(),
        2
    );
    // A link that does not lead to a store is saved like any other.
    std::os::unix::fs::symlink("nowhere", env.path("home/sub/.snap")).unwrap();
    env.snap_in("home", ["--store", ".snap", "commit", "-m", "third"]).succeeds();
    let listed = env.snap_in("home", ["--store", ".snap", "ls", "-R", "latest"]).succeeds().stdout;
    assert!(listed.contains("sub/.snap"), "{listed}");
}

#[test]
fn a_restore_of_what_the_files_came_from_counts_from_its_own_time() {
    let env = TestEnv::new();
    env.write("p/a", "1");
    env.snap_in("p", ["commit", "-q"]).succeeds();
    env.write("p/a", "2");
    env.snap_in("p", ["commit", "-q"]).succeeds();
    env.snap_in("p", ["restore", "-q", "HEAD~1", "--overwrite"]).succeeds();
    let base = env.read("p/.snap/base");
    env.write("p/a", "3");
    env.snap_in("p", ["commit", "-q"]).succeeds();
    // Simulates a commit that was killed before it wrote the base.
    env.write("p/.snap/base", &base);
    env.snap_in("p", ["undo"]).succeeds();
    env.snap_in("p", ["restore", "-q", "HEAD~1", "--overwrite", "--yes"]).succeeds();
    env.snap_in("p", ["undo", "--redo"]).succeeds();
    env.write("p/b", "new");
    let refused = env.snap_in("p", ["commit"]);
    assert_eq!(
        refused.code,
        Some(1),
        "the commit with `3` is not in the files: {}",
        refused.stderr
    );
}
