//! Which packs elsewhere have what is not here, and which frames of them.

use snap_core::{
    base::id::{ObjectId, PackId},
    format::pack::Frame,
    store::{Store, StoreError},
};

/// A pack of which anything is wanted.
#[derive(Debug)]
pub(super) struct WantedPack {
    pub(super) id: PackId,
    pub(super) fetch: Fetch,
}

/// What of a pack is fetched.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fetch {
    /// All of it: it becomes a pack here, too.
    Whole,
    /// These frames, whose objects go into packs of their own.
    Frames(Vec<Frame>),
}

/// Says of objects whether they are wanted from a pack. One that several packs
/// there have comes from the one that their index names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lacking<'a> {
    pub(super) here: &'a Store,
    pub(super) there: &'a Store,
}

impl Lacking<'_> {
    /// Whether an object is not here, or must not be relied on here.
    pub(super) fn is_missing(&self, id: &ObjectId) -> Result<bool, StoreError> {
        Ok(self.here.locate_unshadowed(id)?.is_none())
    }

    pub(super) fn is_wanted(&self, id: &ObjectId, pack: &PackId) -> Result<bool, StoreError> {
        Ok(self.is_missing(id)? && self.is_from(id, pack)?)
    }

    fn is_from(&self, id: &ObjectId, pack: &PackId) -> Result<bool, StoreError> {
        let place = self.there.locate(id)?;
        Ok(place.and_then(|place| self.there.pack_id(place.pack)) == Some(*pack))
    }

    /// Packs there that have anything that is wanted.
    pub(super) fn packs(&self) -> Result<Vec<WantedPack>, StoreError> {
        let mut wanted = Vec::new();
        for id in self.there.packs() {
            wanted.extend(self.pack(id)?.map(|fetch| WantedPack { id, fetch }));
        }
        Ok(wanted)
    }

    fn pack(&self, id: PackId) -> Result<Option<Fetch>, StoreError> {
        let pack = self.there.open_pack(&id)?;
        let objects = pack.objects()?;
        let mut rest = objects.as_slice();
        let (mut frames, mut bytes, mut comes_twice) = (Vec::new(), 0, false);
        for frame in pack.frames() {
            let (own, others) = rest.split_at(frame.objects as usize);
            rest = others;
            let mut is_wanted = false;
            for object in own {
                match self.is_from(&object.id, &id)? {
                    true => is_wanted = is_wanted || self.is_missing(&object.id)?,
                    false => comes_twice = true,
                }
            }
            if is_wanted {
                bytes += u64::from(frame.stored_bytes);
                frames.push(*frame);
            }
        }
        let saves = bytes <= pack.file_bytes() / 2;
        Ok(match frames.is_empty() {
            true => None,
            false if saves || comes_twice => Some(Fetch::Frames(frames)),
            false => Some(Fetch::Whole),
        })
    }
}
