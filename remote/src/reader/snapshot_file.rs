//! A file of a remote snapshot, whose parts are in frames of packs.
//!
//! The unit of a request is a frame, or one part of a frame that is not compressed.

use std::{collections::HashMap, ops::Range, sync::Arc};

use bytes::Bytes;
use snap_core::{
    base::id::{ContentId, ObjectId},
    format::pack::{Codec, Frame, ObjectKind},
    store::{ChunkVisit, Descend, PackFile, Store, StoreError, actual_id, walk_chunks},
};

use crate::{
    peer::{pack_key, place_of},
    ranges::{
        Content, ContentPart, ContentUnit, FetchRange, LinkEstimate, NeededRange, ReadError,
        UnitDecoder,
    },
};

/// Expands and checks the units of a file.
#[derive(Debug)]
struct FrameDecoder {
    units: Vec<FrameUnit>,
    /// For error messages.
    location: String,
}

#[derive(Debug)]
struct FrameUnit {
    pack: Arc<PackFile>,
    /// The frame to expand; `None` for a part of a frame that is not compressed.
    frame: Option<Frame>,
    /// The objects of the file in this unit: range and id.
    objects: Vec<(Range<usize>, ObjectId)>,
}

/// Locates the parts of a content.
pub(super) fn find(
    store: &Store,
    id: &ContentId,
    location: &str,
    fetch: Arc<dyn FetchRange>,
    link: Arc<LinkEstimate>,
) -> Result<Content, StoreError> {
    let mut places = Vec::new();
    match id {
        ContentId::Blob(_) => places.push((id.object(), store.locate_content(id)?)),
        ContentId::Chunked(list) => {
            let read = |id: &ObjectId, kind| store.object(id, kind);
            walk_chunks::<StoreError>(list, &read, &mut |visit| {
                if let ChunkVisit::Chunks(chunks) = visit {
                    for chunk in chunks? {
                        places.push((chunk.id.object(), store.locate_chunk(chunk)?));
                    }
                }
                Ok(Descend::Enter)
            })?;
        }
    }
    let mut decoder = FrameDecoder { units: Vec::new(), location: location.to_owned() };
    let (mut units, mut numbers) = (Vec::new(), HashMap::new());
    let (mut parts, mut start) = (Vec::with_capacity(places.len()), 0);
    for (id, place) in places {
        let pack = store.pack(place.pack)?;
        let frame = *pack.frame(place.frame)?;
        let (frame, range, offset) = match frame.codec {
            Codec::Zstd => (Some(frame), frame.range(), place.offset),
            Codec::Raw => {
                let start = frame.offset + u64::from(place.offset);
                (None, start..start + u64::from(place.bytes), 0)
            }
        };
        let number = *numbers.entry((place.pack, range.start)).or_insert_with(|| {
            let stored_bytes = range.end - range.start;
            let bytes = frame.map_or(stored_bytes, |frame| u64::from(frame.raw_bytes));
            let request = NeededRange { key: pack_key(&pack.id()).into(), range };
            units.push(ContentUnit { request, bytes });
            decoder.units.push(FrameUnit { pack, frame, objects: Vec::new() });
            units.len() - 1
        });
        let object = offset as usize..offset as usize + place.bytes as usize;
        decoder.units[number].objects.push((object, id));
        let (bytes, offset) = (u64::from(place.bytes), u64::from(offset));
        parts.push(ContentPart { start, bytes, unit: number, offset });
        start += bytes;
    }
    Ok(Content::new(fetch, link, Some(Box::new(decoder)), units, parts))
}

impl UnitDecoder for FrameDecoder {
    fn decode(&self, unit: usize, response: Bytes) -> Result<Bytes, ReadError> {
        let wrong = |error: StoreError| ReadError::Content(Arc::new(error));
        let FrameUnit { pack, frame, objects } = &self.units[unit];
        let pack_id = pack.id();
        let raw = match frame {
            None => response,
            Some(frame) if !frame.matches(&response) => {
                return Err(wrong(StoreError::CorruptedInTransit {
                    pack: pack_id,
                    offset_bytes: frame.offset,
                    place: Some(place_of(&pack_key(&pack_id), &self.location)),
                }));
            }
            Some(frame) => pack.expand(frame, response.into()).map_err(wrong)?.into(),
        };
        for (range, wanted) in objects {
            let actual = actual_id(ObjectKind::Blob, raw.get(range.clone()).unwrap_or_default());
            if actual != *wanted {
                let damaged = StoreError::Damaged { pack: pack_id, wanted: *wanted, actual };
                return Err(wrong(damaged));
            }
        }
        Ok(raw)
    }
}
