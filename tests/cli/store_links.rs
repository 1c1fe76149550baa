//! Stores that somebody else made, or may write to: links, pipes and owners in
//! them do no harm to the user's own files.

use std::{
    os::unix::fs::{MetadataExt, symlink},
    time::{Duration, SystemTime},
};

use crate::env::TestEnv;

/// A project with a store, and a folder beside it with an old file of the
/// user's.
fn env() -> TestEnv {
    let env = TestEnv::new();
    env.write("project/file", "1");
    env.snap(["commit", "project"]).succeeds();
    env.write("own/thesis", "years of work");
    let old = SystemTime::now() - Duration::from_secs(7 * 3600);
    fs_err::File::open(env.path("own/thesis")).unwrap().file().set_modified(old).unwrap();
    env.write("project/file", "2");
    env
}

#[test]
fn a_link_in_a_store_leads_to_nobodys_files() {
    for part in ["tmp", "index", "cache", "logs", "refs/heads", "logs/refs"] {
        let env = env();
        let place = env.path("project/.snap").join(part);
        if place.exists() {
            fs_err::remove_dir_all(&place).unwrap();
        }
        symlink(env.path("own"), &place).unwrap();
        let refused = env.snap_in("project", ["commit"]);
        assert_eq!(refused.code, Some(1), "{part}: {}", refused.stderr);
        let told = format!(".snap/{part} is a symbolic link, and snap follows none");
        assert!(refused.stderr.contains(&told), "{part}: {}", refused.stderr);
        assert_eq!(env.read("own/thesis"), "years of work", "{part}");
        assert_eq!(fs_err::read_dir(env.path("own")).unwrap().count(), 1, "{part}");
    }
}

#[test]
fn a_link_in_place_of_a_file_of_a_store_is_not_written_through() {
    for part in ["lock", "compact.lock", "logs/refs/heads/main.log"] {
        let env = env();
        let place = env.path("project/.snap").join(part);
        let _ = fs_err::remove_file(&place);
        symlink(env.path("own/thesis"), &place).unwrap();
        let refused = env.snap_in("project", ["commit"]);
        assert_eq!(refused.code, Some(1), "{part}: {}", refused.stderr);
        assert_eq!(env.read("own/thesis"), "years of work", "{part}");
    }
}

#[test]
fn a_pipe_in_place_of_a_lock_is_not_waited_for() {
    let env = env();
    let lock = env.path("project/.snap/lock");
    let _ = fs_err::remove_file(&lock);
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &lock, kind, 0o600.into(), 0).unwrap();
    let refused = env.snap_in("project", ["branch", "other"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
}

#[test]
fn packs_may_lie_on_another_disk() {
    let env = env();
    fs_err::rename(env.path("project/.snap/objects"), env.path("disk")).unwrap();
    symlink(env.path("disk"), env.path("project/.snap/objects")).unwrap();
    env.snap_in("project", ["commit"]).succeeds();
    env.snap_in("project", ["verify", "--data"]).succeeds();
}

#[test]
fn what_root_adds_to_a_store_belongs_to_its_owner() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    const NOBODY: u32 = 65534;
    let env = env();
    let owner = format!("{NOBODY}:{NOBODY}");
    let mut change = std::process::Command::new("chown");
    assert!(change.args(["-R", &owner]).arg(env.path("project")).status().unwrap().success());
    let mut command = env.command("project");
    let status = command.env("SUDO_UID", NOBODY.to_string()).arg("commit").status().unwrap();
    assert!(status.success());
    let mut folders = vec![env.path("project/.snap")];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            assert_eq!(meta.uid(), NOBODY, "{}", entry.path().display());
            if meta.is_dir() {
                folders.push(entry.path());
            }
        }
    }
}

#[test]
fn names_of_branches_do_not_steer_the_terminal() {
    let env = env();
    let tip = env.snap_in("project", ["commit"]).succeeds().stdout;
    env.write("project/.snap/refs/heads/x\u{202e}y", &tip);
    for command in [&["branch"][..], &["log"], &["show"]] {
        let ran = env.snap_in("project", command).succeeds();
        assert!(!ran.stdout.contains('\u{202e}'), "{command:?}: {}", ran.stdout);
        assert!(ran.stdout.contains("x\\u{202e}y"), "{command:?}: {}", ran.stdout);
    }
}
