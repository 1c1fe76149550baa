//! `undo`: take back the last change of a ref, or make it again.
//!
//! Two steps, so that a caller can say what is going to happen before it does:
//! [`plan`] changes nothing, [`run`] moves the ref by compare-and-swap, durably
//! and with a line in its log, as every change does. No file is touched, and no
//! object goes. How the order is told is in [`repo::undo`](crate::repo::undo).

use crate::{
    base::id::CommitId,
    repo::{
        Change, Pointer, Repo,
        ref_log::Target,
        undo::{self, Direction, Plan, UndoError},
    },
};

/// Finds what there is to undo or redo, of `wanted` or of what changed last,
/// and makes sure that it can be.
///
/// # Errors
/// [`UndoError`] says why there is nothing to be done.
pub fn plan(
    repo: &Repo,
    wanted: Option<&Pointer>,
    direction: Direction,
) -> Result<Plan, UndoError> {
    let plan = undo::plan(repo.refs(), wanted, direction)?;
    if let Target::Commit(id) = plan.to {
        check(repo, &plan, id)?;
    }
    Ok(plan)
}

fn check(repo: &Repo, plan: &Plan, id: CommitId) -> Result<(), UndoError> {
    let commit = repo.store().commit(&id);
    let broken = |source| {
        let (pointer, source) = (plan.pointer.clone(), Box::new(source));
        UndoError::Commit { pointer, id, source }
    };
    commit.map(drop).map_err(broken)
}

/// Does what `plan` says. The reason of `change` is to be that of the plan.
///
/// # Errors
/// [`UndoError::Ref`] when the ref has moved since the plan was made, or cannot
/// be written.
pub fn run(repo: &Repo, plan: &Plan, change: &Change<'_>) -> Result<(), UndoError> {
    debug_assert_eq!(change.reason, plan.reason());
    Ok(repo.refs().retarget(&plan.pointer, (&plan.from, &plan.to), change)?)
}
