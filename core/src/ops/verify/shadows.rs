//! What is found damaged is shadowed: commits do not rely on it any more, and
//! store it again. What is found whole again is relied on again.

use std::{collections::BTreeSet, sync::PoisonError};

use crate::{
    base::{
        id::{ObjectId, PackId},
        kind::ErrorKind,
    },
    format::{
        pack::ObjectKind,
        shadow::{Extent, Reason, ShadowTable},
    },
    ops::verify::{Findings, Problem},
    store::{Store, StoreError, damage},
};

/// Changes to the set of shadowed packs.
#[derive(Debug, Default)]
pub struct Shadowed {
    /// Packs with damage that was not known before.
    pub packs: u64,
    /// Packs that were known to be damaged and are whole.
    pub withdrawn: u64,
    /// Why the shadow table was not written. The next commit still relies on the
    /// damaged objects.
    pub failed: Option<StoreError>,
}

/// Changes to the shadow table that were found necessary.
#[derive(Debug, Default)]
pub(super) struct Found {
    damaged: ShadowTable,
    whole: BTreeSet<PackId>,
}

impl Findings<'_> {
    /// Nothing of a pack may be relied on.
    pub(super) fn shadow_pack(&self, pack: PackId, error: Option<&StoreError>) {
        // A pack that only a newer snap can read is not damaged.
        if error.is_none_or(|error| error.kind() != ErrorKind::Unsupported) {
            self.shadow(pack, Extent::Whole);
        }
    }

    /// These objects of a pack may not be relied on.
    pub(super) fn shadow_objects(&self, pack: PackId, ids: impl IntoIterator<Item = ObjectId>) {
        self.shadow(pack, Extent::Objects(ids.into_iter().collect()));
    }

    /// An object could not be read where it was looked up. It is shadowed there
    /// if that place is to blame.
    pub(super) fn add_unreadable(&self, store: &Store, id: ObjectId, source: StoreError) {
        if self.is_elsewhere() && source.is_elsewhere() {
            match source.kind() {
                ErrorKind::Damaged => self.shadow_place(store, id),
                // It was not asked, or did not answer.
                _ => return self.fail(source),
            }
        }
        match damage(&source) {
            // Only one frame of the pack is wrong.
            Some(_) if matches!(source, StoreError::Frame { .. } | StoreError::Expand { .. }) => {
                self.shadow_place(store, id);
            }
            Some((pack, extent)) => self.shadow(pack, extent),
            // A list of chunks is not named by its own bytes.
            None if matches!(source, StoreError::Object { kind: ObjectKind::ChunkList, .. }) => {
                self.shadow_place(store, id);
            }
            None => {}
        }
        self.add(Problem::Object { id, source }, [id]);
    }

    /// An object may not be relied on in the place where it was looked up.
    pub(super) fn shadow_place(&self, store: &Store, id: ObjectId) {
        if let Ok(Some(place)) = store.locate(&id)
            && let Some(pack) = store.pack_id(place.pack)
        {
            self.shadow_objects(pack, [id]);
        }
    }

    /// The same if the object is a list of chunks.
    pub(super) fn shadow_list(&self, store: &Store, id: ObjectId) {
        let place = store.locate(&id).ok().flatten();
        if place.is_some_and(|place| place.kind == ObjectKind::ChunkList) {
            self.shadow_place(store, id);
        }
    }

    fn shadow(&self, pack: PackId, extent: Extent) {
        let mut found = self.shadows.lock().unwrap_or_else(PoisonError::into_inner);
        found.damaged.add(pack, Reason::Damaged, extent);
    }

    /// A pack that was shadowed was read and hashed, and all of it is right.
    pub(super) fn found_whole(&self, pack: PackId) {
        self.shadows.lock().unwrap_or_else(PoisonError::into_inner).whole.insert(pack);
    }

    /// Whether anything of a pack was found damaged.
    pub(super) fn shadows(&self, pack: &PackId) -> bool {
        self.shadows.lock().unwrap_or_else(PoisonError::into_inner).damaged.touches(pack)
    }
}

/// Writes what was found to the shadow table. Where the store cannot be
/// written, it holds for the rest of this run, and `outcome` says why.
pub(super) fn apply(
    store: &Store,
    findings: &Findings<'_>,
    outcome: &mut Shadowed,
) -> Result<(), StoreError> {
    let found = {
        let mut found = findings.shadows.lock().unwrap_or_else(PoisonError::into_inner);
        let whole = std::mem::take(&mut found.whole);
        Found { damaged: found.damaged.clone(), whole }
    };
    let new = found.damaged.entries().filter(|(pack, ..)| !store.is_damaged(pack)).count();
    outcome.packs += new as u64;
    outcome.withdrawn += found.whole.len() as u64;
    if found.damaged.is_empty() && found.whole.is_empty() {
        return Ok(());
    }
    let written = store.change_shadows(&|table| {
        for pack in &found.whole {
            table.withdraw(pack, Reason::Damaged);
        }
        for (pack, reason, extent) in found.damaged.entries() {
            table.add(*pack, reason, extent.clone());
        }
    });
    match written {
        Ok(_) => Ok(()),
        Err(error @ (StoreError::Io(_) | StoreError::Shadow { .. })) => {
            outcome.failed.get_or_insert(error);
            Ok(())
        }
        Err(error) => Err(error),
    }
}
