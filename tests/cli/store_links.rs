//! Stores that another user made or can write to: links, pipes and owners in them do not harm the
//! user's own files.

use std::{
    io::Write,
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use snap_testkit::{skip::needs_root, wait::until};

use crate::env::{TestEnv, noise};

/// Makes a project with a store, and beside it a folder with an old file of the user.
fn env() -> TestEnv {
    let env = TestEnv::new();
    env.write("project/file", "1");
    env.snap_in("project", ["commit"]).succeeds();
    env.write("own/thesis", "years of work");
    let old = SystemTime::now() - Duration::from_secs(7 * 3600);
    fs_err::File::open(env.path("own/thesis")).unwrap().file().set_modified(old).unwrap();
    env.write("project/file", "2");
    env
}

#[test]
fn a_link_in_a_store_leads_to_nobodys_files() {
    for part in ["partial", "tmp", "index", "cache", "logs", "refs/heads", "logs/refs"] {
        let env = env();
        let place = env.path("project/.snap").join(part);
        if place.exists() {
            fs_err::remove_dir_all(&place).unwrap();
        }
        symlink(env.path("own"), &place).unwrap();
        let refused = env.snap_in("project", ["commit"]);
        assert_eq!(refused.code, Some(1), "{part}: {}", refused.stderr);
        let told = format!(".snap/{part} is a symbolic link; snap does not follow links");
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
    plant_pipe(&env.path("project/.snap/lock"));
    let refused = env.snap_in("project", ["branch", "other"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
}

/// Makes a project with a link `src/.snap` to the store of `project`.
fn project_with_a_link() -> TestEnv {
    let env = env();
    env.write("work/src/main", "1");
    env.snap_in("work", ["commit", "-q"]).succeeds();
    symlink("../../project/.snap", env.path("work/src/.snap")).unwrap();
    env
}

#[test]
fn a_restore_reports_no_link_that_it_was_not_asked_for() {
    let env = TestEnv::new();
    env.write("work/docs/page", "1");
    env.write("work/src/main", "1");
    symlink("../../nowhere/.snap", env.path("work/src/.snap")).unwrap();
    env.snap_in("work", ["commit", "-q"]).succeeds();
    env.snap_in("work", ["push", "-q", "../remote", "main"]).succeeds();
    for args in [
        &["clone", "--path", "docs", "remote", "clone"][..],
        &["restore", "--store", "work/.snap", "latest", "included", "--include", "docs"],
        &["restore", "--store", "work/.snap", "latest", "excluded", "--exclude", "src/.snap"],
    ] {
        let ran = env.snap(args).succeeds();
        assert!(!ran.stderr.contains("skipped"), "{args:?}: {}", ran.stderr);
    }
    let ran = env.snap(["restore", "--store", "work/.snap", "latest", "whole"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
}

#[test]
fn a_store_behind_a_link_is_used_only_if_it_is_named() {
    let mut env = project_with_a_link();
    let commands: [&[&str]; 20] = [
        &["commit"],
        &["commit", "."],
        &["commit", "--dry-run"],
        &["status"],
        &["log"],
        &["restore", "latest", "--overwrite"],
        &["undo"],
        &["branch"],
        &["tag", "x"],
        &["verify"],
        &["repair"],
        &["init"],
        &["init", "."],
        &["unpack", "no.snap"],
        &["config", "list"],
        &["config", "set", "jobs", "2"],
        &["config", "trust"],
        &["config", "trust", "."],
        &["remote", "add", "x", "../../x"],
        &["clone", ".", "../../copy"],
    ];
    let before = env.snap(["--store", "project/.snap", "log", "--json"]).succeeds().stdout;
    for command in commands {
        let ran = env.snap_in("work/src", command);
        assert_eq!(ran.code, Some(1), "{command:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(".snap is a symbolic link; "), "{command:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("hint: if you made the link"), "{}", ran.stderr);
    }
    // As a remote, in the folder and by the path of the folder.
    for command in [&["push", "./src"][..], &["pull", "./src"], &["fetch", "../work/src"]] {
        let ran = env.snap_in("work", command);
        assert_eq!(ran.code, Some(1), "{command:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("src/.snap is a symbolic link; "), "{}", ran.stderr);
        assert!(ran.stderr.contains(" as the remote"), "{}", ran.stderr);
    }
    assert_eq!(env.snap(["--store", "project/.snap", "log", "--json"]).stdout, before);
    // The hint of the error.
    let link = env.path("work/src/.snap");
    let named = ["--store", link.to_str().unwrap(), "log", "--json"];
    assert_eq!(env.snap_in("work/src", named).succeeds().stdout, before);
    env.set("SNAP_STORE", link.to_str().unwrap());
    assert_eq!(env.snap_in("work/src", ["log", "--json"]).succeeds().stdout, before);
}

#[test]
fn a_link_without_a_store_does_not_hide_the_project() {
    let env = project_with_a_link();
    fs_err::remove_dir_all(env.path("project/.snap")).unwrap();
    env.write("work/src/main", "2");
    env.snap_in("work/src", ["commit", "-q"]).succeeds();
    assert_eq!(env.snap_in("work", ["log", "--json"]).succeeds().json().len(), 2);
    assert!(!env.path("project/.snap").exists());
}

#[test]
fn a_project_that_was_moved_copied_or_linked_needs_no_name() {
    let env = env();
    env.snap_in("project", ["commit", "-q"]).succeeds();
    env.write("project/sub/file", "1");
    let commit = |folder: &str| {
        env.write("project/file", folder);
        env.snap_in(folder, ["commit", "-q"]).succeeds();
        env.snap_in(folder, ["status"]).succeeds();
    };
    // Links to the project and above it.
    symlink("project", env.path("link")).unwrap();
    fs_err::create_dir(env.path("above")).unwrap();
    symlink("..", env.path("above/root")).unwrap();
    for folder in ["project", "project/sub", "link", "link/sub", "above/root/link/sub"] {
        commit(folder);
    }
    env.snap(["clone", "-q", "link", "cloned"]).succeeds();
    let copied =
        Command::new("cp").arg("-a").args([env.path("project"), env.path("copy")]).status();
    assert!(copied.unwrap().success());
    env.write("copy/file", "in the copy");
    env.snap_in("copy", ["commit", "-q"]).succeeds();
    fs_err::rename(env.path("project"), env.path("moved")).unwrap();
    env.write("moved/file", "in another place");
    env.snap_in("moved/sub", ["commit", "-q"]).succeeds();
}

#[test]
fn packs_may_lie_in_a_folder_outside_all_stores() {
    let env = env();
    fs_err::rename(env.path("project/.snap/objects"), env.path("disk")).unwrap();
    symlink(env.path("disk"), env.path("project/.snap/objects")).unwrap();
    env.snap_in("project", ["commit"]).succeeds();
    env.snap_in("project", ["verify", "--data"]).succeeds();
}

/// Returns the only folder in `folder`, as a path relative to the root of `env`.
fn only_folder(env: &TestEnv, folder: &str) -> String {
    let mut entries = fs_err::read_dir(env.path(folder)).unwrap();
    let name = entries.next().unwrap().unwrap().file_name().into_string().unwrap();
    assert!(entries.next().is_none());
    format!("{folder}/{name}")
}

/// Returns the names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs_err::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

/// Replaces a file or folder by a link.
fn plant(target: &Path, place: &Path) {
    match place.is_dir() {
        true => fs_err::remove_dir_all(place).unwrap(),
        false => drop(fs_err::remove_file(place)),
    }
    fs_err::create_dir_all(place.parent().unwrap()).unwrap();
    symlink(target, place).unwrap();
}

/// Replaces a file by a pipe.
fn plant_pipe(place: &Path) {
    let _ = fs_err::remove_file(place);
    fs_err::create_dir_all(place.parent().unwrap()).unwrap();
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, place, kind, 0o600.into(), 0).unwrap();
}

/// Makes a store with packs, and a clone of another store, which has a newer commit.
fn clone_beside_a_store() -> (TestEnv, String) {
    let env = env();
    env.snap_in("project", ["commit", "-q"]).succeeds();
    env.write("upstream/file", "1");
    env.snap_in("upstream", ["commit", "-q"]).succeeds();
    env.snap(["clone", "-q", "upstream", "clone"]).succeeds();
    env.snap_in("clone", ["pull", "-q"]).succeeds();
    env.write("upstream/file", "2");
    env.snap_in("upstream", ["commit", "-q"]).succeeds();
    let mirror = only_folder(&env, "clone/.snap/cache/remotes");
    (env, mirror)
}

#[test]
fn no_link_in_the_caches_of_a_store_leads_to_packs_of_another_store() {
    let mirrored =
        ["", "objects", "partial", "index", "cache", "tmp", "outlines", "state-5", "lock"];
    let received = ["", "objects", "partial", "index", "cache", "tmp", "lock"];
    let mut places: Vec<String> = vec!["clone/.snap/cache".into()];
    let (env, mirror) = clone_beside_a_store();
    places.push("clone/.snap/cache/remotes".into());
    places.extend(mirrored.map(|part| format!("{mirror}/{part}")));
    places.extend(received.map(|part| format!("clone/.snap/cache/receiving/{part}")));
    let packs = env.path("project/.snap/objects");
    let before = names(&packs);
    assert!(!before.is_empty());
    let whole = env.path("clone");
    for place in places {
        let place = place.trim_end_matches('/');
        let commands: [&[&str]; 4] = [&["pull"], &["fetch"], &["push"], &["verify", "origin"]];
        for command in commands {
            let copied = Command::new("cp").arg("-a").arg(&whole).arg(env.path("saved")).status();
            assert!(copied.unwrap().success());
            plant(&packs, &env.path(place));
            let ran = env.snap_in("clone", command);
            // A command that does not use the folder does what it always does: a push is rejected.
            let is_rejected = ran.stderr.contains("the remote has commits that you do not have");
            if ran.code != Some(0) && !is_rejected {
                let told = "is a symbolic link; snap does not follow links inside a store";
                assert!(ran.stderr.contains(told), "{place} {command:?}: {}", ran.stderr);
                assert!(ran.stderr.contains("hint: "), "{place} {command:?}: {}", ran.stderr);
            } else {
                assert!(place.contains("receiving"), "{place} {command:?}");
                assert_ne!(command, ["pull"], "{place}");
            }
            assert_eq!(names(&packs), before, "{place} {command:?}");
            fs_err::remove_dir_all(&whole).unwrap();
            fs_err::rename(env.path("saved"), &whole).unwrap();
        }
    }
    env.snap_in("project", ["verify", "--data"]).succeeds();
}

#[test]
fn pipes_and_endless_files_in_the_caches_of_a_store_hold_up_no_command() {
    let (env, mirror) = clone_beside_a_store();
    for (name, code) in [("lock", 1), ("outlines", 0), ("state-5", 0)] {
        let place = env.path(&mirror).join(name);
        plant_pipe(&place);
        let ran = env.snap_in("clone", ["fetch"]);
        assert_eq!(ran.code, Some(code), "{name}: {}", ran.stderr);
        let _ = fs_err::remove_file(&place);
    }
    // Longer than the memory of a machine.
    let sparse = fs_err::File::create(env.path(&mirror).join("outlines")).unwrap();
    sparse.set_len(1 << 42).unwrap();
    env.snap_in("clone", ["fetch"]).succeeds();
    plant_pipe(&env.path("clone/.snap/cache/receiving/lock"));
    let ran = env.snap_in("clone", ["pull"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("cache/receiving/lock"), "{}", ran.stderr);
}

#[test]
fn packs_do_not_lie_in_another_store_or_another_part_of_the_store() {
    let env = env();
    env.snap_in("project", ["commit", "-q"]).succeeds();
    let packs = env.path("project/.snap/objects");
    let before = names(&packs);
    env.write("project/unpacked/file", "1");
    env.snap(["--store", "project/unpacked/.snap", "init", "-q"]).succeeds();
    let objects = env.path("project/unpacked/.snap/objects");
    for target in [
        "project/.snap/objects",
        "project/.snap/cache",
        "project/.snap",
        "project/unpacked/.snap/index",
        "project/unpacked/.snap/tmp",
    ] {
        plant(&env.path(target), &objects);
        for command in [&["commit"][..], &["verify", "--data"], &["log"]] {
            let ran = env.snap_in("project/unpacked", command);
            assert_eq!(ran.code, Some(1), "{target} {command:?}: {}", ran.stderr);
            assert!(ran.stderr.contains("which is part of a store"), "{target}: {}", ran.stderr);
            assert!(ran.stderr.contains("hint: "), "{target}: {}", ran.stderr);
        }
        // As a remote.
        let pushed = env.snap_in("project", ["push", "unpacked"]);
        assert_eq!(pushed.code, Some(1), "{target}: {}", pushed.stderr);
    }
    assert_eq!(names(&packs), before);
    env.snap_in("project", ["verify", "--data"]).succeeds();
}

#[test]
fn an_unfinished_store_with_links_is_not_completed() {
    for part in ["tmp", "cache", "logs", "lock", "objects"] {
        let env = env();
        env.write("unpacked/.snap/lock", "");
        fs_err::create_dir_all(env.path("empty")).unwrap();
        let target = match part {
            "lock" => "own/thesis",
            "objects" => "empty",
            _ => "own",
        };
        let mode = |path: &str| fs_err::metadata(env.path(path)).unwrap().mode();
        let before = mode("own");
        plant(&env.path(target), &env.path("unpacked/.snap").join(part));
        let ran = env.snap_in("unpacked", ["init"]);
        assert_eq!(ran.code, Some(1), "{part}: {}", ran.stderr);
        assert_eq!(mode("own"), before, "{part}");
    }
}

#[test]
fn the_cache_of_another_user_is_not_used() {
    const NOBODY: u32 = 65534;
    let (mut env, _) = clone_beside_a_store();
    let cache = env.path(".cache");
    env.set("XDG_CACHE_HOME", cache.to_str().unwrap());
    let url = format!("file://{}#main", env.path("upstream").display());
    env.snap(["ls", &url]).succeeds();
    let mirror = only_folder(&env, ".cache/snap/remotes");
    let packs = env.path("project/.snap/objects");
    let before = names(&packs);
    // The folder of a remote, or one above it, is a link.
    let saved = env.path("saved");
    for place in [mirror.as_str(), ".cache/snap/remotes", ".cache/snap"] {
        fs_err::rename(env.path(place), &saved).unwrap();
        symlink(&saved, env.path(place)).unwrap();
        fs_err::write(saved.join("untouched"), "").unwrap();
        let listed = names(&saved);
        env.snap(["ls", &url]).succeeds();
        assert_eq!(names(&saved), listed, "{place}");
        fs_err::remove_file(env.path(place)).unwrap();
        fs_err::remove_file(saved.join("untouched")).unwrap();
        fs_err::rename(&saved, env.path(place)).unwrap();
    }
    // A part of the cache in the store is a link.
    plant(&packs, &env.path(&mirror).join("partial"));
    let refused = env.snap(["ls", &url]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert_eq!(names(&packs), before);
    if !needs_root() {
        return;
    }
    let owner = format!("{NOBODY}:{NOBODY}");
    let changed = Command::new("chown").args(["-hR", &owner]).arg(env.path(".cache")).status();
    assert!(changed.unwrap().success());
    env.snap(["ls", &url]).succeeds();
    assert_eq!(names(&packs), before);
}

#[test]
fn what_root_adds_to_a_store_belongs_to_its_owner() {
    if !needs_root() {
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
    belongs_to(&env.path("project/.snap"), NOBODY);
    // Checks packs that a pull fetches, and the cache of the remote.
    env.write("project/sub/old", "1");
    env.snap_in("project", ["--store", ".snap", "commit", "-q"]).succeeds();
    env.snap(["clone", "-q", "project", "copy"]).succeeds();
    env.snap(["clone", "-q", "project", "part", "--path", "sub"]).succeeds();
    for copy in ["copy", "part"] {
        let _ = fs_err::remove_dir_all(env.path(format!("{copy}/.snap/cache/remotes")));
        let mut change = std::process::Command::new("chown");
        assert!(change.args(["-R", &owner]).arg(env.path(copy)).status().unwrap().success());
    }
    env.write("project/sub/new", "1");
    env.snap_in("project", ["--store", ".snap", "commit", "-q"]).succeeds();
    for (copy, command) in [("copy", "fetch"), ("copy", "pull"), ("part", "pull")] {
        let store = format!("{copy}/.snap");
        let command: &[&str] =
            if command == "fetch" { &["verify", "origin"] } else { &["pull", "-q"] };
        env.snap(["--store", &store].into_iter().chain(command.iter().copied())).succeeds();
        belongs_to(&env.path(&store), NOBODY);
    }
}

fn belongs_to(folder: &Path, user: u32) {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            assert_eq!(meta.uid(), user, "{}", entry.path().display());
            if meta.is_dir() {
                folders.push(entry.path());
            }
        }
    }
}

#[test]
fn names_of_branches_do_not_steer_the_terminal() {
    let env = env();
    env.snap_in("project", ["commit"]).succeeds();
    let tip = env.read("project/.snap/refs/heads/main");
    env.write("project/.snap/refs/heads/x\u{202e}y", &tip);
    for command in [&["branch"][..], &["log"], &["show"]] {
        let ran = env.snap_in("project", command).succeeds();
        assert!(!ran.stdout.contains('\u{202e}'), "{command:?}: {}", ran.stdout);
        assert!(ran.stdout.contains("x\\u{202e}y"), "{command:?}: {}", ran.stdout);
    }
}

#[test]
fn a_store_that_moves_during_a_commit_fails_it() {
    let mut env = TestEnv::new();
    // One thread would read the whole stream before it writes.
    env.set("SNAP_JOBS", "3");
    env.write("p/file", "1");
    env.snap_in("p", ["commit", "-q"]).succeeds();
    let dump = noise(7, 8 << 20);
    let mut commit = env
        .command("p")
        .args(["commit", "--stdin", "dump", "-b", "dumps"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = commit.stdin.take().unwrap();
    stdin.write_all(&dump[..6 << 20]).unwrap();
    let has_draft = || {
        let entries = fs_err::read_dir(env.path("p/.snap/tmp")).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.metadata().is_ok_and(|meta| meta.len() > 1 << 20))
    };
    until("a draft is there", has_draft);
    // Moves the store to another disk, by a copy.
    let copy = Command::new("cp").arg("-a").arg(env.path("p/.snap")).arg(env.path("disk")).status();
    assert!(copy.unwrap().success());
    fs_err::remove_dir_all(env.path("p/.snap")).unwrap();
    symlink(env.path("disk"), env.path("p/.snap")).unwrap();
    stdin.write_all(&dump[6 << 20..]).unwrap();
    drop(stdin);
    let ended = commit.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(told.contains("the store was moved or replaced"), "{told}");
    env.snap_in("p", ["--store", ".snap", "verify", "--data"]).succeeds();
    assert_eq!(
        env.snap_in("p", ["--store", ".snap", "branch"]).succeeds().stdout.lines().count(),
        1
    );
}
