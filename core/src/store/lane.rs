//! A frame that is being filled, with the context that will compress it.
//!
//! Each worker thread fills a lane of its own, so files that lie side by side
//! in a folder lie side by side in a frame, which is what makes them compress
//! well and come back together.

use crate::{
    codec::{CodecError, Encoder},
    format::pack::Object,
    store::pack_writer::Encoded,
};

/// A frame that is being filled.
#[derive(Debug)]
pub(super) struct Lane {
    encoder: Encoder,
    raw: Vec<u8>,
    objects: Vec<Object>,
    target_bytes: usize,
}

impl Lane {
    /// An empty lane whose frames are closed at `target_bytes`.
    pub(super) fn new(level: i32, target_bytes: usize) -> Result<Self, CodecError> {
        let encoder = Encoder::for_small(level)?;
        Ok(Self { encoder, raw: Vec::new(), objects: Vec::new(), target_bytes })
    }

    /// Adds an object. Returns the frame before it when there is no room.
    pub(super) fn push(
        &mut self,
        object: Object,
        bytes: &[u8],
    ) -> Result<Option<Encoded>, CodecError> {
        debug_assert_eq!(object.bytes as usize, bytes.len());
        let full = !self.raw.is_empty() && self.raw.len() + bytes.len() > self.target_bytes;
        let frame = if full { self.flush()? } else { None };
        self.raw.extend_from_slice(bytes);
        self.objects.push(object);
        Ok(frame)
    }

    /// Closes the frame, if anything is in it.
    pub(super) fn flush(&mut self) -> Result<Option<Encoded>, CodecError> {
        if self.objects.is_empty() {
            return Ok(None);
        }
        let (codec, stored) = self.encoder.encode(&self.raw)?;
        let frame = Encoded {
            codec,
            stored: stored.to_vec(),
            raw_bytes: self.raw.len() as u32,
            objects: std::mem::take(&mut self.objects),
        };
        self.raw.clear();
        Ok(Some(frame))
    }
}
