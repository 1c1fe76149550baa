//! `cat`: the content of one file, in order, to a writer.
//!
//! Each chunk is checked against its id before it is written. That the chunks
//! amount to the content that was asked for is only known at the end, so a
//! chunk list that lies is an error after bytes that are themselves genuine.

use std::io::{self, Write};

use crate::{
    base::{id::BlobId, kind::ErrorKind, observe::Observer},
    format::{chunk_list::Piece, pack::ObjectKind},
    store::{Content, Store, StoreError},
};

/// How much was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes of the content.
    pub bytes: u64,
}

/// Why a content was not written to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatError {
    /// The content cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Chunks that are whole, but not those of this content.
    #[error("content {wanted} is damaged: its chunks hash to {actual:.12}")]
    Damaged {
        /// What was asked for.
        wanted: BlobId,
        /// What was found.
        actual: BlobId,
    },
    /// The writer failed.
    #[error("cannot write the content")]
    Output(#[from] io::Error),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl CatError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Store(error) => error.kind(),
            Self::Damaged { .. } => ErrorKind::Damaged,
            Self::Output(source) => ErrorKind::of_io(source),
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }
}

/// Writes the content `id` to `out`, holding one chunk at a time.
///
/// # Errors
/// [`CatError`]; what was written before is genuine, but not all of it.
pub fn run(
    store: &Store,
    id: &BlobId,
    out: &mut dyn Write,
    observer: &dyn Observer,
) -> Result<Outcome, CatError> {
    store.will_need_contents(&mut std::iter::once(*id));
    let outcome = match store.content(id)? {
        Content::Whole(_) => {
            let content = store.object(&id.object(), ObjectKind::Blob)?;
            out.write_all(&content)?;
            Outcome { bytes: content.len() as u64 }
        }
        Content::Chunks(pieces) => write_chunks(store, id, &pieces, (out, observer))?,
    };
    store.tell_repairs(observer);
    Ok(outcome)
}

fn write_chunks(
    store: &Store,
    wanted: &BlobId,
    pieces: &[Piece],
    (out, observer): (&mut dyn Write, &dyn Observer),
) -> Result<Outcome, CatError> {
    let mut whole = blake3::Hasher::new();
    let mut outcome = Outcome::default();
    for piece in pieces {
        if observer.cancelled() {
            return Err(CatError::Interrupted);
        }
        let chunk = store.object(&piece.id.object(), ObjectKind::Blob)?;
        whole.update(&chunk);
        out.write_all(&chunk)?;
        outcome.bytes += chunk.len() as u64;
        observer.advance(chunk.len() as u64, 0);
    }
    let actual = BlobId::from_bytes(*whole.finalize().as_bytes());
    if actual == *wanted { Ok(outcome) } else { Err(CatError::Damaged { wanted: *wanted, actual }) }
}
