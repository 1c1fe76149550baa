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
        ObjectKind::ChunkList => chunks(id, read, &mut |_| Ok(())).map(Content::Chunks),
        found => Err(StoreError::WrongKind { id, wanted, found }),
    }
}

/// The chunks of the content `id`. `part` is told of each part of a long
/// list before it is read.
///
/// # Errors
/// [`StoreError`] when the list or a part of it is missing or damaged, and
/// those of `part`.
pub fn chunks(
    id: ObjectId,
    read: &ReadObject<'_>,
    part: &mut dyn FnMut(&Piece) -> Result<(), StoreError>,
) -> Result<Vec<Piece>, StoreError> {
    let kind = ObjectKind::ChunkList;
    let broken = |source| StoreError::Object { id, kind, source };
    let list = ChunkList::decode(&read(&id, kind)?).map_err(broken)?;
    let parts = match list.pieces {
        Pieces::Chunks(chunks) => return Ok(chunks),
        Pieces::Parts(parts) => parts,
    };
    let mut chunks = Vec::new();
    let mut left = list.total_bytes;
    let wrong = || broken(FormatError::Invalid { what: "chunk list total", at: 0 });
    for piece in parts {
        part(&piece)?;
        let bytes = read(&piece.id.object(), ObjectKind::Blob)?;
        let part = chunk_list::decode_part(&bytes).map_err(broken)?;
        // Asked each time: one part may be named again and again, and the
        // chunks must not take more memory than a content of that length
        // gives reason to.
        let part_bytes = part.iter().map(|chunk| u64::from(chunk.bytes)).sum();
        left = left.checked_sub(part_bytes).ok_or_else(wrong)?;
        chunks.extend(part);
    }
    if left > 0 {
        return Err(wrong());
    }
    Ok(chunks)
}
