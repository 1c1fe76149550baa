//! Valid encodings as seeds of the fuzz targets.

use std::{collections::BTreeMap, sync::Arc};

use snap_core::{
    base::{
        id::{BlobId, ChunkListId, CommitId, ContentId, ListPartId, TreeId},
        limits,
        name::EntryName,
        time::Time,
    },
    codec::Encoder,
    format::{
        bundle::BundleHead,
        chunk_list::{BlobRef, ChunkList, PartRef, ZERO_CHUNK},
        commit::Commit,
        pack::{self, Codec, Frame, ObjectClass, ObjectKind, PackedObject},
        selection::{IgnoreOptions, Selection, UnreadPaths},
        tree::{Child, Device, Entry, EntryKind, Metadata, Node, Owner, Totals, Xattr},
        wire::WireWriter,
    },
    local::scan::{FileKind, FileStat},
    repo::Config,
};

/// Returns the seeds of a target.
pub fn of(target: &str) -> Vec<Vec<u8>> {
    match target {
        "wire" => vec![vec![0, 0xac, 2, 1, 3, 2, 2, b'h', b'i', 3, 1, 2, 3, 4]],
        "tree" => vec![leaf().encode(), inner().encode()],
        "commit" => vec![commit().encode(), Commit { selection: selection(), ..commit() }.encode()],
        "chunk_list" => chunk_lists(),
        "pack" => vec![pack()],
        "bundle" => vec![bundle_head().encode(), bundle()],
        "pack_footer" => vec![footer()],
        "frame" => vec![frame()],
        "table" => vec![Vec::new(), vec![0; 4096]],
        "table_sealed" => vec![(0..=255).cycle().take(1 + 32 + 48 * 100).collect()],
        "ref_log" => vec![ref_log()],
        "revision" => ["HEAD~2", "main^1:a/b", "latest@2026-11-01T10:00:src", "4f2a", "tags/v1.0"]
            .map(|text| text.as_bytes().to_vec())
            .to_vec(),
        "config" => vec![Config::default().to_text().into_bytes()],
        "ignore" => vec![
            b"*.o\n!keep.o\n/build/\ndoc/**/*.{a,b}\n[a-z]?\n!a***\\*/b**/c\n[!a-]]\nsrc/build/x.o"
                .to_vec(),
        ],
        "find" => vec![b"src/**/*.{c,{h,hh}}/[a-z!]?\\*/".to_vec()],
        _ => Vec::new(),
    }
}

/// Returns the head of a bundle with prerequisites.
fn bundle_head() -> BundleHead {
    let id = |byte| CommitId::from_bytes([byte; 32]);
    let prerequisites = vec![id(1), id(2)];
    BundleHead { commit: id(9), objects: 3, raw_bytes: 4096, prerequisites }
}

/// Returns a bundle of one pack.
fn bundle() -> Vec<u8> {
    let pack = pack();
    let length = (pack.len() as u64).to_le_bytes();
    [&bundle_head().encode()[..], &length, &pack, &[0; 8]].concat()
}

/// Returns the stat of a file.
pub fn stat() -> FileStat {
    let then = Time { secs: 1000, nanos: 1 };
    FileStat {
        kind: FileKind::File,
        mode: 0o644,
        links: 1,
        device: 1,
        inode: 1,
        size: 10,
        blocks: 8,
        uid: 0,
        gid: 0,
        special: 0,
        mtime: then,
        ctime: then,
    }
}

fn name(text: &str) -> EntryName {
    EntryName::new(text.as_bytes()).unwrap()
}

fn metadata() -> Metadata {
    let owner = Owner { uid: 1000, gid: 100, user: (*b"ann").into(), group: (*b"users").into() };
    Metadata {
        mode: 0o4755,
        owner: Some(Arc::new(owner)),
        mtime: Some(Time { secs: -5, nanos: 999_999_999 }),
        xattrs: vec![
            Xattr { name: (*b"user.a").into(), value: (*b"").into() },
            Xattr { name: (*b"user.b").into(), value: (*b"\0\xff").into() },
        ],
        link: Some(7),
        sparse: true,
    }
}

fn leaf() -> Node {
    let plain = || Metadata { mode: 0o644, ..Metadata::default() };
    let device = Device { major: 8, minor: 300 };
    let kinds = [
        EntryKind::File { size: 300, id: BlobId::of(b"a").into() },
        EntryKind::File { size: 5 << 20, id: ContentId::Chunked(ChunkListId::of(b"list")) },
        EntryKind::Folder { id: TreeId::of(b"b") },
        EntryKind::Symlink { target: (*b"../c").into() },
        EntryKind::Fifo,
        EntryKind::Socket,
        EntryKind::CharDevice { device },
        EntryKind::BlockDevice { device },
    ];
    let entries = kinds.into_iter().enumerate().map(|(at, kind)| {
        let metadata = if at == 0 { metadata() } else { plain() };
        Entry { name: name(&format!("entry {at}")), kind, metadata }
    });
    let totals = Totals { files: 2, folders: 1, others: 5, bytes: (5 << 20) + 300 };
    Node::Leaf { totals, entries: entries.collect() }
}

fn inner() -> Node {
    let child = |first| Child { first: name(first), id: TreeId::of(first.as_bytes()) };
    let children = ["a", "b", "c"].map(child).to_vec();
    Node::Inner { level: 1, totals: Totals { files: 3, ..Totals::default() }, children }
}

