//! Repair of a damaged cache: the server removes the damaged copy, and reads its content from
//! upstream again.
//!
//! The store reads a frame that does not match its checksum from upstream at once, and its pack is
//! recorded. Before the next request, a stub replaces that pack. If anything else in the cache is
//! damaged, the server discards all that is cached of the repository, and the next request caches
//! it again.

use std::collections::BTreeSet;

use snap_core::{
    base::{id::PackId, kind::ErrorKind},
    store::StoreError,
};
use snap_remote::peer::RemoteError;

use super::UpstreamRepository;
use crate::causes::causes;

/// Returns true if an error means that files of the cache are damaged, not those upstream.
pub(super) fn is_of_cache(error: &RemoteError) -> bool {
    let kind = match error {
        RemoteError::Store(error) if error.is_remote() => return false,
        RemoteError::Store(error) => error.kind(),
        RemoteError::Ref(error) => error.kind(),
        _ => return false,
    };
    matches!(kind, ErrorKind::Damaged | ErrorKind::Unsupported)
}

impl UpstreamRepository {
    /// Records that the cached copy of a pack is damaged.
    pub(super) fn note_damage(&self, id: &PackId) {
        self.damaged.lock().insert(*id);
    }

    /// Replaces the copies of damaged packs with stubs. Returns true if any was replaced. Failures
    /// are ignored: the next request tries again.
    pub fn mend(&self) -> bool {
        let mut damaged = std::mem::take(&mut *self.damaged.lock());
        let unreadable = self.store().unreadable_packs();
        damaged.extend(unreadable.iter().filter_map(|error| error.damaged_pack()));
        let is_lost = self.store().pack_count() < self.index.lock().packs;
        (is_lost || !damaged.is_empty())
            && self.drop_copies(&damaged, is_lost).unwrap_or_else(|error| {
                tracing::warn!(error = %causes(&error), "a damaged copy cannot be replaced");
                if is_of_cache(&error) {
                    self.discard();
                }
                // Otherwise the disk may be full. Discard nothing for lack of room.
                damaged.iter().for_each(|id| self.note_damage(id));
                false
            })
    }

    fn drop_copies(&self, damaged: &BTreeSet<PackId>, is_lost: bool) -> Result<bool, RemoteError> {
        let remote = self.remote.read();
        if is_lost {
            tracing::warn!("packs are missing from the cache and are fetched again");
            self.sync_packs(&remote)?;
        }
        let there = remote.mirror().store();
        let mut is_any_dropped = is_lost;
        for id in damaged {
            let is_dropped = match there.outline(id) {
                Ok(outline) => self.store().renew_stub(&outline)?,
                // The pack is gone upstream, and the cache has not followed yet.
                Err(StoreError::Gone { .. }) => {
                    self.repo.disk().remove(&self.store().pack_path(id))?;
                    self.store().refresh()?;
                    true
                }
                Err(error) => return Err(error.into()),
            };
            is_any_dropped |= is_dropped;
            match is_dropped {
                true => tracing::warn!(%id, "a cached pack was damaged and is fetched again"),
                // Another thread is changing it now.
                false => self.note_damage(id),
            }
        }
        Ok(is_any_dropped)
    }
}
