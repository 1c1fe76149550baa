//! Errors of remote stores.

use std::ops::Range;

use snap_core::{
    base::{blocked::Blocked, id::CommitId, io::PathError, kind::ErrorKind},
    format::wire::FormatError,
    ops::{reach::ReachError, verify::VerifyError},
    repo::{RepoError, config::ConfigError, ref_name::RefName, refs::RefError},
    store::{BundleError, RemoteFrameError, StoreError},
};

use crate::{
    bucket::{FailureReason, ServiceError},
    peer::CONFIG,
    ranges::ReadError,
};

/// Why an operation on a remote store failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// A request failed.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The location has no store.
    #[error("no store found at {location}")]
    NoStore {
        /// The location.
        location: String,
    },
    /// The location had a store before, and is empty now.
    #[error("the store at {location} is gone: the location is empty")]
    Emptied {
        /// The location.
        location: String,
    },
    /// The remote store is the local store itself.
    #[error("{location} is this store itself, not a remote")]
    Itself {
        /// The location.
        location: String,
    },
    /// The location has other files, but no store.
    #[error("{location} is not a store: it contains other files, such as {key}")]
    NotAStore {
        /// The location.
        location: String,
        /// The key of one of the other files.
        key: String,
    },
    /// A listing has the key, but its object does not exist.
    #[error("{key} at {location} is listed but does not exist")]
    Vanished {
        /// The key.
        key: String,
        /// The location.
        location: String,
    },
    /// Another client holds a claim on the ref and does not release it.
    #[error(
        "{} `{}` at {location} is locked by another client",
        name.kind().noun(),
        name.short()
    )]
    Held {
        /// The ref.
        name: Box<RefName>,
        /// The location.
        location: String,
    },
    /// The settings are damaged, or a newer version of snap wrote them.
    #[error("the settings of the store at {location} cannot be used")]
    Config {
        /// The location.
        location: String,
        /// The reason.
        source: Box<ConfigError>,
    },
    /// The store exists, but its settings are missing.
    #[error("the store at {location} has no settings: config.toml is missing")]
    NoSettings {
        /// The location.
        location: String,
    },
    /// The name of the ref lies below the name of another ref. Commands skip the ref.
    #[error("{name} at {location} conflicts with {other}: one name would be a folder of the other")]
    RefBlocked {
        /// The ref that lies below the other.
        name: Box<RefName>,
        /// The other ref.
        other: Box<RefName>,
        /// The location.
        location: String,
    },
    /// A ref that this clone has seen before is missing, but was not deleted.
    #[error(
        "{} `{}` at {location} is missing; it last pointed at commit {seen:.12}",
        name.kind().noun(),
        name.short()
    )]
    RefLost {
        /// The ref.
        name: Box<RefName>,
        /// The location.
        location: String,
        /// The last known commit of the ref.
        seen: CommitId,
    },
    /// A ref has moved, and its last known commit is missing.
    #[error(
        "{} `{}` at {location} last pointed at commit {seen:.12}, which the remote no longer has",
        name.kind().noun(),
        name.short()
    )]
    RolledBack {
        /// The ref.
        name: Box<RefName>,
        /// The location.
        location: String,
        /// The last known commit of the ref.
        seen: CommitId,
    },
    /// An object is damaged.
    #[error("{key} at {location} is damaged: {why}")]
    Damaged {
        /// The key.
        key: String,
        /// The location.
        location: String,
        /// The damage.
        why: String,
    },
    /// A version of snap from before the first release wrote an object.
    #[error("{key} at {location} is from before the first release of snap")]
    Older {
        /// The key.
        key: String,
        /// The location.
        location: String,
    },
    /// An object has content that only a newer version of snap understands.
    #[error("{key} at {location} was written by a newer version of snap")]
    Newer {
        /// The key.
        key: String,
        /// The location.
        location: String,
    },
    /// The ref does not exist.
    #[error("{} `{}` does not exist at {location}", name.kind().noun(), name.short())]
    NoRef {
        /// The ref.
        name: Box<RefName>,
        /// The location.
        location: String,
    },
    /// The remote ref is ahead: it has commits that the local store lacks.
    #[error(
        "{} `{}` at {location}: push rejected: the remote has commits that you do not have (it is \
         at {theirs:.12})",
        name.kind().noun(),
        name.short()
    )]
    Behind {
        /// The ref.
        name: Box<RefName>,
        /// The location.
        location: String,
        /// The commit of the remote ref.
        theirs: CommitId,
    },
    /// The local branch and the remote one have diverged.
    #[error(
        "{} `{}` at {location}: push rejected: it has diverged from the local one (it is at \
         {theirs:.12})",
        name.kind().noun(),
        name.short()
    )]
    Diverged {
        /// The ref.
        name: Box<RefName>,
        /// The location.
        location: String,
        /// The commit of the remote ref.
        theirs: CommitId,
    },
    /// Another client moved the ref at the same time.
    #[error(
        "{} `{}` at {location}: push rejected: another client moved it, and {}",
        name.kind().noun(),
        name.short(),
        position_text(.theirs.as_ref())
    )]
    Raced {
        /// The ref.
        name: Box<RefName>,
        /// The location.
        location: String,
        /// The current commit of the remote ref; `None` if it was deleted.
        theirs: Option<CommitId>,
    },
    /// A collection has begun a new epoch, so objects that the client relied on may be deleted.
    #[error("garbage was collected at {location} at the same time")]
    Collected {
        /// The location.
        location: String,
    },
    /// The remote is the store of a project on this machine, which collects its own garbage.
    #[error("{location} is the store of a project: run `snap gc` there")]
    CollectThere {
        /// The location.
        location: String,
    },
    /// The remote is a snap server.
    #[error("{location} is a snap server, whose garbage this version cannot collect")]
    CollectServer {
        /// The location.
        location: String,
    },
    /// The service has no conditional writes, so a push could lose data during a collection.
    #[error("{location} has no conditional writes, so no client may push during a collection")]
    CollectUnsafe {
        /// The location.
        location: String,
    },
    /// The listings of the service have no times, so the ages of packs are unknown.
    #[error("the listings of {location} have no times, so the ages of packs are unknown")]
    CollectNoTimes {
        /// The location.
        location: String,
    },
    /// The remote store lacks an object that one of its commits refers to.
    #[error("the store at {location} is incomplete: {source}")]
    Incomplete {
        /// The location.
        location: String,
        /// The missing object.
        source: Box<ReachError>,
    },
    /// The remote store is a partial clone, which lacks some of the requested objects.
    #[error("the store at {location} is a partial clone and lacks some of the requested objects")]
    PartialClone {
        /// The location.
        location: String,
        /// The URL of the default remote of the store, which has the rest.
        origin: Option<String>,
        /// The missing object.
        source: Box<ReachError>,
    },
    /// A range of a pack could not be read.
    #[error("cannot read bytes {}..{} of {key} at {location}", range.start, range.end)]
    Range {
        /// The key of the pack.
        key: String,
        /// The byte range.
        range: Range<u64>,
        /// The location.
        location: String,
        /// The reason.
        source: ReadError,
    },
    /// The walk of the objects of a commit, or the selection of packs, failed.
    #[error(transparent)]
    Reach(Box<ReachError>),
    /// A received pack is damaged.
    #[error("{key} at {location} is damaged")]
    Pack {
        /// The key.
        key: String,
        /// The location.
        location: String,
        /// The damage.
        source: Box<BundleError>,
    },
    /// The local store could not be opened or created.
    #[error(transparent)]
    Repo(Box<RepoError>),
    /// A local ref could not be read or moved.
    #[error(transparent)]
    Ref(Box<RefError>),
    /// The local store could not be read or written.
    #[error(transparent)]
    Store(Box<StoreError>),
    /// A local file could not be read or written.
    #[error(transparent)]
    Io(#[from] PathError),
    /// The remote store could not be verified or repaired.
    #[error(transparent)]
    Repair(Box<VerifyError>),
    /// The operation stopped early.
    #[error(transparent)]
    Blocked(#[from] Blocked),
}

fn position_text(theirs: Option<&CommitId>) -> String {
    match theirs {
        Some(commit) => format!("it is at {commit:.12}"),
        None => "it was deleted".to_owned(),
    }
}

impl RemoteError {
    /// Creates the error for a confirmed write that did not happen.
    pub(super) fn unconfirmed_write(key: &str, location: &str) -> Self {
        let message = "the service confirmed the write, but the ref did not change; a proxy may \
                       answer in place of the service";
        let error = ServiceError::new("write", key, FailureReason::Other, message.to_owned());
        ServiceError { location: location.to_owned(), ..error }.into()
    }

    /// Creates the error for an object that cannot be decoded.
    pub(super) fn of_format(key: &str, location: &str, error: FormatError) -> Self {
        let (key, location) = (key.to_owned(), location.to_owned());
        match error {
            FormatError::Newer { .. } => Self::Newer { key, location },
            FormatError::Older { .. } => Self::Older { key, location },
            error => Self::Damaged { key, location, why: error.to_string() },
        }
    }

    /// Returns the kind of the error, from which a caller decides what to do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Service(error) => error.reason.kind(),
            Self::Range { source: ReadError::Service(error), .. } => match error.reason {
                // The index lists the object, so it should exist.
                FailureReason::NotFound => ErrorKind::Damaged,
                what => what.kind(),
            },
            Self::Range { source: ReadError::Length { .. }, .. } => ErrorKind::Damaged,
            Self::Range { source: ReadError::Content(_), .. } => ErrorKind::Damaged,
            Self::Range { .. } => ErrorKind::Unavailable,
            Self::NoStore { .. } | Self::Emptied { .. } | Self::NoRef { .. } => ErrorKind::NotFound,
            Self::NotAStore { .. } | Self::Itself { .. } | Self::CollectThere { .. } => {
                ErrorKind::Invalid
            }
            Self::Newer { .. }
            | Self::Older { .. }
            | Self::PartialClone { .. }
            | Self::CollectServer { .. }
            | Self::CollectNoTimes { .. }
            | Self::CollectUnsafe { .. } => ErrorKind::Unsupported,
            Self::Held { .. } | Self::Collected { .. } => ErrorKind::Locked,
            Self::Config { source, .. } => match **source {
                ConfigError::Newer { .. } | ConfigError::Older { .. } => source.kind(),
                _ => ErrorKind::Damaged,
            },
            Self::NoSettings { .. }
            | Self::RefBlocked { .. }
            | Self::RefLost { .. }
            | Self::RolledBack { .. } => ErrorKind::Damaged,
            Self::Damaged { .. }
            | Self::Vanished { .. }
            | Self::Incomplete { .. }
            | Self::Pack { .. } => ErrorKind::Damaged,
            Self::Behind { .. } | Self::Diverged { .. } | Self::Raced { .. } => ErrorKind::Exists,
            Self::Reach(error) => error.kind(),
            Self::Repair(error) => error.kind(),
            Self::Repo(error) => error.kind(),
            Self::Ref(error) => error.kind(),
            Self::Store(error) => error.kind(),
            Self::Io(error) => error.kind(),
            Self::Blocked(error) => error.kind(),
        }
    }
}

impl RemoteError {
    /// Returns true if the settings are missing or damaged, so that a repair may write them again.
    pub fn is_of_settings(&self) -> bool {
        let is_config = match self {
            Self::NoSettings { .. } | Self::Config { .. } => true,
            Self::Damaged { key, .. } => key == CONFIG,
            _ => false,
        };
        is_config && self.kind() == ErrorKind::Damaged
    }
}

impl RemoteError {
    /// Returns true if the error is the damage of an object.
    pub(crate) fn is_of_object(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Service(error) => error.reason.kind() == ErrorKind::Damaged,
            _ => false,
        }
    }
}

impl From<RemoteError> for RemoteFrameError {
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

boxed!(Reach: ReachError, Repo: RepoError, Ref: RefError, Store: StoreError);
