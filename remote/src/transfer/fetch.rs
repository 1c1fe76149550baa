//! Fetches the missing parts of partial packs.

use std::collections::{BTreeSet, HashSet};

use snap_core::{
    base::{
        again::until_settled,
        blocked::Blocked,
        id::{CommitId, ObjectId, PackId},
        limits,
        observe::{Observer, Phase, Silent},
    },
    format::{
        pack::{ObjectKind, PackedObject},
        shadow::{Reason, ShadowedPart},
    },
    ops::{
        missing_objects::{FetchRequest, HistoryDepth},
        reach::{self, ReachError},
    },
    store::{Marks, ObjectLocation, Store, StoreError},
};
use tokio::runtime::Handle;

use super::{
    beside,
    fetch_frames::PackFetcher,
    liveness::{Liveness, shadow_forgotten, take_shadows},
    partial::{self, WantedPart},
};
use crate::peer::{RemoteError, RemoteStore, StoreLookup};

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
    if store.partial_packs().is_empty() {
        return Ok(FetchOutcome::default());
    }
    let fetched = until_settled(
        remote,
        limits::GC_ROUNDS,
        |remote| attempt(store, remote, what, runtime, observer).map(Some),
        |remote, error| beside::look_again(remote, error, runtime),
    );
    Ok(fetched?.expect("an attempt ends with a result or an error"))
}

