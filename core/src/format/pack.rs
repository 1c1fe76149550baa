//! Pack files: many objects in one immutable file.
//!
//! The name of a pack is the BLAKE3 hash of its bytes, and a written pack never changes. A reader
//! starts at the end of the file with the trailer, and then reads the footer before the trailer.
//!
//! | part      | offset          | bytes      | field                            |
//! |-----------|-----------------|------------|----------------------------------|
//! | header    | 0               | 8          | magic, `SNAPPACK`                |
//! |           | 8               | 2          | format version, u16              |
//! |           | 10              | 2          | flags, u16: 0; 1 starts a [bundle](crate::format::bundle) |
//! |           | 12              | 4          | extension length e, u32          |
//! |           | 16              | e          | extension: see below; bundles have one |
//! | frames    | 16 + e          | Σ stored   | data frames, then metadata frames|
//! | footer    | F               | 24 × f     | frame table                      |
//! |           | F + 24 f        | 32 × n     | object ids, frame by frame       |
//! |           | F + 24 f + 32 n | 4 × n      | object lengths, u32              |
//! |           | F + 24 f + 36 n | n          | object kinds, u8                 |
//! | trailer   | end − 48        | 4          | frame count f, u32               |
//! |           | end − 44        | 4          | object count n, u32              |
//! |           | end − 40        | 8          | XXH3-64 of the frame table       |
//! |           | end − 32        | 8          | XXH3-64 of the rest of the footer|
//! |           | end − 24        | 8          | file length, u64                 |
//! |           | end − 16        | 2          | format version, u16              |
//! |           | end − 14        | 2          | 0                                |
//! |           | end − 12        | 4          | low half of XXH3-64 of the 36 bytes before |
//! |           | end − 8         | 8          | magic, `SNAPEND\n`               |
//!
//! A frame table entry:
//!
//! | offset | bytes | field                                                  |
//! |--------|-------|--------------------------------------------------------|
//! | 0      | 4     | stored length, u32                                     |
//! | 4      | 4     | raw length, u32                                        |
//! | 8      | 4     | objects in it, u32, at least 1                         |
//! | 12     | 1     | codec: 0 stored as it is, 1 zstd                       |
//! | 13     | 1     | class: 0 data, 1 metadata                              |
//! | 14     | 2     | 0                                                      |
//! | 16     | 8     | XXH3-64 of the stored bytes                            |
//!
//! Integers are little-endian. Frames follow each other without gaps from the header to the footer,
//! and so do the objects in the raw bytes of a frame. So a pack stores lengths but no offsets, and
//! nothing can overlap. A pack may come from an untrusted source, so readers check that:
//!
//! 1. The stored lengths add up to the space between header and footer.
//! 2. The lengths of the objects of each frame add up to its raw length.
//! 3. Data frames hold only blobs and come before the metadata frames.
//! 4. Counts and lengths are within [`limits`]. Readers check this before they allocate memory.
//!
//! The extension of a pack is empty, or a *variation*: a number, u64, that gives a pack with the same
//! objects another name, because names of deleted packs of a remote are never used again. Readers skip
//! the extension.
//!
//! The checksums detect and locate accidental damage. Only an object's id proves its content. This
//! module decodes and encodes bytes; it opens no files.

use twox_hash::XxHash3_64;

use crate::{
    base::{
        id::{ContentId, ObjectId},
        limits,
    },
    format::wire::{FormatError, WireReader, WireWriter},
};

/// The first bytes of a pack.
pub const MAGIC: &[u8; 8] = b"SNAPPACK";

/// The last bytes of a pack.
pub const END_MAGIC: &[u8; 8] = b"SNAPEND\n";

/// The version in header and trailer. The number 4 is reserved for sealed packs.
pub const VERSION: u16 = 3;

/// The header flag of a bundle. A pack has no flags.
pub const FLAG_BUNDLE: u16 = 1;

/// Length of the header without its extension.
pub const HEADER_BYTES: usize = 16;

/// Length of the trailer.
pub const TRAILER_BYTES: usize = 48;

/// Length of one frame table entry.
pub const FRAME_ENTRY_BYTES: usize = 24;

/// Length of the id, the length and the kind of one object in the footer.
pub const OBJECT_ENTRY_BYTES: usize = 37;

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// A small content, or a chunk of a large one.
    Blob = 0,
    /// A directory, or a part of a large directory.
    Tree = 2,
    /// A snapshot.
    Commit = 3,
    /// The bytes of a forgotten commit. A link satisfies a reference to a parent, and nothing else:
    /// the store need not have the tree of the commit.
    Link = 4,
    /// The list of the chunks of a large content.
    ChunkList = 5,
    /// A part of a long chunk list.
    ListPart = 6,
}

