//! What a client may take over from a remote store whose garbage is collected.
//!
//! Packs that stay may have dead objects, and a collection may have deleted what these refer to. A
//! client must not take them as stored. So a pull copies only live objects, and a clone, which takes
//! over whole packs, shadows the dead ones.
//!
//! While a collection is not complete, refs may reach objects that count as dead: a push may have
//! moved them meanwhile. Then the client walks everything that its commits reach.

use std::{collections::BTreeSet, sync::Arc};

use snap_core::{
    base::{
        id::{CommitId, ObjectId, PackId},
        observe::Observer,
    },
    format::{
        gc_state::Phase,
        pack::ObjectKind,
        shadow::{Reason, ShadowedPart},
    },
    ops::reach,
    repo::RefError,
    store::{Marks, ObjectLocation, Store, StoreError},
};
use tokio::runtime::Handle;

use super::partial::reach_error;
use crate::{
    peer::{RemoteError, RemoteStore, gc_view::DeadCopies},
    remote_packs::{BlockingContext, RemotePacks},
};

/// The copies of objects in a remote store that a client may take over.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    /// `None` if all copies are live.
    dead: Option<Arc<DeadCopies>>,
    /// What the commits reach, while a collection is not complete.
    reached: Option<Marks>,
    /// What the client lacks; `None` if it takes everything that is live.
    lacking: Option<Marks>,
}

impl Liveness {
    /// Returns what may be taken over for these commits.
    ///
    /// # Errors
    /// [`RemoteError`] if an object that they reach is missing or damaged.
    pub(super) fn of(
        remote: &RemoteStore,
        commits: &[CommitId],
        runtime: &Handle,
        observer: &dyn Observer,
    ) -> Result<Self, RemoteError> {
        let Some(dead) = remote.mirror().dead_copies() else { return Ok(Self::default()) };
        let is_fenced = remote.mirror().gc().is_some_and(|gc| gc.state.phase == Phase::Fenced);
        let reached = match is_fenced {
            true => Some(walk(remote, commits, runtime, observer)?),
            false => None,
        };
        Ok(Self { dead: Some(dead), reached, lacking: None })
    }

    /// Returns what `store` may take over for a commit. A store that has deleted objects, or may have,
    /// takes only what the commit needs: the remote store may still have the others.
    ///
    /// # Errors
    /// As [`Liveness::of`]; [`RemoteError::Ref`] if a rewrite has replaced the commit or an ancestor.
    pub(super) fn of_pull(
        store: &Store,
        remote: &RemoteStore,
        commit: CommitId,
        runtime: &Handle,
        observer: &dyn Observer,
    ) -> Result<Self, RemoteError> {
        let live = Self::of(remote, &[commit], runtime, observer)?;
        let rewrites = store.rewrites()?;
        if store.has_partial() || store.epoch()?.is_first() && rewrites.is_empty() {
            return Ok(live);
        }
        let stubs = open_stubs(remote, runtime)?;
        let lacking = Marks::new(&stubs);
        let mut replaced = None;
        let mut enter = |id: &ObjectId, place: &ObjectLocation| {
            if place.kind == ObjectKind::Commit {
                let ancestor = CommitId::from_object(*id);
                if rewrites.has_replaced(&ancestor) {
                    replaced = Some(ancestor);
                }
                // The link of an ancestor is enough.
                if replaced.is_some() || ancestor != commit && store.is_alive(&ancestor.link())? {
                    return Ok(false);
                }
            }
            if store.locate_unshadowed(id)?.is_some() {
                return Ok(false);
            }
            lacking.mark(id)
        };
        let walked = reach::visit(&stubs, &[commit], &mut enter, observer);
        match replaced {
            Some(ancestor) => Err(RefError::Replaced { id: commit, ancestor }.into()),
            None => {
                walked.map_err(|error| reach_error(remote, error))?;
                Ok(Self { lacking: Some(lacking), ..live })
            }
        }
    }

    /// Returns true if a copy of an object is live, and the client wants it.
    pub(super) fn is_live(&self, pack: &PackId, id: &ObjectId) -> Result<bool, StoreError> {
        if let Some(lacking) = &self.lacking
            && !lacking.is_marked(id)?
        {
            return Ok(false);
        }
        match (&self.dead, &self.reached) {
            (Some(dead), Some(reached)) if dead.contains(pack, id) => reached.is_marked(id),
            (Some(dead), None) => Ok(!dead.contains(pack, id)),
            _ => Ok(true),
        }
    }

