//! Repairs a remote store: uploads lost data again, from any source that still has it.
//!
//! A verification marks the damaged and lost parts in the mirror. [`repair::collect`] of the engine
//! finds that data in the sources and builds packs, which the repair uploads. A damaged pack keeps
//! its name. No ref moves.
//!
//! Before that, the repair writes a lost state of garbage collection again, and lists packs again that
//! no readable index file names ([`unlisted_packs`](crate::unlisted_packs)). At the end, it removes lost packs that no ref needs
//! from the index.

use std::path::Path;

use snap_core::{
    base::{
        id::{CommitId, PackId},
        observe::Observer,
    },
    ops::{
        reach::ReachError,
        repair::{
            self, Collected, LostObject, RepairRun, RepairTarget, Repaired, ScratchStore, Sources,
        },
        verify::{Data, VerifyError},
    },
    store::Store,
};

use crate::{
    peer::{INDEX, Mend, RemoteError, RemoteStore},
    remote_packs::{BlockingContext, RemotePacks},
    transfer::push,
    unlisted_packs::UnlistedPacks,
    verify::{self, SeenRefs},
};

/// Options of a repair.
#[derive(Clone, Copy, Debug)]
pub struct RemoteRepairOptions<'a> {
    /// How much of the remote data the verification reads and hashes.
    pub data: Data,
    /// A dry run uploads nothing.
    pub run: RepairRun,
    /// Compression level of new packs.
    pub level: i32,
    /// Parent of the scratch folder of the repair.
    pub scratch: &'a Path,
    /// Remote-tracking branches, with the last known commits of the branches.
    pub seen: SeenRefs<'a>,
}

/// The result of a repair, or the expected result of a dry run.
#[derive(Debug, Default)]
pub struct RemoteRepairOutcome {
    /// Number of problems that the first verification found.
    pub problems: usize,
    /// Data that the repair uploaded again.
    pub repaired: Vec<Repaired>,
    /// Number of packs that the repair listed again.
    pub relisted: usize,
    /// Lost packs that no ref needs; the repair removed them from the index.
    pub unlisted: Vec<PackId>,
    /// Bytes of uploaded packs.
    pub sent_bytes: u64,
    /// Keys of rewritten and removed damaged index files, and of new ones that list their packs
    /// again.
    pub repaired_keys: Vec<String>,
    /// Objects that no source has.
    pub lost: Vec<LostObject>,
    /// The result of the last verification: the problems that remain. In a dry run it is
    /// the only verification.
    pub left: verify::RemoteVerifyOutcome,
}

/// Opens the remote store. Each step opens it again.
pub type RemoteOpener<'f> = dyn Fn() -> Result<RemoteStore, RemoteError> + 'f;

/// Repairs the store that `open` opens, with the data in `sources`. Blocks; must not be called on a
/// thread of the runtime.
///
/// # Errors
/// [`RemoteError`]; packs uploaded before the error remain.
pub fn run(
    open: &RemoteOpener<'_>,
    sources: &Sources<'_, '_>,
    options: &RemoteRepairOptions<'_>,
    waiting: &BlockingContext,
    observer: &dyn Observer,
) -> Result<RemoteRepairOutcome, RemoteError> {
    if options.run == RepairRun::Real {
        waiting.runtime.block_on(open()?.begin())?;
    }
    let (mut outcome, mut data) = (RemoteRepairOutcome::default(), options.data);
    if options.run == RepairRun::Real {
        outcome.repaired_keys.extend(waiting.runtime.block_on(mend_gc(open()?))?);
    }
    let epoch = waiting.runtime.block_on(open()?.place().peer().present_epoch())?;
    let (mut round_before, mut has_mended, mut has_relisted) = (None, false, false);
    loop {
        let checks = snap_core::ops::verify::VerifyOptions { data };
        let found = verify::run(open()?, &checks, options.seen, waiting, observer)?;
        if round_before.is_none() {
            let mended = outcome.repaired_keys.len();
            outcome.problems = mended + found.problems.len() + found.found.problems.len();
        }
        if found.is_intact() {
            outcome.unlisted = unlist(open()?, &found.found.unneeded_packs, options, waiting)?;
            outcome.left = found;
            outcome.lost.clear();
            return Ok(outcome);
        }
        let mut unlisted = None;
        if !has_relisted {
            has_relisted = true;
            unlisted = find_unlisted(open()?, &found.found.roots, waiting, observer)?;
            outcome.relisted = unlisted.as_ref().map_or(0, UnlistedPacks::len);
            if let Some(unlisted) = &unlisted
                && options.run == RepairRun::Real
            {
                let mut remote = open()?;
                check_epoch(open()?, epoch, waiting)?;
                let listing = async {
                    remote.refresh_around_damage(false).await?;
                    unlisted.list(&remote).await
                };
                outcome.repaired_keys.extend(waiting.runtime.block_on(listing)?);
                // Verify again: the relisted packs need the same check as the others.
                continue;
            }
        }
        let workshop = ScratchStore::create(options.scratch)?;
        let stubs = open_stubs(open()?, unlisted.as_ref(), waiting)?;
        let Collected { packs, repaired, lost, .. } =
            collect(&stubs, sources, &workshop, options, &found.found.roots, observer)?;
        drop(stubs);
        outcome.lost = lost;
        if let Some(partial) = &found.partial {
            outcome.lost.retain(|lost| !partial.objects.contains(&lost.id));
        }
        let is_new = !packs.is_empty() && round_before.as_ref() != Some(&repaired);
        let is_index_alone = found.problems.iter().all(is_of_index) && outcome.lost.is_empty();
        if options.run == RepairRun::Real && !is_new && is_index_alone && !has_mended {
            // The index lists all objects that refs reach. So a damaged index file is redundant,
            // even if this client does not know its content.
            has_mended = true;
            let mended = waiting.runtime.block_on(mend_index(&mut open()?))?;
            let is_any = !mended.is_empty();
            // A new file may have the name of the damaged one.
            outcome.repaired_keys.retain(|key| !mended.contains(key));
            outcome.repaired_keys.extend(mended);
            if is_any {
                data = Data::None;
                continue;
            }
        }
        if options.run == RepairRun::Dry || !is_new {
            if options.run == RepairRun::Dry {
                outcome.repaired = repaired;
            }
            outcome.left = found;
            return Ok(outcome);
        }
        let runtime = &waiting.runtime;
        check_epoch(open()?, epoch, waiting)?;
        outcome.sent_bytes +=
            push::send_packs(&mut open()?, workshop.store(), &packs, runtime, observer)?;
        outcome.repaired.extend(repaired.iter().cloned());
        round_before = Some(repaired);
        data = Data::None;
    }
}

