//! Transfers between a local store and a remote one.
//!
//! Each operation runs on the thread of the caller, does the disk I/O there, and blocks on the
//! runtime that the caller passes in. The requests run in that runtime.

mod beside;
pub mod clone;
pub mod fetch;
mod fetch_frames;
mod fetch_planner;
mod liveness;
pub mod partial;
pub mod pull;
pub mod push;
mod receiving_folder;

pub(crate) use partial::reach_error;

pub use receiving_folder::discard as discard_received;
use snap_core::{
    base::id::CommitId,
    repo::history::{History, Parents},
    store::{Store, StoreError},
};

/// Returns true if `old` is `new` or one of its ancestors.
pub(crate) fn is_before(store: &Store, old: CommitId, new: CommitId) -> Result<bool, StoreError> {
    if old == new {
        return Ok(true);
    }
    for step in History::new(store, &[new], Parents::All)? {
        if step?.id == old {
            return Ok(true);
        }
    }
    Ok(false)
}
