//! `snap status`: what changed since the last commit.

use std::os::unix::{fs::chown, process::CommandExt};

use crate::env::TestEnv;

const NOBODY: u32 = 65_534;

fn env() -> TestEnv {
    let mut env = TestEnv::new();
    env.set("SNAP_TIME", "2026-11-21T05:30:00Z");
    env.write("changed", "before");
    env.write("shrunk", "before and after");
    env.write("run.sh", "#!/bin/sh\n");
    env.write("old", "the same content");
    env.write("gone/a", "1");
    env.write("gone/b/c", "22");
    env.write("kind", "a file");
    env.snap(["commit", "-q", "-m", "before the upgrade\nand more"]).succeeds();
    env.set("SNAP_TIME", "2026-11-21T08:00:00Z");
    env
}

/// Makes a change of each kind.
fn change(env: &TestEnv) {
    env.write("changed", "and now");
    env.write("shrunk", "less");
    env.mode("run.sh", 0o755);
    fs_err::rename(env.path("old"), env.path("new name")).unwrap();
    fs_err::remove_dir_all(env.path("gone")).unwrap();
    fs_err::remove_file(env.path("kind")).unwrap();
    std::os::unix::fs::symlink("changed", env.path("kind")).unwrap();
    env.write("fresh/a", "1");
    env.write("fresh/b/c", "333");
    env.write("top", "new");
}

