//! Bundles: files that carry a commit with everything it refers to, or only the objects
//! that a receiver lacks.
//!
//! | module      | what                                                      |
//! |-------------|-----------------------------------------------------------|
//! | [`pack`]    | a bundle from a store                                     |
//! | [`unpack`]  | a bundle into a store                                     |
//! | [`archive`] | a bundle from a folder, without a store                   |
//!
//! Packs are copied between store and bundle unchanged.
//! [`BundleStore`](crate::store::BundleStore) reads a bundle in place.

pub mod archive;
pub mod pack;
pub mod unpack;

use std::path::Path;

use crate::{
    base::{blocked::Blocked, id::CommitId, io::PathError, kind::Kind, limits, observe::Observer},
    disk::{Disk, scratch::Scratch},
    ops::{commit::CommitError, reach::ReachError},
    repo::{Config, Repo, RepoError},
    store::{BundleError, StoreError},
};

/// The reason why a bundle could not be written or unpacked.
#[derive(Debug, thiserror::Error, Kind)]
#[kind(Invalid)]
#[non_exhaustive]
pub enum Error {
    /// The bundle or its file is invalid.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The store lacks commits that the bundle requires.
    #[error("the store lacks prerequisites of the bundle: {}", listed(.missing))]
    #[kind(NotFound)]
    Prerequisites { missing: Vec<CommitId> },
    /// The bundle lacks an object that its commit refers to, or has an invalid one.
    #[error("the bundle is incomplete: commit {commit:.12} cannot be read completely")]
    #[kind(Damaged)]
    Broken { commit: CommitId, source: Box<ReachError> },
    /// An object in the bundle is not what its id says.
    #[error("the bundle is damaged")]
    #[kind(Damaged)]
    Damaged(#[source] StoreError),
    /// The check would read more bytes than allowed.
    #[error("verifying the bundle would read {found} bytes; the limit is {most}")]
    TooMuch { found: u64, most: u64 },
    /// The chunk lists name more chunks than [`limits::NAMED_CHUNKS`].
    #[error(
        "the chunk lists of the bundle name {found} chunks; the limit is {}",
        limits::NAMED_CHUNKS
    )]
    TooManyChunks { found: u64 },
    /// The store lacks an object that the commit refers to.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// The folder could not be committed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The scratch store could not be created.
    #[error(transparent)]
    Repo(#[from] RepoError),
    /// The store could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] PathError),
    /// The operation stopped early.
    #[error(transparent)]
    Blocked(#[from] Blocked),
}

/// Maximum number of ids that a message lists.
const LISTED: usize = 16;

fn listed(ids: &[CommitId]) -> String {
    let shown: Vec<String> = ids.iter().take(LISTED).map(ToString::to_string).collect();
    let more = ids.len().saturating_sub(LISTED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("commits {}{rest}", shown.join(", "))
}

/// Creates an empty store in a temporary folder in `scratch`. The folder is deleted on drop.
fn temporary_store(
    config: &Config,
    scratch: &Path,
    observer: &dyn Observer,
) -> Result<(Scratch, Repo), Error> {
    let scratch = Scratch::create(scratch)?;
    let disk = Disk::scratch();
    let dir = scratch.path().join("store");
    Repo::init(&dir, &disk, config)?;
    let repo = Repo::open(&dir, disk, observer)?;
    Ok((scratch, repo))
}
