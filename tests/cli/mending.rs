//! Remotes that lost or damaged files other than packs: settings, `HEAD`, refs, index files. Each
//! is reported, and repaired by a push.

use std::path::{Path, PathBuf};

use crate::{
    env::TestEnv,
    remote::{env, folder, says},
    serve::Serving,
};

/// Makes a store with two commits, and pushes it to the remote `origin`, a folder called `there`.
fn pushed() -> TestEnv {
    let env = env();
    let url = folder(&env, "there");
    env.snap_in("work", ["remote", "add", "origin", &url]).succeeds();
    env.snap_in("work", ["push", "-q"]).succeeds();
    commit(&env, "two");
    env.snap_in("work", ["push", "-q"]).succeeds();
    env
}

fn commit(env: &TestEnv, text: &str) {
    env.write("work/new.txt", text);
    env.snap_in("work", ["commit", "-qm", text]).succeeds();
}

/// Returns the index files of the remote, the newest last.
fn index_files(env: &TestEnv) -> Vec<PathBuf> {
    let files = fs_err::read_dir(env.path("there/index")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort_by_key(|path| fs_err::metadata(path).unwrap().modified().unwrap());
    files
}

/// Asserts that a clone has the last commit and all of its data.
fn is_cloned(env: &TestEnv, text: &str) {
    let _ = fs_err::remove_dir_all(env.path("cloned"));
    env.snap(["clone", "-q", &folder(env, "there"), "cloned"]).succeeds();
    assert_eq!(env.read("cloned/new.txt"), text);
    env.snap_in("cloned", ["verify", "--data"]).succeeds();
}

fn forget_cache(env: &TestEnv) {
    fs_err::remove_dir_all(env.path("work/.snap/cache/remotes")).unwrap();
}

#[test]
fn lost_settings_stop_a_push_and_force_writes_them_again() {
    let env = pushed();
    for is_cache_lost in [false, true] {
        fs_err::remove_file(env.path("there/config.toml")).unwrap();
        if is_cache_lost {
            forget_cache(&env);
        }
        let ran = env.snap_in("work", ["verify", "origin"]);
        says(&ran, 4, &["`snap push origin --all --tags --force`"]);
        assert!(ran.stdout.contains("has no settings: config.toml is missing"));
        let ran = env.snap_in("work", ["remote", "check"]);
        assert!(
            ran.stdout.contains("settings        NO: config.toml is missing"),
            "{}",
            ran.stdout
        );
        assert_eq!(ran.code, Some(1));
        if is_cache_lost {
            forget_cache(&env);
        }
        let text = format!("three {is_cache_lost}");
        commit(&env, &text);
        let ran = env.snap_in("work", ["push"]);
        says(&ran, 4, &["has no settings: config.toml is missing", "hint: `snap push --force`"]);
        let ran = env.snap_in("work", ["push", "--force"]);
        says(&ran, 0, &["config.toml was lost or damaged there, and was repaired"]);
        is_cloned(&env, &text);
    }
    // The repair also works if no branch moves.
    fs_err::remove_file(env.path("there/config.toml")).unwrap();
    let ran = env.snap_in("work", ["push", "--force"]);
    says(&ran, 0, &["config.toml was lost"]);
    is_cloned(&env, "three true");
}

#[test]
fn damaged_settings_are_named_and_force_writes_them_again() {
    let env = pushed();
    for (number, harm) in
        ["", "ref: refs/heads/main\n", "version = 5\nversjon = 3\n"].into_iter().enumerate()
    {
        fs_err::write(env.path("there/config.toml"), harm).unwrap();
        let ran = env.snap_in("work", ["verify", "origin", "--data"]);
        says(&ran, 4, &["--all --tags --force`"]);
        assert!(ran.stdout.contains("the settings of the store at"), "{}", ran.stdout);
        let ran = env.snap_in("work", ["remote", "check"]);
        assert!(ran.stdout.contains("settings        NO: invalid"), "{}", ran.stdout);
        let text = format!("change {number}");
        commit(&env, &text);
        let ran = env.snap_in("work", ["push"]);
        says(&ran, 4, &["the settings of the store at", "hint: `snap push --force`"]);
        let ran = env.snap_in("work", ["push", "--force"]);
        says(&ran, 0, &["config.toml was lost or damaged there, and was repaired"]);
        is_cloned(&env, &text);
    }
    // A file of a newer version is not changed.
    fs_err::write(env.path("there/config.toml"), "version = 99\n").unwrap();
    commit(&env, "newer");
    let ran = env.snap_in("work", ["push", "--force"]);
    says(&ran, 1, &["newer"]);
    assert_eq!(env.read("there/config.toml"), "version = 99\n");
}

#[test]
fn a_damaged_file_of_the_index_is_found_by_its_length_and_written_again() {
    let env = pushed();
    let file = index_files(&env)[0].clone();
    let right = fs_err::read(&file).unwrap();
    for (is_cache_lost, harm) in
        [(false, [&right[..], b"x"].concat()), (true, right[..9].to_vec()), (false, Vec::new())]
    {
        fs_err::write(&file, harm).unwrap();
        if is_cache_lost {
            forget_cache(&env);
        }
        let ran = env.snap_in("work", ["verify", "origin"]);
        says(&ran, 4, &[" found\n"]);
        assert!(ran.stdout.contains("damaged: index/"), "{}", ran.stdout);
        let ran = env.snap_in("work", ["push", "origin", "--all", "--tags"]);
        says(&ran, 0, &["index/", "was lost or damaged there, and was repaired"]);
        env.snap_in("work", ["verify", "origin", "--data"]).succeeds();
        is_cloned(&env, "two");
        assert_eq!(fs_err::read(&file).unwrap(), right);
    }
}

#[test]
fn a_file_of_the_index_with_a_wrong_length_is_written_again_by_any_push() {
    let env = pushed();
    let file = index_files(&env)[0].clone();
    let right = fs_err::read(&file).unwrap();
    for (number, harm) in
        [Vec::new(), right[..9].to_vec(), [&right[..], b"x"].concat()].into_iter().enumerate()
    {
        for moves in [false, true] {
            fs_err::write(&file, &harm).unwrap();
            if moves {
                commit(&env, &format!("number {number}"));
            }
            let ran = env.snap_in("work", ["push"]);
            says(&ran, 0, &["index/"]);
            assert_eq!(fs_err::read(&file).unwrap(), right, "{number}, {moves}");
        }
        is_cloned(&env, &format!("number {number}"));
    }
    // A link that leads to an endless file has no length, either.
    fs_err::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
    env.snap_in("work", ["push"]).succeeds();
    assert!(fs_err::symlink_metadata(&file).unwrap().is_file());
    is_cloned(&env, "number 2");
}

#[test]
fn a_lost_file_of_the_index_is_noticed_by_a_push_that_moves_nothing() {
    let env = pushed();
    for all in [false, true] {
        let files = index_files(&env);
        let lost = if all { &files[..] } else { &files[..1] };
        lost.iter().for_each(|file| fs_err::remove_file(file).unwrap());
        let ran = env.snap_in("work", ["push"]);
        says(&ran, 0, &["Sent "]);
        is_cloned(&env, "two");
    }
}

#[test]
fn a_lost_file_of_the_index_is_noticed_by_who_knows_nothing_yet() {
    let env = pushed();
    fs_err::remove_file(&index_files(&env)[0]).unwrap();
    forget_cache(&env);
    commit(&env, "three");
    env.snap_in("work", ["push"]).succeeds();
    is_cloned(&env, "three");
    fs_err::remove_file(&index_files(&env)[0]).unwrap();
    forget_cache(&env);
    let ran = env.snap_in("work", ["push"]);
    says(&ran, 0, &["Sent "]);
    is_cloned(&env, "three");
}

/// The client that repairs has no copy of the index file, and no store with the data.
#[test]
fn packs_that_no_index_file_lists_are_listed_again_by_a_repair() {
    for harm in ["lost", "damaged"] {
        let env = pushed();
        let url = folder(&env, "there");
        let file = index_files(&env).pop().unwrap();
        let mut bytes = fs_err::read(&file).unwrap();
        bytes[60] ^= 1;
        fs_err::remove_file(&file).unwrap();
        if harm == "damaged" {
            fs_err::write(&file, bytes).unwrap();
        }
        assert_eq!(env.snap(["verify", &url]).code, Some(4));
        let code = if harm == "lost" { 0 } else { 4 };
        says(&env.snap(["repair", &url, "-n"]), code, &["Would list 1 pack again"]);
        let told = "Listed 1 pack again that no index file listed";
        says(&env.snap(["repair", &url]), 0, &[told, "No known damage is left"]);
        env.snap(["verify", &url, "--data"]).succeeds();
        is_cloned(&env, "two");
    }
}

#[test]
fn a_clone_goes_on_where_head_is_damaged_and_a_push_mends_it() {
    let env = pushed();
    fs_err::write(env.path("there/HEAD"), "x\n").unwrap();
    let ran = env.snap(["clone", &folder(&env, "there"), "cloned"]);
    says(&ran, 0, &["warning: HEAD at ", "using `main` as the default branch"]);
    assert_eq!(env.read("cloned/new.txt"), "two");
    let ran = env.snap_in("work", ["verify", "origin"]);
    says(&ran, 4, &["`snap push origin --all --tags`"]);
    assert!(ran.stdout.contains("damaged: HEAD at "), "{}", ran.stdout);
    let ran = env.snap_in("work", ["push", "origin", "--all", "--tags"]);
    says(&ran, 0, &["HEAD was lost or damaged there, and was repaired"]);
    assert_eq!(env.read("there/HEAD"), "ref: refs/heads/main\n");
    env.snap_in("work", ["verify", "origin"]).succeeds();
    fs_err::write(env.path("there/HEAD"), "").unwrap();
    let ran = env.snap_in("work", ["push", "--force"]);
    says(&ran, 0, &["HEAD was lost or damaged there"]);
    is_cloned(&env, "two");
}

#[test]
fn a_lost_head_or_one_of_a_lost_branch_is_noticed_and_repaired_by_a_push() {
    let env = pushed();
    let url = folder(&env, "there");
    env.snap_in("work", ["branch", "trunk"]).succeeds();
    env.snap_in("work", ["push", "-q", "origin", "trunk"]).succeeds();
    let check = |env: &TestEnv| env.snap_in("work", ["remote", "check"]).succeeds();
    assert!(!check(&env).stderr.contains("HEAD"));
    env.snap_in("work", ["verify", "origin"]).succeeds();
    for name in ["missing", "of a lost branch"] {
        match name {
            "missing" => fs_err::remove_file(env.path("there/HEAD")).unwrap(),
            _ => fs_err::write(env.path("there/HEAD"), "ref: refs/heads/gone\n").unwrap(),
        }
        for place in ["origin", &url] {
            let ran = env.snap_in("work", ["verify", place]);
            says(&ran, 4, &[" found\n"]);
            assert!(ran.stdout.contains("damaged: HEAD at "), "{name}: {}", ran.stdout);
        }
        let _ = fs_err::remove_dir_all(env.path("cloned"));
        let ran = env.snap(["clone", &url, "cloned"]);
        says(&ran, 0, &["warning: ", "using `main` as the default branch"]);
        let ran = check(&env);
        assert_eq!(ran.stderr.contains("warning: HEAD is missing there"), name == "missing");
        let ran = env.snap_in("work", ["push", "origin", "--all", "--tags"]);
        says(&ran, 0, &["HEAD was lost or damaged there, and was repaired"]);
        assert_eq!(env.read("there/HEAD"), "ref: refs/heads/main\n");
        env.snap_in("work", ["verify", "origin"]).succeeds();
    }
    // A default branch that was deleted is no damage.
    env.snap_in("work", ["push", "-q", "--delete", "main"]).succeeds();
    env.snap_in("work", ["fetch"]);
    env.snap(["verify", &url]).succeeds();
    // Without a branch it is not known whether one was lost.
    fs_err::remove_dir_all(env.path("there/refs")).unwrap();
    let ran = env.snap(["verify", &url]);
    says(&ran, 0, &["the store has no branch or tag", "or all branches were lost"]);
}

#[test]
fn a_damaged_ref_is_left_out_of_clones_and_replaced_or_deleted_by_a_push() {
    let env = pushed();
    for name in ["other", "third"] {
        env.snap_in("work", ["branch", name]).succeeds();
    }
    env.snap_in("work", ["tag", "v1"]).succeeds();
    env.snap_in("work", ["push", "-q", "--all", "--tags"]).succeeds();
    let mut last = "two".to_owned();
    let harms: [&[u8]; 3] = [b"", b"garbage\n", &[b'x'; 20_000]];
    for harm in harms {
        for name in ["heads/other", "tags/v1"] {
            fs_err::write(env.path(format!("there/refs/{name}")), harm).unwrap();
        }
        let _ = fs_err::remove_dir_all(env.path("cloned"));
        let ran = env.snap(["clone", &folder(&env, "there"), "cloned"]);
        says(&ran, 4, &["refs/heads/other at ", "refs/tags/v1 at ", "it was skipped"]);
        assert_eq!(env.read("cloned/new.txt"), last);
        last = format!("{}", harm.len());
        // The other refs still move.
        commit(&env, &last);
        let ran = env.snap_in("work", ["push", "origin", "--all", "--tags"]);
        says(&ran, 4, &["other -> other  rejected: it is damaged there", "main -> main  "]);
        let main = env.read("there/refs/heads/main");
        let ran = env.snap_in("work", ["push", "--force", "origin", "other", "v1"]);
        let told = ["refs/heads/other was lost or damaged there", "refs/tags/v1 was lost"];
        says(&ran, 0, &told);
        assert_eq!(env.read("there/refs/heads/main"), main);
        env.snap_in("work", ["verify", "origin"]).succeeds();
        fs_err::write(env.path("there/refs/heads/other"), harm).unwrap();
        let ran = env.snap_in("work", ["push", "--delete", "other"]);
        says(&ran, 0, &["other  deleted; it was damaged"]);
        is_cloned(&env, &last);
        env.snap_in("work", ["push", "-q", "origin", "other"]).succeeds();
    }
}

#[test]
fn verify_knows_where_the_branches_of_a_remote_stood() {
    let env = pushed();
    let copy = |from: &str, to: &str| {
        let _ = fs_err::remove_dir_all(env.path(to));
        let (from, to) = (env.path(from), env.path(to));
        let copied = std::process::Command::new("cp").arg("-a").args([from, to]).status();
        assert!(copied.unwrap().success());
    };
    copy("there", "before");
    commit(&env, "three");
    env.snap_in("work", ["push", "-q"]).succeeds();
    copy("there", "now");
    for lost in ["objects", "index", "refs"] {
        fs_err::remove_dir_all(env.path(format!("there/{lost}"))).unwrap();
    }
    let ran = env.snap_in("work", ["verify", "origin"]);
    says(&ran, 4, &[" found\n"]);
    assert!(ran.stdout.contains("damaged: branch `main` at "), "{}", ran.stdout);
    assert!(ran.stdout.contains("is missing; it last pointed at"), "{}", ran.stdout);
    env.snap_in("work", ["push", "origin", "--all", "--tags"]).succeeds();
    is_cloned(&env, "three");
    // Resets the remote to an earlier state.
    copy("before", "there");
    let ran = env.snap_in("work", ["verify", "origin"]);
    says(&ran, 4, &[" found\n"]);
    assert!(ran.stdout.contains(", which the remote no longer has"), "{}", ran.stdout);
    // Refs that other users moved or deleted are not damage.
    copy("now", "there");
    env.snap(["clone", "-q", &folder(&env, "there"), "other"]).succeeds();
    env.snap_in("other", ["branch", "more"]).succeeds();
    env.snap_in("other", ["push", "-q", "--all"]).succeeds();
    env.snap_in("work", ["fetch"]).succeeds();
    env.snap_in("other", ["push", "-q", "--delete", "more"]).succeeds();
    env.snap_in("work", ["verify", "origin"]).succeeds();
}

#[test]
fn a_folder_or_a_pipe_in_place_of_a_file_is_damage_that_verify_names() {
    let env = pushed();
    let pack = fs_err::read_dir(env.path("there/objects")).unwrap().next().unwrap().unwrap();
    let pack = format!("objects/{}", pack.file_name().to_str().unwrap());
    for key in ["HEAD", "config.toml", &pack] {
        let path = env.path(format!("there/{key}"));
        let bytes = fs_err::read(&path).unwrap();
        for program in ["mkdir", "mkfifo"] {
            fs_err::remove_file(&path).unwrap();
            let made = std::process::Command::new(program).arg(&path).status();
            assert!(made.unwrap().success());
            let ran = env.snap_in("work", ["verify", "origin"]);
            says(&ran, 4, &[" found\n"]);
            let name = key.strip_prefix("objects/").map_or(key, |pack| &pack[..12]);
            assert!(ran.stdout.contains(name), "{key}: {}", ran.stdout);
            let removed = std::process::Command::new("rm").arg("-r").arg(&path).status();
            assert!(removed.unwrap().success());
            fs_err::write(&path, &bytes).unwrap();
        }
        env.snap_in("work", ["verify", "origin"]).succeeds();
    }
}

/// Runs `test` with a repository of a server and with the store of a project. Passes the location
/// and the folder of the store.
fn with_each_live_store(test: impl Fn(&TestEnv, &str, &Path)) {
    let env = env();
    env.write("served/.keep", "");
    let serving = Serving::start(&env, "served");
    let url = format!("{}/x", serving.url);
    env.snap_in("work", ["push", "-q", &url, "main"]).succeeds();
    test(&env, &url, &env.path("served/x"));
    drop(serving);
    let env = self::env();
    let there = env.path("there").display().to_string();
    env.snap(["init", "there"]).succeeds();
    env.snap_in("work", ["push", "-q", &there, "main"]).succeeds();
    test(&env, &there, &env.path("there/.snap"));
}

#[test]
fn a_damaged_ref_of_a_server_or_a_project_is_left_out_replaced_or_deleted() {
    with_each_live_store(|env, url, store| {
        env.snap_in("work", ["branch", "other"]).succeeds();
        env.snap_in("work", ["push", "-q", url, "other"]).succeeds();
        let file = store.join("refs/heads/other");
        let harms: [&[u8]; 3] = [b"", b"garbage\n", &[b'x'; 20_000]];
        for harm in harms {
            let length = harm.len();
            fs_err::write(&file, harm).unwrap();
            let _ = fs_err::remove_dir_all(env.path("cloned"));
            let ran = env.snap(["clone", url, "cloned"]);
            says(&ran, 4, &["refs/heads/other at ", "it was skipped"]);
            assert_eq!(env.read("cloned/notes.txt"), env.read("work/notes.txt"));
            let ran = env.snap_in("work", ["verify", url]);
            says(&ran, 4, &[" found\n"]);
            assert!(ran.stdout.contains("damaged: refs/heads/other at "), "{}", ran.stdout);
            commit(env, &format!("{url} {length}"));
            let ran = env.snap_in("work", ["push", url, "main", "other"]);
            says(&ran, 4, &["other -> other  rejected: it is damaged there", "main -> main  "]);
            let ran = env.snap_in("work", ["push", "--force", url, "other"]);
            says(&ran, 0, &["refs/heads/other was lost or damaged there, and was repaired"]);
            env.snap_in("work", ["verify", url]).succeeds();
            fs_err::write(&file, harm).unwrap();
            let ran = env.snap_in("work", ["push", url, "--delete", "other"]);
            says(&ran, 0, &["other  deleted; it was damaged"]);
            assert!(!file.exists());
            env.snap_in("work", ["push", "-q", url, "other"]).succeeds();
        }
        // The same holds if there is no other branch.
        env.snap_in("work", ["push", "-q", url, "--delete", "other"]).succeeds();
        fs_err::write(store.join("refs/heads/main"), "").unwrap();
        let _ = fs_err::remove_dir_all(env.path("cloned"));
        says(&env.snap(["clone", url, "cloned"]), 4, &["refs/heads/main at "]);
        says(&env.snap_in("work", ["verify", url]), 4, &[" found\n"]);
        env.snap_in("work", ["push", "-q", "--force", url, "main"]).succeeds();
        env.snap(["clone", "-q", url, "cloned"]).succeeds();
    });
}

#[test]
fn a_damaged_or_lost_head_of_a_server_or_a_project_is_mended_by_a_push() {
    with_each_live_store(|env, url, store| {
        let head = store.join("HEAD");
        let text = fs_err::read_to_string(&head).unwrap();
        for harm in [Some(""), Some("x\n"), None] {
            match harm {
                Some(harm) => fs_err::write(&head, harm).unwrap(),
                None => fs_err::remove_file(&head).unwrap(),
            }
            let _ = fs_err::remove_dir_all(env.path("cloned"));
            let ran = env.snap(["clone", url, "cloned"]);
            says(&ran, 0, &["warning: HEAD at ", "using `main` as the default branch"]);
            assert_eq!(env.read("cloned/notes.txt"), env.read("work/notes.txt"));
            // Meanwhile branches move and new ones are created.
            commit(env, &format!("{url} {harm:?}"));
            let name = format!("new{}", harm.map_or(9, str::len));
            env.snap_in("work", ["branch", &name]).succeeds();
            env.snap_in("work", ["push", "-q", url, "main", &name]).succeeds();
            let ran = env.snap_in("work", ["verify", url]);
            says(&ran, 4, &[" found\n"]);
            assert!(ran.stdout.contains("damaged: HEAD at "), "{}", ran.stdout);
            let ran = env.snap_in("work", ["push", "--force", url, "main"]);
            says(&ran, 0, &["HEAD was lost or damaged there, and was repaired"]);
            assert_eq!(fs_err::read_to_string(&head).unwrap(), text);
            env.snap_in("work", ["verify", url]).succeeds();
        }
        fs_err::write(&head, "").unwrap();
        env.snap_in("work", ["verify", url]);
        let ran = env.snap_in("work", ["push", url, "main"]);
        says(&ran, 0, &["HEAD was lost or damaged there, and was repaired"]);
    });
}

#[test]
fn lost_or_damaged_settings_of_a_server_stop_a_push_and_force_writes_them_again() {
    let env = env();
    env.write("served/.keep", "");
    let mut serving = Serving::start(&env, "served");
    let url = format!("{}/x", serving.url);
    env.snap_in("work", ["push", "-q", &url, "main"]).succeeds();
    let file = env.path("served/x/config.toml");
    let right = fs_err::read_to_string(&file).unwrap();
    let harms: [Option<&[u8]>; 5] =
        [Some(b""), Some(b"version = 5\nversjon = 3\n"), Some(b"\xff"), Some(&[0; 40]), None];
    for (number, harm) in harms.into_iter().enumerate() {
        for is_restarted in [false, true] {
            match harm {
                Some(harm) => fs_err::write(&file, harm).unwrap(),
                None => fs_err::remove_file(&file).unwrap(),
            }
            if is_restarted {
                drop(serving);
                serving = Serving::start(&env, "served");
            }
            let url = format!("{}/x", serving.url);
            let ran = env.snap_in("work", ["verify", &url]);
            says(&ran, 4, &["--all --tags --force`"]);
            assert!(ran.stdout.contains("damaged: config.toml at "), "{}", ran.stdout);
            // The same holds if the remote already has all objects of the push.
            let name = format!("new{number}{is_restarted}");
            env.snap_in("work", ["branch", &name]).succeeds();
            let ran = env.snap_in("work", ["push", &url, &name]);
            says(&ran, 4, &["config.toml at ", " is damaged", "hint: `snap push --force`"]);
            commit(&env, &format!("{number} {is_restarted}"));
            let ran = env.snap_in("work", ["push", &url, "main"]);
            says(&ran, 4, &["config.toml at ", " is damaged", "hint: `snap push --force`"]);
            let ran = env.snap_in("work", ["push", "--force", &url, "main"]);
            says(&ran, 0, &["config.toml was lost or damaged there, and was repaired"]);
            assert_eq!(fs_err::read_to_string(&file).unwrap(), right);
            env.snap_in("work", ["verify", &url]).succeeds();
            let _ = fs_err::remove_dir_all(env.path("cloned"));
            env.snap(["clone", "-q", &url, "cloned"]).succeeds();
            assert_eq!(env.read("cloned/new.txt"), format!("{number} {is_restarted}"));
        }
    }
    let kept = fs_err::read(env.path("served/x/config.toml.damaged")).unwrap();
    assert_eq!(kept, b"\xff", "text is kept");
    // Settings of a newer version are not changed.
    fs_err::write(&file, "version = 99\n").unwrap();
    commit(&env, "newer");
    assert_ne!(env.snap_in("work", ["push", "--force", &url, "main"]).code, Some(0));
    assert_eq!(env.read("served/x/config.toml"), "version = 99\n");
}

#[test]
fn verify_says_that_a_remote_has_no_branch() {
    with_each_live_store(|env, url, store| {
        let told = "No damage found, but the store has no branch or tag";
        let ran = env.snap_in("work", ["verify", url, "--data"]);
        assert!(ran.succeeds().stderr.contains("No errors found"));
        fs_err::remove_file(store.join("refs/heads/main")).unwrap();
        for args in [&["verify", url][..], &["verify", url, "--data"]] {
            says(&env.snap_in("work", args), 0, &[told]);
        }
    });
}

#[test]
fn a_clone_begins_with_another_branch_where_the_default_branch_was_deleted() {
    let env = pushed();
    env.write("served/.keep", "");
    let serving = Serving::start(&env, "served");
    for url in [folder(&env, "there"), format!("{}/x", serving.url)] {
        for name in ["aside", "other"] {
            env.snap_in("work", ["branch", name]);
        }
        env.snap_in("work", ["push", "-q", &url, "main"]).succeeds();
        env.snap_in("work", ["push", "-q", &url, "aside", "other"]).succeeds();
        let ran = env.snap_in("work", ["push", &url, "--delete", "other"]);
        assert!(!ran.succeeds().stderr.contains("default branch"));
        let ran = env.snap_in("work", ["push", &url, "--delete", "main"]);
        says(&ran, 0, &["warning: `main` was the default branch there"]);
        let _ = fs_err::remove_dir_all(env.path("cloned"));
        let ran = env.snap(["clone", &url, "cloned"]);
        says(&ran, 0, &["warning: branch `main` does not exist", "using `aside` as the default"]);
        assert_eq!(env.read("cloned/notes.txt"), env.read("work/notes.txt"));
        assert!(env.snap(["ls", &format!("{url}#")]).succeeds().stdout.contains("notes.txt"));
        env.snap_in("work", ["push", "-q", &url, "--delete", "aside"]).succeeds();
        let _ = fs_err::remove_dir_all(env.path("cloned"));
        says(&env.snap(["clone", &url, "cloned"]), 1, &["branch `main` does not exist"]);
    }
}

#[test]
fn a_lost_ref_of_a_server_goes_on_from_where_it_stood_and_nowhere_else() {
    let env = env();
    env.write("served/.keep", "");
    let serving = Serving::start(&env, "served");
    let url = format!("{}/x", serving.url);
    env.snap_in("work", ["push", "-q", &url, "main"]).succeeds();
    env.snap(["clone", "-q", &url, "behind"]).succeeds();
    commit(&env, "more");
    env.snap_in("work", ["push", "-q", &url, "main"]).succeeds();
    fs_err::remove_file(env.path("served/x/refs/heads/main")).unwrap();
    env.write("behind/other", "other");
    env.snap_in("behind", ["commit", "-q"]).succeeds();
    let ran = env.snap_in("behind", ["push", "--force", &url, "main"]);
    assert_ne!(ran.code, Some(0), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("the file of refs/heads/main was lost on this server"),
        "{}",
        ran.stderr
    );
    commit(&env, "still more");
    env.snap_in("work", ["push", "-q", &url, "main"]).succeeds();
    env.snap(["clone", "-q", &url, "cloned"]).succeeds();
    assert_eq!(env.read("cloned/notes.txt"), env.read("work/notes.txt"));
}

/// Replaces `path` by something that is not a regular file: a pipe, a socket, a device, or a link
/// that is dangling or circular.
fn put_odd(path: &Path, kind: &str) {
    let _ = fs_err::remove_file(path);
    let link = |to: &str| std::os::unix::fs::symlink(to, path).unwrap();
    let node =
        |kind, device| rustix::fs::mknodat(rustix::fs::CWD, path, kind, 0o600.into(), device);
    match kind {
        "pipe" => node(rustix::fs::FileType::Fifo, 0).unwrap(),
        "socket" => drop(std::os::unix::net::UnixListener::bind(path).unwrap()),
        // Only root can create a device, so this links to one.
        "device" => link("/dev/zero"),
        "dangling" => link("nowhere"),
        _ => link("other"),
    }
}

const ODD: [&str; 5] = ["pipe", "socket", "device", "dangling", "circle"];

#[test]
fn a_ref_that_is_no_file_is_damaged_and_blocks_nobody() {
    let test = |env: &TestEnv, url: &str, file: &Path| {
        env.snap_in("work", ["branch", "other"]).succeeds();
        for kind in ODD {
            env.snap_in("work", ["push", "-q", url, "other"]).succeeds();
            put_odd(file, kind);
            let _ = fs_err::remove_dir_all(env.path("cloned"));
            let ran = env.snap(["clone", url, "cloned"]);
            says(&ran, 4, &["refs/heads/other", "it was skipped"]);
            let ran = env.snap_in("work", ["verify", url]);
            assert_eq!(ran.code, Some(4), "{kind}: {}", ran.stderr);
            assert!(ran.stdout.contains("refs/heads/other"), "{kind}: {}", ran.stdout);
            let ran = env.snap_in("work", ["push", "--force", url, "other"]);
            says(&ran, 0, &["refs/heads/other was lost or damaged there, and was repaired"]);
            assert!(fs_err::symlink_metadata(file).unwrap().is_file(), "{kind}");
        }
    };
    with_each_live_store(|env, url, store| test(env, url, &store.join("refs/heads/other")));
    let env = pushed();
    let url = folder(&env, "there");
    test(&env, &url, &env.path("there/refs/heads/other"));
    // The same kinds in the local store.
    for kind in ODD {
        put_odd(&env.path("work/.snap/refs/heads/other"), kind);
        says(&env.snap_in("work", ["branch"]), 4, &["refs/heads/other is damaged"]);
        let ran = env.snap_in("work", ["verify"]);
        assert!(ran.stdout.contains("refs/heads/other"), "{kind}: {}", ran.stdout);
    }
}

#[test]
fn a_file_among_refs_with_a_name_that_no_ref_has_is_passed_over_and_named() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    let names = ["a..b", "x.lock", "two\nlines", "a b"].map(OsStr::new);
    let names = [&names[..], &[OsStr::from_bytes(b"\xff")]].concat();
    let put = |heads: &Path| {
        for name in &names {
            fs_err::write(heads.join(name), "garbage").unwrap();
        }
    };
    let test = |env: &TestEnv, url: &str, heads: &Path| {
        put(heads);
        let _ = fs_err::remove_dir_all(env.path("cloned"));
        env.snap(["clone", "-q", url, "cloned"]).succeeds();
        commit(env, url);
        env.snap_in("work", ["push", "-q", url, "main"]).succeeds();
        env.snap_in("cloned", ["pull", "-q"]).succeeds();
    };
    with_each_live_store(|env, url, store| {
        test(env, url, &store.join("refs/heads"));
        // A user with access to the store can find the files.
        let ran = env.snap(["--store", &store.display().to_string(), "verify"]);
        says(&ran, 0, &["skipped refs/heads/a..b: no branch", "skipped refs/heads/x.lock: "]);
    });
    let env = pushed();
    test(&env, &folder(&env, "there"), &env.path("there/refs/heads"));
    let ran = env.snap_in("work", ["verify", "origin"]);
    says(&ran, 0, &["skipped refs/heads/a..b at file://"]);
    let ran = env.snap_in("work", ["gc", "origin", "--now"]);
    says(&ran, 0, &["skipped refs/heads/a..b at file://", "Nothing to delete"]);
    // The same names in the local store.
    put(&env.path("work/.snap/refs/heads"));
    for command in [&["log"][..], &["status"], &["commit", "-m", "more"], &["gc"]] {
        env.snap_in("work", command).succeeds();
    }
    for command in ["branch", "verify", "gc"] {
        let ran = env.snap_in("work", [command]);
        says(&ran, 0, &["skipped refs/heads/a..b: no branch or tag can have this name\n"]);
        assert!(!ran.stderr.contains("two\nlines"), "{}", ran.stderr);
    }
}

