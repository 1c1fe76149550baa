//! Chunk lists: the lists of chunks of large contents.
//!
//! The id of a chunk list is **the id of the whole content**, not the hash of the list. A reader
//! verifies a list by hashing the bytes of all chunks.
//!
//! | field   | form            | meaning                                       |
//! |---------|-----------------|-----------------------------------------------|
//! | version | u8              | 1                                             |
//! | form    | u8              | 0 direct, 1 in parts                          |
//! | total   | varint          | bytes of the whole content                    |
//! | count   | varint          | chunks (direct) or parts                      |
//! | entries | 32 + varint each| id of a blob and its length                   |
//!
//! In the direct form, an entry is a chunk: its blob id and its length, at least 1. A list of more
//! than [`limits::CHUNK_LIST_ENTRIES`] chunks is split into parts of that many entries. Each part
//! is a blob in the metadata frames, and the list has the ids and lengths of these blobs.
//!
//! Chunk boundaries are not part of a content's identity: equal contents may have different lists.

use crate::{
    base::{id::BlobId, limits},
    format::wire::{FormatError, WireReader, WireWriter},
};

/// The newest known version.
pub const VERSION: u8 = 1;

/// A blob and its length: a chunk, or a part of a long list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobRef {
    pub id: BlobId,
    /// Length of the blob in bytes, at least 1.
    pub bytes: u32,
}

/// A decoded chunk list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkList {
    /// Length of the whole content in bytes.
    pub total_bytes: u64,
    /// The chunks, or the parts of the list.
    pub pieces: ChunkListEntries,
}

/// The two forms of a chunk list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkListEntries {
    /// The chunks, in order.
    Chunks(Vec<BlobRef>),
    /// The blobs that hold the entries of the chunks, in order.
    Parts(Vec<BlobRef>),
}

impl ChunkList {
    /// Encodes the list.
    pub fn encode(&self) -> Vec<u8> {
        let (form, pieces) = match &self.pieces {
            ChunkListEntries::Chunks(pieces) => (0, pieces),
            ChunkListEntries::Parts(pieces) => (1, pieces),
        };
        let mut w = WireWriter::new();
        w.u8(VERSION);
        w.u8(form);
        w.varint(self.total_bytes);
        w.varint(pieces.len() as u64);
        encode_pieces(&mut w, pieces);
        w.finish()
    }

    /// Decodes a list.
    ///
    /// Checked: version, form, counts, and that direct chunks add up to the total. **Not** checked:
    /// the existence and the lengths of the blobs.
    ///
    /// # Errors
    /// [`FormatError`] names the rule and the offset.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut r = WireReader::new(bytes);
        FormatError::check_version("chunk list", r.u8("chunk list version")?, VERSION)?;
        let form = r.u8("chunk list form")?;
        let total_bytes = r.varint("chunk list total")?;
        let limit = if form == 0 { limits::CHUNK_LIST_ENTRIES } else { limits::CHUNK_LIST_PARTS };
        let count = r.count("chunk count", limit)?;
        let pieces = decode_pieces(&mut r, Some(count))?;
        let at = r.at();
        r.finish()?;
        let pieces = match form {
            0 if pieces.iter().map(|p| u64::from(p.bytes)).sum::<u64>() != total_bytes => {
                return Err(FormatError::Invalid { what: "chunk list total", at });
            }
            0 => ChunkListEntries::Chunks(pieces),
            1 => ChunkListEntries::Parts(pieces),
            _ => return Err(FormatError::Invalid { what: "chunk list form", at: 1 }),
        };
        Ok(Self { total_bytes, pieces })
    }
}

/// The encoded form of a chunked content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedChunkList {
    /// The list.
    pub list: Vec<u8>,
    /// The parts that the list names, in order; empty for a short list.
    pub parts: Vec<Vec<u8>>,
}

