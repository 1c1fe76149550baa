//! `snap diff`: between two snapshots, and between a snapshot and the current files.

use std::{os::unix::fs::symlink, process::Stdio};

use crate::env::TestEnv;

/// A user without privileges, for tests that run as root.
const NOBODY: u32 = 65_534;

/// Makes a commit, and then one change of each kind in its folder.
fn env() -> TestEnv {
    let env = TestEnv::new();
    env.write("notes.txt", "one\ntwo\nthree\n");
    env.write("run.sh", "#!/bin/sh\n");
    env.write("image", b"a\0b");
    env.write("old name", "the same content\n");
    env.write("gone/deep/file", "bye\n");
    symlink("notes.txt", env.path("link")).unwrap();
    env.snap(["commit", "-q"]).succeeds();
    env.write("notes.txt", "one\n2\nthree\nfour");
    env.mode("run.sh", 0o755);
    env.write("image", b"a\0bc");
    fs_err::rename(env.path("old name"), env.path("new name")).unwrap();
    fs_err::remove_dir_all(env.path("gone")).unwrap();
    fs_err::remove_file(env.path("link")).unwrap();
    symlink("run.sh", env.path("link")).unwrap();
    env.write("fresh/file", "hello\n");
    fs_err::create_dir(env.path("empty")).unwrap();
    env.mode("empty", 0o755);
    env
}

