//! `archive`: makes a bundle of a folder, without a store.
//!
//! The folder is committed to a scratch store, whose packs then become the bundle.

use std::{io::Write, path::Path};

use crate::{
    base::{blocked::Blocked, observe::Observer},
    format::bundle::BundleHead,
    ops::{
        bundle::{Error, pack, temporary_store},
        commit::{self, CommitError, CommitSource},
    },
    repo::Config,
};

/// The result of an archive operation.
#[derive(Clone, Debug, Default)]
pub struct ArchiveOutcome {
    /// The result of the commit.
    pub commit: commit::CommitOutcome,
    /// Length of the bundle in bytes.
    pub file_bytes: u64,
}

/// Writes a bundle of `source` to `out`. Creates a temporary folder in `scratch`, which takes as
/// much space as the bundle.
///
/// # Errors
/// [`Error`]. The bytes written before the error are useless.
pub fn run(
    source: CommitSource<'_>,
    options: &commit::CommitOptions,
    config: &Config,
    scratch: &Path,
    out: impl Write + Send,
    observer: &dyn Observer,
) -> Result<ArchiveOutcome, Error> {
    let (_scratch, repo) = temporary_store(config, scratch, observer)?;
    let made = commit::run(&repo, source, options, observer)?;
    let id = made.id.ok_or(CommitError::Blocked(Blocked::Interrupted))?;
    let store = repo.store();
    let (objects, raw_bytes) = (made.added.objects, made.added.raw_bytes);
    let head = BundleHead { commit: id, objects, raw_bytes, prerequisites: Vec::new() };
    let packs: Vec<_> = store.packs().into_iter().map(|id| (store, id)).collect();
    let file_bytes = pack::write(&head, &packs, out, observer)?;
    Ok(ArchiveOutcome { commit: made, file_bytes })
}
