//! `snap restore --overwrite` in place: which edited files it asks about.

use crate::{env::TestEnv, terminal::answered};

/// Returns a project with two commits, and an edited file.
fn env() -> TestEnv {
    let env = TestEnv::new();
    for (text, message) in [("first", "one"), ("second", "two")] {
        for name in ["a", "sub/b", "sub/c"] {
            env.write(&format!("p/{name}"), format!("{text} {name}"));
        }
        env.snap_in("p", ["commit", "-q", "-m", message]).succeeds();
    }
    env.write("p/sub/b", "edited");
    env
}

#[test]
fn an_edited_file_is_overwritten_only_with_yes() {
    let env = env();
    env.write("p/new", "also in no commit");
    insta::assert_snapshot!(env.snap_in("p", ["restore", "HEAD~1", "--overwrite"]), @r"
    exit: 1
    --- stderr ---
    error: `sub/b` is in no commit and would be lost
    hint: --dry-run lists them
    hint: `snap commit -b NAME` saves them first, on a new branch
    hint: --yes deletes and overwrites them
    ");
    assert_eq!((env.read("p/a"), env.read("p/sub/b")), ("second a".into(), "edited".into()));
    let both = env.snap_in("p", ["restore", "HEAD", "--overwrite", "--delete"]);
    assert_eq!(both.code, Some(1), "{both}");
    assert!(both.stderr.contains("`sub/b`, `new` are in no commit"), "{both}");
    insta::assert_snapshot!(env.snap_in("p", ["restore", "HEAD", "--overwrite", "-n"]), @r"
    exit: 0
    --- stdout ---
    replace sub/b  (in no commit)
    --- stderr ---
    Would restore 1 file, 12 B; 2 already there
    warning: 1 file of these is in no commit and would be lost
    ");
    env.snap_in("p", ["restore", "HEAD", "--overwrite", "--yes"]).succeeds();
    assert_eq!(env.read("p/sub/b"), "second sub/b");
    // Nothing is edited now, so no other revision needs an answer.
    env.snap_in("p", ["restore", "HEAD~1", "--overwrite"]).succeeds();
    assert_eq!(env.read("p/sub/b"), "first sub/b");
}

#[test]
fn a_content_of_any_commit_needs_no_answer() {
    let env = env();
    env.snap_in("p", ["commit", "-q", "-b", "kept"]).succeeds();
    env.snap_in("p", ["restore", "main", "--overwrite"]).succeeds();
    assert_eq!(env.read("p/sub/b"), "second sub/b");
    env.write("p/a", "first a");
    env.write("p/sub/c", "");
    env.snap_in("p", ["restore", "main", "--overwrite"]).succeeds();
    // The content of an undone commit is stored, but in no commit.
    env.write("p/a", "undone");
    env.snap_in("p", ["commit", "-q", "-b", "main"]).succeeds();
    env.snap_in("p", ["undo"]).succeeds();
    let refused = env.snap_in("p", ["restore", "main", "--overwrite"]);
    assert_eq!((refused.code, env.read("p/a")), (Some(1), "undone".to_owned()), "{refused}");
}

#[test]
fn a_named_file_is_overwritten_and_a_folder_or_a_pattern_asks() {
    let env = env();
    env.write("p/a", "edited");
    let edited = |path: &str| env.read(&format!("p/{path}")) == "edited";
    for args in [
        &["HEAD:sub"][..],
        &["HEAD", "--include", "b"],
        &["HEAD", "--include", "/sub"],
        &["HEAD", "."],
        &["HEAD", "--", "sub"],
        // The file comes before the folder, and is not written either.
        &["HEAD", "--", "a", "sub"],
    ] {
        let refused = env.snap_in("p", [&["restore", "--overwrite"], args].concat());
        assert_eq!(refused.code, Some(1), "{args:?}: {refused}");
        assert!(edited("a") && edited("sub/b"), "{args:?}");
    }
    for args in [&["HEAD:sub/b"][..], &["HEAD", "--", "sub/b", "sub/c"], &["HEAD~1", "--", "sub/b"]]
    {
        env.write("p/sub/b", "edited");
        env.snap_in("p", [&["restore", "--overwrite"], args].concat()).succeeds();
        assert!(!edited("sub/b"), "{args:?}");
    }
    env.write("p/sub/b", "edited");
    let yes = ["restore", "HEAD", "--overwrite", "--yes", "--", "a", "sub"];
    env.snap_in("p", yes).succeeds();
    assert!(!edited("a") && !edited("sub/b"));
}

#[test]
fn another_folder_needs_no_answer() {
    let env = env();
    env.snap_in("p", ["restore", "-q", "HEAD", "../out"]).succeeds();
    env.write("out/a", "edited");
    env.snap_in("p", ["restore", "-q", "HEAD", "../out", "--overwrite"]).succeeds();
    assert_eq!(env.read("out/a"), "second a");
    env.snap(["--store", "p/.snap", "restore", "-q", "HEAD~1", "out", "--overwrite"]).succeeds();
    assert_eq!(env.read("out/a"), "first a");
}

#[test]
fn an_edit_in_the_place_of_another_kind_asks() {
    let env = TestEnv::new();
    env.write("p/folder/f", "1");
    std::os::unix::fs::symlink("old", env.path("p/link")).unwrap();
    env.snap_in("p", ["commit", "-q"]).succeeds();
    let refused = || {
        let ran = env.snap_in("p", ["restore", "HEAD", "--overwrite"]);
        assert_eq!(ran.code, Some(1), "{ran}");
        ran.stderr
    };
    fs_err::remove_file(env.path("p/link")).unwrap();
    std::os::unix::fs::symlink("new", env.path("p/link")).unwrap();
    assert!(refused().contains("`link` is in no commit"));
    fs_err::remove_file(env.path("p/link")).unwrap();
    env.write("p/link", "a file now");
    assert!(refused().contains("`link` is in no commit"));
    fs_err::remove_file(env.path("p/link")).unwrap();
    fs_err::remove_dir_all(env.path("p/folder")).unwrap();
    env.write("p/folder", "a file now");
    assert!(refused().contains("`folder` is in no commit"));
    env.snap_in("p", ["restore", "HEAD", "--overwrite", "--yes"]).succeeds();
    assert_eq!(env.read("p/folder/f"), "1");
}

#[test]
fn what_the_remote_of_a_partial_clone_has_needs_no_answer() {
    let env = env();
    env.snap_in("p", ["restore", "-q", "HEAD", "--overwrite", "--yes"]).succeeds();
    env.snap(["clone", "-q", "--depth", "1", "p", "shallow"]).succeeds();
    env.write("shallow/a", "first a");
    env.snap_in("shallow", ["restore", "HEAD", "--overwrite"]).succeeds();
    assert_eq!(env.read("shallow/a"), "second a");
    env.write("shallow/a", "edited");
    let refused = env.snap_in("shallow", ["restore", "HEAD", "--overwrite"]);
    assert_eq!((refused.code, env.read("shallow/a")), (Some(1), "edited".to_owned()), "{refused}");
}

#[test]
fn a_damaged_tree_does_not_hide_an_edit() {
    let env = env();
    env.write("p/a", "edited");
    // The newest pack has the trees of the last commit.
    let tree = env.snap_in("p", ["show", "HEAD:sub"]).succeeds().stdout;
    assert!(tree.contains("Tree:"), "{tree}");
    let packs = fs_err::read_dir(env.path("p/.snap/objects")).unwrap();
    let newest = packs.map(|pack| pack.unwrap().path());
    let newest = newest.max_by_key(|path| fs_err::metadata(path).unwrap().modified().unwrap());
    let newest = newest.unwrap();
    let mut bytes = fs_err::read(&newest).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    fs_err::write(&newest, bytes).unwrap();
    let ran = env.snap_in("p", ["restore", "HEAD", "--overwrite"]);
    assert_ne!(ran.code, Some(0), "{ran}");
    assert_eq!(env.read("p/a"), "edited", "{ran}");
}

#[test]
fn on_a_terminal_the_answer_decides() {
    let env = env();
    let line = "snap restore HEAD --overwrite";
    let Some((code, said)) = answered(&env, "p", line, "n\n") else { return };
    assert_eq!((code, env.read("p/sub/b")), (Some(1), "edited".to_owned()), "{said}");
    assert!(said.contains("1 file that no commit contains would be lost:"), "{said}");
    assert!(said.contains("sub/b") && said.contains("Delete or overwrite them? [y/N]"), "{said}");
    let (code, said) = answered(&env, "p", line, "y\n").unwrap();
    assert_eq!((code, env.read("p/sub/b")), (Some(0), "second sub/b".to_owned()), "{said}");
}
