//! `snap restore --delete`: which files are removed, which stay, and when it asks.

use crate::{
    env::TestEnv,
    restore::{as_nobody, env},
};
use snap_testkit::skip::needs_root;

#[test]
fn an_extra_file_that_cannot_be_read_stays() {
    if !needs_root() {
        return;
    }
    let env = env();
    env.write("home/sub/secret", "root's own");
    env.mode("home/sub/secret", 0o600);
    fs_err::create_dir(env.path("home/sub/closed")).unwrap();
    env.mode("home/sub/closed", 0o700);
    let mut command = as_nobody(&env);
    let args = ["restore", "latest", "--overwrite", "--delete", "--yes"];
    let output = command.args(args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    for path in ["sub/closed", "sub/secret"] {
        let told = format!("kept `{path}`: it is unreadable, so no commit contains it");
        assert!(stderr.contains(&told), "{stderr}");
        assert!(env.path("home").join(path).exists());
    }
}

#[test]
fn a_removal_that_fails_is_reported_and_the_others_go_on() {
    if !needs_root() {
        return;
    }
    let env = env();
    env.write("home/locked/stays", "");
    env.write("home/goes", "");
    env.mode("home/locked", 0o755);
    let mut command = as_nobody(&env);
    let output =
        command.args(["restore", "latest", "--overwrite", "--delete", "--json"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("could not remove `locked/stays`: Permission denied"), "{stderr}");
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let counts = ["removed", "not_removed", "kept", "complete"].map(|key| record[key].clone());
    assert_eq!(serde_json::json!(counts), serde_json::json!([1, 1, 1, true]));
    assert!(!env.path("home/goes").exists() && env.path("home/locked/stays").exists());
}

#[test]
fn what_no_commit_holds_is_removed_only_with_yes() {
    let env = env();
    env.write("home/old.txt", "of an older commit");
    env.snap_in("home", ["commit"]).succeeds();
    fs_err::remove_file(env.path("home/old.txt")).unwrap();
    env.snap_in("home", ["commit"]).succeeds();
    // This content is stored, but the branch no longer leads to it.
    env.write("home/undone.txt", "of a commit that was taken back");
    env.snap_in("home", ["commit"]).succeeds();
    env.snap_in("home", ["undo"]).succeeds();
    env.write("home/copy.txt", "of an older commit");
    env.write("home/new/work.txt", "never saved");
    let args = ["restore", "latest", "--overwrite", "--delete"];
    insta::assert_snapshot!(env.snap_in("home", [&args[..], &["-n"]].concat()), @r"
    exit: 0
    --- stdout ---
    remove  copy.txt
    remove  new
    remove  new/work.txt  (in no commit)
    remove  undone.txt  (in no commit)
    --- stderr ---
    Would restore 0 files, 0 B; 2 already there
    Would delete 4 paths
    warning: 2 files of these are in no commit and would be lost
    ");
    insta::assert_snapshot!(env.snap_in("home", args), @"
    exit: 1
    --- stderr ---
    error: `new/work.txt`, `undone.txt` are in no commit and would be lost
    hint: --dry-run lists them
    hint: `snap commit -b NAME` saves them first, on a new branch
    hint: --yes deletes and overwrites them
    ");
    assert!(env.path("home/copy.txt").exists(), "nothing is removed before all is agreed to");
    let json = env.snap_in("home", [&args[..], &["-n", "--json"]].concat()).succeeds().stdout;
    assert!(json.contains(r#""path":"copy.txt","recoverable":true"#), "{json}");
    assert!(json.contains(r#""path":"undone.txt","recoverable":false"#), "{json}");

    env.snap_in("home", [&args[..], &["--yes"]].concat()).succeeds();
    assert!(!env.path("home/new").exists() && !env.path("home/undone.txt").exists());
    // Removing a file that a commit contains needs no question.
    env.write("home/copy.txt", "of an older commit");
    env.snap_in("home", args).succeeds();
    assert!(!env.path("home/copy.txt").exists());
}

#[test]
fn the_hint_saves_what_would_be_removed() {
    let env = TestEnv::new();
    env.write("home/sub/a.txt", "a");
    env.write("home/top.txt", "top");
    env.snap_in("home", ["commit", "-q"]).succeeds();
    env.snap_in("home", ["pack", "-q", "-o", "../home.snap"]).succeeds();
    env.snap_in("home", ["restore", "-q", "HEAD", "../out"]).succeeds();
    env.snap(["restore", "-q", "home.snap", "bundled"]).succeeds();
    for new in ["home/sub/new.txt", "out/new.txt", "bundled/new.txt"] {
        env.write(new, new);
    }
    env.write("home/top.txt", "of no concern");
    let delete = ["--overwrite", "--delete"];
    let hint = |dir: &str, args: &[&str]| {
        let ran = env.snap_in(dir, [&["restore"], args, &delete].concat());
        assert_eq!(ran.code, Some(1), "{ran}");
        let line = ran.stderr.lines().find(|line| line.contains("saves them first")).unwrap();
        line.split('`').nth(1).unwrap().to_owned()
    };
    let run = |dir: &str, command: &str| {
        env.snap_in(dir, command.split(' ').skip(1)).succeeds();
    };

    // A folder of the project: the commit contains it, and no change beside it.
    for (dir, command) in
        [("home", "snap commit -b NAME sub"), ("home/sub", "snap commit -b NAME .")]
    {
        assert_eq!(hint(dir, &["HEAD:sub"]), command);
    }
    run("home", "snap commit -b kept sub");
    assert_eq!(env.snap_in("home", ["cat", "kept:sub/new.txt"]).stdout, "home/sub/new.txt");
    assert_eq!(env.snap_in("home", ["cat", "kept:top.txt"]).stdout, "top");
    env.snap_in("home", [&["restore", "HEAD:sub"][..], &delete].concat()).succeeds();
    // A store that an option names.
    env.write("home/sub/new.txt", "newer");
    let store = ["HEAD:sub", "--store", "home/.snap"];
    assert_eq!(hint("", &store), "snap --store home/.snap commit -b NAME home/sub");
    run("", "snap --store home/.snap commit -b newer home/sub");
    assert_eq!(env.snap_in("home", ["cat", "newer:sub/new.txt"]).stdout, "newer");

    // Another folder, which is in no project.
    for (dir, args, command, file) in [
        ("home", ["HEAD", "../out"], "snap archive ../out -o FILE.snap", "out/new.txt"),
        ("", ["home.snap", "bundled"], "snap archive bundled -o FILE.snap", "bundled/new.txt"),
    ] {
        assert_eq!(hint(dir, &args), command);
        run(dir, &command.replace("FILE", "saved"));
        assert_eq!(env.snap_in(dir, ["cat", "saved.snap:new.txt"]).stdout, file);
    }

    // What commits and archives leave out is to be copied.
    let all = ["restore", "HEAD", "../out", "--overwrite", "--delete", "--delete-excluded"];
    let ran = env.snap_in("home", all);
    assert!(ran.stderr.contains("\nhint: copy them to another folder to keep them\n"), "{ran}");
}

#[test]
fn what_commits_leave_out_stays_unless_told() {
    let env = env();
    env.write("home/.snapignore", "*.log\n");
    env.write("home/early.log", "x");
    env.snap_in("home", ["commit", "--exclude", "*.tmp"]).succeeds();
    for path in ["home/late.log", "home/a.tmp", "home/extra"] {
        env.write(path, "");
    }
    env.snap_in("home", ["config", "set", "commit.exclude", r#"["*.bak"]"#]).succeeds();
    env.write("home/b.bak", "x");
    let args = ["restore", "latest", "--overwrite", "--delete", "--yes"];
    insta::assert_snapshot!(env.snap_in("home", args), @"
    exit: 0
    --- stderr ---
    Restored 0 files, 0 B; 3 already there
    Deleted 1 path
    Kept 4 entries that commits exclude
    hint: --delete-excluded also deletes them
    ");
    let dir = ["a.tmp", "b.bak", "early.log", "late.log"];
    assert!(dir.iter().all(|name| env.path("home").join(name).exists()));
    env.snap_in("home", [&args[..], &["--delete-excluded"]].concat()).succeeds();
    assert!(!dir.iter().any(|name| env.path("home").join(name).exists()));
}

#[test]
fn what_the_last_commit_left_out_stays_when_an_older_one_is_restored() {
    let env = TestEnv::new();
    env.write("a", "1");
    env.snap(["commit", "-q"]).succeeds();
    env.write("b", "2");
    env.write("key.secret", "3");
    env.snap(["commit", "-q", "-e", "*.secret"]).succeeds();
    env.snap(["restore", "latest~1", "--overwrite", "--delete", "--yes"]).succeeds();
    assert!(!env.path("b").exists());
    assert_eq!(env.read("key.secret"), "3");
}

#[test]
fn a_snapshot_of_several_paths_removes_nothing_outside_them() {
    let env = TestEnv::new();
    env.write("data/one/a", "1");
    env.write("data/two/b", "2");
    let store = env.path("store");
    let (one, two) = (env.path("data/one"), env.path("data/two"));
    let snap =
        |args: &[&str]| env.snap_in("", [&["--store", store.to_str().unwrap()], args].concat());
    snap(&["init"]).succeeds();
    snap(&["commit", one.to_str().unwrap(), two.to_str().unwrap()]).succeeds();
    snap(&["restore", "latest", "out"]).succeeds();
    let inside = |path: &str| format!("out{}/{path}", env.path("data").display());
    for path in ["extra", "one/extra"] {
        env.write(&inside(path), "x");
    }
    env.write("out/extra", "x");
    for more in [&[][..], &["--delete-excluded"]] {
        let args = ["restore", "latest", "out", "--overwrite", "--delete", "--yes"];
        let told = snap(&[&args[..], more].concat()).succeeds().stderr;
        assert!(told.contains("kept `extra`: it is outside the paths of the snapshot"), "{told}");
        assert!(env.path("out/extra").exists() && env.path(inside("extra")).exists());
        assert!(!env.path(inside("one/extra")).exists());
    }
}

#[test]
fn an_extra_file_is_saved_only_if_its_content_can_still_be_read() {
    let env = env();
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    let noise: Vec<u8> = (0..300_000).map(|_| next()).collect();
    env.write("home/noise", &noise);
    env.snap_in("home", ["commit"]).succeeds();
    fs_err::remove_file(env.path("home/noise")).unwrap();
    env.snap_in("home", ["commit"]).succeeds();
    env.write("home/noise", &noise);
    let args = ["restore", "latest", "--overwrite", "--delete"];
    assert!(!env.snap_in("home", [&args[..], &["-n"]].concat()).stdout.contains("in no commit"));
    let packs = fs_err::read_dir(env.path("home/.snap/objects")).unwrap();
    let largest = packs
        .map(|pack| pack.unwrap().path())
        .max_by_key(|path| fs_err::metadata(path).unwrap().len());
    let mut bytes = fs_err::read(largest.as_ref().unwrap()).unwrap();
    bytes[150_000] ^= 1;
    fs_err::write(largest.unwrap(), bytes).unwrap();
    let refused = env.snap_in("home", args);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(env.path("home/noise").exists());
}

#[test]
fn a_nested_store_whose_packs_lie_on_another_disk_is_left_alone() {
    let env = TestEnv::new();
    env.write("p/f", "1");
    env.snap_in("p", ["commit", "-qm", "outer"]).succeeds();
    env.write("p/sub/s", "1");
    env.snap_in("p/sub", ["--store", ".snap", "init", "-q"]).succeeds();
    env.snap_in("p/sub", ["commit", "-qm", "nested"]).succeeds();
    fs_err::rename(env.path("p/sub/.snap/objects"), env.path("objects")).unwrap();
    std::os::unix::fs::symlink(env.path("objects"), env.path("p/sub/.snap/objects")).unwrap();
    env.snap_in("p", ["commit", "-qm", "outer again"]).succeeds();
    let listed = env.snap_in("p", ["ls", "-R", "latest"]).succeeds().stdout;
    assert!(!listed.contains("sub/.snap/"), "{listed}");
    env.snap_in("p", ["restore", "latest~1", "--overwrite", "--delete", "--yes"]).succeeds();
    let log = env.snap_in("p/sub", ["log", "--oneline"]).succeeds().stdout;
    assert!(log.contains("nested"), "{log}");
    env.snap_in("p/sub", ["verify", "--data"]).succeeds();
}

/// The target's ignore file equals the snapshot's, so the restore would not read the damaged one
/// for its content.
#[test]
fn extras_stay_and_the_restore_fails_if_the_snapshots_ignore_file_is_damaged() {
    let env = TestEnv::new();
    // So long that the flipped bit lies in its frame.
    let comments: String = (0..300).map(|number| format!("# rule {}\n", number * 7919)).collect();
    env.write("ann/.snapignore", format!("*.o\n{comments}"));
    env.snap_in("ann", ["commit", "-q"]).succeeds();
    let first = fs_err::read_dir(env.path("ann/.snap/objects")).unwrap().next().unwrap().unwrap();
    env.write("ann/gone", "gone");
    env.write("ann/stays", "stays");
    env.snap_in("ann", ["commit", "-q"]).succeeds();
    env.snap(["clone", "-q", "ann", "bob"]).succeeds();
    fs_err::remove_file(env.path("ann/gone")).unwrap();
    env.snap_in("ann", ["commit", "-q"]).succeeds();
    env.snap_in("bob", ["pull", "-q"]).succeeds();
    let pack = env.path("bob/.snap/objects").join(first.file_name());
    let mut bytes = fs_err::read(&pack).unwrap();
    bytes[20] ^= 1;
    env.mode(&pack, 0o644);
    fs_err::write(&pack, bytes).unwrap();
    for restore in [["-n"], ["--yes"]] {
        let restore = ["restore", "latest", "--overwrite", "--delete"].into_iter().chain(restore);
        let ran = env.snap_in("bob", restore);
        assert_eq!(ran.code, Some(4), "{}", ran.stderr);
        assert!(ran.stderr.contains(".snapignore"), "{}", ran.stderr);
        assert!(env.path("bob/gone").exists());
    }
    // The colleague's removal of the file is not reverted.
    let commit = env.snap_in("bob", ["commit"]);
    assert_ne!(commit.code, Some(0), "{}", commit.stderr);
}
