//! Chunk lists: the lists of the chunks of large contents.
//!
//! The id of a list is the BLAKE3 hash of its bytes in derive-key mode, so a list proves itself. A
//! list of more than [`limits::CHUNK_LIST_ENTRIES`] chunks is split into parts. A part is an object
//! of another kind, with another derive-key context.
//!
//! | object | field   | form         | meaning                                      |
//! |--------|---------|--------------|----------------------------------------------|
//! | list   | version | u8           | 2                                            |
//! |        | form    | u8           | 0: of chunks, 1: of parts                    |
//! |        | entries | 36 or 40 each| chunks, or parts                             |
//! | part   | entries | 36 each      | chunks                                       |
//!
//! A chunk is the 32 bytes of a blob id and the length of the blob, u32. A part is the 32 bytes of
//! its id and the total length of its chunks, u64. Integers are little-endian. The number of entries
//! follows from the length of the object.
//!
//! The form is canonical. A content of at most [`limits::WHOLE_FILE_BYTES`] is one blob. A longer
//! content is [cut](crate::chunk), and is one blob if there is only one chunk. Decoders refuse a list
//! that no writer makes: see [`ListRules`].

use crate::{
    base::{
        id::{BlobId, ChunkListId, ContentId, ListPartId, ObjectId},
        limits,
    },
    format::{
        pack::{ObjectKind, PackedObject},
        wire::{FormatError, WireReader, WireWriter},
    },
};

/// The version of lists.
pub const VERSION: u8 = 2;

/// Length of an encoded chunk in bytes.
const CHUNK_ENTRY_BYTES: usize = 36;

/// Length of an encoded reference to a part in bytes.
const PART_ENTRY_BYTES: usize = 40;

/// A chunk: a blob and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobRef {
    pub id: BlobId,
    /// Length of the blob in bytes, at least 1.
    pub bytes: u32,
}

/// The chunk of [`limits::CHUNK_BYTES`] zeros, into which holes are cut.
pub const ZERO_CHUNK: BlobRef = BlobRef {
    id: BlobId::from_bytes([
        0x04, 0xe5, 0x2c, 0xd2, 0xda, 0x6a, 0x0e, 0x1f, 0x33, 0x8b, 0x00, 0x78, 0x36, 0x91, 0x30,
        0xd9, 0x65, 0x85, 0xc1, 0xde, 0x65, 0x05, 0x7d, 0xa5, 0xdd, 0x12, 0x83, 0xb1, 0x2f, 0xb8,
        0x53, 0xe1,
    ]),
    bytes: limits::CHUNK_BYTES as u32,
};

/// A reference to a part of a long list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartRef {
    pub id: ListPartId,
    /// Total length of the chunks of the part in bytes.
    pub bytes: u64,
}

/// The rules of canonical lists. Only [`ListRules::FORMAT`] is used, except in tests.
#[derive(Clone, Copy, Debug)]
pub struct ListRules {
    /// A content of at most this many bytes is one blob.
    pub whole_bytes: u64,
    /// Minimum length of a chunk, except the last one.
    pub min_chunk: u32,
    /// Maximum length of a chunk.
    pub max_chunk: u32,
    /// Number of chunks of a list, or of a full part. Each part except the last is full.
    pub entries: usize,
    /// Maximum number of parts.
    pub parts: usize,
}

impl ListRules {
    /// The rules of the format.
    pub const FORMAT: Self = Self {
        whole_bytes: limits::WHOLE_FILE_BYTES,
        min_chunk: limits::MIN_CHUNK_BYTES as u32,
        max_chunk: limits::CHUNK_BYTES as u32,
        entries: limits::CHUNK_LIST_ENTRIES,
        parts: limits::CHUNK_LIST_PARTS,
    };

    /// Returns true if the lengths of consecutive chunks are right. Only the last chunk of a content
    /// may be shorter than the minimum.
    fn allow(&self, chunks: &[BlobRef], end: ListEnd) -> bool {
        let Some((last, others)) = chunks.split_last() else { return false };
        let least = if end == ListEnd::Content { 1 } else { self.min_chunk };
        others.iter().all(|chunk| (self.min_chunk..=self.max_chunk).contains(&chunk.bytes))
            && (least..=self.max_chunk).contains(&last.bytes)
    }

