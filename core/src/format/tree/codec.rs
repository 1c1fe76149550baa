//! Encoding and decoding of tree nodes. The parent module has the byte tables.

use std::sync::Arc;

use crate::{
    base::{
        id::{BlobId, ChunkListId, ContentId, TreeId},
        limits,
        name::EntryName,
        time::Time,
    },
    format::{
        commit::decode_time,
        tree::{
            Child, Device, Entry, EntryKind, Metadata, Node, Owner, Totals, Xattr,
            check::XATTR_COUNT_BYTES,
        },
        wire::{FormatError, WireReader, WireWriter},
    },
};

/// The newest known version.
pub const VERSION: u8 = 2;

const HAS_OWNER: u8 = 1;
const HAS_MTIME: u8 = 1 << 1;
const HAS_XATTRS: u8 = 1 << 2;
const HAS_LINK: u8 = 1 << 3;
const IS_SPARSE: u8 = 1 << 4;
const KNOWN_FLAGS: u8 = (1 << 5) - 1;

impl Node {
    /// Encodes the node.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Leaf { totals, entries } => encode_leaf(totals, entries),
            Self::Inner { level, totals, children } => encode_inner(*level, totals, children),
        }
    }

    /// Decodes a node.
    ///
    /// Checked: version, names, order, owner table, counts and trailing bytes. **Not** checked: the
    /// hash of `bytes`, and the totals.
    ///
    /// # Errors
    /// [`FormatError`] names the rule and the offset.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut r = WireReader::new(bytes);
        FormatError::check_version("tree", r.u8("tree version")?, VERSION)?;
        let level = r.u8("tree level")?;
        FormatError::check_limit("tree level", level.into(), limits::TREE_NODE_LEVELS.into())?;
        let totals = Totals::decode(&mut r)?;
        let node = match level {
            0 => Self::Leaf { totals, entries: decode_entries(&mut r)? },
            _ => Self::Inner { level, totals, children: decode_children(&mut r)? },
        };
        r.finish()?;
        Ok(node)
    }
}

fn encode_leaf(totals: &Totals, entries: &[Entry]) -> Vec<u8> {
    let mut owners: Vec<&Arc<Owner>> = Vec::new();
    for owner in entries.iter().filter_map(|e| e.metadata.owner.as_ref()) {
        // Consecutive entries usually have the same owner, so first compare with the last added
        // owner.
        if owners.last().is_none_or(|last| !Arc::ptr_eq(last, owner)) && !owners.contains(&owner) {
            owners.push(owner);
        }
    }
    owners.sort_unstable();
    owners.dedup();

    let mut w = WireWriter::on(Vec::with_capacity(64 + entries.len() * 80));
    w.u8(VERSION);
    w.u8(0);
    totals.encode(&mut w);
    w.varint(owners.len() as u64);
    for owner in &owners {
        owner.encode(&mut w);
    }
    w.varint(entries.len() as u64);
    for entry in entries {
        w.bytes(entry.name.as_bytes());
        w.u8(kind_code(&entry.kind));
        entry.metadata.encode_with(&mut w, |w, owner| {
            let index = owners.binary_search_by(|probe| (***probe).cmp(owner));
            w.varint(index.unwrap_or_default() as u64);
        });
        encode_body(&mut w, &entry.kind);
    }
    w.finish()
}

fn encode_inner(level: u8, totals: &Totals, children: &[Child]) -> Vec<u8> {
    let mut w = WireWriter::new();
    w.u8(VERSION);
    w.u8(level);
    totals.encode(&mut w);
    w.varint(children.len() as u64);
    for child in children {
        w.bytes(child.first.as_bytes());
        w.raw(child.id.as_bytes());
    }
    w.finish()
}

fn kind_code(kind: &EntryKind) -> u8 {
    match kind {
        EntryKind::File { id: ContentId::Blob(_), .. } => 0,
        EntryKind::File { id: ContentId::Chunked(_), .. } => 7,
        EntryKind::Folder { .. } => 1,
        EntryKind::Symlink { .. } => 2,
        EntryKind::Fifo => 3,
        EntryKind::Socket => 4,
        EntryKind::CharDevice { .. } => 5,
        EntryKind::BlockDevice { .. } => 6,
    }
}

fn encode_body(w: &mut WireWriter, kind: &EntryKind) {
    match kind {
        EntryKind::File { size, id } => {
            w.varint(*size);
            w.raw(id.object().as_bytes());
        }
        EntryKind::Folder { id } => w.raw(id.as_bytes()),
        EntryKind::Symlink { target } => w.bytes(target),
        EntryKind::Fifo | EntryKind::Socket => {}
        EntryKind::CharDevice { device } | EntryKind::BlockDevice { device } => {
            w.varint(u64::from(device.major));
            w.varint(u64::from(device.minor));
        }
    }
}

