//! Which extra files a restore removes, and which it keeps.

#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::{
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;
use snap_core::{
    base::observe::{Note, Observer, Silent},
    disk::Disk,
    ops::restore::{
        self, ContentLoss, Mode, RestoreAction, RestoreError, RestoreOptions, RestoreOutcome,
    },
    repo::{Config, Repo},
};

use crate::restore_fixture::{Snapshot, dirs, mirror};

/// Collects what a restore kept and what it could not remove.
#[derive(Default)]
struct Kept(Mutex<Vec<String>>);

impl Observer for Kept {
    fn note(&self, note: Note<'_>) {
        let text = match note {
            Note::Kept { path, why } => format!("{}: {why}", path.display()),
            Note::NotRemoved { path, error } => format!("{}: {error}", path.display()),
            other => format!("{other:?}"),
        };
        self.0.lock().push(text);
    }
}

impl Kept {
    fn notes(self) -> Vec<String> {
        let mut notes = self.0.into_inner();
        notes.sort();
        notes
    }
}

fn store(dir: &Path) {
    Repo::init(dir, &Disk::default(), &Config::default()).unwrap();
}

fn write(path: &Path, text: &str) {
    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
    fs_err::write(path, text).unwrap();
}

/// Restores with `--overwrite --delete`, first as a dry run, which must report the
/// same.
fn restore_twice(snapshot: &Snapshot, target: &Path) -> (RestoreOutcome, Vec<String>) {
    let dry = Kept::default();
    let options = RestoreOptions { mode: Mode::DryRun, ..mirror() };
    let planned = restore::run(&snapshot.store, &snapshot.what(), target, &options, &dry).unwrap();
    let real = Kept::default();
    let done = restore::run(&snapshot.store, &snapshot.what(), target, &mirror(), &real).unwrap();
    assert_eq!((planned.removed, planned.kept), (done.removed, done.kept));
    let notes = real.notes();
    assert_eq!(dry.notes(), notes);
    (done, notes)
}

#[test]
fn delete_keeps_stores_of_any_name_at_any_depth() {
    let (_dir, source, target) = dirs();
    write(&source.join("a"), "a");
    let snapshot = Snapshot::of(&source);
    write(&target.join("lib/extra"), "x");
    store(&target.join(".snap"));
    store(&target.join("lib/.snap"));
    store(&target.join("lib/bare"));
    write(&target.join("begun/.snap/lock"), "");
    write(&target.join("lost/.snap/objects/pack"), "x");
    write(&target.join("lost/.snap/lock"), "");
    for part in ["index", "cache", "tmp"] {
        fs_err::create_dir_all(target.join("lost/.snap").join(part)).unwrap();
    }
    let (outcome, notes) = restore_twice(&snapshot, &target);
    let stay = ["begun/.snap", "lib/.snap", "lib/bare", "lost/.snap"];
    assert!(target.join(".snap/HEAD").exists(), "the project's own store is kept without a report");
    assert_eq!(notes, stay.map(|path| format!("{path}: it is a store")));
    assert!(stay.iter().all(|path| target.join(path).is_dir()));
    assert!(
        target.join("lost/.snap/objects/pack").exists() && target.join("lib/bare/HEAD").exists()
    );
    assert!(!target.join("lib/extra").exists());
    assert_eq!((outcome.removed, outcome.kept), (1, 4));
}

#[test]
fn a_folder_named_snap_that_is_no_store_is_restored() {
    let (_dir, source, target) = dirs();
    write(&source.join(".snap/notes"), "mine");
    write(&source.join("sub/.snap/notes"), "mine");
    let snapshot = Snapshot::of(&source);
    write(&target.join("other/.snap/notes"), "extra");
    write(&target.join(".snap/more"), "extra");
    let (outcome, notes) = restore_twice(&snapshot, &target);
    assert_eq!((notes, outcome.removed, outcome.skipped), (Vec::new(), 4, 0));
    for path in [".snap/notes", "sub/.snap/notes"] {
        assert_eq!(fs_err::read_to_string(target.join(path)).unwrap(), "mine");
    }
    assert!(!target.join("other").exists() && !target.join(".snap/more").exists());
}

#[test]
fn a_restore_neither_writes_into_a_store_nor_creates_one() {
    let (_dir, source, target) = dirs();
    write(&source.join("sub/.snap/notes"), "not a store at that time");
    let snapshot = Snapshot::of(&source);
    store(&target.join("sub/.snap"));
    let outcome = snapshot.restore_with(&target, &mirror()).unwrap();
    assert_eq!(outcome.skipped, 1);
    assert!(!target.join("sub/.snap/notes").exists());

    let (_dir, source, target) = dirs();
    write(&source.join("x"), "");
    store(&source.join("sub/.snap"));
    let crafted = Snapshot::of(&source);
    assert_eq!(crafted.restore(&target).unwrap().skipped, 1);
    assert!(!target.join("sub/.snap").exists());

    // The settings are a link, which leads to a file of the same snapshot.
    let (_dir, source, target) = dirs();
    write(&source.join("settings"), "");
    fs_err::create_dir(source.join(".snap")).unwrap();
    std::os::unix::fs::symlink("../settings", source.join(".snap/config.toml")).unwrap();
    assert_eq!(Snapshot::of(&source).restore(&target).unwrap().skipped, 1);
    assert!(!target.join(".snap").exists());
}

