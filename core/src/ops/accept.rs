//! `accept`: packs that somebody sent become part of the store, all at once,
//! if what they refer to is there.
//!
//! What is in each pack was checked when it came ([`check`]). Here it is seen
//! to that nothing is missing: all that the commits, trees and cut contents in
//! the packs refer to is in the packs or in the store. What the store has and no
//! ref reaches may be left from something that did not come to its end, so it
//! is walked, too.
//!
//! Checking may take long, and changes nothing: many may be at it at a time
//! ([`prepare`]). What was found right then becomes part of the store at once
//! ([`Prepared::adopt`]).

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use crate::{
    base::{
        id::{CommitId, ObjectId, PackId},
        kind::ErrorKind,
        observe::{Observer, Phase},
    },
    format::pack::{Object, ObjectKind},
    ops::reach::{self, ReachError},
    store::{Added, Incoming, Marks, PackFile, Place, Store, StoreError},
};

/// Why packs were not taken in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// Something that they refer to is missing or damaged.
    #[error("the packs are not complete")]
    Incomplete(#[source] Box<ReachError>),
    /// A content that was cut does not hash to its id.
    #[error("the packs are damaged")]
    Damaged(#[source] StoreError),
    /// Contents that were cut are more than were to be read.
    #[error("to check the chunk lists in them takes {found} bytes, and {most} are allowed")]
    TooMuch {
        /// What it takes.
        found: u64,
        /// What is allowed.
        most: u64,
    },
    /// The store could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Whoever asked wants it no more.
    #[error("interrupted")]
    Interrupted,
}

impl AcceptError {
    /// Whether the store is certainly as it was.
    pub fn changed_nothing(&self) -> bool {
        !matches!(self, Self::Store(_))
    }

    /// What a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Incomplete(_) | Self::Damaged(_) => ErrorKind::Damaged,
            Self::TooMuch { .. } => ErrorKind::Invalid,
            Self::Store(error) => error.kind(),
            Self::Interrupted => ErrorKind::Interrupted,
        }
    }
}

/// Checks a pack on its own: its footer, every frame, every object against its
/// id but for chunk lists. **Not** checked: that the file hashes to its name.
///
/// # Errors
/// [`AcceptError::Store`] with what is wrong, [`AcceptError::Interrupted`].
pub fn check(path: &Path, id: PackId, observer: &dyn Observer) -> Result<(), AcceptError> {
    let pack = PackFile::open(path, id)?;
    pack.check(&pack.objects()?, observer)?;
    if observer.cancelled() { Err(AcceptError::Interrupted) } else { Ok(()) }
}

/// Takes in packs that were [checked](check). `tips` are commits that refs point
/// at. When it returns they are durable; when it fails nothing was added.
///
/// # Errors
/// [`AcceptError`].
pub fn run(
    store: &Store,
    packs: &[(PackId, PathBuf)],
    tips: &[CommitId],
    observer: &dyn Observer,
) -> Result<Added, AcceptError> {
    prepare(store, packs, (tips, u64::MAX), observer)?.adopt(observer)
}

/// Packs that were found right and complete, and are no part of the store yet.
#[derive(Debug)]
pub struct Prepared<'s> {
    incoming: Incoming<'s>,
    tips: Vec<CommitId>,
}

/// Checks packs as [`run`] does, without adding them. No more than `most` bytes of
/// contents that were cut are read for that.
///
/// # Errors
/// [`AcceptError`].
pub fn prepare<'s>(
    store: &'s Store,
    packs: &[(PackId, PathBuf)],
    (tips, most): (&[CommitId], u64),
    observer: &dyn Observer,
) -> Result<Prepared<'s>, AcceptError> {
    let mut incoming = Incoming::new(store, observer)?;
    for (id, path) in packs {
        incoming.accept(path, *id)?;
    }
    let damaged = |error| match is_ours(&error) {
        true => AcceptError::Store(error),
        false => AcceptError::Damaged(error),
    };
    let found = incoming.listed_bytes(observer).map_err(damaged)?;
    if found > most {
        return Err(AcceptError::TooMuch { found, most });
    }
    observer.phase(Phase::Structure, None);
    check_complete(&incoming, tips, observer)?;
    observer.phase(Phase::Data, None);
    incoming.check_lists(observer).map_err(damaged)?;
    if observer.cancelled() {
        return Err(AcceptError::Interrupted);
    }
    Ok(Prepared { incoming, tips: tips.to_vec() })
}