fn decode_entries(r: &mut WireReader<'_>) -> Result<Vec<Entry>, FormatError> {
    let owners = decode_owners(r)?;
    let mut used = vec![false; owners.len()];
    let count = r.count("tree entries", limits::TREE_NODE_ENTRIES)?;
    // The shortest entry takes 5 bytes: reserve no more entries than the input can
    // hold.
    let mut entries: Vec<Entry> = Vec::with_capacity(count.min(r.remaining() / 5));
    for _ in 0..count {
        let name = decode_name(r, entries.last().map(|last| &last.name))?;
        let code = r.u8("entry kind")?;
        let metadata = Metadata::decode_with(r, |r| {
            let at = r.at();
            let index = r.varint("owner index")? as usize;
            let owner =
                owners.get(index).ok_or(FormatError::Invalid { what: "owner index", at })?;
            used[index] = true;
            Ok(Arc::clone(owner))
        })?;
        let kind = decode_body(r, code)?;
        entries.push(Entry { name, kind, metadata });
    }
    if used.contains(&false) {
        return Err(FormatError::Invalid { what: "owner table (an unused owner)", at: r.at() });
    }
    Ok(entries)
}

fn decode_owners(r: &mut WireReader<'_>) -> Result<Vec<Arc<Owner>>, FormatError> {
    let count = r.count("tree owners", limits::OWNERS)?;
    let mut owners: Vec<Arc<Owner>> = Vec::with_capacity(count.min(r.remaining() / 4));
    for _ in 0..count {
        let at = r.at();
        let owner = Owner::decode(r)?;
        if owners.last().is_some_and(|last| **last >= owner) {
            return Err(FormatError::Order { what: "owners", at });
        }
        owners.push(Arc::new(owner));
    }
    Ok(owners)
}

fn decode_children(r: &mut WireReader<'_>) -> Result<Vec<Child>, FormatError> {
    let at = r.at();
    let count = r.count("tree children", limits::TREE_NODE_ENTRIES)?;
    if count < 2 {
        return Err(FormatError::Invalid { what: "tree node with fewer than two children", at });
    }
    let mut children: Vec<Child> = Vec::with_capacity(count.min(r.remaining() / 34));
    for _ in 0..count {
        let first = decode_name(r, children.last().map(|last| &last.first))?;
        children.push(Child { first, id: TreeId::from_bytes(r.digest("child id")?) });
    }
    Ok(children)
}

fn decode_name(r: &mut WireReader<'_>, last: Option<&EntryName>) -> Result<EntryName, FormatError> {
    let at = r.at();
    let bytes = r.bytes("entry name", limits::NAME_BYTES)?;
    let name = EntryName::new(bytes).map_err(|source| FormatError::Name { at, source })?;
    match last {
        Some(last) if *last >= name => Err(FormatError::Order { what: "entry names", at }),
        _ => Ok(name),
    }
}

fn decode_body(r: &mut WireReader<'_>, code: u8) -> Result<EntryKind, FormatError> {
    let at = r.at();
    let device = |r: &mut WireReader<'_>| {
        let major = r.varint_u32("device major")?;
        Ok(Device { major, minor: r.varint_u32("device minor")? })
    };
    Ok(match code {
        0 | 7 => decode_file(r, code == 7)?,
        1 => EntryKind::Folder { id: TreeId::from_bytes(r.digest("folder id")?) },
        2 => match r.bytes("symlink target", limits::SYMLINK_BYTES)? {
            target if target.is_empty() || target.contains(&0) => {
                return Err(FormatError::Invalid { what: "symlink target", at });
            }
            target => EntryKind::Symlink { target: target.into() },
        },
        3 => EntryKind::Fifo,
        4 => EntryKind::Socket,
        5 => EntryKind::CharDevice { device: device(r)? },
        6 => EntryKind::BlockDevice { device: device(r)? },
        _ => return Err(FormatError::Invalid { what: "entry kind", at }),
    })
}

/// Decodes the body of a file. A content of at most [`limits::WHOLE_FILE_BYTES`] is never chunked, and
/// a blob is at most as long as a chunk.
fn decode_file(r: &mut WireReader<'_>, is_chunked: bool) -> Result<EntryKind, FormatError> {
    let at = r.at();
    let size = r.varint("file size")?;
    let id = r.digest("file content id")?;
    let (id, is_valid) = match is_chunked {
        true => {
            let id = ContentId::Chunked(ChunkListId::from_bytes(id));
            (id, size > limits::WHOLE_FILE_BYTES)
        }
        false => (BlobId::from_bytes(id).into(), size <= limits::CHUNK_BYTES as u64),
    };
    match is_valid {
        true => Ok(EntryKind::File { size, id }),
        false => Err(FormatError::Invalid { what: "file size", at }),
    }
}

impl Owner {
    fn encode(&self, w: &mut WireWriter) {
        w.varint(u64::from(self.uid));
        w.varint(u64::from(self.gid));
        w.bytes(&self.user);
        w.bytes(&self.group);
    }

