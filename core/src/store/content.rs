//! What a content is stored as: one object, or chunks that a list names.

use crate::{
    base::id::ObjectId,
    format::{
        chunk_list::{self, ChunkList, Piece, Pieces},
        pack::ObjectKind,
        wire::FormatError,
    },
    store::{Place, StoreError},
};

/// What a content is stored as.
#[derive(Clone, Debug)]
pub enum Content {
    /// One object.
    Whole(Place),
    /// Chunks, in order.
    Chunks(Vec<Piece>),
}

/// Reads an object of a kind.
pub type ReadObject<'a> = dyn Fn(&ObjectId, ObjectKind) -> Result<Vec<u8>, StoreError> + 'a;

/// What the content at `place` is stored as.
pub(super) fn content_at(
    id: ObjectId,
    place: Option<Place>,
    read: &ReadObject<'_>,
) -> Result<Content, StoreError> {
    let wanted = ObjectKind::Blob;
    let place = place.ok_or(StoreError::Missing { id, wanted })?;
    match place.kind {
        ObjectKind::Blob => Ok(Content::Whole(place)),
        ObjectKind::ChunkList => chunks(id, read).map(Content::Chunks),
        found => Err(StoreError::WrongKind { id, wanted, found }),
    }
}

/// What is met on the way through a chunk list.
#[derive(Debug)]
pub enum Met<'a> {
    /// A part of a long list, before it is read.
    Part(&'a Piece),
    /// Chunks, those of a part or all there are.
    Chunks(&'a [Piece]),
}

/// Goes through the chunks of the content `id`, in order. Of a long list one part
/// is in memory at a time. Returns what they amount to.
///
/// # Errors
/// [`StoreError`] when the list or a part of it is missing or damaged, and
/// those of `met`.
pub fn walk_chunks<E: From<StoreError>>(
    id: ObjectId,
    read: &ReadObject<'_>,
    met: &mut dyn FnMut(Met<'_>) -> Result<(), E>,
) -> Result<u64, E> {
    let list = decode(id, &read(&id, ObjectKind::ChunkList)?)?;
    walk_list(id, list, read, met)
}

/// What the content `id` amounts to as its list says, without a look at long
/// lists' parts.
///
/// # Errors
/// [`StoreError`] when the list is missing or damaged.
pub fn listed_bytes(id: ObjectId, read: &ReadObject<'_>) -> Result<u64, StoreError> {
    Ok(decode(id, &read(&id, ObjectKind::ChunkList)?)?.total_bytes)
}

fn decode(id: ObjectId, bytes: &[u8]) -> Result<ChunkList, StoreError> {
    let kind = ObjectKind::ChunkList;
    ChunkList::decode(bytes).map_err(|source| StoreError::Object { id, kind, source })
}

/// Goes through the chunks of a list that was read, as [`walk_chunks`] does.
pub(super) fn walk_list<E: From<StoreError>>(
    id: ObjectId,
    list: ChunkList,
    read: &ReadObject<'_>,
    met: &mut dyn FnMut(Met<'_>) -> Result<(), E>,
) -> Result<u64, E> {
    let kind = ObjectKind::ChunkList;
    let broken = |source| StoreError::Object { id, kind, source };
    let wrong = |what| broken(FormatError::Invalid { what, at: 0 });
    let parts = match list.pieces {
        Pieces::Chunks(chunks) => {
            met(Met::Chunks(&chunks))?;
            return Ok(list.total_bytes);
        }
        Pieces::Parts(parts) => parts,
    };
    let mut left = list.total_bytes;
    for piece in parts {
        met(Met::Part(&piece))?;
        let bytes = read(&piece.id.object(), ObjectKind::Blob)?;
        if bytes.len() != piece.bytes as usize {
            return Err(wrong("length of a part").into());
        }
        let part = chunk_list::decode_part(&bytes).map_err(broken)?;
        // Asked each time: one part may be named again and again, and the
        // chunks must be no more than a content of that length gives reason to.
        let part_bytes = part.iter().map(|chunk| u64::from(chunk.bytes)).sum();
        left = left.checked_sub(part_bytes).ok_or_else(|| wrong("chunk list total"))?;
        met(Met::Chunks(&part))?;
    }
    if left > 0 { Err(wrong("chunk list total").into()) } else { Ok(list.total_bytes) }
}

/// All chunks of the content `id`.
fn chunks(id: ObjectId, read: &ReadObject<'_>) -> Result<Vec<Piece>, StoreError> {
    let mut all = Vec::new();
    walk_chunks(id, read, &mut |met| {
        if let Met::Chunks(chunks) = met {
            all.extend_from_slice(chunks);
        }
        Ok::<_, StoreError>(())
    })?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::base::{id::BlobId, limits};

    #[test]
    fn of_a_long_list_one_part_is_in_memory_at_a_time() {
        let chunk = Piece { id: BlobId::of(b"x"), bytes: 1 };
        let part = chunk_list::encode_part(&vec![chunk; limits::CHUNK_LIST_ENTRIES]);
        let named = Piece { id: BlobId::of(&part), bytes: part.len() as u32 };
        let parts = limits::CHUNK_LIST_PARTS;
        let total_bytes = (parts * limits::CHUNK_LIST_ENTRIES) as u64;
        let list = ChunkList { total_bytes, pieces: Pieces::Parts(vec![named; parts]) }.encode();
        let (id, reads) = (BlobId::of(b"whole").object(), Cell::new(0));
        let read = |_: &ObjectId, kind| {
            reads.set(reads.get() + 1);
            Ok(if kind == ObjectKind::ChunkList { list.clone() } else { part.clone() })
        };
        let (mut most, mut chunks) = (0, 0);
        let total = walk_chunks(id, &read, &mut |met| {
            if let Met::Chunks(some) = met {
                (most, chunks) = (most.max(some.len()), chunks + some.len());
            }
            Ok::<_, StoreError>(())
        });
        assert_eq!(total.unwrap(), total_bytes);
        assert_eq!((most, chunks as u64), (limits::CHUNK_LIST_ENTRIES, total_bytes));
        // Whoever has seen enough ends it.
        reads.set(0);
        let stopped = walk_chunks(id, &read, &mut |met| match met {
            Met::Chunks(_) => Err(StoreError::Missing { id, wanted: ObjectKind::Blob }),
            Met::Part(_) => Ok(()),
        });
        assert!(stopped.is_err());
        assert_eq!(reads.get(), 2);
    }
}
