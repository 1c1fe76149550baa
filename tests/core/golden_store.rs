//! A store of version 5. Since the first release, it must open, verify, log and restore in every later
//! version. The ignored test below made it.

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use snap_core::{
    base::{id::CommitId, kind::ErrorKind, observe::Silent, time::Time},
    disk::Disk,
    format::tree::EntryKind,
    ops::{
        commit::{self, CommitOptions, CommitSource, MetadataLevel},
        list::{self, ListDepth},
        log,
        verify::{self, Data},
    },
    repo::{Config, RefError, RefLogMessage, RefName, Repo, mend::Mended},
};
use snap_testkit::bytes::Corpus;

use crate::scratch::{START, Scratch, copy, open, options, refs, temporary};

/// The commits of `main`, oldest first.
const COMMITS: [&str; 3] = [
    "a00e8c4042cd4d99cb6199fb67c09ddc46148b43313051ef35f8e48be8ffe4f2",
    "823a9cbb0bd12d76307ede3f91629834df22b38d59542018cd935dc7fd3856cf",
    "9a8ef6726087475f8ec067d048448843989995f96746a3a9a049c3131b51c58c",
];

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/store-v5")
}

/// Copies the store and creates its empty folders, which git does not keep.
fn copied() -> tempfile::TempDir {
    let dir = temporary();
    copy(&golden(), &dir.path().join("store"));
    for folder in ["refs/heads", "refs/tags", "logs", "index", "cache", "tmp"] {
        fs_err::create_dir_all(dir.path().join("store").join(folder)).unwrap();
    }
    dir
}

/// Writes the contents of the commit with this number.
fn fill(source: &Path, number: usize) {
    let write = |name: &str, content: &[u8]| {
        let path = source.join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, content).unwrap();
    };
    write("hello.txt", format!("hello {number}\n").as_bytes());
    write("empty", b"");
    write("folder/text", &Corpus::Text.make_seeded(20_000, number as u64));
    write("folder/deep/er/noise", &Corpus::Random.make(3_000));
    if number > 0 {
        // Three chunks, the second of zeros, but only a few bytes when compressed.
        let mut large = Corpus::Zeros.make(9 << 20);
        large[..6_000].copy_from_slice(&Corpus::Source.make_seeded(6_000, number as u64));
        write("large", &large);
        let _ = fs_err::remove_file(source.join("link"));
        fs_err::os::unix::fs::symlink("folder/text", source.join("link")).unwrap();
    }
    if number > 1 {
        for n in 0..1_500 {
            write(&format!("many/{n:04}"), b"");
        }
    }
    // Independent of the umask.
    for entry in walkdir::WalkDir::new(source).into_iter().map(Result::unwrap) {
        let kind = entry.file_type();
        if !kind.is_symlink() {
            let mode = if kind.is_dir() { 0o755 } else { 0o644 };
            fs_err::set_permissions(entry.path(), Permissions::from_mode(mode)).unwrap();
        }
    }
}

fn reproducible(number: usize) -> CommitOptions {
    CommitOptions {
        content: MetadataLevel::Reproducible,
        message: format!("commit {number}"),
        now: Some(Time { secs: START.secs + number as i64, ..START }),
        labels: [("number".to_owned(), number.to_string())].into(),
        ..options()
    }
}

/// Run: `cargo test -p snap-core --test core make_the_golden_store -- --ignored`
#[test]
#[ignore = "writes fixtures/store-v5, which must never change"]
fn make_the_golden_store() {
    let scratch = Scratch::new();
    for number in 0..3 {
        fill(&scratch.source(), number);
        let source = CommitSource::Folder(scratch.source());
        let made = commit::run(&scratch.repo(), source, &reproducible(number), &Silent).unwrap();
        if number == 0 {
            let change = RefLogMessage { time: START, who: "Ann", reason: "tag" };
            let tag = RefName::tag("first").unwrap();
            scratch.repo().refs().update(&tag, None, made.id, &change).unwrap();
        }
        println!("{}", made.id.unwrap());
    }
    for part in ["config.toml", "gc", "HEAD", "objects", "refs", "logs"] {
        copy_part(&scratch.store().join(part), &golden().join(part));
    }
}

fn copy_part(from: &Path, to: &Path) {
    if from.is_dir() {
        fs_err::create_dir_all(to.parent().unwrap()).unwrap();
        copy(from, to);
    } else {
        fs_err::create_dir_all(to.parent().unwrap()).unwrap();
        fs_err::copy(from, to).unwrap();
    }
}

#[test]
fn a_store_of_version_5_opens_verifies_and_lists_its_history() {
    let dir = copied();
    let repo = open(&dir.path().join("store"));
    let ids: Vec<CommitId> = COMMITS.iter().map(|id| id.parse().unwrap()).collect();
    let names = [("refs/heads/main".to_owned(), ids[2]), ("refs/tags/first".to_owned(), ids[0])];
    assert_eq!(refs(&repo), names);
    let logged: Vec<CommitId> = log::run(repo.store(), &ids[2..], &log::LogOptions::default())
        .unwrap()
        .map(|item| item.unwrap().id)
        .collect();
    assert_eq!(logged, [ids[2], ids[1], ids[0]]);
    let all = verify::VerifyOptions { data: Data::All };
    let verified = verify::run(&repo, &all, &Silent).unwrap();
    assert_eq!(verified.problems.len(), 0, "{:?}", verified.problems);
    assert_eq!(verified.commits, 3);
    let line = &repo.refs().log(&RefName::branch("main").unwrap()).unwrap()[2];
    assert_eq!(line.reason, "commit: commit 2");
}

