//! Shadows damaged objects, and withdraws the shadows of packs that are sound again.
//! Commits do not rely on shadowed objects and store them again.

use std::collections::BTreeSet;

use crate::{
    base::{
        id::{ObjectId, PackId},
        kind::ErrorKind,
    },
    format::shadow::{Reason, ShadowTable, ShadowedPart},
    ops::verify::{Verification, VerifyProblem},
    store::{StoreError, damage},
};

/// Changes to the set of shadowed packs.
#[derive(Debug, Default)]
pub struct Shadowed {
    /// Packs with damage that was not known before.
    pub packs: u64,
    /// Packs that were marked as damaged and are sound again.
    pub withdrawn: u64,
    /// The error of writing the shadow table. After such an error, the next commit still
    /// relies on the damaged objects.
    pub failed: Option<StoreError>,
}

/// Changes that the shadow table needs.
#[derive(Debug, Default)]
pub(super) struct ShadowChanges {
    damaged: ShadowTable,
    whole: BTreeSet<PackId>,
}

impl Verification<'_> {
    /// Shadows all objects of a pack.
    pub(super) fn shadow_pack(&self, pack: PackId, error: Option<&StoreError>) {
        // A pack in a format that only a newer snap reads is not damaged.
        if error.is_none_or(|error| error.kind() != ErrorKind::Unsupported) {
            self.shadow(pack, ShadowedPart::Whole);
        }
    }

    /// Shadows these objects of a pack.
    pub(super) fn shadow_objects(&self, pack: PackId, ids: impl IntoIterator<Item = ObjectId>) {
        self.shadow(pack, ShadowedPart::Objects(ids.into_iter().collect()));
    }

    /// Reports an object that could not be read. Shadows the copy that was read if the error shows
    /// that it is damaged.
    pub(super) fn add_unreadable(&self, id: ObjectId, source: StoreError) {
        if self.lies_at_origin(&source) {
            return;
        }
        if self.remote.is_some() && source.is_remote() {
            match source.kind() {
                ErrorKind::Damaged => self.shadow_place(id),
                // A transport failure says nothing about the object.
                _ => return self.fail(source),
            }
        }
        match damage(&source) {
            // Only one frame of the pack is damaged.
            Some(_) if matches!(source, StoreError::Frame { .. } | StoreError::Expand { .. }) => {
                self.shadow_place(id);
            }
            Some((pack, part)) => self.shadow(pack, part),
            None => {}
        }
        self.add(VerifyProblem::Object { id, source }, [id]);
    }

    /// Shadows the copy of an object that a lookup finds.
    pub(super) fn shadow_place(&self, id: ObjectId) {
        if let Ok(Some(place)) = self.store.locate(&id)
            && let Some(pack) = self.store.pack_id(place.pack)
        {
            self.shadow_objects(pack, [id]);
        }
    }

    fn shadow(&self, pack: PackId, part: ShadowedPart) {
        let mut found = self.shadows.lock();
        found.damaged.add(pack, Reason::Damaged, part);
    }

    /// Records that a shadowed pack was read and hashed and is sound.
    pub(super) fn found_whole(&self, pack: PackId) {
        self.shadows.lock().whole.insert(pack);
    }

    /// Returns true if any object of a pack was found damaged.
    pub(super) fn shadows(&self, pack: &PackId) -> bool {
        self.shadows.lock().damaged.has_any(pack)
    }

    /// Writes the changes to the shadow table. If the store cannot be written, the shadows
    /// hold for the rest of this run and the outcome gets the error.
    pub(super) fn apply_shadows(&self) -> Result<(), StoreError> {
        let found = {
            let mut found = self.shadows.lock();
            let whole = std::mem::take(&mut found.whole);
            ShadowChanges { damaged: found.damaged.clone(), whole }
        };
        let new = found.damaged.entries().filter(|(pack, ..)| !self.store.is_damaged(pack)).count();
        self.count(|outcome| {
            outcome.shadowed.packs += new as u64;
            outcome.shadowed.withdrawn += found.whole.len() as u64;
        });
        if found.damaged.is_empty() && found.whole.is_empty() {
            return Ok(());
        }
        let written = self.store.change_shadows(&|table| {
            for pack in &found.whole {
                table.remove(pack, Reason::Damaged);
            }
            for (pack, reason, part) in found.damaged.entries() {
                table.add(*pack, reason, part.clone());
            }
        });
        match written {
            Ok(_) => Ok(()),
            Err(error @ (StoreError::Io(_) | StoreError::Table { .. })) => {
                self.count(|outcome| _ = outcome.shadowed.failed.get_or_insert(error));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
