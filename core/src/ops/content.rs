//! A large content as it goes by: expanded ahead of whoever takes it, checked
//! as a whole.
//!
//! One thread expands frames ahead, the caller's takes what is in them.
//! Consecutive chunks of one frame cost one expansion. The list of chunks is
//! not believed: the hash over all of them must be the content's id, which is
//! known at the end only.

use std::sync::{
    Arc,
    mpsc::{Receiver, SyncSender, sync_channel},
};

use crate::{
    base::id::{BlobId, ObjectId},
    format::{chunk_list::Piece, pack::ObjectKind, wire::FormatError},
    store::{Content, Place, Store, StoreError},
};

/// Frames that wait to be taken. One more is being expanded and one taken.
const FRAMES_AHEAD: usize = 2;

/// A frame, and where the next chunks of the content lie in it.
pub(super) struct Run {
    frame: Arc<Vec<u8>>,
    pieces: Vec<(usize, usize)>,
}

impl Run {
    /// The next bytes of the content, piece by piece.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(|&(start, end)| &self.frame[start..end])
    }
}

/// Why a content was not handed out to its end.
pub(super) enum Stop<E> {
    /// It is not what its id says, or cannot be read.
    Damage(StoreError),
    /// Whoever took it had enough.
    Taker(E),
}

/// Hands out the content `id` of `size` bytes, in order. Only after this has
/// come back well is it known to be right.
pub(super) fn stream<E>(
    store: &Store,
    id: &BlobId,
    size: u64,
    each: &mut dyn FnMut(&Run) -> Result<(), E>,
) -> Result<(), Stop<E>> {
    let chunks = match store.content(id).map_err(Stop::Damage)? {
        Content::Chunks(chunks) => chunks,
        Content::Whole(place) => vec![Piece { id: *id, bytes: place.bytes }],
    };
    if chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum::<u64>() != size {
        return Err(Stop::Damage(wrong_list(id.object())));
    }
    let actual = std::thread::scope(|scope| {
        let (sender, runs) = sync_channel(FRAMES_AHEAD);
        scope.spawn(|| read_ahead(store, &chunks, sender));
        take(runs, each)
    })?;
    if actual == *id { Ok(()) } else { Err(Stop::Damage(diagnose(store, id, &chunks))) }
}

fn take<E>(
    runs: Receiver<Result<Run, StoreError>>,
    each: &mut dyn FnMut(&Run) -> Result<(), E>,
) -> Result<BlobId, Stop<E>> {
    let mut hasher = blake3::Hasher::new();
    for run in runs {
        let run = run.map_err(Stop::Damage)?;
        run.pieces().for_each(|piece| {
            hasher.update(piece);
        });
        each(&run).map_err(Stop::Taker)?;
    }
    Ok(BlobId::from_bytes(*hasher.finalize().as_bytes()))
}

/// Expands the frames of `chunks` in order. Ends early when nobody listens.
fn read_ahead(store: &Store, chunks: &[Piece], sender: SyncSender<Result<Run, StoreError>>) {
    let mut rest = chunks;
    while !rest.is_empty() {
        let run = next_run(store, rest);
        let is_last = run.is_err();
        rest = run.as_ref().map_or(&[], |(_, taken)| &rest[*taken..]);
        if sender.send(run.map(|(run, _)| run)).is_err() || is_last {
            return;
        }
    }
}

/// The chunks at the start of `chunks` that lie in one frame, and how many.
fn next_run(store: &Store, chunks: &[Piece]) -> Result<(Run, usize), StoreError> {
    let first = place_of(store, &chunks[0])?;
    let frame = match store.frame(&first) {
        Err(error) if !error.is_elsewhere() => {
            // Damaged, or merged into another pack meanwhile: `object` tries
            // every place.
            let bytes = store.object(&chunks[0].id.object(), ObjectKind::Blob)?;
            let pieces = vec![(0, bytes.len())];
            return Ok((Run { frame: Arc::new(bytes), pieces }, 1));
        }
        frame => frame?,
    };
    let mut pieces = Vec::new();
    let mut place = first;
    loop {
        let start = place.offset as usize;
        let end = start + place.bytes as usize;
        if end > frame.len() {
            return Err(wrong_list(chunks[pieces.len()].id.object()));
        }
        pieces.push((start, end));
        match chunks.get(pieces.len()) {
            None => break,
            Some(next) => place = place_of(store, next)?,
        }
        if (place.pack, place.frame) != (first.pack, first.frame) {
            break;
        }
    }
    let taken = pieces.len();
    Ok((Run { frame, pieces }, taken))
}

fn place_of(store: &Store, chunk: &Piece) -> Result<Place, StoreError> {
    let (id, wanted) = (chunk.id.object(), ObjectKind::Blob);
    let place = store.locate(&id)?.ok_or(StoreError::Missing { id, wanted })?;
    if place.kind != wanted {
        return Err(StoreError::WrongKind { id, wanted, found: place.kind });
    }
    if place.bytes != chunk.bytes {
        return Err(wrong_list(id));
    }
    Ok(place)
}

/// Which chunk makes the whole hash to something else.
fn diagnose(store: &Store, id: &BlobId, chunks: &[Piece]) -> StoreError {
    let damaged = |chunk: &Piece| store.object(&chunk.id.object(), ObjectKind::Blob).err();
    chunks.iter().find_map(damaged).unwrap_or_else(|| wrong_list(id.object()))
}

/// A chunk list that does not amount to the content it stands for.
fn wrong_list(id: ObjectId) -> StoreError {
    let source = FormatError::Invalid { what: "chunk list", at: 0 };
    StoreError::Object { id, kind: ObjectKind::ChunkList, source }
}
