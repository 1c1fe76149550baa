//! Permissions of the files of a store.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use snap_testkit::mounts;

use crate::env::TestEnv;

/// Runs the binary under a umask.
fn snap_under(umask: &str, env: &TestEnv, args: &[&str]) {
    let mut command = env.command_of("", "/bin/sh");
    command.args(["-c", "umask $0; exec \"$@\"", umask, env!("CARGO_BIN_EXE_snap")]).args(args);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Lists all files and folders in `dir`, including `dir`, with their modes.
fn modes(dir: &Path) -> Vec<(PathBuf, u32)> {
    let mut found = vec![(dir.to_owned(), fs_err::metadata(dir).unwrap().mode() & 0o7777)];
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs_err::symlink_metadata(&path).unwrap();
            found.push((path.clone(), meta.mode() & 0o7777));
            if meta.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}

/// Asserts that every folder and every file below `dir` has these permissions.
#[track_caller]
fn have(dir: &Path, folder_bits: u32, file_bits: u32) {
    let found = modes(dir);
    assert!(found.len() > 3, "{found:?}");
    for (path, mode) in found {
        let bits = if path.is_dir() { folder_bits } else { file_bits };
        assert_eq!(mode, bits, "{} is {mode:o}", path.display());
    }
}

#[test]
fn a_new_store_is_private_whatever_the_umask_is() {
    for umask in ["000", "022", "077"] {
        let env = TestEnv::new();
        env.write("secret", "key");
        env.mode("secret", 0o600);
        snap_under(umask, &env, &["commit", "-q"]);
        snap_under(umask, &env, &["branch", "team/a"]);
        snap_under(umask, &env, &["tag", "v1"]);
        snap_under(umask, &env, &["config", "set", "commit.host", "h"]);
        snap_under(umask, &env, &["status"]);
        have(&env.path(".snap"), 0o700, 0o600);
        snap_under(umask, &env, &["init", "deep/project"]);
        have(&env.path("deep/project/.snap"), 0o700, 0o600);
        let above = fs_err::metadata(env.path("deep")).unwrap().mode() & 0o777;
        let mask = u32::from_str_radix(umask, 8).unwrap();
        assert_eq!(above, 0o777 & !mask, "the store changed the mode of a folder above it");
    }
}

#[test]
fn stores_made_by_clone_push_and_unpack_are_private() {
    let env = TestEnv::new();
    env.write("secret", "key");
    let folder = format!("file://{}", env.path("remote/deep").display());
    for args in [
        &["commit", "-q"][..],
        &["push", &folder],
        &["clone", &folder, "copy"],
        &["pack", "latest", "-o", "bundle"],
        &["--store", "bare", "init"],
        &["--store", "bare", "unpack", "bundle"],
        &["--store", "bare", "verify"],
    ] {
        snap_under("000", &env, args);
    }
    for store in ["remote/deep", "copy/.snap", "bare"] {
        have(&env.path(store), 0o700, 0o600);
    }
}

#[test]
fn an_existing_store_keeps_the_bits_of_its_objects() {
    let env = TestEnv::new();
    env.snap(["init"]).succeeds();
    // Simulates a store that an older version of snap made.
    for (path, _) in modes(&env.path(".snap")) {
        env.mode(&path, if path.is_dir() { 0o755 } else { 0o644 });
    }
    env.write("a", "1");
    snap_under("077", &env, &["commit", "-q"]);
    have(&env.path(".snap"), 0o755, 0o644);
    env.mode(".snap/objects", 0o750);
    env.write("b", "2");
    let before = modes(&env.path(".snap/objects"));
    snap_under("000", &env, &["commit", "-q"]);
    let added = modes(&env.path(".snap/objects"));
    let added: Vec<_> = added.iter().filter(|found| !before.contains(found)).collect();
    assert!(!added.is_empty() && added.iter().all(|(_, mode)| *mode == 0o640), "{added:?}");
}

#[test]
fn a_shared_store_is_open_to_its_group_alone() {
    let env = TestEnv::new();
    env.write("a", "1");
    snap_under("077", &env, &["init", "--shared"]);
    snap_under("077", &env, &["commit", "-q"]);
    for (path, mode) in modes(&env.path(".snap")) {
        let bits = match path.file_name().and_then(|name| name.to_str()) {
            // The group cannot write the settings, because they can run commands.
            Some("config.toml") => 0o640,
            _ if path.is_dir() => 0o2770,
            _ => 0o660,
        };
        assert_eq!(mode, bits, "{} is {mode:o}", path.display());
    }
    assert_eq!(env.snap(["config", "get", "shared"]).succeeds().line(), "true");
    let env = TestEnv::new();
    insta::assert_snapshot!(env.snap(["init", "--shared=world"]), @r"
    exit: 2
    --- stderr ---
    error: `--shared` has no value `world`
    hint: use `group`
    ");
}

#[test]
fn caches_of_the_user_are_private() {
    let mut env = TestEnv::new();
    let cache = env.path("cache");
    env.set("XDG_CACHE_HOME", cache.to_str().unwrap());
    env.write("project/a", "1");
    let folder = format!("file://{}", env.path("remote").display());
    env.snap_in("project", ["commit", "-q"]).succeeds();
    env.snap_in("project", ["push", &folder]).succeeds();
    // Simulates a cache that an older version of snap left open.
    fs_err::create_dir_all(env.path("cache/snap")).unwrap();
    env.mode("cache/snap", 0o755);
    snap_under("000", &env, &["ls", &folder]);
    have(&env.path("cache/snap"), 0o700, 0o600);
}

#[test]
fn where_the_cache_cannot_be_written_merged_packs_do_not_seem_lost() {
    let test = "store_access::where_the_cache_cannot_be_written_merged_packs_do_not_seem_lost";
    mounts::in_own_mounts(test, || {
        let env = TestEnv::new();
        env.write("home/first", "1");
        env.snap_in("home", ["commit"]).succeeds();
        let cache = env.path("home/.snap/cache");
        assert!(mounts::tool("mount", ["--bind".as_ref(), cache.as_os_str(), cache.as_os_str()]));
        let read_only = ["-o".as_ref(), "remount,bind,ro".as_ref(), cache.as_os_str()];
        assert!(mounts::tool("mount", read_only));
        for number in 0..12 {
            env.write(&format!("home/{number}"), "more");
            env.snap_in("home", ["commit"]).succeeds();
        }
        assert!(mounts::tool("umount", [&cache]));
        let told = env.snap_in("home", ["commit"]).succeeds().stderr;
        assert!(!told.contains("lost"), "{told}");
        // The next commit merges all packs.
        env.write("home/last", "more");
        let told = env.snap_in("home", ["commit"]).succeeds().stderr;
        assert!(!told.contains("lost"), "{told}");
        let packs = fs_err::read_dir(env.path("home/.snap/objects")).unwrap().count();
        assert!(packs < 8, "{packs} packs");
    });
}
