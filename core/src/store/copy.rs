//! Copying objects from one pack to another store, or into larger packs.
//!
//! A frame whose objects are all wanted is copied unchanged. Otherwise the wanted
//! objects are extracted and compressed again, so that the receiver gets nothing that
//! it did not request.

use crate::{
    base::limits,
    format::pack::{Frame, ObjectClass, PackedObject},
    store::{ObjectWriter, PackFile, StoreError, objects::actual_id, pack_writer::EncodedFrame},
};

/// Raw bytes from which on a frame counts as full.
const FULL_FRAME_BYTES: u32 = (limits::SMALL_FRAME_BYTES / 2) as u32;
const FULL_META_BYTES: u32 = (limits::META_FRAME_BYTES / 2) as u32;

/// What to do with frames whose objects are all wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameMode {
    /// Copy all of them unchanged, after verifying their checksum.
    Keep,
    /// Copy full ones unchanged, and put the objects of small ones into larger frames.
    /// Every object is checked against its id.
    Refill,
}

/// Returns true if an object is to be copied. Called once for each object.
pub type ObjectFilter<'a> = dyn FnMut(&PackedObject) -> Result<bool, StoreError> + 'a;

/// Copies the wanted objects of a pack.
///
/// # Errors
/// [`StoreError::Damaged`] when an object does not match its id.
pub fn copy_pack(
    writer: &ObjectWriter<'_>,
    file: &PackFile,
    frames: FrameMode,
    wanted: &mut ObjectFilter<'_>,
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
    writer: &ObjectWriter<'_>,
    file: &PackFile,
    (frame, objects): (&Frame, &[PackedObject]),
    frames: FrameMode,
    wanted: &mut ObjectFilter<'_>,
) -> Result<(), StoreError> {
    let wanted = objects.iter().map(wanted).collect::<Result<Vec<bool>, _>>()?;
    if !wanted.contains(&true) {
        return Ok(());
    }
    let full = match frame.class {
        ObjectClass::Data => FULL_FRAME_BYTES,
        ObjectClass::Metadata => FULL_META_BYTES,
    };
    let whole = !wanted.contains(&false);
    let stored = file.stored(frame)?;
    if whole && frames == FrameMode::Keep {
        return append(writer, frame, stored, objects);
    }
    let raw = file.expand(frame, stored.clone())?;
    let mut offset = 0;
    let mut parts: Vec<(PackedObject, &[u8])> = Vec::with_capacity(objects.len());
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

/// Adds a frame unchanged.
fn append(
    writer: &ObjectWriter<'_>,
    frame: &Frame,
    stored: Vec<u8>,
    objects: &[PackedObject],
) -> Result<(), StoreError> {
    let Frame { codec, raw_bytes, class, .. } = *frame;
    let encoded = EncodedFrame { codec, stored, raw_bytes, objects: objects.to_vec() };
    match class {
        ObjectClass::Data => writer.append(&encoded),
        ObjectClass::Metadata => writer.append_metadata(encoded),
    }
}