fn attempt(
    store: &Store,
    remote: &mut RemoteStore,
    what: &FetchScope,
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<FetchOutcome, RemoteError> {
    let partial = store.partial_packs();
    // The remote store may have merged packs since the last read of the index.
    runtime.block_on(learn(remote))?;
    // Without a table, only the refs show whether a collection has deleted an object.
    let is_unknown = remote.mirror().gc().is_none() && remote.was_collected();
    let gone = relocate_if(store, remote, &|absent| {
        Ok(is_unknown
            && !absent.is_empty()
            && !is_needed_there((store, remote), absent, runtime, observer)?)
    })?;
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
            location: remote.place().location().to_owned(),
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
/// copied from a pack is forgotten, and everything here that needs it is dead. `was_collected` tells
/// that there was a collection since the store has got the stubs; links prove it, too.
///
/// Otherwise returns an error that names the first object that neither store has. The stub of the
/// pack of such an object stays for its other objects, but the pack is shadowed.
pub(super) fn relocate(
    store: &Store,
    remote: &RemoteStore,
    was_collected: bool,
) -> Result<Option<StoreError>, RemoteError> {
    relocate_if(store, remote, &|_| Ok(was_collected))
}

/// Returns true if a ref of the remote store may need one of these objects, which the remote store
/// lacks. Then they are lost, because no collection deletes them.
fn is_needed_there(
    (store, remote): (&Store, &RemoteStore),
    absent: &HashSet<ObjectId>,
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<bool, RemoteError> {
    let (refs, damaged) = runtime.block_on(remote.place().readable_refs())?;
    let mut tips = Vec::new();
    for (_, tip) in refs {
        if store.locate(&tip.object())?.is_some() {
            tips.push(tip);
        }
    }
    let marks = Marks::new(store);
    let mut enter = |id: &ObjectId, place: &ObjectLocation| match absent.contains(id) {
        true => Err(StoreError::Missing { id: *id, wanted: place.kind }),
        false => marks.mark(id),
    };
    match reach::visit(store, &tips, &mut enter, observer) {
        Err(ReachError::Blocked(blocked)) => Err(blocked.into()),
        visited => Ok(visited.is_err() || !damaged.is_empty()),
    }
}

/// Relocates as [`relocate`] does. `was_collected` gets the objects that the remote store lacks.
fn relocate_if(
    store: &Store,
    remote: &RemoteStore,
    was_collected: &dyn Fn(&HashSet<ObjectId>) -> Result<bool, RemoteError>,
) -> Result<Option<StoreError>, RemoteError> {
    let mirror = remote.mirror().store();
    let known: HashSet<PackId> = mirror.packs().into_iter().collect();
    let (mut stubs, mut replaced, mut kept) = (BTreeSet::new(), Vec::new(), Vec::new());
    let gc = remote.mirror().gc();
    let is_going = |id: &PackId| gc.as_ref().is_some_and(|gc| gc.table.going.contains(id));
    let (mut dead, mut lacking) = (Vec::new(), Vec::new());
    // Commits of deleted packs. Their shadows stay after the stubs, and record the deletion.
    let (mut collected, mut absent) = (Vec::new(), HashSet::new());
    for id in store.partial_packs().into_iter().filter(|id| !known.contains(id)) {
        let mut is_found = true;
        for object in store.open_pack(&id)?.objects()? {
            if store.is_stored(&object.id)? {
                continue;
            }
            if let Some(place) = mirror.locate(&object.id)? {
                stubs.extend(mirror.pack_id(place.pack));
                continue;
            }
            if object.kind == ObjectKind::Commit && has_link(mirror, &object.id, &mut stubs)? {
                dead.push((id, object.id));
            }
            let place = store.locate(&object.id)?;
            let is_here = place.map_or(Ok(false), |place| store.is_here(&place))?;
            if !is_here && is_going(&id) {
                if object.kind == ObjectKind::Commit {
                    collected.push((id, object.id));
                }
                continue;
            }
            absent.insert(object.id);
            if is_here {
                is_found = false;
            } else {
                lacking.push((id, object));
            }
        }
        if is_found { replaced.push(id) } else { kept.push(id) }
    }
    // Projects and servers do not list the packs that a collection has deleted. Links show that there
    // was one.
    let mut is_linked = !dead.is_empty();
    if !lacking.is_empty() {
        let lacking = lacking.iter().map(|(_, object)| object.id).collect();
        for (pack, object) in dead_without(store, remote, &lacking)? {
            is_linked |=
                object.kind == ObjectKind::Commit && has_link(mirror, &object.id, &mut stubs)?;
            dead.push((pack, object.id));
        }
    }
    let mut gone = None;
    let was_collected = is_linked || was_collected(&absent)?;
    if was_collected {
        dead.extend(lacking.iter().map(|(pack, object)| (*pack, object.id)));
        let commits = lacking.iter().filter(|(_, object)| object.kind == ObjectKind::Commit);
        collected.extend(commits.map(|(pack, object)| (*pack, object.id)));
    } else {
        dead.clear();
        for (pack, object) in lacking {
            gone.get_or_insert(StoreError::Missing { id: object.id, wanted: object.kind });
            if let Some(at) = replaced.iter().position(|other| *other == pack) {
                kept.push(replaced.swap_remove(at));
            }
        }
    }
    let outlines: Result<Vec<_>, _> = stubs.iter().map(|id| mirror.outline(id)).collect();
    store.add_stubs(&outlines?)?;
    store.remove_stubs(&replaced)?;
    if !kept.is_empty() || !dead.is_empty() || !collected.is_empty() {
        store.change_shadows(&|table| {
            for id in kept.iter().filter(|id| !was_collected && !is_going(id)) {
                table.add(*id, Reason::Damaged, ShadowedPart::Whole);
            }
            let dead = dead.iter().filter(|(pack, _)| !replaced.contains(pack));
            for (pack, id) in dead.chain(&collected) {
                table.add(*pack, Reason::Dead, ShadowedPart::Objects([*id].into()));
            }
        })?;
    }
    Ok(gone)
}

/// Looks for the link of a forgotten commit in the remote store. Adds its pack to `packs`.
fn has_link(
    mirror: &Store,
    commit: &ObjectId,
    packs: &mut BTreeSet<PackId>,
) -> Result<bool, StoreError> {
    let link = mirror.locate(&CommitId::from_object(*commit).link())?;
    packs.extend(link.and_then(|place| mirror.pack_id(place.pack)));
    Ok(link.is_some())
}

/// Returns the objects here, with their packs, that refer to one of these objects, or to another one
/// that does.
fn dead_without(
    store: &Store,
    remote: &RemoteStore,
    lacking: &HashSet<ObjectId>,
) -> Result<Vec<(PackId, PackedObject)>, RemoteError> {
    let (mut dead, whole) = (Vec::new(), Marks::new(store));
    for pack in store.packs() {
        for object in store.open_pack(&pack)?.objects()? {
            if !lacking.contains(&object.id)
                && needs_any((store, remote), &object, lacking, &whole)?
            {
                dead.push((pack, object));
            }
        }
    }
    Ok(dead)
}

/// Returns true if an object refers to one of these objects: a commit by its tree. Otherwise marks
/// what it refers to, and later calls pass over it. Only for a commit that the remote store may have
/// forgotten, reads objects that are not here.
fn needs_any(
    (store, remote): (&Store, &RemoteStore),
    object: &PackedObject,
    lacking: &HashSet<ObjectId>,
    whole: &Marks,
) -> Result<bool, RemoteError> {
    let is_commit = object.kind == ObjectKind::Commit;
    let link = CommitId::from_object(object.id).link();
    let fetches = is_commit && remote.mirror().store().locate(&link)?.is_some();
    let mut passed = HashSet::new();
    let mut enter = |id: &ObjectId, place: &ObjectLocation| match lacking.contains(id) {
        true => Err(StoreError::Missing { id: *id, wanted: place.kind }),
        false if !fetches && !store.is_here(place)? => Ok(false),
        false => Ok(!whole.is_marked(id)? && passed.insert(*id)),
    };
    let place = store.locate(&object.id)?;
    if !fetches && !place.map_or(Ok(false), |place| store.is_here(&place))? {
        return Ok(false);
    }
    let start = match object.kind {
        ObjectKind::Commit => store
            .commit(&CommitId::from_object(object.id))
            .map(|commit| (commit.tree.object(), ObjectKind::Tree)),
        kind => Ok((object.id, kind)),
    };
    let visited = start
        .map_err(ReachError::Store)
        .and_then(|start| reach::visit_below(store, &[start], &mut enter, &Silent));
    match visited {
        Ok(()) => {
            for id in passed {
                whole.mark(&id)?;
            }
            Ok(false)
        }
        Err(ReachError::Store(StoreError::Missing { .. })) => Ok(true),
        // It is shadowed already.
        Err(ReachError::Store(StoreError::Forgotten { .. })) => Ok(false),
        Err(error) => Err(partial::reach_error(remote, error)),
    }
}

async fn learn(remote: &mut RemoteStore) -> Result<(), RemoteError> {
    match remote.find_store().await? {
        StoreLookup::Missing => {
            Err(RemoteError::NoStore { location: remote.place().location().to_owned() })
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
        match store.complete(&id, observer) {
            Ok(true) => completed += 1,
            Ok(false) => return Err(Blocked::Interrupted.into()),
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
