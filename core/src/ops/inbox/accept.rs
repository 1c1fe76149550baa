//! `accept`: adds received packs to the store in one step, if every object that they refer to is
//! present.
//!
//! The contents of each pack were checked when it was received ([`check`]). This module checks that
//! nothing is missing: every object that the commits, trees and chunked contents in the packs refer
//! to is in the packs or in the store. The walk also covers objects of the store that no ref
//! reaches, because an interrupted transfer may have left them behind.
//!
//! The check may take long and changes nothing, so several can run concurrently
//! ([`prepare`]). Packs that passed it are then added to the store in one step
//! ([`VerifiedPacks::adopt`]).

use std::path::{Path, PathBuf};

use super::{Adoption, CompleteCommits, Inbox, WalkStart};
use crate::{
    base::{
        blocked::Blocked,
        id::{CommitId, ObjectId, PackId},
        kind::Kind,
        limits,
        observe::{Observer, Phase},
    },
    format::pack::ObjectKind,
    ops::reach::{self, ReachError},
    store::{Marks, ObjectLocation, PackFile, PackStream, Store, StoreError, WriteStats},
};

/// The reason why packs were not added.
#[derive(Debug, thiserror::Error, Kind)]
#[non_exhaustive]
pub enum AcceptError {
    /// An object that the packs refer to is missing or damaged.
    #[error("the packs refer to objects that are missing")]
    #[kind(Damaged)]
    Incomplete(#[source] Box<ReachError>),
    /// The chunk lists name more chunks than [`limits::NAMED_CHUNKS`].
    #[error(
        "the chunk lists of these packs name {found} chunks; the limit is {}",
        limits::NAMED_CHUNKS
    )]
    #[kind(Invalid)]
    TooMuch { found: u64 },
    /// The store could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The operation stopped early.
    #[error(transparent)]
    Blocked(#[from] Blocked),
}

impl AcceptError {
    /// Returns true if the store is certainly unchanged.
    pub fn changed_nothing(&self) -> bool {
        !matches!(self, Self::Store(_))
    }

    /// Returns true if the error may come from packs that were damaged after they were
    /// checked.
    pub fn may_be_damage(&self) -> bool {
        !matches!(self, Self::TooMuch { .. } | Self::Blocked(Blocked::Interrupted))
    }
}

/// Checks a pack on its own: its footer, every frame, every object against its id, and its hash
/// against its name.
///
/// # Errors
/// [`AcceptError::Store`] when the pack is damaged or cannot be read;
/// [`AcceptError::Blocked`].
pub fn check(path: &Path, id: PackId, observer: &dyn Observer) -> Result<(), AcceptError> {
    let pack = PackFile::open(path, id)?;
    let mut sink = |_: &[u8]| Ok::<_, StoreError>(());
    match PackStream::of(&pack, observer).check(&pack.objects()?, &mut sink)? {
        true => Ok(()),
        false => Err(Blocked::Interrupted.into()),
    }
}

/// Packs that are checked and complete, but not part of the store yet.
#[derive(Debug)]
pub struct VerifiedPacks<'s> {
    inbox: Inbox<'s>,
    tips: Vec<CommitId>,
}

/// Checks that packs are complete, without adding them to the store. Each pack has passed
/// [`check`]. `tips` are the commits that refs point at.
///
/// # Errors
/// [`AcceptError`].
pub fn prepare<'s>(
    store: &'s Store,
    packs: &[(PackId, PathBuf)],
    tips: &[CommitId],
    observer: &dyn Observer,
) -> Result<VerifiedPacks<'s>, AcceptError> {
    let mut inbox = Inbox::new(store, observer)?;
    for (id, path) in packs {
        inbox.link(path, *id)?;
    }
    let found = inbox.named_chunks;
    if found > limits::NAMED_CHUNKS {
        return Err(AcceptError::TooMuch { found });
    }
    observer.phase(Phase::Structure, None);
    let prepared = VerifiedPacks { inbox, tips: tips.to_vec() };
    prepared.check_complete(observer)?;
    observer.check()?;
    Ok(prepared)
}

impl VerifiedPacks<'_> {
    /// Returns the store that holds the packs.
    pub fn own(&self) -> &Store {
        self.inbox.own()
    }

    /// Adds the packs to the store, durably. If packs of the store are gone since the check,
    /// usually because they were merged, checks completeness again. Reads no contents again, since
    /// their ids have not changed.
    ///
    /// # Errors
    /// [`AcceptError`].
    pub fn adopt(self, observer: &dyn Observer) -> Result<WriteStats, AcceptError> {
        if self.inbox.target_lost_packs()? {
            self.check_complete(observer)?;
        }
        Ok(self.inbox.adopt(Adoption::Packs)?)
    }

    fn check_complete(&self, observer: &dyn Observer) -> Result<(), AcceptError> {
        let mut complete = CompleteCommits::of(self.inbox.target(), &self.tips);
        let checked = self.inbox.check_complete(WalkStart::AllObjects, &mut complete, observer);
        checked.map(drop).map_err(reach_error)
    }
}

/// Checks that the store has everything that a commit refers to; with `only_whole`, that its whole
/// packs have it. `tips` are the commits that refs point at, which are known to be complete.
///
/// # Errors
/// [`AcceptError`]; [`AcceptError::Incomplete`] for the first object that is missing.
pub fn check_commit(
    store: &Store,
    id: &CommitId,
    tips: &[CommitId],
    only_whole: bool,
    observer: &dyn Observer,
) -> Result<(), AcceptError> {
    let mut complete = CompleteCommits::of(store, tips);
    let marks = Marks::new(store);
    let is_whole = |place: &ObjectLocation| {
        store.pack_id(place.pack).is_some_and(|pack| !store.is_partial(&pack))
    };
    let mut enter = |id: &ObjectId, place: &ObjectLocation| {
        if !only_whole {
            store.check_alive(id, place.kind)?;
        } else if !is_whole(place) && !store.places(id)?.iter().any(is_whole) {
            return Err(StoreError::Missing { id: *id, wanted: place.kind });
        }
        let is_complete = place.kind == ObjectKind::Commit && complete.has(id)?;
        Ok(!is_complete && place.kind != ObjectKind::Blob && marks.mark(id)?)
    };
    reach::visit(store, &[*id], &mut enter, observer).map_err(reach_error)
}

fn reach_error(error: ReachError) -> AcceptError {
    match error {
        ReachError::Blocked(blocked) => blocked.into(),
        ReachError::Store(error) if is_local_fault(&error) => AcceptError::Store(error),
        error => AcceptError::Incomplete(Box::new(error)),
    }
}

/// Returns true if an error concerns this store and not the received packs: a failing
/// disk, a damaged index, or an object that cannot be fetched.
fn is_local_fault(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Io(_)
            | StoreError::Index(_)
            | StoreError::Fetch { .. }
            | StoreError::CorruptedInTransit { .. }
    )
}
