//! Bundles that are truncated, changed, or crafted to mislead: each is refused, and the
//! store is unchanged.

use std::{collections::BTreeMap, path::Path};

use snap_core::{
    base::{
        id::{BlobId, ChunkListId, CommitId, PackId},
        kind::ErrorKind,
        limits,
        observe::Silent,
    },
    format::{
        bundle::BundleHead,
        chunk_list::{BlobRef, ZERO_CHUNK},
        pack::ObjectKind,
    },
    ops::bundle::Error,
    store::{BundleError, BundleStore, StoreError},
};

use crate::{
    bundle::{packed, taken},
    crafted::{
        Body, Claim, Crafted, ForeignList, blob, chunked, commit, foreign_lists, leaf, listed, mib,
        piece, tree,
    },
    scratch::{Scratch, open, temporary},
};

/// The head of a bundle and its packs.
pub(crate) struct Parts {
    pub(crate) head: BundleHead,
    pub(crate) packs: Vec<Vec<u8>>,
}

impl Parts {
    /// Takes a valid bundle apart.
    pub(crate) fn of(bundle: &[u8]) -> Self {
        let extension = snap_core::format::bundle::decode_header(&bundle[..16]).unwrap();
        let (head, mut rest) = bundle.split_at(16 + extension as usize);
        let mut packs = Vec::new();
        while let Some((length, after)) = rest.split_first_chunk::<8>() {
            let (pack, after) = after.split_at(u64::from_le_bytes(*length) as usize);
            packs.extend((!pack.is_empty()).then(|| pack.to_vec()));
            rest = after;
        }
        Self { head: BundleHead::decode(head).unwrap(), packs }
    }

    /// Makes a bundle of crafted objects, with the right totals in its head.
    fn crafted(id: CommitId, objects: &[Claim]) -> Self {
        let crafted = Crafted::of(objects);
        let raw_bytes = objects.iter().map(|(_, _, bytes)| bytes.len() as u64).sum();
        let (objects, prerequisites) = (objects.len() as u64, Vec::new());
        let head = BundleHead { commit: id, objects, raw_bytes, prerequisites };
        let packs = fs_err::read_dir(crafted.store().join("objects")).unwrap();
        let packs = packs.map(|entry| fs_err::read(entry.unwrap().path()).unwrap()).collect();
        Self { head, packs }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head.encode();
        for pack in &self.packs {
            bytes.extend_from_slice(&(pack.len() as u64).to_le_bytes());
            bytes.extend_from_slice(pack);
        }
        bytes.extend_from_slice(&[0; 8]);
        bytes
    }
}

/// Returns the content of every file of a store, except the index and empty folders.
fn state(store: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = walkdir::WalkDir::new(store).into_iter().map(Result::unwrap);
    let files = files.filter(|entry| entry.file_type().is_file());
    let read = |entry: walkdir::DirEntry| {
        let name = entry.path().strip_prefix(store).unwrap().display().to_string();
        (name, fs_err::read(entry.path()).unwrap())
    };
    files.map(read).collect()
}

/// A store to unpack into, and its files before that.
struct Target {
    scratch: Scratch,
    before: BTreeMap<String, Vec<u8>>,
}

impl Target {
    fn new() -> Self {
        let scratch = Scratch::new();
        scratch.write("own", "own");
        scratch.commit();
        let before = state(&scratch.store());
        Self { scratch, before }
    }

    /// Unpacks a bundle that must be refused. Returns the error.
    #[track_caller]
    fn refuses(&self, bundle: &[u8]) -> Error {
        let repo = self.scratch.repo();
        let error = taken(repo.store(), bundle).unwrap_err();
        assert_eq!(state(&self.scratch.store()), self.before, "{error}");
        error
    }
}

/// Makes a small valid bundle of two commits.
fn sound() -> (Vec<u8>, Vec<CommitId>) {
    let from = Scratch::new();
    from.write("a", "some text");
    let first = from.commit().id.unwrap();
    from.write("b/c", "more");
    let second = from.commit().id.unwrap();
    (packed(from.repo().store(), second, &[]), vec![first, second])
}

