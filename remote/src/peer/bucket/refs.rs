//! Reads refs of a remote store and moves them by compare-and-swap.
//!
//! A remote ref has the same [text](snap_core::format::ref_text) as a local one: the commit, the
//! nonce of the write, and the epoch. Each push reads the ref, so the text can stop older programs
//! from writing, whatever they have cached. A write whose reply was lost may have happened, and its
//! retry then looks like a conflict. So the client reports a conflict only after it has read the
//! nonce of another client in the ref.
//!
//! To delete a ref, the client replaces it by a tombstone with 64 zeros as its commit. Few services
//! can remove on a condition, and an unconditional removal could hit a ref that another client has
//! created again.

use std::collections::HashMap;

use bytes::Bytes;
use futures::future::join_all;
use snap_core::{
    base::{
        id::CommitId,
        limits,
        observe::{Observer, Silent},
    },
    format::ref_text::{Nonce, RefText},
    repo::{ref_name::RefName, refs::MisnamedFile},
};

use super::{BucketStore, name_conflicts::BlockingRef};
use crate::{
    bucket::{ConditionalWrites, FailureReason, ServiceError, WriteCondition},
    peer::{
        REFS, RefMove, RemoteError,
        known::Known,
        slot::{RefSlot, key},
    },
};

/// Maximum number of refs to read one by one. For more, the client lists the refs first.
const FEW_REFS: usize = 4;

/// The content of a ref to write.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewRef {
    /// The commit; `None` deletes the ref.
    pub(super) commit: Option<CommitId>,
    pub(super) epoch: u64,
}

impl NewRef {
    pub(super) fn text(self, nonce: Nonce) -> Bytes {
        RefText { nonce, epoch: self.epoch, ..RefText::new(self.commit) }.encode().into()
    }
}

/// Returns true if an error may come from reading a folder, or a path below a file.
fn may_be_folder(error: &ServiceError) -> bool {
    use FailureReason::{Denied, Other, Refused, TooLong, Unsupported};
    matches!(error.reason, Refused | Other | Unsupported | Denied | TooLong)
}

/// Returns the condition that the content of a ref has not changed since the read, if the service takes
/// it.
pub(super) fn condition(slot: &RefSlot, takes: ConditionalWrites) -> Option<WriteCondition> {
    match slot.version() {
        None if takes.absent && !slot.exists() => Some(WriteCondition::Absent),
        Some(version) if takes.unchanged => Some(WriteCondition::Unchanged(version.clone())),
        _ => None,
    }
}

/// The refs of a bucket, and what this process knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BucketRefs<'a> {
    pub(super) store: &'a BucketStore,
    pub(super) known: &'a Known,
}

impl BucketStore {
    /// Returns the content under the keys of refs, also invalid content, in the order of the names.
    ///
    /// # Errors
    /// [`RemoteError::Service`].
    pub(super) async fn read_slots(&self, names: &[&RefName]) -> Result<Vec<RefSlot>, RemoteError> {
        let there = match names.len() > FEW_REFS {
            true => Some(self.client.list(REFS).await?),
            false => None,
        };
        let is_there = |name: &RefName| {
            let key = key(name);
            there.as_ref().is_none_or(|there| there.iter().any(|object| object.key == key))
        };
        let reads = names.iter().map(|name| async {
            match is_there(name) {
                true => self.any_slot(name).await,
                false => Ok(RefSlot::default()),
            }
        });
        join_all(reads).await.into_iter().collect()
    }

    /// Returns the content of a ref.
    ///
    /// # Errors
    /// [`RemoteError::Damaged`] if the content is not a valid ref.
    pub(super) async fn slot(&self, name: &RefName) -> Result<RefSlot, RemoteError> {
        let slot = self.any_slot(name).await?;
        slot.error(name, &self.location).map_or(Ok(slot), Err)
    }

    /// Returns the content of a ref, also invalid content, so that a caller can replace it.
    pub(super) async fn any_slot(&self, name: &RefName) -> Result<RefSlot, RemoteError> {
        let slot = match self.client.find(&key(name), limits::REF_BYTES as u64).await {
            Ok(Some(object)) => RefSlot::of(object),
            Ok(None) => return Ok(RefSlot::default()),
            // Some services with folders answer the read of a folder with a page or an error.
            Err(error) if may_be_folder(&error) && self.ref_names().is_no_ref(name).await => {
                return Ok(RefSlot::default());
            }
            Err(error) if error.reason == FailureReason::TooLong => return Ok(RefSlot::too_long()),
            Err(error) if error.reason == FailureReason::NotAFile => {
                return Ok(RefSlot::unreadable("it is not a regular file".to_owned()));
            }
            Err(error) => return Err(error.into()),
        };
        match slot.is_damaged() && self.ref_names().is_no_ref(name).await {
            true => Ok(RefSlot::default()),
            false => Ok(slot),
        }
    }

