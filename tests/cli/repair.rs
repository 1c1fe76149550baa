//! `snap repair`: damaged or lost data is restored from any source that still has it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use snap_explore::steps::{self, Stop, stop_at};

use crate::{
    env::{TestEnv, noise},
    remote::{env, folder, says},
    serve::Serving,
};

/// Makes a project with two commits, and a clone in `copy`.
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

/// Flips a bit in the first frame of the largest pack.
fn damage(env: &TestEnv, objects: &str) {
    damage_pack(env, &packs(env, objects)[0]);
}

/// Flips a bit in the first frame of each pack.
fn damage_all(env: &TestEnv, objects: &str) {
    packs(env, objects).iter().for_each(|pack| damage_pack(env, pack));
}

fn damage_pack(env: &TestEnv, pack: &Path) {
    let mut bytes = fs_err::read(pack).unwrap();
    bytes[20] ^= 1;
    env.mode(pack, 0o644);
    fs_err::write(pack, bytes).unwrap();
}

/// Returns all files below a folder with their contents.
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
    Nothing to repair: no errors found
    hint: `snap repair --data` also reads all contents
    ");
    damage(&env, "work/.snap/objects");
    // Removes the file, so that it cannot be the source of the content.
    fs_err::remove_file(env.path("work/large.bin")).unwrap();
    insta::assert_snapshot!(env.snap_in("work", ["repair", "--data", "--from", "../copy"]), @r"
    exit: 0
    --- stdout ---
    repaired: pack [SHORT ID] from ../copy
    --- stderr ---
    Repaired 1 pack
    Moved 1 damaged pack to quarantine/ in the store
    No errors found
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
    says(&ran, 0, &["backup is skipped: no store found at", "Repaired 1 pack"]);
    assert!(ran.stdout.starts_with("repaired: pack ") && ran.stdout.contains("from origin"));
    env.snap_in("work", ["verify", "--data"]).succeeds();
}

#[test]
fn a_store_is_no_source_of_its_own_repair() {
    let env = twice();
    damage(&env, "work/.snap/objects");
    let itself = ["file://", " is this store itself, not a remote"];
    says(&env.snap_in("work", ["repair", "--data", "--from", "."]), 2, &itself);
    says(&env.snap_in("work", ["repair", "--data", "../work"]), 2, &itself);
    says(&env.snap_in("work", ["repair", "../copy", "--from", "../copy"]), 2, &itself);
    // A remote that is this store itself is skipped; the others are used.
    let (here, copy) = (folder(&env, "work"), folder(&env, "copy"));
    env.snap_in("work", ["remote", "add", "here", &here]).succeeds();
    env.snap_in("work", ["remote", "add", "other", &copy]).succeeds();
    let ran = env.snap_in("work", ["repair", "--data"]);
    says(
        &ran,
        0,
        &["here is skipped: file://", " is this store itself, not a remote", "Repaired 1 pack"],
    );
    env.snap_in("work", ["verify", "--data"]).succeeds();
}

#[test]
fn the_folders_of_a_bare_store_give_back_what_they_still_have() {
    let env = TestEnv::new();
    env.write("docs/sub/large.bin", noise(1, 1 << 20));
    env.write("single.bin", noise(2, 1 << 20));
    fs_err::create_dir_all(env.path("photos/empty")).unwrap();
    let snap = |args: &[&str]| env.snap([&["-r", "bare"], args].concat());
    snap(&["init"]).succeeds();
    snap(&["commit", "-q", "docs"]).succeeds();
    snap(&["commit", "-q", "-b", "two", "photos", "single.bin"]).succeeds();
    damage_all(&env, "bare/objects");
    let ran = snap(&["repair", "--data"]);
    // The number of folders above the sources depends on the place of the test.
    says(&ran, 0, &["Repaired ", "No errors found"]);
    for file in ["docs/sub/large.bin", "single.bin"] {
        let line = format!(" from the file {}\n", env.path(file).display());
        assert!(ran.stdout.contains(&line), "{ran}");
    }
    snap(&["verify", "--data"]).succeeds();
    // Sources that have moved away are no longer found.
    damage_all(&env, "bare/objects");
    fs_err::rename(env.path("docs"), env.path("moved")).unwrap();
    fs_err::remove_file(env.path("single.bin")).unwrap();
    let ran = snap(&["repair", "--data"]);
    assert_eq!(ran.code, Some(4), "{ran}");
    assert!(!ran.stdout.contains("from the file"), "{ran}");
}

