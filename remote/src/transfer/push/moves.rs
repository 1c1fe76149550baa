//! Decides whether refs may move, and moves them.

use futures::join;
use snap_core::{
    base::{id::CommitId, observe::Silent},
    repo::ref_name::{RefKind, RefName},
};
use tokio::runtime::Handle;

use super::{AllowedMove, PushRun, PushedRef, RefUpdate};
use crate::{
    peer::{RefMove, RemoteError, RemoteStore, StoreLookup, slot::RefSlot},
    transfer::is_before,
};

/// Maximum number of attempts to move a ref that other clients move at the same time.
const RACES: usize = 8;

/// Deletes a ref of the remote store, at `expected` or at any commit. Returns its last commit, or
/// `None` if its content was damaged. Objects stay.
///
/// # Errors
/// [`RemoteError::NoRef`], [`RemoteError::Raced`].
pub fn delete(
    remote: &RemoteStore,
    name: &RefName,
    expected: Option<CommitId>,
    runtime: &Handle,
) -> Result<Option<CommitId>, RemoteError> {
    runtime.block_on(async {
        remote.begin().await?;
        let location = || remote.place().location().to_owned();
        let (found, slot) = join!(remote.find_store(), remote.place().any_slot(name));
        if found? == StoreLookup::Missing {
            return Err(RemoteError::NoStore { location: location() });
        }
        let mut slot = slot?;
        for _ in 0..RACES {
            let name = Box::new(name.clone());
            let commit = slot.commit;
            if commit.is_none() && !slot.is_damaged() {
                return Err(RemoteError::NoRef { name, location: location() });
            }
            if expected.is_some_and(|expected| Some(expected) != commit) {
                return Err(RemoteError::Raced { name, location: location(), theirs: commit });
            }
            let one = RefMove { name: &name, expected: &slot, new: None };
            match remote.swap(one, &Silent).await {
                Err(RemoteError::Raced { .. }) => slot = remote.place().any_slot(&name).await?,
                result => return result.map(|()| commit),
            }
        }
        Err(RemoteError::Held { name: Box::new(name.clone()), location: location() })
    })
}

/// The planned or actual outcome for one ref.
pub(super) enum RefDecision {
    /// The ref is at the requested commit already.
    UpToDate,
    /// The push will move the ref.
    Move,
    /// The push has moved the ref from this commit.
    Moved(Option<CommitId>),
    /// The ref must not move, or the move failed.
    Rejected(RemoteError),
}

impl RefDecision {
    pub(super) fn has_moved(&self) -> bool {
        matches!(self, Self::Moved(_))
    }

    pub(super) fn into_pushed_ref(self, update: &RefUpdate, slot: &RefSlot) -> PushedRef {
        let (before, result) = match self {
            Self::UpToDate | Self::Move => (slot.commit, Ok(())),
            Self::Moved(before) => (before, Ok(())),
            Self::Rejected(error) => (slot.commit, Err(error)),
        };
        PushedRef { name: update.name.clone(), before, after: update.commit, result }
    }
}

impl PushRun<'_> {
    pub(super) fn decide_refs(
        &self,
        remote: &RemoteStore,
        slots: &[RefSlot],
    ) -> Result<Vec<RefDecision>, RemoteError> {
        let updates = self.options.refs.iter().zip(slots);
        updates.map(|(update, slot)| self.decide_ref(remote, update, slot)).collect()
    }

    fn decide_ref(
        &self,
        remote: &RemoteStore,
        update: &RefUpdate,
        slot: &RefSlot,
    ) -> Result<RefDecision, RemoteError> {
        if let Some(damage) = slot.error(&update.name, remote.place().location()) {
            return Ok(match update.moves {
                AllowedMove::Force => RefDecision::Move,
                AllowedMove::Forward => RefDecision::Rejected(damage),
            });
        }
        let Some(theirs) = slot.commit else {
            return Ok(match slot.is_writable() {
                true => RefDecision::Move,
                false => RefDecision::Rejected(remote.place().newer(&update.name)),
            });
        };
        let (name, location) =
            (Box::new(update.name.clone()), remote.place().location().to_owned());
        if theirs == update.commit {
            return Ok(RefDecision::UpToDate);
        }
        if !slot.is_writable() {
            return Ok(RefDecision::Rejected(remote.place().newer(&update.name)));
        }
        if update.moves == AllowedMove::Force {
            return Ok(RefDecision::Move);
        }
        let store = self.repo.store();
        let is_branch = update.name.kind() == RefKind::Branch;
        if is_branch && !store.knows(&theirs)? {
            return Ok(RefDecision::Rejected(RemoteError::Behind { name, location, theirs }));
        }
        match is_branch && is_before(store, theirs, update.commit)? {
            true => Ok(RefDecision::Move),
            false => Ok(RefDecision::Rejected(RemoteError::Diverged { name, location, theirs })),
        }
    }

    /// Moves the refs that may move, in as many rounds as other clients move them meanwhile.
    pub(super) async fn move_refs_of(
        &self,
        remote: &RemoteStore,
        slots: &[RefSlot],
        decisions: &mut [RefDecision],
    ) {
        // The next push removes the files that remain.
        let (_, _superfluous) = join!(
            self.move_all(remote, slots.to_vec(), decisions),
            remote.place().peer().tidy(remote.known())
        );
    }

    async fn move_all(
        &self,
        remote: &RemoteStore,
        mut slots: Vec<RefSlot>,
        decisions: &mut [RefDecision],
    ) {
        let head = self.head().ok();
        for _ in 0..RACES {
            let is_going = |at: &usize| matches!(decisions[*at], RefDecision::Move);
            let going: Vec<usize> = (0..decisions.len()).filter(is_going).collect();
            if going.is_empty() {
                return;
            }
            let moves: Vec<_> = going.iter().map(|at| self.requested_move(*at, &slots)).collect();
            let results = remote
                .place()
                .peer()
                .move_refs(remote.known(), &moves, head.as_ref(), self.observer)
                .await;
            for (at, result) in going.into_iter().zip(results) {
                decisions[at] = match result {
                    Ok(()) => RefDecision::Moved(slots[at].commit),
                    Err(RemoteError::Raced { .. }) => {
                        let update = &self.options.refs[at];
                        let decided = self.decide_again(remote, update, &mut slots[at]).await;
                        decided.unwrap_or_else(RefDecision::Rejected)
                    }
                    Err(error) => RefDecision::Rejected(error),
                };
            }
        }
        for (update, decision) in self.options.refs.iter().zip(decisions) {
            if matches!(decision, RefDecision::Move) {
                let name = Box::new(update.name.clone());
                let location = remote.place().location().to_owned();
                *decision = RefDecision::Rejected(RemoteError::Held { name, location });
            }
        }
    }

    fn requested_move<'m>(&'m self, at: usize, slots: &'m [RefSlot]) -> RefMove<'m> {
        let RefUpdate { name, commit, .. } = &self.options.refs[at];
        RefMove { name, expected: &slots[at], new: Some(*commit) }
    }

    /// Reads a ref that another client has moved, and decides again.
    async fn decide_again(
        &self,
        remote: &RemoteStore,
        update: &RefUpdate,
        slot: &mut RefSlot,
    ) -> Result<RefDecision, RemoteError> {
        *slot = remote.place().any_slot(&update.name).await?;
        self.decide_ref(remote, update, slot)
    }
}
