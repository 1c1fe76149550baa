//! Why there is no commit.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{
    base::{io::PathError, kind::ErrorKind, name::EntryName},
    chunk::ParamsError,
    format::wire::FormatError,
    local::ignore::PatternError,
    ops::{
        commit::{Behind, ground::branch_or_head},
        reach::ReachError,
    },
    repo::{ref_name::RefName, refs::RefError},
    store::StoreError,
};

/// Why there is no commit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// What is to be committed cannot be read.
    #[error("cannot read {}", path.display())]
    Source {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Two sources have one place in the snapshot, or one lies in another.
    #[error("{} and {} have the same place in the snapshot", first.display(), second.display())]
    Overlap {
        /// One.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// A path that was named is left out by the ignore rules.
    #[error("{} is left out by the ignore rules", path.display())]
    Excluded {
        /// Which.
        path: PathBuf,
    },
    /// The branch has commits that the project's files do not contain.
    #[error("{0}")]
    Behind(Box<Behind>),
    /// The last commit of the branch has other sources.
    #[error(
        "branch `{}` is of {}, not of {}",
        branch.short(),
        shown_sources(before),
        shown_sources(now)
    )]
    OtherSources {
        /// The branch.
        branch: RefName,
        /// Its sources; none are the project's own files.
        before: Vec<Box<[u8]>>,
        /// Those of this commit.
        now: Vec<Box<[u8]>>,
    },
    /// A pattern cannot be parsed.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The store's chunk sizes are unusable.
    #[error("the store's chunk sizes are unusable")]
    Chunk(#[source] ParamsError),
    /// The stream could not be read.
    #[error("cannot read the stream")]
    Stream(#[source] io::Error),
    /// The branch has a folder of the name that the stream is to have.
    #[error("{} is a folder in the last commit, and the stream would replace it", Path::new(name.as_os_str()).display())]
    StreamOverFolder {
        /// The name.
        name: EntryName,
    },
    /// The commit itself is too large to be stored.
    #[error("message, labels, patterns and sources come to {bytes} bytes, more than {limit}")]
    TooLarge {
        /// What they come to.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
    /// A reader would refuse a commit of so many labels.
    #[error("{count} labels are more than {limit}")]
    TooManyLabels {
        /// How many there are.
        count: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// More sets of exclude rules than a reader accepts: a commit that keeps
    /// paths of its parent keeps the parent's rules, too.
    #[error("{count} sets of exclude rules in one commit are more than {limit}")]
    TooManyRules {
        /// How many there are.
        count: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// The commit before is lost or damaged.
    #[error("the last commit of {} cannot be read", branch_or_head(branch.as_ref()))]
    Parent {
        /// The branch; `None` for a detached `HEAD`.
        branch: Option<RefName>,
        /// Why it cannot be read.
        source: Box<StoreError>,
    },
    /// What the commit would keep of the commit before is not all in the store.
    #[error("what the last commit has besides the named paths is not all in the store")]
    Incomplete(#[source] Box<ReachError>),
    /// A reader would refuse the commit.
    #[error("the commit cannot be stored")]
    Unreadable(#[source] FormatError),
    /// Others kept moving the branch.
    #[error("branch `{}` kept moving, {tries} times", name.short())]
    Contended {
        /// Which.
        name: RefName,
        /// How often it was tried.
        tries: usize,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A ref could not be read or moved.
    #[error(transparent)]
    Ref(#[from] RefError),
    /// A folder could not be read.
    #[error(transparent)]
    Io(#[from] PathError),
    /// Threads could not be started.
    #[error("cannot start worker threads")]
    Threads(#[source] rayon::ThreadPoolBuildError),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl CommitError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Source { source, .. } | Self::Stream(source) => ErrorKind::of_io(source),
            Self::Overlap { .. }
            | Self::Excluded { .. }
            | Self::StreamOverFolder { .. }
            | Self::Pattern(_)
            | Self::Chunk(_)
            | Self::TooLarge { .. }
            | Self::Unreadable(_)
            | Self::TooManyRules { .. }
            | Self::TooManyLabels { .. } => ErrorKind::Invalid,
            Self::Parent { .. } | Self::Incomplete(_) => ErrorKind::Damaged,
            Self::Behind(_) | Self::OtherSources { .. } => ErrorKind::Exists,
            Self::Contended { .. } => ErrorKind::Locked,
            Self::Store(error) => error.kind(),
            Self::Ref(error) => error.kind(),
            Self::Io(error) => error.kind(),
            Self::Threads(_) => ErrorKind::Unavailable,
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }
}

/// Sources as people read them.
pub(super) fn shown_sources(sources: &[Box<[u8]>]) -> String {
    match sources {
        [] => "this project's own files".to_owned(),
        [one] => String::from_utf8_lossy(one).into_owned(),
        [first, more @ ..] => {
            format!("{} and {} more", String::from_utf8_lossy(first), more.len())
        }
    }
}