#[test]
fn a_bundle_that_is_cut_anywhere_is_refused() {
    let (bundle, _) = sound();
    let target = Target::new();
    let path = target.scratch.path("cut.snap");
    for end in 0..bundle.len() {
        let error = target.refuses(&bundle[..end]);
        assert_eq!(error.kind(), ErrorKind::Damaged, "{end}: {error}");
        fs_err::write(&path, &bundle[..end]).unwrap();
        assert!(BundleStore::open(&path, target.scratch.path(".").as_path(), &Silent).is_err());
    }
    let mut longer = bundle;
    longer.push(0);
    let error = target.refuses(&longer);
    assert!(matches!(error, Error::Bundle(BundleError::Trailing { .. })), "{error}");
}

#[test]
fn a_bundle_with_any_byte_changed_is_refused() {
    let (bundle, _) = sound();
    let target = Target::new();
    for at in 0..bundle.len() {
        let mut changed = bundle.clone();
        changed[at] ^= 1 << (at % 8);
        target.refuses(&changed);
    }
}

#[test]
fn a_bundle_head_with_wrong_claims_is_refused() {
    let (bundle, commits) = sound();
    let target = Target::new();
    let parts = || Parts::of(&bundle);
    assert_eq!(parts().bytes(), bundle);
    let with = |change: &dyn Fn(&mut BundleHead)| {
        let mut parts = parts();
        change(&mut parts.head);
        target.refuses(&parts.bytes())
    };
    for claim in [|n: u64| n - 1, |n| n + 1, |_| 0, |_| u64::MAX] {
        let error = with(&|head| head.objects = claim(head.objects));
        assert!(matches!(error, Error::Bundle(BundleError::Totals { .. })), "{error}");
        let error = with(&|head| head.raw_bytes = claim(head.raw_bytes));
        assert!(matches!(error, Error::Bundle(BundleError::Totals { .. })), "{error}");
    }
    let nowhere = CommitId::from_bytes([7; 32]);
    let error = with(&|head| head.commit = nowhere);
    assert!(matches!(error, Error::Broken { .. }), "{error}");
    let error = with(&|head| head.prerequisites = vec![nowhere]);
    assert!(error.to_string().contains(&nowhere.to_string()), "{error}");
    // The head names the first commit, so the second one is a stray.
    let error = with(&|head| head.commit = commits[0]);
    assert!(matches!(error, Error::Bundle(BundleError::Stray { .. })), "{error}");
}

#[test]
fn a_bundle_that_hides_its_prerequisites_is_refused() {
    let from = Scratch::new();
    from.write("a", "some text");
    let first = from.commit().id.unwrap();
    from.write("b", "more");
    let second = from.commit().id.unwrap();
    let mut parts = Parts::of(&packed(from.repo().store(), second, &[first]));
    parts.head.prerequisites.clear();
    let error = Target::new().refuses(&parts.bytes());
    let Error::Broken { source, .. } = &error else { panic!("{error}") };
    assert!(source.to_string().ends_with("is not in the store"), "{source}");
}

#[test]
fn a_duplicate_object_is_refused() {
    let (bundle, _) = sound();
    let mut parts = Parts::of(&bundle);
    parts.packs.push(parts.packs[0].clone());
    let error = Target::new().refuses(&parts.bytes());
    assert!(matches!(error, Error::Bundle(BundleError::Duplicate { .. })), "{error}");

    let twice = blob(b"twice");
    let (root, tree) = tree(leaf(&[(b"f", Body::File(BlobId::of(b"twice"), 5))]));
    let (id, commit) = commit(root);
    let parts = Parts::crafted(id, &[twice.clone(), twice, tree, commit]);
    let error = Target::new().refuses(&parts.bytes());
    assert!(matches!(error, Error::Bundle(BundleError::Duplicate { .. })), "{error}");
}

