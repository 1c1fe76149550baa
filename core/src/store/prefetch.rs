//! Prefetch hints: callers announce what they will read, so that frames that lie
//! elsewhere are requested before a reader waits for them.
//!
//! In a store without partial packs this costs nothing: the ids are not even looked up.

use std::{collections::HashSet, ops::Range, sync::Arc};

use crate::{
    base::id::{BlobId, ObjectId, PackId},
    format::pack::{Frame, ObjectClass, ObjectKind},
    store::{
        ChunkVisit, ObjectLocation, Store, StoreError,
        fetch::{Fetcher, Pause},
        walk_chunks,
    },
};

/// Ids of objects. They are looked up only in stores that can fetch.
pub type ObjectIds<'a> = dyn Iterator<Item = ObjectId> + 'a;

impl Store {
    fn fetcher_in_use(&self) -> Option<&Arc<Fetcher>> {
        self.fetcher.as_ref().filter(|fetcher| !fetcher.is_paused() && self.has_partial())
    }

    /// Stops fetching while the result lives. Meanwhile a frame that lies elsewhere is
    /// [`StoreError::Absent`] to every reader of this store.
    pub fn pause_fetching(&self) -> Pause {
        Pause::new(self.fetcher.clone())
    }

    /// Returns true if frames may have to be fetched, so that prefetch hints are
    /// useful.
    pub fn may_fetch(&self) -> bool {
        self.fetcher_in_use().is_some()
    }

    /// Prefetches the frames of `places`, in that order, except local ones.
    /// With a metadata frame, all metadata of its pack is prefetched. Does not wait.
    /// Errors are ignored: the later read reports them.
    pub fn prefetch(&self, places: &[ObjectLocation]) {
        let Some(fetcher) = self.fetcher_in_use() else { return };
        let mut seen = HashSet::new();
        let mut ranges = Vec::new();
        for place in places {
            if seen.insert((place.pack, place.frame)) {
                ranges.extend(self.to_fetch(fetcher, place).unwrap_or_default());
            }
        }
        fetcher.announce(ranges);
    }

    fn to_fetch(
        &self,
        fetcher: &Fetcher,
        place: &ObjectLocation,
    ) -> Result<Vec<(PackId, Range<u64>)>, StoreError> {
        if self.is_here(place)? {
            return Ok(Vec::new());
        }
        let pack = self.pack(place.pack)?;
        let frame = pack.frame(place.frame)?;
        match frame.class {
            ObjectClass::Metadata => pack.metadata_to_fetch(fetcher, frame),
            ObjectClass::Data => Ok(vec![(pack.id(), frame.range())]),
        }
    }

    /// Prefetches frames of a pack that are missing locally.
    pub fn prefetch_frames(&self, pack: PackId, frames: &[Frame]) {
        if let Some(fetcher) = self.fetcher_in_use() {
            fetcher.announce(frames.iter().map(|frame| (pack, frame.range())).collect());
        }
    }

    /// Prefetches objects, in that order.
    pub fn prefetch_objects(&self, ids: &mut ObjectIds<'_>) {
        if self.may_fetch() {
            let place = |id: ObjectId| self.locate(&id).ok().flatten();
            self.prefetch(&ids.filter_map(place).collect::<Vec<_>>());
        }
    }

    /// Prefetches contents in the order in which bulk readers read them: first contents
    /// of one object, by location, then chunked ones, chunk by chunk. Waits for the
    /// chunk lists.
    pub fn prefetch_contents(&self, ids: &mut dyn Iterator<Item = BlobId>) {
        if !self.may_fetch() {
            return;
        }
        let place = |id: BlobId| Some((self.locate(&id.object()).ok().flatten()?, id));
        let mut places: Vec<(ObjectLocation, BlobId)> = ids.filter_map(place).collect();
        places.sort_unstable();
        places.dedup();
        let (whole, cut): (Vec<_>, Vec<_>) =
            places.into_iter().partition(|(place, _)| place.kind == ObjectKind::Blob);
        for part in [&whole, &cut] {
            self.prefetch(&part.iter().map(|(place, _)| *place).collect::<Vec<_>>());
        }
        for (_, id) in cut {
            let read = |id: &ObjectId, kind| self.object(id, kind);
            // A reader of the content reports a list that cannot be read.
            let _ = walk_chunks::<StoreError>(id.object(), &read, &mut |visit| {
                if let ChunkVisit::Chunks(chunks) = visit {
                    self.prefetch_objects(&mut chunks.iter().map(|chunk| chunk.id.object()));
                }
                Ok(())
            });
        }
    }
}
