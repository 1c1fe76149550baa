//! Crafted packs: decompression bombs and wrong lengths.

use snap_core::{
    base::{
        id::{BlobId, ObjectId, PackId},
        kind::ErrorKind,
    },
    format::pack::{
        self, Codec, Frame, HEADER_BYTES, ObjectClass, ObjectKind, PackedObject, TRAILER_BYTES,
    },
    store::{PackFile, StoreError},
};

use crate::crafted::{Crafted, blob};

const MIB: usize = 1 << 20;

/// Makes a pack with one frame and one blob. `frame` changes the frame table entry.
fn one_frame(stored: &[u8], frame: impl FnOnce(&mut Frame), object: PackedObject) -> Vec<u8> {
    let mut entry = Frame {
        offset: HEADER_BYTES as u64,
        stored_bytes: stored.len() as u32,
        raw_bytes: object.bytes,
        objects: 1,
        codec: Codec::Zstd,
        class: ObjectClass::Data,
        checksum: pack::checksum(stored),
    };
    frame(&mut entry);
    let mut bytes = pack::encode_header().to_vec();
    bytes.extend_from_slice(stored);
    bytes.extend_from_slice(&pack::encode_footer(&[entry], &[object], HEADER_BYTES as u64));
    bytes
}

fn blob_of(content: &[u8], bytes: usize) -> PackedObject {
    PackedObject { id: BlobId::of(content).object(), kind: ObjectKind::Blob, bytes: bytes as u32 }
}

#[test]
fn a_frame_that_expands_beyond_its_length_is_refused() {
    let zeros = vec![0; 256 * MIB];
    let bomb = zstd::bulk::compress(&zeros, 1).unwrap();
    assert!(bomb.len() < 64 << 10);
    // With and without the content size in the zstd header.
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_contentsize(false).unwrap();
    std::io::Write::write_all(&mut encoder, &zeros).unwrap();
    let unsized_bomb = encoder.finish().unwrap();
    drop(zeros);
    for bomb in [bomb, unsized_bomb] {
        for raw in [0, 1, 1000, 16 * MIB] {
            let content = vec![0; raw];
            let crafted = Crafted::empty();
            let pack = crafted.add_pack(&one_frame(&bomb, |_| {}, blob_of(&content, raw)));
            let error = read(&crafted, &content).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged, "{raw}: {error}");
            assert!(error.to_string().contains(&format!("{pack:.12}")), "{error}");
        }
    }
}

fn read(crafted: &Crafted, content: &[u8]) -> Result<Vec<u8>, StoreError> {
    crafted.repo().store().object(&BlobId::of(content).object(), ObjectKind::Blob)
}

#[test]
fn wrong_frame_lengths_are_refused() {
    let content = vec![7; 100_000];
    let stored = zstd::bulk::compress(&content, 1).unwrap();
    let crafted = Crafted::empty();
    crafted.add_pack(&one_frame(&stored, |_| {}, blob_of(&content, content.len())));
    assert!(read(&crafted, &content).is_ok());
    for raw in [99_999, 100_001, 0, 16 * MIB] {
        let crafted = Crafted::empty();
        crafted.add_pack(&one_frame(&stored, |_| {}, blob_of(&content, raw)));
        assert!(read(&crafted, &content).is_err(), "{raw}");
    }
    type Lie = fn(&mut Frame);
    let cases: [(&str, Lie); 8] = [
        ("raw, but compressed", |frame| frame.codec = Codec::Raw),
        ("more raw bytes than its object", |frame| frame.raw_bytes += 1),
        ("fewer raw bytes than its object", |frame| frame.raw_bytes -= 1),
        ("more raw bytes than any frame", |frame| frame.raw_bytes = u32::MAX),
        ("more objects than there are", |frame| frame.objects = 2),
        ("no objects", |frame| frame.objects = 0),
        ("all objects there can be", |frame| frame.objects = u32::MAX),
        ("another checksum", |frame| frame.checksum ^= 1),
    ];
    for (told, lie) in cases {
        let crafted = Crafted::empty();
        crafted.add_pack(&one_frame(&stored, lie, blob_of(&content, content.len())));
        assert!(read(&crafted, &content).is_err(), "{told}");
    }
}

