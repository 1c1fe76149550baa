//! Stores that are crafted byte by byte, with contents that snap never writes.

use std::path::PathBuf;

use snap_core::{
    base::{
        id::{BlobId, ChunkListId, CommitId, ContentId, ListPartId, ObjectId, PackId, TreeId},
        limits,
    },
    disk::Disk,
    format::{
        chunk_list::{BlobRef, ChunkList, ListBuilder, ListObject, PartRef, ZERO_CHUNK},
        commit::Commit,
        pack::{self, Codec, Frame, HEADER_BYTES, ObjectClass, ObjectKind, PackedObject},
        ref_text::RefText,
        tree::{self, Totals},
        wire::WireWriter,
    },
    repo::{Config, Repo},
};

use crate::{
    fuzz_replay::checks::seeds::part,
    scratch::{START, open, temporary},
};

/// An object of a crafted pack: any id with any bytes.
pub(crate) type Claim = (ObjectId, ObjectKind, Vec<u8>);

/// A store for crafted packs.
pub(crate) struct Crafted {
    pub(crate) dir: tempfile::TempDir,
}

impl Crafted {
    /// Makes a store with these objects.
    pub(crate) fn of(objects: &[Claim]) -> Self {
        let crafted = Self::empty();
        crafted.add(objects);
        crafted
    }

