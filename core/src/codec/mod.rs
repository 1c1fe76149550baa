//! Layer 3: the one place where frame bytes pass on their way in and out.
//!
//! Compression today; sealing frames (client-side encryption) would go here,
//! too, and nowhere else.
//!
//! Contexts are reused: a new one for each frame costs up to half the speed.
//! Frames are compressed with a 2 MiB window, so that a frame that is filled
//! with many small files finds matches across all of them. At the default level
//! such a frame looks for longer matches than zstd would by itself, which is
//! 8 % faster and loses 1 % on source trees, nothing on text;
//! `docs/decisions/0002-frames.md` has the figures.

use zstd::{
    bulk::{Compressor, Decompressor},
    stream::raw::Operation,
    zstd_safe::CParameter,
};

use crate::{base::limits, format::pack::Codec};

/// Compression levels that a store may be configured to.
pub const LEVELS: std::ops::RangeInclusive<i32> = 1..=19;

/// Level of a new store.
pub const DEFAULT_LEVEL: i32 = 3;

/// log2 of the largest match distance: 2 MiB.
const WINDOW_LOG: u32 = 21;

/// A frame is kept raw unless this fraction of it is saved (1/32, about 3 %):
/// expanding costs time, too.
const WORTHWHILE: usize = 32;

/// Why a frame could not be encoded or decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// zstd refused; only for want of memory.
    #[error("cannot compress a frame")]
    Compress(#[source] std::io::Error),
    /// The stored bytes are not what the codec writes.
    #[error("cannot expand a frame")]
    Expand(#[source] std::io::Error),
    /// It expands to another length than the pack says.
    #[error("a frame expands to {actual} bytes instead of {expected}")]
    Length {
        /// What the pack says.
        expected: usize,
        /// What came out.
        actual: usize,
    },
}

/// What frames of small contents change of the default level: matches of six
/// bytes instead of five, and a table for them of 128 KiB instead of 256.
const SMALL_PARAMETERS: [CParameter; 2] = [CParameter::MinMatch(6), CParameter::ChainLog(15)];

/// Compresses frames with one context.
pub struct Encoder {
    context: Compressor<'static>,
    buffer: Vec<u8>,
    level: i32,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Encoder(level {})", self.level)
    }
}

impl Encoder {
    /// Makes a context of `level`, one of [`LEVELS`], for chunks of large files.
    ///
    /// # Errors
    /// [`CodecError::Compress`] when zstd refuses.
    pub fn new(level: i32) -> Result<Self, CodecError> {
        let mut context = Compressor::new(level).map_err(CodecError::Compress)?;
        let window = CParameter::WindowLog(WINDOW_LOG);
        context.set_parameter(window).map_err(CodecError::Compress)?;
        Ok(Self { context, buffer: Vec::new(), level })
    }

    /// Makes a context for frames of many small contents, or of metadata.
    ///
    /// # Errors
    /// [`CodecError::Compress`] when zstd refuses.
    pub fn for_small(level: i32) -> Result<Self, CodecError> {
        if level != DEFAULT_LEVEL {
            return Self::new(level);
        }
        let mut encoder = Self::new(level)?;
        for parameter in SMALL_PARAMETERS {
            encoder.context.set_parameter(parameter).map_err(CodecError::Compress)?;
        }
        Ok(encoder)
    }

    /// Compresses `raw`, or leaves it as it is when that saves next to nothing.
    ///
    /// # Errors
    /// [`CodecError::Compress`] when zstd refuses.
    pub fn encode<'a>(&'a mut self, raw: &'a [u8]) -> Result<(Codec, &'a [u8]), CodecError> {
        self.buffer.clear();
        self.buffer.reserve(zstd::zstd_safe::compress_bound(raw.len()));
        let context = &mut self.context;
        context.compress_to_buffer(raw, &mut self.buffer).map_err(CodecError::Compress)?;
        if self.buffer.len() + raw.len() / WORTHWHILE < raw.len() {
            Ok((Codec::Zstd, &self.buffer))
        } else {
            Ok((Codec::Raw, raw))
        }
    }
}

/// Expands frames with one context.
pub struct Decoder {
    context: Decompressor<'static>,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Decoder")
    }
}

impl Decoder {
    /// Makes a context.
    ///
    /// # Errors
    /// [`CodecError::Expand`] when zstd refuses.
    pub fn new() -> Result<Self, CodecError> {
        Ok(Self { context: Decompressor::new().map_err(CodecError::Expand)? })
    }

