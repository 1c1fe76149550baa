//! Packs that another user sends: the work of checking them is limited, and they are
//! checked separately before they become part of the store.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use snap_core::{
    base::{
        id::{BlobId, PackId},
        kind::ErrorKind,
        limits,
        observe::{Observer, Phase, Silent},
    },
    format::{
        chunk_list::{self, BlobRef, ChunkListEntries},
        pack::{self, Codec, Frame, HEADER_BYTES, ObjectClass, ObjectKind, PackedObject},
    },
    ops::{
        accept::{self, AcceptError},
        bundle::{Error, unpack},
    },
    store::{ReceivedPacks, Store, WriteStats},
};

use crate::{
    bundle::packed,
    crafted::{Claim, Crafted, blob, chunk_list, piece},
    scratch::Scratch,
};

const MIB: usize = 1 << 20;

/// Makes a store with only these objects. Returns its packs in the form in which they
/// are sent.
fn sent(objects: &[Claim]) -> (Crafted, Vec<(PackId, PathBuf)>) {
    let crafted = Crafted::of(objects);
    let store = crafted.store().join("objects");
    let packs = fs_err::read_dir(store).unwrap().map(|entry| {
        let entry = entry.unwrap();
        (entry.file_name().to_str().unwrap().parse().unwrap(), entry.path())
    });
    let packs = packs.collect();
    (crafted, packs)
}

/// Makes a chunk of zeros and a part that names it `often` times. Returns both, and the
/// piece that names the part.
fn zeros(often: usize) -> (Claim, Claim, BlobRef) {
    let chunk = vec![0; MIB];
    let part = chunk_list::encode_part(&vec![piece(&chunk); often]);
    let named = piece(&part);
    (blob(&chunk), blob(&part), named)
}

/// Checks packs and adds them to the store.
fn accept(
    store: &Store,
    packs: &[(PackId, PathBuf)],
    observer: &dyn Observer,
) -> Result<WriteStats, AcceptError> {
    accept::prepare(store, packs, &[], u64::MAX, observer)?.adopt(observer)
}

/// An observer that counts bytes of contents, and cancels after `after` of them.
struct Leaves {
    after: u64,
    is_data: AtomicBool,
    bytes: AtomicU64,
}

impl Leaves {
    fn after(after: u64) -> Self {
        Self { after, is_data: AtomicBool::new(false), bytes: AtomicU64::new(0) }
    }
}

impl Observer for Leaves {
    fn phase(&self, phase: Phase, _: Option<u64>) {
        self.is_data.store(phase == Phase::Data, Ordering::Relaxed);
    }

    fn advance(&self, units: u64, _: u64) {
        if self.is_data.load(Ordering::Relaxed) {
            self.bytes.fetch_add(units, Ordering::Relaxed);
        }
    }

    fn cancelled(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) >= self.after
    }
}

