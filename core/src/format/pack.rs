//! Pack files: many objects in one immutable file.
//!
//! A pack is written once, named by the BLAKE3 of its bytes, and never changed
//! afterwards. It is read from its end: the trailer, then the footer that lies
//! before it.
//!
//! | part      | offset          | bytes      | field                            |
//! |-----------|-----------------|------------|----------------------------------|
//! | header    | 0               | 8          | magic, `SNAPPACK`                |
//! |           | 8               | 2          | format version, u16              |
//! |           | 10              | 2          | flags, u16: 0; 1 starts a [bundle](crate::format::bundle) |
//! |           | 12              | 4          | extension length e, u32          |
//! |           | 16              | e          | extension (none yet; bundles have one) |
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
//! |           | end − 16        | 2          | format version again, u16        |
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
//! Integers are little-endian. Offsets are not stored: frames follow each
//! other without a gap from the end of the header to the footer, and so do
//! the objects inside a frame's raw bytes, so nothing can overlap. Checked on
//! reading, because a pack may come from anywhere:
//!
//! 1. The stored lengths add up to the space between header and footer.
//! 2. The objects of each frame add up to its raw length.
//! 3. Data frames hold blobs only and lie before the metadata frames.
//! 4. Counts and lengths stay within [`limits`]; a larger claim is refused
//!    before anything is allocated for it.
//!
//! The checksums find accidents and say where; what an object *is* is decided
//! by its id alone. Bytes in, values out: nothing here opens a file.

use twox_hash::XxHash3_64;

use crate::{
    base::{id::ObjectId, limits},
    format::wire::{FormatError, Reader, Writer},
};

/// First bytes of a pack.
pub const MAGIC: &[u8; 8] = b"SNAPPACK";

/// Last bytes of a pack.
pub const END_MAGIC: &[u8; 8] = b"SNAPEND\n";

/// Newest version known.
pub const VERSION: u16 = 1;

/// Flag in the header of a bundle; a pack has none.
pub const FLAG_BUNDLE: u16 = 1;

/// Header without its extension.
pub const HEADER_BYTES: usize = 16;

/// The trailer at the end.
pub const TRAILER_BYTES: usize = 48;

/// One frame table entry.
pub const FRAME_ENTRY_BYTES: usize = 24;

/// Footer bytes of one object.
pub const OBJECT_ENTRY_BYTES: usize = 37;

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// A content, a chunk of one, or a part of a long chunk list.
    Blob,
    /// Stands for a content that was cut.
    ChunkList,
    /// A directory, or a part of a large one.
    Tree,
    /// A snapshot.
    Commit,
}

impl ObjectKind {
    /// Its number in storage.
    pub const fn code(self) -> u8 {
        match self {
            Self::Blob => 0,
            Self::ChunkList => 1,
            Self::Tree => 2,
            Self::Commit => 3,
        }
    }

    /// The kind with this number.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Blob),
            1 => Some(Self::ChunkList),
            2 => Some(Self::Tree),
            3 => Some(Self::Commit),
            _ => None,
        }
    }

    /// Noun for messages and JSON.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Blob => "blob",
            Self::ChunkList => "chunk list",
            Self::Tree => "tree",
            Self::Commit => "commit",
        }
    }
}

/// How a frame is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// As it is, because it does not compress.
    Raw,
    /// One zstd frame.
    Zstd,
}

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Contents.
    Data,
    /// Trees, commits, chunk lists.
    Metadata,
}

/// One frame, as the table has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Where it starts in the pack.
    pub offset: u64,
    /// Bytes as stored.
    pub stored_bytes: u32,
    /// Bytes when expanded.
    pub raw_bytes: u32,
    /// How many objects it holds.
    pub objects: u32,
    /// How it is stored.
    pub codec: Codec,
    /// What it holds.
    pub class: Class,
    /// XXH3-64 of the stored bytes.
    pub checksum: u64,
}

impl Frame {
    /// Where it lies in the pack, in bytes.
    pub fn range(&self) -> std::ops::Range<u64> {
        self.offset..self.offset + u64::from(self.stored_bytes)
    }
}

/// One object, as the footer has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its id.
    pub id: ObjectId,
    /// What it is.
    pub kind: ObjectKind,
    /// Its length.
    pub bytes: u32,
}

