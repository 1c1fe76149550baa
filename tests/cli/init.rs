//! `snap init`.

use crate::env::{Ran, TestEnv};

#[test]
fn a_store_is_made_in_the_folder_named_or_this_one() {
    let env = TestEnv::new();
    insta::assert_snapshot!(env.snap(["init"]), @r"
    exit: 0
    --- stderr ---
    Created a store at .snap
    ");
    insta::assert_snapshot!(env.snap(["init", "a/b"]), @r"
    exit: 0
    --- stderr ---
    Created a store at a/b/.snap
    ");
    assert!(env.path(".snap/config.toml").is_file());
    assert!(env.path("a/b/.snap/objects").is_dir());
    assert_eq!(env.read(".snap/HEAD"), "ref: refs/heads/main\n");
}

#[test]
fn a_named_store_is_bare() {
    let env = TestEnv::new();
    insta::assert_snapshot!(env.snap(["--store", "s", "--json", "init"]), @r#"
    exit: 0
    --- stdout ---
    {"version":1,"type":"store","store":"s"}
    --- stderr ---
    {"version":1,"type":"message","message":"Created a store at s"}
    "#);
    assert!(env.path("s/config.toml").is_file());
    insta::assert_snapshot!(env.snap(["--store", "t", "init", "folder"]), @r"
    exit: 2
    --- stderr ---
    error: --store STORE and DIR cannot be used together
    ");
    assert!(!env.path("t").exists() && !env.path("folder").exists());
}

#[test]
fn a_store_is_never_made_over_another() {
    let env = TestEnv::new();
    env.snap(["init"]).succeeds();
    insta::assert_snapshot!(env.snap(["init"]), @"
    exit: 1
    --- stderr ---
    error: a store already exists at .snap
    hint: nothing was changed; `snap commit` uses this store
    ");
}

#[test]
fn a_folder_with_files_does_not_become_a_store() {
    let env = TestEnv::new();
    env.write("full/file", "");
    insta::assert_snapshot!(env.snap(["--store", "full", "init"]), @r"
    exit: 1
    --- stderr ---
    error: full is not empty
    hint: pass a folder that is empty or does not exist
    ");
}

#[test]
fn what_was_interrupted_is_completed() {
    let env = TestEnv::new();
    env.write("file", "text");
    fs_err::create_dir_all(env.path(".snap/objects")).unwrap();
    fs_err::create_dir_all(env.path(".snap/refs/heads")).unwrap();
    insta::assert_snapshot!(env.snap(["log"]), @r"
    exit: 1
    --- stderr ---
    error: [ROOT]/.snap is not a store
    hint: its creation was interrupted; the next commit or `snap init` completes it
    hint: if `snap clone` was interrupted, remove the folder and clone again
    ");
    env.snap(["commit", "-q"]).succeeds();
    env.snap(["verify", "--data"]).succeeds();
}

#[test]
fn those_who_make_a_store_at_once_all_find_one() {
    for _ in 0..10 {
        let env = TestEnv::new();
        env.write("file", "text");
        let mut running: Vec<_> =
            (0..4).map(|_| env.command("").args(["commit", "-q"]).spawn().unwrap()).collect();
        for child in &mut running {
            assert!(child.wait().unwrap().success());
        }
        env.snap(["verify"]).succeeds();
        let names = fs_err::read_dir(env.path("")).unwrap();
        assert_eq!(names.count(), 2, "the file and .snap");
    }
}

#[test]
fn a_remote_is_not_a_store() {
    let mut env = TestEnv::new();
    env.write("a", "1");
    let says = |ran: &Ran, scheme: &str| {
        assert_eq!(ran.code, Some(2), "{ran}");
        let error = format!("a store is a folder, and `{scheme}://…` is the location of a remote");
        assert!(ran.stderr.contains(&error), "{ran}");
    };
    insta::assert_snapshot!(env.snap(["--store", "s3://ann:secret@bucket/a", "init"]), @"
    exit: 2
    --- stderr ---
    error: a store is a folder, and `s3://…` is the location of a remote
    hint: commit to a folder, then `snap push URL` copies its commits there
    hint: to read them there, write `URL#REV`, for example `snap log URL#main`
    ");
    env.set("SNAP_CONFIG", env.path("settings.toml").to_str().unwrap());
    env.write("settings.toml", "[profile.a]\npaths = [\"/a\"]\nstore = \"https://host/a\"\n");
    says(&env.snap(["commit", "--profile", "a"]), "https");
    env.set("SNAP_STORE", "file:///srv/store");
    says(&env.snap(["log"]), "file");
    assert!(!env.path("s3:").exists() && !env.path("https:").exists());
}

#[test]
fn no_store_is_made_in_a_store() {
    let env = TestEnv::new();
    env.write("a", "1");
    env.snap(["commit", "-q"]).succeeds();
    let names = |folder: &str| {
        let entries = fs_err::read_dir(env.path(folder)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = (names(".snap"), names(".snap/objects"));
    for args in [
        &["init", ".snap"][..],
        &["init", ".snap/tmp"],
        &["--store", ".snap/sub", "init"],
        &["--store", ".snap/objects", "init"],
        &["clone", ".", ".snap/z"],
        &["man", "--out", ".snap/objects"],
        &["man", "--out", ".snap"],
    ] {
        let ran = env.snap(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {ran}");
        assert!(ran.stderr.contains("would be inside a store; pass another folder"), "{ran}");
        assert_eq!((names(".snap"), names(".snap/objects")), before, "{args:?}");
    }
}