#[test]
fn wrong_lengths_are_refused_before_any_allocation() {
    let (bundle, _) = sound();
    let parts = Parts::of(&bundle);
    let target = Target::new();
    for claim in [1, 63, limits::PACK_BYTES + 1, u64::MAX] {
        let mut bytes = parts.head.encode();
        bytes.extend_from_slice(&claim.to_le_bytes());
        bytes.extend_from_slice(&parts.packs[0]);
        let error = target.refuses(&bytes);
        assert!(matches!(error, Error::Bundle(BundleError::PackBytes { .. })), "{error}");
    }
    let mut bytes = parts.head.encode();
    bytes.extend_from_slice(&(parts.packs[0].len() as u64 + 1).to_le_bytes());
    bytes.extend_from_slice(&parts.packs[0]);
    bytes.extend_from_slice(&[0; 9]);
    let error = target.refuses(&bytes);
    assert!(matches!(error, Error::Bundle(BundleError::Pack { .. })), "{error}");
    // A head that claims 4 GiB of prerequisites.
    let mut bytes = parts.head.encode();
    bytes[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(target.refuses(&bytes), Error::Bundle(BundleError::Head(_))));
}

#[test]
fn objects_that_do_not_match_their_ids_are_refused() {
    let file = |id: BlobId, size| tree(leaf(&[(b"f", Body::File(id, size))]));
    let claims = |body: Claim, size| {
        let (root, tree) = file(BlobId::from_object(body.0), size);
        let (id, commit) = commit(root);
        Parts::crafted(id, &[body, tree, commit])
    };
    let target = Target::new();
    let other = (BlobId::of(b"right").object(), ObjectKind::Blob, b"wrong".to_vec());
    let error = target.refuses(&claims(other, 5).bytes());
    let Error::Bundle(BundleError::Pack { source, .. }) = &error else { panic!("{error}") };
    assert!(matches!(source, StoreError::Damaged { .. }), "{source}");

    // The size in the tree is not that of the content.
    let error = target.refuses(&claims(blob(b"right"), 6).bytes());
    assert!(matches!(error, Error::Broken { .. }), "{error}");

    // A chunk list, and a part of one, under the id of another one.
    let (other, _) = chunked(&[&mib(3), &mib(4)]);
    let (_, mut objects) = chunked(&[&mib(1), &mib(2)]);
    objects.last_mut().unwrap().0 = other.object();
    let forged = refused_content(&target, other, 2 << 20, objects);
    let Error::Bundle(BundleError::Pack { source, .. }) = &forged else { panic!("{forged}") };
    assert!(
        matches!(source, StoreError::Damaged { wanted, .. } if *wanted == other.object()),
        "{source}"
    );
    let (long, mut objects) = listed(vec![ZERO_CHUNK; 16_385]);
    objects[0].2[0] ^= 1;
    let part = objects[0].0;
    objects.push(blob(&vec![0; 4 << 20]));
    let forged = refused_content(&target, long, 16_385 << 22, objects);
    let Error::Bundle(BundleError::Pack { source, .. }) = &forged else { panic!("{forged}") };
    assert!(matches!(source, StoreError::Damaged { wanted, .. } if *wanted == part), "{source}");
}

#[test]
fn a_bundle_that_lacks_referenced_objects_is_refused() {
    let target = Target::new();
    let missing = BlobId::of(b"not there");
    let (root, tree) = tree(leaf(&[(b"f", Body::File(missing, 9))]));
    let (id, commit) = commit(root);
    let error = target.refuses(&Parts::crafted(id, &[tree.clone(), commit.clone()]).bytes());
    assert!(matches!(error, Error::Broken { .. }), "{error}");
    let error = target.refuses(&Parts::crafted(id, std::slice::from_ref(&commit)).bytes());
    assert!(matches!(error, Error::Broken { .. }), "{error}");

    // A chunk that is missing, and one that is shorter than the list states.
    let (list, mut objects) = chunked(&[&mib(1), &mib(2)]);
    objects.remove(0);
    let error = refused_content(&target, list, 2 << 20, objects);
    assert!(matches!(error, Error::Broken { .. }), "{error}");
    let short = BlobRef { bytes: (1 << 20) + 1, ..piece(&mib(1)) };
    let (list, mut objects) = listed([short, piece(&mib(2))]);
    objects.extend([blob(&mib(1)), blob(&mib(2))]);
    let error = refused_content(&target, list, (2 << 20) + 1, objects);
    assert!(matches!(error, Error::Broken { .. }), "{error}");
    // A size in the tree that is not that of the list.
    let (list, objects) = chunked(&[&mib(1), &mib(2)]);
    let error = refused_content(&target, list, (2 << 20) + 1, objects);
    assert!(matches!(error, Error::Broken { .. }), "{error}");
}

