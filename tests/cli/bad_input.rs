//! Damaged or invalid stores and files: each gives a clear error, a hint and the right exit code,
//! and nothing is lost.

use std::{
    os::unix::{fs::chown, process::CommandExt},
    process::Command,
};

use snap_testkit::skip::{skip, skip_without_program};

use crate::env::TestEnv;

/// A user without privileges, for tests that run as root.
const NOBODY: u32 = 65_534;

fn env() -> TestEnv {
    let env = TestEnv::new();
    env.write("a", "content of a");
    env.write("sub/b", "content of b");
    env.snap(["commit"]).succeeds();
    env
}

fn packs(env: &TestEnv) -> Vec<std::path::PathBuf> {
    let files = fs_err::read_dir(env.path(".snap/objects")).unwrap();
    let mut packs: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    packs.sort();
    packs
}

/// Runs the binary as a user without privileges; as the current user unless that is root.
fn as_nobody(env: &TestEnv, args: &[&str]) -> String {
    let mut command = env.command("");
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.args(args).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    format!("exit: {}\n{stderr}", output.status.code().unwrap())
        .replace(env.path("").to_str().unwrap().trim_end_matches('/'), "[ROOT]")
}

#[test]
fn an_unreadable_file_is_left_out_and_told() {
    let env = env();
    for path in ["", "a", "sub", "sub/b"] {
        if rustix::process::geteuid().is_root() {
            chown(env.path(path), Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    fs_err::remove_dir_all(env.path(".snap")).unwrap();
    env.mode("a", 0);
    let said = as_nobody(&env, &["commit"]);
    env.mode("a", 0o644);
    assert!(said.starts_with("exit: 3\n"), "{said}");
    assert!(said.contains("warning: skipped `a`: "), "{said}");
    assert!(said.contains("warning: skipped 1 entry that could not be read"), "{said}");
    assert_eq!(env.snap(["ls", "-R"]).succeeds().stdout, "sub/\nsub/b\n");
    let shown = env.snap(["show"]).succeeds().stdout;
    assert!(shown.contains("\nUnread:  a\n"), "{shown}");
}

#[test]
fn a_store_that_may_not_be_written_can_be_read() {
    let env = env();
    env.open_to_all("");
    env.write("a", "changed");
    if !rustix::process::geteuid().is_root() {
        for path in [".snap", ".snap/tmp", ".snap/objects", ".snap/index"] {
            env.mode(path, 0o555);
        }
    }
    let log = as_nobody(&env, &["log", "-q"]);
    let commit = as_nobody(&env, &["commit"]);
    if !rustix::process::geteuid().is_root() {
        for path in [".snap", ".snap/tmp", ".snap/objects", ".snap/index"] {
            env.mode(path, 0o755);
        }
    }
    assert_eq!(log, "exit: 0\n");
    assert!(commit.starts_with("exit: 1\n"), "{commit}");
    assert!(commit.contains("hint: check its owner and mode"), "{commit}");
}

#[test]
fn a_full_disk_is_told_and_costs_nothing() {
    let env = TestEnv::new();
    fs_err::create_dir(env.path("disk")).unwrap();
    env.write("data/small", "kept");
    let snap = env!("CARGO_BIN_EXE_snap");
    // Mounts a small disk for this test, if that is allowed.
    let script = format!(
        "mount -t tmpfs -o size=2m tmpfs disk || exit 99
         {snap} --store disk/s -q init && {snap} --store disk/s -q commit data >/dev/null || exit 98
         head -c 8000000 /dev/urandom > data/large
         {snap} --store disk/s commit data; echo code $? >&2
         {snap} --store disk/s cat HEAD:small; ls disk/s/tmp"
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--map-root-user", "sh", "-c", &script]).current_dir(env.path(""));
    let Ok(output) = unshare.output() else {
        return skip_without_program("a full disk", "unshare");
    };
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(99) || err.contains("unshare failed") {
        return skip("a full disk", "no mount namespace can be made");
    }
    assert!(err.contains("hint: free some space, and run the command again"), "{err}");
    assert!(err.contains("code 1"), "{err}");
    assert!(out.starts_with("kept"), "{out}");
}

#[test]
fn a_flipped_bit_is_damage() {
    let env = TestEnv::new();
    env.write("a", "content of a");
    env.snap(["commit"]).succeeds();
    for pack in packs(&env) {
        let mut bytes = fs_err::read(&pack).unwrap();
        bytes[20] ^= 1;
        env.mode(&pack, 0o644);
        fs_err::write(&pack, bytes).unwrap();
    }
    let cat = env.snap(["cat", "HEAD:a"]);
    assert_eq!(cat.code, Some(4), "{cat}");
    assert!(cat.stdout.is_empty());
    insta::assert_snapshot!(cat, @"
    exit: 4
    --- stderr ---
    error: pack [SHORT ID] is damaged in the frame at byte 16: its checksum does not match
    hint: `snap verify --data` lists the damage and the affected paths
    hint: `snap repair` recovers lost data
    ");
}

#[test]
fn a_pack_that_is_gone_is_damage() {
    let env = env();
    for pack in packs(&env) {
        fs_err::remove_file(pack).unwrap();
    }
    let log = env.snap(["log"]);
    assert_eq!(log.code, Some(4), "{log}");
}

#[test]
fn a_missing_or_damaged_index_is_made_again() {
    let env = env();
    // A new pack may lack its index because its commit is still in progress, so the packs are made
    // old.
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    for pack in packs(&env) {
        let mut options = fs_err::OpenOptions::new();
        options.append(true).open(pack).unwrap().file().set_modified(long_ago).unwrap();
    }
    let listed = env.snap(["ls", "-R"]).succeeds().stdout;
    fs_err::remove_dir_all(env.path(".snap/index")).unwrap();
    let again = env.snap(["ls", "-R"]).succeeds();
    assert_eq!(again.stdout, listed);
    insta::assert_snapshot!(again.stderr, @"warning: the index was missing; it was rebuilt from 1 pack");

    for file in fs_err::read_dir(env.path(".snap/index")).unwrap() {
        let file = file.unwrap().path();
        if file.extension().is_some_and(|extension| extension == "idx") {
            env.mode(&file, 0o644);
            fs_err::write(file, "not an index").unwrap();
        }
    }
    let again = env.snap(["ls", "-R"]).succeeds();
    assert_eq!(again.stdout, listed);
    insta::assert_snapshot!(again.stderr, @"warning: the index was damaged; it was rebuilt from 1 pack");
}

#[test]
fn a_damaged_ref_is_named() {
    let env = env();
    env.write(".snap/refs/heads/main", "main is elsewhere");
    insta::assert_snapshot!(env.snap(["log"]), @"
    exit: 4
    --- stderr ---
    error: [ROOT]/.snap/refs/heads/main is damaged: it is not a commit id
    hint: `snap branch --force main [SHORT ID]` restores it
    hint: `snap branch --log main` lists its earlier commits
    ");
    let log = env.snap(["branch", "--log", "main", "--json"]).succeeds().json();
    let id = log[0]["new"].as_str().unwrap();
    insta::assert_snapshot!(env.snap(["branch", "--force", "main", id]), @r"
    exit: 0
    --- stderr ---
    Repaired branch main, now at [SHORT ID]
    ");
    assert_eq!(env.snap(["log", "--json"]).succeeds().json()[0]["id"], id);
}

#[test]
fn a_clock_that_was_wrong_once_dates_no_later_commit() {
    let mut env = env();
    env.set("SNAP_TIME", "2099-01-01T00:00:00Z");
    env.write("a", "from the future");
    env.snap(["commit"]).succeeds();
    env.set("SNAP_TIME", "2026-11-22T08:00:00Z");
    env.write("a", "the clock is right again");
    insta::assert_snapshot!(env.snap(["commit"]), @"
    exit: 0
    --- stdout ---
    [ID]
    --- stderr ---
    warning: the previous commit is dated 2275574400 s in the future; check the clock of this machine
    Committed 2 files, 36 B: 0 added, 1 modified, 1 unmodified
    Read [SIZE], added [SIZE], stored [SIZE] in [TIME]
    ");
    env.set("SNAP_TIME", "2026-11-23T08:00:00Z");
    env.write("a", "and the day after");
    let later = env.snap(["commit"]).succeeds();
    assert!(!later.stderr.contains("warning"), "one warning is enough: {}", later.stderr);

    let log = env.snap(["log", "--json"]).json();
    let times: Vec<_> = log.iter().map(|commit| commit["time"].as_str().unwrap()).collect();
    let days = ["2026-11-23", "2026-11-22", "2099-01-01", "2026-11-21"];
    assert_eq!(
        times,
        days.map(|day| match day {
            "2099-01-01" => format!("{day}T00:00:00Z"),
            day => format!("{day}T08:00:00Z"),
        })
    );
    for pair in log.windows(2) {
        assert_eq!(pair[0]["parents"][0], pair[1]["id"]);
    }
    // Wrong times do not break searches by date.
    let since = |date: &str| env.snap(["log", "--json", "--since", date]).json().len();
    assert_eq!((since("2026-11-23"), since("2050-01-01")), (2, 1));
    let at = |date: &str| env.snap(["show", "--json", &format!("latest@{date}")]).json();
    assert_eq!(at("2026-11-22")[0]["id"], log[1]["id"]);
    assert_eq!(at("2026-11-21")[0]["id"], log[3]["id"]);
    env.snap(["verify"]).succeeds();
}

#[test]
fn a_time_that_the_user_names_is_kept_even_if_it_is_older_than_the_parent() {
    let env = env();
    env.write("a", "scanned from paper");
    let old = env.snap(["commit", "--time", "1987-06-05T04:03:02Z"]).succeeds();
    assert!(!old.stderr.contains("warning"), "{}", old.stderr);
    let log = env.snap(["log", "--json"]).json();
    assert_eq!(log[0]["time"], "1987-06-05T04:03:02Z");
    assert_eq!(log[0]["parents"][0], log[1]["id"]);
    // The search still finds the older commit.
    let since = env.snap(["log", "--json", "--since", "2026-01-01"]).json();
    assert_eq!((since.len(), &since[0]["id"]), (1, &log[1]["id"]));
    let at = env.snap(["show", "--json", "latest@2026-11-30"]).json();
    assert_eq!(at[0]["id"], log[1]["id"]);
    let of_path = env.snap(["log", "--json", "--since", "2026-01-01", "--", "a"]).json();
    assert_eq!(of_path.len(), 1);
}

#[test]
fn a_date_that_is_missing_is_said_so() {
    let env = TestEnv::new();
    env.write("a", "1");
    env.snap(["commit"]).succeeds();
    insta::assert_snapshot!(env.snap(["show", "latest@"]), @r"
    exit: 2
    --- stderr ---
    error: `latest@` has no date after the `@`
    hint: a date looks like 2026-11-01, 2026-11-01T10:00 or yesterday
    ");
    insta::assert_snapshot!(env.snap(["log", "--since", ""]), @r"
    exit: 2
    --- stderr ---
    error: a date is missing
    hint: a date looks like 2026-11-01, 2026-11-01T10:00 or yesterday
    ");
}

#[test]
fn where_no_thread_can_be_started_a_command_says_so() {
    let env = env();
    env.mode("", 0o755);
    env.open_to_all("");
    let snap = env!("CARGO_BIN_EXE_snap");
    let limited = |args: &[&str]| {
        let mut shell = env.command_of("", "/bin/sh");
        // Shells use different options for this limit.
        let script = "ulimit -p 1 2>/dev/null || ulimit -u 1; exec \"$0\" \"$@\"";
        shell.args(["-c", script, snap]).args(args);
        if rustix::process::geteuid().is_root() {
            shell.uid(NOBODY).gid(NOBODY);
        }
        shell.output().unwrap()
    };
    let target = env.path("target.zip");
    let target = target.to_str().unwrap();
    for args in [
        &["status"][..],
        &["diff", "latest"],
        &["verify", "--data"],
        &["export", "latest", "-o", target],
        &["repair", "-n"],
        &["push", "elsewhere"],
        &["clone", ".", "elsewhere"],
    ] {
        let output = limited(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.starts_with("error: cannot start worker threads"), "{args:?}: {said}");
        assert!(said.contains("hint: `ulimit -u`"), "{args:?}: {said}");
    }
    // A command without worker threads works.
    let log = limited(&["log", "--oneline"]);
    assert!(log.status.success(), "{}", String::from_utf8_lossy(&log.stderr));
}
