//! `unpack`: take a bundle into a store.
//!
//! Packs are received one after the other into a place apart; every object is
//! checked against its id; that the commit is complete, in the bundle and the
//! store together, is checked by walking all of it. Only then does anything
//! become part of the store.

use std::{collections::HashSet, io::Read};

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

/// Choices.
#[derive(Clone, Debug)]
pub struct Options {
    /// Commits that refs point at: what they reach is complete, and is not
    /// walked again.
    pub tips: Vec<CommitId>,
    /// zstd level for what has to be compressed again.
    pub level: i32,
    /// No more bytes of contents are expanded, nor read to check chunk lists.
    pub most_bytes: u64,
}

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
    options: &Options,
    observer: &dyn Observer,
) -> Result<Outcome, Error> {
    prepare(store, input, options, observer)?.adopt(observer)
}

/// A bundle that was found right and complete, and is no part of the store yet.
#[derive(Debug)]
pub struct Prepared<'s> {
    incoming: Incoming<'s>,
    head: Head,
    commits: u64,
    options: Options,
}

/// Checks a bundle as [`run`] does, without adding what is in it.
///
/// # Errors
/// As [`run`].
pub fn prepare<'s>(
    store: &'s Store,
    input: impl Read,
    options: &Options,
    observer: &dyn Observer,
) -> Result<Prepared<'s>, Error> {
    let started = BundleReader::new(input);
    if observer.cancelled() {
        return Err(Error::Interrupted);
    }
    let (mut reader, head) = started?;
    check_prerequisites(store, &head)?;
    check_work(head.raw_bytes, options)?;
    let mut incoming = Incoming::new(store, observer)?;
    observer.phase(Phase::Bundle, None);
    let received = receive(&mut reader, &head, &mut incoming, observer);
    if observer.cancelled() {
        return Err(Error::Interrupted);
    }
    received?;
    let (objects, raw_bytes) = incoming.totals();
    head.check_totals(objects, raw_bytes)?;
    check_work(incoming.listed_bytes(observer)?, options)?;
    let commits = check_complete(&incoming, &head, options, observer)?;
    observer.phase(Phase::Data, None);
    incoming.check_lists(observer).map_err(|error| match error.is_elsewhere() {
        true => Error::Store(error),
        false => Error::Damaged(error),
    })?;
    if observer.cancelled() {
        return Err(Error::Interrupted);
    }
    Ok(Prepared { incoming, head, commits, options: options.clone() })
}

impl Prepared<'_> {
    /// Makes it part of the store, durably. Where packs of the store went since it
    /// was checked, it is looked once more whether all is there.
    ///
    /// # Errors
    /// As [`run`].
    pub fn adopt(self, observer: &dyn Observer) -> Result<Outcome, Error> {
        let Self { incoming, head, mut commits, options } = self;
        if incoming.has_lost()? {
            commits = check_complete(&incoming, &head, &options, observer)?;
        }
        let (objects, raw_bytes) = incoming.totals();
        let target = incoming.target();
        let added = incoming.adopt(options.level)?;
        target.tell_repairs(observer);
        let Head { commit, prerequisites, .. } = head;
        Ok(Outcome { commit, prerequisites, objects, raw_bytes, commits, added })
    }
}

fn check_work(found: u64, options: &Options) -> Result<(), Error> {
    let most = options.most_bytes;
    if found > most { Err(Error::TooMuch { found, most }) } else { Ok(()) }
}

/// Receives and checks all packs, or as many as the head says.
fn receive(
    reader: &mut BundleReader<impl Read>,
    head: &Head,
    incoming: &mut Incoming<'_>,
    observer: &dyn Observer,
) -> Result<(), BundleError> {
    loop {
        let at = reader.at();
        let Some(bytes) = reader.next_pack()? else { return Ok(()) };
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
        let (objects, raw_bytes) = incoming.totals();
        if objects > head.objects || raw_bytes > head.raw_bytes || observer.cancelled() {
            return Ok(());
        }
    }
}

/// Whether the store has what the bundle builds on.
fn check_prerequisites(store: &Store, head: &Head) -> Result<(), Error> {
    let mut missing = Vec::new();
    for id in &head.prerequisites {
        match store.commit(id) {
            // What lies elsewhere is known.
            Ok(_) | Err(StoreError::Absent { .. }) => {}
            Err(StoreError::Missing { .. } | StoreError::WrongKind { .. }) => missing.push(*id),
            Err(error) => return Err(error.into()),
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(Error::Prerequisites { missing }) }
}

/// Walks all that the commit refers to, up to commits that refs reach. What
/// else the store has may be left from something that did not come to its end,
/// and is walked, too. Returns how many commits are new, and sees to it that
/// everything in the bundle was reached.
fn check_complete(
    incoming: &Incoming<'_>,
    head: &Head,
    options: &Options,
    observer: &dyn Observer,
) -> Result<u64, Error> {
    observer.phase(Phase::Structure, None);
    let target = incoming.target();
    let (ours, theirs) = (Marks::new(incoming.own()), Marks::new(target));
    let complete = complete_commits(target, head, options)?;
    let (mut commits, mut reached) = (0, 0);
    let mut enter = |id: &ObjectId, place: &Place| {
        if incoming.own().locate(id)?.is_some() {
            let new = ours.mark(id)?;
            reached += u64::from(new);
            if new && place.kind == ObjectKind::Commit && target.locate(id)?.is_none() {
                commits += 1;
            }
            return Ok(new);
        }
        Ok(!complete.contains(id) && theirs.mark(id)? && incoming.has_below(place)?)
    };
    let starts: Vec<CommitId> = head.prerequisites.iter().copied().chain([head.commit]).collect();
    let walked = reach::visit(incoming, &starts, &mut enter, observer);
    walked.map_err(|error| match error {
        ReachError::Interrupted => Error::Interrupted,
        ReachError::Store(StoreError::Io(error)) => Error::Io(error),
        ReachError::Store(error) if error.is_elsewhere() => Error::Store(error),
        error => Error::Broken { commit: head.commit, source: Box::new(error) },
    })?;
    if reached < head.objects {
        // Nobody would ever find them again.
        return Err(BundleError::Stray { count: head.objects - reached }.into());
    }
    Ok(commits)
}

/// Commits that refs reach; none where the bundle builds on none.
fn complete_commits(
    store: &Store,
    head: &Head,
    options: &Options,
) -> Result<HashSet<ObjectId>, StoreError> {
    // A bundle of everything has what it refers to.
    if head.prerequisites.is_empty() {
        return Ok(HashSet::new());
    }
    let mut complete = HashSet::new();
    let mut waiting = options.tips.clone();
    while let Some(id) = waiting.pop() {
        if !complete.insert(id.object()) {
            continue;
        }
        // What lies elsewhere is not fetched to know what came before it.
        let place = store.locate(&id.object())?;
        if place.is_none_or(|place| store.is_here(&place).unwrap_or(true)) {
            waiting.extend(store.commit(&id)?.parents);
        }
    }
    Ok(complete)
}