#[test]
fn a_plain_folder_becomes_a_source_as_a_bundle() {
    let env = env();
    env.write("work/large.bin", noise(1, 3 << 20));
    env.snap_in("work", ["commit", "-qm", "two"]).succeeds();
    damage(&env, "work/.snap/objects");
    fs_err::create_dir(env.path("plain")).unwrap();
    fs_err::rename(env.path("work/large.bin"), env.path("plain/other name")).unwrap();
    insta::assert_snapshot!(env.snap_in("work", ["repair", "--from", "../plain"]), @"
    exit: 1
    --- stderr ---
    error: `../plain` is neither a store nor a project with a store
    hint: if it has copies of the files: `snap archive ../plain -o FILE.snap`, then `snap repair --from FILE.snap`
    hint: if not, name a project or a store folder
    ");
    env.snap_in("work", ["archive", "../plain", "-o", "../files.snap"]).succeeds();
    env.snap_in("work", ["repair", "--data", "--from", "../files.snap"]).succeeds();
    env.snap_in("work", ["verify", "--data"]).succeeds();
}

#[test]
fn files_of_the_project_give_back_what_they_still_have() {
    // The threads of the commit decide whether both files are in the first frame.
    let damaged = || {
        let env = env();
        damage(&env, "work/.snap/objects");
        let is_lost =
            |file: &str| env.snap_in("work", ["cat", &format!("latest:{file}")]).code == Some(4);
        (is_lost("notes.txt") && is_lost("sub/more.txt")).then_some(env)
    };
    let env = (0..100).find_map(|_| damaged()).unwrap();
    env.write("work/sub/more.txt", "changed since\n");
    let ran = env.snap_in("work", ["repair", "--data"]);
    says(&ran, 4, &["1 object could not be found in any source", "hint: `snap repair --from"]);
    assert!(ran.stdout.contains("from the file notes.txt"), "{}", ran.stdout);
    assert!(ran.stdout.contains("\nlost: blob "), "{}", ran.stdout);
    assert!(ran.stdout.contains(": sub/more.txt\n"), "{}", ran.stdout);
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
    says(&ran, 1, &["no store found at", "nothing.snap"]);
}

#[test]
fn a_dry_run_tells_what_would_come_from_where_and_writes_nothing() {
    let env = twice();
    env.snap_in("work", ["remote", "add", "copy", &folder(&env, "copy")]).succeeds();
    damage(&env, "work/.snap/objects");
    // A process that reads the store keeps its packs from being merged or removed.
    env.snap(["ls", &folder(&env, "copy")]).succeeds();
    let before = (files(&env.path("work")), files(&env.path("copy")));
    let ran = env.snap_in("work", ["repair", "-n", "--data"]);
    says(
        &ran,
        0,
        &[
            "Would repair 1 pack (dry run: nothing was changed)",
            "hint: `snap repair --data` repairs it",
        ],
    );
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
    says(&ran, 0, &["Would repair 1 pack", "`snap repair origin --data` repairs it"]);
    let ran = env.snap_in("work", ["repair", "origin", "--data"]);
    says(&ran, 0, &["Sent ", "Repaired 1 pack", "No errors found"]);
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
fn a_dry_run_creates_no_lock_file_in_its_source_nor_in_what_it_would_repair() {
    let env = twice();
    damage(&env, "work/.snap/objects");
    env.snap(["clone", "-q", "copy", "third"]).succeeds();
    for store in ["copy", "third"] {
        let lock = env.path(store).join(".snap/compact.lock");
        let _ = fs_err::remove_file(&lock);
        let before = files(&env.path(store));
        let from = format!("../{store}");
        says(
            &env.snap_in("work", ["repair", "-n", "--data", "--from", &from]),
            0,
            &["Would repair 1 pack"],
        );
        let at = env.path(store).display().to_string();
        says(&env.snap_in("work", ["repair", &at, "-n"]), 0, &["Nothing to repair"]);
        assert!(files(&env.path(store)) == before, "{store} has changed");
        assert!(!lock.exists(), "{store}");
    }
    // A real run holds the packs of its source in place.
    env.snap_in("work", ["repair", "--data", "--from", "../copy"]).succeeds();
    assert!(env.path("copy/.snap/compact.lock").exists());
}

#[test]
fn a_dry_run_knows_the_damage_that_the_store_knows_and_not_what_the_user_knew_before() {
    let env = env();
    let url = folder(&env, "there");
    env.snap_in("work", ["remote", "add", "origin", &url]).succeeds();
    env.snap_in("work", ["push", "-q"]).succeeds();
    let first = packs(&env, "there/objects").remove(0);
    let whole = fs_err::read(&first).unwrap();
    damage(&env, "there/objects");
    assert_eq!(env.snap(["verify", &url, "--data"]).code, Some(4));
    fs_err::write(&first, whole).unwrap();
    env.write("work/large.bin", noise(1, 3 << 20));
    env.snap_in("work", ["commit", "-qm", "two"]).succeeds();
    env.snap_in("work", ["push", "-q"]).succeeds();
    damage(&env, "there/objects");
    assert_eq!(env.snap_in("work", ["verify", "origin", "--data"]).code, Some(4));
    let ran = env.snap_in("work", ["repair", "origin", "-n"]);
    says(&ran, 0, &["Would repair 1 pack", "`snap repair origin` repairs it"]);
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
    says(&ran, 4, &["could not be found in any source"]);
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
    let repair = || {
        damage(&env, "work/.snap/objects");
        let mut command = env.command("work");
        command.args(["repair", "-q", "--data", "--from", "../copy"]);
        command
    };
    let count = steps::count(&mut repair()).len();
    let mut kills = 0;
    for step in steps::spread(count, 24) {
        let output = stop_at(&mut repair(), step, Stop::Kill).output().unwrap();
        // What an earlier repair has left saves some steps.
        kills += usize::from(steps::was_killed(output.status));
        env.snap_in("work", ["log"]).succeeds();
        env.snap_in("work", ["repair", "-q", "--data", "--from", "../copy"]).succeeds();
        env.snap_in("work", ["verify", "--data"]).succeeds();
    }
    assert!(kills >= 12, "only {kills} repairs were killed");
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
    says(&ran, 4, &["o is skipped: the store at ", " is gone"]);
    let ran = env.snap_in("work", ["repair", "--data", "--from", "o"]);
    says(&ran, 1, &["is gone"]);
    fs_err::remove_dir(env.path("disk")).unwrap();
    fs_err::rename(env.path("away"), env.path("disk")).unwrap();
    env.snap_in("work", ["repair", "--data"]).succeeds();
}

#[test]
fn a_restore_that_meets_damage_names_the_repair_that_reads_contents() {
    let env = twice();
    damage(&env, "work/.snap/objects");
    let ran = env.snap_in("work", ["restore", "latest", "../out"]);
    says(&ran, 4, &["hint: `snap repair --data` recovers lost data from other copies"]);
    env.snap_in("work", ["repair", "--data", "--from", "../copy"]).succeeds();
    env.snap_in("work", ["restore", "-q", "latest", "../out"]).succeeds();
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
    assert!(ran.stdout.contains("is missing; it last pointed at"), "{}", ran.stdout);
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

#[test]
fn a_remote_that_lost_a_pack_and_has_a_damaged_index_can_be_cloned_again() {
    let mut env = TestEnv::new();
    let url = folder(&env, "there");
    for number in 0..3 {
        env.write("work/file", number.to_string());
        env.snap_in("work", ["commit", "-qm", "one more"]).succeeds();
        env.snap_in("work", ["push", "-q", &url, "main"]).succeeds();
    }
    let mut copy = std::process::Command::new("cp");
    copy.arg("-a").args([env.path("there"), env.path("copy")]);
    assert!(copy.status().unwrap().success());
    let newest = |path: &str| {
        let entries = fs_err::read_dir(env.path(path)).unwrap().map(|entry| entry.unwrap());
        let mut entries: Vec<_> =
            entries.map(|entry| (entry.metadata().unwrap().modified().unwrap(), entry)).collect();
        entries.sort_by_key(|(time, _)| *time);
        let paths: Vec<_> = entries.into_iter().map(|(_, entry)| entry.path()).collect();
        (paths[0].clone(), paths[paths.len() - 1].clone())
    };
    let ((_, pack), (index, _)) = (newest("there/objects"), newest("there/index"));
    fs_err::remove_file(pack).unwrap();
    let mut bytes = fs_err::read(&index).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs_err::write(&index, bytes).unwrap();
    // Simulates another machine, which has no cache of the remote.
    let cache = env.path("cache of another machine");
    env.set("XDG_CACHE_HOME", cache.to_str().unwrap());
    let from = folder(&env, "copy");
    let ran = env.snap(["repair", &url, "--from", &from]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    env.snap(["clone", "-q", &url, "clone"]).succeeds();
    assert_eq!(env.read("clone/file"), "2");
}

#[test]
fn what_was_sent_again_beside_a_lost_pack_is_read_by_everybody() {
    // Which of the two packs a client reads first depends on their names.
    for number in 0..6 {
        let mut env = TestEnv::new();
        // A content that was cut has a list of chunks beside the trees.
        env.write("work/large", noise(number, 3_000_000));
        env.write("work/key", "secret");
        env.snap_in("work", ["commit", "-qm", "with a key"]).succeeds();
        // The pack that is sent leaves the key out, so its name is not that of the one here.
        env.snap_in("work", ["undo", "-q"]).succeeds();
        fs_err::remove_file(env.path("work/key")).unwrap();
        env.snap_in("work", ["commit", "-qm", "without"]).succeeds();
        let url = folder(&env, "there");
        env.snap_in("work", ["push", "-q", &url]).succeeds();
        let lost = packs(&env, "there/objects");
        let lost = lost.iter().max_by_key(|path| fs_err::metadata(path).unwrap().len());
        fs_err::remove_file(lost.unwrap()).unwrap();
        says(&env.snap_in("work", ["verify", &url]), 4, &[]);
        // A machine whose cache has only the index from before the repair.
        let early = env.path("early cache");
        env.set("XDG_CACHE_HOME", early.to_str().unwrap());
        // The pack that has the commit decides if this fails.
        let _ = env.snap(["ls", &url]);
        env.snap_in("work", ["repair", &url]).succeeds();
        let revision = format!("{url}#main");
        for (round, cache) in ["early cache", "empty cache"].into_iter().enumerate() {
            env.set("XDG_CACHE_HOME", env.path(cache).to_str().unwrap());
            let restored = format!("restored{round}");
            env.snap(["restore", "-q", &revision, &restored]).succeeds();
            let large = fs_err::read(env.path(format!("{restored}/large"))).unwrap();
            assert!(large == noise(number, 3_000_000));
            env.snap(["log", "-q", &revision]).succeeds();
            env.snap(["export", "-q", &revision, "-o", &format!("{restored}.tar")]).succeeds();
        }
        let cache = env.path("cache of another machine");
        env.set("XDG_CACHE_HOME", cache.to_str().unwrap());
        env.snap(["clone", "-q", &url, "clone"]).succeeds();
        assert!(fs_err::read(env.path("clone/large")).unwrap() == noise(number, 3_000_000));
        env.snap_in("clone", ["verify", "--data"]).succeeds();
        fs_err::create_dir(env.path("pulled")).unwrap();
        env.snap_in("pulled", ["init", "-q"]).succeeds();
        let cache = env.path("cache of one more");
        env.set("XDG_CACHE_HOME", cache.to_str().unwrap());
        env.snap_in("pulled", ["pull", "-q", &url, "main"]).succeeds();
        env.snap_in("pulled", ["verify", "--data"]).succeeds();
    }
}

#[test]
fn what_was_sent_again_beside_a_damaged_pack_is_read_by_everybody() {
    let mut env = TestEnv::new();
    env.write("work/.keep", "");
    env.snap_in("work", ["commit", "-qm", "none"]).succeeds();
    env.snap(["clone", "-q", &folder(&env, "work"), "served"]).succeeds();
    let serving = Serving::start(&env, "served");
    let urls = [folder(&env, "there"), serving.url.clone()];
    let commit = |env: &TestEnv, number: u8, bytes: usize| {
        env.write(&format!("work/file{number}"), noise(number.into(), bytes));
        env.snap_in("work", ["commit", "-qm", "one more"]).succeeds();
    };
    let push = |env: &TestEnv, url: &str| {
        drop(env.snap_in("work", ["push", "-q", url, "main"]).succeeds())
    };
    urls.iter().for_each(|url| push(&env, url));
    for (number, bytes) in [(0, 300_000), (1, 3000)] {
        commit(&env, number, bytes);
        urls.iter().for_each(|url| push(&env, url));
    }
    // Small packs are merged here, so the damaged one cannot be sent again unchanged.
    (2..14).for_each(|number| commit(&env, number, 3000));
    for (number, (url, objects)) in
        urls.iter().zip(["there/objects", "served/.snap/objects"]).enumerate()
    {
        damage(&env, objects);
        env.snap_in("work", ["repair", url, "--data"]).succeeds();
        push(&env, url);
        let cache = env.path(format!("cache of another machine, {number}"));
        env.set("XDG_CACHE_HOME", cache.to_str().unwrap());
        let clone = format!("clone{number}");
        env.snap(["clone", "-q", url, &clone]).succeeds();
        let file = fs_err::read(env.path(format!("{clone}/file0"))).unwrap();
        assert!(file == noise(0, 300_000), "{url}");
        env.snap_in(&clone, ["verify", "--data"]).succeeds();
        let pulled = format!("pulled{number}");
        fs_err::create_dir(env.path(&pulled)).unwrap();
        env.snap_in(&pulled, ["init", "-q"]).succeeds();
        env.set("XDG_CACHE_HOME", env.path(format!("one more, {number}")).to_str().unwrap());
        env.snap_in(&pulled, ["pull", "-q", url, "main"]).succeeds();
        env.snap_in(&pulled, ["verify", "--data"]).succeeds();
    }
}

#[test]
fn what_lies_behind_a_lost_commit_comes_back() {
    let env = TestEnv::new();
    let url = folder(&env, "there");
    env.write("work/file", "pushed");
    let pushed = env.snap_in("work", ["commit"]).succeeds().stdout;
    env.snap_in("work", ["remote", "add", "origin", &url]).succeeds();
    env.snap_in("work", ["push", "-q"]).succeeds();
    env.write("work/file", "not pushed");
    let lost = env.snap_in("work", ["commit"]).succeeds().stdout;
    // Both packs are removed; one of them names the commit in the other one.
    for entry in fs_err::read_dir(env.path("work/.snap/objects")).unwrap() {
        fs_err::remove_file(entry.unwrap().path()).unwrap();
    }
    let verified = env.snap_in("work", ["verify"]);
    assert_eq!(verified.code, Some(4));
    assert_eq!(verified.stdout.matches("is not in the store").count(), 2, "{}", verified.stdout);
    let repaired = env.snap_in("work", ["repair"]);
    assert_eq!(repaired.code, Some(4));
    assert!(repaired.stdout.contains(&format!("lost: commit {}", &lost[..12])));
    let revision = format!("{}:file", pushed.trim());
    assert_eq!(env.snap_in("work", ["cat", &revision]).succeeds().stdout, "pushed");
}

#[test]
fn settings_and_head_that_are_lost_are_written_again() {
    let env = TestEnv::new();
    env.write("work/file", "1");
    env.snap_in("work", ["commit", "-q"]).succeeds();
    env.snap_in("work", ["commit", "-q", "--allow-empty", "-b", "other"]).succeeds();
    let path = |name: &str| env.path(format!("work/.snap/{name}"));
    for text in ["", "# nothing but this\n", "\0\0\0\0"] {
        fs_err::write(path("config.toml"), text).unwrap();
        assert_eq!(env.snap_in("work", ["status"]).code, Some(4), "{text:?}");
        env.snap_in("work", ["repair"]).succeeds();
        env.snap_in("work", ["status"]).succeeds();
    }
    fs_err::remove_file(path("config.toml")).unwrap();
    for command in ["status", "verify", "commit", "init"] {
        let told = env.snap_in("work", [command]);
        assert_ne!(told.code, Some(0), "{command}: {}", told.stderr);
        assert!(told.stderr.contains("`snap repair`"), "{command}: {}", told.stderr);
    }
    assert_eq!(env.snap_in("work", ["repair", "-n"]).code, Some(4));
    assert!(!path("config.toml").exists());
    let repaired = env.snap_in("work", ["repair"]).succeeds();
    assert!(repaired.stderr.contains("with default settings"), "{}", repaired.stderr);
    assert!(!repaired.stderr.contains("Nothing to repair"), "{}", repaired.stderr);
    // Without a log, HEAD is set to the first branch of a new store, if it exists.
    for content in [None, Some("garbage")] {
        fs_err::remove_file(path("HEAD")).unwrap();
        content.iter().for_each(|content| fs_err::write(path("HEAD"), content).unwrap());
        assert_eq!(env.snap_in("work", ["verify"]).code, Some(4));
        env.snap_in("work", ["repair"]).succeeds();
        assert_eq!(env.read("work/.snap/HEAD"), "ref: refs/heads/main\n");
    }
    env.snap_in("work", ["branch", "--switch", "other"]).succeeds();
    fs_err::remove_file(path("HEAD")).unwrap();
    let records = env.snap_in("work", ["repair", "--json"]).succeeds().stdout;
    assert!(records.contains(r#""mended":["HEAD"]"#), "{records}");
    assert_eq!(env.read("work/.snap/HEAD"), "ref: refs/heads/other\n");
    env.snap_in("work", ["verify"]).succeeds();
}
