//! `snap restore`.

use std::os::unix::{fs::chown, process::CommandExt};

use snap_core::{
    base::{id::BlobId, time::Time},
    disk::Disk,
    local::{
        scan::FileStat,
        stat_cache::{KnownFile, Place, StatCache},
    },
};

use crate::env::TestEnv;

fn env() -> TestEnv {
    let env = TestEnv::new();
    env.write("home/notes.txt", "first");
    env.write("home/sub/more.txt", "more");
    env.snap(["commit", "home"]).succeeds();
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
    insta::assert_snapshot!(env.snap_in("home", ["restore", "latest"]), @r"
    exit: 1
    --- stderr ---
    error: `notes.txt` differs from the snapshot
    hint: pass --overwrite to replace it, or name another folder
    ");
    assert_eq!(env.read("home/notes.txt"), "second");
    insta::assert_snapshot!(env.snap_in("home/sub", ["restore", "latest", "--overwrite"]), @r"
    exit: 0
    --- stderr ---
    Restored 1 file, 5 B; 1 already there
    ");
    assert_eq!(env.read("home/notes.txt"), "first");
}

#[test]
fn a_file_that_rotted_in_place_is_found_with_checksum_only() {
    let env = env();
    // As if the bytes had changed below the file system: the cache still holds
    // the file, by its times, for what it was.
    env.write("home/notes.txt", "fjrst");
    let stat = FileStat::of_path(&env.path("home/notes.txt")).unwrap();
    let folder = FileStat::of_path(&env.path("home")).unwrap();
    let cache = StatCache::open(&env.path("home/.snap/cache"), Disk::default());
    let known = KnownFile { id: BlobId::of(b"first"), xattrs: false, sparse: false };
    let later = Time { secs: stat.mtime.secs + 60, nanos: 0 };
    cache.add_file((&stat, None), Place::new(&folder, b"notes.txt"), &known, later);
    cache.save().unwrap();

    env.snap_in("home", ["restore", "latest", "--overwrite"]).succeeds();
    assert_eq!(env.read("home/notes.txt"), "fjrst");
    insta::assert_snapshot!(env.snap_in("home", ["restore", "latest", "--checksum"]), @r"
    exit: 1
    --- stderr ---
    error: `notes.txt` differs from the snapshot
    hint: pass --overwrite to replace it, or name another folder
    ");
    let args = ["restore", "latest", "--overwrite", "--checksum"];
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
    remove  extra
    replace notes.txt
    create  sub/more.txt
    --- stderr ---
    Would restore 2 files, 9 B; 0 already there
    Would remove 1 extra entry
    ");
    assert_eq!(env.read("home/notes.txt"), "second");
    env.snap_in("home", &args[..4]).succeeds();
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
    error: a bare store has no folder to restore into: name one
    ");
    env.snap(["--store", "s", "restore", "latest", "out"]).succeeds();
    assert_eq!(env.read("out/a"), "1");
}

#[test]
fn links_are_counted_and_a_pattern_without_a_match_is_told() {
    let env = env();
    std::os::unix::fs::symlink("notes.txt", env.path("home/link")).unwrap();
    fs_err::hard_link(env.path("home/notes.txt"), env.path("home/second")).unwrap();
    env.snap(["commit", "home"]).succeeds();
    insta::assert_snapshot!(env.snap_in("home", ["restore", "latest", "../a", "-v"]), @r"
    exit: 0
    --- stderr ---
    Restored 2 files and 2 other entries, 9 B; 0 already there
    Made 1 folder; 0 files shared blocks with another; 0 entries got attributes back
    ");
    insta::assert_snapshot!(env.snap_in("home", ["restore", "latest", "../b", "-i", "*.pdf"]), @r"
    exit: 0
    --- stderr ---
    Restored 0 files, 0 B; 0 already there
    warning: nothing in there matches --include and not --exclude
    ");
}

/// A user without rights.
const NOBODY: u32 = 65534;

#[test]
fn a_device_that_cannot_be_made_is_told_and_counted() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let env = env();
    let (kind, mode) = (rustix::fs::FileType::CharacterDevice, 0o600.into());
    let null = rustix::fs::makedev(1, 3);
    rustix::fs::mknodat(rustix::fs::CWD, env.path("home/null"), kind, mode, null).unwrap();
    env.snap(["commit", "home"]).succeeds();
    env.mode("", 0o755);
    fs_err::create_dir(env.path("out")).unwrap();
    chown(env.path("out"), Some(NOBODY), Some(NOBODY)).unwrap();

    let mut command = env.command("home");
    command.uid(NOBODY).gid(NOBODY).args(["restore", "latest", "../out", "--overwrite", "--json"]);
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    let told = "warning: could not make character device `null`: Operation not permitted";
    assert!(stderr.contains(told), "{stderr}");
    assert!(stderr.contains("warning: left out 1 entry that could not be made"), "{stderr}");
    let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&record["skipped"], &record["files_written"]), (&1.into(), &2.into()));
    assert!(!stderr.contains(" of :"), "{stderr}");
}
