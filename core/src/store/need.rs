//! Saying ahead what will be read, so that what lies elsewhere is under way
//! before anybody waits for it.
//!
//! Costs nothing where nothing lies elsewhere: ids are then not even looked at.

use std::{collections::HashSet, ops::Range, sync::Arc};

use crate::{
    base::id::{BlobId, ObjectId, PackId},
    format::pack::{Class, Frame, ObjectKind},
    store::{
        Content, Place, Store, StoreError,
        fetch::{Fetcher, Pause},
    },
};

/// Ids that are looked at only where that is of use.
pub type Needed<'a> = dyn Iterator<Item = ObjectId> + 'a;

impl Store {
    fn fetcher_in_use(&self) -> Option<&Arc<Fetcher>> {
        self.fetcher.as_ref().filter(|fetcher| !fetcher.is_paused() && self.has_partial())
    }

    /// Fetches nothing for as long as the result lives: what lies elsewhere is
    /// [`StoreError::Absent`] to everybody who reads this store meanwhile.
    pub fn pause_fetching(&self) -> Pause {
        Pause::new(self.fetcher.clone())
    }

    /// Whether anything may have to be fetched, so that it helps to say ahead
    /// what will be read.
    pub fn may_fetch(&self) -> bool {
        self.fetcher_in_use().is_some()
    }

    /// Says that the frames of `places` will be read, in that order. Those that
    /// are here are left out; with a metadata frame goes all metadata of its
    /// pack. Does not wait. What cannot be found out is left to whoever reads.
    pub fn will_need(&self, places: &[Place]) {
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
        place: &Place,
    ) -> Result<Vec<(PackId, Range<u64>)>, StoreError> {
        if self.is_here(place)? {
            return Ok(Vec::new());
        }
        let pack = self.pack(place.pack)?;
        let frame = pack.frame(place.frame)?;
        match frame.class {
            Class::Metadata => pack.metadata_to_fetch(fetcher, frame),
            Class::Data => Ok(vec![(pack.id(), frame.range())]),
        }
    }

    /// Says that frames of a pack will be read, which are not here.
    pub fn will_need_frames(&self, pack: PackId, frames: &[Frame]) {
        if let Some(fetcher) = self.fetcher_in_use() {
            fetcher.announce(frames.iter().map(|frame| (pack, frame.range())).collect());
        }
    }

    /// Says that objects will be read, in that order.
    pub fn will_need_objects(&self, ids: &mut Needed<'_>) {
        if self.may_fetch() {
            let place = |id: ObjectId| self.locate(&id).ok().flatten();
            self.will_need(&ids.filter_map(place).collect::<Vec<_>>());
        }
    }

    /// Says that contents will be read as those do who read many: first those
    /// of one object each, by where they lie, then those that were cut, chunk by
    /// chunk. Waits for the lists of chunks.
    pub fn will_need_contents(&self, ids: &mut dyn Iterator<Item = BlobId>) {
        if !self.may_fetch() {
            return;
        }
        let place = |id: BlobId| Some((self.locate(&id.object()).ok().flatten()?, id));
        let mut places: Vec<(Place, BlobId)> = ids.filter_map(place).collect();
        places.sort_unstable();
        places.dedup();
        let (whole, cut): (Vec<_>, Vec<_>) =
            places.into_iter().partition(|(place, _)| place.kind == ObjectKind::Blob);
        for part in [&whole, &cut] {
            self.will_need(&part.iter().map(|(place, _)| *place).collect::<Vec<_>>());
        }
        for (_, id) in cut {
            if let Ok(Content::Chunks(chunks)) = self.content(&id) {
                self.will_need_objects(&mut chunks.iter().map(|chunk| chunk.id.object()));
            }
        }
    }
}
