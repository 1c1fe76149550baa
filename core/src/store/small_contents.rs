//! Bulk reads of small contents. Each frame is decompressed once, and only as far as
//! needed. Several threads work in parallel and reuse their buffers.

use std::cell::RefCell;

use rayon::prelude::*;

use crate::{
    base::id::BlobId,
    codec::StartDecoder,
    format::pack::{Codec, ObjectKind},
    store::{Store, objects::ObjectLocation},
};

/// Buffers of one thread: a frame as stored, and decompressed.
#[derive(Default)]
struct Buffers {
    decoder: Option<StartDecoder>,
    stored: Vec<u8>,
    raw: Vec<u8>,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::default();
}

impl Store {
    /// Passes those contents among `ids` that are single objects to `each`, checked, in
    /// any order and from several threads. Skips a content that cannot be read;
    /// [`Store::content`] and [`Store::object`] report the reason.
    pub fn read_small_contents(&self, ids: &[BlobId], each: &(dyn Fn(BlobId, Vec<u8>) + Sync)) {
        let place = |id: &BlobId| {
            let place = self.locate(&id.object()).ok().flatten();
            place.filter(|place| place.kind == ObjectKind::Blob).map(|place| (place, *id))
        };
        let mut places: Vec<(ObjectLocation, BlobId)> = ids.iter().filter_map(place).collect();
        places.sort_unstable();
        places.dedup();
        let same = |a: &(ObjectLocation, BlobId), b: &(ObjectLocation, BlobId)| {
            (a.0.pack, a.0.frame) == (b.0.pack, b.0.frame)
        };
        let frames: Vec<&[(ObjectLocation, BlobId)]> = places.chunk_by(same).collect();
        frames.par_iter().with_max_len(1).for_each(|wanted| {
            BUFFERS.with_borrow_mut(|buffers| self.gather_frame(buffers, wanted, each));
        });
    }

    /// Returns `None` when the frame cannot be read.
    fn gather_frame(
        &self,
        buffers: &mut Buffers,
        wanted: &[(ObjectLocation, BlobId)],
        each: &(dyn Fn(BlobId, Vec<u8>) + Sync),
    ) -> Option<()> {
        let Buffers { decoder, stored, raw } = buffers;
        let (first, _) = wanted.first()?;
        let pack = self.pack(first.pack).ok()?;
        let frame = pack.frame(first.frame).ok()?;
        pack.stored_into(frame, stored).ok()?;
        let bytes = match frame.codec {
            Codec::Raw => stored,
            Codec::Zstd => {
                let decoder = match decoder {
                    Some(decoder) => decoder,
                    None => decoder.insert(StartDecoder::new().ok()?),
                };
                // Decompress as far as the last wanted object. The checksum of the
                // frame was verified; each object is checked against its id below.
                let end = wanted.iter().map(|(place, _)| place.offset.saturating_add(place.bytes));
                let end = end.max()?.min(frame.raw_bytes);
                decoder.decode(stored, end as usize, raw).ok()?;
                raw
            }
        };
        for (place, id) in wanted {
            if let Ok(content) = place.slice(bytes)
                && BlobId::of(content) == *id
            {
                each(*id, content.to_vec());
            }
        }
        Some(())
    }
}