/// Checksum of stored bytes.
pub fn checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// Encodes the header of a plain pack.
pub fn encode_header() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..10].copy_from_slice(&VERSION.to_le_bytes());
    header
}

/// Decodes a header and returns the length of its extension.
///
/// # Errors
/// [`FormatError`]: not a pack, a bundle, a newer one, unknown flags, or too
/// long an extension.
pub fn decode_header(bytes: &[u8]) -> Result<u32, FormatError> {
    match decode_start(bytes)? {
        (0, extension) => Ok(extension),
        _ => Err(FormatError::Invalid { what: "pack (it is a bundle)", at: 10 }),
    }
}

/// Decodes what packs and bundles start with: flags and the length of the
/// extension.
pub(super) fn decode_start(bytes: &[u8]) -> Result<(u16, u32), FormatError> {
    let mut r = Reader::new(bytes);
    if r.raw("pack header", 8)? != MAGIC {
        return Err(FormatError::Magic { what: "pack" });
    }
    check_version(r.u16("pack version")?)?;
    let flags = r.u16("pack flags")?;
    if flags > FLAG_BUNDLE {
        return Err(FormatError::Newer { what: "pack (its flags)", found: 2, known: 1 });
    }
    let extension = r.u32("pack extension")?;
    let limit = limits::PACK_EXTENSION_BYTES as u64;
    match u64::from(extension) {
        claimed if claimed > limit => {
            Err(FormatError::Limit { what: "pack extension", claimed, limit })
        }
        _ => Ok((flags, extension)),
    }
}

fn check_version(found: u16) -> Result<(), FormatError> {
    match found {
        VERSION => Ok(()),
        0 => Err(FormatError::Invalid { what: "pack version", at: 8 }),
        _ => {
            let (found, known) = (u32::from(found), u32::from(VERSION));
            Err(FormatError::Newer { what: "pack", found, known })
        }
    }
}

/// The end of a pack: how long its footer is and what to check it against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Frames.
    pub frames: u32,
    /// Objects.
    pub objects: u32,
    /// XXH3-64 of the frame table.
    pub frames_checksum: u64,
    /// XXH3-64 of the rest of the footer.
    pub objects_checksum: u64,
    /// Length of the whole file.
    pub file_bytes: u64,
}

impl Trailer {
    /// Decodes the last [`TRAILER_BYTES`] of a pack of `file_bytes`.
    ///
    /// # Errors
    /// [`FormatError`] names the rule.
    pub fn decode(bytes: &[u8], file_bytes: u64) -> Result<Self, FormatError> {
        let mut r = Reader::new(bytes);
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
        check_version(version)?;
        if sum != checksum(checked) as u32 || reserved != 0 {
            return Err(FormatError::Checksum { what: "the pack trailer" });
        }
        if claimed_bytes != file_bytes {
            return Err(FormatError::Invalid { what: "pack length", at: 24 });
        }
        let limited = |what, claimed: u32, limit: usize| match u64::from(claimed) {
            claimed if claimed > limit as u64 => {
                Err(FormatError::Limit { what, claimed, limit: limit as u64 })
            }
            _ => Ok(()),
        };
        limited("frame count", frames, limits::PACK_FRAMES)?;
        limited("object count", objects, limits::PACK_OBJECTS)?;
        let trailer = Self { frames, objects, frames_checksum, objects_checksum, file_bytes };
        if trailer.footer_bytes() + (TRAILER_BYTES + HEADER_BYTES) as u64 > file_bytes {
            return Err(FormatError::Invalid { what: "pack footer length", at: 0 });
        }
        Ok(trailer)
    }

    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
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

    /// Bytes of the frame table.
    pub fn frame_table_bytes(&self) -> usize {
        self.frames as usize * FRAME_ENTRY_BYTES
    }

    /// Bytes of the object table.
    pub fn object_table_bytes(&self) -> usize {
        self.objects as usize * OBJECT_ENTRY_BYTES
    }

    /// Bytes of both.
    pub fn footer_bytes(&self) -> u64 {
        (self.frame_table_bytes() + self.object_table_bytes()) as u64
    }

    /// Where the footer starts.
    pub fn footer_offset(&self) -> u64 {
        self.file_bytes - TRAILER_BYTES as u64 - self.footer_bytes()
    }

