//! What a commit reads, stores and skips.

use std::{
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use snap_core::{
    base::{id::TreeId, observe::Silent},
    local::ignore,
    ops::{
        commit::{self, CommitOptions, CommitOutcome, CommitSource, MetadataLevel},
        list::{self, ListDepth},
    },
    repo::Repo,
};
use snap_testkit::{bytes::Corpus, skip::skip, trees, wait::until};

use crate::scratch::{Scratch, check, commit, on_branch, options};

fn tree(repo: &Repo, outcome: &CommitOutcome) -> TreeId {
    repo.store().commit(&outcome.id.unwrap()).unwrap().tree
}

fn paths(repo: &Repo, outcome: &CommitOutcome) -> Vec<String> {
    let mut paths = Vec::new();
    let mut each = |path: &[u8], _: &_| {
        paths.push(String::from_utf8_lossy(path).into_owned());
        Ok(())
    };
    let root = tree(repo, outcome);
    list::run(repo.store(), root, b"", ListDepth::All, &Silent, &mut each).unwrap();
    paths
}

#[test]
fn an_unchanged_source_creates_a_commit_only_on_request() {
    let scratch = Scratch::new();
    scratch.write("file", "content");
    let first = scratch.commit();
    let packs = scratch.repo().store().packs();
    let again = scratch.commit();
    assert_eq!((again.created, again.id), (false, first.id));
    assert_eq!(scratch.repo().store().packs(), packs);
    let wanted = CommitOptions { unchanged: commit::Unchanged::Commit, ..options() };
    let made = commit(&scratch.repo(), &scratch.source(), &wanted);
    assert!(made.created && made.id != first.id);
    assert_eq!(check(&scratch.repo()), Ok(2));
}

#[test]
fn a_moved_file_is_not_read_again() {
    let scratch = Scratch::new();
    scratch.write("folder/file", Corpus::Random.make(50_000));
    scratch.write("large", Corpus::Random.make(3_000_000));
    scratch.write("changed", "before");
    let first = scratch.commit();
    assert_eq!(first.bytes_read, 3_050_006);
    scratch.settle();
    let source = scratch.source();
    fs_err::create_dir(source.join("elsewhere")).unwrap();
    fs_err::rename(source.join("folder"), source.join("elsewhere/renamed")).unwrap();
    scratch.write("changed", "after!");
    let moved = scratch.commit();
    assert_eq!(moved.bytes_read, 6, "only what changed");
    scratch.assert_restores(moved.id.unwrap());
    // A rename changes the ctime of the file itself.
    fs_err::rename(source.join("large"), source.join("larger")).unwrap();
    let renamed = scratch.commit();
    assert!(renamed.created);
    scratch.assert_restores(renamed.id.unwrap());
}

#[test]
fn a_change_of_equal_size_and_mtime_is_detected() {
    let scratch = Scratch::new();
    scratch.write("file", "content");
    scratch.settle();
    let path = scratch.source().join("file");
    let time = fs_err::metadata(&path).unwrap().modified().unwrap();
    fs_err::write(&path, "CONTENT").unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    let changed = scratch.commit();
    assert_eq!((changed.created, changed.files.modified, changed.bytes_read), (true, 1, 7));
    scratch.assert_restores(changed.id.unwrap());
}

#[test]
fn a_file_that_was_just_written_is_read_again() {
    let scratch = Scratch::new();
    for round in 0..20 {
        scratch.write("file", format!("content {round:02}"));
        let outcome = scratch.commit();
        assert!(outcome.created, "round {round}");
        assert_eq!(outcome.bytes_read, 10);
        scratch.assert_restores(outcome.id.unwrap());
    }
    // An unchanged file is also read again: after such a short time, its times prove
    // nothing. On a machine that is slow at times, some rounds are too late to show
    // this.
    let read_again = (0..50).filter(|round| {
        scratch.write("file", format!("content {round:02}"));
        scratch.commit();
        scratch.commit().bytes_read > 0
    });
    assert!(read_again.count() > 0);
}

#[test]
fn a_replaced_symlink_is_detected() {
    let scratch = Scratch::new();
    let link = scratch.source().join("link");
    for round in 0..50 {
        let _ = fs_err::remove_file(&link);
        fs_err::os::unix::fs::symlink(format!("target {round:02}"), &link).unwrap();
        let outcome = scratch.commit();
        assert!(outcome.created, "round {round}");
        scratch.assert_restores(outcome.id.unwrap());
    }
}

#[test]
fn cache_and_index_can_be_deleted() {
    let scratch = Scratch::new();
    trees::text_files(&scratch.source(), 120, 500).unwrap();
    let first = scratch.settle();
    for part in ["cache", "index"] {
        fs_err::remove_dir_all(scratch.store().join(part)).unwrap();
        let again = scratch.commit();
        assert_eq!((again.created, again.id), (false, first.id), "without {part}");
        assert_eq!(again.added.stored_bytes, 0);
    }
    assert_eq!(check(&scratch.repo()), Ok(1));
    for part in ["cache", "index"] {
        fs_err::remove_dir_all(scratch.store().join(part)).unwrap();
    }
    scratch.write("more", "more");
    let more =
        commit::run(&scratch.repo(), CommitSource::Folder(scratch.source()), &options(), &Silent);
    assert!(more.is_ok_and(|more| more.created), "without both of them");
    assert_eq!(check(&scratch.repo()), Ok(2));
}

#[test]
fn the_same_content_is_stored_once() {
    let scratch = Scratch::new();
    let content = Corpus::Random.make(900_000);
    for name in ["a", "b", "folder/c"] {
        scratch.write(name, &content);
    }
    let large = Corpus::Random.make_seeded(5_000_000, 1);
    scratch.write("d", &large);
    let first = scratch.commit();
    assert!(first.added.stored_bytes < 6_000_000, "{:?}", first.added);
    scratch.write("e", &content);
    scratch.write("f", &large);
    let mut longer = large.clone();
    longer.insert(2_500_000, 1);
    scratch.write("g", &longer);
    let more = scratch.commit();
    assert!(more.added.stored_bytes < 5_000_000, "{:?}", more.added);
    scratch.assert_restores(more.id.unwrap());
}

#[test]
fn reproducible_commits_of_equal_content_have_equal_trees() {
    let scratch = Scratch::new();
    let other = scratch.path("other");
    for (dir, mode) in [(scratch.source(), 0o644), (other.clone(), 0o644)] {
        fs_err::create_dir_all(dir.join("folder")).unwrap();
        fs_err::write(dir.join("folder/file"), "content").unwrap();
        fs_err::write(dir.join("twin"), "content").unwrap();
        let permissions = std::fs::Permissions::from_mode(mode);
        fs_err::set_permissions(dir.join("twin"), permissions).unwrap();
    }
    // Reproducible commits ignore hard links and times.
    fs_err::hard_link(other.join("twin"), scratch.path("another name")).unwrap();
    let repo = scratch.repo();
    let same =
        |branch: &str| CommitOptions { content: MetadataLevel::Reproducible, ..on_branch(branch) };
    let one = commit(&repo, &scratch.source(), &same("one"));
    let two = commit(&repo, &other, &same("two"));
    assert_eq!(tree(&repo, &one), tree(&repo, &two));
    let complete = commit(&repo, &other, &on_branch("three"));
    assert_ne!(tree(&repo, &one), tree(&repo, &complete));
    until("a commit reads no file", || commit(&repo, &other, &on_branch("three")).bytes_read == 0);
    let back = commit(&repo, &other, &same("four"));
    assert_eq!(tree(&repo, &one), tree(&repo, &back), "the cache does not mix them up");
}

#[test]
fn excluded_paths_are_not_committed() {
    let scratch = Scratch::new();
    for name in ["keep", "a.log", "b.tmp", "sub/a.log", "sub/keep.log", "build/x", "sub/build/y"] {
        scratch.write(name, "1");
    }
    scratch.write("large", Corpus::Zeros.make(5_000));
    scratch.write("cache/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n");
    scratch.write("cache/deep/x", "1");
    for store in [".snap", "sub/.snap"] {
        for part in ["objects/x", "config.toml", "HEAD"] {
            scratch.write(&format!("{store}/{part}"), "never");
        }
    }
    scratch.write(".snapignore", "*.log\n/build\n");
    scratch.write("sub/.snapignore", "!keep.log\n");
    scratch.write(".gitignore", "b.*\n");
    let repo = scratch.repo();
    let plain = paths(&repo, &commit(&repo, &scratch.source(), &on_branch("plain")));
    let without = |gone: &[&str]| {
        let gone = |path: &&String| {
            !gone.iter().any(|gone| *path == gone || path.starts_with(&format!("{gone}/")))
        };
        plain.iter().filter(gone).cloned().collect::<Vec<_>>()
    };
    let expected = [
        ".gitignore",
        ".snapignore",
        "b.tmp",
        "cache",
        "cache/CACHEDIR.TAG",
        "cache/deep",
        "cache/deep/x",
        "keep",
        "large",
        "sub",
        "sub/.snapignore",
        "sub/build",
        "sub/build/y",
        "sub/keep.log",
    ];
    assert_eq!(
        plain.iter().map(String::as_str).collect::<std::collections::BTreeSet<_>>(),
        expected.into()
    );
    let default = ignore::Options::default;
    let patterns = vec!["sub".to_owned()];
    for (name, ignore, gone) in [
        ("gitignore", ignore::Options { gitignore: true, ..default() }, &["b.tmp"][..]),
        ("caches", ignore::Options { cache_folders: true, ..default() }, &["cache/deep"]),
        ("size", ignore::Options { larger_than_bytes: Some(4_999), ..default() }, &["large"]),
        ("pattern", ignore::Options { patterns, ..default() }, &["sub"]),
        ("device", ignore::Options { one_file_system: true, ..default() }, &[]),
    ] {
        let outcome =
            commit(&repo, &scratch.source(), &CommitOptions { ignore, ..on_branch(name) });
        let mut found = paths(&repo, &outcome);
        let mut wanted = without(gone);
        found.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "{name}");
    }
}

