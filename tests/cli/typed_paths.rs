//! Where paths on the command line start: at the current folder, or at the top of the snapshot.

use crate::env::TestEnv;

fn env() -> TestEnv {
    let env = TestEnv::new();
    env.write("work/x", "top");
    env.write("work/only-top", "1");
    env.write("work/src/x", "src");
    env.write("work/src/notes.txt", "first");
    env.write("work/src/deep/y", "deep");
    env.snap_in("work", ["commit", "-m", "first"]).succeeds();
    env.write("work/src/notes.txt", "second");
    env.snap_in("work", ["commit", "-m", "second", "src/notes.txt"]).succeeds();
    env
}

#[test]
fn a_path_of_a_revision_starts_at_the_top_and_with_a_dot_at_the_current_folder() {
    let env = env();
    let cat = |folder: &str, what: &str| env.snap_in(folder, ["cat", what]).succeeds().stdout;
    for (folder, what, content) in [
        ("work/src", "HEAD:x", "top"),
        ("work/src", "HEAD:./x", "src"),
        ("work/src", "HEAD:../x", "top"),
        ("work/src", "HEAD:src/../x", ""),
        ("work/src", "HEAD:./deep/../x", "src"),
        ("work/src/deep", "HEAD~1:../notes.txt", "first"),
        ("work", "HEAD:./x", "top"),
        ("work", "HEAD:./src/x", "src"),
    ] {
        match content {
            "" => assert_eq!(env.snap_in(folder, ["cat", what]).code, Some(2), "{what}"),
            content => assert_eq!(cat(folder, what), content, "{folder}: {what}"),
        }
    }
    let ls = |folder: &str, what: &str| env.snap_in(folder, ["ls", what]).succeeds().stdout;
    assert_eq!(ls("work/src", "HEAD:."), "deep/\nnotes.txt\nx\n");
    assert_eq!(ls("work/src/deep", "HEAD:.."), "deep/\nnotes.txt\nx\n");
    assert_eq!(ls("work/src", "HEAD:../"), "only-top\nsrc/\nx\n");
    assert_eq!(ls("work/src", "HEAD:"), "only-top\nsrc/\nx\n");
    let shown = env.snap_in("work/src", ["show", "HEAD:./x", "--json"]).succeeds().json();
    assert_eq!(shown[0]["path"], "src/x");
    let id = |what: &str| env.snap_in("work/src", ["show", "--id", what]).line().to_owned();
    assert_eq!(id("HEAD:./deep"), id("HEAD:src/deep"));
    env.snap_in("work/src", ["export", "HEAD:./deep", "-o", "../../deep.tar"]).succeeds();
    assert!(env.path("deep.tar").is_file());
    let diff = env.snap_in("work/src", ["diff", "--name-only", "HEAD~1:./", "HEAD:./"]);
    assert_eq!(diff.succeeds().stdout, "src/notes.txt\n");
    insta::assert_snapshot!(env.snap_in("work/src", ["cat", "HEAD:../../x"]), @r"
    exit: 2
    --- stderr ---
    error: `../../x` is outside the project
    hint: `./` and `../` start at the current folder, `REV:PATH` at the top of the snapshot
    ");
}

#[test]
fn a_restore_puts_a_path_of_the_current_folder_into_its_place() {
    let env = env();
    env.snap_in("work/src", ["restore", "HEAD~1:./notes.txt", "--overwrite"]).succeeds();
    assert_eq!(env.read("work/src/notes.txt"), "first");
    assert_eq!(fs_err::read_dir(env.path("work")).unwrap().count(), 4, "nothing at the top");
    fs_err::remove_dir_all(env.path("work/src/deep")).unwrap();
    env.snap_in("work/src", ["restore", "HEAD:./deep"]).succeeds();
    assert_eq!(env.read("work/src/deep/y"), "deep");
}

#[test]
fn a_log_and_a_search_start_at_the_current_folder() {
    let env = env();
    let log = |folder: &str, path: &str| {
        let ran = env.snap_in(folder, ["log", "--json", "--", path]).succeeds();
        let messages = ran.json().into_iter().map(|commit| commit["message"].clone());
        messages.map(|message| message.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for (folder, path) in [
        ("work", "src/notes.txt"),
        ("work/src", "notes.txt"),
        ("work/src", "./notes.txt"),
        ("work/src/deep", "../notes.txt"),
        ("work/src", "../src/notes.txt"),
        ("work/src", "."),
    ] {
        assert_eq!(log(folder, path), ["second", "first"], "{folder}: {path}");
    }
    assert_eq!(log("work/src", "x"), ["first"]);
    assert_eq!(env.snap_in("work/src", ["log", "--", "only-top"]).code, Some(1));
    assert_eq!(env.snap_in("work/src", ["log", "--", "../../x"]).code, Some(2));
    let absolute = env.path("work/src/notes.txt").to_str().unwrap().to_owned();
    assert_eq!(log("work/src", &absolute), ["second", "first"]);

    let find = |folder: &str, pattern: &str| {
        let found = env.snap_in(folder, ["find", "--json", pattern]).succeeds().json();
        found.iter().map(|one| one["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(find("work/src", "x"), ["src/x", "x"]);
    assert_eq!(find("work/src", "/x"), ["x"]);
    assert_eq!(find("work/src", "./x"), ["src/x"]);
    assert_eq!(find("work/src", "../x"), ["x"]);
    assert_eq!(find("work/src/deep", "../**/y"), ["src/deep/y"]);
    // The name of the current folder is no pattern.
    env.write("work/[a]*/x", "odd");
    env.write("work/a/x", "plain");
    env.snap_in("work", ["commit"]).succeeds();
    assert_eq!(find("work/[a]*", "./x"), ["[a]*/x"]);
}

#[test]
fn a_path_that_starts_at_the_wrong_folder_is_answered_with_the_right_command() {
    let env = env();
    insta::assert_snapshot!(env.snap_in("work/src", ["cat", "HEAD:notes.txt"]), @"
    exit: 1
    --- stderr ---
    error: `notes.txt` does not exist in `HEAD`
    hint: did you mean `snap cat HEAD:src/notes.txt`?
    ");
    insta::assert_snapshot!(env.snap_in("work/src/deep", ["restore", "main~1:y", "-n", "../a b"]), @"
    exit: 1
    --- stderr ---
    error: `y` does not exist in `main~1`
    hint: did you mean `snap restore 'main~1:src/deep/y' -n '../a b'`?
    ");
    insta::assert_snapshot!(env.snap_in("work/src", ["cat", "HEAD:none"]), @"
    exit: 1
    --- stderr ---
    error: `none` does not exist in `HEAD`
    hint: `snap ls -R HEAD` lists its files and folders
    ");
}

#[test]
fn a_path_without_a_revision_is_answered_with_the_last_commit() {
    let env = env();
    fs_err::remove_file(env.path("work/src/notes.txt")).unwrap();
    insta::assert_snapshot!(env.snap_in("work/src", ["cat", "notes.txt"]), @r"
    exit: 1
    --- stderr ---
    error: `notes.txt` is neither REV:PATH nor a content id
    hint: did you mean `snap cat HEAD:src/notes.txt`?
    ");
    for (folder, name) in
        [("work/src", "notes.txt"), ("work/src", "./notes.txt"), ("work/src/deep", "../notes.txt")]
    {
        for command in ["cat", "restore", "show", "ls", "export -o x.tar", "diff"] {
            let words: Vec<&str> = command.split(' ').collect();
            let ran = env.snap_in(folder, [&words[..], &[name]].concat());
            let hint = format!("hint: did you mean `snap {command} HEAD:src/notes.txt`?\n");
            assert!(ran.stderr.ends_with(&hint), "{folder}: {command} {name}: {ran}");
        }
    }
    // The command takes no path of a revision, or the last commit has no such path.
    for args in [&["log", "notes.txt"][..], &["cat", "none"], &["show", "none"]] {
        let ran = env.snap_in("work/src", args);
        assert!(!ran.stderr.contains("HEAD:src"), "{args:?}: {ran}");
    }
}

#[test]
fn paths_in_remotes_and_bundles_start_at_the_top() {
    let env = env();
    env.snap_in("work", ["pack", "-q", "HEAD", "-o", "../b.snap"]).succeeds();
    let there = format!("file://{}", env.path("there").to_str().unwrap());
    env.snap_in("work", ["push", "-q", &there, "main"]).succeeds();
    let cat = |what: &str| env.snap_in("work/src", ["cat", what]).succeeds().stdout;
    let project = format!("file://{}", env.path("work").to_str().unwrap());
    for place in ["../../b.snap:", &format!("{there}#main:"), &format!("{project}#main:")] {
        assert_eq!(cat(&format!("{place}x")), "top", "{place}");
        assert_eq!(cat(&format!("{place}./x")), "top", "{place}");
    }
    // A store without a project has no current folder.
    env.snap(["--store", "bare", "init"]).succeeds();
    env.snap(["--store", "bare", "commit", "-q", "work/src"]).succeeds();
    let bare = env.snap_in("work/src", ["--store", "../../bare", "cat", "HEAD:./x"]).succeeds();
    assert_eq!(bare.stdout, "src");
    let log = ["--store", "../../bare", "log", "--oneline", "--", "x"];
    assert_eq!(env.snap_in("work/src", log).succeeds().stdout.lines().count(), 1);
}
