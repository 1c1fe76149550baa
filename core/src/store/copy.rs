//! Copying objects from one pack to another store, or into larger packs.
//!
//! A frame of which everything is wanted is copied as it is; of others what is
//! wanted is taken out and compressed again, since nobody should be handed
//! what they did not ask for.

use crate::{
    base::limits,
    format::pack::{Class, Frame, Object},
    store::{PackFile, StoreError, Writer, objects::actual_id, pack_writer::Encoded},
};

/// Frames with at least so much in them count as full.
const FULL_FRAME_BYTES: u32 = (limits::SMALL_FRAME_BYTES / 2) as u32;
const FULL_META_BYTES: u32 = (limits::META_FRAME_BYTES / 2) as u32;

/// What becomes of frames of which everything is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    /// All are copied as they are, once their checksum was found right.
    Keep,
    /// Full ones are copied, small ones filled up; every object is checked
    /// against its id.
    Refill,
}

/// Says whether an object is to be copied; asked once for each.
pub type Wanted<'a> = dyn FnMut(&Object) -> Result<bool, StoreError> + 'a;

/// Copies what is wanted of a pack.
///
/// # Errors
/// [`StoreError::Damaged`] when an object is not what its id says.
pub fn copy_pack(
    writer: &Writer<'_>,
    file: &PackFile,
    frames: Frames,
    wanted: &mut Wanted<'_>,
) -> Result<(), StoreError> {
    let objects = file.objects()?;
    let mut rest = objects.as_slice();
    for frame in file.frames() {
        let (own, others) = rest.split_at(frame.objects as usize);
        rest = others;
        copy_frame(writer, file, (frame, own), frames, wanted)?;
    }
    Ok(())
}

fn copy_frame(
    writer: &Writer<'_>,
    file: &PackFile,
    (frame, objects): (&Frame, &[Object]),
    frames: Frames,
    wanted: &mut Wanted<'_>,
) -> Result<(), StoreError> {
    let wanted = objects.iter().map(wanted).collect::<Result<Vec<bool>, _>>()?;
    if !wanted.contains(&true) {
        return Ok(());
    }
    let full = match frame.class {
        Class::Data => FULL_FRAME_BYTES,
        Class::Metadata => FULL_META_BYTES,
    };
    let whole = !wanted.contains(&false);
    let stored = file.stored(frame)?;
    if whole && frames == Frames::Keep {
        return append(writer, frame, stored, objects);
    }
    let raw = file.expand(frame, stored.clone())?;
    let mut offset = 0;
    let mut parts: Vec<(Object, &[u8])> = Vec::with_capacity(objects.len());
    for (object, wanted) in objects.iter().zip(wanted) {
        let bytes = &raw[offset..offset + object.bytes as usize];
        offset += object.bytes as usize;
        match actual_id(object.kind, bytes) {
            Some(actual) if actual != object.id => {
                return Err(StoreError::Damaged { pack: file.id(), wanted: object.id, actual });
            }
            _ if wanted => parts.push((*object, bytes)),
            _ => {}
        }
    }
    if whole && frame.raw_bytes >= full {
        return append(writer, frame, stored, objects);
    }
    parts.into_iter().try_for_each(|(object, bytes)| writer.add_claimed(frame.class, object, bytes))
}

/// Adds a frame as it is.
fn append(
    writer: &Writer<'_>,
    frame: &Frame,
    stored: Vec<u8>,
    objects: &[Object],
) -> Result<(), StoreError> {
    let Frame { codec, raw_bytes, class, .. } = *frame;
    let encoded = Encoded { codec, stored, raw_bytes, objects: objects.to_vec() };
    match class {
        Class::Data => writer.append(&encoded),
        Class::Metadata => writer.append_metadata(encoded),
    }
}