/// Encodes the list of a content of `total_bytes` that consists of `chunks`. Returns `None` if
/// there are more chunks than a list can name.
pub fn encode_content(total_bytes: u64, chunks: &[BlobRef]) -> Option<EncodedChunkList> {
    if chunks.len() <= limits::CHUNK_LIST_ENTRIES {
        let list = ChunkList { total_bytes, pieces: ChunkListEntries::Chunks(chunks.to_vec()) };
        return Some(EncodedChunkList { list: list.encode(), parts: Vec::new() });
    }
    let parts: Vec<Vec<u8>> = chunks.chunks(limits::CHUNK_LIST_ENTRIES).map(encode_part).collect();
    if parts.len() > limits::CHUNK_LIST_PARTS {
        return None;
    }
    let piece = |part: &Vec<u8>| BlobRef { id: BlobId::of(part), bytes: part.len() as u32 };
    let list = ChunkList {
        total_bytes,
        pieces: ChunkListEntries::Parts(parts.iter().map(piece).collect()),
    };
    Some(EncodedChunkList { list: list.encode(), parts })
}

/// Encodes the entries of one part.
pub fn encode_part(chunks: &[BlobRef]) -> Vec<u8> {
    let mut w = WireWriter::new();
    encode_pieces(&mut w, chunks);
    w.finish()
}

/// Decodes the entries of one part.
///
/// # Errors
/// [`FormatError`] names the rule and the offset.
pub fn decode_part(bytes: &[u8]) -> Result<Vec<BlobRef>, FormatError> {
    decode_pieces(&mut WireReader::new(bytes), None)
}

fn encode_pieces(w: &mut WireWriter, pieces: &[BlobRef]) {
    for piece in pieces {
        w.raw(piece.id.as_bytes());
        w.varint(u64::from(piece.bytes));
    }
}

/// Reads `count` entries, or all entries up to the end.
fn decode_pieces(
    r: &mut WireReader<'_>,
    count: Option<usize>,
) -> Result<Vec<BlobRef>, FormatError> {
    let fits = r.remaining() / 33;
    let mut pieces = Vec::with_capacity(count.unwrap_or(fits).min(fits));
    while count.map_or(r.remaining() > 0, |count| pieces.len() < count) {
        if pieces.len() == limits::CHUNK_LIST_ENTRIES {
            let limit = limits::CHUNK_LIST_ENTRIES as u64;
            return Err(FormatError::Limit { what: "chunk count", claimed: limit + 1, limit });
        }
        let id = BlobId::from_bytes(r.digest("chunk id")?);
        let at = r.at();
        match r.varint_u32("chunk length")? {
            0 => return Err(FormatError::Invalid { what: "chunk length", at }),
            bytes => pieces.push(BlobRef { id, bytes }),
        }
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(bytes: u32) -> BlobRef {
        BlobRef { id: BlobId::of(&bytes.to_le_bytes()), bytes }
    }

    #[test]
    fn both_forms_survive_a_round_trip() {
        let chunks = vec![piece(1), piece(1 << 20), piece(u32::MAX)];
        let total_bytes = chunks.iter().map(|p| u64::from(p.bytes)).sum();
        for pieces in
            [ChunkListEntries::Chunks(chunks.clone()), ChunkListEntries::Parts(chunks.clone())]
        {
            let list = ChunkList { total_bytes, pieces };
            assert_eq!(ChunkList::decode(&list.encode()), Ok(list));
        }
        assert_eq!(decode_part(&encode_part(&chunks)), Ok(chunks));
    }

    #[test]
    fn a_list_with_wrong_lengths_is_refused() {
        let list = ChunkList { total_bytes: 5, pieces: ChunkListEntries::Chunks(vec![piece(4)]) };
        assert!(matches!(ChunkList::decode(&list.encode()), Err(FormatError::Invalid { .. })));
        let none = ChunkList { total_bytes: 0, pieces: ChunkListEntries::Chunks(vec![piece(0)]) };
        assert!(matches!(ChunkList::decode(&none.encode()), Err(FormatError::Invalid { .. })));
        let mut newer = list.encode();
        newer[0] = 2;
        assert!(matches!(ChunkList::decode(&newer), Err(FormatError::Newer { found: 2, .. })));
        let mut claims = vec![1, 0, 0];
        claims.extend([0xff, 0xff, 0x7f]);
        assert!(matches!(ChunkList::decode(&claims), Err(FormatError::Limit { .. })));
    }
}
