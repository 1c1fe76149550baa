//! Why a store elsewhere could not be used.

use std::ops::Range;

use snap_core::{
    base::{id::CommitId, io::PathError, kind::ErrorKind},
    ops::{reach::ReachError, repair::RepairError, select::SelectError},
    repo::{RepoError, config::ConfigError, ref_name::RefName, refs::RefError},
    store::{BundleError, DistantError, StoreError},
};

use crate::{
    ranges::ReadError,
    service::{ServiceError, What},
};

/// Why a store elsewhere could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// A request failed.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// There is nothing, where a store is needed.
    #[error("there is no store at {location}")]
    NoStore {
        /// Where.
        location: String,
    },
    /// There is nothing any more, where a store was seen before.
    #[error("the store at {location} is gone: there is nothing where it was")]
    Emptied {
        /// Where.
        location: String,
    },
    /// It is the store that is to be pushed.
    #[error("the store at {location} cannot be pushed into itself")]
    Itself {
        /// Where.
        location: String,
    },
    /// There is something, and it is no store.
    #[error("there is no store at {location}, but something else: {key}")]
    NotAStore {
        /// Where.
        location: String,
        /// One of the keys that are there.
        key: String,
    },
    /// An object is in the listing, and cannot be found.
    #[error("{key} at {location} is listed, but not there")]
    Vanished {
        /// Which.
        key: String,
        /// Where.
        location: String,
    },
    /// Somebody else holds a ref, and does not let go of it.
    #[error(
        "{} `{}` at {location} is being moved by others all the time",
        name.kind().noun(),
        name.short()
    )]
    Held {
        /// Which.
        name: Box<RefName>,
        /// Where.
        location: String,
    },
    /// Its settings cannot be read, or a newer snap wrote them.
    #[error("the settings of the store at {location} cannot be used")]
    Config {
        /// Where.
        location: String,
        /// Why.
        source: Box<ConfigError>,
    },
    /// There is a store whose settings are gone.
    #[error("the store at {location} has lost its settings: config.toml is not there")]
    NoSettings {
        /// Where.
        location: String,
    },
    /// A ref that was seen before is gone, and nobody deleted it.
    #[error(
        "{} `{}` at {location} stood at {seen:.12}, and is not there",
        name.kind().noun(),
        name.short()
    )]
    RefLost {
        /// Which.
        name: Box<RefName>,
        /// Where.
        location: String,
        /// Where it stood when it was last seen.
        seen: CommitId,
    },
    /// A ref stands elsewhere than before, and what it stood at is gone.
    #[error(
        "{} `{}` at {location} stood at {seen:.12}, which is not there any more",
        name.kind().noun(),
        name.short()
    )]
    RolledBack {
        /// Which.
        name: Box<RefName>,
        /// Where.
        location: String,
        /// Where it stood when it was last seen.
        seen: CommitId,
    },
    /// An object is not what it should be.
    #[error("{key} at {location} is damaged: {why}")]
    Damaged {
        /// Which.
        key: String,
        /// Where.
        location: String,
        /// What is wrong.
        why: String,
    },
    /// An object says more than this program understands.
    #[error("{key} at {location} was written by a newer version of snap")]
    Newer {
        /// Which.
        key: String,
        /// Where.
        location: String,
    },
    /// A ref is not there.
    #[error("there is no {} `{}` at {location}", name.kind().noun(), name.short())]
    NoRef {
        /// Which.
        name: Box<RefName>,
        /// Where.
        location: String,
    },
    /// A ref there has commits that are not here.
    #[error(
        "{} `{}` at {location} has commits that are not here: it stands at {theirs:.12}",
        name.kind().noun(),
        name.short()
    )]
    Behind {
        /// Which.
        name: Box<RefName>,
        /// Where.
        location: String,
        /// Where it stands.
        theirs: CommitId,
    },
    /// A branch here and the one there have both gone on.
    #[error(
        "{} `{}` here and at {location} have gone different ways: there it stands at {theirs:.12}",
        name.kind().noun(),
        name.short()
    )]
    Diverged {
        /// Which.
        name: Box<RefName>,
        /// Where.
        location: String,
        /// Where it stands.
        theirs: CommitId,
    },
    /// Somebody moved a ref at the same time.
    #[error(
        "somebody else moved {} `{}` at {location} meanwhile: {}",
        name.kind().noun(),
        name.short(),
        stands(.theirs.as_ref())
    )]
    Raced {
        /// Which.
        name: Box<RefName>,
        /// Where.
        location: String,
        /// Where it stands now; `None` when it was deleted.
        theirs: Option<CommitId>,
    },
    /// A pack there lacks what a commit there refers to.
    #[error("the store at {location} is not complete: {source}")]
    Incomplete {
        /// Where.
        location: String,
        /// What is missing.
        source: Box<ReachError>,
    },
    /// A part of a pack could not be read.
    #[error("cannot read bytes {}..{} of {key} at {location}", range.start, range.end)]
    Range {
        /// Of which object.
        key: String,
        /// Which bytes.
        range: Range<u64>,
        /// Where.
        location: String,
        /// Why.
        source: ReadError,
    },
    /// What a commit needs could not be found out.
    #[error(transparent)]
    Reach(Box<ReachError>),
    /// Packs could not be selected.
    #[error(transparent)]
    Select(Box<SelectError>),
    /// A pack that came is not what it should be.
    #[error("{key} at {location} is damaged")]
    Pack {
        /// Which.
        key: String,
        /// Where.
        location: String,
        /// What is wrong.
        source: Box<BundleError>,
    },
    /// The store here could not be opened or made.
    #[error(transparent)]
    Repo(Box<RepoError>),
    /// A ref here could not be read or moved.
    #[error(transparent)]
    Ref(Box<RefError>),
    /// The store here could not be read or written.
    #[error(transparent)]
    Store(Box<StoreError>),
    /// A file here could not be read or written.
    #[error(transparent)]
    Io(#[from] PathError),
    /// What a store elsewhere has lost cannot be collected.
    #[error(transparent)]
    Repair(Box<RepairError>),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

fn stands(theirs: Option<&CommitId>) -> String {
    match theirs {
        Some(commit) => format!("it stands at {commit:.12}"),
        None => "it is not there".to_owned(),
    }
}

impl RemoteError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Service(error) => error.what.kind(),
            Self::Range { source: ReadError::Service(error), .. } => match error.what {
                // The index knows of it, so it should be there.
                What::NotFound => ErrorKind::Damaged,
                what => what.kind(),
            },
            Self::Range { source: ReadError::Length { .. }, .. } => ErrorKind::Damaged,
            Self::Range { source: ReadError::Content(_), .. } => ErrorKind::Damaged,
            Self::Range { .. } => ErrorKind::Unavailable,
            Self::NoStore { .. } | Self::Emptied { .. } | Self::NoRef { .. } => ErrorKind::NotFound,
            Self::NotAStore { .. } | Self::Itself { .. } => ErrorKind::Invalid,
            Self::Newer { .. } => ErrorKind::Unsupported,
            Self::Held { .. } => ErrorKind::Locked,
            Self::Config { source, .. } => match **source {
                ConfigError::Newer { .. } => source.kind(),
                _ => ErrorKind::Damaged,
            },
            Self::NoSettings { .. } | Self::RefLost { .. } | Self::RolledBack { .. } => {
                ErrorKind::Damaged
            }
            Self::Damaged { .. }
            | Self::Vanished { .. }
            | Self::Incomplete { .. }
            | Self::Pack { .. } => ErrorKind::Damaged,
            Self::Behind { .. } | Self::Diverged { .. } | Self::Raced { .. } => ErrorKind::Exists,
            Self::Reach(error) => error.kind(),
            Self::Select(error) => error.kind(),
            Self::Repair(error) => error.kind(),
            Self::Repo(error) => error.kind(),
            Self::Ref(error) => error.kind(),
            Self::Store(error) => error.kind(),
            Self::Io(error) => error.kind(),
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }
}

impl RemoteError {
    /// Whether the settings of the store are gone or damaged, so that they can be written again.
    pub(crate) fn is_of_settings(&self) -> bool {
        let is_config = matches!(self, Self::NoSettings { .. } | Self::Config { .. });
        is_config && self.kind() == ErrorKind::Damaged
    }
}

impl From<RemoteError> for DistantError {
    fn from(error: RemoteError) -> Self {
        Self { kind: error.kind(), source: Box::new(error) }
    }
}

macro_rules! boxed {
    ($($variant:ident: $error:ty),*) => {
        $(impl From<$error> for RemoteError {
            fn from(error: $error) -> Self {
                Self::$variant(Box::new(error))
            }
        })*
    };
}

boxed!(Reach: ReachError, Select: SelectError, Repo: RepoError, Ref: RefError, Store: StoreError);