/// Returns the packs of the remote.
fn packs(env: &TestEnv) -> Vec<PathBuf> {
    let files = fs_err::read_dir(env.path("there/objects")).unwrap();
    files.map(|file| file.unwrap().path()).collect()
}

#[test]
fn a_lost_or_damaged_pack_that_nothing_needs_stops_no_clone_and_no_pull() {
    for is_lost in [true, false] {
        let env = pushed();
        env.snap(["clone", "-q", &folder(&env, "there"), "old"]).succeeds();
        let before = packs(&env);
        env.snap_in("work", ["branch", "-q", "gone"]).succeeds();
        env.write("work/only-there.txt", "of a branch that was deleted");
        env.snap_in("work", ["commit", "-q", "-b", "gone"]).succeeds();
        env.snap_in("work", ["push", "-q", "origin", "gone"]).succeeds();
        env.snap_in("work", ["push", "-q", "origin", "--delete", "gone"]).succeeds();
        fs_err::remove_file(env.path("work/only-there.txt")).unwrap();
        commit(&env, "three");
        env.snap_in("work", ["push", "-q", "origin", "main"]).succeeds();
        let bytes = |path: &PathBuf| fs_err::read(path).unwrap();
        let holds = |path: &PathBuf| {
            let text = b"of a branch that was deleted";
            bytes(path).windows(text.len()).any(|window| window == text)
        };
        let added = packs(&env).into_iter().filter(|path| !before.contains(path));
        let [unneeded] = &added.filter(holds).collect::<Vec<_>>()[..] else { panic!("one pack") };
        match is_lost {
            true => fs_err::remove_file(unneeded).unwrap(),
            false => {
                let mut damaged = bytes(unneeded);
                damaged[20] ^= 1;
                fs_err::write(unneeded, damaged).unwrap();
            }
        }
        let left_out = "skipped a pack that no branch or tag needs";
        says(&env.snap(["clone", &folder(&env, "there"), "cloned"]), 0, &[left_out]);
        assert_eq!(env.read("cloned/new.txt"), "three");
        env.snap_in("cloned", ["verify", "--data"]).succeeds();
        says(&env.snap_in("cloned", ["fetch"]), 0, &[]);
        says(&env.snap_in("old", ["pull"]), 0, &[left_out]);
        assert_eq!(env.snap_in("old", ["cat", "HEAD:new.txt"]).succeeds().stdout, "three");
        if is_lost {
            let told = "Its index lists 1 pack that does not exist";
            says(&env.snap_in("work", ["verify", "origin"]), 0, &[told]);
        }

        // A branch that needs the pack makes it damage again.
        let clone = env.path("there/refs/heads/needs");
        let tip = env.snap_in("work", ["log", "-n1", "--json", "gone"]).succeeds().json();
        let id = tip[0]["id"].as_str().unwrap().to_owned();
        let text = fs_err::read_to_string(env.path("there/refs/heads/main")).unwrap();
        let (_, rest) = text.split_once('\n').unwrap();
        fs_err::write(clone, format!("{id}\n{rest}")).unwrap();
        says(&env.snap(["clone", &folder(&env, "there"), "again"]), 4, &["is incomplete"]);
        if is_lost {
            says(&env.snap_in("work", ["verify", "origin"]), 4, &[]);
            env.snap_in("work", ["push", "-q", "origin", "--delete", "needs"]).succeeds();
            let dry = env.snap_in("work", ["repair", "origin", "-n"]);
            says(&dry, 0, &["Would remove 1 lost pack from the index"]);
            let repaired = env.snap_in("work", ["repair", "origin"]);
            says(&repaired, 0, &["Removed 1 lost pack from the index", "No known damage is left"]);
            let verified = env.snap_in("work", ["verify", "origin"]).succeeds();
            assert!(!verified.stdout.contains("does not exist"), "{}", verified.stdout);
            says(&env.snap_in("work", ["repair", "origin"]), 0, &["Nothing to repair"]);
            is_cloned(&env, "three");
            for command in ["pull", "push"] {
                env.snap_in("old", [command]).succeeds();
            }
        }
    }
}
