//! Errors of `forget`, `rewrite` and `gc`, which remove commits and objects.

use crate::{
    base::{
        blocked::Blocked,
        id::CommitId,
        io::PathError,
        kind::{ErrorKind, Kind},
    },
    local::ignore::PatternError,
    ops::forget::KeepReason,
    repo::{past::PastError, refs::RefError},
    store::StoreError,
};

/// Why nothing was removed: no commit is forgotten, no ref has moved, and no object is deleted.
#[derive(Debug, thiserror::Error, Kind)]
#[kind(Invalid)]
#[non_exhaustive]
pub enum RemovalError {
    /// An object that a ref needs is missing or damaged, or an object cannot be written.
    #[error(transparent)]
    #[kind(of_stored(_0))]
    Store(#[from] StoreError),
    /// A ref cannot be read or moved.
    #[error(transparent)]
    Ref(#[from] RefError),
    /// A folder of a commit cannot be read.
    #[error(transparent)]
    Past(#[from] PastError),
    /// A pattern of a rewrite cannot be parsed.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// No commit of the chosen branches and tags has such a path.
    #[error("no commit contains `{}`", patterns.join("`, `"))]
    #[kind(NotFound)]
    NoMatch { patterns: Vec<String> },
    /// The user named a commit that never goes.
    #[error("cannot forget commit {id:.12}: {reason}")]
    Protected { id: CommitId, reason: KeepReason },
    /// The policy keeps only the tips of branches.
    #[error("this policy keeps only the last commit of each branch")]
    OnlyTips,
    /// The operation stopped early.
    #[error(transparent)]
    Blocked(#[from] Blocked),
    /// A file operation failed.
    #[error(transparent)]
    Io(#[from] PathError),
}

/// The ids of objects come from the store itself.
fn of_stored(error: &StoreError) -> ErrorKind {
    match error {
        StoreError::Missing { .. } | StoreError::WrongKind { .. } => ErrorKind::Damaged,
        error => error.kind(),
    }
}

impl RemovalError {
    /// Returns true if the disk of the store is full.
    pub(super) fn is_full(&self) -> bool {
        match self {
            Self::Store(error) => error.is_full(),
            Self::Ref(RefError::Io(error)) | Self::Io(error) => error.is_full(),
            Self::Ref(RefError::Objects(error)) => error.is_full(),
            _ => false,
        }
    }
}