/// Writes a lost state of garbage collection or its table again. Returns the key.
async fn mend_gc(mut remote: RemoteStore) -> Result<Vec<String>, RemoteError> {
    if remote.place().peer().collection_problem().await?.is_none() {
        return Ok(Vec::new());
    }
    remote.refresh_around_damage(false).await?;
    remote.mend(Mend::Collection).await
}

/// Checks that no collection has begun since the repair has read the refs: it may have found some of
/// the objects dead that the packs of the repair refer to.
fn check_epoch(
    remote: RemoteStore,
    epoch: u64,
    waiting: &BlockingContext,
) -> Result<(), RemoteError> {
    match waiting.runtime.block_on(remote.place().peer().present_epoch())? == epoch {
        true => Ok(()),
        false => Err(remote.place().collected()),
    }
}

/// Removes lost packs from the index.
fn unlist(
    mut remote: RemoteStore,
    lost: &[PackId],
    options: &RemoteRepairOptions<'_>,
    waiting: &BlockingContext,
) -> Result<Vec<PackId>, RemoteError> {
    if lost.is_empty() {
        return Ok(Vec::new());
    }
    waiting.runtime.block_on(async {
        remote.refresh_around_damage(false).await?;
        remote.place().peer().unlist(remote.known(), lost, options.run).await
    })
}

/// Returns true if a problem concerns a file of the index.
fn is_of_index(problem: &RemoteError) -> bool {
    matches!(problem, RemoteError::Damaged { key, .. } if key.starts_with(INDEX))
}

/// Rewrites damaged files of the index, or removes those whose content this client does not
/// know. Returns their keys.
async fn mend_index(remote: &mut RemoteStore) -> Result<Vec<String>, RemoteError> {
    remote.refresh_around_damage(false).await?;
    remote.mend(Mend::Index).await
}

/// Returns the packs to list again, if there are any.
fn find_unlisted(
    mut remote: RemoteStore,
    tips: &[CommitId],
    waiting: &BlockingContext,
    observer: &dyn Observer,
) -> Result<Option<UnlistedPacks>, RemoteError> {
    waiting.runtime.block_on(remote.refresh_around_damage(false))?;
    let found = UnlistedPacks::find(&remote, tips, waiting, observer)?;
    Ok(Some(found).filter(|found| found.len() > 0))
}

/// Opens the index of the remote store as a store that fetches its objects. In a dry run,
/// `unlisted` are the packs that a real run would have listed again.
fn open_stubs(
    mut remote: RemoteStore,
    unlisted: Option<&UnlistedPacks>,
    waiting: &BlockingContext,
) -> Result<Store, RemoteError> {
    // The verification has already reported damaged files of the index.
    waiting.block_on(remote.refresh_around_damage(false))?;
    let stubs = RemotePacks::stubs(remote, waiting.clone());
    if let Some(unlisted) = unlisted {
        // This is a dry run, and its mirror is temporary.
        unlisted.add_to(&stubs)?;
    }
    Ok(stubs)
}

/// Collects the data reachable from `tips` that the remote store lacks. `stubs` is its index.
fn collect(
    stubs: &Store,
    sources: &Sources<'_, '_>,
    workshop: &ScratchStore,
    options: &RemoteRepairOptions<'_>,
    tips: &[CommitId],
    observer: &dyn Observer,
) -> Result<Collected, RemoteError> {
    let elsewhere = RepairTarget { stubs, tips, level: options.level };
    let collected = repair::collect(&elsewhere, sources(), workshop, options.run, observer);
    collected.map_err(|error| match error {
        VerifyError::Store(error) | VerifyError::Reach(ReachError::Store(error)) => error.into(),
        VerifyError::Io(error) => error.into(),
        VerifyError::Blocked(blocked) => blocked.into(),
        error => RemoteError::Repair(Box::new(error)),
    })
}
