//! Each damaged pack, through each way in which snap reads a whole pack: all of them refuse it, for
//! the same reason.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use snap_core::{
    base::{
        id::{CommitId, PackId},
        kind::ErrorKind,
        observe::Silent,
    },
    format::{
        bundle::BundleHead,
        outline::PackOutline,
        pack::{self, Codec, Frame, HEADER_BYTES, ObjectClass, PackedObject, TRAILER_BYTES},
    },
    ops::{
        inbox::{
            Inbox, SharedInbox, StagedError,
            accept::{self, AcceptError},
        },
        verify::{self, Data, RemoteInventory, VerifyOptions, VerifyProblem},
    },
    store::{
        BundleError, BundleWriter, PackFile, RemoteFrameError, RemoteFrames, StoreError,
        pack_stream::PackPlace,
    },
};

use crate::crafted::{Claim, Crafted, blob, leaf, tree};

/// A frame of the sound pack, before compression.
struct RawFrame {
    codec: Codec,
    class: ObjectClass,
    objects: Vec<Claim>,
}

/// Returns the frames of the sound pack. The first two have the same length and codec.
fn frames() -> Vec<RawFrame> {
    let data = |codec, contents: &[&[u8]]| RawFrame {
        codec,
        class: ObjectClass::Data,
        objects: contents.iter().map(|content| blob(content)).collect(),
    };
    vec![
        data(Codec::Raw, &[b"first", b"second"]),
        data(Codec::Raw, &[b"third", b"fourth"]),
        data(Codec::Zstd, &[&[7; 300]]),
        RawFrame {
            codec: Codec::Raw,
            class: ObjectClass::Metadata,
            objects: vec![tree(leaf(&[])).1],
        },
    ]
}

/// Encodes a pack. `change` changes the stored bytes of the frames, their entries and the objects; the
/// checksums of the tables are right.
fn encode(
    change: impl FnOnce(&mut Vec<Vec<u8>>, &mut Vec<Frame>, &mut Vec<PackedObject>),
) -> Vec<u8> {
    let (mut stored, mut entries, mut table) = (Vec::new(), Vec::new(), Vec::new());
    for RawFrame { codec, class, objects } in frames() {
        let raw: Vec<u8> = objects.iter().flat_map(|(_, _, bytes)| bytes).copied().collect();
        let bytes = match codec {
            Codec::Raw => raw.clone(),
            Codec::Zstd => zstd::bulk::compress(&raw, 1).unwrap(),
        };
        entries.push(Frame {
            offset: 0,
            stored_bytes: bytes.len() as u32,
            raw_bytes: raw.len() as u32,
            objects: objects.len() as u32,
            codec,
            class,
            checksum: pack::checksum(&bytes),
        });
        stored.push(bytes);
        table.extend(objects.iter().map(|(id, kind, bytes)| PackedObject {
            id: *id,
            kind: *kind,
            bytes: bytes.len() as u32,
        }));
    }
    change(&mut stored, &mut entries, &mut table);
    let mut bytes = pack::encode_header().to_vec();
    for (frame, stored) in entries.iter_mut().zip(&stored) {
        frame.offset = bytes.len() as u64;
        bytes.extend_from_slice(stored);
    }
    bytes.extend_from_slice(&pack::encode_footer(&entries, &table, HEADER_BYTES as u64));
    bytes
}

fn sound() -> Vec<u8> {
    encode(|_, _, _| {})
}

fn name_of(bytes: &[u8]) -> PackId {
    PackId::from_bytes(*blake3::hash(bytes).as_bytes())
}

