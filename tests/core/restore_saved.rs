//! A restore that deletes keeps what no commit could have contained.

#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::{path::Path, sync::Mutex};

use snap_core::{
    base::observe::{Note, Observer},
    format::selection::UnreadPaths,
    local::ignore,
    ops::restore::{self, Mode, Options, Outcome, Protection, What},
    repo::path::entry_named,
};

use crate::restore_fixture::{Snapshot, dirs, mirror};

#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Observer for Notes {
    fn note(&self, note: Note<'_>) {
        if let Note::Kept { path, why } = note {
            self.0.lock().unwrap().push(format!("{}: {why}", path.display()));
        }
    }
}

fn write(path: &Path, text: &str) {
    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
    fs_err::write(path, text).unwrap();
}

fn patterns(patterns: &[&str]) -> ignore::Options {
    let patterns = patterns.iter().map(ToString::to_string).collect();
    ignore::Options { patterns, ..ignore::Options::default() }
}

/// Restores dry, which must plan the same, and then really.
fn restore(
    snapshot: &Snapshot,
    what: &What,
    target: &Path,
    protection: &Protection,
) -> (Outcome, Vec<String>) {
    let options = Options { protection: Some(protection), ..mirror() };
    let dry = Options { mode: Mode::DryRun, ..options.clone() };
    let notes = [Notes::default(), Notes::default()];
    let planned = restore::run(&snapshot.store, what, target, &dry, &notes[0]).unwrap();
    let done = restore::run(&snapshot.store, what, target, &options, &notes[1]).unwrap();
    let counts = |outcome: &Outcome| (outcome.removed, outcome.kept, outcome.excluded);
    assert_eq!(counts(&planned), counts(&done));
    let [dry, real] = notes.map(|notes| notes.0.into_inner().unwrap());
    assert_eq!(dry, real);
    (done, real)
}

fn left(target: &Path) -> Vec<String> {
    let walk = walkdir::WalkDir::new(target).min_depth(1).sort_by_file_name();
    let path = |entry: walkdir::DirEntry| entry.path().strip_prefix(target).unwrap().to_owned();
    let files = walk.into_iter().map(Result::unwrap).filter(|entry| !entry.file_type().is_dir());
    files.map(|entry| path(entry).display().to_string()).collect()
}

#[test]
fn ignore_files_before_and_after_the_restore_keep_what_they_exclude() {
    let (_dir, source, target) = dirs();
    write(&source.join(".snapignore"), "*.o\n");
    write(&source.join("sub/.snapignore"), "/late\n");
    write(&source.join("sub/file"), "x");
    let snapshot = Snapshot::of(&source);
    write(&target.join(".snapignore"), "*.log\n");
    for path in
        ["a.log", "b.o", "c.txt", "sub/late", "sub/d.log", "sub/e", "extra/f.log", "extra/g"]
    {
        write(&target.join(path), "x");
    }
    let protection = Protection {
        rules: vec![ignore::Options::default()],
        root: Some(snapshot.tree),
        ..Protection::default()
    };
    let (outcome, notes) = restore(&snapshot, &snapshot.what(), &target, &protection);
    let stay =
        [".snapignore", "a.log", "b.o", "extra/f.log", "sub/.snapignore", "sub/d.log", "sub/file"];
    let mut expected = stay.to_vec();
    expected.push("sub/late");
    assert_eq!(left(&target), expected);
    assert_eq!((outcome.removed, outcome.excluded), (3, 5));
    assert_eq!(notes, ["extra: commits leave out something in it"]);
}

