//! A file of a remote snapshot, whose parts are in frames of packs.
//!
//! The unit of a request is a frame, or one part of a frame that is not compressed.

use std::{collections::HashMap, ops::Range, sync::Arc};

use bytes::Bytes;
use snap_core::{
    base::id::{ContentId, ObjectId},
    format::pack::{Codec, Frame, ObjectKind},
    store::{
        ChunkVisit, Descend, ObjectLocation, PackFile, Store, StoreError, actual_id, walk_chunks,
    },
};

use crate::{
    peer::{OBJECTS, place_of},
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
        let (unit, request_range, offset) = FrameUnit::of(store, &place)?;
        let number = *numbers.entry((place.pack, request_range.start)).or_insert_with(|| {
            let stored_bytes = request_range.end - request_range.start;
            let bytes = unit.frame.map_or(stored_bytes, |frame| u64::from(frame.raw_bytes));
            let key = format!("{OBJECTS}{}", unit.pack.id()).into();
            let request = NeededRange { key, range: request_range };
            units.push(ContentUnit { request, bytes });
            decoder.units.push(unit);
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

impl FrameUnit {
    /// Returns the unit that contains an object, the range of the pack to request, and the offset of
    /// the object in the expanded unit.
    fn of(store: &Store, place: &ObjectLocation) -> Result<(Self, Range<u64>, u32), StoreError> {
        let pack = store.pack(place.pack)?;
        let frame = *pack.frame(place.frame)?;
        let unit = |frame| Self { pack, frame, objects: Vec::new() };
        if frame.codec == Codec::Zstd {
            return Ok((unit(Some(frame)), frame.range(), place.offset));
        }
        let start = frame.offset + u64::from(place.offset);
        Ok((unit(None), start..start + u64::from(place.bytes), 0))
    }
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
                    place: Some(place_of(&format!("{OBJECTS}{pack_id}"), &self.location)),
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
