//! Fetch: what is not here of packs that are here in part.

use std::collections::{BTreeSet, HashSet};

use snap_core::{
    base::{
        id::PackId,
        observe::{Observer, Phase},
    },
    format::shadow::{Extent, Reason},
    ops::{
        absent::{Depth, Wanted},
        reach::ReachError,
    },
    store::{Store, StoreError},
};
use tokio::runtime::Handle;

use super::{bring::Origin, partly};
use crate::store::{Found, RemoteError, RemoteStore};

/// What is to be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// All that lies there and not here: the packs are whole afterwards.
    Everything,
    /// What these commits, and so many before them, need.
    Of(Wanted, Depth),
}

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Bytes of packs that came.
    pub received_bytes: u64,
    /// Packs that are whole now and were not before.
    pub completed: u64,
    /// Packs of which something still lies elsewhere.
    pub partial: u64,
}

/// Fetches what of `what` is not here. The store must be able to fetch
/// ([`Store::with_distant`]) for the structure to be walked. Waits; not to be
/// called by a thread of the runtime.
///
/// # Errors
/// [`RemoteError`]; what came before stays.
pub fn run(
    store: &Store,
    remote: &mut RemoteStore,
    what: &What,
    (runtime, observer): (&Handle, &dyn Observer),
) -> Result<Outcome, RemoteError> {
    let partial = store.partial_packs();
    if partial.is_empty() {
        return Ok(Outcome::default());
    }
    // Packs may have been merged there since the index was last read.
    runtime.block_on(learn(remote))?;
    let gone = relocate(store, remote)?;
    let (received_bytes, completed) = match what {
        What::Everything => {
            let came = everything(store, remote, (runtime, observer))?;
            let (again, completed) = promote_all(store, remote, (runtime, observer))?;
            (came + again, completed)
        }
        What::Of(wanted, depth) => {
            let wanted = (wanted.clone(), *depth);
            let ranges = partly::find(store, remote, &wanted, observer)?;
            let came = partly::bring(store, remote, &ranges, (runtime, observer))?;
            (came, promote(store, remote, observer)?)
        }
    };
    match gone {
        Some(gone) => Err(RemoteError::Incomplete {
            location: remote.location().to_owned(),
            source: Box::new(ReachError::Store(gone)),
        }),
        None => {
            let partial = store.partial_packs().len() as u64;
            Ok(Outcome { received_bytes, completed, partial })
        }
    }
}

/// Looks up objects of stubs whose packs the remote does not have any more in
/// its other packs. Stubs of those take the place of the old ones. Returns an
/// error that names the first object that is neither there nor here; its stub
/// stays for what else is in it, and is shadowed.
fn relocate(store: &Store, remote: &RemoteStore) -> Result<Option<StoreError>, RemoteError> {
    let there = remote.mirror().store();
    let known: HashSet<PackId> = there.packs().into_iter().collect();
    let (mut stubs, mut replaced, mut kept) = (BTreeSet::new(), Vec::new(), Vec::new());
    let mut gone = None;
    for id in store.partial_packs().into_iter().filter(|id| !known.contains(id)) {
        let mut is_found = true;
        for object in store.open_pack(&id)?.objects()? {
            if store.is_stored(&object.id)? {
                continue;
            }
            if let Some(place) = there.locate(&object.id)? {
                stubs.extend(there.pack_id(place.pack));
                continue;
            }
            is_found = false;
            let place = store.locate(&object.id)?;
            if !place.map_or(Ok(false), |place| store.is_here(&place))? {
                let (id, wanted) = (object.id, object.kind);
                gone.get_or_insert(StoreError::Missing { id, wanted });
            }
        }
        if is_found { replaced.push(id) } else { kept.push(id) }
    }
    let outlines: Result<Vec<_>, _> = stubs.iter().map(|id| there.outline(id)).collect();
    store.add_stubs(&outlines?)?;
    replaced.iter().try_for_each(|id| store.remove_stub(id))?;
    if !kept.is_empty() {
        store.change_shadows(&|table| {
            kept.iter().for_each(|id| table.add(*id, Reason::Damaged, Extent::Whole));
        })?;
    }
    Ok(gone)
}

async fn learn(remote: &mut RemoteStore) -> Result<(), RemoteError> {
    match remote.look().await? {
        Found::Nothing => Err(RemoteError::NoStore { location: remote.location().to_owned() }),
        Found::Store => remote.refresh().await,
    }
}

/// Brings all that is absent of packs that lie there.
pub(super) fn everything(
    store: &Store,
    remote: &RemoteStore,
    (runtime, observer): (&Handle, &dyn Observer),
) -> Result<u64, RemoteError> {
    let known: HashSet<PackId> = remote.mirror().store().packs().into_iter().collect();
    let mut frames = Vec::new();
    for id in store.partial_packs().into_iter().filter(|id| known.contains(id)) {
        frames.push((id, store.absent_frames(&id)?));
    }
    let all = frames.iter().flat_map(|(_, frames)| frames);
    observer.phase(Phase::Receive, Some(all.map(|frame| u64::from(frame.stored_bytes)).sum()));
    Origin::of(remote).bring(store, frames, &mut |_| Ok(()), (runtime, observer))
}

/// Checks packs of which everything is here and makes them whole. Returns how
/// many.
pub(super) fn promote(
    store: &Store,
    remote: &RemoteStore,
    observer: &dyn Observer,
) -> Result<u64, RemoteError> {
    let mut completed = 0;
    observer.phase(Phase::Data, None);
    for id in store.partial_packs() {
        match store.complete(&id, observer) {
            Ok(true) => completed += 1,
            Ok(false) => return Err(RemoteError::Interrupted),
            Err(StoreError::Absent { .. }) => {}
            Err(error) => return Err(Origin::of(remote).damaged(error)),
        }
    }
    Ok(completed)
}

/// The same once all has come. What turns out not to be right here after all
/// comes once more. Returns how many bytes that was, and how many packs are
/// whole now.
pub(super) fn promote_all(
    store: &Store,
    remote: &RemoteStore,
    (runtime, observer): (&Handle, &dyn Observer),
) -> Result<(u64, u64), RemoteError> {
    let completed = promote(store, remote, observer)?;
    if store.partial_packs().is_empty() {
        return Ok((0, completed));
    }
    match everything(store, remote, (runtime, observer))? {
        0 => Ok((0, completed)),
        again => Ok((again, completed + promote(store, remote, observer)?)),
    }
}