#[test]
fn each_recorded_rule_set_and_each_one_in_force_keeps_what_it_excludes() {
    let (_dir, source, target) = dirs();
    write(&source.join("file"), "x");
    let snapshot = Snapshot::of(&source);
    for path in ["in-force", "recorded", "kept/deep/x", "extra", "cache/data", "git", "small"] {
        write(&target.join(path), "x");
    }
    write(&target.join("large"), "more than four bytes");
    write(&target.join(".gitignore"), "/git\n");
    write(&target.join("cache/CACHEDIR.TAG"), "Signature: 8a477f597d28d172789f06886806bc55\n");
    let recorded = ignore::Options {
        larger_than_bytes: Some(4),
        cache_folders: true,
        gitignore: true,
        ..patterns(&["recorded", "/kept/deep"])
    };
    let protection =
        Protection { rules: vec![patterns(&["in-force"]), recorded], ..Protection::default() };
    restore(&snapshot, &snapshot.what(), &target, &protection);
    // The tag and `.gitignore` are larger than the limit.
    let expected = [
        ".gitignore",
        "cache/CACHEDIR.TAG",
        "cache/data",
        "file",
        "git",
        "in-force",
        "kept/deep/x",
        "large",
        "recorded",
    ];
    assert_eq!(left(&target), expected);
    let everything = Options { ..mirror() };
    snapshot.restore_with(&target, &everything).unwrap();
    assert_eq!(left(&target), ["file"], "without protection");
}

#[test]
fn a_folder_that_is_excluded_now_keeps_what_came_after_it_was_committed() {
    let (_dir, source, target) = dirs();
    write(&source.join("build/committed"), "x");
    let snapshot = Snapshot::of(&source);
    write(&target.join("build/new"), "x");
    let protection = Protection { rules: vec![patterns(&["/build"])], ..Protection::default() };
    restore(&snapshot, &snapshot.what(), &target, &protection);
    assert_eq!(left(&target), ["build/committed", "build/new"]);
}

#[test]
fn what_the_commit_could_not_read_stays() {
    let (_dir, source, target) = dirs();
    write(&source.join("file"), "x");
    let snapshot = Snapshot::of(&source);
    for path in ["folder/in/it", "folder-2", "secret", "z"] {
        write(&target.join(path), "x");
    }
    let mut unread = UnreadPaths::default();
    unread.insert(b"folder");
    unread.insert(b"secret");
    let protection = Protection { unread, ..Protection::default() };
    restore(&snapshot, &snapshot.what(), &target, &protection);
    assert_eq!(left(&target), ["file", "folder/in/it", "secret"]);
}

#[test]
fn what_comes_after_the_last_recorded_path_stays_when_not_all_were_recorded() {
    let (_dir, source, target) = dirs();
    write(&source.join("file"), "x");
    let snapshot = Snapshot::of(&source);
    let mut unread = UnreadPaths::default();
    for n in 0..=snap_core::base::limits::UNREAD_PATHS {
        unread.insert(format!("m{n:06}").as_bytes());
    }
    assert!(unread.has_more());
    for path in ["a", "z"] {
        write(&target.join(path), "x");
    }
    let protection = Protection { unread, ..Protection::default() };
    restore(&snapshot, &snapshot.what(), &target, &protection);
    assert_eq!(left(&target), ["file", "z"]);
}

#[test]
fn ignore_files_above_a_folder_that_is_restored_count() {
    let (_dir, source, target) = dirs();
    write(&source.join(".snapignore"), "/src/stored\n");
    write(&source.join("src/file"), "x");
    let snapshot = Snapshot::of(&source);
    write(&target.join(".snapignore"), "/src/there\n");
    for path in ["src/stored", "src/there", "src/extra"] {
        write(&target.join(path), "x");
    }
    let src = entry_named(&snapshot.store, snapshot.tree, b"src").unwrap().unwrap();
    let snap_core::format::tree::Kind::Folder { id } = src.kind else { panic!("a folder") };
    let what = What::Folder { tree: id, root: None };
    let protection = Protection {
        rules: vec![ignore::Options::default()],
        place: b"src".to_vec(),
        root: Some(snapshot.tree),
        above: Some(target.clone()),
        ..Protection::default()
    };
    restore(&snapshot, &what, &target.join("src"), &protection);
    assert_eq!(left(&target.join("src")), ["file", "stored", "there"]);
}
