//! A restore with deletion keeps files that no commit could have contained.

#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::path::Path;

use parking_lot::Mutex;
use snap_core::{
    base::observe::{Note, Observer},
    format::selection::UnreadPaths,
    local::ignore,
    ops::restore::{self, ExtraProtection, Mode, RestoreOptions, RestoreOutcome, RestoreSource},
    repo::path::entry_named,
};

use crate::restore_fixture::{Snapshot, dirs, mirror};

#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Observer for Notes {
    fn note(&self, note: Note<'_>) {
        if let Note::Kept { path, why } = note {
            self.0.lock().push(format!("{}: {why}", path.display()));
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

/// Restores as a dry run and then for real. Both must plan the same.
fn restore(
    snapshot: &Snapshot,
    what: &RestoreSource,
    target: &Path,
    protection: &ExtraProtection,
) -> (RestoreOutcome, Vec<String>) {
    let options = RestoreOptions { protection: Some(protection), ..mirror() };
    let dry = RestoreOptions { mode: Mode::DryRun, ..options.clone() };
    let notes = [Notes::default(), Notes::default()];
    let planned = restore::run(&snapshot.store, what, target, &dry, &notes[0]).unwrap();
    let done = restore::run(&snapshot.store, what, target, &options, &notes[1]).unwrap();
    let counts = |outcome: &RestoreOutcome| (outcome.removed, outcome.kept, outcome.excluded);
    assert_eq!(counts(&planned), counts(&done));
    let [dry, real] = notes.map(|notes| notes.0.into_inner());
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
fn old_and_new_ignore_files_protect_extras() {
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
    let protection = ExtraProtection {
        rules: vec![ignore::Options::default()],
        root: Some(snapshot.tree),
        ..ExtraProtection::default()
    };
    let (outcome, notes) = restore(&snapshot, &snapshot.what(), &target, &protection);
    let stay =
        [".snapignore", "a.log", "b.o", "extra/f.log", "sub/.snapignore", "sub/d.log", "sub/file"];
    let mut expected = stay.to_vec();
    expected.push("sub/late");
    assert_eq!(left(&target), expected);
    assert_eq!((outcome.removed, outcome.excluded), (3, 5));
    assert_eq!(notes, ["extra: it contains entries that commits exclude"]);
}

#[test]
fn extras_stay_if_an_ignore_file_is_unreadable_for_commits() {
    let (_dir, source, target) = dirs();
    write(&source.join("file"), "x");
    write(&source.join("sub/file"), "x");
    let snapshot = Snapshot::of(&source);
    fs_err::create_dir_all(target.join("sub")).unwrap();
    let ignore = target.join("sub/.snapignore");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let link = |to: &str| std::os::unix::fs::symlink(to, &ignore).unwrap();
    let kinds: [(&str, &dyn Fn()); 4] = [
        ("link", &|| link("../rules")),
        ("loop", &|| link(".snapignore")),
        ("pipe", &|| rustix::fs::mkfifoat(rustix::fs::CWD, &ignore, mode).unwrap()),
        ("costly line", &|| write(&ignore, &format!("{}\n", "*a".repeat(2000)))),
    ];
    let protection = |gitignore| ExtraProtection {
        rules: vec![ignore::Options { gitignore, ..ignore::Options::default() }],
        root: Some(snapshot.tree),
        ..ExtraProtection::default()
    };
    for (kind, make) in kinds {
        write(&target.join("extra"), "x");
        write(&target.join("sub/precious"), "x");
        make();
        let (outcome, notes) = restore(&snapshot, &snapshot.what(), &target, &protection(false));
        assert!(target.join("sub/precious").exists() && ignore.symlink_metadata().is_ok());
        assert!(!target.join("extra").exists(), "{kind}: the file is in another folder");
        assert_eq!((outcome.not_removed, outcome.excluded), (2, 0), "{kind}");
        assert!(!outcome.is_complete(), "{kind}");
        let why = "the rules of the ignore file `sub/.snapignore` are unknown";
        let expected = [".snapignore", "precious"].map(|name| format!("sub/{name}: {why}"));
        assert_eq!(notes, expected, "{kind}");
        fs_err::remove_file(&ignore).unwrap();
    }
    // A link `.gitignore` counts only if commits read such files, also one of the snapshot.
    std::os::unix::fs::symlink("rules", source.join("sub/.gitignore")).unwrap();
    let snapshot = Snapshot::of(&source);
    let (kept, _) = restore(&snapshot, &snapshot.what(), &target, &{
        let root = Some(snapshot.tree);
        ExtraProtection { root, ..protection(true) }
    });
    assert_eq!((kept.removed, kept.not_removed), (0, 1));
    let (gone, _) = restore(&snapshot, &snapshot.what(), &target, &{
        let root = Some(snapshot.tree);
        ExtraProtection { root, ..protection(false) }
    });
    assert_eq!((gone.removed, gone.not_removed), (1, 0));
    assert!(gone.is_complete());
}

#[test]
fn recorded_and_current_ignore_rules_protect_extras() {
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
    let protection = ExtraProtection {
        rules: vec![patterns(&["in-force"]), recorded],
        ..ExtraProtection::default()
    };
    restore(&snapshot, &snapshot.what(), &target, &protection);
    // The tag and `.gitignore` are longer than the limit.
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
    let everything = RestoreOptions { ..mirror() };
    snapshot.restore_with(&target, &everything).unwrap();
    assert_eq!(left(&target), ["file"], "without protection");
}

#[test]
fn a_folder_excluded_after_the_commit_keeps_new_files() {
    let (_dir, source, target) = dirs();
    write(&source.join("build/committed"), "x");
    let snapshot = Snapshot::of(&source);
    write(&target.join("build/new"), "x");
    let protection =
        ExtraProtection { rules: vec![patterns(&["/build"])], ..ExtraProtection::default() };
    restore(&snapshot, &snapshot.what(), &target, &protection);
    assert_eq!(left(&target), ["build/committed", "build/new"]);
}

#[test]
fn paths_that_the_commit_could_not_read_are_kept() {
    let (_dir, source, target) = dirs();
    write(&source.join("file"), "x");
    let snapshot = Snapshot::of(&source);
    for path in ["folder/in/it", "folder-2", "secret", "z"] {
        write(&target.join(path), "x");
    }
    let mut unread = UnreadPaths::default();
    unread.insert(b"folder");
    unread.insert(b"secret");
    let protection = ExtraProtection { unread, ..ExtraProtection::default() };
    restore(&snapshot, &snapshot.what(), &target, &protection);
    assert_eq!(left(&target), ["file", "folder/in/it", "secret"]);
}

#[test]
fn a_truncated_unread_list_protects_all_later_paths() {
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
    let protection = ExtraProtection { unread, ..ExtraProtection::default() };
    restore(&snapshot, &snapshot.what(), &target, &protection);
    assert_eq!(left(&target), ["file", "z"]);
}

#[test]
fn ignore_files_above_a_restored_folder_apply() {
    let (_dir, source, target) = dirs();
    write(&source.join(".snapignore"), "/src/stored\n");
    write(&source.join("src/file"), "x");
    let snapshot = Snapshot::of(&source);
    write(&target.join(".snapignore"), "/src/there\n");
    for path in ["src/stored", "src/there", "src/extra"] {
        write(&target.join(path), "x");
    }
    let src = entry_named(&snapshot.store, snapshot.tree, b"src").unwrap().unwrap();
    let snap_core::format::tree::EntryKind::Folder { id } = src.kind else { panic!("a folder") };
    let what = RestoreSource::Folder { tree: id, root: None };
    let protection = ExtraProtection {
        rules: vec![ignore::Options::default()],
        place: b"src".to_vec(),
        root: Some(snapshot.tree),
        above: Some(target.clone()),
        ..ExtraProtection::default()
    };
    restore(&snapshot, &what, &target.join("src"), &protection);
    assert_eq!(left(&target.join("src")), ["file", "stored", "there"]);
}
