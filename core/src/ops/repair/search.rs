//! What a store lacks of all that its refs reach.
//!
//! The structure is walked as if the store, the [`Workshop`] and all sources were
//! one store, so what a lost tree names is met as well. An object that the store
//! has and that is not shadowed there counts as sound, unless it is read on the way
//! and turns out not to be.

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
        reach::{self, Objects, ReachError},
        repair::{Source, Workshop},
    },
    store::{Marks, Needed, Place, Store, StoreError},
};

/// What was found lacking.
#[derive(Debug, Default)]
pub(super) struct Lacking {
    /// Objects that the store needs and that somebody may have, and their kinds.
    pub(super) wanted: BTreeMap<ObjectId, ObjectKind>,
    /// Objects that nobody has, and what they should be: of a content that may be
    /// cut, [`ObjectKind::Blob`].
    pub(super) lost: BTreeMap<ObjectId, ObjectKind>,
}

/// The store, the workshop and the sources as one.
pub(super) struct Overlay<'a> {
    pub(super) target: &'a Store,
    pub(super) workshop: &'a Workshop,
    pub(super) sources: &'a [Source<'a>],
    /// Damaged packs that do not say what is in them. The index may still know it.
    pub(super) unlisted: &'a BTreeSet<PackId>,
    found: RefCell<Lacking>,
}

impl<'a> Overlay<'a> {
    pub(super) fn new(
        target: &'a Store,
        workshop: &'a Workshop,
        sources: &'a [Source<'a>],
        unlisted: &'a BTreeSet<PackId>,
    ) -> Self {
        Self { target, workshop, sources, unlisted, found: RefCell::default() }
    }

    /// An object from the sound parts of damaged packs.
    pub(super) fn rescue(&self, id: &ObjectId, kind: ObjectKind) -> Option<Vec<u8>> {
        let here = || self.locate_unlisted(id).and_then(|_| self.target.object(id, kind).ok());
        self.workshop.object(id, kind).or_else(here)
    }

    /// Where an object lies in a pack that does not say what is in it.
    fn locate_unlisted(&self, id: &ObjectId) -> Option<Place> {
        if self.unlisted.is_empty() {
            return None;
        }
        let place = self.target.locate(id).ok()??;
        let pack = self.target.pack_id(place.pack)?;
        self.unlisted.contains(&pack).then_some(place)
    }

    /// Walks all that `tips` reach.
    pub(super) fn search(
        self,
        tips: &[CommitId],
        observer: &dyn Observer,
    ) -> Result<Lacking, ReachError> {
        observer.phase(Phase::Structure, None);
        let marks = Marks::new(self.target);
        let mut met = BTreeSet::new();
        let mut enter = |id: &ObjectId, place: &Place| {
            if self.is_sound(id)? {
                return marks.mark(id);
            }
            let is_new = met.insert(*id);
            if is_new {
                self.found.borrow_mut().wanted.insert(*id, place.kind);
            }
            Ok(is_new)
        };
        reach::visit(&self, tips, &mut enter, observer)?;
        Ok(self.found.into_inner())
    }

    /// Whether the store has an object and relies on it.
    pub(super) fn is_sound(&self, id: &ObjectId) -> Result<bool, StoreError> {
        Ok(self.target.locate_unshadowed(id)?.is_some())
    }
}

impl Objects for Overlay<'_> {
    fn locate(&self, id: &ObjectId) -> Result<Option<Place>, StoreError> {
        if let Some(place) = self.target.locate_unshadowed(id)? {
            return Ok(Some(place));
        }
        if self.workshop.has(id)? {
            return self.workshop.store().locate(id);
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
                // It lies elsewhere, or cannot be asked for.
                Err(error)
                    if error.is_elsewhere()
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
        let here = self.rescue(id, kind);
        let found = here.or_else(|| self.sources.iter().find_map(|s| s.object(id, kind)));
        found.ok_or(error)
    }

    fn is_here(&self, id: &ObjectId) -> Result<bool, StoreError> {
        match self.target.locate_unshadowed(id)? {
            Some(place) => self.target.is_here(&place),
            None => Ok(true),
        }
    }

    fn will_need(&self, ids: &mut Needed<'_>) {
        self.target.will_need_objects(ids);
    }

    fn pass_by(
        &self,
        id: &ObjectId,
        wanted: ObjectKind,
        error: ReachError,
    ) -> Result<(), ReachError> {
        let id = match &error {
            // Of a partial clone.
            ReachError::Store(StoreError::Absent { .. }) => return Ok(()),
            ReachError::Store(source @ StoreError::Distant { .. })
                if source.kind() != ErrorKind::NotFound =>
            {
                return Err(error);
            }
            ReachError::Store(StoreError::Missing { id, .. }) => id,
            _ => id,
        };
        let mut found = self.found.borrow_mut();
        found.wanted.remove(id);
        found.lost.insert(*id, wanted);
        Ok(())
    }
}
