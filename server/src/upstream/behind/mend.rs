//! Damage in the cache: the copy goes, and what it was a copy of is read upstream.
//!
//! A frame that does not match its checksum is read upstream at once; whoever reads
//! it notes the pack. Before the next request a stub takes the place of the pack.
//! Where something else of the cache is damaged, all that is kept of the
//! repository goes, and the next request makes it anew.

use std::{
    collections::{BTreeSet, HashSet},
    sync::atomic::Ordering,
};

use snap_core::{
    base::{id::PackId, kind::ErrorKind},
    store::StoreError,
};
use snap_remote::store::RemoteError;

use super::{Behind, lock};
use crate::causes::causes;

/// Whether an error says that files of the cache are damaged, not those upstream.
pub(super) fn is_of_cache(error: &RemoteError) -> bool {
    let kind = match error {
        RemoteError::Store(error) if error.is_elsewhere() => return false,
        RemoteError::Store(error) => error.kind(),
        RemoteError::Ref(error) => error.kind(),
        _ => return false,
    };
    matches!(kind, ErrorKind::Damaged | ErrorKind::Unsupported)
}

impl Behind {
    /// Notes that the copy of a pack here is damaged.
    pub(super) fn note_damage(&self, id: &PackId) {
        self.damaged.note(*id);
    }

    /// Drops the copies of packs that were found damaged. Returns whether any was
    /// dropped; what fails is tried again when the next request comes.
    pub fn mend(&self) -> bool {
        let mut damaged = self.damaged.take();
        let unreadable = self.store().unreadable_packs();
        damaged.extend(unreadable.iter().filter_map(|error| error.damaged_pack()));
        let is_lost = self.store().pack_count() < self.packs_there.load(Ordering::SeqCst);
        (is_lost || !damaged.is_empty())
            && self.drop_copies(&damaged, is_lost).unwrap_or_else(|error| {
                tracing::warn!(error = %causes(&error), "a damaged copy cannot be replaced");
                if is_of_cache(&error) {
                    self.discard();
                }
                // Else the disk may be full, and nothing goes for want of room.
                damaged.iter().for_each(|id| self.note_damage(id));
                false
            })
    }

    fn drop_copies(&self, damaged: &BTreeSet<PackId>, is_lost: bool) -> Result<bool, RemoteError> {
        let moving = lock(&self.moving);
        if is_lost {
            tracing::warn!("packs were removed from the cache: they are read anew");
            self.learn(&HashSet::new(), &moving.remote)?;
        }
        let there = moving.remote.mirror().store();
        let mut is_any_dropped = is_lost;
        for id in damaged {
            let is_dropped = match there.outline(id) {
                Ok(outline) => self.store().renew_stub(&outline, &|| true)?,
                // Nobody was told that it counts. Whoever sent it sends it again.
                Err(StoreError::Gone { .. }) => self.remove_pending(id)?,
                Err(error) => return Err(error.into()),
            };
            is_any_dropped |= is_dropped;
            match is_dropped {
                true => tracing::warn!(%id, "a pack was damaged in the cache: it is read anew"),
                // Somebody changes it just now.
                false => self.note_damage(id),
            }
        }
        Ok(is_any_dropped)
    }
}
