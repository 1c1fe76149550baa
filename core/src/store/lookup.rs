//! Lookups: the location of an object. The index may name several locations of one object.
//!
//! Readers prefer locations without a [shadow](super::shadow), then locations in whole packs, and
//! accept any other.
//!
//! Writers ignore shadowed locations and partial packs, and hash objects of unproven packs.

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashSet},
};

use crate::{
    base::{
        id::{ObjectId, PackId},
        limits,
    },
    disk::table::TableError,
    format::pack::{Frame, ObjectKind},
    store::{ObjectLocation, Store, StoreError, catalog::Catalog, pack_reader::Completeness},
};

/// The objects of given frames that other packs hold as well, and those packs.
#[derive(Debug, Default)]
pub struct OtherCopies {
    /// The objects that other packs hold as well.
    pub objects: BTreeSet<ObjectId>,
    /// The other packs that hold the objects.
    pub packs: BTreeSet<PackId>,
    /// True if an object of the frames is in no other pack.
    pub lacks_any: bool,
}

impl Store {
    /// Looks up the location of an object.
    ///
    /// # Errors
    /// [`StoreError`] if the index can be neither read nor rebuilt.
    pub fn locate(&self, id: &ObjectId) -> Result<Option<ObjectLocation>, StoreError> {
        self.query_index(|catalog| find(catalog, id))
    }

    /// Looks up a location where the object is not shadowed.
    ///
    /// # Errors
    /// As [`Store::locate`].
    pub fn locate_unshadowed(&self, id: &ObjectId) -> Result<Option<ObjectLocation>, StoreError> {
        self.query_index(|catalog| find_unshadowed(catalog, id))
    }

    /// Returns true if a pack in which nothing is damaged has an unshadowed copy of an object.
    ///
    /// # Errors
    /// As [`Store::locate`].
    pub fn is_in_sound_pack(&self, id: &ObjectId) -> Result<bool, StoreError> {
        let found = self.query_index(|catalog| {
            let is_sound = |place: &ObjectLocation| {
                let pack = &catalog.packs[place.pack as usize].id;
                is_unshadowed(catalog, id, place) && !catalog.shadows.is_damaged(pack)
            };
            find_in(catalog, id, &[&is_sound])
        });
        Ok(found?.is_some())
    }

    /// Looks up an unshadowed location of an object in any pack except `pack`.
    ///
    /// # Errors
    /// As [`Store::locate`].
    pub fn locate_in_other_pack(
        &self,
        id: &ObjectId,
        pack: &PackId,
    ) -> Result<Option<ObjectLocation>, StoreError> {
        self.query_index(|catalog| {
            let is_beside = |place: &ObjectLocation| {
                catalog.packs[place.pack as usize].id != *pack && is_unshadowed(catalog, id, place)
            };
            find_in(catalog, id, &[&is_beside])
        })
    }

    /// Returns the unshadowed copies of objects of these frames in other packs.
    ///
    /// # Errors
    /// [`StoreError`] when the pack or the index cannot be read.
    pub fn other_copies_of_frames(
        &self,
        pack: &PackId,
        offsets: &[u64],
    ) -> Result<OtherCopies, StoreError> {
        self.other_copies_of_objects(pack, &self.objects_of_frames(pack, offsets)?)
    }

    /// Returns the unshadowed copies of these objects in packs other than `pack`.
    ///
    /// # Errors
    /// As [`Store::locate`].
    pub fn other_copies_of_objects(
        &self,
        pack: &PackId,
        objects: &[ObjectId],
    ) -> Result<OtherCopies, StoreError> {
        let mut copies = OtherCopies::default();
        for id in objects {
            let Some(place) = self.locate_in_other_pack(id, pack)? else {
                copies.lacks_any = true;
                continue;
            };
            copies.objects.insert(*id);
            copies.packs.extend(self.pack_id(place.pack));
        }
        Ok(copies)
    }

    /// Returns the objects of frames of a pack.
    pub(super) fn objects_of_frames(
        &self,
        pack: &PackId,
        offsets: &[u64],
    ) -> Result<Vec<ObjectId>, StoreError> {
        let file = self.open_pack(pack)?;
        let objects = file.objects()?;
        let offsets: HashSet<u64> = offsets.iter().copied().collect();
        let is_wanted =
            |frame: &Frame| offsets.contains(&frame.offset) && !frame.range().is_empty();
        let frames = file.by_frame(&objects).filter(|contents| is_wanted(contents.frame));
        Ok(frames.flat_map(|contents| contents.objects).map(|object| object.id).collect())
    }

    /// Looks up an unshadowed location of an object in a whole pack. Prefers a
    /// [proven](super::proof) pack, and returns true with a location in such a pack.
    pub(super) fn locate_for_writers(
        &self,
        id: &ObjectId,
    ) -> Result<Option<(ObjectLocation, bool)>, StoreError> {
        self.query_index(|catalog| {
            let is_stored = |place: &ObjectLocation| is_stored_at(catalog, id, place);
            let Some(place) = find_in(catalog, id, &[&is_stored])? else { return Ok(None) };
            let is_in_proven =
                |place: &ObjectLocation| catalog.is_proven(&catalog.packs[place.pack as usize]);
            if is_in_proven(&place) {
                return Ok(Some((place, true)));
            }
            let is_proven = |place: &ObjectLocation| is_stored(place) && is_in_proven(place);
            let proven = find_in(catalog, id, &[&is_proven])?;
            Ok(Some((proven.unwrap_or(place), proven.is_some())))
        })
    }