impl Prepared<'_> {
    /// Makes them part of the store, durably. What the store had when they were
    /// checked it has still, unless packs are gone: merged, as a rule. Then it is
    /// looked whether all is there, but contents are not read again: ids say what
    /// they are.
    ///
    /// # Errors
    /// [`AcceptError`].
    pub fn adopt(self, observer: &dyn Observer) -> Result<Added, AcceptError> {
        if self.incoming.has_lost()? {
            check_complete(&self.incoming, &self.tips, observer)?;
        }
        Ok(self.incoming.adopt_packs()?)
    }
}

/// Checks that a commit of the store has all that it refers to there. `tips` are
/// commits that refs point at, which do.
///
/// # Errors
/// [`AcceptError`].
pub fn check_commit(
    store: &Store,
    id: &CommitId,
    tips: &[CommitId],
    observer: &dyn Observer,
) -> Result<(), AcceptError> {
    let mut complete = Complete { store, tips, all: None };
    let marks = Marks::new(store);
    let mut enter = |id: &ObjectId, place: &Place| {
        let is_complete = place.kind == ObjectKind::Commit && complete.has(id)?;
        Ok(!is_complete && place.kind != ObjectKind::Blob && marks.mark(id)?)
    };
    reach::visit(store, &[*id], &mut enter, observer).map_err(told)
}

fn told(error: ReachError) -> AcceptError {
    match error {
        ReachError::Interrupted => AcceptError::Interrupted,
        ReachError::Store(error) if is_ours(&error) => AcceptError::Store(error),
        error => AcceptError::Incomplete(Box::new(error)),
    }
}

/// A disk that fails, and what lies elsewhere and cannot be had, say nothing
/// about what was sent.
fn is_ours(error: &StoreError) -> bool {
    matches!(error, StoreError::Io(_) | StoreError::Distant { .. } | StoreError::Garbled { .. })
}

fn check_complete(
    incoming: &Incoming<'_>,
    tips: &[CommitId],
    observer: &dyn Observer,
) -> Result<(), AcceptError> {
    let mut complete = Complete { store: incoming.target(), tips, all: None };
    let (ours, theirs) = (Marks::new(incoming.own()), Marks::new(incoming.target()));
    let mut enter = |id: &ObjectId, place: &Place| {
        if incoming.own().locate(id)?.is_some() {
            return ours.mark(id);
        }
        let is_complete = place.kind == ObjectKind::Commit && complete.has(id)?;
        Ok(!is_complete && theirs.mark(id)? && incoming.has_below(place)?)
    };
    for id in incoming.packs() {
        let objects = incoming.own().open_pack(id)?.objects()?;
        let of_kind = |kind| objects.iter().filter(move |object: &&Object| object.kind == kind);
        let commits: Vec<CommitId> =
            of_kind(ObjectKind::Commit).map(|object| CommitId::from_object(object.id)).collect();
        reach::visit(incoming, &commits, &mut enter, observer).map_err(told)?;
        // What no commit reaches must be complete, too: others may come to refer
        // to it.
        for kind in [ObjectKind::Tree, ObjectKind::ChunkList] {
            let starts: Vec<_> = of_kind(kind).map(|object| (object.id, kind)).collect();
            reach::visit_below(incoming, &starts, &mut enter, observer).map_err(told)?;
        }
    }
    Ok(())
}

/// Commits that refs reach, with all that they refer to.
struct Complete<'a> {
    store: &'a Store,
    tips: &'a [CommitId],
    /// Found out when it is needed: most pushes go on from a tip.
    all: Option<HashSet<ObjectId>>,
}

impl Complete<'_> {
    /// The parents of a commit; `None` when the store has lost it.
    fn parents(&self, id: &CommitId) -> Result<Option<Vec<CommitId>>, StoreError> {
        match self.store.commit(id) {
            Ok(commit) => Ok(Some(commit.parents)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Damaged) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn has(&mut self, id: &ObjectId) -> Result<bool, StoreError> {
        if let Some(tip) = self.tips.iter().find(|tip| tip.object() == *id) {
            return Ok(self.parents(tip)?.is_some());
        }
        if self.all.is_none() {
            let mut all = HashSet::new();
            let mut waiting = self.tips.to_vec();
            while let Some(id) = waiting.pop() {
                if all.contains(&id.object()) {
                    continue;
                }
                // What is sent may be what the store has lost.
                let Some(parents) = self.parents(&id)? else { continue };
                all.insert(id.object());
                waiting.extend(parents);
            }
            self.all = Some(all);
        }
        Ok(self.all.as_ref().is_some_and(|all| all.contains(id)))
    }
}
