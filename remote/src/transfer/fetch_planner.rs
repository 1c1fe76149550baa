//! Selects the remote packs, and their frames, that contain missing objects.

use snap_core::{
    base::id::{ObjectId, PackId},
    format::pack::{Frame, PackedObject},
    store::{FrameObjects, Store, StoreError},
};

use super::liveness::Liveness;

/// A pack with missing objects.
#[derive(Debug)]
pub(super) struct WantedPack {
    pub(super) id: PackId,
    pub(super) fetch: PackPart,
}

/// The part of a pack to fetch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PackPart {
    /// The whole pack, which is added to the store unchanged.
    Whole,
    /// These frames. The pull copies their objects into new packs.
    Frames(Vec<Frame>),
}

/// Decides which objects to fetch from which pack. If several remote packs contain an object,
/// chooses the pack that the index of the mirror names. Leaves out dead objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct FetchPlanner<'a> {
    pub(super) local: &'a Store,
    pub(super) mirror: &'a Store,
    pub(super) live: &'a Liveness,
}

impl FetchPlanner<'_> {
    /// Returns true if an object is missing locally, is shadowed, or is a chunk list that this
    /// machine has not proven.
    pub(super) fn is_missing(&self, object: &PackedObject) -> Result<bool, StoreError> {
        Ok(!self.local.is_stored_or_partial(object)?)
    }

    pub(super) fn is_wanted(
        &self,
        object: &PackedObject,
        pack: &PackId,
    ) -> Result<bool, StoreError> {
        Ok(self.is_missing(object)? && self.is_from(&object.id, pack)?)
    }

    fn is_from(&self, id: &ObjectId, pack: &PackId) -> Result<bool, StoreError> {
        Ok(self.live.source(self.mirror, id)? == Some(*pack))
    }

    /// Returns the remote packs with wanted objects, except those for which `is_left_out` returns
    /// true.
    pub(super) fn packs(
        &self,
        is_left_out: &dyn Fn(&PackId) -> bool,
    ) -> Result<Vec<WantedPack>, StoreError> {
        let mut wanted = Vec::new();
        for id in self.mirror.packs().into_iter().filter(|id| !is_left_out(id)) {
            wanted.extend(self.pack(id)?.map(|fetch| WantedPack { id, fetch }));
        }
        Ok(wanted)
    }

    fn pack(&self, id: PackId) -> Result<Option<PackPart>, StoreError> {
        let pack = self.mirror.open_pack(&id)?;
        let objects = pack.objects()?;
        let (mut frames, mut bytes, mut comes_twice) = (Vec::new(), 0, false);
        for FrameObjects { frame, objects } in pack.by_frame(&objects) {
            let mut is_wanted = false;
            for object in objects {
                match self.is_from(&object.id, &id)? {
                    true => is_wanted = is_wanted || self.is_missing(object)?,
                    false => comes_twice = true,
                }
            }
            if is_wanted {
                bytes += u64::from(frame.stored_bytes);
                frames.push(*frame);
            }
        }
        // A fetch of only the frames pays if they are at most half of the pack.
        let saves = bytes <= pack.file_bytes() / 2;
        Ok(match frames.is_empty() {
            true => None,
            false if saves || comes_twice => Some(PackPart::Frames(frames)),
            false => Some(PackPart::Whole),
        })
    }
}