fn commit() -> Commit {
    Commit {
        tree: TreeId::of(b"tree"),
        parents: vec![CommitId::of(b"one"), CommitId::of(b"two")],
        time: Time { secs: 1_795_248_000, nanos: 5 },
        author: "Ann".to_owned(),
        host: "box".to_owned(),
        message: "fix the roof\n\nwith tiles".to_owned(),
        labels: BTreeMap::from(
            [("ci", "12"), ("os", "linux")].map(|(k, v)| (k.to_owned(), v.to_owned())),
        ),
        root: Some(metadata()),
        totals: Totals { files: 10, folders: 2, others: 0, bytes: 1 << 40 },
        selection: Default::default(),
    }
}

fn selection() -> Selection {
    let rules = |pattern: &str, larger_than_bytes| IgnoreOptions {
        patterns: vec![pattern.to_owned()],
        cache_folders: true,
        larger_than_bytes,
        ..IgnoreOptions::default()
    };
    let mut unread = UnreadPaths::default();
    [&b"a"[..], b"b/c"].iter().for_each(|path| unread.insert(path));
    Selection {
        rules: vec![rules("*.o", None), rules("*.a", Some(300))],
        sources: vec![(*b"/home").into(), (*b"db.sql").into()],
        unread,
    }
}

fn chunk_lists() -> Vec<Vec<u8>> {
    let chunk = |bytes: u32| BlobRef { id: BlobId::of(&bytes.to_le_bytes()), bytes };
    let chunks = vec![chunk(1 << 20), chunk(768 << 10), chunk(300)];
    let end = part(&chunks);
    let full = part(&vec![ZERO_CHUNK; limits::CHUNK_LIST_ENTRIES]);
    let total = |chunks: &[BlobRef]| chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum();
    let parts = vec![
        PartRef {
            id: ListPartId::of(&full),
            bytes: (limits::CHUNK_LIST_ENTRIES * limits::CHUNK_BYTES) as u64,
        },
        PartRef { id: ListPartId::of(&end), bytes: total(&chunks) },
    ];
    vec![ChunkList::Chunks(chunks).encode(), ChunkList::Parts(parts).encode(), end]
}

/// Encodes a part of a chunk list.
pub fn part(chunks: &[BlobRef]) -> Vec<u8> {
    let mut w = WireWriter::new();
    for chunk in chunks {
        w.raw(chunk.id.as_bytes());
        w.u32(chunk.bytes);
    }
    w.finish()
}

fn pack() -> Vec<u8> {
    let contents: [&[u8]; 3] = [b"one", b"and two", b""];
    let tree = leaf().encode();
    let text = b"all work and no play ".repeat(40);
    let frames: [(ObjectClass, Vec<&[u8]>); 3] = [
        (ObjectClass::Data, contents.to_vec()),
        (ObjectClass::Data, vec![&text]),
        (ObjectClass::Metadata, vec![&tree]),
    ];
    let mut bytes = pack::encode_header().to_vec();
    let (mut table, mut objects) = (Vec::new(), Vec::new());
    let mut encoder = Encoder::new(3).unwrap();
    for (class, parts) in frames {
        let raw = parts.concat();
        let (codec, stored) = encoder.encode(&raw).unwrap();
        table.push(Frame {
            offset: bytes.len() as u64,
            stored_bytes: stored.len() as u32,
            raw_bytes: raw.len() as u32,
            objects: parts.len() as u32,
            codec,
            class,
            checksum: pack::checksum(stored),
        });
        bytes.extend_from_slice(stored);
        objects.extend(parts.iter().map(|part| match class {
            ObjectClass::Data => PackedObject {
                id: BlobId::of(part).object(),
                kind: ObjectKind::Blob,
                bytes: part.len() as u32,
            },
            ObjectClass::Metadata => PackedObject {
                id: TreeId::of(part).object(),
                kind: ObjectKind::Tree,
                bytes: part.len() as u32,
            },
        }));
    }
    bytes.extend_from_slice(&pack::encode_footer(&table, &objects, pack::HEADER_BYTES as u64));
    bytes
}

fn footer() -> Vec<u8> {
    let object = |kind| PackedObject { id: BlobId::of(b"x").object(), kind, bytes: 10 };
    let frame = |offset, objects, class| Frame {
        offset,
        stored_bytes: 10 * objects,
        raw_bytes: 10 * objects,
        objects,
        codec: Codec::Raw,
        class,
        checksum: 7,
    };
    let frames = [frame(16, 2, ObjectClass::Data), frame(36, 1, ObjectClass::Metadata)];
    let objects = [object(ObjectKind::Blob), object(ObjectKind::Blob), object(ObjectKind::Commit)];
    let bytes = pack::encode_footer(&frames, &objects, 16);
    [&[2][..], &bytes[..bytes.len() - pack::TRAILER_BYTES]].concat()
}

fn frame() -> Vec<u8> {
    let text = b"all work and no play ".repeat(40);
    let len = (text.len() as u32).to_le_bytes();
    let mut encoder = Encoder::new(3).unwrap();
    [&len[..3], encoder.encode(&text).unwrap().1].concat()
}

fn ref_log() -> Vec<u8> {
    let (old, new) = (CommitId::of(b"old"), CommitId::of(b"new"));
    let lines = [
        format!("1795248000.000000005\t-\t{old}\tann on box\tcommit: a\\tb\n"),
        format!("1795248001.000000000\t{old}\t{new}\tann\tcommit\n"),
        "1795248002.000000000\trefs/heads/main\trefs/heads/a/b\tann\tswitch\n".to_owned(),
    ];
    lines.concat().into_bytes()
}
