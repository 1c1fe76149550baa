//! Reading many small contents at once: each frame is expanded once, by
//! several threads, no further than is needed, into buffers that are used again.

use std::cell::RefCell;

use rayon::prelude::*;

use crate::{
    base::id::BlobId,
    codec::StartDecoder,
    format::pack::{Codec, ObjectKind},
    store::{Store, objects::Place},
};

/// Buffers of a thread: a frame as it is stored, and expanded.
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
    /// Hands out those of `ids` that are one object each, checked, in any
    /// order and from several threads. What cannot be read is left out, for
    /// [`Store::content`] and [`Store::object`] to say why.
    pub fn gather(&self, ids: &[BlobId], each: &(dyn Fn(BlobId, Vec<u8>) + Sync)) {
        let place = |id: &BlobId| {
            let place = self.locate(&id.object()).ok().flatten();
            place.filter(|place| place.kind == ObjectKind::Blob).map(|place| (place, *id))
        };
        let mut places: Vec<(Place, BlobId)> = ids.iter().filter_map(place).collect();
        places.sort_unstable();
        places.dedup();
        let same = |a: &(Place, BlobId), b: &(Place, BlobId)| {
            (a.0.pack, a.0.frame) == (b.0.pack, b.0.frame)
        };
        let frames: Vec<&[(Place, BlobId)]> = places.chunk_by(same).collect();
        frames.par_iter().with_max_len(1).for_each(|wanted| {
            BUFFERS.with_borrow_mut(|buffers| self.gather_frame(buffers, wanted, each));
        });
    }

    /// `None` when the frame cannot be read.
    fn gather_frame(
        &self,
        buffers: &mut Buffers,
        wanted: &[(Place, BlobId)],
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
                // As far as the last of them; they are checked one by one.
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