impl ObjectKind {
    /// Returns the kind of the object that a content id names.
    pub const fn of_content(id: ContentId) -> Self {
        if id.is_chunked() { Self::ChunkList } else { Self::Blob }
    }

    /// Returns the code of the kind in storage. The code 1 was used before the first release.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the kind with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        use ObjectKind::{Blob, ChunkList, Commit, Link, ListPart, Tree};
        let kinds = [Blob, Tree, Commit, Link, ChunkList, ListPart];
        kinds.into_iter().find(|kind| kind.code() == code)
    }

    /// Returns the noun for messages and JSON.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Blob => "blob",
            Self::Tree => "tree",
            Self::Commit => "commit",
            Self::Link => "link",
            Self::ChunkList => "chunk list",
            Self::ListPart => "list part",
        }
    }
}

/// The encoding of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// The raw bytes, because they do not compress.
    Raw = 0,
    /// One zstd frame.
    Zstd = 1,
}

/// The class of objects in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectClass {
    /// Contents.
    Data = 0,
    /// Trees, commits, links, chunk lists and their parts.
    Metadata = 1,
}

/// One frame, according to the frame table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Offset in the pack.
    pub offset: u64,
    /// Stored length in bytes.
    pub stored_bytes: u32,
    /// Raw length in bytes.
    pub raw_bytes: u32,
    /// Number of objects in the frame.
    pub objects: u32,
    pub codec: Codec,
    pub class: ObjectClass,
    /// XXH3-64 of the stored bytes.
    pub checksum: u64,
}

impl Frame {
    /// Returns the byte range of the frame in the pack.
    pub fn range(&self) -> std::ops::Range<u64> {
        self.offset..self.offset + u64::from(self.stored_bytes)
    }

    /// Returns true if these are the stored bytes of the frame.
    pub fn matches(&self, stored: &[u8]) -> bool {
        stored.len() == self.stored_bytes as usize && checksum(stored) == self.checksum
    }

    /// Returns a sort key for the order of the frames in the pack. The offset alone is ambiguous:
    /// an empty frame (of an empty file) has the same offset as the next frame.
    pub fn position(&self) -> (u64, u64) {
        let range = self.range();
        (range.start, range.end)
    }
}

/// One object, according to the footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedObject {
    pub id: ObjectId,
    pub kind: ObjectKind,
    /// Length of the object in bytes.
    pub bytes: u32,
}

/// Computes the checksum that all formats use, XXH3-64.
pub fn checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// Encodes the header of a pack that is not a bundle.
pub fn encode_header() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..10].copy_from_slice(&VERSION.to_le_bytes());
    header
}

/// Encodes the header of a pack with an extension that varies its name. The variation 0 has no
/// extension.
pub fn encode_varied_header(variation: u64) -> Vec<u8> {
    let mut header = encode_header().to_vec();
    if variation != 0 {
        let extension = variation.to_le_bytes();
        header[12..].copy_from_slice(&(extension.len() as u32).to_le_bytes());
        header.extend(extension);
    }
    header
}

/// Decodes a header and returns the length of its extension.
///
/// # Errors
/// [`FormatError`] if the file is not a pack, is a bundle, or has a newer version or unknown flags,
/// or if its extension is too long.
pub fn decode_header(bytes: &[u8]) -> Result<u32, FormatError> {
    match decode_start(bytes)? {
        (0, extension) => Ok(extension),
        _ => Err(FormatError::Invalid { what: "pack header (the file is a bundle)", at: 10 }),
    }
}

/// Decodes the common header of packs and bundles. Returns the flags and the length of
/// the extension.
pub(super) fn decode_start(bytes: &[u8]) -> Result<(u16, u32), FormatError> {
    let mut r = WireReader::new(bytes);
    if r.raw("pack header", 8)? != MAGIC {
        return Err(FormatError::Magic { what: "pack" });
    }
    FormatError::check_version("pack", r.u16("pack version")?, VERSION)?;
    let flags = r.u16("pack flags")?;
    if flags > FLAG_BUNDLE {
        return Err(FormatError::Newer { what: "pack (its flags)", found: 2, known: 1 });
    }
    let extension = r.u32("pack extension")?;
    let limit = limits::PACK_EXTENSION_BYTES as u64;
    FormatError::check_limit("pack extension", extension.into(), limit)?;
    Ok((flags, extension))
}

