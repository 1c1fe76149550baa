//! `unpack`: take a bundle into a store.
//!
//! Packs are received one after the other into a place apart; every object is
//! checked against its id; that the commit is complete, in the bundle and the
//! store together, is checked by walking all of it. Only then does anything
//! become part of the store.

use std::io::Read;

use crate::{
    base::{
        id::{CommitId, ObjectId},
        observe::{Observer, Phase},
    },
    format::{bundle::Head, pack::ObjectKind},
    ops::{
        bundle::Error,
        reach::{self, ReachError},
    },
    store::{Added, BundleError, BundleReader, Incoming, Marks, Place, Store, StoreError},
};

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The commit that the bundle is about.
    pub commit: CommitId,
    /// What it builds on.
    pub prerequisites: Vec<CommitId>,
    /// Objects in the bundle.
    pub objects: u64,
    /// Their bytes, uncompressed.
    pub raw_bytes: u64,
    /// Commits that were not in the store, newest not necessarily first.
    pub commits: u64,
    /// What was added to the store.
    pub added: Added,
}

/// Takes the bundle that `input` holds into `store`. No ref is moved.
///
/// When it returns, the commit and all it refers to survive a power cut. When
/// it fails, no object has been added.
///
/// # Errors
/// [`Error::Prerequisites`] before anything was read but the head; others
/// when the bundle is damaged or not complete.
pub fn run(
    store: &Store,
    input: impl Read,
    level: i32,
    observer: &dyn Observer,
) -> Result<Outcome, Error> {
    let (mut reader, head) = BundleReader::new(input)?;
    check_prerequisites(store, &head)?;
    let mut incoming = Incoming::new(store, observer)?;
    observer.phase(Phase::Bundle, None);
    loop {
        let at = reader.at();
        let Some(bytes) = reader.next_pack()? else { break };
        let id = incoming.receive(|take| {
            reader.read_pack(bytes, &mut |piece| {
                observer.advance(piece.len() as u64, 0);
                if observer.cancelled() { Err(BundleError::Interrupted) } else { take(piece) }
            })
        })?;
        incoming.check(id, observer).map_err(|error| match error {
            BundleError::Store(source) if source.damaged_pack().is_some() => {
                BundleError::Pack { at, source }
            }
            other => other,
        })?;
        let (objects, _) = incoming.totals();
        if objects > head.objects {
            break;
        }
        if observer.cancelled() {
            return Err(Error::Interrupted);
        }
    }
    let (objects, raw_bytes) = incoming.totals();
    head.check_totals(objects, raw_bytes)?;
    let commits = check_complete(&incoming, &head, observer)?;
    observer.phase(Phase::Data, None);
    incoming.check_lists(observer).map_err(Error::Damaged)?;
    if observer.cancelled() {
        return Err(Error::Interrupted);
    }
    let added = incoming.adopt(level)?;
    store.tell_repairs(observer);
    let Head { commit, prerequisites, .. } = head;
    Ok(Outcome { commit, prerequisites, objects, raw_bytes, commits, added })
}

/// Whether the store has what the bundle builds on.
fn check_prerequisites(store: &Store, head: &Head) -> Result<(), Error> {
    let mut missing = Vec::new();
    for id in &head.prerequisites {
        match store.commit(id) {
            Ok(_) => {}
            Err(StoreError::Missing { .. } | StoreError::WrongKind { .. }) => missing.push(*id),
            Err(error) => return Err(error.into()),
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(Error::Prerequisites { missing }) }
}

/// Walks all that the commit refers to. Commits of the store are complete, so
/// the walk ends at them; what else the store has may be left from something
/// that did not come to its end, and is walked, too. Returns how many commits
/// are new, and sees to it that everything in the bundle was reached.
fn check_complete(
    incoming: &Incoming<'_>,
    head: &Head,
    observer: &dyn Observer,
) -> Result<u64, Error> {
    observer.phase(Phase::Structure, None);
    let (ours, theirs) = (Marks::new(incoming.own()), Marks::new(incoming.target()));
    let (mut commits, mut reached) = (0, 0);
    let mut enter = |id: &ObjectId, place: &Place| {
        let is_known_commit =
            place.kind == ObjectKind::Commit && incoming.target().locate(id)?.is_some();
        if incoming.own().locate(id)?.is_some() {
            let new = ours.mark(id)?;
            reached += u64::from(new);
            commits += u64::from(new && place.kind == ObjectKind::Commit && !is_known_commit);
            return Ok(new);
        }
        Ok(!is_known_commit && theirs.mark(id)?)
    };
    let walked = reach::visit(incoming, &[head.commit], &mut enter, observer);
    walked.map_err(|error| match error {
        ReachError::Interrupted => Error::Interrupted,
        ReachError::Store(StoreError::Io(error)) => Error::Io(error),
        source => Error::Broken { commit: head.commit, source },
    })?;
    if reached < head.objects {
        // Nobody would ever find them again.
        return Err(BundleError::Stray { count: head.objects - reached }.into());
    }
    Ok(commits)
}
