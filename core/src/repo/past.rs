//! Errors of a walk through history.

use crate::{
    base::{blocked::Blocked, id::CommitId, kind::Kind, limits},
    local::pattern::PatternCost,
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
    /// A pattern is invalid. The error quotes its start.
    #[error("`{pattern}` is not a valid pattern")]
    #[kind(Invalid)]
    Pattern { pattern: String, source: PatternProblem },
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

/// Why a pattern is invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PatternProblem {
    /// The glob has a syntax error.
    #[error(transparent)]
    Glob(#[from] globset::Error),
    /// The glob is not UTF-8.
    #[error("it contains a wildcard or backslash and is not UTF-8")]
    NotText,
    /// The pattern is empty.
    #[error("it is empty")]
    Empty,
    /// The pattern has more components than one search supports.
    #[error("it has more than {limit} parts")]
    TooLong { limit: usize },
    /// The pattern has too many bytes or wildcards.
    #[error(transparent)]
    Cost(#[from] PatternCost),
    /// The braces of the pattern are nested deeper than [`limits::PATTERN_BRACES`].
    #[error("its braces are nested deeper than {} levels", limits::PATTERN_BRACES)]
    Braces,
    /// The pattern contains `..`, so it matches no path in a snapshot.
    #[error("it contains `..`")]
    Climbs,
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