    /// Returns why the object under the key of a ref is not a ref; `None` for a ref, a folder, and
    /// an object that is gone. Unlike [`Self::slot`], does not ignore an object that another ref
    /// blocks.
    pub(super) async fn why_no_ref(
        &self,
        name: &RefName,
    ) -> Result<Option<RemoteError>, RemoteError> {
        let slot = match self.client.find(&key(name), limits::REF_BYTES as u64).await {
            Ok(object) => object.map(RefSlot::of).unwrap_or_default(),
            Err(error) if error.reason == FailureReason::TooLong => RefSlot::too_long(),
            Err(error) if may_be_folder(&error) => RefSlot::default(),
            Err(error) => return Err(error.into()),
        };
        Ok(slot.error(name, &self.location))
    }

    /// Reads a file below `refs/` whose name no ref can have.
    pub(super) async fn read_misnamed(&self, key: &str) -> Result<MisnamedFile, RemoteError> {
        let slot = match self.client.find(key, limits::REF_BYTES as u64).await {
            Ok(object) => object.map(RefSlot::of).unwrap_or_default(),
            Err(ServiceError {
                reason: FailureReason::TooLong | FailureReason::NotAFile, ..
            }) => RefSlot::default(),
            Err(error) => return Err(error.into()),
        };
        Ok(MisnamedFile { path: key.escape_debug().to_string(), commit: slot.commit })
    }

    /// Returns all branches and tags, sorted.
    pub(super) async fn stored_refs(&self) -> Result<Vec<(RefName, RefSlot)>, RemoteError> {
        let listed = self.client.list(REFS).await?;
        let mut names: Vec<RefName> =
            listed.iter().filter_map(|object| RefName::parse_full(&object.key)).collect();
        names.sort_unstable();
        let slots = join_all(names.iter().map(|name| self.any_slot(name))).await;
        let mut refs = Vec::with_capacity(names.len());
        for (name, slot) in names.into_iter().zip(slots) {
            refs.push((name, slot?));
        }
        Ok(refs)
    }
}

