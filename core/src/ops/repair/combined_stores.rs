//! Finds the objects that are reachable from the refs and that a store lacks.
//!
//! The walk reads the store, the [`ScratchStore`] and all sources as one store, so it also
//! reaches objects below a lost tree. An object that the store has and that is not shadowed counts
//! as sound, unless the walk reads it and finds damage.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    base::{
        id::{CommitId, ObjectId, PackId},
        kind::ErrorKind,
        observe::{Observer, Phase},
    },
    format::pack::ObjectKind,
    ops::{
        reach::{self, ObjectSource, ReachError},
        repair::{RepairSource, ScratchStore},
    },
    store::{Marks, ObjectIds, ObjectLocation, Store, StoreError},
};

/// Objects that the store lacks.
#[derive(Debug, Default)]
pub(super) struct MissingObjects {
    /// Objects that the store needs and that another source may have, with their kinds.
    pub(super) wanted: BTreeMap<ObjectId, ObjectKind>,
    /// Objects that neither the store nor any source has, with the kinds that they should have.
    pub(super) lost: BTreeMap<ObjectId, ObjectKind>,
}

/// The store, the scratch store and the sources, read as one store.
pub(super) struct CombinedStores<'a> {
    pub(super) target: &'a Store,
    pub(super) scratch: &'a ScratchStore,
    pub(super) sources: &'a [RepairSource<'a>],
    /// Damaged packs whose footer cannot be read. The index may still know their objects.
    pub(super) unlisted: &'a BTreeSet<PackId>,
    found: RefCell<MissingObjects>,
}

impl<'a> CombinedStores<'a> {
    pub(super) fn new(
        target: &'a Store,
        scratch: &'a ScratchStore,
        sources: &'a [RepairSource<'a>],
        unlisted: &'a BTreeSet<PackId>,
    ) -> Self {
        Self { target, scratch, sources, unlisted, found: RefCell::default() }
    }

    /// Returns an object from the sound parts of damaged packs.
    pub(super) fn read_from_damaged(&self, id: &ObjectId, kind: ObjectKind) -> Option<Vec<u8>> {
        let here = || self.locate_unlisted(id).and_then(|_| self.target.object(id, kind).ok());
        self.scratch.object(id, kind).or_else(here)
    }

    /// Returns the position of an object in a pack whose footer cannot be read.
    fn locate_unlisted(&self, id: &ObjectId) -> Option<ObjectLocation> {
        if self.unlisted.is_empty() {
            return None;
        }
        let place = self.target.locate(id).ok()??;
        let pack = self.target.pack_id(place.pack)?;
        self.unlisted.contains(&pack).then_some(place)
    }

    /// Walks everything that is reachable from `tips`.
    pub(super) fn search(
        self,
        tips: &[CommitId],
        observer: &dyn Observer,
    ) -> Result<MissingObjects, ReachError> {
        observer.phase(Phase::Structure, None);
        let marks = Marks::new(self.target);
        let mut visited = BTreeSet::new();
        let mut enter = |id: &ObjectId, place: &ObjectLocation| {
            if self.is_sound(id)? {
                return marks.mark(id);
            }
            let is_new = visited.insert(*id);
            if is_new {
                self.found.borrow_mut().wanted.insert(*id, place.kind);
            }
            Ok(is_new)
        };
        reach::visit(&self, tips, &mut enter, observer)?;
        Ok(self.found.into_inner())
    }

    /// Returns true if the store has the object and it is not shadowed.
    pub(super) fn is_sound(&self, id: &ObjectId) -> Result<bool, StoreError> {
        Ok(self.target.locate_unshadowed(id)?.is_some())
    }
}

impl ObjectSource for CombinedStores<'_> {
    fn locate(&self, id: &ObjectId) -> Result<Option<ObjectLocation>, StoreError> {
        if let Some(place) = self.target.locate_unshadowed(id)? {
            return Ok(Some(place));
        }
        if self.scratch.has(id)? {
            return self.scratch.store().locate(id);
        }
        if let Some(place) = self.locate_unlisted(id)
            && self.target.object(id, place.kind).is_ok()
        {
            return Ok(Some(place));
        }
        Ok(self.sources.iter().find_map(|source| source.locate(id)))
    }

    fn object(&self, id: &ObjectId, kind: ObjectKind) -> Result<Vec<u8>, StoreError> {
        let error = match self.is_sound(id)? {
            true => match self.target.object(id, kind) {
                Ok(bytes) => return Ok(bytes),
                // The object is stored elsewhere and the transport failed: it may still be sound.
                Err(error)
                    if error.is_remote()
                        && !matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NotFound) =>
                {
                    return Err(error);
                }
                Err(error) => {
                    self.found.borrow_mut().wanted.insert(*id, kind);
                    error
                }
            },
            false => StoreError::Missing { id: *id, wanted: kind },
        };
        let here = self.read_from_damaged(id, kind);
        let found = here.or_else(|| self.sources.iter().find_map(|s| s.object(id, kind)));
        found.ok_or(error)
    }

    fn is_here(&self, id: &ObjectId) -> Result<bool, StoreError> {
        match self.target.locate_unshadowed(id)? {
            Some(place) => self.target.is_here(&place),
            None => Ok(true),
        }
    }

    fn will_need(&self, ids: &mut ObjectIds<'_>) {
        self.target.prefetch_objects(ids);
    }

    fn on_unreadable(
        &self,
        id: &ObjectId,
        wanted: ObjectKind,
        error: ReachError,
    ) -> Result<(), ReachError> {
        let id = match &error {
            // A partial clone does not have this object; that is not damage.
            ReachError::Store(StoreError::Absent { .. }) => return Ok(()),
            ReachError::Store(source) if source.is_transport() => return Err(error),
            ReachError::Store(StoreError::Missing { id, .. }) => id,
            _ => id,
        };
        let mut found = self.found.borrow_mut();
        found.wanted.remove(id);
        found.lost.insert(*id, wanted);
        Ok(())
    }
}
