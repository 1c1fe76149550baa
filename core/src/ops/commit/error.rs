//! Errors of a commit.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{
    base::{blocked::Blocked, io::PathError, kind::Kind, name::EntryName},
    format::wire::FormatError,
    local::ignore::PatternError,
    ops::{
        commit::{BehindBranch, SourceLayout, commit_base::branch_or_head},
        reach::ReachError,
    },
    repo::{ref_name::RefName, refs::RefError},
    store::StoreError,
};

/// The reason why a commit failed.
#[derive(Debug, thiserror::Error, Kind)]
#[kind(Invalid)]
#[non_exhaustive]
pub enum CommitError {
    /// A source cannot be read.
    #[error("cannot read {}", path.display())]
    Source { path: PathBuf, source: io::Error },
    /// Two sources have the same path in the snapshot, or one lies in the other.
    #[error("{} and {} have the same path in the snapshot", first.display(), second.display())]
    Overlap { first: PathBuf, second: PathBuf },
    /// The ignore rules exclude a path that the user named.
    #[error("{} is excluded by the ignore rules", path.display())]
    Excluded { path: PathBuf },
    /// A path that the user named lies outside the scope of a partial clone and does not
    /// exist here.
    #[error("{} is outside the paths of this partial clone", path.display())]
    OutOfScope { path: PathBuf },
    /// An interrupted restore left this folder without its attributes.
    #[error("{} was left unfinished by an interrupted restore", path.display())]
    #[kind(Exists)]
    Unfinished { path: PathBuf },
    /// The ignore files above the paths of a partial clone are unknown, because no commit that
    /// contains them can be read.
    #[error("the ignore rules of this partial clone are unknown: its last commits cannot be read")]
    #[kind(Damaged)]
    UnknownRules,
    /// The path holds a file where the last commit has an unfetched folder, or a folder where it
    /// has an unfetched file. `noun` names the kind in the commit.
    #[error(
        "{} would replace a {noun} of the last commit that this partial clone fetched only in part",
        path.display()
    )]
    OverUnfetched { path: PathBuf, noun: &'static str },
    /// The branch has commits that the project's files do not contain.
    #[error("{0}")]
    #[kind(Exists)]
    Behind(Box<BehindBranch>),
    /// The last commit of the branch has other sources. An empty list means the project's files.
    #[error(
        "branch `{}` holds snapshots of {}, not of {}",
        branch.short(),
        shown_sources(before),
        shown_sources(now)
    )]
    #[kind(Exists)]
    OtherSources { branch: RefName, before: Vec<Box<[u8]>>, now: Vec<Box<[u8]>> },
    /// The last commit has its sources at other places.
    #[error(
        "branch `{}` has {}, and this commit would have {}",
        branch.short(),
        shown_layout(*before),
        shown_layout(match before {
            SourceLayout::Top => SourceLayout::Absolute,
            SourceLayout::Absolute => SourceLayout::Top,
        })
    )]
    #[kind(Exists)]
    OtherLayout { branch: RefName, before: SourceLayout },
    /// A pattern cannot be parsed.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The stream could not be read.
    #[error("cannot read the stream")]
    Stream(#[source] io::Error),
    /// The stream is empty.
    #[error("the stream for {} is empty", Path::new(name.as_os_str()).display())]
    #[kind(Unavailable)]
    EmptyStream { name: EntryName },
    /// The last commit has a folder with the name of the stream.
    #[error("the stream would replace {}, a folder in the last commit", Path::new(name.as_os_str()).display())]
    StreamOverFolder { name: EntryName },
    /// The commit object is larger than the limit.
    #[error(
        "the commit is {bytes} bytes (message, labels, patterns and sources); the limit is {limit}"
    )]
    TooLarge { bytes: usize, limit: usize },
    /// The commit has more labels than a reader accepts.
    #[error("the commit has {count} labels; the limit is {limit}")]
    TooManyLabels { count: usize, limit: usize },
    /// The commit has more sets of exclude rules than a reader accepts. A commit that keeps paths
    /// of its parent keeps the parent's rules, too.
    #[error("the commit has {count} sets of exclude rules; the limit is {limit}")]
    TooManyRules { count: usize, limit: usize },
    /// The previous commit is missing or damaged. `branch` is `None` for a detached `HEAD`.
    #[error("the last commit of {} cannot be read", branch_or_head(branch.as_ref()))]
    #[kind(Damaged)]
    Parent { branch: Option<RefName>, source: Box<StoreError> },
    /// Some objects that the commit keeps from the previous one are missing in the store.
    #[error("the store lacks objects of the last commit outside the named paths")]
    #[kind(Damaged)]
    Incomplete(#[source] Box<ReachError>),
    /// A reader would refuse the encoded commit.
    #[error("the commit cannot be stored")]
    #[kind(Invalid)]
    Unreadable(#[source] FormatError),
    /// A rewrite has purged the content of this path in the snapshot.
    #[error("`{path}` has a content that `snap rewrite` removed from history")]
    #[kind(Refused)]
    Purged { path: String },
    /// Other processes kept moving the branch.
    #[error("branch `{}` was moved by other commits {tries} times in a row", name.short())]
    #[kind(Locked)]
    Contended { name: RefName, tries: usize },
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
    #[kind(Unavailable)]
    Threads(#[source] rayon::ThreadPoolBuildError),
    /// The operation stopped early.
    #[error(transparent)]
    Blocked(#[from] Blocked),
}

impl From<ReachError> for CommitError {
    fn from(error: ReachError) -> Self {
        match error {
            ReachError::Blocked(blocked) => blocked.into(),
            error => Self::Incomplete(Box::new(error)),
        }
    }
}

impl CommitError {
    /// Returns true if a garbage collection has deleted objects on which the commit relied.
    pub(super) fn is_collected(&self) -> bool {
        matches!(self, Self::Store(StoreError::Collected) | Self::Ref(RefError::Collected { .. }))
    }
}

fn shown_layout(layout: SourceLayout) -> &'static str {
    match layout {
        SourceLayout::Top => "the content of one source at the top",
        SourceLayout::Absolute => "each source at its absolute path",
    }
}

/// Returns a description of sources for messages.
pub(super) fn shown_sources(sources: &[Box<[u8]>]) -> String {
    match sources {
        [] => "this project's own files".to_owned(),
        [one] => String::from_utf8_lossy(one).into_owned(),
        [first, more @ ..] => {
            format!("{} and {} more", String::from_utf8_lossy(first), more.len())
        }
    }
}
