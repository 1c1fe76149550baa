//! Bundles: their contents, what they leave out, and unpacking them into a store.

use std::{collections::BTreeSet, path::Path};

use proptest::test_runner::TestRunner;
use snap_core::{
    base::{
        id::{BlobId, CommitId, ObjectId, PackId},
        observe::Silent,
    },
    ops::{
        bundle::{Error, archive, pack, unpack},
        commit::CommitSource,
        inbox::Adoption,
        tidy, verify,
    },
    repo::{Config, Head, RefLogMessage, Repo},
    store::{BundleReader, BundleStore, PackFile, Store},
};
use snap_testkit::bytes::Corpus;

use crate::{
    bundle_hostile::Parts,
    scratch::{self, START, Scratch, options, temporary},
    trees::{any_tree, write_tree},
};

/// Packs a commit without the objects that the commits in `since` reach.
pub(crate) fn packed(store: &Store, commit: CommitId, since: &[CommitId]) -> Vec<u8> {
    let dir = temporary();
    let options = pack::PackOptions { since: since.to_vec(), scratch: dir.path(), level: 3 };
    let mut out = Vec::new();
    let outcome = pack::run(store, commit, &options, &mut out, &Silent).unwrap();
    assert_eq!(outcome.file_bytes, out.len() as u64);
    assert_eq!(fs_err::read_dir(dir.path()).unwrap().count(), 0, "left over");
    out
}

/// Unpacks a bundle into a store whose refs are not known.
pub(crate) fn taken(store: &Store, bundle: &[u8]) -> Result<unpack::UnpackOutcome, Error> {
    let options = unpack::UnpackOptions { tips: Vec::new(), most_bytes: u64::MAX };
    let bundle = unpack::prepare(store, BundleReader::new(bundle)?, &options, &Silent)?;
    bundle.adopt(Adoption::NewObjects(3), &Silent)
}

/// Updates the branch of `HEAD` to a commit.
pub(crate) fn point(repo: &Repo, commit: CommitId) {
    let Head::Branch(name) = repo.refs().head().unwrap() else { unreachable!() };
    let old = repo.refs().read(&name).unwrap();
    let change = RefLogMessage { time: START, who: "Ann", reason: "test" };
    repo.refs().update(&name, old, Some(commit), &change).unwrap();
}

/// Returns the ids of all objects in a bundle.
fn ids(bundle: &[u8]) -> BTreeSet<ObjectId> {
    let dir = temporary();
    let path = dir.path().join("pack");
    let mut ids = BTreeSet::new();
    for bytes in Parts::of(bundle).packs {
        fs_err::write(&path, bytes).unwrap();
        let pack = PackFile::open(&path, PackId::from_bytes([0; 32])).unwrap();
        ids.extend(pack.objects().unwrap().iter().map(|object| object.id));
    }
    ids
}

fn assert_sound(repo: &Repo) {
    let options = verify::VerifyOptions { data: verify::Data::All };
    let outcome = verify::run(repo, &options, &Silent).unwrap();
    assert!(outcome.problems.is_empty(), "{:?}", outcome.problems);
}

/// Makes a history with text, a chunked file, a file that is removed and a file that is
/// restored.
pub(crate) fn history() -> (Scratch, Vec<CommitId>) {
    let scratch = Scratch::new();
    let mut commits = Vec::new();
    scratch.write("large", Corpus::Random.make(3 << 20));
    scratch.write("secret", "only in the first");
    scratch.write("a/b/text", Corpus::Text.make(10_000));
    commits.push(scratch.commit().id.unwrap());
    fs_err::remove_file(scratch.source().join("secret")).unwrap();
    scratch.write("a/new", "second");
    commits.push(scratch.commit().id.unwrap());
    let mut large = Corpus::Random.make(3 << 20);
    large.extend_from_slice(b"and a bit more");
    scratch.write("large", large);
    commits.push(scratch.commit().id.unwrap());
    (scratch, commits)
}

