//! `cat`: writes the content of one file to a writer.
//!
//! The chunk list is verified against its id before it is used, and each chunk before it is written.

use std::io::{self, Write};

use crate::{
    base::{blocked::Blocked, id::ContentId, kind::Kind, observe::Observer},
    store::{ContentReader, Store, StoreError},
};

/// Totals of the operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CatOutcome {
    /// Bytes that were written.
    pub bytes: u64,
}

/// The reason why a content was not written completely.
#[derive(Debug, thiserror::Error, Kind)]
#[non_exhaustive]
pub enum CatError {
    /// The content cannot be read, or is damaged.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The writer failed.
    #[error("cannot write the content")]
    Output(#[from] io::Error),
    /// The operation stopped early.
    #[error(transparent)]
    Blocked(#[from] Blocked),
}

/// Writes the content `id` to `out`. Fails if its length differs from `stated`, the length in the entry
/// of a file. Holds one chunk in memory at a time.
///
/// # Errors
/// [`CatError`]. The bytes written before the error are verified chunks, but not the
/// whole content.
pub fn run(
    store: &Store,
    id: &ContentId,
    stated: Option<u64>,
    out: &mut dyn Write,
    observer: &dyn Observer,
) -> Result<CatOutcome, CatError> {
    store.prefetch_contents(&mut std::iter::once(*id));
    let bytes =
        ContentReader::new(store).read::<CatError>(id, stated, 0..u64::MAX, &mut |chunk| {
            observer.check()?;
            out.write_all(chunk)?;
            observer.advance(chunk.len() as u64, 0);
            Ok(())
        })?;
    store.report_repairs(observer);
    Ok(CatOutcome { bytes })
}