    fn decode(&self, bytes: &[u8]) -> Result<ChunkList, FormatError> {
        let mut r = WireReader::new(bytes);
        FormatError::check_version("chunk list", r.u8("chunk list version")?, VERSION)?;
        let (list, is_canonical) = match r.u8("chunk list form")? {
            0 => {
                let chunks = self.chunks(&mut r)?;
                let is_list = chunks.len() > 1 && total(&chunks) > self.whole_bytes;
                let is_canonical = is_list && self.allow(&chunks, ListEnd::Content);
                (ChunkList::Chunks(chunks), is_canonical)
            }
            1 => {
                let parts =
                    records("parts of a chunk list", PART_ENTRY_BYTES, self.parts, &mut r, |r| {
                        let id = ListPartId::from_bytes(r.digest("part of a chunk list")?);
                        Ok(PartRef { id, bytes: r.u64("part of a chunk list")? })
                    })?;
                let full = |bytes: u32| self.entries as u64 * u64::from(bytes);
                let (least, most) = (full(self.min_chunk), full(self.max_chunk));
                let is_canonical = parts.len() > 1
                    && parts.iter().enumerate().all(|(at, part)| {
                        let least = if at + 1 == parts.len() { 1 } else { least };
                        (least..=most).contains(&part.bytes)
                    });
                (ChunkList::Parts(parts), is_canonical)
            }
            _ => return Err(FormatError::Invalid { what: "chunk list form", at: 1 }),
        };
        match is_canonical {
            true => Ok(list),
            false => Err(FormatError::Invalid { what: "chunk list", at: 2 }),
        }
    }

    fn decode_part(
        &self,
        stated: Option<u64>,
        end: ListEnd,
        bytes: &[u8],
    ) -> Result<Vec<BlobRef>, FormatError> {
        let chunks = self.chunks(&mut WireReader::new(bytes))?;
        let is_full = end == ListEnd::Content || chunks.len() == self.entries;
        let has_length = stated.is_none_or(|stated| stated == total(&chunks));
        match is_full && has_length && self.allow(&chunks, end) {
            true => Ok(chunks),
            false => Err(FormatError::Invalid { what: "part of a chunk list", at: 0 }),
        }
    }

    fn chunks(&self, r: &mut WireReader<'_>) -> Result<Vec<BlobRef>, FormatError> {
        records("chunks of a list", CHUNK_ENTRY_BYTES, self.entries, r, |r| {
            let id = BlobId::from_bytes(r.digest("chunk id")?);
            Ok(BlobRef { id, bytes: r.u32("chunk length")? })
        })
    }
}

/// Reads records of `bytes` bytes up to the end, at most `most` of them.
fn records<T>(
    what: &'static str,
    bytes: usize,
    most: usize,
    r: &mut WireReader<'_>,
    read: impl Fn(&mut WireReader<'_>) -> Result<T, FormatError>,
) -> Result<Vec<T>, FormatError> {
    let count = r.remaining() / bytes;
    FormatError::check_limit(what, count as u64, most as u64)?;
    let mut records = Vec::with_capacity(count);
    while r.remaining() > 0 {
        records.push(read(r)?);
    }
    Ok(records)
}

/// What ends with the last of some chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListEnd {
    /// A part of a list.
    Part,
    /// The content.
    Content,
}

/// A decoded chunk list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkList {
    /// The chunks, in order.
    Chunks(Vec<BlobRef>),
    /// The parts of a long list, in order.
    Parts(Vec<PartRef>),
}

impl ChunkList {
    /// Returns the length of the content in bytes.
    pub fn total_bytes(&self) -> u64 {
        match self {
            Self::Chunks(chunks) => total(chunks),
            Self::Parts(parts) => parts.iter().map(|part| part.bytes).sum(),
        }
    }

    /// Encodes the list.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = WireWriter::new();
        w.u8(VERSION);
        match self {
            Self::Chunks(chunks) => {
                w.u8(0);
                encode_chunks(&mut w, chunks);
            }
            Self::Parts(parts) => {
                w.u8(1);
                for part in parts {
                    w.raw(part.id.as_bytes());
                    w.u64(part.bytes);
                }
            }
        }
        w.finish()
    }

    /// Decodes a list.
    ///
    /// **Not** checked: that the chunks and the parts exist and have these lengths.
    ///
    /// # Errors
    /// [`FormatError`] names the rule and the offset.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        ListRules::FORMAT.decode(bytes)
    }
}

fn total(chunks: &[BlobRef]) -> u64 {
    chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum()
}

/// Decodes the chunks of a part of a list, and checks them against the list. `end` tells whether the
/// part is the last one. `stated` is the length of the part according to the list, or `None` if the
/// list is not known.
///
/// # Errors
/// [`FormatError`] names the rule and the offset.
pub fn decode_part(
    stated: Option<u64>,
    end: ListEnd,
    bytes: &[u8],
) -> Result<Vec<BlobRef>, FormatError> {
    ListRules::FORMAT.decode_part(stated, end, bytes)
}