#[test]
fn folders_that_resemble_a_store_are_not_restored() {
    let parts = [
        &[".snap/"][..],
        &[".snap/HEAD"],
        &[".snap/objects/"],
        &[".snap/HEAD", ".snap/refs/heads/main", ".snap/objects/pack"],
        &[".snap/config.toml/", ".snap/notes"],
        &[".SNAP/HEAD", ".SNAP/objects/"],
    ];
    for parts in parts {
        let (_dir, source, target) = dirs();
        write(&source.join("sub/file"), "");
        for part in parts {
            match part.strip_suffix('/') {
                Some(folder) => fs_err::create_dir_all(source.join("sub").join(folder)).unwrap(),
                None => write(&source.join("sub").join(part), "ref: refs/heads/main"),
            }
        }
        let outcome = Snapshot::of(&source).restore(&target).unwrap();
        assert_eq!(outcome.skipped, 1, "{parts:?}");
        let names: Vec<_> = fs_err::read_dir(target.join("sub")).unwrap().collect();
        assert_eq!(names.len(), 1, "{parts:?}");
    }
}

#[test]
fn a_bare_store_is_restored_but_never_overwritten() {
    let (_dir, source, target) = dirs();
    write(&source.join("a"), "a");
    store(&source.join("backup"));
    write(&source.join("backup/refs/heads/main"), "old");
    let snapshot = Snapshot::of(&source);
    let outcome = snapshot.restore_with(&target, &mirror()).unwrap();
    assert_eq!(outcome.skipped, 0, "a store is restored if the target has none");
    write(&target.join("backup/refs/heads/main"), "new");
    write(&target.join("backup/objects/pack"), "new");
    write(&target.join("a"), "changed");
    for mode in [Mode::DryRun, Mode::Write] {
        let outcome = snapshot.restore_with(&target, &RestoreOptions { mode, ..mirror() }).unwrap();
        assert_eq!((outcome.skipped, outcome.removed, outcome.files_written), (1, 0, 1));
    }
    assert_eq!(fs_err::read_to_string(target.join("a")).unwrap(), "a");
    assert_eq!(fs_err::read_to_string(target.join("backup/refs/heads/main")).unwrap(), "new");
    assert!(target.join("backup/objects/pack").exists());
}

#[test]
fn extras_stay_if_the_folder_above_is_unreadable() {
    let (dir, source, target) = dirs();
    write(&source.join("sub/a"), "a");
    let snapshot = Snapshot::of(&source);
    write(&target.join("sub/extra"), "x");
    let above = |above: &str| restore::ExtraProtection {
        rules: vec![snap_core::local::ignore::Options::default()],
        place: b"sub".to_vec(),
        above: Some(dir.path().join(above)),
        ..restore::ExtraProtection::default()
    };
    for (path, removed) in [("not there", 0), (target.to_str().unwrap(), 1)] {
        let protection = above(path);
        let options = RestoreOptions { protection: Some(&protection), ..mirror() };
        let outcome = snapshot.restore_with(&target.join("sub"), &options).unwrap();
        assert_eq!(outcome.removed, removed);
    }
}

#[test]
fn a_store_that_blocks_a_file_stops_the_restore() {
    let (_dir, source, target) = dirs();
    write(&source.join("a"), "a file");
    let snapshot = Snapshot::of(&source);
    store(&target.join("a/.snap"));
    write(&target.join("a/work"), "x");
    for mode in [Mode::DryRun, Mode::Write] {
        let error =
            snapshot.restore_with(&target, &RestoreOptions { mode, ..mirror() }).unwrap_err();
        assert!(matches!(error, RestoreError::Blocked { count: 1, .. }), "{error}");
        assert!(target.join("a/.snap/HEAD").exists() && target.join("a/work").exists());
    }
}

#[test]
fn a_dry_run_finds_the_folder_that_blocks_the_real_run() {
    let (_dir, source, target) = dirs();
    write(&source.join("a"), "a file");
    let snapshot = Snapshot::of(&source);
    write(&target.join("a/work"), "x");
    let overwrite = crate::restore_fixture::overwrite();
    for mode in [Mode::DryRun, Mode::Write] {
        let options = RestoreOptions { mode, ..overwrite.clone() };
        let error = snapshot.restore_with(&target, &options).unwrap_err();
        assert!(matches!(error, RestoreError::Blocked { count: 1, .. }), "{mode:?}: {error}");
    }
}

