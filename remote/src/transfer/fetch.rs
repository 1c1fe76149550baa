//! Fetches the missing parts of partial packs.

use std::collections::{BTreeSet, HashSet};

use snap_core::{
    base::{
        id::{CommitId, PackId},
        observe::{Observer, Phase},
    },
    format::{
        pack::ObjectKind,
        shadow::{Reason, ShadowedPart},
    },
    ops::{
        missing_objects::{FetchRequest, HistoryDepth},
        reach::ReachError,
    },
    store::{ChunkListCheck, ObjectLocation, Store, StoreError},
};
use tokio::runtime::Handle;

use super::{
    beside,
    fetch_frames::PackFetcher,
    liveness::{Liveness, shadow_forgotten, take_shadows},
    partial::{self, WantedPart},
};
use crate::store::{RemoteError, RemoteStore, StoreLookup};

/// The data to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchScope {
    /// Everything that the remote store has and the local store lacks, so that all packs become
    /// complete.
    Everything,
    /// The data of these commits, and of their ancestors up to a depth.
    Commits(FetchRequest, HistoryDepth),
}

/// The result of a fetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchOutcome {
    /// Bytes of packs received.
    pub received_bytes: u64,
    /// Number of packs that became complete.
    pub completed: u64,
    /// Number of packs that are still partial.
    pub partial: u64,
}