#[test]
fn one_file_system_skips_mount_points() {
    let shm = Path::new("/dev/shm");
    let device = |path: &Path| fs_err::metadata(path).ok().map(|meta| meta.dev());
    if device(shm).is_none() || device(shm) == device(Path::new("/dev")) {
        return skip("a mount point in a folder", "/dev/shm is not a mount point");
    }
    let marker = tempfile::tempdir_in(shm).unwrap();
    fs_err::write(marker.path().join("inside"), "1").unwrap();
    let scratch = Scratch::new();
    let repo = scratch.repo();
    // Commit only `shm` of `/dev`. It is a mount point, so its content is left out.
    let patterns = vec!["/*".to_owned(), "!/shm".to_owned()];
    let ignore = ignore::Options { one_file_system: true, patterns, ..ignore::Options::default() };
    let outcome = commit(&repo, Path::new("/dev"), &CommitOptions { ignore, ..options() });
    assert_eq!(paths(&repo, &outcome), ["shm"], "a mount point is an empty folder");
}

#[test]
fn pipes_and_files_that_cannot_be_read_do_not_stop_a_commit() {
    let scratch = Scratch::new();
    scratch.write("file", "content");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    let fifo = scratch.source().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    scratch.write("secret", "secret");
    let none = std::fs::Permissions::from_mode(0o000);
    fs_err::set_permissions(scratch.source().join("secret"), none).unwrap();
    let outcome = scratch.commit();
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(outcome.skipped, u64::from(!is_root));
    assert_eq!(outcome.totals.others, 1);
    if is_root {
        scratch.assert_restores(outcome.id.unwrap());
    }
}

