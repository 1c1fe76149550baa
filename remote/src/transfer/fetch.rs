//! Fetch: what is not here of packs that are here in part.

use std::collections::HashSet;

use snap_core::{
    base::{
        id::PackId,
        observe::{Observer, Phase},
    },
    ops::absent::{Depth, Wanted},
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
    let known: HashSet<PackId> = remote.mirror().store().packs().into_iter().collect();
    if partial.iter().any(|id| !known.contains(id)) {
        runtime.block_on(learn(remote))?;
    }
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
    Ok(Outcome { received_bytes, completed, partial: store.partial_packs().len() as u64 })
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
