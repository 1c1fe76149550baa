//! Named paths, streams, sources and partial clones: what of a branch a commit
//! updates, and what it keeps.

use std::{io::Write, process::Stdio};

use crate::{base::two_clones, env::TestEnv};

/// A project with files at several depths and an ignore file.
fn project() -> TestEnv {
    let env = TestEnv::new();
    for (path, text) in [("a", "1"), ("src/x", "2"), ("src/deep/y", "3"), ("docs/z", "4")] {
        env.write(path, text);
    }
    env.write(".snapignore", "*.o\n");
    env.snap(["commit"]).succeeds();
    env
}

fn listed(env: &TestEnv) -> String {
    env.snap(["ls", "-R"]).succeeds().stdout.replace('\n', " ")
}

#[test]
fn named_paths_are_updated_and_everything_else_is_kept() {
    let env = project();
    env.write("a", "changed, and not named");
    env.write("src/x", "changed");
    env.write("src/x.o", "ignored by a file above");
    fs_err::remove_file(env.path("src/deep/y")).unwrap();
    let made = &env.snap(["--json", "commit", "src"]).succeeds().json()[0];
    assert_eq!(listed(&env), ".snapignore a docs/ docs/z src/ src/deep/ src/x ");
    assert_eq!(env.snap(["cat", "HEAD:a"]).succeeds().stdout, "1");
    assert_eq!(env.snap(["cat", "HEAD:src/x"]).succeeds().stdout, "changed");
    assert_eq!((&made["files"], &made["folders"]), (&4.into(), &3.into()));
    // The same tree as a commit of everything, once everything is the same.
    env.write("a", "1");
    let partly = env.snap(["--json", "commit", "a"]).succeeds().json()[0]["tree"].clone();
    let whole = env.snap(["--json", "commit"]).succeeds().json()[0]["tree"].clone();
    assert_eq!(partly, whole);
    env.snap(["verify"]).succeeds();
}

