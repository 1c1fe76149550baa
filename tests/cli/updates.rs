//! Commits of named paths, streams, other sources and partial clones: which paths of a branch they
//! update, and which they keep.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use snap_testkit::mounts;

use crate::{base::two_clones, env::TestEnv};

/// Makes a project with files at several depths and an ignore file.
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
    // Once all files are unchanged, it has the same tree as a commit of everything.
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
    assert!(refused.stderr.contains("left.o is excluded by the ignore rules"));
}

/// Commits a stream.
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
    assert!(refused.stderr.contains("branch `main` holds snapshots of "), "{}", refused.stderr);
    assert!(refused.stderr.contains("--replace"), "{}", refused.stderr);
    env.snap(["--store", "s", "commit", "two", "-b", "two"]).succeeds();
    env.snap(["--store", "s", "commit", "one", "three", "-b", "both"]).succeeds();
    env.snap(["--store", "s", "commit", "three", "two", "-b", "both"]).succeeds();
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
    let told = commit("", &["other", "data", "-b", "two"]).succeeds().stderr;
    assert!(told.contains("third, which this commit does not contain"), "{told}");
}

#[test]
fn a_commit_in_the_root_of_the_machine_makes_no_store() {
    let env = TestEnv::new();
    let refused = env.snap_in("/", ["commit", "--dry-run", "--exclude", "*"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("would save the whole machine"), "{}", refused.stderr);
}

#[test]
fn files_of_the_kernel_are_not_committed_with_the_rest() {
    mounts::in_own_mounts("updates::files_of_the_kernel_are_not_committed_with_the_rest", || {
        let env = TestEnv::new();
        env.write("file", "mine");
        fs_err::create_dir(env.path("kernel")).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "sysfs", "none"]).arg(env.path("kernel"));
        assert!(mount.status().unwrap().success());
        env.snap(["commit"]).succeeds();
        assert_eq!(env.snap(["ls", "-R"]).succeeds().stdout, "file\nkernel/\n");
        assert_eq!(env.snap(["status", "-s"]).succeeds().stdout, "");
    });
}

