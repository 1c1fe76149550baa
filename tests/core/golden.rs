//! Golden bytes: the encodings never change. Another program made the files from the
//! byte tables (see `fixtures/README.md`).

use std::{path::PathBuf, sync::Arc};

use snap_core::{
    base::{
        id::{BlobId, ChunkListId, CommitId, ContentId, ListPartId, ObjectId, TreeId},
        limits,
        name::EntryName,
        observe::Silent,
        time::Time,
    },
    disk::{
        Disk,
        table::{Table, TableWriter},
    },
    format::{
        bundle::BundleHead,
        chunk_list::{BlobRef, ChunkList, ListEnd, PartRef, decode_part},
        commit::Commit,
        pack::{
            self, Codec, Frame, HEADER_BYTES, ObjectClass, ObjectKind, PackedObject, TRAILER_BYTES,
            Trailer,
        },
        selection::{FolderMarker, IgnoreOptions, Selection, UnreadPaths},
        table::{Shape, TablePurpose},
        tree::{Child, Device, Entry, EntryKind, Metadata, Node, Owner, Totals, Xattr},
    },
    ops::inbox::accept::{self, AcceptError},
    repo::{
        RefLogMessage, RefName, Refs,
        ref_log::{self, RefValue},
    },
    store::{StoreError, actual_id},
};

use crate::{
    crafted::Crafted,
    scratch::{START, Scratch},
};

fn fixtures() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

/// Reads the bytes of an annotated file, in which `#` starts a comment.
fn golden(name: &str) -> Vec<u8> {
    let text = fs_err::read_to_string(fixtures().join("golden").join(name)).unwrap();
    let code = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let digits: String = code.flat_map(str::chars).filter(|c| !c.is_whitespace()).collect();
    hex::decode(digits).unwrap()
}

#[track_caller]
fn assert_golden(name: &str, made: &[u8]) {
    let golden = golden(name);
    let at = golden.iter().zip(made).position(|(a, b)| a != b);
    assert_eq!((made.len(), at), (golden.len(), None), "length and first difference to {name}");
}

fn owner(uid: u32, gid: u32, user: &[u8], group: &[u8]) -> Option<Arc<Owner>> {
    Some(Arc::new(Owner { uid, gid, user: user.into(), group: group.into() }))
}

fn tree_id(byte: u8) -> TreeId {
    TreeId::from_bytes([byte; 32])
}

fn blob_id(byte: u8) -> BlobId {
    BlobId::from_bytes([byte; 32])
}

fn totals(files: u64, folders: u64, others: u64, bytes: u64) -> Totals {
    Totals { files, folders, others, bytes }
}

fn leaf() -> Node {
    let ann = || owner(1000, 100, b"ann", b"");
    let plain = |mode| Metadata { mode, ..Metadata::default() };
    let xattr = |name: &[u8], value: &[u8]| Xattr { name: name.into(), value: value.into() };
    let full = Metadata {
        mode: 0o7777,
        owner: ann(),
        mtime: Some(Time { secs: 1_800_000_000, nanos: 5 }),
        xattrs: vec![xattr(b"user.a", b""), xattr(b"user.b", b"\0\xff")],
        link: Some(0x0123_4567_89ab_cdef),
        sparse: true,
    };
    let before_1970 = Some(Time { secs: -1, nanos: 999_999_999 });
    let device = |major, minor| Device { major, minor };
    let rows: Vec<(&[u8], EntryKind, Metadata)> = vec![
        (b"block", EntryKind::BlockDevice { device: device(250, 65_537) }, plain(0o660)),
        (
            b"char",
            EntryKind::CharDevice { device: device(1, 3) },
            Metadata { owner: owner(0, 0, b"root", b"root"), ..plain(0o600) },
        ),
        (b"fifo", EntryKind::Fifo, Metadata { mtime: before_1970, ..plain(0o644) }),
        (b"file", EntryKind::File { size: 5, id: blob_id(0x11).into() }, full),
        (b"file2", EntryKind::File { size: 0, id: BlobId::of(b"").into() }, plain(0)),
        (
            b"folder",
            EntryKind::Folder { id: tree_id(0x22) },
            Metadata { owner: ann(), ..plain(0o1755) },
        ),
        (b"link", EntryKind::Symlink { target: (*b"../x\xff").into() }, plain(0o777)),
        (b"socket", EntryKind::Socket, plain(0o755)),
        (
            b"\xff\n",
            EntryKind::File {
                size: 1 << 60,
                id: ContentId::Chunked(ChunkListId::from_bytes([0x33; 32])),
            },
            Metadata { sparse: true, ..plain(0o644) },
        ),
    ];
    let entry =
        |(name, kind, metadata)| Entry { name: EntryName::new(name).unwrap(), kind, metadata };
    Node::Leaf {
        totals: totals(3, 1, 5, (1 << 60) + 5),
        entries: rows.into_iter().map(entry).collect(),
    }
}