    /// Expands `stored`, which must come to exactly `raw_bytes`.
    ///
    /// `raw_bytes` is within [`limits::FRAME_RAW_BYTES`] (the pack's decoder
    /// checked it), and no more than that is ever allocated or written,
    /// whatever the stored bytes claim.
    ///
    /// # Errors
    /// [`CodecError`] when they do not.
    pub fn decode(
        &mut self,
        codec: Codec,
        stored: &[u8],
        raw_bytes: usize,
    ) -> Result<Vec<u8>, CodecError> {
        debug_assert!(raw_bytes <= limits::FRAME_RAW_BYTES);
        let raw = match codec {
            Codec::Raw => stored.to_vec(),
            Codec::Zstd => {
                self.context.decompress(stored, raw_bytes).map_err(CodecError::Expand)?
            }
        };
        match raw.len() {
            actual if actual == raw_bytes => Ok(raw),
            actual => Err(CodecError::Length { expected: raw_bytes, actual }),
        }
    }
}

/// Expands the beginnings of frames with one context, into buffers that may be
/// used again.
pub struct StartDecoder {
    context: zstd::stream::raw::Decoder<'static>,
}

impl StartDecoder {
    /// Makes a context.
    ///
    /// # Errors
    /// [`CodecError::Expand`] when zstd refuses.
    pub fn new() -> Result<Self, CodecError> {
        Ok(Self { context: zstd::stream::raw::Decoder::new().map_err(CodecError::Expand)? })
    }

    /// Expands the first `bytes` of what zstd wrote as `stored` into the first
    /// `bytes` of `raw`, which grows to that length if it must.
    ///
    /// # Errors
    /// [`CodecError`] when it is not what zstd writes, or less.
    pub fn decode(
        &mut self,
        stored: &[u8],
        bytes: usize,
        raw: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        debug_assert!(bytes <= limits::FRAME_RAW_BYTES);
        if raw.len() < bytes {
            raw.resize(bytes, 0);
        }
        self.context.reinit().map_err(CodecError::Expand)?;
        let (mut read, mut written) = (0, 0);
        while written < bytes {
            let (input, output) = (&stored[read..], &mut raw[written..bytes]);
            let done = self.context.run_on_buffers(input, output).map_err(CodecError::Expand)?;
            if done.bytes_read == 0 && done.bytes_written == 0 {
                return Err(CodecError::Length { expected: bytes, actual: written });
            }
            (read, written) = (read + done.bytes_read, written + done.bytes_written);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_compressed_and_noise_is_not() {
        let mut encoder = Encoder::new(DEFAULT_LEVEL).unwrap();
        let text = b"all work and no play ".repeat(5000);
        let (codec, stored) = encoder.encode(&text).unwrap();
        assert_eq!(codec, Codec::Zstd);
        assert!(stored.len() < text.len() / 20);
        let stored = stored.to_vec();
        assert_eq!(Decoder::new().unwrap().decode(codec, &stored, text.len()).unwrap(), text);

        let mut noise = vec![0; 100_000];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        let (codec, stored) = encoder.encode(&noise).unwrap();
        assert_eq!((codec, stored), (Codec::Raw, &noise[..]));
    }

    #[test]
    fn the_beginning_of_a_frame_is_expanded_by_itself() {
        let text: Vec<u8> = (0..200_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let stored = Encoder::for_small(DEFAULT_LEVEL).unwrap().encode(&text).unwrap().1.to_vec();
        let (mut decoder, mut raw) = (StartDecoder::new().unwrap(), Vec::new());
        for bytes in [0, 1, 4096, 131_072, 131_073, text.len(), 17] {
            decoder.decode(&stored, bytes, &mut raw).unwrap();
            assert!(raw[..bytes] == text[..bytes], "{bytes}");
        }
        assert!(decoder.decode(&stored, text.len() + 1, &mut raw).is_err());
        assert!(decoder.decode(&stored[..stored.len() / 2], text.len(), &mut raw).is_err());
        assert!(decoder.decode(b"not zstd at all", 10, &mut raw).is_err());
        decoder.decode(&stored, 10, &mut raw).unwrap();
        assert_eq!(raw[..10], text[..10]);
    }

    #[test]
    fn a_frame_that_lies_about_its_length_is_refused() {
        let bomb = Encoder::new(1).unwrap().encode(&vec![0; 10 << 20]).unwrap().1.to_vec();
        let mut decoder = Decoder::new().unwrap();
        assert!(matches!(decoder.decode(Codec::Zstd, &bomb, 1000), Err(CodecError::Expand(_))));
        let longer = decoder.decode(Codec::Zstd, &bomb, 11 << 20);
        assert!(matches!(longer, Err(CodecError::Length { .. })));
        assert!(decoder.decode(Codec::Zstd, b"not zstd at all", 10).is_err());
    }
}
