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
        id::{BlobId, ListPartId, PackId},
        kind::ErrorKind,
        limits,
        observe::{Observer, Phase, Silent},
    },
    format::{
        chunk_list::{BlobRef, ChunkList, ZERO_CHUNK},
        pack::{self, Codec, Frame, HEADER_BYTES, ObjectClass, ObjectKind, PackedObject},
    },
    ops::{
        bundle::{Error, unpack},
        inbox::{
            Adoption, Inbox,
            accept::{self, AcceptError},
        },
        verify,
    },
    store::{BundleReader, Store, StoreError, WriteStats, pack_stream::PackPlace},
};

use crate::{
    bundle::packed,
    crafted::{
        self, Body, Claim, Crafted, ForeignList, blob, chunk_list, chunked, foreign_lists, leaf,
        list_part, listed, mib, tree,
    },
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

/// Checks packs and adds them to the store.
fn accept(
    store: &Store,
    packs: &[(PackId, PathBuf)],
    observer: &dyn Observer,
) -> Result<WriteStats, AcceptError> {
    accept::prepare(store, packs, &[], observer)?.adopt(observer)
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
fn chunk_lists_above_the_limit_are_refused_unread() {
    // Each frame claims to have parts with 16 MiB of chunk references.
    let named = 2 * (8 * MIB as u64 / 36);
    let frames = (limits::NAMED_CHUNKS / named) as usize;
    for (frames, is_right) in [(frames, true), (frames + 1, false)] {
        let (_dir, id, path) = bomb_of(ObjectKind::ListPart, frames);
        let target = Crafted::empty();
        let repo = target.repo();
        let leaves = Leaves::after(1);
        let prepared = accept::prepare(repo.store(), &[(id, path)], &[], &leaves);
        match prepared {
            // The walk begins, and finds that these are not parts.
            Err(AcceptError::Incomplete(_)) => assert!(is_right),
            Err(AcceptError::TooMuch { found }) if !is_right => {
                assert!(found > limits::NAMED_CHUNKS, "{found}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(leaves.bytes.load(Ordering::Relaxed), 0);
        assert!(repo.store().packs().is_empty());
    }
}

/// Cancels after this number of questions.
struct AfterQuestions(AtomicU64);

impl Observer for AfterQuestions {
    fn cancelled(&self) -> bool {
        let asked =
            self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        asked.is_err()
    }
}

#[test]
fn the_walk_through_chunk_lists_can_be_cancelled() {
    let (_, claims) = listed(vec![ZERO_CHUNK; 3 * limits::CHUNK_LIST_ENTRIES + 1]);
    let (_crafted, packs) = sent(&[&claims[..], &[blob(&vec![0; 4 * MIB])]].concat());
    let target = Crafted::empty();
    let repo = target.repo();
    let mut questions = 0;
    loop {
        let observer = AfterQuestions(AtomicU64::new(questions));
        match accept(repo.store(), &packs, &observer) {
            Err(AcceptError::Blocked(_)) => {
                assert!(repo.store().packs().is_empty())
            }
            done => {
                assert!(done.unwrap().packs == 1);
                break;
            }
        }
        questions += 1;
    }
    assert_eq!(repo.store().packs().len(), 1);
    // The walk asks for the four names of parts, and for the chunks of the two different ones.
    assert!(questions >= 6, "{questions}");
}

#[test]
fn a_content_of_one_repeated_chunk_is_accepted() {
    let (part, part_claim) = list_part(&vec![ZERO_CHUNK; limits::CHUNK_LIST_ENTRIES]);
    let list = ChunkList::Parts(vec![part; limits::CHUNK_LIST_PARTS]);
    let claims = [blob(&vec![0; 4 * MIB]), part_claim, chunk_list(&list).1];
    let (_crafted, packs) = sent(&claims);
    let target = Crafted::empty();
    let repo = target.repo();
    accept(repo.store(), &packs, &Silent).unwrap();
    assert_eq!(repo.store().packs().len(), 1);
}

#[test]
fn a_forged_chunk_list_or_part_is_found_by_its_hash() {
    let (_, sound) = listed(vec![ZERO_CHUNK; limits::CHUNK_LIST_ENTRIES + 1]);
    let [ref full, ref rest, ref list] = sound[..] else { panic!("two parts") };
    let (_, other) = listed([ZERO_CHUNK; 3]);
    let other = &other[0];
    let of = |id: &Claim, bytes: &Claim| (id.0, id.1, bytes.2.clone());
    let as_kind = |claim: &Claim, kind| (claim.0, kind, claim.2.clone());
    for (told, claim, is_right) in [
        ("a list", list.clone(), true),
        ("a part", full.clone(), true),
        ("another list", of(list, other), false),
        ("another part", of(full, rest), false),
        ("a part as a list", as_kind(full, ObjectKind::ChunkList), false),
        ("a list as a part", as_kind(list, ObjectKind::ListPart), false),
        ("a list as a blob", as_kind(list, ObjectKind::Blob), false),
        ("a blob as a list", as_kind(&blob(&list.2), ObjectKind::ChunkList), false),
        ("a part as a blob", as_kind(full, ObjectKind::Blob), false),
        ("a blob as a part", as_kind(&blob(&full.2), ObjectKind::ListPart), false),
        ("a tree as a list", as_kind(&tree(list.2.clone()).1, ObjectKind::ChunkList), false),
    ] {
        let (_crafted, packs) = sent(std::slice::from_ref(&claim));
        let (id, path) = &packs[0];
        let checked = accept::check(path, *id, &Silent);
        let is_damaged = |error: &AcceptError| matches!(error, AcceptError::Store(StoreError::Damaged { wanted, .. }) if *wanted == claim.0);
        assert_eq!(checked.is_ok(), is_right, "{told}: {checked:?}");
        assert!(checked.as_ref().err().is_none_or(is_damaged), "{told}: {checked:?}");
        let target = Crafted::empty();
        let target = target.repo();
        let mut inbox = Inbox::new(target.store(), &Silent).unwrap();
        let place = PackPlace { path, span: None };
        assert_eq!(inbox.receive_from(place, &Silent).is_ok(), is_right, "{told}");
    }
}

/// Lists that match their ids pass [`accept::check`]. The walk refuses them, whether or not a commit
/// refers to them, and nothing is adopted.
#[test]
fn a_chunk_list_that_no_writer_makes_is_refused() {
    for ForeignList { told, id, size, claims } in foreign_lists() {
        let (root, tree_claim) = tree(leaf(&[(b"file", Body::Chunked(id, size))]));
        let commit = crafted::commit(root).1;
        for more in [vec![], vec![tree_claim, commit]] {
            let (_crafted, packs) = sent(&[claims.clone(), more].concat());
            let (pack, path) = &packs[0];
            accept::check(path, *pack, &Silent).unwrap();
            let target = Crafted::empty();
            let repo = target.repo();
            let error = accept(repo.store(), &packs, &Silent).unwrap_err();
            assert!(matches!(error, AcceptError::Incomplete(_)), "{told}: {error}");
            assert_eq!(error.kind(), ErrorKind::Damaged, "{told}");
            assert!(repo.store().packs().is_empty(), "{told}");
            assert!(target.repo().store().packs().is_empty(), "{told}");
        }
    }
}

/// A later pack may have a list that names the part.
#[test]
fn a_part_without_a_list_is_complete_or_refused() {
    let chunks = vec![ZERO_CHUNK; 3];
    let (_, part) = list_part(&chunks);
    let (_, empty) = list_part(&[]);
    let (_, long) = list_part(&vec![ZERO_CHUNK; limits::CHUNK_LIST_ENTRIES + 1]);
    let (_, short) = list_part(&[BlobRef { bytes: 1, ..ZERO_CHUNK }, ZERO_CHUNK]);
    let odd = (ListPartId::of(b"x").object(), ObjectKind::ListPart, b"x".to_vec());
    let zeros = blob(&vec![0; 4 * MIB]);
    for (told, objects) in [
        ("its chunk is missing", vec![part.clone()]),
        ("it is empty", vec![empty, zeros.clone()]),
        ("it has too many chunks", vec![long, zeros.clone()]),
        ("a chunk is too short", vec![short, zeros.clone()]),
        ("it is one byte", vec![odd, zeros.clone()]),
    ] {
        let (_crafted, packs) = sent(&objects);
        let target = Crafted::empty();
        let error = accept(target.repo().store(), &packs, &Silent).unwrap_err();
        assert!(matches!(error, AcceptError::Incomplete(_)), "{told}: {error}");
        assert_eq!(error.kind(), ErrorKind::Damaged, "{told}");
    }
    let (_crafted, packs) = sent(&[part, zeros]);
    accept(Crafted::empty().repo().store(), &packs, &Silent).unwrap();
}

/// A list that states a wrong length of a part does not make other lists wrong.
#[test]
fn a_sound_list_stays_sound_beside_a_wrong_one() {
    let (sound, objects) = listed(vec![ZERO_CHUNK; limits::CHUNK_LIST_ENTRIES + 1]);
    let ChunkList::Parts(mut parts) = ChunkList::decode(&objects[2].2).unwrap() else { panic!() };
    parts[0].bytes -= 1;
    let (wrong, wrong_claim) = chunk_list(&ChunkList::Parts(parts.clone()));
    let (size, wrong_size) = ((16_385_u64) << 22, ChunkList::Parts(parts).total_bytes());
    let chunk = blob(&vec![0; 4 * MIB]);
    for names in [[b"a", b"b", b"c"], [b"b", b"a", b"c"], [b"b", b"c", b"a"]] {
        let mut entries: Vec<(&[u8], Body)> = vec![
            (names[0], Body::Chunked(wrong, wrong_size)),
            (names[1], Body::Chunked(sound, size)),
        ];
        entries.sort_by_key(|(name, _)| *name);
        let (root, claim) = tree(leaf(&entries));
        let claims = [&objects[..], &[chunk.clone(), wrong_claim.clone(), claim]].concat();
        let crafted = Crafted::of(&claims);
        crafted.commit(root);
        let options = verify::VerifyOptions { data: verify::Data::All };
        let found = verify::run(&crafted.repo(), &options, &Silent).unwrap();
        let paths: Vec<&[u8]> = found.touched.paths.iter().map(|path| &*path.path).collect();
        assert_eq!((found.problems.len(), paths), (1, vec![&names[0][..]]), "{:?}", found.problems);
    }
}

#[test]
fn no_object_may_be_received_twice() {
    let (_, listed) = chunked(&[&mib(1), &mib(2)]);
    let (_, longer) = chunked(&[&mib(1), &mib(2), &mib(3)]);
    let list = &listed[2..];
    let more = |byte: u8| vec![blob(&[byte])];
    for (packs, is_right) in [
        (vec![listed.clone(), vec![longer[2].clone(), longer[3].clone()]], true),
        (vec![listed.clone(), longer.clone()], false),
        (vec![listed.clone(), [list, &more(1)].concat()], false),
        (vec![[&listed[..], list].concat()], false),
        (vec![[more(1), more(1)].concat()], false),
        (vec![[more(1), more(2)].concat(), [more(1), more(3)].concat()], false),
    ] {
        let sender = Crafted::empty();
        for objects in &packs {
            sender.add(objects);
        }
        let (repo, target) = (sender.repo(), Crafted::empty());
        let target = target.repo();
        let mut inbox = Inbox::new(target.store(), &Silent).unwrap();
        let mut received = repo.store().packs().into_iter().map(|id| {
            let path = repo.store().pack_path(&id);
            inbox.receive_from(PackPlace { path: &path, span: None }, &Silent)
        });
        let refused = received.find_map(Result::err);
        assert_eq!(refused.is_none(), is_right, "{refused:?}");
    }
}

/// Makes a pack with this number of frames, each with 16 MiB of zeros.
fn bomb(frames: usize) -> (tempfile::TempDir, PackId, PathBuf) {
    bomb_of(ObjectKind::Blob, frames)
}

/// Like [`bomb`], with objects of this kind.
fn bomb_of(kind: ObjectKind, frames: usize) -> (tempfile::TempDir, PackId, PathBuf) {
    let chunk = vec![0; 8 * MIB];
    let stored = zstd::bulk::compress(&vec![0; 16 * MIB], 1).unwrap();
    let (id, class) = match kind {
        ObjectKind::Blob => (BlobId::of(&chunk).object(), ObjectClass::Data),
        _ => (ListPartId::of(&chunk).object(), ObjectClass::Metadata),
    };
    let mut bytes = pack::encode_header().to_vec();
    let mut all = Vec::new();
    for _ in 0..frames {
        all.push(Frame {
            offset: bytes.len() as u64,
            stored_bytes: stored.len() as u32,
            raw_bytes: 16 * MIB as u32,
            objects: 2,
            codec: Codec::Zstd,
            class,
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
    assert!(matches!(error, AcceptError::Blocked(_)), "{error}");
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
    let (_crafted, honest) = sent(&chunked(&[&mib(1), &mib(2)]).1);
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
        assert!(matches!(checked, Err(AcceptError::Blocked(_))), "{checked:?}");
    });
}

#[test]
fn checked_packs_are_adopted_in_any_order() {
    let ((_a, first), (_b, second)) = (sent(&[blob(b"first")]), sent(&[blob(b"second")]));
    let target = Crafted::empty();
    let repo = target.repo();
    let check = |packs: &[_]| accept::prepare(repo.store(), packs, &[], &Silent).unwrap();
    let (one, two, again) = (check(&first), check(&second), check(&first));
    assert!(repo.store().packs().is_empty(), "checked packs are not adopted yet");
    assert_eq!(two.adopt(&Silent).unwrap().packs, 1);
    assert_eq!(one.adopt(&Silent).unwrap().packs, 1);
    assert_eq!(again.adopt(&Silent).unwrap().packs, 0, "the pack is in the store already");
    assert_eq!(repo.store().packs().len(), 2);
}

#[test]
fn objects_lost_during_the_check_fail_the_adoption() {
    let (_, mut claims) = chunked(&[&mib(1), &mib(2)]);
    let one = claims.remove(0);
    let target = Crafted::of(std::slice::from_ref(&one));
    let repo = target.repo();
    let (_crafted, packs) = sent(&claims);
    let check = || accept::prepare(repo.store(), &packs, &[], &Silent).unwrap();
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
    target.add(&[one, blob(b"other")]);
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
        let options = unpack::UnpackOptions { tips: Vec::new(), most_bytes };
        let opened = BundleReader::new(&*bundle)?;
        let bundle = unpack::prepare(repo.store(), opened, &options, &Silent)?;
        bundle.adopt(Adoption::NewObjects(3), &Silent)
    };
    let error = take(1000).unwrap_err();
    assert!(matches!(error, Error::TooMuch { most: 1000, .. }), "{error}");
    take(64 * MIB as u64).unwrap();
}
