//! Streams a large content. Frames are decompressed ahead, and the content is verified as
//! a whole.
//!
//! One thread decompresses frames ahead of the caller's thread, which consumes them.
//! Consecutive chunks in one frame cost one decompression. The chunk list is not trusted:
//! the hash over all chunks must be the content's id, which is known only at the end.

use std::sync::{
    Arc,
    mpsc::{Receiver, SyncSender, sync_channel},
};

use crate::{
    base::id::{BlobId, ObjectId},
    format::{chunk_list::BlobRef, pack::ObjectKind, wire::FormatError},
    store::{ContentLayout, ObjectLocation, Store, StoreError},
};

/// The length of the queue of decompressed frames. One more frame is being decompressed
/// and one is being consumed.
const FRAMES_AHEAD: usize = 2;

/// A decompressed frame, and the ranges in it that are the next chunks of the content.
pub(super) struct ChunkRun {
    frame: Arc<Vec<u8>>,
    pieces: Vec<(usize, usize)>,
}

impl ChunkRun {
    /// Iterates over the next bytes of the content, one chunk at a time.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(|&(start, end)| &self.frame[start..end])
    }
}

/// The reason why a stream ended early.
pub(super) enum StreamError<E> {
    /// The content is damaged or cannot be read.
    Damage(StoreError),
    /// The callback returned an error.
    Callback(E),
}

/// Passes the content `id` of `size` bytes to `each`, in order. The content is verified
/// only if this returns `Ok`.
pub(super) fn stream<E>(
    store: &Store,
    id: &BlobId,
    size: u64,
    each: &mut dyn FnMut(&ChunkRun) -> Result<(), E>,
) -> Result<(), StreamError<E>> {
    let chunks = match store.content(id).map_err(StreamError::Damage)? {
        ContentLayout::Chunks(chunks) => chunks,
        ContentLayout::Whole(place) => vec![BlobRef { id: *id, bytes: place.bytes }],
    };
    if chunks.iter().map(|chunk| u64::from(chunk.bytes)).sum::<u64>() != size {
        return Err(StreamError::Damage(wrong_list(id.object())));
    }
    let actual = std::thread::scope(|scope| {
        let (sender, runs) = sync_channel(FRAMES_AHEAD);
        scope.spawn(|| read_ahead(store, &chunks, sender));
        take(runs, each)
    })?;
    if actual == *id { Ok(()) } else { Err(StreamError::Damage(diagnose(store, id, &chunks))) }
}

fn take<E>(
    runs: Receiver<Result<ChunkRun, StoreError>>,
    each: &mut dyn FnMut(&ChunkRun) -> Result<(), E>,
) -> Result<BlobId, StreamError<E>> {
    let mut hasher = blake3::Hasher::new();
    for run in runs {
        let run = run.map_err(StreamError::Damage)?;
        run.pieces().for_each(|piece| {
            hasher.update(piece);
        });
        each(&run).map_err(StreamError::Callback)?;
    }
    Ok(BlobId::from_bytes(*hasher.finalize().as_bytes()))
}

/// Decompresses the frames of `chunks` in order. Ends early if the receiver is gone.
fn read_ahead(store: &Store, chunks: &[BlobRef], sender: SyncSender<Result<ChunkRun, StoreError>>) {
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

/// Returns the run of chunks at the start of `chunks` that lie in one frame, and their
/// number.
fn next_run(store: &Store, chunks: &[BlobRef]) -> Result<(ChunkRun, usize), StoreError> {
    let first = place_of(store, &chunks[0])?;
    let frame = match store.frame(&first) {
        Err(error) if !error.is_elsewhere() || store.route_around_damage(&error) => {
            // The frame is damaged, or was merged into another pack meanwhile. `object`
            // tries every copy of the chunk.
            let bytes = store.object(&chunks[0].id.object(), ObjectKind::Blob)?;
            let pieces = vec![(0, bytes.len())];
            return Ok((ChunkRun { frame: Arc::new(bytes), pieces }, 1));
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
    Ok((ChunkRun { frame, pieces }, taken))
}

fn place_of(store: &Store, chunk: &BlobRef) -> Result<ObjectLocation, StoreError> {
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

/// Finds the chunk that makes the whole content hash to something else.
fn diagnose(store: &Store, id: &BlobId, chunks: &[BlobRef]) -> StoreError {
    let damaged = |chunk: &BlobRef| store.object(&chunk.id.object(), ObjectKind::Blob).err();
    chunks.iter().find_map(damaged).unwrap_or_else(|| wrong_list(id.object()))
}

/// The error for a chunk list that does not match its content.
fn wrong_list(id: ObjectId) -> StoreError {
    let source = FormatError::Invalid { what: "chunk list", at: 0 };
    StoreError::Object { id, kind: ObjectKind::ChunkList, source }
}