#[test]
fn the_last_commit_is_compared_with_what_is_there() {
    insta::assert_snapshot!(env().snap(["diff"]), @r#"
    exit: 0
    --- stdout ---
    added folder empty
    diff --git a/fresh/file b/fresh/file
    new file mode 100644
    index [SHORT ID]..[SHORT ID]
    --- /dev/null
    +++ b/fresh/file
    @@ -0,0 +1 @@
    +hello
    diff --git a/gone/deep/file b/gone/deep/file
    deleted file mode 100644
    index [SHORT ID]..[SHORT ID]
    --- a/gone/deep/file
    +++ /dev/null
    @@ -1 +0,0 @@
    -bye
    diff --git a/image b/image
    index [SHORT ID]..[SHORT ID] 100644
    Binary files a/image and b/image differ
    diff --git a/link b/link
    index [SHORT ID]..[SHORT ID] 120000
    --- a/link
    +++ b/link
    @@ -1 +1 @@
    -notes.txt
    \ No newline at end of file
    +run.sh
    \ No newline at end of file
    diff --git "a/old name" "b/new name"
    similarity index 100%
    rename from "old name"
    rename to "new name"
    diff --git a/notes.txt b/notes.txt
    index [SHORT ID]..[SHORT ID] 100644
    --- a/notes.txt
    +++ b/notes.txt
    @@ -1,3 +1,4 @@
     one
    -two
    +2
     three
    +four
    \ No newline at end of file
    diff --git a/run.sh b/run.sh
    old mode 100644
    new mode 100755
    "#);
}

#[test]
fn a_line_for_each_file_sums_up() {
    let env = env();
    insta::assert_snapshot!(env.snap(["diff", "--stat"]), @"
    exit: 0
    --- stdout ---
     empty/               | added folder
     fresh/file           |   1 +
     gone/deep/file       |   1 -
     image                | Bin 3 B -> 4 B
     link                 |   2 +-
     old name => new name |   0
     notes.txt            |   3 ++-
     run.sh               | mode 0644 => 0755
     8 files changed, 4 insertions(+), 3 deletions(-)
    ");
    insta::assert_snapshot!(env.snap(["diff", "--name-status"]), @r"
    exit: 0
    --- stdout ---
    A	empty/
    A	fresh/file
    D	gone/deep/file
    M	image
    M	link
    R	old name	new name
    M	notes.txt
    M	run.sh
    ");
    let names = env.snap(["diff", "--name-only", "-z"]).succeeds().stdout;
    assert!(names.starts_with("empty/\0fresh/file\0"), "{names}");
}

#[test]
fn two_commits_differ_as_the_folder_did() {
    let env = env();
    let forms = [&["diff"][..], &["diff", "--stat"], &["diff", "--name-status"]];
    let before = forms.map(|form| env.snap(form).succeeds().stdout);
    env.snap(["commit", "-q"]).succeeds();
    for (form, before) in forms.iter().zip(before) {
        let between = [form, &["HEAD~1", "HEAD"][..]].concat();
        assert_eq!(env.snap(between).succeeds().stdout, before);
        assert_eq!(env.snap(*form).succeeds().stdout, "");
        assert_eq!(env.snap([form, &["HEAD~1"][..]].concat()).succeeds().stdout, before);
    }
    assert_eq!(env.snap(["diff", "--exit-code"]).code, Some(0));
    assert_eq!(env.snap(["diff", "--exit-code", "--name-only", "HEAD~1"]).code, Some(1));
    // In the reverse direction, all changes are reversed.
    let back = env.snap(["diff", "--name-status", "HEAD", "HEAD~1"]).succeeds().stdout;
    assert!(
        back.contains("R\tnew name\told name\n") && back.contains("A\tgone/deep/file\n"),
        "{back}"
    );
}

#[test]
fn records_say_what_both_sides_are() {
    let env = env();
    let records = env.snap(["--json", "diff", "--stat"]).succeeds().json();
    let (summary, changes) = records.split_last().unwrap();
    let named = |path: &str| changes.iter().find(|change| change["path"] == path).unwrap();
    assert!(records.iter().all(|record| record["version"] == 1));
    let notes = named("notes.txt");
    assert_eq!(
        (&notes["status"], &notes["differences"]),
        (&"modified".into(), &["content"][..].into())
    );
    assert_eq!((&notes["lines_added"], &notes["lines_deleted"]), (&2.into(), &1.into()));
    assert_eq!((&notes["old"]["size"], &notes["new"]["size"]), (&14.into(), &16.into()));
    assert_eq!(named("image")["binary"], true);
    assert_eq!(named("new name")["old_path"], "old name");
    assert_eq!(named("run.sh")["differences"], serde_json::json!(["mode"]));
    assert_eq!(named("link")["new"]["target"], "run.sh");
    assert_eq!(
        (&named("gone")["old"]["kind"], &named("gone")["new"]),
        (&"folder".into(), &().into())
    );
    insta::assert_snapshot!(summary, @r#"{"version":1,"type":"summary","added":1,"deleted":1,"ignored":0,"modified":3,"metadata":1,"typechange":0,"renamed":1,"folders_added":2,"folders_deleted":2,"folders_ignored":0,"bytes_added":9,"bytes_deleted":4,"skipped":0,"lines_added":4,"lines_deleted":3}"#);
}

#[test]
fn paths_limit_what_is_compared() {
    let env = env();
    let names = |dir: &str, args: &[&str]| {
        env.snap_in(dir, [&["diff", "--name-only"], args].concat()).succeeds().stdout
    };
    assert_eq!(names("", &["--", "fresh", "gone"]), "fresh/file\ngone/deep/file\n");
    assert_eq!(names("", &["HEAD:gone"]), "gone/deep/file\n");
    // Paths also work without `--` if they are not revisions, and from a subfolder.
    assert_eq!(names("", &["fresh"]), "fresh/file\n");
    assert_eq!(names("fresh", &["--", "file", "../gone"]), "fresh/file\ngone/deep/file\n");
    assert_eq!(names("fresh", &["--", env.path("run.sh").to_str().unwrap()]), "run.sh\n");
    insta::assert_snapshot!(env.snap(["diff", "--", "nowhere"]), @r"
    exit: 1
    --- stderr ---
    error: `nowhere` does not exist on either side
    hint: paths are relative to the current folder
    ");
    insta::assert_snapshot!(env.snap(["diff", "--", "../other"]), @"
    exit: 2
    --- stderr ---
    error: `../other` is not in the folder that is compared
    hint: pass a path in it
    hint: pass another folder with `--folder FOLDER`
    ");
    insta::assert_snapshot!(env.snap(["diff", "HEAD", "HEAD", "HEAD"]), @r"
    exit: 2
    --- stderr ---
    error: at most two commits can be compared
    ");
    insta::assert_snapshot!(env.snap(["diff", "HEAD", "HEAD", "--exclude", "*"]), @r"
    exit: 2
    --- stderr ---
    error: exclude options do not apply to two commits; pass paths instead
    ");
    insta::assert_snapshot!(env.snap(["diff", "HEAD", "HEAD", "--folder", "."]), @r"
    exit: 2
    --- stderr ---
    error: --folder cannot be used with two commits
    ");
    insta::assert_snapshot!(env.snap(["diff", "HEAD", "--", "a", "--stat"]), @r"
    exit: 1
    --- stderr ---
    error: `a` does not exist on either side
    hint: paths are relative to the current folder
    ");
    insta::assert_snapshot!(env.snap(["diff", "HEAD:run.sh", "--", "a"]), @r"
    exit: 2
    --- stderr ---
    error: REV:PATH cannot be combined with further paths
    ");
    insta::assert_snapshot!(env.snap(["diff", "HEAD:nowhere"]), @"
    exit: 1
    --- stderr ---
    error: `nowhere` does not exist in `HEAD`
    hint: `snap ls -R HEAD` lists its files and folders
    ");
}

#[test]
fn folders_and_files_inside_snapshots_are_compared_with_each_other() {
    let env = TestEnv::new();
    env.write("a/x", "1\n");
    env.write("a/same", "same\n");
    env.write("b/x", "2\n");
    env.write("b/same", "same\n");
    env.snap(["commit", "-q"]).succeeds();
    env.write("a/x", "3\n");
    env.snap(["commit", "-q"]).succeeds();
    insta::assert_snapshot!(env.snap(["diff", "--name-status", "HEAD~1:a", "HEAD:a"]), @r"
    exit: 0
    --- stdout ---
    M	a/x
    ");
    insta::assert_snapshot!(env.snap(["diff", "--name-status", "HEAD:a", "HEAD:b"]), @r"
    exit: 0
    --- stdout ---
    M	x
    ");
    insta::assert_snapshot!(env.snap(["diff", "HEAD:a/x", "HEAD:b/x"]), @r"
    exit: 0
    --- stdout ---
    diff --git a/a/x b/b/x
    rename from a/x
    rename to b/x
    index [SHORT ID]..[SHORT ID] 100644
    --- a/a/x
    +++ b/b/x
    @@ -1 +1 @@
    -3
    +2
    ");
    insta::assert_snapshot!(env.snap(["diff", "HEAD:a", "HEAD:b/x"]), @r"
    exit: 2
    --- stderr ---
    error: a folder cannot be compared with a file
    ");
}

#[test]
fn times_and_links_count_only_for_those_who_ask() {
    let env = TestEnv::new();
    env.write("file", "content");
    env.snap(["commit", "-q"]).succeeds();
    let touched = fs_err::File::options().write(true).open(env.path("file")).unwrap();
    let then = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    touched.file().set_modified(then).unwrap();
    fs_err::hard_link(env.path("file"), env.path("another")).unwrap();
    assert_eq!(env.snap(["diff", "--name-status"]).succeeds().stdout, "A\tanother\n");
    let told = env.snap(["diff", "--metadata", "--stat"]).succeeds().stdout;
    assert!(
        told.contains("mtime ") && told.contains(" => 2001-09-09T01:46:40Z, link (none) => "),
        "{told}"
    );
}

#[test]
fn a_reproducible_commit_is_compared_by_what_it_keeps() {
    let env = env();
    env.snap(["commit", "-q", "--reproducible"]).succeeds();
    assert_eq!(env.snap(["diff", "--exit-code", "--metadata"]).succeeds().stdout, "");
}

#[test]
fn large_and_odd_contents_are_said_to_differ() {
    let env = TestEnv::new();
    env.write("large", "x\n".repeat(5 << 20));
    env.write("latin", b"caf\xe9\n");
    env.write("no end", "a");
    env.snap(["commit", "-q"]).succeeds();
    env.write("large", "y\n".repeat(5 << 20));
    env.write("latin", b"caf\xe8\n");
    env.write("no end", "a\n");
    insta::assert_snapshot!(env.snap(["diff"]), @r#"
    exit: 0
    --- stdout ---
    diff --git a/large b/large
    Large files a/large and b/large differ
    diff --git a/latin b/latin
    index [SHORT ID]..[SHORT ID] 100644
    --- a/latin
    +++ b/latin
    @@ -1 +1 @@
    -caf�
    +caf�
    diff --git "a/no end" "b/no end"
    index [SHORT ID]..[SHORT ID] 100644
    --- "a/no end"
    +++ "b/no end"
    @@ -1 +1 @@
    -a
    \ No newline at end of file
    +a
    --- stderr ---
    hint: `snap diff --text-limit SIZE` also compares larger files by lines
    "#);
    insta::assert_snapshot!(env.snap(["diff", "--stat"]), @"
    exit: 0
    --- stdout ---
     large  | Bin 10.0 MiB -> 10.0 MiB
     latin  |   2 +-
     no end |   2 +-
     3 files changed, 2 insertions(+), 2 deletions(-)
    --- stderr ---
    hint: `snap diff --text-limit SIZE` also compares larger files by lines
    ");
}

#[test]
fn lines_around_changes_are_as_many_as_wanted() {
    let env = TestEnv::new();
    let lines = |change: &[u32]| {
        let line =
            |n| if change.contains(&n) { format!("line {n}!\n") } else { format!("line {n}\n") };
        (0..30).map(line).collect::<String>()
    };
    env.write("file", lines(&[]));
    env.snap(["commit", "-q"]).succeeds();
    env.write("file", lines(&[5, 20]));
    insta::assert_snapshot!(env.snap(["diff", "-U", "1"]), @r"
    exit: 0
    --- stdout ---
    diff --git a/file b/file
    index [SHORT ID]..[SHORT ID] 100644
    --- a/file
    +++ b/file
    @@ -5,3 +5,3 @@
     line 4
    -line 5
    +line 5!
     line 6
    @@ -20,3 +20,3 @@
     line 19
    -line 20
    +line 20!
     line 21
    ");
    let none = env.snap(["diff", "-U0"]).succeeds().stdout;
    assert_eq!(none.matches("\n@@").count(), 2, "{none}");
    let all = env.snap(["diff", "-U", "100"]).succeeds().stdout;
    assert_eq!(all.matches("\n@@").count(), 1, "{all}");
}

#[test]
fn hostile_names_cannot_steer_a_terminal_nor_lead_patch_astray() {
    let env = TestEnv::new();
    let name = |bytes: &[u8]| {
        env.path(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes))
    };
    env.snap(["init"]).succeeds();
    fs_err::write(name(b"a\nb\x1b[31m\xff"), "x\n").unwrap();
    let diff = env.snap(["diff"]).succeeds().stdout;
    assert!(diff.contains(r#"diff --git "a/a\nb\033[31m\377" "b/a\nb\033[31m\377""#), "{diff}");
    let record = &env.snap(["--json", "diff"]).succeeds().json()[0];
    assert_eq!(record["path_hex"], "610a621b5b33316dff");
}

#[test]
fn colours_are_those_of_git() {
    let env = env();
    let painted = env.snap(["--color", "always", "diff", "--", "notes.txt"]).succeeds().stdout;
    for part in ["\x1b[1mdiff --git", "\x1b[36m@@ -1,3 +1,4 @@", "\x1b[31m-two", "\x1b[32m+four"] {
        assert!(painted.contains(part), "{painted}");
    }
}

#[test]
fn a_store_without_a_commit_and_a_reader_that_goes_away() {
    let env = TestEnv::new();
    env.snap(["init"]).succeeds();
    assert_eq!(env.snap(["diff"]).succeeds().stdout, "");
    env.write("many", "line\n".repeat(100_000));
    let mut diff = env.command("").arg("diff").stdout(Stdio::piped()).spawn().unwrap();
    drop(diff.stdout.take());
    assert!(diff.wait().unwrap().success());
    insta::assert_snapshot!(env.snap(["diff", "HEAD"]), @r"
    exit: 1
    --- stderr ---
    error: branch `main` has no commit yet
    hint: `snap commit` creates the first one
    ");
    insta::assert_snapshot!(env.snap(["diff", "-z"]), @r"
    exit: 2
    --- stderr ---
    error: -z needs --name-only or --name-status
    ");
}

#[test]
fn a_damaged_content_is_named_with_its_path() {
    let env = TestEnv::new();
    env.write("gone/deep/file", "bye\n");
    env.snap(["commit", "-q"]).succeeds();
    fs_err::remove_dir_all(env.path("gone")).unwrap();
    for pack in fs_err::read_dir(env.path(".snap/objects")).unwrap() {
        let path = pack.unwrap().path();
        let mut bytes = fs_err::read(&path).unwrap();
        // The first frame holds the content.
        bytes[17] ^= 1;
        fs_err::write(path, bytes).unwrap();
    }
    assert_eq!(env.snap(["status"]).code, Some(0));
    let said = env.snap(["diff", "--stat"]);
    assert_eq!(said.code, Some(4), "{said}");
    assert!(said.stderr.contains("error: cannot compare `gone/deep/file`\n"), "{said}");
    assert!(said.stderr.contains("hint: `snap verify --data`"), "{said}");
}

#[test]
fn what_cannot_be_read_is_left_out_and_told() {
    let env = TestEnv::new();
    env.write("file", "before");
    env.snap(["commit", "-q"]).succeeds();
    env.write("file", "after that");
    env.write("other", "x");
    env.mode("file", 0);
    let mut command = env.command("");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(env.path("file"), Some(NOBODY), Some(NOBODY)).unwrap();
        env.open_to_all("");
        std::os::unix::process::CommandExt::uid(&mut command, NOBODY);
    }
    let output = command.args(["diff", "--stat"]).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("skipped `file`: Permission denied"), "{stderr}");
    assert!(stderr.contains("warning: 1 entry could not be read and compared"), "{stderr}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("other | 1 +"));
}

#[test]
fn a_range_as_in_git_is_two_commits() {
    let env = TestEnv::new();
    for content in ["1\n", "2\n"] {
        env.write("file", content);
        env.snap(["commit", "-q"]).succeeds();
    }
    env.write("file", "3\n");
    let two = env.snap(["diff", "HEAD~1", "HEAD"]).succeeds().stdout;
    assert!(two.contains("-1\n+2\n"), "{two}");
    assert_eq!(env.snap(["diff", "HEAD~1..HEAD"]).succeeds().stdout, two);
    assert_eq!(env.snap(["diff", "HEAD~1..", "--", "file"]).succeeds().stdout, two);
    insta::assert_snapshot!(env.snap(["diff", "HEAD~1...HEAD"]), @"
    exit: 2
    --- stderr ---
    error: A...B is not supported; use A..B
    ");
}

#[test]
fn a_higher_limit_compares_large_files_by_lines() {
    let env = TestEnv::new();
    let lines: String = (0..1_200_000).map(|number| format!("{number}\n")).collect();
    env.write("table.csv", &lines);
    env.snap(["commit"]).succeeds();
    env.write("table.csv", lines.replacen("600000\n", "changed\n", 1));
    let without = env.snap(["diff"]).succeeds();
    assert!(without.stdout.contains("Large files a/table.csv and b/table.csv differ"), "{without}");
    let hint = "hint: `snap diff --text-limit SIZE` also compares larger files by lines\n";
    assert_eq!(without.stderr, hint);
    let ran = env.snap(["diff", "--text-limit", "16MiB", "-U0"]).succeeds();
    assert!(ran.stdout.ends_with("@@ -600001 +600001 @@\n-600000\n+changed\n"), "{ran}");
    assert_eq!(ran.stderr, "");
    assert_eq!(env.snap(["diff", "--text-limit", "much"]).code, Some(2));
}
