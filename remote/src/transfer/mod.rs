//! What is moved between a store here and one elsewhere.
//!
//! Each operation runs on the caller's thread and waits for the network in a
//! runtime that it is given: the disk is worked by whoever calls, requests are
//! under way meanwhile.

mod bring;
pub mod clone;
pub mod fetch;
pub mod partly;
pub mod pull;
pub mod push;
mod receive;
mod wanted;

use snap_core::{
    base::id::CommitId,
    repo::history::{History, Parents},
    store::{Store, StoreError},
};

/// Whether `old` is `new` or before it.
fn is_before(store: &Store, old: CommitId, new: CommitId) -> Result<bool, StoreError> {
    if old == new {
        return Ok(true);
    }
    for step in History::new(store, &[new], Parents::All)? {
        if step?.0 == old {
            return Ok(true);
        }
    }
    Ok(false)
}