#[test]
fn a_change_in_a_huge_folder_stores_few_objects() {
    let scratch = Scratch::new();
    let folder = scratch.source().join("folder");
    fs_err::create_dir(&folder).unwrap();
    for n in 0..40_000 {
        fs_err::write(folder.join(format!("{n:05}")), "").unwrap();
    }
    let first = scratch.settle();
    assert_eq!(first.totals.files, 40_000);
    scratch.assert_restores(first.id.unwrap());
    fs_err::write(folder.join("20000x"), "one more").unwrap();
    let more = scratch.commit();
    assert_eq!((more.files.added, more.files.unmodified), (1, 40_000));
    // The content, the commit, the root, and of the folder a node and one or two
    // leaves.
    assert!(more.added.objects <= 7, "{:?}", more.added);
    scratch.assert_restores(more.id.unwrap());
}

#[test]
fn a_commit_with_too_many_labels_is_refused() {
    let scratch = Scratch::new();
    scratch.write("file", "content");
    let labels = (0..1_025).map(|n| (n.to_string(), String::new())).collect();
    let made = commit::run(
        &scratch.repo(),
        CommitSource::Folder(scratch.source()),
        &CommitOptions { labels, ..options() },
        &Silent,
    );
    assert!(made.is_err(), "more than a reader takes");
    scratch.commit();
    assert_eq!(check(&scratch.repo()), Ok(1));
}
