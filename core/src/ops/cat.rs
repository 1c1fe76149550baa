//! `cat`: writes the content of one file to a writer.
//!
//! Each chunk is verified against its id before it is written. Whether the chunks make up the
//! requested content is known only at the end. A wrong chunk list is therefore reported after the
//! bytes of its chunks were written.

use std::io::{self, Write};

use crate::{
    base::{id::BlobId, kind::ErrorKind, observe::Observer},
    format::{chunk_list::BlobRef, pack::ObjectKind},
    store::{ContentLayout, Store, StoreError},
};

/// Totals of the operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CatOutcome {
    /// Bytes that were written.
    pub bytes: u64,
}

/// The reason why a content was not written completely.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatError {
    /// The content cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The chunks are sound, but they are not the chunks of this content.
    #[error("content {wanted} is damaged: its chunks hash to {actual:.12}")]
    Damaged {
        /// The id of the requested content.
        wanted: BlobId,
        /// The hash of the chunks.
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
    /// Classifies the error for the caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Store(error) => error.kind(),
            Self::Damaged { .. } => ErrorKind::Damaged,
            Self::Output(source) => ErrorKind::of_io(source),
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }
}

/// Writes the content `id` to `out`. Holds one chunk in memory at a time.
///
/// # Errors
/// [`CatError`]. The bytes written before the error are verified chunks, but not the
/// whole content.
pub fn run(
    store: &Store,
    id: &BlobId,
    out: &mut dyn Write,
    observer: &dyn Observer,
) -> Result<CatOutcome, CatError> {
    store.prefetch_contents(&mut std::iter::once(*id));
    let outcome = match store.content(id)? {
        ContentLayout::Whole(_) => {
            let content = store.object(&id.object(), ObjectKind::Blob)?;
            out.write_all(&content)?;
            CatOutcome { bytes: content.len() as u64 }
        }
        ContentLayout::Chunks(pieces) => write_chunks(store, id, &pieces, (out, observer))?,
    };
    store.report_repairs(observer);
    Ok(outcome)
}

fn write_chunks(
    store: &Store,
    wanted: &BlobId,
    pieces: &[BlobRef],
    (out, observer): (&mut dyn Write, &dyn Observer),
) -> Result<CatOutcome, CatError> {
    let mut whole = blake3::Hasher::new();
    let mut outcome = CatOutcome::default();
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
