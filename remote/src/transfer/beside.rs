//! Reads objects from another pack if their frame is damaged or their pack is lost. Leaves out lost
//! and damaged packs that no commit needs.
//!
//! `snap repair REMOTE` uploads such objects again in a new pack, and deletes nothing. A client
//! that reads the index afterwards finds them in both packs, and only a fetch shows which one is
//! damaged or lost.

use std::collections::{BTreeMap, HashSet};

use snap_core::{
    base::{
        id::{CommitId, ObjectId, PackId},
        observe::Observer,
    },
    format::{
        pack::Frame,
        shadow::{Reason, ShadowTable, ShadowedPart},
    },
    ops::reach::{self, ReachError},
    store::{BundleError, FrameObjects, Marks, ObjectLocation, Store, StoreError},
};

use tokio::runtime::Handle;

use crate::{
    bucket::FailureReason,
    peer::{OBJECTS, RemoteError, RemoteStore},
    ranges::ReadError,
};

/// Maximum number of damaged frames and lost packs that one command works around.
pub(super) const FRAMES: usize = 100;

/// Runs `work`, which fetches into `store`. If a fetched frame is damaged, shadows its objects that
/// other packs contain, in `store` and in the mirror, and runs `work` again. Treats each frame of a
/// lost pack like a damaged frame.
///
/// # Errors
/// The errors of `work`; [`RemoteError::Collected`] if a pack or an object is missing, and garbage was
/// collected since the client has read the state.
pub(super) fn around_damage<T>(
    store: &Store,
    remote: &RemoteStore,
    runtime: &Handle,
    mut work: impl FnMut() -> Result<T, RemoteError>,
) -> Result<T, RemoteError> {
    for _ in 0..FRAMES {
        match work() {
            Err(error) => {
                let is_missing = matches!(error, RemoteError::Incomplete { .. });
                if (is_missing || lost_pack(&error).is_some())
                    && runtime.block_on(remote.place().peer().is_overtaken(remote.known()))?
                {
                    return Err(remote.place().collected());
                }
                let is_new = match (damaged_frame(&error), lost_pack(&error)) {
                    (Some((pack, offset)), _) => shadow_frame(store, remote, &pack, offset),
                    (None, Some(pack)) => shadow_lost_pack(store, remote, &pack),
                    (None, None) => Ok(false),
                };
                if !is_new.unwrap_or(false) {
                    return Err(error);
                }
            }
            done => return done,
        }
    }
    work()
}

/// Reads the collection state again if a collection has overtaken an attempt. Returns false after
/// another error.
pub(super) fn look_again(
    remote: &RemoteStore,
    error: &RemoteError,
    runtime: &Handle,
) -> Result<bool, RemoteError> {
    let is_collected = matches!(error, RemoteError::Collected { .. });
    if is_collected {
        runtime.block_on(remote.place().peer().learn_epoch(remote.known()))?;
    }
    Ok(is_collected)
}

/// Returns the pack that an error reports as lost or damaged in the remote store.
pub(super) fn bad_pack(error: &RemoteError) -> Option<PackId> {
    let named = match error {
        RemoteError::Pack { key, .. } => key.strip_prefix(OBJECTS).and_then(|id| id.parse().ok()),
        _ => None,
    };
    named.or(lost_pack(error)).or(damaged_frame(error).map(|(pack, _)| pack))
}

/// The lost and damaged packs that a pull leaves out, with the errors of reading them. The pull
/// fails only if its commit needs them.
#[derive(Debug, Default)]
pub(super) struct PacksLeftOut(BTreeMap<PackId, RemoteError>);

impl PacksLeftOut {
    pub(super) fn contains(&self, pack: &PackId) -> bool {
        self.0.contains_key(pack)
    }

    pub(super) fn errors(&self) -> impl Iterator<Item = &RemoteError> {
        self.0.values()
    }

    /// Leaves out the pack that an error reports. The next run fetches its objects from other packs
    /// that have them.
    ///
    /// # Errors
    /// The same error, if it reports no pack or one that is left out already, or if too many packs
    /// are left out. If an object is missing because its pack is left out, the error of that pack.
    pub(super) fn add(
        &mut self,
        remote: &RemoteStore,
        error: RemoteError,
    ) -> Result<(), RemoteError> {
        let mirror = remote.mirror().store();
        if let RemoteError::Incomplete { source, .. } = &error
            && let ReachError::Store(StoreError::Missing { id, .. }) = **source
        {
            for place in mirror.places(&id)? {
                let pack = mirror.pack_id(place.pack);
                if let Some(cause) = pack.and_then(|pack| self.0.remove(&pack)) {
                    return Err(cause);
                }
            }
        }
        match bad_pack(&error).filter(|pack| self.0.len() < FRAMES && !self.contains(pack)) {
            Some(pack) => {
                let shadow = |table: &mut ShadowTable| {
                    table.add(pack, Reason::Damaged, ShadowedPart::Whole);
                };
                mirror.change_shadows(&shadow)?;
                self.0.insert(pack, error);
                Ok(())
            }
            None => Err(error),
        }
    }
}