    /// Decodes the frame table, for a pack whose frames start at `start`.
    ///
    /// # Errors
    /// [`FormatError`] names the rule.
    pub fn decode_frames(&self, bytes: &[u8], start: u64) -> Result<Vec<Frame>, FormatError> {
        if bytes.len() != self.frame_table_bytes() || checksum(bytes) != self.frames_checksum {
            return Err(FormatError::Checksum { what: "the frame table" });
        }
        let mut r = Reader::new(bytes);
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

    /// Decodes the object table, checked against the frames.
    ///
    /// # Errors
    /// [`FormatError`] names the rule.
    pub fn decode_objects(
        &self,
        bytes: &[u8],
        frames: &[Frame],
    ) -> Result<Vec<Object>, FormatError> {
        let count = self.objects as usize;
        if bytes.len() != self.object_table_bytes() || checksum(bytes) != self.objects_checksum {
            return Err(FormatError::Checksum { what: "the object table" });
        }
        let (ids, rest) = bytes.split_at(count * 32);
        let (lengths, kinds) = rest.split_at(count * 4);
        let (mut ids, mut lengths) = (Reader::new(ids), Reader::new(lengths));
        let mut objects = Vec::with_capacity(count);
        for frame in frames {
            let mut raw_bytes = 0u64;
            for _ in 0..frame.objects {
                let at = objects.len();
                let id = ObjectId::from_bytes(ids.digest("object id")?);
                let bytes = lengths.u32("object length")?;
                let kind = ObjectKind::from_code(kinds[at])
                    .ok_or(FormatError::Invalid { what: "object kind", at })?;
                if frame.class == Class::Data && kind != ObjectKind::Blob {
                    return Err(FormatError::Invalid { what: "object kind in a data frame", at });
                }
                raw_bytes += u64::from(bytes);
                objects.push(Object { id, kind, bytes });
            }
            if raw_bytes != u64::from(frame.raw_bytes) {
                return Err(FormatError::Invalid {
                    what: "object lengths of a frame",
                    at: objects.len(),
                });
            }
        }
        Ok(objects)
    }
}

fn decode_frame(r: &mut Reader<'_>, offset: u64) -> Result<Frame, FormatError> {
    let at = r.at();
    let stored_bytes = r.u32("frame")?;
    let raw_bytes = r.u32("frame")?;
    let objects = r.u32("frame")?;
    let codec = match r.u8("frame codec")? {
        0 => Codec::Raw,
        1 => Codec::Zstd,
        _ => return Err(FormatError::Invalid { what: "frame codec", at: at + 12 }),
    };
    let class = match r.u8("frame class")? {
        0 => Class::Data,
        1 => Class::Metadata,
        _ => return Err(FormatError::Invalid { what: "frame class", at: at + 13 }),
    };
    let reserved = r.u16("frame")?;
    let checksum = r.u64("frame checksum")?;
    let limited = |what, claimed: u32, limit: usize| match u64::from(claimed) {
        claimed if claimed > limit as u64 => {
            Err(FormatError::Limit { what, claimed, limit: limit as u64 })
        }
        _ => Ok(()),
    };
    limited("frame bytes", stored_bytes, limits::FRAME_STORED_BYTES)?;
    limited("raw frame bytes", raw_bytes, limits::FRAME_RAW_BYTES)?;
    let raw_differs = codec == Codec::Raw && stored_bytes != raw_bytes;
    if objects == 0 || reserved != 0 || raw_differs {
        return Err(FormatError::Invalid { what: "frame", at });
    }
    Ok(Frame { offset, stored_bytes, raw_bytes, objects, codec, class, checksum })
}

/// Encodes footer and trailer for frames that start at `start`.
///
/// `objects` are in the order of the frames.
pub fn encode_footer(frames: &[Frame], objects: &[Object], start: u64) -> Vec<u8> {
    let room = frames.len() * FRAME_ENTRY_BYTES + objects.len() * OBJECT_ENTRY_BYTES;
    let mut w = Writer::on(Vec::with_capacity(room + TRAILER_BYTES));
    let mut end = start;
    for frame in frames {
        debug_assert_eq!(frame.offset, end);
        w.u32(frame.stored_bytes);
        w.u32(frame.raw_bytes);
        w.u32(frame.objects);
        w.u8(matches!(frame.codec, Codec::Zstd).into());
        w.u8(matches!(frame.class, Class::Metadata).into());
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
