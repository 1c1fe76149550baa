//! Layer 3: encoding and decoding of frames.
//!
//! All frame bytes pass through this module. It compresses and decompresses them;
//! encryption of frames would also belong here.
//!
//! Callers reuse an encoder or decoder, because a new zstd context for each frame costs up to half
//! the speed. Frames are compressed with a 2 MiB window, so zstd finds matches across all small
//! files in a frame. At the default level, such frames use a larger minimum match length than
//! zstd's default. This is 8 % faster; source trees become 1 % larger, text does not.
//! `docs/decisions/0002-frames.md` has the figures.

use zstd::{
    bulk::{Compressor, Decompressor},
    stream::raw::{InBuffer, Operation, OutBuffer},
    zstd_safe::{CParameter, DParameter},
};

use crate::{base::limits, format::pack::Codec};

/// Compression levels that the configuration of a store may select.
pub const LEVELS: std::ops::RangeInclusive<i32> = 1..=19;

/// Compression level of a new store.
pub const DEFAULT_LEVEL: i32 = 3;

/// Window size as log2 of its bytes: 2 MiB.
const WINDOW_LOG: u32 = 21;

/// A frame is stored raw unless compression saves at least this fraction (1/32, about 3
/// %), because decompression takes time.
const WORTHWHILE: usize = 32;

/// Why a frame could not be encoded or decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// zstd failed to compress; this happens only when memory is short.
    #[error("cannot compress a frame")]
    Compress(#[source] std::io::Error),
    /// The stored bytes are not a valid frame of the codec.
    #[error("cannot decompress a frame")]
    Expand(#[source] std::io::Error),
    /// The frame decompresses to another length than the pack states.
    #[error("a frame decompresses to {actual} bytes instead of {expected}")]
    Length { expected: usize, actual: usize },
}

/// zstd parameters of [`Encoder::for_small`] at the default level: a minimum match of six bytes
/// instead of five, and a match table of 128 KiB instead of 256 KiB.
const SMALL_PARAMETERS: [CParameter; 2] = [CParameter::MinMatch(6), CParameter::ChainLog(15)];

/// Compresses frames with one reused context.
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
    /// Creates an encoder for chunks of large files. `level` is one of [`LEVELS`].
    ///
    /// # Errors
    /// [`CodecError::Compress`] when zstd cannot create the context.
    pub fn new(level: i32) -> Result<Self, CodecError> {
        let mut context = Compressor::new(level).map_err(CodecError::Compress)?;
        let window = CParameter::WindowLog(WINDOW_LOG);
        context.set_parameter(window).map_err(CodecError::Compress)?;
        Ok(Self { context, buffer: Vec::new(), level })
    }

    /// Creates an encoder for frames of many small contents or of metadata.
    ///
    /// # Errors
    /// [`CodecError::Compress`] when zstd cannot create the context.
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

    /// Compresses `raw`, or returns it unchanged when compression saves too little.
    ///
    /// # Errors
    /// [`CodecError::Compress`] when zstd fails.
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

/// Decompresses frames with one reused context.
pub struct Decoder {
    context: Decompressor<'static>,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Decoder")
    }
}

impl Decoder {
    /// Creates a decoder.
    ///
    /// # Errors
    /// [`CodecError::Expand`] when zstd cannot create the context.
    pub fn new() -> Result<Self, CodecError> {
        Ok(Self { context: Decompressor::new().map_err(CodecError::Expand)? })
    }

    /// Decompresses `stored` to exactly `raw_bytes` bytes.
    ///
    /// `raw_bytes` must not exceed [`limits::FRAME_RAW_BYTES`]; the decoder of packs checks this.
    /// Even if the stored bytes claim more, the decoder allocates and writes at most `raw_bytes`.
    ///
    /// # Errors
    /// [`CodecError`] when the bytes are invalid or have another length.
    pub fn decode(
        &mut self,
        codec: Codec,
        stored: &[u8],
        raw_bytes: usize,
    ) -> Result<Vec<u8>, CodecError> {
        let mut raw = Vec::new();
        match codec {
            Codec::Raw if stored.len() == raw_bytes => raw.extend_from_slice(stored),
            Codec::Raw => {
                return Err(CodecError::Length { expected: raw_bytes, actual: stored.len() });
            }
            Codec::Zstd => self.decode_into(stored, raw_bytes, &mut raw)?,
        }
        Ok(raw)
    }

