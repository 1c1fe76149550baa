//! Applies the patches of `snap diff` with `patch` and git.

use std::{io::Write, os::unix::fs::symlink, process::Stdio};

use snap_testkit::skip::skip_without_program;

use crate::env::TestEnv;

const PATCH: &[&str] = &["patch", "-p1", "-s"];
const GIT: &[&str] = &["git", "apply", "-p1"];

/// Applies patches one after another to the old snapshot, and compares the result with the new one.
/// Does nothing if the tool is missing.
#[track_caller]
fn assert_applies(env: &TestEnv, (old, new): (&str, &str), tool: &[&str], patches: &[String]) {
    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join(old);
    let target = target.to_str().unwrap();
    env.snap(["restore", "-q", old, target]).succeeds();
    for patch in patches {
        let mut command = std::process::Command::new(tool[0]);
        command.args(&tool[1..]).current_dir(target).stdin(Stdio::piped());
        let Ok(mut child) = command.env("GIT_CEILING_DIRECTORIES", target).spawn() else {
            return skip_without_program("a test of patches", tool[0]);
        };
        child.stdin.take().unwrap().write_all(patch.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{tool:?}\n{patch}");
    }
    let left = env.snap(["diff", "--exit-code", "--folder", target, new]);
    assert_eq!((left.code, &*left.stdout), (Some(0), ""), "{tool:?}");
}

#[test]
fn patch_and_git_make_one_tree_of_the_other() {
    let env = TestEnv::new();
    env.write("run.sh", "#!/bin/sh\n");
    env.write("new name", "the same content\n");
    env.write("fresh/file", "hello\n");
    symlink("run.sh", env.path("link")).unwrap();
    env.mode("run.sh", 0o755);
    env.write("dir with space/naïve \"name\"", "1\n2\n3\n");
    env.write("kind", "a file\n");
    env.snap(["commit", "-q"]).succeeds();
    env.write("dir with space/naïve \"name\"", "1\n2\n3\n4\n");
    env.write("long", (0..100).map(|n| format!("{n}\n")).collect::<String>());
    fs_err::rename(env.path("new name"), env.path("fresh/moved")).unwrap();
    fs_err::remove_file(env.path("link")).unwrap();
    symlink("long", env.path("link")).unwrap();
    fs_err::remove_file(env.path("fresh/file")).unwrap();
    env.mode("run.sh", 0o644);
    env.snap(["commit", "-q"]).succeeds();
    let patch = env.snap(["diff", "HEAD~1", "HEAD"]).succeeds().stdout;
    for tool in [PATCH, GIT] {
        assert_applies(&env, ("HEAD~1", "HEAD"), tool, std::slice::from_ref(&patch));
    }
}

#[test]
fn a_patch_turns_files_into_folders_and_back() {
    let env = TestEnv::new();
    env.write("file", "becomes a folder\n");
    env.write("folder/a", "one\n");
    env.write("folder/b/c", "two\n");
    env.write("folder-2", "sorts between the folder and what is in it\n");
    env.snap(["commit", "-q"]).succeeds();
    fs_err::remove_file(env.path("file")).unwrap();
    fs_err::remove_dir_all(env.path("folder")).unwrap();
    env.write("file/inside", "new\n");
    env.write("folder", "was a folder\n");
    env.snap(["commit", "-q"]).succeeds();
    for (old, new) in [("HEAD~1", "HEAD"), ("HEAD", "HEAD~1")] {
        let made = env.snap(["diff", old, new]).succeeds();
        assert!(made.stderr.contains("apply the patch with `git apply`"), "{}", made.stderr);
        let blocks: Vec<String> =
            made.stdout.split("diff --git ").skip(1).map(|b| format!("diff --git {b}")).collect();
        let is_removal = |block: &&String| block.contains("\ndeleted file mode ");
        // Where a path changes between file and folder, removals come before additions.
        for block in blocks.iter().filter(|block| !is_removal(block)) {
            let name = block.split(['/', ' ']).nth(3).unwrap();
            let at = blocks.iter().position(|other| other == block).unwrap();
            let later = blocks[at..].iter().filter(is_removal);
            assert!(later.clone().all(|other| !other.contains(&format!(" a/{name}/"))), "{name}");
        }
        let removals: String = blocks.iter().filter(is_removal).cloned().collect();
        let rest: String = blocks.iter().filter(|b| !is_removal(b)).cloned().collect();
        assert_applies(&env, (old, new), GIT, std::slice::from_ref(&made.stdout));
        assert_applies(&env, (old, new), PATCH, &[removals, rest]);
    }
}
