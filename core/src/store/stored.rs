//! Checks that a content is stored completely, without reading the whole content.

use crate::{
    base::id::{BlobId, ObjectId, PackId},
    format::{
        pack::ObjectKind,
        shadow::{Reason, ShadowTable, ShadowedPart},
    },
    store::{ChunkVisit, ObjectWriter, StoreError, damage, walk_chunks},
};

impl ObjectWriter<'_> {
    /// Returns true if a content is stored, or about to be stored, with all of its chunks. Shadows
    /// a damaged chunk list.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn contains_content(&self, id: &BlobId) -> Result<bool, StoreError> {
        let id = id.object();
        if self.is_claimed(&id, ObjectKind::Blob) || self.is_claimed(&id, ObjectKind::ChunkList) {
            return Ok(true);
        }
        if !self.is_stored(&id)? {
            return Ok(false);
        }
        let place = self.store.locate_unshadowed(&id)?;
        if place.is_none_or(|place| place.kind != ObjectKind::ChunkList) {
            return Ok(place.is_some());
        }
        let mut all = true;
        let read = |id: &ObjectId, kind| self.store.object(id, kind);
        let walked = walk_chunks::<StoreError>(id, &read, &mut |met| {
            let pieces = match met {
                ChunkVisit::Part(part) => std::slice::from_ref(part),
                ChunkVisit::Chunks(chunks) => chunks,
            };
            for piece in pieces {
                let id = piece.id.object();
                if self.store.has_only_list(&id)? {
                    let (wanted, found) = (ObjectKind::Blob, ObjectKind::ChunkList);
                    return Err(StoreError::WrongKind { id, wanted, found });
                }
                all = all && self.contains(&id)?;
            }
            Ok(())
        });
        match walked {
            Ok(_) => Ok(all),
            Err(error) => {
                self.shadow_list(&id, &error)?;
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
        damage(error).map_or(Ok(()), |(pack, part)| self.shadow(pack, part))
    }

    /// Shadows the cause of an unreadable chunk list: the damaged objects, or the list itself if it
    /// is wrong. Hashing cannot detect such a list, because its id is the hash of the content.
    fn shadow_list(&self, id: &ObjectId, error: &StoreError) -> Result<(), StoreError> {
        if damage(error).is_some() {
            return self.shadow_damage(error);
        }
        let is_broken = matches!(error, StoreError::Object { .. } | StoreError::WrongKind { .. });
        let place = self.store.locate_unshadowed(id)?.filter(|_| is_broken);
        match place.and_then(|place| self.store.pack_id(place.pack)) {
            Some(pack) => self.shadow(pack, ShadowedPart::Objects([*id].into())),
            None => Ok(()),
        }
    }

    fn shadow(&self, pack: PackId, part: ShadowedPart) -> Result<(), StoreError> {
        if self.is_counting() {
            self.store.add_in_memory(pack, part);
            return Ok(());
        }
        let add = |table: &mut ShadowTable| table.add(pack, Reason::Damaged, part.clone());
        self.store.change_shadows(&add).map(drop)
    }
}
