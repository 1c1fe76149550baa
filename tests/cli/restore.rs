//! `snap restore`.

use std::{
    io::{BufRead, BufReader},
    os::unix::{
        fs::{MetadataExt, chown},
        process::CommandExt,
    },
    process::Stdio,
};

use snap_core::{
    base::{id::BlobId, time::Time},
    disk::Disk,
    local::{
        scan::FileStat,
        stat_cache::{KnownContent, KnownFile, NameHash, StatCache},
    },
};
use snap_testkit::skip::needs_root;

use crate::env::TestEnv;

pub(crate) fn env() -> TestEnv {
    let env = TestEnv::new();
    env.write("home/notes.txt", "first");
    env.write("home/sub/more.txt", "more");
    env.snap_in("home", ["commit"]).succeeds();
    env
}

#[test]
fn a_snapshot_is_written_elsewhere() {
    let env = env();
    insta::assert_snapshot!(env.snap_in("home", ["restore", "latest", "../copy"]), @r"
    exit: 0
    --- stderr ---
    Restored 2 files, 9 B; 0 already there
    ");
    assert_eq!(env.read("copy/sub/more.txt"), "more");
    insta::assert_snapshot!(env.snap_in("home", ["restore", "latest", "../copy"]), @r"
    exit: 0
    --- stderr ---
    Restored 0 files, 0 B; 2 already there
    ");
    env.snap_in("home", ["restore", "latest:sub", "../sub"]).succeeds();
    assert_eq!(env.read("sub/more.txt"), "more");
    env.snap_in("home", ["restore", "latest:sub/more.txt", "../one"]).succeeds();
    assert_eq!(env.read("one/more.txt"), "more");
}

#[test]
fn a_file_that_differs_stops_the_restore() {
    let env = env();
    env.write("home/notes.txt", "second");
    insta::assert_snapshot!(env.snap_in("home", ["restore", "latest"]), @"
    exit: 1
    --- stderr ---
    error: `notes.txt` differs from the snapshot
    hint: --overwrite replaces it
    hint: `snap restore REV DIR` restores to another folder
    ");
    assert_eq!(env.read("home/notes.txt"), "second");
    insta::assert_snapshot!(env.snap_in("home/sub", ["restore", "latest", "--overwrite", "-y"]), @r"
    exit: 0
    --- stderr ---
    Restored 1 file, 5 B; 1 already there
    ");
    assert_eq!(env.read("home/notes.txt"), "first");
}

#[test]
fn a_file_that_rotted_in_place_is_found_with_checksum_only() {
    let env = env();
    // Simulates bytes that changed below the file system: by its times, the cache still takes the
    // file as unchanged.
    env.write("home/notes.txt", "fjrst");
    let stat = FileStat::of_path(&env.path("home/notes.txt")).unwrap();
    let folder = FileStat::of_path(&env.path("home")).unwrap();
    let cache = StatCache::open(&env.path("home/.snap/cache"), Disk::default());
    let known = KnownFile {
        content: KnownContent::Is(BlobId::of(b"first").into()),
        xattrs: false,
        sparse: false,
    };
    let later = Time { secs: stat.mtime.secs + 60, nanos: 0 };
    cache.add_file(&stat, NameHash::new(&folder, b"notes.txt"), &known, later);
    cache.save().unwrap();

    env.snap_in("home", ["restore", "latest", "--overwrite"]).succeeds();
    assert_eq!(env.read("home/notes.txt"), "fjrst");
    insta::assert_snapshot!(env.snap_in("home", ["restore", "latest", "--checksum"]), @"
    exit: 1
    --- stderr ---
    error: `notes.txt` differs from the snapshot
    hint: --overwrite replaces it
    hint: `snap restore REV DIR` restores to another folder
    ");
    let args = ["restore", "latest", "--overwrite", "--checksum", "--yes"];
    insta::assert_snapshot!(env.snap_in("home", args), @r"
    exit: 0
    --- stderr ---
    Restored 1 file, 5 B; 1 already there
    ");
    assert_eq!(env.read("home/notes.txt"), "first");
}

#[test]
fn one_file_goes_back_to_its_place() {
    let env = env();
    fs_err::remove_file(env.path("home/sub/more.txt")).unwrap();
    env.write("home/notes.txt", "second");
    env.snap_in("home", ["restore", "latest:sub/more.txt"]).succeeds();
    assert_eq!(env.read("home/sub/more.txt"), "more");
    assert_eq!(env.read("home/notes.txt"), "second");
}

#[test]
fn a_dry_run_lists_and_changes_nothing() {
    let env = env();
    env.write("home/notes.txt", "second");
    env.write("home/extra", "");
    fs_err::remove_file(env.path("home/sub/more.txt")).unwrap();
    let args = ["restore", "latest", "--overwrite", "--delete", "-n"];
    insta::assert_snapshot!(env.snap_in("home", args), @r"
    exit: 0
    --- stdout ---
    create  sub/more.txt
    replace notes.txt  (in no commit)
    remove  extra
    --- stderr ---
    Would restore 2 files, 9 B; 0 already there
    Would delete 1 path
    warning: 1 file of these is in no commit and would be lost
    ");
    assert_eq!(env.read("home/notes.txt"), "second");
    env.snap_in("home", [&args[..4], &["--yes"]].concat()).succeeds();
    assert!(!env.path("home/extra").exists());
    assert!(env.path("home/.snap").exists());
}

#[test]
fn patterns_choose_what_is_restored() {
    let env = env();
    env.snap_in("home", ["restore", "latest", "../a", "--include", "*.txt", "--exclude", "notes*"])
        .succeeds();
    assert!(env.path("a/sub/more.txt").exists());
    assert!(!env.path("a/notes.txt").exists());
}

#[test]
fn a_target_that_is_no_folder_is_refused() {
    let env = env();
    env.write("file", "");
    insta::assert_snapshot!(env.snap_in("home", ["restore", "latest", "../file"]), @r"
    exit: 1
    --- stderr ---
    error: cannot open folder ../file
      caused by: Not a directory (os error 20)
    ");
}

#[test]
fn a_bare_store_needs_a_target() {
    let env = TestEnv::new();
    env.write("data/a", "1");
    env.snap(["--store", "s", "init"]).succeeds();
    env.snap(["--store", "s", "commit", "data"]).succeeds();
    insta::assert_snapshot!(env.snap(["--store", "s", "restore", "latest"]), @r"
    exit: 2
    --- stderr ---
    error: a bare store has no project folder; pass the folder to restore into
    ");
    env.snap(["--store", "s", "restore", "latest", "out"]).succeeds();
    assert_eq!(env.read("out/a"), "1");
}

#[test]
fn links_are_counted_and_a_pattern_without_a_match_is_told() {
    let env = env();
    std::os::unix::fs::symlink("notes.txt", env.path("home/link")).unwrap();
    fs_err::hard_link(env.path("home/notes.txt"), env.path("home/second")).unwrap();
    env.snap_in("home", ["commit"]).succeeds();
    insta::assert_snapshot!(env.snap_in("home", ["restore", "latest", "../a", "-v"]), @r"
    exit: 0
    --- stderr ---
    Restored 2 files and 2 other entries, 9 B; 0 already there
    Created 1 folder; cloned the blocks of 0 files; restored the attributes of 0 entries
    ");
    insta::assert_snapshot!(env.snap_in("home", ["restore", "latest", "../b", "-i", "*.pdf"]), @"
    exit: 1
    --- stderr ---
    error: nothing was restored: --include and --exclude select no entry
    hint: patterns have the syntax of .gitignore
    hint: `snap ls -R REV` lists all entries
    ");
    assert!(!env.path("b").exists());
}

/// A user without privileges.
pub(crate) const NOBODY: u32 = 65534;

#[test]
fn a_device_that_cannot_be_made_is_told_and_counted() {
    if !needs_root() {
        return;
    }
    let env = env();
    let (kind, mode) = (rustix::fs::FileType::CharacterDevice, 0o600.into());
    let null = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(rustix::fs::CWD, env.path("home/null"), kind, mode, null).unwrap();
    env.snap_in("home", ["commit"]).succeeds();
    env.mode("", 0o755);
    env.open_to_all("home");
    fs_err::create_dir(env.path("out")).unwrap();
    chown(env.path("out"), Some(NOBODY), Some(NOBODY)).unwrap();

    let mut command = env.command("home");
    command.uid(NOBODY).gid(NOBODY).args(["restore", "latest", "../out", "--overwrite", "--json"]);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    let told = "could not restore character device `null`: Operation not permitted";
    assert!(stderr.contains(told), "{stderr}");
    let told = r#"{"version":1,"type":"warning","message":"1 entry could not be restored"}"#;
    assert!(stderr.contains(told), "{stderr}");
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&record["skipped"], &record["files_written"]), (&1.into(), &2.into()));
    assert!(!stderr.contains(" of :"), "{stderr}");
}

/// Returns the binary as a command of a user without privileges, in `home`, which that user owns.
pub(crate) fn as_nobody(env: &TestEnv) -> std::process::Command {
    env.mode("", 0o755);
    for path in ["home", "home/sub"] {
        chown(env.path(path), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    // Only its owner can read a store.
    let owner = format!("{NOBODY}:{NOBODY}");
    let mut change = std::process::Command::new("chown");
    assert!(change.args(["-R", &owner]).arg(env.path("home/.snap")).status().unwrap().success());
    let mut command = env.command("home");
    command.uid(NOBODY).gid(NOBODY);
    command
}

#[test]
fn a_dry_run_finds_a_folder_that_cannot_be_written_into() {
    if !needs_root() {
        return;
    }
    let env = env();
    fs_err::remove_file(env.path("home/sub/more.txt")).unwrap();
    for dry in [&["-n"][..], &[]] {
        let mut command = as_nobody(&env);
        chown(env.path("home/sub"), Some(0), Some(0)).unwrap();
        let output = command.args(["restore", "latest", "--overwrite"]).args(dry).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        assert!(stderr.contains("could not restore"), "{stderr}");
        assert!(stderr.contains("Permission denied") && stderr.contains("sub"), "{stderr}");
    }
    assert!(!env.path("home/sub/more.txt").exists());
}

#[test]
fn a_folder_that_refuses_does_not_keep_others_from_being_restored() {
    if !needs_root() {
        return;
    }
    let env = TestEnv::new();
    for number in 0..30 {
        env.write(&format!("home/d{number:02}/f"), "saved");
    }
    env.snap_in("home", ["commit"]).succeeds();
    for number in 0..30 {
        env.write(&format!("home/d{number:02}/f"), "changed");
    }
    for path in ["home/d05/extra", "home/extra", "home/sub/more.txt"] {
        env.write(path, "x");
    }
    for number in 0..30 {
        for path in [format!("home/d{number:02}"), format!("home/d{number:02}/f")] {
            chown(env.path(path), Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    let mut command = as_nobody(&env);
    // Folders and files of another user.
    for path in ["home/d05", "home/d06", "home/d06/f"] {
        chown(env.path(path), Some(0), Some(0)).unwrap();
        env.mode(path, 0o755);
    }
    env.mode("home/d06", 0o700);
    let output =
        command.args(["restore", "latest", "--overwrite", "--delete", "-y"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    for told in [
        "could not restore file `d05/f`: Permission denied",
        "could not restore folder `d06`: Permission denied",
        "could not remove `d05/extra`: Permission denied",
        "warning: 2 entries could not be restored",
    ] {
        assert!(stderr.contains(told), "{told} is missing in {stderr}");
    }
    for number in (0..30).filter(|number| ![5, 6].contains(number)) {
        assert_eq!(env.read(&format!("home/d{number:02}/f")), "saved", "{number}");
    }
    assert!(!env.path("home/extra").exists());
}

#[test]
fn a_whole_snapshot_is_not_poured_into_a_folder_that_it_has() {
    let env = env();
    env.write("home/sub/mine", "x");
    let args = ["restore", "latest", "sub", "--overwrite", "--delete", "--yes"];
    let refused = env.snap_in("home", args);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("`snap restore latest:sub`"), "{}", refused.stderr);
    assert_eq!(env.read("home/sub/mine"), "x");
}

#[test]
fn nothing_is_restored_into_a_store() {
    let env = env();
    for (target, args) in [
        (".snap/objects", &["--overwrite", "--delete", "--yes"][..]),
        (".snap/refs/heads", &[]),
        (".snap/new/folder", &[]),
    ] {
        let refused = env.snap_in("home", [&["restore", "latest", target], args].concat());
        assert_eq!(refused.code, Some(2), "{target}: {}", refused.stderr);
        assert!(refused.stderr.contains("it lies in the store"), "{}", refused.stderr);
    }
    env.snap_in("home", ["verify", "--data"]).succeeds();
    assert!(!env.path("home/.snap/new").exists());
}

#[test]
fn files_that_are_one_on_disk_and_several_in_the_snapshot_are_separated() {
    let env = TestEnv::new();
    for (path, mode) in [("p/a", 0o600), ("p/b", 0o644)] {
        env.write(path, "same");
        env.mode(path, mode);
    }
    env.snap_in("p", ["commit"]).succeeds();
    fs_err::remove_file(env.path("p/b")).unwrap();
    fs_err::hard_link(env.path("p/a"), env.path("p/b")).unwrap();
    fs_err::hard_link(env.path("p/a"), env.path("outside")).unwrap();
    env.mode("outside", 0o640);
    let kept = env.snap_in("p", ["restore", "latest"]);
    assert_eq!(kept.code, Some(3), "{}", kept.stderr);
    assert!(kept.stderr.contains("2 files keep their current attributes"), "{}", kept.stderr);
    env.snap_in("p", ["restore", "latest", "--overwrite"]).succeeds();
    let meta = |path: &str| fs_err::metadata(env.path(path)).unwrap();
    let seen =
        ["p/a", "p/b", "outside"].map(|path| (meta(path).mode() & 0o777, meta(path).nlink()));
    assert_eq!(seen, [(0o600, 1), (0o644, 1), (0o640, 1)]);
    assert!(env.snap_in("p", ["status"]).succeeds().stdout.contains("Nothing changed"));
}

#[test]
fn a_store_that_lost_its_settings_is_known_by_its_packs() {
    let env = env();
    env.write("home/n/x", "nested");
    env.snap_in("home/n", ["init"]).succeeds();
    env.snap_in("home/n", ["commit"]).succeeds();
    for part in ["config.toml", "lock", "base", "HEAD"] {
        fs_err::remove_file(env.path("home/n/.snap").join(part)).unwrap();
    }
    for part in ["logs", "tmp", "cache", "index", "refs"] {
        fs_err::remove_dir_all(env.path("home/n/.snap").join(part)).unwrap();
    }
    let args = ["restore", "latest", "--overwrite", "--delete", "--yes"];
    let told = env.snap_in("home", args).succeeds().stderr;
    assert!(told.contains("kept `n/.snap`: it is a store"), "{told}");
    assert_eq!(fs_err::read_dir(env.path("home/n/.snap/objects")).unwrap().count(), 1);
}

#[test]
fn folders_above_a_restored_file_are_as_private_as_they_were() {
    let env = env();
    env.mode("home/sub", 0o700);
    env.snap_in("home", ["commit"]).succeeds();
    fs_err::remove_dir_all(env.path("home/sub")).unwrap();
    env.snap_in("home", ["restore", "latest:sub/more.txt"]).succeeds();
    let mode = fs_err::metadata(env.path("home/sub")).unwrap().mode();
    assert_eq!((mode & 0o777, &*env.read("home/sub/more.txt")), (0o700, "more"));
}

#[test]
fn a_folder_that_is_restored_in_its_place_has_all_its_attributes() {
    let env = env();
    env.write("home/sub/below/file", "x");
    env.mode("home/sub/below", 0o750);
    env.mode("home/sub", 0o700);
    let meta = |path: &str| fs_err::metadata(env.path(path)).unwrap();
    let of = |path: &str| (meta(path).mode() & 0o7777, meta(path).mtime(), meta(path).mtime_nsec());
    let before = of("home/sub/below");
    env.snap_in("home", ["commit"]).succeeds();
    fs_err::remove_dir_all(env.path("home/sub")).unwrap();
    env.snap_in("home", ["restore", "latest:sub/below"]).succeeds();
    assert_eq!(of("home/sub/below"), before);
    assert_eq!(of("home/sub").0, 0o700);
}

#[test]
fn a_folder_in_the_way_is_told_before_anything_is_written() {
    let env = env();
    fs_err::remove_file(env.path("home/notes.txt")).unwrap();
    fs_err::rename(env.path("home/sub"), env.path("home/notes.txt")).unwrap();
    insta::assert_snapshot!(env.snap_in("home", ["restore", "latest", "--overwrite"]), @"
    exit: 1
    --- stderr ---
    error: `notes.txt` is a folder that is not empty
    hint: move the entries in it away
    hint: --overwrite --delete removes those that commits could contain
    hint: --delete-excluded also removes the others
    ");
    assert!(!env.path("home/sub").exists());
    // The same holds for a folder that cannot be removed, because it has excluded files.
    env.write("home/.snapignore", "*.log\n");
    env.write("home/notes.txt/kept.log", "in no commit");
    let args = ["restore", "latest", "--overwrite", "--delete", "--yes"];
    let refused = env.snap_in("home", args);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(!env.path("home/sub").exists() && env.path("home/notes.txt/more.txt").exists());
    env.snap_in("home", [&args[..], &["--delete-excluded"]].concat()).succeeds();
    assert_eq!(env.read("home/notes.txt"), "first");
}

#[test]
fn a_restore_in_place_follows_no_link_in_the_project() {
    let env = TestEnv::new();
    env.write("home/d/e/f", "saved");
    env.snap_in("home", ["commit"]).succeeds();
    env.write("outside/e/f", "precious");
    env.write("outside/keep", "precious");
    fs_err::remove_dir_all(env.path("home/d")).unwrap();
    std::os::unix::fs::symlink(env.path("outside"), env.path("home/d")).unwrap();
    for what in ["latest:d", "latest:d/e", "latest:d/e/f"] {
        let args = ["restore", what, "--overwrite", "--delete", "--yes"];
        for args in [&args[..4], &args[..], &["restore", what, "-n"]] {
            let refused = env.snap_in("home", args);
            assert_eq!(refused.code, Some(2), "{args:?}: {}", refused.stderr);
            assert!(refused.stderr.contains("is a symbolic link"), "{}", refused.stderr);
        }
    }
    assert_eq!(fs_err::read_to_string(env.path("outside/e/f")).unwrap(), "precious");
    assert!(env.path("outside/keep").exists());
    // The command in the hint works.
    env.snap_in("home", ["restore", "latest", "--include", "/d", "--overwrite", "--yes"])
        .succeeds();
    assert_eq!(fs_err::read_to_string(env.path("home/d/e/f")).unwrap(), "saved");
    assert!(!env.path("home/d").symlink_metadata().unwrap().is_symlink());
}

/// Makes a project in which a file and a folder became private after the commit.
fn closed() -> TestEnv {
    let env = TestEnv::new();
    env.write("p/key", "key");
    env.write("p/d/in", "in");
    for (path, mode) in [("p", 0o755), ("p/d", 0o755), ("p/key", 0o644)] {
        env.mode(path, mode);
    }
    env.snap_in("p", ["commit"]).succeeds();
    env.write("p/d/secret", "secret");
    env.mode("p/key", 0o600);
    env.mode("p/d", 0o700);
    env
}

fn mode_of(env: &TestEnv, path: &str) -> u32 {
    fs_err::symlink_metadata(env.path(path)).unwrap().mode() & 0o7777
}

#[test]
fn what_was_closed_since_stays_closed_unless_it_may_be_overwritten() {
    let env = closed();
    let before = fs_err::metadata(env.path("p/key")).unwrap().ctime_nsec();
    fs_err::remove_file(env.path("p/d/in")).unwrap();
    insta::assert_snapshot!(env.snap_in("p", ["restore", "latest", "-n"]), @r"
    exit: 3
    --- stdout ---
    keep    key  (own attributes)
    create  d/in
    keep    d  (own attributes)
    --- stderr ---
    Would restore 1 file, 2 B; 1 already there
    warning: 1 file and 1 folder keep their current attributes; --overwrite sets those of the snapshot
    ");
    insta::assert_snapshot!(env.snap_in("p", ["restore", "latest"]), @r"
    exit: 3
    --- stderr ---
    warning: kept `key`: it has attributes of its own
    warning: kept `d`: it has attributes of its own
    Restored 1 file, 2 B; 1 already there
    warning: 1 file and 1 folder keep their current attributes; --overwrite sets those of the snapshot
    ");
    assert_eq!((mode_of(&env, "p/key"), mode_of(&env, "p/d")), (0o600, 0o700));
    assert_eq!(fs_err::metadata(env.path("p/key")).unwrap().ctime_nsec(), before);
    assert_eq!(env.read("p/d/in"), "in");
    assert_eq!(env.snap_in("p", ["restore", "latest:key"]).code, Some(3));
    // A time alone is no difference, and the folder that is restored into is the user's.
    env.snap_in("p", ["restore", "latest:d"]).succeeds();
    assert_eq!((mode_of(&env, "p/key"), mode_of(&env, "p/d")), (0o600, 0o700));
    let json = env.snap_in("p", ["restore", "latest", "--json"]).json();
    let counts = (&json[0]["files_own_attributes"], &json[0]["folders_own_attributes"]);
    assert_eq!(counts, (&1.into(), &1.into()));

    env.mode("p", 0o711);
    insta::assert_snapshot!(env.snap_in("p", ["restore", "latest", "--overwrite", "-n"]), @r"
    exit: 0
    --- stdout ---
    repair  key
    repair  d
    repair  .
    --- stderr ---
    Would restore 0 files, 0 B; 2 already there
    ");
    env.snap_in("p", ["restore", "latest", "--overwrite"]).succeeds();
    assert_eq!((mode_of(&env, "p/key"), mode_of(&env, "p/d")), (0o644, 0o755));
    assert_eq!(mode_of(&env, "p"), 0o755);
}

#[test]
fn attributes_that_were_kept_do_not_take_back_those_of_the_branch() {
    let env = closed();
    env.snap(["clone", "p", "other"]).succeeds();
    env.snap_in("p", ["commit"]).succeeds();
    env.snap_in("other", ["pull"]).succeeds();
    let told = env.snap_in("other", ["restore", "latest"]).stderr;
    assert!(told.contains("1 file and 1 folder keep their current attributes"), "{told}");
    assert!(told.contains("would revert those of the branch"), "{told}");
    env.write("other/new", "new");
    let refused = env.snap_in("other", ["commit"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    env.snap_in("other", ["restore", "latest", "--overwrite"]).succeeds();
    assert_eq!((mode_of(&env, "other/key"), mode_of(&env, "other/d")), (0o600, 0o700));
    env.snap_in("other", ["commit"]).succeeds();
}

#[test]
fn a_restore_from_elsewhere_waits_for_the_files_of_the_project() {
    let env = TestEnv::new();
    env.write("p/a/f", "old");
    env.snap_in("p", ["commit"]).succeeds();
    env.snap_in("p", ["pack", "latest", "-o", "../b.snap"]).succeeds();
    env.snap(["clone", "p", "other"]).succeeds();
    let runs: [&[&str]; 4] = [
        &["restore", "../b.snap:a", "./a", "--overwrite"],
        &["restore", "../b.snap", ".", "--overwrite"],
        &["--store", "../other/.snap", "restore", "latest:a", "./a", "--overwrite"],
        &["restore", "latest:a", "a/new/folder"],
    ];
    for args in runs {
        env.write("p/a/f", "new");
        // Takes the lock as a commit does.
        let files = fs_err::File::open(env.path("p/.snap")).unwrap();
        files.file().lock_shared().unwrap();
        let mut restore = env.command("p").args(args).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(restore.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        assert!(line.contains("waiting for another snap process"), "{args:?}: {line}");
        assert_eq!(env.read("p/a/f"), "new");
        assert!(!env.path("p/a/new").exists());
        drop(files);
        assert!(restore.wait().unwrap().success(), "{args:?}");
    }
    assert!(env.path("p/a/new/folder/f").exists());
}

#[test]
fn paths_after_a_double_dash_are_restored_to_their_place() {
    let env = TestEnv::new();
    for name in ["src/a", "src/b", "c"] {
        env.write(name, "first");
    }
    env.snap(["commit", "-q"]).succeeds();
    for name in ["src/a", "src/b", "c"] {
        env.write(name, "edited");
    }
    let read = |name: &str| fs_err::read_to_string(env.path(name)).unwrap();
    let stops = env.snap_in("src", ["restore", "HEAD", "--", "a"]);
    assert_eq!((stops.code, read("src/a")), (Some(1), "edited".to_owned()), "{stops}");
    env.snap_in("src", ["restore", "HEAD", "--overwrite", "--", "a", "../c"]).succeeds();
    assert_eq!([read("src/a"), read("src/b"), read("c")], ["first", "edited", "first"]);
    assert!(!env.path("src/a/c").exists());
    for (args, error) in [
        (&["restore", "HEAD", "--", "nothing"][..], "`nothing`"),
        (&["restore", "HEAD:src", "--", "a"], "paths after `--` need a revision"),
        (&["restore", "HEAD", "out", "--", "a"], "but not both"),
        (&["restore", "HEAD", "--", "../x"], "../x"),
    ] {
        let refused = env.snap(args.iter().copied());
        assert_ne!(refused.code, Some(0), "{refused}");
        assert!(refused.stderr.contains(error), "{refused}");
    }
    assert_eq!(read("src/b"), "edited");
}

#[test]
fn a_dash_writes_one_file_to_stdout() {
    let env = TestEnv::new();
    env.write("p/d/a", "text");
    env.snap_in("p", ["commit"]).succeeds();
    let ran = env.snap_in("p", ["restore", "HEAD:d/a", "-"]).succeeds();
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("text", ""));
    let folder = env.snap_in("p", ["restore", "HEAD:d", "-"]);
    assert_eq!(folder.code, Some(1), "{folder}");
    for option in ["--overwrite", "--yes", "--include-git", "--checksum", "--no-owner", "-ia"] {
        let ran = env.snap_in("p", ["restore", "HEAD:d/a", "-", option]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{option}: {ran}");
    }
    assert!(!env.path("p/-").exists());
    env.snap_in("p", ["restore", "HEAD:d/a", "./-"]).succeeds();
    assert_eq!(env.read("p/-/a"), "text");
}