#[test]
fn a_store_of_version_5_restores_and_accepts_new_commits() {
    let dir = copied();
    let store = dir.path().join("store");
    for (number, id) in COMMITS.iter().enumerate() {
        let source = dir.path().join(format!("source-{number}"));
        let target = dir.path().join(format!("target-{number}"));
        (0..=number).for_each(|number| {
            fs_err::create_dir_all(&source).unwrap();
            fill(&source, number);
        });
        let repo = open(&store);
        let commit = repo.store().commit(&id.parse().unwrap()).unwrap();
        let what = snap_core::ops::restore::RestoreSource::Folder { tree: commit.tree, root: None };
        let options = snap_core::ops::restore::RestoreOptions::default();
        snap_core::ops::restore::run(repo.store(), &what, &target, &options, &Silent).unwrap();
        let options = snap_testkit::compare::Options {
            times: false,
            root: false,
            sparse: false,
            ..snap_testkit::compare::Options::default()
        };
        let differences = snap_testkit::compare::compare(&source, &target, &options);
        assert_eq!(differences, Vec::<String>::new());
        let mut files = 0;
        let mut each = |_: &[u8], entry: &snap_core::format::tree::Entry| {
            files += u64::from(matches!(entry.kind, EntryKind::File { .. }));
            Ok(())
        };
        list::run(repo.store(), commit.tree, b"", ListDepth::All, &Silent, &mut each).unwrap();
        assert_eq!(files, commit.totals.files);
    }
    let source = dir.path().join("source-2");
    let same = CommitSource::Folder(source.clone());
    let same = commit::run(&open(&store), same, &reproducible(3), &Silent).unwrap();
    assert!(!same.created, "chunking, ids or trees have changed");
    fs_err::write(source.join("hello.txt"), "hello again\n").unwrap();
    let more = commit::run(&open(&store), CommitSource::Folder(source), &reproducible(3), &Silent)
        .unwrap();
    assert!(more.created);
    assert_eq!(more.added.objects, 3, "a blob, a tree and a commit");
    let main = open(&store).refs().text(&RefName::branch("main").unwrap()).unwrap().unwrap();
    assert_eq!((main.commit, main.epoch), (more.id, 0));
}

#[test]
fn an_open_store_whose_version_is_raised_is_not_changed() {
    let dir = copied();
    let store = dir.path().join("store");
    let repo = open(&store);
    let tag = RefName::tag("new").unwrap();
    let (time, id) = (Time::now(), COMMITS[0].parse().unwrap());
    let change = RefLogMessage { time, who: "ann", reason: "tag" };
    repo.refs().update(&tag, None, Some(id), &change).unwrap();
    let file = || fs_err::read_to_string(store.join("refs/tags/new")).unwrap();
    let before = file();
    assert_eq!(before.lines().count(), 3, "{before}");
    let config = fs_err::read_to_string(store.join("config.toml")).unwrap();
    let newer = config.replace("\nversion = 5\n", "\nversion = 6\n");
    assert_ne!(newer, config);
    fs_err::write(store.join("config.toml"), newer).unwrap();
    let refused = repo.refs().update(&tag, Some(id), None, &change).unwrap_err();
    assert!(matches!(refused, RefError::Newer { .. }), "{refused}");
    let refused = repo.refs().hold().map(drop).unwrap_err();
    assert!(matches!(refused, RefError::Newer { .. }), "{refused}");
    assert_eq!(file(), before);
}

#[test]
fn a_store_from_before_the_first_release_is_refused() {
    let dir = copied();
    let path = dir.path().join("store/config.toml");
    let config = fs_err::read_to_string(&path).unwrap();
    for version in 1..=4 {
        let old = config.replace("\nversion = 5\n", &format!("\nversion = {version}\n"));
        fs_err::write(&path, old).unwrap();
        let store = dir.path().join("store");
        let error = Repo::open(&store, Disk::default(), &Silent).unwrap_err();
        let message = format!(
            "has store version {version}, from before the first release; this snap reads version 5"
        );
        assert!(error.to_string().ends_with(&message), "{error}");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        // A repair must not give it the new version.
        assert!(!Repo::mend_settings(&store, &Disk::default(), &Config::default()).unwrap());
    }
}

#[test]
fn a_store_without_its_epoch_is_read_and_repaired() {
    let dir = copied();
    let store = dir.path().join("store");
    let file = store.join("gc");
    let whole = fs_err::read(&file).unwrap();
    for damage in [None, Some("damaged")] {
        match damage {
            None => fs_err::remove_file(&file).unwrap(),
            Some(text) => fs_err::write(&file, text).unwrap(),
        }
        let epoch = open(&store).store().epoch().unwrap();
        assert!(!epoch.is_first() && epoch.number == 0, "{damage:?}");
        assert_eq!(refs(&open(&store)).len(), 2);
        let mended = Repo::mend(&store, &Disk::default(), &Config::default()).unwrap();
        assert_eq!(mended, [Mended::Epoch], "{damage:?}");
        let epoch = open(&store).store().epoch().unwrap();
        // A collection may have run before the loss.
        assert!(!epoch.is_first() && epoch.number == 0, "{damage:?}");
        assert_eq!(Repo::mend(&store, &Disk::default(), &Config::default()).unwrap(), []);
        fs_err::write(&file, &whole).unwrap();
        assert!(open(&store).store().epoch().unwrap().is_first());
    }
}
