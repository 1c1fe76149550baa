//! Why a comparison ended early.

use std::{io, path::PathBuf};

use crate::{
    base::{kind::ErrorKind, limits},
    local::ignore::PatternError,
    store::StoreError,
};

/// Why a comparison ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiffError {
    /// Folders are nested deeper than [`limits::DEPTH`].
    #[error("`{path}` is nested deeper than {} folders", limits::DEPTH)]
    TooDeep {
        /// The folder that is too deep.
        path: String,
    },
    /// A tree cannot be read.
    #[error("cannot compare `{path}`")]
    Tree {
        /// The folder.
        path: String,
        /// Why.
        source: Box<StoreError>,
    },
    /// A node of a split directory is not where a writer puts one.
    #[error("the tree of `{path}` is damaged: its nodes are not in their places")]
    Levels {
        /// The folder.
        path: String,
    },
    /// The folder that is compared cannot be read.
    #[error("cannot read {}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A pattern cannot be parsed.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The receiver of the changes failed.
    #[error("cannot write the changes")]
    Output(#[from] io::Error),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl DiffError {
    pub(super) fn tree(path: &[u8], source: StoreError) -> Self {
        Self::Tree { path: shown(path), source: Box::new(source) }
    }

    pub(super) fn levels(path: &[u8]) -> Self {
        Self::Levels { path: shown(path) }
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::TooDeep { .. } | Self::Levels { .. } => ErrorKind::Damaged,
            Self::Tree { source, .. } => source.kind(),
            Self::Folder { source, .. } | Self::Output(source) => ErrorKind::of_io(source),
            Self::Pattern(_) => ErrorKind::Invalid,
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }
}

/// A path for a message; the root is a dot.
fn shown(path: &[u8]) -> String {
    if path.is_empty() { ".".to_owned() } else { String::from_utf8_lossy(path).into_owned() }
}
