//! Stores that are crafted byte by byte, with contents that snap never writes.

use std::path::PathBuf;

use snap_core::{
    base::id::{BlobId, CommitId, ObjectId, PackId, TreeId},
    disk::Disk,
    format::{
        chunk_list::{BlobRef, ChunkList, ChunkListEntries},
        commit::Commit,
        pack::{self, Codec, Frame, HEADER_BYTES, ObjectClass, ObjectKind, PackedObject},
        ref_text::RefText,
        tree::Totals,
        wire::WireWriter,
    },
    repo::{Config, Repo},
};

use crate::scratch::{START, open, temporary};

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

    /// Adds a pack with these objects, compressed where that saves space.
    pub(crate) fn add(&self, objects: &[Claim]) {
        let mut bytes = pack::encode_header().to_vec();
        let (mut frames, mut table) = (Vec::new(), Vec::new());
        let mut sorted: Vec<&Claim> = objects.iter().collect();
        sorted.sort_by_key(|(_, kind, _)| *kind != ObjectKind::Blob);
        let same = |a: &&Claim, b: &&Claim| (a.1 == ObjectKind::Blob) == (b.1 == ObjectKind::Blob);
        for class in sorted.chunk_by(same) {
            // The groups are so small that no frame becomes too large.
            for group in class.chunks(4_000) {
                let raw: Vec<u8> = group.iter().flat_map(|(_, _, bytes)| bytes).copied().collect();
                let packed = zstd::bulk::compress(&raw, 1).unwrap();
                let smaller = packed.len() < raw.len();
                let (codec, stored) =
                    if smaller { (Codec::Zstd, &packed) } else { (Codec::Raw, &raw) };
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
        self.add_pack(&bytes);
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

pub(crate) fn chunk_list(id: BlobId, total_bytes: u64, pieces: ChunkListEntries) -> Claim {
    (id.object(), ObjectKind::ChunkList, ChunkList { total_bytes, pieces }.encode())
}

pub(crate) fn piece(content: &[u8]) -> BlobRef {
    BlobRef { id: BlobId::of(content), bytes: content.len() as u32 }
}

/// The kind of an entry of a crafted leaf.
pub(crate) enum Body {
    File(BlobId, u64),
    Folder(TreeId),
    Symlink(&'static [u8]),
}

/// Encodes a leaf with unchecked entries.
pub(crate) fn leaf(entries: &[(&[u8], Body)]) -> Vec<u8> {
    let mut w = WireWriter::new();
    w.u8(1);
    w.u8(0);
    (0..4).for_each(|_| w.varint(0));
    w.varint(0);
    w.varint(entries.len() as u64);
    for (name, body) in entries {
        w.bytes(name);
        w.u8(match body {
            Body::File(..) => 0,
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
            Body::Folder(id) => w.raw(id.as_bytes()),
            Body::Symlink(target) => w.bytes(target),
        }
    }
    w.finish()
}

/// Encodes a node above leaves or other nodes.
pub(crate) fn node(level: u8, children: &[(Vec<u8>, TreeId)]) -> Vec<u8> {
    let mut w = WireWriter::new();
    w.u8(1);
    w.u8(level);
    (0..4).for_each(|_| w.varint(0));
    w.varint(children.len() as u64);
    for (first, id) in children {
        w.bytes(first);
        w.raw(id.as_bytes());
    }
    w.finish()
}