#[test]
fn extreme_numbers_in_a_pack_are_refused() {
    let content = vec![7; 1000];
    let stored = zstd::bulk::compress(&content, 1).unwrap();
    let whole = one_frame(&stored, |_| {}, blob_of(&content, content.len()));
    let end = whole.len() - TRAILER_BYTES;
    for at in (0..whole.len() - 3)
        .filter(|at| at + 4 <= HEADER_BYTES || *at >= HEADER_BYTES + stored.len())
    {
        for value in [u32::MAX, u32::MAX / 2, 0] {
            let mut bytes = whole.clone();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            // Fix the checksums, so that the numbers themselves are checked.
            resum(&mut bytes, end, stored.len());
            if bytes == whole {
                continue;
            }
            let crafted = Crafted::empty();
            let id = crafted.add_pack(&bytes);
            let opened = PackFile::open(&crafted.store().join("objects").join(id.to_string()), id);
            let same = opened.is_ok_and(|pack| pack.objects().is_ok());
            match read(&crafted, &content) {
                Ok(read) => assert_eq!(read, content, "{value} at {at}"),
                Err(error) => assert!(
                    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Damaged),
                    "{error}"
                ),
            }
            // Only an id or the checksum of a frame may have any value.
            let ids = end - 37..end - 5;
            let checksum = end - 37 - 8..end - 37;
            assert!(
                !same || (at..at + 4).any(|at| ids.contains(&at) || checksum.contains(&at)),
                "{value} at {at}"
            );
        }
    }
}

/// Fixes the checksums of footer and trailer.
fn resum(bytes: &mut [u8], trailer: usize, stored: usize) {
    let table = HEADER_BYTES + stored;
    let objects = table + pack::FRAME_ENTRY_BYTES;
    let sums = [pack::checksum(&bytes[table..objects]), pack::checksum(&bytes[objects..trailer])];
    bytes[trailer + 8..trailer + 16].copy_from_slice(&sums[0].to_le_bytes());
    bytes[trailer + 16..trailer + 24].copy_from_slice(&sums[1].to_le_bytes());
    let sum = pack::checksum(&bytes[trailer..trailer + 36]) as u32;
    bytes[trailer + 36..trailer + 40].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn data_frames_hold_only_blobs_and_precede_metadata() {
    let content = b"content of a blob";
    let kinds = [ObjectKind::Tree, ObjectKind::Commit, ObjectKind::ChunkList];
    for kind in kinds {
        let object = PackedObject { kind, ..blob_of(content, content.len()) };
        let crafted = Crafted::empty();
        crafted.add_pack(&one_frame(content, |frame| frame.codec = Codec::Raw, object));
        assert_eq!(crafted.repo().store().unreadable_packs().len(), 1, "{kind:?}");
    }
    let frame = |class, offset| Frame {
        offset,
        stored_bytes: content.len() as u32,
        raw_bytes: content.len() as u32,
        objects: 1,
        codec: Codec::Raw,
        class,
        checksum: pack::checksum(content),
    };
    let second = (HEADER_BYTES + content.len()) as u64;
    for (classes, fine) in [
        ([ObjectClass::Data, ObjectClass::Metadata], true),
        ([ObjectClass::Metadata, ObjectClass::Data], false),
    ] {
        let frames = [frame(classes[0], HEADER_BYTES as u64), frame(classes[1], second)];
        let objects = [blob_of(content, content.len()); 2];
        let mut bytes = pack::encode_header().to_vec();
        bytes.extend_from_slice(content);
        bytes.extend_from_slice(content);
        bytes.extend_from_slice(&pack::encode_footer(&frames, &objects, HEADER_BYTES as u64));
        let crafted = Crafted::empty();
        crafted.add_pack(&bytes);
        assert_eq!(crafted.repo().store().unreadable_packs().is_empty(), fine);
    }
}

#[test]
fn a_pack_of_a_newer_version_is_refused_as_such() {
    let crafted = Crafted::of(&[blob(b"content")]);
    let id = crafted.repo().store().packs()[0];
    let path = crafted.store().join("objects").join(id.to_string());
    let mut bytes = fs_err::read(&path).unwrap();
    bytes[8] = 2;
    let newer = crafted.add_pack(&bytes);
    let error = PackFile::open(&crafted.store().join("objects").join(newer.to_string()), newer)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("version 2"));
    let unreadable = crafted.repo().store().unreadable_packs();
    assert!(unreadable[0].to_string().contains(&format!("{newer:.12}")));
}

#[test]
fn an_empty_pack_is_read_and_an_empty_file_is_reported() {
    let crafted = Crafted::empty();
    let mut bytes = pack::encode_header().to_vec();
    bytes.extend_from_slice(&pack::encode_footer(&[], &[], HEADER_BYTES as u64));
    crafted.add_pack(&bytes);
    crafted.add_pack(b"");
    let repo = crafted.repo();
    assert_eq!(repo.store().unreadable_packs().len(), 1);
    assert_eq!(repo.store().locate(&ObjectId::from_bytes([0; 32])).unwrap(), None);
    assert!(repo.store().packs().contains(&PackId::from_bytes(*blake3::hash(&bytes).as_bytes())));
}
