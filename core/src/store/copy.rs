//! Copies objects from a pack to another store, or into a larger pack.
//!
//! If all objects of a frame are wanted, the copy keeps the frame unchanged. Otherwise it extracts
//! and recompresses the wanted objects, so that the receiver gets no other objects.

use crate::{
    base::limits,
    format::pack::{Frame, ObjectClass, PackedObject},
    store::{
        ObjectWriter, PackFile, StoreError, pack_reader::FrameObjects, pack_writer::EncodedFrame,
    },
};

/// Size in raw bytes from which on a data frame counts as full.
const FULL_FRAME_BYTES: u32 = (limits::SMALL_FRAME_BYTES / 2) as u32;
const FULL_META_BYTES: u32 = (limits::META_FRAME_BYTES / 2) as u32;

/// What to do with frames whose objects are all wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameMode {
    /// Copy these frames unchanged, after verifying their checksums.
    Keep,
    /// Copy full frames unchanged, and put the objects of small frames into larger frames. Check
    /// every copied object against its id.
    Refill,
}

/// Returns true for an object to copy. Called once for each object.
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
    file.by_frame(&objects)
        .try_for_each(|contents| copy_frame(writer, file, contents, frames, wanted))
}

fn copy_frame(
    writer: &ObjectWriter<'_>,
    file: &PackFile,
    contents: FrameObjects<'_>,
    frames: FrameMode,
    wanted: &mut ObjectFilter<'_>,
) -> Result<(), StoreError> {
    let FrameObjects { frame, objects } = contents;
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
    let parts = contents.split_verified(file.id(), &raw).zip(wanted).filter(|(_, wanted)| *wanted);
    let parts: Vec<_> = parts.map(|(part, _)| part).collect::<Result<_, _>>()?;
    if whole && frame.raw_bytes >= full {
        return append(writer, frame, stored, objects);
    }
    parts
        .into_iter()
        .try_for_each(|(object, bytes)| writer.add_claimed(frame.class, *object, bytes))
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