    /// Returns the pack of the mirror from which an object comes; `None` if it is dead.
    pub(super) fn source(
        &self,
        mirror: &Store,
        id: &ObjectId,
    ) -> Result<Option<PackId>, StoreError> {
        if self.dead.is_none() && self.lacking.is_none() {
            return Ok(mirror.locate(id)?.and_then(|place| mirror.pack_id(place.pack)));
        }
        for place in mirror.places(id)? {
            let Some(pack) = mirror.pack_id(place.pack) else { continue };
            if self.is_live(&pack, id)? {
                return Ok(Some(pack));
            }
        }
        Ok(None)
    }
}

/// Walks what commits reach in the remote store, also through objects that count as dead.
fn walk(
    remote: &RemoteStore,
    commits: &[CommitId],
    runtime: &Handle,
    observer: &dyn Observer,
) -> Result<Marks, RemoteError> {
    let stubs = open_stubs(remote, runtime)?;
    let marks = Marks::new(&stubs);
    let mut enter = |id: &ObjectId, _: &ObjectLocation| marks.mark(id);
    let walked = reach::visit(&stubs, commits, &mut enter, observer);
    walked.map_err(|error| reach_error(remote, error))?;
    Ok(marks)
}

/// Opens the mirror as a store that fetches what it reads.
fn open_stubs(remote: &RemoteStore, runtime: &Handle) -> Result<Store, RemoteError> {
    Ok(RemotePacks::stubs(remote.reopen()?, BlockingContext::without_stop(runtime)))
}

/// Shadows the objects of packs taken over that are dead in the remote store, except those that
/// commits reach.
///
/// # Errors
/// [`RemoteError::Store`] if the shadows cannot be written.
pub(super) fn take_shadows(
    store: &Store,
    live: &Liveness,
    packs: &[PackId],
    commits: &[CommitId],
    observer: &dyn Observer,
) -> Result<(), RemoteError> {
    let Some(dead) = &live.dead else { return Ok(()) };
    shadow_forgotten(store, live)?;
    let here = store.packs();
    let is_touched = |pack: &&PackId| dead.touches(pack) && here.binary_search(pack).is_ok();
    let packs: Vec<PackId> = packs.iter().filter(is_touched).copied().collect();
    if packs.is_empty() {
        return Ok(());
    }
    let marks = Marks::new(store);
    let mut enter = |id: &ObjectId, _: &ObjectLocation| marks.mark(id);
    for commit in commits {
        // What is missing or damaged is reported elsewhere.
        let _ = reach::visit(store, &[*commit], &mut enter, observer);
    }
    observer.check()?;
    let mut shadows = Vec::new();
    for pack in packs {
        let mut ids = BTreeSet::new();
        for object in store.open_pack(&pack)?.objects()? {
            if !live.is_live(&pack, &object.id)? && !marks.is_marked(&object.id)? {
                ids.insert(object.id);
            }
        }
        if !ids.is_empty() {
            shadows.push((pack, ShadowedPart::Objects(ids)));
        }
    }
    Ok(add_shadows(store, shadows)?)
}

/// Shadows the forgotten commits of packs taken over, before a walk reaches them: their trees may be
/// deleted. From now on, their links take their places.
///
/// # Errors
/// [`StoreError`] if the shadows cannot be written.
pub(super) fn shadow_forgotten(store: &Store, live: &Liveness) -> Result<(), StoreError> {
    let mut shadows = Vec::new();
    for commit in live.dead.iter().flat_map(|dead| dead.forgotten()) {
        if !store.is_alive(&commit.link())? {
            continue;
        }
        let id = commit.object();
        for place in store.alive_places(&id)? {
            let Some(pack) = store.pack_id(place.pack) else { continue };
            if !live.is_live(&pack, &id)? {
                shadows.push((pack, ShadowedPart::Objects([id].into())));
            }
        }
    }
    add_shadows(store, shadows)
}

/// Shadows these parts of packs as dead.
fn add_shadows(store: &Store, shadows: Vec<(PackId, ShadowedPart)>) -> Result<(), StoreError> {
    if shadows.is_empty() {
        return Ok(());
    }
    store.change_shadows(&|table| {
        for (pack, part) in &shadows {
            table.add(*pack, Reason::Dead, part.clone());
        }
    })?;
    Ok(())
}