/// Returns the number of chunks that an object of a pack names, from its length: 0 unless it is a
/// chunk list or a part of one.
pub fn named_chunks(object: &PackedObject) -> u64 {
    match object.kind {
        ObjectKind::ChunkList | ObjectKind::ListPart => {
            u64::from(object.bytes) / CHUNK_ENTRY_BYTES as u64
        }
        _ => 0,
    }
}

fn encode_chunks(w: &mut WireWriter, chunks: &[BlobRef]) {
    for chunk in chunks {
        w.raw(chunk.id.as_bytes());
        w.u32(chunk.bytes);
    }
}

/// A chunk list, or a part of one, that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListObject {
    pub id: ObjectId,
    pub kind: ObjectKind,
    pub bytes: Vec<u8>,
}

/// The content has more chunks than a list can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the content has more than {most} chunks")]
pub struct TooManyChunks {
    most: usize,
}

/// Makes the list of a content from its chunks. Holds one part of the list in memory.
#[derive(Debug)]
pub struct ListBuilder {
    rules: ListRules,
    chunks: Vec<BlobRef>,
    parts: Vec<PartRef>,
}

impl Default for ListBuilder {
    fn default() -> Self {
        Self::with_rules(ListRules::FORMAT)
    }
}

impl ListBuilder {
    /// Creates a builder of lists with other rules, for tests.
    pub fn with_rules(rules: ListRules) -> Self {
        Self { rules, chunks: Vec::new(), parts: Vec::new() }
    }

    /// Adds a chunk. Returns a part that is complete.
    ///
    /// # Errors
    /// [`TooManyChunks`].
    pub fn push(&mut self, chunk: BlobRef) -> Result<Option<ListObject>, TooManyChunks> {
        let part = match self.chunks.len() == self.rules.entries {
            true => Some(self.end_part()?),
            false => None,
        };
        self.chunks.push(chunk);
        Ok(part)
    }

    fn end_part(&mut self) -> Result<ListObject, TooManyChunks> {
        if self.parts.len() == self.rules.parts {
            return Err(TooManyChunks { most: self.rules.parts * self.rules.entries });
        }
        let mut w = WireWriter::new();
        encode_chunks(&mut w, &self.chunks);
        let bytes = w.finish();
        let id = ListPartId::of(&bytes);
        self.parts.push(PartRef { id, bytes: total(&self.chunks) });
        self.chunks.clear();
        Ok(ListObject { id: id.object(), kind: ObjectKind::ListPart, bytes })
    }

