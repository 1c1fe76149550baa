//! Where objects are: asks the index, which may name several places of one.
//!
//! Readers prefer a place that is not [shadowed](super::shadow), then one in a
//! whole pack, and take any. Writers count neither shadowed places nor partial
//! packs.

use std::cell::RefCell;

use crate::{
    base::id::ObjectId,
    disk::table::TableError,
    format::pack::ObjectKind,
    store::{
        Place, Store, StoreError,
        catalog::{Catalog, Upkeep},
        objects::{Origin, RETRIES, lock},
        pack_reader::Home,
    },
};

impl Store {
    /// Where an object is.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read nor made again.
    pub fn locate(&self, id: &ObjectId) -> Result<Option<Place>, StoreError> {
        self.healed(|catalog| find(catalog, id))
    }

    /// Where an object is that may be relied on: it is not shadowed there.
    ///
    /// # Errors
    /// As [`Store::locate`].
    pub fn locate_unshadowed(&self, id: &ObjectId) -> Result<Option<Place>, StoreError> {
        self.healed(|catalog| find_unshadowed(catalog, id))
    }

    /// Whether an object is stored here, so that writers need not add it: in a
    /// whole pack, and not shadowed there.
    ///
    /// # Errors
    /// As [`Store::locate`].
    pub fn is_stored(&self, id: &ObjectId) -> Result<bool, StoreError> {
        let found = self
            .healed(|catalog| find_in(catalog, id, &[&|place| is_stored_at(catalog, id, place)]));
        Ok(found?.is_some())
    }

    /// All places of an object, shadowed ones included.
    pub(super) fn places(&self, id: &ObjectId) -> Result<Vec<Place>, StoreError> {
        self.healed(|catalog| {
            let places = RefCell::new(Vec::new());
            let note = |place: &Place| {
                places.borrow_mut().push(*place);
                false
            };
            find_in(catalog, id, &[&note])?;
            Ok(places.into_inner())
        })
    }

    /// Asks the index. Where that comes upon damage, the segment is made again.
    fn healed<T>(&self, ask: impl Fn(&Catalog) -> Result<T, TableError>) -> Result<T, StoreError> {
        for _ in 0..RETRIES {
            match ask(&self.catalog()) {
                Err(TableError::Damaged { path, .. }) if self.layout().upkeep == Upkeep::Repair => {
                    // Derived, so it is thrown away and made again.
                    let _ = self.disk().remove(&path);
                    lock(&self.repaired).damaged = true;
                    self.refresh()?;
                }
                answer => return Ok(answer?),
            }
        }
        Ok(ask(&self.catalog())?)
    }

    /// Where an object is that should be there. When it is not found, packs
    /// are listed again first: another process may have added it, or moved it,
    /// since that was done.
    pub(super) fn locate_anew(&self, id: &ObjectId) -> Result<Option<Place>, StoreError> {
        let place = self.locate(id)?;
        let settled = || self.origin == Origin::Bundle || self.catalog().is_current(self.layout());
        if place.is_some() || settled() {
            return Ok(place);
        }
        self.refresh()?;
        self.locate(id)
    }

    /// Where an object is, in a pack that is there. Packs are listed again when
    /// one was merged into another since.
    ///
    /// # Errors
    /// [`StoreError`] when the pack cannot be opened, or the index not be read.
    pub fn locate_in_pack(&self, id: &ObjectId) -> Result<Option<Place>, StoreError> {
        for _ in 0..RETRIES {
            let Some(place) = self.locate_anew(id)? else { return Ok(None) };
            match self.pack(place.pack) {
                Err(StoreError::Gone { .. }) => self.refresh()?,
                Err(error) => return Err(error),
                Ok(_) => return Ok(Some(place)),
            }
        }
        Ok(None)
    }

    /// Objects with ids from `low` to `high`, sorted, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn ids_between(
        &self,
        low: &[u8; 32],
        high: &[u8; 32],
        limit: usize,
    ) -> Result<Vec<(ObjectId, ObjectKind)>, StoreError> {
        let mut ids = self.healed(|catalog| {
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

/// Says of a place whether it will do.
type WillDo<'a> = dyn Fn(&Place) -> bool + 'a;

fn is_whole(catalog: &Catalog, place: &Place) -> bool {
    catalog.packs[place.pack as usize].home == Home::Whole
}

fn is_unshadowed(catalog: &Catalog, id: &ObjectId, place: &Place) -> bool {
    catalog.shadows.is_empty()
        || !catalog.shadows.covers(&catalog.packs[place.pack as usize].id, id)
}

fn is_stored_at(catalog: &Catalog, id: &ObjectId, place: &Place) -> bool {
    is_whole(catalog, place) && is_unshadowed(catalog, id, place)
}

/// Where an object is: not shadowed, then in a whole pack, if there is such a
/// place.
fn find(catalog: &Catalog, id: &ObjectId) -> Result<Option<Place>, TableError> {
    let any = |_: &Place| true;
    if !catalog.has_partial && catalog.shadows.is_empty() {
        return find_in(catalog, id, &[&any]);
    }
    match find_unshadowed(catalog, id)? {
        None => find_in(catalog, id, &[&|place| is_whole(catalog, place), &any]),
        place => Ok(place),
    }
}

/// Where an object is not shadowed: in a whole pack, if there is such a place.
fn find_unshadowed(catalog: &Catalog, id: &ObjectId) -> Result<Option<Place>, TableError> {
    let is_unshadowed = |place: &Place| is_unshadowed(catalog, id, place);
    match catalog.has_partial {
        false => find_in(catalog, id, &[&is_unshadowed]),
        true => {
            let is_stored = |place: &Place| is_stored_at(catalog, id, place);
            find_in(catalog, id, &[&is_stored, &is_unshadowed])
        }
    }
}

/// A place that will do for the first of `choices` for which any does.
fn find_in(
    catalog: &Catalog,
    id: &ObjectId,
    choices: &[&WillDo<'_>],
) -> Result<Option<Place>, TableError> {
    for will_do in choices {
        for segment in &catalog.segments {
            if let Some(place) = segment.find(id, will_do)? {
                return Ok(Some(place));
            }
        }
    }
    Ok(None)
}
