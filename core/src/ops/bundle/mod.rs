//! Bundles: one file that carries a commit with all it refers to, or only
//! what others lack.
//!
//! | module      | what                                                      |
//! |-------------|-----------------------------------------------------------|
//! | [`pack`]    | a bundle from a store                                     |
//! | [`unpack`]  | a bundle into a store                                     |
//! | [`archive`] | a bundle from a folder, without a store                   |
//!
//! Packs go from store to bundle and back as they are. A bundle is read in
//! place by [`BundleStore`](crate::store::BundleStore).

pub mod archive;
pub mod pack;
pub mod unpack;

use crate::{
    base::{id::CommitId, io::PathError, kind::ErrorKind},
    ops::{commit::CommitError, reach::ReachError, select::SelectError},
    repo::RepoError,
    store::{BundleError, StoreError},
};

/// Why a bundle could not be made or taken in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bundle, or its file, is not as it should be.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The store lacks what the bundle builds on.
    #[error("the store lacks what the bundle builds on: {}", listed(.missing))]
    Prerequisites {
        /// The commits that are missing.
        missing: Vec<CommitId>,
    },
    /// The bundle lacks an object that its commit refers to, or has one that
    /// is not as it should be.
    #[error("the bundle is not complete: commit {commit:.12} cannot be read from it")]
    Broken {
        /// The commit that the bundle is about.
        commit: CommitId,
        /// What is missing or wrong.
        source: Box<ReachError>,
    },
    /// An object in the bundle is not what its id says.
    #[error("the bundle is damaged")]
    Damaged(#[source] StoreError),
    /// It stands for more than is to be read.
    #[error("to check the bundle takes {found} bytes, and {most} are allowed")]
    TooMuch {
        /// What it takes.
        found: u64,
        /// What is allowed.
        most: u64,
    },
    /// The store lacks an object that the commit refers to.
    #[error(transparent)]
    Reach(ReachError),
    /// A commit could not be made of the folder.
    #[error(transparent)]
    Commit(Box<CommitError>),
    /// The scratch store could not be made.
    #[error(transparent)]
    Repo(Box<RepoError>),
    /// The store could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] PathError),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// Most ids in one message.
const LISTED: usize = 16;

fn listed(ids: &[CommitId]) -> String {
    let shown: Vec<String> = ids.iter().take(LISTED).map(ToString::to_string).collect();
    let more = ids.len().saturating_sub(LISTED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("commits {}{rest}", shown.join(", "))
}

impl Error {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Bundle(error) => error.kind(),
            Self::Prerequisites { .. } => ErrorKind::NotFound,
            Self::Broken { .. } | Self::Damaged(_) => ErrorKind::Damaged,
            Self::TooMuch { .. } => ErrorKind::Invalid,
            Self::Reach(error) => error.kind(),
            Self::Commit(error) => error.kind(),
            Self::Repo(error) => error.kind(),
            Self::Store(error) => error.kind(),
            Self::Io(error) => error.kind(),
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }
}

impl From<CommitError> for Error {
    fn from(error: CommitError) -> Self {
        Self::Commit(Box::new(error))
    }
}

impl From<RepoError> for Error {
    fn from(error: RepoError) -> Self {
        Self::Repo(Box::new(error))
    }
}

impl From<ReachError> for Error {
    fn from(error: ReachError) -> Self {
        match error {
            ReachError::Interrupted => Self::Interrupted,
            other => Self::Reach(other),
        }
    }
}

impl From<SelectError> for Error {
    fn from(error: SelectError) -> Self {
        match error {
            SelectError::Reach(error) => error.into(),
            SelectError::Store(error) => error.into(),
            SelectError::Io(error) => error.into(),
        }
    }
}