#[test]
fn a_store_without_a_project_needs_a_path() {
    let env = TestEnv::new();
    env.write("a", "1");
    env.snap(["--store", "s", "init"]).succeeds();
    insta::assert_snapshot!(env.snap(["--store", "s", "commit"]), @"
    exit: 2
    --- stderr ---
    error: a path is required: the store s has no project folder
    hint: name what to commit: `snap --store s commit PATH`
    ");
    // The store of a project determines the folder to commit, from any current folder.
    env.write("home/b", "2");
    env.snap_in("home", ["commit"]).succeeds();
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
    // A restore of the whole tip removes the scope.
    env.snap_in("part", ["restore", "HEAD"]).succeeds();
    fs_err::remove_file(env.path("part/a.txt")).unwrap();
    env.snap_in("part", ["commit"]).succeeds();
    let listed = env.snap_in("part", ["ls", "-R"]).succeeds().stdout;
    assert_eq!(listed, "new.txt\nsub/\nsub/b.txt\n");
}

/// Makes a project with three folders, and a clone of the path `a/b` in `part`.
fn partial_clone() -> TestEnv {
    let env = TestEnv::new();
    for path in ["a/b/s", "a/c/d", "docs/d"] {
        env.write(&format!("origin/{path}"), path);
    }
    env.snap_in("origin", ["commit", "-q"]).succeeds();
    env.snap(["clone", "-q", "origin", "part", "--path", "a/b"]).succeeds();
    env
}

#[test]
fn named_paths_of_a_partial_clone_keep_what_it_did_not_bring() {
    for paths in [&["a"][..], &["."], &["a", "new"], &["a/b"], &["a/b/s", "new"]] {
        let env = partial_clone();
        env.write("part/a/b/s", "changed");
        env.write("part/new/file", "new");
        env.snap_in("part", [&["commit"], paths].concat()).succeeds();
        let listed = env.snap_in("part", ["ls", "-R"]).succeeds().stdout;
        assert!(listed.contains("a/c/d\n") && listed.contains("docs/d\n"), "{paths:?}: {listed}");
        assert_eq!(env.snap_in("part", ["cat", "HEAD:a/b/s"]).succeeds().stdout, "changed");
    }
    // Works from within the folder, and with new files beside those that were not fetched.
    let env = partial_clone();
    env.write("part/a/c/x", "new");
    env.snap_in("part/a", ["commit", "."]).succeeds();
    let listed = env.snap_in("part", ["ls", "-R"]).succeeds().stdout;
    assert_eq!(listed, "a/\na/b/\na/b/s\na/c/\na/c/d\na/c/x\ndocs/\ndocs/d\n");
    env.write("part/a/c/y", "newer");
    env.snap_in("part", ["commit", "a/c"]).succeeds();
    // Fetched files can be deleted by naming a folder above them.
    fs_err::remove_dir_all(env.path("part/a")).unwrap();
    env.snap_in("part", ["commit", "a"]).succeeds();
    let listed = env.snap_in("part", ["ls", "-R"]).succeeds().stdout;
    assert_eq!(listed, "a/\na/c/\na/c/d\na/c/x\na/c/y\ndocs/\ndocs/d\n");
}

#[test]
fn a_folder_that_a_partial_clone_did_not_bring_is_neither_removed_nor_replaced() {
    let env = partial_clone();
    let refused = env.snap_in("part", ["commit", "a", "docs"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("docs is outside the paths of this partial clone"));
    env.write("part/docs", "a file in the place of the folder");
    for args in [&["commit"][..], &["commit", "docs"]] {
        let refused = env.snap_in("part", args);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(
            refused.stderr.contains("docs would replace a folder of the last commit"),
            "{args:?}"
        );
    }
    fs_err::remove_file(env.path("part/docs")).unwrap();
    fs_err::rename(env.path("part/a"), env.path("part/z")).unwrap();
    std::os::unix::fs::symlink("z", env.path("part/a")).unwrap();
    assert_eq!(env.snap_in("part", ["commit"]).code, Some(2));
    assert!(env.snap_in("part", ["ls", "-R"]).succeeds().stdout.contains("a/c/d"));
}

#[test]
fn a_file_that_a_partial_clone_did_not_bring_is_not_replaced_by_a_folder() {
    let env = TestEnv::new();
    env.write("origin/a/f", "1");
    env.write("origin/top", "a file");
    env.snap_in("origin", ["commit", "-q"]).succeeds();
    env.snap(["clone", "-q", "origin", "part", "--path", "a"]).succeeds();
    env.write("part/top/x", "a folder in the place of the file");
    for args in [&["commit"][..], &["commit", "top"], &["commit", "top/x"]] {
        let refused = env.snap_in("part", args);
        assert_eq!(refused.code, Some(2), "{args:?}: {}", refused.stderr);
        assert!(
            refused.stderr.contains("top would replace a file of the last commit"),
            "{}",
            refused.stderr
        );
    }
    assert_eq!(env.snap_in("part", ["cat", "HEAD:top"]).succeeds().stdout, "a file");
}

#[test]
fn replacing_keeps_what_a_partial_clone_did_not_bring_unless_the_folder_is_named() {
    let env = partial_clone();
    let paths = || env.snap_in("part", ["ls", "-R"]).succeeds().stdout;
    let before = paths();
    env.write("part/docs/more", "1");
    env.snap_in("part", ["commit", "-q", "--replace"]).succeeds();
    assert_eq!(paths().lines().count(), before.lines().count() + 1, "{}", paths());
    env.snap_in("part", ["commit", "-q", "--replace", "."]).succeeds();
    assert!(paths().lines().count() < before.lines().count(), "{}", paths());
}

#[test]
fn ignore_files_above_a_partial_clone_hold_in_it() {
    let env = TestEnv::new();
    env.write("origin/.snapignore", "*.key\nbuild/");
    env.write("origin/src/pkg/a", "1");
    env.snap_in("origin", ["commit", "-q"]).succeeds();
    env.snap(["clone", "-q", "origin", "part", "--path", "src/pkg"]).succeeds();
    let other = ["clone", "-q", "origin", "other", "--path", "src/pkg"];
    env.snap(other).succeeds();
    env.write("origin/.snapignore", "*.log");
    env.snap_in("origin", ["commit", "-q"]).succeeds();
    env.snap_in("other", ["pull", "-q"]).succeeds();
    // Commits no longer need the remote.
    fs_err::rename(env.path("origin"), env.path("away")).unwrap();
    env.write("part/src/pkg/id.key", "private");
    env.write("part/src/pkg/build/x.o", "built");
    env.write("part/src/pkg/b", "2");
    assert_eq!(env.snap_in("part", ["status", "-s"]).succeeds().stdout, "A src/pkg/b\n");
    env.snap_in("part", ["commit", "-q"]).succeeds();
    env.snap_in("part", ["commit", "-q", "--allow-empty", "src/pkg"]).succeeds();
    let paths = env.snap_in("part", ["ls", "-R", "HEAD:src"]).succeeds().stdout;
    assert!(paths.contains("pkg/b") && !paths.contains("key"), "{paths}");
    assert!(!paths.contains("build"), "{paths}");
    env.write("other/src/pkg/x.log", "3");
    assert_eq!(env.snap_in("other", ["status", "-s"]).succeeds().stdout, "");
    // An ignore file in the folder takes precedence.
    env.write("part/.snapignore", "b");
    assert!(env.snap_in("part", ["status", "-s"]).succeeds().stdout.contains("A src/pkg/id.key"));
}

#[test]
fn ignore_files_above_a_path_that_replaces_all_hold_in_it() {
    let env = TestEnv::new();
    env.write("p/a/b/f", "x");
    env.write("p/a/.snapignore", "*.key");
    env.write("p/a/b/1.key", "private");
    env.snap_in("p", ["commit", "-q"]).succeeds();
    let replace = ["commit", "-q", "--replace", "a/b", "-b", "other"];
    env.snap_in("p", replace).succeeds();
    assert_eq!(env.snap_in("p", ["ls", "other:a/b"]).succeeds().stdout.trim(), "f");
    let named = env.snap_in("p", ["commit", "--replace", "a/b/1.key"]);
    assert_eq!(named.code, Some(2), "{}", named.stderr);
}

#[test]
fn a_partial_clone_keeps_to_its_scope_when_one_file_of_it_is_lost() {
    for (lost, text) in [("scope", None), ("logs/scope", None), ("scope", Some("garbage"))] {
        let env = partial_clone();
        let before = env.snap_in("part", ["ls", "-R"]).succeeds().stdout;
        let lost = env.path(format!("part/.snap/{lost}"));
        fs_err::remove_file(&lost).unwrap();
        text.iter().for_each(|text| fs_err::write(&lost, text).unwrap());
        env.write("part/docs/more", "1");
        env.snap_in("part", ["commit", "-q"]).succeeds();
        let after = env.snap_in("part", ["ls", "-R"]).succeeds().stdout;
        assert_eq!(after.lines().count(), before.lines().count() + 1, "{after}");
    }
}

#[test]
fn a_damaged_scope_is_found_and_never_taken_for_all_paths() {
    let env = partial_clone();
    let files = ["scope", "logs/scope"].map(|name| env.path(format!("part/.snap/{name}")));
    fs_err::write(&files[0], "garbage").unwrap();
    let repaired = env.snap_in("part", ["repair", "--json"]).succeeds();
    assert!(repaired.stdout.contains(r#""mended":["scope"]"#), "{}", repaired.stdout);
    assert_eq!(fs_err::read(&files[0]).unwrap(), fs_err::read(&files[1]).unwrap());
    // A damaged copy and a missing list must not look like a full clone.
    fs_err::write(&files[1], "").unwrap();
    fs_err::remove_file(&files[0]).unwrap();
    let repaired = env.snap_in("part", ["repair"]);
    assert_eq!(repaired.code, Some(4), "{}", repaired.stderr);
    for command in ["commit", "status", "verify"] {
        let refused = env.snap_in("part", [command]);
        assert_eq!(refused.code, Some(4), "{command} {}", refused.stderr);
        assert!(refused.stderr.contains("snap restore HEAD --overwrite"), "{}", refused.stderr);
    }
    env.snap_in("part", ["restore", "HEAD", "--overwrite", "-q"]).succeeds();
    env.snap_in("part", ["verify"]).succeeds();
    assert!(env.snap_in("part", ["status"]).succeeds().stdout.contains("Nothing changed"));
}

#[test]
fn a_partial_clone_without_a_readable_commit_knows_no_ignore_files() {
    let env = TestEnv::new();
    env.write("origin/.snapignore", "*.key");
    env.write("origin/a/b/f", "1");
    env.snap_in("origin", ["commit", "-q"]).succeeds();
    env.snap(["clone", "-q", "origin", "part", "--path", "a/b"]).succeeds();
    env.write("part/a/b/1.key", "private");
    env.snap_in("part", ["undo", "-q"]).succeeds();
    env.snap_in("part", ["commit", "-q", "-b", "saved"]).succeeds();
    assert_eq!(env.snap_in("part", ["ls", "saved:a/b"]).succeeds().stdout.trim(), "f");
    for folder in ["objects", "partial"] {
        for entry in fs_err::read_dir(env.path(format!("part/.snap/{folder}"))).unwrap() {
            fs_err::remove_file(entry.unwrap().path()).unwrap();
        }
    }
    fs_err::rename(env.path("origin"), env.path("away")).unwrap();
    let refused = env.snap_in("part", ["commit", "-b", "other"]);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
}

#[test]
fn what_lies_elsewhere_was_not_lost() {
    for part in [&["--depth", "1"][..], &["--path", "a/b"]] {
        let env = TestEnv::new();
        for content in ["1", "2"] {
            env.write("origin/a/b/f", content);
            env.write("origin/c/g", "3");
            env.snap_in("origin", ["commit", "-q"]).succeeds();
        }
        env.snap(["clone", "-q", "origin", "part"].into_iter().chain(part.iter().copied()))
            .succeeds();
        let again = env.snap_in("part", ["commit"]).succeeds();
        assert!(!again.stderr.contains("had lost"), "{part:?}: {}", again.stderr);
    }
}

#[test]
fn folders_that_an_interrupted_restore_has_left_are_not_committed() {
    let env = partial_clone();
    env.snap_in("part", ["restore", "-q", "latest"]).succeeds();
    // Simulates a folder of a restore that was killed before its last pass.
    let folder = env.path("part/docs");
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&folder, "user.snap.unfinished", b"", flags).unwrap();
    env.mode(&folder, 0o1700);
    env.write("part/a/b/s", "changed");
    for args in [&["commit"][..], &["commit", "docs"]] {
        let refused = env.snap_in("part", args);
        assert_eq!(refused.code, Some(1), "{args:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("docs was left unfinished by an interrupted restore"));
    }
    env.write("part/a/b/s", "a/b/s");
    env.snap_in("part", ["restore", "-q", "latest"]).succeeds();
    env.write("part/a/b/s", "changed");
    env.snap_in("part", ["commit"]).succeeds();
    let changed = env.snap_in("part", ["diff", "latest~1", "latest"]).succeeds().stdout;
    assert!(!changed.contains("docs"), "{changed}");
}

#[test]
fn an_older_revision_does_not_end_the_scope_of_a_partial_clone() {
    let env = TestEnv::new();
    env.write("origin/a/b/s", "1");
    env.snap_in("origin", ["commit", "-q"]).succeeds();
    env.write("origin/docs/d", "d");
    env.write("origin/a/b/s", "2");
    env.snap_in("origin", ["commit", "-q"]).succeeds();
    env.snap(["clone", "-q", "origin", "part", "--path", "a/b"]).succeeds();
    env.snap_in("part", ["restore", "-q", "latest~1", "--overwrite"]).succeeds();
    env.snap_in("part", ["commit", "-q"]).succeeds();
    let listed = env.snap_in("part", ["ls", "-R"]).succeeds().stdout;
    assert_eq!(listed, "a/\na/b/\na/b/s\ndocs/\ndocs/d\n");
    assert_eq!(env.snap_in("part", ["cat", "HEAD:a/b/s"]).succeeds().stdout, "1");
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
        ("nope", "`nope` does not exist in `main`"),
        ("sub/b.txt/c", "`sub/b.txt/c` does not exist in `main`"),
        (".", "is not a valid path in a snapshot"),
        ("", "is not a valid path in a snapshot"),
        ("sub/../sub", "is not a valid path in a snapshot"),
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
    env.snap_in("home", ["commit"]).succeeds();
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
    env.snap_in("home", ["commit"]).succeeds();
    let packs = fs_err::read_dir(env.path("home/.snap/objects")).unwrap();
    let packs: Vec<_> = packs.map(|pack| pack.unwrap().path()).collect();
    env.write("home/a/3", "three");
    env.snap_in("home", ["commit"]).succeeds();
    packs.iter().for_each(|pack| fs_err::remove_file(pack).unwrap());
    env.write("home/b/2", "changed");
    for args in [&["commit", "b"][..], &["commit", "b", "-b", "other"]] {
        let refused = env.snap_in("home", args);
        assert_eq!(refused.code, Some(4), "{}", refused.stderr);
        assert!(
            refused.stderr.contains("the store lacks objects of the last commit"),
            "{}",
            refused.stderr
        );
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
    env.snap_in("home", ["commit"]).succeeds();
    env.write("home/.snapignore", "f\n");
    env.write("home/f", "2");
    for args in [&["commit", "f"][..], &["commit", "z", "--exclude", "z"]] {
        let refused = env.snap_in("home", args);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains("is excluded by the ignore rules"), "{}", refused.stderr);
    }
    assert_eq!(env.snap_in("home", ["cat", "latest:f"]).stdout, "1");
    // A file that was deleted is removed from the snapshot, as it should be.
    fs_err::remove_file(env.path("home/z")).unwrap();
    env.snap_in("home", ["commit", "z"]).succeeds();
    assert!(!env.snap_in("home", ["ls", "latest"]).stdout.contains('z'));
}

#[test]
fn a_restored_dump_does_not_make_the_files_those_of_the_branch() {
    let env = TestEnv::new();
    env.write("home/a", "1");
    env.snap_in("home", ["commit"]).succeeds();
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
    assert!(refused.stderr.contains("newer commit"), "{}", refused.stderr);
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