#[test]
fn trees_have_their_golden_bytes() {
    let child =
        |first: &[u8], byte| Child { first: EntryName::new(first).unwrap(), id: tree_id(byte) };
    let node = Node::Inner {
        level: 1,
        totals: totals(40_000, 2, 0, 123_456),
        children: vec![child(b"a", 0x44), child(b"k\xff", 0x55)],
    };
    for (file, value) in [("tree-leaf.hex", leaf()), ("tree-node.hex", node)] {
        assert_golden(file, &value.encode());
        assert_eq!(Node::decode(&golden(file)), Ok(value));
    }
}

#[test]
fn commits_have_their_golden_bytes() {
    let commit = Commit {
        tree: tree_id(0x66),
        parents: vec![CommitId::from_bytes([0x77; 32]), CommitId::from_bytes([0x10; 32])],
        time: Time { secs: 1_800_000_000, nanos: 123_456_789 },
        author: "Ann".into(),
        host: "box".into(),
        message: "fix the roof\nä".into(),
        labels: [("a".into(), "1".into()), ("b".into(), String::new())].into(),
        root: Some(Metadata {
            mode: 0o755,
            owner: owner(1000, 1000, b"ann", b"ann"),
            mtime: Some(Time { secs: -86_400, nanos: 0 }),
            ..Metadata::default()
        }),
        totals: totals(3, 1, 0, 300),
        selection: Selection::default(),
    };
    assert_golden("commit.hex", &commit.encode());
    assert_eq!(Commit::decode(&golden("commit.hex")), Ok(commit.clone()));

    let all = IgnoreOptions {
        patterns: vec!["*.o".into(), "!ä.o".into()],
        gitignore: true,
        cache_folders: true,
        larger_than_bytes: Some(100 << 20),
        one_file_system: true,
        ..IgnoreOptions::default()
    };
    let marker = |header: &[u8]| FolderMarker {
        name: EntryName::new(b".nobackup").unwrap(),
        header: header.into(),
    };
    let later = IgnoreOptions {
        ignore_case_patterns: vec!["*.JPG".into()],
        markers: vec![marker(b""), marker(b"no")],
        ..IgnoreOptions::default()
    };
    let gitignore = IgnoreOptions { gitignore: true, ..IgnoreOptions::default() };
    let mut unread = UnreadPaths::default();
    unread.insert(b"a/\xff\n");
    unread.insert(&vec![b'z'; limits::UNREAD_BYTES]);
    let selection = Selection {
        rules: vec![all, gitignore],
        sources: vec![(*b"/srv/data").into(), (*b"db.sql").into()],
        unread,
    };
    let commit = Commit { selection, ..commit };
    assert_golden("commit-selection.hex", &commit.encode());
    assert_eq!(Commit::decode(&golden("commit-selection.hex")), Ok(commit.clone()));

    let selection = Selection { rules: vec![later], ..Selection::default() };
    let commit = Commit { selection, ..commit };
    assert_golden("commit-markers.hex", &commit.encode());
    assert_eq!(Commit::decode(&golden("commit-markers.hex")), Ok(commit));
}

#[test]
fn chunk_lists_have_their_golden_bytes() {
    let chunks =
        [(0x88, 1 << 20), (0x99, 300)].map(|(byte, bytes)| BlobRef { id: blob_id(byte), bytes });
    let part = |byte, bytes| PartRef { id: ListPartId::from_bytes([byte; 32]), bytes };
    let direct = ChunkList::Chunks(chunks.to_vec());
    let parts = ChunkList::Parts(vec![part(0xaa, 16_384 << 20), part(0xbb, (1 << 20) + 300)]);
    // Another program has computed the ids.
    for (file, value, id) in [
        (
            "chunk-list.hex",
            direct,
            "d4a32769df5389fe554554ddf19e91e17869be42bd181a478b8a5b11cc84a3db",
        ),
        (
            "chunk-list-parts.hex",
            parts,
            "7d9baff053bca72a230d5df20bb9852e9381ce089d3a9eb5c06c093248cc1db8",
        ),
    ] {
        assert_golden(file, &value.encode());
        assert_eq!(ChunkList::decode(&golden(file)), Ok(value));
        assert_eq!(ChunkListId::of(&golden(file)).to_string(), id);
    }
    let bytes = golden("chunk-list-part.hex");
    let id = ListPartId::of(&bytes);
    assert_eq!(id.to_string(), "c883b97bc8745940042aa305dd6c7979e2806084282c94a794723108c69db119");
    assert_eq!(decode_part(Some((1 << 20) + 300), ListEnd::Content, &bytes), Ok(chunks.to_vec()));
    // The only way to encode a part is to fill it, so compare with the chunks of the short list.
    assert_eq!(bytes, golden("chunk-list.hex")[2..]);
}