#[test]
fn extras_changed_after_planning_are_kept() {
    let (_dir, source, target) = dirs();
    write(&source.join("first"), "1");
    let snapshot = Snapshot::of(&source);
    write(&target.join("extra/old"), "x");
    write(&target.join("written"), "x");
    // `first` is written after the plan is made and before extras are removed.
    let begun = AtomicBool::new(false);
    let on_change = |path: &Path, _: RestoreAction, _: ContentLoss| {
        if path == Path::new("first") && !begun.swap(true, Ordering::Relaxed) {
            fs_err::write(target.join("extra/new"), "came meanwhile").unwrap();
            fs_err::write(target.join("written"), "other").unwrap();
        }
    };
    let options = RestoreOptions { on_change: Some(&on_change), ..mirror() };
    let kept = Kept::default();
    let outcome =
        restore::run(&snapshot.store, &snapshot.what(), &target, &options, &kept).unwrap();
    assert_eq!((outcome.removed, outcome.kept), (1, 2));
    assert_eq!(
        kept.notes(),
        ["extra: it contains entries that are kept", "written: it changed during the restore"]
    );
    assert!(target.join("extra/new").exists() && !target.join("extra/old").exists());
    assert_eq!(fs_err::read_to_string(target.join("written")).unwrap(), "other");
}

#[test]
fn all_hard_links_of_an_extra_file_are_removed() {
    let (_dir, source, target) = dirs();
    write(&source.join("a"), "a");
    let snapshot = Snapshot::of(&source);
    write(&target.join("a"), "shared");
    fs_err::hard_link(target.join("a"), target.join("b")).unwrap();
    fs_err::hard_link(target.join("a"), target.join("c")).unwrap();
    let outcome = snapshot.restore_with(&target, &mirror()).unwrap();
    assert_eq!((outcome.removed, outcome.kept), (2, 0));
}

#[test]
fn an_empty_folder_that_no_pattern_includes_is_kept() {
    let (_dir, source, target) = dirs();
    write(&source.join("a.md"), "a");
    let snapshot = Snapshot::of(&source);
    fs_err::create_dir_all(target.join("empty")).unwrap();
    write(&target.join("docs/old.md"), "x");
    let options = RestoreOptions { include: vec!["*.md".into()], ..mirror() };
    let outcome = snapshot.restore_with(&target, &options).unwrap();
    assert_eq!((outcome.removed, outcome.kept), (1, 0));
    assert!(target.join("empty").exists() && target.join("docs").exists());
}

#[test]
fn an_interrupted_removal_reports_the_removed_count() {
    struct Stops(AtomicBool);
    impl Observer for Stops {
        fn cancelled(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }
    let (_dir, source, target) = dirs();
    write(&source.join("a"), "a");
    let snapshot = Snapshot::of(&source);
    for n in 0..5 {
        write(&target.join(format!("extra-{n}")), "x");
    }
    let (stops, so_far) = (Stops(AtomicBool::new(false)), Mutex::new(RestoreOutcome::default()));
    let on_change = |_: &Path, change: RestoreAction, _: ContentLoss| {
        stops.0.fetch_or(change == RestoreAction::Remove, Ordering::Relaxed);
    };
    let options = RestoreOptions { on_change: Some(&on_change), so_far: Some(&so_far), ..mirror() };
    let error = restore::run(&snapshot.store, &snapshot.what(), &target, &options, &stops);
    assert!(matches!(error, Err(RestoreError::Interrupted)), "{error:?}");
    assert_eq!(so_far.into_inner().removed, 1);
    assert_eq!(fs_err::read_dir(&target).unwrap().count(), 5);
}

#[test]
fn a_snapshot_with_a_damaged_tree_removes_no_extras() {
    let (_dir, source, target) = dirs();
    write(&source.join("sub/a"), "a");
    let snapshot = Snapshot::of(&source);
    write(&target.join("extra/work"), "x");
    let pack = snapshot.pack_path();
    let mut bytes = fs_err::read(&pack).unwrap();
    let middle = bytes.len() / 4;
    bytes[middle..middle * 2].iter_mut().for_each(|byte| *byte ^= 0xff);
    let mode = PermissionsExt::from_mode(0o600);
    fs_err::set_permissions(&pack, mode).unwrap();
    fs_err::write(&pack, bytes).unwrap();
    let again = snap_core::store::Store::open(snapshot.store.dir(), Disk::default(), &Silent);
    let Ok(again) = again else { return };
    assert!(restore::run(&again, &snapshot.what(), &target, &mirror(), &Silent).is_err());
    assert!(target.join("extra/work").exists());
}
