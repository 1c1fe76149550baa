//! The sources of commits in stores without a project: their places in the snapshot, and which of
//! them are skipped.

use crate::{
    env::{Ran, TestEnv},
    restore::as_nobody,
};
use snap_testkit::skip::needs_root;

/// Returns an environment with a bare store `st` and some folders.
fn env() -> TestEnv {
    let env = TestEnv::new();
    for path in ["data/a", "w/b", "w/deep/c"] {
        env.write(path, path);
    }
    env.snap(["--store", "st", "init", "-q"]).succeeds();
    env
}

fn commit(env: &TestEnv, args: &[&str]) -> Ran {
    env.snap([&["--store", "st", "commit"], args].concat())
}

/// Lists the files of a branch. Replaces the folder of the test by `ROOT`.
fn files(env: &TestEnv, branch: &str) -> Vec<String> {
    let listed = env.snap(["--store", "st", "ls", "-R", branch]).succeeds().stdout;
    let root = env.path("").to_str().unwrap().trim_matches('/').to_owned();
    let lines = listed.lines().filter(|line| !line.ends_with('/'));
    lines.map(|line| line.replace(&root, "ROOT")).collect()
}

#[test]
fn the_place_of_a_source_does_not_depend_on_its_spelling() {
    let env = env();
    let absolute = |path: &str| env.path(path).to_str().unwrap().to_owned();
    let (data, w, file) = (absolute("data"), absolute("w"), absolute("w/b"));
    let unchanged = |args: &[&str]| {
        let said = commit(&env, args).succeeds().stderr;
        assert!(said.contains("Nothing changed"), "{args:?}: {said}");
    };
    // One folder, or one that is named twice: its content is at the top.
    commit(&env, &["data"]).succeeds();
    for again in [&[&*data][..], &["./data/"], &["data", "data"], &[&*data, "data"], &["w/../data"]]
    {
        unchanged(again);
    }
    assert_eq!(files(&env, "main"), ["a"]);
    // One file.
    commit(&env, &["-b", "file", "w/b"]).succeeds();
    unchanged(&["-b", "file", &file]);
    assert_eq!(files(&env, "file"), ["b"]);
    // Several paths: their absolute paths.
    commit(&env, &["-b", "two", "data", "w"]).succeeds();
    for again in [&[&*data, &*w][..], &["./w", "data/"], &[&*w, "data", "w"]] {
        unchanged(&[&["-b", "two"], again].concat());
    }
    assert_eq!(files(&env, "two"), ["ROOT/data/a", "ROOT/w/b", "ROOT/w/deep/c"]);
    // A link to the current folder is another spelling, too.
    std::os::unix::fs::symlink(env.path(""), env.path("link")).unwrap();
    unchanged(&["-b", "two", "data", "link/data", "w"]);
}

