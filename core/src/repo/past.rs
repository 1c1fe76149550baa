//! Errors of a walk through history.

use crate::{
    base::{blocked::Blocked, id::CommitId, kind::Kind, limits},
    local::ignore::PatternError,
    store::StoreError,
};

/// Why a walk through history ended early.
#[derive(Debug, thiserror::Error, Kind)]
#[non_exhaustive]
pub enum PastError {
    /// A folder, or the content of a file, cannot be read. The root is `/`; `commit` is one of the
    /// commits that contain the path.
    #[error("cannot read `{path}` in commit {commit:.12}")]
    Tree { path: String, commit: CommitId, source: Box<StoreError> },
    /// A folder is nested deeper than [`limits::DEPTH`].
    #[error("`{path}` in commit {commit:.12} is nested deeper than {} folders", limits::DEPTH)]
    #[kind(Damaged)]
    TooDeep { path: String, commit: CommitId },
    /// A pattern is invalid.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// No commit of the history contains any of these paths.
    #[error("no commit contains `{}`", paths.join("`, `"))]
    #[kind(NotFound)]
    NoSuchPath { paths: Vec<String> },
    /// A path contains `..`.
    #[error("`{path}` contains `..`")]
    #[kind(Invalid)]
    Climbs { path: String },
    /// A commit or the index cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The operation stopped early.
    #[error(transparent)]
    Blocked(#[from] Blocked),
}

impl PastError {
    /// Returns a closure for `map_err` that adds the path and the commit.
    pub fn at(path: &[u8], commit: CommitId) -> impl FnOnce(StoreError) -> Self {
        move |error| match error {
            StoreError::TooDeep { .. } => Self::TooDeep { path: shown(path), commit },
            source => Self::Tree { path: shown(path), commit, source: Box::new(source) },
        }
    }
}

/// Formats a path for a message.
pub(crate) fn shown(path: &[u8]) -> String {
    if path.is_empty() { "/".to_owned() } else { String::from_utf8_lossy(path).into_owned() }
}