    fn decode(r: &mut WireReader<'_>) -> Result<Self, FormatError> {
        Ok(Self {
            uid: r.varint_u32("owner uid")?,
            gid: r.varint_u32("owner gid")?,
            user: r.bytes("user name", limits::NAME_BYTES)?.into(),
            group: r.bytes("group name", limits::NAME_BYTES)?.into(),
        })
    }
}

impl Totals {
    pub(crate) fn encode(&self, w: &mut WireWriter) {
        for count in [self.files, self.folders, self.others, self.bytes] {
            w.varint(count);
        }
    }

    pub(crate) fn decode(r: &mut WireReader<'_>) -> Result<Self, FormatError> {
        Ok(Self {
            files: r.varint("total files")?,
            folders: r.varint("total folders")?,
            others: r.varint("total others")?,
            bytes: r.varint("total bytes")?,
        })
    }
}

impl Metadata {
    /// Encodes the metadata with the owner itself instead of an index, as in the root of a commit.
    pub(crate) fn encode(&self, w: &mut WireWriter) {
        self.encode_with(w, |w, owner| owner.encode(w));
    }

    /// Decodes the output of [`Metadata::encode`].
    pub(crate) fn decode(r: &mut WireReader<'_>) -> Result<Self, FormatError> {
        Self::decode_with(r, |r| Owner::decode(r).map(Arc::new))
    }

    fn encode_with(&self, w: &mut WireWriter, owner: impl FnOnce(&mut WireWriter, &Owner)) {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        w.u8(flag(self.owner.is_some(), HAS_OWNER)
            | flag(self.mtime.is_some(), HAS_MTIME)
            | flag(!self.xattrs.is_empty(), HAS_XATTRS)
            | flag(self.link.is_some(), HAS_LINK)
            | flag(self.sparse, IS_SPARSE));
        w.varint(u64::from(self.mode));
        if let Some(value) = &self.owner {
            owner(w, value);
        }
        if let Some(Time { secs, nanos }) = self.mtime {
            w.zigzag(secs);
            w.varint(u64::from(nanos));
        }
        if !self.xattrs.is_empty() {
            w.varint(self.xattrs.len() as u64);
            for xattr in &self.xattrs {
                w.bytes(&xattr.name);
                w.bytes(&xattr.value);
            }
        }
        if let Some(link) = self.link {
            w.u64(link);
        }
    }

    fn decode_with<'a>(
        r: &mut WireReader<'a>,
        owner: impl FnOnce(&mut WireReader<'a>) -> Result<Arc<Owner>, FormatError>,
    ) -> Result<Self, FormatError> {
        let at = r.at();
        let flags = r.u8("entry flags")?;
        if flags & !KNOWN_FLAGS != 0 {
            return Err(FormatError::Invalid { what: "entry flags", at });
        }
        let at = r.at();
        let mode = match r.varint("mode")? {
            mode @ 0..=0o7777 => mode as u16,
            _ => return Err(FormatError::Invalid { what: "mode", at }),
        };
        let owner = if flags & HAS_OWNER != 0 { Some(owner(r)?) } else { None };
        let mtime = if flags & HAS_MTIME != 0 { Some(decode_time(r)?) } else { None };
        let xattrs = if flags & HAS_XATTRS != 0 { decode_xattrs(r)? } else { Vec::new() };
        let link = if flags & HAS_LINK != 0 { Some(r.u64("link group")?) } else { None };
        Ok(Self { mode, owner, mtime, xattrs, link, sparse: flags & IS_SPARSE != 0 })
    }
}

fn decode_xattrs(r: &mut WireReader<'_>) -> Result<Vec<Xattr>, FormatError> {
    let start = r.at();
    let count = r.count("number of extended attributes", limits::XATTRS)?;
    if count == 0 {
        return Err(FormatError::Invalid { what: "xattrs (none, but flagged)", at: start });
    }
    let mut xattrs: Vec<Xattr> = Vec::with_capacity(count.min(r.remaining() / 3));
    for _ in 0..count {
        let at = r.at();
        let name = r.bytes("xattr name", limits::NAME_BYTES)?;
        if name.is_empty() || name.contains(&0) {
            return Err(FormatError::Invalid { what: "xattr name", at });
        }
        if xattrs.last().is_some_and(|last| *last.name >= *name) {
            return Err(FormatError::Order { what: "xattrs", at });
        }
        let value = r.bytes("xattr value", limits::XATTR_TOTAL_BYTES)?;
        xattrs.push(Xattr { name: name.into(), value: value.into() });
        let (bytes, limit) = (r.at() - start, limits::XATTR_TOTAL_BYTES + XATTR_COUNT_BYTES);
        FormatError::check_limit("size of extended attributes", bytes as u64, limit as u64)?;
    }
    Ok(xattrs)
}