/// Returns damaged packs, each with what was done to it.
fn damaged_packs() -> Vec<(String, Vec<u8>)> {
    let (sound, mut all) = (sound(), Vec::new());
    for at in 0..sound.len() {
        let mut flipped = sound.clone();
        flipped[at] ^= 1 << (at % 8);
        all.push((format!("byte {at} flipped"), flipped));
    }
    let dir = Crafted::empty();
    let id = dir.add_pack(&sound);
    let opened = PackFile::open(&dir.store().join("objects").join(id.to_string()), id).unwrap();
    let mut ends: Vec<usize> = opened.frames().iter().map(|f| f.range().end as usize).collect();
    ends.extend([0, 1, HEADER_BYTES - 1, HEADER_BYTES, sound.len() - TRAILER_BYTES]);
    ends.extend([sound.len() - 1, sound.len() - pack::OBJECT_ENTRY_BYTES]);
    for end in ends {
        all.push((format!("cut to {end} bytes"), sound[..end].to_vec()));
    }
    all.push(("doubled".to_owned(), [&sound[..], &sound[..]].concat()));
    all.push(("a byte longer".to_owned(), [&sound[..], &[0]].concat()));
    let first = opened.frames()[0].range();
    let (start, end) = (first.start as usize, first.end as usize);
    let mut swapped = sound.clone();
    let (one, other) = swapped[start..].split_at_mut(end - start);
    one.swap_with_slice(&mut other[..end - start]);
    all.push(("two frames swapped".to_owned(), swapped));
    let mut doubled = sound[..end].to_vec();
    doubled.extend_from_slice(&sound[start..]);
    all.push(("a frame doubled".to_owned(), doubled));
    all.push(("a frame cut out".to_owned(), [&sound[..start], &sound[end..]].concat()));

    // From here on, all checksums are right.
    let resum = |stored: &[Vec<u8>], entries: &mut [Frame]| {
        for (stored, entry) in stored.iter().zip(entries) {
            entry.checksum = pack::checksum(stored);
        }
    };
    let mut crafted = |told: &str, bytes| all.push((told.to_owned(), bytes));
    crafted(
        "frames swapped, with their checksums",
        encode(|stored, entries, _| {
            stored.swap(0, 1);
            resum(stored, entries);
        }),
    );
    crafted(
        "frames and objects swapped",
        encode(|stored, entries, table| {
            stored.swap(0, 1);
            entries.swap(0, 1);
            let (one, other) = table.split_at_mut(2);
            one.swap_with_slice(&mut other[..2]);
        }),
    );
    crafted("two objects swapped", encode(|_, _, table| table.swap(0, 2)));
    crafted(
        "a frame listed twice",
        encode(|stored, entries, table| {
            stored.insert(0, stored[0].clone());
            entries.insert(0, entries[0]);
            let twice = table[..2].to_vec();
            table.splice(0..0, twice);
        }),
    );
    for at in 0..11 {
        let flip = encode(|stored, entries, _| {
            stored[0][at] ^= 1;
            resum(stored, entries);
        });
        crafted(&format!("byte {at} of a raw frame flipped, with its checksum"), flip);
    }
    let compressed = sound_frame(2).len();
    for at in 0..compressed {
        let flip = encode(|stored, entries, _| {
            stored[2][at] ^= 1;
            resum(stored, entries);
        });
        crafted(&format!("byte {at} of a compressed frame flipped, with its checksum"), flip);
    }
    crafted("a wrong raw length", encode(|_, entries, _| entries[2].raw_bytes += 1));
    crafted("a wrong codec", encode(|_, entries, _| entries[0].codec = Codec::Zstd));
    crafted("a wrong checksum", encode(|_, entries, _| entries[1].checksum ^= 1));
    crafted("a wrong object length", encode(|_, _, table| table[0].bytes += 1));
    crafted("a wrong class", encode(|_, entries, _| entries[0].class = ObjectClass::Metadata));
    all
}

fn sound_frame(number: usize) -> Vec<u8> {
    let mut found = Vec::new();
    encode(|stored, _, _| found.clone_from(&stored[number]));
    found
}

/// A fault of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fault {
    /// Its tables.
    Format,
    /// The checksum of a frame.
    Frame,
    /// A frame cannot be decompressed.
    Expand,
    /// An object does not match its id.
    Object,
    /// Only its name: the bytes are another sound pack.
    Name,
    /// An object is in it twice.
    Twice,
    /// A frame does not match its checksum, so a stub does not have it.
    Absent,
}

fn fault(error: &StoreError, told: &str) -> Fault {
    match error {
        StoreError::Format { .. } => Fault::Format,
        StoreError::Frame { .. } => Fault::Frame,
        StoreError::Expand { .. } => Fault::Expand,
        StoreError::Damaged { .. } => Fault::Object,
        StoreError::PackHash { .. } => Fault::Name,
        StoreError::Absent { .. } => Fault::Absent,
        other => panic!("{told}: {other}"),
    }
}

/// The packs of a remote.
#[derive(Debug)]
struct Source(Vec<u8>);

impl RemoteFrames for Source {
    fn read(&self, _: PackId, range: Range<u64>) -> Result<Vec<u8>, RemoteFrameError> {
        Ok(self.0[range.start as usize..range.end as usize].to_vec())
    }

    fn prefetch(&self, _: &[(PackId, Range<u64>)]) {}
}

fn faults_of(problems: &[VerifyProblem], told: &str) -> HashSet<Fault> {
    let fault = |problem: &VerifyProblem| match problem {
        VerifyProblem::Pack { source, .. }
        | VerifyProblem::Frame { source, .. }
        | VerifyProblem::Object { source, .. } => fault(source, told),
        VerifyProblem::PackHash { .. } => Fault::Name,
        other => panic!("{told}: {other}"),
    };
    problems.iter().map(fault).collect()
}

