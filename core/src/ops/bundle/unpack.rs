//! `unpack`: adds the contents of a bundle to a store.
//!
//! Packs are received one after the other into an [`Inbox`], and every object is verified against
//! its id. A walk over the whole commit then checks that the bundle and the store together have
//! everything. Nothing becomes part of the store before that.

use std::{io::Read, path::Path};

use crate::{
    base::{
        id::CommitId,
        limits,
        observe::{Observer, Phase},
    },
    disk::NewFile,
    format::bundle::BundleHead,
    ops::{
        bundle::{Error, temporary_store},
        inbox::{Adoption, CompleteCommits, Inbox, SharedInbox, WalkStart},
        reach::ReachError,
    },
    repo::Config,
    store::{BundleError, BundleReader, Store, StoreError, WriteStats},
};

#[derive(Clone, Debug)]
pub struct UnpackOptions {
    /// Commits that refs point at. Everything reachable from them is complete and is not
    /// walked again.
    pub tips: Vec<CommitId>,
    /// Maximum size of the unpacked bundle in bytes. Also limits the bytes that the check of its
    /// chunk lists reads.
    pub most_bytes: u64,
}

/// The result of unpacking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnpackOutcome {
    /// The commit of the bundle.
    pub commit: CommitId,
    /// The commits that the bundle requires.
    pub prerequisites: Vec<CommitId>,
    /// Objects in the bundle.
    pub objects: u64,
    /// Total size of the objects in bytes, uncompressed.
    pub raw_bytes: u64,
    /// Commits that are new to the store.
    pub commits: u64,
    /// Data that was added to the store.
    pub added: WriteStats,
}

/// An open bundle: its reader, and its head, which was read.
pub type OpenedBundle<R> = (BundleReader<R>, BundleHead);

/// A bundle that is checked and complete, but not part of the store yet.
#[derive(Debug)]
pub struct VerifiedBundle<'s> {
    inbox: Inbox<'s>,
    pub head: BundleHead,
    commits: u64,
    options: UnpackOptions,
}

/// Receives and checks a bundle for `store`, without adding its contents. If a check fails, no
/// object has been added.
///
/// # Errors
/// [`Error::Prerequisites`] before any pack is read; other errors if the bundle is damaged or
/// incomplete.
pub fn prepare<'s>(
    store: &'s Store,
    (mut reader, head): OpenedBundle<impl Read>,
    options: &UnpackOptions,
    observer: &dyn Observer,
) -> Result<VerifiedBundle<'s>, Error> {
    check_prerequisites(store, &head)?;
    let (found, most) = (head.raw_bytes, options.most_bytes);
    if found > most {
        return Err(Error::TooMuch { found, most });
    }
    SharedInbox::new(store).sweep_abandoned();
    let mut inbox = Inbox::new(store, observer)?;
    observer.phase(Phase::Bundle, None);
    let received = receive(&mut reader, &head, &mut inbox, observer);
    observer.check()?;
    received?;
    let (objects, raw_bytes) = inbox.totals();
    head.check_totals(objects, raw_bytes)?;
    let found = inbox.named_chunks;
    if found > limits::NAMED_CHUNKS {
        return Err(Error::TooManyChunks { found });
    }
    let commits = check_complete(&inbox, &head, options, observer)?;
    observer.check()?;
    Ok(VerifiedBundle { inbox, head, commits, options: options.clone() })
}

impl VerifiedBundle<'_> {
    /// Returns the store that holds the packs of the bundle.
    pub fn own(&self) -> &Store {
        self.inbox.own()
    }

    /// Adds the bundle to the store as `how` says, and moves no ref. If packs of the store are gone since the
    /// check, completeness is checked again.
    ///
    /// When this returns, the commit and everything it refers to survive a power cut. If adding the
    /// objects fails, the store may have some of them, but nothing refers to them.
    ///
    /// # Errors
    /// As [`prepare`].
    pub fn adopt(self, how: Adoption, observer: &dyn Observer) -> Result<UnpackOutcome, Error> {
        let Self { inbox, head, mut commits, options } = self;
        if inbox.target_lost_packs()? {
            commits = check_complete(&inbox, &head, &options, observer)?;
        }
        let (objects, raw_bytes) = inbox.totals();
        let target = inbox.target();
        let added = inbox.adopt(how)?;
        target.report_repairs(observer);
        let BundleHead { commit, prerequisites, .. } = head;
        Ok(UnpackOutcome { commit, prerequisites, objects, raw_bytes, commits, added })
    }
}

