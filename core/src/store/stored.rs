//! Whether a content that was not read again is stored whole.

use crate::{
    base::id::{BlobId, ObjectId, PackId},
    format::{
        pack::ObjectKind,
        shadow::{Extent, Reason, ShadowTable},
    },
    store::{Met, StoreError, Writer, damage, walk_chunks},
};

impl Writer<'_> {
    /// Whether a content is stored whole, its chunks included, or about to be. A
    /// list of chunks that turns out to be damaged is shadowed.
    ///
    /// # Errors
    /// [`StoreError`] when the index cannot be read.
    pub fn contains_content(&self, id: &BlobId) -> Result<bool, StoreError> {
        let id = id.object();
        if self.is_claimed(&id) {
            return Ok(true);
        }
        if !self.store.is_stored(&id)? {
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
                Met::Part(part) => std::slice::from_ref(part),
                Met::Chunks(chunks) => chunks,
            };
            for piece in pieces {
                all = all && self.contains(&piece.id.object())?;
            }
            Ok(())
        });
        match walked {
            Ok(_) => Ok(all),
            Err(error) => {
                self.give_up_list(&id, &error)?;
                Ok(false)
            }
        }
    }

    /// Shadows what an error says is damaged, so that this writer stores it again:
    /// durably, or, when it only counts, for the open store. Does nothing for
    /// other errors.
    ///
    /// # Errors
    /// As [`Store::change_shadows`](crate::store::Store::change_shadows).
    pub fn shadow_damage(&self, error: &StoreError) -> Result<(), StoreError> {
        damage(error).map_or(Ok(()), |(pack, extent)| self.shadow(pack, extent))
    }

    /// Shadows what a list of chunks could not be read for: what is damaged, or
    /// the list, whose id says nothing about its bytes.
    fn give_up_list(&self, id: &ObjectId, error: &StoreError) -> Result<(), StoreError> {
        if damage(error).is_some() {
            return self.shadow_damage(error);
        }
        let is_broken = matches!(error, StoreError::Object { .. } | StoreError::WrongKind { .. });
        let place = self.store.locate_unshadowed(id)?.filter(|_| is_broken);
        match place.and_then(|place| self.store.pack_id(place.pack)) {
            Some(pack) => self.shadow(pack, Extent::Objects([*id].into())),
            None => Ok(()),
        }
    }

    fn shadow(&self, pack: PackId, extent: Extent) -> Result<(), StoreError> {
        if self.is_counting() {
            self.store.add_in_memory(pack, extent);
            return Ok(());
        }
        let add = |table: &mut ShadowTable| table.add(pack, Reason::Damaged, extent.clone());
        self.store.change_shadows(&add).map(drop)
    }
}