/// Removes the stub of a lost or damaged pack, unless an object that these commits need is in no
/// other pack. Returns true if it has removed the stub.
pub(super) fn drop_unneeded_stub(
    store: &Store,
    pack: &PackId,
    commits: &[CommitId],
    observer: &dyn Observer,
) -> Result<bool, RemoteError> {
    if !store.is_partial(pack) {
        return Ok(false);
    }
    let marks = Marks::new(store);
    let mut enter = |id: &ObjectId, place: &ObjectLocation| {
        if store.pack_id(place.pack) == Some(*pack)
            && store.locate_in_other_pack(id, pack)?.is_none()
        {
            return Err(StoreError::Missing { id: *id, wanted: place.kind });
        }
        marks.mark(id)
    };
    match reach::visit(store, commits, &mut enter, observer) {
        Ok(()) => {
            store.remove_stubs(&[*pack])?;
            Ok(true)
        }
        Err(ReachError::Blocked(blocked)) => Err(blocked.into()),
        Err(_) => Ok(false),
    }
}

/// Returns the pack that an error reports as lost: the index lists it, but it does not exist, or
/// it ends early.
fn lost_pack(error: &RemoteError) -> Option<PackId> {
    let RemoteError::Range { key, source: ReadError::Service(error), .. } = error else {
        return None;
    };
    let is_lost = matches!(error.reason, FailureReason::NotFound | FailureReason::Short);
    key.strip_prefix(OBJECTS).filter(|_| is_lost)?.parse().ok()
}

/// Returns the pack and the offset of the damaged frame that an error reports.
fn damaged_frame(error: &RemoteError) -> Option<(PackId, u64)> {
    let error = match error {
        RemoteError::Pack { source, .. } => match &**source {
            BundleError::Store(error) => error,
            _ => return None,
        },
        RemoteError::Store(error) => error,
        _ => return None,
    };
    match error {
        StoreError::CorruptedInTransit { pack, offset_bytes, .. } => Some((*pack, *offset_bytes)),
        _ => None,
    }
}

/// Shadows the objects of a frame that other packs also have. If `store` has a stub of this pack,
/// adds stubs of those packs, too. Returns true if a shadow is new.
fn shadow_frame(
    store: &Store,
    remote: &RemoteStore,
    pack: &PackId,
    offset: u64,
) -> Result<bool, StoreError> {
    let mirror = remote.mirror().store();
    let copies = mirror.other_copies_of_frames(pack, &[offset])?;
    if copies.objects.is_empty() {
        return Ok(false);
    }
    let shadow = |store: &Store| {
        let extent = ShadowedPart::Objects(copies.objects.clone());
        store.change_shadows(&|table| table.add(*pack, Reason::Damaged, extent.clone()))
    };
    let mut is_new = shadow(mirror)?;
    if store.is_partial(pack) {
        let outlines: Result<Vec<_>, _> =
            copies.packs.iter().map(|id| mirror.outline(id)).collect();
        store.add_stubs(&outlines?)?;
        is_new |= shadow(store)?;
    }
    Ok(is_new)
}

/// Calls [`shadow_frame`] for each frame of a lost pack. If other packs cover every frame, removes
/// the stub of the pack, which would never be complete. Returns true if a shadow is new.
fn shadow_lost_pack(
    store: &Store,
    remote: &RemoteStore,
    pack: &PackId,
) -> Result<bool, StoreError> {
    let frames = remote.mirror().store().open_pack(pack)?.frames().to_vec();
    let (mut is_new, mut is_covered) = (false, true);
    for frame in frames.iter().filter(|frame| !frame.range().is_empty()) {
        is_new |= shadow_frame(store, remote, pack, frame.offset)?;
        let copies = remote.mirror().store().other_copies_of_frames(pack, &[frame.offset])?;
        is_covered &= !copies.lacks_any && !copies.objects.is_empty();
    }
    if is_covered {
        store.remove_stubs(&[*pack])?;
    }
    Ok(is_new)
}

/// Returns the absent frames of a partial pack, except for frames whose objects are all shadowed
/// and available in other packs.
///
/// # Errors
/// [`StoreError`] if the pack cannot be read.
pub(super) fn frames_to_fetch(store: &Store, pack: &PackId) -> Result<Vec<Frame>, StoreError> {
    let mut absent = store.absent_frames(pack)?;
    if absent.is_empty() || !store.is_shadowed(pack) {
        return Ok(absent);
    }
    let (file, shadows) = (store.open_pack(pack)?, store.shadows());
    let objects = file.objects()?;
    let mut left_out = HashSet::new();
    for FrameObjects { frame, objects } in file.by_frame(&objects) {
        let mut is_left_out = true;
        for object in objects {
            is_left_out = is_left_out
                && shadows.table.covers(pack, &object.id)
                && store.locate_in_other_pack(&object.id, pack)?.is_some();
        }
        if is_left_out {
            left_out.insert(frame.position());
        }
    }
    absent.retain(|frame| !left_out.contains(&frame.position()));
    Ok(absent)
}