#[test]
fn chunk_lists_above_the_byte_limit_are_refused_unread() {
    let (chunk, part, named) = zeros(16_384);
    let total = (1024 * 16_384 * MIB) as u64;
    let list =
        |n: u8| chunk_list(BlobId::of(&[n]), total, ChunkListEntries::Parts(vec![named; 1024]));
    let (_crafted, packs) = sent(&[chunk, part, list(1), list(2), list(3)]);
    let target = Crafted::empty();
    let repo = target.repo();
    let leaves = Leaves::after(1);
    let error = accept::prepare(repo.store(), &packs, &[], 2 * total, &leaves).unwrap_err();
    let AcceptError::TooMuch { found, most } = error else { panic!("{error}") };
    assert_eq!((found, most), (3 * total, 2 * total));
    assert_eq!(leaves.bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn one_byte_chunks_count_towards_the_work_limit() {
    let part = chunk_list::encode_part(&vec![piece(b"x"); 16_384]);
    let list = chunk_list(BlobId::of(b"1"), 16_384, ChunkListEntries::Parts(vec![piece(&part)]));
    let (_crafted, packs) = sent(&[blob(b"x"), blob(&part), list]);
    let target = Crafted::empty();
    let repo = target.repo();
    let most = 16_384 * limits::CHUNK_WORK_BYTES - 1;
    let error = accept::prepare(repo.store(), &packs, &[], most, &Silent).unwrap_err();
    assert!(matches!(error, AcceptError::TooMuch { .. }), "{error}");
    // The same is true for parts that are longer than the list states.
    let short = BlobRef { bytes: 33, ..piece(&part) };
    let list = chunk_list(BlobId::of(b"1"), 16_384, ChunkListEntries::Parts(vec![short]));
    let (_crafted, packs) = sent(&[blob(b"x"), blob(&part), list]);
    let error = accept::prepare(repo.store(), &packs, &[], most, &Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
}

#[test]
fn reading_the_contents_of_chunk_lists_can_be_cancelled() {
    let (chunk, part, named) = zeros(1024);
    let total = (16 * 1024 * MIB) as u64;
    let list = chunk_list(BlobId::of(b"1"), total, ChunkListEntries::Parts(vec![named; 16]));
    let (_crafted, packs) = sent(&[chunk, part, list]);
    let target = Crafted::empty();
    let repo = target.repo();
    let leaves = Leaves::after(8 * MIB as u64);
    let error = accept(repo.store(), &packs, &leaves).unwrap_err();
    assert!(matches!(error, AcceptError::Interrupted), "{error}");
    assert!(leaves.bytes.load(Ordering::Relaxed) < 32 * MIB as u64);
    assert!(repo.store().packs().is_empty());
}

#[test]
fn a_content_of_one_repeated_chunk_is_accepted() {
    let (chunk, part, named) = zeros(48);
    let whole = BlobId::of(&vec![0; 96 * MIB]);
    let list = chunk_list(whole, 96 * MIB as u64, ChunkListEntries::Parts(vec![named; 2]));
    let (_crafted, packs) = sent(&[chunk, part, list]);
    let target = Crafted::empty();
    let repo = target.repo();
    accept(repo.store(), &packs, &Silent).unwrap();
    assert_eq!(repo.store().packs().len(), 1);
}

#[test]
fn a_chunk_list_beside_a_blob_of_the_same_id_is_checked() {
    let whole = b"onetwo";
    let id = BlobId::of(whole);
    let list = |pieces: Vec<BlobRef>| chunk_list(id, 6, ChunkListEntries::Chunks(pieces));
    let said = |bytes, chunk: &[u8]| BlobRef { bytes, ..piece(chunk) };
    for (pieces, is_right) in [
        (vec![piece(b"one"), piece(b"two")], true),
        (vec![piece(b"two"), piece(b"one")], false),
        // The limit on work is computed from the stated lengths of the chunks, so wrong
        // ones must be refused.
        (vec![said(2, b"one"), said(4, b"two")], false),
    ] {
        let (crafted, _) = sent(&[blob(whole)]);
        crafted.add(&[blob(b"one"), blob(b"two"), list(pieces)]);
        let repo = crafted.repo();
        let packs = repo.store().packs().into_iter();
        let packs: Vec<_> = packs.map(|id| (id, repo.store().pack_path(&id))).collect();
        let target = Crafted::empty();
        let target = target.repo();
        let taken = accept(target.store(), &packs, &Silent);
        assert_eq!(taken.is_ok(), is_right, "{taken:?}");
    }
}

#[test]
fn a_content_may_be_received_as_a_list_and_as_a_blob() {
    let list = ChunkListEntries::Chunks(vec![piece(b"one"), piece(b"two")]);
    let list = chunk_list(BlobId::of(b"onetwo"), 6, list);
    let cut = [blob(b"one"), blob(b"two"), list];
    let whole = [blob(b"onetwo"), blob(b"more")];
    let again = [blob(b"onetwo"), blob(b"other")];
    for (packs, is_right) in [
        (vec![[&cut[..], &whole[..]].concat()], true),
        (vec![cut.to_vec(), whole.to_vec()], true),
        (vec![cut.to_vec(), whole.to_vec(), again.to_vec()], false),
        (vec![[&whole[..], &whole[..]].concat()], false),
    ] {
        let sender = Crafted::empty();
        packs.iter().for_each(|objects| sender.add(objects));
        let (repo, target) = (sender.repo(), Crafted::empty());
        let target = target.repo();
        let mut incoming = ReceivedPacks::new(target.store(), &Silent).unwrap();
        let mut received = repo.store().packs().into_iter().map(|id| {
            incoming.link(&repo.store().pack_path(&id), id).unwrap();
            incoming.check(id, &Silent)
        });
        let refused = received.find_map(Result::err);
        assert_eq!(refused.is_none(), is_right, "{refused:?}");
    }
}

/// Makes a pack with this number of frames, each with 16 MiB of zeros.
fn bomb(frames: usize) -> (tempfile::TempDir, PackId, PathBuf) {
    let chunk = vec![0; 8 * MIB];
    let stored = zstd::bulk::compress(&vec![0; 16 * MIB], 1).unwrap();
    let (id, kind) = (BlobId::of(&chunk).object(), ObjectKind::Blob);
    let mut bytes = pack::encode_header().to_vec();
    let mut all = Vec::new();
    for _ in 0..frames {
        all.push(Frame {
            offset: bytes.len() as u64,
            stored_bytes: stored.len() as u32,
            raw_bytes: 16 * MIB as u32,
            objects: 2,
            codec: Codec::Zstd,
            class: ObjectClass::Data,
            checksum: pack::checksum(&stored),
        });
        bytes.extend_from_slice(&stored);
    }
    let objects = vec![PackedObject { id, kind, bytes: 8 * MIB as u32 }; 2 * frames];
    bytes.extend_from_slice(&pack::encode_footer(&all, &objects, HEADER_BYTES as u64));
    let crafted = Crafted::empty();
    let id = crafted.add_pack(&bytes);
    let path = crafted.store().join("objects").join(id.to_string());
    (crafted.dir, id, path)
}

#[test]
fn a_decompression_bomb_is_refused_before_it_is_expanded() {
    let (_dir, id, path) = bomb(4097);
    assert!(fs_err::metadata(&path).unwrap().len() < 8 << 20);
    let error = accept::check(&path, id, &Silent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    let AcceptError::Store(error) = error else { panic!("{error}") };
    let why = std::error::Error::source(&error).unwrap().to_string();
    assert!(why.contains("expanded bytes"), "{why}");
}

#[test]
fn a_cancelled_check_does_not_accept_the_pack() {
    let (_dir, id, path) = bomb(2);
    accept::check(&path, id, &Silent).unwrap();
    let error = accept::check(&path, id, &Leaves::after(0)).unwrap_err();
    assert!(matches!(error, AcceptError::Interrupted), "{error}");
}

/// An observer that cancels when `stop` is set.
#[derive(Default)]
struct Flag {
    is_asked: AtomicBool,
    stop: AtomicBool,
}

impl Observer for Flag {
    fn cancelled(&self) -> bool {
        self.is_asked.store(true, Ordering::Relaxed);
        self.stop.load(Ordering::Relaxed)
    }
}

#[test]
fn checking_a_bomb_does_not_block_other_checks() {
    let (_dir, bomb, path) = bomb(1500);
    // Use a data frame and a metadata frame: the check of a single frame would need no
    // other thread.
    let pieces = ChunkListEntries::Chunks(vec![piece(b"hon"), piece(b"est")]);
    let list = chunk_list(BlobId::of(b"honest"), 6, pieces);
    let (_crafted, honest) = sent(&[blob(b"hon"), blob(b"est"), list]);
    let stop = Flag::default();
    thread::scope(|scope| {
        let checking = scope.spawn(|| accept::check(&path, bomb, &stop));
        while !stop.is_asked.load(Ordering::Relaxed) {
            assert!(!checking.is_finished());
            thread::sleep(Duration::from_millis(1));
        }
        // The check of the bomb has begun, and takes many times as long.
        for (id, path) in &honest {
            accept::check(path, *id, &Silent).unwrap();
        }
        assert!(!checking.is_finished(), "they have waited for the bomb");
        stop.stop.store(true, Ordering::Relaxed);
        let checked = checking.join().unwrap();
        assert!(matches!(checked, Err(AcceptError::Interrupted)), "{checked:?}");
    });
}

#[test]
fn checked_packs_are_adopted_in_any_order() {
    let ((_a, first), (_b, second)) = (sent(&[blob(b"first")]), sent(&[blob(b"second")]));
    let target = Crafted::empty();
    let repo = target.repo();
    let check = |packs: &[_]| accept::prepare(repo.store(), packs, &[], 0, &Silent).unwrap();
    let (one, two, again) = (check(&first), check(&second), check(&first));
    assert!(repo.store().packs().is_empty(), "checked packs are not adopted yet");
    assert_eq!(two.adopt(&Silent).unwrap().packs, 1);
    assert_eq!(one.adopt(&Silent).unwrap().packs, 1);
    assert_eq!(again.adopt(&Silent).unwrap().packs, 0, "the pack is in the store already");
    assert_eq!(repo.store().packs().len(), 2);
}

#[test]
fn objects_lost_during_the_check_fail_the_adoption() {
    let target = Crafted::of(&[blob(b"one")]);
    let repo = target.repo();
    let id = BlobId::of(b"onetwo");
    let list = chunk_list(id, 6, ChunkListEntries::Chunks(vec![piece(b"one"), piece(b"two")]));
    let (_crafted, packs) = sent(&[blob(b"two"), list]);
    let check = || accept::prepare(repo.store(), &packs, &[], u64::MAX, &Silent).unwrap();
    let prepared = check();
    let old = repo.store().packs()[0];
    let (old, aside) = (repo.store().pack_path(&old), target.dir.path().join("aside"));
    fs_err::rename(&old, &aside).unwrap();
    let error = prepared.adopt(&Silent).unwrap_err();
    assert!(matches!(error, AcceptError::Incomplete(_)), "{error}");
    fs_err::rename(&aside, &old).unwrap();
    repo.store().refresh().unwrap();
    // If the pack was merged into another one, its objects are still there.
    let prepared = check();
    target.add(&[blob(b"one"), blob(b"other")]);
    fs_err::remove_file(&old).unwrap();
    prepared.adopt(&Silent).unwrap();
}

#[test]
fn a_bundle_above_the_byte_limit_is_refused_by_its_head() {
    let from = Scratch::new();
    from.write("a", "x".repeat(3 * MIB));
    let commit = from.commit().id.unwrap();
    let bundle = packed(from.repo().store(), commit, &[]);
    let target = Crafted::empty();
    let repo = target.repo();
    let take = |most_bytes| {
        let options = unpack::UnpackOptions { tips: Vec::new(), level: 3, most_bytes };
        unpack::run(repo.store(), &*bundle, &options, &Silent)
    };
    let error = take(1000).unwrap_err();
    assert!(matches!(error, Error::TooMuch { most: 1000, .. }), "{error}");
    take(64 * MIB as u64).unwrap();
}
