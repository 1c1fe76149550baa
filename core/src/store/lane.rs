//! A lane: a frame that is being filled, with the context that compresses it.
//!
//! Each worker thread fills its own lane, so neighbouring files of a folder become neighbours in a
//! frame. There they compress well and are read together.

use crate::{
    codec::{CodecError, Encoder},
    format::pack::PackedObject,
    store::pack_writer::EncodedFrame,
};

/// A frame that is being filled.
#[derive(Debug)]
pub(super) struct FrameBuilder {
    encoder: Encoder,
    raw: Vec<u8>,
    objects: Vec<PackedObject>,
    target_bytes: usize,
}

impl FrameBuilder {
    /// Creates an empty lane. A frame with several objects has at most `target_bytes` raw bytes.
    pub(super) fn new(level: i32, target_bytes: usize) -> Result<Self, CodecError> {
        let encoder = Encoder::for_small(level)?;
        Ok(Self { encoder, raw: Vec::new(), objects: Vec::new(), target_bytes })
    }

    /// Adds an object. If the current frame has no room, closes that frame first and returns it.
    pub(super) fn push(
        &mut self,
        object: PackedObject,
        bytes: &[u8],
    ) -> Result<Option<EncodedFrame>, CodecError> {
        debug_assert_eq!(object.bytes as usize, bytes.len());
        let full = !self.raw.is_empty() && self.raw.len() + bytes.len() > self.target_bytes;
        let frame = if full { self.flush()? } else { None };
        self.raw.extend_from_slice(bytes);
        self.objects.push(object);
        Ok(frame)
    }

    /// Closes the current frame and returns it, unless it is empty.
    pub(super) fn flush(&mut self) -> Result<Option<EncodedFrame>, CodecError> {
        if self.objects.is_empty() {
            return Ok(None);
        }
        let (codec, stored) = self.encoder.encode(&self.raw)?;
        let frame = EncodedFrame {
            codec,
            stored: stored.to_vec(),
            raw_bytes: self.raw.len() as u32,
            objects: std::mem::take(&mut self.objects),
        };
        self.raw.clear();
        Ok(Some(frame))
    }
}
