//! Compresses with deflate on all cores: small contents one by one, large ones in
//! independent pieces.
//!
//! Small contents use libdeflate, which compresses a whole buffer and has little setup cost.
//! libdeflate cannot end a piece without ending the stream, so pieces use zlib-rs. Both give the
//! same bytes on every machine.

use std::cell::RefCell;

use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use libdeflater::{CompressionLvl, Compressor};

/// Size of a piece of a large content in bytes.
pub(super) const PIECE_BYTES: usize = 1 << 20;

/// The end of a deflate stream, after any number of pieces.
pub(super) const END: [u8; 2] = [3, 0];

/// Number of bytes at the start of a content that are compressed as a probe.
const PROBE_BYTES: usize = 64 << 10;

/// Maximum size of a stored block of deflate in bytes.
const STORED_BYTES: usize = u16::MAX as usize;

/// A compressor for whole contents at one level.
struct WholeCompressor {
    level: i32,
    compressor: Compressor,
    /// The output buffer.
    packed: Vec<u8>,
}

thread_local! {
    static WHOLE: RefCell<Option<WholeCompressor>> = const { RefCell::new(None) };

    /// A compressor for pieces, and its level.
    static PIECES: RefCell<Option<(i32, Compress)>> = const { RefCell::new(None) };
}

/// How a content is stored in an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Stored,
    Deflated,
}

/// A content in the form that the archive stores.
pub(super) struct StoredContent {
    pub(super) method: Method,
    pub(super) bytes: Vec<u8>,
    pub(super) crc: u32,
}

impl StoredContent {
    /// Compresses `raw`, or stores it uncompressed if compression does not make it shorter.
    pub(super) fn new(raw: &[u8], level: i32) -> Self {
        let mut crc = Crc::new();
        crc.update(raw);
        let crc = crc.sum();
        match shrinks(raw, level).then(|| deflate(raw, level)).flatten() {
            Some(bytes) => Self { method: Method::Deflated, bytes, crc },
            None => Self { method: Method::Stored, bytes: raw.to_vec(), crc },
        }
    }
}

/// Returns true if the content is likely to shrink.
fn shrinks(bytes: &[u8], level: i32) -> bool {
    level > 0
        && (bytes.len() < 4 * PROBE_BYTES
            || deflate(&bytes[..PROBE_BYTES], level)
                .is_some_and(|packed| packed.len() < PROBE_BYTES - PROBE_BYTES / 32))
}

/// Returns a whole deflate stream, if it is shorter than `raw`.
fn deflate(raw: &[u8], level: i32) -> Option<Vec<u8>> {
    WHOLE.with_borrow_mut(|slot| {
        let whole = match slot {
            Some(whole) if whole.level == level => whole,
            _ => slot.insert(WholeCompressor {
                level,
                compressor: Compressor::new(CompressionLvl::new(level).unwrap_or_default()),
                packed: Vec::new(),
            }),
        };
        let room = raw.len().checked_sub(1)?;
        if whole.packed.len() < room {
            whole.packed.resize(room, 0);
        }
        // The buffer is one byte shorter than the input, so compression fails if it saves
        // nothing.
        let bytes = whole.compressor.deflate_compress(raw, &mut whole.packed[..room]).ok()?;
        Some(whole.packed[..bytes].to_vec())
    })
}

/// Returns one piece of a stream. The stream must be closed with [`END`].
pub(super) fn piece(raw: &[u8], level: i32) -> Vec<u8> {
    let compress = || {
        with_compressor(level, |compressor| {
            let mut packed = Vec::with_capacity(raw.len());
            let status = compressor.compress_vec(raw, &mut packed, FlushCompress::Sync);
            // If room is left in the buffer, the piece is complete.
            let is_whole = matches!(status, Ok(Status::Ok))
                && compressor.total_in() == raw.len() as u64
                && packed.len() < packed.capacity().min(raw.len());
            is_whole.then_some(packed)
        })
    };
    let packed = if shrinks(raw, level) { compress() } else { None };
    packed.unwrap_or_else(|| stored(raw))
}

/// Encodes the bytes as stored deflate blocks, none of which is marked as the last one.
fn stored(raw: &[u8]) -> Vec<u8> {
    let mut blocks = Vec::with_capacity(raw.len() + 5 * raw.len().div_ceil(STORED_BYTES));
    for block in raw.chunks(STORED_BYTES) {
        let len = u16::try_from(block.len()).unwrap_or(u16::MAX);
        blocks.push(0);
        blocks.extend_from_slice(&len.to_le_bytes());
        blocks.extend_from_slice(&(!len).to_le_bytes());
        blocks.extend_from_slice(block);
    }
    blocks
}

/// Calls `work` with a cached compressor. Drops a compressor whose output was not read completely:
/// after a reset, zlib-rs 0.6.8 does not restore the read position of its output buffer and has no
/// room left.
fn with_compressor<T>(level: i32, work: impl FnOnce(&mut Compress) -> Option<T>) -> Option<T> {
    PIECES.with_borrow_mut(|slot| {
        let compressor = match slot {
            Some((have, compressor)) if *have == level => {
                compressor.reset();
                compressor
            }
            _ => {
                let wanted = Compression::new(u32::try_from(level).unwrap_or_default());
                &mut slot.insert((level, Compress::new(wanted, false))).1
            }
        };
        let done = work(compressor);
        if done.is_none() {
            *slot = None;
        }
        done
    })
}

#[cfg(test)]
mod tests {
    use flate2::{Decompress, FlushDecompress};

    use super::*;

    fn inflate(packed: &[u8], len: usize) -> Vec<u8> {
        let mut raw = Vec::with_capacity(len + 1);
        let status =
            Decompress::new(false).decompress_vec(packed, &mut raw, FlushDecompress::Finish);
        assert!(matches!(status, Ok(Status::StreamEnd)));
        raw
    }

    fn noise(len: usize) -> Vec<u8> {
        let mut noise = vec![0; len];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        noise
    }

    #[test]
    fn a_content_is_deflated_only_when_that_saves_something() {
        let text = b"all work and no play ".repeat(50_000);
        let packed = StoredContent::new(&text, 6);
        assert_eq!(packed.method, Method::Deflated);
        assert!(inflate(&packed.bytes, text.len()) == text);
        for raw in [noise(100), noise(500_000), b"a".to_vec(), Vec::new()] {
            let packed = StoredContent::new(&raw, 6);
            assert!(packed.method == Method::Stored && packed.bytes == raw);
        }
        assert_eq!(StoredContent::new(&text, 0).method, Method::Stored);
    }

    #[test]
    fn incompressible_contents_are_stored_uncompressed() {
        for len in [1_000, 10_000, 100_000].repeat(30) {
            let packed = StoredContent::new(&noise(len), 6);
            assert!(packed.method == Method::Stored && packed.bytes.len() == len);
        }
    }

    #[test]
    fn deflated_pieces_form_one_stream() {
        let raws = [
            b"words and words ".repeat(60_000),
            noise(PIECE_BYTES),
            b"x".to_vec(),
            vec![0; 70_000],
        ];
        for level in [0, 1, 6, 9] {
            let mut stream: Vec<u8> = raws.iter().flat_map(|raw| piece(raw, level)).collect();
            stream.extend(END);
            let whole = raws.concat();
            assert!(inflate(&stream, whole.len()) == whole, "level {level}");
        }
        assert_eq!(inflate(&END, 0), b"");
    }
}
