//! `archive`: make a bundle of a folder, without a store.
//!
//! A commit in a scratch store, whose packs then become the bundle.

use std::{io::Write, path::Path};

use crate::{
    base::observe::Observer,
    disk::{Disk, scratch::Scratch},
    format::bundle::Head,
    ops::{
        bundle::{Error, pack},
        commit::{self, CommitError, Source},
    },
    repo::{Config, Repo},
};

/// What happened.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The commit, and what was read.
    pub commit: commit::Outcome,
    /// Length of the bundle.
    pub file_bytes: u64,
}

/// Writes a bundle of `source` to `out`; `scratch` is where a folder may be
/// made that comes to hold as much as the bundle, and goes again.
///
/// # Errors
/// [`Error`]; what was written is then of no use.
pub fn run(
    source: Source<'_>,
    options: &commit::Options,
    (config, scratch): (&Config, &Path),
    out: impl Write,
    observer: &dyn Observer,
) -> Result<Outcome, Error> {
    let scratch = Scratch::create(scratch)?;
    let disk = Disk::scratch();
    let dir = scratch.path().join("store");
    Repo::init(&dir, &disk, config)?;
    let repo = Repo::open(&dir, disk, observer)?;
    let made = commit::run(&repo, source, options, observer)?;
    let id = made.id.ok_or(CommitError::Interrupted)?;
    let store = repo.store();
    let (objects, raw_bytes) = (made.added.objects, made.added.raw_bytes);
    let head = Head { commit: id, objects, raw_bytes, prerequisites: Vec::new() };
    let packs: Vec<_> = store.packs().into_iter().map(|id| (store, id)).collect();
    let file_bytes = pack::write(&head, &packs, out, observer)?;
    Ok(Outcome { commit: made, file_bytes })
}
