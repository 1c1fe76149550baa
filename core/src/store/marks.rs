//! A bitmap with one bit for each index record of a store, for walks that must visit each object
//! once. Eight million records take 1 MB of memory.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    base::id::{CommitId, ObjectId},
    store::{Store, StoreError, catalog::Catalog},
};

/// The set of visited objects.
#[derive(Debug)]
pub struct Marks {
    catalog: Arc<Catalog>,
    /// Number of the first bit of each segment.
    bases: Vec<u64>,
    bits: Vec<AtomicU64>,
}

impl Marks {
    /// Creates an empty set for the objects in the present index of `store`.
    pub fn new(store: &Store) -> Self {
        let catalog = store.catalog();
        let mut bases = Vec::with_capacity(catalog.segments.len());
        let mut total = 0;
        for segment in &catalog.segments {
            bases.push(total);
            total += segment.records();
        }
        let bits = (0..total.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { catalog, bases, bits }
    }

    fn number(&self, id: &ObjectId) -> Result<Option<u64>, StoreError> {
        for (segment, base) in self.catalog.segments.iter().zip(&self.bases) {
            if let Some(at) = segment.position(id)? {
                return Ok(Some(base + at));
            }
        }
        Ok(None)
    }

    /// Marks an object. Returns true if the object was not marked before. Returns true on every
    /// call for an object that the index lacks.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn mark(&self, id: &ObjectId) -> Result<bool, StoreError> {
        Ok(self.mark_indexed(id)?.unwrap_or(true))
    }

    /// Marks an object. Returns true if the object was not marked before, and `None` if the index
    /// lacks it.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn mark_indexed(&self, id: &ObjectId) -> Result<Option<bool>, StoreError> {
        let Some(number) = self.number(id)? else { return Ok(None) };
        let bit = 1 << (number % 64);
        let before = self.bits[(number / 64) as usize].fetch_or(bit, Ordering::Relaxed);
        Ok(Some(before & bit == 0))
    }

    /// Marks a commit, or its link if the index has no such commit. Returns as
    /// [`mark`](Marks::mark).
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn mark_ancestor(&self, id: &CommitId) -> Result<bool, StoreError> {
        match self.mark_indexed(&id.object())? {
            Some(is_new) => Ok(is_new),
            None => self.mark(&id.link()),
        }
    }

    /// Removes the mark of an object.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn unmark(&self, id: &ObjectId) -> Result<(), StoreError> {
        if let Some(number) = self.number(id)? {
            let word = &self.bits[(number / 64) as usize];
            word.fetch_and(!(1 << (number % 64)), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns true if `is_wanted` accepts every marked object.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read, and the errors of `is_wanted`.
    pub(super) fn all(
        &self,
        is_wanted: &dyn Fn(&ObjectId) -> Result<bool, StoreError>,
    ) -> Result<bool, StoreError> {
        for (segment, base) in self.catalog.segments.iter().zip(&self.bases) {
            for at in 0..segment.records() {
                if self.bit(base + at) && !is_wanted(&segment.id(at)?)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn bit(&self, number: u64) -> bool {
        self.bits[(number / 64) as usize].load(Ordering::Relaxed) & (1 << (number % 64)) != 0
    }

    /// Returns true if an object is marked.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn is_marked(&self, id: &ObjectId) -> Result<bool, StoreError> {
        let Some(number) = self.number(id)? else { return Ok(false) };
        Ok(self.bit(number))
    }
}
