//! Prefetch hints: callers announce the objects that they will read, so that the store requests
//! absent frames before a reader waits for them.
//!
//! A store without partial packs ignores the hints and does not look up the ids.

use std::{collections::HashSet, ops::Range, sync::Arc};

use crate::{
    base::{
        id::{ContentId, ObjectId, PackId},
        limits,
    },
    format::pack::{Frame, ObjectClass, ObjectKind},
    store::{
        Descend, ObjectLocation, Store, StoreError,
        fetch::{Fetcher, Pause},
    },
};

/// Ids of objects. Only a store that can fetch consumes the iterator.
pub type ObjectIds<'a> = dyn Iterator<Item = ObjectId> + 'a;

impl Store {
    fn fetcher_in_use(&self) -> Option<&Arc<Fetcher>> {
        self.fetcher.as_ref().filter(|fetcher| !fetcher.is_paused() && self.has_partial())
    }

    /// Stops fetches until the result is dropped. Meanwhile, reads of absent frames fail with
    /// [`StoreError::Absent`] for all readers of this store.
    pub fn pause_fetching(&self) -> Pause {
        Pause::new(self.fetcher.clone())
    }

    /// Returns true if a read may have to fetch frames, so that prefetch hints are useful.
    pub fn may_fetch(&self) -> bool {
        self.fetcher_in_use().is_some()
    }

    /// Prefetches the absent frames of `places`, in that order. For a metadata frame, prefetches
    /// all metadata frames of the pack. Does not wait. Ignores errors: the later read reports them.
    pub fn prefetch(&self, places: &[ObjectLocation]) {
        let Some(fetcher) = self.fetcher_in_use() else { return };
        let mut seen = HashSet::new();
        let mut ranges = Vec::new();
        for place in places {
            if seen.insert((place.pack, place.frame)) {
                ranges.extend(self.to_fetch(place).unwrap_or_default());
            }
        }
        fetcher.announce(ranges);
    }

    fn to_fetch(&self, place: &ObjectLocation) -> Result<Vec<(PackId, Range<u64>)>, StoreError> {
        if self.is_here(place)? {
            return Ok(Vec::new());
        }
        let pack = self.pack(place.pack)?;
        let frame = pack.frame(place.frame)?;
        match (frame.class, pack.stub()) {
            (ObjectClass::Metadata, Some(stub)) => stub.metadata_to_fetch(&pack, frame),
            _ => Ok(vec![(pack.id(), frame.range())]),
        }
    }

    /// Prefetches absent frames of a pack.
    pub fn prefetch_frames(&self, pack: PackId, frames: &[Frame]) {
        if let Some(fetcher) = self.fetcher_in_use() {
            fetcher.announce(frames.iter().map(|frame| (pack, frame.range())).collect());
        }
    }

    /// Prefetches the metadata frames of packs that are certainly absent, unless they have more than
    /// `most_bytes` together. Otherwise, a walk over a history in many packs waits for one pack after
    /// the other: only a commit shows which pack has its parent.
    pub fn prefetch_metadata(&self, packs: &[PackId], most_bytes: u64) {
        let Some(fetcher) = self.fetcher_in_use() else { return };
        let mut ranges = Vec::new();
        for id in packs {
            // The later read reports an error.
            let Ok(pack) = self.shared_pack(id) else { continue };
            let is_absent =
                |frame: &&Frame| frame.class == ObjectClass::Metadata && !pack.may_be_here(frame);
            let absent = pack.frames().iter().filter(is_absent);
            ranges.extend(absent.map(|frame| (*id, frame.range())));
        }
        let bytes: u64 = ranges.iter().map(|(_, range)| range.end - range.start).sum();
        if bytes <= most_bytes {
            fetcher.announce(ranges);
        }
    }

    /// Prefetches objects, in that order.
    pub fn prefetch_objects(&self, ids: &mut ObjectIds<'_>) {
        if self.may_fetch() {
            let place = |id: ObjectId| self.locate(&id).ok().flatten();
            self.prefetch(&ids.filter_map(place).collect::<Vec<_>>());
        }
    }

    /// Prefetches contents in the order of bulk reads: first contents that are single objects, by
    /// location, then chunked contents, chunk by chunk. Waits for the chunk lists.
    pub fn prefetch_contents(&self, ids: &mut dyn Iterator<Item = ContentId>) {
        if !self.may_fetch() {
            return;
        }
        let place = |id: ContentId| Some((self.locate(&id.object()).ok().flatten()?, id));
        let mut places: Vec<(ObjectLocation, ContentId)> = ids.filter_map(place).collect();
        places.sort_unstable();
        places.dedup();
        let (chunked, whole): (Vec<_>, Vec<_>) =
            places.into_iter().partition(|(_, id)| id.is_chunked());
        for part in [&whole, &chunked] {
            self.prefetch(&part.iter().map(|(place, _)| *place).collect::<Vec<_>>());
        }
        let mut parts = HashSet::new();
        for (_, id) in chunked {
            let ContentId::Chunked(list) = id else { continue };
            let mut chunks = Vec::new();
            // Ignore an unreadable list: the reader of the content reports it.
            let _ = self.for_each_named::<StoreError>(&list, &mut |id, kind| {
                if kind == ObjectKind::ListPart {
                    return Ok(if parts.insert(id) { Descend::Enter } else { Descend::Skip });
                }
                chunks.push(id);
                if chunks.len() == limits::CHUNK_LIST_ENTRIES {
                    self.prefetch_objects(&mut chunks.drain(..));
                }
                Ok(Descend::Enter)
            });
            self.prefetch_objects(&mut chunks.into_iter());
        }
    }
}