    /// Decompresses a zstd frame like [`Decoder::decode`], into a reusable buffer. The capacity of
    /// `raw` limits the output.
    ///
    /// # Errors
    /// As [`Decoder::decode`].
    pub fn decode_into(
        &mut self,
        stored: &[u8],
        raw_bytes: usize,
        raw: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        debug_assert!(raw_bytes <= limits::FRAME_RAW_BYTES);
        raw.clear();
        raw.reserve_exact(raw_bytes);
        self.context.decompress_to_buffer(stored, raw).map_err(CodecError::Expand)?;
        match raw.len() {
            actual if actual == raw_bytes => Ok(()),
            actual => Err(CodecError::Length { expected: raw_bytes, actual }),
        }
    }
}

/// Number of compressed bytes that a [`StartDecoder`] passes to zstd at a time. At most this much
/// input is decompressed in vain.
const START_STEP_BYTES: usize = 16 << 10;

/// Decompresses only the beginnings of frames, into reusable buffers.
///
/// zstd looks back into the output buffer (`ZSTD_d_stableOutBuffer`). So the context needs no
/// window of up to 2 MiB for each thread.
pub struct StartDecoder {
    context: zstd::stream::raw::Decoder<'static>,
}

impl StartDecoder {
    /// Creates a decoder.
    ///
    /// # Errors
    /// [`CodecError::Expand`] when zstd cannot create the context.
    pub fn new() -> Result<Self, CodecError> {
        let mut context = zstd::stream::raw::Decoder::new().map_err(CodecError::Expand)?;
        context.set_parameter(DParameter::StableOutBuffer(true)).map_err(CodecError::Expand)?;
        Ok(Self { context })
    }

    /// Decompresses at least the first `bytes` bytes of the zstd frame `stored` into `raw`.
    /// `raw_bytes` is the size of the whole frame; `raw` gets at least this capacity, which limits
    /// what is written.
    ///
    /// # Errors
    /// [`CodecError`] when the frame is invalid, shorter than `bytes`, or longer than the capacity.
    pub fn decode(
        &mut self,
        stored: &[u8],
        bytes: usize,
        raw_bytes: usize,
        raw: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        debug_assert!(raw_bytes <= limits::FRAME_RAW_BYTES);
        raw.clear();
        raw.reserve_exact(raw_bytes);
        self.context.reinit().map_err(CodecError::Expand)?;
        let mut output = OutBuffer::around(raw);
        for input in stored.chunks(START_STEP_BYTES) {
            let mut input = InBuffer::around(input);
            while output.pos() < bytes && input.pos() < input.src.len() {
                self.context.run(&mut input, &mut output).map_err(CodecError::Expand)?;
            }
        }
        match output.pos() {
            actual if actual < bytes => Err(CodecError::Length { expected: bytes, actual }),
            _ => Ok(()),
        }
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
    fn the_start_of_a_frame_can_be_decompressed_alone() {
        let text: Vec<u8> = (0..200_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let stored = Encoder::for_small(DEFAULT_LEVEL).unwrap().encode(&text).unwrap().1.to_vec();
        let (mut decoder, mut raw) = (StartDecoder::new().unwrap(), Vec::new());
        for bytes in [0, 1, 4096, 131_072, 131_073, text.len(), 17] {
            decoder.decode(&stored, bytes, text.len(), &mut raw).unwrap();
            assert!(raw[..bytes] == text[..bytes], "{bytes}");
        }
        let longer = text.len() + 1;
        assert!(decoder.decode(&stored, longer, longer, &mut raw).is_err());
        let half = &stored[..stored.len() / 2];
        assert!(decoder.decode(half, text.len(), text.len(), &mut raw).is_err());
        assert!(decoder.decode(b"not zstd at all", 10, 20, &mut raw).is_err());
        // The frame is longer than the pack says.
        let mut small = Vec::new();
        assert!(decoder.decode(&stored, 10, 1000, &mut small).is_err());
        assert!(small.capacity() < text.len());
        decoder.decode(&stored, 10, text.len(), &mut raw).unwrap();
        assert_eq!(raw[..10], text[..10]);
    }

    #[test]
    fn a_frame_with_a_wrong_length_is_refused() {
        let bomb = Encoder::new(1).unwrap().encode(&vec![0; 10 << 20]).unwrap().1.to_vec();
        let mut decoder = Decoder::new().unwrap();
        assert!(matches!(decoder.decode(Codec::Zstd, &bomb, 1000), Err(CodecError::Expand(_))));
        let longer = decoder.decode(Codec::Zstd, &bomb, 11 << 20);
        assert!(matches!(longer, Err(CodecError::Length { .. })));
        assert!(decoder.decode(Codec::Zstd, b"not zstd at all", 10).is_err());
    }
}
