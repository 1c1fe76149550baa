//! The chunks of a content: walks through chunk lists.

use std::collections::HashSet;

use crate::{
    base::id::{ChunkListId, ListPartId, ObjectId},
    format::{
        chunk_list::{self, BlobRef, ChunkList, ListEnd, PartRef},
        pack::ObjectKind,
    },
    store::StoreError,
};

/// Reads an object of a given kind.
pub type ReadObject<'a> = dyn Fn(&ObjectId, ObjectKind) -> Result<Vec<u8>, StoreError> + 'a;

/// What a walk through a chunk list visits.
#[derive(Debug)]
pub enum ChunkVisit<'a> {
    /// A part of a long list, and what ends with it. The visit comes before the read of the part.
    Part(&'a PartRef, ListEnd),
    /// The chunks of the part that was visited last, or all chunks of a short list. The error of a
    /// part that is missing or damaged: the walk goes on if the visitor accepts it.
    Chunks(Result<&'a [BlobRef], StoreError>),
}

/// Tells a walk whether to go on with the chunks of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descend {
    /// Read the part and visit its chunks.
    Enter,
    /// Skip the part.
    Skip,
}

/// Walks through the chunks of a list, in order. At most one part of a long list is in memory at a
/// time. The answer of `visit` counts for parts only. Returns the length of the content in bytes.
///
/// # Errors
/// [`StoreError`] when the list is missing or damaged, and the errors of `visit`.
pub fn walk_chunks<E: From<StoreError>>(
    id: &ChunkListId,
    read: &ReadObject<'_>,
    visit: &mut dyn FnMut(ChunkVisit<'_>) -> Result<Descend, E>,
) -> Result<u64, E> {
    let list = read_list(id, read)?;
    walk_list(&list, read, visit)?;
    Ok(list.total_bytes())
}

/// Reads and decodes a chunk list.
///
/// # Errors
/// [`StoreError`] when the list is missing or damaged.
pub fn read_list(id: &ChunkListId, read: &ReadObject<'_>) -> Result<ChunkList, StoreError> {
    let (id, kind) = (id.object(), ObjectKind::ChunkList);
    ChunkList::decode(&read(&id, kind)?).map_err(|source| StoreError::Object { id, kind, source })
}

/// Like [`walk_chunks`], for a decoded list.
pub(super) fn walk_list<E>(
    list: &ChunkList,
    read: &ReadObject<'_>,
    visit: &mut dyn FnMut(ChunkVisit<'_>) -> Result<Descend, E>,
) -> Result<(), E> {
    let parts = match list {
        ChunkList::Chunks(chunks) => return visit(ChunkVisit::Chunks(Ok(chunks))).map(drop),
        ChunkList::Parts(parts) => parts,
    };
    for (at, part) in parts.iter().enumerate() {
        let end = if at + 1 == parts.len() { ListEnd::Content } else { ListEnd::Part };
        if visit(ChunkVisit::Part(part, end))? == Descend::Enter {
            match read_part(part, end, read) {
                Ok(chunks) => visit(ChunkVisit::Chunks(Ok(&chunks)))?,
                Err(error) => visit(ChunkVisit::Chunks(Err(error)))?,
            };
        }
    }
    Ok(())
}

fn read_part(
    part: &PartRef,
    end: ListEnd,
    read: &ReadObject<'_>,
) -> Result<Vec<BlobRef>, StoreError> {
    let (id, kind) = (part.id.object(), ObjectKind::ListPart);
    chunk_list::decode_part(Some(part.bytes), end, &read(&id, kind)?)
        .map_err(|source| StoreError::Object { id, kind, source })
}

/// The parts of chunk lists that a walk has entered, each with the length that a list states. A walk
/// enters each part once: a short list may name the same part many times. A part that was sound in the
/// middle of a content is also sound at its end.
#[derive(Debug, Default)]
pub struct EnteredParts(HashSet<(ListPartId, u64, ListEnd)>);

impl EnteredParts {
    /// Returns whether to enter a part that a list names.
    pub fn enter(&mut self, part: &PartRef, end: ListEnd) -> Descend {
        let was_in_the_middle = self.0.contains(&(part.id, part.bytes, ListEnd::Part));
        match was_in_the_middle || !self.0.insert((part.id, part.bytes, end)) {
            true => Descend::Skip,
            false => Descend::Enter,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{
        base::limits,
        format::chunk_list::{ListBuilder, ZERO_CHUNK},
    };

    #[test]
    fn a_long_chunk_list_is_walked_one_part_at_a_time() {
        let (count, entries) = (3 * limits::CHUNK_LIST_ENTRIES + 5, limits::CHUNK_LIST_ENTRIES);
        let (mut list, mut objects) = (ListBuilder::default(), Vec::new());
        for _ in 0..count {
            objects.extend(list.push(ZERO_CHUNK).unwrap());
        }
        let (id, rest) = list.finish().unwrap();
        objects.extend(rest);
        let crate::base::id::ContentId::Chunked(id) = id else { panic!("{id}") };
        let reads = Cell::new(0);
        let read = |wanted: &ObjectId, _| {
            reads.set(reads.get() + 1);
            let found = objects.iter().find(|object| object.id == *wanted);
            Ok(found.unwrap().bytes.clone())
        };
        let (mut most, mut chunks) = (0, 0);
        let total = walk_chunks(&id, &read, &mut |visit| {
            if let ChunkVisit::Chunks(some) = visit {
                let some = some?;
                (most, chunks) = (most.max(some.len()), chunks + some.len());
            }
            Ok::<_, StoreError>(Descend::Enter)
        });
        assert_eq!(total.unwrap(), count as u64 * u64::from(ZERO_CHUNK.bytes));
        assert_eq!((most, chunks, reads.get()), (entries, count, 5));
        // A walk enters equal parts once.
        reads.set(0);
        let mut entered = EnteredParts::default();
        let walked = walk_chunks::<StoreError>(&id, &read, &mut |visit| match visit {
            ChunkVisit::Part(part, end) => Ok(entered.enter(part, end)),
            ChunkVisit::Chunks(_) => Ok(Descend::Enter),
        });
        assert_eq!((walked.is_ok(), reads.get()), (true, 3));
        // An error from the callback ends the walk early.
        reads.set(0);
        let stopped = walk_chunks(&id, &read, &mut |visit| match visit {
            ChunkVisit::Chunks(_) => {
                Err(StoreError::Missing { id: id.object(), wanted: ObjectKind::Blob })
            }
            ChunkVisit::Part(..) => Ok(Descend::Enter),
        });
        assert_eq!((stopped.is_err(), reads.get()), (true, 2));
    }
}
