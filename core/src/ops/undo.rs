//! `undo`: reverts the last change of a ref, or redoes it.
//!
//! It takes two steps, so that a caller can announce the change first. [`plan`] changes
//! nothing. [`run`] moves the ref by compare-and-swap, durably and with a line in its
//! log, as every change does. No file changes and no object is removed.
//! [`repo::undo`](crate::repo::undo) explains how the order of changes is determined.

use crate::{
    base::id::CommitId,
    repo::{
        Pointer, RefLogMessage, Repo,
        ref_log::RefValue,
        undo::{self, Direction, UndoError, UndoPlan},
    },
};

/// Finds the change to undo or redo, of the ref `wanted` or of the ref that changed last,
/// and checks that its commit can be read.
///
/// # Errors
/// [`UndoError`] when there is nothing to undo or redo, or its commit cannot be read.
pub fn plan(
    repo: &Repo,
    wanted: Option<&Pointer>,
    direction: Direction,
) -> Result<UndoPlan, UndoError> {
    let plan = undo::plan(repo.refs(), wanted, direction)?;
    if let RefValue::Commit(id) = plan.to {
        check(repo, &plan, id)?;
    }
    Ok(plan)
}

fn check(repo: &Repo, plan: &UndoPlan, id: CommitId) -> Result<(), UndoError> {
    let commit = repo.store().commit(&id);
    let broken = |source| {
        let (pointer, source) = (plan.pointer.clone(), Box::new(source));
        UndoError::Commit { pointer, id, source }
    };
    commit.map(drop).map_err(broken)
}

/// Executes `plan`. The reason in `change` must be the plan's reason.
///
/// # Errors
/// [`UndoError::Ref`] when the ref has moved since the plan was made, or cannot be
/// written.
pub fn run(repo: &Repo, plan: &UndoPlan, change: &RefLogMessage<'_>) -> Result<(), UndoError> {
    debug_assert_eq!(change.reason, plan.reason());
    Ok(repo.refs().retarget(&plan.pointer, (&plan.from, &plan.to), change)?)
}