#[test]
fn a_bundle_transfers_the_whole_history() {
    let (from, commits) = history();
    let bundle = packed(from.repo().store(), commits[2], &[]);
    let to = Scratch::new();
    let repo = to.repo();
    let outcome = taken(repo.store(), &bundle).unwrap();
    assert_eq!((outcome.commit, outcome.commits), (commits[2], 3));
    assert_eq!(outcome.added.objects, outcome.objects);
    point(&repo, outcome.commit);
    assert_sound(&scratch::open(&to.store()));
    scratch::assert_restores(&repo, commits[2], &from.source(), &to.path("out"));
    assert_eq!(fs_err::read_dir(to.store().join("tmp")).unwrap().count(), 0);

    let again = taken(repo.store(), &bundle).unwrap();
    assert_eq!((again.commits, again.added.objects, again.added.packs), (0, 0, 0));
}

#[test]
fn a_bundle_with_prerequisites_has_only_the_other_objects() {
    let (from, commits) = history();
    let repo = from.repo();
    let all = ids(&packed(repo.store(), commits[2], &[]));
    let first = ids(&packed(repo.store(), commits[0], &[]));
    let rest = ids(&packed(repo.store(), commits[2], &[commits[0]]));
    assert!(first.is_disjoint(&rest));
    assert_eq!(first.union(&rest).copied().collect::<BTreeSet<_>>(), all);

    let to = Scratch::new();
    let target = to.repo();
    for (commit, since) in [(commits[0], vec![]), (commits[2], vec![commits[0]])] {
        let bundle = packed(repo.store(), commit, &since);
        let options = unpack::UnpackOptions { tips: since.clone(), most_bytes: u64::MAX };
        let opened = BundleReader::new(&*bundle).unwrap();
        let unpacked = unpack::prepare(target.store(), opened, &options, &Silent).unwrap();
        let outcome = unpacked.adopt(Adoption::NewObjects(3), &Silent).unwrap();
        assert_eq!(outcome.prerequisites, since);
    }
    point(&target, commits[2]);
    assert_sound(&target);
    scratch::assert_restores(&target, commits[2], &from.source(), &to.path("out"));
}

#[test]
fn a_bundle_contains_no_object_of_other_commits() {
    let (from, commits) = history();
    // Merge everything into one pack, so that frames hold objects of several commits.
    for number in 0..12 {
        from.write("number", number.to_string());
        from.commit();
    }
    let repo = from.repo();
    tidy::run(&repo, &Silent).unwrap();
    let repo = from.repo();
    let bundle = packed(repo.store(), commits[2], &[commits[0]]);
    let ids = ids(&bundle);
    let secret = BlobId::of(b"only in the first").object();
    let later = BlobId::of(b"7").object();
    assert!(repo.store().locate(&secret).unwrap().is_some());
    assert!(!ids.contains(&secret) && !ids.contains(&later));
    assert!(ids.contains(&commits[2].object()) && ids.contains(&commits[1].object()));
    let to = Scratch::new();
    taken(to.repo().store(), &packed(repo.store(), commits[0], &[])).unwrap();
    taken(to.repo().store(), &bundle).unwrap();
    point(&to.repo(), commits[2]);
    assert_sound(&to.repo());
}

#[test]
fn unpacking_stores_no_existing_object_again() {
    let (from, commits) = history();
    let bundle = packed(from.repo().store(), commits[2], &[]);
    let to = Scratch::new();
    to.write("large", Corpus::Random.make(3 << 20));
    to.commit();
    let outcome = taken(to.repo().store(), &bundle).unwrap();
    assert!(outcome.added.raw_bytes < 1_000_000, "{:?}", outcome.added);
    assert!(outcome.added.objects < outcome.objects);
    point(&to.repo(), commits[2]);
    assert_sound(&to.repo());
}