/// Lists that match their ids pass the check of their packs. The walk refuses them.
#[test]
fn a_chunk_list_that_no_writer_makes_is_refused() {
    let target = Target::new();
    for ForeignList { told, id, size, claims } in foreign_lists() {
        let error = refused_content(&target, id, size, claims);
        assert!(matches!(error, Error::Broken { .. }), "{told}: {error}");
        assert_eq!(error.kind(), ErrorKind::Damaged, "{told}");
    }
}

/// Sends a commit of one chunked file with these objects, and returns why it is refused.
fn refused_content(target: &Target, list: ChunkListId, size: u64, objects: Vec<Claim>) -> Error {
    let (root, tree) = tree(leaf(&[(b"f", Body::Chunked(list, size))]));
    let (id, commit) = commit(root);
    let objects = [objects, vec![tree, commit]].concat();
    target.refuses(&Parts::crafted(id, &objects).bytes())
}

#[test]
fn a_tree_left_by_a_killed_commit_is_not_assumed_complete() {
    // The store has the tree, but not the file in it.
    let missing = BlobId::of(b"never stored");
    let (root, tree) = tree(leaf(&[(b"f", Body::File(missing, 12))]));
    let (id, commit) = commit(root);
    let store = Crafted::of(&[tree]);
    let bundle = Parts::crafted(id, &[commit]).bytes();
    let error = taken(store.repo().store(), &bundle).unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error}");
}

#[test]
fn an_incomplete_commit_is_no_prerequisite() {
    // The state after a power cut between two packs of an earlier bundle.
    let (root, tree) = tree(leaf(&[(b"f", Body::File(BlobId::of(b"lost"), 4))]));
    let (first, claim) = commit(root);
    let store = Crafted::of(&[tree, claim]);
    let head = BundleHead { commit: first, objects: 0, raw_bytes: 0, prerequisites: vec![first] };
    let bundle = Parts { head, packs: Vec::new() }.bytes();
    let error = taken(store.repo().store(), &bundle).unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error}");
}

#[test]
fn a_bundle_is_no_pack_and_a_pack_no_bundle() {
    let (bundle, _) = sound();
    let parts = Parts::of(&bundle);
    let error = Target::new().refuses(&parts.packs[0]);
    assert!(matches!(error, Error::Bundle(BundleError::Head(_))), "{error}");
    let dir = temporary();
    let path = dir.path().join("pack");
    fs_err::write(&path, &bundle).unwrap();
    let id = PackId::from_bytes([0; 32]);
    assert!(snap_core::store::PackFile::open(&path, id).is_err());
}

#[test]
fn bundling_from_a_damaged_store_fails() {
    let from = Scratch::new();
    from.write("a", "some text");
    let id = from.commit().id.unwrap();
    let path = fs_err::read_dir(from.store().join("objects")).unwrap().next().unwrap();
    let path = path.unwrap().path();
    let sound = fs_err::read(&path).unwrap();
    for at in 0..sound.len() {
        let mut damaged = sound.clone();
        damaged[at] ^= 0x10;
        fs_err::write(&path, damaged).unwrap();
        let scratch = temporary();
        let options = snap_core::ops::bundle::pack::PackOptions {
            since: Vec::new(),
            scratch: scratch.path(),
            level: 3,
        };
        let repo = open(&from.store());
        let mut out = Vec::new();
        let done = snap_core::ops::bundle::pack::run(repo.store(), id, &options, &mut out, &Silent);
        assert!(done.is_err(), "byte {at}");
    }
}
