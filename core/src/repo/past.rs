//! Why a walk through history ended early.

use crate::{
    base::{id::CommitId, kind::ErrorKind, limits},
    store::StoreError,
};

/// Why a walk through history ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PastError {
    /// A tree cannot be read.
    #[error("cannot read `{path}` in commit {commit:.12}")]
    Tree {
        /// The folder, or the file whose content is missing; `/` is the top.
        path: String,
        /// A commit that has it.
        commit: CommitId,
        /// Why.
        source: Box<StoreError>,
    },
    /// Folders are nested deeper than [`limits::DEPTH`].
    #[error("`{path}` in commit {commit:.12} is nested deeper than {} folders", limits::DEPTH)]
    TooDeep {
        /// The folder that is too deep.
        path: String,
        /// A commit that has it.
        commit: CommitId,
    },
    /// A pattern that is none.
    #[error("`{pattern}` is not a valid pattern")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        source: PatternProblem,
    },
    /// No commit of the history has any of these paths.
    #[error("no commit here has `{}`", paths.join("`, `"))]
    NoSuchPath {
        /// The paths.
        paths: Vec<String>,
    },
    /// A path climbs.
    #[error("`{path}` contains `..`")]
    Climbs {
        /// The whole path.
        path: String,
    },
    /// A commit cannot be read, or the index.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// What is wrong with a pattern.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PatternProblem {
    /// The text of a glob breaks a rule.
    #[error(transparent)]
    Glob(#[from] globset::Error),
    /// A glob is text.
    #[error("it is not UTF-8, which only a name without * ? [ {{ \\ may be")]
    NotText,
    /// Nothing to look for.
    #[error("it names nothing")]
    Empty,
    /// More parts than can be looked for at once.
    #[error("it has more than {limit} parts")]
    TooLong {
        /// The most there may be.
        limit: usize,
    },
    /// A part that no path in a snapshot has.
    #[error("it contains `..`")]
    Climbs,
}

impl PastError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Tree { source, .. } => source.kind(),
            Self::TooDeep { .. } => ErrorKind::Damaged,
            Self::Pattern { .. } | Self::Climbs { .. } => ErrorKind::Invalid,
            Self::NoSuchPath { .. } => ErrorKind::NotFound,
            Self::Store(error) => error.kind(),
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }

    /// A closure for `map_err` that says where a tree could not be read.
    pub fn at(path: &[u8], commit: CommitId) -> impl FnOnce(StoreError) -> Self {
        move |error| Self::Tree { path: shown(path), commit, source: Box::new(error) }
    }
}

/// A path for a message.
pub(crate) fn shown(path: &[u8]) -> String {
    if path.is_empty() { "/".to_owned() } else { String::from_utf8_lossy(path).into_owned() }
}
