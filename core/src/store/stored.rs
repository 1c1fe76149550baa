//! Checks that a content is stored completely, without reading the whole content.

use crate::{
    base::id::{ContentId, ObjectId},
    store::{Descend, ObjectWriter, StoreError},
};

impl ObjectWriter<'_> {
    /// Returns true if a content is stored, or about to be stored, with all of its chunks. Shadows
    /// a damaged chunk list.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn contains_content(&self, id: &ContentId) -> Result<bool, StoreError> {
        let object = id.object();
        if self.is_claimed(&object) {
            return Ok(true);
        }
        let ContentId::Chunked(list) = id else { return self.is_stored(&object) };
        if !self.is_stored(&object)? {
            return Ok(false);
        }
        let mut all = true;
        let walked = self.store.for_each_named::<StoreError>(list, &mut |id, _| {
            all = all && self.contains(&id)?;
            Ok(if all { Descend::Enter } else { Descend::Skip })
        });
        match walked {
            Ok(()) => Ok(all),
            Err(error) => {
                self.shadow_damage(&error)?;
                Ok(false)
            }
        }
    }

    /// Returns true if the object is [stored](crate::store::Store::is_stored). Shadows a wrong
    /// object in an unproven pack.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read or the shadow table cannot be written.
    pub(super) fn is_stored(&self, id: &ObjectId) -> Result<bool, StoreError> {
        let is_stored = self.store.is_stored_or(id, &|error| self.shadow_damage(error))?;
        if is_stored {
            self.relied.add(id)?;
        }
        Ok(is_stored)
    }

    /// Shadows the damage that an error reports, so that this writer stores the objects again. A
    /// counting writer shadows the damage for this open store only; any other writer shadows it
    /// durably. Does nothing for other errors.
    ///
    /// # Errors
    /// As [`Store::change_shadows`](crate::store::Store::change_shadows).
    pub fn shadow_damage(&self, error: &StoreError) -> Result<(), StoreError> {
        if self.is_counting {
            self.store.shadow_in_memory(error);
            return Ok(());
        }
        self.store.shadow_damage(error).map(drop)
    }
}