#[test]
fn what_changed_is_listed_and_summed_up() {
    let env = env();
    insta::assert_snapshot!(env.snap(["status"]), @r"
    exit: 0
    --- stdout ---
    On branch main
    Last commit [SHORT ID], 2 hours ago: before the upgrade

    Nothing changed since 2026-11-21 05:30:00 +00:00
    ");
    change(&env);
    insta::assert_snapshot!(env.snap(["status"]), @"
    exit: 0
    --- stdout ---
    On branch main
    Last commit [SHORT ID], 2 hours ago: before the upgrade

      modified    changed (7 B, +1 B)
      renamed     gone/a => fresh/a
      added       fresh/ (1 file, 3 B)
      deleted     gone/ (1 file, 2 B)
      typechange  kind (file => symlink)
      renamed     old => new name
      metadata    run.sh (mode 0644 => 0755)
      modified    shrunk (4 B, -12 B)
      added       top (3 B)

    2 added, 2 modified, 1 deleted, 2 renamed, 1 with another type, 1 with other metadata; 7 B added, 20 B deleted
    ");
    insta::assert_snapshot!(env.snap(["status", "-s"]), @r"
    exit: 0
    --- stdout ---
    M changed
    R gone/a => fresh/a
    A fresh/
    D gone/
    T kind
    R old => new name
    M run.sh
    M shrunk
    A top
    ");
    insta::assert_snapshot!(env.snap(["status", "-s", "--all", "fresh", "gone"]), @r"
    exit: 0
    --- stdout ---
    A fresh/
    R gone/a => fresh/a
    A fresh/b/
    A fresh/b/c
    D gone/
    D gone/b/
    D gone/b/c
    ");
}

#[test]
fn records_begin_with_where_one_stands() {
    let env = env();
    change(&env);
    let records = env.snap(["--json", "status"]).succeeds().json();
    assert_eq!((&records[0]["type"], &records[0]["branch"]), (&"status".into(), &"main".into()));
    assert_eq!(records[0]["commit"]["message"], "before the upgrade\nand more");
    assert_eq!(records.last().unwrap()["type"], "summary");
    assert_eq!(records.last().unwrap()["renamed"], 2);
    let kinds = records[1..records.len() - 1].iter().all(|record| record["type"] == "change");
    assert!(kinds && records.iter().all(|record| record["version"] == 1));
}

#[test]
fn a_store_without_a_commit_lists_everything() {
    let env = TestEnv::new();
    env.snap(["init"]).succeeds();
    insta::assert_snapshot!(env.snap(["status"]), @r"
    exit: 0
    --- stdout ---
    On branch main
    No commit yet

    Nothing to commit
    ");
    env.write("file", "x");
    insta::assert_snapshot!(env.snap(["status"]), @"
    exit: 0
    --- stdout ---
    On branch main
    No commit yet

      added       file (1 B)

    1 added; 1 B added
    ");
}

#[test]
fn what_a_commit_leaves_out_is_left_out() {
    let env = env();
    env.write(".snapignore", "*.log\n");
    env.write("a.log", "x");
    env.write("b.tmp", "x");
    env.snap(["config", "set", "commit.exclude", "['*.tmp']"]).succeeds();
    assert_eq!(env.snap(["status", "-s"]).succeeds().stdout, "A .snapignore\n");
    assert_eq!(env.snap(["status", "-s", "--exclude", ".snapignore"]).succeeds().stdout, "");
}

#[test]
fn nothing_is_written_and_a_store_of_others_will_do() {
    let env = env();
    change(&env);
    let listing = |env: &TestEnv| {
        let files = walkdir(&env.path(".snap"));
        files.iter().map(|path| (path.clone(), fs_err::read(path).unwrap())).collect::<Vec<_>>()
    };
    let before = listing(&env);
    let expected = env.snap(["status"]).succeeds().stdout;
    assert_eq!(listing(&env), before);
    env.open_to_all("");
    let mut command = env.command("");
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.arg("status").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    assert_eq!(output.status.code(), Some(0));
}

fn walkdir(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(walkdir(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

#[test]
fn what_cannot_be_read_is_told_and_not_taken_for_removed() {
    let env = env();
    env.write("changed", "beFORE");
    for path in ["", "changed", "gone", "gone/a", "gone/b"] {
        if rustix::process::geteuid().is_root() {
            chown(env.path(path), Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }
    env.open_to_all("");
    env.mode("changed", 0);
    env.mode("gone/b", 0);
    let mut command = env.command("");
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.args(["status", "-s"]).output().unwrap();
    env.mode("gone/b", 0o755);
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(!stdout.contains("D "), "{stdout}");
    assert!(stderr.contains("/changed`: Permission denied"), "{stderr}");
    assert!(stderr.contains("/gone/b`: Permission denied"), "{stderr}");
    assert!(stderr.contains("warning: 2 entries could not be read and compared"), "{stderr}");
}

#[test]
fn a_damaged_store_is_said_so() {
    let env = env();
    let packs = env.path(".snap/objects");
    for pack in fs_err::read_dir(packs).unwrap() {
        let path = pack.unwrap().path();
        let mut bytes = fs_err::read(&path).unwrap();
        let len = bytes.len();
        // Frames fill most of a small pack.
        bytes[40..len / 2].fill(0);
        fs_err::write(path, bytes).unwrap();
    }
    change(&env);
    let said = env.snap(["status"]);
    assert_eq!(said.code, Some(4), "{said}");
    assert!(said.stderr.contains("hint: `snap verify"), "{said}");
}

#[test]
fn a_store_without_a_project_is_compared_with_the_sources_of_its_commit() {
    let env = TestEnv::new();
    env.write("home/photos/a.jpg", "one");
    env.write("home/photos/new/b.jpg", "two");
    env.write("home/notes.txt", "three");
    env.write("etc/app.conf", "four");
    env.write("elsewhere/other.txt", "five");
    let store = env.path("store");
    let store = store.to_str().unwrap();
    env.snap(["--store", store, "init"]).succeeds();
    let absolute = env.path("etc");
    let absolute = absolute.to_str().unwrap();
    let sets: [(&str, &[&str], &str, &str); 3] = [
        // One folder, two relative ones and a file, and a mix with absolute paths.
        (".", &["home/photos"], "a.jpg", "new/b.jpg"),
        ("home", &["photos", "notes.txt"], "notes.txt", "photos/new/b.jpg"),
        ("home", &["photos", absolute], "photos/a.jpg", "photos/new/b.jpg"),
    ];
    // Several paths have their absolute paths in the snapshot.
    let home = format!("{}/", env.path("home").to_str().unwrap().trim_start_matches('/'));
    for (folder, sources, changed, removed) in sets {
        let commit =
            ["--store", store, "commit", "--replace"].into_iter().chain(sources.iter().copied());
        env.snap_in(folder, commit).succeeds();
        let run = |command: &[&str]| {
            let args = ["--store", store].into_iter().chain(command.iter().copied());
            env.snap_in("elsewhere", args)
        };
        let status = run(&["status", "--short"]).succeeds();
        assert_eq!(status.stdout, "", "{sources:?}: {}", status.stderr);
        assert_eq!(run(&["diff", "--exit-code"]).succeeds().stdout, "");
        run(&["verify", "--against-files"]).succeeds();

        let on_disk = match sources {
            ["home/photos"] => env.path("home/photos").join(changed),
            _ => env.path("home").join(changed),
        };
        let above = if sources.len() > 1 { &*home } else { "" };
        let (changed, removed) = (&*format!("{above}{changed}"), &*format!("{above}{removed}"));
        let before = fs_err::read(&on_disk).unwrap();
        fs_err::write(&on_disk, "another").unwrap();
        fs_err::remove_dir_all(env.path("home/photos/new")).unwrap();
        let status = run(&["status", "--short", "--all"]).succeeds();
        let gone = removed.strip_suffix("/b.jpg").unwrap();
        let mut lines: Vec<_> = status.stdout.lines().collect();
        lines.sort_unstable();
        let expected = [format!("D {gone}/"), format!("D {removed}"), format!("M {changed}")];
        assert_eq!(lines, expected, "{sources:?}: {}", status.stderr);
        let diff = run(&["diff", "--", changed]).succeeds();
        assert!(diff.stdout.contains("+another"), "{}", diff.stdout);
        let shown = run(&["status", "--json"]).succeeds().json();
        assert_eq!(shown[0]["sources"].as_array().unwrap().len(), sources.len());
        let typed = run(&["status", "--short", on_disk.to_str().unwrap()]).succeeds();
        assert_eq!(typed.stdout, format!("M {changed}\n"));
        fs_err::write(&on_disk, before).unwrap();
        env.write("home/photos/new/b.jpg", "two");
    }
    // The files of a clone come from its commits; the sources are those of another machine.
    env.snap(["clone", store, "clone"]).succeeds();
    let status = env.snap_in("clone", ["status", "--short"]).succeeds();
    assert_eq!(status.stdout, "", "{}", status.stderr);
    fs_err::write(env.path(format!("clone/{home}photos/a.jpg")), "another").unwrap();
    let status = env.snap_in("clone", ["status", "--short"]).succeeds();
    assert_eq!(status.stdout, format!("M {home}photos/a.jpg\n"));
    // A stream has no source on disk, and a source that is gone is named.
    fs_err::remove_dir_all(env.path("home")).unwrap();
    let args = ["--store", store, "status", "--short"];
    let gone = env.snap_in("elsewhere", args).succeeds();
    assert!(gone.stdout.contains(&format!("D {home}")), "{}", gone.stdout);
    assert!(!gone.stdout.contains("app.conf"), "{}", gone.stdout);
}

#[test]
fn what_the_ignore_rules_exclude_now_is_not_shown_as_deleted() {
    let env = TestEnv::new();
    env.write("build/a.o", "object");
    env.write("notes.log", "a text of some length");
    env.write("gone.log", "gone");
    env.snap(["commit", "-q"]).succeeds();
    env.write(".snapignore", "*.log\n/build/\n");
    fs_err::remove_file(env.path("gone.log")).unwrap();
    // The copy of an ignored file is not a renamed one.
    fs_err::copy(env.path("notes.log"), env.path("copy.txt")).unwrap();
    insta::assert_snapshot!(env.snap(["status", "-s"]), @"
    exit: 0
    --- stdout ---
    A .snapignore
    I build/
    A copy.txt
    D gone.log
    I notes.log
    ");
    let long = env.snap(["status"]).succeeds().stdout;
    assert!(long.contains("\n  now ignored notes.log (21 B)\n"), "{long}");
    assert!(long.contains("2 added, 1 deleted, 2 now ignored; 35 B added, 4 B deleted"), "{long}");
    let stat = env.snap(["diff", "--stat"]).succeeds().stdout;
    assert!(stat.contains("notes.log") && stat.contains(" | now ignored\n"), "{stat}");
    let summary = env.snap(["--json", "diff"]).succeeds().json().pop().unwrap();
    assert_eq!((&summary["ignored"], &summary["deleted"]), (&2.into(), &1.into()), "{summary}");
    assert_eq!(summary["folders_ignored"], 1, "{summary}");
}

#[test]
fn comparisons_with_sources_use_the_excludes_of_the_commit() {
    let env = TestEnv::new();
    env.write("data/a", "1");
    env.snap(["--store", "st", "init", "-q"]).succeeds();
    env.write("data/cache/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n");
    let commit = ["--store", "st", "commit", "data", "--exclude-caches", "-e", "*.tmp"];
    env.snap(commit.iter().chain(&["--exclude-larger-than", "100"])).succeeds();
    env.write("data/cache/junk", "x");
    env.write("data/x.tmp", "x");
    env.write("data/big", "x".repeat(101));
    let out = |args: &[&str]| env.snap([&["--store", "st"], args].concat()).succeeds().stdout;
    assert_eq!(out(&["status", "-s"]), "");
    assert_eq!(out(&["diff", "--name-only"]), "");
    assert_eq!(out(&["verify", "--against-files"]), "");
    env.write("data/new", "x");
    assert_eq!(out(&["status", "-s"]), "A new\n");
    assert_eq!(out(&["status", "-s", "-e", "new"]), "");
}
