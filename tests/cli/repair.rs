//! `snap repair`: what is damaged or lost comes back from wherever it still is.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::{
    env::{TestEnv, noise},
    remote::{env, folder, says},
    serve::Serving,
};

/// A project with two commits, of which a second copy is in `copy`.
fn twice() -> TestEnv {
    let env = env();
    env.write("work/large.bin", noise(1, 3 << 20));
    env.snap_in("work", ["commit", "-qm", "two"]).succeeds();
    env.snap(["clone", "-q", &folder(&env, "work"), "copy"]).succeeds();
    env.snap_in("copy", ["remote", "remove", "origin"]).succeeds();
    env
}

fn packs(env: &TestEnv, objects: &str) -> Vec<PathBuf> {
    let entries = fs_err::read_dir(env.path(objects)).unwrap();
    let mut packs: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    packs.sort_by_key(|path| std::cmp::Reverse(fs_err::metadata(path).unwrap().len()));
    packs
}

/// Flips a byte of the first frame of the largest pack.
fn damage(env: &TestEnv, objects: &str) {
    let pack = &packs(env, objects)[0];
    let mut bytes = fs_err::read(pack).unwrap();
    bytes[20] ^= 1;
    env.mode(pack, 0o644);
    fs_err::write(pack, bytes).unwrap();
}

/// Every file below a folder.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut files, mut waiting) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(folder) = waiting.pop() {
        for entry in fs_err::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => waiting.push(path),
                false => drop(files.insert(path.clone(), fs_err::read(path).unwrap())),
            }
        }
    }
    files
}