/// Fetches the missing data of `what`. The store must have a remote source
/// ([`Store::with_remote_frames`]) for the walk over the structure. Blocks; must not be called on a
/// thread of the runtime.
///
/// # Errors
/// [`RemoteError`]; data received before the error stays.
pub fn run(
    store: &Store,
    remote: &mut RemoteStore,
    what: &FetchScope,
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<FetchOutcome, RemoteError> {
    let partial = store.partial_packs();
    if partial.is_empty() {
        return Ok(FetchOutcome::default());
    }
    // The remote store may have merged packs since the last read of the index.
    runtime.block_on(learn(remote))?;
    let gone = relocate(store, remote)?;
    let remote = &*remote;
    let live = Liveness::of(remote, &[], runtime, observer)?;
    shadow_forgotten(store, &live)?;
    let (received_bytes, completed) =
        beside::around_damage(store, remote, runtime, || match what {
            FetchScope::Everything => {
                let came = everything(store, remote, runtime, observer)?;
                let (again, completed) = promote_all(store, remote, runtime, observer)?;
                Ok((came + again, completed))
            }
            FetchScope::Commits(request, depth) => {
                let wanted = WantedPart { request: request.clone(), depth: *depth };
                let ranges = partial::missing_ranges(store, remote, &wanted, observer)?;
                let came = partial::fetch_ranges(store, remote, &ranges, runtime, observer)?;
                Ok((came, promote(store, remote, observer)?))
            }
        })?;
    // A collection may have deleted what dead objects in these packs refer to.
    take_shadows(store, &live, &partial, &[], observer)?;
    match gone {
        Some(gone) => Err(RemoteError::Incomplete {
            location: remote.location().to_owned(),
            source: Box::new(ReachError::Store(gone)),
        }),
        None => {
            let partial = store.partial_packs().len() as u64;
            Ok(FetchOutcome { received_bytes, completed, partial })
        }
    }
}

/// Replaces stubs of packs that the remote store no longer has by stubs of other packs with the
/// same objects, and by those with the links of forgotten commits. What a garbage collection has not
/// copied from a pack is forgotten.
///
/// Returns an error that names the first object that neither store has. The stub of the pack of
/// such an object stays for its other objects, but the pack is shadowed.
fn relocate(store: &Store, remote: &RemoteStore) -> Result<Option<StoreError>, RemoteError> {
    let mirror = remote.mirror().store();
    let known: HashSet<PackId> = mirror.packs().into_iter().collect();
    let (mut stubs, mut replaced, mut kept) = (BTreeSet::new(), Vec::new(), Vec::new());
    let mut gone = None;
    let gc = remote.mirror().gc();
    let (mut linked, mut lacking) = (Vec::new(), Vec::new());
    for id in store.partial_packs().into_iter().filter(|id| !known.contains(id)) {
        let mut is_found = true;
        for object in store.open_pack(&id)?.objects()? {
            if store.is_object_stored(&object)? {
                continue;
            }
            // A blob may stand for a chunk list of its id, but not the reverse.
            let is_right = |place: &ObjectLocation| {
                place.kind == object.kind || object.kind == ObjectKind::ChunkList
            };
            if let Some(place) = mirror.locate(&object.id)?.filter(is_right) {
                stubs.extend(mirror.pack_id(place.pack));
                continue;
            }
            let commit = CommitId::from_object(object.id);
            if object.kind == ObjectKind::Commit
                && let Some(place) = mirror.locate(&commit.link())?
            {
                stubs.extend(mirror.pack_id(place.pack));
                linked.push((id, object.id));
            }
            let place = store.locate(&object.id)?;
            let is_here = place.map_or(Ok(false), |place| store.is_here(&place))?;
            if !is_here && gc.as_ref().is_some_and(|gc| gc.table.going.contains(&id)) {
                continue;
            }
            if is_here {
                is_found = false;
            } else {
                lacking.push((id, object.id, object.kind));
            }
        }
        if is_found { replaced.push(id) } else { kept.push(id) }
    }
    // Projects and servers do not list the packs that a collection has deleted. Links show that there
    // was one.
    let was_collected = !linked.is_empty();
    if !was_collected {
        for (pack, id, wanted) in lacking {
            gone.get_or_insert(StoreError::Missing { id, wanted });
            if let Some(at) = replaced.iter().position(|other| *other == pack) {
                kept.push(replaced.swap_remove(at));
            }
        }
    }
    let outlines: Result<Vec<_>, _> = stubs.iter().map(|id| mirror.outline(id)).collect();
    store.add_stubs(&outlines?)?;
    replaced.iter().try_for_each(|id| store.remove_stub(id))?;
    if !kept.is_empty() {
        store.change_shadows(&|table| {
            for id in &kept {
                match was_collected {
                    true => {
                        let own = linked.iter().filter(|(pack, _)| pack == id);
                        let commits = own.map(|(_, commit)| *commit).collect();
                        table.add(*id, Reason::Dead, ShadowedPart::Objects(commits));
                    }
                    false => table.add(*id, Reason::Damaged, ShadowedPart::Whole),
                }
            }
        })?;
    }
    Ok(gone)
}

async fn learn(remote: &mut RemoteStore) -> Result<(), RemoteError> {
    match remote.find_store().await? {
        StoreLookup::Missing => {
            Err(RemoteError::NoStore { location: remote.location().to_owned() })
        }
        StoreLookup::Store => remote.refresh().await,
    }
}

/// Fetches all absent frames of packs that the remote store has.
pub(super) fn everything(
    store: &Store,
    remote: &RemoteStore,
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<u64, RemoteError> {
    let known: HashSet<PackId> = remote.mirror().store().packs().into_iter().collect();
    let mut frames = Vec::new();
    for id in store.partial_packs().into_iter().filter(|id| known.contains(id)) {
        frames.push((id, beside::frames_to_fetch(store, &id)?));
    }
    let all = frames.iter().flat_map(|(_, frames)| frames);
    observer.phase(Phase::Receive, Some(all.map(|frame| u64::from(frame.stored_bytes)).sum()));
    PackFetcher::of(remote).fetch_frames(store, frames, &mut |_| Ok(()), runtime, observer)
}

/// Checks packs without absent frames and makes them complete. Returns their number. Continues with
/// the other packs after a damaged one.
pub(super) fn promote(
    store: &Store,
    remote: &RemoteStore,
    observer: &dyn Observer,
) -> Result<u64, RemoteError> {
    let (mut completed, mut damaged) = (0, None);
    observer.phase(Phase::Data, None);
    for id in store.partial_packs() {
        match store.complete(&id, ChunkListCheck::Now, observer) {
            Ok(true) => completed += 1,
            Ok(false) => return Err(RemoteError::Interrupted),
            Err(StoreError::Absent { .. }) => {}
            Err(error @ StoreError::Io(_)) => return Err(error.into()),
            Err(error) => {
                damaged.get_or_insert(error);
            }
        }
    }
    damaged.map_or(Ok(completed), |error| Err(PackFetcher::of(remote).damaged(error)))
}

/// Completes packs like [`promote`], after a fetch of everything. Fetches damaged frames once more.
/// Returns the number of bytes of these frames, and the number of completed packs.
pub(super) fn promote_all(
    store: &Store,
    remote: &RemoteStore,
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<(u64, u64), RemoteError> {
    let completed = promote(store, remote, observer)?;
    if store.partial_packs().is_empty() {
        return Ok((0, completed));
    }
    match everything(store, remote, runtime, observer)? {
        0 => Ok((0, completed)),
        again => Ok((again, completed + promote(store, remote, observer)?)),
    }
}
