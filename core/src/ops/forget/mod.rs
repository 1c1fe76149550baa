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

use std::{cell::Cell, collections::BTreeSet};

pub use plan::{
    CommitText, ForgetCause, ForgetChoice, ForgetPlan, GroupBy, KeepReason, PlannedCommit, plan,
};
pub use policy::{KeepPolicy, KeptLabel, Period, Rule};

use crate::{
    base::{
        again::until_settled,
        blocked::Blocked,
        id::CommitId,
        limits,
        observe::{Observer, Phase},
        time::Time,
    },
    format::{
        forgotten::{Forget, ForgottenState, ForgottenTable},
        pack::ObjectKind,
    },
    ops::removal_error::RemovalError,
    repo::{Repo, refs::RefLogMessage, seen::Seen},
    store::{ObjectWriter, StoreError},
};

/// Forgets these commits, durably. Skips commits that a ref reached meanwhile. Returns the number of
/// forgotten commits.
///
/// # Errors
/// [`RemovalError`].
pub fn run(
    repo: &Repo,
    commits: &BTreeSet<CommitId>,
    message: &RefLogMessage<'_>,
    observer: &dyn Observer,
) -> Result<u64, RemovalError> {
    let change = |table: &mut ForgottenTable, forgotten: &[CommitId], time| {
        table.remove_undone();
        forgotten.iter().for_each(|id| table.insert(*id, time));
    };
    forget(repo, commits, &change, message, observer)
}

/// Forgets these commits. `change` changes the table, at a time that no other change has.
fn forget(
    repo: &Repo,
    commits: &BTreeSet<CommitId>,
    change: &dyn Fn(&mut ForgottenTable, &[CommitId], Time),
    message: &RefLogMessage<'_>,
    observer: &dyn Observer,
) -> Result<u64, RemovalError> {
    observer.phase(Phase::History, None);
    until_settled_in(repo, || attempt(repo, commits, change, message, observer))
}

/// Repeats an attempt that another process has overtaken.
fn until_settled_in<T>(
    repo: &Repo,
    mut attempt: impl FnMut() -> Result<Option<T>, RemovalError>,
) -> Result<T, RemovalError> {
    let done = until_settled(
        &mut Seen::of(repo)?,
        limits::REF_RETRIES,
        |_| attempt(),
        |seen, error| match error {
            RemovalError::Store(error) => Ok(seen.look_again(repo, error)?),
            _ => Ok(false),
        },
    );
    done?.ok_or(Blocked::Contended { action: "began a collection" }.into())
}

/// The commits that the last `forget` has chosen and that are still forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastForget {
    /// The commits.
    pub forget: Forget,
    /// One of them that garbage collection has deleted, or that is [lost](Self::check_not_lost). Then an
    /// undo is not possible.
    pub deleted: Option<CommitId>,
}

impl LastForget {
    /// Returns the last `forget`; `None` if no commit is forgotten.
    ///
    /// # Errors
    /// [`RemovalError::Store`].
    pub fn read(repo: &Repo) -> Result<Option<Self>, RemovalError> {
        let store = repo.store();
        let Some(forget) = store.forgotten().last(ForgottenState::Forgotten) else {
            return Ok(None);
        };
        let mut deleted = None;
        for id in &forget.commits {
            if deleted.is_none() && !store.is_alive(&id.object())? {
                deleted = Some(*id);
            }
        }
        Ok(Some(Self { forget, deleted }))
    }

    /// Checks that a forgotten commit which is not alive was deleted by a collection.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if no collection could delete it yet.
    pub fn check_not_lost(repo: &Repo, id: &CommitId) -> Result<(), RemovalError> {
        let (store, wanted) = (repo.store(), ObjectKind::Commit);
        store.refresh()?;
        let id_of_object = id.object();
        match store.places(&id_of_object)?.is_empty() && store.is_forgotten_and_kept(id) {
            true => Err(StoreError::Missing { id: id_of_object, wanted }.into()),
            false => Ok(()),
        }
    }

    /// Brings the commits back, durably. Returns false and changes nothing if garbage collection has
    /// deleted one of them meanwhile.
    ///
    /// # Errors
    /// [`RemovalError`].
    pub fn undo(&self, repo: &Repo, message: &RefLogMessage<'_>) -> Result<bool, RemovalError> {
        let store = repo.store();
        // No collection begins an epoch while the refs are held.
        let mut refs = repo.refs().hold()?;
        store.enter_epoch()?;
        for id in &self.forget.commits {
            if !store.is_alive(&id.object())? {
                return Ok(false);
            }
        }
        refs.change_forgotten(store, message, &|table, time| {
            table.set_state(&self.forget, ForgottenState::Undone, time);
        })?;
        Ok(true)
    }
}

/// The last `forget` that an undo took back and a redo can repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoneForget(pub Forget);

impl UndoneForget {
    /// Returns the `forget` that was undone last; `None` if there is none.
    pub fn read(repo: &Repo) -> Option<Self> {
        repo.store().forgotten().last(ForgottenState::Undone).map(Self)
    }

    /// Forgets the commits again, durably, except those that garbage collection has deleted or that a
    /// ref has reached since. Returns their number; `None` if another command has forgotten or redone
    /// something meanwhile.
    ///
    /// # Errors
    /// [`RemovalError`].
    pub fn redo(
        &self,
        repo: &Repo,
        message: &RefLogMessage<'_>,
        observer: &dyn Observer,
    ) -> Result<Option<u64>, RemovalError> {
        let mut commits = BTreeSet::new();
        for id in &self.0.commits {
            if repo.store().is_alive(&id.object())? {
                commits.insert(*id);
            }
        }
        let is_current = Cell::new(true);
        let change = |table: &mut ForgottenTable, forgotten: &[CommitId], time| {
            is_current.set(table.last(ForgottenState::Undone).as_ref() == Some(&self.0));
            if is_current.get() {
                let again = Forget { commits: forgotten.to_vec(), ..self.0.clone() };
                table.set_state(&again, ForgottenState::Forgotten, time);
                let others = self.0.commits.iter().filter(|id| !forgotten.contains(id));
                others.for_each(|id| table.remove(id));
            }
        };
        let done = forget(repo, &commits, &change, message, observer)?;
        Ok(is_current.get().then_some(done))
    }
}

/// Attempts to forget commits. Returns `None` if a garbage collection has deleted their links.
fn attempt(
    repo: &Repo,
    commits: &BTreeSet<CommitId>,
    change: &dyn Fn(&mut ForgottenTable, &[CommitId], Time),
    message: &RefLogMessage<'_>,
    observer: &dyn Observer,
) -> Result<Option<u64>, RemovalError> {
    let store = repo.store();
    let writer = ObjectWriter::new(store, repo.config().compression_level, 1)?.of_copies();
    for id in commits {
        observer.check()?;
        writer.add_link(*id, &store.object(&id.object(), ObjectKind::Commit)?)?;
    }
    writer.finish()?;
    let mut refs = repo.refs().hold()?;
    store.enter_epoch()?;
    let protected = plan::Protected::read(repo)?;
    let mut forgotten = Vec::with_capacity(commits.len());
    for id in commits {
        if !store.is_alive(&id.link())? {
            return Ok(None);
        }
        if protected.reasons(id).is_empty() {
            forgotten.push(*id);
        }
    }
    if !forgotten.is_empty() {
        refs.change_forgotten(store, message, &|table, time| change(table, &forgotten, time))?;
    }
    Ok(Some(forgotten.len() as u64))
}