#[test]
fn a_branch_keeps_the_layout_of_its_last_commit() {
    let env = env();
    commit(&env, &["data"]).succeeds();
    insta::assert_snapshot!(commit(&env, &["data", "w"]), @r"
    exit: 1
    --- stderr ---
    error: branch `main` has the content of one source at the top, and this commit would have each source at its absolute path
    hint: `-b NAME` commits to a new branch
    hint: --replace continues this branch with all files at their new places
    ");
    assert_eq!(files(&env, "main"), ["a"]);
    commit(&env, &["-b", "other", "data", "w"]).succeeds();
    commit(&env, &["--replace", "data", "w"]).succeeds();
    assert_eq!(files(&env, "main").len(), 3);
    insta::assert_snapshot!(commit(&env, &["w"]), @r"
    exit: 1
    --- stderr ---
    error: branch `main` has each source at its absolute path, and this commit would have the content of one source at the top
    hint: `-b NAME` commits to a new branch
    hint: --replace continues this branch with all files at their new places
    ");
    commit(&env, &["--replace", "w"]).succeeds();
    assert_eq!(files(&env, "main"), ["b", "deep/c"]);
}

#[test]
fn a_profile_stores_absolute_paths_also_of_one_folder() {
    let mut env = env();
    let profile = |env: &TestEnv, paths: &[&str]| {
        let paths: Vec<_> = paths.iter().map(|path| format!("{:?}", env.path(path))).collect();
        env.write("c.toml", format!("[profile.x]\npaths = [{}]\n", paths.join(", ")));
    };
    profile(&env, &["data"]);
    let settings = env.path("c.toml").to_str().unwrap().to_owned();
    env.set("SNAP_CONFIG", &settings);
    commit(&env, &["--profile", "x"]).succeeds();
    assert_eq!(files(&env, "main"), ["ROOT/data/a"]);
    profile(&env, &["data", "w"]);
    let said = commit(&env, &["--profile", "x"]).succeeds().stderr;
    assert!(said.contains("2 added, 0 modified, 1 unmodified"), "{said}");
    assert_eq!(files(&env, "main"), ["ROOT/data/a", "ROOT/w/b", "ROOT/w/deep/c"]);
    // The same folder without the profile has another layout.
    assert_eq!(commit(&env, &["data"]).code, Some(1));
}

#[test]
fn an_unreadable_source_is_skipped_and_the_others_are_saved() {
    let env = env();
    // A link that leads to itself cannot be followed, by no user.
    std::os::unix::fs::symlink("loop", env.path("loop")).unwrap();
    let loops = env.path("loop").to_str().unwrap().to_owned();
    env.write("c.toml", format!("[profile.x]\npaths = [{:?}, {loops:?}]\n", env.path("data")));
    let mut env = env;
    let settings = env.path("c.toml").to_str().unwrap().to_owned();
    env.set("SNAP_CONFIG", &settings);
    for args in [&["--profile", "x"][..], &["-b", "named", "data", "loop"]] {
        let ran = commit(&env, args);
        assert_eq!(ran.code, Some(3), "{args:?}: {ran}");
        assert!(ran.stderr.contains("skipped 1 entry that could not be read"), "{ran}");
        assert!(ran.stderr.contains("loop"), "{ran}");
    }
    assert_eq!(files(&env, "main"), ["ROOT/data/a"]);
    assert_eq!(files(&env, "named"), ["ROOT/data/a"]);
    let shown = env.snap(["--store", "st", "show", "named"]).succeeds().stdout;
    assert!(shown.contains("Unread:") && shown.contains("/loop\n"), "{shown}");
    // Nothing is saved if nothing can be read, or if a named path does not exist.
    assert_eq!(commit(&env, &["-b", "none", "loop"]).code, Some(1));
    assert_eq!(commit(&env, &["-b", "none", "data", "missing"]).code, Some(1));
    std::os::unix::fs::symlink("loop2", env.path("loop2")).unwrap();
    assert_eq!(commit(&env, &["-b", "none", "loop", "loop2"]).code, Some(1));
    assert_eq!(env.snap(["--store", "st", "log", "none"]).code, Some(1));
}

#[test]
fn a_source_without_permission_is_skipped() {
    if !needs_root() {
        return;
    }
    let env = TestEnv::new();
    for path in ["home/ok/f", "home/no/f", "home/sub/f"] {
        env.write(path, path);
    }
    fs_err::create_dir(env.path("home/.snap")).unwrap();
    env.snap(["--store", "home/.snap/st", "init", "-q"]).succeeds();
    let run = |args: &[&str]| {
        let output = as_nobody(&env).args(["--store", ".snap/st"]).args(args).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run(&["commit", "ok", "no"]);
    assert_eq!(code, Some(0), "{said}");
    env.mode("home/no", 0o700);
    let (code, said) = run(&["commit", "ok", "no"]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("Permission denied"), "{said}");
    let (code, said) = run(&["commit", "-b", "only", "no"]);
    assert_eq!(code, Some(1), "{said}");
}

#[test]
fn the_time_of_a_folder_above_the_sources_makes_no_commit() {
    let env = env();
    commit(&env, &["data", "w/deep"]).succeeds();
    let set_time = |path: &str| {
        let folder = fs_err::File::open(env.path(path)).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        folder.file().set_modified(time).unwrap();
    };
    set_time("w");
    set_time("");
    let said = commit(&env, &["data", "w/deep"]).succeeds().stderr;
    assert!(said.contains("Nothing changed"), "{said}");
    // The time of a source itself counts.
    set_time("w/deep");
    let said = commit(&env, &["data", "w/deep"]).succeeds().stderr;
    assert!(said.contains("Committed"), "{said}");
    // So does the mode of a folder above, because a restore sets it.
    env.mode("w", 0o750);
    let said = commit(&env, &["data", "w/deep"]).succeeds().stderr;
    assert!(said.contains("Committed"), "{said}");
}

#[test]
fn the_first_commit_of_a_path_creates_the_store_in_the_current_folder() {
    let mut env = TestEnv::new();
    env.write("job/out/app", "1");
    env.write("job/notes", "1");
    let made = env.snap_in("job", ["commit", "out", "-b", "build-1"]).succeeds();
    assert!(made.stderr.starts_with("Created a store at .snap\n"), "{made}");
    assert!(!env.path("job/out/.snap").exists());
    assert_eq!(env.snap_in("job", ["ls", "-R"]).stdout, "out/\nout/app\n");
    // The next commit finds that store, wherever its path lies.
    env.write("far/away", "1");
    env.snap_in("job", ["commit", "-q", "../far", "-b", "far"]).succeeds();
    assert!(!env.path("far/.snap").exists());

    let home = env.path("home").to_str().unwrap().to_owned();
    env.write("home/docs/a", "1");
    env.set("HOME", &home);
    insta::assert_snapshot!(env.snap_in("home", ["commit", "docs"]), @r"
    exit: 1
    --- stderr ---
    error: there is no store here or above, and snap creates none in your home folder without a question
    hint: change to the project folder first
    hint: or create a store here: `snap init`
    ");
    assert_eq!(env.snap_in("home", ["commit"]).code, Some(1));
    assert!(!env.path("home/.snap").exists() && !env.path("home/docs/.snap").exists());
    env.snap_in("home", ["init", "-q"]).succeeds();
    env.snap_in("home", ["commit", "-q", "docs"]).succeeds();
}