    /// Returns the id of the content, and the rest of its list. A content of one chunk needs no list,
    /// and an empty content is the empty blob.
    ///
    /// # Errors
    /// [`TooManyChunks`].
    pub fn finish(mut self) -> Result<(ContentId, Vec<ListObject>), TooManyChunks> {
        let mut objects = Vec::new();
        let list = match (self.parts.is_empty(), &self.chunks[..]) {
            (true, []) => return Ok((BlobId::of(b"").into(), objects)),
            (true, [chunk]) => return Ok((chunk.id.into(), objects)),
            (true, _) => ChunkList::Chunks(self.chunks),
            (false, _) => {
                objects.push(self.end_part()?);
                ChunkList::Parts(self.parts)
            }
        };
        let bytes = list.encode();
        let id = ChunkListId::of(&bytes);
        objects.push(ListObject { id: id.object(), kind: ObjectKind::ChunkList, bytes });
        Ok((ContentId::Chunked(id), objects))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: ListRules =
        ListRules { whole_bytes: 10, min_chunk: 6, max_chunk: 20, entries: 3, parts: 4 };

    fn chunk(bytes: u32) -> BlobRef {
        BlobRef { id: BlobId::of(&bytes.to_le_bytes()), bytes }
    }

    /// Builds the list of chunks of these lengths, and decodes everything again.
    fn rebuilt(lengths: &[u32]) -> Result<(ContentId, Vec<BlobRef>), FormatError> {
        let mut builder = ListBuilder::with_rules(RULES);
        let mut objects = Vec::new();
        for bytes in lengths {
            objects.extend(builder.push(chunk(*bytes)).unwrap());
        }
        let (id, rest) = builder.finish().unwrap();
        objects.extend(rest);
        let Some(ListObject { id: list, kind, bytes }) = objects.pop() else {
            return Ok((id, Vec::new()));
        };
        assert_eq!(
            (id, kind),
            (ContentId::Chunked(ChunkListId::of(&bytes)), ObjectKind::ChunkList)
        );
        assert_eq!(id.object(), list);
        let chunks = match RULES.decode(&bytes)? {
            ChunkList::Chunks(chunks) => chunks,
            ChunkList::Parts(parts) => {
                assert_eq!(parts.len(), objects.len());
                let mut chunks = Vec::new();
                for (at, (part, object)) in parts.iter().zip(&objects).enumerate() {
                    assert_eq!((object.id, object.kind), (part.id.object(), ObjectKind::ListPart));
                    let end = if at + 1 == parts.len() { ListEnd::Content } else { ListEnd::Part };
                    chunks.extend(RULES.decode_part(Some(part.bytes), end, &object.bytes)?);
                }
                chunks
            }
        };
        Ok((id, chunks))
    }

    #[test]
    fn the_zero_chunk_has_its_id() {
        let zeros = vec![0; ZERO_CHUNK.bytes as usize];
        assert_eq!(ZERO_CHUNK.id, BlobId::of(&zeros), "{}", BlobId::of(&zeros));
    }

    #[test]
    fn lists_of_every_number_of_chunks_survive_a_round_trip() {
        assert_eq!(rebuilt(&[]), Ok((BlobId::of(b"").into(), Vec::new())));
        assert_eq!(rebuilt(&[15]), Ok((chunk(15).id.into(), Vec::new())));
        let mut ids = std::collections::HashSet::new();
        for count in 2..=12 {
            let lengths: Vec<u32> = (0..count).map(|at| 6 + at).collect();
            let chunks: Vec<BlobRef> = lengths.iter().map(|bytes| chunk(*bytes)).collect();
            let (id, read) = rebuilt(&lengths).unwrap();
            assert_eq!(read, chunks);
            assert!(ids.insert(id));
        }
        let mut builder = ListBuilder::with_rules(RULES);
        let pushed = (0..13).try_for_each(|_| builder.push(chunk(6)).map(drop));
        assert_eq!(
            pushed.and_then(|()| builder.finish().map(drop)),
            Err(TooManyChunks { most: 12 })
        );
    }

    #[test]
    fn a_list_that_no_writer_makes_is_refused() {
        let refused = |list: ChunkList| RULES.decode(&list.encode()).is_err();
        for lengths in [&[][..], &[15], &[6, 4], &[5, 20], &[21, 6], &[6, 0], &[6, 21], &[6; 4]] {
            let chunks = lengths.iter().map(|bytes| chunk(*bytes)).collect();
            assert!(refused(ChunkList::Chunks(chunks)), "{lengths:?}");
        }
        assert!(!refused(ChunkList::Chunks(vec![chunk(6), chunk(5)])));
        let part = |bytes| PartRef { id: ListPartId::of(b"part"), bytes };
        for lengths in [&[][..], &[60], &[17, 60], &[61, 6], &[60, 0], &[60, 61], &[60; 5]] {
            let parts = lengths.iter().map(|bytes| part(*bytes)).collect();
            assert!(refused(ChunkList::Parts(parts)), "{lengths:?}");
        }
        assert!(!refused(ChunkList::Parts(vec![part(18), part(1)])));
    }

    #[test]
    fn a_part_that_differs_from_its_list_is_refused() {
        let decode = |lengths: &[u32], bytes, end| {
            let chunks: Vec<BlobRef> = lengths.iter().map(|bytes| chunk(*bytes)).collect();
            let mut w = WireWriter::new();
            encode_chunks(&mut w, &chunks);
            let part = PartRef { id: ListPartId::of(b"part"), bytes };
            RULES.decode_part(Some(part.bytes), end, &w.finish()).is_ok()
        };
        assert!(decode(&[6, 7, 8], 21, ListEnd::Part));
        assert!(!decode(&[6, 7, 8], 22, ListEnd::Part));
        assert!(!decode(&[6, 15], 21, ListEnd::Part), "it is not full");
        assert!(decode(&[6, 15], 21, ListEnd::Content));
        assert!(decode(&[6, 7, 2], 15, ListEnd::Content));
        assert!(!decode(&[6, 7, 2], 15, ListEnd::Part), "only the last chunk may be short");
        assert!(!decode(&[6, 2, 7], 15, ListEnd::Content));
        assert!(!decode(&[], 0, ListEnd::Content));
        assert!(!decode(&[6, 6, 6, 6], 24, ListEnd::Content));
    }

    #[test]
    fn a_list_that_is_cut_lengthened_or_newer_is_refused() {
        let list = ChunkList::Chunks(vec![chunk(9), chunk(7)]).encode();
        for cut in 0..list.len() {
            assert!(RULES.decode(&list[..cut]).is_err(), "{cut}");
        }
        assert!(RULES.decode(&[&list[..], b"x"].concat()).is_err());
        let newer = [&[VERSION + 1][..], &list[1..]].concat();
        assert!(matches!(RULES.decode(&newer), Err(FormatError::Newer { found: 3, .. })));
    }
}
