//! Entries at a limit are committed and read again. Entries beyond a limit are skipped
//! and reported by name, and everything else stays readable.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use snap_core::{
    base::{
        limits,
        name::EntryName,
        observe::{Note, Observer, Silent},
    },
    format::tree::Entry,
    local::ignore,
    ops::{
        commit::{self, CommitOutcome, CommitSource, NamedPath},
        diff::{self, ComparedFiles, ComparedFolder, New},
        list::{self, ListDepth},
        restore::{self, RestoreSource},
        verify,
    },
};
use snap_testkit::skip::skip;

use crate::{
    hostile::remove_deep,
    scratch::{Scratch, options},
};

/// Makes nested folders with a file in the innermost one. The whole path may be too
/// long for the system.
fn nest(top: &Path, folders: usize) -> OwnedFd {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(CWD, top, flags, Mode::empty()).unwrap();
    for _ in 0..folders {
        mkdirat(&at, "d", Mode::RWXU).unwrap();
        at = openat(&at, "d", flags, Mode::empty()).unwrap();
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
    let file = openat(&at, "bottom", flags, Mode::RUSR | Mode::WUSR).unwrap();
    rustix::io::write(&file, b"x").unwrap();
    at
}

/// Collects what was skipped.
#[derive(Default)]
struct Skipped(Mutex<Vec<(PathBuf, String)>>);

impl Observer for Skipped {
    fn note(&self, note: Note<'_>) {
        match note {
            Note::Skipped { path, error } => {
                self.0.lock().push((path.to_owned(), error.to_string()));
            }
            Note::AttributesUnread { path, error } => {
                self.0.lock().push((path.to_owned(), error.to_string()));
            }
            _ => {}
        }
    }
}

fn commit(scratch: &Scratch, source: CommitSource<'_>) -> (CommitOutcome, Vec<(PathBuf, String)>) {
    let skipped = Skipped::default();
    let outcome = commit::run(&scratch.repo(), source, &options(), &skipped).unwrap();
    (outcome, skipped.0.into_inner())
}

/// Runs every tree walk on a commit to its end. Returns the number of entries.
fn entries(scratch: &Scratch, outcome: &CommitOutcome) -> usize {
    let repo = scratch.repo();
    let tree = repo.store().commit(&outcome.id.unwrap()).unwrap().tree;
    let mut count = 0;
    let mut each = |_: &[u8], _: &Entry| {
        count += 1;
        Ok(())
    };
    list::run(repo.store(), tree, b"", ListDepth::All, &Silent, &mut each).unwrap();
    let verified = verify::run(&repo, &verify::VerifyOptions::default(), &Silent).unwrap();
    assert!(verified.problems.is_empty(), "{:?}", verified.problems);
    count
}

#[test]
fn folders_below_the_depth_limit_are_skipped() {
    let scratch = Scratch::new();
    nest(&scratch.source(), limits::DEPTH);
    let (outcome, skipped) = commit(&scratch, CommitSource::Folder(scratch.source()));
    assert_eq!((outcome.skipped, skipped.len()), (0, 0), "{skipped:?}");
    assert_eq!(entries(&scratch, &outcome), limits::DEPTH + 1);
    let repo = scratch.repo();
    let tree = repo.store().commit(&outcome.id.unwrap()).unwrap().tree;
    let (what, target) = (RestoreSource::Folder { tree, root: None }, scratch.path("target"));
    let options = restore::RestoreOptions::default();
    let restored = restore::run(repo.store(), &what, &target, &options, &Silent).unwrap();
    assert_eq!((restored.folders, restored.files_written), (limits::DEPTH as u64, 1));
    remove_deep(&target);
    remove_deep(&scratch.source());

    let deeper = Scratch::new();
    nest(&deeper.source(), limits::DEPTH + 1);
    let (outcome, skipped) = commit(&deeper, CommitSource::Folder(deeper.source()));
    assert_eq!((outcome.skipped, skipped.len()), (1, 1), "{skipped:?}");
    assert!(skipped[0].1.contains("nested deeper than 2048 folders"), "{skipped:?}");
    assert_eq!(entries(&deeper, &outcome), limits::DEPTH);
    remove_deep(&deeper.source());
}

#[test]
fn the_depth_limit_is_measured_from_the_snapshot_root() {
    let above = ["x", "y", "z"];
    for (folders, left_out) in [(limits::DEPTH - 3, 0), (limits::DEPTH - 2, 1)] {
        let scratch = Scratch::new();
        let path = scratch.source().join("x/y/z");
        fs_err::create_dir_all(&path).unwrap();
        nest(&path, folders);
        scratch.write("other", "x");
        let inside = above.map(|name| EntryName::new(name.as_bytes()).unwrap()).to_vec();
        let other = NamedPath {
            path: scratch.source().join("other"),
            inside: vec![EntryName::new(b"other").unwrap()],
        };
        let paths = vec![NamedPath { path, inside }, other];
        let (outcome, skipped) = commit(&scratch, CommitSource::Paths(paths));
        assert_eq!(outcome.skipped, left_out, "{skipped:?}");
        let all = limits::DEPTH + 1 + usize::from(left_out == 0);
        assert_eq!(entries(&scratch, &outcome), all);
        remove_deep(&scratch.source());
    }
}

#[test]
fn files_with_paths_longer_than_path_max_are_compared() {
    let scratch = Scratch::new();
    let long = "n".repeat(200);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(CWD, scratch.source(), flags, Mode::empty()).unwrap();
    for _ in 0..30 {
        mkdirat(&at, &*long, Mode::RWXU).unwrap();
        at = openat(&at, &*long, flags, Mode::empty()).unwrap();
    }
    let write = |name: &str, content: &[u8]| {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = openat(&at, name, flags, Mode::RUSR | Mode::WUSR).unwrap();
        rustix::io::write(&file, content).unwrap();
    };
    write("changed", b"before");
    write("old name", b"a content that moves");
    let id = scratch.commit().id.unwrap();
    write("changed", b"after!");
    rustix::fs::renameat(&at, "old name", &at, "new name").unwrap();

    let repo = scratch.repo();
    let old = repo.store().commit(&id).unwrap().tree;
    let folder = ComparedFolder {
        files: ComparedFiles::Folder(scratch.source()),
        ignore: ignore::Options::default(),
        scope: Vec::new(),
        reproducible: false,
    };
    let new = New::Folder(folder);
    let mut changes = Vec::new();
    let mut each = |change| {
        changes.push(change);
        Ok(())
    };
    let options =
        diff::DiffOptions { renames: diff::RenameDetection::Find, ..diff::DiffOptions::default() };
    let outcome = diff::run(repo.store(), Some(old), &new, &options, &Silent, &mut each);
    assert_eq!(outcome.unwrap().skipped, 0);
    let reader = diff::SideReader::new(repo.store(), &new, 1 << 20).unwrap();
    let changed = changes.iter().find(|change| change.path.ends_with(b"/changed")).unwrap();
    assert!(changed.path.len() > 4095);
    let content = reader.new_side(&changed.path, changed.new.as_ref(), &Silent).unwrap();
    assert_eq!(content, diff::SideContent::Bytes(b"after!".to_vec()));
    let moved = changes.iter().find(|change| change.path.ends_with(b"/new name")).unwrap();
    assert!(moved.old_path.as_ref().is_some_and(|path| path.ends_with(b"/old name")), "{moved:?}");
}

/// Adds attributes with values of this length to an entry. Returns true if the file
/// system accepts all of them.
fn add_attributes(path: &Path, count: usize, value_bytes: usize) -> bool {
    let value = vec![b'v'; value_bytes];
    (0..count).all(|number| {
        let name = format!("user.{number:04}");
        rustix::fs::setxattr(path, name, &value, rustix::fs::XattrFlags::empty()).is_ok()
    })
}

#[test]
fn attributes_above_the_tree_limits_are_skipped_with_a_note() {
    let scratch = Scratch::new();
    scratch.write("folder/within", "x");
    scratch.write("folder/past", "x");
    scratch.write("folder/large", "x");
    let path = |name: &str| scratch.source().join(name);
    let made = add_attributes(&path("folder/within"), limits::XATTRS, 0)
        && add_attributes(&path("folder/past"), limits::XATTRS + 1, 0)
        && add_attributes(&path("folder/large"), 20, 60_000)
        && add_attributes(&path("folder"), limits::XATTRS + 1, 0)
        && add_attributes(&scratch.source(), 6, 60_000);
    if !made {
        let reason = "no file system here takes as many attributes";
        return skip("attributes past the limit", reason);
    }
    let (outcome, mut told) = commit(&scratch, CommitSource::Folder(scratch.source()));
    told.sort();
    assert_eq!((outcome.skipped, outcome.without_attributes), (0, 4), "{told:?}");
    let rules = [
        "bytes of extended attributes on the root folder; the limit is ",
        "number of extended attributes is 4097; the limit is 4096",
        "size of extended attributes is ",
        "number of extended attributes is 4097; the limit is 4096",
    ];
    for ((path, error), (name, rule)) in
        told.iter().zip(["source", "folder", "large", "past"].iter().zip(rules))
    {
        assert!(path.ends_with(name) && error.contains(rule), "{path:?}: {error}");
    }
    assert_eq!(entries(&scratch, &outcome), 4);
    let repo = scratch.repo();
    let root = repo.store().commit(&outcome.id.unwrap()).unwrap().tree;
    let entry = snap_core::repo::path::resolve_path(repo.store(), root, b"folder/within");
    let Ok(snap_core::repo::path::ResolvedPath::Entry(entry)) = entry else { panic!("{entry:?}") };
    assert_eq!(entry.metadata.xattrs.len(), limits::XATTRS);
    // The next commit reports the skipped attributes again.
    let (again, told) = commit(&scratch, CommitSource::Folder(scratch.source()));
    assert_eq!((again.without_attributes, told.len()), (4, 4), "{told:?}");
}
