//! `forget`: marks commits as forgotten.
//!
//! A forgotten commit stays in history as an ancestor, but [garbage collection](crate::ops::gc)
//! deletes what only it refers to. `forget` itself deletes nothing. It first stores a
//! [link](crate::format::pack::ObjectKind::Link) of each commit, and then adds the commits to the
//! table of [forgotten commits](crate::format::forgotten), under the lock of the refs.
//!
//! These commits never go: the tips of branches, tags, a detached `HEAD`, the commits from which the
//! project's files come, commits with the label `keep`, and commits dated in the future.

mod plan;
mod policy;

use std::collections::BTreeSet;

pub use plan::{ForgetCause, ForgetChoice, ForgetPlan, GroupBy, KeepReason, PlannedCommit, plan};
pub use policy::{KeepPolicy, KeptLabel, Period, Rule};

use crate::{
    base::{
        again::until_settled,
        id::CommitId,
        kind::ErrorKind,
        limits,
        observe::{Observer, Phase},
        time::Time,
    },
    format::pack::ObjectKind,
    ops::gc::GcError,
    repo::{
        Repo,
        refs::{RefError, RefLogMessage},
        scope::PartialClone,
        seen::Seen,
    },
    store::{ObjectWriter, StoreError},
};

/// Why commits could not be forgotten. Then none of them is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForgetError {
    /// A commit cannot be read, or the links cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A ref cannot be read.
    #[error(transparent)]
    Ref(#[from] RefError),
    /// The store lacks objects that its origin has.
    #[error("a partial clone cannot forget commits: its remote has the other objects")]
    Partial(PartialClone),
    /// The settings of the store belong to another user.
    #[error("the settings of this store belong to another user")]
    OtherOwner,
    /// The user named a commit that never goes.
    #[error("cannot forget commit {id:.12}: {reason}")]
    Protected { id: CommitId, reason: KeepReason },
    /// The policy keeps only the tips of branches.
    #[error("this policy keeps only the last commit of each branch")]
    OnlyTips,
    /// Collections began again and again.
    #[error("other processes began a collection again and again")]
    Contended,
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
}

impl ForgetError {
    /// Classifies the error for the caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Store(error) => error.kind(),
            Self::Ref(error) => error.kind(),
            Self::Partial(_) | Self::Protected { .. } | Self::OnlyTips => ErrorKind::Invalid,
            Self::OtherOwner => ErrorKind::Denied,
            Self::Contended => ErrorKind::Locked,
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }
}

/// Errors of a marking, which computes sizes.
impl From<GcError> for ForgetError {
    fn from(error: GcError) -> Self {
        match error {
            GcError::Store(error) => Self::Store(error),
            GcError::Ref(error) => Self::Ref(error),
            GcError::Io(error) => Self::Store(error.into()),
            GcError::Partial(lacks) => Self::Partial(lacks),
            GcError::OtherOwner => Self::OtherOwner,
            GcError::Contended => Self::Contended,
            GcError::Interrupted => Self::Interrupted,
        }
    }
}

/// Forgets these commits, durably. Skips commits that a ref reached meanwhile. Returns the number of
/// forgotten commits.
///
/// # Errors
/// [`ForgetError`].
pub fn run(
    repo: &Repo,
    commits: &BTreeSet<CommitId>,
    message: &RefLogMessage<'_>,
    observer: &dyn Observer,
) -> Result<u64, ForgetError> {
    observer.phase(Phase::History, None);
    let done = until_settled_in(repo, || attempt(repo, commits, message, observer))?;
    done.ok_or(ForgetError::Contended)
}

/// Repeats an attempt that another process has overtaken.
fn until_settled_in<T>(
    repo: &Repo,
    mut attempt: impl FnMut() -> Result<Option<T>, ForgetError>,
) -> Result<Option<T>, ForgetError> {
    until_settled(
        &mut Seen::of(repo)?,
        limits::REF_RETRIES,
        |_| attempt(),
        |seen, error| match error {
            ForgetError::Store(error) => Ok(seen.look_again(repo, error)?),
            _ => Ok(false),
        },
    )
}

/// The commits that the last `forget` has chosen and that are still forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastForget {
    /// When they were forgotten.
    pub time: Time,
    /// Their ids, sorted.
    pub commits: Vec<CommitId>,
    /// One of them that garbage collection has deleted. Then an undo is not possible.
    pub deleted: Option<CommitId>,
}

impl LastForget {
    /// Returns the last `forget`; `None` if no commit is forgotten.
    ///
    /// # Errors
    /// [`ForgetError::Store`].
    pub fn read(repo: &Repo) -> Result<Option<Self>, ForgetError> {
        let store = repo.store();
        let table = store.forgotten();
        let Some(time) = table.last_time() else { return Ok(None) };
        let mut last = Self { time, commits: Vec::new(), deleted: None };
        for (id, _) in table.commits().filter(|(_, own)| *own == time) {
            last.commits.push(*id);
            if last.deleted.is_none() && !store.is_alive(&id.object())? {
                last.deleted = Some(*id);
            }
        }
        Ok(Some(last))
    }

    /// Brings the commits back, durably. Returns false and changes nothing if garbage collection has
    /// deleted one of them meanwhile.
    ///
    /// # Errors
    /// [`ForgetError`].
    pub fn undo(&self, repo: &Repo, message: &RefLogMessage<'_>) -> Result<bool, ForgetError> {
        let store = repo.store();
        // No collection begins an epoch while the refs are held.
        let mut refs = repo.refs().hold()?;
        store.enter_epoch()?;
        for id in &self.commits {
            if !store.is_alive(&id.object())? {
                return Ok(false);
            }
        }
        refs.change_forgotten(store, message, &|table, _| {
            self.commits.iter().for_each(|id| table.remove(id));
        })?;
        Ok(true)
    }
}

/// Attempts to forget commits. Returns `None` if a garbage collection has deleted their links.
fn attempt(
    repo: &Repo,
    commits: &BTreeSet<CommitId>,
    message: &RefLogMessage<'_>,
    observer: &dyn Observer,
) -> Result<Option<u64>, ForgetError> {
    let store = repo.store();
    let writer = ObjectWriter::new(store, repo.config().compression_level, 1)?.of_copies();
    for id in commits {
        observer.check(ForgetError::Interrupted)?;
        writer.add_link(*id, &store.object(&id.object(), ObjectKind::Commit)?)?;
    }
    writer.finish()?;
    let mut refs = repo.refs().hold()?;
    store.enter_epoch()?;
    let protected = plan::Protected::read(repo)?;
    let mut forgotten = Vec::with_capacity(commits.len());
    for id in commits {
        if !store.has_link(id)? {
            return Ok(None);
        }
        if protected.reasons(id).is_empty() {
            forgotten.push(*id);
        }
    }
    if !forgotten.is_empty() {
        if !refs.upgrade_for_gc()? {
            return Err(ForgetError::OtherOwner);
        }
        refs.change_forgotten(store, message, &|table, time| {
            forgotten.iter().for_each(|id| table.insert(*id, time));
        })?;
    }
    Ok(Some(forgotten.len() as u64))
}