#[test]
fn a_named_path_that_is_gone_is_removed_and_one_that_never_was_is_an_error() {
    let env = project();
    fs_err::remove_dir_all(env.path("src")).unwrap();
    env.snap(["commit", "src/deep"]).succeeds();
    assert_eq!(listed(&env), ".snapignore a docs/ docs/z src/ src/x ");
    env.snap_in("docs", ["commit", "../src"]).succeeds();
    assert_eq!(listed(&env), ".snapignore a docs/ docs/z ");
    let refused = env.snap(["commit", "docs/nowhere"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("cannot read docs/nowhere"), "{}", refused.stderr);
    env.write("left.o", "out");
    let refused = env.snap(["commit", "left.o"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("left.o is left out by the ignore rules"));
}

/// Commits what a stream says.
fn stream(env: &TestEnv, args: &[&str], text: &str) -> (Option<i32>, String) {
    let mut child = env
        .command("")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_stream_updates_one_path_of_a_project() {
    let env = project();
    let (code, said) = stream(&env, &["commit", "--stdin", "b.sql"], "select 1");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(listed(&env), ".snapignore a b.sql docs/ docs/z src/ src/deep/ src/deep/y src/x ");
    let (code, _) = stream(&env, &["commit", "--stdin", "b.sql", "--replace"], "select 2");
    assert_eq!((code, &*listed(&env)), (Some(0), "b.sql "));
}

#[test]
fn a_branch_of_a_store_without_a_project_keeps_to_its_sources() {
    let env = TestEnv::new();
    for path in ["one/a", "two/b", "three/c"] {
        env.write(path, path);
    }
    env.snap(["--store", "s", "init"]).succeeds();
    env.snap(["--store", "s", "commit", "one"]).succeeds();
    let refused = env.snap(["--store", "s", "commit", "two"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.stderr.contains("branch `main` is of "), "{}", refused.stderr);
    assert!(refused.stderr.contains("--replace"), "{}", refused.stderr);
    env.snap(["--store", "s", "commit", "two", "-b", "two"]).succeeds();
    env.snap(["--store", "s", "commit", "one", "three"]).succeeds();
    env.snap(["--store", "s", "commit", "three"]).succeeds();
    env.snap(["--store", "s", "commit", "two", "--replace"]).succeeds();
    let (code, said) = stream(&env, &["--store", "s", "commit", "--stdin", "b.sql"], "1");
    assert_eq!(code, Some(1), "{said}");
}

#[test]
fn sources_are_compared_as_absolute_paths_and_what_is_left_out_is_told() {
    let env = TestEnv::new();
    for path in ["data/a", "other/b", "third/c"] {
        env.write(path, path);
    }
    let commit = |folder: &str, args: &[&str]| {
        let store = env.path("store");
        let args = [&["--store", store.to_str().unwrap(), "commit"], args].concat();
        env.snap_in(folder, args)
    };
    env.snap(["--store", "store", "init"]).succeeds();
    commit("data", &["../other"]).succeeds();
    commit("other", &["."]).succeeds();
    commit("", &["./other/../other/"]).succeeds();
    let missing = commit("", &["none"]);
    assert!(missing.stderr.contains("cannot read none"), "{}", missing.stderr);
    let told = commit("", &["third", "--replace"]).succeeds().stderr;
    assert!(told.contains("other, which this commit does not contain"), "{told}");
    commit("", &["other", "third", "-b", "two"]).succeeds();
    let told = commit("", &["other", "-b", "two"]).succeeds().stderr;
    assert!(told.contains("third, which this commit does not contain"), "{told}");
}

#[test]
fn a_store_without_a_project_needs_a_path() {
    let env = TestEnv::new();
    env.write("a", "1");
    env.snap(["--store", "s", "init"]).succeeds();
    insta::assert_snapshot!(env.snap(["--store", "s", "commit"]), @r"
    exit: 2
    --- stderr ---
    error: no path is given, and s is no project's store
    hint: `snap --store s commit PATH` names what to commit
    ");
    // The store of a project says which folder is meant, from wherever one is.
    env.write("home/b", "2");
    env.snap(["commit", "home"]).succeeds();
    env.snap(["--store", "home/.snap", "commit", "--allow-empty"]).succeeds();
    assert_eq!(env.snap(["--store", "home/.snap", "ls"]).succeeds().stdout, "b\n");
}

#[test]
fn a_partial_clone_keeps_what_lies_outside_its_scope() {
    let env = two_clones();
    let url = format!("file://{}", env.path("there").display());
    env.snap(["clone", "-q", &url, "part", "--path", "sub"]).succeeds();
    assert!(!env.path("part/a.txt").exists());
    let status = env.snap_in("part", ["status"]).succeeds().stdout;
    assert!(status.contains("A partial clone of sub"), "{status}");
    assert!(!status.contains("a.txt"), "{status}");
    env.write("part/sub/b.txt", "changed");
    env.write("part/new.txt", "outside the scope, and here");
    let status = env.snap_in("part", ["status"]).succeeds().stdout;
    assert!(status.contains("new.txt") && !status.contains("a.txt"), "{status}");
    assert!(env.snap_in("part", ["diff"]).succeeds().stdout.contains("new.txt"));
    env.snap_in("part", ["commit"]).succeeds();
    let listed = env.snap_in("part", ["ls", "-R"]).succeeds().stdout;
    assert_eq!(listed, "a.txt\nnew.txt\nsub/\nsub/b.txt\n");
    assert_eq!(env.snap_in("part", ["cat", "HEAD:sub/b.txt"]).succeeds().stdout, "changed");
    // A restore of everything ends the scope.
    env.snap_in("part", ["restore", "HEAD"]).succeeds();
    fs_err::remove_file(env.path("part/a.txt")).unwrap();
    env.snap_in("part", ["commit"]).succeeds();
    let listed = env.snap_in("part", ["ls", "-R"]).succeeds().stdout;
    assert_eq!(listed, "new.txt\nsub/\nsub/b.txt\n");
}

#[test]
fn a_path_of_a_partial_clone_is_normalised_and_must_be_there() {
    let env = two_clones();
    let url = format!("file://{}", env.path("there").display());
    env.snap(["clone", "-q", &url, "part", "--path", "./sub//", "--path", "sub/b.txt"]).succeeds();
    assert!(env.path("part/sub/b.txt").exists());
    env.write("part/new.txt", "new");
    env.snap_in("part", ["commit"]).succeeds();
    let listed = env.snap_in("part", ["ls", "-R"]).succeeds().stdout;
    assert_eq!(listed, "a.txt\nnew.txt\nsub/\nsub/b.txt\n");
    for (path, told) in [
        ("nope", "there is no `nope` in `main`"),
        ("sub/b.txt/c", "there is no `sub/b.txt/c` in `main`"),
        (".", "cannot be the path of a file in a snapshot"),
        ("", "cannot be the path of a file in a snapshot"),
        ("sub/../sub", "cannot be the path of a file in a snapshot"),
    ] {
        let refused = env.snap(["clone", &url, "other", "--path", path]);
        assert_ne!(refused.code, Some(0), "{path}");
        assert!(refused.stderr.contains(told), "{path}: {}", refused.stderr);
        assert!(!env.path("other").exists(), "{path}");
    }
}

#[test]
fn a_restore_of_the_path_of_a_partial_clone_brings_its_files_up_to_date() {
    let env = two_clones();
    let url = format!("file://{}", env.path("there").display());
    env.snap(["clone", "-q", &url, "part", "--path", "sub"]).succeeds();
    env.write("ann/sub/b.txt", "theirs");
    env.snap_in("ann", ["commit"]).succeeds();
    env.snap_in("ann", ["push"]).succeeds();
    env.snap_in("part", ["pull"]).succeeds();
    env.write("part/sub/c.txt", "mine");
    assert_eq!(env.snap_in("part", ["commit"]).code, Some(1));
    env.snap_in("part", ["restore", "HEAD:sub", "--overwrite"]).succeeds();
    env.snap_in("part", ["commit"]).succeeds();
    assert_eq!(env.snap_in("part", ["cat", "HEAD:sub/b.txt"]).succeeds().stdout, "theirs");
    assert!(env.snap_in("part", ["status"]).succeeds().stdout.contains("A partial clone of sub"));
}

#[test]
fn the_attributes_of_folders_above_a_named_path_are_kept() {
    let env = TestEnv::new();
    env.write("home/a/1", "1");
    env.write("home/a/2", "2");
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    fs_err::set_permissions(env.path("home/a"), mode(0o700)).unwrap();
    env.snap(["commit", "home"]).succeeds();
    fs_err::set_permissions(env.path("home/a"), mode(0o755)).unwrap();
    env.write("home/a/2", "changed");
    env.snap_in("home", ["commit", "a/2"]).succeeds();
    let listed = env.snap_in("home", ["ls", "-l", "latest"]).succeeds().stdout;
    assert!(listed.starts_with("drwx------"), "{listed}");
}

#[test]
fn a_commit_of_named_paths_keeps_nothing_that_is_lost() {
    let env = TestEnv::new();
    env.write("home/a/1", "one");
    env.write("home/b/2", "two");
    env.snap(["commit", "home"]).succeeds();
    let packs = fs_err::read_dir(env.path("home/.snap/objects")).unwrap();
    let packs: Vec<_> = packs.map(|pack| pack.unwrap().path()).collect();
    env.write("home/a/3", "three");
    env.snap_in("home", ["commit"]).succeeds();
    packs.iter().for_each(|pack| fs_err::remove_file(pack).unwrap());
    env.write("home/b/2", "changed");
    for args in [&["commit", "b"][..], &["commit", "b", "-b", "other"]] {
        let refused = env.snap_in("home", args);
        assert_eq!(refused.code, Some(4), "{}", refused.stderr);
        assert!(refused.stderr.contains("not all in the store"), "{}", refused.stderr);
    }
    env.snap_in("home", ["commit"]).succeeds();
    env.write("home/b/2", "again");
    env.snap_in("home", ["commit", "b"]).succeeds();
    assert_eq!(env.snap_in("home", ["cat", "latest:a/1"]).succeeds().stdout, "one");
}

#[test]
fn a_named_path_that_is_left_out_is_refused_although_the_snapshot_has_it() {
    let env = TestEnv::new();
    env.write("home/f", "1");
    env.write("home/z", "z");
    env.snap(["commit", "home"]).succeeds();
    env.write("home/.snapignore", "f\n");
    env.write("home/f", "2");
    for args in [&["commit", "f"][..], &["commit", "z", "--exclude", "z"]] {
        let refused = env.snap_in("home", args);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains("left out"), "{}", refused.stderr);
    }
    assert_eq!(env.snap_in("home", ["cat", "latest:f"]).stdout, "1");
    // One that is gone is removed, as it should be.
    fs_err::remove_file(env.path("home/z")).unwrap();
    env.snap_in("home", ["commit", "z"]).succeeds();
    assert!(!env.snap_in("home", ["ls", "latest"]).stdout.contains('z'));
}

#[test]
fn a_restored_dump_does_not_make_the_files_those_of_the_branch() {
    let env = TestEnv::new();
    env.write("home/a", "1");
    env.snap(["commit", "home"]).succeeds();
    let hub = format!("file://{}", env.path("hub").display());
    env.snap_in("home", ["push", &hub]).succeeds();
    env.snap(["clone", &hub, "clone"]).succeeds();
    env.write("home/a", "2");
    env.snap_in("home", ["commit"]).succeeds();
    env.snap_in("home", ["push", &hub]).succeeds();
    env.write("dump", "dump");
    let stdin = fs_err::File::open(env.path("dump")).unwrap();
    let mut command = env.command("clone");
    command.args(["commit", "--stdin", "db.sql", "-b", "db"]).stdin(stdin.into_parts().0);
    assert!(command.status().unwrap().success());
    env.snap_in("clone", ["pull"]).succeeds();
    env.snap_in("clone", ["restore", "db"]).succeeds();
    let refused = env.snap_in("clone", ["commit"]);
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    assert!(refused.stderr.contains("that the files here do not contain"), "{}", refused.stderr);
}

#[test]
fn snapshots_of_named_paths_and_dumps_say_nothing_of_the_rest_of_the_folder() {
    let env = TestEnv::new();
    env.write("home/src/s", "s");
    env.write("home/docs/d", "d");
    env.snap_in("home", ["init"]).succeeds();
    env.snap_in("home", ["commit", "src"]).succeeds();
    let args = ["restore", "latest", "--overwrite", "--delete", "--yes"];
    env.snap_in("home", args).succeeds();
    assert!(env.path("home/docs/d").exists(), "the first commit names a path");
    env.snap_in("home", ["commit"]).succeeds();
    env.snap_in("home", ["commit", "src", "--replace"]).succeeds();
    env.write("home/src/x", "x");
    env.snap_in("home", ["commit", "src"]).succeeds();
    env.snap_in("home", args).succeeds();
    assert!(env.path("home/docs/d").exists(), "after --replace");
    env.write("dump", "dump");
    let stdin = fs_err::File::open(env.path("dump")).unwrap();
    let mut command = env.command("home");
    command.args(["commit", "--stdin", "db.sql", "-b", "db"]).stdin(stdin.into_parts().0);
    assert!(command.status().unwrap().success());
    env.snap_in("home", ["restore", "db", "--overwrite", "--delete", "--yes"]).succeeds();
    assert!(env.path("home/docs/d").exists() && env.path("home/src/s").exists(), "a dump");
}
