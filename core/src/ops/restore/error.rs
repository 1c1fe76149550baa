//! Why a restore failed, or could not restore everything.

use std::{path::PathBuf, sync::Arc};

use crate::{
    base::{
        id::{ObjectId, PackId},
        io::PathError,
        kind::ErrorKind,
        limits,
    },
    local::ignore::PatternError,
    ops::restore::{Losses, Outcome},
    store::StoreError,
};

/// Why a restore failed, or could not restore everything.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// Entries are there and differ. Nothing was written.
    #[error("{}", counted(*count, first, "differs from the snapshot", "differ from the snapshot"))]
    Differs {
        /// The first of them, relative to the target.
        first: Vec<PathBuf>,
        /// How many there are.
        count: u64,
    },

    /// Files that no commit holds would be removed, and the caller did not
    /// agree. Nothing was written.
    #[error("{}", counted(_0.count, &_0.first, "is in no commit and would be lost", "are in no commit and would be lost"))]
    Unsaved(Losses),

    /// Folders with something in them stand where something else belongs.
    /// Everything else was restored.
    #[error("{}", full_folders(*count, first))]
    Blocked {
        /// The first of them, relative to the target.
        first: Vec<PathBuf>,
        /// How many there are.
        count: u64,
    },

    /// Stored objects are damaged, missing, or lie elsewhere. Everything else was restored,
    /// but for what is blocked.
    #[error("{} could not be restored: {}{}", files(*count), damaged(entries, *count), also_blocked(*blocked_count, blocked))]
    Damaged {
        /// The first of them.
        entries: Vec<DamagedEntry>,
        /// How many there are.
        count: u64,
        /// What is wrong with the first of them.
        source: Arc<StoreError>,
        /// The first of the folders that are as in [`Blocked`](Self::Blocked).
        blocked: Vec<PathBuf>,
        /// How many of those there are; 0 in most cases.
        blocked_count: u64,
        /// What was done.
        outcome: Box<Outcome>,
    },

    /// A symbolic link lies on the way from the project to what is restored.
    #[error("{} is a symbolic link, and a restore follows none", _0.display())]
    Link(PathBuf),

    /// The target lies in a store.
    #[error("{} lies in the store {}, and a store is not restored into", target.display(), store.display())]
    InStore {
        /// Where it was to go.
        target: PathBuf,
        /// Which store.
        store: PathBuf,
    },

    /// A folder lies deeper than any tree may go.
    #[error("{} lies more than {} folders deep", path.display(), limits::DEPTH)]
    TooDeep {
        /// Which.
        path: PathBuf,
    },

    /// An include or exclude pattern makes no sense.
    #[error("`{pattern}` is not a pattern")]
    Pattern {
        /// As it was given.
        pattern: String,
        /// What is wrong with it.
        source: ignore::Error,
    },

    /// A rule of what commits leave out makes no sense.
    #[error(transparent)]
    Rules(PatternError),

    /// The user asked to stop.
    #[error("the restore was interrupted")]
    Interrupted,

    /// No threads could be started.
    #[error("cannot start threads")]
    Threads(#[source] rayon::ThreadPoolBuildError),

    /// The file system refused.
    #[error(transparent)]
    Io(#[from] PathError),

    /// The store could not be read, for another reason than damage.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RestoreError {
    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Differs { .. } | Self::Unsaved(_) | Self::Blocked { .. } => ErrorKind::Exists,
            // What lies elsewhere and could not be had is not damaged.
            Self::Damaged { entries, source, .. }
                if entries.iter().all(|entry| entry.source.is_elsewhere()) =>
            {
                source.kind()
            }
            Self::Damaged { .. } => ErrorKind::Damaged,
            Self::TooDeep { .. } => ErrorKind::Unsupported,
            Self::Pattern { .. } | Self::Rules(_) | Self::InStore { .. } | Self::Link(_) => {
                ErrorKind::Invalid
            }
            Self::Interrupted => ErrorKind::Interrupted,
            Self::Threads(_) => ErrorKind::Unavailable,
            Self::Io(error) => error.kind(),
            Self::Store(error) => error.kind(),
        }
    }
}

/// An entry that could not be restored because of what it is stored as.
#[derive(Debug, thiserror::Error)]
#[error("{}: {}", path.display(), source)]
pub struct DamagedEntry {
    /// The entry, relative to the target.
    pub path: PathBuf,
    /// What is damaged.
    pub object: ObjectId,
    /// Where it lies, as far as the store knows.
    pub pack: Option<PackId>,
    /// How it shows; one error for all names of a file.
    pub source: Arc<StoreError>,
}

/// Damaged entries that a message names.
const NAMED: usize = 10;

fn damaged(entries: &[DamagedEntry], count: u64) -> String {
    let shown = entries.iter().take(NAMED);
    list(shown.map(|entry| format!("`{}`", entry.path.display())), count)
}

fn files(count: u64) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}

fn list(shown: impl ExactSizeIterator<Item = String>, count: u64) -> String {
    let more = count.saturating_sub(shown.len() as u64);
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

fn full_folders(count: u64, first: &[PathBuf]) -> String {
    counted(count, first, "is a folder that is not empty", "are folders that are not empty")
}

fn also_blocked(count: u64, first: &[PathBuf]) -> String {
    if count == 0 { String::new() } else { format!("; {}", full_folders(count, first)) }
}

fn counted(count: u64, first: &[PathBuf], one: &str, many: &str) -> String {
    let list = list(first.iter().map(|path| format!("`{}`", path.display())), count);
    format!("{list} {}", if count == 1 { one } else { many })
}
