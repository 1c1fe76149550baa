//! Errors of a restore.

use std::{path::PathBuf, sync::Arc};

use crate::{
    base::{
        id::{ObjectId, PackId},
        io::PathError,
        kind::{ErrorKind, Kind},
        limits,
    },
    local::{ignore::PatternError, pattern::PatternProblem},
    ops::restore::{Losses, RestoreOutcome},
    store::StoreError,
};

/// The reason why a restore failed or is incomplete.
#[derive(Debug, thiserror::Error, Kind)]
#[kind(Exists)]
#[non_exhaustive]
pub enum RestoreError {
    /// Existing entries differ from the snapshot. Nothing was written. Paths are relative to the
    /// target, here and below.
    #[error("{}", counted(*count, first, "differs from the snapshot", "differ from the snapshot"))]
    Differs { first: Vec<PathBuf>, count: u64 },

    /// Files that no commit contains would be removed, and the caller did not agree.
    /// Nothing was written.
    #[error("{}", counted(_0.count, &_0.first, "is in no commit and would be lost", "are in no commit and would be lost"))]
    Unsaved(Losses),

    /// Non-empty folders are in the place of other entries. Nothing was written, or everything else
    /// was restored.
    #[error("{}", full_folders(*count, first))]
    Blocked { first: Vec<PathBuf>, count: u64 },

    /// Stored objects are damaged or missing, or are stored elsewhere and cannot be
    /// fetched. Everything else was restored, except blocked entries.
    #[error("{} could not be restored: {}{}", files(*count), damaged(entries, *count), also_blocked(*blocked_count, blocked))]
    #[kind(of_damaged(entries, source))]
    Damaged {
        /// The first damaged entries.
        entries: Vec<DamagedEntry>,
        /// Number of damaged entries.
        count: u64,
        /// The error of the first entry.
        source: Arc<StoreError>,
        /// The first blocking folders, as in [`Blocked`](Self::Blocked).
        blocked: Vec<PathBuf>,
        /// Number of blocking folders, usually 0.
        blocked_count: u64,
        /// Totals of what was restored.
        outcome: Box<RestoreOutcome>,
    },

    /// A symbolic link lies between the project and the target.
    #[error("{} is a symbolic link; restore does not follow links", _0.display())]
    #[kind(Invalid)]
    Link(PathBuf),

    /// The target lies in a store.
    #[error("cannot restore into {}: it lies in the store {}", target.display(), store.display())]
    #[kind(Invalid)]
    InStore { target: PathBuf, store: PathBuf },

    /// A folder is nested deeper than any tree may be.
    #[error("{} is nested deeper than {} folders", path.display(), limits::DEPTH)]
    #[kind(Unsupported)]
    TooDeep { path: PathBuf },

    /// An include or exclude pattern is invalid.
    #[error("invalid pattern `{pattern}`")]
    #[kind(Invalid)]
    Pattern { pattern: String, source: PatternProblem },

    /// An exclude rule of the commits is invalid.
    #[error(transparent)]
    Rules(PatternError),

    /// The user asked to stop.
    #[error("the restore was interrupted")]
    #[kind(Interrupted)]
    Interrupted,

    /// No threads could be started.
    #[error("cannot start threads")]
    #[kind(Unavailable)]
    Threads(#[source] rayon::ThreadPoolBuildError),

    /// A file system operation failed.
    #[error(transparent)]
    Io(#[from] PathError),

    /// The store cannot be read for a reason other than damage.
    #[error(transparent)]
    Store(Arc<StoreError>),
}

impl From<StoreError> for RestoreError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

/// An object that is stored elsewhere and cannot be fetched is not damaged.
fn of_damaged(entries: &[DamagedEntry], source: &StoreError) -> ErrorKind {
    match entries.iter().all(|entry| entry.source.is_remote()) {
        true => source.kind(),
        false => ErrorKind::Damaged,
    }
}

/// An entry that could not be restored because of its stored objects.
#[derive(Debug, thiserror::Error)]
#[error("{}: {}", path.display(), source)]
pub struct DamagedEntry {
    /// The entry's path, relative to the target.
    pub path: PathBuf,
    /// The damaged object.
    pub object: ObjectId,
    /// The pack that contains it, if known.
    pub pack: Option<PackId>,
    /// The error. All names of a file share it.
    pub source: Arc<StoreError>,
}

/// Maximum number of damaged entries that a message lists.
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