    pub(crate) fn empty() -> Self {
        let crafted = Self { dir: temporary() };
        Repo::init(&crafted.store(), &Disk::default(), &Config::default()).unwrap();
        crafted
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    pub(crate) fn target(&self) -> PathBuf {
        self.dir.path().join("outside/target")
    }

    pub(crate) fn repo(&self) -> Repo {
        open(&self.store())
    }

    /// Adds a pack with these objects.
    pub(crate) fn add(&self, objects: &[Claim]) -> PackId {
        self.add_pack(&pack_of(objects))
    }

    /// Adds a file with any bytes, named by their hash.
    pub(crate) fn add_pack(&self, bytes: &[u8]) -> PackId {
        let id = PackId::from_bytes(*blake3::hash(bytes).as_bytes());
        fs_err::write(self.store().join("objects").join(id.to_string()), bytes).unwrap();
        id
    }

    /// Adds a commit of this tree and updates the branch to it.
    pub(crate) fn commit(&self, tree: TreeId) -> CommitId {
        self.commit_after(tree, Vec::new())
    }

    /// Does the same as [`Crafted::commit`] with parents.
    pub(crate) fn commit_after(&self, tree: TreeId, parents: Vec<CommitId>) -> CommitId {
        let (id, claim) = commit_after(tree, parents);
        self.add(&[claim]);
        fs_err::write(self.store().join("refs/heads/main"), RefText::new(Some(id)).encode())
            .unwrap();
        id
    }
}

/// Makes a pack with these objects, compressed where that saves space.
pub(crate) fn pack_of(objects: &[Claim]) -> Vec<u8> {
    let mut bytes = pack::encode_header().to_vec();
    let (mut frames, mut table) = (Vec::new(), Vec::new());
    let mut sorted: Vec<&Claim> = objects.iter().collect();
    sorted.sort_by_key(|(_, kind, _)| *kind != ObjectKind::Blob);
    let same = |a: &&Claim, b: &&Claim| (a.1 == ObjectKind::Blob) == (b.1 == ObjectKind::Blob);
    for class in sorted.chunk_by(same) {
        for group in frames_of(class) {
            let raw: Vec<u8> = group.iter().flat_map(|(_, _, bytes)| bytes).copied().collect();
            let packed = zstd::bulk::compress(&raw, 1).unwrap();
            let smaller = packed.len() < raw.len();
            let (codec, stored) = if smaller { (Codec::Zstd, &packed) } else { (Codec::Raw, &raw) };
            frames.push(Frame {
                offset: bytes.len() as u64,
                stored_bytes: stored.len() as u32,
                raw_bytes: raw.len() as u32,
                objects: group.len() as u32,
                codec,
                class: if group[0].1 == ObjectKind::Blob {
                    ObjectClass::Data
                } else {
                    ObjectClass::Metadata
                },
                checksum: pack::checksum(stored),
            });
            bytes.extend_from_slice(stored);
            table.extend(group.iter().map(|(id, kind, bytes)| PackedObject {
                id: *id,
                kind: *kind,
                bytes: bytes.len() as u32,
            }));
        }
    }
    bytes.extend_from_slice(&pack::encode_footer(&frames, &table, HEADER_BYTES as u64));
    bytes
}

/// Divides objects into groups that fit in a frame each.
fn frames_of<'c>(objects: &'c [&'c Claim]) -> Vec<&'c [&'c Claim]> {
    let (mut frames, mut rest) = (Vec::new(), objects);
    while !rest.is_empty() {
        let mut bytes = 0;
        let fit = rest.iter().take(4_000).take_while(|(_, _, object)| {
            bytes += object.len();
            bytes <= limits::FRAME_RAW_BYTES
        });
        let frame;
        (frame, rest) = rest.split_at(fit.count().max(1));
        frames.push(frame);
    }
    frames
}

pub(crate) fn blob(bytes: &[u8]) -> Claim {
    (BlobId::of(bytes).object(), ObjectKind::Blob, bytes.to_vec())
}

pub(crate) fn tree(bytes: Vec<u8>) -> (TreeId, Claim) {
    let id = TreeId::of(&bytes);
    (id, (id.object(), ObjectKind::Tree, bytes))
}

pub(crate) fn commit(tree: TreeId) -> (CommitId, Claim) {
    commit_after(tree, Vec::new())
}

fn commit_after(tree: TreeId, parents: Vec<CommitId>) -> (CommitId, Claim) {
    let commit = Commit {
        tree,
        parents,
        time: START,
        author: "Eve".into(),
        host: "box".into(),
        message: String::new(),
        labels: Default::default(),
        root: None,
        totals: Totals::default(),
        selection: Default::default(),
    };
    let bytes = commit.encode();
    let id = CommitId::of(&bytes);
    (id, (id.object(), ObjectKind::Commit, bytes))
}

/// Encodes a chunk list, canonical or not.
pub(crate) fn chunk_list(list: &ChunkList) -> (ChunkListId, Claim) {
    let bytes = list.encode();
    let id = ChunkListId::of(&bytes);
    (id, (id.object(), ObjectKind::ChunkList, bytes))
}

/// Encodes a part of a chunk list, canonical or not.
pub(crate) fn list_part(chunks: &[BlobRef]) -> (PartRef, Claim) {
    let (bytes, length) = (part(chunks), chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum());
    let part = PartRef { id: ListPartId::of(&bytes), bytes: length };
    (part, (part.id.object(), ObjectKind::ListPart, bytes))
}

/// Makes the list of a content and its parts, as a commit does.
pub(crate) fn listed(chunks: impl IntoIterator<Item = BlobRef>) -> (ChunkListId, Vec<Claim>) {
    let (mut list, mut objects) = (ListBuilder::default(), Vec::new());
    for chunk in chunks {
        objects.extend(list.push(chunk).unwrap());
    }
    let (id, rest) = list.finish().unwrap();
    objects.extend(rest);
    let claims = objects.into_iter().map(|ListObject { id, kind, bytes }| (id, kind, bytes));
    let ContentId::Chunked(id) = id else { panic!("{id} has one chunk") };
    (id, claims.collect())
}

/// Makes all objects of a content with these chunks. All chunks except the last must have at least
/// [`limits::MIN_CHUNK_BYTES`].
pub(crate) fn chunked(chunks: &[&[u8]]) -> (ChunkListId, Vec<Claim>) {
    let (id, list) = listed(chunks.iter().map(|chunk| piece(chunk)));
    (id, chunks.iter().map(|chunk| blob(chunk)).chain(list).collect())
}

/// A chunk list that no writer makes.
pub(crate) struct ForeignList {
    /// What is wrong.
    pub(crate) told: &'static str,
    pub(crate) id: ChunkListId,
    /// Length of the content in bytes, as far as an entry can state it.
    pub(crate) size: u64,
    /// The list, its parts and its chunks.
    pub(crate) claims: Vec<Claim>,
}

/// Makes chunk lists that match their ids, but break a rule of their form, or whose objects do not
/// have the lengths that they state.
pub(crate) fn foreign_lists() -> Vec<ForeignList> {
    const KIB: usize = 1 << 10;
    let full = limits::CHUNK_LIST_ENTRIES;
    let chunks: Vec<Claim> = [256, 700, 768, 1024, 2048]
        .map(|kib| blob(&vec![1; kib * KIB]))
        .into_iter()
        .chain([blob(b""), blob(b"x"), blob(&vec![0; limits::CHUNK_BYTES])])
        .collect();
    let kib = |kib: usize| piece(&vec![1; kib * KIB]);
    let zeros = |count: usize| vec![ZERO_CHUNK; count];
    let (whole, whole_claim) = list_part(&zeros(full));
    let (short, short_claim) = list_part(&[ZERO_CHUNK]);
    let (not_full, not_full_claim) = list_part(&zeros(full - 1));
    // As long as a full part, but only right at the end of a content.
    let (last, last_claim) = list_part(&[zeros(full - 1), vec![piece(b"x")]].concat());
    let (empty, empty_claim) = list_part(&[]);
    let mut trailing_claim = whole_claim.clone();
    trailing_claim.2.push(0);
    let trailing = PartRef { id: ListPartId::of(&trailing_claim.2), ..whole };
    trailing_claim.0 = trailing.id.object();
    let parts = [whole_claim, short_claim, not_full_claim, last_claim, empty_claim, trailing_claim];
    let is_blob = PartRef { id: ListPartId::from_object(ZERO_CHUNK.id.object()), ..whole };
    let missing = PartRef { id: ListPartId::of(b"nowhere"), ..whole };
    let longer = PartRef { bytes: whole.bytes - 1, ..whole };
    let said = |bytes: u32, chunk: BlobRef| BlobRef { bytes, ..chunk };
    let nowhere = BlobRef { id: BlobId::of(b"nowhere"), bytes: 1 << 20 };
    let direct = |told, chunks: Vec<BlobRef>| (told, ChunkList::Chunks(chunks));
    let split = |told, parts: Vec<PartRef>| (told, ChunkList::Parts(parts));
    let mut lists = vec![
        direct("no chunk", vec![]),
        direct("one chunk", vec![ZERO_CHUNK]),
        direct("at most 1 MiB", vec![kib(768), kib(256)]),
        direct("a short chunk in the middle", vec![kib(1024), kib(700), kib(1024)]),
        direct("a chunk that is too long", vec![said((4 << 20) + 1, ZERO_CHUNK), kib(1024)]),
        direct("an empty chunk", vec![kib(1024), kib(1024), piece(b"")]),
        direct("too many chunks", zeros(full + 1)),
        direct("a chunk that is longer than stated", vec![said(1 << 20, kib(2048)), kib(1024)]),
        direct("a chunk that is shorter than stated", vec![said(2 << 20, kib(1024)), kib(1024)]),
        direct("a missing chunk", vec![kib(1024), nowhere]),
        split("no part", vec![]),
        split("one part", vec![whole]),
        split("needless parts", vec![short, short]),
        split("a part that is not full", vec![not_full, short]),
        split("a part that is longer than stated", vec![longer, short]),
        split("a last part in the middle", vec![last, short]),
        split("a last part in the middle and at the end", vec![last, last]),
        split("an empty part", vec![whole, empty]),
        split("a part with a byte more", vec![trailing, short]),
        split("too many parts", vec![whole; limits::CHUNK_LIST_PARTS + 1]),
        split("a part that is a blob", vec![is_blob, short]),
        split("a missing part", vec![missing, short]),
    ];
    // The last chunk or part may be shorter, but not longer.
    lists.push(direct("a last chunk that is too long", vec![kib(1024), said(5 << 20, ZERO_CHUNK)]));
    let too_long = PartRef { bytes: whole.bytes + 1, ..whole };
    lists.push(split("a last part that is too long", vec![whole, too_long]));
    let mut foreign: Vec<(&str, u64, Vec<u8>)> =
        lists.into_iter().map(|(told, list)| (told, list.total_bytes(), list.encode())).collect();
    let sound = ChunkList::Chunks(vec![kib(1024), kib(1024)]);
    for (told, at, byte) in [
        ("an older version", 0, 1),
        ("a newer version", 0, 255),
        ("an unknown form", 1, 2),
        ("chunks as parts", 1, 1),
    ] {
        let mut bytes = sound.encode();
        bytes[at] = byte;
        foreign.push((told, sound.total_bytes(), bytes));
    }
    foreign.push(("a byte more", sound.total_bytes(), [&sound.encode()[..], &[0]].concat()));
    foreign.push(("no byte", sound.total_bytes(), Vec::new()));
    let made = foreign.into_iter().map(|(told, size, bytes)| {
        let id = ChunkListId::of(&bytes);
        let claim = (id.object(), ObjectKind::ChunkList, bytes);
        let claims = chunks.iter().chain(&parts).cloned().chain([claim]).collect();
        ForeignList { told, id, size: size.max(limits::WHOLE_FILE_BYTES + 1), claims }
    });
    made.collect()
}

/// Makes a chunk of 1 MiB.
pub(crate) fn mib(byte: u8) -> Vec<u8> {
    vec![byte; 1 << 20]
}

pub(crate) fn piece(content: &[u8]) -> BlobRef {
    BlobRef { id: BlobId::of(content), bytes: content.len() as u32 }
}

/// The kind of an entry of a crafted leaf.
pub(crate) enum Body {
    File(BlobId, u64),
    Chunked(ChunkListId, u64),
    Folder(TreeId),
    Symlink(&'static [u8]),
}

/// Encodes a leaf with unchecked entries.
pub(crate) fn leaf(entries: &[(&[u8], Body)]) -> Vec<u8> {
    let mut w = WireWriter::new();
    w.u8(tree::VERSION);
    w.u8(0);
    (0..4).for_each(|_| w.varint(0));
    w.varint(0);
    w.varint(entries.len() as u64);
    for (name, body) in entries {
        w.bytes(name);
        w.u8(match body {
            Body::File(..) => 0,
            Body::Chunked(..) => 7,
            Body::Folder(_) => 1,
            Body::Symlink(_) => 2,
        });
        w.u8(0);
        w.varint(0o755);
        match body {
            Body::File(id, size) => {
                w.varint(*size);
                w.raw(id.as_bytes());
            }
            Body::Chunked(id, size) => {
                w.varint(*size);
                w.raw(id.as_bytes());
            }
            Body::Folder(id) => w.raw(id.as_bytes()),
            Body::Symlink(target) => w.bytes(target),
        }
    }
    w.finish()
}

/// Encodes a node above leaves or other nodes.
pub(crate) fn node(level: u8, children: &[(Vec<u8>, TreeId)]) -> Vec<u8> {
    let mut w = WireWriter::new();
    w.u8(tree::VERSION);
    w.u8(level);
    (0..4).for_each(|_| w.varint(0));
    w.varint(children.len() as u64);
    for (first, id) in children {
        w.bytes(first);
        w.raw(id.as_bytes());
    }
    w.finish()
}