/// The trailer of a pack: the size of the footer and its checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Number of frames.
    pub frames: u32,
    /// Number of objects.
    pub objects: u32,
    /// XXH3-64 of the frame table.
    pub frames_checksum: u64,
    /// XXH3-64 of the object table.
    pub objects_checksum: u64,
    /// Length of the pack file in bytes.
    pub file_bytes: u64,
}

impl Trailer {
    /// Decodes the last [`TRAILER_BYTES`] of a pack of `file_bytes`.
    ///
    /// # Errors
    /// [`FormatError`] names the rule that the trailer breaks.
    pub fn decode(bytes: &[u8], file_bytes: u64) -> Result<Self, FormatError> {
        let mut r = WireReader::new(bytes);
        let checked = r.clone().raw("pack trailer", 36)?;
        let frames = r.u32("pack trailer")?;
        let objects = r.u32("pack trailer")?;
        let frames_checksum = r.u64("pack trailer")?;
        let objects_checksum = r.u64("pack trailer")?;
        let claimed_bytes = r.u64("pack trailer")?;
        let version = r.u16("pack trailer")?;
        let reserved = r.u16("pack trailer")?;
        let sum = r.u32("pack trailer")?;
        if r.raw("pack trailer", 8)? != END_MAGIC {
            return Err(FormatError::Magic { what: "pack (at its end)" });
        }
        r.finish()?;
        FormatError::check_version("pack", version, VERSION)?;
        if sum != checksum(checked) as u32 || reserved != 0 {
            return Err(FormatError::Checksum { what: "the pack trailer" });
        }
        if claimed_bytes != file_bytes {
            return Err(FormatError::Invalid { what: "pack length", at: 24 });
        }
        FormatError::check_limit("frame count", frames.into(), limits::PACK_FRAMES as u64)?;
        FormatError::check_limit("object count", objects.into(), limits::PACK_OBJECTS as u64)?;
        let trailer = Self { frames, objects, frames_checksum, objects_checksum, file_bytes };
        if trailer.footer_bytes() + (TRAILER_BYTES + HEADER_BYTES) as u64 > file_bytes {
            return Err(FormatError::Invalid { what: "pack footer length", at: 0 });
        }
        Ok(trailer)
    }

    fn encode(&self) -> Vec<u8> {
        let mut w = WireWriter::new();
        w.u32(self.frames);
        w.u32(self.objects);
        w.u64(self.frames_checksum);
        w.u64(self.objects_checksum);
        w.u64(self.file_bytes);
        w.u16(VERSION);
        w.u16(0);
        let mut bytes = w.finish();
        let sum = checksum(&bytes) as u32;
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes.extend_from_slice(END_MAGIC);
        bytes
    }

    /// Returns the length of the frame table in bytes.
    pub fn frame_table_bytes(&self) -> usize {
        self.frames as usize * FRAME_ENTRY_BYTES
    }

    /// Returns the length of the object table in bytes.
    pub fn object_table_bytes(&self) -> usize {
        self.objects as usize * OBJECT_ENTRY_BYTES
    }

    /// Returns the length of both tables in bytes.
    pub fn footer_bytes(&self) -> u64 {
        (self.frame_table_bytes() + self.object_table_bytes()) as u64
    }

    /// Returns the offset of the footer in the pack.
    pub fn footer_offset(&self) -> u64 {
        self.file_bytes - TRAILER_BYTES as u64 - self.footer_bytes()
    }

    /// Decodes the frame table of a pack whose first frame is at `start`.
    ///
    /// # Errors
    /// [`FormatError`] names the rule that the table breaks.
    pub fn decode_frames(&self, bytes: &[u8], start: u64) -> Result<Vec<Frame>, FormatError> {
        if bytes.len() != self.frame_table_bytes() || checksum(bytes) != self.frames_checksum {
            return Err(FormatError::Checksum { what: "the frame table" });
        }
        let mut r = WireReader::new(bytes);
        let mut frames: Vec<Frame> = Vec::with_capacity(self.frames as usize);
        let mut offset = start;
        let mut objects = 0u64;
        for _ in 0..self.frames {
            let frame = decode_frame(&mut r, offset)?;
            if frames.last().is_some_and(|last| last.class > frame.class) {
                return Err(FormatError::Order { what: "frame classes", at: r.at() });
            }
            offset += u64::from(frame.stored_bytes);
            objects += u64::from(frame.objects);
            frames.push(frame);
        }
        if offset != self.footer_offset() || objects != u64::from(self.objects) {
            return Err(FormatError::Invalid { what: "frame table (its sums)", at: r.at() });
        }
        r.finish()?;
        Ok(frames)
    }

