//! `snap commit`.

use std::{io::Write, os::fd::AsRawFd, process::Stdio};

use snap_testkit::{
    mounts::{in_own_mounts, tool},
    skip::skip,
};

use crate::env::TestEnv;

#[test]
fn the_first_commit_makes_the_store_and_says_so() {
    let env = TestEnv::new();
    env.write("home/notes.txt", "first");
    env.write("home/sub/more.txt", "more");
    insta::assert_snapshot!(env.snap_in("home", ["commit", "-m", "start"]), @"
    exit: 0
    --- stdout ---
    [ID]
    --- stderr ---
    Created a store at .snap
    Committed 2 files, 9 B: 2 added, 0 modified, 0 unmodified
    Read [SIZE], added [SIZE], stored [SIZE] in [TIME]
    ");
    assert!(env.path("home/.snap/config.toml").is_file());
    assert!(!env.path(".snap").exists());
}

#[test]
fn stdout_is_the_id_and_nothing_else() {
    let env = TestEnv::new();
    env.write("a", "1");
    let first = env.snap(["commit"]).succeeds();
    assert_eq!(first.line().len(), 64);
    let again = env.snap(["commit"]);
    assert_eq!(again.line(), first.line());
    insta::assert_snapshot!(again, @r"
    exit: 0
    --- stdout ---
    [ID]
    --- stderr ---
    Nothing changed since 2026-11-21 08:00:00 +00:00, checked in [TIME]
    ");
    let empty = env.snap(["commit", "--allow-empty"]).succeeds();
    assert_ne!(empty.line(), first.line());
}

#[test]
fn the_project_is_committed_from_wherever_in_it_one_is() {
    let env = TestEnv::new();
    env.write("a", "1");
    env.write("deep/down/b", "2");
    env.snap(["init"]).succeeds();
    env.snap_in("deep/down", ["commit"]).succeeds();
    assert_eq!(env.snap(["ls", "-R"]).succeeds().stdout, "a\ndeep/\ndeep/down/\ndeep/down/b\n");
}

#[test]
fn an_ignore_file_that_is_a_link_or_a_pipe_is_named_with_exit_code_3() {
    let env = TestEnv::new();
    env.write("rules", "*.key\n");
    env.write("work/a.key", "secret");
    let ignore = env.path("work/.snapignore");
    std::os::unix::fs::symlink("../rules", &ignore).unwrap();
    let linked = env.snap_in("work", ["commit", "-q"]);
    assert_eq!(linked.code, Some(3), "{}", linked.stderr);
    assert!(linked.stderr.contains(".snapignore`: only regular files are read as ignore files"));
    fs_err::remove_file(&ignore).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &ignore, mode).unwrap();
    assert_eq!(env.snap_in("work", ["commit", "-q"]).code, Some(3));
    fs_err::remove_file(&ignore).unwrap();
    env.write("work/.snapignore", "*.key\n");
    env.snap_in("work", ["commit", "-q"]).succeeds();
}

#[test]
fn several_paths_stand_under_their_own_names() {
    let env = TestEnv::new();
    env.write("a/x", "1");
    env.write("b/c/y", "2");
    env.write("b/z", "3");
    env.snap(["commit", "./a", "b/c"]).succeeds();
    assert_eq!(env.snap(["ls", "-R"]).succeeds().stdout, "a/\na/x\nb/\nb/c/\nb/c/y\n");
    env.snap(["commit", "b/z", "--replace"]).succeeds();
    assert_eq!(env.snap(["ls", "-R"]).succeeds().stdout, "b/\nb/z\n");
    insta::assert_snapshot!(env.snap(["commit", "a", "a/x"]), @r"
    exit: 2
    --- stderr ---
    error: a and a/x have the same path in the snapshot
    hint: name each file and folder once
    ");
    env.snap(["--store", "s", "init"]).succeeds();
    env.snap_in("a", ["--store", "../s", "commit", "x", "../b"]).succeeds();
    let listed = env.snap(["--store", "s", "ls", "-R"]).succeeds().stdout;
    assert!(listed.contains("/a/x\n") && listed.contains("/b/c/y\n"), "{listed}");
}

#[test]
fn a_stream_becomes_a_file() {
    let env = TestEnv::new();
    let mut child = env
        .command("")
        .args(["commit", "--stdin", "dump.sql"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"select 1").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(env.snap(["cat", "HEAD:dump.sql"]).succeeds().stdout, "select 1");
    insta::assert_snapshot!(env.snap(["commit", "--stdin", "a/b"]), @"
    exit: 2
    --- stderr ---
    error: --stdin requires the name of a file, without folders
      caused by: an entry name contains a slash
    ");
}

#[test]
fn a_stream_does_not_replace_a_folder() {
    let env = TestEnv::new();
    env.write("src/main.rs", "fn main() {}");
    env.snap(["commit"]).succeeds();
    insta::assert_snapshot!(env.snap(["commit", "--stdin", "src"]), @"
    exit: 2
    --- stderr ---
    error: the stream would replace src, a folder in the last commit
    hint: pass another name with `--stdin NAME`
    hint: `-b NAME` commits to a new branch
    ");
    env.snap(["commit", "--stdin", "src", "-b", "dump", "--allow-empty-stream"]).succeeds();
    assert_eq!(env.snap(["cat", "main:src/main.rs"]).succeeds().stdout, "fn main() {}");
}

#[test]
fn json_has_all_that_a_commit_says() {
    let env = TestEnv::new();
    env.write("a", "1");
    let made = env.snap(["commit", "--json", "-m", "one", "--label", "k=v", "--label", "a=b"]);
    let made = &made.succeeds().json()[0];
    for key in ["id", "tree", "parents", "time", "author", "host", "message", "labels"] {
        assert!(made.get(key).is_some(), "{key} is missing in {made}");
    }
    assert_eq!(made["time"], crate::env::NOW);
    assert_eq!((&made["author"], &made["host"]), (&"ann".into(), &"box".into()));
    assert_eq!(made["labels"].to_string(), r#"{"a":"b","k":"v"}"#);
    assert_eq!((&made["created"], &made["files_added"]), (&true.into(), &1.into()));
    assert_eq!(env.snap(["--json", "log"]).succeeds().json()[0]["id"], made["id"]);
}

#[test]
fn a_reproducible_tree_depends_on_content_alone() {
    let env = TestEnv::new();
    for folder in ["one", "two"] {
        env.write(&format!("{folder}/a"), "same");
        env.write(&format!("{folder}/b/c"), "same, too");
    }
    let tree = |folder: &str| {
        let made = env.snap_in(folder, ["commit", "--reproducible", "--json"]).succeeds();
        made.json()[0]["tree"].as_str().unwrap().to_owned()
    };
    assert_eq!(tree("one"), tree("two"));
}

#[test]
fn what_is_excluded_is_left_out() {
    let env = TestEnv::new();
    for path in ["a.o", "b.c", "cache/x", "big", "skip/y", ".git/z"] {
        env.write(path, if path == "big" { "x".repeat(5000) } else { "x".into() });
    }
    env.write("cache/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n");
    env.write("patterns", "/skip\n# a comment\n/patterns\n");
    let args = ["--exclude", "*.o", "--exclude-from", "patterns", "--exclude-caches"];
    let args = args.iter().chain(&["--exclude-larger-than", "4KiB"]);
    env.snap(["commit"].iter().chain(args)).succeeds();
    let listed = env.snap(["ls", "-R"]).succeeds().stdout;
    assert_eq!(listed, "b.c\ncache/\ncache/CACHEDIR.TAG\n");
}

#[test]
fn a_branch_is_made_and_head_stays() {
    let env = TestEnv::new();
    env.write("a", "1");
    env.snap(["commit", "-b", "first"]).succeeds();
    assert_eq!(env.read(".snap/HEAD"), "ref: refs/heads/first\n");
    env.write("a", "22");
    env.snap(["commit", "-b", "second"]).succeeds();
    assert_eq!(env.read(".snap/HEAD"), "ref: refs/heads/first\n");
    assert_eq!(env.snap(["cat", "HEAD:a"]).stdout, "1");
    assert_eq!(env.snap(["cat", "second:a"]).stdout, "22");
}

#[test]
fn options_that_make_no_sense_are_usage_errors() {
    let env = TestEnv::new();
    env.snap(["init"]).succeeds();
    insta::assert_snapshot!(env.snap(["commit", "--label", "novalue"]), @r"
    exit: 2
    --- stderr ---
    error: invalid value 'novalue' for '--label <KEY=VALUE>': expected KEY=VALUE

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(env.snap(["commit", "--label", "a=1", "--label", "a=2"]), @r"
    exit: 2
    --- stderr ---
    error: label `a` is given twice
    ");
    insta::assert_snapshot!(env.snap(["commit", "-b", "a..b"]), @"
    exit: 2
    --- stderr ---
    error: `a..b` is not a valid name of a branch: it contains `..` or ends with a dot
    ");
    insta::assert_snapshot!(env.snap(["commit", "--time", "soon"]), @r"
    exit: 2
    --- stderr ---
    error: --time: `soon` is not a time such as 2026-11-21T08:00:00Z
    ");
    insta::assert_snapshot!(env.snap(["commit", "--exclude-larger-than", "much"]), @r"
    exit: 2
    --- stderr ---
    error: invalid value 'much' for '--exclude-larger-than <SIZE>': expected a size such as 4096, 10MB or 1.5GiB

    For more information, try '--help'.
    ");
    insta::assert_snapshot!(env.snap(["commit", "--exclude-from", "nowhere"]), @r"
    exit: 1
    --- stderr ---
    error: cannot read nowhere
      caused by: No such file or directory (os error 2)
    ");
}

#[test]
fn what_is_not_there_cannot_be_committed() {
    let env = TestEnv::new();
    insta::assert_snapshot!(env.snap(["commit", "nowhere"]), @r"
    exit: 1
    --- stderr ---
    error: cannot read nowhere
      caused by: No such file or directory (os error 2)
    ");
    assert!(!env.path(".snap").exists());
    env.snap(["init"]).succeeds();
    insta::assert_snapshot!(env.snap(["commit", "nowhere"]), @r"
    exit: 1
    --- stderr ---
    error: cannot read nowhere
      caused by: No such file or directory (os error 2)
    ");
}

#[test]
fn quiet_prints_nothing_and_show_prints_the_id_later() {
    let env = TestEnv::new();
    env.write("a", "1");
    for args in [&["-q", "commit"][..], &["commit", "-q"], &["commit", "-q", "--allow-empty"]] {
        let ran = env.snap(args).succeeds();
        assert_eq!((&*ran.stdout, &*ran.stderr), ("", ""), "{args:?}");
    }
    let made = env.snap(["commit", "--allow-empty"]).succeeds();
    assert_eq!(env.snap(["show", "--id"]).line(), made.line());
    // A record that was asked for is printed.
    let made = env.snap(["commit", "-q", "--json", "--allow-empty"]).succeeds().json();
    assert_eq!(made[0]["id"], env.snap(["show", "--id"]).line());
    env.snap(["commit", "-q", "--json", "--dry-run"]).succeeds().json()[0]["id"].as_str().unwrap();
}

#[test]
fn a_reader_that_goes_away_changes_nothing() {
    let env = TestEnv::new();
    env.write("a", "1");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = env.command("").arg("commit").stdout(writer).output().unwrap();
    assert!(output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("Committed 1 file"), "{said}");
    assert!(!said.contains("error"), "{said}");
    assert_eq!(env.snap(["log", "--json"]).succeeds().json().len(), 1);
}

#[test]
fn a_dry_run_says_what_would_be_and_writes_nothing() {
    let env = TestEnv::new();
    env.write("home/a", "1");
    env.write("home/b", "1");
    env.write("home/c.o", "object");
    insta::assert_snapshot!(env.snap_in("home", ["commit", "--dry-run", "--exclude", "*.o"]), @"
    exit: 0
    --- stderr ---
    Would commit 2 files, 2 B: 2 added, 0 modified, 0 unmodified
    Read [SIZE], would add [SIZE]
    ");
    assert!(!env.path("home/.snap").exists());
    env.snap_in("home", ["commit"]).succeeds();
    env.write("home/a", "changed");
    env.write("home/d", "1");
    fs_err::remove_file(env.path("home/b")).unwrap();
    let before = listing(&env, "home/.snap");
    let ran = env.snap_in("home", ["commit", "--dry-run", "--json"]).succeeds();
    let record = &ran.json()[0];
    for (key, value) in [("added", 1), ("modified", 1), ("deleted", 1), ("unmodified", 1)] {
        assert_eq!(record[format!("files_{key}")], value, "{record}");
    }
    assert_eq!((&record["dry_run"], &record["created"]), (&true.into(), &true.into()));
    assert_eq!(listing(&env, "home/.snap"), before);
    // The real commit adds what the dry run reported, plus the commit object.
    let made = &env.snap_in("home", ["commit", "--json"]).succeeds().json()[0];
    let bytes = |record: &serde_json::Value| record["bytes_added"].as_u64().unwrap();
    let commit = bytes(made) - bytes(record);
    assert!((1..400).contains(&commit), "{commit}");
    for key in ["files_modified", "files_deleted"] {
        assert_eq!(made[key], record[key]);
    }
    insta::assert_snapshot!(env.snap_in("home", ["commit", "--dry-run"]), @r"
    exit: 0
    --- stderr ---
    Nothing changed since 2026-11-21 08:00:00 +00:00, checked in [TIME]
    ");
}

#[test]
fn a_commit_names_deleted_and_ignored_files_only_if_there_are_any() {
    let env = TestEnv::new();
    for name in ["home/a", "home/b", "home/c", "home/build/d"] {
        env.write(name, "1");
    }
    env.snap_in("home", ["commit"]).succeeds();
    fs_err::remove_file(env.path("home/a")).unwrap();
    fs_err::remove_file(env.path("home/b")).unwrap();
    env.write("home/.snapignore", "build/\n");
    insta::assert_snapshot!(env.snap_in("home", ["commit"]), @"
    exit: 0
    --- stdout ---
    [ID]
    --- stderr ---
    Committed 2 files, 8 B: 1 added, 0 modified, 2 deleted, 1 now ignored, 1 unmodified
    Read [SIZE], added [SIZE], stored [SIZE] in [TIME]
    ");
    let last = env.snap_in("home", ["commit", "--allow-empty", "--json"]).succeeds().json();
    assert_eq!((&last[0]["files_deleted"], &last[0]["files_ignored"]), (&0.into(), &0.into()));
}

/// Lists all files of a store, each with its length and modification time.
fn listing(env: &TestEnv, store: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![env.path(store)];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(folder).unwrap() {
            let (path, meta) = entry.map(|e| (e.path(), e.metadata().unwrap())).unwrap();
            if meta.is_dir() {
                folders.push(path.clone());
            }
            found.push(format!("{} {} {:?}", path.display(), meta.len(), meta.modified().unwrap()));
        }
    }
    found.sort();
    found
}

#[test]
fn a_dry_run_counts_a_content_once_and_needs_no_rights_on_the_store() {
    let env = TestEnv::new();
    for name in ["a", "b", "c"] {
        env.write(&format!("home/{name}"), "x".repeat(100_000));
    }
    let ran = env.snap_in("home", ["commit", "--dry-run", "--json"]).succeeds();
    let added = ran.json()[0]["bytes_added"].as_u64().unwrap();
    assert!((100_000..102_000).contains(&added), "{added}");
    let large = env.path("home/large");
    fs_err::write(&large, vec![7; 20 << 20]).unwrap();
    let ran = env.snap_in("home", ["commit", "--dry-run", "--json"]).succeeds();
    let added = ran.json()[0]["bytes_added"].as_u64().unwrap();
    assert!(added < 6 << 20, "a repeated chunk counts once: {added}");
}

#[test]
fn files_that_report_no_size_are_saved_with_their_content() {
    let env = TestEnv::new();
    let source = "/proc/sys/fs/inotify";
    env.snap(["--store", "s", "init"]).succeeds();
    env.snap(["--store", "s", "commit", source, "--json"]).succeeds();
    let file = "max_user_watches";
    let content = fs_err::read_to_string(format!("{source}/{file}")).unwrap();
    assert!(content.len() > 1);
    let read = |rev: &str| env.snap(["--store", "s", "cat", &format!("{rev}:{file}")]);
    assert_eq!(read("latest").succeeds().stdout, content);
    // Their stat does not show their changes, so nothing is recorded that would hide one.
    let again = env.snap(["--store", "s", "commit", source, "--allow-empty"]).succeeds();
    assert!(!again.stderr.contains("changed while"), "{}", again.stderr);
    assert_eq!(read("latest").succeeds().stdout, content);
    for command in [["status", "--json"], ["diff", "--json"]] {
        let args = ["--store", "s", command[0], command[1], "--folder", source];
        let records = env.snap(args).succeeds().json();
        let changes: Vec<_> = records.iter().filter(|record| record["type"] == "change").collect();
        assert!(changes.is_empty(), "{changes:?}");
    }
}

#[test]
fn one_file_system_leaves_out_mounts_that_the_user_may_not_read() {
    let test = "commit::one_file_system_leaves_out_mounts_that_the_user_may_not_read";
    let Ok(fuse) = fs_err::OpenOptions::new().read(true).write(true).open("/dev/fuse") else {
        return skip(test, "/dev/fuse cannot be opened");
    };
    in_own_mounts(test, || {
        let env = TestEnv::new();
        env.write("home/a.txt", "one");
        let point = env.path("home/mount");
        fs_err::create_dir(&point).unwrap();
        rustix::io::fcntl_setfd(&fuse, rustix::io::FdFlags::empty()).unwrap();
        let fd = fuse.file().as_raw_fd();
        let options = format!("fd={fd},rootmode=40000,user_id=1234,group_id=1234");
        let mount = ["-i", "-t", "fuse", "-o", &options, "fuse", point.to_str().unwrap()];
        if !tool("mount", mount) {
            return skip(test, "a FUSE mount is refused");
        }
        // Not even root may stat the mount of another user, and later it has no server.
        let mut server = Some(fuse);
        for has_server in [true, false] {
            server.take_if(|_| !has_server);
            let failed = env.snap_in("home", ["commit", "--dry-run"]);
            assert_eq!(failed.code, Some(3), "{}", failed.stderr);
            assert!(failed.stderr.contains("mount`: "), "{}", failed.stderr);
            env.snap_in("home", ["commit", "--one-file-system", "--allow-empty"]).succeeds();
            env.snap_in("home", ["status", "--one-file-system"]).succeeds();
        }
        assert_eq!(env.snap_in("home", ["ls"]).succeeds().stdout, "a.txt\n");
    });
}

#[test]
fn a_pattern_that_is_written_as_a_path_on_disk_and_excludes_nothing_is_named() {
    let env = TestEnv::new();
    env.write("home/u/cache/x", "one");
    env.write("other.txt", "two");
    let at = env.path("home");
    let at = at.to_str().unwrap();
    env.snap(["--store", "s", "init"]).succeeds();
    let commit_with = |sources: &[&str], option: &str, pattern: &str| {
        let fixed = ["--store", "s", "commit", "--replace", "--allow-empty", option, pattern];
        let made = env.snap(fixed.iter().chain(sources)).succeeds();
        let files = env.snap(["--store", "s", "ls", "-R"]).succeeds().stdout;
        (made.stderr.contains("excludes nothing"), made.stderr, files.contains("cache"))
    };
    let commit = |sources: &[&str], pattern: &str| commit_with(sources, "-e", pattern);
    let absolute = format!("{at}/u/cache");
    let (warned, stderr, has_cache) = commit(&[at], &absolute);
    assert!(warned && has_cache, "{stderr}");
    let advice = "patterns are relative to the top of the snapshot; write `/u/cache`";
    assert!(stderr.contains(advice), "{stderr}");
    let both = [&format!("{at}/u")[..], "other.txt"];
    // Here the place in the snapshot is the absolute path.
    assert!(!commit(&both, &absolute).0);
    assert!(!commit(&both, &absolute).2);
    for pattern in ["/u/cache", "cache", "/nothing/of/that/name", "/*/cache"] {
        assert!(!commit(&[at], pattern).0, "{pattern}");
    }
    for (pattern, is_named) in [(&*absolute.to_uppercase(), true), ("/U/CACHE", false)] {
        let (warned, stderr, has_cache) = commit_with(&[at], "--iexclude", pattern);
        assert_eq!((warned, has_cache), (is_named, is_named), "{stderr}");
    }
    let archive = ["archive", "home", "-o", "home.snap", "-e", &absolute];
    let made = env.snap(archive).succeeds();
    assert!(made.stderr.contains(advice), "{}", made.stderr);
}