#[test]
fn a_damaged_pack_comes_back_from_another_project() {
    let env = twice();
    insta::assert_snapshot!(env.snap_in("work", ["repair", "--from", "../copy"]), @r"
    exit: 0
    --- stderr ---
    Nothing to repair: no damage found; --data reads all contents, too
    ");
    damage(&env, "work/.snap/objects");
    // The file that had it is not asked.
    fs_err::remove_file(env.path("work/large.bin")).unwrap();
    insta::assert_snapshot!(env.snap_in("work", ["repair", "--data", "--from", "../copy"]), @r"
    exit: 0
    --- stdout ---
    repaired: pack [ID] from ../copy
    --- stderr ---
    Repaired 1 pack
    Moved 1 damaged pack to quarantine/ in the store
    Everything is as it should be
    ");
    env.snap_in("work", ["verify", "--data"]).succeeds();
    assert_eq!(fs_err::read_dir(env.path("work/.snap/quarantine")).unwrap().count(), 1);
    env.snap_in("work", ["restore", "latest", "../restored"]).succeeds();
    assert_eq!(fs_err::read(env.path("restored/large.bin")).unwrap(), noise(1, 3 << 20));
}

#[test]
fn without_from_the_remotes_are_asked_and_those_that_are_away_passed_over() {
    let env = env();
    let url = folder(&env, "there");
    let away = folder(&env, "away");
    env.snap_in("work", ["remote", "add", "backup", &away]).succeeds();
    env.snap_in("work", ["remote", "add", "origin", &url]).succeeds();
    env.snap_in("work", ["push", "-q", "origin"]).succeeds();
    fs_err::remove_file(&packs(&env, "work/.snap/objects")[0]).unwrap();
    fs_err::remove_file(env.path("work/notes.txt")).unwrap();
    let ran = env.snap_in("work", ["repair"]);
    says(&ran, 0, &["backup is passed over: there is no store at", "Repaired 1 pack"]);
    assert!(ran.stdout.starts_with("repaired: pack ") && ran.stdout.contains("from origin"));
    env.snap_in("work", ["verify", "--data"]).succeeds();
}

#[test]
fn files_of_the_project_give_back_what_they_still_have() {
    let env = env();
    damage(&env, "work/.snap/objects");
    for file in ["latest:notes.txt", "latest:sub/more.txt"] {
        says(&env.snap_in("work", ["cat", file]), 4, &[]);
    }
    env.write("work/sub/more.txt", "changed since\n");
    let ran = env.snap_in("work", ["repair", "--data"]);
    says(&ran, 4, &["1 object cannot be found anywhere that was asked", "`snap repair --from"]);
    assert!(ran.stdout.contains("from the file notes.txt"), "{}", ran.stdout);
    assert!(ran.stdout.contains("\nlost: blob "), "{}", ran.stdout);
    assert!(ran.stdout.contains("touched: sub/more.txt in commit "), "{}", ran.stdout);
    env.write("work/sub/more.txt", "more\n");
    says(
        &env.snap_in("work", ["repair"]),
        0,
        &["Repaired 1 object", "damaged pack to quarantine/"],
    );
    env.snap_in("work", ["verify", "--data"]).succeeds();
}

#[test]
fn bundles_are_asked_last_also_those_that_build_on_others() {
    let env = twice();
    env.snap_in("work", ["pack", "latest", "--since", "latest~1", "-o", "../update.snap"])
        .succeeds();
    damage(&env, "work/.snap/objects");
    fs_err::remove_file(env.path("work/large.bin")).unwrap();
    let ran = env.snap_in("work", ["repair", "--data", "--from", "../update.snap"]);
    says(&ran, 0, &["Repaired"]);
    assert!(ran.stdout.contains("from ../update.snap"), "{}", ran.stdout);
    env.snap_in("work", ["verify", "--data"]).succeeds();
    let ran = env.snap_in("work", ["repair", "--from", "../nothing.snap"]);
    says(&ran, 1, &["there is no store at", "nothing.snap"]);
}

#[test]
fn a_dry_run_tells_what_would_come_from_where_and_writes_nothing() {
    let env = twice();
    env.snap_in("work", ["remote", "add", "copy", &folder(&env, "copy")]).succeeds();
    damage(&env, "work/.snap/objects");
    // Whoever reads a store keeps its packs where they are.
    env.snap(["ls", &folder(&env, "copy")]).succeeds();
    let before = (files(&env.path("work")), files(&env.path("copy")));
    let ran = env.snap_in("work", ["repair", "-n", "--data"]);
    says(&ran, 0, &["Would repair 1 pack; nothing was changed", "`snap repair` does it"]);
    assert!(ran.stdout.starts_with("would repair: pack "), "{}", ran.stdout);
    assert!(ran.stdout.ends_with(" from copy\n"), "{}", ran.stdout);
    assert!((files(&env.path("work")), files(&env.path("copy"))) == before, "something changed");
}

#[test]
fn a_remote_gets_again_what_it_lost_and_its_branches_stay() {
    let env = env();
    let url = folder(&env, "there");
    env.snap_in("work", ["remote", "add", "origin", &url]).succeeds();
    env.snap_in("work", ["push", "-q"]).succeeds();
    env.write("work/new.txt", "not pushed\n");
    env.snap_in("work", ["commit", "-qm", "two"]).succeeds();
    let refs = files(&env.path("there/refs"));
    damage(&env, "there/objects");
    let ran = env.snap_in("work", ["repair", "origin", "-n", "--data"]);
    says(&ran, 0, &["Would repair 1 pack", "`snap repair origin` does it"]);
    let ran = env.snap_in("work", ["repair", "origin", "--data"]);
    says(&ran, 0, &["Sent ", "Repaired 1 pack", "Everything is as it should be"]);
    assert!(ran.stdout.starts_with("repaired: pack "), "{}", ran.stdout);
    assert!(ran.stdout.ends_with(" from the store here\n"), "{}", ran.stdout);
    assert_eq!(files(&env.path("there/refs")), refs);
    env.snap_in("work", ["verify", "origin", "--data"]).succeeds();
    for pack in packs(&env, "there/objects") {
        fs_err::remove_file(pack).unwrap();
    }
    env.snap_in("work", ["repair", "origin"]).succeeds();
    env.snap(["clone", "-q", &url, "cloned"]).succeeds();
    assert_eq!(env.read("cloned/notes.txt"), "first\n");
}

#[test]
fn a_remote_gets_a_pack_again_wherever_it_was_damaged() {
    let env = env();
    let url = folder(&env, "there");
    env.snap_in("work", ["remote", "add", "origin", &url]).succeeds();
    env.snap_in("work", ["push", "-q"]).succeeds();
    let pack = packs(&env, "there/objects").remove(0);
    let whole = fs_err::read(&pack).unwrap();
    env.mode(&pack, 0o644);
    for at in [3, 20, whole.len() / 2, whole.len() - 60, whole.len() - 3] {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs_err::write(&pack, bytes).unwrap();
        env.snap_in("work", ["repair", "-q", "origin", "--data"]).succeeds();
        assert_eq!(fs_err::read(&pack).unwrap(), whole, "flipped at {at}");
        env.mode(&pack, 0o644);
    }
    fs_err::write(&pack, &whole[..whole.len() / 2]).unwrap();
    env.snap_in("work", ["repair", "-q", "origin"]).succeeds();
    assert_eq!(fs_err::read(&pack).unwrap(), whole, "cut");
}

#[test]
fn a_location_is_repaired_from_other_copies_where_there_is_no_store() {
    let env = twice();
    let url = folder(&env, "there");
    env.snap_in("work", ["push", "-q", &url]).succeeds();
    for pack in packs(&env, "there/objects") {
        fs_err::remove_file(pack).unwrap();
    }
    let ran = env.snap(["repair", &url]);
    says(&ran, 4, &["cannot be found anywhere that was asked"]);
    assert!(ran.stdout.contains("lost: commit "), "{}", ran.stdout);
    env.snap(["repair", &url, "--from", "copy"]).succeeds();
    env.snap(["verify", &url, "--data"]).succeeds();
    let ran = env.snap(["repair", &folder(&env, "work"), "--from", "copy"]);
    says(&ran, 0, &["Nothing to repair"]);
}

#[test]
fn a_server_gets_again_what_it_lost() {
    let env = env();
    let serving = Serving::start(&env, "work");
    env.snap(["clone", "-q", &serving.url, "there"]).succeeds();
    damage(&env, "work/.snap/objects");
    env.snap_in("there", ["repair", "origin", "--data"]).succeeds();
    env.snap_in("there", ["verify", "origin", "--data"]).succeeds();
    env.snap_in("work", ["verify", "--data"]).succeeds();
}

#[test]
fn what_a_partial_clone_left_elsewhere_is_no_damage_and_its_stubs_come_back() {
    let env = twice();
    fs_err::remove_file(env.path("work/large.bin")).unwrap();
    env.snap_in("work", ["commit", "-qm", "three"]).succeeds();
    let url = folder(&env, "work");
    env.snap(["clone", "-q", "--depth", "1", &url, "part"]).succeeds();
    says(&env.snap_in("part", ["repair"]), 0, &["Nothing to repair"]);
    let stubs = packs(&env, "part/.snap/partial");
    let mut bytes = fs_err::read(&stubs[0]).unwrap();
    let end = bytes.len();
    bytes[end - 3] ^= 1;
    env.mode(&stubs[0], 0o644);
    fs_err::write(&stubs[0], bytes).unwrap();
    says(&env.snap_in("part", ["repair"]), 0, &["Repaired 1 pack"]);
    assert_eq!(packs(&env, "part/.snap/partial").len(), stubs.len());
    env.snap_in("part", ["verify"]).succeeds();
    assert_eq!(env.snap_in("part", ["cat", "latest~1:notes.txt"]).succeeds().stdout, "first\n");
}

#[test]
fn repairs_and_commits_at_once_do_not_hinder_each_other() {
    let env = twice();
    for round in 0..3 {
        damage(&env, "work/.snap/objects");
        env.write("work/new.txt", format!("round {round}"));
        let repair = ["repair", "-q", "--data", "--from", "../copy"];
        let spawn = |args: &[&str]| {
            let mut command = env.command("work");
            command.args(args).stdout(std::process::Stdio::null()).spawn().unwrap()
        };
        let children = [spawn(&repair), spawn(&repair), spawn(&["commit", "-qm", "meanwhile"])];
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        env.snap_in("work", ["repair", "-q", "--data", "--from", "../copy"]).succeeds();
        env.snap_in("work", ["verify", "--data"]).succeeds();
    }
}

#[test]
fn a_repair_that_is_killed_loses_nothing_and_the_next_one_finishes_it() {
    let env = twice();
    for round in 0..12 {
        damage(&env, "work/.snap/objects");
        let mut command = env.command("work");
        command.args(["repair", "-q", "--data", "--from", "../copy"]);
        let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5 + 7 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        env.snap_in("work", ["log"]).succeeds();
        env.snap_in("work", ["repair", "-q", "--data", "--from", "../copy"]).succeeds();
        env.snap_in("work", ["verify", "--data"]).succeeds();
    }
}

#[test]
fn a_copy_on_a_disk_that_is_not_mounted_is_named() {
    let env = twice();
    let url = folder(&env, "disk");
    env.snap_in("work", ["remote", "add", "o", &url]).succeeds();
    env.snap_in("work", ["push", "-q", "o"]).succeeds();
    damage(&env, "work/.snap/objects");
    fs_err::remove_file(env.path("work/large.bin")).unwrap();
    fs_err::rename(env.path("disk"), env.path("away")).unwrap();
    fs_err::create_dir(env.path("disk")).unwrap();
    let ran = env.snap_in("work", ["repair", "--data"]);
    says(&ran, 4, &["o is passed over: the store at ", " is gone"]);
    let ran = env.snap_in("work", ["repair", "--data", "--from", "o"]);
    says(&ran, 1, &["is gone"]);
    fs_err::remove_dir(env.path("disk")).unwrap();
    fs_err::rename(env.path("away"), env.path("disk")).unwrap();
    env.snap_in("work", ["repair", "--data"]).succeeds();
}

#[test]
fn a_store_that_lost_a_branch_is_not_called_whole() {
    let env = twice();
    let url = folder(&env, "there");
    env.snap_in("work", ["remote", "add", "o", &url]).succeeds();
    env.snap_in("work", ["push", "-q", "o"]).succeeds();
    fs_err::remove_file(env.path("there/refs/heads/main")).unwrap();
    let ran = env.snap_in("work", ["repair", "o"]);
    assert_eq!(ran.code, Some(4), "{}", ran.stderr);
    assert!(ran.stdout.contains("and is not there"), "{}", ran.stdout);
    env.snap_in("work", ["push", "-q", "o"]).succeeds();
    env.snap_in("work", ["repair", "o"]).succeeds();
}

#[test]
fn a_pipe_in_place_of_a_pack_is_not_waited_for() {
    let env = twice();
    damage(&env, "work/.snap/objects");
    fs_err::remove_file(env.path("work/large.bin")).unwrap();
    for pack in packs(&env, "copy/.snap/objects") {
        fs_err::remove_file(&pack).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pack).status().unwrap().success());
    }
    for args in [
        vec!["clone", "copy", "new"],
        vec!["--store", "work/.snap", "repair", "--data", "--from", "copy"],
    ] {
        let ran = env.snap(args.iter().copied());
        assert!(ran.code.is_some_and(|code| code != 0), "{args:?}: {}", ran.stderr);
    }
}