    /// Decodes the object table and checks it against the frames.
    ///
    /// # Errors
    /// [`FormatError`] names the rule that the table breaks.
    pub fn decode_objects(
        &self,
        bytes: &[u8],
        frames: &[Frame],
    ) -> Result<Vec<PackedObject>, FormatError> {
        let count = self.objects as usize;
        if bytes.len() != self.object_table_bytes() || checksum(bytes) != self.objects_checksum {
            return Err(FormatError::Checksum { what: "the object table" });
        }
        let (ids, rest) = bytes.split_at(count * 32);
        let (lengths, kinds) = rest.split_at(count * 4);
        let (mut ids, mut lengths) = (WireReader::new(ids), WireReader::new(lengths));
        let mut objects = Vec::with_capacity(count);
        for frame in frames {
            let mut raw_bytes = 0u64;
            for _ in 0..frame.objects {
                let at = objects.len();
                let id = ObjectId::from_bytes(ids.digest("object id")?);
                let bytes = lengths.u32("object length")?;
                let kind = ObjectKind::from_code(kinds[at])
                    .ok_or(FormatError::Invalid { what: "object kind", at })?;
                if frame.class == ObjectClass::Data && kind != ObjectKind::Blob {
                    return Err(FormatError::Invalid { what: "object kind in a data frame", at });
                }
                raw_bytes += u64::from(bytes);
                objects.push(PackedObject { id, kind, bytes });
            }
            if raw_bytes != u64::from(frame.raw_bytes) {
                let (what, at) = ("object lengths of a frame", objects.len());
                return Err(FormatError::Invalid { what, at });
            }
        }
        Ok(objects)
    }
}

fn decode_frame(r: &mut WireReader<'_>, offset: u64) -> Result<Frame, FormatError> {
    let at = r.at();
    let stored_bytes = r.u32("frame")?;
    let raw_bytes = r.u32("frame")?;
    let objects = r.u32("frame")?;
    let codec = r.one_of("frame codec", &[(0, Codec::Raw), (1, Codec::Zstd)])?;
    let classes = [(0, ObjectClass::Data), (1, ObjectClass::Metadata)];
    let class = r.one_of("frame class", &classes)?;
    let reserved = r.u16("frame")?;
    let checksum = r.u64("frame checksum")?;
    let (most_stored, most_raw) = (limits::FRAME_STORED_BYTES, limits::FRAME_RAW_BYTES);
    FormatError::check_limit("frame bytes", stored_bytes.into(), most_stored as u64)?;
    FormatError::check_limit("raw frame bytes", raw_bytes.into(), most_raw as u64)?;
    let raw_differs = codec == Codec::Raw && stored_bytes != raw_bytes;
    if objects == 0 || reserved != 0 || raw_differs {
        return Err(FormatError::Invalid { what: "frame", at });
    }
    Ok(Frame { offset, stored_bytes, raw_bytes, objects, codec, class, checksum })
}

/// Encodes footer and trailer of a pack whose first frame is at `start`.
///
/// `objects` must be in the order of the frames.
pub fn encode_footer(frames: &[Frame], objects: &[PackedObject], start: u64) -> Vec<u8> {
    let room = frames.len() * FRAME_ENTRY_BYTES + objects.len() * OBJECT_ENTRY_BYTES;
    let mut w = WireWriter::on(Vec::with_capacity(room + TRAILER_BYTES));
    let mut end = start;
    for frame in frames {
        debug_assert_eq!(frame.offset, end);
        w.u32(frame.stored_bytes);
        w.u32(frame.raw_bytes);
        w.u32(frame.objects);
        w.u8(frame.codec as u8);
        w.u8(frame.class as u8);
        w.u16(0);
        w.u64(frame.checksum);
        end += u64::from(frame.stored_bytes);
    }
    let table_end = w.len();
    objects.iter().for_each(|object| w.raw(object.id.as_bytes()));
    objects.iter().for_each(|object| w.u32(object.bytes));
    objects.iter().for_each(|object| w.u8(object.kind.code()));
    let mut bytes = w.finish();
    let trailer = Trailer {
        frames: frames.len() as u32,
        objects: objects.len() as u32,
        frames_checksum: checksum(&bytes[..table_end]),
        objects_checksum: checksum(&bytes[table_end..]),
        file_bytes: end + (bytes.len() + TRAILER_BYTES) as u64,
    };
    bytes.extend_from_slice(&trailer.encode());
    bytes
}