#[test]
fn each_way_to_read_a_pack_finds_the_same_damage() {
    let sound = sound();
    let id = name_of(&sound);
    let mut seen = HashSet::new();
    for (number, (told, bytes)) in damaged_packs().into_iter().enumerate() {
        let crafted = Crafted::empty();
        let path = crafted.dir.path().join("received");
        fs_err::write(&path, &bytes).unwrap();
        let repo = crafted.repo();

        // A pack whose name is known: pushes, and packs that a killed process has received.
        let Err(AcceptError::Store(error)) = accept::check(&path, id, &Silent) else {
            panic!("{told}: it was accepted");
        };
        assert_eq!(error.damaged_pack(), Some(id), "{told}: {error}");
        let expected = fault(&error, &told);
        seen.insert(expected);
        // A pack of a newer version is refused, but not damaged.
        let is_newer = error.kind() == ErrorKind::Unsupported;

        // A pack whose name is not known: bundles, from a file and from a stream.
        for is_stream in [false, true] {
            let mut inbox = Inbox::new(repo.store(), &Silent).unwrap();
            let received = match is_stream {
                false => inbox.receive_from(PackPlace { path: &path, span: None }, &Silent),
                true => {
                    let mut file = inbox.new_file().unwrap();
                    file.write(&bytes).unwrap();
                    inbox.receive(&file, || (), &Silent).0
                }
            };
            let found = match received {
                Ok(()) => Fault::Name,
                Err(BundleError::Duplicate { .. }) => Fault::Twice,
                Err(BundleError::Store(error)) => {
                    assert_eq!(error.damaged_pack(), Some(name_of(&bytes)), "{told}: {error}");
                    fault(&error, &told)
                }
                Err(error) => panic!("{told}: {error}"),
            };
            let is_twice = found == Fault::Twice && told.contains("twice");
            assert!(found == expected || is_twice, "{told}: {found:?} instead of {expected:?}");
        }
        // The rest makes stores: not for every flipped byte.
        if told.ends_with("flipped") && number % 5 != 0 {
            continue;
        }

        let shared = SharedInbox::new(repo.store());
        let pieces = bytes.chunks(7).map(Ok::<_, StagedError>);
        let error = shared.receive(id, pieces, &Silent).unwrap_err();
        assert!(matches!(error, StagedError::Hash), "{told}: {error}");
        assert_eq!(shared.list().unwrap(), [], "{told}");
        assert_eq!(repo.store().packs(), [], "{told}");

        // A stub that is filled with these bytes.
        let opened = PackFile::open(&path, id);
        let outline = opened.and_then(|pack| {
            pack.objects()?;
            let [start, end] = [0, pack.frames().len() - 1].map(|at| pack.frames()[at].range());
            let (head, tail) = (start.start as usize, end.end as usize);
            Ok(PackOutline {
                id,
                file_bytes: bytes.len() as u64,
                head: bytes[..head].to_vec(),
                tail: bytes[tail..].to_vec(),
            })
        });
        assert_eq!(outline.is_err(), expected == Fault::Format, "{told}");
        if let Ok(outline) = outline {
            repo.store().add_stubs([&outline]).unwrap();
            repo.store().fill(&id, 0, &bytes).unwrap();
            let found = fault(&repo.store().complete(&id, &Silent).unwrap_err(), &told);
            let is_absent = (found, expected) == (Fault::Absent, Fault::Frame);
            assert!(found == expected || is_absent, "{told}: {found:?} instead of {expected:?}");
            assert!(repo.store().is_partial(&id), "{told}");

            // The same pack in a remote store.
            let remote = Crafted::empty();
            let stubs = remote.repo();
            stubs.store().add_stubs([&outline]).unwrap();
            let inventory = RemoteInventory {
                tips: &[],
                seen: &[],
                lengths: &HashMap::from([(id, bytes.len() as u64)]),
                at_origin: &HashSet::new(),
                source: &Source(bytes.clone()),
                identity: "-",
            };
            let options = VerifyOptions { data: Data::All };
            let found =
                verify::run_elsewhere(stubs.store(), &inventory, &options, &Silent).unwrap();
            let found = faults_of(&found.problems, &told);
            assert!(found.contains(&expected), "{told}: {found:?} instead of {expected:?}");
        }

        // The same pack in a store.
        let local = Crafted::empty();
        fs_err::write(local.store().join("objects").join(id.to_string()), &bytes).unwrap();
        let repo = local.repo();
        repo.store().hash_unproven_packs(&Silent).unwrap();
        assert_eq!(repo.store().is_proven(&id), expected == Fault::Name, "{told}");
        let head = BundleHead {
            commit: CommitId::of(b""),
            objects: 0,
            raw_bytes: 0,
            prerequisites: Vec::new(),
        };
        let mut writer = BundleWriter::new(Vec::new(), &head).unwrap();
        let copied = writer.copy_pack(repo.store(), id, &Silent).unwrap_err();
        assert!(matches!(copied, BundleError::Store(StoreError::PackHash { .. })), "{told}");
        let found = verify::run(&repo, &VerifyOptions { data: Data::All }, &Silent).unwrap();
        let found = faults_of(&found.problems, &told);
        assert!(found.contains(&expected), "{told}: {found:?} instead of {expected:?}");
        assert_ne!(repo.store().is_damaged(&id), is_newer, "{told}");
    }
    let all = [Fault::Format, Fault::Frame, Fault::Expand, Fault::Object, Fault::Name];
    assert_eq!(seen, HashSet::from(all));
}