/// Checks a bundle as [`prepare`] does, in a temporary store in the folder `scratch`. The bundle
/// must have no prerequisites. Returns its head.
///
/// # Errors
/// As [`prepare`].
pub fn verify_alone(
    config: &Config,
    scratch: &Path,
    opened: OpenedBundle<impl Read>,
    options: &UnpackOptions,
    observer: &dyn Observer,
) -> Result<BundleHead, Error> {
    let (_scratch, repo) = temporary_store(config, scratch, observer)?;
    Ok(prepare(repo.store(), opened, options, observer)?.head)
}

/// Receives and checks packs, until the bundle ends or the packs exceed the totals in its head.
fn receive(
    reader: &mut BundleReader<impl Read>,
    head: &BundleHead,
    inbox: &mut Inbox<'_>,
    observer: &dyn Observer,
) -> Result<(), BundleError> {
    let is_over = |inbox: &Inbox<'_>| {
        let (objects, raw_bytes) = inbox.totals();
        objects > head.objects || raw_bytes > head.raw_bytes || observer.cancelled()
    };
    if reader.is_file() {
        while let Some((at, bytes)) = reader.next_pack()? {
            let received = inbox.receive_from(reader.skip_pack(bytes)?, observer);
            received.map_err(|error| error.in_pack(at))?;
            if is_over(inbox) {
                break;
            }
        }
        return Ok(());
    }
    // The next pack arrives while the pack before is checked.
    let mut arrived = spool(reader, inbox.new_file()?, observer)?;
    while let Some((at, file)) = arrived {
        let next = inbox.new_file()?;
        let (received, next) = inbox.receive(&file, || spool(reader, next, observer), observer);
        received.map_err(|error| error.in_pack(at))?;
        if is_over(inbox) {
            break;
        }
        arrived = next?;
    }
    Ok(())
}

/// Writes the next pack of a stream to `file`. Returns the file and the offset of the pack in the
/// bundle, or `None` at the end of the bundle.
fn spool(
    reader: &mut BundleReader<impl Read>,
    mut file: NewFile,
    observer: &dyn Observer,
) -> Result<Option<(u64, NewFile)>, BundleError> {
    let Some((at, bytes)) = reader.next_pack()? else { return Ok(None) };
    reader.read_pack(bytes, &mut |piece| {
        observer.advance(piece.len() as u64, 0);
        observer.check()?;
        Ok(file.write(piece)?)
    })?;
    Ok(Some((at, file)))
}

/// Checks that the store has the commits that the bundle requires.
fn check_prerequisites(store: &Store, head: &BundleHead) -> Result<(), Error> {
    let mut missing = Vec::new();
    for id in &head.prerequisites {
        match store.commit(id) {
            Ok(_) if !store.is_alive(&id.object())? => missing.push(*id),
            // A commit that only a remote stores counts as present.
            Ok(_) | Err(StoreError::Absent { .. }) => {}
            Err(StoreError::Missing { .. } | StoreError::WrongKind { .. }) => missing.push(*id),
            Err(error) => return Err(error.into()),
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(Error::Prerequisites { missing }) }
}

/// Walks everything that the commit refers to, up to commits that refs reach. The walk also covers
/// other objects of the store, since they may be left over from an interrupted transfer. Returns
/// the number of new commits. Fails if the bundle contains objects that the walk does not reach.
fn check_complete(
    inbox: &Inbox<'_>,
    head: &BundleHead,
    options: &UnpackOptions,
    observer: &dyn Observer,
) -> Result<u64, Error> {
    observer.phase(Phase::Structure, None);
    // A bundle without prerequisites contains everything that it refers to.
    let is_alone = head.prerequisites.is_empty();
    let tips = if is_alone { &[] } else { options.tips.as_slice() };
    let mut complete = CompleteCommits::of(inbox.target(), tips);
    let starts: Vec<CommitId> = head.prerequisites.iter().copied().chain([head.commit]).collect();
    let walked = inbox.check_complete(WalkStart::Commits(&starts), &mut complete, observer);
    let arrived = walked.map_err(|error| match error {
        ReachError::Blocked(blocked) => blocked.into(),
        ReachError::Store(StoreError::Io(error)) => Error::Io(error),
        ReachError::Store(error) if error.is_remote() => Error::Store(error),
        error => Error::Broken { commit: head.commit, source: Box::new(error) },
    })?;
    if arrived.objects < head.objects {
        // Nothing refers to these objects, so they would be garbage.
        return Err(BundleError::Stray { count: head.objects - arrived.objects }.into());
    }
    Ok(arrived.commits)
}
