//! `snap ls`, and `snap show` of an entry.

use crate::env::TestEnv;

fn env() -> TestEnv {
    let env = TestEnv::new();
    env.write("a", "12345");
    env.write("sub/deep/b", "1");
    env.write("sub/c\nd", "");
    env.write("sub.txt", "");
    std::os::unix::fs::symlink("sub/c", env.path("link")).unwrap();
    env.mode("a", 0o4755);
    env.mode("", 0o755);
    env.snap(["commit", "--reproducible"]).succeeds();
    env
}

#[test]
fn a_folder_is_listed_or_all_below_it() {
    let env = env();
    insta::assert_snapshot!(env.snap(["ls"]), @r"
    exit: 0
    --- stdout ---
    a
    link
    sub/
    sub.txt
    ");
    insta::assert_snapshot!(env.snap(["ls", "-R", "HEAD:sub"]), @r"
    exit: 0
    --- stdout ---
    c
    d
    deep/
    deep/b
    ");
    insta::assert_snapshot!(env.snap(["ls", "-lR"]), @r"
    exit: 0
    --- stdout ---
    -rwsr-xr-x -        -               5 B -                          a
    lrwxrwxrwx -        -                 - -                          link -> sub/c
    drwxr-xr-x -        -                 - -                          sub/
    -rw-r--r-- -        -               0 B -                          sub/c
    d
    drwxr-xr-x -        -                 - -                          sub/deep/
    -rw-r--r-- -        -               1 B -                          sub/deep/b
    -rw-r--r-- -        -               0 B -                          sub.txt
    ");
    insta::assert_snapshot!(env.snap(["ls", "HEAD:sub/deep/b"]), @r"
    exit: 0
    --- stdout ---
    b
    ");
}

#[test]
fn json_has_whole_paths() {
    let env = env();
    insta::assert_snapshot!(env.snap(["ls", "-R", "HEAD:sub", "--json"]), @r#"
    exit: 0
    --- stdout ---
    {"version":1,"type":"entry","path":"sub/c\nd","kind":"file","mode":"0644","size":0,"id":"[ID]"}
    {"version":1,"type":"entry","path":"sub/deep","kind":"folder","mode":"0755","size":null,"id":"[ID]"}
    {"version":1,"type":"entry","path":"sub/deep/b","kind":"file","mode":"0644","size":1,"id":"[ID]"}
    "#);
}

#[test]
fn an_entry_is_shown_with_all_it_says() {
    let env = env();
    insta::assert_snapshot!(env.snap(["show", "HEAD:a"]), @r"
    exit: 0
    --- stdout ---
    file a
    Content: [ID]
    Size:    5 B (5 bytes)
    Mode:    -rwsr-xr-x (4755)
    ");
    insta::assert_snapshot!(env.snap(["show", "HEAD:link"]), @r"
    exit: 0
    --- stdout ---
    symlink link
    Target:  sub/c
    Mode:    lrwxrwxrwx (0777)
    ");
}

#[test]
fn show_id_prints_one_full_id_and_nothing_else() {
    let env = env();
    let id = |what: &[&str]| {
        let ran = env.snap([&["show", "--id"], what].concat()).succeeds();
        assert_eq!(ran.stderr, "", "{what:?}");
        ran.line().to_owned()
    };
    let commit = env.snap(["show", "--json"]).json().remove(0);
    for what in [&[][..], &["HEAD"], &["main"], &["-q"]] {
        assert_eq!(id(what), commit["id"], "{what:?}");
    }
    assert_eq!(id(&["HEAD:"]), commit["tree"], "the tree of the commit");
    assert_eq!(env.snap(["cat", &id(&["HEAD:a"])]).stdout, "12345");
    let folder = env.snap(["show", "HEAD:sub", "--json"]).json().remove(0);
    assert_eq!(id(&["HEAD:sub"]), folder["id"]);
    env.snap(["pack", "-q", "HEAD", "-o", "b.snap"]).succeeds();
    assert_eq!(id(&["b.snap"]), commit["id"]);
    assert_eq!(id(&["b.snap:sub"]), folder["id"]);
    insta::assert_snapshot!(env.snap(["show", "--id", "HEAD:link"]), @r"
    exit: 1
    --- stderr ---
    error: `link` is a symlink, which has no id
    ");
}

#[test]
fn what_is_not_in_the_snapshot_is_named() {
    let env = env();
    insta::assert_snapshot!(env.snap(["ls", "HEAD:sub/none/b"]), @"
    exit: 1
    --- stderr ---
    error: `sub/none` does not exist in `HEAD`
    hint: `snap ls -R HEAD` lists its files and folders
    ");
    insta::assert_snapshot!(env.snap(["ls", "HEAD:a/b"]), @r"
    exit: 1
    --- stderr ---
    error: `a` is a file, not a folder
    ");
    insta::assert_snapshot!(env.snap(["ls", "HEAD:sub/../a"]), @r"
    exit: 2
    --- stderr ---
    error: `sub/../a` contains `..`
    ");
}