impl<'a> BucketRefs<'a> {
    /// Moves refs by compare-and-swap. Returns a result for each.
    pub(super) async fn move_refs(
        self,
        moves: &[RefMove<'_>],
        observer: &dyn Observer,
    ) -> Vec<Result<(), RemoteError>> {
        let refuses = self.store.client.facts().refuses_conflicting_refs || self.store.is_new();
        let mut results: Vec<Option<Result<(), RemoteError>>> =
            moves.iter().map(|_| None).collect();
        if !refuses {
            for (at, way) in self.conflicting_refs(moves, |_| true).await {
                results[at] = self.store.ref_names().cannot_be_made(moves[at].name, &way).map(Err);
            }
        }
        let left = moves.iter().zip(results).map(async |(one, result)| match result {
            Some(result) => result,
            None => self.move_ref(*one, observer).await,
        });
        let mut results = join_all(left).await;
        if refuses {
            return results;
        }
        // Delete created refs if another client has created a conflicting ref at the same time.
        for (at, way) in self.conflicting_refs(moves, |at| results[at].is_ok()).await {
            if let Some(error) = self.store.ref_names().stands_beside(moves[at].name, &way) {
                results[at] = Err(self.undo_creation(moves[at], error).await);
            }
        }
        results
    }

    async fn move_ref(self, one: RefMove<'_>, observer: &dyn Observer) -> Result<(), RemoteError> {
        match self.swap(one, observer).await {
            Err(error @ RemoteError::Raced { .. }) => Err(error),
            Err(error) if one.expected.commit.is_none() => {
                Err(self.store.ref_names().explain_conflict(one.name, error).await)
            }
            moved => moved,
        }
    }

    /// Deletes a ref that this client has just created, because of `error`. Returns the error.
    async fn undo_creation(
        self,
        RefMove { name, new, .. }: RefMove<'_>,
        error: RemoteError,
    ) -> RemoteError {
        match self.store.slot(name).await {
            Ok(slot) if slot.commit == new => {
                let undo = RefMove { name, expected: &slot, new: None };
                self.swap(undo, &Silent).await.err().unwrap_or(error)
            }
            // Another client has moved the ref in the meantime.
            _ => error,
        }
    }

    /// Returns the refs that block the names of refs that these moves create, by their positions.
    async fn conflicting_refs(
        self,
        moves: &[RefMove<'_>],
        is_wanted: impl Fn(usize) -> bool,
    ) -> HashMap<usize, BlockingRef> {
        let is_made = |at: &usize| {
            moves[*at].expected.commit.is_none() && moves[*at].new.is_some() && is_wanted(*at)
        };
        let made: Vec<usize> = (0..moves.len()).filter(is_made).collect();
        if made.is_empty() {
            return HashMap::new();
        }
        let names: Vec<&RefName> = made.iter().map(|at| moves[*at].name).collect();
        // If the listing of the refs fails, their moves fail as well and report the error.
        let Ok(mut found) = self.store.ref_names().blocking_refs(&names).await else {
            return HashMap::new();
        };
        let found = made.iter().filter_map(|at| Some((*at, found.remove(moves[*at].name)?)));
        found.collect()
    }

    /// Moves a ref by compare-and-swap.
    ///
    /// # Errors
    /// As [`Peer::swap`](crate::peer::Peer::swap).
    pub(super) async fn swap(
        self,
        RefMove { name, expected, new }: RefMove<'_>,
        observer: &dyn Observer,
    ) -> Result<(), RemoteError> {
        if !expected.is_writable() {
            return Err(self.store.newer(name));
        }
        let can = self.store.conditions(observer).await?;
        match new {
            Some(_) => {
                let expected =
                    self.store.epoch(self.known).fence_ref(name, expected, can, observer).await?;
                self.write_ref(name, &expected, new, can, observer).await
            }
            None => self.write_ref(name, expected, None, can, observer).await,
        }
    }

    /// Replaces the content of a ref by compare-and-swap. A deleted ref keeps its epoch.
    pub(super) async fn write_ref(
        self,
        name: &RefName,
        expected: &RefSlot,
        new: Option<CommitId>,
        can: ConditionalWrites,
        observer: &dyn Observer,
    ) -> Result<(), RemoteError> {
        let epoch = match new {
            None if expected.exists() => expected.epoch(),
            _ => self.known.mirror.epoch(),
        };
        self.write_ref_at(name, expected, NewRef { commit: new, epoch }, can, observer).await
    }

    /// Replaces the content of a ref by compare-and-swap.
    pub(super) async fn write_ref_at(
        self,
        name: &RefName,
        expected: &RefSlot,
        new: NewRef,
        can: ConditionalWrites,
        observer: &dyn Observer,
    ) -> Result<(), RemoteError> {
        let Some(when) = condition(expected, can) else {
            return self.swap_claimed(name, expected, new, observer).await;
        };
        let (key, nonce) = (key(name), Nonce::random());
        let is_result = |now: &RefSlot| match now.nonce() {
            Some(found) => found == nonce,
            None => now.commit == new.commit && !now.is_damaged(),
        };
        let is_told = match self.store.client.put_if(&key, new.text(nonce), when).await {
            Ok(Some(version)) if version.etag.is_some() || version.generation.is_some() => {
                return Ok(());
            }
            // A proxy may answer with 200 in place of the service. Only a version proves that the
            // service has written the ref.
            Ok(_) => true,
            Err(error) if error.reason == FailureReason::Conflict => false,
            // All responses were lost, late, or from a relay that does not know the outcome. Only
            // the ref itself shows whether it has moved.
            Err(error) if error.reason.is_temporary() || error.reason == FailureReason::Other => {
                return match self.store.any_slot(name).await {
                    Ok(now) if is_result(&now) && !now.is_same(expected) => Ok(()),
                    _ => Err(error.into()),
                };
            }
            Err(error) => return Err(error.into()),
        };
        let now = self.store.any_slot(name).await?;
        if is_result(&now) {
            return Ok(());
        }
        let stands = now.is_same(expected);
        match is_told && stands {
            true => Err(RemoteError::unconfirmed_write(&key, &self.store.location)),
            false => Err(self.store.race_error(name, &now)),
        }
    }
}

impl BucketStore {
    /// Creates the error for a ref that a newer version of snap wrote.
    pub(super) fn newer(&self, name: &RefName) -> RemoteError {
        RemoteError::Newer { key: key(name), location: self.location.clone() }
    }

    pub(super) fn race_error(&self, name: &RefName, now: &RefSlot) -> RemoteError {
        let (name, location) = (Box::new(name.clone()), self.location.clone());
        RemoteError::Raced { name, location, theirs: now.commit }
    }
}