#[test]
fn every_flipped_bit_of_a_list_or_an_entry_is_refused() {
    let crafted = Crafted::empty();
    let (list, parts) = (golden("chunk-list.hex"), golden("chunk-list-parts.hex"));
    let part = golden("chunk-list-part.hex");
    let leaf = golden("tree-leaf.hex");
    for (kind, bytes) in [
        (ObjectKind::ChunkList, list),
        (ObjectKind::ChunkList, parts),
        (ObjectKind::ListPart, part),
        (ObjectKind::Tree, leaf),
    ] {
        let id = actual_id(kind, &bytes);
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let pack = crafted.add(&[(id, kind, flipped)]);
            let path = crafted.store().join("objects").join(pack.to_string());
            let error = accept::check(&path, pack, &Silent).unwrap_err();
            assert!(
                matches!(&error, AcceptError::Store(StoreError::Damaged { wanted, .. }) if *wanted == id),
                "{kind:?}, bit {bit}: {error}"
            );
            fs_err::remove_file(&path).unwrap();
        }
    }
}

#[test]
fn packs_have_their_golden_bytes() {
    let frame = |offset, stored: &[u8], objects, class| Frame {
        offset,
        stored_bytes: stored.len() as u32,
        raw_bytes: stored.len() as u32,
        objects,
        codec: Codec::Raw,
        class,
        checksum: pack::checksum(stored),
    };
    let frames = [
        frame(16, b"hello", 2, ObjectClass::Data),
        frame(21, b"metadata", 1, ObjectClass::Metadata),
    ];
    let object = |id, kind, bytes| PackedObject { id, kind, bytes };
    let objects = [
        object(BlobId::of(b"hello").object(), ObjectKind::Blob, 5),
        object(BlobId::of(b"").object(), ObjectKind::Blob, 0),
        object(ObjectId::from_bytes([0xbb; 32]), ObjectKind::Tree, 8),
    ];
    let mut bytes = pack::encode_header().to_vec();
    bytes.extend_from_slice(b"hellometadata");
    bytes.extend_from_slice(&pack::encode_footer(&frames, &objects, HEADER_BYTES as u64));
    assert_golden("pack.hex", &bytes);

    let golden = golden("pack.hex");
    assert_eq!(pack::decode_header(&golden), Ok(0));
    let end = golden.len() - TRAILER_BYTES;
    let trailer = Trailer::decode(&golden[end..], golden.len() as u64).unwrap();
    let table = trailer.footer_offset() as usize;
    let (table, rest) = golden[table..end].split_at(trailer.frame_table_bytes());
    assert_eq!(trailer.decode_frames(table, HEADER_BYTES as u64).unwrap(), frames);
    assert_eq!(trailer.decode_objects(rest, &frames).unwrap(), objects);
}

#[test]
fn bundle_heads_have_their_golden_bytes() {
    let id = |byte| CommitId::from_bytes([byte; 32]);
    let prerequisites = vec![id(0x22), id(0x33)];
    let head = BundleHead { commit: id(0x11), objects: 3, raw_bytes: 4096, prerequisites };
    assert_golden("bundle-head.hex", &head.encode());
    assert_eq!(BundleHead::decode(&golden("bundle-head.hex")), Ok(head));
}

#[test]
fn tables_have_their_golden_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let shape = Shape { purpose: TablePurpose::Index, key_bytes: 32, record_bytes: 48 };
    let record = |id: u8, numbers: [u32; 4]| {
        let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
        [id; 32].into_iter().chain(numbers).collect::<Vec<u8>>()
    };
    let records = [record(0x11, [0, 0, 0, 5]), record(0x22, [2 << 28, 1, 0, 8])];
    let path = dir.path().join("made");
    let mut writer = TableWriter::create(&Disk::default(), &path, shape).unwrap();
    records.iter().for_each(|record| writer.push(record).unwrap());
    writer.finish(&[0xcc; 32]).unwrap();
    assert_golden("table.hex", &fs_err::read(&path).unwrap());

    let path = dir.path().join("golden");
    fs_err::write(&path, golden("table.hex")).unwrap();
    let table = Table::open(&path, shape).unwrap();
    let back: Vec<Vec<u8>> = table.iter().map(|record| record.unwrap().to_vec()).collect();
    assert_eq!((back, table.meta()), (records.to_vec(), &[0xcc; 32][..]));
}

#[test]
fn logs_of_refs_have_their_golden_bytes() {
    let scratch = Scratch::new();
    let name = RefName::tag("v1").unwrap();
    let id = CommitId::from_bytes([0x66; 32]);
    let time = Time { nanos: 7, ..START };
    let change = RefLogMessage { time, who: "Ann\tB", reason: "commit: a\\b\n" };
    // Without the objects of the store, which lacks the commit.
    drop(scratch.repo());
    Refs::new(&scratch.store(), Disk::default()).update(&name, None, Some(id), &change).unwrap();
    let path = name.log_file(&scratch.store());
    assert_golden("ref-log.hex", &fs_err::read(&path).unwrap());

    fs_err::write(&path, golden("ref-log.hex")).unwrap();
    let [line] = &ref_log::read(&path).unwrap()[..] else { panic!("one line") };
    assert_eq!(
        (line.time, &line.old, &line.new),
        (time, &RefValue::Nothing, &RefValue::Commit(id))
    );
    assert_eq!((&*line.who, &*line.reason), (change.who, change.reason));
}