#[test]
fn a_bundle_is_read_in_place() {
    let (from, commits) = history();
    let path = from.path("file.snap");
    fs_err::write(&path, packed(from.repo().store(), commits[2], &[])).unwrap();
    let scratch = temporary();
    let bundle = BundleStore::open(&path, scratch.path(), &Silent).unwrap();
    assert_eq!(bundle.head().commit, commits[2]);
    scratch::assert_restores_from(bundle.store(), commits[2], &from.source(), &from.path("out"));
    let incremental = packed(from.repo().store(), commits[2], &[commits[1]]);
    fs_err::write(&path, incremental).unwrap();
    let error = BundleStore::open(&path, scratch.path(), &Silent).unwrap_err();
    assert!(error.to_string().contains(&format!("{:.12}", commits[1])), "{error}");
}

#[test]
fn an_archive_is_made_and_unpacked_without_a_source_store() {
    let from = Scratch::new();
    from.write("a/text", Corpus::Text.make(100_000));
    from.write("large", Corpus::Random.make(3 << 20));
    let scratch = temporary();
    let mut out = Vec::new();
    let source = CommitSource::Folder(from.source());
    let config = Config::default();
    let outcome =
        archive::run(source, &options(), &config, scratch.path(), &mut out, &Silent).unwrap();
    assert_eq!(outcome.file_bytes, out.len() as u64);
    assert_eq!(fs_err::read_dir(scratch.path()).unwrap().count(), 0, "left over");
    let to = Scratch::new();
    taken(to.repo().store(), &out).unwrap();
    let id = outcome.commit.id.unwrap();
    point(&to.repo(), id);
    assert_sound(&to.repo());
    scratch::assert_restores(&to.repo(), id, &from.source(), &to.path("out"));
    // The commit is identical to one made in a store.
    assert_eq!(from.commit().id, Some(id));
}

#[test]
fn concurrent_unpacks_succeed() {
    let (from, commits) = history();
    let bundle = packed(from.repo().store(), commits[2], &[]);
    let to = Scratch::new();
    let store = to.store();
    std::thread::scope(|scope| {
        let unpack = |_| {
            let (store, bundle): (&Path, &[u8]) = (&store, &bundle);
            scope.spawn(move || {
                taken(scratch::open(store).store(), bundle).unwrap();
            })
        };
        let threads: Vec<_> = (0..4).map(unpack).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    point(&to.repo(), commits[2]);
    assert_sound(&to.repo());
}

#[test]
fn a_commit_removes_incoming_packs_of_a_killed_process() {
    let to = Scratch::new();
    let left = to.store().join("tmp/incoming-1-2-3");
    fs_err::create_dir_all(left.join("objects")).unwrap();
    fs_err::write(left.join("lock"), "").unwrap();
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(120);
    fs_err::File::open(&left).unwrap().set_modified(old).unwrap();
    to.write("x", "x");
    to.commit();
    assert!(!left.exists());
}

/// Two commits that pass through two bundles are unchanged.
#[test]
fn any_history_round_trips_through_bundles() {
    let run = TestRunner::new(snap_testkit::property::cases(16)).run(
        &(any_tree(), any_tree()),
        |(first, second)| {
            let from = Scratch::new();
            let mut commits = Vec::new();
            for (name, tree) in [("first", first), ("second", second)] {
                fs_err::create_dir(from.source().join(name)).unwrap();
                write_tree(&from.source().join(name), &tree);
                commits.push(from.commit().id.unwrap());
            }
            let to = Scratch::new();
            let target = to.repo();
            for (commit, since) in [(commits[0], vec![]), (commits[1], vec![commits[0]])] {
                let bundle = packed(from.repo().store(), commit, &since);
                taken(target.store(), &bundle).unwrap();
            }
            point(&target, commits[1]);
            assert_sound(&target);
            scratch::assert_restores(&target, commits[1], &from.source(), &to.path("out"));
            Ok(())
        },
    );
    run.unwrap();
}

#[test]
fn a_bundle_without_new_objects_is_empty() {
    let (from, commits) = history();
    let repo = from.repo();
    let bundle = packed(repo.store(), commits[0], &[commits[2]]);
    assert!(ids(&bundle).is_empty());
    let outcome = taken(repo.store(), &bundle).unwrap();
    assert_eq!((outcome.objects, outcome.commits), (0, 0));
}
