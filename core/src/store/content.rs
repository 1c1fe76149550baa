//! The location of a content: one object, or chunks that a list names.

use crate::{
    base::id::ObjectId,
    format::{
        chunk_list::{self, BlobRef, ChunkList, ChunkListEntries},
        pack::ObjectKind,
        wire::FormatError,
    },
    store::{ObjectLocation, StoreError},
};

/// The location of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentPlace {
    /// The content is this object.
    Whole(ObjectLocation),
    /// The content was cut into chunks. The chunk list is this object.
    Cut(ObjectLocation),
}

impl ContentPlace {
    /// Converts the location of the object `id` to the location of a content.
    ///
    /// # Errors
    /// [`StoreError`] if the location is `None` or the object is neither a blob nor a chunk list.
    pub fn of(id: &ObjectId, place: Option<ObjectLocation>) -> Result<Self, StoreError> {
        let (id, wanted) = (*id, ObjectKind::Blob);
        let place = place.ok_or(StoreError::Missing { id, wanted })?;
        match place.kind {
            ObjectKind::Blob => Ok(Self::Whole(place)),
            ObjectKind::ChunkList => Ok(Self::Cut(place)),
            found => Err(StoreError::WrongKind { id, wanted, found }),
        }
    }
}

/// Reads an object of a given kind.
pub type ReadObject<'a> = dyn Fn(&ObjectId, ObjectKind) -> Result<Vec<u8>, StoreError> + 'a;

/// What a walk through a chunk list visits.
#[derive(Debug)]
pub enum ChunkVisit<'a> {
    /// A part of a long list. The visit comes before the read of the part.
    Part(&'a BlobRef),
    /// The chunks of a part, or all chunks of a short list.
    Chunks(&'a [BlobRef]),
}

/// Walks through the chunks of the content `id`, in order. At most one part of a long
/// list is in memory at a time. Returns the length of the content in bytes.
///
/// # Errors
/// [`StoreError`] when the list or a part of it is missing or damaged, and the errors
/// of `visit`.
pub fn walk_chunks<E: From<StoreError>>(
    id: ObjectId,
    read: &ReadObject<'_>,
    visit: &mut dyn FnMut(ChunkVisit<'_>) -> Result<(), E>,
) -> Result<u64, E> {
    let list = decode_list(id, &read(&id, ObjectKind::ChunkList)?)?;
    walk_list(id, &list, read, visit)
}

/// Returns the stated length of the content `id` in bytes, from its list. Does not read the parts
/// of a long list.
///
/// # Errors
/// [`StoreError`] when the list is missing or damaged.
pub fn listed_bytes(id: ObjectId, read: &ReadObject<'_>) -> Result<u64, StoreError> {
    Ok(decode_list(id, &read(&id, ObjectKind::ChunkList)?)?.total_bytes)
}

/// Decodes the chunk list of the content `id`.
///
/// # Errors
/// [`StoreError::Object`] when the bytes break a rule of the format.
pub fn decode_list(id: ObjectId, bytes: &[u8]) -> Result<ChunkList, StoreError> {
    let kind = ObjectKind::ChunkList;
    ChunkList::decode(bytes).map_err(|source| StoreError::Object { id, kind, source })
}

/// Like [`walk_chunks`], for a decoded list.
pub(super) fn walk_list<E: From<StoreError>>(
    id: ObjectId,
    list: &ChunkList,
    read: &ReadObject<'_>,
    visit: &mut dyn FnMut(ChunkVisit<'_>) -> Result<(), E>,
) -> Result<u64, E> {
    let kind = ObjectKind::ChunkList;
    let broken = |source| StoreError::Object { id, kind, source };
    let wrong = |what| broken(FormatError::Invalid { what, at: 0 });
    let parts = match &list.pieces {
        ChunkListEntries::Chunks(chunks) => {
            visit(ChunkVisit::Chunks(chunks))?;
            return Ok(list.total_bytes);
        }
        ChunkListEntries::Parts(parts) => parts,
    };
    let mut left = list.total_bytes;
    for piece in parts {
        visit(ChunkVisit::Part(piece))?;
        let bytes = read(&piece.id.object(), ObjectKind::Blob)?;
        if bytes.len() != piece.bytes as usize {
            return Err(wrong("length of a part").into());
        }
        let part = chunk_list::decode_part(&bytes).map_err(broken)?;
        // Check the total after each part: a list may name the same part many times, and its chunks
        // must not add up to more than the stated length.
        let part_bytes = part.iter().map(|chunk| u64::from(chunk.bytes)).sum();
        left = left.checked_sub(part_bytes).ok_or_else(|| wrong("chunk list total"))?;
        visit(ChunkVisit::Chunks(&part))?;
    }
    if left > 0 { Err(wrong("chunk list total").into()) } else { Ok(list.total_bytes) }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::base::{id::BlobId, limits};

    #[test]
    fn a_long_chunk_list_is_walked_one_part_at_a_time() {
        let chunk = BlobRef { id: BlobId::of(b"x"), bytes: 1 };
        let part = chunk_list::encode_part(&vec![chunk; limits::CHUNK_LIST_ENTRIES]);
        let named = BlobRef { id: BlobId::of(&part), bytes: part.len() as u32 };
        let parts = limits::CHUNK_LIST_PARTS;
        let total_bytes = (parts * limits::CHUNK_LIST_ENTRIES) as u64;
        let list =
            ChunkList { total_bytes, pieces: ChunkListEntries::Parts(vec![named; parts]) }.encode();
        let (id, reads) = (BlobId::of(b"whole").object(), Cell::new(0));
        let read = |_: &ObjectId, kind| {
            reads.set(reads.get() + 1);
            Ok(if kind == ObjectKind::ChunkList { list.clone() } else { part.clone() })
        };
        let (mut most, mut chunks) = (0, 0);
        let total = walk_chunks(id, &read, &mut |visit| {
            if let ChunkVisit::Chunks(some) = visit {
                (most, chunks) = (most.max(some.len()), chunks + some.len());
            }
            Ok::<_, StoreError>(())
        });
        assert_eq!(total.unwrap(), total_bytes);
        assert_eq!((most, chunks as u64), (limits::CHUNK_LIST_ENTRIES, total_bytes));
        // An error from the callback ends the walk early.
        reads.set(0);
        let stopped = walk_chunks(id, &read, &mut |visit| match visit {
            ChunkVisit::Chunks(_) => Err(StoreError::Missing { id, wanted: ObjectKind::Blob }),
            ChunkVisit::Part(_) => Ok(()),
        });
        assert!(stopped.is_err());
        assert_eq!(reads.get(), 2);
    }
}
