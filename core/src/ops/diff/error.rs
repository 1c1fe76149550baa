//! Errors of a comparison.

use std::{io, path::PathBuf};

use crate::{
    base::{blocked::Blocked, kind::Kind, limits},
    local::ignore::PatternError,
    store::StoreError,
};

/// The reason why a comparison ended early.
#[derive(Debug, thiserror::Error, Kind)]
#[non_exhaustive]
pub enum DiffError {
    /// Folders are nested deeper than [`limits::DEPTH`].
    #[error("`{path}` is nested deeper than {} folders", limits::DEPTH)]
    #[kind(Damaged)]
    TooDeep { path: String },
    /// A tree cannot be read.
    #[error("cannot compare `{path}`")]
    Tree { path: String, source: Box<StoreError> },
    /// An ignore file of the snapshot that a partial clone did not fetch cannot be read.
    #[error("cannot read an ignore file above the paths of this partial clone")]
    IgnoreFile { source: Box<StoreError> },
    /// The compared folder cannot be read.
    #[error("cannot read {}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    /// A pattern cannot be parsed.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The receiver of the changes returned an error.
    #[error("cannot write the changes")]
    Output(#[from] io::Error),
    /// The operation stopped early.
    #[error(transparent)]
    Blocked(#[from] Blocked),
}

impl DiffError {
    pub(super) fn tree(path: &[u8], error: StoreError) -> Self {
        let path = shown(path);
        match error {
            StoreError::TooDeep { .. } => Self::TooDeep { path },
            source => Self::Tree { path, source: Box::new(source) },
        }
    }
}

/// Returns a path for messages; the root is shown as a dot.
fn shown(path: &[u8]) -> String {
    if path.is_empty() { ".".to_owned() } else { String::from_utf8_lossy(path).into_owned() }
}