    /// Returns all locations of an object, including shadowed ones.
    ///
    /// # Errors
    /// As [`Store::locate`].
    pub fn places(&self, id: &ObjectId) -> Result<Vec<ObjectLocation>, StoreError> {
        self.query_index(|catalog| {
            let places = RefCell::new(Vec::new());
            let note = |place: &ObjectLocation| {
                places.borrow_mut().push(*place);
                false
            };
            find_in(catalog, id, &[&note])?;
            Ok(places.into_inner())
        })
    }

    /// Unmaps the pages of the index. The next lookups map them again.
    pub fn release_index(&self) {
        self.catalog().segments.iter().for_each(|segment| segment.release());
    }

    /// Runs a query on the index. If the query finds a damaged segment, removes and rebuilds the
    /// segment, and runs the query again.
    pub(super) fn query_index<T>(
        &self,
        ask: impl Fn(&Catalog) -> Result<T, TableError>,
    ) -> Result<T, StoreError> {
        for _ in 0..limits::MERGE_RETRIES {
            match ask(&self.catalog()) {
                Err(TableError::Damaged { path, .. }) if !self.layout().is_read_only => {
                    // A segment is derived data. The refresh rebuilds it.
                    let _ = self.disk().remove(&path);
                    self.repaired.lock().damaged = true;
                    self.refresh()?;
                }
                answer => return Ok(answer?),
            }
        }
        Ok(ask(&self.catalog())?)
    }

    /// Looks up an object that should exist. If the lookup fails, lists the packs again and
    /// retries: another process may have added or moved the object since the last listing.
    pub(super) fn locate_or_refresh(
        &self,
        id: &ObjectId,
    ) -> Result<Option<ObjectLocation>, StoreError> {
        let place = self.locate(id)?;
        let settled = || self.is_bundle || self.catalog().is_current(self.layout());
        if place.is_some() || settled() {
            return Ok(place);
        }
        self.refresh()?;
        self.locate(id)
    }

    /// Looks up an object and opens its pack. If that pack was merged meanwhile, lists the packs
    /// again and retries.
    ///
    /// # Errors
    /// [`StoreError`] when the pack cannot be opened or the index cannot be read.
    pub fn locate_in_pack(&self, id: &ObjectId) -> Result<Option<ObjectLocation>, StoreError> {
        for _ in 0..limits::MERGE_RETRIES {
            let Some(place) = self.locate_or_refresh(id)? else { return Ok(None) };
            match self.pack(place.pack) {
                Err(StoreError::Gone { .. }) => self.refresh()?,
                Err(error) => return Err(error),
                Ok(_) => return Ok(Some(place)),
            }
        }
        Ok(None)
    }

    /// Returns at most `limit` objects with ids from `low` to `high`, sorted.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn ids_between(
        &self,
        low: &[u8; 32],
        high: &[u8; 32],
        limit: usize,
    ) -> Result<Vec<(ObjectId, ObjectKind)>, StoreError> {
        let mut ids = self.query_index(|catalog| {
            let mut ids = Vec::new();
            for segment in &catalog.segments {
                let before = ids.len();
                segment.between(low, high, &mut |id, place| {
                    ids.push((id, place.kind));
                    ids.len() - before < limit
                })?;
            }
            Ok(ids)
        })?;
        ids.sort_unstable();
        ids.dedup();
        ids.truncate(limit);
        Ok(ids)
    }
}

/// A predicate that accepts or rejects a location.
type PlaceFilter<'a> = dyn Fn(&ObjectLocation) -> bool + 'a;

fn is_whole(catalog: &Catalog, place: &ObjectLocation) -> bool {
    catalog.packs[place.pack as usize].completeness == Completeness::Whole
}

fn is_unshadowed(catalog: &Catalog, id: &ObjectId, place: &ObjectLocation) -> bool {
    catalog.shadows.is_empty()
        || !catalog.shadows.covers(&catalog.packs[place.pack as usize].id, id)
}

fn is_stored_at(catalog: &Catalog, id: &ObjectId, place: &ObjectLocation) -> bool {
    is_whole(catalog, place) && is_unshadowed(catalog, id, place)
}

/// Looks up an object. Prefers an unshadowed location, then a whole pack.
fn find(catalog: &Catalog, id: &ObjectId) -> Result<Option<ObjectLocation>, TableError> {
    let any = |_: &ObjectLocation| true;
    if !catalog.has_partial && catalog.shadows.is_empty() {
        return find_in(catalog, id, &[&any]);
    }
    match find_unshadowed(catalog, id)? {
        None => find_in(catalog, id, &[&|place| is_whole(catalog, place), &any]),
        place => Ok(place),
    }
}

/// Looks up an unshadowed location of an object. Prefers a whole pack.
fn find_unshadowed(catalog: &Catalog, id: &ObjectId) -> Result<Option<ObjectLocation>, TableError> {
    let is_unshadowed = |place: &ObjectLocation| is_unshadowed(catalog, id, place);
    match catalog.has_partial {
        false => find_in(catalog, id, &[&is_unshadowed]),
        true => {
            let is_stored = |place: &ObjectLocation| is_stored_at(catalog, id, place);
            find_in(catalog, id, &[&is_stored, &is_unshadowed])
        }
    }
}

/// Returns a location that a predicate of `choices` accepts. Tries the next predicate only if no
/// location satisfies the previous one.
fn find_in(
    catalog: &Catalog,
    id: &ObjectId,
    choices: &[&PlaceFilter<'_>],
) -> Result<Option<ObjectLocation>, TableError> {
    for is_acceptable in choices {
        for segment in &catalog.segments {
            if let Some(place) = segment.find(id, is_acceptable)? {
                return Ok(Some(place));
            }
        }
    }
    Ok(None)
}
