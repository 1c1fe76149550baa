//! What a remote lost or damaged besides packs: its settings, `HEAD`, refs, files of its index.
//! Each is told of, and mended by a push.

use std::path::PathBuf;

use crate::{
    env::TestEnv,
    remote::{env, folder, says},
};

/// A store with two commits at the remote `origin`, a folder called `there`.
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

/// The files of the index there, the one that was written last at the end.
fn index_files(env: &TestEnv) -> Vec<PathBuf> {
    let files = fs_err::read_dir(env.path("there/index")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort_by_key(|path| fs_err::metadata(path).unwrap().modified().unwrap());
    files
}

/// A clone has the last commit, and all of it.
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
        assert!(ran.stdout.contains("has lost its settings: config.toml is not there"));
        let ran = env.snap_in("work", ["remote", "check"]);
        assert!(ran.stdout.contains("settings        NO: config.toml is lost"), "{}", ran.stdout);
        assert_eq!(ran.code, Some(1));
        if is_cache_lost {
            forget_cache(&env);
        }
        let text = format!("three {is_cache_lost}");
        commit(&env, &text);
        let ran = env.snap_in("work", ["push"]);
        says(&ran, 4, &["has lost its settings", "hint: `snap push --force`"]);
        let ran = env.snap_in("work", ["push", "--force"]);
        says(&ran, 0, &["config.toml was lost or damaged there, and is right again"]);
        is_cloned(&env, &text);
    }
    // Also where no branch moves.
    fs_err::remove_file(env.path("there/config.toml")).unwrap();
    let ran = env.snap_in("work", ["push", "--force"]);
    says(&ran, 0, &["config.toml was lost"]);
    is_cloned(&env, "three true");
}

#[test]
fn damaged_settings_are_named_and_force_writes_them_again() {
    let env = pushed();
    for (number, harm) in
        ["", "ref: refs/heads/main\n", "version = 2\nversjon = 3\n"].into_iter().enumerate()
    {
        fs_err::write(env.path("there/config.toml"), harm).unwrap();
        let ran = env.snap_in("work", ["verify", "origin", "--data"]);
        says(&ran, 4, &["--all --tags --force`"]);
        assert!(ran.stdout.contains("the settings of the store at"), "{}", ran.stdout);
        let ran = env.snap_in("work", ["remote", "check"]);
        assert!(ran.stdout.contains("settings        NO: they cannot be used"), "{}", ran.stdout);
        let text = format!("change {number}");
        commit(&env, &text);
        let ran = env.snap_in("work", ["push"]);
        says(&ran, 4, &["the settings of the store at", "hint: `snap push --force`"]);
        let ran = env.snap_in("work", ["push", "--force"]);
        says(&ran, 0, &["config.toml was lost or damaged there, and is right again"]);
        is_cloned(&env, &text);
    }
    // What a newer version wrote is left alone.
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
        says(&ran, 4, &["found; "]);
        assert!(ran.stdout.contains("damaged: index/"), "{}", ran.stdout);
        let ran = env.snap_in("work", ["push", "origin", "--all", "--tags"]);
        says(&ran, 0, &["index/", "was lost or damaged there, and is right again"]);
        env.snap_in("work", ["verify", "origin", "--data"]).succeeds();
        is_cloned(&env, "two");
        assert_eq!(fs_err::read(&file).unwrap(), right);
    }
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

#[test]
fn a_clone_goes_on_where_head_is_damaged_and_a_push_mends_it() {
    let env = pushed();
    fs_err::write(env.path("there/HEAD"), "x\n").unwrap();
    let ran = env.snap(["clone", &folder(&env, "there"), "cloned"]);
    says(&ran, 0, &["warning: HEAD at ", "`main` is taken for the default branch"]);
    assert_eq!(env.read("cloned/new.txt"), "two");
    let ran = env.snap_in("work", ["verify", "origin"]);
    says(&ran, 4, &["`snap push origin --all --tags`"]);
    assert!(ran.stdout.contains("damaged: HEAD at "), "{}", ran.stdout);
    let ran = env.snap_in("work", ["push", "origin", "--all", "--tags"]);
    says(&ran, 0, &["HEAD was lost or damaged there, and is right again"]);
    assert_eq!(env.read("there/HEAD"), "ref: refs/heads/main\n");
    env.snap_in("work", ["verify", "origin"]).succeeds();
    fs_err::write(env.path("there/HEAD"), "").unwrap();
    let ran = env.snap_in("work", ["push", "--force"]);
    says(&ran, 0, &["HEAD was lost or damaged there"]);
    is_cloned(&env, "two");
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
        says(&ran, 4, &["refs/heads/other at ", "refs/tags/v1 at ", "it was left out"]);
        assert_eq!(env.read("cloned/new.txt"), last);
        last = format!("{}", harm.len());
        // The others move all the same.
        commit(&env, &last);
        let ran = env.snap_in("work", ["push", "origin", "--all", "--tags"]);
        says(&ran, 4, &["other -> other  refused: it is damaged there", "main -> main  "]);
        let main = env.read("there/refs/heads/main");
        let ran = env.snap_in("work", ["push", "--force", "origin", "other", "v1"]);
        let told = ["refs/heads/other was lost or damaged there", "refs/tags/v1 was lost"];
        says(&ran, 0, &told);
        assert_eq!(env.read("there/refs/heads/main"), main);
        env.snap_in("work", ["verify", "origin"]).succeeds();
        fs_err::write(env.path("there/refs/heads/other"), harm).unwrap();
        let ran = env.snap_in("work", ["push", "--delete", "other"]);
        says(&ran, 0, &["other  deleted, it was damaged"]);
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
    says(&ran, 4, &["found; "]);
    assert!(ran.stdout.contains("damaged: branch `main` at "), "{}", ran.stdout);
    assert!(ran.stdout.contains(", and is not there"), "{}", ran.stdout);
    env.snap_in("work", ["push", "origin", "--all", "--tags"]).succeeds();
    is_cloned(&env, "three");
    // Put back to an earlier state.
    copy("before", "there");
    let ran = env.snap_in("work", ["verify", "origin"]);
    says(&ran, 4, &["found; "]);
    assert!(ran.stdout.contains(", which is not there any more"), "{}", ran.stdout);
    // Moved or deleted by others is no damage.
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
            says(&ran, 4, &["found; "]);
            let name = key.trim_start_matches("objects/");
            assert!(ran.stdout.contains(name), "{key}: {}", ran.stdout);
            let removed = std::process::Command::new("rm").arg("-r").arg(&path).status();
            assert!(removed.unwrap().success());
            fs_err::write(&path, &bytes).unwrap();
        }
        env.snap_in("work", ["verify", "origin"]).succeeds();
    }
}
